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
from pmtpy.core.channel import Derivation, EnergyMethod
from pmtpy.core.clock import Anchor, Clock
from pmtpy.core.rows import Block, Frame, Layout, Point, Row
from pmtpy.core.source import Remarks, Source, Timestamps
from pmtpy.core.state import Origin, State, fill_in
from pmtpy.errors import PmtError, SensorClosedError, SourceLostError, TargetError
from pmtpy.sensor._curve import Curve
from pmtpy.sensor._demand import Demand
from pmtpy.sensor._gaps import ReadingGaps
from pmtpy.sensor._labels import WaitingLabels
from pmtpy.sensor._place import Place
from pmtpy.sensor.history import Bookmark, CurvePoint, History, PeakHold, Recent
from pmtpy.sensor.load_stamps import LoadStamps
from pmtpy.sensor.poller import RepeatedTask, poller_for

PATIENCE_S = 5.0  # at the end, with a device whose reading does not return
# How long the newest power is taken to go on: pollers and readings bring rows within less, but for a busy machine.
_CARRY_S, _CARRY_SAMPLES = 0.3, 4.0
_ANSWER_S = 20.0  # where a result waits for it: the slowest instruments are given up after ten
_log = logging.getLogger("pmtpy")


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
    demand : Demand
        Who needs rows, and how often.
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
        opening = int.from_bytes(os.urandom(8), "little")
        self._origin = Origin(target, self.layout.names, unix_ns, opening, self.layout.in_total)
        self._labels = WaitingLabels()
        self._take(source, interval_s)
        self.loads = LoadStamps(clock)
        self.demand = Demand(self.layout, source.traits, self.period_s)
        self._dropped = False
        self.step()
        self._task = RepeatedTask(poller_for(clock, target, alone=self._blocking or self._streaming), self._polled)
        self.schedule()

    def _take(self, source: Source, interval_s: float | None) -> None:
        self._source, self._resumed = source, False
        self._blocking, self._streaming = source.traits.blocking, source.traits.streaming
        self.period_s = interval_s or source.traits.interval_s
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
    def interval_s(self) -> float:
        """Time between two readings where nobody asks for another."""
        return self.demand.interval_s

    @property
    def carry_s(self) -> float:
        """How long the power of the newest row is taken to go on; later than that nothing is known."""
        return self._curve.kept.carry_ns / 1e9

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

    def step_quietly(self, patience_s: float = -1.0) -> None:
        """Take what has come, unless that is slow; a loss is kept, and raised by the call that asks for values.

        With a patience a reading that goes on in another thread is waited for no longer than that.
        """
        if not self.lock.acquire(timeout=patience_s):
            return
        try:
            if self.failure is None and not self._blocking:
                self._step()
        except PmtError:
            _log.debug("%s was lost at a step", self.target, exc_info=True)
        finally:
            self.lock.release()

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
            taken, self._resumed = self._resuming(taken), False
        rows = self._curve.advance(taken)
        if rows is not None:
            if self._labels.waiting:
                rows = self._labels.onto(rows)
            self._curve.kept.append(rows)
            if self.feed is not None:
                self.feed(rows if isinstance(rows, Frame) else Frame.of_points([rows]))

    def _resuming(self, taken: Block | Row) -> Block:
        """Mark rows as those of a device that was opened anew: its counters do not continue, and polls were missed."""
        rows = Block.row(taken.t_ns, taken.counts, lost=taken.lost) if isinstance(taken, Row) else taken
        newest_ns = self._curve.newest_ns
        if newest_ns is None or self._streaming:
            return replace(rows, fresh=True)
        lost = np.zeros(len(rows), np.int64) if rows.lost is None else rows.lost.copy()
        lost[0] += round((int(rows.t_ns[0]) - newest_ns) / (self.period_s * 1e9))
        return replace(rows, fresh=True, lost=lost)

    def _read_noted(self, gaps: ReadingGaps) -> Block | Row:
        return gaps.noted(self._source, self.clock, self.period_s, self._history.newest)

    def fail(self, error: PmtError) -> None:
        """End the curve; every later call that asks for new values raises ``error``."""
        self.failure = error
        _log.error("%s is lost: %s", self.target, error)

    def resume(self, source: Source) -> None:
        """Go on with the same device, opened anew after a loss; the time between has no known energy.

        Raises TargetError: another device answers now, or it has other channels.
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
                self._labels.put(self.clock.now_ns(), text)

    # -- the present -----------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the curve at the moment of the call; of a stream, at its newest row."""
        with self.lock:
            asked_ns = self.clock.now_ns()
            if self.demand.always or self._blocking:
                self._refresh()
            elif (row := self._row(asked_ns)) is not None:
                state = self._origin.at_instant(row.t_ns, self)
                self._curve.note(row, state)
                return state
            newest = self._history.newest
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
        return replace(self._origin.at_row(row, now.lost), extended_ns=now.extended_ns, place=Place(self.settle, mark))

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
        wake = self.demand.enter()
        if not self.demand.always and (wake or not self._task.going):
            self.schedule()
        try:
            with self.lock:
                start = self._now(self.clock.now_ns())
                return OpenStretch(start, self._curve.follow_peak(start.t_ns))
        except BaseException:
            self.demand.leave()
            raise

    def end(self, stretch: OpenStretch) -> Bookmark | int:
        """Note the present instant as the end of a region; where somebody reads the source just now, return it.

        Then :meth:`end_at` notes it, so that a region of several sensors waits for none of them while others go on.
        """
        self.demand.leave()
        if self.unusable:
            raise SensorClosedError(self.unusable)
        now_ns = self.clock.now_ns()  # a region is over when this is asked, not when whoever has the lock lets it go
        stretch.peak.end_ns = now_ns  # whatever else fails, nothing is followed for ever
        if not self.lock.acquire(blocking=False):
            return now_ns
        try:
            return self._ended(stretch, now_ns)
        finally:
            self.lock.release()

    def end_at(self, stretch: OpenStretch, now_ns: int) -> Bookmark:
        """Note an instant of just now as the end of a region, when whoever reads the source has done so.

        Raises SourceLostError: that takes for ever.
        """
        if not self.lock.acquire(timeout=_ANSWER_S):
            msg = f"{self.target} has not answered for {_ANSWER_S:g} s: its driver, or the bus behind it, hangs"
            raise SourceLostError(msg)
        try:
            return self._ended(stretch, now_ns)
        finally:
            self.lock.release()

    def _ended(self, stretch: OpenStretch, now_ns: int) -> Bookmark:
        end = self._now(now_ns)
        if not self._curve.waiting:
            stretch.peak.end_ns = end.t_ns
        self._curve.relieve()
        return end

    def end_lost(self) -> Bookmark | None:
        """Note the present instant as the end of a region whose source was lost: as a row that could not be read.

        None where it was not lost, but closed, or does not answer.
        """
        if self.failure is None or self.unusable:
            return None
        with self.lock:
            unread = [math.nan for c in self.layout.channels if c.derivation is Derivation.DIRECT]
            return self._noted(Row(self.clock.now_ns(), unread))

    def abandon(self, stretch: OpenStretch) -> None:
        """Take back a beginning."""
        self.demand.leave()
        stretch.peak.end_ns = stretch.start.t_ns
        if self.lock.acquire(timeout=PATIENCE_S):  # else it is forgotten with whoever holds it
            self._history.forget(stretch.start)
            self.lock.release()

    def _now(self, asked_ns: int) -> Bookmark:
        """Set a bookmark at the present instant, which is not before ``asked_ns``."""
        if self.demand.always:
            if self.failure is not None:
                raise self.failure
            return self._history.bookmark(asked_ns)
        row = self._row(asked_ns)
        if row is not None:
            return self._noted(row)
        newest = self._history.newest
        here = newest is not None and newest.t_ns >= asked_ns
        return self._history.bookmark(newest.t_ns if newest is not None and here else self.clock.now_ns())

    def _noted(self, row: Row) -> Bookmark:
        mark = Bookmark(row.t_ns)
        self._curve.note(row, mark)
        return mark

    def _row(self, asked_ns: int) -> Row | None:
        """Read counters once; return the row where nothing needs it now, and None where it had to be integrated."""
        if self.failure is not None:
            raise self.failure
        try:
            taken = self._source.read_row()
        except PmtError as error:
            self.fail(error)
            raise
        apart = self.feed is None and not (self._labels.waiting or self._resumed)
        if apart and isinstance(taken, Row) and taken.t_ns >= asked_ns:
            # The register was read just now: its row is the instant, with nothing to be bridged beside it.
            return taken
        self._absorb(taken)
        return None

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

    def settle(self, states: Sequence[State]) -> list[State]:
        """Return states of this sensor as the rows that have come by now show them, without reading the source."""
        with self.lock:
            self._curve.settle()
            return [state if state.place is None else self._settled(state, state.place) for state in states]

    def _settled(self, state: State, place: object) -> State:
        if isinstance(place, Place):
            known = self._history.reading(place.mark)
            return replace(state, joules=known.joules, uncovered_ns=known.uncovered_ns, lost=known.lost)
        # Ctrl-C or a fork came while its row was being worked out, or a signal's handler asks meanwhile.
        known = self._history.at(state.t_ns)
        both = zip(known.uncovered_ns, known.before.uncovered_ns, strict=True)
        unknown_ns = tuple([max(beyond, ns + known.extended_ns) for beyond, ns in both])
        fill_in(state, Point(state.t_ns, known.after.watts, known.joules, (), 0, unknown_ns), known.lost)
        return state

    def now(self) -> Bookmark:
        """Set a bookmark at the present instant, and read the source for it where that is quick."""
        self.check()
        with self.lock:
            return self._now(self.clock.now_ns())

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return what the source knows of a stretch beyond its rows."""
        with self.lock:
            told = self._source.remarks(begin_ns, end_ns)
            unread = () if self._gaps is None else self._gaps.warnings(begin_ns, end_ns)
            return replace(told, warnings=(*told.warnings, *unread), aged_s=self.aged_s)

    def doubt(self, column: int, since_ns: int) -> str:
        """Say why energy of a column was not known after an instant; empty where nothing is known of why."""
        t_ns, why = self._curve.doubt(column)
        return why if t_ns >= since_ns else ""

    def around(
        self, a: CurvePoint, b: CurvePoint, margin_s: float = 0.0, *, most: int | None = None
    ) -> tuple[Frame, ...]:
        """Return the rows around and between two readings, and within a margin of them, as far as they are kept."""
        with self.lock:
            return self._history.around(a, b, round(margin_s * 1e9), most=most)

    # -- the poller ------------------------------------------------------------------------------------------------

    def start_feed(self, feed: Callable[[Frame], None], interval_s: float | None) -> None:
        """Hand every row from now on to ``feed``. Under :attr:`lock`; call :meth:`schedule` afterwards without it."""
        self.feed = feed
        self.demand.dump_s = interval_s if interval_s and not self._streaming else self.demand.interval_s

    def end_feed(self) -> None:
        """Hand rows on no more. Call :meth:`schedule` afterwards."""
        self.feed = self.demand.dump_s = None

    def schedule(self) -> None:
        """Let the poller read as often as somebody needs it, or not at all."""
        traits, demand = self._source.traits, self.demand
        period = demand.period_s(traits)
        self.period_s = period or demand.interval_s
        apart_s = max([0.0 if self._streaming else self.period_s, *[c.refresh_s or 0.0 for c in self.layout.energy]])
        self._curve.kept.carry_ns = round(max(_CARRY_S, _CARRY_SAMPLES * apart_s) * 1e9)
        self._task.every(period if self.alive else None, dither=demand.irregular(traits, self.period_s))

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
        newest_ns = self._curve.newest_ns
        age_s = None if newest_ns is None else (self.clock.now_ns() - newest_ns) * 1e-9
        due = self.demand.due(age_s, self.period_s)
        if due is None:
            self._task.end()
        return bool(due)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process."""
        return type(None), ()

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading, release the device; once, though it may be called again after an interruption.

        A device that does not answer is not waited for: it is the system's when the process ends.
        """
        self.unusable, self.closed = f"{self.target} was closed", True
        self.schedule()
        if not self.lock.acquire(timeout=PATIENCE_S):
            _log.warning("%s does not answer: it is left open", self.target)
            return
        try:
            if not self.released:
                self._source.close()
                self.released = True
        finally:
            self.lock.release()

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
