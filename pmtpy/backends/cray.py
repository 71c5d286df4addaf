"""Cray and HPE EX nodes: the counters that the node controller keeps in ``/sys/cray/pm_counters``.

The controller accumulates energy itself and refreshes all files together, ten times a second. Energy is taken from its
energy files, never from its powers; a set of files counts only if the freshness counter stood still meanwhile.

Facts: HPE Cray System Management documentation, "Power monitoring counters"; ``man 5 pm_counters``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.backends._assumed_gain import METER_U
from pmtpy.backends._device_clock import DeviceClock
from pmtpy.backends._sysfs import Registers, entries, optional_number, sysfs_root, text_of, why
from pmtpy.backends.machine import HOST_SYSFS, IN_A_CONTAINER, Machine, may_use, no_sysfs
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block, Layout
from pmtpy.core.source import Discovery, PolledSource, Timestamps, Traits
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, ReadError, TargetError, Verdict

_DIRECTORY = Path("cray/pm_counters")
_MARKS = ("/etc/opt/cray", "/opt/cray")  # what the maker's software leaves on a node
_FILE = re.compile(r"(?:((?:cpu|memory|accel)\d*)_)?(energy|power)|(cpu\d*)_temp")
_CONTENT = re.compile(r"(-?\d{1,19}) (J|W|C)(?: (\d{1,19}) us)?")
_UNITS = {"energy": "J", "power": "W", "temp": "C"}

_SCAN_HZ = 10.0
_ATTEMPTS = 4  # reading all files takes well under a millisecond, so a refresh in between is rare and two do not happen
_STALE_S = 30.0  # ten times a second, so after this the controller has stopped
# Refreshes: the files are at most one old, so a stamp that is nearer to the wall clock than this is Unix time. One that
# is further off is of a clock of its own: rows that bear it would stand beside the work that they measure.
_STAMP_SLACK = 3.0
# What a part that is there always uses, well below what idle ones draw; an accelerator may be absent, or switched off.
_LEAST_WATTS = {"node": 10.0, "cpu": 1.0, "memory": 0.5}
_MAX_WATTS = 20_000.0  # a node; the largest blades feed about 6 kW to one
_REMEDY = f"these files exist on nodes of HPE Cray XC and EX systems only; {IN_A_CONTAINER}"
_NODE_NOTE = "the node's energy includes processors, memory and accelerators: add no other sensor of the node to it"
_REFERENCE = "HPE CSM: Power monitoring counters (pm_counters)"


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    part: str  # "node", "cpu", "memory", "accel0"
    kind: str  # "energy", "power" or "temp"


def parse(text: str, unit: str) -> tuple[int, int | None]:
    """Parse ``451 W`` or ``451 W 1723456789012345 us``: the value, and the stamp in microseconds where there is one.

    Raises ValueError: it is anything else, or in another unit.
    """
    match = _CONTENT.fullmatch(text)
    if match is None or match[2] != unit or (unit == "J" and match[1].startswith("-")):
        msg = f"{text!r} is not a value in {unit}"
        raise ValueError(msg)
    return int(match[1]), None if match[3] is None else int(match[3])


def discover(
    device: str | None = None,  # noqa: ARG001  (there is one)
    *,
    machine: Machine | None = None,
    sysfs_root: str | PathLike[str] | None = None,
) -> Discovery:
    """Tell whether this is a node with such counters.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        return Discovery(findings=no_sysfs("cray", machine) or _look(machine))
    try:
        _readable(_directory(sysfs_root), power=False)
    except BackendUnavailableError as error:
        return Discovery((), (error.finding,))
    return Discovery(("",))


def _look(machine: Machine) -> tuple[Finding, ...]:
    found = discover(sysfs_root=machine.sysfs)
    if found.devices:
        return (Finding("cray", "", Verdict.WORKS, "the node's counters can be read"),)
    directory = machine.sysfs / _DIRECTORY
    closed = [p for p in entries(directory).paths if _FILE.fullmatch(p.name) and not may_use(p)]
    if directory.is_dir() and (closed or not may_use(directory)):
        cure: tuple[str, ...] = ("until the next boot:", f"$ sudo chmod -R a+rX {directory}")
        return (Finding("cray", "", Verdict.BROKEN, found.reason, Obstacle.PERMISSION, cure),)
    if directory.is_dir():
        cure = ("ask the administrators: the node controller has not delivered readings",)
        return (Finding("cray", "", Verdict.BROKEN, found.reason, Obstacle.FIRMWARE, cure),)
    if not any(machine.at(mark).exists() for mark in _MARKS):
        return (Finding("cray", "", Verdict.ABSENT, f"{found.reason}; this is no HPE Cray node", Obstacle.HARDWARE),)
    if machine.in_container:
        return (Finding("cray", "", Verdict.BROKEN, found.reason, Obstacle.CONTAINER, HOST_SYSFS),)
    cure = ("ask the administrators: the node's image lacks the kernel module of the counters (pm_counters)",)
    return (Finding("cray", "", Verdict.BROKEN, found.reason, Obstacle.KERNEL_MODULE, cure),)


def open_source(
    device: str | None,
    *,
    clock: Clock,
    sysfs_root: str | PathLike[str] | None = None,
    power: bool = False,
) -> _CraySource:
    """Open the counters of this node.

    Parameters
    ----------
    device : None or ""
        There is one device: the node; its parts are channels.
    sysfs_root : path or None
        Where sysfs is mounted; default ``PMT_SYSFS_ROOT``, else ``/sys``.
    power : bool
        Show the momentary powers beside the energies. They resolve a trace better (1 W instead of 1 J in 0.1 s) but
        have to be polled in the background.

    Raises TargetError: a device was named.
    Raises BackendUnavailableError: no such counters, or none that can be read.
    """
    if device:
        msg = f"cray has one device, the node, and not {device!r}: write just cray; its parts are channels"
        raise TargetError(msg)
    directory = _directory(sysfs_root)
    files, notes = _readable(directory, power=power)
    return _CraySource(directory, files, notes, clock)


def _directory(root: str | PathLike[str] | None) -> Path:
    directory = sysfs_root(root) / _DIRECTORY
    if not directory.is_dir():
        raise BackendUnavailableError("cray", f"{directory} does not exist", _REMEDY)
    return directory


def _readable(directory: Path, *, power: bool) -> tuple[list[_File], tuple[str, ...]]:
    """Find the files that hold what their name says; powers only where asked for or where there is no energy."""
    files: dict[tuple[str, str], _File] = {}
    notes = []
    for path in entries(directory).paths:
        match = _FILE.fullmatch(path.name)
        if match is None:
            continue
        file = _File(path, match[3] or match[1] or "node", match[2] or "temp")
        try:
            parse(text_of(path), _UNITS[file.kind])
        except OSError as error:
            if of_a_handler(error):
                raise
            notes.append(f"{path.name} is left out: {why(error)}")
        except ValueError as error:
            if of_a_handler(error):
                raise
            notes.append(f"{path.name} is left out: {error}")
        else:
            files[file.part, file.kind] = file
    if ("node", "energy") not in files and ("node", "power") not in files:
        found = "; ".join(notes) or "neither energy nor power of the node is there"
        raise BackendUnavailableError("cray", f"{directory}: {found}", _REMEDY)
    if ("node", "energy") not in files:
        notes.append("the node's energy is integrated from its power, because there is no energy file to read")
    chosen = [f for f in files.values() if f.kind != "power" or power or (f.part, "energy") not in files]
    return sorted(chosen, key=_order), (_NODE_NOTE, *notes)


def _order(file: _File) -> tuple[bool, bool, str, bool]:
    """Node first, then parts, energies before powers, temperatures last."""
    return file.kind == "temp", file.part != "node", file.part, file.kind == "power"


def _channel(file: _File, refresh_s: float) -> Channel:
    if file.kind == "temp":
        return Channel(f"{file.part}.temperature", Quantity.TEMPERATURE, refresh_s=refresh_s, reference=_REFERENCE)
    energy = file.kind == "energy"
    return Channel(
        file.part if energy else f"{file.part}.power",
        Quantity.ENERGY if energy else Quantity.POWER,
        domain="host" if file.part == "node" else f"host/{file.part}",
        label=file.path.name,
        refresh_s=refresh_s,
        gain_u=METER_U,
        max_watts=_MAX_WATTS,
        least_watts=_LEAST_WATTS.get(file.part.rstrip("0123456789"), 0.0) if energy else 0.0,
        reference=_REFERENCE,
    )


def _opened(
    values: Sequence[Path], guards: Sequence[Path], alone: Collection[int]
) -> tuple[Registers, Registers | None]:
    """Open the files of the values, and those that tell whether they belong together; all of them or none."""
    opened = Registers(lambda: values, alone=alone)
    try:
        return opened, Registers(lambda: guards) if guards else None
    except BaseException:
        opened.close()
        raise


class _CraySource(PolledSource):
    """The counters of one node, read as a set that belongs together."""

    stale_s = _STALE_S

    def __init__(self, directory: Path, files: Sequence[_File], notes: tuple[str, ...], clock: Clock) -> None:
        super().__init__(clock)
        hz = optional_number(directory / "raw_scan_hz")
        refresh_s = 1.0 / hz if hz is not None and 0 < hz <= 1000 else 1.0 / _SCAN_HZ
        self.traits = Traits(interval_s=refresh_s)
        self.channels = tuple(_channel(f, refresh_s) for f in files)
        self._units = [_UNITS[f.kind] for f in files]
        guards = [
            directory / name for name in ("startup", "freshness") if optional_number(directory / name) is not None
        ]
        self._counted = directory / "freshness" in guards
        self._restarts = directory / "startup" in guards
        if len(guards) < 2:
            notes = (*notes, "freshness or startup is missing, so a torn reading or a restart may go unnoticed")
        self._seen: Sequence[float] = ()
        self._unix_ns: int | None = None
        self._is_unix = False
        self._device = DeviceClock()
        try:
            self._beside = Layout(self.channels).beside_total
            self._values, self._guard = _opened([f.path for f in files], guards, self._beside)
        except OSError as error:
            if of_a_handler(error):
                raise
            raise BackendUnavailableError("cray", f"{error.filename}: {why(error)}", _REMEDY) from error
        version = optional_number(directory / "version")
        self.identity = Identity("cray", "node", version="" if version is None else str(version), notes=notes)

    def poll(self) -> Block | None:
        """Read one set of files; None if the controller has not refreshed them since the last one."""
        guard: Sequence[float] = ()
        for _ in range(_ATTEMPTS):
            guard = self._guard.numbers() if self._guard is not None else ()
            if self._counted and guard == self._seen:
                return None
            texts = self._values.texts()
            if self._guard is None or self._guard.numbers() == guard:
                break
        else:
            msg = f"the files were refreshed during each of {_ATTEMPTS} attempts to read them together"
            raise ReadError(msg)
        counts, stamp_us = self._parse(texts)
        fresh = self._restarts and bool(self._seen) and guard[:1] != self._seen[:1]
        self._seen = guard
        now = self._clock.now_ns()
        t_ns = max(min(self._on_host_clock(stamp_us, now), now), self._last_t_ns + 1)
        self._last_t_ns = t_ns
        self._rows_bear(Timestamps.HOST_READ if stamp_us is None else Timestamps.DEVICE_UPDATE)
        return Block.row(t_ns, counts, fresh=fresh)

    def _parse(self, texts: Sequence[str]) -> tuple[list[float], int | None]:
        counts: list[float] = []
        stamp = None
        unread = dict(self._values.unread)
        for i, (text, unit, channel) in enumerate(zip(texts, self._units, self.channels, strict=True)):
            try:
                count, stamped = parse(text, unit)
            except ValueError as error:
                if i in self._beside:
                    counts.append(math.nan)
                    unread.setdefault(i, str(error))
                    continue
                msg = f"{channel.name}: {error}"
                raise ReadError(msg) from error
            counts.append(count)
            stamp = stamped if stamp is None else stamp
        self._unread = unread
        return counts, stamp

    def _on_host_clock(self, stamp_us: int | None, now_ns: int) -> int:
        """Turn the controller's stamp into host time: Unix time if it looks so at first, else a clock of its own."""
        if stamp_us is None:
            return now_ns
        if self._unix_ns is None:
            anchor = self._clock.anchor()
            self._unix_ns = anchor.monotonic_ns - anchor.unix_ns
            off_ns = abs(now_ns - (stamp_us * 1000 + self._unix_ns))
            self._is_unix = off_ns <= _STAMP_SLACK * self.traits.interval_s * NS_PER_S
        return stamp_us * 1000 + self._unix_ns if self._is_unix else self._device.place(stamp_us * 1000, now_ns)

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._values.close()
        if self._guard is not None:
            self._guard.close()
