"""Live regions corrected by what recordings get: windows undone, loads known by the program's own stamps."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pmtpy.core.rows import Floats
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import acquisition_of
from tests.support.uncertainty.stamped import A100, AVERAGE, FULL, Gpu, Outcome, measure, square

SQUARE = square(0.104, 0.5, 36.0)  # beats with a period of 101.2 ms once in 3.8 s


def root_mean_square(found: list[Outcome]) -> float:
    return float(np.sqrt(np.mean([o.off**2 for o in found])))


def regions(length: float, count: int, seed: int = 1) -> list[tuple[float, float]]:
    return [(float(a), float(a) + length) for a in np.random.default_rng(seed).uniform(1.0, 30.0, count)]


def test_stamps_undo_the_aliasing_of_a_part_time_sensor() -> None:
    # Demand for a periodic load at 25 % coverage over 4 s, as for recordings: bias 0.5 %, standard deviation 0.3 %.
    blind = measure(A100, SQUARE, (65.0, 193.0), regions(4.0, 15), stamped=False)
    told = measure(A100, SQUARE, (65.0, 193.0), regions(4.0, 15), stamped=True)
    assert {o.measured.method for o in told} == {"integrated, load-informed"}
    assert root_mean_square(told) < 0.003 < root_mean_square(blind) / 5
    assert np.mean([o.held for o in told]) >= 0.9
    assert not any("can alias" in w for o in told for w in o.measured.warnings)
    assert all(any("can alias" in w for w in o.measured.warnings) for o in blind)


def test_a_region_too_short_to_tell_the_levels_says_so_and_is_as_uncertain() -> None:
    short = measure(A100, SQUARE, (65.0, 193.0), regions(0.8, 20), stamped=True)
    assert {o.measured.method for o in short} == {"integrated, load-informed"}
    assert np.mean([o.held for o in short]) >= 0.9
    unsure = [o for o in short if o.measured.uncertainty_joules > 0.05 * o.measured.joules]
    assert unsure  # some see one phase of it only
    assert all(any("too few phases" in w for w in o.measured.warnings) for o in unsure)


def test_what_ran_before_the_region_does_not_pass_for_idle() -> None:
    # Ten updates tell the levels of 1.1 s; those around would, if the time before the first stamp were taken for idle.
    found = measure(A100, SQUARE, (65.0, 193.0), regions(1.3, 20), stamped=True)
    assert np.mean([o.held for o in found]) >= 0.9


def test_regions_of_a_loop_learn_from_each_other() -> None:
    # Half a second shows a quarter-covered sensor too few phases of the load; all steps of the loop show it enough.
    steps = [(4.0 + 0.5005 * i, 4.5 + 0.5005 * i) for i in range(24)]
    alone = [measure(A100, SQUARE, (65.0, 193.0), [step], stamped=True, later=True)[0] for step in steps[8::4]]
    loop = measure(A100, SQUARE, (65.0, 193.0), steps, stamped=True, later=True)[8:]
    assert all(o.held for o in loop)
    assert root_mean_square(loop) < 0.01 < root_mean_square(alone) / 5
    assert np.median([o.measured.uncertainty_joules / o.true_joules for o in loop]) < 0.02


def test_a_region_that_is_the_load_begins_where_it_does() -> None:
    work = np.array([[4.0 + 5.0 * i + 0.037 * i, 5.3 + 5.0 * i + 0.037 * i] for i in range(6)])
    exact = [(float(a), float(b)) for a, b in work]
    told = measure(A100, work, (60.0, 250.0), exact, stamped=True, later=True)
    assert {o.measured.method for o in told} == {"integrated, load-informed"}
    blind = measure(A100, work, (60.0, 250.0), exact, stamped=False, later=True)
    assert root_mean_square(told) < 0.6 * root_mean_square(blind)
    assert all(o.held for o in told)


def random_regions(on: Floats, rng: np.random.Generator, count: int) -> list[tuple[float, float]]:
    chosen = []
    for _ in range(count):
        length = float(np.exp(rng.uniform(np.log(0.2), np.log(6.0))))
        start = float(rng.uniform(1.0, 19.0 - length))
        end = start + length
        if rng.random() < 0.5:  # the work itself
            start = float(on[np.argmin(abs(on[:, 0] - start)), 0])
            last = float(on[np.argmin(abs(on[:, 1] - end)), 1])
            end = last if last > start + 0.1 else start + length
        chosen.append((start, end))
    return chosen


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("gpu", [A100, FULL, AVERAGE], ids=["part-time", "full", "average"])
def test_intervals_of_stamped_regions_hold_over_loads_and_lengths(gpu: Gpu, *, later: bool) -> None:
    found: list[Outcome] = []
    for seed in range(6):  # a small sample: benchmarks/bench_uncertainty.py has the large one
        rng = np.random.default_rng(seed)
        period = float(np.exp(rng.uniform(np.log(0.05), np.log(5.0))))
        on = square(period, rng.uniform(0.2, 0.8), 22.0, 0.05, seed)
        low = float(rng.uniform(20, 80))
        levels = (low, low + float(rng.uniform(20, 350)))
        found += measure(gpu, on, levels, random_regions(on, rng, 10), stamped=True, later=later, seed=seed)
    assert np.mean([o.held for o in found]) >= 0.95, Counter(o.measured.method for o in found)


def test_a_profile_whose_window_is_off_by_what_it_states_holds_the_truth() -> None:
    found: list[Outcome] = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        window_s = 1.0 + 0.005 * float(rng.standard_normal())
        lag_u = math.hypot(0.005 / 2.0, AVERAGE.how.delay_u)
        gpu = replace(AVERAGE, how=replace(AVERAGE.how, window_s=window_s, window_u=0.005, lag_u=lag_u))
        on = square(float(rng.uniform(1.0, 6.0)), rng.uniform(0.2, 0.8), 22.0, 0.2, seed)
        found += measure(gpu, on, (50.0, 250.0), random_regions(on, rng, 8), stamped=False, seed=seed)
    assert {o.measured.method for o in found} == {"integrated, reconstruction"}
    assert 0.9 <= np.mean([o.held for o in found]) <= 1.0


@pytest.mark.parametrize("poll_s", [0.05, 0.0973, 0.13], ids=["in step", "at its own pace", "seldom"])
def test_stamps_tell_of_readings_of_unknown_instants(poll_s: float) -> None:
    # Rows that are stamped when they are read, some time after the register was renewed: nothing but the load tells it.
    gpu = replace(A100, options={"profile": "k40m", "period_ms": 100, "tau_ms": 12.5, "gain": 1.0, "offset_w": 0.0})
    gpu = replace(gpu, how=replace(gpu.how, period_s=0.1, period_u=1e-6))
    regions = [(8.0, 12.0), (13.0, 14.0)]
    found = measure(gpu, SQUARE, (65.0, 193.0), regions, stamped=True, poll_s=poll_s)
    assert {o.measured.method for o in found} == {"integrated, load-informed"}
    assert all(o.held for o in found)
    assert found[0].off == pytest.approx(0.0, abs=0.015)


def test_a_load_in_step_is_known_no_better_than_the_instants_of_its_readings() -> None:
    """All readings see one phase of it; how much of that is load turns on milliseconds that no poll tells."""
    gpu = replace(A100, options={"profile": "k40m", "period_ms": 100, "tau_ms": 12.5, "gain": 1.0, "offset_w": 0.0})
    gpu = replace(gpu, how=replace(gpu.how, period_s=0.1, period_u=1e-6))
    for duty in (0.3, 0.5):
        on = square(0.1, duty, 22.0)
        for poll_s in (0.025, 0.05, 0.1):
            found = measure(gpu, on, (65.0, 193.0), [(4.0, 4.5), (8.0, 12.0)], stamped=True, poll_s=poll_s)
            assert all(o.held for o in found), (duty, poll_s)


def test_a_region_is_settled_when_a_window_has_passed_and_then_stays_as_it_is() -> None:
    seen: list[tuple[float, float, bool]] = []

    def look(region: Region) -> None:
        (sensor,) = region.sensors
        for _ in range(50):
            acquisition_of(sensor).clock.advance(0.05)  # type: ignore[attr-defined]
            acquisition_of(sensor).step()
            m = region["nvml"].channels["gpu.average"]
            seen.append((acquisition_of(sensor).clock.now_ns() / 1e9, m.joules, m.settled))

    work = np.array([[3.0, 6.0]])
    (found,) = measure(AVERAGE, work, (50.0, 250.0), [(3.0, 6.0)], stamped=False, each=look)
    settled = [joules for _, joules, done in seen if done]
    first = next(t for t, _, done in seen if done) - (seen[0][0] - 0.05)
    assert 2.0 < first < 2.4  # twice the window and two periods
    assert len(set(settled)) == 1
    assert found.measured.joules == pytest.approx(750.0, abs=2.0)
    assert found.held


def test_a_long_region_costs_no_more_than_its_ends() -> None:
    on = square(0.8, 0.4, 60.0, 0.3, 3)
    (found,) = measure(AVERAGE, on, (50.0, 250.0), [(5.0, 55.0)], stamped=False, later=True)
    assert found.measured.method == "integrated, reconstruction"
    assert found.held
    assert abs(found.off) < 0.005
