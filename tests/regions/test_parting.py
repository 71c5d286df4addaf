"""A counter that leaps by less than two gains leave open, beside a power that tells what really was used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import PolledSource, Traits
from pmtpy.emulators.world import World, make_world
from pmtpy.regions._parting import beyond_all_shown, stretch_s, widest
from pmtpy.regions.measurement import Measurement
from pmtpy.sensor.sensor import Sensor, acquisition_of

_REFRESH_NS = 100_000_000
_STEP_S = 0.02


class Card(PolledSource):
    """A counter and the powers of one board, renewed together; the counter leaps at some instant."""

    def __init__(self, world: World, leap_j: float, leap_s: float, windows_s: Sequence[float]) -> None:
        super().__init__(world.clock)
        self.world, self.leap_j, self.leap_s, self.windows_s = world, leap_j, leap_s, windows_s
        self.traits = Traits(deadline_s=None)
        self.identity = Identity("test", "card")
        common = {"scale": 1e-3, "domain": "gpu/0", "refresh_s": _REFRESH_NS / 1e9, "gain_u": 0.05}
        self.channels = (
            Channel("energy", Quantity.ENERGY, max_watts=1200, **common),  # type: ignore[arg-type]
            *[Channel(f"power{i or ''}", Quantity.POWER, window_s=w, **common) for i, w in enumerate(windows_s)],  # type: ignore[arg-type]
        )

    def poll(self) -> Sequence[float]:
        now_ns = self.world.clock.now_ns() // _REFRESH_NS * _REFRESH_NS
        joules = float(self.world.joules(now_ns))
        before = [float(self.world.joules(now_ns - round(w * 1e9))) for w in self.windows_s]
        leapt = self.leap_j if self.world.seconds_since_epoch(now_ns) >= self.leap_s else 0.0
        powers = [round((joules - j) / w * 1e3) for j, w in zip(before, self.windows_s, strict=True)]
        return [round((joules + leapt) * 1e3), *powers]

    def close(self) -> None:
        pass


class Stuck(Card):
    """Its first power shows 300 W, whatever is used."""

    def poll(self) -> Sequence[float]:
        joules, _, *others = super().poll()
        return [joules, 300e3, *others]


class Powers(Card):
    """It has no counter, and its first power shows from some instant on what it showed then."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.channels = self.channels[1:]
        self.shown: float | None = None

    def poll(self) -> Sequence[float]:
        _, first, *others = super().poll()
        if self.shown is None and self.world.seconds_since_epoch(self.world.clock.now_ns()) >= self.leap_s:
            self.shown = first
        return [first if self.shown is None else self.shown, *others]


def measured_all(
    load: str,
    leap_j: float,
    seconds: float = 8.0,
    leap_s: float = 5.0,
    windows_s: Sequence[float] = (_REFRESH_NS / 1e9,),
    *,
    kind: type[Card] = Card,
) -> Mapping[str, Measurement]:
    clock = ManualClock()
    sensor = Sensor(kind(make_world(load, clock=clock), leap_j, leap_s, windows_s), "card", clock, interval_s=1e6)
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
        return r["card"].channels


def measured(load: str, leap_j: float, *given: Any, **named: Any) -> Measurement:
    return measured_all(load, leap_j, *given, **named)["energy"]


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


@pytest.mark.parametrize("seconds", [3.0, 8.0])
@pytest.mark.parametrize("load", ["constant:100", "square:low=60,high=100,hz=0.7"])
def test_a_leap_within_one_update_is_told_by_a_power_that_sees_all_of_it(load: str, seconds: float) -> None:
    # 600 W for 0.1 s: what two gains of 5 % leave open over 4 s, as long as an average of a second asks for, is more.
    leapt = measured(load, 50.0, seconds, leap_s=2.5, windows_s=(0.1, 1.0))
    (told,) = [w for w in leapt.warnings if "which no reading of power about it shows" in w]
    assert told.startswith("energy: 1.5 s after the beginning the counter grew by ")
    assert leapt.uncertainty_joules > 45.0


def test_one_update_of_a_counter_is_not_held_against_a_power_that_looks_away() -> None:
    for windows_s in ((0.025,), (0.025, 1.0)):
        told = measured("square:low=40,high=700,hz=1,duty=0.03", 0.0, windows_s=windows_s).warnings
        assert not any("no reading" in w for w in told)


def test_bursts_in_each_of_the_windows_that_a_move_touches_are_no_leap() -> None:
    # Three windows of 0.1 s, each with 10 J: at its end, in its middle, at its beginning. The counter moves meanwhile.
    t_s = np.array([-0.2, -0.1, 0.085, 0.09, 0.21, 0.3, 0.4, 0.5, 0.7])
    joules = np.array([0.0, 0.01, 0.02, 0.03, 30.0, 30.01, 30.02, 30.03, 30.04])
    watts = np.where((t_s > 0.0) & (t_s <= 0.3), 100.0, 0.1)
    known = {"refresh_s": 0.1, "window_s": 0.1, "gains": (0.05, 0.05), "noise_w": 0.0}
    assert beyond_all_shown(t_s, joules, watts, **known) == []  # type: ignore[arg-type]
    assert beyond_all_shown(t_s, 2.0 * joules, watts, **known) == [(3, 4)]  # type: ignore[arg-type]


def test_loads_of_all_kinds_part_nothing() -> None:
    rng = np.random.default_rng(7)
    loads = [f"random:low=30,high=350,hz={np.exp(rng.uniform(0, 4)):.3f},seconds=40,seed={seed}" for seed in range(12)]
    for load in [*loads, "square:low=40,high=700,hz=1,duty=0.03", "square:low=40,high=700,hz=0.3"]:
        found = measured_all(load, 0.0, seconds=12.0, windows_s=(0.1, 1.0))
        told = [w for m in found.values() for w in m.warnings]
        assert not any("further apart" in w or "no reading" in w or "it is wrong here" in w for w in told)


def test_a_power_against_which_the_counter_and_another_power_stand_is_uncertain_by_that() -> None:
    found = measured_all("square:low=60,high=140,hz=0.7", 0.0, windows_s=(0.1, 1.0), kind=Stuck)
    assert found["energy"].joules == pytest.approx(800.0, rel=0.02)
    assert found["energy"].uncertainty_joules < 60.0  # two of three agree
    assert found["power"].joules == pytest.approx(2400.0, rel=0.01)
    assert found["power"].uncertainty_joules > 1500.0
    (told,) = [w for w in found["power"].warnings if "it is wrong here" in w]
    assert told.startswith("power: it says 2400 J, energy and power1 ")
    assert not any("it is wrong here" in w for n in ("energy", "power1") for w in found[n].warnings)


@pytest.mark.parametrize(("stands_still_s", "shown_j"), [(1e9, 800.0), (0.5, 1120.0), (1.5, 480.0)])
def test_two_powers_that_contradict_each_other_are_both_uncertain(stands_still_s: float, shown_j: float) -> None:
    # 140 and 60 W for a second each, from the first instant of the world on; the region is that of its seconds 1 to 9.
    found = measured_all("square:low=60,high=140,hz=0.5", 0.0, leap_s=stands_still_s, windows_s=(0.1, 1.0), kind=Powers)
    power, average = found["power"], found["power1"]
    assert power.joules == pytest.approx(shown_j, abs=10.0)
    assert average.joules == pytest.approx(800.0, abs=45.0)  # the window of a second is half a second late
    off = abs(power.joules - average.joules)
    told = [[w for w in m.warnings if "further apart" in w] for m in (power, average)]
    assert [len(warnings) for warnings in told] == [int(off > 200.0)] * 2
    for m, other, warnings in ((power, average, told[0]), (average, power, told[1])):
        assert m.uncertainty_joules == pytest.approx(off, rel=0.1) if warnings else m.uncertainty_joules < 80.0
        assert all(f"it says {m.joules:.4g} J and {other.name} {other.joules:.4g} J" in w for w in warnings)


def test_a_reading_that_agrees_with_both_sides_takes_none() -> None:
    # An average of ten seconds tells of a second next to nothing.
    found = measured_all("constant:200", 0.0, seconds=1.0, windows_s=(0.1, 10.0), kind=Stuck)
    assert found["power1"].uncertainty_joules > 100.0
    assert [found[name].joules for name in ("energy", "power")] == pytest.approx([200.0, 300.0], rel=0.01)
    assert all(found[name].uncertainty_joules > 95.0 for name in ("energy", "power"))


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
