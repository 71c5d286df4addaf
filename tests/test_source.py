from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pmtpy.clock import ManualClock
from pmtpy.errors import ReadError, SourceLostError
from pmtpy.model import Block, Channel, Identity, Quantity, Row
from pmtpy.source import PolledSource


class Scripted(PolledSource):
    """Answers each poll with the next line of a script."""

    max_failures = 3

    def __init__(self, clock: ManualClock, *script: Sequence[float] | Block | Exception | None) -> None:
        super().__init__(clock)
        self.identity = Identity("test", "scripted")
        self.channels = (Channel("gpu", Quantity.POWER, domain="gpu/0"),)
        self.script = list(script)

    def poll(self) -> Sequence[float] | Block | None:
        line = self.script.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    def close(self) -> None:
        pass


BUSY = ReadError("busy")


def rows(*t_ns: int, lost: list[int] | None = None) -> Block:
    raw = np.full((len(t_ns), 1), 5.0)
    return Block(np.array(t_ns, np.int64), raw, None if lost is None else np.array(lost, np.int64))


def lost_of(block: Block) -> list[int]:
    return [0] * len(block) if block.lost is None else block.lost.tolist()


def test_failed_readings_are_lost_rows_also_before_a_row_that_the_device_stamped() -> None:
    source = Scripted(ManualClock(), rows(1), BUSY, BUSY, rows(5, 6, 7), rows(8))
    assert [lost_of(source.read()) for _ in range(5)] == [[0], [], [], [2, 0, 0], [0]]


def test_failed_readings_are_kept_until_a_row_comes() -> None:
    source = Scripted(ManualClock(), rows(1), BUSY, None, rows(), rows(5))
    assert [lost_of(source.read()) for _ in range(5)] == [[0], [], [], [], [1]]


def test_a_device_that_says_itself_what_was_lost_is_believed() -> None:
    source = Scripted(ManualClock(), rows(1), BUSY, rows(5, 6, lost=[0, 4]), BUSY, rows(9))
    assert [lost_of(source.read()) for _ in range(5)] == [[0], [], [0, 4], [], [1]]


def test_a_polled_row_carries_the_failed_readings_before_it() -> None:
    clock = ManualClock()
    source = Scripted(clock, BUSY, [5.0], [6.0])
    assert len(source.read()) == 0
    assert source.failing
    first, second = source.take(), source.take()
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    assert (first.lost, second.lost) == (1, 0)
    assert second.t_ns > first.t_ns  # although the clock stood still
    assert not source.failing


def test_too_many_failures_in_a_row_end_the_source_for_good() -> None:
    source = Scripted(ManualClock(), BUSY, BUSY, BUSY, [5.0])
    source.read()
    source.read()
    for _ in range(2):
        with pytest.raises(SourceLostError, match="3 readings in a row failed; the last one: busy"):
            source.take()
