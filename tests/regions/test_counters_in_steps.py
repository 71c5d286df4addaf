"""Counters that move seldom, in large steps, stand still or begin anew: what a region says of them holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import NS_PER_S, ManualClock
from pmtpy.core.rows import Block
from pmtpy.core.source import PolledSource, Traits
from pmtpy.regions.measurement import Measurement
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.clocks import OneThreadClock

WATTS = 100.0
POLL_S = 0.05


class Register(PolledSource):
    """One counter of microjoules of an unknown chip; ``shows`` gives its count at seconds since it was made."""

    def __init__(self, clock: ManualClock, shows: Callable[[float], float]) -> None:
        super().__init__(clock)
        self.clock, self.shows, self.start_ns = clock, shows, clock.now_ns()
        self.traits, self.identity = Traits(interval_s=POLL_S), Identity("test", "register")
        self.channels = (
            Channel("rail", Quantity.ENERGY, scale=1e-6, domain="host/rail", max_watts=20_000, gain_u=0.03),
        )

    def poll(self) -> Sequence[float]:
        return [float(self.shows((self.clock.now_ns() - self.start_ns) / NS_PER_S))]

    def close(self) -> None:
        pass


class Meter(Register):
    """One power in microwatts."""

    def __init__(self, clock: ManualClock, shows: Callable[[float], float]) -> None:
        super().__init__(clock, shows)
        self.channels = (
            Channel("rail", Quantity.POWER, scale=1e-6, domain="host/rail", max_watts=20_000, gain_u=0.03),
        )


class Powered(Register):
    """One of a part that always uses some power, and 250 W at the most."""

    def __init__(self, clock: ManualClock, shows: Callable[[float], float]) -> None:
        super().__init__(clock, shows)
        self.channels = (replace(self.channels[0], least_watts=0.02, max_watts=250.0),)


class Both(Register):
    """Its counter stands; the power of the same rail is ``shows``, in microwatts."""

    def __init__(self, clock: ManualClock, shows: Callable[[float], float]) -> None:
        super().__init__(clock, shows)
        self.channels = (*self.channels, replace(Meter(clock, shows).channels[0], name="power"))

    def poll(self) -> Sequence[float]:
        return [5e8, *super().poll()]


class Stamped(Register):
    """One whose rows bear the device's stamp, a moment before they are read; its stated refresh is 2 ms."""

    def __init__(self, clock: ManualClock, shows: Callable[[float], float]) -> None:
        super().__init__(clock, shows)
        self.channels = (
            Channel(
                "rail", Quantity.ENERGY, scale=1e-6, domain="host/rail", max_watts=9e3, gain_u=0.001, refresh_s=0.002
            ),
        )

    def poll(self) -> Block:  # type: ignore[override]  # which a source may return, too
        t_ns = self.clock.now_ns() - 300_000
        return Block.row(t_ns, [float(self.shows((t_ns - self.start_ns) / NS_PER_S))])


def regions(
    shows: Callable[[float], float],
    *spans: tuple[float, float],
    polled: bool = True,
    make: type[Register] = Register,
) -> list[Measurement]:
    """Measure regions by a new sensor, which is polled before and between them, or not."""
    clock = OneThreadClock()
    begin_ns, found = clock.now_ns(), []
    with Sensor(make(clock, shows), "test", clock) as sensor:
        made = acquisition_of(sensor)

        def run(until: float, step: float) -> None:
            while (left := until - (clock.now_ns() - begin_ns) / NS_PER_S) > 1e-9:
                clock.advance(min(step, left))
                made.step()

        for start, end in spans:
            run(start, POLL_S if polled else np.inf)
            with pmt.region("work", sensor) as r:
                run(end, POLL_S)
            found.append(r["test"])
    return found


def off(measured: Measurement) -> float:
    """Return by how many standard uncertainties it is off."""
    return (measured.joules - WATTS * measured.seconds) / measured.uncertainty_joules


@pytest.mark.parametrize("step_j", [1, 4, 16, 64])
def test_steps_of_joules_are_in_the_uncertainty_of_the_first_region_too(step_j: int) -> None:
    def shows(t: float) -> float:
        return float(np.floor((1000.0 + WATTS * t) / step_j) * step_j * 1e6)

    for start in np.linspace(0.05, 0.05 + step_j / WATTS, 5):
        for length in (0.3, 4.0):
            spans = (start, start + length), (start + length + 0.5, start + 2.0 * length + 0.5)
            for measured in regions(shows, *spans, polled=False):
                assert abs(off(measured)) < 2.0
                if measured.joules and length == 4.0 and step_j <= 4:
                    assert measured.uncertainty_joules < 0.04 * measured.joules  # not much beyond its gain


@pytest.mark.parametrize("refresh_s", [0.01, 0.04])
def test_a_register_that_is_renewed_faster_than_it_is_read_is_as_old_as_that(refresh_s: float) -> None:
    """No refresh is stated, and each row shows a move: what is shown at the edges is late by up to 4 J."""

    def shows(t: float) -> float:
        return float(np.floor((t + 1.0) / refresh_s) * refresh_s * WATTS * 1e6)

    rng, errors = np.random.default_rng(1), list[float]()
    for _ in range(6):
        at, spans = rng.uniform(0.1, 0.5), list[tuple[float, float]]()
        for length in rng.uniform(0.06, 0.3, 4):
            spans.append((at, at + length))
            at += length + rng.uniform(0.05, 0.2)
        errors += [off(m) for m in regions(shows, *spans, polled=False)]
    assert max(map(abs, errors)) < 2.0
    assert float(np.mean(np.square(errors))) > 0.05  # not wide beyond reason


def test_a_fine_register_of_which_no_refresh_is_stated_is_soon_known_to_be_one() -> None:
    found = regions(lambda t: np.floor(t * 1e3) * WATTS * 1e3, *[(s, s + 0.17) for s in np.arange(0.2, 2.0, 0.2371)])
    assert found[-1].uncertainty_joules < 1.2 * 0.03 * found[-1].joules  # its gain


def test_a_register_that_is_slower_than_stated_is_as_old_as_its_last_move_between_rows_too() -> None:
    """It is renewed once a second: what is shown at either edge is late by up to 100 J."""
    rng, errors = np.random.default_rng(1), list[float]()
    for _ in range(4):
        at, spans = rng.uniform(3.0, 4.0), list[tuple[float, float]]()
        for length in rng.uniform(2.0, 4.5, 4):
            spans.append((at, at + length))
            at += length + rng.uniform(0.2, 0.8)
        errors += [off(m) for m in regions(lambda t: np.floor(t) * WATTS * 1e6, *spans, make=Stamped)]
    assert max(map(abs, errors)) < 2.5
    assert float(np.mean(np.square(errors))) > 0.1  # not wide beyond reason


def flows(t: float) -> float:
    """Microjoules at a power that is never quite the same."""
    return float(np.floor(WATTS * 1e6 * t + 1e3 * np.sin(37.0 * t)))


def standing(t: float) -> float:
    return flows(6.0 if 6.0 < t < 12.0 else t)


def test_a_counter_that_stands_may_have_missed_the_power_before() -> None:
    shown, *still, across, after = regions(
        standing, (2.0, 3.0), (4.5, 7.03), (7.2, 7.4), (7.6, 8.6), (11.7, 12.7), (13.0, 14.0)
    )
    assert shown.joules == pytest.approx(100.0, rel=1e-4)
    for measured in (*still, across):
        assert abs(off(measured)) < 2.0
    for measured in still[1:]:
        assert measured.joules == 0.0
        assert any("its counter did not move" in w for w in measured.warnings)
    assert after.joules == pytest.approx(100.0, rel=1e-4)
    assert after.uncertainty_joules < 6.0  # it rested a moment ago: what a row shows may be as old as the row before


@pytest.mark.parametrize("cut", [6.0, 6.01, 6.03])
def test_one_that_stands_for_longer_than_rows_are_kept_is_as_uncertain(cut: float) -> None:
    _, soon, late = regions(lambda t: flows(min(t, cut)), (1.0, 4.0), (30.0, 31.0), (300.0, 310.0))
    for measured in (soon, late):
        assert measured.joules == 0.0
        assert abs(off(measured)) < 2.0
        assert measured.uncertainty_joules < 2.0 * WATTS * measured.seconds
        assert any("its counter did not move" in w for w in measured.warnings)


def test_of_one_that_never_moved_nothing_is_known() -> None:
    """The part is off, or the counter does not count: a tiny uncertainty would say that the part is off."""
    for measured in regions(lambda _: 5e8, (0.0, 0.001), (2.0, 3.0), (20.0, 30.0)):
        for one in (measured, measured.channels["rail"]):
            assert math.isnan(one.uncertainty_joules)
            assert "uncertainty not known" in str(one)
            assert any("has not moved since it was first read" in w for w in one.warnings)


def test_one_that_has_moved_since_is_known_from_then_on() -> None:
    before, first, after = regions(lambda t: flows(max(t, 3.0)), (1.0, 2.0), (2.5, 3.5), (4.0, 5.0))
    assert math.isnan(before.uncertainty_joules)
    assert first.joules == pytest.approx(50.0, abs=2.0 * WATTS * POLL_S)
    assert abs(first.joules - 50.0) < 2.0 * first.uncertainty_joules
    assert after.joules == pytest.approx(100.0, rel=1e-4)
    assert after.uncertainty_joules < 6.0


def test_a_powered_part_has_at_most_used_its_limit_before_its_counter_first_moves() -> None:
    """Rests of 1 s are not doubted yet where no refresh is stated."""
    (soon,) = regions(lambda t: flows(max(t, 3.0)), (0.1, 0.6), make=Powered)
    assert (soon.joules, soon.coverage) == (0.0, 1.0)
    assert soon.uncertainty_joules == pytest.approx(250.0 * 0.5 / 3**0.5)


@pytest.mark.parametrize("watts", [0.0, 60.0])
def test_the_power_of_the_same_part_tells_what_one_that_never_moved_may_have_missed(watts: float) -> None:
    (measured,) = regions(lambda _: watts * 1e6, (2.0, 3.0), make=Both)
    rail, power = measured.channels["rail"], measured.channels["power"]
    assert rail.uncertainty_joules == pytest.approx(math.hypot(watts, power.uncertainty_joules), rel=0.01)
    assert any("the counter says 0 J" in w for w in rail.warnings) == bool(watts)


def test_a_power_that_shows_nothing_but_zero_is_not_certain_to_be_none() -> None:
    (measured,) = regions(lambda _: 0.0, (2.0, 4.0), make=Meter)
    assert measured.joules == 0.0
    # Less than a step of a watt.
    assert 1.0 * 2.0 / np.sqrt(12.0) < measured.uncertainty_joules < 1.0 * 2.0
    assert measured.warnings[0] == (
        "rail: it showed 0 W all the time: the part is off or uses less than a step of 1 W, or the sensor does not "
        "measure"
    )
    off_for_once, on = regions(lambda t: 50e6 * (t > 5.0), (2.0, 3.0), (6.0, 7.0), make=Meter)
    assert "0 W" in off_for_once.warnings[0]
    assert not any("0 W" in w for w in on.warnings)


@pytest.mark.parametrize("row", [0.01, 0.03, 0.049])
def test_the_last_move_before_a_rest_does_not_tell_the_power(row: float) -> None:
    """The counter stops soon after a row, so that the next one shows a part of a move."""
    (measured,) = regions(lambda t: flows(min(t, 3.0 + row)), (2.0, 4.0))
    assert measured.components[0][1] > 0.9 * WATTS / np.sqrt(3.0)


def test_a_restart_before_a_region_is_not_its_own() -> None:
    spans = (3.0, 4.0), (38.0, 43.0)
    plain = regions(flows, *spans, polled=False)[1]
    restarted = regions(lambda t: flows(t - 20.0 if t >= 20.0 else t), *spans, polled=False)[1]
    assert restarted.joules == pytest.approx(500.0, rel=1e-4)
    assert restarted.uncertainty_joules < 1.2 * plain.uncertainty_joules
    assert not restarted.warnings


class Quick(Register):
    """One that is known to be renewed each millisecond."""

    def __init__(self, clock: ManualClock, shows: Callable[[float], float]) -> None:
        super().__init__(clock, shows)
        self.channels = (replace(self.channels[0].timed(refresh_s=0.001), max_watts=250.0),)


def test_a_row_with_which_a_counter_begins_anew_is_no_rest_of_it() -> None:
    (measured,) = regions(lambda t: 1e8 * (t if t < 2.2 else t - 2.2), (2.0, 2.5), make=Quick)
    told = [w.partition(":")[2] for w in measured.warnings]
    assert [t for t in told if "no energy is known" in t or "restarted" in t] == told
    assert dict(measured.components).get("edges", 0.0) < 1.0


def backwards(watts: Callable[[float], float]) -> bool:
    (measured,) = regions(lambda t: 1e6 * watts(t), (2.0, 4.0), make=Meter)
    return any("negative all the time" in w for w in measured.warnings)


def test_a_power_that_is_negative_all_the_time_is_said() -> None:
    assert backwards(lambda t: -30.0 - 5.0 * (t % 0.3))
    (measured,) = regions(lambda _: -3e7, (2.0, 4.0), make=Meter)
    assert measured.joules == pytest.approx(-60.0)
    (told,) = [w for w in measured.warnings if "negative" in w]
    assert told.startswith("rail: it was negative all the time (-30 to -30 W): the sensor is wired the other way round")


@pytest.mark.parametrize("least", [0.0, 1e-3])
def test_a_power_that_is_negative_now_and_then_is_not_backwards(least: float) -> None:
    assert not backwards(lambda t: least if int(t * 20) % 20 == 0 else -30.0)


class Brisk(Powered):
    """A powered one that is stated to be renewed each millisecond."""

    def __init__(self, clock: ManualClock, shows: Callable[[float], float]) -> None:
        super().__init__(clock, shows)
        self.channels = (
            Channel(
                "rail",
                Quantity.ENERGY,
                scale=1e-6,
                domain="host/rail",
                max_watts=250.0,
                least_watts=0.02,
                gain_u=0.03,
                refresh_s=0.001,
            ),
        )


@pytest.mark.parametrize("start", [0.05, 0.3, 0.6, 0.9])
def test_nothing_counted_by_one_that_is_a_thousand_times_slower_than_stated_is_not_nothing_used(start: float) -> None:
    """It moves each second: its first rest is doubted, and the move that ends it tells no power."""
    for length in (0.5, 1.3, 1.9):
        (measured,) = regions(lambda t: float(np.floor(t) * WATTS * 1e6), (start, start + length), make=Brisk)
        assert abs(off(measured)) < 2.0
        assert measured.coverage < 1.0
