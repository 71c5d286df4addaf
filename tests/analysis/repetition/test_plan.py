from __future__ import annotations

import math

import pytest

from pmtpy.analysis.repetition.plan import Timing, plan_trial, timing_of
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.response import Number, Response

FULL = Channel("gpu", Quantity.POWER, refresh_s=0.1, window_s=0.1)
PART_TIME = Channel("gpu", Quantity.POWER, refresh_s=0.1, window_s=0.025)
LOW_PASS = Channel("gpu", Quantity.POWER, refresh_s=0.015, lag_s=0.05)
COUNTER = Channel("gpu.energy", Quantity.ENERGY, refresh_s=0.1)


def timing(*channels: Channel, poll_s: float = 0.05) -> Timing:
    return timing_of(channels, poll_s, {})


def test_a_sensor_that_sees_all_needs_no_phases_and_one_that_sees_a_quarter_needs_eight() -> None:
    assert timing(FULL).phases == 1
    assert timing(LOW_PASS).phases == 1
    assert timing(COUNTER).phases == 1
    assert timing(PART_TIME).phases == 8


def test_a_window_that_nobody_states_is_taken_for_none() -> None:
    assert timing(Channel("gpu", Quantity.POWER, refresh_s=0.1)).phases == 8


def test_a_register_that_is_polled_less_often_than_it_changes_sees_a_part_of_the_time() -> None:
    fast = Channel("rail", Quantity.POWER, refresh_s=0.007, window_s=0.007)
    assert timing(fast, poll_s=0.005).phases == 1
    assert timing(fast, poll_s=0.1).phases == math.ceil(0.1 / 0.007)


def test_a_counter_beside_a_part_time_power_is_not_taken_to_see_more() -> None:
    assert timing(COUNTER, PART_TIME).phases == 8


def test_readings_are_left_out_until_the_rise_is_over() -> None:
    assert timing(FULL).rise_s == pytest.approx(0.2)  # a period and a window
    assert timing(LOW_PASS, poll_s=0.01).rise_s == pytest.approx(0.015 + 5 * 0.05)  # five time constants
    known = {"gpu": Response.stated("one-pole", refresh_s=Number(0.015), tau_s=Number(0.06), delay_s=Number(0.01))}
    assert timing_of([LOW_PASS], 0.01, known).rise_s == pytest.approx(0.015 + 5 * 0.06 + 0.01)
    plan = plan_trial(timing(FULL), 0.05, 0.01)
    assert plan.lead * 0.05 >= 0.2
    assert plan.tail * 0.05 >= timing(FULL).reach_s


def test_a_trial_lasts_fifty_periods_and_at_least_a_second() -> None:
    assert plan_trial(timing(FULL), 0.05, 0.01).repetitions == 100
    fast = timing(Channel("pair", Quantity.POWER, refresh_s=5e-5, window_s=5e-5), poll_s=0.0)
    assert plan_trial(fast, 0.05, 0.01).repetitions == 20


def test_work_of_minutes_is_done_once_between_two_rests() -> None:
    plan = plan_trial(timing(PART_TIME), 120.0, 0.01)
    assert (plan.repetitions, plan.bursts, plan.lead, plan.tail) == (1, 1, 0, 0)
    assert plan.rest_s >= timing(PART_TIME).reach_s


@pytest.mark.parametrize("trial", range(4))
def test_the_bursts_of_each_trial_are_spread_evenly_and_those_of_all_trials_lie_between(trial: int) -> None:
    plan = plan_trial(timing(PART_TIME), 0.1, 0.01)
    assert plan.bursts == 8
    starts = sorted(plan.start(trial, b, 0.3) for b in range(8))
    gaps = [b - a for a, b in zip(starts, [*starts[1:], starts[0] + 1.0], strict=True)]
    assert gaps == pytest.approx([0.125] * 8)
    assert min(abs(plan.start(trial + 1, 0, 0.3) - s) for s in starts) > 0.02


def test_single_runs_of_long_work_are_spread_over_the_trials() -> None:
    plan = plan_trial(timing(PART_TIME), 120.0, 0.01)
    starts = sorted(plan.start(trial, 0, 0.9) for trial in range(8))
    gaps = [b - a for a, b in zip(starts, [*starts[1:], starts[0] + 1.0], strict=True)]
    assert max(gaps) < 0.25  # what is seen of each period: nothing of the work stays unseen
