"""How steady a sensor's mean is over hours at a constant load. Pure.

What a board's temperature does to its readings has a memory: neighbouring blocks are off together, and a line through
them looks surer than it is. So the drift is the slope about a level that walks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.procedures._slope import slope
from pmtpy.analysis.repetition.resolve import LEAST_BLOCKS
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError


@dataclass(frozen=True, slots=True)
class Stability:
    """Means of blocks over time."""

    blocks: int
    hours: float  # from the first block to the last
    mean_w: float
    worst_w: float  # the largest distance of a block's mean from the mean of all
    sd_w: float  # standard deviation of the blocks' means
    # what it would be if only the readings' own noise were there: sd of a reading / sqrt(readings in a block)
    noise_w: float
    drift_w_per_h: Estimate  # slope of the means


def stability_of(at_s: Floats, means_w: Floats, sds_w: Floats, readings: Floats) -> Stability:
    """Judge the means of blocks of readings at a constant load.

    Parameters
    ----------
    at_s, means_w, sds_w, readings : float64, shape (n,)
        Middle of each block, its mean, standard deviation of its readings, how many there are.

    Raises DeclinedError: fewer than five blocks are known.
    """
    known = np.isfinite(means_w)
    t, w = at_s[known] / 3600.0, means_w[known]
    if len(w) < LEAST_BLOCKS:
        msg = (
            f"{amount(len(w), 'block is', 'blocks are')} known, and a drift takes {LEAST_BLOCKS}: record longer, or "
            "in more blocks"
        )
        raise DeclinedError(msg)
    # A mean over a block is no better known than its length, which Unix seconds round.
    rounded_w = w.mean() * float(np.spacing(np.abs(at_s).max()) / np.median(np.diff(at_s)))
    noise = float(np.sqrt(np.mean(sds_w[known] ** 2 / readings[known])))
    return Stability(
        len(w), float(t[-1] - t[0]), float(w.mean()), float(np.abs(w - w.mean()).max()), float(w.std(ddof=1)), noise,
        slope(t, w, rounded_w),
    )  # fmt: skip
