"""Rows of one curve, packed: whole columns side by side, so that a stretch of them is a slice or two.

Single rows, as polls bring them, wait in a list and are packed together when somebody asks or many have come: packing
each by itself would cost the reading that it came with as much as the reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pmtpy.core.rows import Floats, Frame, Ints, Layout, Point

_SEGMENT = 4096  # rows
MOST_WAITING = 2048


class _Segment:
    """Room for some rows, each column a row of two matrices."""

    __slots__ = ("counts", "numbers")

    def __init__(self, names: int, values: int) -> None:
        self.numbers: Floats = np.empty((2 * names + values, _SEGMENT))  # watts, joules, values
        self.counts: Ints = np.empty((2 + names, _SEGMENT), np.int64)  # lost, lost up to here, uncovered


class Ring:
    """The last rows of one curve, in segments that are used again: what is kept is never moved, but for its instants.

    Has one owner, the history.

    Attributes
    ----------
    waiting : list of Point
        The newest rows, which are not packed yet. Single rows may be appended here without a call.
    filled : bool
        Whether a segment was filled since the owner last said no: something should be dropped.
    """

    __slots__ = (
        "_end",
        "_first",
        "_lost",
        "_names",
        "_segments",
        "_spare",
        "_start",
        "_times",
        "_values",
        "filled",
        "waiting",
    )

    def __init__(self, layout: Layout) -> None:
        self._names, self._values = len(layout.names), len(layout.values)
        self._segments: list[_Segment] = []
        self._spare: list[_Segment] = []  # dropped, to be used again: fresh memory costs more than what is put there
        self._times: Ints = np.empty(_SEGMENT, np.int64)  # in one piece, to be searched
        self._start = 0  # of the oldest instant there
        self._first = self._end = self._lost = 0  # places, from the beginning of the first segment
        self.waiting: list[Point] = []
        self.filled = False

    def __len__(self) -> int:
        return self._end - self._first + len(self.waiting)

    @property
    def t_ns(self) -> Ints:
        """Instants of all rows; a view, for the owner."""
        self._pack()
        return self._times[self._start : self._start + self._end - self._first]

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
        (number, at), k = divmod(self._first + row, _SEGMENT), self._names
        segment, t_ns = self._segments[number], int(self._times[self._start + row])
        lost, _, *uncovered = segment.counts[:, at].tolist()
        numbers = segment.numbers[:, at].tolist()
        return Point(
            t_ns, tuple(numbers[:k]), tuple(numbers[k : 2 * k]), tuple(numbers[2 * k :]), lost, tuple(uncovered)
        )

    def lost_up_to(self, row: int) -> int:
        """Return how many rows were lost since the beginning, up to a row."""
        number, at = divmod(self._first + row, _SEGMENT)
        return int(self._segments[number].counts[1, at])

    def frame(self, first: int, end: int) -> Frame:
        """Return rows ``first`` up to ``end`` as a Frame of its own."""
        t_ns, k = self.t_ns[first:end].copy(), self._names
        counts = np.empty((2 + k, len(t_ns)), np.int64)
        numbers = np.empty((2 * k + self._values, len(t_ns)))
        done = 0
        for segment, at in self._places(self._first + first, len(t_ns)):
            to = slice(done, done + at.stop - at.start)
            counts[:, to], numbers[:, to] = segment.counts[:, at], segment.numbers[:, at]
            done = to.stop
        return Frame(t_ns, numbers[:k].T, numbers[k : 2 * k].T, numbers[2 * k :].T, counts[0], counts[2:].T)

    def _places(self, place: int, rows: int) -> Iterator[tuple[_Segment, slice]]:
        """Say where rows lie from a place on: the segments, and the columns there."""
        end = place + rows
        while place < end:
            number, at = divmod(place, _SEGMENT)
            stop = min(_SEGMENT, at + end - place)
            yield self._segments[number], slice(at, stop)
            place += stop - at

    def drop(self, rows: int) -> None:
        """Forget the oldest rows that are packed."""
        self._first += rows
        self._start += rows
        free = self._first // _SEGMENT
        self._spare += self._segments[:free]
        del self._segments[:free]
        self._first -= free * _SEGMENT
        self._end -= free * _SEGMENT

    def drop_unpacked(self, rows: int) -> None:
        """Forget all rows that are packed, and the oldest of those that are not."""
        self._lost = sum([point.lost for point in self.waiting[:rows]], self._lost)
        self._first = self._end = self._start = 0
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
        kept = self._start + self._end - self._first
        if kept + rows > len(self._times):
            kept = self._move_times(rows)
        self._times[kept : kept + rows] = t_ns
        while self._end + rows > len(self._segments) * _SEGMENT:
            self._segments.append(self._spare.pop() if self._spare else _Segment(k, self._values))
            self.filled = True
        lately = int(np.add.reduce(lost))
        before = self._lost + np.cumsum(lost) if lately else np.full(rows, self._lost)
        self._lost += lately
        done = 0
        for segment, at in self._places(self._end, rows):
            of = slice(done, done + at.stop - at.start)
            counts, to = segment.counts[:, at], segment.numbers[:, at]
            counts[0], counts[1], counts[2:] = lost[of], before[of], uncovered[:, of]
            to[:k], to[k : 2 * k] = numbers[0][:, of], numbers[1][:, of]
            if self._values:
                to[2 * k :] = numbers[2][:, of]
            done = of.stop
        self._end += rows
        return lately

    def _move_times(self, rows: int) -> int:
        """Move the instants to the front, of a larger array where it would soon be full again; return their number."""
        times = self._times[self._start : self._start + self._end - self._first]
        room = len(self._times)
        while room < 2 * (len(times) + rows):
            room *= 2
        moved = np.empty(room, np.int64)
        moved[: len(times)] = times
        self._times, self._start = moved, 0
        return len(times)
