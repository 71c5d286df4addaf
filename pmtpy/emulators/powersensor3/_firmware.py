"""The firmware of the board as a program that waits: its main loop and what each command does.

It is written as a generator, because that is what firmware is: it yields what it waits for and is resumed by the
board (:mod:`pmtpy.emulators.powersensor3._board`) when that has come. It knows no time and does no input or output.
Facts: commands and their quirks from the public PowerSensor3 repository, firmware 1.6.1 and its change log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from pmtpy.emulators.powersensor3._spec import SENSORS, BoardSpec

_HOST_TIMEOUT_NS = 2_000_000_000  # then the device resets itself
_BLINK_NS = 500_000_000
_STOP_DELAY_NS = 100_000_000  # before the stop words
_DISPLAY_NS = 3_000_000  # to draw a message, "some milliseconds": assumed
_STOP_WORDS = b"\xff\x3f" * 2


@dataclass(frozen=True, slots=True)
class Idle:
    """Wait for the next byte while frames are sent: the main loop."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Block the main loop for so many nanoseconds: no frame is sent."""

    ns: int


@dataclass(frozen=True, slots=True)
class Take:
    """Block until so many bytes have come from the host, or reset after the time limit (None: never)."""

    count: int
    limit_ns: int | None


@dataclass(frozen=True, slots=True)
class NextSample:
    """Block until the next frame is complete."""


@dataclass(frozen=True, slots=True)
class MarkersGone:
    """Send frames until no marker is pending."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Wait for ever: only power or a reset by hand helps."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Leave the bus and start again; with ``bootloader``, stay away."""

    bootloader: bool = False


Want = Idle | Pause | Take | NextSample | MarkersGone | Hang | Reset
Program = Generator[Want, bytes, None]


class Pins(Protocol):
    """What the firmware can do to the world."""

    flash: bytes

    def send(self, data: bytes) -> None:
        """Queue bytes for the host."""
        ...

    def send_latest_frame(self) -> None:
        """Queue the newest complete frame."""
        ...

    def conversions(self) -> int:
        """Conversions since the counter was last cleared."""
        ...

    def clear_conversions(self) -> None:
        """Start counting conversions from 0."""
        ...


class Firmware:
    """State in RAM, and the program. One object lives from one boot to the next; the board owns it."""

    def __init__(self, spec: BoardSpec, pins: Pins) -> None:
        self.spec, self._pins = spec, pins
        self.ram = bytearray(pins.flash)
        self.streaming = False
        self.single = False
        self.markers = 0
        self._display = True
        self._handlers: dict[bytes, Callable[[], Program]] = {
            b"R": self._read_configuration,
            b"W": self._write_configuration,
            b"S": self._start,
            b"T": self._stop,
            b"X": self._stop_with_words,
            b"M": self._mark,
            b"I": self._one_frame,
            b"Q": self._count,
            b"B": self._blink,
            b"V": self._version,
        }
        if spec.release >= (1, 4):
            self._handlers |= {b"Z": self._reset, b"Y": self._bootloader}
        if spec.release < (1, 2):
            self._handlers |= {b"D": self._toggle_display}

    def main(self) -> Program:
        """Run from boot: blink once, then one byte per pass."""
        yield Pause(_BLINK_NS)
        while True:
            command = yield Idle()
            handler = self._handlers.get(command)
            if handler is not None:
                yield from handler()

    @property
    def _host_limit_ns(self) -> int | None:
        return _HOST_TIMEOUT_NS if self.spec.release >= (1, 3, 4) else None

    def _read_configuration(self) -> Program:
        size = self.spec.record_bytes
        for sensor in range(SENSORS):
            self._pins.send(bytes(self.ram[sensor * size : (sensor + 1) * size]))
            yield Take(1, self._host_limit_ns)
        self._pins.send(b"D")

    def _write_configuration(self) -> Program:
        size = self.spec.record_bytes
        for sensor in range(SENSORS):
            self.ram[sensor * size : (sensor + 1) * size] = yield Take(size, self._host_limit_ns)
            self._pins.send(b"S")
        yield Pause(round(self.spec.flash_s * 1e9))
        self._pins.flash = bytes(self.ram)
        self._pins.send(b"D")

    def _start(self) -> Program:
        if not self.streaming:
            yield Pause(_DISPLAY_NS)
        self._pins.clear_conversions()
        self.streaming = True

    def _halt(self) -> Program:
        if self.streaming:
            if self.markers:
                yield Hang() if self.spec.hang_on_marker else MarkersGone()
            yield NextSample()
        self.streaming = False
        yield Pause(_DISPLAY_NS)

    def _stop(self) -> Program:
        flagged = self.streaming
        yield from self._halt()
        if flagged:  # the sample that was waited for
            self._pins.send_latest_frame()

    def _stop_with_words(self) -> Program:
        flagged = self.streaming
        yield from self._halt()
        yield Pause(_STOP_DELAY_NS)
        self._pins.send(_STOP_WORDS)
        if flagged:
            self._pins.send_latest_frame()

    def _mark(self) -> Program:
        # Before 1.5.0 there was a flag, not a counter.
        self.markers = self.markers + 1 if self.spec.release >= (1, 5) else 1
        yield from ()

    def _one_frame(self) -> Program:
        self.single = not self.streaming
        yield from ()

    def _count(self) -> Program:
        self._pins.send((self._pins.conversions() & 0xFFFFFFFF).to_bytes(4, "little"))
        yield from ()

    def _blink(self) -> Program:
        yield Pause(_BLINK_NS)

    def _version(self) -> Program:
        self._pins.send(self.spec.version_line)
        yield from ()

    def _toggle_display(self) -> Program:
        self._display = not self._display
        self._pins.send(b"L" if self._display else b"l")
        yield from ()

    def _reset(self) -> Program:
        yield Reset()

    def _bootloader(self) -> Program:
        yield Reset(bootloader=True)
