"""Why the OCC's sensors cannot be read on a machine, and the exact cure.

Facts: docs/backends/occ.md; skiboot exports the sensors since release 5.8, of 2017.
"""

from __future__ import annotations

import os
from pathlib import Path

from pmtpy.backends.machine import HOST_SYSFS, Machine, may_use, no_sysfs
from pmtpy.backends.occ import FILE_VARIABLE, discover, exported_file
from pmtpy.errors import Finding, Obstacle, Verdict


def diagnose(device: str | None, *, machine: Machine) -> tuple[Finding, ...]:  # noqa: ARG001  (all chips are in one file)
    """Say whether the exported file is there, may be read, and holds readings."""
    path = Path(exported_file(None, machine.sysfs))
    found = discover(file=path)
    if found.devices:
        return (Finding("occ", "", Verdict.WORKS, f"{path} can be read"),)
    if path.exists() and not may_use(path):
        cure: tuple[str, ...] = (
            "until the next boot:",
            f"$ sudo chmod a+r {path}",
            "or read the slower hwmon:ibmpowernv instead",
        )
        broken = Verdict.BROKEN
        return (
            Finding("occ", "", broken, f"{path}: permission denied", Obstacle.PERMISSION, cure, ("pmtpy-occ.conf",)),
        )
    if path.exists():
        return (Finding("occ", "", Verdict.BROKEN, found.reason, Obstacle.FIRMWARE, (found.remedy,)),)
    if FILE_VARIABLE in os.environ:
        cure = (f"name a file that exists, or: $ unset {FILE_VARIABLE}",)
        return (Finding("occ", "", Verdict.BROKEN, f"{found.reason} ({FILE_VARIABLE})", Obstacle.SETTING, cure),)
    if "POWER9" not in machine.text("/proc/cpuinfo"):
        reason = f"{found.reason}; the processors are not POWER9"
        return (Finding("occ", "", Verdict.ABSENT, reason, Obstacle.HARDWARE),)
    return no_sysfs("occ", machine) or (_without_file(machine, found.reason),)


def _without_file(machine: Machine, reason: str) -> Finding:
    if machine.in_container and not (machine.sysfs / "firmware/opal").exists():
        return Finding("occ", "", Verdict.BROKEN, f"{reason}; /sys/firmware is masked", Obstacle.CONTAINER, HOST_SYSFS)
    if not (machine.sysfs / "firmware/opal").exists():
        said = f"{reason}; this Linux runs under a hypervisor, which keeps the sensors: measure on a PowerNV machine"
        return Finding("occ", "", Verdict.ABSENT, said, Obstacle.HARDWARE)
    cure = ("update the machine's firmware: OPAL (skiboot) exports these sensors since 5.8, of 2017",)
    return Finding("occ", "", Verdict.BROKEN, reason, Obstacle.FIRMWARE, cure)
