"""Why AMD GPUs cannot be measured on a machine, and the exact cure.

Facts: docs/backends/amdsmi.md; the device nodes are those that ROCm's installation guide names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

from pmtpy.backends.amdsmi import discover
from pmtpy.backends.amdsmi._device import BACKEND, DRIVER_NOT_LOADED, NO_PERMISSION, Fault, Library, find_module
from pmtpy.backends.machine import IN_A_GUEST, Machine, load_module, may_use, no_sysfs, remake_nodes, why_denied
from pmtpy.errors import BackendUnavailableError, Finding, MissingPackageError, Obstacle, Verdict

_VENDOR = 0x1002
_CLASSES = (0x03, 0x12)  # PCI classes: display, processing accelerator
_RUN = "$ docker run --device /dev/kfd --device /dev/dri --group-add video --group-add render IMAGE COMMAND"
_INSTALL = "install the library: $ sudo apt install amd-smi-lib"


def diagnose(
    device: str | None,
    *,
    machine: Machine,
    library: ModuleType | None = None,
) -> tuple[Finding, ...]:
    """Say which GPUs can be measured and by what way, or what keeps them."""
    found = discover(library=library, sysfs_root=machine.sysfs)
    gpus = machine.pci(_VENDOR, *_CLASSES)
    try:
        Library(find_module(library)).start()
    except (BackendUnavailableError, Fault) as error:
        if not gpus and not found.devices:
            reason = f"no AMD GPU is on the PCI bus; {error}".splitlines()[0]
            return no_sysfs(BACKEND, machine) or (Finding(BACKEND, "", Verdict.ABSENT, reason, Obstacle.HARDWARE),)
        drivers = {gpu.driver for gpu in gpus}
        here = ", ".join(gpu.address for gpu in gpus) or "GPU " + ", ".join(found.devices)
        return (_without_library(machine, here, drivers, error, usable=bool(found.devices)),)
    if found.devices:
        wanted = found.devices if device is None else (device,)
        works = "GPU {} answers through AMD SMI"
        return tuple(found.of(d) or Finding(BACKEND, d, Verdict.WORKS, works.format(d)) for d in wanted)
    if not gpus:
        reason = f"no AMD GPU is on the PCI bus; {found.reason}"
        return no_sysfs(BACKEND, machine) or (Finding(BACKEND, "", Verdict.ABSENT, reason, Obstacle.HARDWARE),)
    denied = _denied(machine)
    if denied is not None:
        return (denied,)
    cure = (found.remedy,) if found.remedy else ()
    return (Finding(BACKEND, "", Verdict.BROKEN, found.reason, Obstacle.DRIVER, cure),)


def _without_library(
    machine: Machine, here: str, drivers: set[str], error: BackendUnavailableError | Fault, *, usable: bool
) -> Finding:
    why = error.reason if isinstance(error, BackendUnavailableError) else str(error)
    verdict = Verdict.LIMITED if usable else Verdict.BROKEN
    reason = f"{here}: {why}"
    if usable:
        reason += "; the files of the kernel's driver are read instead, which have no energy counter"
    code = error.code if isinstance(error, Fault) else None
    if code is None:
        if isinstance(error, MissingPackageError):
            return replace(error.finding, verdict=verdict, found=reason)
        remedy = error.remedy if isinstance(error, BackendUnavailableError) else ""
        return Finding(BACKEND, "", verdict, reason, Obstacle.LIBRARY, (remedy, _INSTALL))
    if drivers == {"vfio-pci"}:
        return Finding(BACKEND, "", verdict, f"{here}: its driver is vfio-pci", Obstacle.DRIVER, (IN_A_GUEST,))
    if code == DRIVER_NOT_LOADED or not drivers & {"amdgpu"}:
        steps = (*load_module("amdgpu", machine), "if that fails, see why: $ sudo dmesg | grep amdgpu")
        return Finding(BACKEND, "", verdict, reason, Obstacle.KERNEL_MODULE, steps)
    denied = _denied(machine)
    if denied is not None:
        return denied
    obstacle = Obstacle.PERMISSION if code == NO_PERMISSION else Obstacle.DRIVER
    return Finding(BACKEND, "", verdict, reason, obstacle, ("see why: $ sudo dmesg | grep amdgpu",))


def _denied(machine: Machine) -> Finding | None:
    """Look at the device nodes: missing in a container, or closed to this user."""
    nodes = [machine.at("/dev/kfd"), *sorted(machine.at("/dev/dri").glob("renderD*"))]
    present = [n for n in nodes if n.exists()]
    if not present:
        reason = "the driver has a GPU, but its device nodes /dev/kfd and /dev/dri are missing"
        if machine.in_container:
            return Finding(BACKEND, "", Verdict.BROKEN, f"{reason} in this container", Obstacle.CONTAINER, (_RUN,))
        return Finding(BACKEND, "", Verdict.BROKEN, reason, Obstacle.DRIVER, remake_nodes("kfd", "drm"))
    closed: Path | None = next((n for n in present if not may_use(n, write=True)), None)
    if closed is None:
        return None
    obstacle, cure = why_denied(closed)
    return Finding(BACKEND, "", Verdict.BROKEN, f"{closed} is closed to this user", obstacle, cure)
