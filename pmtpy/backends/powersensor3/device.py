"""A board and its commands: version, stored configuration, stream, marker, reset. Over any transport.

Every wait has a limit. The board answers nothing while it streams, so each command that has a reply first brings
the line to rest. The board resets itself when the host breaks off inside a configuration transfer for 2 s, which is why
opening tries again once.

Facts: PowerSensor3 firmware 1.6.1, ``device/PowerSensor/PowerSensor.ino``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmtpy.backends._serial.port import list_ports, open_port
from pmtpy.backends._serial.transport import DirectTransport, Transport
from pmtpy.backends.powersensor3._codec import FRAME_BYTES, SENSORS, Decoder, Levels
from pmtpy.backends.powersensor3._port import BACKEND, choose_port
from pmtpy.backends.powersensor3.config import OLD_RECORD, RECORD, Records, pack_record, stored, unpack_record
from pmtpy.backends.powersensor3.limits import refuse_implausible
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.presentation import amount
from pmtpy.errors import BackendUnavailableError, ProtocolError, ReadError, SourceLostError

STOP = b"T"  # the command that ends a stream
QUIET_S = 0.15  # the firmware pauses for 100 ms before the last words of a stop with acknowledgement
_REPLY_S = 1.0  # replies take milliseconds; redrawing the display comes first
_FLASH_S = 10.0  # erasing a sector takes seconds
STREAM_S = 2.0
STOP_LIMIT_NS = 1 * NS_PER_S
_STOP_LIMIT_BYTES = 1 << 22
_STOP_TRIES = 4
MARKER_S = 0.02  # frames are 30 to 60 us apart, USB takes a millisecond
_SELF_RESET_NS = 2_200_000_000  # the device resets itself after 2000 ms without the byte that it expects
_REAPPEAR_NS = 5 * NS_PER_S

_VERSION = re.compile(r"(?:Firmware version: )?(F\d{3})-(\d+)\.(\d+)\.(\d+)(-DEMO)?")


@dataclass(frozen=True, slots=True)
class Variant:
    """How a kind of board samples: nominal interval in us, conversions averaged, stamp after mid-measurement.

    ``stamp_lag`` is in intervals: the averaging boards stamp a frame after its last scan.
    """

    interval_us: float
    scans: int
    stamp_lag: float


# F411: 8 channels x 25 cycles x 6 scans at 24 MHz; F401: the same at 21 MHz; F407: 4 conversions of 154 cycles at
# 21 MHz on each of two converters, no averaging. The interval is measured from the stream; this is where it begins.
VARIANTS = {"F411": Variant(50.0, 6, 0.5), "F401": Variant(400 / 7, 6, 0.5), "F407": Variant(88 / 3, 1, 0.0)}


@dataclass(frozen=True, slots=True)
class Firmware:
    """What the board says of itself."""

    text: str  # the version line as sent, without the end of line
    mcu: str = ""  # ``F401``, ``F411`` or ``F407``; empty where the line is not understood
    number: tuple[int, int, int] = (0, 0, 0)  # Version, e.g. (1, 6, 1); (0, 0, 0) where the line is not understood.
    demo: bool = False  # a demonstration build, whose sampling interval is irregular

    @property
    def variant(self) -> Variant:
        """How it samples; taken for an F411 where it is not known."""
        return VARIANTS.get(self.mcu, VARIANTS["F411"])

    @property
    def notes(self) -> tuple[str, ...]:
        """Plain warnings about it."""
        if self.mcu not in VARIANTS:
            return (f"firmware {self.text!r} is not known; treated as that of an F411 board",)
        notes = []
        if self.number > (1, 6, 999):
            notes.append(f"firmware {self.text} is newer than 1.6, the newest that pmtpy knows")
        if self.number < (1, 3, 0):
            notes.append(f"firmware {self.text} is older than 1.3.0 and stores no pair names")
        if self.demo:
            notes.append(f"firmware {self.text} is a demonstration build: its sampling interval is irregular")
        return tuple(notes)


def parse_version(line: bytes) -> Firmware:
    """Understand a version line; never fails."""
    text = line.decode("latin-1").strip()
    match = _VERSION.fullmatch(text)
    if match is None:
        return Firmware(text)
    mcu, major, minor, patch, demo = match.groups()
    return Firmware(text, mcu, (int(major), int(minor), int(patch)), bool(demo))


class Board:
    """One board, at rest between calls. Used by one thread at a time.

    Attributes
    ----------
    name : str
        Port or description, for messages.
    transport : Transport
        The way to the board; may be exchanged while the line is at rest.
    firmware : Firmware
    records : tuple of SensorRecord
        Stored configuration, one for each of the eight sensors.
    notes : tuple of str
        Plain warnings about firmware and configuration.
    """

    def __init__(self, transport: Transport, name: str, clock: Clock) -> None:
        self.name = name
        self.transport = transport
        self.firmware = Firmware("")
        self.records: Records = ()
        self.notes: tuple[str, ...] = ()
        self.record_bytes = RECORD.size
        self._clock = clock
        self._input = b""

    def connect(self) -> None:
        """Bring the line to rest, read version and configuration.

        Raises ProtocolError: what answers is no PowerSensor3, or stopped answering.
        Raises SourceLostError: the port vanished.
        """
        self.rest()
        self.firmware = self._read_version()
        self.records, warnings = self._read_records()
        self.notes = self.firmware.notes + warnings

    def rest(self) -> None:
        """Stop the stream and throw away what comes until the line is quiet."""
        self._input = b""
        for _ in range(_STOP_TRIES):
            self.transport.write(STOP)
            deadline_ns = self._clock.now_ns() + STOP_LIMIT_NS
            seen = 0
            while self.transport.wait(QUIET_S):
                seen += sum(len(piece) for _, piece in self.transport.receive())
                if self._clock.now_ns() > deadline_ns or seen > _STOP_LIMIT_BYTES:
                    break
            else:
                return
        msg = f"{self.name} does not stop sending after the stop command; is this a PowerSensor3?"
        raise ProtocolError(msg)

    def start(self) -> None:
        """Begin to stream."""
        self.transport.write(b"S")

    def stop(self) -> None:
        """Silence the stream without waiting for the line."""
        self.transport.write(STOP)

    def mark(self) -> None:
        """Have the next frame carry the marker bit."""
        self.transport.write(b"M")

    def reset(self, *, dfu: bool = False) -> None:
        """Reboot the board, into its boot loader with ``dfu``. The port vanishes; close and open again."""
        self.rest()
        self.transport.write(b"Y" if dfu else b"Z")

    def write_records(self, records: Records, *, plausible: bool = True) -> None:
        """Store a configuration and verify it by reading it back. What cannot be stored is refused before it begins.

        Raises TargetError: a number beyond single precision, or, unless ``plausible`` is False, a change that no module
        can have.
        Raises ProtocolError: the board broke off, or stored something else; the message names the sensor and both
        records.
        """
        if plausible:
            refuse_implausible(self.records, records)
        packed = [pack_record(record, self.record_bytes) for record in records]
        self.rest()
        self.transport.write(b"W")
        for sensor, record in enumerate(packed):
            self.transport.write(record)
            self._expect(b"S", _REPLY_S, f"storing sensor {sensor}")
        self._expect(b"D", _FLASH_S, "writing the flash memory")
        self.records, warnings = self._read_records()
        self.notes = self.firmware.notes + warnings
        for sensor, (wanted, found) in enumerate(zip(records, self.records, strict=True)):
            # As text, because corrupt memory reads as NaN, which equals nothing.
            if repr(stored(wanted, self.record_bytes)) != repr(found):
                msg = f"{self.name}: sensor {sensor} was to be stored as {wanted} but reads back as {found}; try again"
                raise ProtocolError(msg)

    def collect(self, frames: int) -> Levels:
        """Stream until ``frames`` frames have come; return their levels, uint16 of shape (frames, 8).

        Raises ProtocolError: the stream dried up, or what came was mostly no frames.
        """
        decoder = Decoder()
        parts: list[Levels] = []
        self.start()
        try:
            while decoder.frames < frames and decoder.skipped_bytes <= FRAME_BYTES * (frames + 1000):
                pieces = self.transport.receive()
                if pieces:
                    parts += [decoder.feed(piece).levels for _, piece in pieces]
                elif not self.transport.wait(STREAM_S):
                    break
        finally:
            self.rest()
        if decoder.frames < frames:
            bad = decoder.skipped_bytes
            msg = (
                f"{self.name}: only {decoder.frames} of {amount(frames, 'frame')} arrived; "
                f"{amount(bad, 'byte belongs', 'bytes belong')} to no frame"
            )
            raise ProtocolError(msg)
        return np.concatenate(parts)[:frames]

    def close(self) -> None:
        """Release the port. May be called twice."""
        self.transport.close()

    def _read(self, count: int, timeout_s: float) -> bytes:
        """Up to ``count`` bytes; fewer when the line stays silent for ``timeout_s``."""
        while len(self._input) < count:
            pieces = self.transport.receive()
            if pieces:
                self._input += b"".join(piece for _, piece in pieces)
            elif not self.transport.wait(timeout_s):
                break
        taken, self._input = self._input[:count], self._input[count:]
        return taken

    def _expect(self, wanted: bytes, timeout_s: float, doing: str) -> None:
        answer = self._read(len(wanted), timeout_s)
        if answer != wanted:
            msg = f"{self.name}: expected {wanted!r} but got {answer!r} while {doing}; the board resets itself in 2 s"
            raise ProtocolError(msg)

    def _read_version(self) -> Firmware:
        self.transport.write(b"V")
        line = b""
        while not line.endswith(b"\n") and len(line) < 80:
            byte = self._read(1, _REPLY_S)
            if not byte:
                break
            line += byte
        if not line.endswith(b"\n") or not line.strip().isascii():
            msg = f"{self.name} answered {line!r} to the question for its version; is this a PowerSensor3?"
            raise ProtocolError(msg)
        return parse_version(line)

    def _read_records(self) -> tuple[Records, tuple[str, ...]]:
        self.transport.write(b"R")
        old = self.firmware.mcu and self.firmware.number < (1, 3, 0)
        size = OLD_RECORD.size if old else RECORD.size
        records = []
        warnings: list[str] = []
        for sensor in range(SENSORS):
            raw = self._read(size, _REPLY_S)
            if sensor == 0 and len(raw) == OLD_RECORD.size:
                size = OLD_RECORD.size  # an unknown firmware that turns out to be an old one
            if len(raw) != size:
                msg = f"{self.name}: the configuration of sensor {sensor} has {len(raw)} instead of {size} bytes"
                raise ProtocolError(msg)
            record, wrong = unpack_record(raw, sensor)
            records.append(record)
            warnings += wrong
            self.transport.write(b"s")
        self._expect(b"D", _REPLY_S, "reading the configuration")
        self.record_bytes = size
        if all(record.erased for record in records):
            warnings = [f"the memory of {self.name} is erased: no sensor is configured, as after firmware was written"]
        return tuple(records), tuple(warnings)


def open_board(device: str | None, *, clock: Clock, timeout_s: float = 2.0) -> Board:
    """Open the board at a port (None: the only one there is), at rest, with its configuration read.

    Raises BackendUnavailableError: no such port, in use, or what is there does not answer as a PowerSensor3 does.
    """
    path = device or choose_port(list_ports()).path

    def attempt() -> Board:
        fd = open_port(BACKEND, path, clock=clock, timeout_s=timeout_s)
        board = Board(DirectTransport(fd, path, clock), path, clock)
        return _connected(board)

    try:
        return attempt()
    except (ProtocolError, ReadError, SourceLostError):
        # A program that died inside a configuration transfer leaves a board that resets itself within 2 s.
        return _again(attempt, path, clock)


def _connected(board: Board) -> Board:
    try:
        board.connect()
    except BaseException:
        board.close()
        raise
    return board


def _again(attempt: Callable[[], Board], path: str, clock: Clock) -> Board:
    never = threading.Event()
    clock.wait_until(clock.now_ns() + _SELF_RESET_NS, never)
    deadline_ns = clock.now_ns() + _REAPPEAR_NS
    while not os.path.exists(path) and clock.now_ns() < deadline_ns:  # noqa: PTH110  (a device path, not a file)
        clock.wait_until(clock.now_ns() + NS_PER_S // 20, never)
    try:
        return attempt()
    except (ProtocolError, ReadError, SourceLostError) as error:
        raise BackendUnavailableError(
            BACKEND,
            f"{path}: {error}",
            "check that the port is the board's; if it is, press its reset button and try again",
        ) from error
