"""Where an energy lies if the load repeats in step with its sensor, of which no reading tells. Pure.

A hypothesis, and one model of it for all: a sensor that is judged by what its maker states, and one whose kernel a
profile knows (docs/corrections.md, "Aliasing is a hypothesis"). A load of the period ``a T/b`` (``T``: that of the
readings, ``a/b`` in lowest terms) is shown in ``a`` phases, ``T/b`` apart, again and again. What it does between two of
them shows in no reading: all of it where there is but one, and how early it begins and how late it ends where there are
more.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pmtpy.analysis.uncertainty.channel_times import FULL_COVERAGE, SEVERAL_RENEWALS
from pmtpy.core.presentation import duration
from pmtpy.core.response import FORGOTTEN, Response
from pmtpy.core.rows import Floats

_PHASES = 64  # in which a period is divided to see which of them a kernel prefers
# Phases that readings see of a load, in one of its periods or of theirs, the longer: what is between two of more is
# less than an eighth of it.
_MAX_PHASES = 8
_MEANT_OUT = 32  # periods that a kernel sees of a load, of which it hides less than one in a hundred
# A share of a load's period that readings leave out each time, from which on a block of the load may lie in it.
_MIN_LEFT_OUT = 0.25
_BY_CHANCE = 0.01  # instants that keep no step leave as much out in so many cases
_ON_TOP = 0.1  # of the span of the powers: readings this near to the highest show it
_REST = 0.2  # of the highest power shown: less than that between the highest and the lowest, no rest was shown
# How much wider than the interval, and how wide, as a share of the energy, such an interval is before it is said.
_MIN_RATIO, _MIN_SHARE = 1.5, 0.01


def joules_in_step(
    response: Response,
    joules: float,
    length_s: float,
    shown: tuple[float, float],
    swings_w: float,
    *,
    load_period_s: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """Return between what the energy lies if the load repeats in step with the sensor.

    Each reading then sees the same phases of it, and may prefer some (:func:`_unseen`); and the load may be ahead
    of its mean at the two ends by what half a period, or half the window, holds. Powers between the lowest and the
    highest shown; if no rest was ever shown, between nothing and as much again.

    Parameters
    ----------
    joules, length_s : float
        Of the interval, as shown.
    shown : (float, float)
        Lowest and highest power shown in and around it.
    swings_w : float
        What the power moves by at the two ends, together: of a short interval the mean itself is in doubt.
    load_period_s : (float, float), optional
        Between which the load's period is known to be; None: it may be that of the readings.
    """
    (lowest, highest), mean = span_of_powers(*shown), joules / length_s
    highest = max(highest, 2.0 * mean - lowest)
    least, most = _unseen(response, (mean, lowest, highest), length_s, load_period_s)
    shortest, longest = load_period_s or (0.0, math.inf)
    # A window shows the course of a load whose period is longer; nothing of one that is as long.
    blurred = max(response.period_s, response.window_s if shortest < 2.0 * response.window_s else 0.0)
    ends = max(min(blurred, longest) * (mean - lowest), min(response.period_s, longest) * swings_w / 2.0)
    return least * length_s - ends, most * length_s + ends


def top_unseen(
    response: Response,
    t_s: Floats,
    watts: Floats,
    interval: tuple[float, float],
    load_period_s: tuple[float, float],
) -> bool:
    """Whether the load may use more than was ever shown, because each reading leaves out the same part of its period.

    Not where it slides through its phases, nor where its highest power was shown for longer than it takes to repeat,
    outside of an interval that shows less.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        When readings were published, and the true power by each; all there are.
    interval : (float, float)
        Whose energy is asked for.
    """
    history_s, (shortest, longest) = float(t_s[-1] - t_s[0]), load_period_s
    left_out = [
        1.0 / a - response.span_s / (a * response.period_s / b)
        for a, b, part in _alike(response, history_s, load_period_s)
        if part >= 1.0
    ]
    if max(left_out, default=0.0) < _MIN_LEFT_OUT:
        return False
    lowest, highest = float(np.min(watts)), float(np.max(watts))
    top = watts > highest - _ON_TOP * (highest - lowest)
    inside = (t_s > interval[0]) & (t_s < interval[1])
    if bool(np.all(top[inside])):
        return True
    lasts = _longest(t_s, top & ~inside)
    return lasts < max(longest if math.isfinite(longest) else shortest, response.period_s)


def left_out_s(response: Response, t_s: Floats, begun_s: Floats) -> float:
    """Return for how long readings look away from all that begins at these instants, at one place; 0: at none.

    Of n instants that keep no step the widest of the gaps between their phases is a share x of a period, or more, in
    n (1 - x)^(n - 1) of all cases at the most (Whitworth 1897; David, Nagaraja, Order Statistics, section 6.4).

    Parameters
    ----------
    t_s : float64, shape (n,)
        When readings were published.
    """
    n = len(begun_s)
    if n == 0:
        return 0.0
    period, after = response.period_s, np.minimum(t_s.searchsorted(begun_s), len(t_s) - 1)
    phase = np.sort(np.mod(t_s[after] - begun_s, period)) / period
    widest = float(np.max(np.diff(np.append(phase, phase[0] + 1.0))))
    left = widest - response.coverage
    by_chance = n * (1.0 - widest) ** (n - 1)
    return left * period if left > _MIN_LEFT_OUT and by_chance < _BY_CHANCE else 0.0


def span_of_powers(lowest: float, highest: float) -> tuple[float, float]:
    """Return between which powers a load may be: as shown, or from nothing if no rest was shown."""
    return (0.0 if highest - lowest < _REST * highest else lowest), highest


def rests(response: Response, t_s: Floats, watts: Floats) -> bool:
    """Whether the lowest power was shown for so long that a load seems to rest there.

    Of one that is nearly in step with the sensor each reading cuts another piece, so that they scatter between two
    powers of which neither is its own.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        When readings were published, and the true power by each; all there are.
    """
    lowest, highest = float(np.min(watts)), float(np.max(watts))
    if highest - lowest < _REST * highest:
        return False
    low = watts <= lowest + _ON_TOP * (highest - lowest)
    return _longest(t_s, low) > max(response.window_s, SEVERAL_RENEWALS * response.period_s)


def _longest(t_s: Floats, which: NDArray[np.bool_]) -> float:
    """Return how long the longest run of readings lasts, from the first of them to the last."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], which, [False]])))
    return max(
        (float(t_s[last - 1] - t_s[first]) for first, last in zip(ends[::2], ends[1::2], strict=True)), default=0.0
    )


def in_step_with(sample_s: float, window_s: float, refresh_s: float = 0.0) -> str:
    """Name the times whose ratios a load may repeat in: of the readings, of what they show, of a wide window."""
    renewed = f", or with what they show, {duration(refresh_s)}" if refresh_s else ""
    window = f", or with its window, {duration(window_s)}" if window_s > SEVERAL_RENEWALS * sample_s else ""
    comma = "," if renewed or window else ""
    return f"{duration(sample_s)}{renewed}{window}{comma} or a time in a simple ratio to it (1/2, 2, 3/2)"


def aliasing(
    joules: float,
    half_width: float,
    between: tuple[float, float],
    *,
    lowest_w: float,
    covers: float | None,
    period: str,
    cure: str,
    always: bool = False,
) -> str:
    """Say that nothing shows of a load in step with its sensor, and between what the energy then lies.

    Empty where the interval of ``half_width`` either side says as much, unless it is to be said ``always``.

    Parameters
    ----------
    between : (float, float)
        Of :func:`joules_in_step`.
    lowest_w : float
        Lowest power that was shown: no load uses less than nothing, unless it was shown to.
    covers : float or None
        What share of the time the sensor sees; None: not known.
    """
    low, high, sees, far = min(between[0], joules - half_width), max(between[1], joules + half_width), "", ""
    if high - low > max(2.0 * _MIN_RATIO * half_width, _MIN_SHARE * abs(joules)):
        low = max(low, 0.0) if lowest_w >= 0.0 else low
        # Whether it was, no reading tells: those that cut a load alike for long look like a power that lasts.
        more = "and more if its highest power was never shown"
        far = f": of such a load the energy is anything from {low:.4g} to {high:.4g} J, {more}"
    elif not always:
        return ""
    if covers is None:
        sees = "this sensor covers an unknown part of the time; "
    elif covers < FULL_COVERAGE:
        sees = f"this sensor sees {covers:.0%} of the time; "
    return f"{sees}a load that repeats nearly in step with its readings, {period}, can alias unnoticed{far}; {cure}"


def _unseen(
    response: Response, watts: tuple[float, float, float], length_s: float, load_period_s: tuple[float, float] | None
) -> tuple[float, float]:
    """Return the least and the largest mean power of a load in step whose readings show what they do.

    ``watts``: the mean that is shown, and between which powers the load may be.
    """
    shown, lowest, highest = watts
    if not highest > lowest:
        return shown, shown
    on = (shown - lowest) / (highest - lowest)
    least = most = 0.0
    for a, b, part in _alike(response, length_s, load_period_s):
        if part / a <= min(least, most):  # of which all that is hidden is no more
            continue
        below, above = _hidden(response, response.period_s / b, np.linspace(0.0, 1.0, _PHASES + 1) if a > 1 else on)
        least, most = max(least, part * below / a), max(most, part * above / a)
    swing = highest - lowest
    return max(lowest, shown - swing * least), min(highest, shown + swing * most)


def _alike(
    response: Response, length_s: float, load_period_s: tuple[float, float] | None
) -> list[tuple[int, int, float]]:
    """Return ``a``, ``b``, and what share of a hidden power a load of the nearest known period hides on the mean.

    One that slides by a whole step between two phases hides none, and less and less from there.
    """
    if load_period_s is None:
        return [(1, 1, 1.0)]
    (low, high), period_s, found = load_period_s, response.period_s, list[tuple[int, int, float]]()
    # Of many periods that it may have one of the longer half keeps step, and hides the most; a kernel means many out.
    shortest = min(max(low, min(high, period_s) / 2.0, response.span_s / _MEANT_OUT), period_s)
    for b in range(1, math.ceil(_MAX_PHASES * period_s / shortest) + 1):
        step = period_s / b
        first = max(1, math.ceil(low / step))
        for a in {max(1, first - 1), first}:
            off = max(low - a * step, a * step - high, 0.0) / (a * step) * length_s
            found.append((a, b, min(1.0, step / off) if off > 0.0 else 1.0))
    return found


def _hidden(response: Response, step_s: float, on: Floats | float) -> tuple[float, float]:
    """Return by how much a share of the time may be less, and more, than a kernel shows that sees one phase of it."""
    tick = step_s / _PHASES
    many = math.ceil((response.window_s + FORGOTTEN * response.tau_s) / tick) + 1
    seen = np.diff(response.step(np.asarray(np.arange(many + 1) * tick, np.float64)))
    folded, phases = np.sort(np.bincount(np.arange(many) % _PHASES, seen, _PHASES)), np.linspace(0.0, 1.0, _PHASES + 1)
    least, most = (np.interp(on, np.append(0.0, np.cumsum(f)), phases) for f in (folded[::-1], folded))
    return float(np.max(on - least)), float(np.max(most - on))
