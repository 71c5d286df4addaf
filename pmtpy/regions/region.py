"""Regions of a program and what they cost: a context manager over one or several sensors.

Entering and leaving a region only notes the two instants; energies are evaluated when they are asked for, with the
rows that have come by then. So measuring does not stall what is measured. Regions nest, overlap, survive exceptions,
and work in threads, coroutines and generators.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from pmtpy.core.clock import HOST_CLOCK
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.errors import CoverageError, PmtError, TargetError
from pmtpy.regions.measurement import Measurement, evaluate
from pmtpy.regions.total import sum_up
from pmtpy.sensor.history import Bookmark, PeakHold
from pmtpy.sensor.registry import canonical, create
from pmtpy.sensor.sensor import Sensor

if TYPE_CHECKING:
    from typing_extensions import Self


class Region:
    """A stretch of the program, measured. Made by :func:`region`; use it in a with-statement, once.

    ``r["rapl"]`` is the :class:`Measurement` of a sensor, ``r.total`` the sum of all without counting anything twice.
    """

    def __init__(self, label: str, sensors: Mapping[str, Sensor]) -> None:
        self.label = label
        self._sensors = dict(sensors)
        self._starts: dict[str, Bookmark] = {}
        self._peaks: dict[str, PeakHold] = {}
        self._ends: dict[str, Bookmark] = {}
        self._failures: dict[str, PmtError] = {}
        self._left_ns = 0
        self._settled: dict[str, Measurement] = {}
        self._busy = LoadIntervals(next((s.clock for s in self._sensors.values()), HOST_CLOCK))

    @property
    def sensors(self) -> tuple[Sensor, ...]:
        """The sensors that watch it."""
        return tuple(self._sensors.values())

    def __repr__(self) -> str:
        state = "ended" if self._ends or self._failures else "open" if self._starts else "not entered"
        return f"<Region {self.label!r} of {', '.join(self._sensors)}: {state}>"

    @property
    def targets(self) -> tuple[str, ...]:
        """The sensors that watch this region."""
        return tuple(self._sensors)

    def __enter__(self) -> Self:
        if self._starts:
            msg = f"the region {self.label!r} was entered already; make a new one for each stretch"
            raise TargetError(msg)
        try:
            for target, sensor in self._sensors.items():
                self._starts[target], self._peaks[target] = sensor.begin_region()
        except BaseException:
            for target, start in self._starts.items():
                self._sensors[target].abandon_region(start, self._peaks[target])
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A sensor that was lost meanwhile must not take the others, or the user's own exception, with it: its error
        # is raised when its energy is asked for.
        for target, sensor in self._sensors.items():
            try:
                self._ends[target] = sensor.end_region(self._peaks[target])
            except PmtError as lost:  # noqa: PERF203
                self._failures[target] = lost
                self._left_ns = sensor.clock.now_ns()

    def __getitem__(self, target: str | Sensor) -> Measurement:
        """Return what one sensor, by its target or itself, measured; evaluated now, with the rows come by now."""
        if isinstance(target, Sensor):
            target = target.target
        key = target if target in self._sensors else canonical(target)
        if key not in self._sensors:
            msg = f"the region {self.label!r} is not watched by {target!r}, but by: {', '.join(self._sensors)}"
            raise TargetError(msg)
        if key in self._settled:
            return self._settled[key]
        if key in self._failures:
            raise self._failures[key]
        if key not in self._ends:
            msg = f"the region {self.label!r} has not ended yet"
            raise CoverageError(msg)
        sensor = self._sensors[key]
        a, b = sensor.readings(self._starts[key], self._ends[key])
        measured = evaluate(sensor, a, b, self._peaks[key].watts, self._busy.edges(sensor.clock, b.t_ns))
        if measured.settled:
            self._settled[key] = measured
        return measured

    def busy(self) -> LoadIntervals:
        """Return what to enter while the measured device works: ``with r.busy(): launch(); synchronise()``.

        It costs two stamps of the host's clock (a microsecond), and may be entered any number of times. A sensor opened
        with a calibration that knows its kernel is corrected by them; for others nothing changes. Worth it where the
        load switches faster than the sensor is renewed, or the region begins before the load does. A region that is
        itself the load: ``with pmt.region(...) as r, r.busy():``.

        Raises
        ------
        TargetError
            The region is not open.
        """
        if not self._starts or self._ends or self._failures:
            msg = f"busy() belongs inside the region {self.label!r}, which is not open: with region: with region.busy()"
            raise TargetError(msg)
        return self._busy

    def get(self) -> dict[str, Measurement]:
        """Return the measurements of all sensors by target."""
        return {target: self[target] for target in self._sensors}

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
        """Return the joules of each sensor since the region was entered, while it is still open."""
        found = {}
        for target, start in self._starts.items():
            sensor = self._sensors[target]
            found[target] = sensor.read().joules[0] - sensor.reading(start).joules[0]
        return found

    @property
    def seconds(self) -> float:
        """Length of the region in seconds, by the first sensor that lasted; if none did, by when it was left."""
        for target, end in self._ends.items():
            return (end.t_ns - self._starts[target].t_ns) / 1e9
        if not self._failures:
            msg = f"the region {self.label!r} has not ended yet"
            raise CoverageError(msg)
        return (self._left_ns - min(start.t_ns for start in self._starts.values())) / 1e9

    @property
    def total(self) -> Measurement:
        """The sum over all sensors, each physical part once.

        Raises
        ------
        CoverageError
            External meters and built-in sensors watch the region together, or sensors of a GPU and of all GPUs at a
            socket, or of sockets whose numbers are not known: what the one sees of the other is not known, so a sum
            could count a device twice.
        """
        summed = sum_up(list(self._sensors.values()), self.get())
        if summed is None:
            msg = (
                f"no sum of {', '.join(self._sensors)}: an external meter, a sensor of all GPUs at a socket, or one of"
                " a socket whose number is not known, may see what another sensor sees"
            )
            raise CoverageError(msg)
        return summed


class _Pool:
    """Sensors that were opened by target for regions and decorators; each stays open until the process ends.

    Opening a sensor can take longer than the region that it is to watch, so a region in a loop must not open it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sensors: dict[str, Sensor] = {}
        self._pid = os.getpid()

    def get(self, target: str) -> Sensor:
        """Return the open sensor of this target, opening it if need be."""
        key = canonical(target)
        with self._lock:
            if self._pid != os.getpid():
                self._sensors, self._pid = {}, os.getpid()
            sensor = self._sensors.get(key)
            if sensor is not None and not sensor.alive:
                sensor.close()
            if sensor is None or not sensor.alive:
                sensor = self._sensors[key] = create(key)
            return sensor

    def close(self) -> None:
        """Close all of them; the next use opens them again."""
        with self._lock:
            sensors, self._sensors = self._sensors, {}
        for sensor in sensors.values():
            sensor.close()


_pool = _Pool()


def watching(targets: Sequence[str | Sensor]) -> dict[str, Sensor]:
    """Return the sensors meant, by target, opening those that are only named.

    Raises
    ------
    TargetError
        There is none, or two open sensors have one name.
    """
    if not targets:
        msg = "a region needs at least one sensor: a target such as 'rapl', or an open Sensor"
        raise TargetError(msg)
    given: dict[str, Sensor] = {}
    for sensor in (t for t in targets if isinstance(t, Sensor)):
        if given.setdefault(sensor.target, sensor) is not sensor:
            msg = (
                f"two open sensors are called {sensor.target}: a region could not tell them apart; give it one of them"
            )
            raise TargetError(msg)
    named = [t.target if isinstance(t, Sensor) else canonical(t) for t in targets]
    return {t: given[t] if t in given else _pool.get(t) for t in named}


def region(label: str, *targets: str | Sensor) -> Region:
    """Make a region to be used in a with-statement.

    Parameters
    ----------
    label : str
        Its name, for logs and messages.
    *targets : str or Sensor
        Open sensors, or targets such as ``"rapl"`` and ``"nvml:0"``; these are opened once and stay open until the
        process ends.

    Examples
    --------
    >>> import pmtpy as pmt
    >>> with pmt.region("sum", "rapl:virtual") as r:
    ...     s = sum(range(1000))
    >>> r["rapl:virtual"].joules > 0
    True
    """
    return Region(label, watching(targets))
