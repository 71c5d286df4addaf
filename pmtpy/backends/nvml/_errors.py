"""NVML's return codes: what each means, whether it may pass, and what cures it. A table, no behaviour of its own.

No vendor exception leaves the backend: :class:`Fault` carries the code inside, and becomes one of pmtpy's errors at
the edge. Codes and names: NVML API reference, ``nvmlReturn_t``; the cures are those that worked in public reports.
"""

from __future__ import annotations

import enum
from pathlib import Path

from pmtpy.backends.machine import Machine
from pmtpy.errors import BackendUnavailableError

BACKEND = "nvml"

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
VERSION_MISMATCH = 18
GPU_NOT_FOUND = 28
UNKNOWN = 999
UNEXPECTED = -1  # ours: the binding gives something else than its reference says

# Starting NVML anew helps: somebody else ended it, or a container's device nodes came back under a running process.
RESTART = frozenset({UNINITIALIZED, UNKNOWN})
# The device is dead for this process, whatever is tried.
DEAD = frozenset({DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH, GPU_NOT_FOUND})
# The GPU is there, and closed to this user: CUDA does not number it.
CLOSED = frozenset({NO_PERMISSION, OPERATING_SYSTEM})
# The next reading may work: timeout, in use, no data, not ready.
PASSING = frozenset({10, 19, 21, 27})

_MEANING = {
    -1: "the binding pynvml gives an answer of another kind than NVML's reference says",
    1: "NVML is not initialised",
    2: "invalid argument",
    3: "not supported by this GPU or driver",
    4: "permission denied",
    6: "not found",
    7: "buffer too small",
    9: "the NVIDIA driver is not loaded",
    10: "timeout",
    11: "the GPU's interrupts do not arrive",
    12: "the driver's library libnvidia-ml.so.1 is not found",
    13: "this driver is too old for the call",
    14: "the GPU's information memory is corrupted",
    15: "the GPU has fallen off the bus",
    16: "the GPU must be reset before it can be used",
    17: "the operating system refused (a control group or a security rule)",
    18: "the driver's library and its kernel module have different versions",
    19: "the GPU is in use",
    20: "out of memory",
    21: "no data yet",
    23: "out of resources",
    25: "the driver does not know this version of the call",
    26: "the call no longer exists",
    27: "the GPU is not ready yet",
    28: "no NVIDIA GPU is installed",
    29: "the GPU is in the wrong state",
    999: "an unknown error, as when a container has lost its device nodes",
}

_REMEDY = {
    4: "give the user access to the device nodes: ls -l /dev/nvidia*",
    9: "load the driver: sudo modprobe nvidia (and see: dmesg | grep -i nvrm)",
    12: "install NVIDIA's driver, whose package holds the library (Debian: libnvidia-ml1)",
    15: "see: dmesg | grep -i xid; reseat or reset the GPU, or reboot",
    16: "stop what uses the GPU, then: sudo nvidia-smi --gpu-reset -i INDEX",
    17: "see which rule refuses: ls -l /dev/nvidia*, and the device list of the control group",
    18: "reboot, or unload and load the kernel modules: the driver was upgraded while the old one was running",
    28: "lspci | grep -i nvidia shows whether the system sees a GPU",
    999: "restart the container; to keep device nodes over a reload of systemd, list them with --device",
}

MAKE_NODES = "sudo nvidia-modprobe -u -c 0"  # man 1 nvidia-modprobe: the module for CUDA, and the nodes of GPU 0
_CONTAINER = "start the container with access to the GPU: --gpus all (Docker), --device nvidia.com/gpu=all (CDI), --nv"


class Fault(Exception):  # noqa: N818  (internal: becomes one of pmtpy's errors at the edge)
    """A call to NVML failed with ``code``."""

    def __init__(self, call: str, code: int) -> None:
        self.call = call
        self.code = code
        super().__init__(f"{call}: {meaning(code)} (NVML error {code})")


class Surroundings(enum.Enum):
    """Where this process runs, as far as it decides about a cure."""

    HOST = "host"
    HOST_WITHOUT_NODES = "host without device nodes"
    CONTAINER = "container"
    CONTAINER_WITHOUT_NODES = "container without device nodes"


def look_around(root: Path = Path("/")) -> Surroundings:
    """Tell whether this is a container, and whether a loaded driver lacks its device nodes here.

    ``/proc/driver/nvidia`` is the host kernel's, so it shows a loaded driver inside a container, too.
    """
    loaded = (root / "proc/driver/nvidia/version").exists()
    inside = Machine(root).in_container
    if loaded and not (root / "dev/nvidiactl").exists():
        return Surroundings.CONTAINER_WITHOUT_NODES if inside else Surroundings.HOST_WITHOUT_NODES
    return Surroundings.CONTAINER if inside else Surroundings.HOST


def meaning(code: int) -> str:
    """Say in words what a return code means."""
    return _MEANING.get(code, "an error that NVML's reference does not list")


def remedy(code: int, where: Surroundings = Surroundings.HOST) -> str:
    """Say what to do about a return code here; empty where nothing helps."""
    blind = code in {DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, OPERATING_SYSTEM, UNKNOWN, NO_PERMISSION}
    if blind and where is Surroundings.CONTAINER_WITHOUT_NODES:
        return f"the driver is loaded, but its device nodes /dev/nvidia* are missing here: {_CONTAINER}"
    if blind and where is Surroundings.HOST_WITHOUT_NODES:
        return f"the driver is loaded, but its device nodes /dev/nvidia* are missing; to make them: {MAKE_NODES}"
    if where is Surroundings.CONTAINER and code in {DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND}:
        return f"{_CONTAINER}; on the host: {_REMEDY[code]}"
    return _REMEDY.get(code, "")


def unavailable(attempted: str, fault: Fault) -> BackendUnavailableError:
    """Make the error for a device that cannot be opened."""
    return BackendUnavailableError(BACKEND, f"{attempted}: {fault}", remedy(fault.code, look_around()))
