"""Why RAPL does not work on a machine, and the exact cure.

Facts: ``drivers/powercap/intel_rapl_msr.c`` (one module for Intel and AMD) and, for the masked tree, the default list
of masked paths of the container engines, in which ``/sys/devices/virtual/powercap`` is since CVE-2020-8694.
"""

from __future__ import annotations

import threading

from pmtpy.backends.machine import HOST_SYSFS, Machine, load_module, no_sysfs
from pmtpy.backends.rapl import discover
from pmtpy.backends.rapl._channels import IN_TOTAL
from pmtpy.backends.rapl._device import Zone, scan
from pmtpy.core.presentation import amount
from pmtpy.errors import Finding, Obstacle, Verdict

_LOOKS, _BETWEEN_NS = 5, 10_000_000  # counters move each millisecond
_RULES = ("60-pmtpy-powercap.rules", "pmtpy-powercap.conf", "60-pmtpy-perf.conf")


def diagnose(device: str | None, *, machine: Machine) -> tuple[Finding, ...]:  # noqa: ARG001  (there is one device)
    """Say whether the counters of this host can be read, and what keeps them."""
    return no_sysfs("rapl", machine) or _look(machine)


def _look(machine: Machine) -> tuple[Finding, ...]:
    found = discover(sysfs_root=machine.sysfs)
    tree = scan(machine.sysfs)
    denied = [zone.energy_file for zone in tree.zones if zone.denied]
    if denied:
        verdict = Verdict.LIMITED if found.devices else Verdict.BROKEN
        reason = f"no permission to read {len(denied)} of {amount(len(tree.zones), 'counter')}, among them {denied[0]}"
        if found.devices:
            reason += "; perf events or the other counters are used instead"
        temporary = f"$ sudo chmod a+r {machine.sysfs}/class/powercap/intel-rapl*/energy_uj"
        said = "until the next boot; other users' programs can be watched through these counters (CVE-2020-8694):"
        return (Finding("rapl", "", verdict, reason, Obstacle.PERMISSION, (said, temporary), _RULES),)
    dead = [zone for zone in _resting(machine) if zone.part.kind in IN_TOTAL] if found.devices else []
    if dead:
        names = ", ".join(zone.part.name for zone in dead)
        reason = f"the counter of {names} does not move: it answers, and counts nothing"
        asked = ",".join(zone.part.name for zone in dead)
        cure = (
            "update the firmware, or take the machine's own meter (hwmon, cray) instead;",
            f"or leave out what is dead, so that the total is that of the rest: -o without={asked}",
        )
        return (Finding("rapl", "", Verdict.BROKEN, reason, Obstacle.DEAD, cure),)
    if found.devices:
        return (Finding("rapl", "", Verdict.WORKS, "the energy counters of the processors can be read"),)
    if tree.dangling:
        return (Finding("rapl", "", Verdict.BROKEN, found.reason, Obstacle.CONTAINER, HOST_SYSFS),)
    if tree.zones or tree.notes:
        return (Finding("rapl", "", Verdict.BROKEN, found.reason, Obstacle.FIRMWARE, (found.remedy,)),)
    return (_without_zones(machine, found.reason),)


def _resting(machine: Machine) -> list[Zone]:
    """Return the zones whose counters show the same for 50 refresh periods."""
    before = {zone.part: zone.energy_uj for zone in scan(machine.sysfs).zones}
    still: list[Zone] = []
    for _ in range(_LOOKS):
        machine.clock.wait_until(machine.clock.now_ns() + _BETWEEN_NS, threading.Event())
        now = scan(machine.sysfs).zones
        still = [z for z in now if z.energy_uj is not None and z.energy_uj == before.get(z.part, -1)]
        if not still:
            break
    return still


def _without_zones(machine: Machine, reason: str) -> Finding:
    if not machine.is_x86:
        reason += "; the processors are not x86, and RAPL is of x86 processors only"
        return Finding("rapl", "", Verdict.ABSENT, reason, Obstacle.HARDWARE)
    if machine.in_wsl:
        reason += "; this is Linux inside Windows (WSL), whose kernel has no RAPL: measure under Linux itself"
        return Finding("rapl", "", Verdict.ABSENT, reason, Obstacle.HARDWARE)
    if machine.is_virtual:
        reason += "; this is a virtual machine, and the hypervisor passes no RAPL on: measure on its host"
        return Finding("rapl", "", Verdict.ABSENT, reason, Obstacle.HARDWARE)
    cure = load_module("intel_rapl_msr", machine)
    return Finding("rapl", "", Verdict.BROKEN, reason, Obstacle.KERNEL_MODULE, cure)
