"""What is shown of sensors, against the truth of the virtual world."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError
from pmtpy.live.watch import Look, Watch
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Counter, Gauge, Stream


def _world(load: str = "constant:90") -> tuple[ManualClock, World]:
    clock = ManualClock()
    return clock, make_world(load, clock=clock)


def _look(watch: Watch, clock: ManualClock, seconds: float, step: float = 0.5) -> Look:
    look = watch.look()
    for _ in range(round(seconds / step)):
        clock.advance(step)
        look = watch.look()
    return look


def test_mean_energy_and_extremes_are_those_of_the_load() -> None:
    clock, world = _world("square:low=30,high=90,hz=1")
    with Sensor(Stream(world), "stream", clock, history_s=20) as sensor:
        watch = Watch([sensor], window_s=4.0, clock=clock)
        clock.advance(0.001)  # until the first row there is nothing to count from
        look = _look(watch, clock, 10.0)
        whole = look.powers[0]
    assert [p.node.label for p in look.powers] == ["stream", "pair0", "pair1"]
    assert whole.joules == pytest.approx(600.0, abs=0.2)  # a row is a millisecond of at most 90 W
    assert whole.mean == pytest.approx(60.0, abs=0.1)
    assert (whole.low, whole.high) == pytest.approx((30.0, 90.0), abs=0.1)
    assert look.powers[1].mean == pytest.approx(30.0, abs=0.1)
    assert whole.coverage == 1.0
    assert look.seconds == pytest.approx(10.0)  # from the first look on
    assert len(whole.past) == 20


def test_a_power_of_long_ago_is_not_that_of_now() -> None:
    clock, world = _world("constant:90")
    stream = Stream(world)
    with Sensor(stream, "stream", clock, history_s=20) as sensor, Sensor(Counter(world), "other", clock) as other:
        watch = Watch([sensor, other], window_s=4.0, clock=clock)
        whole = _look(watch, clock, 3.0).powers[0]
        assert whole.watts == pytest.approx(90.0)
        stream.held_ns = clock.now_ns()  # a board that is silent, and not lost
        whole = _look(watch, clock, 0.5).powers[0]
        assert (whole.watts, whole.age_s) == pytest.approx((90.0, 0.5), abs=0.1)
        whole = _look(watch, clock, 2.0).powers[0]
        assert math.isnan(whole.watts)
        assert whole.alive
        assert whole.age_s == pytest.approx(2.5, abs=0.1)
        stream.held_ns = math.inf
        assert _look(watch, clock, 0.5).powers[0].watts == pytest.approx(90.0)


class _Stepping(Counter):
    """A counter that moves each 4 ms alone, and says so."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        kind = Quantity.ENERGY
        self.channels = (Channel("package0", kind, scale=1e-6, domain="host", max_watts=1000, refresh_s=0.004),)

    def poll(self) -> list[float]:
        now_ns = self.world.clock.now_ns()
        return [float(self.world.joules(now_ns - now_ns % 4_000_000)) * 1e6]


def test_two_readings_within_a_few_steps_of_a_counter_make_no_extreme() -> None:
    clock, world = _world("constant:100")
    with Sensor(_Stepping(world), "rapl", clock) as sensor:
        watch = Watch([sensor], clock=clock)
        _look(watch, clock, 3.0)
        clock.advance(0.003)
        watch.look()
        clock.advance(0.003)  # over one step of the counter: 133 W
        whole = watch.look().powers[0]
    assert (whole.low, whole.high) == pytest.approx((100.0, 100.0), abs=0.5)


class _Late(Counter):
    """A counter that moves each 100 ms, as those of GPUs, and is polled when the machine finds the time."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        kind, self.seen = Quantity.ENERGY, -1.0
        self.channels = (Channel("gpu.energy", kind, scale=1e-3, domain="gpu/0", max_watts=1000, refresh_s=0.1),)

    def poll(self) -> list[float]:
        now_ns = self.world.clock.now_ns()
        return [float(self.world.joules(now_ns - now_ns % 100_000_000)) * 1e3]


@pytest.mark.parametrize(("window_s", "off"), [(10.0, 0.05), (0.5, 0.1)])
def test_the_power_of_a_counter_now_is_not_that_of_one_step_between_late_polls(window_s: float, off: float) -> None:
    clock, world = _world("constant:40")
    with Sensor(_Late(world), "gpu", clock) as sensor:
        watch, found = Watch([sensor], window_s, clock=clock), list[float]()
        for k in range(400):  # each poll comes 0 to 40 ms behind a step
            late_ns = int(4e7 * ((k * 0.618) % 1.0))
            clock.advance((100_000_000 - clock.now_ns() % 100_000_000 + late_ns) / 1e9)
            sensor.read()
            if k % 10 == 0:
                found += [power.watts for power in watch.look().powers]
    told = np.array(found)
    assert np.isfinite(told[1:]).all()
    assert told[np.isfinite(told)] == pytest.approx(40.0, rel=off)


def test_a_reset_counts_from_then_on() -> None:
    clock, world = _world()
    with Sensor(Counter(world), "rapl", clock) as sensor:
        watch = Watch([sensor], clock=clock)
        assert _look(watch, clock, 5.0).powers[0].joules == pytest.approx(450.0, rel=1e-6)
        watch.reset()
        look = _look(watch, clock, 1.0)
    assert look.powers[0].joules == pytest.approx(90.0, rel=1e-6)
    assert look.seconds == pytest.approx(1.0)
    assert look.was_reset


def test_a_reset_between_two_looks_counts_joules_and_seconds_from_the_same_instant() -> None:
    clock, world = _world()
    with Sensor(Counter(world), "rapl", clock) as sensor:
        watch = Watch([sensor], clock=clock)
        _look(watch, clock, 5.0)
        clock.advance(0.7)
        watch.reset()
        clock.advance(0.3)
        look = watch.look()
    assert [look.seconds, look.powers[0].joules] == pytest.approx([0.3, 27.0], rel=1e-6)


def test_the_total_is_the_sum_or_says_why_there_is_none() -> None:
    clock, world = _world()
    with (
        Sensor(Counter(world), "rapl", clock) as rapl,
        Sensor(Gauge(world), "gpu", clock) as gpu,
        Sensor(Stream(world), "meter", clock) as meter,
    ):
        both = _look(Watch([rapl, gpu], clock=clock), clock, 2.0)
        assert both.total is not None
        assert both.total.mean == pytest.approx(180.0, rel=1e-3)
        assert math.isnan(both.total.high)
        three = Watch([rapl, gpu, meter], clock=clock).look()
        assert three.total is None
        assert "external meter" in three.why


def test_a_sensor_that_is_lost_says_so_ages_and_comes_back_by_itself() -> None:
    clock, world = _world()
    made: list[Gauge] = []
    pulled = False

    def open_again() -> Gauge:
        if pulled:
            raise BackendUnavailableError("gpu", "no device", "plug it in")
        made.append(Gauge(world))
        return made[-1]

    with (
        Sensor(open_again(), "gpu", clock, open_again=open_again) as sensor,
        Sensor(Counter(world), "rapl", clock) as rapl,
    ):
        watch = Watch([sensor, rapl], clock=clock)
        before = _look(watch, clock, 1.0).powers[0]
        made[0].gone = pulled = True
        lost = _look(watch, clock, 1.0)
        assert not lost.powers[0].alive
        assert lost.powers[0].age_s == pytest.approx(1.0, abs=0.51)
        assert lost.powers[0].joules == before.joules
        assert lost.powers[0].coverage == pytest.approx(1 - lost.powers[0].age_s / lost.seconds)
        assert math.isnan(lost.powers[0].watts)
        assert lost.total is None
        assert lost.why == "gpu is lost"
        assert lost.powers[1].alive
        first = watch.opening(sensor)
        assert first is not None
        first.join(30)
        pulled = False
        _look(watch, clock, 2.5)
        thread = watch.opening(sensor)
        assert thread is not None
        assert thread is not first
        thread.join(30)
        back = _look(watch, clock, 1.0)
        assert back.powers[0].alive
        assert back.powers[0].watts == pytest.approx(90.0)
        assert back.powers[0].coverage < 1.0
        assert back.total is not None


@pytest.mark.parametrize(("window_s", "step_s"), [(3.0, 1.0007), (10.0, 1.0007), (0.5, 1.0), (7.0, 0.3)])
def test_the_mean_is_over_the_window_that_is_named_whatever_the_time_between_looks(
    window_s: float, step_s: float
) -> None:
    clock, world = _world("square:low=50,high=150,hz=0.25")
    with Sensor(Stream(world), "stream", clock) as sensor:
        watch = Watch([sensor], window_s=window_s, clock=clock)
        clock.advance(0.001)
        begin_ns = clock.now_ns()
        watch.look()
        for _ in range(40):
            clock.advance(step_s)
            whole = watch.look().powers[0]
            now_ns = clock.now_ns()
            since_ns = max(now_ns - round(window_s * 1e9), begin_ns)
            truth = world.joules_between(since_ns, now_ns) / (now_ns - since_ns) * 1e9
            # Where a step of 100 W falls into the piece in which the window begins, and the rows of a millisecond.
            assert whole.mean == pytest.approx(truth, abs=1.0 + 0.2 / window_s)
            if truth not in {50.0, 150.0} and window_s > 4.0 < (now_ns - begin_ns) / 1e9:
                assert (whole.low, whole.high) == pytest.approx((50.0, 150.0), abs=0.1)
