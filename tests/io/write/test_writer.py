"""The thread between sensor and file."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from pmtpy.core.clock import Anchor
from pmtpy.core.rows import Frame
from pmtpy.errors import SinkError
from pmtpy.io.write import Ending, Header, Thinner, Writer

MakeFrame = Callable[..., Frame]

END = Anchor(0, 0)


class _Memory:
    """A sink that keeps what it is given, may be held up, and may refuse."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.ending: Ending | None = None
        self.refusals = 0
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def write(self, frame: Frame) -> None:
        self.entered.set()
        self.go_on.wait()
        if self.refusals:
            self.refusals -= 1
            msg = "no room"
            raise SinkError(msg)
        self.frames.append(frame)

    def close(self, ending: Ending) -> Ending:
        self.ending = ending
        return ending

    @property
    def rows(self) -> int:
        return sum(map(len, self.frames))

    @property
    def lost(self) -> int:
        return sum(int(f.lost.sum()) for f in self.frames)


def test_every_row_arrives_in_order(make_frame: MakeFrame) -> None:
    sink = _Memory()
    writer = Writer(lambda: sink)
    for first in range(0, 20_000, 100):
        writer.put(make_frame(100, first))
    ending = writer.stop(END)
    assert ending == Ending(END, rows=20_000, lost=0, dropped=0, complete=True, uncovered_s=0.0)
    assert sink.ending == ending
    t_ns = np.concatenate([f.t_ns for f in sink.frames])
    np.testing.assert_array_equal(np.diff(t_ns), 50_000)
    assert writer.stop(END) is ending


def test_a_full_queue_drops_counts_and_shows_the_gap(make_frame: MakeFrame) -> None:
    sink = _Memory()
    sink.go_on.clear()
    writer = Writer(lambda: sink, max_rows=10)
    writer.put(make_frame(6))
    assert sink.entered.wait(120)  # taken off the queue, stuck in the sink
    writer.put(make_frame(10, 6))
    writer.put(make_frame(30, 16, marks=((3, "dropped"),)))  # no room
    sink.go_on.set()
    while sink.rows < 16:
        sink.entered.wait(0.01)
    writer.put(make_frame(4, 46))
    ending = writer.stop(END)
    assert (ending.rows, ending.dropped, ending.lost, ending.complete) == (20, 30, 0, False)
    assert "30 rows" in ending.error
    assert isinstance(writer.error, SinkError)
    last = sink.frames[-1]
    assert last.lost.tolist() == [30, 0, 0, 0]
    assert last.marks == ((0, "dropped"),)


def test_a_frame_larger_than_the_queue_is_taken_whole(make_frame: MakeFrame) -> None:
    sink = _Memory()
    writer = Writer(lambda: sink, max_rows=10)
    writer.put(make_frame(50_000))
    assert writer.stop(END).complete
    assert sink.rows == 50_000


def test_a_disk_that_refuses_for_a_while_costs_those_rows_only(make_frame: MakeFrame) -> None:
    sink = _Memory()
    sink.refusals = 1
    writer = Writer(lambda: sink)
    writer.put(make_frame(6, marks=((2, "during"),)))
    while writer.error is None:
        sink.entered.wait(0.01)
    writer.put(make_frame(4, 6))
    ending = writer.stop(END)
    assert (ending.rows, ending.dropped, ending.complete) == (4, 6, False)
    assert "no room; 6 rows are missing" in ending.error
    assert sink.frames[0].lost.tolist() == [6, 0, 0, 0]
    assert sink.frames[0].marks == ((0, "during"),)


def test_a_fault_in_a_sink_is_kept_and_not_swallowed(make_frame: MakeFrame) -> None:
    class Faulty(_Memory):
        def write(self, frame: Frame) -> None:
            raise ZeroDivisionError

    writer = Writer(Faulty)
    writer.put(make_frame(3))
    ending = writer.stop(END)
    assert (ending.rows, ending.dropped) == (0, 3)
    assert isinstance(writer.error, SinkError)
    assert isinstance(writer.error.__cause__, SinkError)
    assert isinstance(writer.error.__cause__.__cause__, ZeroDivisionError)


def test_rows_that_the_sensor_lost_are_counted_apart_and_leave_the_file_complete(make_frame: MakeFrame) -> None:
    sink = _Memory()
    writer = Writer(lambda: sink)
    frame = make_frame(5)
    frame.lost[2] = 7
    writer.put(frame)
    assert writer.stop(END) == Ending(END, rows=5, lost=7, dropped=0, complete=True, uncovered_s=0.0)


def test_a_lost_sensor_makes_the_file_incomplete(make_frame: MakeFrame) -> None:
    sink = _Memory()
    writer = Writer(lambda: sink)
    writer.put(make_frame(5))
    ending = writer.stop(END, "the board was unplugged")
    assert (ending.rows, ending.complete, ending.error) == (5, False, "the board was unplugged")


def test_marks_that_found_no_row_are_named_at_the_end(make_frame: MakeFrame) -> None:
    sink = _Memory()
    sink.refusals = 1
    writer = Writer(lambda: sink)
    writer.put(make_frame(2, marks=((0, "solve"),)))
    assert "markers without a row: solve" in writer.stop(END).error


@pytest.mark.parametrize("interval_s", [0.001, 0.01])
def test_a_thinned_dump_keeps_the_energy(header: Header, make_frame: MakeFrame, interval_s: float) -> None:
    sink = _Memory()
    writer = Writer(lambda: sink, thinner=Thinner(header.layout, interval_s))
    for first in range(0, 4000, 250):
        writer.put(make_frame(250, first))
    ending = writer.stop(END)
    joules = np.concatenate([f.joules for f in sink.frames])
    assert ending.rows == len(joules) == 1 + round(0.2 / interval_s)
    assert joules[-1, 0] - joules[0, 0] == pytest.approx(36.0 * 3999 * 50e-6)
