"""A virtual instrument behind a serial line: in memory on any clock, or behind a real pseudo-terminal.

What is behind the line is a :class:`SerialBoard`, which knows no line. Of a line set to another rate than the board's,
garbage arrives at both ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
import threading
import tty
from pathlib import Path
from typing import Protocol

from pmtpy.core.clock import Clock
from pmtpy.core.closing import Closing
from pmtpy.errors import SourceLostError

_BURST_NS = 5_000_000
_TICK_MS = 4
_GARBAGE = b"\xf8\x0e\x78\x80\xfe"


class SerialBoard(Protocol):
    """The far side of a serial line."""

    baud: int  # rate of its end of the line; 0: it means nothing
    attached: bool  # false while it is unplugged
    greeting: bytes  # what it says by itself when a port is opened

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take what the host has sent."""
        ...

    def produce(self, now_ns: int) -> bytes:
        """Return what it has sent since the last call."""
        ...


class MemoryLine:
    """The host's end of a line to a board. Neither blocks nor starts a thread."""

    def __init__(self, board: SerialBoard, clock: Clock) -> None:
        self.board, self.clock = board, clock
        self.baud = 115200
        self._run_ns = clock.now_ns()
        board.produce(self._run_ns)
        self._held: list[tuple[int, bytes]] = [(self._run_ns, board.greeting)] if board.greeting else []
        self._closed = False

    def set_baud(self, baud: int) -> None:
        """Set the rate of the host's end; what came at another is thrown away."""
        self._run()
        self.baud = baud
        self._held.clear()

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        self._check()
        self._run()
        self.board.feed(data if self._in_tune else _garbled(data), self.clock.now_ns())

    def receive(self) -> list[tuple[int, bytes]]:
        """Return what has arrived since the last call, each chunk with its instant of arrival; does not wait."""
        self._check()
        self._run()
        out, self._held = self._held, []
        return out

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002  (waiting does not move a clock that stands still)
        """Return at once whether anything can be received now."""
        self._check()
        self._run()
        return bool(self._held)

    def close(self) -> None:
        """Close the port."""
        self._closed = True

    @property
    def _in_tune(self) -> bool:
        return self.board.baud in {0, self.baud}

    def _run(self) -> None:
        now_ns = self.clock.now_ns()
        if not self.board.attached:
            return
        while True:
            self._run_ns = min(now_ns, self._run_ns + _BURST_NS)
            data = self.board.produce(self._run_ns)
            if data:
                self._held.append((self._run_ns, data if self._in_tune else _garbled(data)))
            if self._run_ns >= now_ns:
                return

    def _check(self) -> None:
        if self._closed or not self.board.attached:
            raise SourceLostError("the virtual meter has left its line; open it again when it is back")


def _garbled(data: bytes) -> bytes:
    """What arrives of bytes that were sent at another rate."""
    return (_GARBAGE * (len(data) // 4 + 1))[: max(1, len(data) // 2)]


class PtyBoard(Closing):
    """A board behind a real pseudo-terminal, served by a thread. A context manager.

    Parameters
    ----------
    clock : Clock
        Of the host.
    link : Path
        A symbolic link to the port, which is gone while the board is unplugged.
    """

    def __init__(self, board: SerialBoard, clock: Clock, link: Path) -> None:
        self.board, self._clock, self._link = board, clock, link
        self.path = str(link)
        self._lock = threading.Lock()
        self._master = self._slave = -1
        self._ends = threading.Event()
        self._attach()
        self._thread = threading.Thread(target=self._serve, name="pmtpy-virtual-meter", daemon=True)
        self._thread.start()

    def _attach(self) -> None:
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)  # a port that was opened before; else it would echo until the host has set it up
        speeds = termios.tcgetattr(self._slave)
        speeds[4] = speeds[5] = termios.B9600
        termios.tcsetattr(self._slave, termios.TCSANOW, speeds)
        os.set_blocking(self._master, False)
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(os.ttyname(self._slave))
        self.board.attached = True
        if self.board.greeting:
            os.write(self._master, self.board.greeting)

    def unplug(self) -> None:
        """Take the board off the bus: the host's descriptors hang up, the path is gone."""
        with self._lock:
            self.board.attached = False
            self._link.unlink(missing_ok=True)
            for fd in (self._master, self._slave):
                os.close(fd)
            self._master = self._slave = -1

    def plug_in(self) -> None:
        """Plug it in again; the path is back when this returns."""
        with self._lock:
            self._attach()

    def _serve(self) -> None:
        while not self._ends.is_set():
            with self._lock:
                master = self._master
            poller = select.poll()
            if master >= 0:
                poller.register(master, select.POLLIN)
            poller.poll(_TICK_MS)
            with self._lock:
                if master == self._master and master >= 0:
                    self._turn(master)

    def _turn(self, master: int) -> None:
        speed = termios.tcgetattr(self._slave)[5]
        tuned = not self.board.baud or speed == getattr(termios, f"B{self.board.baud}", -1)
        with contextlib.suppress(BlockingIOError):
            data = os.read(master, 4096)
            self.board.feed(data if tuned else _garbled(data), self._clock.now_ns())
        data = self.board.produce(self._clock.now_ns())
        if data:
            with contextlib.suppress(BlockingIOError):  # a host that does not read: the line holds no more
                os.write(master, data if tuned else _garbled(data))

    def close(self) -> None:
        """End the thread and the port. May be called twice."""
        if self._ends.is_set():
            return
        self._ends.set()
        self._thread.join()
        if self._master >= 0:
            self.unplug()
