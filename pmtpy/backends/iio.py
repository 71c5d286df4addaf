"""INA2xx power monitors through Linux' industrial I/O: each conversion with the kernel's own time stamp.

Facts: Linux ``drivers/iio/adc/ina2xx-adc.c``; data sheet of the INA226. The driver excludes hwmon's: a machine has one
of them.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from pmtpy.backends._device_clock import Steps
from pmtpy.backends._iio_buffer import Buffer, number_of
from pmtpy.backends._ina import Limits, in_turn, limits, shunt_changed
from pmtpy.backends._sysfs import entries, optional_text, sysfs_root
from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Identity, Quantity
from pmtpy.core.clock import Clock
from pmtpy.core.rows import Block
from pmtpy.core.source import Discovery, Remarks, Source, Timestamps, Traits
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, Verdict

BACKEND = "iio"
DEVICES = "bus/iio/devices"
VOLTAGE, CURRENT = "in_voltage1", "in_current3"
_GAIN_U = math.hypot(0.01, 0.001, 0.001) / math.sqrt(3.0)  # a shunt of 1 %, 0.1 % of the chip twice: rectangular
_SHUNT_V = 0.08192  # either way: INA226 data sheet (TI SBOS547A), 7.5, also of the INA230 and INA231
_INA219_SHUNT_V = 0.04  # at a gain of 1: INA219 data sheet (TI SBOS448G), table 7
_REFERENCE = "INA226 data sheet; Linux drivers/iio/adc/ina2xx-adc.c"


class _IioSource(Source):
    """One chip whose buffer is read."""

    traits = Traits(interval_s=0.05, streaming=True, timestamps=Timestamps.DEVICE_UPDATE)

    def __init__(self, folder: Path, node: Path, clock: Clock) -> None:
        self._clock, self._steps = clock, Steps(4)
        self._folder, self._shunt_ohm = folder, _shunt_ohms(folder)
        self._ends = np.array(_ends(folder))
        rate = number_of(folder, "in_sampling_frequency")
        window_s = 1.0 / rate if rate and rate > 0 else None
        notes: tuple[str, ...] = (f"shunt of {self._shunt_ohm:g} ohm; see that this is the one on the board",)
        common: dict[str, object] = {"refresh_s": window_s, "reference": _REFERENCE}
        most = self._limits()
        self.channels = (
            Channel("rail.voltage", Quantity.VOLTAGE, _scale(folder, VOLTAGE), **common),  # type: ignore[arg-type]
            Channel("rail.current", Quantity.CURRENT, _scale(folder, CURRENT), **common),  # type: ignore[arg-type]
            Channel(
                "rail", Quantity.POWER, derivation=Derivation.PRODUCT, operands=("rail.voltage", "rail.current"),
                method=EnergyMethod.MEAN, domain=f"external/iio/{folder.name}", window_s=window_s, gain_u=_GAIN_U,
                max_watts=most.most if most else None, kept_watts=most.kept if most else None,
                resolution=12.0 * _scale(folder, CURRENT), **common,  # type: ignore[arg-type]
            ),
        )  # fmt: skip
        name = optional_text(folder / "name") or "ina"
        shunt_s, bus_s = (number_of(folder, f"in_voltage{i}_integration_time") for i in (0, 1))
        notes = (*notes, *in_turn(name, shunt_s, bus_s))
        self.identity = Identity(BACKEND, name, folder.name, notes=notes, serial_is_place=True)
        # Older drivers call the register of the current unsigned, which it is not.
        self._buffer = Buffer(BACKEND, folder, node, (VOLTAGE, CURRENT), signed=(CURRENT,))

    def _limits(self) -> Limits | None:
        """Return what the rail can have used, by the end of the converter and the voltage before the buffer starts."""
        amperes = float(self._ends[1] + 1.0) * abs(_scale(self._folder, CURRENT))
        volts = number_of(self._folder, f"{VOLTAGE}_raw")
        return limits(
            optional_text(self._folder / "name") or "",
            None if volts is None else volts * _scale(self._folder, VOLTAGE),
            amperes=amperes,
        )

    def read(self) -> Block:
        """Take the conversions that have come; those that the kernel could not keep are counted."""
        t_ns, counts = self._buffer.read(self._clock.now_ns())
        if not len(t_ns):
            return Block.empty(2)
        # At the end of a converter the true value may be anything beyond: nothing is known.
        counts[np.abs(counts) > self._ends] = math.nan
        return Block(t_ns, counts, self._steps.lost(t_ns))

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:  # noqa: ARG002  (nothing tells when it was)
        """Say where the driver reckons with another shunt than at the opening."""
        return Remarks(warnings=shunt_changed(self._folder.name, self._shunt_ohm, _shunt_ohms(self._folder)))

    def close(self) -> None:
        """Switch the buffer off and close it. May be called twice."""
        self._buffer.close()


def _scale(folder: Path, channel: str) -> float:
    """SI value of one count; the files are in thousandths."""
    scale = number_of(folder, f"{channel}_scale")
    if scale is None or not math.isfinite(scale) or scale == 0.0:
        why = f"{folder / channel}_scale holds no number"
        raise BackendUnavailableError(BACKEND, why, "see whether the driver knows the chip: $ dmesg | grep ina2xx")
    return scale * 1e-3


def _shunt_ohms(folder: Path) -> float:
    """Return the shunt that the driver was told of; drivers before Linux 4.14 write whole millionths. NaN: unknown."""
    text = optional_text(folder / "in_shunt_resistor") or ""
    value = number_of(folder, "in_shunt_resistor") or math.nan
    return value * 1e-6 if text.strip().isdecimal() else value


def _ends(folder: Path) -> tuple[float, float]:
    """Return the greatest counts of voltage and current (either way) that say more than that the value lies beyond.

    The converter of the shunt ends before the register of the current where the driver scales it.
    """
    full_v = _SHUNT_V
    if optional_text(folder / "name") == "ina219":
        full_v = _INA219_SHUNT_V / (number_of(folder, "in_voltage0_hardwaregain") or 0.125)
    most = full_v / (_shunt_ohms(folder) * _scale(folder, CURRENT))
    return float(0xFFFF - 1), min(0x7FFF, most if most > 0 else math.inf) - 1


def discover(*, sysfs_root: str | os.PathLike[str] | None = None) -> Discovery:
    """Find INA chips that the industrial I/O driver has."""
    folders = [p for p in entries(_devices(sysfs_root)).paths if (optional_text(p / "name") or "").startswith("ina")]
    if folders:
        return Discovery(tuple(p.name for p in folders))
    why = f"no INA chip is in {_devices(sysfs_root)}; where hwmon's driver has them, the backend hwmon reads them"
    return Discovery((), (Finding(BACKEND, "", Verdict.ABSENT, why, Obstacle.HARDWARE, ("$ pmtpy doctor hwmon",)),))


def _devices(root: str | os.PathLike[str] | None) -> Path:
    return sysfs_root(root) / DEVICES


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    sysfs_root: str | os.PathLike[str] | None = None,
    dev_root: str | os.PathLike[str] = "/dev",
) -> Source:
    """Open a chip and start its buffer, with stamps of the monotonic clock.

    Parameters
    ----------
    device : str or None
        ``iio:device0``; None: the first INA chip.
    sysfs_root, dev_root : path
        Where sysfs and the device nodes are.

    Raises BackendUnavailableError: no such chip, another program captures from it, not permitted, or a driver that
    stores otherwise.
    """
    found = discover(sysfs_root=sysfs_root)
    found.require()
    name = device or found.devices[0]
    folder = _devices(sysfs_root) / name
    if name not in found.devices:
        raise BackendUnavailableError(BACKEND, f"there is no {folder}", f"there are: {', '.join(found.devices)}")
    return _IioSource(folder, Path(dev_root) / name, clock)
