"""Where within an interval a counter and the power of the same part part most: a leap that the whole of it hides.

What two gains leave open grows with the interval, and a counter leaps once. So the two are held against each other over
the short stretch in which they differ most as well, and from one move of the counter to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats, Ints

# Length of the stretch, in renewals and in windows: what the ends of it leave open is then a small part of it.
_STRETCH_RENEWALS = 10.0
_STRETCH_WINDOWS = 4.0
_SHORTEST_STRETCH_S = 1.0
_SAME_LEAP_SHARE = 0.9  # of the widest difference
_LATE_S = 1.0  # by which a power may show late or early what a counter counted, and no sensor is known to exceed
_MIN_AFTER_REFRESHES = 3.0  # for which powers must have been seen behind a move, else they may show it yet


def stretch_s(channels: Sequence[Channel]) -> float:
    """Return how long a stretch must be for these to be held against each other."""
    return max(
        _SHORTEST_STRETCH_S,
        _STRETCH_RENEWALS * max(c.refresh_s or 0.0 for c in channels),
        _STRETCH_WINDOWS * max(c.window_s or 0.0 for c in channels),
    )


def widest(
    t_s: Floats, joules: Floats, uncovered_ns: Ints, gains: tuple[float, float], length_s: float
) -> tuple[int, int] | None:
    """Return the first and the last row of the stretch in which two energies differ most.

    Beyond what their gains explain at least by themselves, that is; None: nowhere.

    Parameters
    ----------
    joules, uncovered_ns : shape (n, 2)
        Cumulative, of the counter and of the power, as rows have them. What is not covered counts for nothing.
    gains : tuple of float
        Relative standard uncertainties of the two, times as many of them as must be exceeded.
    length_s : float
        How long it is.
    """
    if not len(t_s):
        return None
    ends = np.searchsorted(t_s, t_s + length_s, "right") - 1
    # A hole between the rows, or the end of them, leaves less.
    usable = t_s[ends] - t_s >= length_s / 2.0
    usable &= (uncovered_ns[ends] == uncovered_ns).all(axis=1)
    grown = joules[ends] - joules
    apart = abs(grown[:, 0] - grown[:, 1])
    usable &= apart > np.hypot(gains[0] * grown[:, 0], gains[1] * grown[:, 1])  # NaN: is not
    if not usable.any():
        return None
    # Of those that hold the same leap, one that does not begin or end with it: there, the power seems to have moved.
    alike = np.flatnonzero(usable & (apart >= _SAME_LEAP_SHARE * apart[usable].max()))
    first = int(alike[len(alike) // 2])
    return first, int(ends[first])


def beyond_all_shown(
    t_s: Floats,
    joules: Floats,
    watts: Floats,
    *,
    refresh_s: float,
    window_s: float,
    gains: tuple[float, float],
    noise_w: float,
) -> list[tuple[int, int]]:
    """Return the moves of a counter that no power about them shows: the rows of the move before, and of it.

    A power that sees all of the time shows of an energy what of it is in one of its windows, at some time. So it needs
    not be known when: the highest of all powers for a while before and after is not enough, however late they are.

    Parameters
    ----------
    joules, watts : float64, shape (n,)
        Of the counter, cumulative, and of the power.
    refresh_s, window_s : float
        Time between moves at most, and window of the power, which is not shorter than its time between updates.
    gains : tuple of float
        Relative standard uncertainties of the two, times as many of them as must be exceeded.
    noise_w : float
        Of one power, likewise.
    """
    moves = np.flatnonzero(np.diff(joules) > 0.0) + 1
    at_s = t_s[moves]
    before = np.searchsorted(at_s, at_s - window_s, "right") - 1
    before = np.minimum(before, np.arange(len(moves)) - 1)
    later = np.flatnonzero((before >= 0) & (at_s + window_s + _MIN_AFTER_REFRESHES * refresh_s <= t_s[-1:].sum()))
    first, last = moves[before[later]], moves[later]
    grown = joules[last] - joules[first]
    # The earlier move may be as old as the row before it, and each may be dated by one renewal wrongly. What the power
    # is above its lowest may be the move's in all windows that it touches, which reach beyond it at either end.
    seen_s = t_s[last] - t_s[first - 1]
    steady_s, moving_s = seen_s + refresh_s, seen_s + max(2.0 * window_s, refresh_s)
    found: list[tuple[int, int]] = []
    for k in np.flatnonzero(_beyond(grown, steady_s * (watts[last] + noise_w), gains) > 0.0).tolist():
        begin, end = t_s.searchsorted([t_s[first[k]] - _LATE_S, t_s[last[k]] + _LATE_S])
        low, high = float(np.min(watts[begin:end])), float(np.max(watts[begin:end]))  # NaN: not known
        most = steady_s[k] * (low + noise_w) + moving_s[k] * (high - low)
        apart = not found or first[k] >= found[-1][1]
        if apart and _beyond(grown[k], most, gains) > 0.0:
            found.append((int(first[k]), int(last[k])))
    return found


def _beyond(counter: Any, power: Any, gains: tuple[float, float]) -> Any:
    """Return by how much two energies are further apart than their gains explain; negative where they are not."""
    return counter - power - np.hypot(gains[0] * counter, gains[1] * power)
