"""Whether a serial port can be used on a machine, and the exact cure; shared by every instrument behind one."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from pmtpy.backends._serial.port import holders
from pmtpy.backends.machine import Machine, may_use, remake_nodes, why_denied
from pmtpy.errors import Finding, Obstacle, Verdict

_MEMORY = 1  # the major number of /dev/null and its like (Documentation/admin-guide/devices.txt)
_FEW_USERS = 3  # of a port; where there are more, it is none, and ending them all is no advice


def port_finding(
    backend: str, path: Path, machine: Machine, *, on_usb: bool = False, rules: tuple[str, ...] = ()
) -> Finding:
    """Say whether a port can be used; ``on_usb``: its device is known to be there, ``rules`` let users open it."""
    name = str(path)
    if not path.exists():
        return _without_node(backend, name, machine, on_usb=on_usb)
    if not may_use(path, write=True):
        obstacle, cure = why_denied(path)
        reason = f"no permission to read and write {name}"
        return Finding(backend, name, Verdict.BROKEN, reason, obstacle, cure, rules)
    if not path.is_char_device() or os.major(path.stat().st_rdev) == _MEMORY:
        cure = ("name the port of the board, as $ pmtpy list shows it",)
        return Finding(backend, name, Verdict.BROKEN, f"{name} is not a serial port", Obstacle.SETTING, cure)
    users = holders(name)
    if users or _locked(path):
        who = ", ".join(users) or "a program that cannot be seen from here (another user, a container)"
        numbers = [user.split()[1] for user in users if user.startswith("pid ")]
        few = 0 < len(numbers) <= _FEW_USERS
        cure = ("wait until it has ended, or end it:", f"$ kill {' '.join(numbers)}") if few else ()
        modem = rules if "ModemManager" in who else ()
        return Finding(backend, name, Verdict.BROKEN, f"{name} is in use by {who}", Obstacle.BUSY, cure, modem)
    return Finding(backend, name, Verdict.WORKS, f"{name} is there and free")


def _without_node(backend: str, name: str, machine: Machine, *, on_usb: bool) -> Finding:
    reason = f"a board is on the USB, but its port {name} does not exist" if on_usb else f"{name} does not exist"
    if machine.in_container:
        cure: tuple[str, ...] = (
            "give the port of the host to the container:",
            f"$ docker run --device {name} IMAGE COMMAND",
        )
        return Finding(backend, name, Verdict.BROKEN, f"{reason} in this container", Obstacle.CONTAINER, cure)
    if on_usb:
        return Finding(backend, name, Verdict.BROKEN, reason, Obstacle.DRIVER, remake_nodes("tty"))
    cure = ("connect the board, and see under which name it appears: $ pmtpy list",)
    return Finding(backend, name, Verdict.BROKEN, reason, Obstacle.HARDWARE, cure)


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
