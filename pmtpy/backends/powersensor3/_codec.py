"""Bytes of a PowerSensor3 stream to frames: pure, vectorised, and indifferent to where the bytes are cut.

A frame is 18 bytes: a time word and eight sensor words of two bytes each. Every byte carries fixed bits (the id of
its word, high bytes with bit 7, low bytes without), 63 of them in a frame, and no two positions of a stream less
than 18 bytes apart can both satisfy them. So frames are found by these bits alone, never by counting words: damage
costs the frame it hits and nothing else.

Never raises, whatever the bytes; never waits, never touches a port or a clock.

Facts: PowerSensor3 firmware 1.6.1, ``device/PowerSensor/PowerSensor.ino`` (frame layout), and the ISPASS 2025 paper.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Ints, median

SENSORS = 8
FRAME_BYTES = 18
WORDS = 9
DEVICE_CLOCK_US = 1024  # the 10-bit time of a frame, in microseconds, starts again after this
_FEWEST_FOR_A_STEP = 16
_STEP_SLACK_US = 2  # stamps are whole microseconds, and the firmware takes them within one
MARKER_BIT = 0x4000  # of the first sensor word, read little-endian

# First byte of a word: 1 iii aaaa (id, value bits 9..6); second byte: 0 m bbbbbb (marker, value bits 5..0). The time
# word has id 7 and m = 1; of the sensors only number 0 may carry m. Words are read little-endian: low byte first.
_PATTERN = np.array([0x40F0, *(0x0080 + 16 * i for i in range(SENSORS))], "<u2")
_MASK = np.array([0xC0F0, 0x80F0, *[0xC0F0] * (SENSORS - 1)], "<u2")
_PATTERN_BYTES = _PATTERN.view(np.uint8)
_MASK_BYTES = _MASK.view(np.uint8)
_WITHIN = np.arange(FRAME_BYTES)

# 8192 frames are 144 KiB: large enough to make the cost of a call vanish, small enough to stay in the caches.
_BATCH_BYTES = 8192 * FRAME_BYTES
# Fixed bits, and the bits of a marker, which few frames carry: of an ordinary frame they are as in the pattern.
_COLUMN = _PATTERN[:, None]
_FIXED = int(_MASK[0])
_VALUE_BITS = 0xFFFF - _FIXED

Levels = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames in the order in which they came."""

    levels: Levels  # uint16, shape (n, 8); level of each sensor, 0..1023
    device_us: Levels  # uint16, shape (n,); the board's clock, microseconds modulo 1024
    marked: tuple[int, ...] = ()  # rows that carry the marker bit
    # shape (n,),; where each frame ended, in bytes from the start of the bytes just fed. None for unbroken frames,
    # which end every 18 bytes from ``first_end`` on. At most 0 for a frame that was complete before.
    ends: Ints | None = None
    first_end: int = 0  # end of the first frame

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.device_us)

    def complete_by(self, offset: int) -> int:
        """How many frames end within the first ``offset`` bytes of those just fed."""
        if self.ends is not None:
            return int(self.ends.searchsorted(offset, "right"))
        return min(len(self), max(0, (offset - self.first_end) // FRAME_BYTES + 1))

    def all_ends(self) -> Ints:
        """Return the ends as an array."""
        if self.ends is not None:
            return self.ends
        return self.first_end + FRAME_BYTES * np.arange(len(self))


class Decoder:
    """Takes a stream apart, piece by piece. Used by one thread at a time.

    Attributes
    ----------
    frames : int
        Frames decoded so far.
    skipped_bytes : int
        Bytes that belong to no whole frame: garbage, remains of damaged frames, leftovers before the first frame.
    damaged : int
        How often the sequence of frames was broken.
    """

    def __init__(self) -> None:
        self.frames = 0
        self.skipped_bytes = 0
        self.damaged = 0
        self._carry = b""
        self._step_us = 0  # between frames, as last seen; 0: not yet
        self._aligned = False

    def feed(self, data: bytes) -> Frames:
        """Decode the next bytes of the stream; an incomplete frame at the end waits for the next call."""
        if len(data) <= _BATCH_BYTES:
            return self._feed(data)
        view = memoryview(data)
        parts = [(i, self._feed(view[i : i + _BATCH_BYTES])) for i in range(0, len(data), _BATCH_BYTES)]
        firsts = itertools.accumulate((len(p) for _, p in parts), initial=0)
        return Frames(
            np.concatenate([p.levels for _, p in parts]),
            np.concatenate([p.device_us for _, p in parts]),
            tuple(row + first for (_, p), first in zip(parts, firsts, strict=False) for row in p.marked),
            np.concatenate([p.all_ends() + i for i, p in parts]),
        )

    def _feed(self, data: bytes | memoryview) -> Frames:
        held = len(self._carry)
        buffer = b"".join((self._carry, data)) if held else data
        n = len(buffer) // FRAME_BYTES
        if self._aligned and n:
            # One row per word: what follows goes along the rows, here and in the integration.
            bits = np.array(np.frombuffer(buffer, "<u2", n * WORDS).reshape(n, WORDS).T, order="C")
            np.bitwise_xor(bits, _COLUMN, out=bits)
            if not np.bitwise_or.reduce(bits, axis=None) & _FIXED:
                self._carry = bytes(buffer[n * FRAME_BYTES :])
                self.frames += n
                values = _values(bits)
                if not self._step_us and n > _FEWEST_FOR_A_STEP:
                    self._step_us = int(median(np.diff(values[0]) % DEVICE_CLOCK_US))
                return Frames(values[1:].T, values[0], (), None, FRAME_BYTES - held)
        octets = np.frombuffer(buffer, np.uint8)
        starts, consumed = self._search(octets)
        self._carry = bytes(buffer[consumed:])
        self.skipped_bytes += consumed - FRAME_BYTES * len(starts)
        self.frames += len(starts)
        words = octets[starts[:, None] + _WITHIN].view("<u2").T
        marked = (words[1] & MARKER_BIT).nonzero()[0].tolist()
        values = _values((words ^ _COLUMN) & _VALUE_BITS)
        return Frames(values[1:].T, values[0], tuple(marked), starts + (FRAME_BYTES - held))

    def _search(self, octets: npt.NDArray[np.uint8]) -> tuple[Ints, int]:
        """Positions of the frames in a damaged buffer, and how many bytes are done with.

        A frame that follows damage counts only when a time word follows that is one interval later: bytes lost
        across the edge of two frames can leave a whole frame whose time is half sensor 7 of the one before. One
        at the very end of the buffer waits for that time word.
        """
        found = _positions(octets)
        joined = np.zeros(len(found), np.bool_)
        joined[1:] = np.diff(found) == FRAME_BYTES
        joined[:1] = self._aligned & (found[:1] == 0)
        undecided = bool(len(found)) and not joined[-1] and found[-1] + FRAME_BYTES + 2 > len(octets)
        after = np.minimum(found + FRAME_BYTES, max(0, len(octets) - 2))
        step = (_times(octets, after) - _times(octets, found)) % DEVICE_CLOCK_US
        unbroken = step[:-1][joined[1:]]
        if len(unbroken):
            self._step_us = int(median(unbroken))
        keep = joined | (_is_time(octets, after) & (np.abs(step - (self._step_us or step)) <= _STEP_SLACK_US))
        if undecided:
            keep[-1] = False
        starts = found[keep]
        end = int(starts[-1]) + FRAME_BYTES if len(starts) else 0
        if undecided:
            consumed = int(found[-1])
        elif len(octets) - end < FRAME_BYTES:
            consumed = end
        else:
            consumed = len(octets) - FRAME_BYTES + 1
        self._count_breaks(starts, end, consumed)
        return starts, consumed

    def _count_breaks(self, starts: Ints, end: int, consumed: int) -> None:
        if len(starts):
            self.damaged += int(np.count_nonzero(np.diff(starts) != FRAME_BYTES))
            self.damaged += bool(self._aligned and starts[0] != 0)
            self._aligned = True
        if consumed != end:
            self.damaged += self._aligned
            self._aligned = False


def _is_time(octets: npt.NDArray[np.uint8], at: Ints) -> npt.NDArray[np.bool_]:
    fits: npt.NDArray[np.bool_] = ((octets[at] & 0xF0) == 0xF0) & ((octets[at + 1] & 0xC0) == 0x40)
    return fits


def _times(octets: npt.NDArray[np.uint8], at: Ints) -> Ints:
    times: Ints = (octets[at] & 0x0F).astype(np.int64) << 6 | (octets[at + 1] & 0x3F)
    return times


def _positions(octets: npt.NDArray[np.uint8]) -> Ints:
    """Every position at which a whole frame stands; they never overlap."""
    n = len(octets) - FRAME_BYTES + 1
    if n <= 0:
        return np.empty(0, np.int64)
    found = np.flatnonzero(((octets[:n] & 0xF0) == 0xF0) & ((octets[1 : n + 1] & 0xC0) == 0x40))
    whole = ((octets[found[:, None] + _WITHIN] & _MASK_BYTES) == _PATTERN_BYTES).all(axis=1)
    positions: Ints = found[whole].astype(np.int64, copy=False)
    return positions


def _values(bits: npt.NDArray[np.uint16]) -> Levels:
    """The ten bits of each word: four in its low byte, six in the high one; all others are zero."""
    values = np.left_shift(bits, 6)
    np.bitwise_or(values, np.right_shift(bits, 8), out=values)
    np.bitwise_and(values, 0x3FF, out=values)
    return values
