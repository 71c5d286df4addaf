"""The hwmon tree: which chips there are, and what each of them offers that becomes energy.

Facts: Linux ``Documentation/hwmon/sysfs-interface.rst`` (file names and units: microwatts, microjoules, millivolts,
milliamperes) and the driver pages named in :mod:`pmtpy.backends.hwmon._channels`. Numbers of chips (``hwmon3``) and of
channels change between boots and kernels, so chips are named by driver and address, channels by label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pmtpy.backends import _hwmon
from pmtpy.backends._apu import is_apu, socket_of
from pmtpy.backends._sysfs import entries, natural, optional_number, optional_text
from pmtpy.core.channel import Quantity

_FILE = re.compile(r"(in|curr|power|energy)(\d{1,3})_(input|average)")
_SHUNTS = ("shunt_resistor", *(f"shunt{number}_resistor" for number in (1, 2, 3)))  # INA2xx; INA3221
_I2C = re.compile(r"\d+-[0-9a-f]{4}")

UNITS = {"power": 1e-6, "energy": 1e-6, "in": 1e-3, "curr": 1e-3}
QUANTITIES = {
    "power": Quantity.POWER,
    "energy": Quantity.ENERGY,
    "in": Quantity.VOLTAGE,
    "curr": Quantity.CURRENT,
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """One file of a chip that holds a reading."""

    path: Path
    kind: str  # "power", "energy", "in" or "curr"
    number: int  # its number on the chip, counted by each kind on its own
    average: bool  # a mean over ``window_s`` rather than a momentary value
    label: str  # the driver's name for it; empty where there is none
    window_s: float | None = None  # over which time it is averaged, as far as the driver says
    error: float | None = None  # largest relative error, as far as the driver says
    limit_w: float | None = None  # the largest power that the driver lets it be limited to, or names a limit

    @property
    def part(self) -> str:
        """What tells one measured part of the chip from another: its label, else its number."""
        return self.label.lower() or str(self.number)


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip with readings."""

    name: str  # The driver's name, e.g. ``ina226``.
    index: int  # which of the chips of that name, in the order of their addresses
    address: str  # of the device that carries it: ``1-0040``, ``0000:03:00.0``; empty where it has none
    attributes: tuple[Attribute, ...]
    update_s: float | None  # how often the chip converts, where the driver says
    # the shunts that the driver reckons with, ohms, by their files: of an INA3221 one for each channel
    shunts: tuple[tuple[str, float], ...]
    # domain of the socket whose processor the chip measures, too (an APU); empty where it is not known which
    socket: str | None = None
    battery: Path | None = None  # what says whether the battery that this chip measures is discharged

    @property
    def shunt_ohm(self) -> float | None:
        """The shunt of a chip of one rail, as far as the driver says."""
        return dict(self.shunts).get("shunt_resistor")

    @property
    def charging(self) -> str:
        """Why the power of a battery is not what the machine uses now; empty if it is, or of any other chip."""
        state = "Discharging" if self.battery is None else optional_text(self.battery) or "in an unknown state"
        if state == "Discharging":
            return ""
        return f"the battery {self.name} is {state}, and its power, which has no sign, is not what the machine uses"

    @property
    def device(self) -> str:
        """How a user names it."""
        return f"{self.name}/{self.index}"

    @property
    def on_a_bus(self) -> bool:
        """Whether a reading is a transaction on a slow bus (I2C, about 0.3 ms for each register)."""
        return _I2C.fullmatch(self.address) is not None


def _milliseconds(path: Path) -> float | None:
    value = optional_number(path)
    return value * 1e-3 if value is not None and 0 < value < 3_600_000 else None


def _attribute(path: Path, match: re.Match[str], chip: str) -> Attribute | None:
    kind, number, form = match[1], int(match[2]), match[3]
    stem = f"{kind}{number}"
    # POWER9 has one such file for each group of sensors of a chip, numbered on its own: it is not of this reading.
    if chip != "ibmpowernv" and optional_number(path.with_name(f"{stem}_enable")) == 0:
        return None
    label = optional_text(path.with_name(f"{stem}_label")) or ""
    if is_xrt(chip) and kind == "power" and (form == "average" or label.startswith("CS_TARGET")):
        return None  # the largest power there was, and the power that the card is to keep to: neither is a reading
    if not label and kind == "power":  # the ACPI meter's only name for what it measures
        label = optional_text(path.with_name(f"{stem}_oem_info")) or ""
    window = _milliseconds(path.with_name(f"{stem}_average_interval")) if form == "average" else None
    error = _error(path.with_name(f"{stem}_accuracy"))
    return Attribute(path, kind, number, form == "average", label, window, error, _hwmon.limit_w(path.parent, number))


def is_xrt(chip: str) -> bool:
    """Whether a chip is a Xilinx card under XRT: it bears the name of its shell, and which function of the card it is.

    Facts: ``Xilinx/XRT``, ``src/runtime_src/core/pcie/driver/linux/xocl/subdev/{xmc,xmc_u2,hwmon_sdm}.c``.
    """
    return re.fullmatch(r"xilinx_.*[_-](mgmt|user)", chip) is not None


def _error(path: Path) -> float | None:
    """Turn an accuracy such as ``95.0%`` into a relative error. 100 % states none: firmware writes it unasked."""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,4})?)%", optional_text(path) or "")
    return 1.0 - float(match[1]) / 100.0 if match and 0 < float(match[1]) < 100 else None


def _attributes(directory: Path, chip: str) -> tuple[Attribute, ...]:
    """Readings of a chip: in its own directory or, with the older ACPI driver, in that of its device."""
    for place in (directory, directory / "device"):
        named = [(path, _FILE.fullmatch(path.name)) for path in entries(place).paths]
        found = [_attribute(path, match, chip) for path, match in named if match is not None and not path.is_dir()]
        if found:
            return _told_apart([attribute for attribute in found if attribute is not None])
    return ()


def _told_apart(attributes: Sequence[Attribute]) -> tuple[Attribute, ...]:
    """Number those of one kind that bear the same label: a label that several bear does not say what each measures.

    An energy and a power of one label are of one part, and so are its average and its momentary power, which bear one
    number.
    """
    numbers: dict[tuple[str, str], set[int]] = {}
    for attribute in attributes:
        numbers.setdefault((attribute.kind, attribute.label.lower()), set()).add(attribute.number)
    return tuple(
        replace(a, label=f"{a.label} {a.number}") if a.label and len(numbers[a.kind, a.label.lower()]) > 1 else a
        for a in attributes
    )


def scan(root: Path) -> tuple[tuple[Chip, ...], tuple[str, ...]]:
    """Find every chip that measures power, energy, or voltage and current; and links that lead nowhere."""
    folders, dangling = _hwmon.scan(root)
    seen: dict[str, list[tuple[str, Path]]] = {}
    for folder in folders:
        if folder.name:
            seen.setdefault(folder.name, []).append((folder.address, folder.path))
    chips = []
    for name in sorted(seen, key=natural):
        found = sorted(seen[name], key=lambda pair: (natural(pair[0]), natural(pair[1].name)))
        for index, (address, directory) in enumerate(found):
            attributes = _attributes(directory, name)
            kinds = {a.kind for a in attributes}
            if kinds & {"power", "energy"} or {"in", "curr"} <= kinds:
                chips.append(
                    Chip(
                        name,
                        index,
                        address,
                        attributes,
                        _milliseconds(directory / "update_interval"),
                        shunts_of(directory),
                        socket_of(directory / "device", root) if _is_apu(name, directory) else None,
                        battery=_battery(directory / "device"),
                    )
                )
    return tuple(chips), dangling


def shunts_of(directory: Path) -> tuple[tuple[str, float], ...]:
    """Return the shunts that a driver reckons with now, ohms, by the names of their files."""
    read = [(name, optional_number(directory / name)) for name in _SHUNTS]
    return tuple((name, microohms * 1e-6) for name, microohms in read if microohms is not None and microohms > 0)


def _battery(device: Path) -> Path | None:
    """Return the file with the state of a battery; None of any other device.

    Facts: Linux ``drivers/power/supply/power_supply_hwmon.c``, ``Documentation/ABI/testing/sysfs-class-power``.
    """
    return device / "status" if optional_text(device / "type") == "Battery" else None


def _is_apu(name: str, directory: Path) -> bool:
    return name == "amdgpu" and is_apu(directory / "device")
