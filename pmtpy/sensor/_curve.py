"""Rows to a curve that can be asked: integrated at once, or when somebody looks.

A region of counters reads its sensor at both ends and needs nothing else then: what the two rows mean is worked out
when its energy is asked for, or when the next row is taken. So the measured program waits for the reading alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from pmtpy.core.counters import Transform
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Frame, Layout, Point, Row
from pmtpy.sensor.history import Bookmark, History, PeakHold

_MOST_WAITING = 64  # integrating so many is a quarter of a millisecond
_new = tuple.__new__  # what Row(...) does in the end, at half the cost


class Curve:
    """What the rows of one source mean, and which are kept. One owner, which holds its own lock around every call.

    Attributes
    ----------
    kept : History
        The rows that are integrated; for calls behind :meth:`advance`, when none wait.
    """

    __slots__ = ("_integrator", "_waiting", "kept")

    def __init__(self, layout: Layout, transforms: Mapping[str, Transform], seconds: float) -> None:
        self._integrator = Integrator(layout, transforms)
        self._waiting: list[tuple[Row, Bookmark]] = []  # replaced, never emptied: its end is looked at without a lock
        self.kept = History(layout, seconds)

    @property
    def waiting(self) -> bool:
        """Whether rows wait to be integrated."""
        return bool(self._waiting)

    @property
    def history(self) -> History:
        """The rows, all of them integrated."""
        if self._waiting:
            self._settle()
        return self.kept

    @property
    def newest_ns(self) -> int | None:
        """The instant of the newest row; None before the first. Needs no lock."""
        waiting, newest = self._waiting, self.kept.newest
        return waiting[-1][0].t_ns if waiting else newest.t_ns if newest is not None else None

    @property
    def lost(self) -> int:
        """Rows lost since the beginning, up to the newest that is integrated."""
        return self._integrator.lost

    def doubt(self, column: int) -> tuple[int, str]:
        """When energy of a column was last not known, and why; (0, "") if it always was."""
        return self._integrator.doubts.get(column, (0, ""))

    def note(self, row: Row) -> Bookmark:
        """Take a row that is to be integrated later; return a bookmark at its instant."""
        mark = Bookmark(row.t_ns)
        # A source may hand out the same list again and again.
        self._waiting.append((_new(Row, (row.t_ns, tuple(row.counts), row.lost)), mark))
        if len(self._waiting) > _MOST_WAITING:
            self._settle()
        return mark

    def advance(self, taken: Block | Row) -> Frame | Point | None:
        """Integrate rows; return them as rows of the curve, which the caller appends to :attr:`kept`."""
        if self._waiting:
            self._settle()
        return self._integrator.step(taken) if isinstance(taken, Row) else self._integrator.advance(taken)

    def follow_peak(self, start_ns: int) -> PeakHold:
        """Follow the largest power from an instant on; no row that waits lies behind it."""
        return self.kept.follow_peak(start_ns)

    def _settle(self) -> None:
        waiting = self._waiting
        for done, (row, mark) in enumerate(waiting, 1):
            self._waiting = waiting[done:]  # an interruption costs none of the others
            point = self._integrator.step(row)
            self.kept.append(point)
            mark.reading = self.kept.at_row(point)
