"""The recent past of one curve: a bounded ring of rows, and the curve at any instant of it.

An :class:`Bookmark` is a bookmark: it is set in the present and costs nothing then; the rows that come later settle
it. So an open region needs no history to know its energy, however long it lasts.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pmtpy._extras import extra
from pmtpy.core.channel import EnergyMethod
from pmtpy.core.markers import marker_column
from pmtpy.core.moves import energies_at
from pmtpy.core.rows import Floats, Frame, Ints, Layout, Point
from pmtpy.errors import CoverageError, TargetError
from pmtpy.sensor._ring import MOST_WAITING, Ring

if TYPE_CHECKING:
    from pmtpy.analysis.comparison.results import Trace

_FOR_EVER_S = 1e9  # three decades
_FOR_EVER_NS = round(_FOR_EVER_S * 1e9)
_new = tuple.__new__  # what CurvePoint(...) does in the end, at half the cost
# Refresh periods after an instant by which a counter has moved twice, so that no later row tells more of it; as many
# before it lies the move that the rows there show.
_MOVED_REFRESHES = 2.0
_MIN_KEPT_ROWS = 1000  # kept however old: a slow register's are few, and tell how the power moved during a long region


class CurvePoint(NamedTuple):
    """The curve at one instant, and how it was come by."""

    t_ns: int  # the instant
    joules: tuple[float, ...]  # cumulative energy, total first
    # the rows around the instant; the same one twice at a row, and where the instant is extended
    before: Point
    after: Point
    # how far the instant lies beyond the newest row, whose power was then assumed to go on for a while; 0 if rows
    # surround it
    extended_ns: int
    # Time without known energy up to the instant, total first; negative before the first row. Only differences count.
    uncovered_ns: tuple[int, ...]
    # rows lost and rows seen, up to the instant
    lost: int
    rows: int

    def numbered(self) -> tuple[tuple[Point, int], ...]:
        """Return the rows around the instant, and as how many they came."""
        number = self.rows + (self.t_ns < self.after.t_ns)
        return (self.before, number - (self.before is not self.after)), (self.after, number)


class Around(NamedTuple):
    """Rows around an interval, in as many frames as they are kept in; from when to when those between are not here."""

    frames: tuple[Frame, ...]
    left_out_ns: tuple[tuple[int, int], ...]


class Bookmark:
    """A bookmark on a curve, settled when rows have passed it. Owned by the history that made it."""

    __slots__ = ("__weakref__", "reading", "t_ns")

    def __init__(self, t_ns: int) -> None:
        self.t_ns = t_ns
        self.reading: CurvePoint | None = None


class PeakHold:
    """The largest power per name between two instants, followed while rows come. Owned by the history."""

    __slots__ = ("__weakref__", "end_ns", "start_ns", "watts")

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
                self._raise(tuple(np.fmax.reduce(rows.watts[first:last]).tolist()))
        return self.end_ns is None or _last_t_ns(rows) < self.end_ns

    def _raise(self, watts: tuple[float, ...]) -> None:
        known = zip(watts, self.watts, strict=True) if self.watts else ()  # a power that was not read is no number
        self.watts = tuple([old if math.isnan(new) or new <= old else new for new, old in known]) or watts


@dataclass(frozen=True, slots=True)
class Recent:
    """Arrays of the recent past, as :meth:`pmtpy.Sensor.history` hands them out."""

    t_ns: Ints  # shape (n,); monotonic instants
    timestamp: Floats  # shape (n,); the same as Unix seconds
    names: tuple[str, ...]  # total, then the channels with energy
    # shape (n, k); power, and energy since the sensor was opened
    watts: Floats
    joules: Floats
    value_names: tuple[str, ...]  # the other channels, with their unit: ``pair0.voltage [V]``
    values: Floats  # shape (n, m)
    lost: Ints  # shape (n,); rows missing before each row
    marks: tuple[tuple[int, str], ...]  # (row, label)
    uncovered_ns: Ints  # shape (n, k); time since the sensor was opened for which no energy is known
    target: str = ""  # the sensor
    layout: Layout | None = None  # what its channels are, and how well they are known
    # time between two readings, of which those that brought nothing new make no row; None: of a stream
    polled_s: float | None = None
    stamped: bool = False  # whether rows bear the device's own times
    aged_s: float = 0.0  # how old a value may be at its row

    def trace(self, name: str = "total") -> Trace:
        """Return one power with all that is known of it, for :func:`pmtpy.analysis.compare`.

        Its times are monotonic seconds. It is called by the target, and by ``target#name`` where it is not the total.

        Raises TargetError: there is no such power; the message lists what there is.
        """
        from pmtpy.analysis.clocking import Polling  # only a comparison pays for them
        from pmtpy.analysis.comparison.results import Trace, stated

        if name not in self.names:
            msg = f"{self.target} has no power {name!r}; there are: {', '.join(self.names)}"
            raise TargetError(msg)
        i = self.names.index(name)
        layout = self.layout or Layout(())
        numbers = layout.in_total if i == 0 else (i,)
        means = {self.names[n]: float(np.mean(known)) for n in numbers if len(known := _finite(self.watts[:, n]))}
        return Trace(
            self.target if i == 0 else f"{self.target}#{name}",
            self.t_ns / 1e9,
            self.watts[:, i],
            self.joules[:, i],
            self.lost,
            stated(name, [layout.energy[n - 1] for n in numbers], means),
            polling=Polling(self.polled_s, self.stamped and not self.aged_s, uncut=True) if self.polled_s else None,
            aged_s=self.aged_s,
        )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.t_ns)

    def to_pandas(self) -> object:
        """Return a ``pandas.DataFrame``, one line per row (needs the extra ``analysis``)."""
        with extra("pandas", "to_pandas()", ImportError):
            import pandas as pd
        columns: dict[str, object] = {"time": self.timestamp, "t_ns": self.t_ns}
        columns |= {f"{n}_W": self.watts[:, i] for i, n in enumerate(self.names)}
        columns |= {f"{n}_J": self.joules[:, i] for i, n in enumerate(self.names)}
        columns |= {n: self.values[:, i] for i, n in enumerate(self.value_names)}
        return pd.DataFrame({**columns, "lost": self.lost, "marker": marker_column(self.marks, len(self))})


class History:
    """What is kept of one curve. One owner, the acquisition, which holds its own lock around every call but two.

    :meth:`note` and :meth:`follow_peak` may be called by any thread at any time, also while rows are being appended:
    who enters a region does not wait for a driver. What they hand out is taken in by the next call that holds the lock.

    Parameters
    ----------
    seconds : float
        Rows older than this, counted from the newest, are forgotten sooner or later, but for the last thousand.
        Frames are kept as they are, so nobody may write to them.

    Attributes
    ----------
    newest : Point or None
        The last row; None before the first.
    carry_ns : int
        How long the power of the newest row is taken to go on. A source of which no row comes for longer has stalled,
        or its cable: what is used from then on is not known until rows have passed it.
    """

    def __init__(self, layout: Layout, seconds: float) -> None:
        self._layout = layout
        self._keep_ns = round(seconds * 1e9)
        self._ring = Ring(layout)
        self._marks: deque[tuple[int, str]] = deque()
        # Counters whose refresh is stated, as columns of a Frame, with that; and by when the slowest have moved.
        self._counters = [
            (i, round(c.refresh_s * 1e9))
            for i, c in enumerate(layout.energy, 1)
            if c.refresh_s and c.energy_method is EnergyMethod.COUNTER
        ]
        self._moves = dict.fromkeys([i for i, _ in self._counters], -_FOR_EVER_NS)  # when each moved last
        self._moved_ns = round(_MOVED_REFRESHES * max([refresh_ns for _, refresh_ns in self._counters], default=0))
        self._open: weakref.WeakSet[Bookmark] = weakref.WeakSet()  # those that nobody holds vanish
        self._peaks: list[weakref.ref[PeakHold]] = []  # those that nobody holds vanish
        self._handed_out: deque[Bookmark | PeakHold] = deque()  # since the last call that held the lock
        self._rows = 0  # seen, and lost, up to the newest
        self._lost = 0
        self._singles = 0  # rows that came singly since something was forgotten
        self.newest: Point | None = None
        self.carry_ns = _FOR_EVER_NS

    def append(self, rows: Frame | Point) -> None:
        """Add rows; forget what is too old."""
        if self._handed_out:
            self._take_in()
        if self._peaks:
            self._peaks = [ref for ref in self._peaks if (peak := ref()) is not None and peak.follow(rows)]
        if self._counters:
            self._follow_moves(rows)
        if isinstance(rows, Point):
            self._ring.waiting.append(rows)  # this is what a user's read() waits for
            self.newest = rows
            self._rows += 1
            self._lost += rows.lost
            self._singles += 1
            if self._singles < MOST_WAITING:
                return
            self._singles = 0
        else:
            newest, size, lost = rows.point(-1), len(rows), self._ring.append(rows)
            self.newest, self._rows, self._lost = newest, self._rows + size, self._lost + lost
            if rows.marks:
                self._marks.extend((int(rows.t_ns[i]), label) for i, label in rows.marks)
        self._forget(self.newest.t_ns - self._keep_ns)

    def _forget(self, horizon_ns: int) -> None:
        """Drop the rows that are older, but for the last thousand, and settle the bookmarks that lie among them."""
        ring, waiting = self._ring, self._ring.waiting
        old = len(waiting) - _MIN_KEPT_ROWS
        if old > 0 and waiting[old].t_ns < horizon_ns and not self._open:
            ring.drop_waiting(old)  # nobody has asked for them, so they need not be put into arrays
        elif old > 0:
            ring.pack()
        while (left_ns := ring.left_ns(_MIN_KEPT_ROWS)) is not None and left_ns <= horizon_ns:
            for mark in [m for m in self._open if m.t_ns <= left_ns] if self._open else ():
                mark.reading = self.at(mark.t_ns)  # by the rows that there are: they are forgotten
                self._open.discard(mark)
            ring.drop()
        while self._marks and self._marks[0][0] < horizon_ns:
            self._marks.popleft()

    def bookmark(self, t_ns: int) -> Bookmark:
        """Set a bookmark; nothing is computed now unless rows have passed it."""
        mark = self.note(t_ns)
        self._take_in()
        return mark

    def note(self, t_ns: int) -> Bookmark:
        """Set a bookmark, without the lock: at the present, whose rows are forgotten long after it was taken in."""
        mark = Bookmark(t_ns)
        self._handed_out.append(mark)
        return mark

    def _take_in(self) -> None:
        """Settle what was handed out by the rows that have come by now, and leave the rest to later ones.

        Rows may have been appended between the instant and the taking in, which the peak then has not followed.
        """
        while True:
            try:
                new, newest = self._handed_out.popleft(), self.newest
            except IndexError:
                return
            if isinstance(new, Bookmark):
                # Of one whose rows are forgotten (its thread stood still meanwhile) who asks for it is told so.
                with suppress(CoverageError):
                    if newest is None or not self._settle(new, newest):
                        self._open.add(new)
                continue
            if newest is None or newest.t_ns <= new.start_ns or new.follow(self._since(new.start_ns)):
                self._peaks.append(weakref.ref(new))

    def _since(self, t_ns: int) -> Frame:
        """Return the rows after an instant, of which there is at least one."""
        return self._ring.frame(self._ring.row_of(t_ns, after=True), len(self._ring))

    def at_row(self, newest: Point) -> CurvePoint:
        """Return the curve at the instant of the newest row."""
        known = (newest.t_ns, newest.joules, newest, newest, 0, newest.uncovered_ns, self._lost, self._rows)
        return _new(CurvePoint, known)

    def follow_peak(self, start_ns: int) -> PeakHold:
        """Follow the largest power from an instant on, until the peak has an end and rows have passed it; no lock."""
        peak = PeakHold(start_ns)
        self._handed_out.append(peak)
        return peak

    def forget(self, mark: Bookmark) -> None:
        """Drop a bookmark that is no longer wanted."""
        self._open.discard(mark)

    def reading(self, mark: Bookmark) -> CurvePoint:
        """Return the curve at a bookmark: settled where rows have passed it, else extended from the newest row."""
        if self._handed_out:
            self._take_in()
        if mark.reading is None and self.newest is not None and self._settle(mark, self.newest):
            self._open.discard(mark)
        return mark.reading or self.at(mark.t_ns)

    def _settle(self, mark: Bookmark, newest: Point) -> bool:
        """Give a bookmark its reading if no later row can change it: rows have passed it, and moved the counters."""
        if newest.t_ns < mark.t_ns + self._moved_ns:
            return False
        mark.reading = self.at(mark.t_ns)
        return True

    def at(self, t_ns: int) -> CurvePoint:
        """Return the curve at an instant, by straight lines between rows; of counters, between their moves.

        Raises CoverageError: the instant is older than what is kept, or nothing was read yet.
        """
        newest = self.newest
        if newest is None:
            msg = "nothing is known of the instant asked for: the device has delivered no reading since it was opened"
            raise CoverageError(msg)
        if t_ns >= newest.t_ns:
            return self._beyond(newest, t_ns)
        after = self._ring.row_of(t_ns)
        if after == 0:
            return self._before_all(t_ns)
        return self._between(newest, self._ring.point(after - 1), self._ring.point(after), t_ns, after)

    def _beyond(self, newest: Point, t_ns: int) -> CurvePoint:
        """Let the power of the newest row go on, for a while."""
        ahead = t_ns - newest.t_ns
        joules, uncovered = newest.joules, newest.uncovered_ns
        if self._counters:
            joules = self._going_on(joules, newest, newest.t_ns)
        if ahead:
            known = min(ahead, self.carry_ns)
            joules = tuple([_extend(j, w, known) for j, w in zip(joules, newest.watts, strict=True)])
            # A counter that was read once has no power to go on with: until it is read again nothing is known.
            uncovered = tuple(
                [u + ahead - (0 if math.isnan(w) else known) for u, w in zip(uncovered, newest.watts, strict=True)]
            )
        return CurvePoint(t_ns, joules, newest, newest, ahead, uncovered, self._lost, self._rows)

    def _before_all(self, t_ns: int) -> CurvePoint:
        """Answer for an instant at or before the oldest row that is kept: before the very first nothing is known."""
        first, forgotten = self._ring.point(0), self._rows - len(self._ring)
        early = first.t_ns - t_ns
        if early and forgotten:
            age_s = (self.newest.t_ns - t_ns) / 1e9 if self.newest is not None else 0.0
            raise _too_old(f"{age_s:g} s before the newest row is too old")
        lost = self._ring.lost_up_to(0)
        uncovered = tuple([u - early for u in first.uncovered_ns])
        return CurvePoint(t_ns, first.joules, first, first, 0, uncovered, lost, forgotten + (not early))

    def _between(self, newest: Point, before: Point, after: Point, t_ns: int, row: int) -> CurvePoint:
        """Interpolate between the rows around an instant, of which ``row`` is the later one."""
        part = (t_ns - before.t_ns) / (after.t_ns - before.t_ns)
        if self._counters:
            joules = self._counted(newest, t_ns)
        else:
            joules = tuple([a + (b - a) * part for a, b in zip(before.joules, after.joules, strict=True)])
        uncovered = tuple(
            [a + round((b - a) * part) for a, b in zip(before.uncovered_ns, after.uncovered_ns, strict=True)]
        )
        seen = self._rows - len(self._ring) + row + (t_ns >= after.t_ns)
        at = after if t_ns == after.t_ns else before
        return CurvePoint(t_ns, joules, at, after, 0, uncovered, self._ring.lost_up_to(row), seen)

    def _counted(self, newest: Point, t_ns: int) -> tuple[float, ...]:
        """Return the energies at an instant between rows, of counters by lines from move to move."""
        ring = self._ring
        first = max(0, ring.row_of(t_ns - self._moved_ns) - 1)
        near = ring.frame(first, min(len(ring), ring.row_of(t_ns + self._moved_ns, after=True) + 1))
        energies = energies_at(self._layout, t_ns, near.t_ns, near.watts, near.joules).tolist()
        return self._going_on(energies, newest, t_ns)

    def _going_on(self, joules: Sequence[float], newest: Point, t_ns: int) -> tuple[float, ...]:
        """Add what counters have used from their last moves to an instant, which the next one will show.

        Not of one that the newest row found unmoved a refresh later: it rests.
        """
        found = list(joules)
        for i, refresh_ns in self._counters:
            moved_ns, watts = self._moves[i], newest.watts[i]
            if moved_ns < t_ns and newest.t_ns < moved_ns + refresh_ns and not math.isnan(watts):
                used = watts * (t_ns - moved_ns) * 1e-9
                found[i] += used
                found[0] += used * (i in self._layout.in_total)
        return tuple(found)

    def _follow_moves(self, rows: Frame | Point) -> None:
        """Keep when counters moved last; called before the rows are appended."""
        before = self.newest
        for i, _ in self._counters:
            if isinstance(rows, Point):
                if before is not None and rows.joules[i] != before.joules[i]:
                    self._moves[i] = rows.t_ns
                continue
            shown = rows.joules[:, i] if before is None else np.append(before.joules[i], rows.joules[:, i])
            at = np.flatnonzero(np.diff(shown))
            if len(at):
                self._moves[i] = int(rows.t_ns[at[-1] + (before is None)])

    def around(self, a: CurvePoint, b: CurvePoint, margin_ns: int = 0, *, most: int | None = None) -> Around:
        """Return the rows around and between two readings, and within a margin of them, as far as they are kept.

        They come in as many frames as they are kept in, at least one: nothing is copied, and nothing changes later.

        Parameters
        ----------
        most : int, optional
            Rows on either side of an end: the others, in the middle of the interval and far from it, are left out.
        """
        ring = self._ring
        first = max(0, ring.row_of(a.t_ns - margin_ns) - 1)
        end = min(len(ring), ring.row_of(b.after.t_ns + margin_ns, after=True) + 1)
        stretches = [(first, end)]
        if most is not None and end - first > 2 * most:
            start, stop = ring.row_of(a.t_ns), ring.row_of(b.t_ns)
            first, end = max(first, start - most), min(end, stop + most)
            whole = stop - start <= 2 * most
            stretches = [(first, end)] if whole else [(first, start + most), (stop - most, end)]
        known = ring.t_ns(0) if len(ring) else math.inf
        forgotten = {p.t_ns: (p, number) for x in (a, b) for p, number in x.numbered() if p.t_ns < known}
        parts = [part for stretch in stretches for part in ring.parts(*stretch)]
        seen = [(number, p.t_ns, number, p.t_ns) for p, number in forgotten.values()]
        for begin, stop in stretches:
            if begin < stop:
                first_number = self._rows - len(ring) + 1
                seen.append((first_number + begin, ring.t_ns(begin), first_number + stop - 1, ring.t_ns(stop - 1)))
        if forgotten:  # of a long region: its start is older than what is kept
            parts.insert(0, Frame.of_points([p for p, _ in forgotten.values()]))
        both = itertools.pairwise(seen)
        return Around(tuple(parts), tuple([(x[3], y[1]) for x, y in both if y[0] > x[2] + 1]))

    def recent(self, seconds: float | None, unix_ns_offset: int) -> Recent:
        """Return the rows of the last ``seconds`` (None: all that are kept) as arrays."""
        layout = self._layout
        back_ns = self._keep_ns if seconds is None else round(min(seconds, _FOR_EVER_S) * 1e9)
        start = 0 if self.newest is None else self._ring.row_of(self.newest.t_ns - back_ns)
        frame = self._ring.frame(start, len(self._ring))
        t_ns = frame.t_ns.copy()
        marks = [(int(np.searchsorted(t_ns, t)), label) for t, label in self._marks if len(t_ns) and t >= t_ns[0]]
        return Recent(
            t_ns,
            (t_ns + unix_ns_offset) / 1e9,
            layout.names,
            frame.watts.copy("K"),
            frame.joules.copy("K"),
            tuple(f"{c.name} [{c.unit}]" for c in layout.values),
            frame.values.copy("K"),
            frame.lost.copy(),
            tuple(marks),
            frame.uncovered_ns.copy("K"),
        )


def _extend(joules: float, watts: float, ahead_ns: int) -> float:
    """Let the last power go on; where none is known (a counter that was read once) the energy stays."""
    return joules if math.isnan(watts) else joules + watts * ahead_ns * 1e-9


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _too_old(have: str) -> CoverageError:
    return CoverageError(f"the history does not reach the instant asked for: {have}; keep more with history_s=")


def _last_t_ns(rows: Frame | Point) -> int:
    return rows.t_ns if isinstance(rows, Point) else int(rows.t_ns[-1])
