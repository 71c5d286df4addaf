from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity, outermost
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block, Row
from pmtpy.core.source import PolledSource, Remarks, Timestamps
from pmtpy.emulators.world import shared_world
from pmtpy.errors import ReadError, TargetError
from pmtpy.sensor.combine import _Combined, _whole
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.repeated import OwnClock

pytestmark = pytest.mark.usefixtures("nobody_else_reads")


def step(sensor: pmt.Sensor) -> None:
    """Do what the poller does: some of these count how often they are read."""
    acquisition_of(sensor).step()


BOARDS = [f"hwmon:virtual/ina226/{i}" for i in range(3)]


def test_rails_are_one_reading_with_energy_runtime_and_peak() -> None:
    clock = OwnClock()
    load = "square:low=30,high=150,hz=0.5"
    world = shared_world(load, clock=clock)
    with pmt.combine("accelerator", BOARDS, clock=clock) as sensor:
        clock.advance(0.5)
        step(sensor)
        start = clock.now_ns()
        with pmt.region("work", sensor) as r:
            for _ in range(400):
                clock.advance(0.035)
                step(sensor)
        truth = world.joules_between(start, clock.now_ns())
        m = r["accelerator"]
        # Each of the 14 edges may lie anywhere in a conversion of 35 ms, by 120 W; the boards step by 31 mW each.
        assert m.joules == pytest.approx(truth, abs=14 * 0.035 * 120 / 2 + 0.1 * 14)
        assert m.seconds == pytest.approx(14.0)
        assert m.peak_watts == pytest.approx(150, abs=0.2)
        assert len(m.channels) == 3
        assert m.virtual


def test_the_rails_of_a_whole_are_counted_once_each() -> None:
    clock = OwnClock()
    with pmt.combine("gpu", BOARDS, clock=clock) as sensor:
        domains = [c.domain for c in acquisition_of(sensor).layout.energy]
        assert len(outermost(domains)) == 3
        assert sensor.read().names[0] == "total"
        assert sensor.target == "gpu"


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "at least two"),
        (["hwmon:virtual"], "at least two"),
        (["rapl:virtual", "rapl:virtual"], "different"),
        (["rapl:virtual", "nosuch"], "nosuch"),
        (["rapl:virtual", "powersensor3:virtual"], "external meter"),
    ],
)
def test_what_cannot_be_combined_is_refused_and_nothing_stays_open(targets: list[str], message: str) -> None:
    clock = OwnClock()
    with pytest.raises(pmt.TargetError, match=message):
        pmt.combine("x", targets, clock=clock)


def test_of_a_power_that_fails_nothing_is_known_and_the_others_go_on() -> None:
    clock = OwnClock()
    with pmt.combine("gpu", BOARDS, clock=clock) as sensor:
        clock.advance(0.1)
        step(sensor)
        sources = acquisition_of(sensor).intake.source._sources  # type: ignore[attr-defined]
        real = [source.inner.poll for source in sources]

        def busy() -> None:
            raise pmt.ReadError("busy")

        with pmt.region("work", sensor) as r:
            sources[1].inner.poll = busy
            for _ in range(2):
                clock.advance(0.1)
                step(sensor)
            for source, poll in zip(sources, real, strict=True):
                source.inner.poll = poll
            for _ in range(8):
                clock.advance(0.1)
                step(sensor)
        m = r["gpu"]
        assert [c.coverage for c in m.channels.values()] == pytest.approx([1.0, 0.7, 1.0])
        assert m.coverage == pytest.approx(0.7)
        assert m.lost == 0
        for source in sources:  # of a row without any reading there is nothing
            source.inner.poll = busy
        clock.advance(0.1)
        step(sensor)
        for source, poll in zip(sources, real, strict=True):
            source.inner.poll = poll
        clock.advance(0.1)
        step(sensor)
        assert sensor.read().lost == 1


class _Rail(PolledSource):
    """A counter without a range, which counts on from anywhere after a restart."""

    def __init__(self, clock: ManualClock, domain: str) -> None:
        super().__init__(clock)
        self.identity = Identity("test")
        self.channels = (Channel("energy", Quantity.ENERGY, domain=domain),)
        self.count, self.restarted, self.doubted, self.busy = 0.0, False, False, False

    def poll(self) -> Sequence[float] | Block:
        if self.busy:
            raise ReadError("busy")
        self.count += 5.0
        if self.doubted:
            return replace(Block.row(self._clock.now_ns(), [self.count]), restarted=(0,))
        fresh, self.restarted = self.restarted, False
        return Block.row(self._clock.now_ns(), [self.count], fresh=True) if fresh else [self.count]

    def close(self) -> None:
        pass


def test_a_rail_that_restarts_adds_no_energy_also_when_another_fails_just_then() -> None:
    clock = OwnClock()
    rails = [_Rail(clock, f"external/{i}") for i in range(2)]
    with Sensor(_Combined("board", ["a:0", "a:1"], rails, clock), "board", clock) as sensor:
        clock.advance(1.0)
        before = sensor.read()
        rails[0].count, rails[0].restarted, rails[1].busy = 1e6, True, True
        clock.advance(1.0)
        sensor.read()
        rails[1].busy = False
        clock.advance(1.0)
        after = sensor.read()
        assert after.uncovered_ns[0] - before.uncovered_ns[0] == 2_000_000_000
        assert after.lost - before.lost == 1
        with pytest.raises(pmt.CoverageError):
            pmt.joules(before, after)
        clock.advance(1.0)
        assert pmt.joules(after, sensor.read()) == 10.0


class _Power(_Rail):
    """A power of 5 W."""

    def __init__(self, clock: ManualClock, domain: str) -> None:
        super().__init__(clock, domain)
        self.channels = (Channel("power", Quantity.POWER, domain=domain),)

    def poll(self) -> Sequence[float] | Block:
        super().poll()
        return [5.0]


@pytest.mark.parametrize("kinds", [(_Rail, _Rail), (_Power, _Power)])
def test_rails_that_fail_say_which_and_why(kinds: tuple[type[_Rail], type[_Rail]]) -> None:
    clock = OwnClock()
    rails = [kind(clock, f"external/{i}") for i, kind in enumerate(kinds)]
    combined = _Combined("board", ["a:0", "a:1"], rails, clock)
    combined.read_row()
    rails[1].busy = True
    counts = combined.read_row()
    why = "board: test gave no reading: busy"
    if kinds[1] is _Rail:  # a counter spoils the row, which the next one bridges
        assert (combined.last_failure, combined.unread) == (why, {})
    else:
        assert isinstance(counts, Row)
        assert (combined.last_failure, combined.unread) == ("", {1: why})
    rails[0].busy = True
    combined.read_row()
    assert combined.last_failure == "board: test gave no reading: busy"
    rails[0].busy = rails[1].busy = False
    combined.read_row()
    assert (combined.last_failure, combined.unread) == ("", {})
    combined.close()


def test_a_counter_that_its_rail_does_not_believe_is_not_known_and_the_others_go_on() -> None:
    clock = OwnClock()
    rails = [_Rail(clock, f"external/{i}") for i in range(2)]
    with Sensor(_Combined("board", ["a:0", "a:1"], rails, clock), "board", clock) as sensor:
        clock.advance(1.0)
        before = sensor.read()
        rails[0].doubted, rails[1].busy = True, True  # what is said while another rail fails is not forgotten
        clock.advance(1.0)
        sensor.read()
        rails[0].doubted, rails[1].busy = False, False
        clock.advance(1.0)
        after = sensor.read()
        uncovered_s = [(b - a) / 1e9 for a, b in zip(before.uncovered_ns, after.uncovered_ns, strict=True)]
        assert uncovered_s == [2.0, 2.0, 0.0]
        assert pmt.joules(before, after, after.names[2]) == 5.0
        clock.advance(1.0)
        assert pmt.joules(after, sensor.read()) == 10.0


@pytest.mark.parametrize(
    ("domains", "joules"),
    [
        (("host", "host/socket0/package"), 5.0),  # a node's own counter contains its sockets
        (("host/socket0/package", "host"), 5.0),
        (("host", "gpu/0"), 5.0),
        (("gpu/0", "gpu/1"), 10.0),
        (("gpu/0", "gpu/0"), 5.0),  # one card by two ways
        (("host/socket0/package", "gpu/0"), 10.0),
        (("external/0", "gpu/0"), None),  # the monitor may be on the card's own supply
        (("host/socket0/gpus", "gpu/0"), None),
        (("host/socket1?/package", "host/socket0/package"), None),
    ],
)
def test_a_combination_and_a_region_sum_by_one_rule(domains: tuple[str, str], joules: float | None) -> None:
    clock = OwnClock()
    rails = [_Rail(clock, domain) for domain in domains]
    beside = [Sensor(_Rail(clock, domain), f"r{i}", clock) for i, domain in enumerate(domains)]
    if joules is None:
        with pytest.raises(pmt.TargetError, match="no sum of a:0, a:1"):
            _Combined("board", ["a:0", "a:1"], rails, clock)
    else:
        with Sensor(_Combined("board", ["a:0", "a:1"], rails, clock), "board", clock) as sensor:
            clock.advance(1.0)
            before = sensor.read()
            clock.advance(1.0)
            assert pmt.joules(before, sensor.read()) == joules
    with pmt.region("both", *beside) as region:
        clock.advance(1.0)
    if joules is None:
        with pytest.raises(pmt.CoverageError, match="no sum"):
            _ = region.total
    else:
        assert region.total.joules == joules
    for sensor in beside:
        sensor.close()


def test_rails_are_summed_where_somebody_said_that_they_are_rails_and_meters_side_by_side_are_not() -> None:
    clock = OwnClock()
    domains = ("external/0", "external/1")
    with Sensor(_Combined("board", ["a:0", "a:1"], [_Rail(clock, d) for d in domains], clock), "board", clock) as board:
        with pmt.region("rails", board) as region:
            clock.advance(1.0)
        assert region.total.joules == 10.0
    with contextlib.ExitStack() as stack:
        meters = [stack.enter_context(Sensor(_Rail(clock, d), f"r{i}", clock)) for i, d in enumerate(domains)]
        with pmt.region("both", *meters) as region:
            clock.advance(1.0)
        with pytest.raises(pmt.CoverageError, match=r"no sum of r0, r1: external meters \(r0, r1\) .*pmt\.combine"):
            _ = region.total


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "domains", [("host", "host/socket0/package"), ("gpu/0", "gpu/1"), ("external/0", "external/1")]
)
def test_a_combination_beside_its_own_rails_adds_none_a_second_time(domains: tuple[str, str], first: bool) -> None:  # noqa: FBT001
    clock = OwnClock()
    for kept in (domains, domains[:1], domains[1:]):
        whole = _Combined("board", ["a:0", "a:1"], [_Rail(clock, domain) for domain in domains], clock)
        with contextlib.ExitStack() as stack:
            board = stack.enter_context(Sensor(whole, "board", clock))
            again = [stack.enter_context(Sensor(_Rail(clock, d), f"r{i}", clock)) for i, d in enumerate(kept)]
            with pmt.region("again", *([board, *again] if first else [*again, board])) as region:
                clock.advance(1.0)
            assert region.total.joules == (5.0 if "host" in domains else 10.0)


def test_rails_with_times_of_their_own_make_one_curve_and_a_lost_one_is_coverage() -> None:
    clock = OwnClock()
    rails = ["powersensor3:virtual", "tinkerforge:virtual"]
    with pmt.combine("accelerator", rails, clock=clock, load="square:low=40,high=100,hz=0.5") as sensor:
        states = []
        for i in range(451):
            clock.advance(0.02)
            step(sensor)
            if i in {50, 450}:
                states.append(sensor.read())
        joules = states[1].joules[0] - states[0].joules[0]
        # Both see the whole load of 70 W on the mean; bricklets that are asked hold a step of 60 W for up to 20 ms.
        assert joules == pytest.approx(140 * pmt.seconds(*states), rel=0.01)
        parts = sum(states[1].joules[1:]) - sum(states[0].joules[1:])
        assert parts == pytest.approx(joules, rel=1e-9)
        bricklets = acquisition_of(sensor).intake.source._sources[1]  # type: ignore[attr-defined]
        bricklets.inner._client._link._daemon.mute = True
        for _ in range(200):
            clock.advance(0.02)
            step(sensor)
        seen = sensor.read()
        watts = dict(zip(seen.names, seen.watts, strict=True))
        assert math.isnan(watts["total"])
        assert watts["rail0.pair0"] > 0
        newest = acquisition_of(sensor).newest
        assert newest is not None
        assert newest.uncovered_ns[0] > 2e9  # of four seconds, but for the patience of one


class _Doubtful(_Rail):
    """Rows of it may be missing that nothing counts, and all may be shifted, as of a stream that was damaged."""

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        return Remarks(time_u_s=1e-3, missing_s=2e-3, warnings=("it was damaged",))


@pytest.mark.parametrize("timestamps", [Timestamps.HOST_READ, Timestamps.DEVICE_UPDATE])
def test_what_one_rail_is_doubted_for_the_whole_is(timestamps: Timestamps) -> None:
    clock = OwnClock()
    rails = [_Rail(clock, "external/0"), _Doubtful(clock, "external/1")]
    rails[1].traits = replace(rails[1].traits, timestamps=timestamps)
    whole = _whole("board", ["a:0", "a:1"], rails, clock)
    assert isinstance(whole, _Combined) is (timestamps is Timestamps.HOST_READ)
    assert whole.remarks(0, 10**9) == Remarks(time_u_s=1e-3, missing_s=2e-3, warnings=("it was damaged",))


class _Steady(_Rail):
    """A counter of 5 W."""

    def poll(self) -> Sequence[float] | Block:
        counts = super().poll()
        self.count = 5e-9 * self._clock.now_ns()
        return replace(counts, raw=np.array([[self.count]])) if isinstance(counts, Block) else [self.count]


@pytest.mark.parametrize("which", [0, 1])
def test_a_rail_that_is_lost_for_good_is_coverage_and_the_others_go_on(which: int) -> None:
    clock = OwnClock()
    rails = [_Steady(clock, f"external/{i}") for i in range(2)]
    with Sensor(_Combined("board", ["a:0", "a:1"], rails, clock), "board", clock) as sensor:
        clock.advance(1.0)
        before = sensor.read()
        with pmt.region("work", sensor) as r:
            rails[which].busy = True
            for _ in range(10):
                clock.advance(1.0)
                after = sensor.read()
        # The first failures may pass, and spoil the row; behind them the rail is gone, and the other counts on.
        uncovered_s = [(b - a) / 1e9 for a, b in zip(before.uncovered_ns, after.uncovered_ns, strict=True)]
        assert uncovered_s[0] == uncovered_s[1 + which] == pytest.approx(10.0, abs=1e-6)
        assert uncovered_s[2 - which] == 0.0
        assert after.joules[2 - which] - before.joules[2 - which] == pytest.approx(50.0)
        assert math.isnan(after.watts[0])
        assert math.isnan(after.watts[1 + which])
        assert after.watts[2 - which] > 0
        m = r["board"]
        assert m.coverage == pytest.approx(0.0, abs=1e-6)
        assert any(f"a:{which} was lost and is missing" in w for w in m.warnings)
        rails[1 - which].busy = True
        for _ in range(2):
            clock.advance(1.0)
            sensor.read()
        clock.advance(1.0)
        with pytest.raises(pmt.SourceLostError, match="failed"):
            sensor.read()


def test_parts_that_lack_different_stretches_have_a_mean_power_each_and_together() -> None:
    clock = OwnClock()
    rails = [_Steady(clock, f"external/{i}") for i in range(2)]
    with Sensor(_Combined("board", ["a:0", "a:1"], rails, clock), "board", clock) as sensor:
        clock.advance(1.0)
        sensor.read()
        with pmt.region("work", sensor) as r:
            for i in range(8):  # each lacks two of eight seconds; each uses 5 W all the time
                rails[0].doubted, rails[1].doubted = i in {1, 2}, i in {4, 5}
                clock.advance(1.0)
                sensor.read()
        m = r["board"]
        assert [c.coverage for c in m.channels.values()] == pytest.approx([0.75, 0.75])
        assert m.coverage == pytest.approx(0.5)
        assert m.joules == pytest.approx(60.0)
        assert m.watts == pytest.approx(10.0)


def test_the_slots_two_rails_and_the_cables_are_one_card() -> None:
    clock = OwnClock()
    world = shared_world("square:low=60,high=240,hz=0.5", clock=clock)
    # A riser brings 12 V and 3.3 V of the slot out to two modules of a board; the cables go to a third.
    pairs = "MLX10:12:0.25:slot-12V,MLX10:3.3:0.02:slot-3V3,MLX20:12:0.73:cables"
    with pmt.create("powersensor3:virtual", clock=clock, pairs=pairs) as board:
        labels = {c.label: c.name for c in board.channels if c.unit == "W"}
        assert list(labels) == ["slot-12V", "slot-3V3", "cables"]
        clock.advance(0.1)
        start, a = clock.now_ns(), board.read()
        for _ in range(100):
            clock.advance(0.1)
            b = board.read()
        truth = world.joules_between(start, clock.now_ns())
        shares = {"slot-12V": 0.25, "slot-3V3": 0.02, "cables": 0.73}
        for label, share in shares.items():
            assert pmt.joules(a, b, labels[label]) == pytest.approx(share * truth, rel=0.01, abs=0.2), label
        assert pmt.joules(a, b) == pytest.approx(truth, rel=0.01)
        values = acquisition_of(board).newest
        assert values is not None
        volts = dict(zip([c.name for c in acquisition_of(board).layout.values], values.values, strict=True))
        assert volts[f"{labels['slot-3V3']}.voltage"] == pytest.approx(3.3, abs=0.1)
        assert volts[f"{labels['slot-12V']}.voltage"] == pytest.approx(12.0, abs=0.2)


def test_open_sensors_are_no_rails_and_it_is_said_how_to_give_options() -> None:
    with pmt.create("hwmon:virtual") as one, pytest.raises(TargetError, match=r"opens its rails itself.*each="):
        pmt.combine("acc", [one, "rapl:virtual"])  # type: ignore[list-item]
