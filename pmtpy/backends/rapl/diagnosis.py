"""Why RAPL does not work on a machine, and the exact cure.

Facts: ``drivers/powercap/intel_rapl_msr.c`` (one module for Intel and AMD) and, for the masked tree, the default list
of masked paths of the container engines, in which ``/sys/devices/virtual/powercap`` is since CVE-2020-8694.
"""

from __future__ import annotations

from pmtpy.backends.machine import HOST_SYSFS, Machine, persistent_module
from pmtpy.backends.rapl import discover
from pmtpy.backends.rapl.zones import scan
from pmtpy.errors import Finding, Obstacle, Verdict

_RULES = ("60-pmtpy-powercap.rules", "pmtpy-powercap.conf", "60-pmtpy-perf.conf")


def diagnose(device: str | None, *, machine: Machine) -> tuple[Finding, ...]:  # noqa: ARG001  (there is one device)
    """Say whether the counters of this host can be read, and what keeps them."""
    found = discover(sysfs_root=machine.sysfs)
    tree = scan(machine.sysfs)
    denied = [zone.energy_file for zone in tree.zones if zone.denied]
    if denied:
        verdict = Verdict.LIMITED if found.devices else Verdict.BROKEN
        reason = f"no permission to read {len(denied)} of {len(tree.zones)} counters, among them {denied[0]}"
        if found.devices:
            reason += "; perf events or the other counters are used instead"
        temporary = f"$ sudo chmod a+r {machine.sysfs}/class/powercap/intel-rapl*/energy_uj"
        said = "until the next boot; other users' programs can be watched through these counters (CVE-2020-8694):"
        return (Finding("rapl", "", verdict, reason, Obstacle.PERMISSION, (said, temporary), _RULES),)
    if found.devices:
        return (Finding("rapl", "", Verdict.WORKS, "the energy counters of the processors can be read"),)
    if tree.dangling:
        return (Finding("rapl", "", Verdict.BROKEN, found.reason, Obstacle.CONTAINER, HOST_SYSFS),)
    if tree.zones or tree.notes:
        return (Finding("rapl", "", Verdict.BROKEN, found.reason, Obstacle.FIRMWARE, (found.remedy,)),)
    return (_without_zones(machine, found.reason),)


def _without_zones(machine: Machine, reason: str) -> Finding:
    if not machine.is_x86:
        reason += "; the processors are not x86, and RAPL is of x86 processors only"
        return Finding("rapl", "", Verdict.ABSENT, reason, Obstacle.HARDWARE)
    if machine.is_virtual:
        reason += "; this is a virtual machine, and the hypervisor passes no RAPL on: measure on its host"
        return Finding("rapl", "", Verdict.ABSENT, reason, Obstacle.HARDWARE)
    cure = persistent_module("intel_rapl_msr")
    if machine.in_container:
        cure = ("on the host, since modules are the host's:", *cure)
    return Finding("rapl", "", Verdict.BROKEN, reason, Obstacle.KERNEL_MODULE, cure)
