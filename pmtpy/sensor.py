"""What a user holds: one source, its curve, its recent past, its dump.

Whoever needs a row reads it: :meth:`Sensor.read` takes the lock, lets the source deliver, integrates and answers, in
the caller's thread. The pump does the very same step on its own schedule, and runs only where something needs it: a
momentary power, a stream, a dump, or a counter that must be read before it turns over twice.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING

from pmtpy.clock import Anchor, Clock, seconds_of
from pmtpy.errors import PmtError, SensorClosedError, SinkError, TargetError
from pmtpy.history import History, Instant, Peak, Reading, Recent
from pmtpy.integrate import Integrator
from pmtpy.model import Channel, Floats, Frame, Identity, Ints, Layout, Point, Rule, State
from pmtpy.pump import Job, Pump, pump_for
from pmtpy.source import Source
from pmtpy.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

    from pmtpy.sinks import Ending, Writer
    from pmtpy.sinks._file import Target
    from pmtpy.transform import Calibration

_log = logging.getLogger("pmtpy")
_HISTORY_S = 2.0
_GUARD_PARTS = 4  # a counter is read this often within the time after which it would be ambiguous


class Dump:
    """A running dump, as a with-statement. Made by :meth:`Sensor.dump`."""

    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._sensor.stop_dump()
        except PmtError:
            if error is None:
                raise
            _log.exception("while ending the dump of %s", self._sensor.target)


class Sensor:
    """One opened sensor. Made by :func:`pmtpy.create`; close it, or use it in a with-statement.

    All methods may be called from any thread. A sensor does not survive a fork: in a child it raises
    :class:`~pmtpy.errors.SensorClosedError`.

    Parameters
    ----------
    source : Source
        Owned from now on.
    target : str
        Its name for the user.
    clock : Clock
        The clock of the source's times.
    calibration : Calibration, optional
        Profiles of this very device, applied to its channels.
    history_s : float
        How much of the past :meth:`history` keeps, in seconds.
    interval_s : float, optional
        How often the pump reads; None: as the source asks.
    """

    def __init__(
        self,
        source: Source,
        target: str,
        clock: Clock,
        *,
        calibration: Calibration | None = None,
        history_s: float = _HISTORY_S,
        interval_s: float | None = None,
    ) -> None:
        self.target = target
        self._source = source
        self._clock = clock
        self._calibration = calibration
        profiles = calibration.profiles if calibration is not None else {}
        self._layout = Layout(calibration.channels(source.channels) if calibration is not None else source.channels)
        self._names = self._layout.names
        self._integrator = Integrator(self._layout, {name: p.curve.true for name, p in profiles.items()})
        self._history = History(self._layout, history_s)
        self._anchor = clock.anchor()
        self._interval_s = interval_s or source.interval_s
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._failure: PmtError | None = None
        self._dump: Writer | None = None
        self._labels: list[tuple[int, str]] = []
        self._regions = 0
        self._pump: Pump = pump_for(clock, target, alone=source.slow or source.stream)
        self._job: Job | None = None
        self._job_lock = threading.Lock()
        self._newest: Point | None = None
        self._always = source.stream or any(c.how is not Rule.COUNTER for c in self._layout.energy)
        with self._lock:
            self._step()
        self._schedule()
        _open.add(self)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """What the device says of itself."""
        return self._source.identity

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The meaning of every column."""
        return self._layout.channels

    @property
    def layout(self) -> Layout:
        """Which channels have energy, and which of them make the total."""
        return self._layout

    @property
    def calibration(self) -> Calibration | None:
        """The profiles that are applied, if any."""
        return self._calibration

    @property
    def anchor(self) -> Anchor:
        """Wall and monotonic time at the opening."""
        return self._anchor

    @property
    def clock(self) -> Clock:
        """The clock of all its times."""
        return self._clock

    @property
    def dump_error(self) -> PmtError | None:
        """What went wrong with the running dump, as soon as it has; its rows are counted, the measurement goes on."""
        return self._dump.error if self._dump is not None else None

    @property
    def alive(self) -> bool:
        """Whether it can be read: not closed, not lost."""
        return not self._closed and self._failure is None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self._failure else "open"
        return f"<Sensor {self.target} ({state}): {', '.join(self._names)}>"

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self) -> State:
        """Return the curve at the moment of the call.

        Of a stream, that is the newest row that has arrived; of a register, a reading taken now; where the register
        has not refreshed, or where one reading takes long, the last power is let go on until now.

        Raises
        ------
        SourceLostError
            The device is gone. Every later call raises it again; nothing stale is returned.
        SensorClosedError
            The sensor was closed, or belongs to the parent of this process.
        """
        self._check()
        with self._lock:
            asked_ns = self._clock.now_ns()
            if not self._source.slow:
                self._step()
            elif self._failure is not None:
                raise self._failure
            newest = self._newest
            if newest is None:
                return self._unread(asked_ns)
            if newest.t_ns >= asked_ns or self._source.stream:
                t_ns, joules, watts, uncovered = newest.t_ns, newest.joules, newest.watts, newest.uncovered_ns
            else:
                now = self._history.at(self._clock.now_ns())
                t_ns, joules, watts, uncovered = now.t_ns, now.joules, now.after.watts, now.uncovered_ns
            unix = (self._anchor.unix_ns + t_ns - self._anchor.monotonic_ns) / 1e9
            return State(self.target, t_ns, unix, self._names, joules, watts, uncovered, self._integrator.lost)

    def _unread(self, t_ns: int) -> State:
        nothing = (float("nan"),) * len(self._names)
        zero = (0.0,) * len(self._names)
        return State(self.target, t_ns, self._anchor.unix_s(t_ns), self._names, zero, nothing)

    def _step(self) -> None:
        """Bring the curve up to now. Under the lock."""
        self._take()
        if self._source.stream:
            while self._source.more:
                self._take()

    def _take(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            rows = self._integrator.advance(self._source.take())
        except PmtError as error:
            self._fail(error)
            raise
        if rows is None:
            return
        if self._labels:
            rows = self._label(rows)
        self._history.append(rows)
        self._newest = rows if isinstance(rows, Point) else rows.point(-1)
        if self._dump is not None:
            self._dump.put(rows if isinstance(rows, Frame) else Frame.of_points([rows]))

    def _fail(self, error: PmtError) -> None:
        self._failure = error
        _log.error("%s is lost: %s", self.target, error)

    def _label(self, rows: Frame | Point) -> Frame:
        """Give host-timed labels to the first row at or after their instant. Under the lock."""
        frame = rows if isinstance(rows, Frame) else Frame.of_points([rows])
        newest = int(frame.t_ns[-1])
        due = [(t, label) for t, label in self._labels if t <= newest]
        self._labels = [(t, label) for t, label in self._labels if t > newest]
        marks = tuple((int(frame.t_ns.searchsorted(t)), label) for t, label in due)
        merged = tuple(sorted((*frame.marks, *marks)))
        return Frame(frame.t_ns, frame.watts, frame.joules, frame.values, frame.lost, frame.uncovered_ns, merged)

    def history(self, seconds: float | None = None) -> Recent:
        """Return arrays of the recent past: the last ``seconds``, or all that is kept (``history_s`` of ``create``)."""
        self._check()
        with self._lock:
            if not self._source.slow:
                self._step()
            elif self._failure is not None:
                raise self._failure
            return self._history.recent(seconds, self._anchor.unix_ns - self._anchor.monotonic_ns)

    def mark(self, label: str) -> None:
        """Put a label on the present instant: in the device's own stream where it can, else timed by the host.

        It appears in the dump on the row that it belongs to, and in :meth:`history`.
        """
        self._check()
        if not label or any(c in label for c in "\r\n"):
            msg = f"a marker needs a label of one line, not {label!r}"
            raise TargetError(msg)
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if not self._source.mark(label):
                self._labels.append((self._clock.now_ns(), label))

    # -- instants, for regions -------------------------------------------------------------------------------------

    def begin_region(self) -> tuple[Instant, Peak]:
        """Note the present instant as the start of a region; costs no reading where the pump reads anyway."""
        self._check()
        self._regions += 1
        if self._job is None and self._source.deadline_s is not None:
            self._schedule()
        with self._lock:
            start = self._now()
            return start, self._history.follow_peak(start.t_ns)

    def end_region(self, peak: Peak) -> Instant:
        """Note the present instant as the end of a region."""
        self._check()
        self._regions -= 1
        with self._lock:
            peak.end_ns = self._clock.now_ns()  # whatever else fails, nothing is followed for ever
            end = self._now()
            peak.end_ns = end.t_ns
            return end

    def abandon_region(self, start: Instant, peak: Peak) -> None:
        """Take back the start of a region that was not entered."""
        self._regions -= 1
        with self._lock:
            peak.end_ns = start.t_ns
            self._history.forget(start)

    def _now(self) -> Instant:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if not self._always and self._dump is None:
                asked_ns = self._clock.now_ns()
                self._step()  # nobody else reads it
                if self._newest is not None and self._newest.t_ns >= asked_ns:
                    # The register was read just now: its row is the instant, with nothing to be bridged beside it.
                    return self._history.instant(self._newest.t_ns)
            return self._history.instant(self._clock.now_ns())

    def bookmark(self, t_ns: int) -> Instant:
        """Set a bookmark at an instant of the recent past; :meth:`reading` evaluates it with the rows come by then."""
        self._check()
        with self._lock:
            return self._history.instant(t_ns)

    def reading(self, instant: Instant) -> Reading:
        """Return the curve at an instant noted before, with the rows that have come by now."""
        if instant.reading is not None:
            return instant.reading
        self._check()
        with self._lock:
            if instant.reading is None and not self._source.slow and self._failure is None:
                self._step()
            if instant.reading is None and self._failure is not None:
                raise self._failure
            return self._history.reading(instant)

    def readings(self, start: Instant, end: Instant) -> tuple[Reading, Reading]:
        """Return the curve at two instants from the very same rows.

        Row by row would not do: a row that comes between two readings could leave the start on the newer curve and
        the end on the older, and make the energy between them negative.
        """
        if start.reading is not None and end.reading is not None:
            return start.reading, end.reading
        self._check()
        with self._lock:
            if not self._source.slow and self._failure is None:
                self._step()
            if self._failure is not None and (start.reading is None or end.reading is None):
                raise self._failure
            return self._history.reading(start), self._history.reading(end)

    def around(self, a: Reading, b: Reading) -> tuple[Ints, Floats, Floats]:
        """Return time, power (total first) and values of the rows around and between two readings, as far as kept."""
        with self._lock:
            return self._history.around(a, b)

    # -- dump ------------------------------------------------------------------------------------------------------

    def start_dump(
        self,
        path: Target,
        *,
        format: str | None = None,  # noqa: A002  (the name on the public page)
        interval: float | str | None = None,
        overwrite: bool = False,
        absolute: bool | None = None,
    ) -> None:
        """Write every row from now on to ``path``, in a thread of its own, until :meth:`stop_dump`.

        Parameters
        ----------
        path : str, path or stream
            Where to; a stream stays open. The format follows the suffix (``.csv``, ``.parquet``, ``.pmt``, ``.ps3``)
            unless ``format`` names one: ``csv``, ``parquet``, ``pmt``, ``powersensor3``.
        interval : float (seconds) or str ("10ms", "100Hz"), optional
            Rows closer than this are combined into their mean; a polled sensor is polled at this interval.
        overwrite : bool
            Replace a file that exists. Otherwise it is an error.
        absolute : bool, optional
            For the formats ``pmt`` and ``powersensor3``: Unix time, or seconds from the first row. None: as their own
            tools do by default.

        Raises
        ------
        SinkError
            The file exists or cannot be written, or a dump is running already.
        """
        from pmtpy.sinks import Header, Writer, open_sink  # only a dump pays for them

        self._check()
        interval_s = seconds_of(interval) if isinstance(interval, str) else interval
        with self._lock:
            if self._dump is not None:
                msg = f"{self.target} is being dumped already; stop_dump() first"
                raise SinkError(msg)
            if self._failure is not None:
                raise self._failure
            header = Header(
                self.target,
                self.identity,
                self._layout,
                self._clock.anchor(),
                interval_s,
                self._calibration.digest if self._calibration else None,
                __version__,
            )
            sink = open_sink(path, header, format=format, overwrite=overwrite, absolute=absolute)
            self._step_quietly()  # what came before belongs to no dump
            thin_s = interval_s if interval_s is not None and self._source.stream else None
            self._dump = Writer(sink, interval_s=thin_s)
            if not self._source.stream:
                self._step_quietly()  # the first row is the start
        self._schedule(interval_s)

    def dump(
        self,
        path: Target,
        *,
        format: str | None = None,  # noqa: A002
        interval: float | str | None = None,
        overwrite: bool = False,
    ) -> Dump:
        """Do as :meth:`start_dump`; the with-statement on the result ends it."""
        self.start_dump(path, format=format, interval=interval, overwrite=overwrite)
        return Dump(self)

    def stop_dump(self) -> Ending:
        """End the dump with the rows that have come by now; return what was written.

        Raises
        ------
        SinkError
            Rows were lost on the way to the file, or no dump is running.
        SourceLostError
            The device was lost while it was being dumped; the file is whole up to there, and says so.
        """
        self._check()
        if self._dump is None:
            msg = f"{self.target} is not being dumped"
            raise SinkError(msg)
        self._step_quietly()
        ending, problem = self._end_dump(self._dump)
        self._schedule()
        if self._failure is not None:
            raise self._failure
        if problem is not None:
            raise problem
        return ending

    def _end_dump(self, writer: Writer) -> tuple[Ending, SinkError | None]:
        """End the file; return what was written, and what is wrong with it."""
        with self._lock:
            self._dump = None
        ending = writer.stop(self._clock.anchor(), str(self._failure) if self._failure else "")
        if not ending.error:
            return ending, None
        problem = SinkError(f"the dump of {self.target} is not whole: {ending.error}")
        problem.__cause__ = writer.error
        return ending, problem

    def _step_quietly(self) -> None:
        """Take what has come; a loss is kept and raised by the call that asks for values."""
        with self._lock:
            if self._failure is None and not self._source.slow:
                try:
                    self._step()
                except PmtError:
                    _log.debug("%s was lost at a step", self.target, exc_info=True)

    # -- the pump --------------------------------------------------------------------------------------------------

    def _schedule(self, interval_s: float | None = None) -> None:
        """Let the pump read as often as somebody needs it, or not at all."""
        period: float | None = None
        if self._dump is not None:
            period = self._interval_s if interval_s is None or self._source.stream else interval_s
        elif self._always:
            period = self._interval_s
        elif self._source.deadline_s is not None and self._regions > 0:
            period = self._source.deadline_s / _GUARD_PARTS
        with self._job_lock:
            old, self._job = self._job, None
            if old is not None:
                self._pump.remove(old)
            if period is not None and self._failure is None and not self._closed:
                self._job = self._pump.add(self._pumped, period)

    def _pumped(self) -> None:
        """Take a step, by the pump."""
        try:
            with self._lock:
                if not self._closed and self._failure is None:
                    self._step()
                    return
        except PmtError:
            _log.debug("the pump of %s ends", self.target, exc_info=True)
        except Exception as error:  # noqa: BLE001  (a fault of a driver must reach the user)
            self._failure = PmtError(f"{self.target}: {error!r}")
            self._failure.__cause__ = error
            _log.exception("%s failed", self.target)
        job, self._job = self._job, None
        if job is not None:
            self._pump.remove(job)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            msg = f"{self.target} was closed"
            raise SensorClosedError(msg)
        if os.getpid() != self._pid:
            msg = f"{self.target} was opened by the parent of this process; open it again here"
            raise SensorClosedError(msg)

    def close(self) -> None:
        """End the dump, stop reading, release the device. May be called twice.

        Raises
        ------
        SinkError
            The dump that was still running is not whole.
        """
        if self._closed or os.getpid() != self._pid:
            return
        problem = None
        if self._dump is not None:
            self._step_quietly()
            _, problem = self._end_dump(self._dump)
        self._closed = True
        self._schedule()
        with self._lock:
            self._source.close()
        _open.discard(self)
        if problem is not None and self._failure is None:
            raise problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except PmtError:
            if error is None:
                raise
            _log.exception("while closing %s", self.target)


_open: weakref.WeakSet[Sensor] = weakref.WeakSet()


@atexit.register
def _close_forgotten() -> None:
    """Close what the user forgot, so that no board streams into the void and no file ends in the middle of a row."""
    for sensor in list(_open):
        try:
            sensor.close()
        except PmtError as error:  # noqa: PERF203  (each must be closed, whatever the others do)
            _log.error("%s", error)
