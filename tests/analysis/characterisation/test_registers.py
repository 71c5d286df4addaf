"""Registers of simulated cards beside each other: clocks, lags and gains are known in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pmtpy.analysis.characterisation.registers import Register, Standing, side_by_side
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table
from pmtpy.errors import DeclinedError
from pmtpy.lab.loads import schedule

SECONDS = 15.0
EDGES_S = schedule(SECONDS)
STAMPS = LoadIntervals.switched(EDGES_S)
LOAD = Table(np.append(-100.0, EDGES_S), np.where(np.arange(len(EDGES_S) + 1) % 2, 220.0, 60.0))
INSTANT = SensorModel(0.1, 0.013, window_s=0.05, gain=0.95, offset_w=2.0, noise_w=0.3, step_w=0.001, delay_s=0.004)
# Of the same clock, 31 ms later; another clock, which is 200 millionths slower; a counter of the first clock.
AVERAGE = SensorModel(0.1, 0.044, window_s=0.4, gain=0.93, noise_w=0.2, step_w=0.001, seed=2)
OTHER = SensorModel(0.10002, 0.071, window_s=0.1, gain=1.02, noise_w=0.3, step_w=0.001, delay_s=0.009, seed=3)
COUNTER = SensorModel(counter_update_s=0.2, phase_s=0.053, gain=0.97, delay_s=0.007, counter_step_j=0.016, seed=4)


def polls() -> Floats:
    """Instants of polls, irregular, one every 3 ms."""
    steps = np.random.default_rng(5).uniform(0.0018, 0.0042, int(SECONDS / 0.003))
    return np.asarray(np.cumsum(steps), np.float64)


def of_power(name: str, model: SensorModel) -> Register:
    t = polls()
    return Register(name, t, model.readings(LOAD, t), load=STAMPS)


def of_counter(name: str, model: SensorModel, wrap: float | None = None) -> Register:
    """A counter of a thousandth of a joule."""
    t = polls()
    counts = np.round(model.counter(LOAD, t) * 1000.0)
    return Register(name, t, counts if wrap is None else np.mod(counts, wrap), 0.001, wrap, STAMPS)


@pytest.fixture(scope="module")
def standings() -> dict[str, Standing]:
    registers = [
        of_counter("energy", COUNTER),
        of_power("instant", INSTANT),
        of_power("average", AVERAGE),
        of_power("other", OTHER),
    ]
    found, reference = side_by_side(registers)
    assert reference == "instant"  # powers before counters
    return {s.name: s for s in found}


def known(estimate: Estimate | None) -> Estimate:
    assert estimate is not None
    return estimate


def test_phases_and_rates_of_clocks_are_told_against_each_other(standings: dict[str, Standing]) -> None:
    t = polls()
    middle = (t[0] + t[-1]) / 2.0
    at = 0.013 + round((middle - 0.013) / 0.1) * 0.1
    other = 0.071 + round((at - 0.071) / 0.10002) * 0.10002 - at
    for name, phase_s, slide, within_s in (
        ("average", 0.031, 0.0, 0.0005),
        ("other", other, 2e-4, 0.0005),
        ("energy", 0.04, 0.0, 0.001),  # of a counter that moves at every second update: to the next of them
    ):
        found = standings[name]
        phase = known(found.phase_s)
        assert phase.contains(phase_s), name
        assert phase.half_width < within_s
        assert known(found.slide).contains(slide), name
        assert known(found.slide).half_width < 1.5e-4
    assert standings["instant"].phase_s is None


def test_lags_and_gains_are_told_against_each_other(standings: dict[str, Standing]) -> None:
    own = 0.004 + 0.025  # what the reference shows is so old
    assert known(standings["instant"].lag_s).contains(own)
    for name, lag_s, gain in (("average", 0.2, 0.93), ("other", 0.059, 1.02), ("energy", 0.107, 0.97)):
        behind, ratio = known(standings[name].behind_s), known(standings[name].ratio)
        assert behind.contains(lag_s - own), name
        assert behind.half_width < 0.005
        assert ratio.contains(gain / 0.95), name
        assert ratio.half_width < 0.03


def test_of_a_counter_the_step_and_the_age_of_the_count_are_told(standings: dict[str, Standing]) -> None:
    counter = standings["energy"]
    assert counter.moves is not None
    assert counter.moves.step_j == pytest.approx(0.016)
    assert (counter.moves.range_j, counter.moves.wraps, counter.moves.restarts) == (None, 0, 0)
    assert known(counter.count_age_s).contains(0.007)
    assert counter.clock is not None
    assert counter.clock.period_s.contains(0.2)
    assert standings["instant"].count_age_s is None


def test_a_counter_that_begins_again_goes_on_and_one_that_was_set_back_has_lost_what_it_counted() -> None:
    wrap = 262_144.0  # counts: 262 J, which the load of 2 kJ goes through several times
    once = of_counter("energy", COUNTER)
    (found,), _ = side_by_side([of_counter("energy", COUNTER, wrap)])
    assert found.moves is not None
    assert found.moves.range_j == pytest.approx(262.144)
    assert found.moves.wraps == int(once.values[-1] // wrap - once.values[0] // wrap) > 3
    assert found.moves.restarts == 0
    assert known(found.lag_s).contains(0.107)

    back = Register(
        "energy", once.t_s, np.where(once.t_s > 8.0, once.values - once.values[-1] / 2.0, once.values), 1e-3
    )
    (found,), _ = side_by_side([back])
    assert found.moves is not None
    assert (found.moves.wraps, found.moves.restarts) == (0, 1)
    assert found.clock is not None
    assert found.declined == {"kernel": "needs the stamps of a load"}
    for recorded, restarts in ((back, 1), (once, None)):  # a recording puts right what it can
        (found,), _ = side_by_side([replace(recorded, unwrapped=True)])
        assert found.moves is not None
        assert (found.moves.wraps, found.moves.restarts) == (None, restarts)


def test_clocks_that_are_no_multiples_have_no_phase_and_what_stands_still_no_clock() -> None:
    slow = SensorModel(0.1337, window_s=0.1, noise_w=0.3, step_w=0.001)
    rest = Register("rest", polls(), np.full(len(polls()), 25.0))
    found, reference = side_by_side([of_power("instant", INSTANT), of_power("slow", slow), rest])
    assert reference == "instant"
    assert found[1].phase_s is None
    assert "1.337 times as often" in found[1].declined["phase_ms"]
    assert found[1].ratio is not None
    assert found[2].clock is None
    assert "the power is constant" in found[2].declined["update_period_ms"]
    assert side_by_side([rest]) == ([found[2]], None)
    with pytest.raises(DeclinedError, match="rest cannot be the reference: the readings change 0 times"):
        side_by_side([of_power("instant", INSTANT), rest], "rest")
    with pytest.raises(DeclinedError, match="there is no such register"):
        side_by_side([rest], "gpu.instant")


def test_what_is_renewed_faster_than_it_was_polled_has_a_bound() -> None:
    fast = SensorModel(0.002, window_s=0.0, noise_w=0.3, step_w=0.001)
    found, _ = side_by_side([of_power("fast", fast)])
    assert found[0].bound_s is not None
    assert 0.002 <= found[0].bound_s < 0.006
