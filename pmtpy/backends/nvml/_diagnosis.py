"""Why NVIDIA GPUs cannot be measured on a machine, and the exact cure.

Facts: :mod:`._errors`; that a GPU is there at all is told by the PCI bus or the driver's own folder in ``/proc``, since
NVML says "not found" for a machine without driver and for one without GPU alike.
"""

from __future__ import annotations

import os
from types import ModuleType

from pmtpy.backends.machine import IN_A_GUEST, Machine, load_module, may_use, no_sysfs, why_denied
from pmtpy.backends.nvml import _errors as codes
from pmtpy.backends.nvml import discover
from pmtpy.backends.nvml._device import Library, find_module
from pmtpy.backends.nvml._errors import BACKEND, Fault, Surroundings
from pmtpy.backends.nvml._selection import VISIBLE, take_stock
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, Verdict

_VENDOR = 0x10DE
_DISPLAY = 0x03  # class of PCI devices
# On WSL the PCI bus shows no GPU, and NVML comes from Windows: NVIDIA, CUDA on WSL User Guide 12.2, section 3.
_WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
_WHY = "the kernel's log says why the driver has not taken it: $ sudo dmesg | grep -i nvrm"
_RUN = "$ docker run --gpus all IMAGE COMMAND"

_OBSTACLES = {
    codes.NO_PERMISSION: Obstacle.PERMISSION,
    codes.DRIVER_NOT_LOADED: Obstacle.KERNEL_MODULE,
    codes.LIBRARY_NOT_FOUND: Obstacle.LIBRARY,
    codes.FUNCTION_NOT_FOUND: Obstacle.DRIVER,
    codes.GPU_IS_LOST: Obstacle.FIRMWARE,
    codes.RESET_REQUIRED: Obstacle.FIRMWARE,
    codes.OPERATING_SYSTEM: Obstacle.PERMISSION,
    codes.VERSION_MISMATCH: Obstacle.DRIVER,
    codes.GPU_NOT_FOUND: Obstacle.DRIVER,  # the bus has one
    codes.UNKNOWN: Obstacle.DRIVER,  # on a host; a container's lost device nodes are told apart before
}


def diagnose(
    device: str | None,
    *,
    machine: Machine,
    library: ModuleType | None = None,
) -> tuple[Finding, ...]:
    """Say which GPUs can be measured, or what keeps them: package, library, driver, device nodes."""
    found = discover(library=library)
    if found.devices:
        wanted = found.devices if device is None else (device,)
        works = "GPU {} answers through NVML"
        return tuple(found.of(d) or Finding(BACKEND, d, Verdict.WORKS, works.format(d)) for d in wanted)
    gpus = machine.pci(_VENDOR, _DISPLAY)
    loaded = machine.at("/proc/driver/nvidia/version").exists()
    under_wsl = machine.at(_WSL_LIBRARY).exists()
    if not gpus and not loaded and not under_wsl:
        reason = f"no NVIDIA GPU is on the PCI bus; {found.reason}"
        return no_sysfs(BACKEND, machine) or (Finding(BACKEND, "", Verdict.ABSENT, reason, Obstacle.HARDWARE),)
    here = ", ".join(gpu.address for gpu in gpus) or ("a GPU of Windows" if under_wsl else "a loaded driver")
    others = sorted({gpu.driver for gpu in gpus} - {"", "nvidia"})
    if others and not loaded:
        return (_other_driver(here, others),)
    try:
        fault = _fault(Library(find_module(library)))
    except BackendUnavailableError as error:
        cure: tuple[str, ...] = (f"$ {error.remedy}",)
        return (Finding(BACKEND, "", Verdict.BROKEN, f"{here}: {error.reason}", Obstacle.EXTRA, cure),)
    if fault is None:
        return (_none_shown(here, found.reason),)
    return (_under_wsl(here, fault) if under_wsl else _of_fault(machine, here, fault),)


def _under_wsl(here: str, fault: Fault) -> Finding:
    cure = (
        "the driver is the one of Windows; a driver installed inside WSL hides it. Let its library be found first:",
        f"$ export LD_LIBRARY_PATH={os.path.dirname(_WSL_LIBRARY)}",  # noqa: PTH120  (a path of another machine)
    )
    return Finding(BACKEND, "", Verdict.BROKEN, f"{here}: {fault}", Obstacle.LIBRARY, cure)


def _none_shown(here: str, why: str) -> Finding:
    if VISIBLE in os.environ:
        cure = (f"$ unset {VISIBLE}",)
        return Finding(BACKEND, "", Verdict.BROKEN, f"{here}: {why}", Obstacle.SETTING, cure)
    reason = f"{here}: NVML starts, but the driver has taken no GPU"
    return Finding(BACKEND, "", Verdict.BROKEN, reason, Obstacle.DRIVER, (_WHY,))


def _other_driver(here: str, others: list[str]) -> Finding:
    reason = f"{here}: in the hands of the driver {', '.join(others)} instead of nvidia"
    if "vfio-pci" in others:
        cure: tuple[str, ...] = (IN_A_GUEST,)
    else:
        cure = ("install NVIDIA's driver, which replaces it, and reboot; on Debian and Ubuntu:",)
        cure += ("$ sudo apt install nvidia-driver-570",) if "nouveau" in others else ()
    return Finding(BACKEND, "", Verdict.BROKEN, reason, Obstacle.DRIVER, cure)


def _fault(library: Library) -> Fault | None:
    """Start NVML and list the GPUs; return what failed."""
    try:
        library.start()
        stock = take_stock(library)
    except Fault as fault:
        return fault
    finally:
        library.stop()
    return stock.fault


def _of_fault(machine: Machine, here: str, fault: Fault) -> Finding:
    reason, where = f"{here}: {fault}", codes.look_around(machine.root)
    blind = {codes.LIBRARY_NOT_FOUND, codes.OPERATING_SYSTEM, codes.UNKNOWN}
    if where is Surroundings.HOST_WITHOUT_NODES and fault.code != codes.VERSION_MISMATCH:
        reason += "; the driver is loaded, but its device nodes /dev/nvidia* are missing"
        return Finding(BACKEND, "", Verdict.BROKEN, reason, Obstacle.DRIVER, (f"$ {codes.MAKE_NODES}",))
    if where is Surroundings.CONTAINER_WITHOUT_NODES or (where is Surroundings.CONTAINER and fault.code in blind):
        cure = ("start the container with access to the GPU (Apptainer: --nv):", _RUN)
        return Finding(BACKEND, "", Verdict.BROKEN, reason, Obstacle.CONTAINER, cure)
    nodes = [n for n in sorted(machine.at("/dev").glob("nvidia[0-9c]*")) if not may_use(n, write=True)]
    if nodes and fault.code in {codes.NO_PERMISSION, codes.OPERATING_SYSTEM}:
        obstacle, steps = why_denied(nodes[0])
        return Finding(BACKEND, "", Verdict.BROKEN, f"{reason}; {nodes[0]} is closed to this user", obstacle, steps)
    obstacle = _OBSTACLES.get(fault.code, Obstacle.DRIVER)
    steps = {
        codes.DRIVER_NOT_LOADED: (*load_module("nvidia", machine), _WHY),
        codes.GPU_NOT_FOUND: (_WHY,),
        codes.UNKNOWN: (_WHY,),
        codes.VERSION_MISMATCH: (codes.remedy(fault.code), "$ sudo reboot"),
    }.get(fault.code, (codes.remedy(fault.code),))
    return Finding(BACKEND, "", Verdict.BROKEN, reason, obstacle, tuple(filter(None, steps)))
