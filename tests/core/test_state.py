from __future__ import annotations

import copy
import dataclasses
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block, Point
from pmtpy.core.source import PolledSource
from pmtpy.core.state import Origin, State
from pmtpy.emulators.world import World, make_world
from pmtpy.sensor.sensor import Sensor

REFRESH_NS = 100_000_000


class Stepping(PolledSource):
    """A counter that is refreshed ten times a second and stamped by its device, as those of GPUs are."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self.world = world
        self.identity = Identity("test", "stepping", virtual=True)
        self.channels = (Channel("gpu.energy", Quantity.ENERGY, domain="gpu/0", refresh_s=REFRESH_NS * 1e-9),)
        self.newest_ns = 0

    def poll(self) -> Block | None:
        stamp_ns = self.world.clock.now_ns() // REFRESH_NS * REFRESH_NS
        if stamp_ns <= self.newest_ns:
            return None
        self.newest_ns = stamp_ns
        return Block.row(stamp_ns, [float(self.world.joules(stamp_ns))])

    def close(self) -> None:
        pass


def opened(load: str) -> tuple[ManualClock, World, Sensor]:
    clock = ManualClock()
    world = make_world(load, clock=clock)
    sensor = Sensor(Stepping(world), "gpu", clock)
    for _ in range(2):  # a counter tells no power before it has moved twice
        clock.advance(0.1)
        sensor.read()
    return clock, world, sensor


def curve(world: World, t_ns: int) -> float:
    """The energy at an instant by a straight line between the two refreshes around it."""
    before = t_ns // REFRESH_NS * REFRESH_NS
    ends = [float(world.joules(before)), float(world.joules(before + REFRESH_NS))]
    return float(np.interp(t_ns, [before, before + REFRESH_NS], ends))


@given(st.lists(st.integers(1, 180), min_size=2, max_size=20))
def test_the_energy_between_any_two_states_is_never_negative_and_right_once_rows_have_come(steps_ms: list[int]) -> None:
    clock, world, sensor = opened("square:low=1,high=300,hz=3.7")
    with sensor:
        states = []
        for step in steps_ms:
            for part in (step // 2, step - step // 2):  # so that no refresh is missed
                clock.advance(part * 1e-3)
                sensor.read()
            states.append(sensor.read())
            assert all(pmt.joules(a, b) >= -1e-9 for a, b in pairwise(states))
            assert pmt.joules(states[0], states[-1]) >= -1e-9
        clock.advance(0.1)
        sensor.read()
        for a, b in pairwise(states):
            # The sums of the curve and of the load are of some 1e2 J: 1e-10 is a thousand times their rounding.
            assert pmt.joules(a, b) == pytest.approx(curve(world, b.t_ns) - curve(world, a.t_ns), abs=1e-9)


def test_a_state_says_how_far_it_was_extended_and_stays_as_it_was() -> None:
    clock, world, sensor = opened("square:low=0,high=300,hz=0.5")
    with sensor:
        clock.advance(0.93)
        a = sensor.read()
        assert a.extended_ns == 30_000_000
        known = a.joules
        clock.advance(0.05)  # the load has ended meanwhile
        b = sensor.read()
        clock.advance(0.1)
        sensor.read()
        assert a.joules is known
        assert b.t_ns - a.t_ns == 50_000_000
        assert pmt.joules(a, b) == pytest.approx(curve(world, b.t_ns) - curve(world, a.t_ns), abs=1e-9)
    assert pmt.joules(a, b) >= 0  # also of a closed sensor


def test_a_state_at_a_row_is_not_extended_and_has_nothing_to_learn() -> None:
    clock, _, sensor = opened("constant:50")
    with sensor:
        clock.advance(0.1)
        state = sensor.read()
        assert (state.extended_ns, state.place) == (0, None)


def test_a_state_made_at_a_row_is_a_state_like_any_other() -> None:
    row = Point(1_500_000_000, (3.0, 3.0), (7.0, 7.0), (), 0, (20, 20))
    quick = Origin("rapl", ("total", "package0"), 10**18).at_row(row, 4)
    timestamp = (10**18 + 1_500_000_000) / 1e9
    plain = State("rapl", 1_500_000_000, timestamp, ("total", "package0"), (7.0, 7.0), (3.0, 3.0), (20, 20), 4)
    assert type(quick) is State
    assert quick == plain
    assert hash(quick) == hash(plain)
    assert repr(quick) == repr(plain)
    assert dataclasses.replace(quick, lost=5).lost == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        quick.lost = 5  # type: ignore[misc]


def test_a_state_can_be_sent_to_another_process() -> None:
    clock, _, sensor = opened("constant:50")
    with sensor:
        clock.advance(0.25)
        a = sensor.read()
        clock.advance(0.25)
        b = sensor.read()
        assert a.place is not None
        sent = pickle.loads(pickle.dumps((a, b)))  # noqa: S301  (made two words before)
        for other in (sent, copy.deepcopy((a, b))):
            assert other == (a, b)
            assert pmt.joules(*other) == pytest.approx(12.5)


def test_states_of_a_gpu_never_run_backwards() -> None:
    clock = ManualClock()
    with pmt.create("nvml", "virtual", clock=clock, load="square:low=1,high=400,hz=4.3") as sensor:
        clock.advance(0.5)
        states = [sensor.read()]
        for _ in range(150):
            clock.advance(0.013)
            states.append(sensor.read())
        for a, b in pairwise(states):
            assert all(pmt.joules(a, b, i) >= -1e-9 for i in range(len(a.names)))


def test_the_mean_power_of_a_total_is_the_sum_of_its_parts_over_the_time_that_each_knows() -> None:
    """30 W and 70 W over 100 s, of which the one lacks 2 s and the other 2 others."""
    origin = Origin("test", ("total", "a", "b"), 0, parts=(1, 2))
    a = origin.at_row(Point(0, (100.0, 30.0, 70.0), (0.0, 0.0, 0.0), (), 0, (0, 0, 0)), 0)
    unknown_ns = (4_000_000_000, 2_000_000_000, 2_000_000_000)
    b = origin.at_row(Point(100_000_000_000, (100.0, 30.0, 70.0), (9800.0, 2940.0, 6860.0), (), 0, unknown_ns), 2)
    with pytest.warns(UserWarning, match="4 s of the 100 s"):
        assert pmt.watts(a, b) == pytest.approx(100.0)
    with pytest.warns(UserWarning, match="2 s of the 100 s"):
        assert pmt.watts(b, a, "a") == pytest.approx(30.0)


def test_a_state_just_after_opening_has_no_power_of_a_counter_that_moves_more_often_than_stated() -> None:
    clock = ManualClock()
    world = make_world("constant:60", clock=clock)
    source = Stepping(world)
    source.channels = (source.channels[0].timed(refresh_s=10 * REFRESH_NS * 1e-9),)
    with Sensor(source, "gpu", clock) as sensor:
        powers = []
        for _ in range(4):
            powers.append(sensor.read().watts[0])
            clock.advance(0.1)
    # 6 J have been used in the 0.1 s in which the counter moved first, but nobody knows that: not 6 J in a second.
    assert np.isnan(powers[:2]).all()
    assert powers[2:] == pytest.approx([60.0, 60.0])
