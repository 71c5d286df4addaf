from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block, Row
from pmtpy.core.source import PolledSource
from pmtpy.errors import ReadError, SourceLostError


class Scripted(PolledSource):
    """Answers each poll with the next line of a script."""

    gone_after_s = 1.0

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
    assert source.last_read_failed
    assert source.last_failure == "busy"
    first, second = source.read_row(), source.read_row()
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    assert (first.lost, second.lost) == (1, 0)
    assert second.t_ns > first.t_ns  # although the clock stood still
    assert not source.last_failure
    assert not source.last_read_failed


def test_too_many_failures_in_a_row_end_the_source_for_good() -> None:
    clock = ManualClock()
    source = Scripted(clock, *[BUSY] * 20, [5.0], *[BUSY] * 4, [5.0])
    for _ in range(21):  # a tight loop while the device is busy for 0.9 s
        source.read()
        clock.advance(0.045)
    assert not source.last_read_failed
    for _ in range(3):
        source.read()
        clock.advance(0.45)
    for _ in range(2):
        with pytest.raises(SourceLostError, match=r"4 readings in a row failed, for 1.35 s; the last one: busy"):
            source.read_row()


def test_two_failures_far_apart_do_not_make_a_lost_device() -> None:
    clock = ManualClock()
    source = Scripted(clock, BUSY, BUSY, [5.0])
    source.read()
    clock.advance(3600.0)
    source.read()
    assert isinstance(source.read_row(), Row)


class Interrupted(Scripted):
    """A counter of 100 W in millijoules, whose calls last as long as a script says, most of it after the reading."""

    def __init__(self, clock: ManualClock, *seconds: float | Block | Exception | None) -> None:
        super().__init__(clock)
        self.clock, self.seconds, self.polls = clock, list(seconds), 0

    def poll(self) -> Sequence[float] | Block | None:
        self.polls += 1
        lasts = self.seconds.pop(0)
        if isinstance(lasts, Exception):
            raise lasts
        if lasts is None or isinstance(lasts, Block):
            return lasts
        self.clock.advance(0.1 * lasts)
        count = self.clock.now_ns() * 100e-6
        self.clock.advance(0.9 * lasts)
        return [count]


def late_ms(row: Block | Row) -> float:
    """By how much a row's time is off what its count tells, milliseconds."""
    assert isinstance(row, Row)
    return (row.t_ns - row.counts[0] / 100e-6) * 1e-6


def test_a_call_that_was_held_up_is_made_again_and_the_shortest_counts() -> None:
    source = Interrupted(ManualClock(), 20e-6, 20e-6, 15e-3, 5e-3, 20e-6, 20e-6)
    assert [late_ms(source.read_row()) for _ in range(2)] == pytest.approx([0.008, 0.008])
    assert late_ms(source.read_row()) == pytest.approx(0.008)  # 6 ms, had the first call been taken
    assert source.polls == 5
    assert late_ms(source.read_row()) == pytest.approx(0.008)


def test_a_device_that_is_slow_by_nature_is_asked_once() -> None:
    source = Interrupted(ManualClock(), *[8e-3] * 5, *[12e-3] * 5, 9e-3)
    for _ in range(11):
        source.read_row()
    assert source.polls == 11


def test_a_call_that_is_always_held_up_ends_with_the_best_of_a_few() -> None:
    source = Interrupted(ManualClock(), 20e-6, 15e-3, 9e-3, 4e-3, 7e-3, 20e-6)
    source.read_row()
    assert late_ms(source.read_row()) == pytest.approx(0.4 * 4)
    assert source.polls == 5
    assert late_ms(source.read_row()) == pytest.approx(0.008)


@pytest.mark.parametrize("then", [None, BUSY, SourceLostError("pulled out")])
def test_a_reading_that_was_held_up_is_kept_where_there_is_no_other(then: Exception | None) -> None:
    source = Interrupted(ManualClock(), 20e-6, 15e-3, then, 20e-6)
    source.read_row()
    assert late_ms(source.read_row()) == pytest.approx(0.4 * 15)
    assert not source.last_read_failed
    assert late_ms(source.read_row()) == pytest.approx(0.008)


def test_what_a_reading_that_is_made_again_says_of_a_restart_is_passed_on() -> None:
    clock = ManualClock()
    source = Interrupted(clock, 20e-6, 15e-3, Block.row(clock.now_ns() + 10**9, [5.0], fresh=True))
    source.read_row()
    taken = source.read_row()
    assert isinstance(taken, Block)
    assert taken.fresh
    assert taken.raw.tolist() == [[5.0]]
