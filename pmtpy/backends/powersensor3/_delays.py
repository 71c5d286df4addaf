"""How late pieces of a stream arrive, and what is not known of frames while they arrive later than usual. Pure."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

MIN_POINTS = 3  # fewer tell nothing
ENOUGH_POINTS = 6  # to tell a loss from a delay
STEADY_NS = 1_000_000  # delays that vary by less are alike
_HABIT = 64  # delays that show how late arrivals usually are


class Delays:
    """The latest delays of arrivals: how far they lay above the line of the fastest, ns."""

    def __init__(self) -> None:
        self._habit: deque[float] = deque(maxlen=_HABIT)
        self._seen = 0

    def add(self, late_ns: float) -> None:
        """Take note of one arrival."""
        self._habit.append(late_ns)
        self._seen += 1

    def clear(self) -> None:
        """Forget what was usual: the line has moved."""
        self._habit.clear()

    @property
    def fastest_ns(self) -> float:
        """How late the fastest arrival may be: of n delays that fall off exponentially, an n-th of their mean."""
        habit = tuple(self._habit)
        return max(0.0, math.fsum(habit) / len(habit)) / self._seen if habit else 0.0

    def least_ns(self, number: int) -> float:
        """Smallest of the last few delays."""
        return min(itertools.islice(reversed(self._habit), number), default=0.0)

    def risen(self, late: Sequence[float], excluded_ns: float) -> tuple[float, float]:
        """By how much the smallest of some delays exceeds what is usual, and how sure that is: how much delays vary.

        Delays below ``excluded_ns`` just before are none.
        """
        usual = sorted(self._habit) or [0.0]
        before = self.least_ns(MIN_POINTS)
        if before < excluded_ns:
            before = 0.0  # else they were late before the gap already
        low = min(late) - max(usual[int((len(usual) - 1) / (len(late) + 1))], before)
        middle = sorted(late)[len(late) // 2] - max(usual[len(usual) // 2], before)
        vary = usual[int(0.9 * (len(usual) - 1))] - usual[int(0.1 * (len(usual) - 1))]
        return low if low > vary else 0.0, max(vary if vary > STEADY_NS else 0.0, abs(middle - low))


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A stretch of the host's clock whose rows were off by up to ``ns``."""

    begin: int
    end: int
    ns: float


class Doubts:
    """What rows may be off by, because frames may be missing that were not counted as such.

    Attributes
    ----------
    above_ns : int
        Since when all arrivals have stayed above the line.
    """

    def __init__(self) -> None:
        self._past: deque[_Doubt] = deque()
        # since then: how many arrivals there were, and how high above the line they stayed at most
        self.above_ns = 0
        self._above, self._height = 0, 0.0

    def add(self, begin_ns: int, end_ns: int, off_ns: float) -> None:
        """Note that rows of a stretch of time were off by up to so much."""
        self._past.append(_Doubt(begin_ns, end_ns, off_ns))

    def forget(self, before_ns: int) -> None:
        """Drop the stretches that ended before an instant."""
        while self._past and self._past[0].end < before_ns:
            self._past.popleft()

    def none_since(self, t_ns: int) -> None:
        """Note an arrival at the line: until then nothing is missing but what was counted."""
        self.above_ns, self._above, self._height = t_ns, 0, 0.0

    def above(self, delays: Delays) -> None:
        """Note an arrival above the line, the newest of the delays."""
        self._above += 1
        if self._above >= ENOUGH_POINTS:
            self._height = max(self._height, delays.least_ns(ENOUGH_POINTS))

    def worst_ns(self, begin_ns: int, end_ns: int) -> float:
        """By how much rows between two instants may be off."""
        doubt = max((d.ns for d in tuple(self._past) if d.begin <= end_ns and d.end >= begin_ns), default=0.0)
        return max(doubt, self._height) if end_ns >= self.above_ns else doubt
