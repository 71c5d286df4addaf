"""What a user holds: one sensor, from its opening to its end, with its poller and its dump.

Whoever needs a row reads it: :meth:`Sensor.read` lets the source deliver, integrates and answers in the caller's thread
(:mod:`pmtpy.sensor.acquisition`). The poller does the very same step on its own schedule, and runs only where something
needs it: a momentary power, a stream, a dump, or a counter that must be read before it turns over twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from pmtpy.core import arguments
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.clock import Clock, interval_seconds
from pmtpy.core.counters import UNREAD
from pmtpy.core.source import Remarks, Source, Timestamps
from pmtpy.core.state import State
from pmtpy.errors import PmtError, SensorClosedError, SinkError, SourceLostError, TargetError
from pmtpy.sensor.acquisition import CLOSE_TIMEOUT_S, Acquisition
from pmtpy.sensor.history import Recent
from pmtpy.sensor.lifecycle import Lifecycle, finalise
from pmtpy.sensor.load_stamps import LoadStamps

if TYPE_CHECKING:
    from typing_extensions import Self

    from pmtpy.core.calibration.matching import Calibration
    from pmtpy.io.write import Ending, Header, Writer
    from pmtpy.io.write.file import Target
    from pmtpy.sensor._device_trace import Trace

_HISTORY_S = 2.0
# Of what the load did before a dump: its first rows show it. Ten seconds are ten windows of the widest that are known.
_LOAD_BEFORE_NS = 10_000_000_000


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
        How often the poller reads; None: as the source asks.
    open_again : callable, optional
        Opens the same device anew, for :meth:`reopen`.
    rails : sequence of str
        The targets of which it is a combination; none: it is of its own alone.
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
        open_again: Callable[[], Source] | None = None,
        rails: Sequence[str] = (),
    ) -> None:
        self.target = target
        self._rails = tuple(rails) or (target,)
        self._acquisition = Acquisition(
            source, target, clock, calibration=calibration, history_s=history_s, interval_s=interval_s
        )
        self._open_again = open_again
        self._dump: Writer | None = None
        self._dumped_since_ns = 0
        self._life = Lifecycle(self, self._acquisition.drop, self._acquisition.disown, target)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        """What the device says of itself."""
        return self._acquisition.intake.source.identity

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The meaning of every column."""
        return self._acquisition.layout.channels

    def __repr__(self) -> str:
        made = self._acquisition
        state = "closed" if made.intake.unusable else "lost" if made.intake.failure else "open"
        return f"<Sensor {self.target} ({state}): {', '.join(made.layout.names)}>"

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self) -> State:
        """Return the curve at the moment of the call.

        Of a stream, that is the newest row that has arrived; of a register, a reading taken now; where the register
        has not refreshed, or where one reading takes long, the last power is extrapolated until now.

        Raises
        ------
        SourceLostError
            The device is gone. Every later call raises it again; nothing stale is returned.
        SensorClosedError
            The sensor was closed, or belongs to the parent of this process.
        """
        made = self._acquisition
        if made.intake.unusable:
            raise SensorClosedError(made.intake.unusable)
        return made.states.now()

    def history(self, seconds: float | None = None) -> Recent:
        """Return arrays of the recent past: the last ``seconds``, or all that is kept (``history_s`` of ``create``)."""
        self._acquisition.check()
        if seconds is not None:
            seconds = arguments.number(seconds, "a number of seconds, 0 or more: history(0.5)", least=0.0)
        return self._acquisition.recent(seconds)

    def mark(self, label: str) -> None:
        """Put a label on the present instant: in the device's own stream where it can, else timed by the host.

        It appears in the dump on the row that it belongs to, in the metadata at its own instant, and in
        :meth:`history`. A semicolon becomes a comma: labels that share a row have semicolons between them.
        """
        self._acquisition.check()
        if not isinstance(label, str) or not label or any(c in "\r\n" or "\ud800" <= c <= "\udfff" for c in label):
            msg = f"a marker needs a label, Unicode text of one line, not {label!r}"
            raise TargetError(msg)
        label = label.replace(";", ",")
        t_ns, writer = self._acquisition.label(label), self._dump
        if t_ns is not None and writer is not None:
            from pmtpy.io.write import RecordedMark  # loaded by the dump

            writer.note_mark(RecordedMark(label, t_ns))

    def load(self, trace: Trace | None = None, *, device: int | None = None) -> LoadStamps:
        """Return what to enter while the device works: ``with sensor.load(): launch(); synchronise()``.

        It costs two stamps of the host's clock (a microsecond), and may be entered any number of times, from several
        threads. The stamps are kept with the history, and regions of a sensor whose profile knows its kernel are
        corrected by them; so stamp all that the device does. For other sensors nothing changes.

        Parameters
        ----------
        trace : torch.profiler.profile or path, optional
            A profile of PyTorch that has ended, or a trace that it wrote: what the device itself says of each kernel is
            kept as stamps, for as long as was profiled. Give it before the energy of a region is asked for.
        device : int, optional
            In the trace, as the program numbers its devices; where several worked.

        Raises
        ------
        FileFormatError
            It is no such trace, or no device worked in it, or several did and ``device`` is not given; or it is of
            another time or clock, or lacks kernels that were launched.
        """
        self._acquisition.check()
        if trace is not None:
            from pmtpy.sensor._device_trace import stamped_by  # needs the readers of files

            made = self._acquisition
            made.loads.take(*stamped_by(trace, device, made.clock, made.anchor.monotonic_ns))
        return self._acquisition.loads.own

    def reopen(self) -> None:
        """Open the device again after it was lost; regions and dumps that are open go on, with a gap that is not known.

        Raises
        ------
        BackendUnavailableError
            It cannot be opened (yet).
        TargetError
            Another device answers now, or the sensor was made of a source that nothing says how to open.
        SensorClosedError
            The sensor was closed.
        SourceLostError
            A reading of it has not returned: its driver hangs.
        """
        made = self._acquisition
        made.check()
        if self._open_again is None:
            msg = f"{self.target} was not opened by create(): nothing says how to open it again"
            raise TargetError(msg)
        with made.intake.lock:  # who still waits for an answer holds what closing needs, too
            made.intake.let_go()
        source = self._open_again()
        try:
            made.resume(source)
        except BaseException:
            source.close()
            raise

    # -- dump ------------------------------------------------------------------------------------------------------

    def start_dump(
        self,
        path: Target,
        *,
        format: str | None = None,  # noqa: A002  (the name on the public page)
        interval: float | str | None = None,
        overwrite: bool = False,
        absolute: bool | None = None,
        columns: Sequence[tuple[str, Sequence[int]]] | None = None,
    ) -> None:
        """Write every row from now on to ``path``, in a thread of its own, until :meth:`stop_dump`.

        Parameters
        ----------
        path : str, path or stream
            Where to; a stream stays open. The format follows the suffix (``.csv``, ``.parquet``, ``.jls``, ``.pmt``,
            ``.ps3``) unless ``format`` names one: ``csv``, ``parquet``, ``jls``, ``pmt``, ``powersensor3``.
        interval : float (seconds) or str ("10ms", "100Hz"), optional
            Rows closer than this are combined into their mean; a polled sensor is polled at this interval.
        overwrite : bool
            Replace a file that exists. Otherwise it is an error.
        absolute : bool, optional
            For the formats ``pmt`` and ``powersensor3``: Unix time, or seconds from the first row. None: as their own
            tools do by default.
        columns : sequence of (str, sequence of int), optional
            For the format ``pmt``: each column's name, and of which powers it is the sum, as indices into
            ``State.watts``; of none: 0. None: all of them by their own names.

        Raises
        ------
        SinkError
            The file exists or cannot be written, or a dump is running already.
        TargetError
            The interval is not a time, or ``path`` neither a path nor a stream; no file has been touched.
        PmtError
            No thread can be started.
        """
        from pmtpy.io.write import Writer, open_sink, thinner_for  # only a dump pays for them

        made = self._acquisition
        made.check()
        interval_s = interval_seconds(interval)
        if columns is not None:
            columns = _columns(columns, len(made.layout.names))
        self._check_no_dump()
        made.read_for_feed(interval_s)  # first: without a thread that reads it no file is touched
        try:
            with made.intake.lock:
                self._check_no_dump()
                header, thinner = self._header(interval_s), None
                if interval_s is not None and made.intake.source.traits.streaming:
                    thinner = thinner_for(path, format, made.layout, interval_s)
                opened = partial(
                    open_sink, path, header, format=format, overwrite=overwrite, absolute=absolute, columns=columns
                )
                self._dump, self._dumped_since_ns = Writer(opened, thinner=thinner), header.anchor.monotonic_ns
                self._life.keep(needed=True)
                made.step_quietly()  # what came before that belongs to no dump
                made.start_feed(self._dump.put)
        except BaseException:
            if self._dump is None:
                made.end_feed()
                with suppress(PmtError):
                    made.schedule()
            raise

    def _check_no_dump(self) -> None:
        """Raise what forbids a dump: another one, or a device that is lost."""
        if self._dump is not None:
            msg = f"{self.target} is being dumped already; stop_dump() first"
            raise DumpedAlreadyError(msg)
        if self._acquisition.intake.failure is not None:
            raise self._acquisition.intake.failure.with_traceback(None)

    def _header(self, interval_s: float | None) -> Header:
        """Return what stands at the beginning of a dump."""
        from pmtpy._version import __version__
        from pmtpy.io.origin import launch_of, origin_of, this_machine
        from pmtpy.io.write import Header

        made = self._acquisition
        traits = made.intake.source.traits
        return Header(
            self.target,
            self.identity,
            made.layout,
            made.clock.anchor(),
            interval_s,
            made.calibration.digest if made.calibration else None,
            __version__,
            None if traits.streaming else interval_s or made.interval_s,
            traits.timestamps is not Timestamps.HOST_READ,
            uncut=True,
            aged_s=min(made.intake.aged_s, interval_s or made.intake.aged_s),
            origin=origin_of(this_machine(os.environ), launch_of(os.environ)),
        )

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
        """End the dump with the rows that show all up to now; return what was written.

        Rows of a stream that are on their way are waited for, and registers until each has been renewed, by the periods
        that its channels state: two seconds at most, or half a second longer than that in which no row comes. How much
        may be missing all the same is in ``short_s``, ``remarks`` and ``uncovered_s``.

        Raises
        ------
        SinkError
            Rows were lost on the way to the file, or no dump is running.
        SourceLostError
            The device was lost while it was being dumped; the file is whole up to there, and says so.
        """
        return self._stop_dump(self._acquisition.clock.now_ns())

    def _stop_dump(self, until_ns: int) -> Ending:
        return self._finish_dump(self._cut_dump(until_ns))

    def _cut_dump(self, until_ns: int) -> _Cut:
        """Let the dump take no more rows than show all up to an instant; its file is still to be finished."""
        self._acquisition.check()
        if self._dump is None:
            msg = f"{self.target} is not being dumped"
            raise SinkError(msg)
        return self._end_dump(self._dump, until_ns)

    def _finish_dump(self, cut: _Cut) -> Ending:
        """Wait until the file of a dump that takes no more rows is finished."""
        ending, problem = self._finished(cut)
        self._acquisition.schedule()
        if problem is not None:
            raise problem
        return ending

    def _end_dump(self, writer: Writer, until_ns: int) -> _Cut:
        """Let a file end behind an instant.

        Several threads may do so at once, and one that is interrupted (Ctrl-C) may do so again: the dump is over only
        when its file is finished.
        """
        from pmtpy.io.write import RecordedLoad  # loaded by the dump

        made = self._acquisition
        short_ns, left = made.catch_up(until_ns)
        with made.intake.lock.even_in_vain() as hangs:
            now = made.clock.anchor()
            remarks = Remarks() if hangs else made.remarks(self._dumped_since_ns, now.monotonic_ns)
            unread = {} if hangs else made.unread(self._dumped_since_ns, now.monotonic_ns)
            said = [f"{name}: {UNREAD}; the last time: {why}" for name, why in unread.items()]
            if left:
                said.append(f"labels of marks that no row followed before the end: {', '.join(left)}")
            remarks = replace(remarks, warnings=(*remarks.warnings, *said))
            short_ns = min(short_ns, max(0, until_ns - self._dumped_since_ns))
            begin_ns = self._dumped_since_ns - _LOAD_BEFORE_NS
            load = RecordedLoad.of(*made.loads.between(begin_ns, now.monotonic_ns))
            writer.end(now, str(made.intake.failure or hangs or ""), remarks, short_ns, load)
            if self._dump is writer:
                made.end_feed()
        return _Cut(writer, hangs)

    def _finished(self, cut: _Cut) -> tuple[Ending, PmtError | None]:
        """Return what was written, and what is wrong with it, once the file is finished."""
        made, writer = self._acquisition, cut.writer
        ending = writer.wait()
        with made.intake.lock.even_in_vain():
            if self._dump is writer:
                self._dump = None
                self._life.keep(needed=False)
        return ending, made.intake.failure or cut.hangs or _problem_of(ending, writer, self.target)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the dump, stop reading, release the device. May be called twice, and again if it was interrupted.

        Raises
        ------
        SinkError
            The dump that was still running is not whole.
        """
        made = self._acquisition
        if made.released or (made.intake.unusable and not made.closed):
            return
        if not made.closed:
            made.step_quietly(CLOSE_TIMEOUT_S)  # regions that end here may be asked for later
        writer = self._dump
        problem = self._finished(self._end_dump(writer, made.clock.now_ns()))[1] if writer is not None else None
        made.close()
        self._life.end()
        if isinstance(problem, SinkError):
            raise problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finalise(self.close, error, f"closing {self.target}")


class _Cut(NamedTuple):
    """A dump that takes no more rows, and whose file may not be finished yet."""

    writer: Writer
    hangs: SourceLostError | None  # of a reading that does not return: why the last rows are missing


class DumpedAlreadyError(SinkError):
    """A sensor writes one dump at a time."""


class Dump:
    """A running dump, as a with-statement. Made by :meth:`pmtpy.Sensor.dump`."""

    def __init__(self, target: str, stop: Callable[[], object]) -> None:
        self._target = target
        self._stop = stop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finalise(self._stop, error, f"ending the dump of {self._target}")


def _columns(given: Sequence[tuple[str, Sequence[int]]], powers: int) -> list[tuple[str, Sequence[int]]]:
    """Return the columns of a dump for PMT, if they are that."""
    what = f"columns: pairs of a name and the indices that it is the sum of, each less than {powers}"
    found: list[tuple[str, Sequence[int]]] = []
    for pair in arguments.sequence(given, what):
        if len(arguments.sequence(pair, f"one of {what}")) != 2:
            msg = f"{pair!r} is not one of {what}"
            raise TargetError(msg)
        name, parts = pair
        sums = [arguments.number(i, f"an index in {what}", least=0, most=powers - 1) for i in parts]
        found.append((arguments.instance(name, str, f"a name in {what}"), [int(i) for i in sums]))
    return found


def _problem_of(ending: Ending, writer: Writer, target: str) -> SinkError | None:
    """Return what is wrong with the file of a dump that ended; None: nothing."""
    if not ending.error:
        return None
    problem = SinkError(f"the dump of {target} is not whole: {ending.error}")
    problem.__cause__ = writer.error
    return problem


def acquisition_of(sensor: Sensor) -> Acquisition:
    """Return what a sensor has acquired, for regions and the toolkit's own tools; users have no need of it."""
    return sensor._acquisition  # noqa: SLF001  (the one way in)


def rails_of(sensor: Sensor) -> tuple[str, ...]:
    """Return the targets that were opened for a sensor: the rails of a combination, else its own."""
    return sensor._rails  # noqa: SLF001  (as above)


def note_region(sensor: Sensor, label: str, start_ns: int, end_ns: int) -> None:
    """Let a running dump know of a region that ended; without a dump nothing happens."""
    writer = sensor._dump  # noqa: SLF001  (as above)
    if writer is not None:
        from pmtpy.io.write import RecordedRegion

        writer.note(RecordedRegion(label, start_ns, end_ns))


def stop_dumps(sensors: Sequence[Sensor]) -> Iterator[Ending | PmtError]:
    """End the dumps of several sensors at one instant; yield how each ended, or what went wrong with it.

    None takes rows any more while the files of others are finished, or while others are waited for: who shows the
    instant soonest is asked first.
    """
    ends_ns = [acquisition_of(sensor).clock.now_ns() for sensor in sensors]
    cuts: dict[int, _Cut | PmtError] = {}
    for i in sorted(range(len(sensors)), key=lambda i: acquisition_of(sensors[i]).intake.renewed_ns):
        try:
            cuts[i] = sensors[i]._cut_dump(ends_ns[i])  # noqa: SLF001  (as above)
        except PmtError as error:  # noqa: PERF203  (the other files must be ended too)
            cuts[i] = error
    for i, sensor in enumerate(sensors):
        cut = cuts[i]
        try:
            yield cut if isinstance(cut, PmtError) else sensor._finish_dump(cut)  # noqa: SLF001  (as above)
        except PmtError as error:
            yield error


def dumped_so_far(sensor: Sensor) -> tuple[int, int]:
    """Return how many rows the running dump has, and how many are missing between them."""
    return sensor._dump.so_far if sensor._dump is not None else (0, 0)  # noqa: SLF001


def dump_error_of(sensor: Sensor) -> PmtError | None:
    """Return what went wrong with the running dump, as soon as it has; the measurement goes on."""
    return sensor._dump.error if sensor._dump is not None else None  # noqa: SLF001
