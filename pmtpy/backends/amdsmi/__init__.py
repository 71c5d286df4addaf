"""AMD GPUs through AMD SMI: energy accumulator, socket power as it is named, temperatures and clocks.

Where ROCm's library cannot be used the files of the kernel's driver are read instead, and the identity says so. It must
never take a sentinel for a power, an average for a momentary value, or one die's silence for zero watts.

Facts: docs/backends/amdsmi.md; the wrapper ``amdsmi``, releases 5.7 to 7.0.2; Linux
``Documentation/gpu/amdgpu/thermal.rst``; reports of users: amdsmi 22, 38, 115, 174, rocm_smi_lib 180, hpcfund 21, the
check of Zeus at start. An APU is told by the format (2 or 3) of the driver's gpu_metrics. Library and driver cache
the metrics for about 1 ms each.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pmtpy.backends import _apu, _sysfs
from pmtpy.backends.amdsmi import _hwmon as hwmon
from pmtpy.backends.amdsmi._channels import Registers, find
from pmtpy.backends.amdsmi._device import BACKEND, NO_PERMISSION, Fault, Library, find_module, unavailable
from pmtpy.backends.amdsmi._selection import Gpu, Stock, describe, handles, reporters, select, take_stock
from pmtpy.backends.amdsmi._source import SmiSource
from pmtpy.core.channel import Identity
from pmtpy.core.clock import Clock
from pmtpy.core.source import Discovery, Source
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, TargetError, Verdict

if TYPE_CHECKING:
    from pmtpy.backends.machine import Machine

__all__ = ["discover", "open_source"]

_BOTH_DIES = re.compile(r"MI250", re.IGNORECASE)
_WITH_PROCESSOR = re.compile(r"MI300A", re.IGNORECASE)


def discover(
    device: str | None = None,
    *,
    machine: Machine | None = None,
    library: ModuleType | None = None,
    sysfs_root: str | os.PathLike[str] | None = None,
) -> Discovery:
    """List the GPUs by the numbers that HIP gives them, or say why there are none.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        from pmtpy.backends.amdsmi._diagnosis import diagnose

        return Discovery(findings=diagnose(device, machine=machine, library=library))
    try:
        smi = _start(library)
        stock = _stock(smi)
        if stock.shown:
            return _discovered(stock)
        select(None, stock)
    except Fault as fault:
        error = unavailable("cannot list the GPUs", fault)
    except BackendUnavailableError as caught:
        error = caught
    else:
        return Discovery()
    found = take_stock([c.gpu for c in hwmon.cards(_sysfs.sysfs_root(sysfs_root))], os.environ)
    if found.shown:
        return _discovered(found)
    return Discovery((), (error.finding,))


def _discovered(stock: Stock) -> Discovery:
    broken = [
        Finding(BACKEND, str(i), Verdict.BROKEN, gpu.fault, Obstacle.DRIVER, ("$ sudo dmesg | grep amdgpu",))
        for i, gpu in enumerate(stock.shown)
        if gpu.fault
    ]
    return Discovery(tuple(str(i) for i in range(len(stock.shown))), tuple(broken))


def open_source(
    device: str | None,
    *,
    clock: Clock,
    library: ModuleType | None = None,
    total: str | None = None,
    sysfs_root: str | os.PathLike[str] | None = None,
) -> Source:
    """Open one GPU.

    Parameters
    ----------
    device : str or None
        Number as HIP counts (None: 0), PCI address, start of a UUID, or part of the model's name.
    clock : Clock
        The host's clock.
    library : module or None
        The vendor's module ``amdsmi``; None imports it.
    total : {"energy", "power"} or None
        What makes the total. None: the accumulator where there is one, else power. With ``"power"`` the accumulator is
        not read at all.
    sysfs_root : path or None
        Root of sysfs, for the driver's own files.

    Raises BackendUnavailableError: neither the library nor the driver's files, or no reading on this device: with the
    cure.
    Raises TargetError: unknown option, or a device that names no GPU or several.
    """
    if total not in {None, "energy", "power"}:
        msg = f"amdsmi: total={total!r}: it is made of 'energy' or 'power'"
        raise TargetError(msg)
    root = _sysfs.sysfs_root(sysfs_root)
    try:
        smi = _start(library)
        note = smi.check_versions()
    except BackendUnavailableError as error:
        return _without_library(device, clock, total, root, error)
    try:
        return _open(device, clock, smi, total, root=root, note=note)
    except Fault as fault:
        raise unavailable(f"cannot open GPU {device or '0'}", fault) from fault


def _start(module: ModuleType | None) -> Library:
    smi = Library(find_module(module))
    try:
        smi.start()
    except Fault as fault:
        raise unavailable("cannot start the library", fault) from fault
    return smi


def _stock(smi: Library) -> Stock:
    return take_stock([describe(smi, pci, handle) for pci, handle in handles(smi).items()], os.environ)


def _open(device: str | None, clock: Clock, smi: Library, total: str | None, *, root: Path, note: str) -> Source:
    stock = _stock(smi)
    gpu, notes = select(device, stock)
    measured, registers, more = _measured(smi, gpu, stock, total, root)
    if total == "energy" and not registers.energy:
        reason = f"{measured} has no energy accumulator; it has: {', '.join(c.name for c in registers.channels)}"
        raise BackendUnavailableError(BACKEND, reason, "leave the option total out")
    said = [*notes, *filter(None, (note,)), *more, *hwmon.unstated_means(registers.channels)]
    if total is None and not registers.energy:
        said.append(f"no energy accumulator: the total is {registers.channels[0].name}, integrated")
    version = smi.details("amdsmi_get_lib_version")
    number = ".".join(str(version[k]) for k in ("major", "minor", "release") if k in version)
    identity = Identity(
        BACKEND,
        measured.name or "AMD GPU",
        measured.uuid or measured.pci,
        number,
        notes=tuple(said),
        serial_is_place=not measured.uuid,
    )
    return SmiSource(clock, smi, measured, identity, registers)


def _measured(
    smi: Library, gpu: Gpu, stock: Stock, total: str | None, root: Path
) -> tuple[Gpu, Registers, tuple[str, ...]]:
    """Find the device that reports for ``gpu``: itself, or the whole of which it is a partition or a second die."""
    found = handles(smi)
    for one in reporters(gpu, stock.gpus):
        domain, more = _domain(one, root)
        registers = find(smi, found[one.pci], domain, energy=total != "power")
        if registers is None:
            continue
        if one is not gpu:
            shared = f"{gpu.pci} has no power of its own: {one.pci} of the same card reports for both, shared"
            return one, registers, (*more, shared)
        if _BOTH_DIES.search(one.name):
            more = (*more, "both dies of this card are in its readings")
        return one, registers, more
    try:
        smi.ask("amdsmi_get_power_info", found[gpu.pci])
    except Fault as fault:
        if fault.code == NO_PERMISSION:
            raise
    reason = f"{gpu} reports neither power nor energy"
    cure = "a partition or a second die is measured at its parent; a guest has its sensors on the host"
    raise BackendUnavailableError(BACKEND, reason, cure)


def _domain(gpu: Gpu, root: Path) -> tuple[str, tuple[str, ...]]:
    """Return the physical part that a device measures; an APU is the socket of its processor, too."""
    device = root / "bus/pci/devices" / gpu.pci
    if not (_WITH_PROCESSOR.search(gpu.name) or _apu.is_apu(device)):
        return f"gpu/{gpu.pci}", ()
    socket = _apu.socket_of(device, root)
    return socket, (_apu.NOTE if socket else _apu.UNPLACED,)


def _without_library(
    device: str | None, clock: Clock, total: str | None, root: Path, error: BackendUnavailableError
) -> Source:
    """Read the driver's own files, or raise what kept the library from being used."""
    cards = hwmon.cards(root)
    if not cards:
        raise error
    if total == "energy":
        reason = f"{error.reason}; and the driver's files have no energy counter"
        raise BackendUnavailableError(BACKEND, reason, error.remedy) from error
    gpu, notes = select(device, take_stock([c.gpu for c in cards], os.environ))
    card = next(c for c in cards if c.gpu == gpu)
    domain, more = _domain(gpu, root)
    return hwmon.open_card(card, domain, clock, error.reason, (*notes, *more))
