"""Finds the power monitors of a Jetson in sysfs, whatever JetPack made the files, and the files of each rail.

Facts: Linux ``drivers/hwmon/ina3221.c`` and ``Documentation/hwmon/ina3221.rst``; NVIDIA's ``ina3221x.c`` of kernel 4.9
(iio, JetPack 4); ``drivers/hwmon/ina238.c``. Data sheet INA3221 (TI SBOS576): 40 uV and 8 mV per bit. Numbers of hwmon
and iio devices change from boot to boot, so devices are found by driver and name, and known by bus and address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pmtpy.backends import _hwmon
from pmtpy.backends._sysfs import entries, optional_number, optional_text
from pmtpy.backends.jetson._channels import unused

_ADDRESS = re.compile(r"\d+-[0-9a-f]{4}")
_SHUNT_STEP_V = 40e-6
_BUS_STEP_V = 8e-3
_INA238_SHUNT_STEP_V, _INA238_BUS_STEP_V = 5e-6, 3.125e-3  # data sheet INA238 (TI SBOSA20), at the wider range
_INA238 = ("ina238", "ina237")
_LONGEST_MS = 60_000  # 1024 averages of three channels at 8 ms each take 50 s
_USUAL_S = 0.007
# The driver of JetPack 4 does not tell: 64 averages of 6.6 ms are its usual setting.
_IIO_CYCLE_S, _IIO_SAMPLES = 0.0066, 64
_CHANNELS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Rail:
    """One channel of a monitor that has a rail."""

    label: str  # the rail's name; empty if the driver gives none
    chip: str  # bus and address of the monitor, such as ``1-0040``
    channel: int  # number of the channel, as the driver counts
    # files of millivolts and milliamperes; the same file where one reading gives both
    volts: Path
    amps: Path
    shunt_ohm: float  # 0 where it is not known
    # time from one conversion to the next, and the span that a value speaks of
    refresh_s: float
    window_s: float
    shunt_file: Path | None = None  # where the driver tells the shunt, microohms
    # one step of the converter
    shunt_step_v: float = _SHUNT_STEP_V
    bus_step_v: float = _BUS_STEP_V
    shunt_steps: int = 4095  # the converter's last step, at which the true current may be any greater one
    # the time that the converter takes for all of its channels, and the part of it for which it sees this current; 0
    # where it is not known
    turn_s: float = 0.0
    converted_s: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        """What stays the same when devices are numbered anew."""
        return self.chip, self.channel

    @property
    def shunt_now_ohm(self) -> float:
        """The shunt that the driver reckons with now; 0 where it does not tell."""
        return _ohms(self.shunt_file) if self.shunt_file is not None else 0.0

    @property
    def of_module(self) -> bool:
        """Whether the monitor is of the kind that Jetson modules have, rather than one that any board may have."""
        return not self.chip.startswith(_INA238[0])

    @property
    def together(self) -> bool:
        """Whether one reading gives voltage and current of one conversion."""
        return self.volts == self.amps


def rails(root: Path) -> list[Rail]:
    """All rails below a root of sysfs, in order of bus, address and channel."""
    found: dict[tuple[str, int], Rail] = {}
    for rail in (*_modern(root), *_old(root)):
        found.setdefault(rail.key, rail)
    return [found[key] for key in sorted(found)]


def in_turn(of: Iterable[Rail]) -> list[str]:
    """Say what a converter that turns from one channel to the next does not see; nothing where it sees all."""
    turns = [(r.converted_s, r.turn_s) for r in of if r.converted_s]
    least = sorted(turns, key=lambda turn: turn[0] / turn[1])[:1]
    return [
        f"a rail is converted for {converted_s * 1e3:.3g} ms of every {turn_s * 1e3:.3g} ms: a load that repeats in "
        "step with that is always met at the same phase, so its energy may be wrong by as much as it swings"
        for converted_s, turn_s in least
    ]


def address(path: Path) -> str:
    """Bus and address in a resolved path of a device; the last part of the path if there are none."""
    return next((part for part in reversed(path.parts) if _ADDRESS.fullmatch(part)), path.name)


def _modern(root: Path) -> Iterator[Rail]:
    """JetPack 5 and later: hwmon."""
    folders = list(_hwmon.scan(root)[0])
    for driver in ("ina3221", *_INA238):
        for device in entries(root / "bus/i2c/drivers" / driver).paths:
            folders += map(_hwmon.describe, entries(device / "hwmon").paths)
    for folder in dict.fromkeys(folders):
        chip = address(folder.path if _ADDRESS.search(str(folder.path)) else folder.device or folder.path)
        if folder.name == "ina3221":
            yield from _ina3221(folder.path, chip)
        elif folder.name in _INA238:
            yield _ina238(folder.path, chip)


def _cycle_s(folder: Path) -> float:
    """Return the time from one conversion to the next; the usual one where the driver says nonsense."""
    milliseconds = optional_number(folder / "update_interval") or 0
    return milliseconds / 1000 if 0 < milliseconds < _LONGEST_MS else _USUAL_S


def _ohms(file: Path) -> float:
    return max(0, optional_number(file) or 0) / 1e6


def _ina3221(folder: Path, chip: str) -> Iterator[Rail]:
    samples = max(1, optional_number(folder / "samples") or 1)
    cycle_s = _cycle_s(folder)
    active = [c for c in _CHANNELS if optional_number(folder / f"in{c}_enable") != 0]
    # The converter turns to one channel after the other, and there to the shunt, then to the voltage of the bus.
    turn_s = cycle_s / samples
    converted_s = turn_s / (2 * max(1, len(active)))
    for channel in _CHANNELS:
        label = optional_text(folder / f"in{channel}_label")
        off = channel not in active
        if (label is not None and unused(label)) or (label is None and off):
            continue
        yield Rail(
            label or "",
            chip,
            channel,
            folder / f"in{channel}_input",
            folder / f"curr{channel}_input",
            _ohms(folder / f"shunt{channel}_resistor"),
            cycle_s,
            # The register moves by (new - old) / samples: a low pass of about one whole interval, whose values speak of
            # the last two.
            2 * cycle_s if samples > 1 else converted_s,
            folder / f"shunt{channel}_resistor",
            turn_s=turn_s,
            converted_s=converted_s,
        )


def _ina238(folder: Path, chip: str) -> Rail:
    cycle_s = _cycle_s(folder)
    node = folder / "of_node/label", folder / "device/of_node/label"
    label = next((text for text in map(optional_text, node) if text), "")
    shunt = folder / "shunt_resistor"
    return Rail(
        label, f"ina238 {chip}", 1, folder / "in1_input", folder / "curr1_input", _ohms(shunt), cycle_s, cycle_s,
        shunt, _INA238_SHUNT_STEP_V, _INA238_BUS_STEP_V, 32767,
    )  # fmt: skip


def _old(root: Path) -> Iterator[Rail]:
    """JetPack 4: iio, with channels counted from 0."""
    folders: list[Path] = []
    for device in entries(root / "bus/i2c/drivers/ina3221x").paths:
        folders += [path for path in entries(device).paths if path.name.startswith(("iio:device", "iio_device"))]
    for folder in entries(root / "bus/iio/devices").paths:
        if optional_text(folder / "name") == "ina3221x":
            folders.append(folder)
    for folder in dict.fromkeys(folders):
        for channel in (0, 1, 2):
            label = optional_text(folder / f"rail_name_{channel}")
            if label is None or unused(label):
                continue
            both = folder / f"ui_input_{channel}"
            one = both.exists()
            yield Rail(
                label,
                address(folder),
                channel,
                both if one else folder / f"in_voltage{channel}_input",
                both if one else folder / f"in_current{channel}_input",
                0.0,
                _IIO_CYCLE_S,
                2 * _IIO_SAMPLES * _IIO_CYCLE_S,
                turn_s=_IIO_CYCLE_S,
                converted_s=_IIO_CYCLE_S / (2 * len(_CHANNELS)),
            )
