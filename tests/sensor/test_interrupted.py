"""Readings that Ctrl-C or the handler of another signal comes into: what is lost is said, half a step is not seen."""

from __future__ import annotations

import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block, Frame, Row
from pmtpy.emulators.world import make_world
from pmtpy.errors import CoverageError, ReadError
from pmtpy.sensor._curve import Curve
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Gauge, Stream

pytestmark = pytest.mark.usefixtures("nobody_else_reads")  # Ctrl-C comes to the main thread alone


@pytest.mark.parametrize("kind", [Stream, Gauge])
def test_the_time_of_rows_that_an_interruption_lost_is_not_covered(kind: type[Stream | Gauge]) -> None:
    clock = ManualClock()
    source = kind(make_world("square:low=60,high=540,hz=0.5", clock=clock))
    with Sensor(source, "broken off", clock) as sensor, pytest.MonkeyPatch.context() as patch:
        begin = sensor.read()
        clock.advance(0.04)
        sensor.read()
        clock.advance(2.0)  # half of it at 540 W: a line across would be of 60
        owner, name = (source, "read_row") if isinstance(source, Stream) else (Curve, "advance")
        once = getattr(owner, name)

        def interrupted(*given: object) -> None:
            once(*given)
            raise KeyboardInterrupt

        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            sensor.read()
        patch.undo()
        for _ in range(2):
            clock.advance(0.04)
            end = sensor.read()
        assert end.uncovered_ns[0] - begin.uncovered_ns[0] >= 1.9e9
        with pytest.raises(CoverageError, match="not known"):
            pmt.joules(begin, end)


@pytest.mark.parametrize("kind", [Stream, Gauge])
def test_a_handler_that_asks_within_a_reading_is_refused_and_the_reading_goes_on(
    kind: type[Stream | Gauge],
) -> None:
    clock = ManualClock()
    source = kind(make_world("constant:60", clock=clock))
    with Sensor(source, "asked within", clock) as sensor:
        begin = sensor.read()
        refused = list[str]()
        taken = source.read_row

        def asked() -> Block | Row:
            rows = taken()
            for ask in (sensor.read, sensor.history, lambda: pmt.joules(begin, sensor.read())):
                with pytest.raises(ReadError, match="ask again later") as error:
                    ask()
                refused.append(str(error.value))
            return rows

        clock.advance(1.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "read_row", asked)
            sensor.read()
        assert len(refused) == 3
        clock.advance(0.01)
        end = sensor.read()
        assert pmt.joules(begin, end) == pytest.approx(60 * pmt.seconds(begin, end), rel=2e-3)  # a row of 1 ms


def test_rows_that_an_interruption_kept_out_of_the_history_leave_it_whole() -> None:
    clock = ManualClock()
    source = Stream(make_world("constant:60", clock=clock))
    with Sensor(source, "history", clock) as sensor:
        for _ in range(3):
            clock.advance(0.04)
            sensor.read()
        kept = len(sensor.history())

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Frame, "joined", interrupted)
            clock.advance(0.04)
            with pytest.raises(KeyboardInterrupt):
                sensor.read()
        assert len(sensor.history()) == kept
        clock.advance(0.04)
        sensor.read()
        found = sensor.history()
        assert len(found) == kept + 40
        assert (found.t_ns[1:] > found.t_ns[:-1]).all()
        assert found.lost[kept] > 0


def test_time_before_the_first_row_is_not_covered() -> None:
    clock = ManualClock()
    source = Stream(make_world("constant:60", clock=clock))
    source.held_ns = 0
    with Sensor(source, "late", clock) as sensor:
        begin = sensor.read()
        clock.advance(0.1)
        none = sensor.read()
        with pytest.raises(CoverageError, match="no reading since it was opened"):
            pmt.joules(begin, none)
        clock.advance(0.9)
        source.sent_ns, source.held_ns = clock.now_ns(), float("inf")
        for _ in range(2):
            clock.advance(0.5)
            end = sensor.read()
        with pytest.raises(CoverageError, match=r"1\.001 s of the 2 s between the two states is not known"):
            pmt.joules(begin, end)
