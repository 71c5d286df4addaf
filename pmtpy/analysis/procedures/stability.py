"""How steady a sensor's mean is over hours at a constant load. Pure.

What a board's temperature does to its readings has a memory: neighbouring blocks are off together, and a line through
them looks surer than it is. So the drift is judged with white noise and a wander of unknown size and memory (an
Ornstein-Uhlenbeck process), each of which counts as far as it explains the blocks (restricted likelihood: Patterson and
Thompson, Biometrika 58, 1971).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.repetition.resolve import LEAST_BLOCKS
from pmtpy.analysis.signal.estimate import Estimate, mixed
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_MAX_BLOCKS = 64  # blocks for the drift: of more, neighbours are taken together
# How far the level walks from one block to the next: variances in that of the white noise, all as likely beforehand.
_WALKS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


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
        _drift(t, w, rounded_w),
    )  # fmt: skip


def _drift(t: Floats, w: Floats, rounded_w: float) -> Estimate:
    """Slope of the means about a level that walks; ``rounded_w``: the least scatter of a mean.

    White noise about a random walk is the local level model (Harvey, Forecasting, 1989, chapter 2). What wanders and
    comes back after hours holds no less often in its intervals than a walk does.
    """
    take = -(-len(w) // _MAX_BLOCKS)
    count = len(w) // take
    t, w = (v[: count * take].reshape(count, take).mean(axis=1) for v in (t - t.mean(), w - w.mean()))
    design = np.stack([np.ones(count), t], axis=1)
    since = (t - t[0]) / np.median(np.diff(t))
    walk = np.minimum(since[:, None], since)
    log_odds, found = zip(*(_fitted(design, w, np.eye(count) + size * walk, rounded_w) for size in _WALKS), strict=True)
    share = np.exp(np.array(log_odds) - max(log_odds))
    share /= share.sum()
    value, low, high = np.array([(e.value, e.low, e.high) for e in found]).T
    return Estimate(float(share @ value), *mixed(share, value, low, high))


def _fitted(design: Floats, w: Floats, covariance: Floats, least_w: float) -> tuple[float, Estimate]:
    """Return the logarithm of the restricted likelihood and the slope, for a covariance known but for its size."""
    root = np.linalg.cholesky(covariance)
    x, y = np.linalg.solve(root, design), np.linalg.solve(root, w)
    normal = x.T @ x
    found = np.linalg.solve(normal, x.T @ y)
    rest = y - x @ found
    freedom = len(w) - 2
    variance = max(float(rest @ rest) / freedom, least_w**2, 1e-300)
    sizes = 2.0 * float(np.sum(np.log(np.diag(root)))) + float(np.linalg.slogdet(normal)[1])
    error = math.sqrt(variance * float(np.linalg.inv(normal)[1, 1]))
    return -0.5 * (sizes + freedom * math.log(variance)), Estimate.normal(float(found[1]), error, freedom)
