"""POWER9's On-Chip Controller: its sensors in main memory, as the kernel exports them in one binary file.

Energy is sum over count of samples, times the time between the OCC's own stamps; never the sum divided by the nominal
sample rate, which is half the truth for two of the rails. It must never deliver a reading that it could not verify:
what is torn, stale, contradictory or of another sensor is no row.

Facts: see :mod:`~pmtpy.backends.occ.layout`, :mod:`~pmtpy.backends.occ._progress` and ``docs/backends/occ.md``.
Firmware: github.com/open-power/occ, ``sensor_main_memory.c``, ``amec_sensors_power.c``; github.com/open-power/skiboot,
``hw/occ-sensor.c``; the specification is in github.com/open-power/docs, branch P9.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from pmtpy._handlers import of_a_handler
from pmtpy.backends._sysfs import entries, optional_number
from pmtpy.backends._sysfs import sysfs_root as root_of
from pmtpy.backends.occ._channels import CONVERTER, GPUS, PARTS, SUMMED, SYSTEM
from pmtpy.backends.occ._device import BlockReader, Export
from pmtpy.backends.occ._source import OccSource, Wanted
from pmtpy.backends.occ.layout import BLOCK_BYTES, HEADER_BYTES, POWER, Entry, Header, Record, Table
from pmtpy.core.clock import Clock
from pmtpy.core.presentation import amount
from pmtpy.core.source import Discovery, Source
from pmtpy.errors import BackendUnavailableError, ProtocolError, ReadError, TargetError

if TYPE_CHECKING:
    from pmtpy.backends.machine import Machine

FILE_VARIABLE = "PMT_OCC_FILE"
_EXPORT = "firmware/opal/exports/occ_inband_sensors"
_PERMISSION = (
    "the file is made for root alone at each boot. Until the next one:"
    " sudo chmod a+r /sys/firmware/opal/exports/occ_inband_sensors; for good: the tmpfiles line for occ that"
    " 'pmtpy doctor --rules' prints. Everybody may read the slower hwmon sensors: hwmon:ibmpowernv"
)
_ABSENT = (
    "it exists on POWER9 machines that run Linux without a hypervisor (PowerNV), with firmware of 2017 or later;"
    " elsewhere use another backend, or name a copy of the file with file= or PMT_OCC_FILE"
)
_NOT_YET = "wait until the OCC has started (seconds after boot or a firmware update) and try again"


def exported_file(file: str | PathLike[str] | None, sysfs_root: str | PathLike[str] | None) -> str:
    """Return the path of the exported file: as given, else ``PMT_OCC_FILE``, else its place below ``sysfs_root``."""
    return os.fspath(file or "") or os.environ.get(FILE_VARIABLE) or str(root_of(sysfs_root) / _EXPORT)


def _open(path: str) -> Export:
    try:
        export = Export(path)
    except OSError as error:
        if of_a_handler(error):
            raise
        remedy = {errno.EACCES: _PERMISSION, errno.EPERM: _PERMISSION}.get(error.errno or 0, _ABSENT)
        raise BackendUnavailableError("occ", f"{path}: {error.strerror}", remedy) from error
    if not export.blocks():
        size = Path(path).stat().st_size
        export.close()
        reason = f"{path}: {amount(size, 'byte is', 'bytes are')} less than one block of {BLOCK_BYTES}"
        raise BackendUnavailableError("occ", reason, _ABSENT)
    return export


def discover(
    device: str | None = None,
    *,
    machine: Machine | None = None,
    file: str | PathLike[str] | None = None,
    sysfs_root: str | PathLike[str] | None = None,
) -> Discovery:
    """Say whether the exported file is there, may be read, and has a usable block.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        from pmtpy.backends.occ._diagnosis import diagnose

        return Discovery(findings=diagnose(device, machine=machine))
    try:
        export = _open(exported_file(file, sysfs_root))
    except BackendUnavailableError as error:
        return Discovery((), (error.finding,))
    except OSError as error:
        if of_a_handler(error):
            raise
        return Discovery.none("occ", str(error), _ABSENT)
    try:
        faults = [_fault(export, index) for index in range(export.blocks())]
    finally:
        export.close()
    if "" in faults:
        return Discovery(("",))
    reason = f"{export.path}: block 0: {faults[0]}"
    return Discovery.none("occ", reason, _NOT_YET)


def _fault(export: Export, index: int) -> str:
    try:
        Header.parse(export.read(index * BLOCK_BYTES, HEADER_BYTES))
    except (ProtocolError, OSError) as error:
        if of_a_handler(error):
            raise
        return str(error)
    return ""


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    file: str | PathLike[str] | None = None,
    sysfs_root: str | PathLike[str] | None = None,
    sensors: str | Sequence[str] = (),
    whole: bool = False,
) -> Source:
    """Open the sensors of all OCCs, or of one.

    Parameters
    ----------
    device : str or None
        Number of a block (one for each processor chip); None or empty: all of them.
    clock : Clock
        The host's clock.
    file : path, optional
        The exported file. Default: environment ``PMT_OCC_FILE``, else ``firmware/opal/exports/occ_inband_sensors``
        below ``sysfs_root``.
    sysfs_root : path, optional
        Default: environment ``PMT_SYSFS_ROOT``, else ``/sys``.
    sensors : str or sequence of str
        Names of other sensors to deliver beside all powers (commas between them in a string), such as
        ``TEMPNEST,FREQA``; one channel for each block that has it.
    whole : bool
        Copy the whole block and check its table at every reading, as the specification has it, rather than to
        read only the records needed at the places found when opening.

    Raises BackendUnavailableError: no file, no permission, or nothing usable in it.
    Raises TargetError: no such block, or no such sensor.
    """
    path = exported_file(file, sysfs_root)
    export = _open(path)
    try:
        root = root_of(sysfs_root)
        chips = _chips(root, export.blocks()) if path == str(root / _EXPORT) else _guessed(export.blocks())
        return _assemble(export, device, _Wish(_names(sensors), chips, clock, whole))
    except ReadError as error:
        export.close()
        raise BackendUnavailableError("occ", str(error), _NOT_YET) from error
    except BaseException:
        export.close()
        raise


def _guessed(blocks: int) -> list[str]:
    """Number the chips of a file of which the machine is not known: the first is 0 everywhere, others are a guess."""
    return [f"{i}{'?' if i else ''}" for i in range(blocks)]


def _chips(root: Path, blocks: int) -> list[str]:
    """Return the hardware's number of the chip of each block; a guess where the machine does not name as many.

    Blocks are in the order of these numbers, which are what the kernel calls physical packages on this architecture
    (``arch/powerpc/include/asm/topology.h``).
    """
    cpus = entries(root / "devices/system/cpu").paths
    told = {optional_number(cpu / "topology/physical_package_id") for cpu in cpus}
    known = sorted(chip for chip in told if chip is not None and chip >= 0)
    return [str(chip) for chip in known] if len(known) == blocks else _guessed(blocks)


def _names(sensors: str | Sequence[str]) -> tuple[str, ...]:
    listed = sensors.split(",") if isinstance(sensors, str) else sensors
    return tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))


def _indices(device: str | None, blocks: int) -> list[int]:
    if not device:
        return list(range(blocks))
    if device.isdecimal() and int(device) < blocks:
        return [int(device)]
    msg = f"occ has no device {device!r}; blocks are numbered 0 to {blocks - 1}, and no device means all of them"
    raise TargetError(msg)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the user asks for: names of other sensors and how to read; and the number of the chip of each block."""

    extra: tuple[str, ...]
    chips: Sequence[str]
    clock: Clock
    whole: bool


@dataclass(slots=True)
class _Found:
    """What the blocks hold, as far as it can be used."""

    wanted: list[Wanted]
    notes: list[str]
    missing: set[str]


def _assemble(export: Export, device: str | None, wish: _Wish) -> Source:
    extra = wish.extra
    found = _Found([], [], set(extra))
    rest = export.odd_bytes()
    if rest:
        found.notes.append(
            f"{export.path}: {amount(rest, 'byte')} at its end make no whole block: a processor may be missing"
        )
    listed: dict[int, set[str]] = {}
    for index in _indices(device, export.blocks()):
        try:
            table = Table.parse(export.read(index * BLOCK_BYTES, BLOCK_BYTES))
        except ProtocolError as error:
            found.notes.append(f"block {index} is left out: {error}")
            continue
        listed[index] = set(table.entries)
        found.notes += [f"block {index}: {fault}" for fault in table.faults]
        _look_up(found, export, index, table, wish)
    known = set().union(*listed.values())
    usable = {entry.name for wanted in found.wanted for entry in wanted.entries}
    if SYSTEM not in usable:
        found.notes += [*([] if device else _of_parts(usable)), *_gaps(listed)]
    unknown = [name for name in extra if name not in known]
    if unknown and known:
        near = [match for name in unknown for match in difflib.get_close_matches(name, known)]
        msg = f"occ has no sensor {', '.join(unknown)}; {'near ones are' if near else 'it has'}: "
        raise TargetError(msg + ", ".join(sorted(near or known)))
    if known and found.missing:
        msg = f"occ: {', '.join(sorted(found.missing))}: the firmware lists it but has never sampled it"
        raise TargetError(msg)
    if not any(entry.kind == POWER for wanted in found.wanted for entry in wanted.entries):
        reason = f"{export.path}: no power is measured" + "".join(f"; {note}" for note in found.notes)
        raise BackendUnavailableError("occ", reason, _NOT_YET)
    return OccSource(export, found.wanted, tuple(found.notes), wish.clock)


def _of_parts(usable: set[str]) -> list[str]:
    """Say of what the total of all blocks is made where nothing measures the whole; nothing where there is no total."""
    parts = [name for name in SUMMED if name in usable]
    if not parts:
        return []
    made = f"the total is the sum of {', '.join(parts)}, and what else the machine uses is not in it"
    return [f"no block has a usable {SYSTEM}, the power of the whole machine: {made}"]


def _gaps(listed: dict[int, set[str]]) -> list[str]:
    """Say which parts of a socket one block lists and another does not: their sum is short of them."""
    anywhere = set().union(*listed.values())
    lacks = ((index, [part for part in PARTS if part in anywhere - names]) for index, names in listed.items())
    return [
        f"block {index} lists no usable {' and no '.join(parts)}, which others do: the total is without that"
        for index, parts in lacks
        if parts
    ]


def _look_up(found: _Found, export: Export, index: int, table: Table, wish: _Wish) -> None:
    """Add those sensors of a block that are alive."""
    listed = [e for e in table.entries.values() if e.kind == POWER or e.name in wish.extra]
    if not listed:
        found.notes.append(f"block {index} is left out: its table lists no power")
        return
    reader = BlockReader(export, index, [e.name for e in listed], wish.clock, whole=wish.whole)
    others = {e.name: a.gsid for e, a, b in zip(listed, *reader.both(), strict=True) if _of_another(e, a, b)}
    if others:
        listed = [e for e in listed if e.name not in others]
        ids = ", ".join(f"{name} ({gsid})" for name, gsid in others.items())
        found.notes.append(f"block {index}: left out, because their records carry the ids of other sensors: {ids}")
        if not listed:
            return
        reader = BlockReader(export, index, [e.name for e in listed], wish.clock, whole=wish.whole)
    pairs = zip(listed, reader.read().records(), strict=True)
    # A machine that draws nothing cannot run this, and a GPU that draws nothing is not there: without a power converter
    # the firmware writes zeros for both.
    alive = [e for e, record in pairs if record.written and (e.name not in {SYSTEM, GPUS} or record.total)]
    # Channels of the converter that nothing is connected to are nothing to warn of.
    dead = [e.name for e in listed if e not in alive and not e.name.startswith(CONVERTER)]
    if dead:
        found.notes.append(f"block {index}: listed but never sampled, or always 0: {', '.join(dead)}")
    found.missing -= {e.name for e in alive}
    alive.sort(key=_powers_first)
    if alive:
        reader = BlockReader(export, index, [e.name for e in alive], wish.clock, whole=wish.whole)
        found.wanted.append(Wanted(reader, tuple(alive), table.chunks, wish.chips[index]))


def _of_another(entry: Entry, *records: Record) -> bool:
    """Whether the records of both buffers belong to another sensor than the table says; one may just be written."""
    return all(record.gsid not in {0, entry.gsid} for record in records)


def _powers_first(entry: Entry) -> tuple[bool, bool]:
    return entry.kind != POWER, entry.name != SYSTEM
