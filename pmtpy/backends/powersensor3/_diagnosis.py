"""Why a PowerSensor3 cannot be used on a machine, and the exact cure.

Facts: Linux ``drivers/usb/class/cdc-acm.c`` (the module that makes ``ttyACM``), STM32 application note AN2606 (the
boot loader's USB identity), PowerSensor3 ``docs/INSTALLATION_DEVICE.md``; for WSL, usbipd-win's own documentation.
"""

from __future__ import annotations

from pathlib import Path

from pmtpy.backends._serial.diagnosis import port_finding
from pmtpy.backends._sysfs import entries, optional_text
from pmtpy.backends.machine import Machine, load_module, no_sysfs
from pmtpy.backends.powersensor3._port import BACKEND, USB_PRODUCT, USB_VENDOR
from pmtpy.errors import Finding, Obstacle, Verdict

_RULES = ("60-pmtpy-powersensor3.rules",)
_BOOT_LOADER = 0xDF11
_FROM_WINDOWS = (
    "if a board is on this computer, hand it over in a PowerShell of Windows (usbipd-win; BUSID is in its list):",
    "usbipd list; usbipd bind --busid BUSID; usbipd attach --wsl --busid BUSID",
)


def diagnose(device: str | None, *, machine: Machine) -> tuple[Finding, ...]:
    """Say of each board, or of the port that is named, whether it can be used."""
    if device is not None:
        return (port_finding(BACKEND, Path(device), machine, rules=_RULES),)
    usb = _usb(machine)
    findings = []
    for name, product in usb.items():
        ports = _ports(machine, name)
        if product == _BOOT_LOADER:
            findings.append(_in_boot_loader(name))
        elif not ports:
            findings.append(
                Finding(
                    BACKEND,
                    "",
                    Verdict.BROKEN,
                    f"a board is on the USB ({name}), but no driver has made a serial port for it",
                    Obstacle.KERNEL_MODULE,
                    load_module("cdc_acm", machine),
                )
            )
        findings += [
            port_finding(BACKEND, machine.at(f"/dev/{port}"), machine, on_usb=True, rules=_RULES) for port in ports
        ]
    if findings:
        return tuple(findings)
    reason = f"nothing on the USB has the identity {USB_VENDOR:04x}:{USB_PRODUCT:04x} of a board"
    if machine.in_wsl:
        reason += "; WSL sees a USB device only after Windows has handed it over"
        return (Finding(BACKEND, "", Verdict.ABSENT, reason, Obstacle.HARDWARE, _FROM_WINDOWS),)
    return no_sysfs(BACKEND, machine) or (Finding(BACKEND, "", Verdict.ABSENT, reason, Obstacle.HARDWARE),)


def _usb(machine: Machine) -> dict[str, int]:
    """Boards on the USB, by the name of the kernel; the value is the product number."""
    found = {}
    for path in entries(machine.sysfs / "bus/usb/devices").paths:
        try:
            vendor = int(optional_text(path / "idVendor") or "", 16)
            product = int(optional_text(path / "idProduct") or "", 16)
        except ValueError:
            continue
        if vendor == USB_VENDOR and product in {USB_PRODUCT, _BOOT_LOADER}:
            found[path.name] = product
    return found


def _ports(machine: Machine, usb: str) -> list[str]:
    """Names of the serial ports of a USB device: folders in its interfaces."""
    interfaces = [p for p in entries(machine.sysfs / "bus/usb/devices").paths if p.name.startswith(f"{usb}:")]
    return [tty.name for interface in interfaces for tty in entries(interface / "tty").paths]


def _in_boot_loader(usb: str) -> Finding:
    cure = (
        "a board that was sent there returns after being unplugged for a moment; if it does not, write its firmware:",
        f"$ dfu-util -d {USB_VENDOR:04x}:{_BOOT_LOADER:04x} -a 0 -s 0x08000000:leave -D FIRMWARE.bin",
    )
    reason = f"a board ({usb}) is in its boot loader"
    return Finding(BACKEND, "", Verdict.BROKEN, reason, Obstacle.FIRMWARE, cure)
