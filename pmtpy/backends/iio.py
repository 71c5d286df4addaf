"""INA2xx power monitors through Linux' industrial I/O: each conversion with the kernel's own time stamp.

Facts: Linux ``drivers/iio/adc/ina2xx-adc.c``, ``Documentation/ABI/testing/sysfs-bus-iio`` and
``Documentation/iio/iio_devbuf.rst``; data sheet of the INA226. The driver excludes hwmon's: a machine has one of them.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
from pathlib import Path

import numpy as np

from pmtpy.backends._device_clock import Steps
from pmtpy.backends._sysfs import entries, optional_text, sysfs_root
from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Identity, Quantity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block
from pmtpy.core.source import Discovery, Source, Timestamps, Traits
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, SourceLostError, Verdict

BACKEND = "iio"
DEVICES = "bus/iio/devices"
VOLTAGE, CURRENT, STAMP = "in_voltage1", "in_current3", "in_timestamp"
_LENGTH = 4096  # conversions that the kernel keeps: seconds
_READ_BYTES = 1 << 16
_CLOCK_NS = 3600 * NS_PER_S  # Unix time is decades away
_GAIN_U = math.hypot(0.01, 0.001, 0.001) / math.sqrt(3.0)  # a shunt of 1 %, 0.1 % of the chip twice: rectangular
_SHUNT_V = 0.08192  # either way: INA226 data sheet (TI SBOS547A), 7.5, also of the INA230 and INA231
_INA219_SHUNT_V = 0.04  # at a gain of 1: INA219 data sheet (TI SBOS448G), table 7
_TYPE = re.compile(r"(le|be):([su])(\d+)/(\d+)(?:X\d+)?>>(\d+)")
_REFERENCE = "INA226 data sheet; Linux drivers/iio/adc/ina2xx-adc.c"


class _IioSource(Source):
    """One chip whose buffer is read. Owns the descriptor ``fd``."""

    traits = Traits(interval_s=0.05, streaming=True, timestamps=Timestamps.DEVICE_UPDATE)

    def __init__(self, folder: Path, fd: int, layout: np.dtype[np.void], clock: Clock, *, virtual: bool) -> None:
        self._folder, self._fd, self._layout, self._clock = folder, fd, layout, clock
        self._rest, self._last_ns, self._steps = b"", -1, Steps(4)
        self._lost: SourceLostError | None = None
        self._ends = np.array(_ends(folder))
        rate = _number(folder, "in_sampling_frequency")
        window_s = 1.0 / rate if rate and rate > 0 else None
        name = optional_text(folder / "name") or "ina"
        domain = f"external/iio/{folder.name}"
        shunt = _shunt_ohms(folder)
        notes = [f"shunt of {shunt:g} ohm; see that this is the one on the board"]
        common: dict[str, object] = {"refresh_s": window_s, "reference": _REFERENCE}
        self.channels = (
            Channel("rail.voltage", Quantity.VOLTAGE, _scale(folder, VOLTAGE), **common),  # type: ignore[arg-type]
            Channel("rail.current", Quantity.CURRENT, _scale(folder, CURRENT), **common),  # type: ignore[arg-type]
            Channel(
                "rail", Quantity.POWER, derivation=Derivation.PRODUCT, operands=("rail.voltage", "rail.current"),
                method=EnergyMethod.MEAN, domain=domain, window_s=window_s, gain_u=_GAIN_U,
                resolution=12.0 * _scale(folder, CURRENT), **common,  # type: ignore[arg-type]
            ),
        )  # fmt: skip
        self.identity = Identity(BACKEND, name, folder.name, "", virtual, tuple(notes))

    def read(self) -> Block:
        """Take the conversions that have come; those that the kernel could not keep are counted."""
        if self._lost is not None:
            raise self._lost
        now_ns = self._clock.now_ns()
        data = self._rest + self._drained()
        whole = np.frombuffer(data, self._layout, len(data) // self._layout.itemsize)
        self._rest = data[len(whole) * self._layout.itemsize :]
        whole = whole[whole["stamp"] > self._last_ns] if len(whole) else whole
        if not len(whole):
            return Block.empty(2)
        if abs(int(whole["stamp"][-1]) - now_ns) > _CLOCK_NS:
            self._lost = SourceLostError(
                f"{self._folder.name}: its timestamps are no longer on the monotonic clock, "
                "another program has changed that; open the sensor again"
            )
            raise self._lost
        t_ns = np.maximum.accumulate(whole["stamp"].astype(np.int64))
        keep = np.diff(t_ns, prepend=self._last_ns) > 0
        t_ns, whole = t_ns[keep], whole[keep]
        self._last_ns = int(t_ns[-1])
        counts = np.stack([whole["voltage"], whole["current"]], axis=1).astype(np.float64)
        # At the end of a converter the true value may be anything beyond: nothing is known.
        counts[np.abs(counts) > self._ends] = math.nan
        return Block(t_ns, counts, self._steps.lost(t_ns))

    def _drained(self) -> bytes:
        parts: list[bytes] = []
        while not parts or len(parts[-1]) == _READ_BYTES:
            try:
                parts.append(os.read(self._fd, _READ_BYTES))
            except BlockingIOError:
                break
            except OSError as error:
                self._lost = SourceLostError(
                    f"{self._folder.name}: the chip is gone ({error.strerror}); reopen the sensor"
                )
                raise self._lost from error
            if not parts[-1]:
                break
        return b"".join(parts)

    def close(self) -> None:
        """Switch the buffer off and close it. May be called twice."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        with contextlib.suppress(OSError):
            (self._folder / "buffer/enable").write_text("0")


def _number(folder: Path, name: str) -> float | None:
    try:
        return float(optional_text(folder / name) or "")
    except ValueError:
        return None


def _scale(folder: Path, channel: str) -> float:
    """SI value of one count; the files are in thousandths."""
    scale = _number(folder, f"{channel}_scale")
    if scale is None or not math.isfinite(scale) or scale == 0.0:
        why = f"{folder / channel}_scale holds no number"
        raise BackendUnavailableError(BACKEND, why, "see whether the driver knows the chip: $ dmesg | grep ina2xx")
    return scale * 1e-3


def _field(folder: Path, channel: str) -> tuple[int, str]:
    """Return (index, numpy type) of a channel in the buffer's records."""
    found = _TYPE.fullmatch(optional_text(folder / f"scan_elements/{channel}_type") or "")
    index = _number(folder, f"scan_elements/{channel}_index")
    if found is None or index is None or int(found[4]) not in {8, 16, 32, 64} or found[5] != "0":
        why = f"{folder.name} does not say how it stores {channel}"
        raise BackendUnavailableError(BACKEND, why, "its driver must be ina2xx-adc: see name in its folder")
    signed = found[2] == "s" or channel == CURRENT  # older drivers call its register unsigned, which it is not
    return int(index), f"{'<' if found[1] == 'le' else '>'}{'i' if signed else 'u'}{int(found[4]) // 8}"


def _shunt_ohms(folder: Path) -> float:
    """Return the shunt that the driver was told of; drivers before Linux 4.14 write whole millionths. NaN: unknown."""
    text = optional_text(folder / "in_shunt_resistor") or ""
    value = _number(folder, "in_shunt_resistor") or math.nan
    return value * 1e-6 if text.strip().isdecimal() else value


def _ends(folder: Path) -> tuple[float, float]:
    """Return the greatest counts of voltage and current (either way) that say more than that the value lies beyond.

    The converter of the shunt ends before the register of the current where the driver scales it.
    """
    full_v = _SHUNT_V
    if optional_text(folder / "name") == "ina219":
        full_v = _INA219_SHUNT_V / (_number(folder, "in_voltage0_hardwaregain") or 0.125)
    most = full_v / (_shunt_ohms(folder) * _scale(folder, CURRENT))
    return float(0xFFFF - 1), min(0x7FFF, most if most > 0 else math.inf) - 1


def _record_layout(folder: Path) -> np.dtype[np.void]:
    """Return the layout of a record: fields in the order of their index, each aligned to its size."""
    fields = sorted((*_field(folder, c), n) for c, n in ((VOLTAGE, "voltage"), (CURRENT, "current"), (STAMP, "stamp")))
    offsets, at = [], 0
    for _, kind, _ in fields:
        size = np.dtype(kind).itemsize
        at = -(-at // size) * size
        offsets.append(at)
        at += size
    at = -(-at // 8) * 8
    return np.dtype(
        {"names": [n for *_, n in fields], "formats": [k for _, k, _ in fields], "offsets": offsets, "itemsize": at}
    )


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
    virtual: bool = False,
) -> Source:
    """Open a chip and start its buffer, with stamps of the monotonic clock.

    Parameters
    ----------
    device : str or None
        ``iio:device0``; None: the first INA chip.
    sysfs_root, dev_root : path
        Where sysfs and the device nodes are.
    virtual : bool
        The chip is emulated.

    Raises BackendUnavailableError: no such chip, another program captures from it, not permitted, or a driver that
    stores otherwise.
    """
    found = discover(sysfs_root=sysfs_root)
    found.require()
    name = device or found.devices[0]
    folder = _devices(sysfs_root) / name
    if name not in found.devices:
        raise BackendUnavailableError(BACKEND, f"there is no {folder}", f"there are: {', '.join(found.devices)}")
    layout = _record_layout(folder)
    try:
        (folder / "buffer/enable").write_text("0")
        for path in sorted((folder / "scan_elements").glob("*_en")):
            path.write_text("1" if path.name[:-3] in {VOLTAGE, CURRENT, STAMP} else "0")
        (folder / "current_timestamp_clock").write_text("monotonic")
        with contextlib.suppress(FileNotFoundError):  # 0: wait for the conversion, so that none comes twice
            (folder / "in_allow_async_readout").write_text("0")
        (folder / "buffer/length").write_text(str(_LENGTH))
        (folder / "buffer/enable").write_text("1")
        fd = os.open(Path(dev_root) / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        cure = {
            errno.EBUSY: "end the other program that captures from it",
            errno.EACCES: f"$ sudo chmod -R a+rw {folder} /dev/{name}",
        }.get(error.errno or 0, "see what the kernel says: $ dmesg | tail")
        raise BackendUnavailableError(BACKEND, f"{error.filename or folder}: {error.strerror}", cure) from error
    try:
        return _IioSource(folder, fd, layout, clock, virtual=virtual)
    except BaseException:
        os.close(fd)
        raise
