"""A driver library that is a Python object: what ``ctypes.CDLL("libnvidia-ml.so.1")`` would be, for ``pynvml``.

It answers with NVML's codes and layouts (nvml.h, and what the binding looks up), from the boards' sensors on the load
of the world. It decides nothing about what a backend should make of an answer.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pmtpy.backends.nvml import facts
from pmtpy.backends.nvml.facts import Kind
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Load
from pmtpy.emulators.nvml._boards import Board, VirtualGpu
from pmtpy.emulators.world import World, unheld

OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND, LOST = 0, 1, 2, 3, 6, 15
_RING = 120  # samples of power that drivers are reported to keep
_UNSIGNED_INT, _UNSIGNED_LONG_LONG = 1, 3  # value types
_MEMBER = {_UNSIGNED_INT: "uiVal", _UNSIGNED_LONG_LONG: "ullVal"}
_COUNTERS = frozenset({83, 191})  # fields of energy; the others are powers
_GPU_SHARE = 0.7  # of a module's power, on a virtual GH200
_BOOT_NS = 7_000_000_000_000  # the samples' clock differs from the host's by this


@dataclass(frozen=True, slots=True)
class _Share:
    """A part of a load."""

    load: Load
    part: float

    def watts(self, t_s: Floats) -> Floats:
        return self.part * self.load.watts(t_s)

    def joules(self, t_s: Floats) -> Floats:
        return self.part * self.load.joules(t_s)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a register shows from one tick of its clock to the next; polls come far more often."""

    of: tuple[SensorModel, Board, Load]
    clock: SensorModel
    tick: int | None  # none yet
    t_s: float
    shown: int  # milliwatts, or millijoules


class VirtualDriver:
    """What ``ctypes.CDLL("libnvidia-ml.so.1")`` would be: attributes with the C names, called with ctypes arguments.

    Attributes
    ----------
    gpus : list of VirtualGpu
    driver : str
        Version of the driver.
    init_code : int
        What the start of NVML returns.
    references : int
        Starts without their end.
    missing : set of str
        Entry points that this driver does not have.
    """

    def __init__(self, world: World, gpus: Sequence[VirtualGpu], driver: str = "570.86.15") -> None:
        self.gpus = list(gpus)
        self.driver = driver
        self.init_code = OK
        self.references = 0
        self.missing: set[str] = set()
        self._world = world
        self._shown: dict[tuple[int, int, int], _Shown] = {}  # by GPU, field and scope
        self._system: dict[str, Callable[..., object]] = {
            "nvmlInitWithFlags": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlErrorString": lambda code: f"virtual error {code}".encode(),
            "nvmlSystemGetDriverVersion": lambda text, _size: self._string(text, self.driver),
            "nvmlSystemGetNVMLVersion": lambda text, _size: self._string(text, f"12.{self.driver}"),
            "nvmlDeviceGetCount_v2": self._count,
            "nvmlDeviceGetHandleByIndex_v2": self._by_index,
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": self._parent,
        }
        self._device: dict[str, Callable[..., int]] = {
            "nvmlDeviceGetName": lambda gpu, text, _size: self._string(text, gpu.board.name),
            "nvmlDeviceGetUUID": lambda gpu, text, _size: self._string(text, gpu.uuid),
            "nvmlDeviceGetPciInfo_v3": self._pci,
            "nvmlDeviceGetArchitecture": lambda gpu, out: _set(out, gpu.board.architecture),
            "nvmlDeviceGetCudaComputeCapability": lambda gpu, a, b: _set_both(a, b, gpu.board.capability),
            "nvmlDeviceGetPowerManagementLimitConstraints": lambda gpu, a, b: _set_both(a, b, gpu.limits_mw),
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu, out: _set(out, gpu.limits_mw[1]),
            "nvmlDeviceGetMigMode": lambda gpu, a, b: _set_both(a, b, (1, 1)) if gpu.mig else NOT_SUPPORTED,
            "nvmlDeviceGetPowerUsage": self._usage,
            "nvmlDeviceGetTotalEnergyConsumption": self._energy,
            "nvmlDeviceGetTemperature": lambda gpu, _sensor, out: _set(out, self._celsius(gpu)),
            "nvmlDeviceGetTemperatureV": self._temperature,
            "nvmlDeviceGetClockInfo": lambda _gpu, kind, out: _set(out, 2619 if kind.value == 2 else 1755),  # H100, MHz
            "nvmlDeviceGetFieldValues": self._fields,
            "nvmlDeviceGetSamples": self._samples,
            "nvmlDeviceGetViolationStatus": self._violation,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu, out: _set(out, gpu.slowed_by),
        }

    def leave(self) -> None:
        """Hold the world no longer: nobody watches it through this library, which is a circle that ends some time."""
        self._world = unheld(self._world)

    def __getattr__(self, name: str) -> Callable[..., object]:
        """Find an entry point; the binding hangs attributes on it, so it is a new object each time."""
        system = self.__dict__.get("_system", {})
        if name in system and name not in self.missing:
            return functools.partial(system[name])
        if name in self.__dict__.get("_device", {}) and name not in self.missing:
            return functools.partial(self._on_device, name)
        raise AttributeError(name)

    # -- the library -----------------------------------------------------------------------------------------------

    def _init(self, _flags: int) -> int:
        if self.init_code == OK:
            self.references += 1
        return self.init_code

    def _shutdown(self) -> int:
        if not self.references:
            return UNINITIALIZED
        self.references -= 1
        return OK

    @staticmethod
    def _string(buffer: Any, text: str) -> int:
        buffer.value = text.encode()
        return OK

    def _count(self, out: Any) -> int:
        return _set(out, len(self.gpus)) if self.references else UNINITIALIZED

    def _by_index(self, index: Any, out: Any) -> int:
        if not self.references:
            return UNINITIALIZED
        if index.value >= len(self.gpus):
            return INVALID
        gpu = self.gpus[index.value]
        return int(gpu.codes.get("nvmlDeviceGetHandleByIndex_v2", OK)) or _point(out, 1 + gpu.index)

    def _by_uuid(self, uuid: Any, out: Any) -> int:
        if not self.references:
            return UNINITIALIZED
        name = uuid.value.decode()
        for gpu in self.gpus:
            if name in gpu.mig:
                return _point(out, 0x1000 + gpu.index)
            if name == gpu.uuid:
                return _point(out, 1 + gpu.index)
        return NOT_FOUND

    def _parent(self, part: Any, out: Any) -> int:
        return _point(out, 1 + _number(part) - 0x1000)

    def _on_device(self, name: str, handle: Any, *arguments: Any) -> int:
        if not self.references:
            return UNINITIALIZED
        number = _number(handle) - 1
        if not 0 <= number < len(self.gpus):
            return INVALID
        gpu = self.gpus[number]
        return (LOST if gpu.lost else gpu.codes.get(name, OK)) or self._device[name](gpu, *arguments)

    # -- registers -------------------------------------------------------------------------------------------------

    def _now_s(self, gpu: VirtualGpu) -> float:
        now_ns = self._world.clock.now_ns() if gpu.frozen_ns is None else gpu.frozen_ns
        return float(self._world.seconds_since_epoch(now_ns))

    def _pci(self, gpu: VirtualGpu, out: Any) -> int:
        pci = out._obj  # noqa: SLF001  (how ctypes.byref shows what it points at)
        pci.busId, pci.busIdLegacy = gpu.pci.encode(), gpu.pci[4:].encode()
        pci.bus = 0x3B + gpu.index
        return OK

    def _celsius(self, gpu: VirtualGpu) -> int:
        return 35 + int(gpu.sensor.averaged().readings(self._world.load, self._now_s(gpu)) / 20)

    def _temperature(self, gpu: VirtualGpu, out: Any) -> int:
        out._obj.temperature = self._celsius(gpu)  # noqa: SLF001  (as above)
        return OK

    @staticmethod
    def _violation(gpu: VirtualGpu, policy: Any, out: Any) -> int:
        if gpu.slowed_ns is None:
            return NOT_SUPPORTED
        out._obj.violationTime = gpu.slowed_ns.get(policy.value, 0)  # noqa: SLF001  (how ctypes.byref shows it)
        return OK

    def _usage(self, gpu: VirtualGpu, out: Any) -> int:
        name = facts.generation(gpu.board.architecture, gpu.board.capability)
        model = gpu.sensor if facts.usage_kind(name, self.driver) is Kind.INSTANT else gpu.sensor.averaged()
        return _set(out, _milliwatts(model, self._world.load, self._now_s(gpu)))

    def _energy(self, gpu: VirtualGpu, out: Any) -> int:
        if not gpu.board.energy:
            return NOT_SUPPORTED
        return _set(out, self._field(gpu, 83, 0)[1])

    def _field(self, gpu: VirtualGpu, number: int, scope: int) -> tuple[float, int]:
        """Return instant (seconds) and count of a field; the caller knows that it exists."""
        of, last = (gpu.sensor, gpu.board, self._world.load), self._shown.get((gpu.index, number, scope))
        if last is None or any(now is not then for now, then in zip(of, last.of, strict=True)):
            last = _Shown(of, _register(gpu.sensor, number), None, 0.0, 0)
        now_s = self._now_s(gpu)
        tick = int(last.clock.last_tick(now_s))
        if tick != last.tick:
            shown = (
                self._counted(gpu, now_s) if number in _COUNTERS else self._power(gpu, last.clock, number, scope, now_s)
            )
            last = replace(last, tick=tick, t_s=float(last.clock.tick_times(tick)), shown=shown)
            self._shown[gpu.index, number, scope] = last
        return last.t_s, last.shown + (gpu.counter_mj if number in _COUNTERS else 0)

    def _counted(self, gpu: VirtualGpu, now_s: float) -> int:
        return round(float(gpu.sensor.counter(self._world.load, now_s)) * 1000)

    def _power(self, gpu: VirtualGpu, model: SensorModel, number: int, scope: int, now_s: float) -> int:
        alone = facts.reads_module(gpu.board.name, Kind.INSTANT) and number == 185 and scope == 0
        part = gpu.board.memory_share if scope == 2 else _GPU_SHARE if alone else 1.0
        return _milliwatts(model, _Share(self._world.load, part), now_s)

    def _exists(self, gpu: VirtualGpu, number: int, scope: int) -> bool:
        board = gpu.board
        module = facts.is_superchip(board.name)
        if number == 83:
            return board.energy and scope == 0
        if number not in {185, 186, 191} or not board.fields:
            return False
        there = {185: board.average, 186: True, 191: board.energy}[number]
        if scope == 2:
            return number == 185 and board.memory_share > 0
        return there and (scope == 0 or (scope == 1 and module))

    def _fields(self, gpu: VirtualGpu, count: Any, values: Any) -> int:
        anchor = self._world.clock.anchor()
        for value in values._obj[: count.value]:  # noqa: SLF001  (as above)
            key = (value.fieldId, value.scopeId)
            value.nvmlReturn = gpu.codes.get(key, OK if self._exists(gpu, *key) else NOT_SUPPORTED)
            if value.nvmlReturn:
                continue
            t_s, shown = self._field(gpu, *key)
            t_ns = self._world.epoch_ns + round(t_s * 1e9)
            value.timestamp = (anchor.unix_ns + t_ns - anchor.monotonic_ns) // 1000
            value.valueType = _UNSIGNED_LONG_LONG if key[0] in _COUNTERS else _UNSIGNED_INT
            setattr(value.value, _MEMBER[value.valueType], gpu.garbage.get(key, shown))
        return OK

    def _samples(self, gpu: VirtualGpu, _kind: Any, last_us: Any, value_type: Any, count: Any, out: Any) -> int:
        if not gpu.board.samples:
            return NOT_SUPPORTED
        newest = int(gpu.sensor.last_tick(self._now_s(gpu)))
        ticks = range(newest - _RING + 1, newest + 1)
        stamped = [(self._boot_us(float(gpu.sensor.tick_times(k))), k) for k in ticks]
        newer = [(t, k) for t, k in stamped if t > last_us.value]
        if not newer:
            return NOT_FOUND
        if out is not None:
            value_type._obj.value = _UNSIGNED_INT  # noqa: SLF001  (as above)
            shown = gpu.sensor.tick_readings(self._world.load, [k for _, k in newer])
            for sample, (t, _), watts in zip(out, newer, shown, strict=False):
                sample.timeStamp = t
                sample.sampleValue.uiVal = max(1, round(watts * 1000))
        return _set(count, len(newer))

    def _boot_us(self, t_s: float) -> int:
        return (self._world.epoch_ns + _BOOT_NS + round(t_s * 1e9)) // 1000


def _register(sensor: SensorModel, number: int) -> SensorModel:
    """Return the sensor behind a field; of a counter, its clock."""
    if number in _COUNTERS:
        return replace(sensor, update_s=sensor.counter_update_s, wander_s=0.0)
    return sensor.averaged() if number == 185 else sensor


def _set(out: Any, value: int) -> int:
    out._obj.value = value  # noqa: SLF001  (how ctypes.byref shows what it points at)
    return OK


def _set_both(a: Any, b: Any, values: tuple[int, int]) -> int:
    return _set(a, values[0]) or _set(b, values[1])


def _point(out: Any, number: int) -> int:
    ctypes.memmove(out, ctypes.byref(ctypes.c_void_p(number)), ctypes.sizeof(ctypes.c_void_p))
    return OK


def _number(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _milliwatts(model: SensorModel, load: Load, now_s: float) -> int:
    # A card that draws nothing shows nothing, and NVML's zero means "no reading".
    return max(1, round(float(model.readings(load, now_s)) * 1000))
