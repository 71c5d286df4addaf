"""Why a hwmon chip that measures power cannot be read on a machine, and the exact cure.

Facts: Linux ``drivers/hwmon/{acpi_power_meter,ina2xx,ibmpowernv}.c``: what each binds to, and its module's name.
"""

from __future__ import annotations

from pathlib import Path

from pmtpy.backends._sysfs import entries, optional_text
from pmtpy.backends.hwmon import discover
from pmtpy.backends.hwmon._device import scan
from pmtpy.backends.machine import HOST_SYSFS, Machine, load_module, may_use, no_sysfs
from pmtpy.errors import Finding, Obstacle, Verdict

_ACPI_METER = "ACPI000D"
_SHUNT_MONITORS = ("ina219", "ina220", "ina226", "ina230", "ina231", "ina238", "ina260")


def diagnose(device: str | None, *, machine: Machine) -> tuple[Finding, ...]:
    """Say which chips can be read, which may not, and which wait for their driver."""
    wrong = no_sysfs("hwmon", machine)
    if wrong:
        return wrong
    found = discover(sysfs_root=machine.sysfs)
    chips, dangling = scan(machine.sysfs)
    findings = []
    if device is not None and not any(device in {c.device, c.name} for c in chips):
        there = f"there are: {', '.join(found.devices)}" if found.devices else found.reason
        return (Finding("hwmon", device, Verdict.ABSENT, f"no chip is called {device}; {there}", Obstacle.HARDWARE),)
    for name in found.devices if device is None else (device,):
        closed = [
            a.path for c in chips if name in {c.device, c.name} for a in c.attributes
            if a.kind in {"power", "energy"} and a.path.exists() and not may_use(a.path)
        ]  # fmt: skip
        findings.append(_chip(name, closed))
    findings += _waiting(machine)
    if findings:
        return tuple(findings)
    if dangling:
        return (Finding("hwmon", "", Verdict.BROKEN, found.reason, Obstacle.CONTAINER, HOST_SYSFS),)
    return (Finding("hwmon", "", Verdict.ABSENT, found.reason, Obstacle.HARDWARE),)


def _chip(name: str, closed: list[Path]) -> Finding:
    if not closed:
        return Finding("hwmon", name, Verdict.WORKS, f"the chip {name} measures power or energy")
    reason = f"no permission to read {', '.join(map(str, closed))}"
    cure = ("until the next boot:", *(f"$ sudo chmod a+r {path}" for path in closed))
    return Finding("hwmon", name, Verdict.BROKEN, reason, Obstacle.PERMISSION, cure)


def _waiting(machine: Machine) -> list[Finding]:
    """Devices that firmware or board describe and that no driver has taken."""
    missing: dict[str, str] = {}
    for path in entries(machine.sysfs / "bus/acpi/devices").paths:
        if path.name.startswith(_ACPI_METER) and not (path / "driver").exists():
            missing["acpi_power_meter"] = path.name
    for path in entries(machine.sysfs / "bus/i2c/devices").paths:
        if (optional_text(path / "name") or "") in _SHUNT_MONITORS and not (path / "driver").exists():
            missing["ina238" if optional_text(path / "name") == "ina238" else "ina2xx"] = path.name
    if (machine.sysfs / "firmware/opal").exists() and "ibmpowernv" not in {c.name for c in scan(machine.sysfs)[0]}:
        missing["ibmpowernv"] = "the OPAL firmware's sensors"
    return [
        Finding(
            "hwmon",
            "",
            Verdict.BROKEN,
            f"{where} measures power, but the driver {module} has not taken it",
            Obstacle.KERNEL_MODULE,
            load_module(module, machine),
        )
        for module, where in missing.items()
    ]
