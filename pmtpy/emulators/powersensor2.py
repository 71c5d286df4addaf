"""The far side of a PowerSensor2: a microcontroller that converts one sensor after the other."""

from __future__ import annotations

import numpy as np

from pmtpy.backends import powersensor2
from pmtpy.backends.powersensor2 import CONFIG, MIDDLE, SENSORS, VOLTS_PER_LEVEL
from pmtpy.core.clock import Clock
from pmtpy.core.source import Source
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.serial_board import MemoryLine
from pmtpy.emulators.world import World, shared_world, unheld

CONVERSION_NS = 119_000  # 13 cycles of 125 kHz and the interrupt: 8.4 kHz, 2.8 kHz for each of three sensors
SHARES = {0: 0.6, 1: 0.3, 3: 0.1}
VOLTS, SENSITIVITY = 12.0, 0.185  # an ACS712 of 5 A


class Board:
    """A board with three sensors in use. ``drop``: bytes lost next; ``erased``: no sensor in use."""

    def __init__(self, world: World, *, streaming: bool = False, erased: bool = False, noise: float = 1.0) -> None:
        self._world, self.streaming = unheld(world), streaming
        self.baud, self.attached, self.greeting = 0, True, b""
        self.drop, self._noise = 0, noise
        self._random = np.random.default_rng(world.seed)
        self._used = [] if erased else list(SHARES)
        self._start_ns, self._sent = world.clock.now_ns(), 0
        self._out, self._mark = b"", False

    def feed(self, data: bytes, now_ns: int) -> None:
        """Obey commands, of one letter each."""
        self._out += self._samples(now_ns)
        for letter in data:
            if letter == ord("R"):
                fields = [
                    v for i in range(SENSORS) for v in ((VOLTS, SENSITIVITY, 0.0) if i in self._used else (0.0,) * 3)
                ]
                self._out += CONFIG.pack(*fields)
            elif letter == ord("S"):
                self.streaming, self._start_ns, self._sent = True, now_ns, 0
            elif letter in b"TX":
                self.streaming = False
                self._out += b"\xff\x3f" if letter == ord("X") else b""
            elif letter == ord("M"):
                self._mark = True

    def produce(self, now_ns: int) -> bytes:
        """Return answers and samples up to now."""
        out, self._out = self._out + self._samples(now_ns), b""
        if self.drop and len(out) > self.drop:
            out, self.drop = out[self.drop :], 0
        return out

    def _samples(self, now_ns: int) -> bytes:
        end = (now_ns - self._start_ns) // CONVERSION_NS
        if not self.streaming or not self._used or end <= self._sent:
            return b""
        k = np.arange(self._sent, end)
        self._sent = int(end)
        watts = self._world.watts(self._start_ns + (k + 1) * CONVERSION_NS)
        sensor = np.array(self._used)[k % len(self._used)]
        share = np.array([SHARES.get(i, 0.0) for i in range(SENSORS)])[sensor]
        level = (
            MIDDLE + watts * share / VOLTS * SENSITIVITY / VOLTS_PER_LEVEL + self._random.normal(0, self._noise, len(k))
        )
        bits = np.clip(np.rint(level), 0, 1023).astype(np.int64)
        both = np.empty((len(k), 2), np.uint8)
        both[:, 0] = 0x80 | sensor << 4 | bits >> 6
        both[:, 1] = bits & 0x3F
        if self._mark:
            both[0, 1] |= 0x40
            self._mark = False
        return bytes(both.tobytes())


def open_virtual(
    device: str | None = None, *, clock: Clock, load: str | None = None, streaming: bool = False
) -> Source:
    """Open the real backend on a virtual board; ``streaming``: left so by an earlier program."""
    check_device("powersensor2", device)
    world = shared_world(load, clock=clock)
    line = MemoryLine(Board(world, streaming=streaming), clock)
    return open_on(
        world,
        lambda at: powersensor2.open_source("virtual", clock=at, transport=line),
        leave=lambda: None,
    )
