"""Regions of a program and what they cost: a context manager over one or several sensors.

Entering and leaving a region only notes the two instants; energies are evaluated when they are asked for, with the
rows that have come by then. So measuring does not stall what is measured. Regions nest, overlap, survive exceptions,
and work in threads, coroutines and generators.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from pmtpy._extras import extra
from pmtpy.core import arguments
from pmtpy.core.clock import HOST_CLOCK, Anchor, Clock
from pmtpy.core.presentation import escaped
from pmtpy.errors import CoverageError, PmtError, TargetError, UnwatchedError
from pmtpy.regions._synchronise import Device, Sync, device_of
from pmtpy.regions.interval_energy import interval_energy
from pmtpy.regions.measurement import Measurement, as_html
from pmtpy.regions.pool import watching
from pmtpy.regions.total import sum_up, why_no_sum
from pmtpy.sensor.acquisition import Acquisition, OpenStretch
from pmtpy.sensor.history import Bookmark
from pmtpy.sensor.load_stamps import LoadStamps
from pmtpy.sensor.registry import canonical
from pmtpy.sensor.sensor import Sensor, acquisition_of, note_region

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self


_log = logging.getLogger("pmtpy")
_SLEPT_S = 0.1  # a machine sleeps for longer; anchors are right to microseconds, unless a program stands still in all


class Region(Mapping[str, Measurement]):
    """A stretch of the program, measured. Made by :func:`region`; use it in a with-statement, once.

    ``r["rapl"]`` is the :class:`Measurement` of a sensor, ``r.total`` the sum of all without counting anything twice. A
    region is a mapping of targets to measurements: ``for target in r``, ``len(r)``, ``r.items()``.
    """

    def __init__(
        self,
        label: str,
        sensors: Mapping[str, Sensor],
        *,
        without_lost: bool = False,
        device: Device | None = None,
    ) -> None:
        """Prepare a region of some sensors.

        ``without_lost``: enter even if a sensor fails; asking for its energy then raises that error. ``device``: the
        accelerator to synchronise with at entry and exit.
        """
        self._device = device
        self.label = label
        self._without_lost = without_lost
        self._sensors = sensors
        self._acquisitions: dict[str, Acquisition] = {t: acquisition_of(s) for t, s in self._sensors.items()}
        self._open: dict[str, OpenStretch] | None = None  # None before the region is entered
        self._lost: dict[str, Bookmark | PmtError] = {}  # what failed when the region was entered
        self._ends: dict[str, Bookmark | PmtError] | None = None  # None before it is left
        self._cut: dict[str, tuple[OpenStretch, Bookmark]] = {}  # what there is of sensors that were lost inside
        self._entered_ns = self._left_ns = 0
        self._anchors: list[Anchor] = []  # at its begin and its end
        self._stamps: LoadStamps | None = None
        self._settled: dict[str, Measurement] = {}

    @property
    def _clock(self) -> Clock:
        return next((m.clock for m in self._acquisitions.values()), HOST_CLOCK)

    @property
    def sensors(self) -> tuple[Sensor, ...]:
        """The sensors that watch it."""
        return tuple(self._sensors.values())

    def __repr__(self) -> str:
        state = "ended" if self._ends is not None else "not entered" if self._open is None else "open"
        return f"<Region {self.label!r} of {', '.join(self._sensors)}: {state}>"

    @property
    def targets(self) -> tuple[str, ...]:
        """What the sensors that watch it are called."""
        return tuple(self._sensors)

    # -- entering and leaving --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._open is not None:
            msg = f"the region {self.label!r} was entered already; make a new one for each stretch"
            raise TargetError(msg)
        if self._device is not None:
            self._device.wait()
        self._anchors = [self._clock.anchor()]
        begun: dict[str, OpenStretch] = {}
        lost: dict[str, Bookmark | PmtError] = {}
        try:
            for target, acquisition in self._acquisitions.items():
                try:
                    begun[target] = acquisition.begin()
                except PmtError as error:  # noqa: PERF203  (the others can measure)
                    if not self._without_lost:
                        raise
                    lost[target] = error
                    self._entered_ns = acquisition.clock.now_ns()
        except BaseException:
            for target, stretch in begun.items():
                self._acquisitions[target].abandon(stretch)
            raise
        self._open, self._lost = begun, lost
        if self._device is not None:
            self._device.begin(self._clock.now_ns)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is None or self._ends is not None:
            why = "is not open" if self._open is None else "was left already"
            msg = f"the region {self.label!r} cannot be left: it {why}"
            raise TargetError(msg)
        failed = self._await_device() if self._device is not None else None
        try:
            self._ends = ends = self._end_all(self._open)
        except BaseException:  # interrupted
            self._end_load({})
            raise
        self._anchors.append(self._clock.anchor())
        for target, end in ends.items():
            if isinstance(end, Bookmark):
                note_region(self._sensors[target], self.label, self._open[target].start.t_ns, end.t_ns)
        self._end_load({t: e.t_ns if isinstance(e, Bookmark) else self._clock.now_ns() for t, e in ends.items()})
        if failed is not None:
            if error is None:
                raise failed
            # The program's own error is raised; this one has no other way to be seen.
            _log.warning("region %r: its device failed, too: %s: %s", self.label, type(failed).__name__, failed)

    def _end_all(self, stretches: Mapping[str, OpenStretch]) -> dict[str, Bookmark | PmtError]:
        """End the stretch of each sensor: of those first that nobody reads just now, so that none waits for another."""
        # A sensor that was lost meanwhile must not take the others, or the user's own exception, with it: its error
        # is raised when its energy is asked for.
        ends: dict[str, Bookmark | PmtError] = dict(self._lost)
        busy: dict[str, int] = {}
        for target, acquisition in self._acquisitions.items():
            if target in self._lost:
                self._left_ns = acquisition.clock.now_ns()
                continue
            try:
                end = acquisition.end(stretches[target])
                if isinstance(end, int):
                    busy[target] = end
                else:
                    ends[target] = end
            except PmtError as lost:
                ends[target] = self._lost_at_its_end(target, lost)
        for target, left_ns in busy.items():
            try:
                ends[target] = self._acquisitions[target].end_at(stretches[target], left_ns)
            except PmtError as lost:  # noqa: PERF203  (the others have ended)
                ends[target] = self._lost_at_its_end(target, lost)
        return {target: ends[target] for target in self._acquisitions} if busy else ends

    def _lost_at_its_end(self, target: str, lost: PmtError) -> PmtError:
        """Keep what there is of a sensor that was lost inside, and when the region was left."""
        assert self._open is not None  # noqa: S101
        acquisition = self._acquisitions[target]
        self._left_ns = acquisition.clock.now_ns()
        cut = acquisition.end_lost()
        if cut is not None:
            self._cut[target] = self._open[target], cut
        return lost

    def _await_device(self) -> BaseException | None:
        """Wait for the end of the device's work; return the error that it ended with, after which all is measured."""
        assert self._device is not None  # noqa: S101
        try:
            worked = self._device.end()
        except BaseException as error:  # noqa: BLE001  (an interrupt too: raised when the sensors were read)
            return error
        # By hand stamped work is known better than as one stretch.
        if worked is not None and self._stamps is None:
            self._load().add(*worked)
        return None

    def _end_load(self, until_ns: Mapping[str, int]) -> None:
        """Stamp no more; where nobody knows until when all was stamped, none of it is kept: it would pass for rest."""
        if self._stamps is not None:
            for target, acquisition in self._acquisitions.items():
                acquisition.loads.end(self._stamps, until_ns.get(target))

    def abandon(self) -> None:
        """Take back an entering: nothing is measured."""
        for target, stretch in (self._open or {}).items():
            if self._ends is None:
                self._acquisitions[target].abandon(stretch)
        self._end_load({})
        self._open, self._ends = None, None

    # -- what it cost ----------------------------------------------------------------------------------------------

    def __getitem__(self, target: str | Sensor) -> Measurement:
        """Return what one sensor, by its target or itself, measured; evaluated now, with the rows come by now."""
        key = self._key(target)
        if key in self._settled:
            return self._settled[key]
        acquisition, (start, end) = self._acquisitions[key], self._span(key)
        a, b = acquisition.readings(start.start, end)
        measured = interval_energy(acquisition, a, b, start.peak.watts, self._told())
        if measured.settled:
            self._settled[key] = measured
        return measured

    def until_lost(self) -> dict[str, Measurement]:
        """Return by target what sensors that were lost had measured before: covered until then.

        One that was lost before it had measured anything has no entry.
        """
        found = {}
        for target, acquisition in self._acquisitions.items():
            if acquisition.intake.failure is None:
                continue
            with contextlib.suppress(PmtError):
                start, end = self._cut[target] if target in self._cut else self._span(target)
                a, b = acquisition.as_known(start.start, end)
                found[target] = interval_energy(acquisition, a, b, start.peak.watts, self._told())
        return {target: m for target, m in found.items() if m.coverage > 0}

    def _told(self) -> tuple[str, ...]:
        """Say that the machine slept inside; the monotonic clock, by which a region goes, stood still meanwhile."""
        slept_s = self._anchors[0].slept_s(self._anchors[-1])
        if slept_s < _SLEPT_S:
            return ()
        slept = (
            f"the machine slept for {slept_s:.3g} s inside the region: its seconds are without that time, and its "
            "joules too, unless the sensor counted on meanwhile; then the mean power is too high"
        )
        return (slept,)

    def _key(self, target: str | Sensor) -> str:
        key = target.target if isinstance(target, Sensor) else target
        watches = tuple(self._sensors)  # what is asked for may be anything, a list too
        if key not in watches:
            with contextlib.suppress(TargetError):  # what names no sensor at all watches nothing either
                key = canonical(key)
        if key not in watches:
            msg = f"the region {self.label!r} is not watched by {target!r}, but by: {', '.join(watches)}"
            raise UnwatchedError(msg)
        return key

    def _span(self, key: str) -> tuple[OpenStretch, Bookmark]:
        if self._open is None or self._ends is None:
            msg = f"the region {self.label!r} has not ended yet"
            raise CoverageError(msg)
        end = _noted(self._ends[key])
        return self._open[key], end

    def __iter__(self) -> Iterator[str]:
        return iter(self._sensors)

    def __len__(self) -> int:
        return len(self._sensors)

    def __contains__(self, target: object) -> bool:
        try:
            return isinstance(target, str | Sensor) and bool(self._key(target))
        except TargetError:
            return False

    __eq__ = object.__eq__  # two regions are never one, whatever they measured
    __hash__ = object.__hash__

    def outcomes(self) -> dict[str, Measurement | PmtError]:
        """Return by target what each sensor measured, or the error that kept it from measuring."""
        found: dict[str, Measurement | PmtError] = {}
        for target in self._sensors:
            try:
                found[target] = self[target]
            except PmtError as error:  # noqa: PERF203  (the others have measured)
                found[target] = error
        return found

    def so_far(self) -> dict[str, float]:
        """Return the joules of each sensor from the entry until now, or until the region ended.

        Nothing is judged, so this costs microseconds; a sensor that was lost has no entry.
        """
        found = {}
        for target, stretch in (self._open or {}).items():
            acquisition, end = self._acquisitions[target], self._ends[target] if self._ends is not None else None
            try:
                a, b = acquisition.readings(stretch.start, acquisition.now() if end is None else _noted(end))
            except PmtError:
                if end is not None:
                    continue
                raise
            found[target] = b.joules[0] - a.joules[0]
        return found

    @property
    def seconds(self) -> float:
        """Length of the region in seconds, by the first sensor that lasted; if none did, by when it was left."""
        begun_ns, ended_ns = self.span_ns
        return (ended_ns - begun_ns) / 1e9

    @property
    def span_ns(self) -> tuple[int, int]:
        """When it began and ended, on the host's monotonic clock; by whom, as for :attr:`seconds`."""
        if self._open is None or self._ends is None:
            msg = f"the region {self.label!r} has not ended yet"
            raise CoverageError(msg)
        for target, end in self._ends.items():
            if isinstance(end, Bookmark):
                return self._open[target].start.t_ns, end.t_ns
        begun_ns = min((stretch.start.t_ns for stretch in self._open.values()), default=self._entered_ns)
        return begun_ns, self._left_ns

    @property
    def total(self) -> Measurement:
        """The sum over all sensors, each physical part once.

        Raises
        ------
        CoverageError
            External meters and built-in sensors watch the region together, or sensors of a GPU and of all GPUs at a
            socket, or of sockets whose numbers are not known, or two meters of one serial number: what the one sees of
            the other is not known, so a sum could count a device twice. Or no sensor says what it measures.
        """
        summed = sum_up(list(self._sensors.values()), dict(self.items()))
        if summed is None:
            msg = f"no sum of {', '.join(self._sensors)}: {why_no_sum(list(self._sensors.values()))}"
            raise CoverageError(msg)
        return summed

    # -- how it is shown -------------------------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """Return a ``pandas.DataFrame``: a line for each sensor, and for each of its channels (extra ``analysis``)."""
        with extra("pandas", "to_frame()", ImportError):
            import pandas as pd
        lines = [m.to_dict() for one in self.values() for m in (one, *one.channels.values())]
        shown = [{k: "; ".join(v) if k == "warnings" else v for k, v in d.items() if k != "channels"} for d in lines]
        made: pd.DataFrame = pd.DataFrame(shown).set_index(["target", "name"])
        return made

    def _repr_html_(self) -> str:
        """Return the measurements as a table, for notebooks."""
        if self._ends is None:
            return repr(self).replace("<", "&lt;").replace(">", "&gt;")
        outcomes = self.outcomes()
        measured = [m for m in outcomes.values() if isinstance(m, Measurement)]
        lost = [f"{t}: {e}" for t, e in outcomes.items() if isinstance(e, PmtError)]
        return as_html(measured) + "".join(f"<p>{escaped(each)}</p>" for each in lost)

    # -- the load --------------------------------------------------------------------------------------------------

    def load(self) -> LoadStamps:
        """Return what to enter while the measured device works: ``with r.load(): launch(); synchronise()``.

        A microsecond each time, and as often as wanted. A sensor whose calibration knows its kernel is corrected by
        them; for others nothing changes. Worth it where the load switches faster than the sensor is renewed, or the
        region begins before the load does. A region that is itself the load: ``with pmt.region(...) as r, r.load():``.
        Stamp all that the device does in the region: what is not stamped counts as idle. Other regions of the same
        sensors use the stamps, too.

        Raises
        ------
        TargetError
            The region is not open.
        SensorClosedError
            Its sensors were closed, or belong to the parent of this process.
        """
        for acquisition in self._acquisitions.values():
            acquisition.check()
        return self._load()

    def _load(self) -> LoadStamps:
        if self._open is None or self._ends is not None:
            msg = f"load() belongs inside the region {self.label!r}, which is not open: with region: with region.load()"
            raise TargetError(msg)
        if self._stamps is None:
            # Of threads that ask for the first time at once, all get those of one; to begin them twice is nothing.
            stamps = self.__dict__.setdefault("_first_stamps", LoadStamps(self._clock))
            for target, stretch in self._open.items():
                acquisition = self._acquisitions[target]
                # One without a profile may be dumped, and corrected later.
                if acquisition.clock is self._clock:
                    acquisition.loads.begin(stamps, stretch.start.t_ns)
            self._stamps = stamps
        return self._stamps

    busy = load  # its former name, until the next release


def region(label: str, *targets: str | Sensor, sync: Sync | None = None) -> Region:
    """Make a region to be used in a with-statement.

    Parameters
    ----------
    label : str
        Its name, for logs and messages.
    *targets : str or Sensor
        Open sensors, or targets such as ``"rapl"`` and ``"nvml:0"``; these are opened once and stay open until the
        process ends.
    sync : "torch", "cupy", "jax" or callable, optional
        Whose work goes on elsewhere (a GPU) when its calls return: it is waited for before the region begins and before
        it ends. The package is imported here. Where the device has events (CUDA, ROCm), when it worked is stamped by
        them, as :meth:`Region.load` does by hand. A callable waits itself and has no events.

    Raises
    ------
    MissingPackageError
        The package is not installed.

    Examples
    --------
    >>> import pmtpy as pmt
    >>> with pmt.region("sum", "rapl:virtual") as r:
    ...     s = sum(range(1000))
    >>> r["rapl:virtual"].joules > 0
    True
    """
    arguments.instance(label, str, "the label of a region, which comes first: region('solve', 'rapl')")
    return Region(label, watching(targets), device=device_of(sync) if sync is not None else None)


def _noted(end: Bookmark | PmtError) -> Bookmark:
    if isinstance(end, PmtError):
        raise end
    return end
