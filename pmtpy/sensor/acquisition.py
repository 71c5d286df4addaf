"""The running curve of one source: rows are taken when somebody needs them, kept for a while, and asked about instants.

Whoever needs a row takes it: the caller of a reading and the pump do the very same step, under the curve's lock. So
this is all that a user's ``read()`` waits for; when it is read otherwise, and where rows go, is for the sensor to say.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from pmtpy.core.clock import Anchor, Clock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Frame, Point
from pmtpy.core.source import Source
from pmtpy.core.state import Origin, State
from pmtpy.errors import PmtError
from pmtpy.sensor.history import Bookmark, CurvePoint, History, PeakHold, Recent

_log = logging.getLogger("pmtpy")


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
    integrator : Integrator
        Makes rows of the curve from what the source delivers.
    history_s : float
        How much of the past is kept, in seconds.

    Attributes
    ----------
    lock : RLock
        Held while the source is read and the curve is asked. Never hold it while the pump is started or stopped.
    anchor : Anchor
        Wall and monotonic time at the beginning.
    failure : PmtError or None
        Why the source was lost.
    feed : callable or None
        Takes every row as it comes; a dump.
    """

    def __init__(self, source: Source, target: str, clock: Clock, integrator: Integrator, history_s: float) -> None:
        self.lock = threading.RLock()
        self.anchor: Anchor = clock.anchor()
        self.failure: PmtError | None = None
        self.feed: Callable[[Frame], None] | None = None
        self._source = source
        self._target = target
        self._clock = clock
        self._integrator = integrator
        self._history = History(integrator.layout, history_s)
        unix_ns = self.anchor.unix_ns - self.anchor.monotonic_ns
        self._origin = Origin(target, integrator.layout.names, unix_ns)
        self._blocking, self._streaming = source.traits.blocking, source.traits.streaming
        self._labels: list[tuple[int, str]] = []

    @property
    def newest(self) -> Point | None:
        """The newest row; None before the first."""
        return self._history.newest

    # -- taking rows -----------------------------------------------------------------------------------------------

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
                    _log.debug("%s was lost at a step", self._target, exc_info=True)

    def _refresh(self) -> None:
        """Bring the curve up to now for somebody who asks for values; what is slow is left to the pump."""
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
                rows = self._integrator.advance(self._source.read_row())
            except PmtError as error:
                self.fail(error)
                raise
            if rows is not None:
                if self._labels:
                    rows = self._label(rows)
                self._history.append(rows)
                if self.feed is not None:
                    self.feed(rows if isinstance(rows, Frame) else Frame.of_points([rows]))
            more = self._streaming and self._source.has_backlog

    def fail(self, error: PmtError) -> None:
        """End the curve; every later call that asks for new values raises ``error``."""
        self.failure = error
        _log.error("%s is lost: %s", self._target, error)

    def label(self, text: str) -> None:
        """Put a label on the present instant: in the device's own stream where it can, else timed by the host."""
        with self.lock:
            if self.failure is not None:
                raise self.failure
            if not self._source.mark(text):
                self._labels.append((self._clock.now_ns(), text))

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
            asked_ns = self._clock.now_ns()
            if self._blocking:
                self._refresh()
            else:
                self._step()
            newest = self._history.newest
            if newest is None or (newest.t_ns < asked_ns and not self._streaming):
                return self._extended(self._clock.now_ns())
            return self._origin.at_row(newest, self._integrator.lost)

    def _extended(self, t_ns: int) -> State:
        """Let the last power go on: the register has not refreshed, or a reading takes too long to wait for it."""
        if self._history.newest is None:
            size = len(self._origin.names)
            return self._origin.at_row(Point(t_ns, (math.nan,) * size, (0.0,) * size, (), 0, 0), 0)
        mark = self._history.instant(t_ns)
        now = self._history.reading(mark)
        row = Point(t_ns, now.after.watts, now.joules, (), 0, now.uncovered_ns)
        return replace(self._origin.at_row(row, now.lost), extended_ns=now.extended_ns, place=_Place(self, mark))

    def recent(self, seconds: float | None) -> Recent:
        """Return arrays of the last ``seconds``, or of all that is kept."""
        with self.lock:
            self._refresh()
            return self._history.recent(seconds, self._origin.unix_ns)

    # -- instants --------------------------------------------------------------------------------------------------

    def begin(self, *, step: bool) -> tuple[Bookmark, PeakHold]:
        """Note the present instant and follow the peak from it on; ``step`` reads the source for it."""
        with self.lock:
            start = self._now(step=step)
            return start, self._history.follow_peak(start.t_ns)

    def end(self, peak: PeakHold, *, step: bool) -> Bookmark:
        """Note the present instant as the end of a stretch whose peak was followed."""
        with self.lock:
            peak.end_ns = self._clock.now_ns()  # whatever else fails, nothing is followed for ever
            end = self._now(step=step)
            peak.end_ns = end.t_ns
            return end

    def abandon(self, start: Bookmark, peak: PeakHold) -> None:
        """Take back a beginning."""
        with self.lock:
            peak.end_ns = start.t_ns
            self._history.forget(start)

    def _now(self, *, step: bool) -> Bookmark:
        if self.failure is not None:
            raise self.failure
        asked_ns = self._clock.now_ns()
        if step:
            self._step()
            newest = self._history.newest
            if newest is not None and newest.t_ns >= asked_ns:
                # The register was read just now: its row is the instant, with nothing to be bridged beside it.
                return self._history.instant(newest.t_ns)
            asked_ns = self._clock.now_ns()
        return self._history.instant(asked_ns)

    def bookmark(self, t_ns: int) -> Bookmark:
        """Set a bookmark at an instant of the recent past."""
        with self.lock:
            return self._history.instant(t_ns)

    def readings(self, instants: Sequence[Bookmark]) -> list[CurvePoint]:
        """Return the curve at bookmarks, all by the very same rows: those that have come by now.

        One by one would not do: a row that comes between two readings could leave the start on the newer curve and the
        end on the older, and make the energy between them negative.
        """
        settled = [instant.reading for instant in instants]
        known = [reading for reading in settled if reading is not None]
        if len(known) == len(settled):
            return known
        with self.lock:
            self._refresh()
            return [self._history.reading(instant) for instant in instants]

    def as_known(self, instants: Sequence[Bookmark]) -> list[CurvePoint]:
        """Do as :meth:`readings`, without reading the source."""
        with self.lock:
            return [self._history.reading(instant) for instant in instants]

    def around(self, a: CurvePoint, b: CurvePoint, margin_s: float = 0.0) -> Frame:
        """Return the rows around and between two readings, and within a margin of them, as far as they are kept."""
        with self.lock:
            return self._history.around(a, b, round(margin_s * 1e9))


class _Place:
    """Where an extended state lies on its curve."""

    __slots__ = ("_curve", "_mark")

    def __init__(self, curve: Acquisition, mark: Bookmark) -> None:
        self._curve = curve
        self._mark = mark

    def settle(self, states: Sequence[State]) -> list[State]:
        """Return the states of one sensor as the rows that have come by now show them, all by the same rows."""
        with self._curve.lock:
            return [state.place.settled(state) if isinstance(state.place, _Place) else state for state in states]

    def settled(self, state: State) -> State:
        """Return the state that this is the place of, as the rows that have come by now show it."""
        (reading,) = self._curve.as_known([self._mark])
        return replace(state, joules=reading.joules, uncovered_ns=reading.uncovered_ns, lost=reading.lost)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Stay behind when a state is copied to another process, where no later rows come."""
        return type(None), ()
