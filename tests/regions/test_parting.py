"""A counter that leaps by less than two gains leave open, beside a power that tells what really was used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import PolledSource, Traits
from pmtpy.emulators.world import World, make_world
from pmtpy.regions._parting import stretch_s, widest
from pmtpy.regions.measurement import Measurement
from pmtpy.sensor.sensor import Sensor, acquisition_of

_REFRESH_NS = 100_000_000
_STEP_S = 0.02


class Card(PolledSource):
    """A counter and the power of one board, renewed together; the counter leaps at some instant."""

    def __init__(self, world: World, leap_j: float, leap_s: float) -> None:
        super().__init__(world.clock)
        self.world, self.leap_j, self.leap_s = world, leap_j, leap_s
        self.traits = Traits(deadline_s=None)
        self.identity = Identity("test", "card")
        common = {"scale": 1e-3, "domain": "gpu/0", "refresh_s": _REFRESH_NS / 1e9, "gain_u": 0.05}
        self.channels = (
            Channel("energy", Quantity.ENERGY, max_watts=1200, **common),  # type: ignore[arg-type]
            Channel("power", Quantity.POWER, window_s=_REFRESH_NS / 1e9, **common),  # type: ignore[arg-type]
        )

    def poll(self) -> Sequence[float]:
        now_ns = self.world.clock.now_ns() // _REFRESH_NS * _REFRESH_NS
        joules = float(self.world.joules(now_ns))
        before = float(self.world.joules(now_ns - _REFRESH_NS))
        leapt = self.leap_j if self.world.seconds_since_epoch(now_ns) >= self.leap_s else 0.0
        return [round((joules + leapt) * 1e3), round((joules - before) / _REFRESH_NS * 1e12)]

    def close(self) -> None:
        pass


def measured(load: str, leap_j: float, seconds: float = 8.0, leap_s: float = 5.0) -> Measurement:
    clock = ManualClock()
    sensor = Sensor(Card(make_world(load, clock=clock), leap_j, leap_s), "card", clock, interval_s=1e6)
    made = acquisition_of(sensor)

    def run(for_s: float) -> None:
        for _ in range(round(for_s / _STEP_S)):
            clock.advance(_STEP_S)
            made.step()

    with sensor:
        run(1.0)
        with pmt.region("work", sensor) as r:
            run(seconds)
        run(0.5)
        return r["card"].channels["energy"]


@pytest.mark.parametrize("load", ["constant:100", "square:low=60,high=140,hz=0.7", "square:low=60,high=140,hz=11"])
def test_a_leap_that_the_whole_region_hides_is_in_the_uncertainty(load: str) -> None:
    leapt, honest = measured(load, 100.0), measured(load, 0.0)
    assert leapt.joules == pytest.approx(honest.joules + 100.0, abs=0.01)
    assert not any("further apart" in w for w in honest.warnings)
    assert honest.uncertainty_joules < 60.0
    (told,) = [w for w in leapt.warnings if "further apart" in w]
    assert told.startswith("energy: within ")
    assert leapt.uncertainty_joules > 90.0  # the leap is within twice it


def test_a_leap_that_the_whole_region_shows_is_told_once() -> None:
    told = [w for w in measured("constant:100", 300.0).warnings if "further apart" in w]
    assert len(told) == 1
    assert "within" not in told[0]


def test_loads_of_all_kinds_part_nothing() -> None:
    rng = np.random.default_rng(7)
    for seed in range(12):
        load = f"random:low=30,high=350,hz={np.exp(rng.uniform(0, 4)):.3f},seconds=40,seed={seed}"
        assert not any("further apart" in w for w in measured(load, 0.0, seconds=12.0).warnings)


def test_the_widest_stretch_spans_no_hole_and_nothing_uncovered() -> None:
    t_s = np.concatenate([np.arange(0.0, 4.0, 0.5), np.arange(10.0, 14.0, 0.5)])
    power = 100.0 * t_s
    counter = np.where(t_s >= 12.0, power + 50.0, power)
    counter[t_s >= 10.0] += 500.0  # it leapt, or not, while no row was kept
    joules, none = np.stack([counter, power], axis=1), np.zeros((len(t_s), 2), np.int64)
    first, last = widest(t_s, joules, none, (0.1, 0.1), 1.0) or (-1, -1)
    assert t_s[first] >= 10.0
    assert t_s[first] < 12.0 <= t_s[last]
    uncovered = none.copy()
    uncovered[t_s >= 12.0, 1] = 1
    assert widest(t_s, joules, uncovered, (0.1, 0.1), 1.0) is None
    assert widest(t_s, joules, none, (0.5, 0.5), 1.0) is None
    assert widest(t_s[:0], joules[:0], none[:0], (0.1, 0.1), 1.0) is None


def test_a_stretch_is_long_beside_what_its_ends_leave_open() -> None:
    fast = Channel("fast", Quantity.POWER, refresh_s=0.001)
    slow = Channel("slow", Quantity.ENERGY, refresh_s=0.5)
    wide = Channel("wide", Quantity.POWER, refresh_s=0.1, window_s=2.0)
    assert [stretch_s([fast, other]) for other in (fast, slow, wide)] == [1.0, 5.0, 8.0]
