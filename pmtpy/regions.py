"""Regions of a program and what they cost: a context manager and decorators over one or several sensors.

Entering and leaving a region only notes the two instants; energies are evaluated when they are asked for, with the
rows that have come by then. So measuring does not stall what is measured. Regions nest, overlap, survive exceptions,
and work in threads, coroutines and generators; a decorated function returns what it always returned.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from pmtpy.errors import CoverageError, PmtError, TargetError
from pmtpy.history import Instant, Peak, Reading
from pmtpy.model import TOTAL, Channel, Floats, Form, Layout, outermost
from pmtpy.registry import canonical, create
from pmtpy.sensor import Sensor
from pmtpy.uncertainty import Assessment, Evidence, assess, combine, observe, of_product

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("pmtpy")
EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one sensor, or one of its channels, says about a region.

    Attributes
    ----------
    target, name : str
        The sensor, and the channel (``"total"`` for the sum).
    seconds : float
        Length of the region.
    joules : float
        Energy in the part of the region for which it is known (``coverage``).
    watts : float
        Mean power over that part; NaN where there is none.
    uncertainty_joules : float
        Standard uncertainty of ``joules`` (about 68 %; twice it is about 95 %).
    method : str
        ``counter``, ``integrated``, ``interval mean``, or several of them for a sum.
    refresh_s, window_s : float or None
        How often the register changes and over which span it averages, where known.
    coverage : float
        Share of the region for which energy is known, 0 to 1.
    lost : int
        Rows lost inside the region.
    warnings : tuple of str
        What a reader of the number must know.
    virtual : bool
        True when the device is emulated.
    channels : mapping of str to Measurement
        The channels of the sensor; empty in a channel.
    peak_watts : float
        Largest power of the rows inside the region; NaN where no row lies inside or sensors are summed.
    """

    target: str
    name: str
    seconds: float
    joules: float
    watts: float
    uncertainty_joules: float
    method: str
    refresh_s: float | None
    window_s: float | None
    coverage: float
    lost: int
    warnings: tuple[str, ...]
    virtual: bool
    channels: Mapping[str, Measurement] = field(default_factory=dict)
    peak_watts: float = math.nan


class Region:
    """A stretch of the program, measured. Made by :func:`region`; use it in a with-statement, once.

    ``r["rapl"]`` is the :class:`Measurement` of a sensor, ``r.total`` the sum of all without counting anything twice.
    """

    def __init__(self, label: str, sensors: Mapping[str, Sensor]) -> None:
        self.label = label
        self._sensors = dict(sensors)
        self._starts: dict[str, Instant] = {}
        self._peaks: dict[str, Peak] = {}
        self._ends: dict[str, Instant] = {}
        self._failures: dict[str, PmtError] = {}
        self._settled: dict[str, Measurement] = {}

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

    def __getitem__(self, target: str) -> Measurement:
        """Return what one sensor measured; evaluated now, with the rows that have come by now."""
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
        measured = evaluate(sensor, a, b, self._peaks[key].watts)
        if a.extended_ns == b.extended_ns == 0:
            self._settled[key] = measured
        return measured

    def get(self) -> dict[str, Measurement]:
        """Return the measurements of all sensors by target."""
        return {target: self[target] for target in self._sensors}

    def so_far(self) -> dict[str, float]:
        """Return the joules of each sensor since the region was entered, while it is still open."""
        found = {}
        for target, start in self._starts.items():
            sensor = self._sensors[target]
            found[target] = sensor.read().joules[0] - sensor.reading(start).joules[0]
        return found

    @property
    def seconds(self) -> float:
        """Length of the region in seconds, by the first sensor's clock."""
        first = next(iter(self._ends))
        return (self._ends[first].t_ns - self._starts[first].t_ns) / 1e9

    @property
    def total(self) -> Measurement:
        """The sum over all sensors, each physical part once.

        Raises
        ------
        CoverageError
            External meters and built-in sensors watch the region together: what the meters see is not known, so a
            sum could count a device twice.
        """
        summed = sum_up(list(self._sensors.values()), self.get())
        if summed is None:
            msg = f"no sum of {', '.join(self._sensors)}: an external meter may see what a built-in sensor sees"
            raise CoverageError(msg)
        return summed


def evaluate(sensor: Sensor, a: Reading, b: Reading, peaks: Sequence[float] = ()) -> Measurement:
    """Measure between two readings of one sensor: the total and every channel; ``peaks`` are the largest powers."""
    t_ns, watts, values = sensor.around(a, b)
    seconds = (b.t_ns - a.t_ns) / 1e9
    uncovered_s = (b.uncovered_ns - a.uncovered_ns) / 1e9
    lost = b.lost - a.lost
    layout = sensor.layout
    judged: list[Assessment] = []
    channels: dict[str, Measurement] = {}
    for i, plain in enumerate(layout.energy, 1):
        channel = _informed(plain, layout, values)
        evidence = observe(
            channel,
            t_ns,
            watts[:, i],
            start_ns=a.t_ns,
            end_ns=b.t_ns,
            joules=b.joules[i] - a.joules[i],
            uncovered_s=uncovered_s,
            lost=lost,
        )
        judged.append(assess(channel, evidence))
        beyond = sensor.calibration.warning(channel, watts[:, i]) if sensor.calibration is not None else ""
        if beyond:
            judged[-1] = replace(judged[-1], warnings=(*judged[-1].warnings, beyond))
        peak = peaks[i] if peaks else math.nan
        channels[channel.name] = _measurement(sensor, channel, evidence, judged[-1], peak)
    total_peak = peaks[0] if peaks else math.nan
    return replace(_total(sensor, layout, channels, judged, (seconds, uncovered_s, lost)), peak_watts=total_peak)


def _informed(channel: Channel, layout: Layout, values: Floats) -> Channel:
    """Return a product with what follows from the voltage and the current that were seen."""
    if channel.form is not Form.PRODUCT or not len(values):
        return channel
    names = [c.name for c in layout.values]
    at = [names.index(operand) for operand in channel.of]
    means = values[:, at].mean(axis=0)
    return of_product(channel, layout.values[at[0]], layout.values[at[1]], float(means[0]), float(means[1]))


def _measurement(sensor: Sensor, channel: Channel, seen: Evidence, judged: Assessment, peak: float) -> Measurement:
    return Measurement(
        sensor.target,
        channel.name,
        seen.seconds,
        seen.joules,
        _mean(seen.joules, seen.seconds, seen.uncovered_s),
        judged.uncertainty_joules,
        channel.how.value,
        channel.refresh_s,
        channel.window_s,
        _coverage(seen.seconds, seen.uncovered_s),
        seen.lost,
        (*_origin(sensor), *judged.warnings),
        sensor.identity.virtual,
        peak_watts=peak,
    )


def _total(
    sensor: Sensor,
    layout: Layout,
    channels: Mapping[str, Measurement],
    judged: Sequence[Assessment],
    extent: tuple[float, float, int],
) -> Measurement:
    seconds, uncovered_s, lost = extent
    parts = [layout.energy[i - 1] for i in layout.in_total]
    summed = combine([judged[i - 1] for i in layout.in_total])
    joules = sum(channels[c.name].joules for c in parts) if parts else math.nan
    notes: tuple[str, ...] = ()
    if not parts:
        notes = (f"{sensor.target}: which channels make a total is not known for this device; read the channels",)
    return Measurement(
        sensor.target,
        TOTAL,
        seconds,
        joules,
        _mean(joules, seconds, uncovered_s),
        summed.uncertainty_joules if parts else math.nan,
        " + ".join(dict.fromkeys(c.how.value for c in parts)),
        _common([c.refresh_s for c in parts]),
        _common([c.window_s for c in parts]),
        _coverage(seconds, uncovered_s),
        lost,
        (*_origin(sensor), *sensor.identity.notes, *notes, *summed.warnings),
        sensor.identity.virtual,
        channels,
    )


def _origin(sensor: Sensor) -> tuple[str, ...]:
    return (f"{sensor.target} is virtual: its energy is emulated",) if sensor.identity.virtual else ()


def _mean(joules: float, seconds: float, uncovered_s: float) -> float:
    known = seconds - uncovered_s
    return joules / known if known > 0 else math.nan


def _coverage(seconds: float, uncovered_s: float) -> float:
    return min(1.0, max(0.0, 1.0 - uncovered_s / seconds)) if seconds > 0 else 1.0


def _common(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return max(known) if known else None


def sum_up(sensors: Sequence[Sensor], measured: Mapping[str, Measurement]) -> Measurement | None:
    """Sum what several sensors measured, each outermost physical part once; None where that cannot be told.

    Two external meters can be summed, and so can built-in sensors; a meter beside built-in sensors cannot, because
    nothing says what the meter is connected to.
    """
    entries = [(s.target, c) for s in sensors for c in s.layout.energy]
    outside = {c.domain.split("/")[0] == EXTERNAL for _, c in entries if c.domain}
    if len(outside) != 1:
        return None
    chosen = [entries[i] for i in outermost([c.domain for _, c in entries])]
    parts = [measured[target].channels[c.name] for target, c in chosen]
    shown = {target for target, _ in chosen}
    seconds = max(m.seconds for m in measured.values())
    joules = math.fsum(p.joules for p in parts)
    unique = dict.fromkeys(w for t in measured if t in shown for w in measured[t].warnings)
    return Measurement(
        " + ".join(t for t in measured if t in shown),
        TOTAL,
        seconds,
        joules,
        math.fsum(p.watts for p in parts),
        _summed_uncertainty(chosen, measured),
        " + ".join(dict.fromkeys(p.method for p in parts)),
        _common([p.refresh_s for p in parts]),
        _common([p.window_s for p in parts]),
        min(p.coverage for p in parts),
        max(measured[t].lost for t in shown),
        tuple(unique),
        any(measured[t].virtual for t in shown),
        {f"{target}/{c.name}": p for (target, c), p in zip(chosen, parts, strict=True)},
    )


def _summed_uncertainty(chosen: Sequence[tuple[str, Channel]], measured: Mapping[str, Measurement]) -> float:
    """Uncertainty of the sum of channels of several sensors, joules.

    What a sensor's channels do not know of their edges they do not know together, so a sensor that is summed whole
    keeps the uncertainty of its own total, and of one that is summed in part the channels add linearly (never too
    small). Different sensors refresh at different instants and add in squares.
    """
    taken: dict[str, list[str]] = {}
    for target, channel in chosen:
        taken.setdefault(target, []).append(channel.name)
    squares = []
    for target, names in taken.items():
        parts = [measured[target].channels[name] for name in names]
        joules, linear = math.fsum(p.joules for p in parts), math.fsum(p.uncertainty_joules for p in parts)
        whole = measured[target]
        same = math.isclose(joules, whole.joules, rel_tol=1e-9, abs_tol=1e-9)
        squares.append((whole.uncertainty_joules if same else linear) ** 2)
    return math.sqrt(math.fsum(squares))


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


def _sensors(targets: Sequence[str | Sensor]) -> dict[str, Sensor]:
    if not targets:
        msg = "a region needs at least one sensor: a target such as 'rapl', or an open Sensor"
        raise TargetError(msg)
    opened = [t if isinstance(t, Sensor) else _pool.get(t) for t in targets]
    return {s.target: s for s in opened}


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
    return Region(label, _sensors(targets))


class Measured:
    """The measurements of a decorated function: one :class:`Region` for each call that has ended, the oldest first."""

    def __init__(self, name: str, targets: Sequence[str | Sensor]) -> None:
        self.name = name
        self._targets = targets
        self.measurements: list[Region] = []

    def new(self) -> Region:
        """Make the region of one call."""
        return region(self.name, *self._targets)

    def done(self, finished: Region) -> None:
        """Keep the region of a call that has ended, and log what it cost."""
        self.measurements.append(finished)
        if _log.isEnabledFor(logging.INFO):
            for target in finished.targets:
                try:
                    m = finished[target]
                except PmtError as error:  # noqa: PERF203  (the others were measured)
                    _log.warning("%s: %s: %s", self.name, target, error)
                else:
                    _log.info(
                        "%s: %s: %.6g J +- %.2g J in %.6g s (%.6g W)",
                        self.name,
                        target,
                        m.joules,
                        m.uncertainty_joules,
                        m.seconds,
                        m.watts,
                    )


class _Call:
    """One call of a decorated function: its region is kept however the call ends."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._region = measured.new()

    def __enter__(self) -> None:
        self._region.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._region.__exit__(kind, error, trace)
        self._measured.done(self._region)


class MeasuredFunction(Protocol[P, R]):
    """What :func:`measure` makes of a function: the function as it was, with its measurements beside it."""

    __name__: str
    measurements: list[Region]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and measure it."""
        ...

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> MeasuredFunction[P, R]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]: ...


def measure(*targets: str | Sensor) -> Callable[[Callable[P, R]], MeasuredFunction[P, R]]:
    """Measure every call of a function: plain, coroutine, generator or asynchronous generator.

    The function's arguments, result and exceptions are untouched. ``f.measurements`` is a list with one
    :class:`Region` per call that has ended; each call is also logged (logger ``pmtpy``, level INFO). A generator is
    measured from its first step to its end, a coroutine from its first step to its result.
    """
    if not targets:
        msg = "measure() needs at least one sensor, for example @measure('rapl')"
        raise TargetError(msg)

    def decorate(function: Callable[P, R]) -> MeasuredFunction[P, R]:
        measured = Measured(function.__qualname__, targets)
        wrapper = cast("MeasuredFunction[P, R]", _wrap(function, functools.partial(_Call, measured)))
        wrapper.measurements = measured.measurements
        return wrapper

    return decorate


def dump(
    target: str | Sensor,
    *,
    filename: str | os.PathLike[str],
    interval: float | str | None = None,
    overwrite: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Dump a sensor to a file while the function runs. Arguments as of :meth:`pmtpy.Sensor.start_dump`."""

    def start() -> Any:
        (sensor,) = _sensors([target]).values()
        return sensor.dump(filename, interval=interval, overwrite=overwrite)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return _wrap(function, start)

    return decorate


def _wrap(function: Callable[P, R], context: Callable[[], Any]) -> Callable[P, R]:
    """Run a function of any kind inside a context that is made anew for each call."""
    call = cast("Callable[..., Any]", function)
    wrapper: Callable[..., Any]
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await call(*args, **kwargs)

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                generator = call(*args, **kwargs)
                try:
                    sent = yield await anext(generator)
                    while True:
                        sent = yield await generator.asend(sent)
                except StopAsyncIteration:
                    return
                finally:
                    await generator.aclose()

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return (yield from call(*args, **kwargs))

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with context():
                return call(*args, **kwargs)

    return cast("Callable[P, R]", wrapper)
