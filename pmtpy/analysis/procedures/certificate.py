"""What a sensor shows of steady levels and of repeated short loads, and whether that is within stated rules.

Pure: arrays in, records out. Times are seconds on one clock, powers watts, limits as :class:`Rules` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_SETTLED = 0.5  # the published evaluation takes seconds 3 to 6 of a level of 6 s
_FEWEST_LEVELS = 3  # two lie on a straight line whatever the sensor does


# --- steady levels ---


@dataclass(frozen=True, slots=True)
class Level:
    """One stretch of steady load: the share of the device that was loaded, what was shown, and what was there.

    ``reference_w`` is NaN where nothing tells.
    """

    share: float
    shown_w: float
    reference_w: float = math.nan


def settled(start_s: float, end_s: float) -> tuple[float, float]:
    """Return the part of a level that is looked at: clocks ramp at its beginning, and so does the sensor."""
    return start_s + _SETTLED * (end_s - start_s), end_s


def mean_shown(t_s: Floats, watts: Floats, stretch: tuple[float, float]) -> float:
    """Return the mean of the readings of a stretch of steady load, watts.

    Raises DeclinedError: there are none.
    """
    inside = watts[(t_s > stretch[0]) & (t_s <= stretch[1]) & np.isfinite(watts)]
    if not len(inside):
        msg = f"there is no reading from {stretch[0]:.2f} to {stretch[1]:.2f} s"
        raise DeclinedError(msg)
    return float(np.mean(inside))


@dataclass(frozen=True, slots=True)
class Line:
    """The straight line through steady levels: what is shown = gain x what was there + offset."""

    gain: Estimate
    offset_w: Estimate
    deviation: float  # the largest distance of a level from it, as a share of the span of what was shown
    r2: float  # share of the variance that the line explains


def line_through(levels: Sequence[Level]) -> Line:
    """Fit shown against reference powers by least squares.

    Raises DeclinedError: no reference, fewer than three different levels, or no span.
    """
    known = [level for level in levels if math.isfinite(level.reference_w)]
    if not known:
        msg = "nothing tells the true power: give a meter with --meter"
        raise DeclinedError(msg)
    if len({level.share for level in known}) < _FEWEST_LEVELS:
        msg = f"fewer than {_FEWEST_LEVELS} levels: a line through two says nothing"
        raise DeclinedError(msg)
    x, y = (np.array(v, np.float64) for v in zip(*((k.reference_w, k.shown_w) for k in known), strict=True))
    span, middle = float(np.ptp(y)), float(np.mean(x))
    if not (span > 0.0 and np.ptp(x) > 0.0):
        msg = "the load did not change the power"
        raise DeclinedError(msg)
    away = x - middle
    squares, freedom = float(away @ away), len(x) - 2
    gain = float(away @ y) / squares
    residual = y - float(np.mean(y)) - gain * away
    sd = math.sqrt(float(residual @ residual) / freedom)
    offset = float(np.mean(y)) - gain * middle
    return Line(
        Estimate.normal(gain, sd / math.sqrt(squares), freedom),
        Estimate.normal(offset, sd * math.sqrt(1.0 / len(x) + middle**2 / squares), freedom),
        float(np.max(np.abs(residual))) / span,
        1.0 - float(residual @ residual) / float(np.sum((y - np.mean(y)) ** 2)),
    )


# --- repeated short loads ---


@dataclass(frozen=True, slots=True)
class Trials:
    """Energies of the same short loads, begun at other phases of the sensor each time."""

    ratios: tuple[float, ...]  # what each trial showed over what the steady levels make of it
    # of the ratios
    mean: float
    sd: float


def trials_of(ratios: Sequence[float]) -> Trials:
    """Compare trials with each other.

    Raises DeclinedError: fewer than two.
    """
    if len(ratios) < 2:
        msg = "one trial cannot be compared with another"
        raise DeclinedError(msg)
    return Trials(tuple(ratios), float(np.mean(ratios)), float(np.std(ratios, ddof=1)))
