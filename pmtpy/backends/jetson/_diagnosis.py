"""Why the rails of a Jetson cannot be read on a machine, and the exact cure. Facts: docs/backends/jetson.md."""

from __future__ import annotations

from pathlib import Path

from pmtpy.backends._sysfs import entries, optional_text
from pmtpy.backends.jetson import discover
from pmtpy.backends.jetson._device import rails
from pmtpy.backends.machine import HOST_SYSFS, Machine, load_module, may_use, no_sysfs
from pmtpy.core.presentation import amount
from pmtpy.errors import Finding, Obstacle, Verdict


def diagnose(device: str | None, *, machine: Machine) -> tuple[Finding, ...]:  # noqa: ARG001  (there is one device)
    """Say whether this is a Jetson and whether its monitors can be read."""
    wrong = no_sysfs("jetson", machine)
    if wrong:
        return wrong
    found = discover(sysfs_root=machine.sysfs)
    if found.devices:
        closed = [path for rail in rails(machine.sysfs) for path in (rail.volts, rail.amps) if _closed(path)]
        if not closed:
            return (Finding("jetson", "", Verdict.WORKS, "the module's power monitors can be read"),)
        reason = f"no permission to read {amount(len(closed), 'file')}, among them {closed[0]}"
        folders = sorted({str(path.parent) for path in closed})
        cure = ("until the next boot:", *(f"$ sudo chmod -R a+r {folder}" for folder in folders))
        return (Finding("jetson", "", Verdict.BROKEN, reason, Obstacle.PERMISSION, cure),)
    model = optional_text(machine.sysfs / "firmware/devicetree/base/model") or machine.text("/proc/device-tree/model")
    tegra = "jetson" in model.lower() or machine.at("/etc/nv_tegra_release").exists()
    if not tegra:
        what = f"this is {model!r}" if model else "the device tree names no Jetson"
        return (Finding("jetson", "", Verdict.ABSENT, f"{found.reason}; {what}", Obstacle.HARDWARE),)
    if machine.in_container or entries(machine.sysfs / "class/hwmon").dangling:
        return (Finding("jetson", "", Verdict.BROKEN, f"{model}: {found.reason}", Obstacle.CONTAINER, HOST_SYSFS),)
    reason = f"this is {model!r}, but {found.reason}"
    cure = load_module("ina3221", machine)
    return (Finding("jetson", "", Verdict.BROKEN, reason, Obstacle.KERNEL_MODULE, cure),)


def _closed(path: Path) -> bool:
    return path.exists() and not may_use(path)
