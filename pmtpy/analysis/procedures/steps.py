"""How a sensor answers steps of a load that is switched between two levels. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import robust_sd
from pmtpy.analysis.signal.updates import tidy
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_FEWEST = 4
_LOW, _HIGH = 0.1, 0.9
_REST, _REST_READINGS = 0.1, 4  # a step rests where so many readings in a row stay within this share of it
_BEYOND, _BEYOND_SHARE = 0.25, 0.1  # an overshoot is smaller, or shorter
_LEVELS_APART_SD = 6.0  # the levels must be so many times their own spread apart


@dataclass(frozen=True, slots=True)
class Steps:
    """What the steps of a recording look like."""

    # medians of the two levels
    low_w: float
    high_w: float
    noise_w: float  # standard deviation of one reading at a level
    # steps of either kind
    rising: int
    falling: int
    # shape (n,); of each step: time from the last reading below a tenth of it to the first above nine tenths (falling
    # likewise)
    rise_s: Floats
    interval_s: float  # median time between readings: shorter than twice this nothing can be told
    period_s: float  # median time between steps in the same direction; NaN where there are too few
    resting: int  # steps that rest on the way for half of their readings and more: their times contain that

    @property
    def resolved(self) -> bool:
        """Whether the median step takes longer than the readings resolve."""
        return float(np.median(self.rise_s)) > 2.0 * self.interval_s


def steps_of(t_s: Floats, watts: Floats) -> Steps:
    """Find the steps between two levels.

    Raises DeclinedError: there are no two levels, or fewer than four steps between them, or a level between the two.
    """
    t, w = tidy(t_s, watts)
    if len(w) < 4 * _FEWEST:
        msg = f"{len(w)} readings are too few to see steps: record longer"
        raise DeclinedError(msg)
    middle = (np.percentile(w, 5) + np.percentile(w, 95)) / 2.0
    if not (w < middle).any():
        msg = f"no steps: all readings are {middle:.4g} W; let the load switch while it is recorded"
        raise DeclinedError(msg)
    low, high = float(np.median(w[w < middle])), float(np.median(w[w >= middle]))
    size = high - low
    noise = max(robust_sd(w[w < middle]), robust_sd(w[w >= middle]))
    if not size > _LEVELS_APART_SD * noise:
        msg = (
            f"no two levels: {low:.4g} and {high:.4g} W are only {size:.3g} W apart, and readings scatter by "
            f"{noise:.3g} W; take a load that switches by more"
        )
        raise DeclinedError(msg)
    side = np.where(w <= low + _LOW * size, -1, np.where(w >= low + _HIGH * size, 1, 0))
    settled = np.flatnonzero(side)
    turns = np.flatnonzero(np.diff(side[settled]) != 0)
    begin, end = settled[turns], settled[turns + 1]
    if len(begin) < _FEWEST:
        msg = f"the recording has {len(begin)} steps, and a step response takes {_FEWEST}: record longer"
        raise DeclinedError(msg)
    beyond = float(np.mean((w < low - _BEYOND * size) | (w > high + _BEYOND * size)))
    resting = sum(_rests(w[a + 1 : b] / size) for a, b in zip(begin.tolist(), end.tolist(), strict=True))
    if 4 * resting > 3 * len(begin) or beyond > _BEYOND_SHARE:
        rest = f"{resting} of {len(begin)} steps rest between {low:.4g} and {high:.4g} W"
        msg = (
            f"the load has more than two levels: {rest}, and {beyond:.0%} of the readings lie far outside; record a "
            "load that switches between two"
        )
        raise DeclinedError(msg)
    up = side[end] > 0
    same = np.diff(t[end][up])
    return Steps(
        low, high, noise, int(up.sum()), int((~up).sum()), np.asarray(t[end] - t[begin], np.float64),
        float(np.median(np.diff(t))), float(np.median(same)) if len(same) else float("nan"), resting,
    )  # fmt: skip


def _rests(inner: Floats) -> bool:
    """Whether half of the readings within a step, in shares of its size, stay where they are."""
    need = max(_REST_READINGS, -(-len(inner) // 2))
    if len(inner) < need:
        return False
    runs = np.lib.stride_tricks.sliding_window_view(inner, need)
    return bool((np.ptp(runs, axis=1) < _REST).any())
