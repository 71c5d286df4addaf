from __future__ import annotations

import contextlib
import copy
import gc
import io
import json
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.core.rows import Block
from pmtpy.emulators.world import make_world
from pmtpy.errors import CoverageError, TargetError
from pmtpy.lab.traces import trace_of
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.worlds import Counter, Gauge, Stream, counter_sensor


def wait_for(condition: object, limit_s: float = 240.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.001)


def test_two_readings_of_a_counter_give_the_true_energy() -> None:
    clock, source, sensor = counter_sensor("sine:low=30,high=90,hz=0.3")
    with sensor:
        a = sensor.read()
        clock.advance(7.3)
        b = sensor.read()
        truth = source.world.joules_between(a.t_ns, b.t_ns)
        assert pmt.joules(a, b) == pytest.approx(truth, abs=4e-6)  # four counts of a microjoule
        assert pmt.joules(a, b, "dram0") == pytest.approx(truth / 3, abs=2e-6)
        assert pmt.watts(a, b) == pytest.approx(truth / 7.3, rel=1e-6)
        assert pmt.seconds(a, b) == pytest.approx(7.3)
        assert a.names == ("total", "package0", "package0.core", "dram0")
        assert b.timestamp - a.timestamp == pytest.approx(7.3)


def test_pure_counters_start_no_thread() -> None:
    before = threading.active_count()
    clock, _, sensor = counter_sensor(wrap=1e9, deadline_s=60.0)
    with sensor:
        for _ in range(5):
            clock.advance(1.0)
            sensor.read()
        assert threading.active_count() == before


def test_a_region_keeps_a_counter_read_before_it_is_ambiguous() -> None:
    clock, _, sensor = counter_sensor("constant:60", wrap=1e9, deadline_s=4.0)  # a turn: 1000 J, 25 s at 40 W
    rows = acquisition_of(sensor)
    with sensor, pmt.region("long", sensor) as r:
        for _ in range(200):
            clock.advance(1.0)
            # a poll that has only begun reads what the clock says later
            wait_for(lambda: rows.newest is not None and rows.newest.t_ns == clock.now_ns())
    assert r["test"].joules == pytest.approx(60 * 200, rel=1e-6)
    assert r["test"].coverage == 1.0


def test_counters_that_were_not_read_in_time_are_refused() -> None:
    clock, _, sensor = counter_sensor(wrap=1e9)
    with sensor:
        a = sensor.read()
        clock.advance(30.0)  # 1000 W for 30 s could be 30 turns
        b = sensor.read()
        with pytest.raises(pmt.CoverageError, match="not known"):
            pmt.joules(a, b)


def test_a_little_unknown_time_is_a_warning() -> None:
    clock = ManualClock()
    stream = Stream(make_world("constant:60", clock=clock))
    with Sensor(stream, "test", clock) as sensor:
        clock.advance(0.01)
        a = sensor.read()
        stream.drop = {stream.sent_ns + 5_000_000}
        clock.advance(0.5)
        b = sensor.read()
        with pytest.warns(UserWarning, match=r"0\.001 s of the 0\.5 s"):
            assert pmt.joules(a, b) == pytest.approx(60 * 0.499)
        assert b.lost - a.lost == 1


def test_a_momentary_power_is_integrated_in_the_background() -> None:
    clock = ManualClock()
    world = make_world("ramp:low=0,high=100,hz=0.01", clock=clock)
    with Sensor(Gauge(world), "gauge", clock) as sensor:
        a = sensor.read()
        clock.advance(1.0)
        b = sensor.read()
        assert pmt.joules(a, b) == pytest.approx(world.joules_between(a.t_ns, b.t_ns))
        assert sensor.read().names == ("total", "gpu")


def test_a_stream_answers_with_its_newest_row() -> None:
    clock = ManualClock()
    world = make_world("sine:low=10,high=110,hz=3", clock=clock)
    with Sensor(Stream(world), "stream", clock) as sensor:
        clock.advance(0.01)
        a = sensor.read()
        clock.advance(0.1234567)
        b = sensor.read()
        assert b.t_ns == (clock.now_ns() // 1_000_000) * 1_000_000
        assert pmt.joules(a, b) == pytest.approx(world.joules_between(a.t_ns, b.t_ns))
        assert pmt.joules(a, b, "pair1") == pytest.approx(world.joules_between(a.t_ns, b.t_ns) / 2)
        c = sensor.read()
        assert c.t_ns == b.t_ns
        assert pmt.joules(b, c) == 0.0
        assert pmt.watts(b, c) == b.watts[0]  # no time between: the present power


def test_a_lost_source_raises_from_every_later_call() -> None:
    clock, source, sensor = counter_sensor()
    with sensor:
        sensor.read()
        source.gone = True
        clock.advance(1.0)
        for call in (sensor.read, sensor.read, sensor.history, lambda: sensor.mark("x"), acquisition_of(sensor).begin):
            with pytest.raises(pmt.SourceLostError, match="pulled out"):
                call()


def test_however_often_a_lost_sensor_is_asked_its_error_holds_no_more_of_who_asked() -> None:
    def frames(error: BaseException) -> int:
        return sum(1 for _ in traceback.walk_tb(error.__traceback__))

    clock, source, sensor = counter_sensor()
    with sensor:
        source.gone = True
        for call in (
            sensor.read,
            lambda: sensor.mark("x"),
            acquisition_of(sensor).begin,
            lambda: sensor.start_dump("a"),
        ):
            found = []
            for _ in range(4):
                clock.advance(1.0)
                with pytest.raises(pmt.SourceLostError) as caught:
                    call()
                found.append(frames(caught.value))
            assert len(set(found[1:])) == 1


def test_a_failed_reading_is_a_lost_row_and_many_are_a_lost_device() -> None:
    clock, source, sensor = counter_sensor()
    with sensor:
        a = sensor.read()
        source.fail = 2
        for _ in range(3):
            clock.advance(1.0)
            b = sensor.read()
        assert b.lost - a.lost == 2
        assert pmt.joules(a, b) == pytest.approx(180.0, abs=1e-5)  # a counter loses no energy by a missed reading
        source.fail = 1000
        for _ in range(20):
            sensor.read()
            clock.advance(source.gone_after_s / 20.5)
        clock.advance(0.1)
        with pytest.raises(pmt.SourceLostError, match="busy"):
            sensor.read()


def test_a_closed_sensor_says_so() -> None:
    _, source, sensor = counter_sensor()
    sensor.close()
    sensor.close()
    assert source.closed == 1
    with pytest.raises(pmt.SensorClosedError, match="closed"):
        sensor.read()


def test_states_of_different_sensors_do_not_mix() -> None:
    clock, _, sensor = counter_sensor()
    with sensor, Sensor(Gauge(make_world(clock=clock)), "other", clock) as other:
        with pytest.raises(pmt.TargetError, match="different sensors"):
            pmt.joules(sensor.read(), other.read())
        a = sensor.read()
        with pytest.raises(pmt.TargetError, match="package0"):
            pmt.joules(a, a, "gpu")


def test_states_of_two_openings_of_one_target_do_not_mix() -> None:
    with pmt.create("rapl:virtual", load="constant:60") as sensor:
        before, again = sensor.read(), sensor.read()
    with pmt.create("rapl:virtual", load="constant:60") as sensor:
        for use in (pmt.joules, pmt.watts, pmt.seconds):
            assert use(before, again) >= 0.0
            with pytest.raises(pmt.TargetError, match="was closed and opened again between the two states"):
                use(before, sensor.read())


def test_marks_are_in_the_history_on_the_row_they_belong_to() -> None:
    clock, _, sensor = counter_sensor()
    with sensor:
        clock.advance(0.5)
        sensor.read()
        clock.advance(0.5)
        sensor.mark("go")
        clock.advance(0.5)
        recent = sensor.history()
        assert recent.marks == ((2, "go"),)
        with pytest.raises(pmt.TargetError, match="one line"):
            sensor.mark("a\nb")
        with pytest.raises(pmt.TargetError, match="Unicode"):
            sensor.mark("\udcff")
        for text in ("z start", "a end", "M"):  # within one row they stand in the order of time
            clock.advance(0.01)
            sensor.mark(text)
        clock.advance(0.5)
        sensor.read()
        assert [label for _, label in sensor.history().marks] == ["go", "z start", "a end", "M"]
    clock = ManualClock()
    with Sensor(Stream(make_world(clock=clock)), "stream", clock) as stream:
        stream.mark("in stream")
        clock.advance(0.01)
        assert [label for _, label in stream.history().marks] == ["in stream"]


def _in_child(sensor: Sensor, queue: object) -> None:
    try:
        sensor.read()
        queue.put("read")  # type: ignore[attr-defined]
    except pmt.SensorClosedError as error:
        queue.put(str(error))  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_sensor_does_not_survive_a_fork_and_the_parent_goes_on() -> None:
    _, source, sensor = counter_sensor()
    with sensor:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_in_child, args=(sensor, queue))
        child.start()
        assert "parent" in queue.get(timeout=120)
        child.join()
        sensor.read()
        assert source.closed == 0


def test_a_dropped_counter_is_closed_at_once_and_said() -> None:
    clock = ManualClock()
    source = Counter(make_world(clock=clock))
    held = [Sensor(source, "test", clock)]
    with pytest.warns(ResourceWarning, match="unclosed sensor test"):
        held.clear()
    assert source.closed == 1


def test_a_dropped_sensor_that_is_polled_is_closed_by_its_pump_whose_thread_ends() -> None:
    clock = ManualClock()
    gauge, closed = Gauge(make_world(clock=clock)), list[str]()
    gauge.close = lambda: closed.append("closed")  # type: ignore[method-assign]
    before = threading.active_count()
    held = [Sensor(gauge, "g", clock)]
    assert threading.active_count() == before + 1
    with pytest.warns(ResourceWarning, match="unclosed sensor g"):
        held.clear()
    clock.advance(1.0)
    wait_for(lambda: threading.active_count() == before)
    assert closed == ["closed"]


def test_a_dump_goes_on_though_its_sensor_was_dropped(tmp_path: Path) -> None:
    clock, source, sensor = counter_sensor()
    sensor.start_dump(tmp_path / "d.csv")
    known = weakref.ref(sensor)
    del sensor
    gc.collect()
    assert source.closed == 0
    kept = known()
    assert kept is not None
    clock.advance(1.0)
    kept.close()
    assert source.closed == 1
    assert json.loads((tmp_path / "d.csv.json").read_text())["complete"]


def test_many_threads_may_read_one_sensor() -> None:
    clock, _, sensor = counter_sensor()
    with sensor:
        seen: list[list[float]] = []

        def work() -> None:
            seen.append([sensor.read().joules[0] for _ in range(300)])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            clock.advance(0.01)
        for thread in threads:
            thread.join()
        assert len(seen) == 4
        assert all(joules == sorted(joules) for joules in seen)


def test_one_thread_serves_many_polled_sensors() -> None:
    before = threading.active_count()
    sensors = [Sensor(Gauge(make_world(clock=HOST_CLOCK)), f"g{i}", HOST_CLOCK) for i in range(8)]
    try:
        assert threading.active_count() == before + 1
    finally:
        for sensor in sensors:
            sensor.close()
    assert threading.active_count() == before


def test_a_fault_in_a_driver_reaches_the_user() -> None:
    clock = ManualClock()
    gauge = Gauge(make_world(clock=clock))
    with Sensor(gauge, "g", clock) as sensor:
        gauge.poll = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        clock.advance(1.0)
        wait_for(lambda: not acquisition_of(sensor).intake.alive)
        with pytest.raises(pmt.PmtError, match="ZeroDivisionError"):
            sensor.read()


def test_a_source_that_cannot_be_read_at_opening_is_not_opened() -> None:
    clock = ManualClock()
    source = Counter(make_world(clock=clock))
    source.gone = True
    with pytest.raises(pmt.SourceLostError):
        Sensor(source, "test", clock)


class _Full(io.StringIO):
    """A file on a full disk: its first line still fits."""

    def write(self, text: str, /) -> int:
        if self.tell():
            raise OSError(28, "No space left on device")
        return super().write(text)


@pytest.mark.parametrize("held", ["dump", "sensor"])
def test_what_goes_wrong_at_the_end_does_not_hide_what_went_wrong_before(
    held: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a with-statement that is left in peace, the end itself is the error."""
    for failing in (False, True):
        clock, _, sensor = counter_sensor("constant:60")
        with contextlib.ExitStack() as stack:
            stack.enter_context(pytest.raises(ZeroDivisionError if failing else pmt.SinkError))
            stack.enter_context(sensor)
            if held == "dump":
                stack.enter_context(sensor.dump(_Full(), format="csv"))
            else:
                sensor.start_dump(_Full(), format="csv")
            clock.advance(1.0)
            sensor.read()
            if failing:
                _ = 1 / 0
        assert ("No space left" in caplog.text) == failing


def test_a_lost_sensor_is_opened_again_and_its_curve_goes_on_with_a_gap() -> None:
    clock = ManualClock()
    world = make_world("constant:50", clock=clock)
    sources = [Counter(world)]

    def open_again() -> Counter:
        sources.append(Counter(world))
        return sources[-1]

    with Sensor(sources[0], "test", clock, open_again=open_again) as sensor:
        clock.advance(8.0)
        before = sensor.read()
        with pmt.region("over the loss", sensor) as r:
            clock.advance(4.0)
            sources[0].gone = True
            with pytest.raises(pmt.SourceLostError):
                sensor.read()
            clock.advance(2.0)
            sensor.reopen()
            clock.advance(4.0)
        m = r["test"]
        assert m.joules == pytest.approx(50 * 4.0, abs=1e-5)  # after the opening; before it nothing was read since
        assert m.coverage == pytest.approx(0.4)
        assert any("no energy is known" in w for w in m.warnings)
        assert "package0: the sensor was opened again" in m.warnings
        clock.advance(200.0)
        after = sensor.read()
        with pytest.warns(UserWarning, match="the energy of 6 s of the 210 s"):
            assert pmt.joules(before, after) == pytest.approx(50 * 204.0, abs=1e-4)


class LateStream(Stream):
    """A stream beside busy programs: each look at it takes 10 ms, and its rows come 0.2 s after their instant."""

    late_ns = 200_000_000
    silent_from_ns = math.inf  # rows of later than this never come
    clock: ManualClock  # of its world

    def read(self) -> Block:
        self.clock.advance(0.01)
        self.held_ns = min(self.clock.now_ns() - self.late_ns, self.silent_from_ns)
        return super().read()


@pytest.mark.parametrize("end", ["stop", "close"])
def test_a_dump_waits_for_the_rows_that_are_on_their_way_when_it_ends(tmp_path: Path, end: str) -> None:
    clock = ManualClock()
    stream = LateStream(make_world("constant:60", clock=clock))
    stream.clock = clock
    sensor = Sensor(stream, "test", clock, interval_s=1e6)
    sensor.start_dump(tmp_path / "rows.csv")
    clock.advance(0.5)
    asked_ns = clock.now_ns()
    (sensor.stop_dump if end == "stop" else sensor.close)()
    sensor.close()
    table = pmt.load(tmp_path / "rows.csv")
    last_ns = round(table["time"].iloc[-1] * 1e9) - clock.anchor().unix_offset_ns
    assert last_ns >= asked_ns - 1000  # the column has microseconds
    assert (table.attrs["complete"], table.attrs["notes"], table.attrs["uncovered_s"]) == (True, [], 0.0)


def test_a_dump_says_what_its_end_lacks_where_a_stream_is_silent_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    clock = ManualClock()
    stream = LateStream(make_world("constant:60", clock=clock))
    stream.clock = clock
    with Sensor(stream, "test", clock, interval_s=1e6) as sensor:
        sensor.start_dump(tmp_path / "rows.csv")
        stream.silent_from_ns = clock.now_ns()
        clock.advance(0.5)
        asked_ns = clock.now_ns()
        ending = sensor.stop_dump()
        assert clock.now_ns() - asked_ns < 1_000_000_000
    assert ending.short_s == pytest.approx(0.5, abs=0.05)
    table = pmt.load(tmp_path / "rows.csv")
    assert table.attrs["uncovered_s"] == pytest.approx(0.5, abs=0.05)
    assert any("its rows may lack the last" in note for note in table.attrs["notes"])
    assert any("no energy is known" in note for note in table.attrs["notes"])


@pytest.mark.parametrize("kind", [Counter, Gauge])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_dump_over_a_loss_says_what_it_lacks(tmp_path: Path, kind: type[Counter | Gauge], suffix: str) -> None:
    clock = ManualClock()
    world = make_world("constant:50", clock=clock)
    sources = [kind(world)]

    def open_again() -> Counter | Gauge:
        sources.append(kind(world))
        return sources[-1]

    path = tmp_path / f"rows.{suffix}"
    with Sensor(sources[0], "test", clock, open_again=open_again, interval_s=1e6) as sensor:

        def pass_by(seconds: int) -> None:
            for _ in range(seconds):
                clock.advance(1.0)
                sensor.read()

        with sensor.dump(path):
            pass_by(4)
            acquisition_of(sensor).fail(pmt.SourceLostError("pulled out"))
            clock.advance(6.0)
            sensor.reopen()
            pass_by(5)
    table = pmt.load(path)
    assert table.attrs["notes"] == ["no energy is known for 6 s of 15 s (40%); the joules do not contain it"]
    (gap,) = table.index[table["lost"] > 0].tolist()
    assert table["elapsed"].diff()[gap] == pytest.approx(6.0)
    assert table["total_J"].iloc[-1] == pytest.approx(50 * 9.0, abs=1e-4)
    assert table["total_W"][gap] != 50.0 or kind is Gauge


def test_a_sensor_that_is_opened_again_in_good_order_is_not_called_lost(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    world = make_world("constant:50", clock=clock)
    first = Counter(world)
    said: list[str] = []

    def open_again() -> Counter:  # the poller, or another thread, reads while it is opened
        with pytest.raises(pmt.SourceLostError) as raised:
            sensor.read()
        said.append(str(raised.value))
        return Counter(world)

    with Sensor(first, "test", clock, open_again=open_again) as sensor:
        first.close = lambda: setattr(first, "gone", True)  # type: ignore[method-assign]
        clock.advance(2.0)
        sensor.reopen()
        a = sensor.read()
        clock.advance(2.0)
        assert pmt.joules(a, sensor.read()) == pytest.approx(100.0)
    assert said == ["test was closed to be opened again"]
    assert caplog.text == ""


def test_a_sensor_is_not_opened_again_as_another_device() -> None:
    clock = ManualClock()
    world = make_world("constant:50", clock=clock)
    other = Gauge(world)
    first = Sensor(Counter(world), "test", clock, open_again=lambda: other)
    with first as sensor, pytest.raises(TargetError, match="another device"):
        sensor.reopen()
    with Sensor(Counter(world), "test", clock) as sensor, pytest.raises(TargetError, match="not opened by create"):
        sensor.reopen()
    with pytest.raises(pmt.SensorClosedError):
        sensor.reopen()


def test_a_dropped_sensor_is_closed_where_warnings_are_errors() -> None:
    code = (
        "import gc, os, pmtpy as pmt\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "sensor = pmt.create('rapl:virtual')\n"
        "del sensor\n"
        "gc.collect()\n"
        "print(len(os.listdir('/proc/self/fd')) - before)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
    assert "ResourceWarning: unclosed sensor rapl:virtual" in done.stderr


def test_only_the_public_names_are_shown() -> None:
    shown = {name for name in dir(Sensor) if not name.startswith("_")}
    assert shown == {
        "channels", "close", "dump", "history", "identity", "load", "mark", "read", "reopen", "start_dump", "stop_dump",
    }  # fmt: skip


def test_a_sensor_and_its_regions_say_that_they_cannot_travel_and_what_can() -> None:
    with pmt.create("rapl:virtual") as sensor, pmt.region("work", sensor) as region:
        pass
    for held in (sensor, region):
        with pytest.raises(TypeError, match=r"rapl:virtual is read by this process.*send what was measured"):
            copy.deepcopy(held)
    assert copy.deepcopy(region["rapl:virtual"]).joules == region["rapl:virtual"].joules


def test_options_of_a_backend_may_be_text_as_on_the_command_line() -> None:
    with pmt.create("nvml:virtual", period_ms="40") as sensor:
        assert sensor.identity.virtual


@pytest.mark.parametrize(
    ("target", "option", "needs"),
    [
        ("nvml:virtual", "period_ms", "a number"),
        ("nvml:virtual", "samples", "true or false"),
        ("occ:virtual", "sockets", "a whole number"),
    ],
)
def test_text_that_cannot_be_an_option_is_told_in_the_users_words(target: str, option: str, needs: str) -> None:
    options: dict[str, Any] = {option: "often"}
    with pytest.raises(pmt.TargetError, match=f"^{target}: option {option} takes {needs}, not 'often'$"):
        pmt.create(target, **options)


@pytest.mark.parametrize(
    ("target", "option"),
    [("ipmi", "run"), ("redfish:h", "get"), ("nvml", "library"), ("tinkerforge:h", "link"), ("rapl", "perf")],
)
def test_an_option_that_takes_an_object_of_a_program_is_none_for_text(target: str, option: str) -> None:
    options: dict[str, Any] = {option: "x"}
    with pytest.raises(pmt.TargetError, match=f"has no option '{option}'; its options: (?!.*{option})"):
        pmt.create(target, **options)


@pytest.mark.parametrize(("target", "name"), [("powersensor3:virtual", "total"), ("nvml:virtual", "gpu.instant")])
def test_a_trace_of_the_history_knows_what_one_of_a_dump_knows(target: str, name: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with pmt.create(target, clock=clock, load="square:low=50,high=250,hz=3", history_s=9.0) as sensor:
        with sensor.dump(tmp_path / "run.csv"):
            for _ in range(20):
                clock.advance(0.02)
                sensor.read()
        found = sensor.history().trace(name)
        with pytest.raises(TargetError, match="no power 'pair9'; there are: total"):
            sensor.history().trace("pair9")
    said = trace_of(pmt.load(tmp_path / "run.csv"), name, found.name)
    rows = np.isin(np.round(found.watts, 3), np.round(said.watts, 3))
    assert len(said.watts) > 3
    assert rows[-len(said.watts) + 1 :].all()
    assert found.channel is not None
    assert said.channel is not None
    assert found.channel.gain_u == pytest.approx(said.channel.gain_u, rel=0.05)
    assert found.channel.gain_u > 0.0
    assert replace(found.channel.response, gain_u=0.0) == replace(said.channel.response, gain_u=0.0)
    assert (found.channel.offset_u, found.channel.refresh_s) == (said.channel.offset_u, said.channel.refresh_s)
    assert (found.polling, found.aged_s) == (said.polling, said.aged_s)


def test_states_in_the_silence_of_a_stream_are_apart_and_tell_no_energy() -> None:
    clock = ManualClock()
    stream = Stream(make_world("constant:60", clock=clock))
    with Sensor(stream, "stream", clock) as sensor:
        clock.advance(1.0)
        begun = sensor.read()
        stream.held_ns = clock.now_ns()
        clock.advance(0.25)
        late = sensor.read()
        assert late.t_ns == begun.t_ns  # rows that are a little late still come
        clock.advance(2.0)
        one = sensor.read()
        clock.advance(2.0)
        two = sensor.read()
        assert pmt.seconds(one, two) == pytest.approx(2.0)
        for a, b in ((begun, one), (one, two)):
            with pytest.raises(CoverageError, match="is not known"):
                pmt.joules(a, b)
        stream.held_ns = math.inf  # they were only late
        assert pmt.joules(begun, sensor.read()) == pytest.approx(255.0)
        assert pmt.joules(one, two) == pytest.approx(120.0)


class _Hung(Counter):
    """A counter whose driver hangs in every call from an instant on."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(make_world("constant:60", clock=clock))
        self.hangs, self.reading, self.free = False, threading.Event(), threading.Event()

    def poll(self) -> list[float]:
        if self.hangs:
            self.reading.set()
            assert self.free.wait(240)
        return list(super().poll())


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ManualClock, _Hung, Sensor]]:
    """A sensor, and its source, which another thread can be made to hang in."""
    monkeypatch.setattr("pmtpy.sensor._lock.ANSWER_S", 0.05)
    monkeypatch.setattr("pmtpy.sensor._lock._WAIT_AFTER_VAIN_S", 0.01)
    monkeypatch.setattr("pmtpy.sensor.sensor.CLOSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr("pmtpy.sensor.acquisition.CLOSE_TIMEOUT_S", 0.05)
    clock = ManualClock()
    source = _Hung(clock)
    sensor = Sensor(source, "hung", clock)
    yield clock, source, sensor
    source.free.set()
    sensor.close()


def _hang(source: _Hung, sensor: Sensor) -> threading.Thread:
    def ask() -> None:
        with contextlib.suppress(pmt.SourceLostError):  # where the poller came first, and hangs
            sensor.read()

    source.hangs = True
    reader = threading.Thread(target=ask, daemon=True)
    reader.start()
    assert source.reading.wait(240)
    return reader


def test_whoever_asks_a_sensor_that_hangs_is_told_so_and_it_is_usable_when_it_answers(
    hung: tuple[ManualClock, _Hung, Sensor],
) -> None:
    clock, source, sensor = hung
    before = sensor.read()
    reader = _hang(source, sensor)
    asked: list[Callable[[], object]] = [
        sensor.read,
        sensor.history,
        lambda: sensor.mark("here"),
        lambda: pmt.region("later", sensor).__enter__(),
        lambda: sensor.start_dump(io.StringIO()),
    ]
    for ask in asked * 2:
        with pytest.raises(pmt.SourceLostError, match="has not answered"):
            ask()
    source.free.set()
    reader.join(240)
    clock.advance(1.0)
    assert pmt.joules(before, sensor.read()) == pytest.approx(60.0)


def test_whoever_waits_for_a_sensor_that_hangs_is_told_what_for_and_what_to_look_at(
    hung: tuple[ManualClock, _Hung, Sensor], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, source, sensor = hung
    monkeypatch.setattr("pmtpy.sensor._lock._TELL_S", 0.02)
    _hang(source, sensor)
    for _ in range(2):
        with pytest.raises(pmt.SourceLostError, match=r"hangs .*dmesg.*measured again once it answers"):
            sensor.read()
    assert [r.getMessage() for r in caplog.records if "waited for" in r.getMessage()] == [
        "hung does not answer; it is waited for 0.03 s longer at most"
    ]


def test_a_sensor_that_is_known_to_hang_is_not_waited_for_again(
    hung: tuple[ManualClock, _Hung, Sensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sensor.sensor.CLOSE_TIMEOUT_S", "sensor.acquisition.CLOSE_TIMEOUT_S", "sensor.poller._JOIN_S"):
        monkeypatch.setattr(f"pmtpy.{name}", 240.0)
    _, source, sensor = hung
    opened = pmt.region("work", sensor).__enter__()  # it is read in the background until this ends
    _hang(source, sensor)
    with pytest.raises(pmt.SourceLostError, match="has not answered"):
        sensor.read()
    closing = threading.Thread(target=sensor.close)
    closing.start()
    closing.join(60)
    closed = not closing.is_alive()
    source.free.set()
    closing.join()
    opened.__exit__(None, None, None)
    assert closed


def test_a_sensor_that_hangs_is_not_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held(_Hung):
        def close(self) -> None:  # as of NVML, which is shut down when nobody is in a call of it
            assert self.free.wait(240)

    monkeypatch.setattr("pmtpy.sensor._lock.ANSWER_S", 0.05)
    clock = ManualClock()
    source = Held(clock)
    sensor = Sensor(source, "held", clock, open_again=lambda: Counter(source.world))
    reader = _hang(source, sensor)
    said: list[str] = []

    def reopen() -> None:
        try:
            sensor.reopen()
        except pmt.SourceLostError as error:
            said.append(str(error))

    opening = threading.Thread(target=reopen)
    opening.start()
    opening.join(60)
    told = list(said)
    source.free.set()
    opening.join()
    reader.join()
    sensor.close()
    assert told
    assert "has not answered" in told[0]


def test_the_file_of_a_sensor_that_hangs_is_ended_and_says_why(
    hung: tuple[ManualClock, _Hung, Sensor], tmp_path: Path
) -> None:
    _, source, sensor = hung
    path = tmp_path / "hung.csv"
    sensor.start_dump(path)
    _hang(source, sensor)
    with pytest.raises(pmt.SourceLostError, match="has not answered"):
        sensor.stop_dump()
    told = json.loads((tmp_path / "hung.csv.json").read_text())
    assert not told["complete"]
    assert "has not answered" in told["error"]
    assert len(path.read_text().splitlines()) >= 2
