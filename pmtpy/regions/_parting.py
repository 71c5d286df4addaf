"""Where within an interval a counter and the power of the same part part most: a leap that the whole of it hides.

What two gains leave open grows with the interval, and a counter leaps once. So the two are held against each other over
the short stretch in which they differ most as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats, Ints

# Length of the stretch, in renewals and in windows: what the ends of it leave open is then a small part of it.
_STRETCH_RENEWALS = 10.0
_STRETCH_WINDOWS = 4.0
_SHORTEST_STRETCH_S = 1.0
_SAME_LEAP_SHARE = 0.9  # of the widest difference


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
