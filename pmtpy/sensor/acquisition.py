"""The running curve of one source: rows are taken when somebody needs them, kept for a while, and asked about instants.

Whoever needs a row takes it: the caller of a reading and the poller do the very same step, under the acquisition's
lock. It knows who needs rows (a dump, an open region, a momentary power) and has the poller read as often as they need;
what a user may do with a sensor is for :class:`pmtpy.Sensor` to say.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pmtpy.core.calibration.matching import Calibration
from pmtpy.core.channel import Derivation
from pmtpy.core.clock import NS_PER_S, Anchor, Clock
from pmtpy.core.rows import Frame, Point, Row
from pmtpy.core.source import Remarks, Source, Timestamps
from pmtpy.core.state import Origin
from pmtpy.errors import PmtError, SensorClosedError
from pmtpy.sensor._demand import Demand
from pmtpy.sensor._intake import Intake
from pmtpy.sensor._lock import PatientLock
from pmtpy.sensor._states import States
from pmtpy.sensor._watch import Watch
from pmtpy.sensor.history import Around, Bookmark, CurvePoint, History, PeakHold, Recent
from pmtpy.sensor.load_stamps import LoadHistory

CLOSE_TIMEOUT_S = 5.0  # at the end, with a device whose reading does not return
_STALE_S, _STALE_REFRESHES = 1.0, 3.0  # a power that was last read longer ago is not shown as that of now
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
    intake : Intake
        What is read of the source: its lock, how often the poller reads, why it was lost or must not be read any more.
    layout : Layout
        Which channels have energy, and which of them make the total.
    anchor : Anchor
        Wall and monotonic time at the beginning.
    states : States
        What it shows at the moment of a call.
    demand : Demand
        Who needs rows, and how often.
    loads : LoadHistory
        When the program said that the device worked.
    closed, released : bool
        Whether it was closed, and whether that has come to its end.
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
        self.anchor: Anchor = clock.anchor()
        self.closed = self.released = False
        self.intake = Intake(source, target, clock, calibration, history_s=history_s, interval_s=interval_s)
        self.layout, self._curve = self.intake.layout, self.intake.curve
        unix_ns = self.anchor.unix_offset_ns
        opening = int.from_bytes(os.urandom(8), "little")
        origin = Origin(target, self.layout.names, unix_ns, opening, self.layout.in_total)
        self.loads = LoadHistory(clock)
        self.demand = Demand(self.layout, source.traits, self.intake.period_s)
        self.states = States(self.intake, self.demand, clock, origin)
        self.step()
        self._watch = Watch(self.intake, self.demand, clock, target)
        self.schedule()

    def __reduce__(self) -> str:
        """Refuse to travel, in the name of the sensor and of the region that hold it."""
        msg = (
            f"{self.target} is read by this process, so neither the sensor nor a region of it can be copied, or sent "
            "to another: send what was measured, region[target] or a state"
        )
        raise TypeError(msg)

    @property
    def newest(self) -> Point | None:
        """The newest row; None before the first."""
        if self._curve.waiting:
            with self.intake.lock:
                return self._history.newest
        return self._curve.kept.newest

    @property
    def _history(self) -> History:
        return self._curve.history

    @property
    def interval_s(self) -> float:
        """Time between two readings where nobody asks for another."""
        return self.demand.interval_s

    def is_stale(self, t_ns: int) -> bool:
        """Whether a reading at ``t_ns`` is too old by now to be shown as what is now."""
        refresh_s = max((c.refresh_s or 0.0 for c in self.layout.energy), default=0.0)
        limit_s = max(_STALE_S, _STALE_REFRESHES * max(refresh_s, self.intake.period_s))
        return self.clock.now_ns() - t_ns > limit_s * NS_PER_S

    @property
    def carry_s(self) -> float:
        """How long the power of the newest row is taken to go on; later than that nothing is known."""
        return self._curve.kept.carry_ns / 1e9

    # -- taking rows -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise where the sensor was closed, or belongs to the parent of this process."""
        if self.intake.unusable:
            raise SensorClosedError(self.intake.unusable)

    def step(self) -> None:
        """Bring the curve up to now. Raises as the source does, and again at every later call once it is lost."""
        with self.intake.lock:
            self.intake.step()

    def step_quietly(self, patience_s: float = -1.0) -> None:
        """Take what has come, unless that is slow; a loss is kept, and raised by the call that asks for values.

        With a patience a reading that goes on in another thread is waited for no longer than that.
        """
        if not self.intake.lock.acquire(timeout=patience_s):
            return
        try:
            if self.intake.failure is None and not self.intake.source.traits.blocking:
                self.intake.step()
        except PmtError:
            _log.debug("%s was lost at a step", self.target, exc_info=True)
        finally:
            self.intake.lock.release()

    def fail(self, error: PmtError) -> None:
        """End the curve; every later call that asks for new values raises ``error``."""
        self.intake.fail(error)

    def resume(self, source: Source) -> None:
        """Go on with the same device, opened anew after a loss; the time between has no known energy.

        Raises TargetError: another device answers now, or it has other channels.
        """
        self.intake.check_same(source)
        with self.intake.lock:
            self.intake.resume(source, self.interval_s)
        self.schedule()

    def label(self, text: str) -> int | None:
        """Put a label on the present instant: in the device's own stream where it can, else timed by the host.

        Returns the instant, where the host timed it.
        """
        with self.intake.lock:
            return self.intake.label(text)

    def recent(self, seconds: float | None) -> Recent:
        """Return arrays of the last ``seconds``, or of all that is kept."""
        with self.intake.lock:
            self.intake.refresh()
            traits = self.intake.source.traits
            return replace(
                self._history.recent(seconds, self.anchor.unix_offset_ns),
                target=self.target,
                layout=self.layout,
                polled_s=None if traits.streaming else self.interval_s,
                stamped=traits.timestamps is not Timestamps.HOST_READ,
                aged_s=self.intake.aged_s,
            )

    # -- instants --------------------------------------------------------------------------------------------------

    def begin(self) -> OpenStretch:
        """Note the present instant as the start of a region; costs no reading where the poller reads anyway.

        Then it waits for no reading of the poller's either: that of a GPU may take a tenth of a second.
        """
        if self.intake.unusable:
            raise SensorClosedError(self.intake.unusable)
        wake = self.demand.enter()
        try:
            if not self.demand.always and (wake or not self._watch.going):
                self.schedule()
            if self.demand.always:
                start = self._noted_now(self.clock.now_ns())
            else:
                with self.intake.lock:
                    start = self._now(self.clock.now_ns())
            return OpenStretch(start, self._curve.kept.follow_peak(start.t_ns))
        except BaseException:
            self.demand.leave()
            raise

    def end(self, stretch: OpenStretch) -> Bookmark | int:
        """Note the present instant as the end of a region.

        If another thread is reading counters, return the instant instead, to be given to :meth:`end_at`: a region of
        several sensors notes the end of all of them before it waits for one.
        """
        self.demand.leave()
        if self.intake.unusable:
            raise SensorClosedError(self.intake.unusable)
        now_ns = self.clock.now_ns()  # a region is over when this is asked, not when whoever has the lock lets it go
        stretch.peak.end_ns = now_ns  # whatever else fails, nothing is followed for ever
        if self.demand.always:
            return self._noted_now(now_ns)
        if not self.intake.lock.acquire(blocking=False):
            return now_ns
        try:
            return self._ended(stretch, now_ns)
        finally:
            self.intake.lock.release()

    def end_at(self, stretch: OpenStretch, now_ns: int) -> Bookmark:
        """Note an instant of just now as the end of a region, when whoever reads the source has done so.

        Raises SourceLostError: that takes for ever.
        """
        with self.intake.lock:
            return self._ended(stretch, now_ns)

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
        if self.intake.failure is None or self.intake.unusable:
            return None
        with self.intake.lock:
            unread = [math.nan for c in self.layout.channels if c.derivation is Derivation.DIRECT]
            return self._noted(Row(self.clock.now_ns(), unread))

    def abandon(self, stretch: OpenStretch) -> None:
        """Take back a beginning."""
        self.demand.leave()
        stretch.peak.end_ns = stretch.start.t_ns
        if not self.intake.lock.acquire(timeout=CLOSE_TIMEOUT_S):
            return  # it is forgotten with whoever holds it
        try:
            self._history.forget(stretch.start)
        finally:
            self.intake.lock.release()

    def _now(self, asked_ns: int) -> Bookmark:
        """Set a bookmark at the present instant, which is not before ``asked_ns``."""
        if self.demand.always:
            return self._noted_now(asked_ns)
        row = self.intake.row(asked_ns)
        if row is not None:
            return self._noted(row)
        newest = self._history.newest
        here = newest is not None and newest.t_ns >= asked_ns
        return self._history.bookmark(newest.t_ns if newest is not None and here else self.clock.now_ns())

    def _noted_now(self, now_ns: int) -> Bookmark:
        """Set a bookmark at the present instant where rows come by themselves; needs no lock."""
        if self.intake.failure is not None:
            raise self.intake.failure.with_traceback(None)
        return self._curve.kept.note(now_ns)

    def _noted(self, row: Row) -> Bookmark:
        mark = Bookmark(row.t_ns)
        self._curve.note(row, mark)
        return mark

    def bookmark(self, t_ns: int) -> Bookmark:
        """Set a bookmark at an instant of the recent past."""
        with self.intake.lock:
            return self._history.bookmark(t_ns)

    def readings(self, *instants: Bookmark) -> list[CurvePoint]:
        """Return the curve at several bookmarks, all of it by one snapshot of the rows received so far.

        Bookmarks that are read one by one could see different rows: if a row came in between, the start could lie on
        the newer curve and the end on the older, and the energy between them could be negative.
        """
        with self.intake.lock:
            newest = self._history.newest
            passed = newest is not None and all(i.reading is not None or newest.t_ns >= i.t_ns for i in instants)
            if not passed and not self.closed:
                self.check()
                self.intake.refresh()
            return [self._history.reading(instant) for instant in instants]

    def as_known(self, *instants: Bookmark) -> list[CurvePoint]:
        """Return the curve at several bookmarks by the rows received so far; the source is not read."""
        with self.intake.lock:
            return [self._history.reading(instant) for instant in instants]

    def now(self) -> Bookmark:
        """Set a bookmark at the present instant, and read the source for it where that is quick."""
        self.check()
        with self.intake.lock:
            return self._now(self.clock.now_ns())

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return what the source knows of a stretch beyond its rows."""
        with self.intake.lock:
            return self.intake.remarks(begin_ns, end_ns)

    def doubt(self, column: int, since_ns: int) -> str:
        """Say why energy of a column was not known after an instant; empty where nothing is known of why."""
        t_ns, why = self._curve.doubt(column)
        return why if t_ns >= since_ns else ""

    def unread(self, begin_ns: int, end_ns: int) -> dict[str, str]:
        """Return the channels that were not read by themselves within a stretch, with why that last was so."""
        with self.intake.lock:
            return self.intake.unread(begin_ns, end_ns)

    def rested_watts(self, column: int, since_ns: int) -> float:
        """Return the mean power of a counter up to its last move, if that was before an instant, else 0.

        NaN: it has not moved since it began to count.
        """
        return self._curve.rested_watts(column, since_ns)

    def around(self, a: CurvePoint, b: CurvePoint, margin_s: float = 0.0, *, most: int | None = None) -> Around:
        """Return the rows around and between two readings, and within a margin of them, as far as they are kept."""
        with self.intake.lock:
            return self._history.around(a, b, round(margin_s * 1e9), most=most)

    # -- the poller ------------------------------------------------------------------------------------------------

    def read_for_feed(self, interval_s: float | None) -> None:
        """Have the sensor read as often as one who is handed its rows wants. Without its lock.

        Raises PmtError: no thread can be started to read it; it is read as before.
        """
        streaming = self.intake.source.traits.streaming
        self.demand.dump_s = interval_s if interval_s and not streaming else self.demand.interval_s
        try:
            self.schedule()
        except BaseException:
            self.demand.dump_s = None
            raise

    def start_feed(self, feed: Callable[[Frame], None]) -> None:
        """Hand every row from now on to ``feed``. Under its lock, after :meth:`read_for_feed`.

        Of a register the newest row comes first, unless it is too old to tell of now: it shows what was there at the
        start, or just before it, and the next one may be a period late.
        """
        self.intake.forget_labels()
        self.intake.feed, newest = feed, self.newest
        polled = newest is not None and not self.intake.source.traits.streaming
        if newest is not None and polled and self.clock.now_ns() - newest.t_ns <= self.carry_s * 1e9:
            feed(Frame.of_points([newest._replace(lost=0)]))

    def catch_up(self, until_ns: int) -> tuple[int, list[str]]:
        """Take rows until they show all that was there up to an instant. Without the lock.

        Returns how many nanoseconds before it are missing all the same, and the labels that no row followed.
        """
        short_ns = self.intake.catch_up(until_ns)
        return short_ns, self.intake.unplaced

    def end_feed(self) -> None:
        """Hand rows on no more. Call :meth:`schedule` afterwards."""
        self.intake.feed = self.demand.dump_s = None

    def schedule(self) -> None:
        """Let the poller read as often as somebody needs it, or not at all."""
        self._watch.schedule()

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop reading, release the device; once, though it may be called again after an interruption.

        A device that does not answer is not waited for, nor a reading of this thread that a signal interrupted: it is
        the system's when the process ends.
        """
        self.intake.unusable, self.closed = f"{self.target} was closed", True
        if not self.intake.lock.acquire(timeout=CLOSE_TIMEOUT_S):
            _log.warning("%s is still being read, and left open", self.target)
            return  # the poller, if that is who waits for it, ends by itself
        self.intake.lock.release()
        self.schedule()
        self.intake.lock.acquire()
        try:
            if not self.released:
                self.intake.source.close()
                self.released = True
        finally:
            self.intake.lock.release()

    def disown(self, why: str) -> None:
        """Leave the device to the parent, in a child process; the lock may be held by a thread that is not here."""
        self.intake.unusable, self.intake.lock = why, PatientLock(self.target)
        self.loads.disown(why)

    def drop(self) -> None:
        """Release the device of a sensor that nobody holds any more: by the poller, or at once where none reads it.

        The garbage collector calls this in any thread, under any lock.
        """
        self._watch.drop()
