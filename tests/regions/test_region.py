from __future__ import annotations

import contextlib
import json
import math
import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.matching import calibrate
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Quantity
from pmtpy.core.clock import Anchor, ManualClock
from pmtpy.core.response import Number
from pmtpy.core.rows import Block
from pmtpy.core.source import Remarks
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import TargetError
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.clocks import OneThreadClock
from tests.support.worlds import Counter, Gauge, Stream, counter_sensor


def test_a_region_knows_its_energy_its_uncertainty_and_its_method() -> None:
    clock, source, sensor = counter_sensor("square:low=30,high=90,hz=0.7")
    with sensor:
        with pmt.region("work", sensor) as r:
            clock.advance(3.3)
        truth = source.world.joules_between(clock.now_ns() - 3_300_000_000, clock.now_ns())
        m = r["test"]
        assert m.joules == pytest.approx(truth, abs=4e-6)
        assert m.seconds == r.seconds == pytest.approx(3.3)
        assert m.watts == pytest.approx(truth / 3.3)
        assert m.method == "counter"
        assert m.coverage == 1.0
        assert m.lost == 0
        assert m.virtual
        assert "virtual" in m.warnings[0]
        assert m.channels["dram0"].joules == pytest.approx(truth / 3, abs=2e-6)
        assert 0 < m.channels["package0"].uncertainty_joules < 0.03  # both ends are up to 1 ms old
        assert r.total.joules == pytest.approx(truth, abs=4e-6)
        assert set(r.total.channels) == {"test/package0", "test/dram0"}


def test_regions_nest_and_overlap() -> None:
    clock, _, sensor = counter_sensor("constant:50")
    with sensor:
        outer, inner, other = (pmt.region(n, sensor) for n in ("outer", "inner", "other"))
        with outer:
            clock.advance(1)
            with inner:
                clock.advance(2)
                other.__enter__()
                clock.advance(3)
            clock.advance(4)
        clock.advance(5)
        other.__exit__(None, None, None)
        found = [round(r["test"].joules) for r in (outer, inner, other)]
        assert found == [500, 250, 600]


def test_a_stream_is_evaluated_between_its_rows_and_settles() -> None:
    clock = ManualClock()
    world = make_world("constant:60", clock=clock)
    with Sensor(Stream(world), "stream", clock) as sensor:
        clock.advance(0.0123456)
        with pmt.region("short", sensor) as r:
            clock.advance(0.0054321)
        assert r["stream"].joules == pytest.approx(60 * 0.0054321)
        clock.advance(20.0)
        sensor.read()
        first = r["stream"]
        assert first.joules == pytest.approx(60 * 0.0054321)
        assert r["stream"] is first


def test_a_stream_that_is_held_up_says_so_until_its_rows_come() -> None:
    clock = ManualClock()
    world = make_world("square:low=30,high=170,hz=0.4", clock=clock)
    source = Stream(world)
    with Sensor(source, "stream", clock) as sensor:
        clock.advance(1.1)
        sensor.read()
        source.held_ns = clock.now_ns() + 50e6
        with pmt.region("moving", sensor) as r:
            start = clock.now_ns()
            clock.advance(1.0)
        true = world.joules_between(start, clock.now_ns())
        early = r["stream"]
        assert not early.settled
        assert early.coverage == pytest.approx(0.35, abs=0.002)  # the power before the stall went on for 0.3 s
        assert early.joules == pytest.approx(170.0 * 0.35, rel=0.01)
        assert early.watts == pytest.approx(170.0, rel=0.01)
        assert early.joules == pytest.approx(true, abs=2 * early.uncertainty_joules)
        assert any("no energy is known for 650 ms of 1 s (65%)" in w for w in early.warnings)
        assert not any("too short" in w for w in early.warnings)
        source.held_ns = math.inf
        settled = r["stream"]
        assert settled.joules == pytest.approx(true)
        assert settled.coverage == 1.0
        assert settled.uncertainty_joules < 0.01 * early.uncertainty_joules
        assert not any("is known" in w for w in settled.warnings)


@pytest.mark.parametrize("late_s", [0.05, 0.15, 0.25])
def test_a_region_asked_for_while_rows_are_late_holds_whatever_the_load_did_of_late(late_s: float) -> None:
    clock = ManualClock()
    world = make_world("square:low=20,high=100,hz=1.43", clock=clock)
    source = Stream(world)
    held, said = [], 0
    with Sensor(source, "stream", clock) as sensor:
        clock.advance(1.0)
        sensor.read()
        for k in range(40):
            source.held_ns = math.inf
            clock.advance(0.6 + 0.0173 * k)
            sensor.read()
            start = clock.now_ns()
            with pmt.region("late", sensor) as r:
                clock.advance(0.35 - late_s)
                sensor.read()
                source.held_ns = clock.now_ns()
                clock.advance(late_s)
            true, early = world.joules_between(start, clock.now_ns()), r["stream"]
            held.append(abs(early.joules - true) <= 2.0 * early.uncertainty_joules)
            said += any("have not come yet" in w for w in early.warnings)
            assert not any("too short" in w for w in early.warnings)
    assert sum(held) >= 36, held  # 2 u are 95 %, 38 of 40 with a standard deviation of 1.4
    assert said == len(held)


def test_a_region_of_bursts_asked_for_at_once_is_wide_by_what_bursts_of_late_did() -> None:
    """Rows come some milliseconds late, and as little as that before them tells nothing of bursts each 50 ms."""
    clock = ManualClock()
    world = make_world("square:low=10,high=110,hz=20,duty=0.08", clock=clock)
    source = Stream(world)
    rng, off, said = np.random.default_rng(3), [], 0
    with Sensor(source, "stream", clock) as sensor:
        clock.advance(1.5)
        sensor.read()
        for _ in range(200):
            source.held_ns = math.inf
            clock.advance(float(rng.uniform(0.02, 0.04)))
            sensor.read()
            late_s, length_s = rng.uniform(0.002, 0.008), rng.uniform(0.001, 0.01)
            source.held_ns = clock.now_ns() + (length_s - late_s) * 1e9
            if late_s > length_s:
                clock.advance(late_s - length_s)
            start = clock.now_ns()
            with pmt.region("burst", sensor) as r:
                clock.advance(length_s)
            true, early = world.joules_between(start, clock.now_ns()), r["stream"]
            off.append(abs(early.joules - true) / early.uncertainty_joules)
            said += any("have not come yet" in w for w in early.warnings)
    assert np.mean(np.array(off) < 1.96) > 0.9
    assert max(off) < 4.0  # a burst in what is missing, where a little more than half has come
    assert said > 190


def test_of_a_load_that_begins_in_a_region_of_which_little_has_come_nothing_is_known() -> None:
    """Idle for seconds, then the work that is measured: rows come 1 to 4 ms late, and it is asked at once."""
    rng, unknown = np.random.default_rng(2), 0
    for _ in range(60):
        clock = ManualClock()
        begin, length_s = 2.0 + rng.uniform(0.0, 5e-4), float(np.exp(rng.uniform(np.log(5e-4), np.log(0.05))))
        world = make_world(f"steps:0=10,{begin:.6f}=110,{begin + length_s:.6f}=10", clock=clock)
        source = Stream(world)
        with Sensor(source, "stream", clock) as sensor:
            clock.advance(2.0)
            sensor.read()
            start, late_s = clock.now_ns(), rng.uniform(0.001, 0.004)
            source.held_ns = start + (length_s - late_s) * 1e9
            with pmt.region("work", sensor) as r:
                clock.advance(length_s)
            true, early = world.joules_between(start, clock.now_ns()), r["stream"]
            if math.isnan(early.uncertainty_joules):
                unknown += 1
                assert length_s <= 2.0 * late_s + 1e-4
                assert any("of a load that began meanwhile nothing is known" in w for w in early.warnings)
            else:
                assert early.joules == pytest.approx(true, abs=2.0 * early.uncertainty_joules + 1e-9)
            source.held_ns = math.inf
            clock.advance(0.1)
            sensor.read()
            assert r["stream"].joules == pytest.approx(true, abs=2.0 * r["stream"].uncertainty_joules)
    assert 20 <= unknown <= 50


def test_a_reading_at_the_end_of_the_converter_leaves_the_uncertainty_of_the_regions_around_it_known() -> None:
    clock = ManualClock()
    source = Stream(make_world("square:low=20,high=100,hz=1.43", clock=clock))
    known = {"gain_u": 0.01, "offset_u": 0.01, "noise": 0.0, "resolution": 0.0}
    source.channels = tuple(c.with_uncertainty(**known) if "." in c.name else c for c in source.channels)
    plain = source.read

    def read() -> Block:
        block = plain()
        raw = block.raw.copy()
        raw[block.t_ns == unread_ns, 1] = math.nan  # the current of one pair
        return replace(block, raw=raw)

    source.read = read  # type: ignore[method-assign]
    unread_ns = clock.now_ns() + 1_500_000_000
    with Sensor(source, "stream", clock) as sensor:
        measured = []
        for late_s in (0.15, 0.0) * 5:  # the first of them before it, the third over it
            clock.advance(0.2)
            sensor.read()
            with pmt.region("around", sensor) as r:
                clock.advance(0.35 - late_s)
                sensor.read()
                source.held_ns = clock.now_ns() if late_s else math.inf
                clock.advance(late_s)
            measured.append(r["stream"])
            source.held_ns = math.inf
    for one in measured:
        for m in (one, *one.channels.values()):
            assert 0.0 < m.uncertainty_joules < math.inf
    assert [m.coverage == 1.0 for m in measured] == [True, True, False, *[True] * 7]


def test_of_a_region_within_a_stall_nothing_is_known_and_so_far_never_falls() -> None:
    clock = ManualClock()
    source = Stream(make_world("constant:60", clock=clock))
    with Sensor(source, "stream", clock) as sensor:
        clock.advance(1.0)
        sensor.read()
        source.held_ns = clock.now_ns()
        clock.advance(0.2)
        with pmt.region("moving", sensor) as r:
            so_far = []
            for _ in range(5):
                clock.advance(0.1)
                so_far.append(r.so_far()["stream"])
        assert so_far == pytest.approx([6.0] * 5, rel=1e-3)
        assert r["stream"].coverage == pytest.approx(0.2, abs=0.001)
        with pmt.region("blind", sensor) as blind:
            clock.advance(0.5)
        assert (blind["stream"].joules, blind["stream"].coverage) == (0.0, 0.0)
        assert math.isnan(blind["stream"].watts)
        assert math.isnan(blind["stream"].uncertainty_joules)
        source.held_ns = math.inf
        assert blind["stream"].joules == pytest.approx(30.0)
        assert r["stream"].joules == pytest.approx(30.0)


class _Told(ManualClock):
    """Tells when a thread has asked for the time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, threading.Event] = {}

    def now_ns(self) -> int:
        now = super().now_ns()
        if told := self.asked.get(threading.get_ident()):
            told.set()
        return now


class _Held(Stream):
    """Takes twenty seconds for a block once somebody leaves a region meanwhile."""

    leaving: threading.Event | None = None

    def __init__(self, world: World, clock: ManualClock) -> None:
        super().__init__(world)
        self.reading, self.clock = threading.Event(), clock

    def read(self) -> Block:
        if (leaving := self.leaving) is not None:
            self.leaving = None
            self.reading.set()
            assert leaving.wait(60)
            self.clock.advance(20.0)
        return super().read()


def test_a_region_ends_when_it_is_left_though_a_reader_holds_the_sensor() -> None:
    clock = _Told()
    source = _Held(make_world("constant:60", clock=clock), clock)
    with Sensor(source, "stream", clock, history_s=60) as sensor:
        clock.advance(0.5)
        sensor.read()
        region = pmt.region("held", sensor)
        with region:
            clock.advance(1.0)
            source.leaving = leaving = threading.Event()
            reader = threading.Thread(target=sensor.read)
            reader.start()
            assert source.reading.wait(60)
            clock.asked[threading.get_ident()] = leaving
        clock.asked.clear()
        reader.join(60)
        sensor.read()
        assert region["stream"].seconds == pytest.approx(1.0)
        assert region["stream"].joules == pytest.approx(60.0)


def test_a_sensor_that_hangs_at_the_end_of_a_region_costs_no_other_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pmtpy.sensor._lock.ANSWER_S", 0.05)
    clock = ManualClock()
    world = make_world("constant:60", clock=clock)
    stuck, well = Counter(world), Counter(world)
    poll, entered, free = stuck.poll, threading.Event(), threading.Event()

    def hang() -> list[float]:
        entered.set()
        assert free.wait(120)
        return list(poll())

    def ask(sensor: Sensor) -> None:
        with contextlib.suppress(pmt.SourceLostError):  # where the poller came first, and hangs
            sensor.read()

    with Sensor(stuck, "stuck", clock) as one, Sensor(well, "well", clock) as two:
        with pmt.region("work", one, two) as r:
            clock.advance(1.0)
            monkeypatch.setattr(stuck, "poll", hang)
            reader = threading.Thread(target=ask, args=(one,), daemon=True)
            reader.start()
            assert entered.wait(120)
        clock.advance(30.0)
        with pytest.raises(pmt.SourceLostError, match="has not answered"):
            r["stuck"]
        assert r["well"].seconds == pytest.approx(1.0)
        assert r["well"].joules == pytest.approx(60.0)
        free.set()
        reader.join(120)


def test_a_long_region_needs_no_history() -> None:
    clock = ManualClock()
    world = make_world("sine:low=30,high=90,hz=0.11", clock=clock)
    with Sensor(Stream(world), "stream", clock, history_s=0.01) as sensor:
        clock.advance(0.01)
        sensor.read()
        start = clock.now_ns()
        with pmt.region("long", sensor) as r:
            for _ in range(40):
                clock.advance(0.25)
                sensor.read()
        assert r["stream"].joules == pytest.approx(world.joules_between(start, clock.now_ns()), rel=1e-6)


def test_a_region_asked_for_when_its_rows_are_forgotten_says_so_and_is_no_less_sure() -> None:
    clock = ManualClock()
    world = make_world("square:low=30,high=90,hz=7", clock=clock)
    with Sensor(Stream(world), "stream", clock) as sensor:
        clock.advance(0.1)
        sensor.read()
        regions = [pmt.region(name, sensor) for name in ("soon", "late")]
        for region in regions:
            with region:
                clock.advance(1.0)
                sensor.read()
            start = clock.now_ns() - 10**9
            clock.advance(0.1 if region.label == "soon" else 10.0)
            sensor.read()
            assert region["stream"].joules == pytest.approx(world.joules_between(start, start + 10**9), rel=1e-3)
        soon, late = (region["stream"] for region in regions)
    assert not any("not kept any more" in w or "too short" in w for w in soon.warnings), soon.warnings
    assert [w for w in late.warnings if "not kept any more" in w], late.warnings
    assert not any("sees" in w or "too short" in w for w in late.warnings), late.warnings
    assert late.uncertainty_joules == pytest.approx(soon.uncertainty_joules, rel=0.5)


def test_time_before_the_first_row_is_not_covered() -> None:
    clock = ManualClock()
    with Sensor(Stream(make_world("constant:60", clock=clock)), "stream", clock) as sensor:
        with pmt.region("early", sensor) as r:
            clock.advance(0.01)
        assert r["stream"].joules == pytest.approx(60 * 0.009)
        assert r["stream"].coverage == pytest.approx(0.9)


def test_lost_rows_show_in_coverage_warning_and_uncertainty() -> None:
    clock = ManualClock()
    source = Stream(make_world("constant:60", clock=clock))
    with Sensor(source, "stream", clock) as sensor:
        clock.advance(0.01)
        sensor.read()
        source.drop = set(range(source.sent_ns, source.sent_ns + 10**8, 2_000_000))
        with pmt.region("lossy", sensor) as r:
            clock.advance(0.2)
        m = r["stream"]
        assert m.coverage == pytest.approx(1 - 49 / 200)
        assert m.lost in {49, 50}
        assert m.joules == pytest.approx(60 * 0.151)
        assert m.watts == pytest.approx(60)
        assert m.uncertainty_joules > 1.0
        assert any("lost" in w for w in m.warnings)


def test_rows_lost_by_readings_that_failed_say_why() -> None:
    clock, source, sensor = counter_sensor("constant:10")

    def lost(failing: int) -> list[str]:
        with pmt.region("work", sensor) as r:
            clock.advance(0.5)
            source.fail = failing
            for _ in range(failing + 1):
                clock.advance(0.1)
                acquisition_of(sensor).step()
        return [w for w in r["test"].warnings if "lost" in w]

    with sensor:
        why = "lost inside the region; the last reading that failed: test counter: busy"
        assert lost(1) == [f"{name}: 1 row was {why}" for name in ("package0", "dram0")]
        assert lost(2) == [f"{name}: 2 rows were {why}" for name in ("package0", "dram0")]
        assert not lost(0)


class _Half(Gauge):
    """A power whose temperature fails by itself, and now and then the power too."""

    failing: Mapping[int, str] = {}

    def poll(self) -> Sequence[float]:
        self._unread = dict(self.failing)
        return [math.nan if i in self.failing else value for i, value in enumerate(super().poll())]


def test_channels_that_fail_by_themselves_say_why_in_regions_and_dumps(tmp_path: Path) -> None:
    clock = OneThreadClock()
    source = _Half(make_world("constant:60", clock=clock))
    with Sensor(source, "half", clock) as sensor:

        def measured(failing: Mapping[int, str]) -> tuple[list[str], ...]:
            with sensor.dump(tmp_path / "half.csv", overwrite=True), pmt.region("work", sensor) as r:
                for i in range(30):
                    source.failing = failing if i == 10 else {}
                    clock.advance(0.01)
                    acquisition_of(sensor).step()
            said = json.loads((tmp_path / "half.csv.json").read_text()).get("remarks", [])
            return tuple([w for w in each if "could not be read" in w] for each in (r["half"].warnings, said))

        assert measured({0: "file: busy"}) == (
            ["gpu: it could not be read; the last time: file: busy"],
            ["gpu: it could not be read; the last time: file: busy"],
        )
        assert measured({1: "asleep"}) == ([], ["gpu.temperature: it could not be read; the last time: asleep"])
        assert measured({}) == ([], [])  # what was before is forgotten


def test_a_body_that_raises_is_measured_and_its_exception_goes_on() -> None:
    clock, _, sensor = counter_sensor("constant:10")
    r = pmt.region("fails", sensor)

    def body() -> None:
        with r:
            clock.advance(1)
            raise KeyError

    with sensor:
        with pytest.raises(KeyError):
            body()
        assert r["test"].joules == pytest.approx(10, abs=1e-5)


def test_a_sensor_lost_in_a_region_raises_when_its_energy_is_asked_for_and_spares_the_others() -> None:
    clock, source, sensor = counter_sensor("constant:10")
    with sensor, Sensor(Gauge(make_world("constant:5", clock=clock)), "gauge", clock) as other:
        with pmt.region("half", sensor, other) as r:
            clock.advance(1)
            source.gone = True
        assert r["gauge"].joules == pytest.approx(5)
        with pytest.raises(pmt.SourceLostError):
            r["test"]
        with pytest.raises(pmt.SourceLostError):
            _ = r.total
        outcomes = r.outcomes()
        assert isinstance(outcomes["test"], pmt.SourceLostError)
        measured = outcomes["gauge"]
        assert isinstance(measured, Measurement)
        assert measured.joules == pytest.approx(5)


def test_what_a_lost_sensor_had_measured_before_is_kept_with_its_coverage() -> None:
    clock, source, sensor = counter_sensor("constant:10")
    with sensor:
        with pmt.region("half", sensor) as r:
            clock.advance(3)
            sensor.read()
            source.gone = True
            clock.advance(1)
        with pytest.raises(pmt.SourceLostError):
            r["test"]
        m = r.until_lost()["test"]
        assert m.joules == pytest.approx(30, abs=1e-4)
        assert m.watts == pytest.approx(10, abs=1e-4)
        assert m.coverage == pytest.approx(0.75)
        assert m.seconds == pytest.approx(4)
        assert m.uncertainty_joules >= 10  # what came after is not known
        assert "package0: no energy is known for 1 s of 4 s (25%); the joules do not contain it" in m.warnings
        assert m.peak_watts == pytest.approx(10, abs=1e-3)
        with Region("after", {"test": sensor}, without_lost=True) as later:
            clock.advance(1)
        assert later.until_lost() == {}


def test_what_a_sensor_had_measured_is_kept_where_its_loss_shows_after_the_region() -> None:
    clock = ManualClock()
    source = Gauge(make_world("constant:10", clock=clock))
    with Sensor(source, "gauge", clock) as sensor:
        clock.advance(1.0)
        sensor.read()
        with pmt.region("half", sensor) as r:
            clock.advance(1.0)
            sensor.read()
            clock.advance(1.0)
        source.gone = True
        with pytest.raises(pmt.SourceLostError):
            sensor.read()
        with pytest.raises(pmt.SourceLostError):
            r["gauge"]
        m = r.until_lost()["gauge"]
        assert m.seconds == pytest.approx(2.0)
        assert 0.4 < m.coverage < 0.8
        assert m.joules == pytest.approx(10 * m.seconds * m.coverage, rel=0.01)


@pytest.mark.parametrize("others", [0, 1])
def test_a_region_may_be_entered_without_a_sensor_that_is_lost_already(others: int) -> None:
    clock, source, gone = counter_sensor("constant:50")
    _, _, sensor = counter_sensor("constant:50")
    source.gone = True
    watched = {"gone": gone} | ({"there": sensor} if others else {})
    with gone, sensor:
        strict = Region("strict", watched)
        with pytest.raises(pmt.PmtError), strict:
            pass
        with Region("work", watched, without_lost=True) as r:
            assert set(r.so_far()) == set(watched) - {"gone"}
            clock.advance(2)
        outcomes = r.outcomes()
        assert isinstance(outcomes["gone"], pmt.SourceLostError)
        assert set(outcomes) == set(watched)
        assert not others or isinstance(outcomes["there"], Measurement)
        assert others or r.seconds == pytest.approx(2)


def test_a_region_whose_sensors_were_all_lost_still_tells_its_length() -> None:
    clock, source, sensor = counter_sensor("constant:10")
    with sensor:
        r = pmt.region("lost", sensor)
        with r:
            with pytest.raises(pmt.CoverageError, match="not ended"):
                _ = r.seconds
            clock.advance(3)
            source.gone = True
        clock.advance(1)
        assert r.seconds == pytest.approx(3.0)


def test_a_region_says_what_is_wrong_with_its_use() -> None:
    _, _, sensor = counter_sensor()
    with sensor:
        with pytest.raises(pmt.TargetError, match="at least one sensor"):
            pmt.region("none")
        r = pmt.region("open", sensor)
        with r:
            with pytest.raises(pmt.CoverageError, match="has not ended"):
                r["test"]
            with pytest.raises(pmt.TargetError, match="entered already"):
                r.__enter__()
        with pytest.raises(pmt.TargetError, match="not watched by 'rapl'"):
            r["rapl"]


@pytest.mark.parametrize("other", ["rapl", "rapl:virtual", "total", "no such sensor", ""])
def test_a_region_is_a_mapping_also_for_what_does_not_watch_it(other: str) -> None:
    clock, _, sensor = counter_sensor()
    with sensor:
        with pmt.region("work", sensor) as r:
            clock.advance(2)
        assert other not in r
        assert r.get(other) is None
        assert r.get(sensor.target) == r["test"]
        with pytest.raises(KeyError) as raised:
            r[other]
        assert str(raised.value) == f"the region 'work' is not watched by {other!r}, but by: test"
        assert isinstance(raised.value, pmt.TargetError)  # as before


def test_a_region_may_be_asked_for_after_its_sensor_was_closed_and_by_the_sensor_itself() -> None:
    clock = ManualClock()
    gauge = Gauge(make_world("constant:40", clock=clock))
    with Sensor(gauge, "gauge", clock) as sensor:
        clock.advance(1.0)
        sensor.read()
        with pmt.region("work", sensor) as r:
            clock.advance(0.9)
            sensor.read()
            clock.advance(0.9)
    m = r[sensor]
    assert m.joules == r["gauge"].joules == pytest.approx(72.0, rel=0.01)
    assert m.coverage == 1.0
    with pytest.raises(pmt.SensorClosedError):
        sensor.read()


def test_threads_have_regions_of_their_own() -> None:
    clock, _, sensor = counter_sensor("constant:10")
    found: list[float] = []
    entered, go_on = threading.Barrier(4), threading.Barrier(4)

    def work() -> None:
        with pmt.region("mine", sensor) as r:
            entered.wait(120)
            go_on.wait(120)
        found.append(r["test"].joules)

    with sensor:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        entered.wait(120)
        clock.advance(2)
        go_on.wait(120)
        for t in threads:
            t.join()
    assert found == pytest.approx([20.0] * 3, abs=1e-5)


def test_the_power_of_a_pair_is_as_uncertain_as_its_voltage_and_current_make_it() -> None:
    clock = ManualClock()
    source = Stream(make_world("constant:60", clock=clock))
    source.channels = tuple(
        replace(c, offset_u={Quantity.VOLTAGE: 0.03, Quantity.CURRENT: 0.2}.get(c.quantity, 0.0), resolution=0.0)
        for c in source.channels
    )
    with Sensor(source, "stream", clock) as sensor:
        clock.advance(0.01)
        sensor.read()
        with pmt.region("pair", sensor) as r:
            clock.advance(2.0)
        each = math.hypot(12 * 0.2, 2.5 * 0.03, 0.2 * 0.03) * 2.0  # 12 V, 2.5 A, 2 s
        assert r["stream"].channels["pair0"].uncertainty_joules == pytest.approx(each, rel=0.01)
        assert r["stream"].uncertainty_joules == pytest.approx(each * math.sqrt(2), rel=0.01)


class Rare(Counter):
    """A counter that moves when it likes."""

    silent = False

    def poll(self) -> Sequence[float] | None:  # type: ignore[override]  # (None: it has not moved)
        return None if self.silent else super().poll()


def test_a_counter_that_was_read_once_knows_no_energy_yet_and_says_so() -> None:
    clock = ManualClock()
    source = Rare(make_world("constant:50", clock=clock))
    with Sensor(source, "test", clock) as sensor:
        source.silent = True
        with pmt.region("short", sensor) as r:
            clock.advance(0.06)
        early = r["test"]
        assert early.joules == 0.0
        assert early.coverage == 0.0
        assert early.uncertainty_joules > 20.0  # up to 1000 W for 60 ms, in two parts
        assert any("no energy is known" in w for w in early.warnings)
        source.silent = False
        clock.advance(0.01)
        assert r["test"].joules == pytest.approx(3.0, abs=1e-5)
        assert r["test"].coverage == 1.0


def test_a_row_that_comes_while_a_region_is_evaluated_serves_both_its_ends() -> None:
    clock = ManualClock()
    source = Rare(make_world("steps:0=500,1=10", clock=clock))
    with Sensor(source, "test", clock) as sensor:
        clock.advance(1.0)
        sensor.read()
        source.silent = True
        clock.advance(0.5)
        region = pmt.region("late", sensor)
        with region:
            clock.advance(0.5)
        source.silent = False
        clock.advance(0.01)
        # Extended from the row before, the start stands 245 J above the row that comes now, which has 10 W.
        assert region["test"].joules == pytest.approx(5.0, abs=1e-4)


def test_a_power_outside_the_calibrated_range_is_said() -> None:
    clock = ManualClock()
    source = Gauge(make_world("constant:90", clock=clock))
    curve = Affine(Number(0.9, 0.009), Number(0.0, 0.5))
    profile = Profile(source.identity, "gpu", curve, 10.0, 60.0, provenance=(("made", "here"),))
    fitted = calibrate([profile], source.identity, source.channels)
    with Sensor(source, "test", clock, calibration=fitted) as sensor:
        clock.advance(0.1)
        sensor.read()
        with pmt.region("high", sensor) as r:
            for _ in range(10):
                clock.advance(0.1)
                sensor.read()
        assert r["test"].joules == pytest.approx(100.0, rel=1e-3)
        parts = dict(r["test"].channels["gpu"].components)
        assert math.hypot(parts["gain"], parts["offset"]) == pytest.approx(math.hypot(1.0, 0.5 / 0.9), rel=0.01)
        assert any("outside the calibrated range, 10 to 60 W" in w for w in r["test"].warnings)
        assert r["test"].calibration == f"calibration {profile.digest} (made: here)"
        assert r["test"].channels["gpu"].calibration == r["test"].to_dict()["calibration"] == r.total.calibration


def test_the_peak_is_that_of_the_rows_inside_the_region() -> None:
    clock = ManualClock()
    world = make_world("steps:0=10,1=80,1.2=20,3=200", clock=clock)
    with Sensor(Stream(world), "stream", clock, history_s=0.01) as sensor:
        clock.advance(0.5)
        sensor.read()
        with pmt.region("burst", sensor) as r:
            for _ in range(20):
                clock.advance(0.1)
                sensor.read()
        clock.advance(2.0)
        sensor.read()
        assert r["stream"].peak_watts == pytest.approx(80)
        assert r["stream"].channels["pair1"].peak_watts == pytest.approx(40)


def test_a_region_shows_its_name_its_sensors_and_whether_it_ended() -> None:
    _, _, sensor = counter_sensor("constant:50")
    with sensor:
        r = pmt.region("work", sensor)
        assert repr(r) == "<Region 'work' of test: not entered>"
        with r:
            assert repr(r) == "<Region 'work' of test: open>"
        assert repr(r) == "<Region 'work' of test: ended>"


def test_a_sensor_that_is_given_open_is_not_opened_again_for_its_name() -> None:
    clock = ManualClock()
    with pmt.create("rapl:virtual", clock=clock) as sensor, pmt.create("rapl:virtual", clock=clock) as other:
        with pmt.region("work", "rapl:virtual", sensor) as r:
            clock.advance(1)
        assert r.targets == ("rapl:virtual",)
        assert r["rapl:virtual"].seconds == pytest.approx(1)  # by the clock of the one that was given
        with pytest.raises(TargetError, match="two open sensors are called rapl:virtual"):
            pmt.region("work", sensor, other)


def test_a_region_that_was_left_cannot_be_left_again_and_keeps_what_it_measured() -> None:
    clock, _, sensor = counter_sensor("constant:50")
    with sensor:
        r = pmt.region("work", sensor)
        with pytest.raises(TargetError, match="is not open"):
            r.__exit__(None, None, None)
        with r:
            clock.advance(1.0)
        clock.advance(1.0)
        with pytest.raises(TargetError, match="was left already"):
            r.__exit__(None, None, None)
        assert r.seconds == r["test"].seconds == pytest.approx(1.0)


def test_a_region_whose_entering_failed_leaves_nothing_behind() -> None:
    clock, _, sensor = counter_sensor("constant:50")
    other = Sensor(Gauge(make_world("constant:5", clock=clock)), "gauge", clock)
    other.close()
    with sensor:
        r = pmt.region("work", sensor, other)
        with pytest.raises(pmt.SensorClosedError):
            r.__enter__()
        assert repr(r).endswith("not entered>")
        assert acquisition_of(sensor).demand.regions == acquisition_of(other).demand.regions == 0
        with pytest.raises(TargetError, match="is not open"):
            r.__exit__(None, None, None)


@given(steps=st.lists(st.tuples(st.floats(0.001, 0.2), st.booleans()), min_size=1, max_size=30))
def test_energy_so_far_never_falls(steps: list[tuple[float, bool]]) -> None:
    clock = ManualClock()
    source = Rare(make_world("square:low=1,high=500,hz=3", clock=clock))
    with Sensor(source, "test", clock) as sensor:
        clock.advance(0.3)
        sensor.read()
        clock.advance(0.1)
        with pmt.region("work", sensor) as r:
            for seconds, silent in steps:
                source.silent = silent
                clock.advance(seconds)
                assert r.so_far()["test"] >= 0.0
        source.silent = False
        clock.advance(0.01)
        assert r.so_far()["test"] == pytest.approx(r["test"].joules)


def test_what_was_measured_cannot_be_changed_and_travels() -> None:
    clock, _, sensor = counter_sensor("constant:50")
    with sensor:
        with pmt.region("work", sensor) as r:
            clock.advance(1.0)
        m = r["test"]
    with pytest.raises(TypeError):
        m.channels["package0"] = m  # type: ignore[index]
    assert pickle.loads(pickle.dumps(m)) == m  # noqa: S301  (made a word before)


def test_a_measurement_shows_itself_in_one_line_and_in_json() -> None:
    clock, _, sensor = counter_sensor("constant:50")
    with sensor:
        with pmt.region("work", sensor) as r:
            clock.advance(2.0)
        m = r["test"]
        assert str(m).startswith("test: 100.000 J +- 0.034 J")
        assert "\n" not in str(m)
        assert repr(m) == f"<{m}>"  # a failed assertion shows it
        assert " in 2 s (50 W), counter, 1 warning" in str(m)
        assert str(m.channels["dram0"]).startswith("test dram0: ")
        document = json.loads(json.dumps(m.to_dict(), allow_nan=False))
        assert document["joules"] == m.joules
        assert set(document) == {f.name for f in fields(m)} - {"components"}
        assert document["channels"]["dram0"]["uncertainty_joules"] == m.channels["dram0"].uncertainty_joules
        assert json.loads(json.dumps(replace(m, watts=math.nan).to_dict(), allow_nan=False))["watts"] is None
        assert "<td>dram0</td>" in m._repr_html_()
        assert "<td>test</td>" in r._repr_html_()


def test_a_region_is_a_mapping_of_targets_to_measurements() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    clock, _, sensor = counter_sensor("constant:50")
    gauge = Sensor(Gauge(make_world("constant:5", clock=clock)), "gauge", clock)
    with sensor, gauge:
        with pmt.region("work", sensor, gauge) as r:
            clock.advance(1.0)
        assert (list(r), len(r)) == (["test", "gauge"], 2)
        assert "test" in r
        assert sensor in r  # type: ignore[comparison-overlap]
        assert "rapl" not in r
        assert dict(r.items())["gauge"].joules == r["gauge"].joules
        table = r.to_frame()
        assert table.loc[("test", "total"), "joules"] == r["test"].joules
        assert table.loc[("gauge", "gpu"), "watts"] == pytest.approx(5.0)


def test_the_work_of_a_device_is_stamped_with_its_sensor() -> None:
    clock, _, sensor = counter_sensor("constant:50")
    with sensor:
        with sensor.load():
            clock.advance(1.0)
        with pmt.region("work", sensor) as r:
            clock.advance(1.0)
            with sensor.load():
                clock.advance(2.0)
        load = acquisition_of(sensor).loads.about(*r.span_ns, 2_000_000_000)
        assert load is not None
        assert load.on_s == pytest.approx([-1.0, 1.0])
        assert load.off_s == pytest.approx([0.0, 3.0])
        assert load.known_s.ravel() == pytest.approx([-1.0, 5.0])


def test_time_that_may_be_missing_between_the_rows_is_in_the_uncertainty() -> None:
    clock, source, sensor = counter_sensor()
    with sensor:
        clock.advance(1.0)
        sure, unsure = pmt.region("sure", sensor), pmt.region("unsure", sensor)
        for region in (sure, unsure):
            with region:
                clock.advance(1.0)
        known, told = sure.total, ("test: some of it may be missing",)
        source.remarks = lambda begin_ns, end_ns: Remarks(0.0, told, 0.1)  # type: ignore[method-assign]
        doubted = unsure.total
    assert known.uncertainty_joules < 3.0
    assert doubted.uncertainty_joules == pytest.approx(math.hypot(known.uncertainty_joules, 0.1 * 60.0), rel=0.05)
    assert set(told) <= set(doubted.warnings)


def test_of_a_stream_that_is_behind_it_is_said_by_how_much() -> None:
    clock = OneThreadClock()
    source = Stream(make_world("square:low=30,high=90,hz=3", clock=clock))
    with Sensor(source, "line", clock) as sensor:
        made = acquisition_of(sensor)
        for _ in range(200):
            clock.advance(0.05)
            source.held_ns = clock.now_ns() - 2_000_000_000
            made.step()
        with pmt.region("work", sensor) as r:
            clock.advance(0.1)
            source.held_ns += 100_000_000
        m = r["line"]
    assert m.coverage == 0.0
    assert all("Its newest row is 2 s older than the end of the region" in w for w in m.warnings)
    assert not any("no reading falls" in w or "was taken to go on" in w for w in m.warnings)


class _Sleeper(ManualClock):
    """A clock of a machine that sleeps: only the time since boot goes on."""

    slept_ns = 0

    def anchor(self) -> Anchor:
        made = super().anchor()
        return replace(made, boottime_ns=made.monotonic_ns + self.slept_ns)


def test_a_machine_that_slept_inside_a_region_is_told_and_one_that_slept_before_is_not() -> None:
    clock = _Sleeper()
    with Sensor(Counter(make_world("constant:60", clock=clock)), "test", clock) as sensor:
        clock.slept_ns = 10**12
        with pmt.region("awake", sensor) as awake:
            clock.advance(1.0)
        with pmt.region("asleep", sensor) as r:
            clock.advance(1.0)
            clock.slept_ns += 600 * 10**9
            clock.advance(1.0)
        assert not any("slept" in w for w in awake["test"].warnings)
        for one in (r["test"], *r["test"].channels.values()):
            assert [w for w in one.warnings if "the machine slept for 600 s inside the region" in w]
