"""The edge of a sensor: reads one source, and brings its rows onto the curve.

Here is what may go wrong with a device: it is lost, opened anew, was not read for a while. Who asks for rows, and when,
is for :mod:`pmtpy.sensor.acquisition` to say.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pmtpy.core.calibration.matching import Calibration
from pmtpy.core.channel import Derivation, EnergyMethod
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block, Frame, Layout, Row
from pmtpy.core.source import Remarks, Source, Timestamps
from pmtpy.errors import PmtError, SourceLostError, TargetError
from pmtpy.sensor._curve import Curve
from pmtpy.sensor._gaps import ReadingGaps
from pmtpy.sensor._labels import WaitingLabels
from pmtpy.sensor._lock import PatientLock

_log = logging.getLogger("pmtpy")
_LABEL_S = 0.25  # in which a device renews what it shows, or a marked frame comes, or it is not waited for
_LOOK_S = 0.0025  # between two looks for rows that are waited for
_SILENT_S = 0.5  # a stream that has brought nothing for so long: a relay that a busy machine starves is 0.15 s late
_LATEST_S = 2.0  # by which rows of a stream that brings some are waited for
_FAILURES_KEPT = 64  # readings that failed, the last ones
_MOST_LABELS = 1000  # whose frames are waited for


class Intake:
    """What is read of one source. Who calls it holds its lock.

    Attributes
    ----------
    lock : PatientLock
        Held while the source is read and the curve is asked. Never hold it while the poller is started or stopped.
    source : Source
        What is read.
    layout : Layout
        Which channels have energy, and which of them make the total.
    curve : Curve
        What the rows mean.
    period_s : float
        Time between two readings of the poller.
    failure : PmtError or None
        Why the source was lost.
    unusable : str
        Why it must not be read any more; empty while it may.
    feed : callable or None
        Takes every row as it comes; a dump.
    """

    def __init__(
        self,
        source: Source,
        target: str,
        clock: Clock,
        calibration: Calibration | None,
        *,
        history_s: float,
        interval_s: float | None,
    ) -> None:
        self._target, self._clock, self._calibration = target, clock, calibration
        profiles = calibration.profiles if calibration is not None else {}
        self.layout = Layout(calibration.channels(source.channels) if calibration is not None else source.channels)
        self.curve = Curve(self.layout, {name: p.curve.true for name, p in profiles.items()}, history_s)
        self.lock = PatientLock(target)
        self.failure: PmtError | None = None
        self.unusable = ""
        self.feed: Callable[[Frame], None] | None = None
        self._labels = WaitingLabels()
        self._sent: list[str] = []  # labels that the device was told, whose rows have not come
        self._take(source, interval_s)

    def _take(self, source: Source, interval_s: float | None) -> None:
        self.source = source
        self._anew = ""  # why nothing is known of the time before the next row
        self._absorbing = False  # whether rows are being brought onto the curve, or were when an exception came
        self.period_s = interval_s or source.traits.interval_s
        # Of a total made of counters nothing is missed while nobody reads.
        parts = [self.layout.energy[i - 1] for i in self.layout.in_total] or self.layout.energy
        sampled = not self.source.traits.streaming and any(c.energy_method is not EnergyMethod.COUNTER for c in parts)
        self._gaps = ReadingGaps() if sampled else None
        self._failures: deque[tuple[int, str]] = deque(maxlen=_FAILURES_KEPT)  # when readings failed, and why
        self._unread: dict[int, tuple[int, str]] = {}  # when a column was last not read by itself, and why

    @property
    def alive(self) -> bool:
        """Whether it can be read: not closed, not lost."""
        return not self.unusable and self.failure is None

    @property
    def aged_s(self) -> float:
        """How old a value may be at its row: the time between readings; 0 where the device says when it was renewed."""
        dated = self.source.traits.timestamps is Timestamps.DEVICE_UPDATE
        return 0.0 if dated or self.source.traits.streaming else self.period_s

    # -- reading ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Take all that has come. Raises as the source does, and again at every later call once it is lost."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        self._whole(self._take_all)

    def _take_all(self) -> None:
        more = True
        while more:
            try:
                taken = self.source.read_row() if self._gaps is None else self._read_noted(self._gaps)
            except PmtError as error:
                self.fail(error)
                raise
            self._absorb(taken)
            more = self.source.traits.streaming and self.source.has_backlog

    def refresh(self) -> None:
        """Bring the curve up to now for somebody who asks for values; what is slow is left to the poller."""
        if not self.source.traits.blocking:
            self.step()
        elif self.failure is not None:
            raise self.failure.with_traceback(None)

    def row(self, asked_ns: int) -> Row | None:
        """Read counters once; return the row where nothing needs it now, and None where it had to be integrated."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        try:
            taken = self.source.read_row()
        except PmtError as error:
            self.fail(error)
            raise
        apart = self.feed is None and not (self._labels.waiting or self._anew or self.source.unread)
        if apart and isinstance(taken, Row) and taken.t_ns >= asked_ns:
            # The register was read just now: its row is the instant, with nothing to be bridged beside it.
            return taken
        self._whole(lambda: self._absorb(taken))
        return None

    def _whole(self, take: Callable[[], None]) -> None:
        """Do a step whole or not at all: a signal's handler that asks meanwhile is refused by the lock.

        What breaks it off, as Ctrl-C does, may have lost rows that had come: of their time nothing is known. A register
        that was not read is read the next time.
        """
        try:
            self.lock.in_step = True
            take()
        except PmtError:
            raise
        except BaseException:
            if self._absorbing or self.source.traits.streaming:
                self._anew = self._anew or "a reading of the sensor was interrupted"
            raise
        finally:  # by no call, at which another exception could come
            self.lock.in_step = False

    def _read_noted(self, gaps: ReadingGaps) -> Block | Row:
        return gaps.noted(self.source, self._clock, self.period_s, self.curve.history.newest)

    def _absorb(self, taken: Block | Row) -> None:
        self._absorbing = True
        if self.source.last_read_failed or self.source.unread:
            self._note_failures()
        if self._sent and isinstance(taken, Block):
            for _, label in taken.marks:
                if label in self._sent:
                    self._sent.remove(label)
        anew = self._anew if isinstance(taken, Row) or len(taken) else ""
        if anew:
            taken = self._beginning(taken)
        rows = self.curve.advance(taken)
        if anew:
            self.curve.explain(anew)
            self._anew = ""
        if rows is not None:
            if self._labels.waiting:
                rows = self._labels.onto(rows)
            self.curve.kept.append(rows)
            if self.feed is not None:
                self.feed(rows if isinstance(rows, Frame) else Frame.of_points([rows]))
        self._absorbing = False

    def _note_failures(self) -> None:
        """Keep why a reading, or a single column of one, failed."""
        now_ns = self._clock.now_ns()
        if self.source.last_read_failed:
            self._failures.append((now_ns, self.source.last_failure))
        self._unread |= {column: (now_ns, why) for column, why in self.source.unread.items()}

    # -- a device that is lost, and comes back ---------------------------------------------------------------------

    def fail(self, error: PmtError) -> None:
        """End the curve; every later call that asks for new values raises ``error``."""
        self.failure = error
        _log.error("%s is lost: %s", self._target, error)

    def let_go(self) -> None:
        """Close the device to open it again; who asks meanwhile is told so, and no loss is announced."""
        if self.failure is None:
            self.failure = SourceLostError(f"{self._target} was closed to be opened again")
        self.source.close()

    def resume(self, source: Source, interval_s: float) -> None:
        """Go on with the same device, opened anew after a loss; the time between has no known energy."""
        self._take(source, interval_s)
        self._anew, self.failure = "the sensor was opened again", None
        self.step()

    def check_same(self, source: Source) -> None:
        """Refuse (TargetError) a source that is another device, or has other channels."""
        calibration = self._calibration
        channels = calibration.channels(source.channels) if calibration is not None else source.channels
        before, now = self.source.identity, source.identity
        known = list(self.layout.channels)
        if now.serial:  # which says what device it is, wherever it is plugged in now; else its place does
            known = [replace(c, domain=new.domain) for c, new in zip(known, channels, strict=False)]
        if list(channels) != known or (before.model, before.serial) != (now.model, now.serial):
            msg = (
                f"{self._target}: another device, or one with other channels, answers now; close it and create it again"
            )
            raise TargetError(msg)

    def _beginning(self, taken: Block | Row) -> Block:
        """Mark rows as those of a device that begins anew: its counters do not continue, and polls were missed."""
        rows = Block.row(taken.t_ns, taken.counts, lost=taken.lost) if isinstance(taken, Row) else taken
        newest_ns = self.curve.newest_ns
        if newest_ns is None or self.source.traits.streaming:
            return replace(rows, fresh=True)
        lost = np.zeros(len(rows), np.int64) if rows.lost is None else rows.lost.copy()
        lost[0] += round((int(rows.t_ns[0]) - newest_ns) / (self.period_s * 1e9))
        return replace(rows, fresh=True, lost=lost)

    def close_quietly(self) -> None:
        """Release the device of a sensor that nobody holds any more."""
        try:
            self.source.close()
        except PmtError:
            _log.exception("while closing %s, which was dropped", self._target)

    # -- beside the rows -------------------------------------------------------------------------------------------

    def label(self, text: str) -> int | None:
        """Put a label on the present instant: in the device's own stream where it can, else timed by the host.

        Returns the instant, where the host timed it.
        """
        now_ns = None
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        # In a file a mark stands between two rows. Counters are read before and after it, so that these are close.
        closely = self.feed is not None and self._counts
        if closely:
            self.step()
        if self.source.mark(text):
            self._sent = [*self._sent[-_MOST_LABELS:], text]
        else:
            now_ns = self._clock.now_ns()
            self._labels.put(now_ns, text)
        if closely:
            self.step()
        return now_ns

    @property
    def _counts(self) -> bool:
        """Whether the total is of counters, and reading them keeps nobody waiting."""
        traits = self.source.traits
        return self._gaps is None and not traits.streaming and not traits.blocking

    @property
    def unplaced(self) -> list[str]:
        """The labels whose rows have not come."""
        return [*(text for _, text in self._labels.waiting), *self._sent]

    def catch_up(self, until_ns: int) -> int:
        """Take rows until they show all that was there up to an instant, and a while longer for labels without a row.

        Rows of a stream come later than they are stamped; a register shows what was there when it is renewed, so it is
        read once more when each has been, by the periods that its channels state. What is silent is not waited for.

        Returns
        -------
        int
            Nanoseconds before the instant of which the rows show nothing, or may not.
        """
        renewed_ns = self.renewed_ns
        due_ns = until_ns + min(renewed_ns, round(_LATEST_S * NS_PER_S))
        pause, news = threading.Event(), (self._clock.now_ns(), self.curve.newest_ns)
        while self.alive:
            now_ns = self._clock.now_ns()
            if now_ns >= due_ns:
                self._step_quietly()
                if self._reached_ns >= min(until_ns, due_ns - renewed_ns) and not self._unlabelled(until_ns):
                    break
            if self.curve.newest_ns != news[1]:
                news = now_ns, self.curve.newest_ns
            if now_ns > due_ns + _LATEST_S * NS_PER_S or now_ns > news[0] + _SILENT_S * NS_PER_S + renewed_ns:
                break
            pause.wait(_LOOK_S)
            if self._clock.now_ns() == now_ns:  # one that stands still: all is there that there is by it
                self._step_quietly()
                return 0
        return max(0, until_ns - self._reached_ns)

    def _step_quietly(self) -> None:
        """Take what has come, also of what is slow: who ends a dump waits. The call that asks for values raises."""
        with contextlib.suppress(PmtError), self.lock:
            self.step()

    def _unlabelled(self, until_ns: int) -> bool:
        """Whether a label may still get a row."""
        return bool(self.unplaced) and (self.curve.newest_ns or 0) < until_ns + _LABEL_S * NS_PER_S

    @property
    def renewed_ns(self) -> int:
        """By how long after an instant every register has been renewed; 0 where rows come by themselves."""
        if self.source.traits.streaming:
            return 0
        return round(max((c.refresh_s or 0.0 for c in self.layout.energy), default=0.0) * NS_PER_S)

    @property
    def _reached_ns(self) -> int:
        """Up to when the rows show all that was there; a row that is stamped by the reader shows what is older."""
        dated = self.source.traits.timestamps is Timestamps.DEVICE_UPDATE or self.source.traits.streaming
        return (self.curve.newest_ns or 0) - (0 if dated else self.renewed_ns)

    def forget_labels(self) -> None:
        """Give no later row a label that was put before."""
        self._labels, self._sent = WaitingLabels(), []

    def unread(self, begin_ns: int, end_ns: int) -> dict[str, str]:
        """Return the channels that were not read by themselves within a stretch, with why that last was so."""
        direct = [c.name for c in self.layout.channels if c.derivation is Derivation.DIRECT]
        return {direct[i]: why for i, (at, why) in self._unread.items() if begin_ns <= at <= end_ns}

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return what the source knows of a stretch beyond its rows."""
        told = self.source.remarks(begin_ns, end_ns)
        unread = () if self._gaps is None else self._gaps.warnings(begin_ns, end_ns)
        failures = [why for at, why in self._failures if begin_ns <= at <= end_ns]
        failure = failures[-1] if failures else ""
        return replace(told, warnings=(*told.warnings, *unread), aged_s=self.aged_s, failure=failure)
