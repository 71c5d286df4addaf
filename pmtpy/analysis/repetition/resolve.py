"""What trials say: intervals, the verdict of a comparison, when there is enough, and what looks wrong.

The trial is the unit, not the reading: readings of one trial follow each other and say nothing of repeatability. When
to stop is decided by the width of the interval alone, never by whether it excludes zero: who stops at the first
p < 0.05 finds differences that are not there. Student's t throughout, widened for an end that is chosen by the width;
``benchmarks/bench_stopping.py`` shows how often the intervals hold.
"""

from __future__ import annotations

import bisect
import enum
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import Z95, Estimate, robust_sd, student_95
from pmtpy.core.rows import Floats

LEAST_BLOCKS = 5
# Whoever ends when the interval is narrow ends more often where the scatter looks small by chance. What Student's
# intervals hold too little then goes as one over the number of blocks (Woodroofe, Annals of Statistics 5, 1977, page
# 984), so they are widened by a share that does, too. ``benchmarks/bench_stopping.py``: plain ones of a difference
# hold in 91 to 96 %, these in 95 to 99 %.
_CHOSEN_END = 2.0
# Robust standard deviations from the median of so many trials or more: hardly by chance.
_OUTLIER_DEVIATIONS, _OUTLIERS_FROM_BLOCKS = 6.0, 8


class Verdict(enum.Enum):
    """What a comparison comes down to: of the second work against the first."""

    LESS = "less"
    MORE = "more"
    SAME = "no difference larger than"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class MeanOfBlocks(Estimate):
    """A mean with its interval of 95 %."""

    repeatability: float  # half-width by the scatter of the blocks alone


@dataclass(frozen=True, slots=True)
class Difference(MeanOfBlocks):
    """By which share of the first the second differs, and what follows; -0.02: it uses 2 % less."""

    verdict: Verdict
    limit: float  # the difference that matters, as asked for


def estimate(values: Sequence[float], common_u: float) -> MeanOfBlocks:
    """Return the mean of blocks; ``common_u`` is the standard uncertainty that all share, in their unit.

    With one block nothing is known of the scatter: the interval is infinite.
    """
    mean, half = float(np.mean(values)), half_width(values)
    whole = math.hypot(half, Z95 * common_u)
    return MeanOfBlocks(mean, mean - whole, mean + whole, half)


def half_width(values: Sequence[float]) -> float:
    """Half-width of the 95 % interval of the mean by the scatter of the values; infinite for fewer than two."""
    n = len(values)
    return _expected(n, float(np.std(values, ddof=1))) if n > 1 else math.inf


def _expected(n: int, deviation: float) -> float:
    return (1.0 + _CHOSEN_END / n) * student_95(n - 1) * deviation / math.sqrt(n)


def log_ratio(first: float, second: float) -> float:
    """Return the logarithm of the second energy over the first; NaN: one is not above zero, so there is no share."""
    return math.log(second / first) if first > 0.0 < second else math.nan


def compare_blocks(first: Sequence[float], second: Sequence[float], limit: float, common_u: float) -> Difference:
    """Compare the energies of two works, block by block.

    Ratios are taken within a block, and their logarithms averaged: the gain of the sensor, and what drifts slowly,
    cancels in each.

    Parameters
    ----------
    first, second : sequence of float
        Mean energy of each block; where one is not above zero, nothing follows.
    limit : float
        The relative difference that matters.
    common_u : float
        Relative standard uncertainty that does not cancel and that repeating does not lessen.
    """
    ratios = [log_ratio(a, b) for a, b in zip(first, second, strict=True)]
    n, middle, half = len(ratios), float(np.mean(ratios)), half_width(ratios)
    whole = math.hypot(half, Z95 * common_u)
    value, low, high = (_share(x) for x in (middle, middle - whole, middle + whole))
    verdict = Verdict.UNRESOLVED
    if n >= LEAST_BLOCKS:
        if -limit < low and high < limit:
            verdict = Verdict.SAME
        elif low > 0.0:
            verdict = Verdict.MORE
        elif high < 0.0:
            verdict = Verdict.LESS
    return Difference(value, low, high, half, verdict, limit)


def _share(logarithm: float) -> float:
    return math.inf if logarithm >= 700.0 else math.expm1(logarithm)


def _wanted(target: float, *, paired: bool) -> float:
    """Half-width that always decides: beyond half of what matters an estimate excludes none, within it what matters."""
    return math.log1p(target) / 2.0 if paired else target


def enough(relative: Sequence[float], target: float, *, paired: bool) -> bool:
    """Whether the interval of the mean of relative values, or of logarithms of ratios, is narrow enough to stop."""
    return len(relative) >= LEAST_BLOCKS and half_width(relative) <= _wanted(target, paired=paired)


def planned(relative: Sequence[float], target: float, *, paired: bool) -> int:
    """Return how many blocks are needed in all, by the scatter of those that were made."""
    if len(relative) < 2:
        return LEAST_BLOCKS
    wanted = _wanted(target, paired=paired)
    deviation = float(np.std(relative, ddof=1))
    numbers = range(LEAST_BLOCKS, sys.maxsize)
    return LEAST_BLOCKS + bisect.bisect_left(numbers, True, key=lambda n: _expected(n, deviation) <= wanted)


def drift(t_s: Floats, values: Floats) -> tuple[float, bool]:
    """Return by which share the values change over the time that they span, and whether that is more than chance."""
    n, mean, length = len(values), float(np.mean(values)), float(np.ptp(t_s))
    if n <= 3 or length == 0.0 or mean == 0.0:
        return 0.0, False
    t, rest = t_s - np.mean(t_s), values - mean
    slope = float(t @ rest) / float(t @ t)
    standard = float(np.linalg.norm(rest - slope * t)) / math.sqrt((n - 2) * float(t @ t))
    return slope * length / mean, abs(slope) > student_95(n - 2) * standard


def outliers(values: Sequence[float]) -> list[int]:
    """Return which of the values lie far from all others: something else was going on there."""
    each = np.asarray(values, np.float64)
    if len(each) < _OUTLIERS_FROM_BLOCKS:
        return []
    usual = robust_sd(each) or math.inf  # most are the same to the last digit
    return [int(i) for i in np.flatnonzero(np.abs(each - np.median(each)) > _OUTLIER_DEVIATIONS * usual)]
