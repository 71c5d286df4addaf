"""All measuring bricklets of a daemon as one source: each a rail with times of its own, brought to common rows."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import struct
from collections.abc import Callable

import numpy as np

from pmtpy._handlers import of_a_handler
from pmtpy.backends._device_clock import DeviceClock
from pmtpy.backends._named import only_named
from pmtpy.backends._serial.journal import Journal
from pmtpy.backends.tinkerforge import bricklets, protocol
from pmtpy.backends.tinkerforge._device import BACKEND, SECRET, Client, Link, TcpLink, connect, secret_of
from pmtpy.backends.tinkerforge.bricklets import AVERAGES, KINDS, TIMES_US, Kind
from pmtpy.backends.tinkerforge.protocol import Enumerated, Packet
from pmtpy.core.arguments import one_of
from pmtpy.core.channel import Channel, Identity, Quantity, unique_name
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.presentation import amount
from pmtpy.core.rails import Rails
from pmtpy.core.rows import Block
from pmtpy.core.source import Discovery, Remarks, Source, Traits
from pmtpy.errors import (
    BackendUnavailableError,
    ProtocolError,
    ReadError,
    SourceLostError,
    TargetError,
)

INTERVAL_S = 0.02
_RAIL_TIMEOUT_S = 0.5  # a rail of which nothing has come for so long is missing
_AWAY_S = 30.0  # a daemon that is gone for so long is lost; a restart takes a few seconds
_RETRY_NS = 1 * NS_PER_S
_SLOW_MS = 100  # between readings of the Industrial Dual bricklets, which convert 4 times a second
_SLOW_WINDOW_S = 0.25
_MOST_SILENT = 2  # bricklets that are waited for at the end
_CURRENT_NS = NS_PER_S // 4  # between looks whether a current is at the end of its range
_MISSED_CALLBACK_NS = NS_PER_S // 4  # a callback this much later than its place tells that some were never sent


class _Rail:
    """One reading of one bricklet, and its curve since the last common row."""

    def __init__(self, kind: Kind, device: Enumerated, output: int, period_ms: int, window_s: float) -> None:
        self.kind, self.device, self.output = kind, device, output
        self.period_ns, self.window_s = period_ms * 1_000_000, window_s
        self.asked_ns = self.current_asked_ns = -1
        self.ends = kind.ends
        self.at_end = False  # what it shows is a bound, by its current
        self.rows: list[tuple[int, float, float]] = []
        self._clock, self._number = DeviceClock(), 0
        self._last_ns, self._before, self._counts, self._uncovered_ns = -1, 0, 0.0, 0.0

    def begin_anew(self) -> None:
        """Its callbacks begin anew, with the connection or with the bricklet."""
        self._clock.forget()
        self._number, self.asked_ns = 0, -1

    def note(self, shown: int, seen_ns: int) -> int:
        """Take a value that was seen at an instant: the mean since the value before.

        Returns for how long it tells nothing, because it is at an end of its range, nanoseconds.
        """
        untold_ns = 0
        t_ns, count = seen_ns, float(shown)
        if self.kind.callback:  # the bricklet's own pace, which a busy host's arrivals blur
            self._number += 1
            t_ns = min(seen_ns, self._clock.place(self._number * self.period_ns, seen_ns))
            if seen_ns - t_ns > _MISSED_CALLBACK_NS:
                self._clock.forget()
                t_ns = seen_ns
        self.asked_ns = -1
        if self._last_ns >= 0:
            t_ns = max(t_ns, self._last_ns + 1)
            step_ns = t_ns - self._last_ns
            if step_ns > _RAIL_TIMEOUT_S * NS_PER_S:  # a value says nothing of the silence before its own conversion
                known_ns = min(round(self.window_s * NS_PER_S), step_ns - 1)
                self._uncovered_ns += step_ns - known_ns
                self.rows.append((t_ns - known_ns, self._counts, self._uncovered_ns))
            elif self.at_end or not self.ends[0] <= shown <= self.ends[1]:
                known_ns, untold_ns = 0, step_ns
                self._uncovered_ns += step_ns
            else:
                known_ns = step_ns
                # What is asked tells of an instant, so its readings are joined by straight lines.
                count = count if self.kind.callback else (count + self._before) / 2.0
            self._counts += count * known_ns / NS_PER_S
        self._last_ns, self._before = t_ns, shown
        self.rows.append((t_ns, self._counts, self._uncovered_ns))
        return untold_ns


class TinkerforgeSource(Source):
    """The rails behind one daemon. ``open_client`` connects, also again after the daemon was restarted."""

    traits = Traits(interval_s=INTERVAL_S, blocking=True)

    def __init__(
        self,
        open_client: Callable[[], Client],
        where: str,
        clock: Clock,
        *,
        averaging: int,
        conversion_us: int,
        full_scale: dict[str, float],
    ) -> None:
        self._open_client, self._where, self._clock = open_client, where, clock
        self._setting = AVERAGES.index(averaging), TIMES_US.index(conversion_us)
        self._journal = Journal()
        self._lost: SourceLostError | None = None
        self._closed = False
        self._away_ns = self._tried_ns = -1
        self._client: Client | None = open_client()
        self._before: dict[int, bytes] = {}
        self._added: dict[int, tuple[str, int]] = {}  # bricklets that were plugged in since, and when they were seen
        try:
            found, wrong = self._client.enumerate()
            self._rails = rails = self._rails_of(found)
            notes = [*wrong, *self._configure({rail.device.uid for rail in rails})]
        except BaseException:
            self._client.close()
            raise
        self._by_key = {(r.device.uid, r.output): i for i, r in enumerate(rails)}
        host = where.replace(":", "-")
        channels: list[Channel] = []
        for r in rails:
            name = unique_name([c.name for c in channels], _name(r).lower())  # addresses differ also by capitals
            scale = full_scale.get(_name(r))
            if scale is None and r.kind.unit is not Quantity.POWER:
                r.ends = (-(2**31), 2**31)  # a current, or a voltage, of which nobody says what it means
            step_s = r.period_ns / NS_PER_S if r.kind.callback else INTERVAL_S
            made = bricklets.channel(r.kind, r.device.name, name, window_s=r.window_s, host=host, full_scale=scale)
            channels.append(made.timed(refresh_s=max(step_s, r.window_s)))
        self.channels = tuple(channels)
        unknown = sorted(set(full_scale) - {_name(r) for r in rails})
        if unknown:
            self._client.close()
            msg = f"{where} has no bricklet output {', '.join(unknown)}; it has {', '.join(map(_name, rails))}"
            raise TargetError(msg)
        self._shared = Rails([1] * len(rails), round(_RAIL_TIMEOUT_S * NS_PER_S))
        self.identity = Identity(BACKEND, f"{amount(len(rails), 'reading')} at {where}", notes=tuple(notes))

    def _rails_of(self, found: list[Enumerated]) -> list[_Rail]:
        window_s = bricklets.conversion_s(self._setting[0], (self._setting[1], self._setting[1]))
        rails = []
        for device in sorted(found, key=lambda d: d.name):
            kind = KINDS.get(device.kind)
            if kind is None or device.event == protocol.DISCONNECTED:
                continue
            slow = not kind.averaging
            period_ms = _SLOW_MS if slow else max(1, math.ceil(window_s * 1000))
            rails += [
                _Rail(kind, device, i, period_ms, _SLOW_WINDOW_S if slow else window_s) for i in range(kind.outputs)
            ]
        if not rails:
            raise BackendUnavailableError(BACKEND, *_why_none(self._where, found))
        return rails

    def _configure(self, uids: set[int]) -> list[str]:
        """Set averaging, times and callbacks of bricklets; return what they then say of themselves."""
        client, notes = self._client, []
        assert client is not None  # noqa: S101  (called with a connection)
        wanted = struct.pack("<BBB", self._setting[0], self._setting[1], self._setting[1])
        for rail in self._rails:
            kind, uid = rail.kind, rail.device.uid
            if uid not in uids:
                continue
            if kind.averaging:
                self._before.setdefault(uid, client.call(uid, kind.averaging + 1, size=3))
                client.call(uid, kind.averaging, wanted)
                if client.call(uid, kind.averaging + 1, size=3) != wanted:
                    msg = f"{rail.device.name}: it does not keep the averaging that it is set to"
                    raise ReadError(msg)
                told = f"mean of {AVERAGES[self._setting[0]]} conversions of {TIMES_US[self._setting[1]]} us each"
                notes.append(f"{rail.device.name} ({kind.name}): {told}, one value every {rail.window_s * 1e3:.3g} ms")
            if kind.callback:
                client.call(uid, kind.set_callback, _callback(rail, rail.period_ns // 1_000_000))
            rail.begin_anew()
        return notes

    def read(self) -> Block:
        """Take what has come, ask those that must be asked, and return the rows that all rails have reached.

        Raises SourceLostError: the daemon has been gone for half a minute.
        """
        if self._lost is not None:
            raise self._lost
        if self._client is None and not self._connected_again():
            return Block.empty(len(self.channels))
        try:
            self._exchange()
        except (OSError, ProtocolError) as error:
            if of_a_handler(error):
                raise
            self._disconnected(error)
        now_ns = self._clock.now_ns()
        for i, rail in enumerate(self._rails):
            if rail.rows:
                rows, rail.rows = np.array(rail.rows, np.float64), []
                self._shared.add(i, rows[:, 0].astype(np.int64), rows[:, 1:2], rows[:, 2:3])
        return self._shared.take(now_ns) or Block.empty(len(self.channels))

    def _exchange(self) -> None:
        client = self._client
        assert client is not None  # noqa: S101  (as above)
        for packet, seen_ns in client.packets():
            self._take(packet, seen_ns)
        now_ns = self._clock.now_ns()
        for rail in self._rails:
            if not rail.kind.callback and (rail.asked_ns < 0 or now_ns - rail.asked_ns > _RETRY_NS):
                rail.asked_ns = now_ns
                client.post(rail.device.uid, rail.kind.get, bytes([rail.output]) if rail.kind.indexed else b"")
            if rail.kind.current and now_ns - rail.current_asked_ns > _CURRENT_NS:
                rail.current_asked_ns = now_ns
                client.post(rail.device.uid, rail.kind.current)
        if any(not rail.kind.callback for rail in self._rails):
            for packet, seen_ns in client.packets():  # a daemon on this host has answered by now
                self._take(packet, seen_ns)

    def _take(self, packet: Packet, seen_ns: int) -> None:
        if packet.function == protocol.ENUMERATED and not packet.sequence:
            with contextlib.suppress(ValueError):
                self._enumerated(protocol.enumerated(packet.payload), seen_ns)
            return
        rail = self._rails[self._by_key[packet.uid, 0]] if (packet.uid, 0) in self._by_key else None
        if rail is None or packet.error:
            return
        if packet.sequence == 0 and packet.function == rail.kind.callback:
            with contextlib.suppress(ValueError, KeyError):
                output, count = bricklets.counts(rail.kind, packet.payload)
                self._note(self._rails[self._by_key[packet.uid, output]], count, seen_ns)
        elif packet.sequence and packet.function == rail.kind.get and len(packet.payload) == 4:
            asked = [r for r in self._rails if r.device.uid == packet.uid and r.asked_ns >= 0]
            if asked:  # answers come in the order of the questions
                self._note(asked[0], struct.unpack("<i", packet.payload)[0], seen_ns)
        elif packet.sequence and packet.function == rail.kind.current and len(packet.payload) == 4:
            rail.at_end = abs(struct.unpack("<i", packet.payload)[0]) >= bricklets.MOST_MA

    def _note(self, rail: _Rail, shown: int, seen_ns: int) -> None:
        untold_ns = rail.note(shown, seen_ns)
        if untold_ns:
            self._journal.add("end", seen_ns - untold_ns, seen_ns, untold_ns / NS_PER_S)

    def _enumerated(self, one: Enumerated, seen_ns: int) -> None:
        """A bricklet that was plugged in again, or restarted, has forgotten its settings."""
        if (one.uid, 0) not in self._by_key:
            self._note_another(one, seen_ns)
            return
        if one.event == protocol.CONNECTED:
            self._journal.add("anew", seen_ns, seen_ns, 0.0, 1.0)
            self._configure({one.uid})
        elif one.event == protocol.DISCONNECTED:
            self._journal.add("unplugged", seen_ns, seen_ns, 0.0, 1.0)

    def _note_another(self, one: Enumerated, seen_ns: int) -> None:
        """A bricklet that was not there at the opening has no channel, and would be missing from the total unseen."""
        if one.event == protocol.DISCONNECTED:
            self._added.pop(one.uid, None)
        elif one.kind in KINDS:
            self._added.setdefault(one.uid, (one.name, seen_ns))

    def _disconnected(self, error: Exception) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
        self._away_ns = self._clock.now_ns()
        self._why = str(error)

    def _connected_again(self) -> bool:
        now_ns = self._clock.now_ns()
        if now_ns - self._tried_ns < _RETRY_NS and self._tried_ns >= 0:
            return False
        self._tried_ns = now_ns
        try:
            self._client = self._open_client()
            found, _ = self._client.enumerate()
            for one in found:
                if (one.uid, 0) not in self._by_key:
                    self._note_another(one, now_ns)
            self._configure({rail.device.uid for rail in self._rails})
        except (OSError, ReadError, ProtocolError) as error:
            if self._client is not None:
                self._client.close()
                self._client = None
            if of_a_handler(error):
                raise
            if now_ns - self._away_ns > _AWAY_S * NS_PER_S:
                why = f"the Brick Daemon at {self._where} has been gone for {_AWAY_S:g} s ({self._why}; {error})"
                self._lost = SourceLostError(f"{why}; start it again and reopen the sensor")
                raise self._lost from error
            return False
        self._journal.add("away", self._away_ns, now_ns, (now_ns - self._away_ns) / NS_PER_S)
        self._tried_ns = -1
        return True

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Say when the daemon was away, and when bricklets were."""
        found = self._journal.between(begin_ns, end_ns)
        said = {
            "away": "the Brick Daemon was away for {0:.3g} s",
            "anew": "a bricklet restarted {1:.0f} times and was set up again",
            "unplugged": "a bricklet was unplugged {1:.0f} times",
            "end": "no energy is known for {0:.3g} s at the end of a range (20.48 A, 35 V, a broken loop of 4-20 mA)",
        }
        lines = [f"{self._where}: {text.format(*found[kind])}" for kind, text in said.items() if kind in found]
        added = sorted(name for name, seen_ns in self._added.values() if seen_ns < end_ns)
        if added:
            why = (
                "plugged in after the sensor was opened: it is in no channel and not in the total; open the sensor anew"
            )
            lines.append(f"{self._where}: {', '.join(added)}: {why}")
        return Remarks(1e-3, tuple(lines))  # USB full speed looks each millisecond, then comes TCP

    def _given_back(self, client: Client, rail: _Rail) -> bool:
        """Give a bricklet its settings back; whether it answered."""
        try:
            if rail.kind.callback:
                client.call(rail.device.uid, rail.kind.set_callback, _callback(rail, 0))
            if rail.device.uid in self._before:
                client.call(rail.device.uid, rail.kind.averaging, self._before.pop(rail.device.uid))
        except (OSError, ReadError, ProtocolError):
            return False
        return True

    def close(self) -> None:
        """Give the bricklets their settings back and end the connection. May be called twice."""
        if self._closed:
            return
        self._closed = True
        client, self._client = self._client, None
        if client is None:
            return
        self._client = client
        silent = 0
        for rail in self._rails:
            # One that is gone keeps the others from nothing; but nobody waits for each of a stack that is.
            silent += not self._given_back(client, rail)
            if silent > _MOST_SILENT:
                break
        self._client = None
        client.close()


def _callback(rail: _Rail, period_ms: int) -> bytes:
    """Payload that sets a periodic callback, also of a value that has not changed; 0: none."""
    head = bytes([rail.output]) if rail.kind.indexed else b""
    return head + struct.pack("<IBcii", period_ms, 0, b"x", 0, 0)


def _name(rail: _Rail) -> str:
    return rail.device.name if rail.kind.outputs == 1 else f"{rail.device.name}.{rail.output}"


def _why_none(where: str, found: list[Enumerated]) -> tuple[str, str]:
    known = ", ".join(kind.name for kind in KINDS.values())
    if found:
        others = ", ".join(f"{d.name} (device {d.kind})" for d in found[:10])
        return f"the daemon at {where} has no bricklet that measures power; it has {others}", f"connect one of: {known}"
    cure = f"see that the stack is connected and, if the daemon wants a secret, give it by secret_file= or {SECRET}"
    return f"the daemon at {where} accepts the connection, but no bricklet answers", cure


def _place(device: str | None) -> tuple[str, int]:
    host, _, port = (device or "").partition(":")
    if port and not port.isdigit():
        msg = f"tinkerforge:{device}: the port is a number, e.g. tinkerforge:localhost:{protocol.PORT}"
        raise TargetError(msg)
    return host, int(port or protocol.PORT)


def _scales(text: str) -> dict[str, float]:
    try:
        return {name: float(watts) for name, _, watts in (part.partition("=") for part in text.split(",") if part)}
    except ValueError:
        msg = f"full_scale is NAME.OUTPUT=WATTS,..., not {text!r}"
        raise TargetError(msg) from None


def discover(device: str | None = None) -> Discovery:
    """Say that a daemon must be named: connecting sets its bricklets, which may be another program's."""
    why = "a Brick Daemon is asked only where it is named, since its bricklets are set anew"
    return only_named(BACKEND, device, why, "its host: tinkerforge:localhost")


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    averaging: int = 4,
    conversion_us: int = 332,
    full_scale: str = "",
    secret_file: str = "",
    timeout_s: float = 2.5,
    link: Callable[[], Link] | None = None,
) -> Source:
    """Open all measuring bricklets behind a daemon as one sensor.

    Parameters
    ----------
    device : str
        ``HOST`` or ``HOST:PORT``.
    averaging, conversion_us : int
        Of Voltage/Current Bricklets: 1, 4, 16, 64, 128, 256, 512 or 1024 conversions, each of 140, 204, 332, 588, 1100,
        2116, 4156 or 8244 us of voltage and as much of current. The default gives a value every 2.66 ms.
    full_scale : str
        What the Industrial Dual bricklets mean: ``NAME.OUTPUT=WATTS,...``, at 20 mA (4 mA is none) or per volt.
    secret_file : str
        A file with the daemon's secret; without one, the environment's PMT_TINKERFORGE_SECRET.
    timeout_s : float
        For connecting and sending, seconds.
    link : callable, optional
        Opens the connection: for a virtual daemon.

    Raises BackendUnavailableError: no daemon there, a wrong secret, no bricklet that measures.
    Raises TargetError: an option that means nothing.
    """
    one_of(averaging, AVERAGES, "the number of averages")
    one_of(conversion_us, TIMES_US, "the conversion time")
    scales = _scales(full_scale)
    if device is None:
        raise BackendUnavailableError(discover().findings[0])
    host, port = _place(device)
    secret = secret_of(secret_file, os.environ)
    open_link = link or functools.partial(TcpLink, host, port, timeout_s)
    try:
        return TinkerforgeSource(
            functools.partial(connect, open_link, f"{host}:{port}", secret, clock), f"{host}:{port}", clock,
            averaging=averaging, conversion_us=conversion_us, full_scale=scales,
        )  # fmt: skip
    except (ReadError, ProtocolError, ConnectionError) as error:
        if isinstance(error, BackendUnavailableError):
            raise
        cure = "see that nothing else sets these bricklets, and restart the Brick Daemon"
        raise BackendUnavailableError(BACKEND, f"{host}:{port}: {error}", cure) from error
