"""Bytes of ElmorLabs and Thermal Grizzly power meters to records, answers and configurations. Pure.

Facts: the maker's own program (``ElmorLabs/PMD-USB``, ``PMD/FormPMD.cs``) and loggers (``PMD2-Python`` and
``pmd-usb-serial-interface-fast`` of ElmorLabs, ``WireViewPro2-Python`` of ElmorLabs-ThermalGrizzly), and the recordings
of ``JimZeyuYang/GPU_Power_Benchmark``.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Ints
from pmtpy.errors import ProtocolError

PAIRS = ("pcie1", "pcie2", "eps1", "eps2")
# 31 V and 200 A over 4096 codes (Yang et al., and the maker's logger).
VOLTS_PER_CODE, AMPERES_PER_CODE = 0.007568, 0.0488
END_CODES = (-2048, 2047)
WELCOME, READ_ID, READ_CONFIG, WRITE_CONFIG, READ_VALUES = b"\x00", b"\x01", b"\x04", b"\x05", b"\x04"
STOP = bytes((7, 0, 0, 0))
BAUDS = (115200, 921600, 460800, 230400, 2000000, 1500000)  # 115200 after power-up; the others have been seen in use
AVERAGED = (1, 64, 4096, 32768)  # samples of 29 us: what the setting ``averaging`` means
Codes = npt.NDArray[np.int16]

_TICKS = (80, 15_000)  # between two records: a conversion takes 85, the line 5100 at 115200 baud, and there are pauses
_AGREE = 3  # records that must follow each other before the stream is believed again
_MAX_STEP_RATIO = 2.0  # steps from record to record, at most: the longest pause is 1.7 times the usual step
_AT_ONCE = 256  # records, or bytes of a search: what is looked at before damage in it is found, and again behind that


def start_command(stamp_bytes: int) -> bytes:
    """Return the command that starts the stream of all channels with stamps of 2 or 4 bytes."""
    return bytes((7, 1, stamp_bytes, 0xFF))


def baud_command(baud: int) -> bytes:
    """Return the command that sets the rate of the line, 8 bits, no parity, 1 stop bit."""
    return b"\x08" + struct.pack("<4I", baud, 2, 0, 0)


@dataclass(frozen=True, slots=True)
class Records:
    """Whole records of the stream."""

    ticks: Ints  # shape (n,); as sent, modulo 2^16 or 2^32
    codes: Codes  # int16, shape (n, 8); signed codes: volts and amperes of each pair in turn
    ends: Ints  # shape (n,); bytes of this feed that had come when the record was whole

    def __len__(self) -> int:
        """Number of records."""
        return len(self.ticks)


class Decoder:
    """Cuts a stream without sync bytes into records. Used by one thread at a time.

    A record has 32 bits that are always 0, and the stamp of the one behind it follows its own by a plausible step: so a
    record is believed when the next one has come. Where that fails, at damage and at gaps, it slides on byte by byte
    until three records follow each other. What was damaged elsewhere in a record cannot be seen.

    Attributes
    ----------
    skipped_bytes : int
        Bytes that belonged to no record that is believed.
    damaged : int
        How often the sequence was broken.
    """

    def __init__(self, stamp_bytes: int) -> None:
        self.record = stamp_bytes + 16
        self.skipped_bytes = self.damaged = 0
        self._stamp = stamp_bytes
        self._dtype = np.dtype([("tick", f"<u{stamp_bytes}"), ("word", "<i2", (8,))])
        self._modulo = 1 << (8 * stamp_bytes)
        self._rest = b""
        self._synced = False

    def feed(self, data: bytes) -> Records:
        """Take the next bytes; return the records that are whole, and followed by another, by now."""
        held = len(self._rest)
        data, at = self._rest + data, 0
        ticks: list[Ints] = []
        codes: list[Codes] = []
        ends: list[Ints] = []
        while len(data) - at >= self.record * (2 if self._synced else _AGREE):
            if not self._synced:
                found = self._search(data, at)
                self.skipped_bytes += found - at
                at = found
                if not self._synced:
                    break
            whole = np.frombuffer(data, self._dtype, min((len(data) - at) // self.record, _AT_ONCE), at)
            good = self._followed(whole)
            n = len(good) if good.all() else int(np.argmin(good))
            if n:
                ticks.append(whole["tick"][:n].astype(np.int64))
                codes.append(np.right_shift(whole["word"][:n], 4))
                ends.append(at - held + self.record * np.arange(1, n + 1))
                at += self.record * n
            if n < len(good):
                self._synced = False
                self.damaged += 1
        self._rest = data[at:]
        if not ticks:
            return Records(np.empty(0, np.int64), np.empty((0, 8), np.int16), np.empty(0, np.int64))
        return Records(np.concatenate(ticks), np.concatenate(codes), np.concatenate(ends))

    def _plausible(self, steps: Ints) -> npt.NDArray[np.bool_]:
        """Which steps could be those from a record to the next."""
        steps = np.mod(steps, self._modulo)
        return (steps >= _TICKS[0]) & (steps <= _TICKS[1])

    def _followed(self, whole: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Which records, all but the last, are followed by one that continues them."""
        words: npt.NDArray[np.int16] = whole["word"]
        ticks: Ints = whole["tick"].astype(np.int64)
        clean: npt.NDArray[np.bool_] = (words & 0xF).max(axis=1) == 0
        return clean[:-1] & clean[1:] & self._plausible(ticks[1:] - ticks[:-1])

    def _search(self, data: bytes, at: int) -> int:
        """Find where three records follow each other; else where the next feed goes on looking."""
        last = len(data) - _AGREE * self.record
        for begin in range(at, last + 1, _AT_ONCE):
            n = min(_AT_ONCE, last + 1 - begin)
            here = np.frombuffer(data, np.uint8, n + _AGREE * self.record - 1, begin)
            zero = (here & 0xF) == 0
            good = np.ones(n, np.bool_)
            stamps = []
            for first in range(0, _AGREE * self.record, self.record):
                for low in range(first + self._stamp, first + self.record, 2):
                    good &= zero[low : low + n]
                parts = [here[first + i : first + i + n].astype(np.int64) << 8 * i for i in range(self._stamp)]
                stamps.append(np.sum(parts, axis=0))
            steps = np.mod(np.diff(stamps, axis=0), self._modulo)
            for step in steps:
                good &= self._plausible(step)
            good &= steps.max(axis=0) <= _MAX_STEP_RATIO * steps.min(axis=0)  # else a damaged stamp is among them
            if good.any():
                self._synced = True
                return begin + int(np.argmax(good))
        return max(at, last + 1)


# -- the stored configuration ------------------------------------------------------------------------------------------

# Packing 2: version, crc, offsets, OLED, time-out, its action, speed, restart, calibrate, update, rotation, averaging.
_CONFIG = struct.Struct("<BxH8bBxHBBBBBBB")
_V4, _V5 = 26, 34
STORE, APPLY = 1, 3


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration stored in a PMD-USB."""

    version: int  # 5 from firmware 6 on
    offsets: tuple[int, ...]  # codes added to what each converter says: volts and amperes of each pair in turn
    # of its display
    oled_off: int
    timeout: int
    timeout_action: int
    oled_speed: int
    rotation: int
    averaging: int  # 0 to 3: of 1, 64, 4096 or 32768 samples of 29 us. Whether the stream is averaged too is not known.
    rest: bytes  # what follows, kept as it is; in version 5 gains whose unit nobody knows

    def but(self, **changes: int | tuple[int, ...]) -> Config:
        """Return the configuration with some fields changed.

        Raises ValueError: a value that does not fit.
        """
        made = replace(self, **changes)  # type: ignore[arg-type]
        if len(made.offsets) != 8 or not all(-128 <= o <= 127 for o in made.offsets):
            msg = f"offsets are eight codes from -128 to 127, not {made.offsets}"
            raise ValueError(msg)
        if not 0 <= made.averaging < len(AVERAGED):
            msg = f"averaging is 0 to 3 (1, 64, 4096 or 32768 samples), not {made.averaging}"
            raise ValueError(msg)
        return made


def config_size(firmware: int) -> int:
    """Return how long the configuration of a firmware is."""
    return _V5 if firmware >= 6 else _V4


def parse_config(data: bytes) -> Config:
    """Understand the answer to the command that reads the configuration.

    Raises ProtocolError: it is none: another version, or a wrong length.
    """
    version = data[0] if data else 0
    if (version, len(data)) not in {(4, _V4), (5, _V5)}:
        msg = f"a configuration has {_V4} (version 4) or {_V5} bytes (5); this has {len(data)}, version {version}"
        raise ProtocolError(msg)
    _, _, *offsets, off, timeout, action, speed, _, _, _, rotation, averaging = _CONFIG.unpack_from(data)
    return Config(version, tuple(offsets), off, timeout, action, speed, rotation, averaging, data[_CONFIG.size :])


def pack_config(config: Config, *, store: bool) -> bytes:
    """Return the bytes that set a configuration, until power is lost or (``store``) for good. It calibrates nothing."""
    body = bytearray(
        _CONFIG.pack(
            config.version, 0, *config.offsets, config.oled_off, config.timeout, config.timeout_action,
            config.oled_speed, 0, 0, STORE if store else APPLY, config.rotation, config.averaging,
        )
        + config.rest
    )  # fmt: skip
    # The maker's program takes the range of version 4 also for version 5, so its sum leaves the gains out.
    struct.pack_into("<H", body, 2, binascii.crc_hqx(bytes(body[4:23]), 0xFFFF))
    return bytes(body)


# -- answers of the polled meters --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """The answer to "read sensor values" of a polled meter.

    Attributes
    ----------
    model : str
        How it introduces itself.
    rails : tuple of str
        Names of its readings, in order; ``a.b`` is a part of ``a``.
    first, step, size : int
        Bytes before the first reading, from one to the next, of the whole answer.
    reading : str
        ``struct`` format of a reading: millivolts, milliamperes, milliwatts.
    """

    model: str
    rails: tuple[str, ...]
    first: int
    step: int
    size: int
    reading: str = "<hii"

    def counts(self, answer: bytes) -> list[float]:
        """Return millivolts, milliamperes and milliwatts of each rail."""
        take = struct.Struct(self.reading)
        return [
            float(v)
            for v in chain(*(take.unpack_from(answer, self.first + i * self.step) for i in range(len(self.rails))))
        ]

    def pack(self, readings: Sequence[tuple[int, int, int]]) -> bytes:
        """Return an answer with these readings and zeros elsewhere: for a virtual meter."""
        answer = bytearray(self.size)
        for i, reading in enumerate(readings):
            struct.pack_into(self.reading, answer, self.first + i * self.step, *reading)
        return bytes(answer)


_PMD2 = ("atx12v", "atx5v", "atx5vsb", "atx3v3", "hpwr", "eps1", "eps2", "pcie1", "pcie2", "pcie3")
_WIRES = tuple(f"hpwr.wire{n}" for n in range(1, 7))
STREAMING = "ElmorLabs PMD-USB"
MIN_NAME_BYTES = len("ElmorLabs PMD2\0")  # of what they call themselves
POLLED = (
    Layout("ElmorLabs PMD2X", _PMD2 + _WIRES, 8, 10, 192),
    Layout("ElmorLabs PMD2", _PMD2, 4, 10, 122),
    Layout("Thermal Grizzly WireView Pro II", tuple(f"wire{n}" for n in range(1, 7)), 12, 12, 100, "<hxxii"),
)


def introduced(text: bytes) -> str | Layout | None:
    """Return which meter has introduced itself: :data:`STREAMING`, a layout, or None for something else."""
    if STREAMING.encode() in text:
        return STREAMING
    return next((layout for layout in POLLED if layout.model.encode() + b"\0" in text), None)
