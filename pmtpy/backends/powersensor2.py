"""PowerSensor2: up to five Hall sensors on an Arduino, one conversion after the other, over USB.

A sample is two bytes: ``1sssllll 0mllllll`` (sensor, marker, 10 bits of level). They come in rounds of the sensors in
use and have no time of their own: rows are spread evenly over the time between arrivals. Facts: ``NLeSC/PowerSensor``,
``device/ArduinoLeonardo/PowerSensor/PowerSensor.ino`` and ``host/PowerSensor.cc``.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pmtpy.backends._even_rate import MISSING_S, EvenRate
from pmtpy.backends._serial.diagnosis import port_finding
from pmtpy.backends._serial.line import Line
from pmtpy.backends._serial.port import list_ports, open_port
from pmtpy.backends._serial.transport import DirectTransport, Piece, Transport, relayed, taken_back
from pmtpy.backends.machine import Machine
from pmtpy.core.arguments import one_of
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Block, Ints
from pmtpy.core.source import Discovery, Remarks, Source, Traits, columns
from pmtpy.errors import (
    BackendUnavailableError,
    Finding,
    Obstacle,
    ReadError,
    SensorClosedError,
    SourceLostError,
    Verdict,
)

BACKEND = "powersensor2"
SENSORS, MIDDLE = 5, 512
_TOP = 1023  # of ten bits
VOLTS_PER_LEVEL = 2.5 / 512
CONFIG = struct.Struct("<15f")  # volts, sensitivity in V/A, watts at no current: of each sensor
# Arduino Leonardo and Pro Micro (SparkFun), which are a million other things too.
USB = {(0x2341, 0x8036), (0x2341, 0x0036), (0x1B4F, 0x9206)}
_QUIET_S, _ANSWER_S, _START_S, _SILENT_S = 0.15, 1.0, 2.0, 0.5
_GAIN_U = 0.015 / math.sqrt(3.0)  # total output error of an ACS712 at 25 C (data sheet), rectangular
_NOISE_LEVELS = 2.0
_REFERENCE = "NLeSC/PowerSensor, PowerSensor.ino; ACS712 data sheet"


class Decoder:
    """Cuts the stream into rounds of the sensors in use. Used by one thread at a time.

    Attributes
    ----------
    skipped_bytes, lost : int
        Bytes that belong to no sample; samples of rounds that are not whole.
    """

    def __init__(self, sensors: Sequence[int]) -> None:
        self._sensors = np.array(sensors, np.uint8)
        self._rest = b""
        self._waiting: npt.NDArray[np.uint16] = np.empty(0, np.uint16)  # sensor << 11 | marker << 10 | level
        self.skipped_bytes = self.lost = 0

    def feed(self, data: bytes) -> tuple[npt.NDArray[np.uint16], list[int]]:
        """Take the next bytes; return levels, shape (rounds, sensors), and the rounds that carry a marker."""
        b = np.frombuffer(self._rest + data, np.uint8)
        first = (b & 0x80) != 0
        at = np.flatnonzero(first[:-1] & ~first[1:])
        pending = len(b) > 0 and bool(first[-1])
        self._rest = bytes(b[-1:]) if pending else b""
        self.skipped_bytes += len(b) - 2 * len(at) - pending
        one, two = b[at].astype(np.uint16), b[at + 1].astype(np.uint16)
        came = ((one >> 4) & 7) << 11 | ((two >> 6) & 1) << 10 | (one & 0xF) << 6 | (two & 0x3F)
        words = np.concatenate([self._waiting, came.astype(np.uint16)])
        width = len(self._sensors)
        starts = np.flatnonzero(words >> 11 == self._sensors[0])
        starts = starts[starts + width <= len(words)]
        rounds = words[starts[:, None] + np.arange(width)]
        whole = ((rounds >> 11) == self._sensors).all(axis=1)
        rounds, starts = rounds[whole], starts[whole]
        end = int(starts[-1]) + width if len(starts) else max(0, len(words) - width)
        self.lost += end - rounds.size
        self._waiting = words[end:]
        return rounds & 0x3FF, np.flatnonzero((rounds >> 10 & 1).any(axis=1)).tolist()


class _PowerSensor2Source(Source):
    """One streaming board. Takes over ``line``, whose board is at rest."""

    traits = Traits(interval_s=0.05, streaming=True)

    def __init__(self, line: Line, clock: Clock, *, relay: bool) -> None:
        self._line, self._clock = line, clock
        self._closed = False
        self._labels: deque[str] = deque()
        self._events: deque[tuple[int, int, str]] = deque(maxlen=1000)
        values = CONFIG.unpack(_configuration(line))
        used = [i for i in range(SENSORS) if values[3 * i] != 0.0]
        sane = all(map(math.isfinite, values)) and all(values[3 * i + 1] != 0 for i in used)
        if not used or not sane:
            why = f"no sensor of {line.name} is in use" if sane else f"the configuration of {line.name} is damaged"
            raise BackendUnavailableError(BACKEND, why, "set its sensors up with psconfig of PowerSensor2")
        part = Path(line.name).name
        self.channels = tuple(_channel(i, values[3 * i], values[3 * i + 1], values[3 * i + 2], part) for i in used)
        self._decoder, self._rate, self._bad = Decoder(used), EvenRate(), 0
        # Rows that are to be judged with those that come later, and since when they wait.
        self._held: tuple[npt.NDArray[np.uint16], list[int], int] | None = None
        note = "samples have no time of their own: rows are spread evenly between arrivals, some 10 ms apart"
        self.identity = Identity(BACKEND, "PowerSensor2", notes=(note,))
        if relay:
            line.transport = relayed(line.transport, clock, backend=BACKEND, stop=b"T")
        line.write(b"S")
        self._last_ns = self._heard_ns = clock.now_ns()
        if not line.transport.wait(_START_S) and clock.now_ns() - self._heard_ns >= _START_S * NS_PER_S:
            raise BackendUnavailableError(
                BACKEND, f"{line.name} answers but sends no samples", "unplug it for a moment"
            )

    def read(self) -> Block:
        """Decode what has arrived."""
        pieces: list[Piece] = self._line.transport.receive()
        levels, marked = self._decoder.feed(b"".join(data for _, data in pieces))
        if not len(levels):
            return Block.empty(columns(self.channels))
        held, self._held = self._held, None
        if held is not None:
            marked = [*held[1], *(len(held[0]) + row for row in marked)]
            levels = np.concatenate([held[0], levels])
        end_ns = max(pieces[-1][0], self._last_ns + len(levels))
        seconds = (end_ns - self._last_ns) / NS_PER_S
        missing_s = self._rate.missing_s(len(levels), seconds)
        since_ns = end_ns if held is None else held[2]
        if missing_s and end_ns - since_ns < MISSING_S * NS_PER_S:
            self._held = levels, marked, since_ns
            return Block.empty(columns(self.channels))
        silent = missing_s > 0.0 or end_ns - self._heard_ns > _SILENT_S * NS_PER_S
        bad = self._decoder.skipped_bytes + 2 * self._decoder.lost - self._bad
        self._bad += bad
        if silent or bad:
            what = "the board was silent" if silent else "samples were damaged or lost on the line"
            self._events.append((self._heard_ns, end_ns, what))
        else:
            self._rate.learn(len(levels), seconds)
        # After silence nobody knows what was; the rows that came then are of the last moments.
        each_ns = NS_PER_S / (self._rate.per_s or 1000.0)
        start_ns = max(self._last_ns, end_ns - round(len(levels) * each_ns)) if silent else self._last_ns
        t_ns: Ints = start_ns + np.arange(1, len(levels) + 1) * (end_ns - start_ns) // len(levels)
        lost = None
        gaps = -(-bad // (2 * levels.shape[1])) + max(silent, round(missing_s * self._rate.per_s))
        if gaps:
            lost = np.array([gaps] + [0] * (len(levels) - 1), np.int64)
        self._last_ns, self._heard_ns = int(t_ns[-1]), end_ns
        # At the ends of the converter the true value may be anything beyond: nothing is known.
        counts = np.where((levels == 0) | (levels == _TOP), np.nan, levels)
        marks = tuple((row, self._labels.popleft()) for row in marked if self._labels)
        return Block(t_ns, counts, lost, marks=marks)

    def mark(self, label: str) -> bool:
        """Have the board mark its next sample."""
        self._labels.append(label)
        self._line.write(b"M")
        return True

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return how far times can be trusted, and what was lost."""
        said = dict.fromkeys(what for begin, end, what in tuple(self._events) if begin < end_ns and end > begin_ns)
        return Remarks(5e-3, tuple(f"{self._line.name}: {what}" for what in said))

    def close(self) -> None:
        """Stop the board and release it."""
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(SourceLostError, SensorClosedError, ReadError):
                self._line.transport = taken_back(self._line.transport)
                self._line.write(b"T")
                self._line.rest(_QUIET_S)
        finally:
            self._line.transport.close()


def _configuration(line: Line) -> bytes:
    """Bring the board to rest and read its configuration."""
    line.write(b"T")
    line.rest(_QUIET_S)
    answer = line.ask(b"R", CONFIG.size, _ANSWER_S) + line.rest(_QUIET_S)
    if len(answer) != CONFIG.size:
        msg = f"{line.name}: {amount(len(answer), 'byte')} came where a configuration has {CONFIG.size}"
        raise ReadError(msg)
    return answer


def _channel(sensor: int, volts: float, sensitivity: float, null_w: float, part: str) -> Channel:
    scale = VOLTS_PER_LEVEL * volts / sensitivity
    return Channel(
        f"sensor{sensor}", Quantity.POWER, scale, -MIDDLE - null_w / scale, domain=f"external/{part}/sensor{sensor}",
        gain_u=_GAIN_U, offset_u=abs(scale), noise=_NOISE_LEVELS * abs(scale), reference=_REFERENCE,
    )  # fmt: skip


def discover(device: str | None = None, *, machine: Machine | None = None) -> Discovery:
    """Say at which ports a board could be: none is asked, since a port may belong to anything.

    Of a ``machine`` also whether a named one can be used.
    """
    if machine is not None and device is not None:
        return Discovery(findings=(port_finding(BACKEND, Path(device), machine),))
    could = [p.path for p in list_ports() if p.usb in USB]
    why = (
        f"a board could be at {', '.join(could)}; only a port that is named is asked"
        if could
        else "no port could be a board's"
    )
    cure = f"name its port: {BACKEND}:{could[0] if could else '/dev/ttyACM0'}; to try without one: {BACKEND}:virtual"
    return Discovery((), (Finding(BACKEND, "", Verdict.ABSENT, why, Obstacle.HARDWARE, (cure,)),))


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    transport: str | Transport = "relay",
    timeout_s: float = 2.0,
) -> Source:
    """Open the board at a port and start its stream; ``transport`` and ``timeout_s`` as for ``powersensor3``.

    Raises BackendUnavailableError: no port named, not there, in use, no such board at it, or no sensor in use.
    """
    if device is None:
        raise BackendUnavailableError(discover().findings[0])
    if isinstance(transport, str):
        one_of(transport, ("relay", "direct"), "the transport")
        line = Line(
            DirectTransport(open_port(BACKEND, device, clock=clock, timeout_s=timeout_s), device, clock), device
        )
    else:
        line = Line(transport, device)
    try:
        return _PowerSensor2Source(line, clock, relay=transport == "relay")
    except (ReadError, SourceLostError) as error:
        line.transport.close()
        raise BackendUnavailableError(BACKEND, str(error), "see that a PowerSensor2 is at this port") from error
    except BaseException:
        line.transport.close()
        raise
