"""A process of its own that reads the port, so that the user's program cannot starve the measurement.

Run as ``python -I -S _relay.py CONTROL TTY PARENT LOOK_MS STOP``: the descriptors of a stream socket to the parent and
of the open, configured, locked port, the parent's process id, how often to look at the port, and the bytes (in
hexadecimal) that make the device stop streaming. Imports nothing of pmtpy, so it starts in some 15 ms and survives
whatever happens to the parent.

It sleeps on the socket, not on the port: waking for each USB packet would cost ten times as much. It looks at the port
before that is full; more often at first, so that the parent can lay the board's clock on the host's; and at once when
the parent asks. What it reads is kept, stamped with its arrival, until the parent asks. It never waits for the parent.

A REQUEST is a letter and a number: ``p`` asks for all pieces, ``q`` ends the relay (the parent stops the board itself).
The answer is HEADER (MAGIC, the number, pieces, errno of a lost port or 0, bytes dropped because the parent did not
ask), PIECE (arrival ns, length) for each, and the bytes. Every request is answered, in order, also when the parent was
interrupted in the middle of one and asks again.

When the parent dies in any way (the socket closes, or this process gets another parent, because a forked
child can keep the socket open), the board is told to stop, the line is drained, and the lock is given back. Signals are
for the parent: one that is sent to a whole group (systemd, Slurm, a terminal) must not end the stream before the parent
has taken its last rows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque

MAGIC = 0x504D5452
GREETING = b"pmtpy relay\n"  # what the parent waits for: another program may stand where it takes the interpreter to be
REQUEST = struct.Struct("<cI")
HEADER = struct.Struct("<IIIIQ")
PIECE = struct.Struct("<qI")

READ_BYTES = 1 << 13
FULL_READ = 2048  # a terminal hands out at most 4095 bytes at a time; much fewer means that there are no more
PASS_BYTES = 1 << 18  # a pass over a source that never runs dry must end, or nobody is answered
_BUSY_BYTES = 1 << 14  # a pass that drained this much found a source faster than any real board: look again at once
BUFFER_BYTES = 64 << 20  # three minutes of a real stream
_EARLY_LOOK_MS = 1
_EARLY_NS = 100_000_000
_HOPELESS_MS = 500  # the port is gone: only the parent matters
# A PowerSensor3 hangs for good when told to stop while a marker waits for its frame; frames are 30 to 60 us apart.
_MARKER_MS = 20
_QUIET_MS = 150  # longer than the 100 ms that the firmware may pause before its last words
STOP_LIMIT_NS = 3_000_000_000


class _Relay:
    """The pieces that wait for the parent, and the port they come from."""

    def __init__(self, control: socket.socket, tty: int) -> None:
        self.control = control
        self.tty = tty
        self.pieces: deque[tuple[int, bytes]] = deque()
        self.held_bytes = 0
        self.dropped_bytes = 0
        self.errno = 0
        self.answer = memoryview(b"")
        self.orphaned = False

    def drain(self) -> int:
        """Read the port until it is empty; return the number of bytes."""
        if self.errno:
            return 0
        parts: list[bytes] = []
        size = 0
        while size < PASS_BYTES:
            try:
                part = os.read(self.tty, READ_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                self.errno = error.errno or errno.EIO
                break
            if not part:
                self.errno = errno.EPIPE
                break
            parts.append(part)
            size += len(part)
            if len(part) < FULL_READ:
                break
        if parts:
            self.pieces.append((time.monotonic_ns(), parts[0] if len(parts) == 1 else b"".join(parts)))
            self.held_bytes += size
            while self.held_bytes > BUFFER_BYTES:
                _, oldest = self.pieces.popleft()
                self.held_bytes -= len(oldest)
                self.dropped_bytes += len(oldest)
        return size

    def take_requests(self) -> bool:
        """Prepare the answers to what the parent asks; return False when it says good-bye or is gone (orphaned)."""
        requests = self.control.recv(REQUEST.size * 64)
        self.orphaned = not requests
        for letter, number in REQUEST.iter_unpack(requests):
            if letter != b"p":
                return False
            self.prepare(number)
        return not self.orphaned

    def prepare(self, number: int) -> None:
        """Make the answer to a request out of everything that is held; it follows what is still to be sent."""
        table = b"".join(PIECE.pack(t_ns, len(piece)) for t_ns, piece in self.pieces)
        header = HEADER.pack(MAGIC, number, len(self.pieces), self.errno, self.dropped_bytes)
        self.answer = memoryview(b"".join((self.answer, header, table, *(piece for _, piece in self.pieces))))
        self.pieces.clear()
        self.held_bytes = 0

    def send(self) -> None:
        """Send as much of the answer as the socket takes now."""
        with contextlib.suppress(BlockingIOError):
            self.answer = self.answer[self.control.send(self.answer) :]


def serve(relay: _Relay, parent: int, usual_ms: int) -> bool:
    """Read and answer until the parent is gone (True) or says good-bye (False)."""
    control = relay.control
    poller = select.poll()
    poller.register(control, select.POLLIN)
    early_until = time.monotonic_ns() + _EARLY_NS
    look_ms = _EARLY_LOOK_MS
    busy = False
    while os.getppid() == parent:
        events = poller.poll(0 if busy else look_ms)
        busy = relay.drain() > _BUSY_BYTES
        if events:
            try:
                if events[0][1] & ~select.POLLOUT and not relay.take_requests():
                    return relay.orphaned
                if relay.answer:
                    relay.send()
            except ConnectionError:
                return True
            poller.modify(control, select.POLLIN | select.POLLOUT if relay.answer else select.POLLIN)
        if look_ms == _EARLY_LOOK_MS and time.monotonic_ns() > early_until:
            look_ms = usual_ms
        if relay.errno:
            look_ms = _HOPELESS_MS
    return True


def _read_away(tty: int, quiet_ms: int, limit_ns: int) -> bool:
    """Throw away what comes until nothing has come for ``quiet_ms``; return False when the limit came first."""
    poller = select.poll()
    poller.register(tty, select.POLLIN)
    deadline_ns = time.monotonic_ns() + limit_ns
    while poller.poll(quiet_ms):
        if not os.read(tty, READ_BYTES):
            return True
        if time.monotonic_ns() > deadline_ns:
            return False
    return True


def _stop_board(tty: int, stop: bytes) -> None:
    """Tell the board to stop and wait until it has; give up when the port is gone."""
    with contextlib.suppress(OSError):
        _read_away(tty, _MARKER_MS, _MARKER_MS * 1_000_000)
        begin_ns = time.monotonic_ns()
        while time.monotonic_ns() - begin_ns < STOP_LIMIT_NS:
            os.write(tty, stop)
            if _read_away(tty, _QUIET_MS, STOP_LIMIT_NS // 4):
                break
    with contextlib.suppress(OSError):
        # A forked child of the parent may still hold the port open, and with it the lock.
        fcntl.flock(tty, fcntl.LOCK_UN)


def main(arguments: list[str]) -> None:
    """Serve the parent; afterwards leave a quiet board."""
    control, tty, parent, look_ms = (int(a) for a in arguments[:4])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=control) as channel:
        channel.send(GREETING)
        channel.setblocking(False)
        if serve(_Relay(channel, tty), parent, look_ms):
            _stop_board(tty, bytes.fromhex(arguments[4]))


if __name__ == "__main__":
    main(sys.argv[1:])
