"""What a sensor shows of steady levels and of repeated short loads, and whether that is within stated rules.

Pure: arrays in, records out. Times are seconds on one clock, powers watts, limits as
:class:`~pmtpy.lab.certify_rules.Rules` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.correlogram import correlogram
from pmtpy.analysis.signal.estimate import MISSED, Estimate, student_95
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_LAST_SHARE_OF_LEVEL = 0.5  # the published evaluation takes seconds 3 to 6 of a level of 6 s
_FEWEST_LEVELS = 3  # two lie on a straight line whatever the sensor does


# --- steady levels ---


@dataclass(frozen=True, slots=True)
class Level:
    """One stretch of steady load: the share of the device that was loaded, what was shown, and what was there.

    ``reference_w`` is NaN where nothing tells. Its standard uncertainties are its own, and what it shares with the
    references of all levels, such as the gain of the meter.
    """

    share: float
    shown_w: float
    reference_w: float = math.nan
    reference_u_w: float = 0.0
    shared_u_w: float = 0.0


def settled(start_s: float, end_s: float, *, shown_s: float = 0.0, there_s: float = 0.0) -> tuple[float, float]:
    """Return the part of a level that is looked at: clocks ramp at its beginning, and so does the sensor.

    Parameters
    ----------
    shown_s, there_s : float
        For how long after a change the sensor, and what tells the true power, still show what was before: the end of
        the level is left out by as much as the latter, because it is told of there together with what comes behind.

    Raises DeclinedError: the level is too short for one of them.
    """
    length = end_s - start_s
    # Of what is left, half is to be the level's.
    needed = max(shown_s / _LAST_SHARE_OF_LEVEL, 2.0 * there_s / (1.0 - _LAST_SHARE_OF_LEVEL))
    if length < needed:
        slow = "the sensor" if shown_s / _LAST_SHARE_OF_LEVEL >= needed else "the meter"
        msg = f"levels of {length:.3g} s are too short for {slow}; give --level-time {math.ceil(needed)}s or more"
        raise DeclinedError(msg)
    return start_s + _LAST_SHARE_OF_LEVEL * length, end_s - there_s


def late_s(t_s: Floats, watts: Floats, levels: Sequence[tuple[float, float, float]], *, allowed_s: float) -> float:
    """Return by how much a meter shows steps between levels later than they were; 0 within what is allowed.

    Looked for within half of what the levels last, by the correlation with the shares; 0 where they are not alike.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        What the meter showed.
    levels : sequence of (share, begin, end)
        In order, seconds.
    """
    known = np.isfinite(watts)
    # What is between two levels is of the first.
    ends, shares = [*(begin for _, begin, _ in levels), levels[-1][2]], [share for share, *_ in levels]
    there = PowerTrace.of_levels(np.array(ends), [shares[0], *shares, shares[-1]])
    try:
        shown = PowerTrace.from_samples(t_s[known], watts[known])
        late = -correlogram(shown, there, reach_s=(ends[-1] - ends[0]) / 2.0, step_s=shown.cell_s).best()
    except DeclinedError:
        return 0.0
    return late if abs(late) > allowed_s + 2.0 * shown.cell_s else 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """The straight line through steady levels: what is shown = gain x what was there + offset."""

    gain: Estimate
    offset_w: Estimate
    # largest distance of a level, in the mean of its rounds, from the line, as a share of the span of what was shown
    deviation: Estimate
    r2: float  # share of the variance that the line explains
    # the power about which an error of the gain turns the line, and the standard uncertainty of what is shown there
    level_at_w: float
    level_u: float
    shown: Estimate  # share of the power that is shown, of the level under load where it is furthest from all of it


def line_through(levels: Sequence[Level]) -> Line:
    """Fit shown against reference powers by least squares.

    What the reference does not know of each level adds to the scatter about the line; what it shares with all levels
    is an uncertainty of the gain. How far a level is from the line is as well known as its rounds agree; of a single
    round nothing tells a bent line from noise, so the least distance is zero.

    Raises DeclinedError: no reference, fewer than three different levels, no span, or a gain that may be none.
    """
    known = [level for level in levels if math.isfinite(level.reference_w)]
    if not known:
        msg = "nothing tells the true power: give a meter with --meter, of which no rows are lost meanwhile"
        raise DeclinedError(msg)
    if len({level.share for level in known}) < _FEWEST_LEVELS:
        msg = f"whether levels lie on a line takes {_FEWEST_LEVELS} of them or more: give them with --levels"
        raise DeclinedError(msg)
    x, y, own, shared = np.array([(k.reference_w, k.shown_w, k.reference_u_w, k.shared_u_w) for k in known]).T
    span, middle = float(np.ptp(y)), float(np.mean(x))
    if not (span > 0.0 and np.ptp(x) > 0.0):
        msg = "the levels of the load show one power: see that the load runs on the device that is measured"
        raise DeclinedError(msg)
    away = x - middle
    squares, freedom = float(away @ away), len(x) - 2
    gain = float(away @ y) / squares
    residual = y - float(np.mean(y)) - gain * away
    variance = float(residual @ residual) / freedom + (gain * own) ** 2
    of_gain, of_offset = away / squares, 1.0 / len(x) - middle * away / squares  # what a watt shown does to them
    highest, lowest = int(np.argmax(np.abs(x))), int(np.argmin(np.abs(x)))
    common = gain * float(shared[highest] / abs(x[highest]))
    gain_u, turning = math.hypot(math.sqrt(float(variance @ of_gain**2)), common), float(variance @ of_gain**2)
    offset_u = math.hypot(math.sqrt(float(variance @ of_offset**2)), gain * float(shared[lowest]))
    # A scatter turns the line about its middle, an error of the meter's gain about zero: both together in between.
    at_w = middle * turning / gain_u**2 if gain_u else middle
    known_gain = Estimate.normal(gain, gain_u, freedom)
    if known_gain.low <= 0.0:
        msg = (
            "what the sensor shows does not rise with what the meter shows, as far as these levels tell: see that both "
            "measure the same power, or give more --rounds"
        )
        raise DeclinedError(msg)
    offset, level_u = float(np.mean(y)) - gain * middle, math.sqrt(max(0.0, offset_u**2 - (gain_u * at_w) ** 2))
    loaded_w = [k.reference_w for k in known if k.share > 0.0 and k.reference_w > 0.0]
    return Line(
        known_gain,
        Estimate.normal(offset, offset_u, freedom),
        _deviation(known, residual, gain * own).scaled(1.0 / span),
        1.0 - float(residual @ residual) / float(np.sum((y - np.mean(y)) ** 2)),
        at_w,
        level_u,
        max(
            (
                Estimate.normal(gain + offset / w, math.hypot(level_u, gain_u * (w - at_w)) / abs(w), freedom)
                for w in sorted(loaded_w)[:: max(1, len(loaded_w) - 1)]  # between them a line is no further off
            ),
            key=lambda share: abs(share.value - 1.0),
            default=known_gain,
        ),
    )


def _deviation(levels: Sequence[Level], residual: Floats, own_u: Floats) -> Estimate:
    """Return the largest distance of a level from the line, in the mean of its rounds, watts."""
    from scipy.special import stdtrit  # (scipy.stats takes half a second to import)

    mean, rounds, scatter, freedom = _rounds(levels, residual)
    own = _rounds(levels, own_u**2)[0]
    repeated = freedom > 0
    if not repeated:
        freedom = len(levels) - 2
        scatter = math.sqrt(float(residual @ residual) / freedom)
    half = stdtrit(freedom, 1.0 - MISSED / 2.0 / len(mean)) * np.sqrt(scatter**2 / rounds + own)
    off = np.abs(mean)
    return Estimate(
        float(np.max(off)), max(0.0, float(np.max(off - half))) if repeated else 0.0, float(max(off + half))
    )


def _rounds(levels: Sequence[Level], values: Floats) -> tuple[Floats, Floats, float, int]:
    """Return the mean of values over the rounds of each level, how many these are, and how they scatter.

    The last is the standard deviation of a single one about the mean of its level, with its degrees of freedom.
    """
    _, of = np.unique([level.share for level in levels], return_inverse=True)
    rounds = np.bincount(of).astype(np.float64)
    mean = np.bincount(of, values) / rounds
    freedom = len(values) - len(mean)
    return mean, rounds, float(np.sqrt(np.sum((values - mean[of]) ** 2) / max(freedom, 1))), freedom


# --- repeated short loads ---


@dataclass(frozen=True, slots=True)
class Trials:
    """Energies of the same short loads, begun at other phases of the sensor each time."""

    ratios: tuple[float, ...]  # what each trial showed over what the steady levels make of it
    # of the ratios
    mean: Estimate
    sd: Estimate
    loaded: float = 1.0  # share of what is expected that is due to the load, and not to the device at rest


def trials_of(ratios: Sequence[float], levels: Sequence[Level] = (), loaded: float = 1.0) -> Trials:
    """Compare trials with each other.

    ``levels`` are those by which they were expected: how they scatter from round to round is common to all ratios.
    ``loaded`` is as of :class:`Trials`.

    Raises DeclinedError: fewer than two.
    """
    from scipy.special import chdtri

    if len(ratios) < 2:
        msg = "how well energies repeat takes two trials or more: give them with --trials"
        raise DeclinedError(msg)
    freedom = len(ratios) - 1
    mean, sd = float(np.mean(ratios)), float(np.std(ratios, ddof=1))
    low, high = (sd * math.sqrt(freedom / float(chdtri(freedom, p))) for p in (MISSED / 2.0, 1.0 - MISSED / 2.0))
    found = Estimate.normal(mean, sd / math.sqrt(len(ratios)), freedom)
    if levels:
        shown = np.array([level.shown_w for level in levels])
        _, rounds, scatter, of = _rounds(levels, shown)
        # They are at rest for about half of a trial, and at full load for the rest.
        found = found.widened(
            student_95(max(of, 2)) * mean * scatter / math.sqrt(2.0 * np.min(rounds)) / float(np.mean(shown))
        )
    return Trials(tuple(ratios), found, Estimate(sd, low, high), loaded)
