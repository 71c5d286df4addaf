"""List, open, lock and configure serial ports, for the backend that is named.

A new port comes with echo, line editing and CR/LF translation switched on, each of which damages binary data, so every
such flag is cleared here by name. The lock is the ``flock`` that PowerSensor3's own tools take, so that theirs and ours
exclude each other; unlike theirs it has a time limit and says who holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.errors import BackendUnavailableError

_LOCK_RETRY_NS = 20_000_000
# Unix98 pseudo-terminals: Linux Documentation/admin-guide/devices.txt, major numbers 136 to 143.
_PSEUDO_TERMINALS = range(136, 144)
PERMISSION_REMEDY = (
    "install the udev rule that `pmtpy doctor --rules` prints, or: sudo usermod -a -G dialout $USER (and log in again)"
)


@dataclass(frozen=True, slots=True)
class FoundPort:
    """A serial port of this machine: path, USB serial number, what it calls itself, USB vendor and product."""

    path: str
    serial: str = ""
    description: str = ""
    usb: tuple[int, int] = (0, 0)


def list_ports() -> list[FoundPort]:
    """List all serial ports by path."""
    from serial.tools import list_ports as serial_ports

    ports = [
        FoundPort(p.device, p.serial_number or "", p.description or "", (p.vid or 0, p.pid or 0))
        for p in serial_ports.comports()
    ]
    return sorted(ports, key=lambda p: p.path)


def serial_of(path: str) -> str:
    """Return the USB serial number of the board at a port; empty where the USB knows none."""
    found = _at(path)
    return found.serial if found else ""


def usb_of(path: str) -> tuple[int, int]:
    """Return USB vendor and product of what is at a port; zeros where the USB knows it not."""
    found = _at(path)
    return found.usb if found else (0, 0)


def _at(path: str) -> FoundPort | None:
    real = os.path.realpath(path)
    return next((p for p in list_ports() if os.path.realpath(p.path) == real), None)


def is_pseudo_terminal(path: str) -> bool:
    """Whether a program, and not a serial device of this machine, is at the other end of a port."""
    try:
        return os.major(os.stat(path).st_rdev) in _PSEUDO_TERMINALS  # noqa: PTH116  (a device path, not a file)
    except OSError as error:
        if of_a_handler(error):
            raise
        return False


def open_port(backend: str, path: str, *, clock: Clock, timeout_s: float = 2.0, baud: int = 0) -> int:
    """Open, lock and configure a port; return its descriptor, non-blocking and not inherited by other programs.

    ``baud`` is the rate of the line; 0 leaves it, for USB devices to which it means nothing.

    Raises BackendUnavailableError: no such port, no permission, not a terminal, or in use by another program for longer
    than ``timeout_s``.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if of_a_handler(error):
            raise
        raise _cannot_open(backend, path, error) from error
    fd = above_standard(fd)
    try:
        _lock(backend, fd, path, clock, timeout_s)
        _make_raw(fd)
        if baud:
            set_baud(fd, baud)
    except (termios.error, ValueError) as error:
        os.close(fd)
        raise BackendUnavailableError(
            backend, f"{path} is not a serial port: {error.args[-1]}", "name the port of the device, e.g. /dev/ttyACM0"
        ) from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def above_standard(fd: int) -> int:
    """Move a descriptor out of 0 to 2, which it gets where stdin is closed; a child has its own there."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def _cannot_open(backend: str, path: str, error: OSError) -> BackendUnavailableError:
    remedy = {
        errno.ENOENT: f"connect the device, or name another port; pmtpy list shows them, {backend}:virtual needs none",
        errno.EACCES: PERMISSION_REMEDY,
        errno.EBUSY: "end the program that uses the port",
    }.get(error.errno or 0, "check that the path is the serial port of the device")
    return BackendUnavailableError(backend, f"cannot open {path}: {error.strerror}", remedy)


def _lock(backend: str, fd: int, path: str, clock: Clock, timeout_s: float) -> None:
    deadline_ns = clock.now_ns() + round(timeout_s * NS_PER_S)
    never = threading.Event()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if of_a_handler(error):
                raise
            if error.errno != errno.EWOULDBLOCK:
                raise _cannot_open(backend, path, error) from error
        else:
            return
        if clock.now_ns() >= deadline_ns:
            users = ", ".join(holders(path)) or "a program that cannot be seen from here (another user, a container)"
            raise BackendUnavailableError(
                backend, f"{path} is in use by {users}", f"end it, or wait; the limit was {timeout_s:g} s"
            )
        clock.wait_until(clock.now_ns() + _LOCK_RETRY_NS, never)


def _make_raw(fd: int) -> None:
    """Switch off everything that could change a byte on its way: cfmakeraw, flag by flag, and empty the input."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = termios.tcgetattr(fd)
    iflag &= ~(
        termios.IGNBRK
        | termios.BRKINT
        | termios.PARMRK
        | termios.INPCK
        | termios.ISTRIP
        | termios.INLCR
        | termios.IGNCR
        | termios.ICRNL
        | termios.IXON
        | termios.IXOFF
        | termios.IXANY
    )
    oflag &= ~(termios.OPOST | termios.ONLCR)
    lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    cflag &= ~(termios.CSIZE | termios.PARENB | termios.CSTOPB | termios.CRTSCTS)
    cflag |= termios.CS8 | termios.CREAD | termios.CLOCAL
    cc[termios.VMIN] = 1
    cc[termios.VTIME] = 0
    termios.tcsetattr(fd, termios.TCSANOW, [iflag, oflag, cflag, lflag, ispeed, ospeed, cc])
    termios.tcflush(fd, termios.TCIFLUSH)


def set_baud(fd: int, baud: int) -> None:
    """Set the rate of the line in both directions, and throw away what came at another.

    Raises ValueError: this system does not know the rate.
    """
    speed = getattr(termios, f"B{baud}", None)
    if speed is None:
        msg = f"this system has no rate of {baud} baud"
        raise ValueError(msg)
    attributes = termios.tcgetattr(fd)
    attributes[4] = attributes[5] = speed
    termios.tcsetattr(fd, termios.TCSANOW, attributes)
    termios.tcflush(fd, termios.TCIOFLUSH)


def holders(path: str) -> list[str]:
    """Name the programs that have the port open, as far as this user may see them: ``pid 17 (psrun)``."""
    try:
        status = Path(path).stat()
    except OSError:
        return []
    if not stat.S_ISCHR(status.st_mode):
        return []  # a file or a folder is no device: its number is that of every other file
    device = status.st_rdev
    return [
        f"pid {process.name} ({_program(process)})"
        for process in _processes()
        if process.name != str(os.getpid()) and _has_open(process, device)
    ] + [f"this process (pid {os.getpid()})" for _ in range(_has_open(Path("/proc/self"), device) > 1)]


def _processes() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (p for p in Path("/proc").iterdir() if p.name.isdigit())


def _program(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "unknown program"


def _has_open(process: Path, device: int) -> int:
    """How many descriptors of a process refer to the device."""
    count = 0
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                count += link.stat().st_rdev == device
    return count
