"""What ``import pmt`` gives: the names, arguments and results of PMT's own Python binding, on pmtpy's sensors.

Differences, each on purpose: an unknown or absent sensor raises, where PMT measures 0 J; ``create`` takes a name alone;
``dump`` works; States also tell joules per measurement; energies are float64 and use the sensor's counter. Energy that
is not known is warned of (``warnings``), since no program written for PMT expects an error between two states.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import re
from collections.abc import Callable
from typing import Any

from pmtpy.core import state as states
from pmtpy.core.presentation import amount
from pmtpy.errors import BackendUnavailableError, TargetError
from pmtpy.integrations.drop_ins._columns import Column, columns
from pmtpy.integrations.drop_ins.held import Held, known_energy, known_power, rehearsed
from pmtpy.sensor.registry import backend_of, split_target
from pmtpy.sensor.registry import create as open_sensor
from pmtpy.sensor.sensor import Sensor, acquisition_of

__all__ = ["PMT", "State", "create", "dump", "is_tty_device", "joules", "measure", "seconds", "watts"]

# Backends with one device per machine: PMT ignores a device number that comes with them.
_ONE_DEVICE = frozenset({"cray", "jetson", "rapl"})
# PMT's names in its default file names, and the milliseconds between its rows (``GetMeasurementInterval``).
_PMT_NAMES = {"amdsmi": "rocm", "jetson": "tegra"}
_INTERVAL_S = {"powersensor3": 1e-3, "nvml": 10e-3}
_OTHER_INTERVAL_S = 100e-3


class State:
    """What a sensor showed at one instant. Measurements are numbered; the first stands for the whole sensor."""

    __slots__ = ("_columns", "_state")

    def __init__(self, state: states.State, shown: tuple[Column, ...]) -> None:
        self._state = state
        self._columns = shown

    def timestamp(self) -> float:
        """Return the instant as Unix seconds."""
        return self._state.timestamp

    def nr_measurements(self) -> int:
        """Return how many measurements there are."""
        return len(self._columns)

    def name(self, index: int) -> str:
        """Return the name of a measurement."""
        return self._column(index).name

    def watts(self, index: int) -> float:
        """Return the power of a measurement at the instant, watts; 0 of a pair that is not in use, as in PMT."""
        return math.fsum(self._state.watts[i] for i in self._column(index).watts)

    def joules(self, index: int) -> float:
        """Return the energy of a measurement since the sensor was created, joules; 0 of a pair that is not in use."""
        return math.fsum(self._state.joules[i] for i in self._column(index).joules)

    def _column(self, index: int) -> Column:
        if not 0 <= index < len(self._columns):
            msg = (
                f"{self._state.target} has {amount(len(self._columns), 'measurement')}, counted from 0; there is no "
                f"{index}"
            )
            raise IndexError(msg)
        return self._columns[index]

    def __repr__(self) -> str:
        shown = ", ".join(f"{self.name(i)} {self.watts(i):g} W" for i in range(self.nr_measurements()))
        return f"<pmt.State of {self._state.target}: {shown}>"


class PMT:
    """A sensor. Made by :func:`create`; released when nobody holds it any more."""

    def __init__(self, sensor: Sensor) -> None:
        self._held = Held(sensor)
        self._columns = columns(sensor.identity.backend, acquisition_of(sensor).layout)

    @staticmethod
    def seconds(start: State, end: State) -> float:
        """Return the seconds from one state to the other."""
        return states.seconds(start._state, end._state)  # noqa: SLF001  (the two classes are one face)

    @staticmethod
    def joules(start: State, end: State) -> float:
        """Return the energy of the first measurement from one state to the other, joules: of RAPL the packages'."""
        first = start._columns[0].joules  # noqa: SLF001
        return math.fsum([known_energy(start._state, end._state, i) for i in first])  # noqa: SLF001

    @staticmethod
    def watts(start: State, end: State) -> float:
        """Return the mean power of the first measurement from one state to the other, watts: of RAPL the packages'."""
        first = start._columns[0].joules  # noqa: SLF001
        return math.fsum([known_power(start._state, end._state, i) for i in first])  # noqa: SLF001

    def read(self) -> State:
        """Return a new state, later than the one before."""
        return State(self._held.read(), self._columns)

    def startDump(self, filename: str | os.PathLike[str] | None = None) -> None:  # noqa: N802  (PMT's name)
        """Write the power to a text file until :meth:`stopDump`, replacing what is there.

        ``PMT_DUMP_FILE`` overrides ``filename``, as in PMT; without either the file is ``/tmp/pmt_NAME.out``.
        ``PMT_DUMP_INTERVAL`` is the time between rows, in milliseconds or with a unit (``10ms``, ``100Hz``).
        """
        backend = self._held.sensor.identity.backend
        default = f"/tmp/pmt_{_PMT_NAMES.get(backend, backend)}.out"  # noqa: S108  (where PMT's users look for it)
        path = os.environ.get("PMT_DUMP_FILE") or filename or default
        interval = os.environ.get("PMT_DUMP_INTERVAL") or _INTERVAL_S.get(backend, _OTHER_INTERVAL_S)
        shown = [(column.name, column.watts) for column in self._columns]
        self._held.start_dump(path, "pmt", interval=interval, columns=shown)

    def stopDump(self) -> None:  # noqa: N802  (PMT's name)
        """End the dump; does nothing when there is none."""
        self._held.stop_dump()

    def close(self) -> None:
        """Release the sensor now. PMT has no such method: there it is released with the object."""
        self._held.close()


def create(name: str | None = None, argument: str | int | None = None, **options: object) -> PMT:
    """Open a sensor.

    Parameters
    ----------
    name : str, optional
        PMT's name of the sensor (``nvidia``, ``nvml``, ``rapl``, ``rocm``, ``tegra``, ``cray``, ``powersensor3``), or
        any that pmtpy knows, or a target ``"name:device"``. None: that of ``PMT_NAME``.
    argument : str or int, optional
        The device: a number or a path; ``"virtual"`` rehearses without hardware. None or ``""``: the first or only
        one. ``PMT_DEVICE`` decides for NVIDIA GPUs even if one is named, as in PMT, and for the sensor of ``PMT_NAME``
        if none is named; ``PMT_DEVICE=virtual`` makes every sensor virtual.
    **options
        Options of the backend, which PMT does not have.

    Raises
    ------
    TargetError
        No sensor has that name (PMT: a sensor that measures nothing).
    BackendUnavailableError
        It cannot be used here (PMT: the same, if it was not built in).
    """
    name = name or os.environ.get("PMT_NAME")
    if not name:
        msg = "create() needs the name of a sensor, for example 'rapl'; or set PMT_NAME"
        raise TargetError(msg)
    asked, in_name = split_target(name)
    backend = backend_of(asked).name
    device = rehearsed(in_name or _device(backend, argument))
    try:
        return PMT(open_sensor(backend, device, **options))  # type: ignore[arg-type]  # the backend checks them
    except BackendUnavailableError:
        if asked != "nvidia" or device not in {None, "0"}:
            raise
        with contextlib.suppress(BackendUnavailableError):
            return PMT(open_sensor("jetson"))  # what PMT's "nvidia" means where the GPU is part of a Jetson
        raise


def _device(backend: str, argument: str | int | None) -> str | None:
    given = "" if argument is None else str(argument).strip()
    named, owner = os.environ.get("PMT_DEVICE", ""), os.environ.get("PMT_NAME", "")
    owned = backend == backend_of(split_target(owner)[0]).name if owner else backend == "nvml"
    if named and owned and (backend == "nvml" or not given):
        given = named
    if backend in _ONE_DEVICE and given == "0":
        return None
    return given or None


def joules(start: State, end: State) -> float:
    """Return the energy from one state to the other, joules."""
    return PMT.joules(start, end)


def seconds(start: State, end: State) -> float:
    """Return the seconds from one state to the other."""
    return PMT.seconds(start, end)


def watts(start: State, end: State) -> float:
    """Return the mean power from one state to the other, watts."""
    return PMT.watts(start, end)


def is_tty_device(device_id: object) -> bool:
    """Tell whether a device is the path of a serial port."""
    return isinstance(device_id, str) and bool(re.search(r"^/dev/tty.*", device_id))


def measure(platform: str, device_id: str | int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Measure a function, and **replace its result** by a list, as PMT does.

    The list holds the function's own result, unless that is None, and then a dict of text: ``platform``, ``joules``,
    ``seconds`` and ``watt``, with three decimals. :func:`pmtpy.measure` leaves the result alone.
    """

    def decorator(func: Callable[..., Any]) -> Callable[..., Any]:
        _only_plain(func, "measure")

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> list[Any]:
            pm = create(platform, device_id)
            try:
                start = pm.read()
                result = func(*args, **kwargs)
                end = pm.read()
                measured = {
                    "platform": platform,
                    "joules": format(joules(start, end), ".3f"),
                    "seconds": format(seconds(start, end), ".3f"),
                    "watt": format(watts(start, end), ".3f"),
                }
            finally:
                pm.close()
            return [measured] if result is None else [result, measured]

        return wrapper

    return decorator


def dump(
    platform: str, *, filename: str | os.PathLike[str] | None = None, device_id: str | int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Dump a sensor to a text file while a function runs; its result is untouched. See :meth:`PMT.startDump`."""

    def decorator(func: Callable[..., Any]) -> Callable[..., Any]:
        _only_plain(func, "dump")

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            pm = create(platform, device_id)
            try:
                pm.startDump(filename)
                result = func(*args, **kwargs)
                pm.stopDump()
            finally:
                pm.close()
            return result

        return wrapper

    return decorator


def _only_plain(func: Callable[..., Any], decorator: str) -> None:
    """Refuse what would be measured while it does nothing: a call of it only makes a coroutine or generator."""
    if inspect.iscoroutinefunction(func) or inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        msg = (
            f"pmt.{decorator} measures plain functions; {func.__qualname__} returns before its work begins: "
            f"use pmtpy.{decorator} for coroutines and generators"
        )
        raise TypeError(msg)
