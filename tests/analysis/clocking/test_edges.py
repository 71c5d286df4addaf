from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.registers import Register, side_by_side
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.clocking import BoundedError, FasterThanPollsError, estimate_updates
from pmtpy.analysis.clocking._edges import longest_period
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.errors import DeclinedError
from tests.support.drawn_sensors import PHASES, POLLS, Drawn, Kernel, Polls, Power, Sensor, draw_load, record


def drawn(seed: int, *, fast: bool) -> tuple[Drawn, float]:
    """Draw a sensor whose values repeat: exact levels, or watts; and by how long it is polled."""
    rng = np.random.default_rng(seed)
    poll = float(np.exp(rng.uniform(math.log(0.001), math.log(0.01))))
    period = poll * (float(np.exp(rng.uniform(math.log(0.02), 0.0))) if fast else rng.uniform(1.5, 10.0))
    seconds = min(max(12.0, 300.0 * max(period, poll)), 20.0)
    load = str(rng.choice(["telegraph", "square", "slots in step", "square in step"]))
    scale = max(period, poll) * rng.uniform(3.0, 8.0)
    noise = float(rng.choice([0.0, 0.0, 0.1]))
    sensor = Sensor(
        period,
        Kernel("boxcar", period * float(rng.choice([0.02, 0.25, 1.0]))),
        rng.uniform(0.0, period),
        noise_w=noise,
        resolution_w=1.0 if noise else float(rng.choice([1.0, 0.001])),
        phase=str(rng.choice(PHASES)),
        wander_s=min(rng.uniform(0.0, 0.003), 0.2 * period),
        jump_s=rng.uniform(0.15, 0.85) * period,
        jump_at_s=seconds / 2.0,
    )
    kind = str(rng.choice(POLLS))
    stalls = (rng.uniform(0.002, 0.01), 20.0 * poll) if kind == "starved" else (0.0, 0.0)
    scatter = rng.uniform(0.05, 0.25) if kind == "irregular" else 0.005
    polls = Polls(kind, poll, scatter * poll, rng.uniform(0.0, 0.2) * poll, *stalls)
    # In step with a sensor that is slower than its polls, or switched at multiples of a few of them.
    step = (4.0 * poll if fast else period) if "step" in load else scale
    return record(sensor, draw_load(load, step, seconds, rng), polls, seconds, seed=seed, load=load), poll


@pytest.mark.parametrize("block", range(4))
def test_a_fast_sensor_whose_values_repeat_gets_a_bound_and_it_holds(block: int) -> None:
    for seed in range(15 * block, 15 * block + 15):
        one, _ = drawn(seed, fast=True)
        bound = longest_period(one.t_s, one.watts, one.edges_s)
        assert bound is not None
        assert bound > one.sensor.period_s


@pytest.mark.parametrize("block", range(4))
def test_of_a_slower_sensor_whose_values_repeat_a_bound_is_never_below_the_period(block: int) -> None:
    for seed in range(15 * block, 15 * block + 15):
        one, _ = drawn(seed, fast=False)
        bound = longest_period(one.t_s, one.watts, one.edges_s)
        assert bound is None or bound > one.sensor.period_s


def two_levels(period_s: float, poll_s: float, steps_s: np.ndarray, seconds: float) -> Drawn:
    """Poll a sensor that shows the two powers of a load exactly."""
    power = Power(steps_s, np.where(np.arange(len(steps_s) + 1) % 2, 200.0, 60.0))
    sensor = Sensor(period_s, Kernel("boxcar", 1e-6), 0.3 * period_s, noise_w=0.0)
    return record(sensor, power, Polls("irregular", poll_s, 0.1 * poll_s), seconds, seed=1)


def telegraph(mean_s: float, seconds: float) -> np.ndarray:
    steps = 1.0 + np.cumsum(0.03 + np.random.default_rng(2).exponential(mean_s, int(seconds / mean_s)))
    return np.asarray(steps[steps < seconds - 1.0])


@pytest.mark.parametrize("one_poll_later", [False, True])
def test_the_bound_of_a_sensor_that_follows_at_once_is_about_a_poll(*, one_poll_later: bool) -> None:
    one = two_levels(0.0001, 0.0024, telegraph(0.1, 20.0), 20.0)
    values = np.append(one.watts[:1], one.watts[:-1]) if one_poll_later else one.watts
    bound = longest_period(one.t_s, values, one.edges_s)
    assert bound is not None
    # Nine in ten waits are below 1.2 of a poll that scatters by 10 %, or two; of 139 edges chance sees no fewer than
    # three in four of those in one period.
    most = (1.0 + one_poll_later) * 0.0024 * 1.2 / 0.75
    assert (1.0 + one_poll_later) * 0.0024 < bound < most


def test_characterise_states_the_bound_with_the_stamps_of_the_load_and_says_what_is_missing_without() -> None:
    one = two_levels(0.0005, 0.0024, telegraph(0.1, 20.0), 20.0)
    load = LoadIntervals.switched(one.edges_s, one.seconds)
    polls = Series(one.t_s, one.watts)
    found = characterise("p", polls, load=load)
    document = found.document()["update_period_ms"]
    assert document["value"] is None
    assert 2.4 < document["high"] < 4.8  # an edge just before a poll is shown by the next
    assert "follow the load so soon that the update period is below" in found.declined["update_period_ms"]
    (standing,), _ = side_by_side([Register("p", one.t_s, one.watts, load=load)])
    assert standing.bound_s == found.bound_s
    blind = characterise("p", polls)
    assert blind.document()["update_period_ms"] is None
    assert "stamps of the load would tell" in blind.declined["update_period_ms"]


def test_a_load_in_step_with_a_slow_sensor_gives_no_bound_below_its_period() -> None:
    period = 0.05
    edges = 1.0 + period * np.flatnonzero(np.diff(np.random.default_rng(1).integers(0, 2, 600)))
    one = two_levels(period, 0.004, edges, 32.0)  # each edge is shown after 0.3 of a period
    bound = longest_period(one.t_s, one.watts, one.edges_s)
    assert bound is None or bound > period


def test_the_step_of_a_load_is_not_taken_for_the_period_of_a_sensor_that_follows_it_at_once() -> None:
    step = 0.02
    edges = np.asarray(1.0 + step * np.arange(900), np.float64)
    power = Power(edges, np.random.default_rng(1).uniform(60.0, 200.0, 901))  # no two levels alike
    sensor = Sensor(0.0005, Kernel("boxcar", 1e-6), noise_w=0.0)
    one = record(sensor, power, Polls("irregular", 0.004, 0.0004), 20.0, seed=1)
    assert estimate_updates(one.t_s, one.watts).period_s.contains(step)  # without stamps it is the better guess
    with pytest.raises(DeclinedError, match="the load, which keeps the step that was found"):
        estimate_updates(one.t_s, one.watts, edges_s=one.edges_s)


def test_a_slow_sensor_with_noise_keeps_its_period_beside_a_load_in_step_with_it() -> None:
    edges = np.asarray(1.0 + 0.02 * np.arange(900), np.float64)
    power = Power(edges, np.where(np.arange(901) % 2, 200.0, 60.0))
    sensor = Sensor(0.02, Kernel("boxcar", 0.01), 0.006)
    one = record(sensor, power, Polls("irregular", 0.004, 0.0004), 30.0, seed=1)
    slow = estimate_updates(one.t_s, one.watts, edges_s=one.edges_s)
    assert slow.period_s.value == pytest.approx(0.02, rel=1e-3)


def test_few_edges_and_readings_that_do_not_follow_them_bound_nothing() -> None:
    one = two_levels(0.0005, 0.0024, telegraph(0.1, 20.0), 20.0)
    assert longest_period(one.t_s, one.watts, one.edges_s[:11]) is None
    assert longest_period(one.t_s, np.full(len(one.t_s), 60.0), one.edges_s) is None
    assert longest_period(one.t_s, one.watts, one.edges_s + 1e6) is None


def test_a_sensor_whose_noise_shows_that_it_is_fast_is_bounded_as_before() -> None:
    rng = np.random.default_rng(1)
    t = np.cumsum(rng.uniform(0.002, 0.003, 8000))
    with pytest.raises(FasterThanPollsError):
        estimate_updates(t, rng.standard_normal(len(t)), edges_s=t[::50])
    assert issubclass(FasterThanPollsError, BoundedError)
