"""What a user holds: one sensor, from its opening to its end, with its pump and its dump.

Whoever needs a row reads it: :meth:`Sensor.read` lets the source deliver, integrates and answers in the caller's thread
(:mod:`pmtpy.sensor.acquisition`). The pump does the very same step on its own schedule, and runs only where something
needs it: a momentary power, a stream, a dump, or a counter that must be read before it turns over twice.
"""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from pmtpy._version import __version__
from pmtpy.core.channel import Channel, EnergyMethod, Identity
from pmtpy.core.clock import Anchor, Clock, seconds_of
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Frame, Layout
from pmtpy.core.source import Source, Timestamps
from pmtpy.core.state import State
from pmtpy.errors import PmtError, SensorClosedError, SinkError, TargetError
from pmtpy.sensor.acquisition import Acquisition
from pmtpy.sensor.dumping import Dump, finish
from pmtpy.sensor.history import Bookmark, CurvePoint, PeakHold, Recent
from pmtpy.sensor.lifecycle import Life, leave
from pmtpy.sensor.poller import pump_for

if TYPE_CHECKING:
    from typing_extensions import Self

    from pmtpy.core.calibration.matching import Calibration
    from pmtpy.io.write import Ending, Writer
    from pmtpy.io.write._file import Target

_log = logging.getLogger("pmtpy")
_HISTORY_S = 2.0
_GUARD_PARTS = 4  # a counter is read this often within the time after which it would be ambiguous


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
        integrator = Integrator(self._layout, {name: p.curve.true for name, p in profiles.items()})
        self._curve = Acquisition(source, target, clock, integrator, history_s)
        self._interval_s = self._period_s = interval_s or source.traits.interval_s
        self._unusable = ""  # why it cannot be used any more
        self._closed = False
        self._dump: Writer | None = None
        self._regions = 0
        self._regions_lock = threading.Lock()
        momentary = any(c.energy_method is not EnergyMethod.COUNTER for c in self._layout.energy)
        self._always = source.traits.streaming or momentary
        self._curve.step()
        pump = pump_for(clock, target, alone=source.traits.blocking or source.traits.streaming)
        self._life = Life(self, self._pumped, source, target, pump)
        self._schedule()

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
    def aged_s(self) -> float:
        """How old a value may be at its row: the time between readings; 0 where the device says when it was renewed."""
        traits = self._source.traits
        return 0.0 if traits.streaming or traits.timestamps is Timestamps.DEVICE_UPDATE else self._period_s

    @property
    def anchor(self) -> Anchor:
        """Wall and monotonic time at the opening."""
        return self._curve.anchor

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
        return not self._unusable and self._curve.failure is None

    def __repr__(self) -> str:
        state = "closed" if self._unusable else "lost" if self._curve.failure else "open"
        return f"<Sensor {self.target} ({state}): {', '.join(self._layout.names)}>"

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
        if self._unusable:
            raise SensorClosedError(self._unusable)
        return self._curve.state()

    def history(self, seconds: float | None = None) -> Recent:
        """Return arrays of the recent past: the last ``seconds``, or all that is kept (``history_s`` of ``create``)."""
        self._check()
        return self._curve.recent(seconds)

    def mark(self, label: str) -> None:
        """Put a label on the present instant: in the device's own stream where it can, else timed by the host.

        It appears in the dump on the row that it belongs to, and in :meth:`history`.
        """
        self._check()
        if not label or any(c in label for c in "\r\n"):
            msg = f"a marker needs a label of one line, not {label!r}"
            raise TargetError(msg)
        self._curve.label(label)

    # -- instants, for regions -------------------------------------------------------------------------------------

    def begin_region(self) -> tuple[Bookmark, PeakHold]:
        """Note the present instant as the start of a region; costs no reading where the pump reads anyway."""
        self._check()
        with self._regions_lock:
            self._regions += 1
        if not self._life.beat.going and self._source.traits.deadline_s is not None:
            self._schedule()
        return self._curve.begin(step=not self._always and self._dump is None)

    def end_region(self, peak: PeakHold) -> Bookmark:
        """Note the present instant as the end of a region."""
        self._check()
        with self._regions_lock:
            self._regions -= 1
        return self._curve.end(peak, step=not self._always and self._dump is None)

    def abandon_region(self, start: Bookmark, peak: PeakHold) -> None:
        """Take back the start of a region that was not entered."""
        with self._regions_lock:
            self._regions -= 1
        self._curve.abandon(start, peak)

    def bookmark(self, t_ns: int) -> Bookmark:
        """Set a bookmark at an instant of the recent past; :meth:`reading` evaluates it with the rows come by then."""
        self._check()
        return self._curve.bookmark(t_ns)

    def reading(self, instant: Bookmark) -> CurvePoint:
        """Return the curve at an instant noted before, with the rows that have come by now."""
        return self.readings(instant)[0]

    def readings(self, *instants: Bookmark) -> list[CurvePoint]:
        """Return the curve at instants noted before, all by the very same rows; once closed, by those it has had."""
        if self._closed:
            return self._curve.as_known(instants)
        if any(instant.reading is None for instant in instants):
            self._check()
        return self._curve.readings(instants)

    def around(self, a: CurvePoint, b: CurvePoint, margin_s: float = 0.0) -> Frame:
        """Return the rows around and between two readings, and within a margin of them, as far as they are kept."""
        return self._curve.around(a, b, margin_s)

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
        from pmtpy.io.write import Header, Writer, open_sink  # only a dump pays for them

        self._check()
        interval_s = seconds_of(interval) if isinstance(interval, str) else interval
        with self._curve.lock:
            if self._dump is not None:
                msg = f"{self.target} is being dumped already; stop_dump() first"
                raise SinkError(msg)
            if self._curve.failure is not None:
                raise self._curve.failure
            traits = self._source.traits
            header = Header(
                self.target,
                self.identity,
                self._layout,
                self._clock.anchor(),
                interval_s,
                self._calibration.digest if self._calibration else None,
                __version__,
                None if traits.streaming else interval_s or self._interval_s,
                traits.timestamps is not Timestamps.HOST_READ,
            )
            sink = open_sink(path, header, format=format, overwrite=overwrite, absolute=absolute)
            self._curve.step_quietly()  # what came before belongs to no dump
            thin_s = interval_s if interval_s is not None and traits.streaming else None
            self._dump = Writer(sink, interval_s=thin_s)
            self._life.keep(needed=True)
            self._curve.feed = self._dump.put
            if not traits.streaming:
                self._curve.step_quietly()  # the first row is the start
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
        return Dump(self.target, self.stop_dump)

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
        self._curve.step_quietly()
        ending, problem = self._end_dump(self._dump)
        self._schedule()
        if self._curve.failure is not None:
            raise self._curve.failure
        if problem is not None:
            raise problem
        return ending

    def _end_dump(self, writer: Writer) -> tuple[Ending, SinkError | None]:
        """End the file; return what was written, and what is wrong with it."""
        with self._curve.lock:
            self._dump = self._curve.feed = None
            self._life.keep(needed=False)
        return finish(writer, self.target, self._clock.anchor(), str(self._curve.failure or ""))

    # -- the pump --------------------------------------------------------------------------------------------------

    def _schedule(self, interval_s: float | None = None) -> None:
        """Let the pump read as often as somebody needs it, or not at all."""
        period: float | None = None
        if self._dump is not None:
            period = self._interval_s if interval_s is None or self._source.traits.streaming else interval_s
        elif self._always:
            period = self._interval_s
        elif self._source.traits.deadline_s is not None and self._regions > 0:
            period = self._source.traits.deadline_s / _GUARD_PARTS
        self._period_s = period or self._interval_s
        self._life.beat.every(period if self.alive else None)

    def _pumped(self) -> None:
        """Take a step, by the pump."""
        curve = self._curve
        try:
            with curve.lock:
                if self.alive:
                    curve.step()
                    return
        except PmtError:
            _log.debug("the pump of %s ends", self.target, exc_info=True)
        except Exception as error:  # noqa: BLE001  (a fault of a driver must reach the user)
            curve.failure = PmtError(f"{self.target}: {error!r}")
            curve.failure.__cause__ = error
            _log.exception("%s failed", self.target)
        self._life.beat.end()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._unusable:
            raise SensorClosedError(self._unusable)

    def disown(self) -> None:
        """Leave the device to the parent, in a child process; its locks may be held by threads that are not here."""
        self._unusable = f"{self.target} was opened by the parent of this process; open it again here"
        self._life.over()

    def close(self) -> None:
        """End the dump, stop reading, release the device. May be called twice.

        Raises
        ------
        SinkError
            The dump that was still running is not whole.
        """
        if self._unusable:
            return
        self._curve.step_quietly()  # regions that end here may be asked for later
        problem = self._end_dump(self._dump)[1] if self._dump is not None else None
        self._unusable, self._closed = f"{self.target} was closed", True
        self._schedule()
        with self._curve.lock:
            self._source.close()
        self._life.over()
        if problem is not None and self._curve.failure is None:
            raise problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self.close, error, f"closing {self.target}")
