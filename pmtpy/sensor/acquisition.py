"""The running curve of one source: rows are taken when somebody needs them, kept for a while, and asked about instants.

Whoever needs a row takes it: the caller of a reading and the poller do the very same step, under the acquisition's
lock. It knows who needs rows (a dump, an open region, a momentary power) and has the poller read as often as they need;
what a user may do with a sensor is for :class:`pmtpy.Sensor` to say.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pmtpy.core.calibration.matching import Calibration
from pmtpy.core.channel import EnergyMethod
from pmtpy.core.clock import Anchor, Clock
from pmtpy.core.rows import Block, Frame, Layout, Point, Row
from pmtpy.core.source import Remarks, Source, Timestamps
from pmtpy.core.state import Origin, State
from pmtpy.errors import PmtError, SensorClosedError, TargetError
from pmtpy.sensor.curve import Curve
from pmtpy.sensor.gaps import ReadingGaps
from pmtpy.sensor.history import Bookmark, CurvePoint, History, PeakHold, Recent
from pmtpy.sensor.load_stamps import LoadStamps
from pmtpy.sensor.poller import RepeatedTask, poller_for

_log = logging.getLogger("pmtpy")
_MISSED = 0.75  # share of the period between readings, below which a register is renewed unseen
_GUARD_PARTS = 4  # a counter is read this often within the time after which it would be ambiguous
_WATCH_S = 0.1  # between two readings of counters while a region is open, or more where the source is slower
_YOUNG = 0.5  # periods: a counter that was read since needs no reading
_LINGER_PERIODS = 10  # for which the poller waits for the next region before it ends: beginning a thread costs 0.1 ms


class OpenStretch(NamedTuple):
    """A stretch of time that has begun: where, and the largest power since."""

    start: Bookmark
    peak: PeakHold


class Acquisition:
    """What a source has delivered, as one curve. All methods may be called from any thread.

    Parameters
    ----------
    source : Source
        Read from here only.
    target : str
        Its name for the user.
    clock : Clock
        The clock of the source's times.
    calibration : Calibration, optional
        Profiles of this very device, applied to its channels.
    history_s : float
        How much of the past is kept, in seconds.
    interval_s : float, optional
        How often the poller reads; None: as the source asks.

    Attributes
    ----------
    lock : RLock
        Held while the source is read and the curve is asked. Never hold it while the poller is started or stopped.
    layout : Layout
        Which channels have energy, and which of them make the total.
    anchor : Anchor
        Wall and monotonic time at the beginning.
    failure : PmtError or None
        Why the source was lost.
    loads : LoadStamps
        When the program said that the device worked.
    unusable : str
        Why it cannot be used any more; empty while it can.
    closed, released : bool
        Whether it was closed, and whether that has come to its end.
    feed : callable or None
        Takes every row as it comes; a dump.
    period_s : float
        Time between two readings of the poller.
    """

    def __init__(
        self,
        source: Source,
        target: str,
        clock: Clock,
        *,
        calibration: Calibration | None = None,
        history_s: float,
        interval_s: float | None = None,
    ) -> None:
        self.target, self.clock, self.calibration = target, clock, calibration
        self.lock = threading.RLock()
        self.anchor: Anchor = clock.anchor()
        self.failure: PmtError | None = None
        self.unusable, self.closed, self.released = "", False, False
        self.feed: Callable[[Frame], None] | None = None
        profiles = calibration.profiles if calibration is not None else {}
        self.layout = Layout(calibration.channels(source.channels) if calibration is not None else source.channels)
        self._curve = Curve(self.layout, {name: p.curve.true for name, p in profiles.items()}, history_s)
        unix_ns = self.anchor.unix_ns - self.anchor.monotonic_ns
        self._origin = Origin(target, self.layout.names, unix_ns, int.from_bytes(os.urandom(8), "little"))
        self._labels: list[tuple[int, str]] = []
        self._take(source, interval_s)
        self.loads = LoadStamps(clock)
        self._always = self._streaming or any(c.energy_method is not EnergyMethod.COUNTER for c in self.layout.energy)
        self._regions = 0
        self._regions_lock = threading.Lock()
        self._idle = 0  # periods since a region was open
        self._resting = True  # the poller does not watch; changed under the lock of the regions
        self._dump_s: float | None = None
        self._dropped = False
        self.step()
        self._task = RepeatedTask(poller_for(clock, target, alone=self._blocking or self._streaming), self._polled)
        self.schedule()

    def _take(self, source: Source, interval_s: float | None) -> None:
        self._source, self._resumed = source, False
        self._blocking, self._streaming = source.traits.blocking, source.traits.streaming
        self.interval_s = self.period_s = interval_s or source.traits.interval_s
        # Of a total made of counters nothing is missed while nobody reads.
        parts = [self.layout.energy[i - 1] for i in self.layout.in_total] or self.layout.energy
        sampled = not self._streaming and any(c.energy_method is not EnergyMethod.COUNTER for c in parts)
        self._gaps = ReadingGaps() if sampled else None

    @property
    def source(self) -> Source:
        """The source, for what it says of itself."""
        return self._source

    @property
    def newest(self) -> Point | None:
        """The newest row; None before the first."""
        if self._curve.waiting:
            with self.lock:
                return self._history.newest
        return self._curve.kept.newest

    @property
    def _history(self) -> History:
        return self._curve.history

    @property
    def alive(self) -> bool:
        """Whether it can be read: not closed, not lost."""
        return not self.unusable and self.failure is None

    @property
    def aged_s(self) -> float:
        """How old a value may be at its row: the time between readings; 0 where the device says when it was renewed."""
        dated = self._source.traits.timestamps is Timestamps.DEVICE_UPDATE
        return 0.0 if dated or self._streaming else self.period_s

    # -- taking rows -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise where the sensor was closed, or belongs to the parent of this process."""
        if self.unusable:
            raise SensorClosedError(self.unusable)

    def step(self) -> None:
        """Bring the curve up to now. Raises as the source does, and again at every later call once it is lost."""
        with self.lock:
            self._step()

    def step_quietly(self) -> None:
        """Take what has come, unless that is slow; a loss is kept, and raised by the call that asks for values."""
        with self.lock:
            if self.failure is None and not self._blocking:
                try:
                    self._step()
                except PmtError:
                    _log.debug("%s was lost at a step", self.target, exc_info=True)

    def _refresh(self) -> None:
        """Bring the curve up to now for somebody who asks for values; what is slow is left to the poller."""
        if not self._blocking:
            self._step()
        elif self.failure is not None:
            raise self.failure

    def _step(self) -> None:
        if self.failure is not None:
            raise self.failure
        more = True
        while more:
            try:
                taken = self._source.read_row() if self._gaps is None else self._read_noted(self._gaps)
            except PmtError as error:
                self.fail(error)
                raise
            self._absorb(taken)
            more = self._streaming and self._source.has_backlog

    def _absorb(self, taken: Block | Row) -> None:
        if self._resumed and (isinstance(taken, Row) or len(taken)):
            taken, self._resumed = _fresh(taken), False
        rows = self._curve.advance(taken)
        if rows is not None:
            if self._labels:
                rows = self._label(rows)
            self._curve.kept.append(rows)
            if self.feed is not None:
                self.feed(rows if isinstance(rows, Frame) else Frame.of_points([rows]))

    def _read_noted(self, gaps: ReadingGaps) -> Block | Row:
        gaps.begins(self.clock.now_ns(), self.period_s)
        taken = self._source.read_row()
        gaps.ended(self.clock.now_ns())
        before = self._history.newest
        if before is None or not (isinstance(taken, Row) or len(taken)):
            return taken
        missed = gaps.missed(before.t_ns, taken.t_ns if isinstance(taken, Row) else int(taken.t_ns[0]))
        return _without(taken, missed) if missed else taken

    def fail(self, error: PmtError) -> None:
        """End the curve; every later call that asks for new values raises ``error``."""
        self.failure = error
        _log.error("%s is lost: %s", self.target, error)

    def resume(self, source: Source) -> None:
        """Go on with the same device, opened anew after a loss; the time between has no known energy.

        Raises
        ------
        TargetError
            Another device answers now, or it has other channels.
        """
        calibration = self.calibration
        channels = calibration.channels(source.channels) if calibration is not None else source.channels
        before, now = self._source.identity, source.identity
        if channels != self.layout.channels or (before.model, before.serial) != (now.model, now.serial):
            msg = (
                f"{self.target}: another device, or one with other channels, answers now; close it and create it again"
            )
            raise TargetError(msg)
        with self.lock:
            self._take(source, self.interval_s)
            self._resumed, self.failure = True, None
            self._step()
        self.schedule()

    def label(self, text: str) -> None:
        """Put a label on the present instant: in the device's own stream where it can, else timed by the host."""
        with self.lock:
            if self.failure is not None:
                raise self.failure
            if not self._source.mark(text):
                self._labels.append((self.clock.now_ns(), text))

    def _label(self, rows: Frame | Point) -> Frame:
        """Give host-timed labels to the first row at or after their instant."""
        frame = rows if isinstance(rows, Frame) else Frame.of_points([rows])
        newest = int(frame.t_ns[-1])
        due = [(t, label) for t, label in self._labels if t <= newest]
        self._labels = [(t, label) for t, label in self._labels if t > newest]
        marks = tuple((int(frame.t_ns.searchsorted(t)), label) for t, label in due)
        return replace(frame, marks=tuple(sorted((*frame.marks, *marks))))

    # -- the present -----------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the curve at the moment of the call; of a stream, at its newest row."""
        with self.lock:
            asked_ns = self.clock.now_ns()
            if self._blocking:
                self._refresh()
            else:
                self._step()
            newest = self._curve.history.newest
            if newest is None or (newest.t_ns < asked_ns and not self._streaming):
                return self._extended(self.clock.now_ns())
            return self._origin.at_row(newest, self._curve.lost)

    def _extended(self, t_ns: int) -> State:
        """Let the last power go on: the register has not refreshed, or a reading takes too long to wait for it."""
        if self._history.newest is None:
            size = len(self._origin.names)
            return self._origin.at_row(Point(t_ns, (math.nan,) * size, (0.0,) * size, (), 0, (0,) * size), 0)
        mark = self._history.bookmark(t_ns)
        now = self._history.reading(mark)
        row = Point(t_ns, now.after.watts, now.joules, (), 0, now.uncovered_ns)
        return replace(self._origin.at_row(row, now.lost), extended_ns=now.extended_ns, place=_Place(self, mark))

    def recent(self, seconds: float | None) -> Recent:
        """Return arrays of the last ``seconds``, or of all that is kept."""
        with self.lock:
            self._refresh()
            return self._history.recent(seconds, self._origin.unix_ns)

    # -- instants --------------------------------------------------------------------------------------------------

    def begin(self) -> OpenStretch:
        """Note the present instant as the start of a region; costs no reading where the poller reads anyway."""
        if self.unusable:
            raise SensorClosedError(self.unusable)
        with self._regions_lock:
            self._regions += 1
            wake, self._resting = self._resting, False
        if not self._always and (wake or not self._task.going):
            self.schedule()
        try:
            with self.lock:
                start = self._now()
                return OpenStretch(start, self._curve.follow_peak(start.t_ns))
        except BaseException:
            self._count_regions(-1)
            raise

    def end(self, stretch: OpenStretch) -> Bookmark:
        """Note the present instant as the end of a region."""
        with self._regions_lock:
            self._regions -= 1
        if self.unusable:
            raise SensorClosedError(self.unusable)
        with self.lock:
            stretch.peak.end_ns = self.clock.now_ns()  # whatever else fails, nothing is followed for ever
            end = self._now()
            if not self._curve.waiting:
                stretch.peak.end_ns = end.t_ns
            return end

    def abandon(self, stretch: OpenStretch) -> None:
        """Take back a beginning."""
        self._count_regions(-1)
        with self.lock:
            stretch.peak.end_ns = stretch.start.t_ns
            self._history.forget(stretch.start)

    def _count_regions(self, change: int) -> None:
        with self._regions_lock:
            self._regions += change

    def _now(self) -> Bookmark:
        if self.failure is not None:
            raise self.failure
        if self._always or self.feed is not None:
            return self._history.bookmark(self.clock.now_ns())
        asked_ns = self.clock.now_ns()
        try:
            taken = self._source.read_row()
        except PmtError as error:
            self.fail(error)
            raise
        if isinstance(taken, Row) and taken.t_ns >= asked_ns and not (self._labels or self._resumed):
            # The register was read just now: its row is the instant, with nothing to be bridged beside it.
            return self._curve.note(taken)
        self._absorb(taken)
        newest = self._history.newest
        here = newest is not None and newest.t_ns >= asked_ns
        return self._history.bookmark(newest.t_ns if newest is not None and here else self.clock.now_ns())

    def bookmark(self, t_ns: int) -> Bookmark:
        """Set a bookmark at an instant of the recent past."""
        with self.lock:
            return self._history.bookmark(t_ns)

    def readings(self, *instants: Bookmark) -> list[CurvePoint]:
        """Return the curve at bookmarks, all by the very same rows: those that have come by now.

        One by one would not do: a row that comes between two readings could leave the start on the newer curve and the
        end on the older, and make the energy between them negative. Once closed, by the rows it has had.
        """
        with self.lock:
            newest = self._history.newest
            passed = newest is not None and all(i.reading is not None or newest.t_ns >= i.t_ns for i in instants)
            if not passed and not self.closed:
                self.check()
                self._refresh()
            return [self._history.reading(instant) for instant in instants]

    def as_known(self, *instants: Bookmark) -> list[CurvePoint]:
        """Do as :meth:`readings`, without reading the source."""
        with self.lock:
            return [self._history.reading(instant) for instant in instants]

    def now(self) -> Bookmark:
        """Set a bookmark at the present instant, and read the source for it where that is quick."""
        self.check()
        with self.lock:
            return self._now()

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return what the source knows of a stretch beyond its rows."""
        with self.lock:
            told = self._source.remarks(begin_ns, end_ns)
            unread = () if self._gaps is None else self._gaps.warnings(begin_ns, end_ns)
            return replace(told, warnings=(*told.warnings, *unread)) if unread else told

    def doubt(self, column: int, since_ns: int) -> str:
        """Say why energy of a column was not known after an instant; empty where nothing is known of why."""
        t_ns, why = self._curve.doubt(column)
        return why if t_ns >= since_ns else ""

    def around(self, a: CurvePoint, b: CurvePoint, margin_s: float = 0.0, *, most: int | None = None) -> Frame:
        """Return the rows around and between two readings, and within a margin of them, as far as they are kept."""
        with self.lock:
            return self._history.around(a, b, round(margin_s * 1e9), most=most)

    # -- the poller ------------------------------------------------------------------------------------------------

    def start_feed(self, feed: Callable[[Frame], None], interval_s: float | None) -> None:
        """Hand every row from now on to ``feed``. Under :attr:`lock`; call :meth:`schedule` afterwards without it."""
        self.feed, self._dump_s = feed, interval_s if interval_s and not self._streaming else self.interval_s

    def end_feed(self) -> None:
        """Hand rows on no more. Call :meth:`schedule` afterwards."""
        self.feed = self._dump_s = None

    def schedule(self) -> None:
        """Let the poller read as often as somebody needs it, or not at all."""
        period: float | None = None
        if self._dump_s is not None:
            period = self._dump_s
        elif self._always:
            period = self.interval_s
        elif self._regions > 0:
            # What goes wrong between the two readings of a region shows only in readings between them.
            deadline_s = self._source.traits.deadline_s or math.inf
            period = min(max(self.interval_s, _WATCH_S), deadline_s / _GUARD_PARTS)
        self.period_s = period or self.interval_s
        # A dump is regular, as it was asked for.
        dither = self._dump_s is None and self._always and self._misses_readings(self.period_s)
        self._task.every(period if self.alive else None, dither=dither)

    def _misses_readings(self, period_s: float) -> bool:
        """Whether powers are renewed more often than they are read, so that a load may keep step with the polls."""
        energy = self.layout.energy
        if self._streaming or all(c.energy_method is EnergyMethod.COUNTER for c in energy):
            return False
        if self._source.traits.timestamps is Timestamps.DEVICE_UPDATE:  # all that a reading holds is renewed together
            return any(c.refresh_s is not None and c.refresh_s < _MISSED * period_s for c in energy)
        powers = [c for c in energy if c.energy_method is not EnergyMethod.COUNTER]
        return any((c.refresh_s or 0.0) < _MISSED * period_s for c in powers)

    def _polled(self) -> None:
        """Take a step, by the poller; or end, where the sensor was dropped since: who reads is the one to close."""
        if self._dropped:
            self._task.end()
            self._close_quietly()
            return
        if not self._needed():
            return
        try:
            with self.lock:
                if self.alive:
                    self._step()
                    return
        except PmtError:
            _log.debug("the poller of %s ends", self.target, exc_info=True)
        except Exception as error:  # noqa: BLE001  (a fault of a driver must reach the user)
            self.failure = PmtError(f"{self.target}: {error!r}")
            self.failure.__cause__ = error
            _log.exception("%s failed", self.target)
        self._task.end()

    def _needed(self) -> bool:
        """Whether the poller has to read now; where it only watches regions and there are none, let it end.

        A region reads at both its ends, so one that is shorter than the period costs no reading of the poller's.
        """
        if self._always or self.feed is not None:
            return True
        with self._regions_lock:
            self._idle = 0 if self._regions else self._idle + 1
            self._resting = self._idle > _LINGER_PERIODS
        if self._resting:
            self._task.end()
        newest_ns = self._curve.newest_ns
        young = newest_ns is not None and self.clock.now_ns() - newest_ns < _YOUNG * 1e9 * self.period_s
        return bool(self._regions) and not young

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading, release the device; once, though it may be called again after an interruption."""
        self.unusable, self.closed = f"{self.target} was closed", True
        self.schedule()
        with self.lock:
            if not self.released:
                self._source.close()
                self.released = True

    def disown(self, why: str) -> None:
        """Leave the device to the parent, in a child process; the lock may be held by a thread that is not here."""
        self.unusable, self.lock = why, threading.RLock()

    def drop(self) -> None:
        """Release the device of a sensor that nobody holds any more: by the poller, or at once where none reads it.

        The garbage collector calls this in any thread, under any lock.
        """
        self._dropped = True
        if not self._task.going:
            self._close_quietly()

    def _close_quietly(self) -> None:
        try:
            self._source.close()
        except PmtError:
            _log.exception("while closing %s, which was dropped", self.target)


def _fresh(taken: Block | Row) -> Block:
    """Mark rows as those of a device that was opened anew, whose counters do not continue."""
    if isinstance(taken, Row):
        return Block.row(taken.t_ns, taken.counts, lost=taken.lost, fresh=True)
    return replace(taken, fresh=True)


def _without(taken: Block | Row, missed: int) -> Block | Row:
    """Say of rows that some are missing before the first of them."""
    if isinstance(taken, Row):
        return taken._replace(lost=taken.lost + missed)
    lost = np.zeros(len(taken), np.int64) if taken.lost is None else taken.lost.copy()
    lost[0] += missed
    return replace(taken, lost=lost)


class _Place:
    """Where an extended state lies on its curve."""

    __slots__ = ("_acquisition", "_mark")

    def __init__(self, acquisition: Acquisition, mark: Bookmark) -> None:
        self._acquisition = acquisition
        self._mark = mark

    def settle(self, states: Sequence[State]) -> list[State]:
        """Return the states of one sensor as the rows that have come by now show them, all by the same rows."""
        with self._acquisition.lock:
            return [state.place.settled(state) if isinstance(state.place, _Place) else state for state in states]

    def settled(self, state: State) -> State:
        """Return the state that this is the place of, as the rows that have come by now show it."""
        (reading,) = self._acquisition.as_known(self._mark)
        return replace(state, joules=reading.joules, uncovered_ns=reading.uncovered_ns, lost=reading.lost)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process, where no later rows come."""
        return type(None), ()
