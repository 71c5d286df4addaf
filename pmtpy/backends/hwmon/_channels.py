"""What the readings of a chip mean: which part of the machine each measures, and which of them contain each other.

Pure. A chip whose wiring nobody described gives its readings without a total: adding rails blindly is how a supply is
counted twice. Facts, by driver:

ibmpowernv (``Documentation/hwmon/ibmpowernv.rst``, skiboot ``hw/occ-sensor.c``), power_meter (``acpi_power_meter.rst``;
NVIDIA Grace tuning guide, "Power Telemetry"), amdgpu (``Documentation/gpu/amdgpu/thermal.rst``), xe and i915
(``Documentation/ABI/testing/sysfs-driver-intel-{xe,i915}-hwmon``), amd_energy, corsair-psu, ina2xx, PMBus
(``Documentation/hwmon/*.rst``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from pmtpy.backends import _card_limit, _ina
from pmtpy.backends._assumed_gain import GPU_U, METER_U
from pmtpy.backends.hwmon._device import Attribute, Chip, is_xrt

_MOST_WATTS = 20_000.0  # more than a node takes

INTERVAL_S = 0.05  # from one reading to the next, where no chip is renewed more often

_HOST_PART = "host"  # the whole machine, with everything in it

# One step of a reading in SI where the file's unit is finer than the sensor. POWER9: whole watts; ACPI: milliwatts.
_RESOLUTIONS_W = {"ibmpowernv": 1.0, "power_meter": 1e-3}

# Steps of power times shunt (W x ohm): 25 x 2.5 uV for the INA226 family, 20 x 10 uV for the INA219 (data sheets).
_SHUNT_STEPS = {"ina226": 62.5e-6, "ina230": 62.5e-6, "ina231": 62.5e-6, "ina219": 200e-6, "ina220": 200e-6}

# Measured on an AC922: new values every 40.08 ms (docs/backends/occ.md).
_REFRESH_S = {"ibmpowernv": 0.0401}
# Who states nothing may show what a microcontroller or a bus has kept for as long (no driver says; measured: none).
_UNSTATED_REFRESH_S = 0.5
_BATTERY_REFRESH_S = 1.0  # for so long the kernel keeps a reading: drivers/acpi/battery.c, cache_time

_CONTINUOUS = frozenset({"ina226", "ina230", "ina231", "ina238"})

# Shunt monitors: a shunt of 1 %, the commonest, and 0.1 % of the chip (data sheet), rectangular. Others state nothing.
_GAIN_U = {"ina": 0.006, "amdgpu": GPU_U, "xe": GPU_U, "i915": GPU_U}

_Domains = dict[str, str]


def step(chip: Chip) -> float | None:
    """Return one step of the chip's power readings in watts, where it is known."""
    if chip.name in _SHUNT_STEPS and chip.shunt_ohm:
        return _SHUNT_STEPS[chip.name] / chip.shunt_ohm
    return _RESOLUTIONS_W.get(chip.name)


def refresh_s(chip: Chip, attribute: Attribute) -> float | None:
    """Return how often a reading changes, as far as it is known; of a momentary one of which nothing is, how seldom.

    Of a mean over an interval the driver hands out what it has for as long (``acpi_power_meter``: the time of
    sampling), so it is renewed with the first reading after that.
    """
    if attribute.window_s:
        return attribute.window_s + INTERVAL_S
    known = chip.update_s or (_BATTERY_REFRESH_S if chip.battery else _REFRESH_S.get(chip.name))
    # A shunt monitor that states nothing converts within milliseconds, and each reading asks for the last conversion.
    unstated = attribute.kind != "energy" and not chip.name.startswith("ina")
    return known or (_UNSTATED_REFRESH_S if unstated else None)


def lag_s(chip: Chip, attribute: Attribute) -> float | None:
    """Return the mean age of what a reading shows when its driver has it, where it is known."""
    window = window_s(chip, attribute)
    if window is None:
        return None
    if attribute.window_s is None:
        return window / 2.0
    # Firmware has what it shows for half an interval on average when the driver asks. That is when a reading makes it,
    # whose row is the first of those that show it, and not at any instant between two readings.
    return max(window / 2.0, window - INTERVAL_S / 2.0)


def window_s(chip: Chip, attribute: Attribute) -> float | None:
    """Return over which time a reading averages, where it is known.

    The INA226 family converts without a pause, so its update interval is also what it averages over.
    """
    if attribute.window_s is None and chip.name in _CONTINUOUS and attribute.kind != "energy":
        return chip.update_s
    return attribute.window_s


def gain_u(chip: Chip, attribute: Attribute) -> float:
    """Relative standard uncertainty of a reading: as the driver states it, else that of its kind of sensor."""
    if attribute.error is not None:
        return attribute.error / math.sqrt(3.0)
    kind = "ina" if chip.name.startswith("ina") else "amdgpu" if is_xrt(chip.name) else chip.name
    stated = _GAIN_U.get(kind, METER_U)
    # POWER9's firmware divides its accumulator by the nominal sampling rate, which is 0.19 % too high.
    return math.hypot(stated, 0.002) if chip.name == "ibmpowernv" and attribute.kind == "energy" else stated


def limits(chip: Chip, domain: str, *, limit_w: float | None, volts: float | None, shunt: str) -> tuple[float, float]:
    """Return what no such part uses, and what it keeps to on average.

    The first tells a misread, restarted or leaping energy from a real one. A rail behind a shunt: what the chip can
    show; a card: three times the largest limit that its driver names, as of other GPUs; else a node.

    Parameters
    ----------
    limit_w : float or None
        The largest limit that the driver names.
    volts : float or None
        Of the rail, now.
    shunt : str
        Which of the chip's shunts it is.
    """
    rail = _ina.limits(chip.name, volts, shunt_ohm=dict(chip.shunts).get(shunt, 0.0))
    if rail is not None:
        return rail
    if not domain.startswith("gpu/"):
        return _MOST_WATTS, _MOST_WATTS
    most = _card_limit.most_watts(limit_w, 5_000.0)
    return most, _card_limit.kept_watts(most)


def least_watts(domain: str, kind: str) -> float:
    """Return what a part that runs this program always uses: the machine, a socket, its memory, a card that answers.

    Of a power it takes the whole machine or a whole socket to be sure: a card's rails and a firmware's sums round down.
    """
    path = domain.split("/")
    whole = path[0] == "host" and len(path) <= 2 and (len(path) == 1 or path[1].startswith("socket"))
    if kind == "energy":
        return 0.01 if whole or path[-1] in {"package", "dram"} or (path[0] == "gpu" and len(path) == 2) else 0.0
    return 0.5 if whole and kind == "power" else 0.0


def wrap(chip: Chip, attribute: Attribute) -> float | None:
    """Return the counts after which an energy starts again from zero, where it does within years.

    POWER9's firmware multiplies its sum by a million in 64 bits and then divides by the nominal rate, which is 2000 Hz
    for everything but the rails (skiboot ``hw/occ-sensor.c``).
    """
    return float(2**64 // 2000) if chip.name == "ibmpowernv" and attribute.kind == "energy" else None


def unusable(chip: Chip, attribute: Attribute) -> str:
    """Say why a reading must not be used although it can be read; empty if it may."""
    if chip.name == "ibmpowernv" and attribute.kind == "energy" and re.search(r"vd[dn]$", attribute.part):
        return "the firmware counts the energy of the Vdd and Vdn rails at half its value; the power is right"
    return ""


def domains(chips: Sequence[Chip]) -> dict[tuple[str, str], str]:
    """Give the physical part of each measured part, by device and part; empty where it is not known.

    All chips of one name are judged together, since one may contain the other (the meters of NVIDIA's Grace).
    """
    found: dict[tuple[str, str], str] = {}
    for chip in chips:
        parts = list(dict.fromkeys(a.part for a in chip.attributes if a.kind in {"power", "energy"}))
        rule = _fpga if is_xrt(chip.name) else _RULES.get(chip.name, _unknown)
        found.update({(chip.device, part): domain for part, domain in rule(chip, parts).items()})
    if chips and chips[0].name == "power_meter":
        found.update(_meters([(c, p) for c in chips for p in dict.fromkeys(a.part for a in c.attributes)]))
    return found


def without_orphans(
    found: Mapping[tuple[str, str], str], readable: Collection[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Take parts out of the total whose surrounding part exists but cannot be read: they would pass for all of it."""
    shown = {domain for key, domain in found.items() if key in readable}
    hidden = {domain for domain in found.values() if domain} - shown
    return {
        key: "" if any(domain.startswith(f"{outer}/") for outer in hidden) else domain for key, domain in found.items()
    }


def _base(chip: Chip) -> str:
    """Path of a chip that measures something, nobody says what: never added to the machine's own sensors."""
    return f"external/hwmon/{chip.name}/{chip.address or chip.index}"


def _unknown(chip: Chip, parts: Sequence[str]) -> _Domains:
    """A single reading is the chip's total; of several, one that is called total or input contains the others."""
    base = _base(chip)
    whole = [p for p in parts if p in {"total", "power total", "pin", "input"}]
    if len(parts) == 1:
        return {parts[0]: base}
    if len(whole) == 1:
        return {p: base if p in whole else f"{base}/{slug(p)}" for p in parts}
    return dict.fromkeys(parts, "")


def _power9(_: Chip, parts: Sequence[str]) -> _Domains:
    """``System`` holds all; chips are numbered as the hardware is (0 and 8 on a machine with two sockets)."""
    inside = {"": "package", "vdd": "package/vdd", "vdn": "package/vdn", "memory": "dram", "gpu": "gpus"}
    result: _Domains = {}
    for part in parts:
        match = re.fullmatch(r"chip (\d+) ?(.*)", part)
        if part == "system":
            result[part] = _HOST_PART
        elif match and match[2] in inside:
            result[part] = f"host/socket{match[1]}/{inside[match[2]]}"
        else:
            result[part] = ""  # channels of the power sequencer, whose wiring differs from board to board
    return result


def _gpu(chip: Chip, parts: Sequence[str]) -> _Domains:
    """The card, and inside it the package (xe); an APU is the socket of its processor, or in no total."""
    if chip.socket is not None:
        return dict.fromkeys(parts, chip.socket)
    card = f"gpu/{chip.address or chip.index}"
    known = {"ppt": card, "card": card, "pkg": f"{card}/package"}
    return {p: known.get(p, card if len(parts) == 1 else "") for p in parts}


def _amd_energy(_: Chip, parts: Sequence[str]) -> _Domains:
    """Cores lie inside sockets; which in which is not said, so they stay out."""
    found = {p: re.fullmatch(r"esocket(\d+)", p) for p in parts}
    return {p: f"host/socket{match[1]}/package" if match else "" for p, match in found.items()}


def _supply(_: Chip, parts: Sequence[str]) -> _Domains:
    """A computer's power supply: what it delivers in total, and its rails."""
    known = {"power total": _HOST_PART}
    return {p: known.get(p, f"{_HOST_PART}/{slug(p)}" if "power total" in parts else "") for p in parts}


def _fpga(chip: Chip, parts: Sequence[str]) -> _Domains:
    """A Xilinx card under XRT: one power, of the whole card; both its functions show it."""
    card = f"fpga/{chip.address.rpartition('.')[0] or chip.index}"
    return {p: card if p in {"power", "power1"} or len(parts) == 1 else "" for p in parts}


_RULES: dict[str, Callable[[Chip, Sequence[str]], _Domains]] = {
    "ibmpowernv": _power9,
    "amdgpu": _gpu,
    "xe": _gpu,
    "i915": _gpu,
    "amd_energy": _amd_energy,
    "corsairpsu": _supply,
}

_METER = re.compile(r"\b(module|total|grace|cpu|sysio|soc|dram)\b.*\bsocket (\d+)")
_SOCKET_METERS = {"module", "total", "grace"}


def _meters(parts: Sequence[tuple[Chip, str]]) -> dict[tuple[str, str], str]:
    """ACPI meters. Grace: Module (with GPU) contains Grace, that CPU and SysIO. A lone meter is the whole machine."""
    words = {(chip.device, part): _METER.search(part) for chip, part in parts}
    whole = {match[2] for match in words.values() if match and match[1] in _SOCKET_METERS}
    result = {}
    for key, match in words.items():
        if match is None:
            result[key] = _HOST_PART if len(words) == 1 else ""
        elif match[1] in {"module", "total"}:
            result[key] = f"host/socket{match[2]}"
        elif match[1] == "grace":
            result[key] = f"host/socket{match[2]}/grace"
        else:  # rails alone are no total: the memory would be missing
            result[key] = f"host/socket{match[2]}/grace/{match[1]}" if match[2] in whole else ""
    return result


def missing_meters(chips: Sequence[Chip]) -> list[str]:
    """Say which socket lacks a meter of the kind that the total takes of the others, or of which it takes a smaller."""
    kinds: dict[str, set[str]] = {}
    for chip in chips:
        for match in (_METER.search(a.part) for a in chip.attributes):
            if match:
                kinds.setdefault(match[2], set()).add("module" if match[1] == "total" else match[1])
    best = [k for k in ("module", "grace") if any(k in found for found in kinds.values())][:1]
    return [
        f"socket {socket} has no {kind} meter although another has: the total takes a smaller part of it, or none"
        for kind in best
        for socket, found in sorted(kinds.items())
        if kind not in found
    ]


def pairs(chip: Chip) -> tuple[tuple[Attribute, Attribute], ...]:
    """Voltages and currents of the same rail, for a chip that gives no power; none where it is not certain.

    Certain is: the same number on an INA chip (channels 1 to 3 of an INA3221, whose higher numbers are shunt voltages
    and sums), labels that differ in v and i only (``vout1`` and ``iout1``), or the chip's only voltage and current.
    """
    volts = [a for a in chip.attributes if a.kind == "in"]
    amperes = [a for a in chip.attributes if a.kind == "curr"]
    if chip.name.startswith("ina"):
        by_number = {v.number: v for v in volts if chip.name != "ina3221" or v.number <= 3}
        return tuple((by_number[a.number], a) for a in amperes if a.number in by_number)
    by_label = {_rail(v.label, "v"): v for v in volts if v.label}
    matched = tuple((by_label[_rail(a.label, "i")], a) for a in amperes if a.label and _rail(a.label, "i") in by_label)
    if not matched and len(volts) == len(amperes) == 1 and volts[0].number == amperes[0].number:
        return ((volts[0], amperes[0]),)
    return matched


def _rail(label: str, initial: str) -> str:
    return re.sub(rf"^{initial}(?=in|out|cap)", "", label.lower())


def slug(text: str) -> str:
    """Make a label a channel name: lowercase words joined by underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "unnamed"
