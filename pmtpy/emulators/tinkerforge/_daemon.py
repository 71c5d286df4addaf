"""The far side of a Brick Daemon: a stack of bricklets on the shared load, over memory or TCP."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
from dataclasses import dataclass, field

from pmtpy.backends.tinkerforge import protocol
from pmtpy.backends.tinkerforge.bricklets import KINDS, conversion_s
from pmtpy.core.channel import Quantity
from pmtpy.core.clock import Clock
from pmtpy.core.closing import Closing
from pmtpy.emulators.world import World, unheld

VOLTS = 12.0
_GET_IDENTITY = 255
_TICK_S = 0.002


@dataclass
class Bricklet:
    """One bricklet: device identifier, and the share of the load that flows through each output."""

    name: str
    kind: int
    shares: tuple[float, ...] = (1.0,)
    averaging: tuple[int, int, int] = (3, 4, 4)  # the default: 64 averages, 1.1 ms each
    callbacks: dict[int, list[int]] = field(default_factory=dict)  # output: period ms, next ns, last value
    unplugged: bool = False
    uid: int = field(init=False)

    def __post_init__(self) -> None:
        """Read its address once."""
        self.uid = protocol.uid_number(self.name)


class Daemon:
    """A daemon and its stack. Faults: ``half`` (cuts the next packet and ends), ``mute``, ``extra`` (raw bytes)."""

    def __init__(self, world: World, stack: list[Bricklet]) -> None:
        self.world, self.stack, self.secret = unheld(world), stack, ""
        self._by_uid = {bricklet.uid: bricklet for bricklet in stack}
        self.half = self.mute = False
        self.extra = b""
        self.odd_names: list[bytes] = []

    def by_uid(self, uid: int) -> Bricklet | None:
        """Return the bricklet at an address, if it is plugged in."""
        bricklet = self._by_uid.get(uid)
        return None if bricklet is None or bricklet.unplugged else bricklet

    def enumerated(self, bricklet: Bricklet, event: int) -> bytes:
        """Return the callback by which a bricklet says that it is there, has come, or is gone."""
        payload = struct.pack(
            "<8s8sc3B3BHB", bricklet.name.encode(), b"6master", b"a", 1, 0, 0, 2, 0, 4, bricklet.kind, event
        )
        return protocol.pack(bricklet.uid, protocol.ENUMERATED, payload)

    def restart(self, bricklet: Bricklet) -> bytes:
        """Let a bricklet begin anew, without its settings; return what it says of it."""
        bricklet.averaging, bricklet.callbacks = (3, 4, 4), {}
        return self.enumerated(bricklet, protocol.CONNECTED)

    def count(self, bricklet: Bricklet, output: int, now_ns: int) -> int:
        """What a bricklet shows: of the conversion that ended last, cut to whole mA, mV and mW."""
        kind, share = KINDS[bricklet.kind], bricklet.shares[output]
        window_s = conversion_s(bricklet.averaging[0], bricklet.averaging[1:]) if kind.averaging else 0.25
        window_ns = round(window_s * 1e9)
        end_ns = now_ns - (now_ns - self.world.epoch_ns) % window_ns
        watts = self.world.joules_between(end_ns - window_ns, end_ns) / window_s * share
        if kind.unit is Quantity.POWER:
            return int(int(watts / VOLTS * 1000) * int(VOLTS * 1000) / 1000)
        if kind.unit is Quantity.CURRENT:
            return int((4e-3 + 16e-3 * watts / 1000.0) * 1e9)  # a transducer of 1 kW
        return int(watts * 10)  # and one of 100 W per volt


class Session:
    """One client's connection to a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._cutter = daemon, protocol.Cutter()
        self._nonce = os.urandom(4)
        self._trusted = not daemon.secret
        self.ended = False
        self._produced_ns = -1

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Take what the client sent; return the answers."""
        out = b""
        for packet in self._cutter.feed(data):
            answer = self._answer(packet, now_ns)
            if self.ended:
                return b""
            out += answer
        return b"" if self._daemon.mute else out

    def _answer(self, packet: protocol.Packet, now_ns: int) -> bytes:
        if packet.uid == protocol.DAEMON:
            return self._authentication(packet)
        if not self._trusted:
            return b""
        daemon = self._daemon
        if packet.uid == protocol.BROADCAST and packet.function == protocol.ENUMERATE:
            odd = [
                protocol.pack(77, protocol.ENUMERATED, struct.pack("<8s8sc3B3BHB", n, b"", b"a", *(0,) * 6, 2105, 0))
                for n in daemon.odd_names
            ]
            there = [daemon.enumerated(b, protocol.AVAILABLE) for b in daemon.stack if not b.unplugged]
            return b"".join(odd + there)
        bricklet = daemon.by_uid(packet.uid)
        if bricklet is None:
            return b""
        payload, error = self._function(bricklet, packet, now_ns)
        return protocol.pack(packet.uid, packet.function, payload, sequence=packet.sequence, error=error)

    def _authentication(self, packet: protocol.Packet) -> bytes:
        if packet.function == protocol.GET_NONCE:
            return protocol.pack(protocol.DAEMON, packet.function, self._nonce, sequence=packet.sequence)
        ours, proof = packet.payload[:4], packet.payload[4:]
        if not self._daemon.secret or proof != protocol.digest(self._daemon.secret, self._nonce, ours):
            self.ended = True
            return b""
        self._trusted = True
        return protocol.pack(protocol.DAEMON, packet.function, sequence=packet.sequence)

    def _function(  # noqa: PLR0911  (one for each function)
        self, bricklet: Bricklet, packet: protocol.Packet, now_ns: int
    ) -> tuple[bytes, int]:
        """Return (payload, error) of a call."""
        kind, function, data = KINDS.get(bricklet.kind), packet.function, packet.payload
        if function == _GET_IDENTITY:
            return self._daemon.enumerated(bricklet, protocol.AVAILABLE)[8:-1], 0
        if kind is None:
            return b"", 2
        if function == kind.get:
            output = data[0] if kind.indexed else 0
            return (
                (struct.pack("<i", self._daemon.count(bricklet, output, now_ns)), 0)
                if output < kind.outputs
                else (b"", 1)
            )
        if kind.averaging and function == kind.averaging:
            bricklet.averaging = (data[0], data[1], data[2])
            return b"", 0
        if kind.averaging and function == kind.averaging + 1:
            return bytes(bricklet.averaging), 0
        if kind.callback and function == kind.set_callback:
            output = data[0] if kind.indexed else 0
            period = struct.unpack_from("<I", data, 1 if kind.indexed else 0)[0]
            bricklet.callbacks[output] = [period, now_ns + period * 1_000_000]
            return b"", 0
        if bricklet.kind == 227 and function in {1, 2}:  # current, voltage
            milliwatts = self._daemon.count(bricklet, 0, now_ns)
            return struct.pack("<i", int(milliwatts / VOLTS) if function == 1 else int(VOLTS * 1000)), 0
        if bricklet.kind == 2105 and function in {1, 5}:
            milliwatts = self._daemon.count(bricklet, 0, now_ns)
            return struct.pack("<i", int(milliwatts / VOLTS) if function == 1 else int(VOLTS * 1000)), 0
        return b"", 2

    def produce(self, now_ns: int) -> bytes:
        """Return the callbacks that are due."""
        daemon, due = self._daemon, []
        stack = daemon.stack if now_ns > self._produced_ns else []  # at one instant nothing new is due
        self._produced_ns = now_ns
        for bricklet in stack:
            kind = KINDS.get(bricklet.kind)
            for output, callback in bricklet.callbacks.items():
                period, next_ns = callback
                while kind is not None and period and not bricklet.unplugged and next_ns <= now_ns:
                    value = daemon.count(bricklet, output, next_ns)
                    payload = struct.pack("<Bi", output, value) if kind.indexed else struct.pack("<i", value)
                    due.append((next_ns, protocol.pack(bricklet.uid, kind.callback, payload)))
                    next_ns += period * 1_000_000
                callback[1] = max(next_ns, now_ns) if bricklet.unplugged else next_ns
        out = b"".join(packet for _, packet in sorted(due))
        out, daemon.extra = out + daemon.extra, b""
        return b"" if daemon.mute or not self._trusted else out


class MemoryLink:
    """A connection in memory, on any clock. ``cut`` ends it."""

    def __init__(self, daemon: Daemon, clock: Clock) -> None:
        self._daemon, self._clock = daemon, clock
        self._session = Session(daemon)
        self._held = b""
        self._cut = False

    def send(self, data: bytes) -> None:
        """Send to the daemon."""
        self._check()
        self._held += self._session.feed(data, self._clock.now_ns())

    def receive(self) -> bytes:
        """Return what has come."""
        self._check()
        out, self._held = self._held + self._session.produce(self._clock.now_ns()), b""
        if self._daemon.half and len(out) > 8:
            self._cut, self._daemon.half = True, False
            return out[:-3]
        return out

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002  (waiting does not move a clock that stands still)
        """Return at once whether anything can be received."""
        self._check()
        self._held += self._session.produce(self._clock.now_ns())
        return bool(self._held)

    def close(self) -> None:
        """End the connection."""
        self._cut = True

    def _check(self) -> None:
        if self._cut or self._session.ended:
            raise ConnectionError("the daemon closed the connection")


class TcpDaemon(Closing):
    """A daemon on a loopback port, served by a thread. A context manager.

    Attributes
    ----------
    port : int
    """

    def __init__(self, daemon: Daemon, clock: Clock) -> None:
        self._daemon, self._clock = daemon, clock
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="pmtpy-virtual-daemon", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        sessions: dict[socket.socket, Session] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._ends.is_set():
                for key, _ in selector.select(_TICK_S):
                    if key.fileobj is self._listener:
                        client, _ = self._listener.accept()
                        selector.register(client, selectors.EVENT_READ)
                        sessions[client] = Session(self._daemon)
                for client, session in list(sessions.items()):
                    if not self._turn(client, session):
                        selector.unregister(client)
                        sessions.pop(client).ended = True
                        client.close()
        for client in sessions:
            client.close()

    def _turn(self, client: socket.socket, session: Session) -> bool:
        now_ns = self._clock.now_ns()
        out = b""
        client.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError):
                data = client.recv(1 << 16)
                if not data:
                    return False
                out = session.feed(data, now_ns)
            out += session.produce(now_ns)
            client.setblocking(True)
            if out:
                client.sendall(out)
        except OSError:
            return False
        return not session.ended

    def close(self) -> None:
        """End the daemon and its connections. May be called twice."""
        self._ends.set()
        self._thread.join()
        self._listener.close()
