"""A library that is a Python object: what ``ctypes.CDLL("libamd_smi.so")`` would be, for the wrapper ``amdsmi``.

It answers with the library's codes and fills the wrapper's own structures. A symbol that it does not model answers
"not supported", as the stubs of a compiled stand-in would.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.world import World, unheld

OK, INVALID, NOT_SUPPORTED, NOT_FOUND, NOT_INITIALISED = 0, 1, 2, 31, 32
UNKNOWN = 0xFFFF  # what this release of the wrapper shows as 'N/A'
_UNIT_J = 2.0**-16
_SHOWN_UNIT_UJ = 15.3  # what the library says of it
_BOOT_NS = 5_000_000_000_000  # the stamps' clock differs from the host's by this

_SENSOR = SensorModel(update_s=0.001, window_s=0.001, step_w=1.0, counter_update_s=0.001, counter_step_j=0.0)


@dataclass(slots=True)
class VirtualCard:
    """One GPU. Tests change it while it is being read."""

    name: str
    # which registers it has
    current: bool = True
    average: bool = True
    energy: bool = True
    sensor: SensorModel = _SENSOR  # the momentary power; the average and the accumulator go with it
    # its place on the bus, in HIP and in the kernel's topology
    index: int = 0
    function: int = 0  # of the device on its bus: which partition of a GPU it is
    hip_id: int = 0
    node_id: int = 1
    serial: str = "0x1122334455667788"  # serial number of the chip: the same for two dies of one card
    codes: dict[str, int] = field(default_factory=dict)  # status of an entry point by its C name
    # what ``power`` (both powers) or ``energy`` (counts) shows instead of the truth
    shows: dict[str, int] = field(default_factory=dict)
    count: int = 10_000_000  # what the accumulator showed at the epoch of the load
    frozen_ns: int | None = None  # instant at which its registers stopped to refresh
    cap: int = 0  # the largest limit, in microwatts or watts as releases differ; 0: the driver tells none
    millidegrees: bool = False  # whether temperatures come in thousandths
    slowed_by: tuple[str, ...] = ()  # what holds its clocks back now, as the library's structure calls it: ``ppt_pwr``

    @property
    def bus(self) -> int:
        """Number of its bus."""
        return 0xC1 + self.index

    @property
    def pci(self) -> str:
        """PCI address."""
        return f"0000:{self.bus:02x}:00.{self.function}"

    @property
    def uuid(self) -> str:
        """The library's name for it."""
        return f"{self.index + 1:02x}ff74a1-0000-1000-80{self.index:02x}-766972747561"


class _Symbol:
    """An entry point. The wrapper hangs ``argtypes`` and ``restype`` on it, which mean nothing here."""

    def __init__(self, call: Callable[..., int]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> int:
        return self._call(*arguments)


class VirtualSmi:
    """The library.

    Attributes
    ----------
    cards : list of VirtualCard
    init_code : int
        What starting it returns.
    started : bool
        Whether it is: it does not count.
    version : (int, int, int)
        Of the library.
    """

    def __init__(self, world: World, cards: Sequence[VirtualCard], version: tuple[int, int, int] = (26, 0, 2)) -> None:
        self.cards = list(cards)
        self.init_code = OK
        self.started = False
        self.version = version
        self._world = world
        self._build = ctypes.create_string_buffer(b"virtual")
        self._library: dict[str, Callable[..., int]] = {
            "amdsmi_init": self._init,
            "amdsmi_shut_down": self._shut_down,
            "amdsmi_get_lib_version": self._version,
            "amdsmi_get_socket_handles": self._sockets,
            "amdsmi_get_processor_handles": self._processors,
        }
        self._device: dict[str, Callable[..., int]] = {
            "amdsmi_get_processor_type": lambda _card, out: _set(out, 1),  # AMD_GPU
            "amdsmi_get_power_info": self._power,
            "amdsmi_get_power_cap_info": self._cap,
            "amdsmi_get_energy_count": self._energy,
            "amdsmi_get_temp_metric": self._temperature,
            "amdsmi_get_clock_info": self._clock,
            "amdsmi_get_gpu_device_bdf": self._bdf,
            "amdsmi_get_gpu_device_uuid": self._uuid,
            "amdsmi_get_gpu_asic_info": self._asic,
            "amdsmi_get_gpu_enumeration_info": self._enumeration,
            "amdsmi_get_gpu_kfd_info": self._kfd,
            "amdsmi_get_violation_status": self._violations,
        }
        self._symbols: dict[str, _Symbol] = {}

    def leave(self) -> None:
        """Hold the world no longer: nobody watches it through this library, which ctypes keeps alive."""
        self._world = unheld(self._world)

    def __getattr__(self, name: str) -> _Symbol:
        """Find an entry point; every name that the wrapper may know exists."""
        if not name.startswith("amdsmi_"):
            raise AttributeError(name)
        return self._symbols.setdefault(name, _Symbol(lambda *arguments: self._answer(name, *arguments)))

    def _answer(self, name: str, *arguments: Any) -> int:
        if name in self._library:
            return self._library[name](*arguments)
        if not self.started:
            return NOT_INITIALISED
        if name not in self._device:
            return NOT_SUPPORTED
        number = (arguments[0].value or 0) - 1
        if not 0 <= number < len(self.cards):
            return INVALID
        card = self.cards[number]
        return card.codes.get(name, OK) or self._device[name](card, *arguments[1:])

    # -- the library -----------------------------------------------------------------------------------------------

    def _init(self, _flags: int) -> int:
        self.started = self.init_code == OK
        return self.init_code

    def _shut_down(self) -> int:
        self.started = False
        return OK

    def _version(self, out: Any) -> int:
        version = out._obj  # noqa: SLF001  (how ctypes.byref shows what it points at)
        version.major, version.minor, version.release = self.version
        version.build = ctypes.cast(self._build, ctypes.POINTER(ctypes.c_char))
        return OK

    def _sockets(self, count: Any, out: Any) -> int:
        if not self.started:
            return NOT_INITIALISED
        if out:
            out[0] = 1
        return _set(count, 1)

    def _processors(self, _socket: Any, count: Any, out: Any) -> int:
        if not self.started:
            return NOT_INITIALISED
        if out:
            for i in range(len(self.cards)):
                out[i] = 1 + i
        return _set(count, len(self.cards))

    # -- registers -------------------------------------------------------------------------------------------------

    def _now_s(self, card: VirtualCard) -> float:
        now_ns = self._world.clock.now_ns() if card.frozen_ns is None else card.frozen_ns
        return float(self._world.seconds_since_epoch(now_ns))

    @staticmethod
    def _violations(card: VirtualCard, out: Any) -> int:
        for name in card.slowed_by:
            setattr(out._obj, f"active_{name}", 1)  # noqa: SLF001  (how ctypes.byref shows what it points at)
        return OK

    def _power(self, card: VirtualCard, out: Any) -> int:
        info = out._obj  # noqa: SLF001  (as above)
        now_s, load = self._now_s(card), self._world.load
        current = round(float(card.sensor.readings(load, now_s)))
        average = round(float(card.sensor.averaged().readings(load, now_s)))
        info.current_socket_power = card.shows.get("power", current) if card.current else UNKNOWN
        info.average_socket_power = card.shows.get("power", average) if card.average else UNKNOWN
        info.socket_power = info.current_socket_power if card.current else info.average_socket_power
        info.gfx_voltage = info.soc_voltage = info.mem_voltage = UNKNOWN
        info.power_limit = 750_000_000
        return OK

    def _cap(self, card: VirtualCard, _sensor: Any, out: Any) -> int:
        if not card.cap:
            return NOT_SUPPORTED
        info = out._obj  # noqa: SLF001  (as above)
        info.power_cap = info.default_power_cap = info.max_power_cap = card.cap
        return OK

    def _energy(self, card: VirtualCard, count: Any, unit: Any, stamp: Any) -> int:
        if not card.energy:
            return NOT_SUPPORTED
        now_s = self._now_s(card)
        joules = float(card.sensor.counter(self._world.load, now_s))
        _set(count, card.shows.get("energy", card.count + int(joules / _UNIT_J)))
        unit._obj.value = _SHOWN_UNIT_UJ  # noqa: SLF001  (as above)
        tick_s = float(card.sensor.tick_times(card.sensor.last_tick(now_s)))
        return _set(stamp, self._world.epoch_ns + _BOOT_NS + round(tick_s * 1e9))

    def _temperature(self, card: VirtualCard, kind: int, _metric: int, out: Any) -> int:
        if kind not in {1, 2}:  # hotspot and VRAM: what an MI300X has
            return NOT_SUPPORTED
        return _set(out, 41_000 if card.millidegrees else 41)

    def _clock(self, _card: VirtualCard, kind: int, out: Any) -> int:
        clock = out._obj  # noqa: SLF001  (as above)
        clock.clk, clock.min_clk, clock.max_clk = (900, 900, 1300) if kind == 4 else (2100, 500, 2100)
        return OK

    # -- identity --------------------------------------------------------------------------------------------------

    def _bdf(self, card: VirtualCard, out: Any) -> int:
        out._obj.as_uint = card.bus << 8 | card.function  # noqa: SLF001  (function 3 bits, device 5, bus 8, domain 48)
        return OK

    def _uuid(self, card: VirtualCard, _length: Any, out: Any) -> int:
        out.value = card.uuid.encode()
        return OK

    def _asic(self, card: VirtualCard, out: Any) -> int:
        asic = out._obj  # noqa: SLF001  (as above)
        asic.market_name, asic.asic_serial = card.name.encode(), card.serial.encode()
        asic.vendor_id, asic.num_of_compute_units = 0x1002, 304
        return OK

    def _enumeration(self, card: VirtualCard, out: Any) -> int:
        known = out._obj  # noqa: SLF001  (as above)
        known.hip_id, known.drm_card, known.drm_render = card.hip_id, card.index, 128 + card.index
        known.hip_uuid = f"GPU-{card.index + 1:016x}".encode()
        return OK

    def _kfd(self, card: VirtualCard, out: Any) -> int:
        out._obj.node_id, out._obj.current_partition_id = card.node_id, 0  # noqa: SLF001  (as above)
        return OK


def _set(out: Any, value: int) -> int:
    out._obj.value = value  # noqa: SLF001  (how ctypes.byref shows what it points at)
    return OK
