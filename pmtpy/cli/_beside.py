"""The processes of a job on one node: their commands begin together, and the one that measures knows who still runs.

The others hold a connection to it, by a socket in the abstract namespace of Linux (unix(7)): it leaves no file behind,
and closes however a process ends. Where there is none, as on other systems, or none that is shared, as between
containers, nobody is known to run; nor in a job without a name, which could be any.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Iterator

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S
from pmtpy.io.origin import Launch, Machine

_LOOK_S = 0.02
_COME_S = 5.0  # within which processes come that a launcher starts together
_READY_S = 60.0  # within which the one that measures has opened its sensors, or is not waited for any longer
_LINE = 4096  # bytes at once
_MAX_WAITING = 4096  # connections that wait to be accepted; Linux allows as many since 5.4, and 128 before

Rest = Callable[[float], None]


class Others:
    """The processes of a job on this node but for the one that measures, as far as they are known."""

    def __init__(self, expected: int) -> None:
        self.told: list[str] = []  # what each said when it came
        self._expected = expected
        self._lock = threading.Lock()
        self._here: list[socket.socket] = []  # its process has not ended
        self._come, self._begun = 0, False

    @property
    def lacking(self) -> int:
        """How many have not come so far."""
        return max(0, self._expected - self._come)

    def come(self, rest: Rest) -> None:
        """Wait until all have come, but not for long."""
        _within(_COME_S, rest, lambda: not self.lacking)

    def begin(self) -> None:
        """Let all begin that have come; who comes later begins at once."""
        with self._lock:
            self._begun = True
            for other in self._here:
                _told(other)

    def run(self) -> bool:
        """Whether one is known that still runs."""
        with self._lock:
            closed = select.poll()
            for other in self._here:
                closed.register(other, select.POLLIN | select.POLLHUP)
            gone = {number for number, _ in closed.poll(0)}
            for other in self._here:
                if other.fileno() in gone:
                    other.close()
            self._here = [other for other in self._here if other.fileno() >= 0]
            return bool(self._here)

    def accept(self, listener: socket.socket) -> None:
        """Take note of each that comes, until nobody listens any more. For a thread of its own."""
        with contextlib.suppress(OSError):
            while True:
                other, _ = listener.accept()
                said = _said(other)
                with self._lock:
                    self.told.append(said)
                    self._here.append(other)
                    self._come += 1
                    if self._begun:
                        _told(other)

    def close(self) -> None:
        """Take note of nobody any more: who waits begins."""
        with self._lock:
            for other in self._here:
                other.close()
            self._here = []


def _said(other: socket.socket) -> str:
    """Return the line that one says who has come; it was on its way before, unless that one is gone."""
    other.settimeout(_COME_S)
    line = b""
    with contextlib.suppress(OSError):
        while not line.endswith(b"\n") and (more := other.recv(_LINE)):
            line += more
    return line.decode(errors="replace").rstrip("\n")


def _told(other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        other.send(b"\n")


@contextlib.contextmanager
def others_of(launch: Launch, machine: Machine, expected: int) -> Iterator[Others]:
    """Let the others of the job on this node come, for the process that measures it."""
    others, name = Others(expected), _name(launch, machine)
    if not name:
        yield Others(0)
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(name)
        except OSError:  # another measures the same node
            yield Others(0)
            return
        listener.listen(_MAX_WAITING)
        taking_note = threading.Thread(target=others.accept, args=(listener,), name="pmtpy-run", daemon=True)
        taking_note.start()
        try:
            yield others
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            taking_note.join()
            others.close()


@contextlib.contextmanager
def begun_with(launch: Launch, machine: Machine, rest: Rest, say: str = "") -> Iterator[bool]:
    """Wait until the node is measured, and let the process that measures know, while inside, that this one runs.

    ``say`` is one line for it. Yields whether there is one.
    """
    name = _name(launch, machine)
    if not name:
        yield True
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as here:
        here.setblocking(False)
        yield _within(_COME_S, rest, lambda: _connected(here, name, say)) and _within(
            _READY_S, rest, lambda: _let(here)
        )


def _within(seconds: float, rest: Rest, done: Callable[[], bool]) -> bool:
    end_ns = HOST_CLOCK.now_ns() + round(seconds * NS_PER_S)
    while not done():
        if HOST_CLOCK.now_ns() >= end_ns:
            return False
        rest(_LOOK_S)
    return True


def _connected(here: socket.socket, name: str, say: str) -> bool:
    try:
        here.connect(name)
    except OSError:  # nobody listens yet, or more come than wait to be accepted
        return False
    with contextlib.suppress(OSError):  # it is gone
        here.send(say.encode(errors="replace") + b"\n")
    return True


def _let(here: socket.socket) -> bool:
    try:
        here.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True  # it is gone
    return True


def _name(launch: Launch, machine: Machine) -> str:
    """Return the name of a job's socket on one node; empty: it has none."""
    if not launch.job or sys.platform != "linux":
        return ""
    digest = zlib.crc32(f"{launch.scheduler}\0{launch.job}\0{machine.node}".encode())
    return f"\0pmtpy-run/{os.getuid()}/{digest:08x}"
