"""The seam between the protocol and the outside: bytes to a board, pieces of its stream back, each with its arrival.

:class:`DirectTransport` reads the port in this process. :class:`RelayTransport` has a small process of its own read it
(see :mod:`pmtpy.backends._serial._relay`), so that nothing is lost and no arrival is late when the user's
program holds the interpreter. An emulated board is a third implementation of :class:`Transport`.

Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import threading
from typing import Protocol

from pmtpy._handlers import of_a_handler
from pmtpy.backends._descriptor import marked, ours
from pmtpy.backends._serial import _relay
from pmtpy.backends._serial._relay_command import no_relay, relay_command
from pmtpy.backends._serial.port import above_standard, set_baud
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.errors import ReadError, SensorClosedError, SourceLostError

Piece = tuple[int, bytes]  # arrival on the host's monotonic clock in ns, and the bytes that had come by then

READ_BYTES = 1 << 16
# A source that never runs dry (an emulated board in fast mode) must not keep receive() for ever.
PASS_BYTES = 1 << 20
_WRITE_TIMEOUT_MS = 1000
_RELAY_TIMEOUT_S = 5
_RELAY_START_S = 20  # 15 ms on an idle machine
_ANSWER_US = 20_000  # answers come within 0.1 ms; a relay that is not scheduled is asked again by the next call
_USB_LOOK_MS = 8
_PTY_LOOK_MS = 25
_PTY_MAJORS = range(136, 144)  # Linux, Documentation/admin-guide/devices.txt: UNIX98 pseudo-terminal slaves
_ASK_AGAIN_NS = 2_000_000
CLOSED = "the program has closed its descriptor; reopen the sensor"


class Transport(Protocol):
    """Bytes to and from one board. Used by one thread at a time."""

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        ...

    def receive(self) -> list[Piece]:
        """Return what has arrived up to now, oldest first, without waiting.

        Raises SourceLostError: the board is gone and everything that came before has been returned. Every later call
        raises it again.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until something can be received; return False when nothing came within ``timeout_s``.

        An emulated board on a clock that stands still answers at once: what is not there now will not come by
        waiting.
        """
        ...

    def close(self) -> None:
        """Release the board. May be called twice."""
        ...


class Port:
    """A descriptor of a serial port, with the errors of a vanished device, of a forked child and of a daemon.

    A daemon closes all descriptors. The port is not opened again: another program may have the board by then, and the
    stream has a hole in any case.
    """

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self._mark = marked(fd) if fd >= 0 else 0
        self.name = name
        self._owner = os.getpid()
        self._lost: SourceLostError | None = None

    @property
    def owned(self) -> bool:
        """Whether this is the process that opened the port, not a forked child of it."""
        return os.getpid() == self._owner

    def check(self) -> None:
        """Raise what forbids the use of the port: closed by its owner or by the program, forked, lost."""
        if self._lost is not None:
            raise self._lost
        if self.fd < 0:
            msg = f"{self.name} is closed; open it again"
            raise SensorClosedError(msg)
        if not self.owned:
            msg = f"{self.name} belongs to process {self._owner}, of which this is a fork; only one of them can use it"
            raise SensorClosedError(msg)
        if not ours(self.fd, self._mark):
            self._lost = SourceLostError(f"{self.name}: {CLOSED}")
            raise self._lost

    def lose(self, why: str) -> SourceLostError:
        """Remember that the board is gone."""
        if self._lost is None:
            self._lost = SourceLostError(f"{self.name}: {why}; connect the board again and reopen it")
        return self._lost

    def write(self, data: bytes) -> None:
        """Send bytes, waiting at most a second for room."""
        self.check()
        view = memoryview(data)
        while view:
            view = view[self._write_some(view) :]

    def _write_some(self, view: memoryview) -> int:
        try:
            return os.write(self.fd, view)
        except BlockingIOError:
            if not _poll(self.fd, select.POLLOUT, _WRITE_TIMEOUT_MS):
                msg = f"{self.name}: the board has accepted no command for a second"
                raise ReadError(msg) from None
            return 0
        except OSError as error:
            if of_a_handler(error):
                raise
            raise self.lose(f"writing failed ({error.strerror})") from error

    def release(self) -> None:
        """Give the lock back and close. A forked child only closes its copy and leaves the parent's lock alone."""
        if self.fd < 0:
            return
        fd, self.fd = self.fd, -1
        if not ours(fd, self._mark):
            return
        if self.owned:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _poll(fd: int, events: int, timeout_ms: float) -> bool:
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(timeout_ms))


class DirectTransport:
    """Reads the port in this process; a program that holds the interpreter for long loses frames.

    Takes over the descriptor ``fd`` of an open, configured port, or a port of another transport.
    """

    def __init__(self, fd: int | Port, name: str, clock: Clock) -> None:
        self.port = fd if isinstance(fd, Port) else Port(fd, name)
        self._clock = clock

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        self.port.write(data)

    def receive(self) -> list[Piece]:
        """Read the port until it is empty, as one piece stamped at its end."""
        self.port.check()
        parts: list[bytes] = []
        size = 0
        while size < PASS_BYTES:
            try:
                part = os.read(self.port.fd, _relay.READ_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if of_a_handler(error):
                    raise
                # EIO is what a terminal says whose device was unplugged.
                self.port.lose("the board was unplugged" if error.errno == errno.EIO else f"{error.strerror}")
                break
            if not part:
                self.port.lose("the line was hung up")
                break
            parts.append(part)
            size += len(part)
            if len(part) < _relay.FULL_READ:
                break
        if not parts:
            self.port.check()
            return []
        return [(self._clock.now_ns(), b"".join(parts))]

    def wait(self, timeout_s: float) -> bool:
        """Wait until something can be received or the board has gone."""
        self.port.check()
        return _poll(self.port.fd, select.POLLIN, timeout_s * 1000)

    def set_baud(self, baud: int) -> None:
        """Set the rate of the line."""
        self.port.check()
        set_baud(self.port.fd, baud)

    def detach(self) -> Port:
        """Hand the port to another transport; this one is closed."""
        port, self.port = self.port, Port(-1, self.port.name)
        return port

    def close(self) -> None:
        """Unlock and close the port."""
        self.port.release()


def look_ms(fd: int) -> int:
    """How often a port must be read, in ms, so that it never fills: each look costs 50 us or so of a core.

    The driver of a USB port stops the board when the 4 KiB of the line discipline are full, after 11 ms at 360 kB/s. A
    pseudo-terminal holds 12 KB, which is 34 ms, and its other end waits.
    """
    return _PTY_LOOK_MS if os.major(os.fstat(fd).st_rdev) in _PTY_MAJORS else _USB_LOOK_MS


class RelayTransport:
    """Has the port read by a process of its own; commands are written from here. Takes over ``port``.

    ``stop`` makes the device stop streaming, should this process die; ``backend`` is whose errors they are. ``look`` is
    how often the port is read, in ms; by default as often as :func:`look_ms` says.

    Attributes
    ----------
    dropped_bytes : int
        Bytes that the relay had to drop because nobody fetched them for minutes.
    """

    def __init__(self, port: Port, clock: Clock, *, backend: str, stop: bytes, look: int | None = None) -> None:
        command = relay_command(backend)
        self.port = port
        self.dropped_bytes = 0
        self._clock = clock
        self._held: list[Piece] = []
        self._number = 0
        self._asked = False
        self._answer = b""
        self._ended: SourceLostError | None = None
        near, far = socket.socketpair()
        self._socket, far_end = (socket.socket(fileno=above_standard(end.detach())) for end in (near, far))
        self._mark = marked(self._socket.fileno())
        arguments = far_end.fileno(), port.fd, os.getpid(), look_ms(port.fd) if look is None else look, stop.hex()
        try:
            self._relay = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=(far_end.fileno(), port.fd),
                start_new_session=True,  # a Ctrl-C on the terminal is for the user's program
            )
        except OSError as error:
            self._socket.close()
            if of_a_handler(error):
                raise
            raise no_relay(backend, f"cannot start the relay process: {error}") from error
        finally:
            far_end.close()
        self._limit(_RELAY_START_S * 1_000_000)
        try:
            greeting = self._socket.recv(len(_relay.GREETING), socket.MSG_WAITALL)
        except OSError as error:
            if of_a_handler(error):
                self._relay.kill()
                self._socket.close()
                raise
            greeting = b""
        if greeting != _relay.GREETING:
            self._relay.kill()
            self._socket.close()
            status = self._relay.wait()
            why = f"{command[0]} did not run the relay process (status {status}); is it a Python interpreter?"
            raise no_relay(backend, why)
        self._limit(_ANSWER_US)

    def _limit(self, us: int) -> None:
        # seconds, microseconds of struct timeval: a limit in the kernel, without a second system call per read
        limit = struct.pack("@ll", us // 1_000_000, us % 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    @property
    def pid(self) -> int:
        """Process id of the relay."""
        return self._relay.pid

    def write(self, data: bytes) -> None:
        """Send bytes to the board."""
        self.port.write(data)

    def receive(self) -> list[Piece]:
        """Fetch what the relay has read, including what it finds on the port right now; nothing while it is stalled."""
        self.port.check()
        if self._ended is not None:
            raise self._ended
        if not ours(self._socket.fileno(), self._mark):
            self._ended = SourceLostError(f"{self.port.name}: {CLOSED}")
            raise self._ended
        fetched = self._fetch()
        held, self._held = self._held, []
        return held + fetched

    def _fetch(self) -> list[Piece]:
        # A signal's exception can end this anywhere, and a relay that is not scheduled does not answer in time. What
        # was asked for is answered all the same, so the next call takes up the answers where they stand, until it has
        # that to the newest request.
        pieces: list[Piece] = []
        lost_errno = 0
        try:
            if not self._asked:
                self._number = (self._number + 1) & 0xFFFF_FFFF
                self._asked = True
                self._socket.send(_relay.REQUEST.pack(b"p", self._number))
            number = None
            while number != self._number:
                number, lost_errno = self._take_answer(pieces)
            self._asked = False
        except BlockingIOError:
            return pieces
        except (OSError, EOFError) as error:
            if of_a_handler(error):
                raise
            status = self._relay.poll()
            why = f"{self.port.name}: the relay process does not answer ({error}; status {status}); open it again"
            self._ended = SourceLostError(why)
            if not pieces and not self._held:
                raise self._ended from error
        except BaseException:
            self._asked = False
            self._held += pieces
            raise
        if lost_errno:
            why = "the board was unplugged" if lost_errno in {errno.EIO, errno.EPIPE} else os.strerror(lost_errno)
            self.port.lose(why)
            if not pieces:
                self.port.check()
        return pieces

    def _take_answer(self, pieces: list[Piece]) -> tuple[int, int]:
        """Add the pieces of one answer; return its number and the errno of a lost port."""
        number, count, lost_errno, dropped = self._header()
        at = _relay.HEADER.size + count * _relay.PIECE.size
        self._fill(at)
        table = list(_relay.PIECE.iter_unpack(self._answer[_relay.HEADER.size : at]))
        end = at + sum(length for _, length in table)
        self._fill(end)
        answer, self._answer = self._answer, self._answer[end:]
        self.dropped_bytes = dropped
        for t_ns, length in table:
            pieces.append((t_ns, answer[at : at + length]))
            at += length
        return number, lost_errno

    def _header(self) -> tuple[int, int, int, int]:
        self._fill(_relay.HEADER.size)
        magic, number, count, lost_errno, dropped = _relay.HEADER.unpack_from(self._answer)
        if magic != _relay.MAGIC:
            msg = "its answers are out of step"
            raise EOFError(msg)
        return number, count, lost_errno, dropped

    def _fill(self, size: int) -> None:
        """Read on until the answer has at least ``size`` bytes."""
        if len(self._answer) >= size:
            return
        if not self._answer:
            self._answer = self._socket.recv(READ_BYTES)
        parts, have = [self._answer], len(self._answer)
        try:
            while have < size and parts[-1]:
                parts.append(self._socket.recv(min(size - have, 1 << 20)))
                have += len(parts[-1])
        finally:
            self._answer = b"".join(parts)
        if have < size:
            msg = "it has ended"
            raise EOFError(msg)

    def wait(self, timeout_s: float) -> bool:
        """Ask the relay every few milliseconds until something has come."""
        never = threading.Event()
        deadline_ns = self._clock.now_ns() + round(timeout_s * NS_PER_S)
        while not self._held:
            now_ns = self._clock.now_ns()
            if now_ns >= deadline_ns:
                return False
            self._clock.wait_until(min(deadline_ns, now_ns + _ASK_AGAIN_NS), never)
            self._held = self.receive()
        return True

    def take_back(self) -> DirectTransport:
        """End the relay and have the port read by this process; this transport is closed."""
        port, self.port = self.port, Port(-1, self.port.name)
        if not ours(self._socket.fileno(), self._mark):
            self._socket.detach()  # its number is nobody's or another's; the relay has seen that it was closed
        elif port.owned:
            with contextlib.suppress(OSError):
                self._socket.send(_relay.REQUEST.pack(b"q", 0))
        self._socket.close()
        if port.owned:
            try:
                self._relay.wait(_RELAY_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._relay.kill()
                self._relay.wait()
        return DirectTransport(port, port.name, self._clock)

    def close(self) -> None:
        """End the relay, then unlock and close the port. In a forked child: only let go. May be called twice."""
        if self.port.fd >= 0:
            self.take_back().close()


def relayed(transport: Transport, clock: Clock, *, backend: str, stop: bytes) -> Transport:
    """Have a small process read a port that this one reads; any other transport is returned as it is.

    Where there is no such process the port stays with ``transport``, whose owner still has to close it.
    """
    if not isinstance(transport, DirectTransport):
        return transport
    relay = RelayTransport(transport.port, clock, backend=backend, stop=stop)
    transport.detach()
    return relay


def taken_back(transport: Transport) -> Transport:
    """Read the port of a relay in this process again; any other transport is returned as it is."""
    return transport.take_back() if isinstance(transport, RelayTransport) else transport
