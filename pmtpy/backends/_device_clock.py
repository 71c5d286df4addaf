"""Places the stamps of a device's own clock on the host's, for every backend whose device stamps what it delivers.

A stamp is seen some time after it was made, never before. So arrival minus stamp has a sharp lower edge, and that edge
is where the two clocks meet: it is followed, never the mean. Two clocks differ by tens of millionths of the time that
passes, so the edge may rise again at :data:`DRIFT`; without that, the rows of a device whose clock is slow would fall
behind for ever.

Pure: instants in, instants out.
"""

from __future__ import annotations

import numpy as np

from pmtpy.core.rows import Ints, median

# Crystals are within 50 millionths (data sheets of the usual kinds), so two of them differ by at most 1e-4.
DRIFT = 1e-4
_GAP = 1.85  # steps of this many times the usual one have rows missing in them; pauses of 1.66 are ordinary (a PMD's)


class DeviceClock:
    """Follows one device's clock. Used by one thread at a time; stamps come in order.

    Parameters
    ----------
    age_ns : int
        The least time from a stamp to its being seen, where the device is known to hold it back.
    cycle_ns : int
        How much later than ``age_ns`` a stamp may be seen because the device shows it at intervals only. Where it is
        given, the first guess takes the middle, and later ones move by no more than :data:`DRIFT` of the time that
        passed, so that durations stay those of the stamps.

    Attributes
    ----------
    offset_ns : int
        Host time minus device time, as the last stamp was placed.
    """

    __slots__ = ("_age_ns", "_cycle_ns", "_edge_ns", "_known", "_stamp_ns", "offset_ns")

    def __init__(self, *, age_ns: int = 0, cycle_ns: int = 0) -> None:
        self._age_ns = age_ns
        self._cycle_ns = cycle_ns
        self._known = False
        self.offset_ns = self._edge_ns = 0
        self._stamp_ns = 0

    def ahead_ns(self, stamp_ns: int, seen_ns: int) -> int:
        """How far a stamp seen at ``seen_ns`` would lie in the future, beyond what drift explains; 0 or less if not."""
        if not self._known:
            return 0
        drift_ns = round(DRIFT * abs(stamp_ns - self._stamp_ns))
        return stamp_ns + self.offset_ns + self._age_ns - seen_ns - drift_ns

    def forget(self) -> None:
        """Guess anew at the next stamp: the device's clock began anew."""
        self._known = False

    def place(self, stamp_ns: int, seen_ns: int) -> int:
        """Return the host's time (ns) of a stamp that was seen at ``seen_ns``."""
        delay_ns = seen_ns - stamp_ns
        if not self._known:
            self._edge_ns = delay_ns
            self._known = True
            self.offset_ns = delay_ns - self._age_ns - self._cycle_ns // 2
        else:
            room_ns = round(DRIFT * (stamp_ns - self._stamp_ns))
            self._edge_ns = min(self._edge_ns + room_ns, delay_ns)
            wanted_ns = self._edge_ns - self._age_ns - self.offset_ns
            # A stamp that is seen before its own time is a proof: without a cycle to explain it, step back at once.
            least_ns = -room_ns if self._cycle_ns else wanted_ns
            self.offset_ns += max(least_ns, min(room_ns, wanted_ns))
        self._stamp_ns = stamp_ns
        return stamp_ns + self.offset_ns


class Steps:
    """The steps between the stamps of a stream, in the stamps' unit: where rows are missing, and how many.

    The usual one is the median of each block of ``least`` rows and more. Used by one thread at a time.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._last, self._usual = -1, 0.0

    def lost(self, stamps: Ints) -> Ints | None:
        """Return how many rows are missing before each of the next, shape (n,), n >= 1; None where none is."""
        steps = np.diff(stamps, prepend=self._last if self._last >= 0 else stamps[0])
        self._last = int(stamps[-1])
        if len(steps) >= self._least:
            self._usual = median(steps[1:])
        if not self._usual or steps.max() <= _GAP * self._usual:
            return None
        return np.where(steps > _GAP * self._usual, np.rint(steps / self._usual) - 1, 0).astype(np.int64)
