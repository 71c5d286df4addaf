"""Rows of one curve, packed: whole columns side by side, so that a stretch of them is one slice.

Single rows, as polls bring them, wait in a list and are packed together when somebody asks or many have come: packing
each by itself would cost the reading that it came with as much as the reading.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmtpy.core.rows import Floats, Frame, Ints, Layout, Point

_FIRST_ROOM = 256  # rows; doubled when more are to be kept
MOST_WAITING = 2048


class Ring:
    """The last rows of one curve, each column a row of two matrices. Has one owner, the history.

    Attributes
    ----------
    waiting : list of Point
        The newest rows, which are not packed yet. Single rows may be appended here without a call.
    """

    __slots__ = ("_counts", "_end", "_first", "_lost", "_names", "_numbers", "_values", "waiting")

    def __init__(self, layout: Layout) -> None:
        self._names, self._values = len(layout.names), len(layout.values)
        self._numbers: Floats = np.empty((2 * self._names + self._values, _FIRST_ROOM))  # watts, joules, values
        self._counts: Ints = np.empty(
            (3 + self._names, _FIRST_ROOM), np.int64
        )  # instant, lost, lost up to here, uncovered
        self._first = self._end = self._lost = 0
        self.waiting: list[Point] = []

    def __len__(self) -> int:
        return self._end - self._first + len(self.waiting)

    @property
    def full(self) -> bool:
        """Whether something should be dropped, or room be made, before more rows come."""
        return len(self.waiting) >= MOST_WAITING or self._end >= self._numbers.shape[1]

    @property
    def t_ns(self) -> Ints:
        """Instants of all rows; a view, for the owner."""
        self._pack()
        return self._counts[0, self._first : self._end]

    def append(self, rows: Frame | Point) -> int:
        """Add rows; return how many were lost before them."""
        if isinstance(rows, Point):
            self.waiting.append(rows)
            return rows.lost
        if self.waiting:
            self._pack()
        numbers = (rows.watts.T, rows.joules.T, rows.values.T)
        return self._put(rows.t_ns, rows.lost, rows.uncovered_ns.T, numbers) if len(rows) else 0

    def point(self, row: int) -> Point:
        """Return one row as plain numbers."""
        at, k = self._first + row, self._names
        t_ns, lost, _, *uncovered = self._counts[:, at].tolist()
        numbers = self._numbers[:, at].tolist()
        return Point(
            t_ns, tuple(numbers[:k]), tuple(numbers[k : 2 * k]), tuple(numbers[2 * k :]), lost, tuple(uncovered)
        )

    def lost_up_to(self, row: int) -> int:
        """Return how many rows were lost since the beginning, up to a row."""
        return int(self._counts[2, self._first + row])

    def frame(self, first: int, end: int) -> Frame:
        """Return rows ``first`` up to ``end`` as a Frame of its own."""
        self._pack()
        k, at = self._names, slice(self._first + first, self._first + end)
        counts, numbers = self._counts[:, at].copy(), self._numbers[:, at].copy()
        return Frame(counts[0], numbers[:k].T, numbers[k : 2 * k].T, numbers[2 * k :].T, counts[1], counts[3:].T)

    def drop(self, rows: int) -> None:
        """Forget the oldest rows that are packed."""
        self._first += rows

    def drop_unpacked(self, rows: int) -> None:
        """Forget all rows that are packed, and the oldest of those that are not."""
        self._lost = sum([point.lost for point in self.waiting[:rows]], self._lost)
        self._first = self._end = 0
        del self.waiting[:rows]

    def _pack(self) -> None:
        if not self.waiting:
            return
        t_ns, watts, joules, values, lost, uncovered = zip(*self.waiting, strict=True)
        self.waiting = []
        numbers = (np.array(watts).T, np.array(joules).T, np.array(values).T)
        self._put(np.array(t_ns, np.int64), np.array(lost, np.int64), np.array(uncovered, np.int64).T, numbers)

    def _put(self, t_ns: Ints, lost: Ints, uncovered: Ints, numbers: Sequence[Floats]) -> int:
        """Add columns; return how many rows were lost before them."""
        rows, k = len(t_ns), self._names
        if self._end + rows > self._numbers.shape[1]:
            self._make_room(rows)
        at = slice(self._end, self._end + rows)
        counts = self._counts[:, at]
        counts[0], counts[1], counts[2], counts[3:] = t_ns, lost, self._lost, uncovered
        lately = int(np.add.reduce(lost))
        if lately:
            counts[2] += np.cumsum(lost)
            self._lost += lately
        self._numbers[:k, at], self._numbers[k : 2 * k, at] = numbers[:2]
        if self._values:
            self._numbers[2 * k :, at] = numbers[2]
        self._end += rows
        return lately

    def _make_room(self, rows: int) -> None:
        """Move what is kept to the front, of larger matrices where these would soon be full again."""
        kept, length = slice(self._first, self._end), self._end - self._first
        numbers, counts, room = self._numbers, self._counts, self._numbers.shape[1]
        while room < 2 * (length + rows):
            room *= 2
        if room > numbers.shape[1]:
            self._numbers, self._counts = np.empty((len(numbers), room)), np.empty((len(counts), room), np.int64)
        self._numbers[:, :length], self._counts[:, :length] = numbers[:, kept], counts[:, kept]
        self._first, self._end = 0, length
