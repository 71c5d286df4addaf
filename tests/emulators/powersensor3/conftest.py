"""A board on a clock that stands still until a test moves it, and a way to read frames that knows nothing of ours."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from pmtpy.core.clock import ManualClock
from pmtpy.emulators.load import parse_load
from pmtpy.emulators.powersensor3 import Board, BoardSpec, MemoryTransport, parse_pairs

BOOT_S = 0.6


@dataclass(frozen=True)
class Word:
    """One two-byte word of the stream, read bit by bit as the protocol page says."""

    sensor: int
    marker: int
    value: int


def words(data: bytes) -> list[Word]:
    """Decode whole words; fails on anything else."""
    out = []
    for a, b in zip(data[::2], data[1::2], strict=True):
        assert a >> 7 == 1, data.hex()
        assert b >> 7 == 0, data.hex()
        out.append(Word(a >> 4 & 7, b >> 6, (a & 15) << 6 | b & 63))
    return out


def frames(data: bytes) -> list[list[Word]]:
    """Decode whole frames: a timestamp and eight sensors, in order."""
    assert len(data) % 18 == 0, len(data)
    out = [words(data[i : i + 18]) for i in range(0, len(data), 18)]
    for frame in out:
        assert [w.sensor for w in frame] == [7, *range(8)]
        assert frame[0].marker == 1
        assert not any(w.marker for w in frame[2:])
    return out


def steps(data: bytes, every: int = 1) -> set[int]:
    """Return the differences of the timestamps of whole frames, modulo 1024."""
    stamps = [(data[i] & 15) << 6 | data[i + 1] & 63 for i in range(0, len(data), 18 * every)]
    return {(b - a) % 1024 for a, b in itertools.pairwise(stamps)}


class Bench:
    """A host that writes commands to a board and moves the clock."""

    def __init__(self, spec: BoardSpec, load: str, **options: int | bool) -> None:
        self.clock = ManualClock()
        now_ns = self.clock.now_ns()
        self.board = Board(spec, parse_load(load), epoch_ns=now_ns, start_ns=now_ns, **options)  # type: ignore[arg-type]
        self.line = MemoryTransport(self.board, self.clock)
        self.after(BOOT_S)

    def send(self, data: bytes) -> None:
        self.line.write(data)

    def after(self, seconds: float) -> bytes:
        """Return what has come after some time."""
        self.clock.advance(seconds)
        return b"".join(data for _, data in self.line.receive())

    def ask(self, data: bytes, seconds: float = 0.001) -> bytes:
        self.send(data)
        return self.after(seconds)


@pytest.fixture
def bench() -> Bench:
    return Bench(BoardSpec(parse_pairs("MLX10"), noise=False), "constant:60")
