"""Why a PowerSensor3 cannot be used on a machine, and the exact cure.

Facts: Linux ``drivers/usb/class/cdc-acm.c`` (the module that makes ``ttyACM``), STM32 application note AN2606 (the
boot loader's USB identity), PowerSensor3 ``docs/INSTALLATION_DEVICE.md``; for WSL, usbipd-win's own documentation.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from pmtpy.backends._serial.port import holders
from pmtpy.backends._sysfs import entries, optional_text
from pmtpy.backends.machine import Machine, load_module, may_use, no_sysfs, remake_nodes, why_denied
from pmtpy.backends.powersensor3.port import BACKEND, USB_PRODUCT, USB_VENDOR
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
        return (_port(Path(device), machine),)
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
        findings += [_port(machine.at(f"/dev/{port}"), machine, on_usb=True) for port in ports]
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


def _port(path: Path, machine: Machine, *, on_usb: bool = False) -> Finding:
    name = str(path)
    if not path.exists():
        return _without_node(name, machine, on_usb=on_usb)
    if not may_use(path, write=True):
        obstacle, cure = why_denied(path)
        reason = f"no permission to read and write {name}"
        return Finding(BACKEND, name, Verdict.BROKEN, reason, obstacle, cure, _RULES)
    if not path.is_char_device():
        cure = ("name the port of the board, as $ pmtpy list shows it",)
        return Finding(BACKEND, name, Verdict.BROKEN, f"{name} is not a serial port", Obstacle.SETTING, cure)
    users = holders(name)
    if users or _locked(path):
        who = ", ".join(users) or "a program that cannot be seen from here (another user, a container)"
        numbers = [user.split()[1] for user in users if user.startswith("pid ")]
        cure = ("wait until it has ended, or end it:", f"$ kill {' '.join(numbers)}") if numbers else ()
        modem = _RULES if "ModemManager" in who else ()
        return Finding(BACKEND, name, Verdict.BROKEN, f"{name} is in use by {who}", Obstacle.BUSY, cure, modem)
    return Finding(BACKEND, name, Verdict.WORKS, f"{name} is there and free")


def _without_node(name: str, machine: Machine, *, on_usb: bool) -> Finding:
    reason = f"a board is on the USB, but its port {name} does not exist" if on_usb else f"{name} does not exist"
    if machine.in_container:
        cure: tuple[str, ...] = (
            "give the port of the host to the container:",
            f"$ docker run --device {name} IMAGE COMMAND",
        )
        return Finding(BACKEND, name, Verdict.BROKEN, f"{reason} in this container", Obstacle.CONTAINER, cure)
    if on_usb:
        return Finding(BACKEND, name, Verdict.BROKEN, reason, Obstacle.DRIVER, remake_nodes("tty"))
    cure = ("connect the board, and see under which name it appears: $ pmtpy list",)
    return Finding(BACKEND, name, Verdict.BROKEN, reason, Obstacle.HARDWARE, cure)


def _locked(path: Path) -> bool:
    """Whether another program holds the lock of the port; looking at it disturbs no stream."""
    fd = -1
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
