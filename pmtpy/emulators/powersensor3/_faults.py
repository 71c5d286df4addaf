"""What happens to frames between the board and the host: bytes lost, bytes inserted. Pure, seeded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.emulators.powersensor3._spec import FRAME_BYTES


@dataclass(frozen=True, slots=True)
class Damage:
    """One fault on the wire."""

    rate: float  # chance, per byte of the stream, that a fault begins there
    burst: int = 1  # bytes lost or inserted each time


class Wire:
    """A line that loses and inserts bytes. Only frames are touched, so that what was damaged is known exactly."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.lose: Damage | None = None
        self.garbage: Damage | None = None
        self.lose_once = 0
        self.garbage_once = 0
        self.lost_bytes = 0
        self.inserted_bytes = 0

    @property
    def clean(self) -> bool:
        """Whether frames pass untouched."""
        return not (self.lose or self.garbage or self.lose_once or self.garbage_once)

    def pass_through(self, data: bytes | memoryview) -> tuple[bytes, list[int]]:
        """Return what arrives of some whole frames, and the places (0 = the first) of the frames that were damaged.

        An insertion exactly between two frames damages neither.
        """
        size = len(data)
        cuts: list[tuple[int, int, bytes]] = []  # (position, bytes lost, bytes inserted)
        if self.lose is not None:
            cuts += [(at, self.lose.burst, b"") for at in self._places(self.lose.rate, size)]
        if self.garbage is not None:
            burst = self.garbage.burst
            cuts += [(at, 0, self._rng.bytes(burst)) for at in self._places(self.garbage.rate, size)]
        if self.lose_once and size:
            cuts.append((int(self._rng.integers(size)), self.lose_once, b""))
            self.lose_once = 0
        if self.garbage_once and size:
            cuts.append((int(self._rng.integers(size)), 0, self._rng.bytes(self.garbage_once)))
            self.garbage_once = 0
        return self._cut(data, sorted(cuts))

    def _places(self, rate: float, size: int) -> list[int]:
        return [int(i) for i in np.flatnonzero(self._rng.random(size) < rate)]

    def _cut(self, data: bytes | memoryview, cuts: list[tuple[int, int, bytes]]) -> tuple[bytes, list[int]]:
        out, at, hurt = bytearray(), 0, set[int]()
        for position, lost, inserted in cuts:
            if position < at:  # inside a burst already lost
                continue
            out += data[at:position]
            out += inserted
            at = min(len(data), position + lost)
            self.lost_bytes += at - position
            self.inserted_bytes += len(inserted)
            if inserted and position % FRAME_BYTES:
                hurt.add(position // FRAME_BYTES)
            hurt.update(range(position // FRAME_BYTES, (at - 1) // FRAME_BYTES + 1) if at > position else ())
        out += data[at:]
        return bytes(out), sorted(hurt)
