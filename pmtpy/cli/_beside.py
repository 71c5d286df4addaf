"""The processes of a job on one node: their commands begin together, and the one that measures knows who still runs.

The others hold a connection to it, by a socket in the abstract namespace of Linux (unix(7)): it leaves no file behind,
and closes however a process ends. Before that each says how its command ended: one that closes without was killed.
Where there is no such socket, as on other systems, or none that is shared, as between containers, nobody is known to
run; nor in a job without a name, which could be any.
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
from dataclasses import dataclass
from typing import BinaryIO

from pmtpy.core.clock import HOST_CLOCK, NS_PER_S
from pmtpy.io.origin import Launch, Machine

_LOOK_S = 0.02
_COME_S = 5.0  # within which processes come that a launcher starts together
_READY_S = 60.0  # within which the one that measures has opened its sensors, or is not waited for any longer
_FAMILY = "pmtpy-run"  # what names of our sockets begin with
_MAX_WAITING = 4096  # connections that wait to be accepted; Linux allows as many since 5.4, and 128 before

Rest = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Gone:
    """A process that has ended."""

    said: str  # when it came
    status: int | None  # of its command, None: it did not say it


@dataclass(frozen=True, slots=True)
class _Connected:
    """A process that has not ended."""

    line: socket.socket
    lines: BinaryIO  # what comes over it
    said: str

    def close(self) -> None:
        self.lines.close()
        self.line.close()


class Others:
    """The processes of a job on this node but for the one that measures, as far as they are known."""

    def __init__(self, expected: int) -> None:
        self.told: list[str] = []  # what each said when it came
        self._expected = expected
        self._lock = threading.Lock()
        self._here: list[_Connected] = []
        self._gone: list[Gone] = []
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
                _tell(other.line, "")

    def run(self) -> bool:
        """Whether one is known that still runs."""
        with self._lock:
            heard = select.poll()
            here = {other.line.fileno(): other for other in self._here}
            for number in here:
                heard.register(number, select.POLLIN | select.POLLHUP)
            for number, _ in heard.poll(0):
                other = here.pop(number)
                self._gone.append(Gone(other.said, _last_word(other.lines)))
                other.close()
            self._here = list(here.values())
            return bool(self._here)

    def gone(self) -> list[Gone]:
        """Return those that have ended so far."""
        self.run()
        return list(self._gone)

    def accept(self, listener: socket.socket) -> None:
        """Take note of each that comes, until nobody listens any more. For a thread of its own."""
        with contextlib.suppress(OSError):
            while True:
                line, _ = listener.accept()
                line.settimeout(_COME_S)
                lines = line.makefile("rb")
                said = _said(lines)
                with self._lock:
                    self.told.append(said)
                    self._here.append(_Connected(line, lines, said))
                    self._come += 1
                    if self._begun:
                        _tell(line, "")

    def close(self) -> None:
        """Take note of nobody any more: who waits begins."""
        with self._lock:
            for other in self._here:
                other.close()
            self._here = []


def _said(lines: BinaryIO) -> str:
    """Return the next line of one; it was on its way before, unless that one is gone: then it is empty."""
    line = b""
    with contextlib.suppress(OSError):
        line = lines.readline()
    return line.decode(errors="replace").rstrip("\n") if line.endswith(b"\n") else ""


def _last_word(lines: BinaryIO) -> int | None:
    with contextlib.suppress(ValueError):
        return int(_said(lines))
    return None


def _tell(other: socket.socket, what: str) -> None:
    with contextlib.suppress(OSError):  # it is gone
        other.send(what.encode(errors="replace") + b"\n")


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


class Begun:
    """What a process that does not measure has of the one that does."""

    def __init__(self, line: socket.socket | None, *, measured: bool) -> None:
        self._line = line
        self.measured = measured  # whether there is one that measures

    def ended(self, status: int) -> None:
        """Say how the command ended."""
        if self._line is not None:
            _tell(self._line, str(status))


@contextlib.contextmanager
def begun_with(launch: Launch, machine: Machine, rest: Rest, say: str = "") -> Iterator[Begun]:
    """Wait until the node is measured, and let the process that measures know, while inside, that this one runs.

    ``say`` is one line for it.
    """
    name = _name(launch, machine)
    if not name:
        yield Begun(None, measured=True)
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as here:
        here.setblocking(False)
        come = _within(_COME_S, rest, lambda: _connected(here, name, say))
        yield Begun(here, measured=come and _within(_READY_S, rest, lambda: _let(here)))


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
    _tell(here, say)
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
    return f"\0{_FAMILY}/{os.getuid()}/{_digest(f'{launch.scheduler}/{launch.job}')}/{_digest(machine.node)}"


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
