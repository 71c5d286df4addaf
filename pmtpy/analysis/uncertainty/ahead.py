"""By how much the power of a stream, carried on over rows that have not come, was off of late.

Pure arithmetic on rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmtpy.analysis.signal.estimate import MISSED, Z95
from pmtpy.analysis.uncertainty.interval import Late
from pmtpy.core.rows import Floats, Frame, Ints

_MIN_SEEN_TIMES = 3.0  # times as long must have been seen
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  # multiples of it spread evenly over 0 to 1 however many there are
_EVENLY = np.sort(np.arange(300) * GOLDEN % 1.0)  # where in the rows it is looked: in step with no load


def of_late(parts: Sequence[Frame], columns: Sequence[int], ahead_ns: int, length_s: float) -> list[Late]:
    """Tell of some channels of energy what they did of late.

    Parameters
    ----------
    parts : sequence of Frame
        Rows up to the newest one, in order.
    columns : sequence of int
        By their place in ``Layout.energy``.
    ahead_ns : int
        For how long the power of the newest row is carried on.
    length_s : float
        Of the interval up to there: what lies before it is not in its energy.
    """
    firsts = np.cumsum([0, *map(len, parts)])
    t_ns = np.concatenate([part.t_ns for part in parts])
    if len(t_ns) < 2:
        return [Late()] * len(columns)
    last_ns = int(t_ns[-1]) - ahead_ns - int(t_ns[0])
    seconds = min(ahead_ns * 1e-9, length_s)
    if last_ns <= _MIN_SEEN_TIMES * ahead_ns or seconds <= 0.0:
        return [Late()] * len(columns)
    picked = [i + 1 for i in columns]

    def rows(name: str, numbers: Ints) -> Floats:
        """Return some rows, whose numbers rise, of all parts."""
        bounds = numbers.searchsorted(firsts).tolist()
        each = zip(parts, firsts.tolist(), bounds, bounds[1:], strict=False)
        return np.concatenate([getattr(part, name)[numbers[a:b] - first] for part, first, a, b in each])[:, picked]

    def energy(instants: Ints) -> Floats:
        after = np.maximum(t_ns.searchsorted(instants), 1)
        part = (instants - t_ns[after - 1]) / (t_ns[after] - t_ns[after - 1])
        before = rows("joules", after - 1)
        between: Floats = before + (rows("joules", after) - before) * part[:, None]
        return between

    begins = t_ns[0] + (last_ns * _EVENLY).astype(np.int64)
    ends = begins + ahead_ns
    used = energy(ends) - energy(ends - round(seconds * 1e9))
    off = abs(used - rows("watts", t_ns.searchsorted(begins, "right") - 1) * seconds)
    return [_told(o[np.isfinite(o)], u / seconds) for o, u in zip(off.T, used.T, strict=True)]


def _told(off: Floats, watts: Floats) -> Late:
    low, high = float(watts.min()), float(watts.max())
    if not len(off):
        return Late(high - low, high)
    # Of bursts that are seldom most is off by nothing: what 95 % are within is then an interval of 95 %, and not twice
    # the root mean square.
    place = int((1.0 - MISSED) * (len(off) - 1))
    most = float(np.partition(off, place)[place])
    return Late(high - low, high, max(math.sqrt(float(off @ off) / len(off)), most / Z95))
