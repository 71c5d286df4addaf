"""Which registers an AMD GPU has, found by asking each once, and what each of them means as a channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pmtpy.backends._assumed_gain import GPU_U
from pmtpy.backends._card_limit import kept_watts, most_watts
from pmtpy.backends.amdsmi._device import MOST_WATTS, Library, accumulator, limit_w, megahertz, number, watts
from pmtpy.core.channel import Channel, Quantity

_REFERENCE = "AMD SMI API reference"
_ACCURACY = "not documented; as found for other GPUs' sensors"
# The metrics behind all calls are cached for 1 ms in the library and about as long again in the driver.
REFRESH_S = 0.002
# AMD states neither the width nor the shape of the average. A second is what other vendors' averages have (NVML, arXiv
# 2312.02741): assumed, so that lag and edges are in the uncertainty rather than nowhere.
ASSUMED_MEAN_S = 1.0
_LEAST_WATTS = 0.5  # of a GPU that is on enough to be read


@dataclass(frozen=True, slots=True)
class Value:
    """A temperature or a clock: its meaning, and how to ask for its count (None: no reading)."""

    channel: Channel
    ask: Callable[[Library, object], float | None]


@dataclass(frozen=True, slots=True)
class Registers:
    """What a GPU offers."""

    powers: tuple[str, ...]  # keys of the answer to a query of power, in the order of their channels
    power_call: str  # the call that answers it
    energy: bool  # whether there is an accumulator
    channels: tuple[Channel, ...]  # energy and powers, the one that makes the total first
    most_watts: float  # more than this no power of the card can be
    values: tuple[Value, ...]


_POWERS = {"current_socket_power": "gpu.current_power", "average_socket_power": "gpu.average_power"}
# All releases have the first call; some fail it where only the power cap cannot be read, and the second one answers.
_POWER_CALLS = ("amdsmi_get_power_info", "amdsmi_get_gpu_metrics_info")


def find(library: Library, handle: object, domain: str, *, energy: bool) -> Registers | None:
    """Ask for every register once; None where the device has neither power nor energy (a partition, a second die)."""
    powers: tuple[str, ...] = ()
    most = most_watts(limit_w(library.details("amdsmi_get_power_cap_info", handle)), MOST_WATTS)
    call = ""
    for call in (*_POWER_CALLS, *_POWER_CALLS):  # 'N/A' now and then passes at once
        answer = library.details(call, handle)
        powers = tuple(key for key in _POWERS if watts(answer.get(key), most) is not None)
        if powers:
            break
    counted = accumulator(library.optional("amdsmi_get_energy_count", handle)) if energy else None
    channels = [_power_channel(key, domain, most) for key in powers]
    if counted is not None:
        channels.insert(0, _energy_channel(counted[1], domain, most))
    if not channels:
        return None
    values = tuple(v for v in _values(library, handle) if v.ask(library, handle) is not None)
    return Registers(powers, call, counted is not None, tuple(channels), most, values)


def _power_channel(key: str, domain: str, most: float) -> Channel:
    mean_s = ASSUMED_MEAN_S if key == "average_socket_power" else None
    return Channel(
        _POWERS[key],
        Quantity.POWER,
        domain=domain,
        label=key,
        refresh_s=REFRESH_S,
        window_s=mean_s,
        lag_s=mean_s / 2 if mean_s else None,
        gain_u=GPU_U,
        max_watts=most,
        kept_watts=kept_watts(most),
        reference=f"{_REFERENCE}: amdsmi_get_power_info; accuracy {_ACCURACY}",
    )


def _energy_channel(joules_per_count: float, domain: str, most: float) -> Channel:
    return Channel(
        "gpu.energy",
        Quantity.ENERGY,
        scale=joules_per_count,
        domain=domain,
        label="energy_accumulator",
        refresh_s=REFRESH_S,
        gain_u=GPU_U,
        max_watts=most,
        kept_watts=kept_watts(most),
        least_watts=_LEAST_WATTS,
        reference=f"{_REFERENCE}: amdsmi_get_energy_count; accuracy {_ACCURACY}",
    )


def _values(library: Library, handle: object) -> list[Value]:
    found = []
    temperatures = getattr(library.module, "AmdSmiTemperatureType", None)
    for kind, name in (
        ("EDGE", "gpu.edge_temperature"),
        ("HOTSPOT", "gpu.hotspot_temperature"),
        ("VRAM", "memory.temperature"),
    ):
        member = getattr(temperatures, kind, None)
        now = _temperature(library, handle, member)
        if now is not None:
            # Documents say millidegrees, libraries give degrees; no chip is at 1000 of either by mistake.
            scale = 1e-3 if abs(now) > 1000 else 1.0
            channel = Channel(name, Quantity.TEMPERATURE, scale=scale, reference=_REFERENCE)
            found.append(Value(channel, _ask_temperature(member, scale)))
    clocks = getattr(library.module, "AmdSmiClkType", None)
    for kind, name in (("GFX", "gpu.gfx_clock"), ("MEM", "gpu.memory_clock")):
        channel = Channel(name, Quantity.FREQUENCY, scale=1e6, reference=_REFERENCE)
        found.append(Value(channel, _ask_clock(getattr(clocks, kind, None))))
    return found


def _temperature(library: Library, handle: object, kind: Any) -> float | None:
    metric = getattr(getattr(library.module, "AmdSmiTemperatureMetric", None), "CURRENT", None)
    return number(library.optional("amdsmi_get_temp_metric", handle, kind, metric))


def _ask_temperature(kind: Any, scale: float) -> Callable[[Library, object], float | None]:
    def ask(library: Library, handle: object) -> float | None:
        count = _temperature(library, handle, kind)
        return count if count is not None and -50 <= count * scale <= 150 else None

    return ask


def _ask_clock(kind: Any) -> Callable[[Library, object], float | None]:
    return lambda library, handle: megahertz(library.optional("amdsmi_get_clock_info", handle, kind))
