from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.analysis.signal.trace import PowerTrace, Responder
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table
from pmtpy.errors import DeclinedError


def _switched() -> tuple[PowerTrace, Table]:
    edges = np.array([0.5, 0.9, 1.0, 1.013, 2.4, 3.0])
    starts = np.concatenate([[-100.0], edges])
    load = Table(starts, np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]))
    return PowerTrace.of_load(LoadIntervals.switched(edges)), load


@pytest.mark.parametrize(("window", "tau"), [(0.1, 0.0), (0.025, 0.0), (0.0, 0.0125), (0.0, 0.3), (0.1, 0.02)])
def test_responses_equal_those_of_the_simulated_sensor(window: float, tau: float) -> None:
    curve, load = _switched()
    at = np.linspace(0.2, 4.0, 301)
    truth = SensorModel(window_s=window, tau_s=tau).filtered(load, at)
    assert Responder(curve)(at, window, tau) == pytest.approx(truth, abs=3e-5)  # the simulator's stated error


def test_the_response_to_a_step_is_the_closed_form() -> None:
    respond = Responder(PowerTrace.of_load(LoadIntervals.switched(np.array([1.0, 1e3]))))
    at = np.array([0.9, 1.0, 1.05, 1.3])
    assert respond(at, 0.0, 0.1) == pytest.approx([0.0, 0.0, 1 - np.exp(-0.5), 1 - np.exp(-3.0)], abs=1e-12)
    assert respond(at, 0.1, 0.0) == pytest.approx([0.0, 0.0, 0.5, 1.0], abs=1e-9)


@given(st.lists(st.floats(0.001, 1.0), min_size=3, max_size=30), st.floats(0.01, 2.0), st.integers(0, 2**31))
def test_a_kernel_of_unit_area_keeps_constant_power(gaps: list[float], tau: float, seed: int) -> None:
    t = np.cumsum(gaps)
    curve = PowerTrace.from_samples(t, np.full(len(t), 77.0))
    at = np.random.default_rng(seed).uniform(t[0], t[-1], 5)
    assert Responder(curve)(at, 0.1, tau) == pytest.approx(np.full(5, 77.0), rel=1e-6)


def test_energy_of_samples_is_the_trapezoid_and_survives_a_change_of_clock() -> None:
    t = np.array([0.0, 1.0, 2.5])
    curve = PowerTrace.from_samples(t, np.array([10.0, 20.0, 20.0]))
    assert curve.energy(0.0, 2.5) == pytest.approx(15.0 + 30.0)
    moved = curve.shifted(10.0, 0.001)
    assert moved.energy(moved.start_s, moved.end_s) == pytest.approx(45.0 * 1.001)
    assert moved.end_s - moved.start_s == pytest.approx(2.5 * 1.001)


@pytest.mark.filterwarnings("error")
def test_rows_that_stay_out_twice_running_are_one_hole() -> None:
    t = np.array([0.0, 1.0, 2.0, 4.0, 6.0, 7.0, 8.0])
    curve = PowerTrace.from_samples(t, np.full(len(t), 10.0)).without(t, np.diff(t) > 1.5)
    assert curve.holes_s.tolist() == [[2.0, 6.0]]
    at = np.array([1.5, 3.0, 4.0, 6.01, 7.9])
    assert curve.shows(at, 0.1, 0.0).tolist() == [True, False, False, False, True]
    assert curve.shows(at, 0.0, 0.02).tolist() == [True, False, False, False, True]


def test_a_reference_without_order_or_length_is_declined() -> None:
    with pytest.raises(DeclinedError, match="2 samples of a reference in order of time are too few"):
        PowerTrace.from_samples(np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    with pytest.raises(DeclinedError, match="increase"):
        PowerTrace.of_load(LoadIntervals.switched(np.array([1.0, 2.0, 2.0, 3.0])))
    with pytest.raises(ValueError, match="after the one before"):
        LoadIntervals.switched(np.array([2.0, 1.0]))


@pytest.mark.parametrize("n", [3, 17, 1000])
@pytest.mark.parametrize("tau", [1e-6, 0.02, 50.0])
def test_the_state_of_a_one_pole_is_that_of_its_recursion_over_any_knots(n: int, tau: float) -> None:
    rng = np.random.default_rng(n)
    t, power = np.cumsum(rng.uniform(1e-4, 0.01, n + 1)), rng.uniform(0.0, 300.0, n)
    curve = PowerTrace(t, np.concatenate([[0.0], np.cumsum(power * np.diff(t))]), float(t[0]), float(t[-1]))
    state, expected = float(power[0]), []
    for at, (level, kept) in enumerate(zip(power, np.exp(-np.diff(t) / tau), strict=True), start=1):
        state = float(level + (state - level) * kept)
        expected.append((t[at], state))
    at_s, states = np.array(expected[:-1]).T  # at the last knot the curve ends
    assert Responder(curve)(at_s, 0.0, tau) == pytest.approx(states, rel=1e-9 if tau < 1.0 else 1e-5)


@pytest.mark.parametrize("since_s", [0.0, 1.7e9])
@pytest.mark.parametrize("tau", [0.02, 0.055, 0.4])
def test_a_step_within_many_knots_follows_an_exponential_wherever_it_is_asked_for(tau: float, since_s: float) -> None:
    t = np.asarray(since_s + 1e-4 * np.arange(30_000), np.float64)
    step, low, high = t[10_000], 60.0, 220.0
    curve = PowerTrace.from_energy(
        t, np.asarray(low * (t - t[0]) + (high - low) * np.maximum(t - step, 0.0), np.float64)
    )
    at = np.asarray(since_s + np.random.default_rng(1).uniform(-1.0, 5.0, 400), np.float64)
    passed = 1.0 - np.exp(-np.maximum(at - step, 0.0) / tau)
    # A hundred-thousandth of the swing; stamps of 1.7e9 s are rounded to 0.24 us.
    assert Responder(curve)(at, 0.0, tau) == pytest.approx(low + (high - low) * passed, abs=5e-3)


@pytest.mark.parametrize("since_s", [0.0, 1.7e9])
@pytest.mark.parametrize("base_s", [0.004, 0.1, 1.0])
def test_a_triangle_is_two_boxcars_of_half_its_base(base_s: float, since_s: float) -> None:
    curve, _ = _switched()
    curve = curve.shifted(since_s)
    at = np.linspace(since_s + 0.2, since_s + 4.0, 301)
    ages = (np.arange(4000) + 0.5) / 4000 * base_s / 2.0
    twice = np.mean([Responder(curve)(np.asarray(at - age, np.float64), base_s / 2.0, 0.0) for age in ages], axis=0)
    assert Responder(curve).triangle(at, base_s) == pytest.approx(twice, abs=1e-3 if since_s else 1e-5)


def test_the_stretch_that_tells_most_is_where_the_readings_vary() -> None:
    watts = np.concatenate([np.full(50, 60.0), np.tile([60.0, 200.0], 10), np.full(50, 200.0)])
    whole = Updates(np.arange(120), np.arange(120) * np.float64(0.1), watts, 0.1)
    part = whole.telling(20)
    assert part.k.tolist() == list(range(50, 70))
    assert whole.telling(200) is whole


def test_short_time_constants_keep_no_copies_of_a_meter() -> None:
    knots = 50_000
    respond = Responder(PowerTrace.of_levels(np.linspace(0.0, 50.0, knots), 100.0 + np.arange(knots + 1) % 7.0))
    at = np.linspace(1.0, 40.0, 50)
    respond(at, 0.0, 1.0)  # imports what it needs, which is memory, too
    tracemalloc.start()
    for power in range(10, 26):
        respond(at, 0.0, 2.0**-power)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The last states are kept; before, of each power of two a copy as well.
    assert kept < 6 * 8 * knots
