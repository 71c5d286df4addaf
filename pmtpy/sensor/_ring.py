"""Rows of one curve as they came: the arrays of a stream are kept, not copied, so that a block costs next to nothing.

Single rows, as polls bring them, wait in a list and are put into arrays when somebody asks or many have come. Small
parts are joined to larger ones, each row a few times at most, so a stretch is found and cut out of few of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from pmtpy.core.rows import Frame, Layout, Point

MOST_WAITING = 2048
_PART = 1024  # rows of a part that is joined to no other


class Ring:
    """The last rows of one curve. Frames that are handed in belong to it and are not written to any more.

    Has one owner, the history. Rows are numbered from the oldest one that is kept.

    Attributes
    ----------
    waiting : list of Point
        The newest rows, which are not in arrays yet. Single rows may be appended here without a call.
    """

    __slots__ = ("_end", "_ends_ns", "_firsts", "_layout", "_lost", "_lost_before", "_parts", "waiting")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._parts: list[Frame] = []
        self._firsts: list[int] = []  # number of the first row of each part, since the beginning
        self._ends_ns: list[int] = []
        self._lost_before: list[int] = []  # rows lost before the first row of each part, since the beginning
        self._end = self._lost = 0  # rows since the beginning, and lost
        self.waiting: list[Point] = []

    def __len__(self) -> int:
        return self._end - self._first + len(self.waiting)

    @property
    def _first(self) -> int:
        return self._firsts[0] if self._firsts else self._end

    def append(self, rows: Frame) -> int:
        """Add at least one row; return how many were lost before them."""
        self.pack()
        return self._add(rows, self.waiting)

    def pack(self) -> None:
        """Put the rows that wait into arrays."""
        if self.waiting:
            self._add(Frame.of_points(self.waiting), [])

    def _add(self, rows: Frame, waiting: list[Point]) -> int:
        lost = int(np.add.reduce(rows.lost))
        size, kept = len(rows), len(self._parts)
        while kept and len(self._parts[kept - 1]) < min(2 * size, _PART):
            kept -= 1
            size += len(self._parts[kept])
        parts = [*self._parts[:kept], Frame.joined([*self._parts[kept:], rows])]
        firsts = [*self._firsts, self._end][: kept + 1]
        before = [*self._lost_before, self._lost][: kept + 1]
        ends_ns = [*self._ends_ns[:kept], int(rows.t_ns[-1])]
        end = self._end + len(rows)
        # No call between these: Ctrl-C, which comes at calls, finds all of them old or all new.
        self._parts, self._firsts, self._lost_before, self._ends_ns = parts, firsts, before, ends_ns
        self._end, self._lost, self.waiting = end, self._lost + lost, waiting
        return lost

    def row_of(self, t_ns: int, *, after: bool = False) -> int:
        """Return the first row at an instant or later (``after``: later)."""
        self.pack()
        part = (bisect_right if after else bisect_left)(self._ends_ns, t_ns)
        if part == len(self._parts):
            return len(self)
        within = self._parts[part].t_ns.searchsorted(t_ns, "right" if after else "left")
        return self._firsts[part] - self._first + int(within)

    def _place(self, row: int) -> tuple[int, int]:
        """Return the part in which a row lies, and its place there."""
        number = self._first + row
        part = bisect_right(self._firsts, number) - 1
        return part, number - self._firsts[part]

    def t_ns(self, row: int) -> int:
        """Return the instant of a row."""
        part, at = self._place(row)
        return int(self._parts[part].t_ns[at])

    def point(self, row: int) -> Point:
        """Return one row as plain numbers."""
        part, at = self._place(row)
        return self._parts[part].point(at)

    def lost_up_to(self, row: int) -> int:
        """Return how many rows were lost since the beginning, up to a row."""
        part, at = self._place(row)
        return self._lost_before[part] + int(np.add.reduce(self._parts[part].lost[: at + 1]))

    def frame(self, first: int, end: int) -> Frame:
        """Return rows ``first`` up to ``end``."""
        return Frame.joined(self.parts(first, end))

    def parts(self, first: int, end: int) -> list[Frame]:
        """Return rows ``first`` up to ``end`` as they are kept, in at least one part; no copies."""
        self.pack()
        if first >= end:
            return [self._parts[0].part(0, 0) if self._parts else self._empty()]
        (part, start), (last, stop) = self._place(first), self._place(end - 1)
        if part == last:
            return [self._parts[part].part(start, stop + 1)]
        between = self._parts[part + 1 : last]
        return [self._parts[part].part(start, len(self._parts[part])), *between, self._parts[last].part(0, stop + 1)]

    def _empty(self) -> Frame:
        names, values = len(self._layout.names), len(self._layout.values)
        numbers, none = np.empty((0, names)), np.empty(0, np.int64)
        return Frame(none, numbers, numbers, np.empty((0, values)), none, np.empty((0, names), np.int64))

    def left_ns(self, least: int) -> int | None:
        """Return the oldest instant after a :meth:`drop`; None if fewer than ``least`` rows would be left."""
        if len(self._parts) < 2 or len(self) - len(self._parts[0]) < least:
            return None
        return int(self._parts[1].t_ns[0])

    def drop(self) -> None:
        """Forget the oldest part."""
        for account in (self._parts, self._firsts, self._ends_ns, self._lost_before):
            del account[0]

    def drop_waiting(self, rows: int) -> None:
        """Forget all rows that are in arrays, and the oldest of those that are not."""
        self._lost = sum([point.lost for point in self.waiting[:rows]], self._lost)
        self._end += rows
        for account in (self._parts, self._firsts, self._ends_ns, self._lost_before):
            account.clear()
        del self.waiting[:rows]
