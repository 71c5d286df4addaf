"""Times in which a power that must be sampled was not: the program was stopped, or held the interpreter for long."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block, Point, Row
from pmtpy.core.source import Source

# A poller that is merely late is back within this. Of a longer time what the neighbours show says nothing, since it is
# long enough for a whole kernel to come and go.
_AWAY_S, _AWAY_PERIODS = 1.0, 10.0
_KEPT = 64


class ReadingGaps:
    """Remembers when readings were due and not made.

    It is a matter of when readings were tried, not of when rows came: a register that has not refreshed gives no row.
    """

    def __init__(self) -> None:
        self._tried_ns: int | None = None
        self._period_s = 0.0
        self._gaps: deque[tuple[int, int]] = deque(maxlen=_KEPT)

    def noted(self, source: Source, clock: Clock, period_s: float, before: Point | None) -> Block | Row:
        """Read a source that is to be read every ``period_s``; say how many rows are missing since ``before``."""
        self._begins(clock.now_ns(), period_s)
        taken = source.read_row()
        self._tried_ns = clock.now_ns()
        if before is None or not (isinstance(taken, Row) or len(taken)):
            return taken
        missed = self._missed(before.t_ns, taken.t_ns if isinstance(taken, Row) else int(taken.t_ns[0]))
        return _without(taken, missed) if missed else taken

    def _begins(self, now_ns: int, period_s: float) -> None:
        longest_s = max(_AWAY_S, _AWAY_PERIODS * max(period_s, self._period_s))  # it may have been changed just now
        if self._tried_ns is not None and now_ns - self._tried_ns > longest_s * NS_PER_S:
            self._gaps.append((self._tried_ns, now_ns))
        self._period_s = period_s

    def _missed(self, since_ns: int, until_ns: int) -> int:
        """Return how many readings are missing between two rows; 0 where the device has kept rows of that time."""
        unread_ns = self._unread_ns(since_ns, until_ns)
        if unread_ns < _AWAY_S * NS_PER_S:
            return 0
        return max(1, round(unread_ns / NS_PER_S / self._period_s) - 1) if self._period_s > 0 else 1

    def _unread_ns(self, begin_ns: int, end_ns: int) -> int:
        return sum(max(0, min(end, end_ns) - max(start, begin_ns)) for start, end in self._gaps)

    def warnings(self, begin_ns: int, end_ns: int) -> tuple[str, ...]:
        """Return what is to be said of a stretch of time."""
        unread_ns = self._unread_ns(begin_ns, end_ns)
        if unread_ns < _AWAY_S * NS_PER_S:
            return ()
        said = (
            f"nothing could be read for {unread_ns / NS_PER_S:.3g} s of the region: the program was stopped, or held"
            " the interpreter"
        )
        return (said,)


def _without(taken: Block | Row, missed: int) -> Block | Row:
    """Say of rows that some are missing before the first of them."""
    if isinstance(taken, Row):
        return taken._replace(lost=taken.lost + missed)
    lost = np.zeros(len(taken), np.int64) if taken.lost is None else taken.lost.copy()
    lost[0] += missed
    return replace(taken, lost=lost)
