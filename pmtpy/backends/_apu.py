"""Tells AMD's APUs from cards: the power of an APU is that of the whole package, its processor included.

Shared by the backends that read the driver ``amdgpu``. Facts: ``kgd_pp_interface.h`` of Linux (the table behind the
file ``gpu_metrics`` begins with its size, two bytes, and its format: 1 for cards, 2 and 3 for APUs).
"""

from __future__ import annotations

from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.backends._sysfs import content_of, entries, optional_number

_APU_FORMATS = frozenset({2, 3})
_FORMAT_AT = 2
NOTE = "its power includes the processor in the same package"
UNPLACED = "its power includes a processor, but its socket is not known (no NUMA node in sysfs), so it is in no total"


def is_apu(device: Path) -> bool:
    """Whether a device of the driver ``amdgpu`` shares its package with the processor, as far as the driver tells.

    The file is read whole and once, as reading it again from the start gave zeros on one APU.
    """
    try:
        table = content_of(device / "gpu_metrics")
    except OSError as error:
        if of_a_handler(error):
            raise
        return False
    return len(table) > _FORMAT_AT and table[_FORMAT_AT] in _APU_FORMATS


def socket_of(device: Path, root: Path) -> str:
    """Domain of the socket that a PCI device sits in; empty where that is not known.

    By its NUMA node; a kernel without such nodes has one processor, or it cannot be told which.
    """
    node = optional_number(device / "numa_node")
    if node is not None and node >= 0:
        return f"host/socket{node}"
    cpus = entries(root / "devices/system/cpu").paths
    packages = {optional_number(cpu / "topology/physical_package_id") for cpu in cpus} - {None}
    return f"host/socket{packages.pop()}" if len(packages) == 1 else ""
