"""Where an energy lies if the load repeats in step with its sensor, of which no reading tells. Pure.

A hypothesis, and one model of it for all: a sensor that is judged by what its maker states, and one whose kernel a
profile knows (docs/corrections.md, "Aliasing is a hypothesis").
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.core.response import Response

_PHASES = 64  # in which a period is divided to see which of them a kernel prefers
_REST = 0.2  # of the highest power shown: less than that between the highest and the lowest, no rest was shown
# How much wider than the interval, and how wide, as a share of the energy, such an interval is before it is said.
_MIN_RATIO, _MIN_SHARE = 1.5, 0.01


def joules_in_step(
    response: Response, joules: float, length_s: float, shown: tuple[float, float], swings_w: float
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
    """
    (lowest, highest), mean = shown, joules / length_s
    if highest - lowest < _REST * highest:
        lowest = 0.0
    highest = max(highest, 2.0 * mean - lowest)
    least, most = _unseen(response, mean, lowest, highest)
    ends = max(max(response.period_s, response.window_s) * (mean - lowest), response.period_s * swings_w / 2.0)
    return least * length_s - ends, most * length_s + ends


def to_be_said(low: float, high: float, joules: float, half_width: float) -> bool:
    """Whether such an interval says more than the one of ``half_width`` either side."""
    return high - low > max(2.0 * _MIN_RATIO * half_width, _MIN_SHARE * abs(joules))


def _unseen(response: Response, shown: float, lowest: float, highest: float) -> tuple[float, float]:
    """Return the least and the largest mean power that a kernel shows as ``shown`` if each update sees the same.

    The largest is that of a load which is at its highest in those phases of the update period that the kernel sees
    least, for as long as ``shown`` allows.
    """
    if not highest > lowest:
        return shown, shown
    tick = response.period_s / _PHASES
    many = math.ceil((response.window_s + 8.0 * response.tau_s) / tick) + 1
    seen = np.diff(response.step(np.asarray(np.arange(many + 1) * tick, np.float64)))
    folded = np.sort(np.bincount(np.arange(many) % _PHASES, seen, _PHASES))
    on, phases = (shown - lowest) / (highest - lowest), np.linspace(0.0, 1.0, _PHASES + 1)
    ends = [float(np.interp(on, np.append(0.0, np.cumsum(f)), phases)) for f in (folded[::-1], folded)]
    return lowest + ends[0] * (highest - lowest), lowest + ends[1] * (highest - lowest)
