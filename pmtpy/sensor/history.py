"""The recent past of one curve: a bounded ring of rows, and the curve at any instant of it.

An :class:`Bookmark` is a bookmark: it is set in the present and costs nothing then; the rows that come later settle
it. So an open region needs no history to know its energy, however long it lasts.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmtpy.core.rows import Floats, Frame, Ints, Layout, Point
from pmtpy.errors import CoverageError

_LEAST_ROWS = 1000  # kept however old: a slow register's are few, and tell how the power moved during a long region


class CurvePoint(NamedTuple):
    """The curve at one instant, and how it was come by.

    Attributes
    ----------
    t_ns : int
        The instant.
    joules : tuple of float
        Cumulative energy, total first.
    before, after : Point
        The rows around the instant; the same one twice where the instant is extended.
    extended_ns : int
        How far the instant lies beyond the newest row, whose power was then assumed to go on; 0 if rows surround it.
    uncovered_ns, lost, rows : int
        Cumulative time without known energy, rows lost and rows seen, up to the instant. Only differences count:
        before the first row the time is negative.
    """

    t_ns: int
    joules: tuple[float, ...]
    before: Point
    after: Point
    extended_ns: int
    uncovered_ns: int
    lost: int
    rows: int


class Bookmark:
    """A bookmark on a curve, settled when rows have passed it. Owned by the history that made it."""

    __slots__ = ("reading", "t_ns")

    def __init__(self, t_ns: int) -> None:
        self.t_ns = t_ns
        self.reading: CurvePoint | None = None


class PeakHold:
    """The largest power per name between two instants, followed while rows come. Owned by the history."""

    __slots__ = ("end_ns", "start_ns", "watts")

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.end_ns: int | None = None
        self.watts: tuple[float, ...] = ()

    def follow(self, rows: Frame | Point) -> bool:
        """Take rows in; return False when they lie beyond the end."""
        if isinstance(rows, Point):
            if rows.t_ns > self.start_ns and (self.end_ns is None or rows.t_ns <= self.end_ns):
                self._raise(rows.watts)
        else:
            first = int(np.searchsorted(rows.t_ns, self.start_ns, side="right"))
            last = len(rows) if self.end_ns is None else int(np.searchsorted(rows.t_ns, self.end_ns, side="right"))
            if first < last:
                self._raise(tuple(rows.watts[first:last].max(axis=0).tolist()))
        return self.end_ns is None or _last_t_ns(rows) < self.end_ns

    def _raise(self, watts: tuple[float, ...]) -> None:
        self.watts = tuple(map(max, watts, self.watts)) if self.watts else watts


@dataclass(frozen=True, slots=True)
class Recent:
    """Arrays of the recent past, as :meth:`pmtpy.Sensor.history` hands them out.

    Attributes
    ----------
    t_ns : int64, shape (n,)
        Monotonic instants.
    timestamp : float64, shape (n,)
        The same as Unix seconds.
    names : tuple of str
        Total, then the channels with energy.
    watts, joules : float64, shape (n, k)
        Power, and energy since the sensor was opened.
    value_names : tuple of str
        The other channels, with their unit: ``pair0.voltage [V]``.
    values : float64, shape (n, m)
    lost : int64, shape (n,)
        Rows missing before each row.
    marks : tuple of (row, label)
    """

    t_ns: Ints
    timestamp: Floats
    names: tuple[str, ...]
    watts: Floats
    joules: Floats
    value_names: tuple[str, ...]
    values: Floats
    lost: Ints
    marks: tuple[tuple[int, str], ...]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.t_ns)

    def to_pandas(self) -> object:
        """Return a ``pandas.DataFrame``, one line per row (needs the extra ``analysis``)."""
        try:
            import pandas as pd
        except ImportError as error:
            msg = "to_pandas() needs pandas: pip install 'pmtpy[analysis]'"
            raise ImportError(msg) from error
        columns: dict[str, object] = {"time": self.timestamp, "t_ns": self.t_ns}
        columns |= {f"{n}_W": self.watts[:, i] for i, n in enumerate(self.names)}
        columns |= {f"{n}_J": self.joules[:, i] for i, n in enumerate(self.names)}
        columns |= {n: self.values[:, i] for i, n in enumerate(self.value_names)}
        labels = [""] * len(self)
        for row, label in self.marks:
            labels[row] = f"{labels[row]};{label}" if labels[row] else label
        return pd.DataFrame({**columns, "lost": self.lost, "marker": labels})


class History:
    """The ring. One owner, the sensor, which holds its own lock around every call.

    Parameters
    ----------
    layout : Layout
    seconds : float
        Rows older than this, counted from the newest, are forgotten, but for the last thousand.

    Attributes
    ----------
    newest : Point or None
        The last row; None before the first.
    """

    def __init__(self, layout: Layout, seconds: float) -> None:
        self._layout = layout
        self._keep_ns = round(seconds * 1e9)
        self._frames: deque[Frame | Point] = deque()
        self._marks: deque[tuple[int, str]] = deque()
        self._open: list[Bookmark] = []
        self._peaks: list[PeakHold] = []
        self._rows = 0
        self._kept = 0
        self._lost = 0
        self._oldest_ns: float = -math.inf  # the last row of the oldest chunk
        self.newest: Point | None = None

    def append(self, rows: Frame | Point) -> None:
        """Add rows; settle the bookmarks that they pass; forget what is too old."""
        if self._open:
            self._settle(rows)
        if self._peaks:
            self._peaks = [peak for peak in self._peaks if peak.follow(rows)]
        if isinstance(rows, Point):
            self.newest = rows
            count = 1
            self._lost += rows.lost
        else:
            self.newest = rows.point(-1)
            count = len(rows)
            self._lost += int(rows.lost.sum())
            self._marks.extend((int(rows.t_ns[i]), label) for i, label in rows.marks)
        self._rows += count
        self._kept += count
        self._frames.append(rows)
        if self._kept > _LEAST_ROWS and self._oldest_ns < self.newest.t_ns - self._keep_ns:
            self._drop(self.newest.t_ns - self._keep_ns)

    def _drop(self, horizon_ns: int) -> None:
        """Forget what is older, but for the last two chunks, and the last thousand rows."""
        frames = self._frames
        while self._kept > _LEAST_ROWS and len(frames) > 2 and _last_t_ns(frames[0]) < horizon_ns:
            self._kept -= _count(frames.popleft())
        self._oldest_ns = _last_t_ns(frames[0])
        while self._marks and self._marks[0][0] < horizon_ns:
            self._marks.popleft()

    def instant(self, t_ns: int) -> Bookmark:
        """Set a bookmark; nothing is computed now unless rows have passed ``t_ns`` already."""
        mark = Bookmark(t_ns)
        if self._frames and _last_t_ns(self._frames[-1]) >= t_ns:
            mark.reading = self.at(t_ns)
        else:
            self._open.append(mark)
        return mark

    def follow_peak(self, start_ns: int) -> PeakHold:
        """Follow the largest power from an instant on, until the peak has an end and rows have passed it."""
        peak = PeakHold(start_ns)
        self._peaks.append(peak)
        return peak

    def forget(self, mark: Bookmark) -> None:
        """Drop a bookmark that is no longer wanted."""
        if mark.reading is None and mark in self._open:
            self._open.remove(mark)

    def reading(self, mark: Bookmark) -> CurvePoint:
        """Return the curve at a bookmark: settled, or extended from the newest row."""
        return mark.reading if mark.reading is not None else self.at(mark.t_ns)

    def _settle(self, rows: Frame | Point) -> None:
        newest = _last_t_ns(rows)
        before = self.newest
        later = []
        for mark in self._open:
            if mark.t_ns <= newest:
                mark.reading = self._between(mark.t_ns, before, rows, self._rows, self._lost)
            else:
                later.append(mark)
        self._open = later

    def at(self, t_ns: int) -> CurvePoint:
        """Return the curve at an instant, by straight lines between rows.

        Raises
        ------
        CoverageError
            The instant is older than what is kept, or nothing was read yet.
        """
        newest = self.newest
        if newest is None or t_ns < _first_t_ns(self._frames[0]):
            have = "nothing was read yet" if newest is None else f"{(newest.t_ns - t_ns) / 1e9:g} s ago is too old"
            msg = f"the history does not reach the instant asked for: {have}; keep more with history_s="
            raise CoverageError(msg)
        if t_ns == newest.t_ns:
            return CurvePoint(t_ns, newest.joules, newest, newest, 0, newest.uncovered_ns, self._lost, self._rows)
        if t_ns > newest.t_ns:
            ahead = t_ns - newest.t_ns
            grown = [_extend(j, w, ahead) for j, w in zip(newest.joules, newest.watts, strict=True)]
            # A counter that was read once has no power to go on with: until it is read again nothing is known.
            unknown = ahead if any(map(math.isnan, newest.watts)) else 0
            uncovered = newest.uncovered_ns + unknown
            return CurvePoint(t_ns, tuple(grown), newest, newest, ahead, uncovered, self._lost, self._rows)
        rows_after, lost_after = 0, 0
        for i in range(len(self._frames) - 1, -1, -1):
            chunk = self._frames[i]
            rows_after += _count(chunk)
            lost_after += chunk.lost if isinstance(chunk, Point) else int(chunk.lost.sum())
            if _first_t_ns(chunk) <= t_ns or i == 0 or _last_t_ns(self._frames[i - 1]) <= t_ns:
                before = None
                if i:
                    previous = self._frames[i - 1]
                    before = previous if isinstance(previous, Point) else previous.point(-1)
                return self._between(t_ns, before, chunk, self._rows - rows_after, self._lost - lost_after)
        raise AssertionError  # the first chunk always answers

    @staticmethod
    def _between(t_ns: int, before: Point | None, rows: Frame | Point, seen: int, lost: int) -> CurvePoint:
        """Interpolate at ``t_ns`` in ``rows``, of which ``before`` is the row before; ``seen`` rows came earlier."""
        if isinstance(rows, Point):
            after = rows
            lost += rows.lost
        else:
            i = int(np.searchsorted(rows.t_ns, t_ns, side="left"))
            after = rows.point(i)
            if i:
                before = rows.point(i - 1)
            seen += i
            lost += int(rows.lost[: i + 1].sum())
        if before is None:  # before the first row nothing is known
            early = after.t_ns - t_ns
            return CurvePoint(t_ns, after.joules, after, after, 0, after.uncovered_ns - early, lost, seen + (not early))
        span = after.t_ns - before.t_ns
        part = (t_ns - before.t_ns) / span
        joules = tuple([a + (b - a) * part for a, b in zip(before.joules, after.joules, strict=True)])
        uncovered = before.uncovered_ns + round((after.uncovered_ns - before.uncovered_ns) * part)
        return CurvePoint(t_ns, joules, before, after, 0, uncovered, lost, seen + (t_ns >= after.t_ns))

    def around(self, a: CurvePoint, b: CurvePoint, margin_ns: int = 0) -> Frame:
        """Return the rows around and between two readings, and within a margin of them, as far as they are kept."""
        kept: deque[Frame | Point] = deque()
        for rows in reversed(self._frames):  # regions are short and recent, what is kept is long
            if _last_t_ns(rows) < a.t_ns - margin_ns:
                break
            if _first_t_ns(rows) <= b.after.t_ns + margin_ns:
                kept.appendleft(rows)
        frame = _join([a.before, a.after, *kept, b.before, b.after], len(self._layout.names), len(self._layout.values))
        _, first = np.unique(frame.t_ns, return_index=True)
        t_ns, lost, uncovered_ns = frame.t_ns[first], frame.lost[first], frame.uncovered_ns[first]
        return Frame(t_ns, frame.watts[first], frame.joules[first], frame.values[first], lost, uncovered_ns)

    def recent(self, seconds: float | None, unix_ns_offset: int) -> Recent:
        """Return the rows of the last ``seconds`` (None: all that are kept) as arrays."""
        layout = self._layout
        frame = _join(list(self._frames), len(layout.names), len(layout.values))
        start = 0
        if len(frame):
            back_ns = self._keep_ns if seconds is None else round(seconds * 1e9)
            start = int(np.searchsorted(frame.t_ns, frame.t_ns[-1] - back_ns))
        t_ns = frame.t_ns[start:]
        marks = [(int(np.searchsorted(t_ns, t)), label) for t, label in self._marks if len(t_ns) and t >= t_ns[0]]
        return Recent(
            t_ns,
            (t_ns + unix_ns_offset) / 1e9,
            layout.names,
            frame.watts[start:],
            frame.joules[start:],
            tuple(f"{c.name} [{c.unit}]" for c in layout.values),
            frame.values[start:],
            frame.lost[start:],
            tuple(marks),
        )


def _extend(joules: float, watts: float, ahead_ns: int) -> float:
    """Let the last power go on; where none is known (a counter that was read once) the energy stays."""
    return joules if math.isnan(watts) else joules + watts * ahead_ns * 1e-9


def _count(rows: Frame | Point) -> int:
    return 1 if isinstance(rows, Point) else len(rows)


def _first_t_ns(rows: Frame | Point) -> int:
    return rows.t_ns if isinstance(rows, Point) else int(rows.t_ns[0])


def _last_t_ns(rows: Frame | Point) -> int:
    return rows.t_ns if isinstance(rows, Point) else int(rows.t_ns[-1])


def _join(chunks: list[Frame | Point], energies: int, values: int) -> Frame:
    frames: list[Frame] = []
    points: list[Point] = []
    for chunk in chunks:
        if isinstance(chunk, Point):
            points.append(chunk)
            continue
        if points:
            frames.append(Frame.of_points(points))
            points = []
        frames.append(chunk)
    if points:
        frames.append(Frame.of_points(points))
    if not frames:
        nothing = np.empty(0, np.int64)
        return Frame(nothing, np.empty((0, energies)), np.empty((0, energies)), np.empty((0, values)), nothing, nothing)
    return Frame(
        np.concatenate([f.t_ns for f in frames]),
        np.concatenate([f.watts for f in frames]),
        np.concatenate([f.joules for f in frames]),
        np.concatenate([f.values.reshape(len(f), values) for f in frames]),
        np.concatenate([f.lost for f in frames]),
        np.concatenate([f.uncovered_ns for f in frames]),
    )
