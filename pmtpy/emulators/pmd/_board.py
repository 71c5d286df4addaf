"""The far side of a PMD-USB, a PMD2, a PMD2X and a WireView: commands, converters, an oscillator of their own."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from pmtpy.backends.pmd import codec
from pmtpy.backends.pmd.codec import AMPERES_PER_CODE, PAIRS, VOLTS_PER_CODE, Config, Layout
from pmtpy.core.rows import Floats, Ints
from pmtpy.emulators.world import World, unheld

VOLTS = 12.0
SHARES = dict(zip(PAIRS, (0.45, 0.35, 0.15, 0.05), strict=True))  # of the load's power
# Spacing of records in ticks, as in the recordings of Yang et al.: 602 usually, with pauses for other work.
_SPACING = (601, 602, 602, 603, 602, 601, 602, 606, 602, 603, 602, 637, 602, 601, 602, 602, 684, 602, 602, 603, 739)
_LONG_PAUSE = 1017
_TICK_HZ = 2_934_500.0
_ARGUMENTS = {0x05: 0, 0x07: 3, 0x08: 16}


class PmdBoard:
    """A PMD-USB. Fields may be changed by tests while it runs.

    Attributes
    ----------
    baud : int
    attached : bool
    streaming : bool
    tick_hz : float
        Of its oscillator.
    drop_bytes : int
        So many bytes of the stream are lost on the line next. A fault.
    silent : bool
        It answers nothing. A fault.
    tick_offset : int
        What its stamps show more: another number from one record to the next is a meter that begins anew. A fault.
    """

    greeting = b""

    def __init__(
        self,
        world: World,
        *,
        tick_hz: float = _TICK_HZ * 1.0006,
        baud: int = 115200,
        streaming: bool = False,
        noise_codes: float = 1.5,
        offsets: tuple[int, ...] = (0,) * 8,
        firmware: int = 6,
        shares: Mapping[str, float] = SHARES,
    ) -> None:
        self._world = unheld(world)
        self.baud, self.attached, self.streaming = baud, True, streaming
        self.tick_hz, self.firmware = tick_hz, firmware
        self.drop_bytes, self.silent, self.tick_offset = 0, False, 0
        version, rest = (5, bytes(11)) if firmware >= 6 else (4, bytes(3))
        self.config = Config(version, offsets, 0, 60, 1, 0, 0, 2, rest)
        self._shares = np.array([shares.get(p, 0.0) for p in PAIRS])
        self._noise, self._random = noise_codes, np.random.default_rng(world.seed)
        self._start_ns = world.clock.now_ns()
        self._stamp_bytes = 2 if streaming else 4
        self._begin(self._start_ns)
        self._command = b""
        self._out = b""

    def _begin(self, now_ns: int) -> None:
        self._sent_ticks = self._ticks_at(now_ns)

    def _ticks_at(self, t_ns: int) -> int:
        return int((t_ns - self._start_ns) * 1e-9 * self.tick_hz)

    def feed(self, data: bytes, now_ns: int) -> None:
        """Obey commands; one that is broken off waits for the rest of its arguments."""
        self._out += self._records(now_ns)
        self._command += data
        while self._command:
            code = self._command[0]
            size = 1 + (_ARGUMENTS.get(code, 0) or (codec.config_size(self.firmware) if code == 5 else 0))
            if len(self._command) < size:
                return
            arguments, self._command = self._command[1:size], self._command[size:]
            if not self.silent:
                self._out += self._obey(code, arguments, now_ns)

    def _obey(self, code: int, arguments: bytes, now_ns: int) -> bytes:
        if code == 0:
            return codec.STREAMING.encode()
        if code == 1:
            return bytes((0xEE, 0x0A, self.firmware))
        if code in {2, 3, 6}:
            return self._values(code, now_ns)
        if code == 4:
            return codec.pack_config(self.config, store=False)
        if code == 5:
            self.config = codec.parse_config(arguments)
        elif code == 7:
            self.streaming, self._stamp_bytes = bool(arguments[0]), arguments[1]
            self._mask = [bool(arguments[2] >> i & 1) for i in range(8)]
            self._begin(now_ns)
        elif code == 8:
            self.baud = struct.unpack("<4I", arguments)[0]
        return b""

    _mask = [True] * 8

    def _values(self, code: int, now_ns: int) -> bytes:
        codes = self._codes(np.array([now_ns]))[0]
        if code == 6:
            return bytes((codes << 4).astype("<i2").tobytes())
        out = b""
        for pair, (v, a) in zip(PAIRS, codes.reshape(4, 2).tolist(), strict=True):
            volts, amperes = v * VOLTS_PER_CODE, a * AMPERES_PER_CODE
            if code == 3:
                out += struct.pack("<hh", round(volts * 100), round(amperes * 10))
            else:
                watts = max(0, round(volts * amperes))
                out += struct.pack(
                    "<6s3H", pair.upper().encode(), round(volts * 100), max(0, round(amperes * 10)), watts
                )
        return out

    def _codes(self, t_ns: Ints) -> Ints:
        """Converter codes at instants, shape (n, 8); what the converter says before the offsets are added."""
        watts = self._world.watts(t_ns)
        codes: Floats = np.empty((len(t_ns), 8))
        codes[:, ::2] = VOLTS / VOLTS_PER_CODE
        codes[:, 1::2] = watts[:, None] * self._shares / VOLTS / AMPERES_PER_CODE
        codes += self._random.normal(0.0, self._noise, codes.shape) if self._noise else 0.0
        codes -= np.array(self.config.offsets)
        return np.clip(np.rint(codes), *codec.END_CODES).astype(np.int64)

    def produce(self, now_ns: int) -> bytes:
        """Return answers, and records of the stream up to now."""
        out, self._out = self._out + self._records(now_ns), b""
        if self.drop_bytes and len(out) > self.drop_bytes:
            out, self.drop_bytes = out[self.drop_bytes :], 0
        return out

    def _records(self, now_ns: int) -> bytes:
        if not self.streaming or self.silent:
            return b""
        now = self._ticks_at(now_ns)
        # A record takes as long as the line needs for it, if that is longer.
        size = self._stamp_bytes + 2 * sum(self._mask)
        line = size * 10 / self.baud * self.tick_hz
        spacing = np.maximum(np.array((*_SPACING * 8, _LONG_PAUSE)), int(line))
        cycle = int(spacing.sum())
        places = np.cumsum(spacing)
        first = self._sent_ticks // cycle
        several = np.arange(first, now // cycle + 1)
        ticks = (several[:, None] * cycle + places).ravel()
        ticks = ticks[(ticks > self._sent_ticks) & (ticks <= now)]
        if not len(ticks):
            return b""
        self._sent_ticks = int(ticks[-1])
        t_ns = self._start_ns + np.rint(ticks / self.tick_hz * 1e9).astype(np.int64)
        words = (self._codes(t_ns)[:, np.flatnonzero(self._mask)] << 4).astype("<i2")
        if not self._stamp_bytes:
            return bytes(words.tobytes())
        stamps = ((ticks + self.tick_offset) % (1 << (8 * self._stamp_bytes))).astype(f"<u{self._stamp_bytes}")
        both = np.zeros(len(ticks), [("tick", stamps.dtype), ("word", "<i2", (words.shape[1],))])
        both["tick"], both["word"] = stamps, words
        return bytes(both.tobytes())


class RailBoard:
    """A PMD2, PMD2X or WireView: answers when asked. ``half``: an answer is cut short once. A fault."""

    def __init__(self, world: World, layout: Layout) -> None:
        self._world, self._layout = unheld(world), layout
        self._share = 1.0 / sum("." not in rail for rail in layout.rails)
        self.baud, self.attached, self.half = 0, True, False
        self.greeting = layout.model.encode() + b"\0"
        self._out = b""

    def feed(self, data: bytes, now_ns: int) -> None:
        """Answer each command; those that it does not know are ignored."""
        for code in data:
            if code == 0:
                self._out += self.greeting
            elif code == 1:
                self._out += bytes((0xEE, 0x17, 3))
            elif code == 4:
                answer = self._layout.pack([self._reading(rail, now_ns) for rail in self._layout.rails])
                self._out += answer[: len(answer) // 2] if self.half else answer
                self.half = False

    def _reading(self, rail: str, now_ns: int) -> tuple[int, int, int]:
        watts = float(self._world.watts(now_ns)) * self._share / (6 if "." in rail else 1)
        return 12000, round(watts / VOLTS * 1000), round(watts * 1000)

    def produce(self, now_ns: int) -> bytes:  # noqa: ARG002  (it sends nothing by itself)
        """Return the answers."""
        out, self._out = self._out, b""
        return out
