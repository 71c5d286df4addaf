"""Find, open, lock and configure the serial port of a board.

USB CDC-ACM: speed means nothing, but a new ttyACM comes with echo, line editing and CR/LF translation switched on,
each of which damages binary data, so every such flag is cleared here by name. The lock is the ``flock`` that
PowerSensor3's own tools take, so that theirs and ours exclude each other; unlike theirs it has a time
limit and says who holds it.
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

from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.source import Discovery
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, Verdict

BACKEND = "powersensor3"
# STMicroelectronics virtual COM port, which the firmware leaves unchanged (PowerSensor3, docs/INSTALLATION_DEVICE.md).
USB_VENDOR, USB_PRODUCT = 0x0483, 0x5740
LOCK_RETRY_NS = 20_000_000
# Unix98 pseudo-terminals: Linux Documentation/admin-guide/devices.txt, major numbers 136 to 143.
_PSEUDO_TERMINALS = range(136, 144)
PERMISSION_REMEDY = (
    "install the udev rule that `pmtpy doctor --rules` prints, or: sudo usermod -a -G dialout $USER (and log in again)"
)


@dataclass(frozen=True, slots=True)
class FoundPort:
    """A serial port of this machine: path, USB serial number, and what it calls itself."""

    path: str
    serial: str = ""
    description: str = ""
    is_board: bool = False


def list_ports() -> list[FoundPort]:
    """List all serial ports, those with the USB identity of a board first."""
    from serial.tools import list_ports as serial_ports

    ports = [
        FoundPort(p.device, p.serial_number or "", p.description or "", (p.vid, p.pid) == (USB_VENDOR, USB_PRODUCT))
        for p in serial_ports.comports()
    ]
    return sorted(ports, key=lambda p: (not p.is_board, p.path))


def serial_of(path: str) -> str:
    """Return the USB serial number of the board at a port; empty where the USB knows none."""
    real = os.path.realpath(path)
    return next((p.serial for p in list_ports() if os.path.realpath(p.path) == real), "")


def is_pseudo_terminal(path: str) -> bool:
    """Whether a program, and not a serial device of this machine, is at the other end of a port."""
    try:
        return os.major(os.stat(path).st_rdev) in _PSEUDO_TERMINALS  # noqa: PTH116  (a device path, not a file)
    except OSError:
        return False


def choose_port(ports: list[FoundPort]) -> FoundPort:
    """Return the only board among the ports.

    Raises
    ------
    BackendUnavailableError
        None or several; the message lists what is there.
    """
    boards = [p for p in ports if p.is_board]
    if len(boards) == 1:
        return boards[0]
    if boards:
        listed = ", ".join(f"{p.path} (serial {p.serial or 'unknown'})" for p in boards)
        raise BackendUnavailableError(
            BACKEND, f"{len(boards)} boards are connected: {listed}", f"name one of them: {BACKEND}:{boards[0].path}"
        )
    others = ", ".join(f"{p.path} ({p.description or 'no description'})" for p in ports) or "none at all"
    raise BackendUnavailableError(
        BACKEND,
        f"no serial port has the USB identity {USB_VENDOR:04x}:{USB_PRODUCT:04x} of a board; ports present: {others}",
        f"connect the board, or name its port: {BACKEND}:/dev/ttyACM0; to try without one: {BACKEND}:virtual",
    )


def open_port(path: str, *, clock: Clock, timeout_s: float = 2.0) -> int:
    """Open, lock and configure a port; return its descriptor, non-blocking and not inherited by other programs.

    Raises
    ------
    BackendUnavailableError
        No such port, no permission, not a terminal, or in use by another program for longer than ``timeout_s``.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot_open(path, error) from error
    fd = above_standard(fd)
    try:
        _lock(fd, path, clock, timeout_s)
        _make_raw(fd)
    except termios.error as error:
        os.close(fd)
        raise BackendUnavailableError(
            BACKEND, f"{path} is not a serial port: {error.args[-1]}", "name the port of the board, e.g. /dev/ttyACM0"
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


def _cannot_open(path: str, error: OSError) -> BackendUnavailableError:
    remedy = {
        errno.ENOENT: f"connect the board, or name another port; pmtpy list shows them, {BACKEND}:virtual needs none",
        errno.EACCES: PERMISSION_REMEDY,
        errno.EBUSY: "end the program that uses the port",
    }.get(error.errno or 0, "check that the path is the serial port of the board")
    return BackendUnavailableError(BACKEND, f"cannot open {path}: {error.strerror}", remedy)


def _lock(fd: int, path: str, clock: Clock, timeout_s: float) -> None:
    deadline_ns = clock.now_ns() + round(timeout_s * NS_PER_S)
    never = threading.Event()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise _cannot_open(path, error) from error
        else:
            return
        if clock.now_ns() >= deadline_ns:
            users = ", ".join(holders(path)) or "a program that cannot be seen from here (another user, a container)"
            raise BackendUnavailableError(
                BACKEND, f"{path} is in use by {users}", f"end it, or wait; the limit was {timeout_s:g} s"
            )
        clock.wait_until(clock.now_ns() + LOCK_RETRY_NS, never)


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


def discover() -> Discovery:
    """Find boards by their USB identity; opens nothing."""
    ports = list_ports()
    boards = tuple(p.path for p in ports if p.is_board)
    if boards:
        barred = [path for path in boards if not os.access(path, os.R_OK | os.W_OK)]
        if barred:
            why = Obstacle.PERMISSION, (PERMISSION_REMEDY,)
            found = [Finding(BACKEND, b, Verdict.BROKEN, f"no permission to use {b}", *why) for b in barred]
            return Discovery(boards, tuple(found))
        return Discovery(boards)
    try:
        choose_port(ports)
    except BackendUnavailableError as error:
        return Discovery((), (error.finding,))
    return Discovery()
