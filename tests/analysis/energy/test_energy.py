"""Corrections against closed forms, simulated sensors and real recordings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.published_corrections import burtscher, folded_energy, invert_one_pole
from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.energy.estimate import likely_energy, region_energy
from pmtpy.analysis.signal.clock_fit import fit_clock
from pmtpy.analysis.signal.correlogram import correlogram
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import TRIANGULAR, Response
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Load, Square, Table
from pmtpy.errors import CoverageError
from tests.support.recorded import read_log, read_pmd, read_stamps
from tests.support.tails import with_tails
from tests.support.uncertainty.worlds import random_load, random_region

T = np.arange(0.0, 10.0, 0.1)


def between(load: Load, start: float, end: float) -> float:
    return float(load.joules(np.array(end)) - load.joules(np.array(start)))


def shown(model: SensorModel, load: Load, start: float, end: float) -> tuple[Floats, Floats]:
    k = np.arange(int(model.last_tick(start)), int(model.last_tick(end)) + 1)
    return model.tick_times(k), model.tick_readings(load, k)


# --- single corrections ---


def test_an_interval_that_the_updates_do_not_reach_is_refused() -> None:
    with pytest.raises(CoverageError, match="do not cover"):
        region_energy(T, T, Response(0.1, 0.1), start_s=5.0, end_s=11.0)
    with pytest.raises(CoverageError, match="empty"):
        region_energy(T, T, Response(0.1, 0.1), start_s=5.0, end_s=5.0)


@pytest.mark.parametrize("load", [None, LoadIntervals(np.array([2.02, 5.03]), np.array([3.51, 6.04]))])
def test_an_energy_is_of_plain_numbers_whatever_it_was_asked_with(load: LoadIntervals | None) -> None:
    one = np.float64(1.0)
    response = Response(0.1 * one, 0.025 * one, gain_u=0.002 * one, offset_u=0.1 * one, lag_u=0.001 * one, noise_w=one)
    watts = np.where((T > 2.0) & (T < 3.5) | (T > 5.0) & (T < 6.0), 200.0, 50.0)
    found = region_energy(T, watts, response, start_s=T[30], end_s=T[60], load=load)
    numbers = [found.joules, found.uncertainty_joules, found.low, found.evidence, *found.aliased]
    assert {type(x) for x in (*numbers, *(u for _, u in found.parts))} == {float}
    assert "np." not in repr(found)


@pytest.mark.parametrize("region", [(3.0, 8.0), (4.5, 5.5), (3.5, 4.5), (6.5, 7.5)])
def test_a_hole_in_the_updates_is_told_wherever_the_region_begins(region: tuple[float, float]) -> None:
    response = Response(period_s=0.1, window_s=0.1, noise_w=0.3)
    seen = (T <= 4.0) | (T >= 7.0)
    found = region_energy(T[seen], np.full(int(seen.sum()), 50.0), response, start_s=region[0], end_s=region[1])
    assert any("no update, or none of a known instant, for 3 s" in warning for warning in found.warnings)
    beside = region_energy(T[seen], np.full(int(seen.sum()), 50.0), response, start_s=2.0, end_s=3.5)
    assert not any("no update" in warning for warning in beside.warnings)


@pytest.mark.parametrize(
    ("t_s", "watts", "said"),
    [
        (T, np.full(99, 50.0), "as many instants as powers"),
        (T[::-1], np.full(100, 50.0), "instants in order"),
        (T, np.full(100, np.nan), "leave out values that are missing"),
        (np.where(T == 5.0, np.nan, T), np.full(100, 50.0), "instants in order"),
    ],
)
def test_updates_that_are_none_are_refused(t_s: Floats, watts: Floats, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        region_energy(t_s, watts, Response(period_s=0.1, window_s=0.1), start_s=3.0, end_s=4.0)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.06])
def test_an_interval_holds_the_energy_by_each_kernel_that_is_not_out_of_the_question(share: float) -> None:
    """A kernel of little belief lies outside of two standard deviations of the mixture: of a fifth at 2.0 of them."""
    load = Table(np.array([-10.0, 3.0, 3.4]), np.array([60.0, 200.0, 60.0]))
    t, watts = shown(SensorModel(0.1, window_s=0.1), load, 0.0, 8.0)
    late = Response(0.1, 0.1, delay_s=0.15)
    here = [region_energy(t, watts, r, start_s=3.2, end_s=4.0) for r in (Response(0.1, 0.1), late)]
    both = likely_energy(t, watts, [(1.0 - share, Response(0.1, 0.1)), (share, late)], start_s=3.2, end_s=4.0)
    assert abs(here[1].joules - here[0].joules) > 10.0 * here[0].uncertainty_joules
    assert all(both.low < each.joules < both.high for each in here)


@given(st.lists(st.floats(0, 500), min_size=3, max_size=40), st.floats(0.005, 2.0))
def test_inverting_a_one_pole_gives_back_power_constant_between_updates(power: list[float], tau: float) -> None:
    t = np.linspace(0.0, 0.015 * (len(power) - 1), len(power))
    q = math.exp(-0.015 / tau)
    y = [power[0]]
    for p in power[1:]:
        y.append(q * y[-1] + (1 - q) * p)
    # Rounding errors of the readings are amplified by 1 / (1 - q), at most 134 here.
    assert invert_one_pole(t, np.array(y), tau) == pytest.approx(power, abs=1e-8)


def test_burtschers_correction_is_right_on_a_ramp_and_clips() -> None:
    t = np.arange(0.0, 1.0, 0.015)
    ramp = 20.0 + 100.0 * t  # a one-pole shows a ramp late by its time constant
    late = 20.0 + 100.0 * (t - 0.05)
    assert burtscher(t, late, 0.05)[1:-1] == pytest.approx(ramp[1:-1])
    assert burtscher(t, np.where(t < 0.5, 0.0, 200.0), 0.84, 225.0).max() == 225.0
    assert np.array_equal(burtscher(t[:2], t[:2], 0.05), t[:2])


# --- loads and responses ---


def test_a_response_weighs_the_past_with_unit_area() -> None:
    bounds = np.linspace(-3.0, 1.0, 4001)
    for response in (Response(0.1, 0.1), Response(0.1, 0.0, 0.05), Response(0.1, 0.1, 0.05, -0.002)):
        weights = response.cells(np.array([0.9]), bounds)
        assert weights.sum() == pytest.approx(1.0)
        centre = weights[0] @ (bounds[1:] + bounds[:-1]) / 2
        assert 0.9 - centre == pytest.approx(response.lag_s, abs=1e-4)


def test_what_a_load_would_show_agrees_with_the_simulator() -> None:
    starts = np.array([1.0, 2.0, 3.0])
    load = Table(np.array([0.0, 1.0, 1.4, 2.0, 2.4, 3.0, 3.4]), np.array([0.0, 1, 0, 1, 0, 1, 0]))
    response = Response(0.1, 0.03, 0.02, 0.004)
    model = SensorModel(window_s=0.03, tau_s=0.02, delay_s=0.004)
    seen = response.shown(LoadIntervals(starts, starts + 0.4), T)
    assert seen == pytest.approx(model.filtered(load, T), abs=5e-5)  # the simulator's quadrature


def test_a_load_with_overlapping_intervals_is_refused() -> None:
    with pytest.raises(ValueError, match="each after the one before"):
        LoadIntervals(np.array([0.0, 1.0]), np.array([1.5, 2.0]))
    with pytest.raises(ValueError, match="time between updates"):
        region_energy(T, T, Response(window_s=0.1), start_s=5.0, end_s=6.0)
    with pytest.raises(ValueError, match="not negative"):
        Response(-0.1)


# --- part-time sensors on a periodic load ---


def aliased(seed: int) -> tuple[Load, LoadIntervals, SensorModel]:
    rng = np.random.default_rng(seed)
    on = np.arange(0, 30, 0.104) + rng.normal(0, 0.0003, 289)
    load = Table(np.stack([on, on + 0.052], 1).ravel(), np.tile([193.0, 65.0], len(on)))
    model = SensorModel(
        update_s=0.1012, phase_s=rng.uniform(0, 0.1), window_s=0.0, tau_s=0.0125, noise_w=0.5, seed=seed, wander_s=0.004
    )
    return load, LoadIntervals(on, on + 0.052), model


def test_knowing_the_load_undoes_aliasing() -> None:
    # Demand for a periodic load at 25 % coverage over 4 s: bias 0.5 %, sd 0.3 %.
    response = Response(0.1012, 0.0, 0.0125, noise_w=0.5)
    errors, stated = [], []
    for seed in range(0, 60, 3):
        load, activity, model = aliased(seed)
        start = 3.0 + 0.23 * seed
        t, watts = shown(model, load, 1.0, 29.0)
        found = region_energy(t, watts, response, start_s=start, end_s=start + 4.0, load=activity)
        assert found.method == "load-informed"
        true = between(load, start, start + 4.0)
        errors.append(found.joules / true - 1)
        stated.append((found.joules - true) / found.uncertainty_joules)
    assert abs(np.mean(errors)) < 0.001
    assert np.std(errors) < 0.003
    assert np.mean(np.abs(stated) < 1.96) >= 0.85  # 20 trials: two standard errors of 0.95 are 0.10


@pytest.mark.parametrize(("window_s", "tau_s"), [(0.025, 0.0), (0.0, 0.0125)])
def test_a_ramp_that_a_part_time_sensor_hardly_sees_is_in_the_interval(window_s: float, tau_s: float) -> None:
    # After a pause the power rises to its end by a straight line of 30 ms, from 55 % of the swing on.
    ramp = np.arange(15)
    edges = np.concatenate([[0.0], 4.0 + 0.002 * ramp, [4.03, 9.0]])
    load = Table(edges, np.concatenate([[60.0], 60.0 + 170.0 * (0.565 + 0.03 * ramp), [230.0, 60.0]]))
    response, stamps = Response(0.1, window_s, tau_s, noise_w=0.15), LoadIntervals(np.array([4.0]), np.array([9.0]))
    held: dict[bool, list[bool]] = {True: [], False: []}
    for phase_s in np.arange(0.0, 0.1, 0.005):
        model = SensorModel(0.1, float(phase_s), 0.0, window_s, tau_s, noise_w=0.15, seed=1)
        t, watts = shown(model, load, 0.5, 11.0)
        for length, known in ((0.3, True), (1.0, True), (0.3, False), (1.0, False)):
            about = stamps if known else None
            found = region_energy(t, watts, response, start_s=4.0, end_s=4.0 + length, load=about)
            held[known].append(found.low <= between(load, 4.0, 4.0 + length) <= found.high)
    # 40 trials of 20 phases: three standard errors of 0.95 are 0.15.
    assert min(np.mean(held[True]), np.mean(held[False])) >= 0.8


@pytest.mark.parametrize(("period_s", "hold_s"), [(0.104, 0.03), (0.9, 0.2)])
def test_clocks_held_after_each_part_of_the_load_widen_what_is_stated(period_s: float, hold_s: float) -> None:
    stated = []
    for seed in range(15):
        on = np.arange(1.0, 11.0, period_s)
        starts = np.sort(np.concatenate([[0.0], on, on + period_s / 2]))
        load = with_tails(starts, np.where(np.isin(starts, on), 193.0, 65.0), hold_s, 0.2)
        model = SensorModel(0.1012, 0.1012 * seed / 15, window_s=0.0, tau_s=0.0125, noise_w=0.5, seed=seed)
        t, watts = shown(model, load, 0.5, 11.5)
        response, activity = Response(0.1012, 0.0, 0.0125, noise_w=0.5), LoadIntervals(on, on + period_s / 2)
        found = region_energy(t, watts, response, start_s=3.0, end_s=7.0, load=activity)
        true = between(load, 3.0, 7.0)
        assert found.joules == pytest.approx(true, rel=0.01)
        stated.append((found.joules - true) / found.uncertainty_joules)
    assert np.mean(np.abs(stated) < 1.96) >= 0.78  # 15 trials: three standard errors of 0.95 are 0.17


def periodic_trial(rng: np.random.Generator, load_periods: float) -> tuple[float, float]:
    """Error of the energy of 4 s of a periodic load in percent, and in standard uncertainties.

    Sensors, loads, stamps and profiles of the kinds that there are: 15 to 101 ms, of which 15 to 60 % are seen; ends up
    to 1.5 ms before their stamps; readings and kernel a little off what the profile says.
    """
    period, lag_u = float(np.exp(rng.uniform(np.log(0.015), np.log(0.101)))), 3e-4
    span = period * float(rng.uniform(0.15, 0.6))
    window, tau = [(span, 0.0), (0.0, span / 2), (span / 2, span / 4)][int(rng.integers(3))]
    cycle, early = load_periods * period, float(rng.uniform(0.0, 1.5))
    on = np.asarray(0.3 + cycle * np.arange(int(8.0 / cycle)), np.float64)
    off = np.asarray(on + cycle * float(rng.uniform(0.3, 0.7)), np.float64)
    real = np.stack([on + early * rng.uniform(1e-4, 4e-4, len(on)), off - early * rng.uniform(4e-4, 1e-3, len(on))], 1)
    low = float(rng.uniform(30, 80))
    watts = np.append(low, np.tile([low + float(rng.uniform(60, 250)), low], len(on)))
    load = Table(np.append(0.0, real.ravel()), watts)
    model = SensorModel(
        period, float(rng.uniform(0, period)), 1e-4, window, tau, 1e-3, noise_w=0.3, seed=int(rng.integers(1 << 30))
    )
    wider = 1.0 + 0.02 * float(rng.standard_normal())
    response = Response(
        period, window * wider, tau * wider, 1e-3 + (window / 2 + tau) * (1 - wider) + lag_u * rng.standard_normal(),
        lag_u=lag_u, tau_u=0.02 * tau, noise_w=0.3,
    )  # fmt: skip
    t, shows = shown(model, load, 0.5, 8.5)
    start = float(rng.uniform(1.6, 3.8))
    found = region_energy(t, shows, response, start_s=start, end_s=start + 4.0, load=LoadIntervals(on, off))
    assert found.method == "load-informed"
    true = between(load, start, start + 4.0)
    return 100.0 * (found.joules / true - 1.0), (found.joules - true) / found.uncertainty_joules


def test_a_periodic_load_of_any_period_and_duty_has_its_energy() -> None:
    rng = np.random.default_rng(5)  # away from where all phases seen are the same few
    trials = np.array([periodic_trial(rng, float(rng.choice([0.69, 0.82, 1.03, 1.27, 2.3, 4.4]))) for _ in range(30)])
    assert abs(np.mean(trials[:, 0])) < 0.1  # demand: 0.5 %
    assert np.std(trials[:, 0]) < 0.3
    assert np.mean(np.abs(trials[:, 1]) < 1.96) >= 0.83  # 30 trials: three standard errors of 0.95 are 0.12


def test_few_phases_of_a_load_that_beats_with_the_sensor_are_in_the_interval() -> None:
    rng = np.random.default_rng(6)
    trials = np.array([periodic_trial(rng, float(rng.choice([2 / 3, 0.75, 1.0, 1.25, 1.5, 3.0]))) for _ in range(30)])
    assert np.mean(np.abs(trials[:, 1]) < 1.96) >= 0.87


def test_a_load_of_which_one_level_is_seen_has_no_energy_that_is_known() -> None:
    on = np.arange(1.0, 12.0, 0.1)
    load = Table(np.append(0.0, np.stack([on, on + 0.05], axis=1).ravel()), np.append(60, np.tile([230, 60], len(on))))
    t, watts = shown(SensorModel(0.1, 0.04, window_s=0.02, noise_w=0.3), load, 0.5, 11.0)  # on, in each phase seen
    activity = LoadIntervals(on, on + 0.05)
    found = region_energy(t, watts, Response(0.1, 0.02, noise_w=0.3), start_s=3.0, end_s=7.0, load=activity)
    assert found.low <= between(load, 3.0, 7.0) <= found.high
    # What is told of the rise is the rest before the load: if it is another between the blocks, by a fifth of the
    # highest reading (boards wake), for half the time, the energy is 16 % off.
    assert found.high - found.joules > 0.15 * found.joules
    assert any("too few phases" in why for why in found.warnings)


def test_a_triangular_kernel_is_taken_as_what_it_is() -> None:
    half, held, ratio = 0.12, [], []
    ages = (np.arange(400) + 0.5) / 400 * half
    for seed in range(12):
        rng = np.random.default_rng(seed)
        edges = 0.5 + np.cumsum(rng.exponential(0.25, 50) + 0.02)
        load = Table(np.append(0.0, edges), np.append(50.0, np.tile([230.0, 50.0], 25)))
        t = np.arange(1.0, 12.0, 0.1)
        ends = np.stack([load.joules(t - age) - load.joules(t - age - half) for age in ages])
        watts = np.mean(ends, axis=0) / half + 0.3 * rng.standard_normal(len(t))
        response, start = Response(0.1, 2.0 * half, noise_w=0.3, family=TRIANGULAR), float(rng.uniform(3.0, 6.0))
        stamps = LoadIntervals(edges[::2], edges[1::2])
        for length in (0.5, 2.0):
            found = region_energy(t, watts, response, start_s=start, end_s=start + length, load=stamps)
            true = between(load, start, start + length)
            held.append(found.low <= true <= found.high)
            ratio.append(abs(found.joules - true) / (found.high - found.joules))
    assert np.mean(held) >= 0.92
    assert np.max(ratio) < 1.5  # 4 half-widths by the boxcar behind a one-pole that comes nearest


def test_a_pause_of_the_load_around_a_region_does_no_harm() -> None:
    on = np.concatenate([np.arange(1.0, 6.0, 0.104), np.arange(8.0, 12.0, 0.104)])
    watts = np.append(20.0, np.tile([193.0, 65.0], len(on)))
    watts[2 * np.searchsorted(on, 6.0)] = 20.0  # idle in the pause
    load = Table(np.append(0.0, np.stack([on, on + 0.052], axis=1).ravel()), watts)
    t, shows = shown(SensorModel(0.1012, 0.01, window_s=0.025, noise_w=0.3), load, 0.5, 11.5)
    response, activity = Response(0.1012, 0.025, noise_w=0.3), LoadIntervals(on, on + 0.052)
    found = region_energy(t, shows, response, start_s=4.5, end_s=5.5, load=activity)
    assert found.joules == pytest.approx(between(load, 4.5, 5.5), rel=0.01)
    assert found.low <= between(load, 4.5, 5.5) <= found.high


@pytest.mark.parametrize(("late_s", "early_s"), [(0.0, 0.0), (0.01, 0.0), (0.05, 0.0), (0.0, -0.04), (-0.02, -0.02)])
def test_stamps_that_are_all_late_are_found_to_be(late_s: float, early_s: float) -> None:
    # Work that was launched and not waited for, or another host's clock: by ten and fifty times what is usual.
    held, off = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        edges = 0.5 + np.cumsum(rng.exponential(0.25, 50) + 0.02)
        load = Table(np.append(0.0, edges), np.append(50.0, np.tile([230.0, 50.0], 25)))
        t, watts = shown(SensorModel(0.11, float(rng.uniform(0.0, 0.1)), window_s=0.046, noise_w=0.3), load, 0.6, 12.0)
        on = edges[::2] + late_s
        stamps = LoadIntervals(on, np.maximum(edges[1::2] + late_s + early_s, on))
        start = float(rng.uniform(3.0, 6.0))
        response = Response(0.11, 0.046, noise_w=0.3, lag_u=2e-4)
        found = region_energy(t, watts, response, start_s=start, end_s=start + 2.0, load=stamps)
        held.append(found.low <= between(load, start, start + 2.0) <= found.high)
        off.append(found.joules / between(load, start, start + 2.0) - 1.0)
        assert ("stamps are off" in " ".join(found.warnings)) == (late_s != 0.0 or early_s != 0.0)
    assert np.mean(held) >= 0.8  # 0.54 of attacked ones, off by 3 to 12 %, where late stamps were taken as they are
    assert np.max(np.abs(off)) < 0.02


def test_a_load_seen_in_one_phase_only_borrows_its_levels_from_around() -> None:
    load, activity, model = aliased(1)
    t, watts = shown(model, load, 1.0, 29.0)
    found = region_energy(t, watts, Response(0.1012, 0.0, 0.0125), start_s=10.0, end_s=10.6, load=activity)
    assert found.joules == pytest.approx(between(load, 10.0, 10.6), rel=0.01)
    assert found.low <= between(load, 10.0, 10.6) <= found.high


def test_folding_by_phase_recovers_the_mean_or_declines() -> None:
    load, _, model = aliased(2)
    t, watts = shown(model, load, 1.0, 29.0)
    response = Response(0.1012, 0.0, 0.0125)
    found = folded_energy(t, watts, response, 0.104, start_s=5.0, end_s=13.0)
    assert found.joules == pytest.approx(between(load, 5.0, 13.0), rel=0.01)
    with pytest.raises(CoverageError, match="cycle"):
        folded_energy(t, watts, response, 0.104, start_s=5.0, end_s=6.2)
    with pytest.raises(CoverageError, match="folding needs 10"):
        folded_energy(t, watts, response, 0.104, start_s=5.0, end_s=5.5)


# --- regions ---


def region_trial(rng: np.random.Generator, kind: str) -> float:
    """Error of one corrected region energy in its standard uncertainties."""
    period = float(rng.choice([0.02, 0.1]))
    window, tau = {
        "full": (period, 0.0),
        "part-time": (0.0, period / 8),
        "slow": (0.0, period * float(rng.uniform(0.6, 4.0))),
        "averaged": (10 * period, 0.0),
    }[kind]
    delay, noise, step = float(rng.uniform(-0.003, 0.003)), float(rng.uniform(0.1, 0.5)), float(rng.choice([0.01, 0.1]))
    response = Response(
        period, window, tau, delay, float(rng.uniform(0.9, 1.1)), float(rng.uniform(-5, 5)),
        gain_u=float(rng.uniform(0.002, 0.01)), offset_u=float(rng.uniform(0.1, 0.5)), noise_w=noise, step_w=step,
    )  # fmt: skip
    model = SensorModel(
        period, float(rng.uniform(0, period)), 0.0, window, tau, delay,
        response.gain * (1 + response.gain_u * rng.standard_normal()),
        response.offset_w + response.offset_u * rng.standard_normal(),
        noise, step, seed=int(rng.integers(1 << 30)),
    )  # fmt: skip
    load, edges = random_load(rng, 30.0)
    start, end = random_region(rng, edges, 1.5 * (period + min(response.span_s, period)), 30.0)
    t, watts = shown(model, load, 1.0, 29.0)
    found = region_energy(t, watts, response, start_s=start, end_s=end)
    return (found.joules - between(load, start, end)) / found.uncertainty_joules


@pytest.mark.parametrize("kind", ["full", "part-time", "slow", "averaged"])
def test_intervals_of_corrected_energies_cover_the_truth(kind: str) -> None:
    rng = np.random.default_rng(4)
    errors = np.array([region_trial(rng, kind) for _ in range(60)])
    assert np.mean(np.abs(errors) < 1.96) >= 0.87  # 60 trials: three standard errors of 0.95 are 0.08


def test_knowing_the_start_sharpens_a_short_region() -> None:
    load = Table(np.array([0.0, 5.04]), np.array([60.0, 300.0]))
    model = SensorModel(noise_w=0.1)
    t, watts = shown(model, load, 1.0, 9.0)
    response = Response(0.1, 0.1, noise_w=0.1)
    plain = region_energy(t, watts, response, start_s=5.04, end_s=5.34)
    known = region_energy(
        t, watts, response, start_s=5.04, end_s=5.34, load=LoadIntervals(np.array([5.04]), np.array([9.0]))
    )
    assert plain.joules == pytest.approx(90.0, abs=4.0)  # readings that see all the time prove where the power rose
    assert plain.low <= 90.0 <= plain.high
    assert known.joules == pytest.approx(90.0, abs=0.2)
    assert known.method == "load-informed"


@pytest.mark.parametrize(("window", "tau"), [(0.025, 0.0), (0.0, 0.0125), (0.01, 0.005), (0.0, 0.06), (0.0, 0.22)])
def test_a_known_start_gives_the_whole_energy_of_a_step_in_any_phase(window: float, tau: float) -> None:
    load, known = Table(np.array([0.0, 5.0]), np.array([60.0, 230.0])), LoadIntervals(np.array([5.0]), np.array([9.0]))
    response = Response(0.1, window, tau, noise_w=0.02)
    for phase in np.arange(0.0, 0.1, 0.007):
        t, watts = shown(SensorModel(0.1, phase, window_s=window, tau_s=tau, noise_w=0.02), load, 1.0, 8.5)
        for start, end in ((5.0, 5.3), (4.6, 6.0), (5.04, 5.31)):
            found = region_energy(t, watts, response, start_s=start, end_s=end, load=known)
            true = between(load, start, end)
            # Power that comes late, as where clocks ramp, is a hypothesis which no reading need rule out.
            assert found.joules == pytest.approx(true, rel=0.003)
            assert found.low <= true <= found.high


@pytest.mark.parametrize(("window", "tau"), [(0.02, 0.0), (0.0, 0.0125), (0.0, 0.22)])
def test_how_the_power_rose_after_a_known_start_is_in_the_interval(window: float, tau: float) -> None:
    ramp = np.linspace(0.0, 0.15, 31)  # from 55 % at the start, and 5 % too high after it
    rise = np.concatenate([0.55 + 3.0 * ramp[:-1], 1.0 + 0.05 * np.exp(-np.arange(0.0, 1.0, 0.05) / 0.25)])
    at = np.concatenate([ramp[:-1], 0.15 + np.arange(0.0, 1.0, 0.05)])
    load = Table(np.concatenate([[0.0], 5.0 + at]), np.concatenate([[60.0], 60.0 + 170.0 * rise]))
    response = Response(0.1, window, tau, noise_w=0.1)
    for phase in np.arange(0.0, 0.1, 0.007):
        t, watts = shown(SensorModel(0.1, phase, window_s=window, tau_s=tau, noise_w=0.1), load, 1.0, 8.5)
        for length, demand in ((0.3, 0.05), (1.0, 0.015)):
            found = region_energy(
                t,
                watts,
                response,
                start_s=5.0,
                end_s=5.0 + length,
                load=LoadIntervals(np.array([5.0]), np.array([9.0])),
            )
            true = between(load, 5.0, 5.0 + length)
            assert found.joules == pytest.approx(true, rel=demand)
            assert found.low <= true <= found.high


@pytest.mark.parametrize(("tau", "power"), [(0.0546, 97.0), (0.22, 180.0), (0.4, 110.0), (0.84, 110.0)])
def test_03_s_of_a_slow_one_pole_are_known_to_1_percent(tau: float, power: float) -> None:
    ramp = np.linspace(0.0, 0.03, 7)[:-1]
    rise = np.append(0.55 + 15.0 * ramp, 1.0)
    known, held = LoadIntervals(np.array([5.0]), np.array([8.8])), 0
    load = Table(np.concatenate([[0.0], 5.0 + ramp, [5.03]]), np.append(65.0, 65.0 + (power - 65.0) * rise))
    response = Response(0.015, 0.0, tau, noise_w=0.15, step_w=0.01)
    for seed in range(15):
        model = SensorModel(0.015, seed * 1e-3, 0.0, 0.0, tau, noise_w=0.15, step_w=0.01, seed=seed)
        t, watts = shown(model, load, 1.0, 8.5)
        found = region_energy(t, watts, response, start_s=5.0, end_s=5.3, load=known)
        true = between(load, 5.0, 5.3)
        assert found.joules == pytest.approx(true, rel=0.01)
        held += found.low <= true <= found.high
    assert held >= 13


@pytest.mark.parametrize("tau", [0.03, 0.15, 0.4])
def test_a_fast_load_is_not_taken_for_noise_at_the_ends_of_an_inverted_region(tau: float) -> None:
    held = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        at = np.cumsum(rng.uniform(0.04, 0.16, 120))
        load = Table(np.append(0.0, at), rng.uniform(40.0, 200.0, 121))
        model = SensorModel(0.015, seed / 2700, 0.0, 0.0, tau, noise_w=0.15, seed=seed)
        t, watts = shown(model, load, 0.5, 4.5)
        bold = Response(0.015, 0.0, tau, noise_w=2.0)  # what the load's own changes may be taken for
        for response in (bold, replace(bold, noise_w=0.15)):
            start = float(rng.uniform(1.5, 3.5))
            found = region_energy(t, watts, response, start_s=start, end_s=start + 0.3)
            true = between(load, start, start + 0.3)
            assert found.joules == pytest.approx(true, rel=0.03)
            held.append(found.low <= true <= found.high)
    assert np.mean(held) >= 0.9


def test_a_start_that_follows_an_end_at_once_is_seen_as_both() -> None:
    load = Table(np.array([0.0, 3.0, 4.85, 5.0]), np.array([60.0, 230.0, 60.0, 230.0]))
    t, watts = shown(SensorModel(window_s=0.025), load, 1.0, 8.5)
    activity = LoadIntervals(np.array([3.0, 5.0]), np.array([4.85, 9.0]))
    found = region_energy(t, watts, Response(0.1, 0.025), start_s=4.9, end_s=5.5, load=activity)
    true = between(load, 4.9, 5.5)
    assert found.low <= true <= found.high
    assert found.joules == pytest.approx(true, rel=0.01)


def test_an_inverted_result_stands_for_all_the_time_since_the_update_before() -> None:
    load = Table(np.array([0.0, 5.0, 5.07]), np.array([45.0, 80.0, 110.0]))
    t, watts = shown(SensorModel(0.015, window_s=0.0, tau_s=0.15, noise_w=0.0), load, 1.0, 9.0)
    kept = (t < 5.03) | (t > 5.09)
    found = region_energy(t[kept], watts[kept], Response(0.015, 0.0, 0.15), start_s=4.5, end_s=6.0)
    assert found.joules == pytest.approx(between(load, 4.5, 6.0), rel=0.002)


def test_a_mean_of_part_time_readings_knows_no_step_better_than_what_they_leave_out() -> None:
    """Eleven readings of 25 of 100 ms look like a window of 1.1 s that ends 35 ms in the future."""
    t = np.arange(0.0, 12.0, 0.1)
    seen = Response(0.1, 1.0957, delay_s=-0.0353, noise_w=0.1)  # of the same mean and variance
    errors, held = [], []
    for start in np.random.default_rng(4).uniform(5.0, 5.1, 40):
        load = Table(np.array([-10.0, start]), np.array([60.0, 300.0]))
        each = np.array([between(load, at - 0.025, at) for at in t]) / 0.025
        watts = np.convolve(np.concatenate([np.full(10, 60.0), each]), np.full(11, 1.0 / 11.0), "valid")
        alone = LoadIntervals(np.array([start]), np.array([11.9]))
        found = region_energy(t, watts, seen, start_s=start, end_s=start + 1.0, load=alone)
        errors.append(found.joules - 300.0)
        held.append(found.low < 300.0 < found.high)
    # Of a step in the 75 ms that are not seen 240 W times up to half of them is misplaced.
    assert 1.0 < float(np.std(errors)) < 240.0 * 0.0375
    assert np.mean(held) >= 0.9


def test_a_long_interval_is_reconstructed_at_its_ends_and_added_up_between() -> None:
    rng = np.random.default_rng(5)
    errors = []
    for seed in range(8):
        load, _ = random_load(rng, 60.0)
        t, watts = shown(SensorModel(0.1, 0.03, window_s=1.0, noise_w=0.3, seed=seed), load, 1.0, 59.0)
        response = Response(0.1, 1.0, noise_w=0.3)
        start, end = 5.0 + float(rng.uniform()), 35.0 + float(rng.uniform())
        found = region_energy(t, watts, response, start_s=start, end_s=end)
        assert found.method == "reconstruction"
        true = between(load, start, end)
        errors.append((found.joules - true) / found.uncertainty_joules)
        inner = sum(  # the same in pieces that are reconstructed as a whole
            region_energy(t, watts, response, start_s=a, end_s=a + (end - start) / 5).joules
            for a in np.linspace(start, end, 6)[:-1]
        )
        assert found.joules == pytest.approx(inner, rel=0.01)
    assert np.mean(np.abs(errors) < 1.96) >= 0.75  # 8 trials: three standard errors of 0.95 are 0.23


@pytest.mark.parametrize("response", [Response(0.1, 1.0), Response(0.1, 0.1), Response(0.015, 0.0, 0.05)])
def test_updates_that_fall_short_of_the_end_are_let_go_on_where_that_is_allowed(response: Response) -> None:
    t = np.arange(0.0, 5.0 + 1e-9, response.period_s)
    watts, end = np.full(len(t), 80.0), 5.0 + 1.9 * response.period_s
    with pytest.raises(CoverageError):
        region_energy(t, watts, response, start_s=3.0, end_s=end)
    found = region_energy(t, watts, response, start_s=3.0, end_s=end, ahead_s=3.0 * response.period_s)
    assert found.joules == pytest.approx(80.0 * (end - 3.0), rel=1e-6)


def test_a_load_of_very_many_switches_is_seen_as_one_by_one() -> None:
    on = np.sort(np.random.default_rng(2).uniform(0.0, 10.0, 3000))
    load = LoadIntervals(on, np.minimum(on + 1e-3, np.append(on[1:], 11.0)))
    for response in (Response(0.1, 0.03, 0.02), Response(0.1, 0.0, 0.0125), Response(0.1, 0.1)):
        rise = response.step(T[:, None] - load.edges[None, :])
        slow = rise @ np.where(np.arange(len(load.edges)) % 2, -1.0, 1.0)
        assert response.shown(load, T) == pytest.approx(slow, abs=1e-9)


@pytest.mark.parametrize("window", [0.1, 0.025])
def test_updates_that_are_missing_while_the_power_rises_are_in_the_interval(window: float) -> None:
    ramp = np.linspace(0.0, 0.15, 31)
    rise = np.concatenate([0.55 + 3.0 * ramp[:-1], 1.0 + 0.05 * np.exp(-np.arange(0.0, 1.0, 0.05) / 0.25)])
    at = np.concatenate([ramp[:-1], 0.15 + np.arange(0.0, 1.0, 0.05)])
    load = Table(np.concatenate([[0.0], 5.0 + at]), np.concatenate([[60.0], 60.0 + 170.0 * rise]))
    known, held = LoadIntervals(np.array([5.0]), np.array([9.0])), []
    for seed in range(60):
        t, watts = shown(SensorModel(0.1, seed / 600, window_s=window, noise_w=0.1, seed=seed), load, 1.0, 8.5)
        first = np.searchsorted(t, 5.0) + seed % 3
        kept = np.delete(np.arange(len(t)), np.s_[first : first + 1 + seed // 3 % 3])
        found = region_energy(
            t[kept], watts[kept], Response(0.1, window, noise_w=0.1), start_s=5.0, end_s=5.6, load=known
        )
        held.append(found.low <= between(load, 5.0, 5.6) <= found.high)
        assert found.joules == pytest.approx(between(load, 5.0, 5.6), rel=0.08)
    assert np.mean(held) >= 0.9


def test_an_error_of_the_gain_shows_as_far_as_the_power_is_from_where_it_was_fitted() -> None:
    t = 0.1 * np.arange(100.0)
    found = []
    for known_at_w in (0.0, 80.0, 100.0):
        offset_u = math.hypot(0.5, 0.01 * known_at_w)  # of the zero, as of a channel: the error of the gain is in it
        response = Response(0.1, 0.1, gain_u=0.01, offset_u=offset_u, known_at_w=known_at_w)
        parts = dict(region_energy(t, np.full(100, 100.0), response, start_s=3.0, end_s=5.0).parts)
        assert parts["offset"] == pytest.approx(1.0)
        found.append(parts.get("gain", 0.0))
    assert found == pytest.approx([2.0, 0.4, 0.0], abs=1e-6)


def test_power_in_a_long_gap_keeps_within_what_was_shown() -> None:
    rng = np.random.default_rng(2)
    power = np.where(rng.random(100) < 0.5, 60.0, 240.0)  # a load at random, new in each update
    missing = (T > 4.0) & (T < 6.0)
    sensor = Response(0.1, 0.1, noise_w=0.3)
    found = region_energy(T[~missing], power[~missing], sensor, start_s=1.0, end_s=9.0)
    assert found.low < 0.1 * float(np.sum(power[11:91])) < found.high
    assert found.high - found.low < 2.0 * 1.96 * 90.0 * 2.2  # as if it had been at either end of it all the time


def test_a_missing_stretch_of_updates_is_said() -> None:
    model = SensorModel()
    t, watts = shown(model, Square(), 0.0, 10.0)
    keep = (t < 5.0) | (t > 5.5)
    found = region_energy(t[keep], watts[keep], Response(0.1, 0.1), start_s=4.0, end_s=7.0)
    assert "no update, or none of a known instant, for" in found.warnings[-1]


# --- real recordings; meter energies and demands from docs/corrections.md ---


def step(folder: Path, column: str) -> tuple[Floats, Floats, float, float, tuple[Floats, Floats]]:
    """Return updates, their period, when the kernel returned, and the meter's cumulative energy, from its start."""
    on, off = read_stamps(folder / "timestamps.csv")[:2]
    polls, watts = read_log(folder / "gpudata.csv.gz", column)
    polls = polls - 3600.0 - on  # local time is UTC+1 in these files
    updates = update_series(polls, watts, estimate_updates(polls, watts))
    t, power = read_pmd(folder, 2936.06)
    joules = np.concatenate([[0.0], np.cumsum((power[1:] + power[:-1]) / 2 * np.diff(t))])
    return updates.t_s, updates.watts, updates.period_s, off - on, (t - on, joules)


@pytest.mark.parametrize(
    ("folder", "column", "response", "demands"),
    [
        # Window and gain as published for this very card; noise from its idle.
        (
            "rtx3090-step",
            "power.draw.instant [W]",
            Response(0.09997, 0.0999, 0.0, -0.001, 0.948, 1.4, 0.003, 0.5, 0.001, 0.0, 0.3),
            {6.0: 0.008, 1.0: 0.015, 0.3: 0.04},
        ),
        (
            "k40m-step",
            "power.draw [W]",
            Response(0.01541, 0.0, 0.0546, 0.0, 1.021, 0.8, 0.003, 0.2, 0.001, 0.002, 0.15),
            {6.0: 0.008, 1.0: 0.01, 0.3: 0.01},
        ),
    ],
)
def test_corrected_energies_of_a_real_step_agree_with_the_meter(
    recordings: Path, folder: str, column: str, response: Response, demands: dict[float, float]
) -> None:
    t, watts, period, returned, (meter_t, meter_j) = step(recordings / folder, column)
    assert period == pytest.approx(response.period_s, rel=1e-3)
    for length, demand in demands.items():
        end = min(length, returned)
        true = float(np.interp(end, meter_t, meter_j) - np.interp(0.0, meter_t, meter_j))
        found = region_energy(t, watts, response, start_s=0.0, end_s=end)
        assert abs(found.joules / true - 1) < demand
        assert found.low <= true <= found.high
        activity = LoadIntervals(np.array([0.0]), np.array([returned]))
        known = region_energy(t, watts, response, start_s=0.0, end_s=end, load=activity)
        assert abs(known.joules / true - 1) < 0.0055  # of 0.3 s on the K40m 0.50 %, which is stated to 0.78 %
        assert known.low <= true <= known.high
        assert known.method == "load-informed"  # though a walk explains one block as well as stamps do
        assert not known.warnings


@pytest.mark.parametrize(("window", "tau"), [(0.113, 0.0), (0.0, 0.155)])
def test_a_fast_load_does_not_alias_where_its_stamps_are_known(window: float, tau: float) -> None:
    on = np.arange(0.0, 30.0, 0.104)
    load, known = Square(60.0, 430.0, 1.0 / 0.104), LoadIntervals(on, on + 0.052)
    held = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = SensorModel(0.1, rng.uniform(0.0, 0.1), window_s=window, tau_s=tau, noise_w=0.3, seed=seed)
        response = Response(0.1, window, tau, noise_w=0.3)
        t, watts = shown(model, load, 1.0, 29.0)
        start = rng.uniform(5.0, 20.0)
        found = region_energy(t, watts, response, start_s=start, end_s=start + 4.0, load=known)
        true = between(load, start, start + 4.0)
        assert found.joules == pytest.approx(true, rel=0.005)
        held += found.low <= true <= found.high
    assert held >= 11


def test_stamps_that_come_late_are_allowed_for_where_few_phases_are_seen() -> None:
    # Updates of 20 ms see two phases of a load of 13.3 ms, which ends 0.7 ms before its stamp.
    on = np.arange(1.0, 11.0, 0.04 / 3.0)
    edges = np.stack([on, on + 0.02 / 3.0 - 0.0007], axis=1).ravel()
    load = Table(np.append(0.0, edges), np.append(55.0, np.tile([230.0, 55.0], len(on))))
    model = SensorModel(0.02, 0.003, window_s=0.01, noise_w=0.3)
    t, watts = shown(model, load, 0.5, 12.0)
    response = Response(0.02, 0.01, noise_w=0.3)
    found = region_energy(t, watts, response, start_s=2.0, end_s=10.0, load=LoadIntervals(on, on + 0.02 / 3.0))
    assert found.method == "load-informed"
    assert found.low <= between(load, 2.0, 10.0) <= found.high


def test_windows_of_a_recorded_square_wave_hold_the_meter_with_the_kernel_that_a_step_gave(recordings: Path) -> None:
    folder = recordings / "rtx3090-squarewave"
    stamps = read_stamps(folder / "timestamps.csv")
    edges, on, off = stamps[:-1], stamps[:-1:2], stamps[1:-1:2]
    polls, watts = read_log(folder / "gpudata.csv.gz", "power.draw.instant [W]")
    updates = update_series(polls - 3600.0, watts, estimate_updates(polls - 3600.0, watts))
    meter = PowerTrace.from_samples(*read_pmd(folder))
    meter = meter.shifted(
        correlogram(meter, PowerTrace.of_load(LoadIntervals.switched(edges, stamps[-1])), step_s=2e-3).best(2.0)
    )
    meter = fit_clock(meter, on, off).on_host(meter)
    # Window, gradient and intercept as characterised from the step of this card, in another session.
    sensor = Response(0.09997, 0.1023, 0.0, -0.0023, 0.9501, -0.27, 0.0026, 0.64, 0.0011, 0.0, 0.3)
    for length in (1.0, 2.0, 4.0, 7.5):
        for start in np.arange(edges[0] + 0.2, edges[-1] - length, 0.4):
            ends = np.interp([start, start + length], meter.t_s, meter.joules)
            found = region_energy(
                updates.t_s, updates.watts, sensor, start_s=start, end_s=start + length, load=LoadIntervals(on, off)
            )
            assert found.low <= ends[1] - ends[0] <= found.high
            assert found.joules == pytest.approx(ends[1] - ends[0], rel=0.015)


def test_a_window_wider_than_all_readings_is_no_singular_matter() -> None:
    # Nine readings of a mean over a second, every 0.1 s: each step moves more readings than there are.
    t = np.arange(1, 10) * 0.1
    wide = Response(0.1, window_s=1.0, noise_w=0.1)
    found = region_energy(np.asarray(t, np.float64), np.full(9, 60.0), wide, start_s=0.0, end_s=0.9)
    assert found.joules == pytest.approx(54.0, rel=0.01)


def test_a_register_of_whole_watts_on_a_steady_power_is_off_by_less_than_is_said() -> None:
    t = 0.05 * np.arange(400.0)
    held = []
    for watts in np.linspace(70.0, 71.0, 21):
        readings = np.round(watts + 0.05 * np.random.default_rng(3).standard_normal(400))
        found = region_energy(t, readings, Response(0.05, 0.05, noise_w=0.05, step_w=1.0), start_s=2.0, end_s=18.0)
        held.append(found.low <= 16.0 * watts <= found.high)
        assert found.high - found.low < 2.0 * 1.96 * 16.0 * 0.35  # of a rectangle of one watt, and of the noise
    assert all(held)


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("tau", [0.04, 0.1, 0.2])
def test_what_a_one_pole_may_be_shown_by_a_load_exactly_in_step_holds_the_truth(tau: float, phase: float) -> None:
    # A power of 60 and 240 W with the period of the updates: all readings after the first seconds are one number.
    t, kept = 0.1 * np.arange(80.0) + 0.1 * phase, math.exp(-0.05 / tau)
    at_rise = 60.0 + 180.0 * (1.0 - kept) * kept / (1.0 - kept * kept)  # what it shows when the load goes on
    at_fall = 240.0 + (at_rise - 240.0) * kept
    on = phase < 0.5
    level = 240.0 if on else 60.0
    steady = level + ((at_rise if on else at_fall) - level) * math.exp(-0.1 * (phase % 0.5) / tau)
    found = region_energy(t, np.full(80, steady), Response(0.1, 0.0, tau, noise_w=0.1), start_s=2.0, end_s=6.0)
    assert found.aliased[0] <= 4.0 * 150.0 <= found.aliased[1]


@pytest.mark.parametrize(("window", "tau"), [(0.1, 0.0), (1.0, 0.0), (0.0, 0.25)])
def test_a_load_in_step_is_warned_of_though_the_sensor_sees_all_the_time_and_no_rest(window: float, tau: float) -> None:
    # Two levels in each period, of which all readings show the mean alone; the region holds 3.5 periods.
    on = np.arange(0.0, 20.0, 0.1)
    load = Table(np.stack([on, on + 0.05], axis=1).ravel(), np.tile([240.0, 60.0], len(on)))
    t, watts = shown(SensorModel(0.1, 0.03, window_s=window, tau_s=tau, noise_w=0.1), load, 4.0, 18.0)
    found = region_energy(t, watts, Response(0.1, window, tau, noise_w=0.1), start_s=10.0, end_s=10.35)
    assert not found.low <= between(load, 10.0, 10.35) <= found.high  # 7 % off
    assert found.aliased[0] <= between(load, 10.0, 10.35) <= found.aliased[1]
    assert "can alias" in found.warnings[-1]


def test_a_region_that_begins_and_ends_with_bursts_shorter_than_the_readings_is_in_one_of_the_two_intervals() -> None:
    held, either = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        starts = np.concatenate([at + np.cumsum(rng.uniform(0.03, 0.1, 6)) for at in np.arange(1.0, 9.0, 1.3)])
        ends = np.minimum(starts + rng.uniform(0.015, 0.06, len(starts)), np.append(starts[1:], 10.0) - 0.01)
        edges = np.append(0.0, np.stack([starts, ends], axis=1).ravel())
        load = Table(edges, np.append(60.0, np.tile([230.0, 60.0], len(starts))))
        t, watts = shown(SensorModel(0.1, rng.uniform(0.0, 0.1), window_s=0.1, noise_w=0.3, seed=seed), load, 0.5, 9.9)
        first = int(rng.integers(6, 30))
        start, end = float(starts[first]), float(ends[first + int(rng.integers(1, 8))])
        found = region_energy(t, watts, Response(0.1, 0.1, noise_w=0.3), start_s=start, end_s=end)
        true = between(load, start, end)
        held.append(found.low <= true <= found.high)
        either.append(found.aliased[0] <= true <= found.aliased[1])
    # 0.62 if the scatter of the rests beside them counts; 0.3 without the part for a load that is ahead of its mean
    assert np.mean(held) >= 0.7
    assert np.mean(either) >= 0.9


@pytest.mark.parametrize("window", [0.1, 1.0], ids=["full", "mean of 1 s"])
def test_a_region_that_begins_and_ends_with_the_work_of_a_fast_load_is_in_the_interval(window: float) -> None:
    # Such a load is ahead of its mean at both ends, 2.4 times as much as one that is cut anywhere.
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        period, duty = float(np.exp(rng.uniform(np.log(0.13), np.log(0.4)))), float(rng.uniform(0.2, 0.8))
        on = 0.2 + np.cumsum(period * np.maximum(0.3, 1.0 + 0.05 * rng.standard_normal(int(12.0 / period))))
        off = on + 0.7 * duty * period
        edges = np.stack([on, off], axis=1).ravel()
        load = Table(np.append(0.0, edges), np.append(50.0, np.tile([250.0, 50.0], len(on))))
        last = min(float(off[-1]), 11.0)
        model = SensorModel(0.1, float(rng.uniform(0.0, 0.1)), window_s=window, noise_w=0.1, seed=seed)
        t, watts = shown(model, load, 1.2, last)
        first, many = int(np.searchsorted(on, 4.0)), float(np.exp(rng.uniform(np.log(0.2), np.log(4.0))))
        start, end = float(on[first]), float(off[first + int(many / period)])
        found = region_energy(t, watts, Response(0.1, window, noise_w=0.1), start_s=start, end_s=end)
        held.append(found.low <= between(load, start, end) <= found.high)
    assert np.mean(held) >= 0.9  # 0.77 and 0.68 by the swing that readings show alone


@pytest.mark.parametrize(
    ("response", "narrower"),
    [(Response(0.1, 0.025, noise_w=0.3), 0.6), (Response(0.1, 1.0, noise_w=0.1), 0.8), (Response(0.1, 0.0, 0.25), 0.9)],
    ids=["part-time", "mean of 1 s", "one-pole"],
)
def test_the_worst_case_of_a_load_of_known_period_holds_and_is_narrower(response: Response, narrower: float) -> None:
    held, width = [], []
    for seed in range(24):  # at and near multiples of the readings' period, and of half of it
        rng = np.random.default_rng(seed)
        period = 0.1 * float(rng.choice([1.5, 2.5, 3.0, 4.0, 7.0])) * (1.0 + float(rng.choice([0.0, 0.003, 0.02])))
        on = np.append(1.0, np.arange(5.0 + rng.uniform(0.0, period), 15.0, period))
        off = np.append(4.0, on[1:] + rng.uniform(0.3, 0.7) * period)  # both levels were shown before
        edges = np.append(0.0, np.stack([on, off], axis=1).ravel())
        load = Table(edges, np.append(60.0, np.tile([230.0, 60.0], len(on))))
        model = SensorModel(
            0.1, float(rng.uniform(0.0, 0.1)), 0.0, response.window_s, response.tau_s, noise_w=0.1, seed=seed
        )
        t, watts = shown(model, load, 2.0, 14.5)
        start, end = float(on[np.searchsorted(on, 7.0)]), float(rng.uniform(8.0, 12.0))
        any_period, known = (
            region_energy(t, watts, response, start_s=start, end_s=end, load_period_s=told)
            for told in (None, (0.99 * period, 1.01 * period))
        )
        held.append(known.aliased[0] <= between(load, start, end) <= known.aliased[1])
        width.append(np.diff(known.aliased)[0] / np.diff(any_period.aliased)[0])
    assert np.mean(held) >= 0.95
    assert np.median(width) < narrower


@pytest.mark.parametrize("periods", [0.5, 1.0, 2.0, 3.0, 2.04])
@pytest.mark.parametrize("window", [0.025, 0.1])
@pytest.mark.parametrize("before", [True, False], ids=["top shown", "top not shown"])
def test_where_the_top_of_a_load_of_known_period_may_never_have_been_shown_it_is_said(
    periods: float, window: float, *, before: bool
) -> None:
    held, said = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        period = 0.1 * periods
        on = np.arange(5.0 + rng.uniform(0.0, period), 15.0, period)
        off = on + rng.uniform(0.15, 0.7) * period
        if before:  # three seconds at full load
            on, off = np.append(1.0, on), np.append(4.0, off)
        edges = np.append(0.0, np.stack([on, off], axis=1).ravel())
        load = Table(edges, np.append(60.0, np.tile([230.0, 60.0], len(on))))
        t, watts = shown(
            SensorModel(0.1, float(rng.uniform(0.0, 0.1)), 0.0, window, noise_w=0.1, seed=seed), load, 2, 14
        )
        start, end = float(on[np.searchsorted(on, 7.0)]), float(rng.uniform(8.0, 12.0))
        response, told = Response(0.1, window, noise_w=0.1), (0.999 * period, 1.001 * period)
        found = region_energy(t, watts, response, start_s=start, end_s=end, load_period_s=told)
        held.append(found.aliased[0] <= between(load, start, end) <= found.aliased[1])
        said.append(any("never its highest power" in warning for warning in found.warnings))
    # A sensor that sees all of the time, phases that slide, and a top that was shown leave nothing to be said.
    if window == 0.1 or periods == 2.04 or before:
        assert np.mean(said) <= 0.1
        assert np.mean(held) >= 0.9
    else:
        assert np.mean(np.logical_or(held, said)) >= 0.9  # 47 % of those in step missed without a word


def test_an_energy_that_is_hardly_known_since_updates_are_missing_blames_no_load() -> None:
    on = np.cumsum(np.random.default_rng(7).uniform(0.1, 0.4, 40)) + 1.0  # in all phases
    load = Table(np.append(0.0, np.stack([on, on + 0.05], axis=1).ravel()), np.append(60, np.tile([230, 60], len(on))))
    t, watts = shown(SensorModel(0.1, 0.04, window_s=0.1, noise_w=0.3), load, 0.5, 11.0)
    seen = (t < 4.0) | (t > 5.2)
    found = region_energy(
        t[seen], watts[seen], Response(0.1, 0.1, noise_w=0.3), start_s=4.3, end_s=4.8, load=LoadIntervals(on, on + 0.05)
    )
    assert found.low <= between(load, 4.3, 4.8) <= found.high
    assert found.high - found.joules > 0.04 * found.joules
    assert any("no update" in warning for warning in found.warnings)
    assert not any("too few phases" in warning for warning in found.warnings)


def test_stamps_that_scatter_are_not_taken_for_phases_of_a_load_in_step() -> None:
    # Two blocks in each period of the readings, on 3 ms of 10: each reading shows the same share, and not the rise.
    for seed in range(3):
        rng = np.random.default_rng(seed)
        on = np.arange(1.0, 6.0, 0.01)
        load = Table(
            np.append(0.0, np.stack([on, on + 0.003], axis=1).ravel()), np.append(60, np.tile([230, 60], len(on)))
        )
        t, watts = shown(SensorModel(0.02, 0.004, window_s=0.009, noise_w=0.3, seed=seed), load, 1.2, 5.9)
        stamps = LoadIntervals(on - rng.uniform(0.0, 3e-4, len(on)), on + 0.003 + rng.uniform(0.0, 7e-4, len(on)))
        found = region_energy(t, watts, Response(0.02, 0.009, noise_w=0.3), start_s=2.0, end_s=5.0, load=stamps)
        assert found.low <= between(load, 2.0, 5.0) <= found.high
        assert any("too few phases" in why for why in found.warnings)


@pytest.mark.parametrize(("window", "tau"), [(0.7, 0.0), (0.0, 0.25)])
def test_stamps_that_scatter_make_a_load_that_slides_through_the_phases_no_surer(window: float, tau: float) -> None:
    held, errors, period = [], [], 0.03
    for seed in range(12):
        rng = np.random.default_rng(seed)
        on = np.arange(1.0, 4.6, 0.5005 * period)
        off = on + 0.21 * period
        load = Table(np.append(0.0, np.stack([on, off], axis=1).ravel()), np.append(60, np.tile([230, 60], len(on))))
        model = SensorModel(period, rng.uniform(0, period), 0.0, window * period, tau * period, noise_w=0.3, seed=seed)
        t, watts = shown(model, load, 0.2, 5.0)
        response = Response(period, window * period, tau * period, noise_w=0.3)
        stamps = LoadIntervals(on - rng.uniform(0.0, 3e-4, len(on)), off + rng.uniform(0.0, 7e-4, len(on)))
        found = region_energy(t, watts, response, start_s=1.3, end_s=4.2, load=stamps)
        held.append(found.low <= between(load, 1.3, 4.2) <= found.high)
        errors.append(found.joules / between(load, 1.3, 4.2) - 1.0)
    assert np.mean(held) >= 0.9
    assert np.sqrt(np.mean(np.square(errors))) < 0.035  # 0.054 where what stamps scatter by draws the rise to nothing


@pytest.mark.parametrize(
    "response",
    [
        Response(0.1, 1.0, 0.0, noise_w=0.1),
        Response(0.1, 0.1, 0.0, noise_w=0.3),
        Response(0.1, 0.0, 0.3, noise_w=0.3),
        Response(0.1012, 0.0, 0.0125, noise_w=0.3),
    ],
    ids=["mean of 1 s", "full", "one-pole", "part-time"],
)
def test_what_ran_where_nothing_was_stamped_does_not_pass_for_rest(response: Response) -> None:
    # Only what ran from 10 s to the end is known; before and after, the load was on all the time, or went on as it was.
    rng, t, held = np.random.default_rng(5), np.arange(0.05, 20.0, response.period_s), []
    for i in range(20):
        start, end = 10.0, 10.0 + float(np.exp(rng.uniform(np.log(0.3), np.log(4.0))))
        period, duty = float(np.exp(rng.uniform(np.log(0.05), np.log(0.8)))), float(rng.uniform(0.2, 0.8))
        on = np.arange(start, end, period)
        off = np.minimum(on + duty * period, end)
        before = np.arange(start - 8.0, start - period, period) if i % 2 else np.array([0.0])
        after = np.arange(end + 0.1, end + 6.0, period) if i % 2 else np.array([end])
        lasts = duty * period if i % 2 else 10.0
        ran = LoadIntervals(
            np.concatenate([before, on, after]), np.concatenate([np.minimum(before + lasts, start), off, after + lasts])
        )
        rise = float(rng.uniform(50.0, 300.0))
        watts = 60.0 + rise * response.shown(ran, t) + response.noise_w * rng.standard_normal(len(t))
        near, known = (t > 5.0) & (t < end + 2.5), LoadIntervals(on, off, np.array([[start, end]]))
        found = region_energy(t[near], watts[near], response, start_s=start, end_s=end, load=known)
        assert found.method == "load-informed"
        held.append(found.low <= 60.0 * (end - start) + rise * known.share(start, end) <= found.high)
    assert np.mean(held) >= 0.95


def test_a_rest_where_nothing_was_stamped_is_learnt_from_the_readings() -> None:
    # Were it anything up to the highest reading, whatever the readings say, the interval would be +- 5 %.
    response, on = Response(0.1, 1.0, 0.0, noise_w=0.1), np.arange(10.0, 11.0, 0.23)
    load, t = LoadIntervals(on, on + 0.1, np.array([[10.0, 11.1]])), np.arange(5.05, 14.0, 0.1)
    watts = 60.0 + 150.0 * response.shown(load, t) + 0.1 * np.random.default_rng(1).standard_normal(len(t))
    found = region_energy(t, watts, response, start_s=10.0, end_s=11.0, load=load)
    assert found.low <= 60.0 + 150.0 * load.share(10.0, 11.0) <= found.high
    assert found.high - found.low < 2.0 * 0.02 * found.joules


def test_a_region_that_is_known_in_part_only_is_not_informed() -> None:
    response, load = Response(0.1, 0.1, 0.0, noise_w=0.3), LoadIntervals(np.array([4.0]), np.array([5.0]))
    t = np.arange(0.05, 10.0, 0.1)
    watts = 60.0 + 100.0 * response.shown(load, t)
    for known, method in (([3.0, 6.0], "load-informed"), ([4.5, 9.0], "reconstruction")):
        part = LoadIntervals(load.on_s, load.off_s, np.array([known]))
        assert region_energy(t, watts, response, start_s=4.0, end_s=5.0, load=part).method == method
