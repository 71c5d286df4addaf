"""Each part of an uncertainty against its closed form, and the whole against simulated truths."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.analysis.signal.estimate import Z95, student_95
from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, repeated, sum_budgets, uncertainty_budget
from pmtpy.analysis.uncertainty.in_step import in_step_with
from pmtpy.analysis.uncertainty.interval import Edge, Interval, IntervalStatistics
from pmtpy.analysis.uncertainty.interval_statistics import lag_corrected, summarise
from pmtpy.core.channel import Channel, EnergyMethod, Quantity
from pmtpy.core.response import UNKNOWN, Number, Response
from pmtpy.core.rows import Floats
from tests.support.uncertainty.one import summarise_one
from tests.support.uncertainty.worlds import random_trial

POWER = Channel("gpu", Quantity.POWER, resolution=0.0, refresh_s=0.1, window_s=0.1)
COUNTER = Channel("package", Quantity.ENERGY, resolution=0.0, refresh_s=0.001)
QUIET = IntervalStatistics(seconds=10.0, joules=1000.0, rows=100)


def part(channel: Channel, statistics: IntervalStatistics, name: str) -> float:
    return dict(uncertainty_budget(channel, statistics).components).get(name, 0.0)


def test_a_steady_load_on_a_perfect_sensor_is_as_certain_as_what_a_window_hides_at_the_ends() -> None:
    judged = uncertainty_budget(POWER, QUIET._replace(seconds=1000.0, joules=1e5))
    assert dict(judged.components) == pytest.approx({"edges": math.sqrt(2.0) * 0.067 * 100.0 * 0.1})
    assert not judged.warnings
    momentary = uncertainty_budget(POWER.timed(window_s=0.0), QUIET._replace(seconds=1000.0, joules=1e5))
    assert "edges" not in dict(momentary.components)


def test_a_wrong_gain_scales_with_the_energy_and_a_wrong_zero_with_the_time() -> None:
    channel = replace(POWER, gain_u=0.01, offset_u=0.5)
    judged = uncertainty_budget(channel, QUIET)
    assert judged.components[:2] == (("gain", 10.0), ("offset", 5.0))
    assert judged.uncertainty_joules == pytest.approx(math.hypot(10.0, 5.0, part(channel, QUIET, "edges")))


def test_a_wrong_zero_cancels_in_a_counter() -> None:
    assert part(replace(COUNTER, offset_u=5.0), QUIET, "offset") == 0.0


def test_a_counter_is_rounded_twice() -> None:
    assert part(replace(COUNTER, resolution=0.001), QUIET, "resolution") == pytest.approx(0.001 / math.sqrt(6))


def test_rounding_and_cutting_off_of_a_power_do_not_average() -> None:
    coarse = replace(POWER, resolution=1.0)
    one = 10 / math.sqrt(12)
    assert part(coarse, QUIET, "resolution") == pytest.approx(one * math.sqrt(2.5))
    calibrated = replace(coarse, offset_u=0.3)
    assert part(calibrated, QUIET, "resolution") == pytest.approx(one)


def test_noise_that_nobody_states_is_taken_from_the_smaller_changes() -> None:
    t_ns = np.arange(0, 10_000_000_000, 100_000_000)
    rng = np.random.default_rng(1)
    watts = np.where(t_ns < 5_000_000_000, 50.0, 250.0) + 0.5 * rng.standard_normal(len(t_ns))
    seen = summarise_one(POWER, t_ns, watts, start_ns=0, end_ns=int(t_ns[-1]), joules=1.0)
    assert seen.noise_watts == pytest.approx(0.5, rel=0.3)
    assert summarise_one(replace(POWER, noise=0.2), t_ns, watts, start_ns=0, end_ns=1, joules=1.0).noise_watts == 0.0
    assert part(POWER, seen, "noise") == pytest.approx(seen.noise_watts * seen.seconds / math.sqrt(99), rel=0.01)


def test_noise_averages_over_the_refreshes_however_often_they_are_polled() -> None:
    noisy = replace(POWER, noise=2.0)
    assert part(noisy, QUIET, "noise") == pytest.approx(2.0 * 10 / math.sqrt(100))
    assert part(noisy, QUIET._replace(rows=10_000), "noise") == pytest.approx(2.0)


def test_a_counter_read_at_the_edges_is_up_to_a_refresh_old() -> None:
    statistics = QUIET._replace(start=Edge(30.0, old_s=0.001), end=Edge(40.0, old_s=0.001))
    # The mean, 100 W, at an age that is uniform up to a refresh, and two thirds of it by which bursts are off it.
    each = 100.0 * 0.001 * math.sqrt(1 / 12 + 0.66**2 / 3)
    assert part(COUNTER, statistics, "edges") == pytest.approx(each * math.sqrt(2))
    t_ns = np.arange(0, 11) * 1_000_000
    seen = summarise_one(COUNTER, t_ns, np.linspace(30, 40, 11), start_ns=1_000_000, end_ns=9_000_000, joules=0.28)
    assert (seen.start.old_s, seen.end.old_s) == (0.001, 0.001)


def test_what_bursts_take_between_a_counters_move_and_its_reading_is_held() -> None:
    rng, n = np.random.default_rng(3), 4000
    low, more, duty = rng.uniform(20, 80, n), rng.uniform(20, 350, n), rng.uniform(0.1, 0.9, n)
    mean = low + more * duty
    missing = [(low + more * (rng.random(n) < duty)) * rng.uniform(0, 0.001, n) for _ in range(2)]  # at either edge
    off = abs(missing[0] - missing[1]) / mean
    aged = QUIET._replace(joules=10.0, start=Edge(1.0, old_s=0.001), end=Edge(1.0, old_s=0.001))  # a mean of 1 W
    u = part(COUNTER, aged, "edges")
    assert np.sqrt(np.mean(off**2)) == pytest.approx(u, rel=0.05)
    assert 0.92 <= np.mean(off <= 2.0 * u) <= 0.98


def test_a_counter_bridged_by_a_row_that_did_not_move_it_is_as_old_as_it_was() -> None:
    slow = COUNTER.timed(refresh_s=0.1)
    t_ns = np.array([0, 100, 101, 200, 202, 300, 303, 400]) * 1_000_000
    moved = np.array([True, True, False, True, False, True, False, True])
    watts = np.full(8, 50.0)
    both = summarise_one(slow, t_ns, watts, start_ns=150_000_000, end_ns=350_000_000, joules=10.0, moved=moved)
    assert (both.start.old_s, both.end.old_s) == (0.1, 0.1)
    clean = summarise_one(slow, t_ns[moved], watts[moved], start_ns=150_000_000, end_ns=350_000_000, joules=10.0)
    assert (clean.start.old_s, clean.end.old_s) == (0.0, 0.0)


def test_a_row_without_the_instant_of_renewal_may_show_what_was_so_a_poll_ago() -> None:
    slow, power = COUNTER.timed(refresh_s=0.1), POWER.timed(refresh_s=0.1, window_s=0.1)
    t_s = np.arange(-2.03, 4.0, 0.1)  # none at an end of the interval
    watts = np.array([np.full(len(t_s), 50.0), np.where(t_s < 1.0, 50.0, 250.0)])
    for aged_s, age_s in ((0.0, 0.0), (0.05, 0.05), (0.5, 0.1)):  # no older than a refresh
        counter, shown = summarise([slow, power], t_s, watts, Interval(2.01, [100.0, 300.0], [0.0, 0.0], aged_s=aged_s))
        assert (counter.start.old_s, counter.end.old_s) == (age_s, age_s)
        assert shown.clock_joules == pytest.approx(200.0 * age_s / math.sqrt(12))  # its mean is in the lag
    # Polls that turn out to be fewer than was asked for find a register that was renewed at any time since.
    t_s, found = t_s[::4], Interval(2.01, [300.0], [0.0], aged_s=0.02)
    (seldom,) = summarise([power], t_s, watts[1:, ::4], found)
    assert seldom.clock_joules == pytest.approx(
        summarise([power], t_s, watts[1:, ::4], found._replace(aged_s=0.1))[0].clock_joules
    )


def test_bursts_that_a_clock_leaps_over_count() -> None:
    # 100 W for 20 ms in each 100 ms, and times that are 0.1 s off: one burst later is no change, half a period is all.
    t_s, time_u_s = np.arange(-1.0, 1.0, 0.001), 0.1
    power = Channel("power", Quantity.POWER, refresh_s=0.001, window_s=0.001)
    watts = np.where((t_s + 0.0005) % 0.1 < 0.02, 100.0, 0.0)
    (seen,) = summarise([power], t_s, watts[None], Interval(0.02, [2.0], [0.0], time_u_s=time_u_s))
    assert seen.rows == 20
    # By a triangle of the phase: 2 J at 0, 0 J from 20 to 80 ms.
    by = np.random.default_rng(0).normal(0.0, time_u_s, 100_000) % 0.1
    changes = 2.0 - 2.0 * np.maximum(0.0, 1.0 - np.minimum(by, 0.1 - by) / 0.02)
    assert seen.clock_joules == pytest.approx(float(np.sqrt(np.mean(changes**2))), rel=0.2)


def test_a_steady_power_that_begins_with_the_region_changes_by_one_deviation() -> None:
    t_s, time_u_s = np.arange(-2.0, 4.0, 0.01), 0.1
    power = Channel("power", Quantity.POWER, refresh_s=0.01, window_s=0.01)
    watts = np.where(t_s < 0.0, 0.0, 100.0)
    (seen,) = summarise([power], t_s, watts[None], Interval(1.0, [100.0], [0.0], time_u_s=time_u_s))
    assert seen.clock_joules == pytest.approx(100.0 * time_u_s, rel=0.1)


def test_a_region_that_begins_before_the_second_row_of_a_counter_began_in_all_of_the_gap_between_the_two() -> None:
    """The first row has no power: how far it moved in the gap is told by the mean of the gap and by what came next."""
    t_s = np.array([-0.03, 0.05, 0.07, 0.16, 0.18, 0.20])
    watts = np.array([[math.nan, 200.0, 280.0, 140.0, 250.0, 210.0]])
    (seen,) = summarise([COUNTER], t_s, watts, Interval(0.19, [38.0], [0.0]))
    assert seen.start.gap_s == pytest.approx(0.08)
    assert seen.start.peak_to_peak_watts == pytest.approx(140.0)
    assert part(COUNTER, seen, "edges") > 140.0 * 0.08 / math.sqrt(30.0)


def test_a_lag_that_is_stated_is_corrected_and_one_that_is_guessed_is_not() -> None:
    t_ns = np.arange(0, 4_000_000_000, 100_000_000)
    stepped = np.where(t_ns < 2_000_000_000, 50.0, 250.0)
    stated = POWER.timed(lag_s=0.5)
    shown = summarise_one(stated, t_ns, stepped, start_ns=10**9, end_ns=3 * 10**9, joules=600.0)
    corrected = lag_corrected(shown)
    assert corrected.joules == pytest.approx(600.0 + 200.0 * 0.5)
    assert part(stated, corrected, "lag") == pytest.approx(0.3 * 200.0 * 0.5)
    guessed = replace(POWER, response=UNKNOWN.but(0.1, None, None))
    shown = summarise_one(guessed, t_ns, stepped, start_ns=10**9, end_ns=3 * 10**9, joules=600.0)
    assert lag_corrected(shown) is shown
    assert part(guessed, shown, "lag") == pytest.approx(200.0 * 0.05)


@pytest.mark.parametrize(("true_s", "stated_s"), [(0.1, 0.2), (0.2, 0.15), (0.2, 0.2), (0.2, None)])
def test_what_is_open_of_a_lag_counts_where_its_correction_happens_to_be_nothing(
    true_s: float, stated_s: float | None
) -> None:
    """The region is the block itself: 100 W for 1 s, shown later than it was."""
    t_s = np.arange(-3.0, 4.0, 0.001)
    watts = np.where((t_s >= true_s) & (t_s < 1.0 + true_s), 100.0, 0.0)
    power = POWER.timed(refresh_s=0.001, lag_s=stated_s)
    if stated_s is None:
        power = replace(POWER, response=UNKNOWN.but(2.0 * true_s, None, None))  # half the refresh, as a guess
    (seen,) = summarise([power], t_s, watts[None], Interval(1.0, [100.0 * (1.0 - true_s)], [0.0]))
    corrected = lag_corrected(seen)
    off = abs(100.0 - corrected.joules)
    assert off <= 2.0 * part(power, corrected, "lag") <= 2.1 * 100.0 * (0.3 * stated_s if stated_s else true_s)


@pytest.mark.parametrize(("polled_s", "first_only", "dated"), [
    (0.025, False, False),  # each poll is a row: a staircase
    (0.0999, False, False),
    (0.25, False, False),  # most renewals are never seen
    (0.025, True, False),  # the first poll that shows a renewal
    (0.025, True, True),  # the same at the instant of renewal
])  # fmt: skip
def test_rows_are_late_by_what_an_update_is_and_by_how_old_it_is_at_its_row(
    polled_s: float, *, first_only: bool, dated: bool
) -> None:
    """A step of 200 W within the region, at any phase of a register that shows the mean of its last 0.1 s."""
    rng, off, u = np.random.default_rng(5), [], []
    channel = POWER.timed(refresh_s=0.1, window_s=0.1)
    for _ in range(200):
        renewed = np.arange(-60, 90) * 0.1 + rng.uniform(0.0, 0.1)
        means = 50.0 + 200.0 * np.clip(renewed / 0.1, 0.0, 1.0)
        t = np.cumsum(rng.uniform(0.9, 1.1, round(12.0 / polled_s))) * polled_s - 4.0
        t = t[(t > renewed[0]) & (t < renewed[-1])]
        newest = np.searchsorted(renewed, t, "right") - 1
        if first_only:
            first = np.diff(newest, prepend=-1) > 0
            t, newest = t[first], newest[first]
        t = renewed[newest] if dated else t
        watts = means[newest]
        curve = np.concatenate([[0.0], np.cumsum(np.diff(t) * (watts[1:] + watts[:-1]) / 2.0)])
        begin, end = np.interp([-2.0, 3.0], t, curve)
        seen = summarise_one(
            channel, np.round(t * 1e9).astype(np.int64), watts, start_ns=-(2 * 10**9), end_ns=3 * 10**9,
            joules=float(end - begin), aged_s=0.0 if dated else polled_s,
        )  # fmt: skip
        corrected = lag_corrected(seen)
        off.append(corrected.joules - (50.0 * 5.0 + 200.0 * 3.0))
        u.append(uncertainty_budget(channel, corrected).uncertainty_joules)
    # 1 ms of 200 W; and three deviations of a mean of instants that are even over a poll, and over a renewal.
    assert abs(np.mean(off)) <= 0.2 + 3.0 * 200.0 * np.hypot(polled_s, 0.1) / np.sqrt(12.0 * 200.0)
    assert np.mean(np.abs(off) <= 2.0 * np.array(u)) >= 0.9


@pytest.mark.parametrize("delay_s", [None, 0.05])
@pytest.mark.parametrize("length_s", [0.2, 1.0, 5.0])
def test_a_low_pass_of_one_pole_is_corrected_exactly(length_s: float, delay_s: float | None) -> None:
    """The region is the work itself: 10 W before, 110 W inside, 10 W after, through a pole of 0.4 s."""
    tau, late = 0.4, delay_s or 0.0
    response = Response.stated("one-pole", tau_s=Number(tau), delay_s=None if delay_s is None else Number(delay_s))
    channel = replace(POWER, response=response.but(1e-3, None, None))
    t = np.arange(-3000, 12_000) * 1e-3
    rise, fall = (np.where(t > e, -np.expm1(-np.maximum(t - e, 0.0) / tau), 0.0) for e in (late, late + length_s))
    shown = 10.0 + 100.0 * (rise - fall)
    inside = (t >= 0.0) & (t <= length_s)
    joules = float(np.sum((shown[inside][1:] + shown[inside][:-1]) / 2 * np.diff(t[inside])))
    t_ns = np.rint(t * 1e9).astype(np.int64)
    seen = summarise_one(channel, t_ns, shown, start_ns=0, end_ns=round(length_s * 1e9), joules=joules)
    assert abs(joules - 110.0 * length_s) > 10.0
    assert lag_corrected(seen).joules == pytest.approx(110.0 * length_s, rel=1e-3)


def test_rows_whose_common_time_is_uncertain_say_what_a_shift_would_cost() -> None:
    t_s = np.arange(0, 4.0, 0.1) - 1.0
    stepped = np.where(t_s < 1.0, 50.0, 250.0)
    (seen,) = summarise([POWER], t_s, stepped[None], Interval(2.0, [300.0], [0.0], 0, 0.02))
    assert part(POWER, seen, "clock") == pytest.approx(200.0 * 0.02)


def test_an_interpolated_edge_is_as_uncertain_as_the_power_changes_there() -> None:
    joined = replace(POWER, method=EnergyMethod.MEAN)
    hidden = part(joined, QUIET, "edges")
    stepped = part(joined, QUIET._replace(start=Edge(0.0, 200.0, 0.1)), "edges")
    assert stepped == pytest.approx(math.hypot(hidden, 20 / math.sqrt(30)))


def test_lag_counts_only_if_the_power_differs_between_the_ends() -> None:
    t_ns = np.arange(0, 4_000_000_000, 100_000_000)
    stepped = np.where(t_ns < 2_000_000_000, 50.0, 250.0)

    def late(channel: Channel, watts: Floats) -> float:
        return summarise_one(channel, t_ns, watts, start_ns=10**9, end_ns=3 * 10**9, joules=1.0).late_joules

    assert late(POWER, stepped) == pytest.approx(200 * 0.05)
    assert late(POWER.timed(lag_s=0.5), stepped) == pytest.approx(200 * 0.5)
    assert late(replace(POWER, method=EnergyMethod.MEAN), stepped) == 0.0  # its windows are counted where they belong
    assert late(POWER, np.full(len(t_ns), 250.0)) == pytest.approx(0.0)
    assert part(POWER, QUIET._replace(late_joules=-10.0), "lag") == 10.0


def test_what_is_not_seen_between_windows_goes_by_how_the_readings_move() -> None:
    quarter = POWER.timed(window_s=0.025)
    lasting = QUIET._replace(rms_step_watts=100.0, sample_s=0.1, told=100, peak_watts=150.0, range_watts=(50.0, 150.0))
    assert part(quarter, lasting, "sampling") == pytest.approx(math.sqrt(0.75 * 100**2 / 12 * 100) * 0.1, rel=1e-4)
    # White noise: a difference has twice the variance of a reading, and is undone by the next one.
    white = lasting._replace(alternating_watts=100.0 / math.sqrt(2))
    assert part(quarter, white, "sampling") == pytest.approx(math.sqrt(0.75 * 100**2 / 2 * 100) * 0.1, rel=1e-4)
    assert part(POWER, white, "sampling") == 0.0
    assert part(POWER.timed(refresh_s=0.025, window_s=0.025), white, "sampling") > 0.0  # polled at a quarter
    assert "sees 25% of the time" in uncertainty_budget(quarter, lasting).warnings[0]
    assert (
        "covers an unknown part of the time"
        in uncertainty_budget(replace(POWER, response=UNKNOWN.but(0.1, None, None)), lasting).warnings[0]
    )


@pytest.mark.parametrize("looks", [1, 3, 10, 17, 18, 30])
def test_what_no_reading_of_an_interval_saw_may_have_been_there_as_likely_as_not(looks: int) -> None:
    """It ran for any share of the time, at any power; the more looks missed it, the shorter, and the less likely."""
    share, power = np.meshgrid((np.arange(2000) + 0.5) / 2000, (np.arange(200) + 0.5) / 200)
    missed = (1.0 - share) ** looks
    energy, at = np.unique(share * power, return_inverse=True)
    # Of as many cases without any, no look sees what is not there.
    chance = np.cumsum(np.bincount(at.ravel(), missed.ravel())[::-1])[::-1] / (missed.sum() + missed.size)
    bound = float(energy[chance > 0.05].max(initial=0.0))
    away = replace(POWER.timed(refresh_s=0.01, window_s=0.0), kept_watts=700.0)
    # Readings that show work, of 30 to 150 W around: it was as far off the mean as the power was seen to go.
    work = QUIET._replace(sample_s=10.0 / looks, told=looks, peak_watts=150.0, range_watts=(30.0, 150.0))
    assert part(away, work, "sampling") == pytest.approx(70.0 * 10.0 * bound / Z95, rel=0.02, abs=0.1)


def test_work_that_readings_of_a_part_at_rest_missed_is_bounded_by_its_limit() -> None:
    """A tenth of a second of bursts of 700 W, of which two readings at random saw none: 10.0 +- 0.5 J of 34."""
    away = POWER.timed(refresh_s=0.002, window_s=0.0)
    rest = QUIET._replace(
        seconds=0.1, joules=10.0, rows=2, told=2, sample_s=0.05, peak_watts=100.0, range_watts=(100.0, 100.0)
    )
    share = 0.2130 / Z95  # of two looks
    for limit_w, most in ((700.0, 700.0), (5000.0, 1000.0)):  # or ten times the rest: no part goes from less to more
        found = part(replace(away, kept_watts=limit_w), rest, "sampling")
        assert found == pytest.approx(share * (most - 100.0) * 0.1)
    work = rest._replace(peak_watts=300.0, range_watts=(100.0, 300.0))  # some is seen
    found = part(replace(away, kept_watts=700.0), work, "sampling")
    assert found == pytest.approx(share * (300.0 - 100.0) * 0.1)
    assert part(replace(away, kept_watts=700.0), rest._replace(told=50, sample_s=0.002), "sampling") == 0.0


def test_movement_is_that_of_the_interval_or_of_its_surroundings() -> None:
    t_ns = np.arange(0, 4_000_000_000, 100_000_000)
    restless = np.where(np.arange(40) % 2, 50.0, 250.0)
    seen = summarise_one(POWER, t_ns, restless, start_ns=2 * 10**9, end_ns=2_100_000_000, joules=15.0)
    assert seen.rms_step_watts == pytest.approx(200.0, rel=0.05)
    assert seen.alternating_watts == pytest.approx(200.0, rel=0.05)
    twice = np.repeat(restless, 2)  # polled twice in each refresh: the same readings
    polled = summarise_one(
        POWER, np.arange(0, 80) * 50_000_000, twice, start_ns=2 * 10**9, end_ns=2_100_000_000, joules=15.0
    )
    assert polled.rms_step_watts == pytest.approx(seen.rms_step_watts, rel=0.05)
    once = summarise_one(
        POWER, t_ns, np.where(t_ns < 2_050_000_000, 50.0, 250.0), start_ns=10**9, end_ns=3 * 10**9, joules=1
    )
    assert once.rms_step_watts == pytest.approx(200 / math.sqrt(21), rel=0.05)
    assert once.alternating_watts == 0.0


def test_the_end_that_no_row_has_reached_is_as_uncertain_as_the_power_moves() -> None:
    ahead = QUIET._replace(extrapolated_s=0.1, rms_step_watts=30.0, sample_s=0.1, told=100)
    assert part(replace(POWER, method=EnergyMethod.MEAN), ahead, "ahead") == pytest.approx(30 * 0.1)


@pytest.mark.parametrize(
    ("looks", "ahead_s", "cases"), [(0, 0.1, 2), (3, 0.1, 5), (3, 0.05, 9), (3, 0.4, 2), (8, 0.3, 4), (40, 0.1, 42)]
)
def test_what_may_have_begun_where_no_row_has_come_goes_by_how_long_that_is(
    looks: int, ahead_s: float, cases: int
) -> None:
    """Of n looks of 0.1 s that are alike: in k of n + 1 + k cases it begins in what the next k look at."""
    seconds = 0.1 * max(1, looks)
    rest = QUIET._replace(
        seconds=seconds, joules=50.0 * seconds, sample_s=0.1, told=looks, unseen_s=ahead_s,
        peak_watts=50.0, range_watts=(50.0, 50.0),
    )  # fmt: skip
    board = replace(POWER, max_watts=350.0)
    stated = 1.96 * part(board, rest, "ahead") / (300.0 * min(ahead_s, seconds))
    # Any share of that time at any power up to 300 W more, each evenly: their product exceeds q with 1 - q + q ln q.
    beyond = 1.0 - stated + stated * math.log(stated) if stated else 1.0
    assert beyond / cases == pytest.approx(0.05, rel=0.03) if cases < 20 else stated == 0.0


def test_far_beyond_the_rows_the_power_walks() -> None:
    mean = replace(POWER, method=EnergyMethod.MEAN)
    near = QUIET._replace(
        seconds=20.0,
        joules=2e3,
        extrapolated_s=0.25,
        rms_step_watts=1.5,
        sample_s=1e-3,
        range_watts=(0.0, 150.0),
        told=20000,
    )
    # A walk by steps of r: the integral over a has the variance r^2 a^3 / (3 D).
    assert part(mean.timed(refresh_s=1e-3), near, "ahead") == pytest.approx(1.5 * math.sqrt(0.25**3 / 3e-3))
    assert not uncertainty_budget(mean.timed(refresh_s=1e-3), near).warnings
    # No further than it was taken to go on: the rest is not covered.
    t_s, watts = np.linspace(-1.0, 1.0, 201), np.full((1, 201), 50.0)
    ends = [Interval(3.0, [65.0], [1.7], carry_s=0.3), Interval(1.2, [60.0], [0.0], carry_s=0.3)]
    seen = [summarise([POWER.timed(window_s=0.2)], t_s, watts, end)[0] for end in ends]
    assert [s.extrapolated_s for s in seen] == pytest.approx([0.3, 0.2])
    assert [s.unseen_s for s in seen] == pytest.approx([0.4, 0.3])


def test_what_a_wide_window_hides_shows_in_how_its_readings_bend() -> None:
    mean = POWER.timed(window_s=1.0)
    t = np.arange(0.0, 10.0, 0.1)
    sine = np.sin(2 * np.pi * 1.5 * t) * 0.2122 * 100 + 100  # 100 W at 1.5 Hz through a second
    seen = summarise_one(
        mean, np.round(t * 1e9).astype(np.int64), sine, start_ns=4 * 10**9, end_ns=6 * 10**9, joules=200.0
    )
    # The energy at an edge is off by up to 100 W / (2 pi 1.5 Hz).
    assert part(mean, seen, "edges") == pytest.approx(100 / (2 * np.pi * 1.5), rel=0.3)


@pytest.mark.parametrize("seconds", [0.03, 0.1, 0.4, 0.8, 1.5])
def test_what_a_window_shows_of_a_block_outside_of_it_is_within_its_interval(seconds: float) -> None:
    # The region is the block: of a mean of 1 s, counted back by half of it, most of a short one is before and after.
    start, held = 10.0, []
    channel = Channel("gpu", Quantity.POWER, refresh_s=0.1, window_s=1.0, lag_s=0.5, resolution=0.01, noise=0.1)
    for phase in np.arange(0.0, 0.1, 0.01):
        t = phase + np.arange(0.0, 25.0, 0.1)
        on = np.clip(t - start, 0.0, seconds) - np.clip(t - 1.0 - start, 0.0, seconds)
        watts = 50.0 + 200.0 * on
        joules = np.append(0.0, np.cumsum((watts[1:] + watts[:-1]) / 2.0 * np.diff(t)))
        ends = start, start + seconds
        found = float(np.diff(np.interp(np.array(ends), t, joules))[0])
        rows, (first, last) = np.round(t * 1e9).astype(np.int64), (round(at * 1e9) for at in ends)
        seen = summarise_one(channel, rows, watts, start_ns=first, end_ns=last, joules=found)
        seen = lag_corrected(seen)
        half = 1.96 * uncertainty_budget(channel, seen).uncertainty_joules
        held.append(abs(seen.joules - 250.0 * seconds) <= half)
    assert all(held)


def test_a_region_shorter_than_one_reading_says_so() -> None:
    judged = uncertainty_budget(POWER, QUIET._replace(seconds=0.05, joules=5.0, rows=0))
    # Between nothing and twice the mean of 100 W, for the three quarters that one reading would need more.
    assert dict(judged.components)["unresolved"] == pytest.approx(0.75 * 200 * 0.05 / math.sqrt(12))
    assert "the region of 50 ms is too short for this sensor, which refreshes every 100 ms" in judged.warnings[0]
    assert "averages over 100 ms" in judged.warnings[0]


def test_a_fast_sensor_whose_readings_came_late_is_not_said_to_be_too_slow() -> None:
    fast = POWER.timed(refresh_s=5e-5, window_s=5e-5)
    judged = uncertainty_budget(fast, QUIET._replace(seconds=1.5, joules=90.0, rows=30_000, clock_joules=12.0))
    (warning,) = judged.warnings
    assert "when they were taken is not known well enough: that leaves up to 27% of the energy" in warning
    assert "measure longer, or while the machine is less busy" in warning


def test_a_region_whose_edges_outweigh_it_says_so() -> None:
    sharp = Edge(50.0, 300.0, 0.1)
    judged = uncertainty_budget(POWER, QUIET._replace(seconds=0.3, joules=60.0, rows=3, start=sharp, end=sharp))
    assert "between its readings leaves" in judged.warnings[0]  # though it is longer than a reading
    lasting = QUIET._replace(seconds=1000.0, joules=1e5, start=sharp, end=sharp)
    assert not uncertainty_budget(POWER, lasting).warnings


def test_what_is_not_covered_is_missing_and_said() -> None:
    judged = uncertainty_budget(POWER, QUIET._replace(uncovered_s=2.0, joules=800.0, lost=20))
    assert dict(judged.components)["uncovered"] == pytest.approx(200.0)
    assert "no energy is known for 2 s of 10 s (20%)" in judged.warnings[0]
    assert "20 rows were lost" in judged.warnings[1]


def test_where_nothing_is_covered_the_uncertainty_is_the_limit_or_not_known() -> None:
    nothing = QUIET._replace(seconds=0.06, joules=0.0, rows=0, uncovered_s=0.06)
    assert math.isnan(uncertainty_budget(COUNTER, nothing).uncertainty_joules)
    limited = uncertainty_budget(replace(COUNTER, max_watts=300.0), nothing)
    assert limited.uncertainty_joules == pytest.approx(300 * 0.06 / math.sqrt(3))
    # A millisecond that a counter is covered for, and in which it did not move, tells nothing of the rest.
    moment = replace(COUNTER.timed(refresh_s=0.01), max_watts=300.0)
    hardly = QUIET._replace(seconds=4.0, joules=0.0, rows=200, sample_s=0.01, uncovered_s=3.999)
    assert part(moment, hardly, "uncovered") == pytest.approx(300 * 3.999 / math.sqrt(3))
    assert "no energy is known" in limited.warnings[0]


def test_a_counter_that_did_not_move_at_the_edges_of_a_short_region_is_unresolved() -> None:
    slow = replace(COUNTER.timed(refresh_s=0.1), max_watts=700.0)
    bridged = QUIET._replace(seconds=0.06, joules=1.8, rows=1, start=Edge(30.0, 0.0, 0.1), end=Edge(30.0, 0.0, 0.05))
    # anything from nothing to 42 J, as far as that is off 1.8 J
    assert part(slow, bridged, "unresolved") == pytest.approx(0.4 * math.hypot(42 / math.sqrt(12), 42 / 2 - 1.8))
    assert part(slow, bridged._replace(start=Edge(30.0), end=Edge(30.0)), "unresolved") == 0.0


def test_each_step_of_a_register_that_is_polled_is_misplaced_by_another_part_of_a_poll() -> None:
    """Steps of 10 W in each of ten samples, each seen up to 0.05 s after it happened."""
    seen = QUIET._replace(seconds=1.0, joules=30.0, rows=20, sample_s=0.1, rms_step_watts=10.0)
    polled = POWER.timed(refresh_s=0.1, window_s=0.1)
    assert part(polled, seen, "sampling") == 0.0  # its rows bear the instant of renewal
    assert part(polled, seen._replace(renewed_s=0.05), "sampling") == pytest.approx(
        10.0 * math.sqrt(10) * 0.05 / math.sqrt(12)
    )


def test_of_a_sensor_that_looks_away_an_interval_without_a_reading_has_told_nothing() -> None:
    """However long it is beside the usual time between readings: these came at random, further apart."""
    away = replace(POWER.timed(refresh_s=0.05, window_s=0.005), kept_watts=100.0)
    rest = QUIET._replace(seconds=0.06, joules=0.6, rows=0, sample_s=0.05)
    anything = math.hypot(6.0 / math.sqrt(12), 6.0 / 2 - 0.6)  # up to 100 W
    assert part(away, rest, "unresolved") == 0.0
    assert uncertainty_budget(away, rest._replace(told=0)).uncertainty_joules == pytest.approx(anything)
    apart = rest._replace(start=Edge(10.0, gap_s=0.095), end=Edge(10.0, gap_s=0.02))
    assert part(away, apart, "unresolved") == pytest.approx((1 - 0.06 / 0.1) * anything, rel=1e-4)


def test_lines_lose_energy_of_a_load_that_changes_at_both_ends_in_the_same_sense() -> None:
    """Readings of 10, then 110, then 10 W, with an end in each gap of 0.1 s, and 5 ms late."""
    away = POWER.timed(refresh_s=0.1, window_s=0.01)
    t_ns = np.array([-150, -50, 50, 150, 250, 350]) * 10**6
    watts = np.array([10.0, 10.0, 110.0, 110.0, 10.0, 10.0])
    seen = summarise_one(away, t_ns, watts, start_ns=0, end_ns=2 * 10**8, joules=19.5)
    lost = 100.0 * 0.045**2 / 0.2, 100.0 * 0.055**2 / 0.2  # of a step where the end is, a line shows so much beyond it
    assert (seen.start.lost_joules, seen.end.lost_joules) == pytest.approx(lost)
    quiet = QUIET._replace(sample_s=0.1)
    without, with_them = (
        part(away, each, "edges") for each in (quiet, quiet._replace(start=seen.start._replace(peak_to_peak_watts=0.0)))
    )
    assert math.sqrt(with_them**2 - without**2) == pytest.approx(0.9 * lost[0] / math.sqrt(3), rel=0.05)


def test_a_row_without_a_power_is_no_evidence() -> None:
    t_ns = np.array([0, 10**9, 2 * 10**9])
    seen = summarise_one(COUNTER, t_ns, np.array([math.nan, 50.0, 60.0]), start_ns=0, end_ns=2 * 10**9, joules=110.0)
    assert seen.rms_step_watts == pytest.approx(10.0)
    assert seen.peak_watts == 60.0


def test_lost_rows_that_were_bridged_cost_what_the_power_moved() -> None:
    judged = uncertainty_budget(POWER, QUIET._replace(lost=3, rms_step_watts=10.0))
    assert dict(judged.components)["lost"] == pytest.approx(10 * 0.1 * 3 / math.sqrt(12))


def test_nothing_known_at_all_gives_a_number_and_a_warning_not_a_crash() -> None:
    nothing = summarise_one(POWER, np.empty(0, np.int64), np.empty(0), start_ns=0, end_ns=0, joules=0.0)
    assert math.isfinite(uncertainty_budget(POWER, nothing).uncertainty_joules)
    assert uncertainty_budget(POWER, nothing).warnings


def test_evidence_is_read_off_the_rows_around_the_edges() -> None:
    t_ns = np.arange(0, 2_000_000_000, 100_000_000)
    watts = np.where(t_ns < 950_000_000, 50.0, 250.0)
    seen = summarise_one(POWER, t_ns, watts, start_ns=950_000_000, end_ns=1_700_000_000, joules=180.0)
    assert (seen.seconds, seen.rows, seen.peak_watts) == (0.75, 8, 250.0)
    assert (seen.start.peak_to_peak_watts, seen.start.gap_s) == (200.0, 0.1)
    assert (seen.end.peak_to_peak_watts, seen.end.gap_s, seen.end.watts) == (0.0, 0.0, 250.0)
    beyond = summarise_one(POWER, t_ns, watts, start_ns=950_000_000, end_ns=2_150_000_000, joules=180.0)
    assert beyond.end.gap_s == pytest.approx(0.25)


@pytest.mark.parametrize("limit_w", [700.0, None])
@pytest.mark.parametrize(
    ("seconds", "hole_s", "per_watt_s"),
    [
        (0.8, 0.6, None),  # most of it was not seen: the rest does not tell
        (2.0, 0.6, 0.6),
        (0.8, 0.25, 0.0),  # one reading was skipped, and part of a second
        (8.0, 0.6, 0.0),  # a busy machine, of which much is seen
        (8.0, 1.5, 1.5),
    ],
)
def test_a_hole_counts_where_it_is_a_good_part_of_the_interval(
    seconds: float, hole_s: float, per_watt_s: float | None, limit_w: float | None
) -> None:
    channel = replace(POWER.timed(window_s=0.0), max_watts=limit_w)
    t_s = 0.05 + np.concatenate((np.arange(-100, 1) * 0.1, hole_s + np.arange(200) * 0.1))
    t_ns, watts = np.rint(t_s * 1e9).astype(np.int64), np.full(len(t_s), 60.0)
    seen = summarise_one(channel, t_ns, watts, start_ns=0, end_ns=round(seconds * 1e9), joules=60.0 * seconds)
    judged = uncertainty_budget(channel, seen)
    unseen_j = hole_s * (limit_w or 120.0) / math.sqrt(3.0) if per_watt_s is None else 60.0 * per_watt_s
    assert dict(judged.components).get("uncovered", 0.0) == pytest.approx(unseen_j)
    assert any("no reading came" in w for w in judged.warnings) == (unseen_j > 0.0)


@given(
    at=st.lists(st.integers(0, 10**10), unique=True, max_size=20).map(sorted),
    start=st.integers(0, 10**10),
    length=st.integers(0, 10**10),
)
def test_any_rows_and_any_interval_give_a_finite_judgement(at: list[int], start: int, length: int) -> None:
    t_ns = np.array(at, np.int64)
    watts = np.abs(np.sin(t_ns.astype(np.float64))) * 100
    for channel in (POWER, COUNTER, Channel("gpu", Quantity.POWER)):
        statistics = summarise_one(channel, t_ns, watts, start_ns=start, end_ns=start + length, joules=length / 1e9)
        judged = uncertainty_budget(channel, statistics)
        assert math.isfinite(judged.uncertainty_joules)
        assert judged.uncertainty_joules == pytest.approx(math.sqrt(sum(u * u for _, u in judged.components)))


def test_in_a_sum_common_causes_add_and_independent_ones_do_not() -> None:
    judged = uncertainty_budget(replace(POWER, gain_u=0.03, noise=1.0), QUIET._replace(late_joules=5.0))
    both = dict(sum_budgets([judged, judged], ["package", "package.dram"]).components)
    one = dict(judged.components)
    assert both["lag"] == pytest.approx(2 * one["lag"])
    assert both["gain"] == pytest.approx(math.sqrt(2) * one["gain"])
    alike = dict(sum_budgets([judged, judged], ["package", "package"]).components)
    assert alike["gain"] == pytest.approx(2 * one["gain"])
    assert alike["noise"] == pytest.approx(both["noise"]) == pytest.approx(math.sqrt(2) * one["noise"])
    assert sum_budgets([], []).uncertainty_joules == 0.0


def test_what_was_undone_of_one_load_adds_up_in_a_sum() -> None:
    one = UncertaintyBudget(13.0, (("reconstruction", 12.0), ("gain", 5.0)))
    both = sum_budgets([one, one], ["gpu", "memory"])
    assert dict(both.components) == pytest.approx({"reconstruction": 24.0, "gain": 5.0 * math.sqrt(2.0)})


def test_repeatability_uses_students_t() -> None:
    mean, deviation, half = repeated([10.0, 12.0, 14.0])
    assert (mean, deviation) == (12.0, 2.0)
    assert half == pytest.approx(4.303 * 2 / math.sqrt(3))
    assert student_95(11) == pytest.approx(2.201, abs=1e-3)
    assert student_95(30) == pytest.approx(2.042, abs=1e-3)
    assert student_95(1000) == pytest.approx(1.962, abs=1e-3)
    with pytest.raises(ValueError, match="at least two runs"):
        repeated([1.0])


@pytest.mark.parametrize("kind", ["full", "part-time", "averaged", "counter", "bridged"])
def test_stated_intervals_cover_the_truth_as_often_as_they_say(kind: str) -> None:
    rng = np.random.default_rng(20)
    errors = np.array([random_trial(rng, kind).error for _ in range(400)])
    covered = float(np.mean(np.abs(errors) < 1.96))
    assert 0.90 <= covered <= 0.99


def test_readings_at_random_instants_are_all_looked_at() -> None:
    """One reading in each slot, at random: many stand closer than usual, and are readings of their own all the same.

    Of a load of about the period of the slots the mean of many errors is known: n readings of D seconds each are off
    by D sqrt(n) times the deviation of the power, and sqrt(1 + 1/24) more, as their distances vary.
    """
    rng = np.random.default_rng(8)
    slot_s, high, z = 0.05, 20.0, []
    for _ in range(150):
        period_s, phase_s, seconds = rng.uniform(0.04, 0.09), rng.uniform(0.0, 0.09), rng.uniform(1.0, 4.0)
        slots = np.arange(-40, round(seconds / slot_s) + 40)
        t = slots * slot_s + rng.uniform(0.0, slot_s, len(slots))
        watts = np.where(((t - phase_s) / period_s) % 1.0 < 0.5, high, 0.0)
        inside = np.concatenate([[0.0], t[(t > 0.0) & (t < seconds)], [seconds]])
        joules = float(np.trapezoid(np.interp(inside, t, watts), inside))
        whole, part = np.divmod((np.array([0.0, seconds]) - phase_s) / period_s, 1.0)
        truth = float(np.diff(high * period_s * (0.5 * whole + np.minimum(part, 0.5)))[0])
        channel = POWER.timed(refresh_s=0.007, window_s=0.007)
        t_ns = np.round(t * 1e9).astype(np.int64)
        seen = summarise_one(channel, t_ns, watts, start_ns=0, end_ns=round(seconds * 1e9), joules=joules)
        z.append((joules - truth) / uncertainty_budget(channel, seen).uncertainty_joules)
    assert 0.6 < float(np.sqrt(np.mean(np.square(z)))) < 1.15
    assert max(np.abs(z)) < 4.0


def test_times_that_a_load_may_keep_step_with_are_a_list_of_one_comma_each() -> None:
    ratio = "or a time in a simple ratio to it (1/2, 2, 3/2)"
    told = in_step_with(0.05, 0.8, 0.0066)
    assert told == f"50 ms, or with what they show, 6.6 ms, or with its window, 800 ms, {ratio}"
    assert in_step_with(0.05, 0.01) == f"50 ms {ratio}"
