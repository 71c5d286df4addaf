"""A connection to a Brick Daemon: calls with answers, callbacks as they come, each with its instant of arrival."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from pmtpy._handlers import of_a_handler
from pmtpy.backends._descriptor import marked, ours
from pmtpy.backends.tinkerforge import protocol
from pmtpy.backends.tinkerforge.protocol import Cutter, Enumerated, Packet
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.presentation import amount
from pmtpy.errors import BackendUnavailableError, ProtocolError, ReadError

BACKEND = "tinkerforge"
SECRET = "PMT_TINKERFORGE_SECRET"  # noqa: S105  (the name of a variable)
_ANSWER_S = 2.5  # as in Tinkerforge's own binding
_ENUMERATION_QUIET_S = 0.2  # after the last device has said that it is there
_READ_BYTES = 1 << 16
_PASS_BYTES = 1 << 20


class Link(Protocol):
    """Bytes to and from a daemon. Used by one thread at a time; a connection that is gone raises ConnectionError."""

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        ...

    def receive(self) -> bytes:
        """Return what has come, without waiting."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until something can be received; False when nothing came within ``timeout_s``."""
        ...

    def close(self) -> None:
        """End the connection. May be called twice."""
        ...


class TcpLink:
    """A TCP connection. One whose descriptor the program has closed (with all others, as a daemon) is gone."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._mark = marked(self._socket.fileno())
        self._timeout_s = timeout_s

    def _check(self) -> None:
        if self._socket.fileno() >= 0 and not ours(self._socket.fileno(), self._mark):
            self._socket.detach()  # the number is nobody's, or another's
            raise ConnectionError("the program has closed the descriptor of the connection")

    def send(self, data: bytes) -> None:
        """Send all bytes, waiting for room at most as long as for a connection."""
        self._check()
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.sendall(data)
        except TimeoutError as error:
            raise ConnectionError("the daemon accepts no more data") from error

    def receive(self) -> bytes:
        """Return what has come, at most a megabyte at a time."""
        self._check()
        self._socket.setblocking(False)
        parts: list[bytes] = []
        size = 0
        while size < _PASS_BYTES:
            try:
                part = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                break
            if not part:
                if parts:
                    break
                raise ConnectionError("the daemon closed the connection")
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def wait(self, timeout_s: float) -> bool:
        """Wait until something can be received."""
        self._check()
        # Not by select, which takes no descriptor beyond 1023: a program may have more files open.
        self._socket.settimeout(max(0.0, timeout_s))
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            return True  # what is wrong is said to who receives
        return True

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(ConnectionError):
            self._check()
        self._socket.close()


class Client:
    """Calls over a link. Used by one thread at a time."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link, self._clock = link, clock
        self._cutter = Cutter()
        self._sequence = 0
        self._waiting: list[tuple[Packet, int]] = []

    def packets(self) -> list[tuple[Packet, int]]:
        """Return what has come, with the instant (ns) at which it was seen."""
        data = self._link.receive()
        seen_ns = self._clock.now_ns()
        waiting, self._waiting = self._waiting, []
        return waiting + [(packet, seen_ns) for packet in self._cutter.feed(data)]

    def post(self, uid: int, function: int, payload: bytes = b"") -> None:
        """Send a call and do not wait: its answer comes with the other packets."""
        self._sequence = self._sequence % 15 + 1
        self._link.send(protocol.pack(uid, function, payload, sequence=self._sequence, answer=True))

    def call(self, uid: int, function: int, payload: bytes = b"", *, size: int = 0) -> bytes:
        """Call and wait for the answer; callbacks that come meanwhile are kept.

        Raises ReadError: no answer, an error, or an answer of another size.
        """
        self.post(uid, function, payload)
        who, own = f"function {function} of {protocol.uid_text(uid)}", (uid, function, self._sequence)
        kept: list[tuple[Packet, int]] = []
        answer: Packet | None = None
        until_ns = self._clock.now_ns() + round(_ANSWER_S * NS_PER_S)
        try:
            while answer is None:
                if not self._waiting and not self._comes(until_ns):  # others may go on sending without an end
                    msg = f"{who}: no answer within {_ANSWER_S:g} s"
                    raise ReadError(msg)
                for packet, seen_ns in self.packets():
                    if answer is None and (packet.uid, packet.function, packet.sequence) == own:
                        answer = packet
                    else:
                        kept.append((packet, seen_ns))
        finally:
            self._waiting = kept + self._waiting
        if answer.error or len(answer.payload) != size:
            why = protocol.ERRORS.get(answer.error, f"{amount(len(answer.payload), 'byte')} came, not {size}")
            msg = f"{who}: {why}"
            raise ReadError(msg)
        return answer.payload

    def _comes(self, until_ns: int) -> bool:
        """Wait until something can be received, up to an instant."""
        left_s = (until_ns - self._clock.now_ns()) / NS_PER_S
        return left_s > 0 and self._link.wait(left_s)

    def authenticate(self, secret: str) -> None:
        """Show the daemon that the secret is known.

        Raises ConnectionError: it is wrong, or the daemon wants none: the daemon closes the connection.
        """
        server = self.call(protocol.DAEMON, protocol.GET_NONCE, size=4)
        ours = os.urandom(4)
        self.call(protocol.DAEMON, protocol.AUTHENTICATE, ours + protocol.digest(secret, server, ours))

    def enumerate(self) -> tuple[list[Enumerated], list[str]]:
        """Ask which devices there are; return them, and what was wrong with others."""
        self._link.send(protocol.pack(protocol.BROADCAST, protocol.ENUMERATE, sequence=1))
        found: dict[int, Enumerated] = {}
        wrong: list[str] = []
        kept: list[tuple[Packet, int]] = []
        until_ns = self._clock.now_ns() + round(_ANSWER_S * NS_PER_S)
        while self._comes(until_ns):
            for packet, seen_ns in self.packets():
                if packet.function != protocol.ENUMERATED or packet.sequence:
                    kept.append((packet, seen_ns))  # bricklets that were set before go on with any connection
                    continue
                until_ns = self._clock.now_ns() + round(_ENUMERATION_QUIET_S * NS_PER_S)
                try:
                    one = protocol.enumerated(packet.payload)
                except ValueError as error:
                    wrong.append(str(error))
                    continue
                found[one.uid] = one
        self._waiting += kept
        return list(found.values()), wrong

    def close(self) -> None:
        """End the connection. May be called twice."""
        self._link.close()


def secret_of(file: str, environment: Mapping[str, str]) -> str:
    """Return the secret from a file, else from the environment; empty if there is none. It is never shown.

    Raises BackendUnavailableError: the file cannot be read, or its text is not ASCII.
    """
    try:
        text = Path(file).read_text(encoding="ascii").strip() if file else environment.get(SECRET, "")
        text.encode("ascii")
    except (OSError, UnicodeError) as error:
        if of_a_handler(error):
            raise
        why = f"the secret file {file} cannot be read" if isinstance(error, OSError) else "the secret is not ASCII"
        raise BackendUnavailableError(BACKEND, why, "write the daemon's secret into the file, as plain text") from error
    return text


def connect(open_link: Callable[[], Link], where: str, secret: str, clock: Clock) -> Client:
    """Connect to a daemon and, where a secret is given, authenticate.

    Raises BackendUnavailableError: refused, no answer, or the secret is wrong.
    """
    try:
        client = Client(open_link(), clock)
    except OSError as error:
        if of_a_handler(error):
            raise
        why = error.strerror or str(error) or "no answer"
        cure = "start the Brick Daemon there ($ sudo systemctl start brickd), or name it: tinkerforge:HOST:PORT"
        raise BackendUnavailableError(BACKEND, f"no Brick Daemon at {where}: {why}", cure) from error
    if not secret:
        return client
    try:
        client.authenticate(secret)
    except (OSError, ProtocolError) as error:
        with contextlib.suppress(OSError):
            client.close()
        if of_a_handler(error):
            raise
        why = f"the daemon at {where} does not accept the secret, or wants none"
        cure = f"give the secret of its brickd.conf by secret_file= or {SECRET}; unset it where authentication is off"
        raise BackendUnavailableError(BACKEND, why, cure) from error
    return client
