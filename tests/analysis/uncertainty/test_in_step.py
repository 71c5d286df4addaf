"""Loads that repeat in step with a sensor: its readings stand still, and the energy is what is said beside it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pmtpy.analysis.uncertainty.budget import uncertainty_budget
from pmtpy.analysis.uncertainty.in_step import joules_in_step, left_out_s, rests, span_of_powers
from pmtpy.analysis.uncertainty.interval import IntervalStatistics
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.response import Response

WATTS, RNG = 100.0, np.random.default_rng(1)


def true_joules(period_s: float, duty: float, begin_s: float, end_s: float) -> float:
    """Energy of a square wave of a mean of 100 W that rests at nothing."""

    def until(t: float) -> float:
        whole, part = divmod(t / period_s, 1.0)
        return WATTS * period_s * (whole + min(part / duty, 1.0))

    return until(end_s) - until(begin_s)


@pytest.mark.parametrize("periods", [1, 2, 3, 7])
@pytest.mark.parametrize("duty", [0.2, 0.5, 0.9])
def test_a_window_of_whole_periods_shows_the_mean_and_the_interval_in_step_holds_the_energy(
    periods: int, duty: float
) -> None:
    window_s, rng, worst = 0.035, np.random.default_rng(periods), 0.0
    for _ in range(200):
        begin_s, seconds = rng.uniform(0.0, 1.0), rng.uniform(0.1, 1.0)
        shown = WATTS * seconds  # all readings are the mean
        low, high = joules_in_step(Response(window_s, window_s), shown, seconds, (WATTS, WATTS), 0.0)
        true = true_joules(window_s / periods, duty, begin_s, begin_s + seconds)
        assert low <= true <= high
        worst = max(worst, abs(true - shown) / (high - shown))
    assert worst > 0.8 * (1.0 - duty) / periods  # and no wider than loads in step are off


def test_readings_that_stand_still_tell_nothing_of_a_load_in_step_and_this_is_stated() -> None:
    """Of windows that see all the time it is part of the uncertainty, and no steady load is warned of."""
    meter, rng, held = Channel("power1", Quantity.POWER, resolution=0.0, refresh_s=0.035, window_s=0.035), RNG, []
    for _ in range(2000):
        period_s, duty, seconds = 0.035 / rng.integers(1, 5), rng.uniform(0.1, 0.9), rng.uniform(0.2, 1.0)
        rest_w, more_w, begin_s = rng.uniform(20.0, 80.0), rng.uniform(20.0, 350.0), rng.uniform(0.0, 1.0)
        mean_w = rest_w + duty * more_w  # all readings are that
        swung = (true_joules(period_s, duty, begin_s, begin_s + seconds) / WATTS - seconds) * duty * more_w
        still = IntervalStatistics(seconds, mean_w * seconds, round(seconds / 0.035), sample_s=0.035)
        judged = uncertainty_budget(meter, still._replace(range_watts=(mean_w, mean_w)))
        assert not judged.warnings
        held.append(abs(swung) <= 2.0 * judged.uncertainty_joules)
    assert 0.95 < np.mean(held) < 1.0


def test_of_a_window_of_several_readings_it_is_said() -> None:
    meter = Channel("power1", Quantity.POWER, resolution=0.0, refresh_s=0.035, window_s=0.14)
    still = IntervalStatistics(1.0, WATTS, 28, sample_s=0.035, range_watts=(WATTS, WATTS))
    (why,) = uncertainty_budget(meter, still).warnings
    assert "can alias unnoticed" in why
    low, high = map(float, re.findall(r"anything from (\S+) to (\S+) J", why)[0])
    assert (low, high) == (86.0, 114.0)
    assert not uncertainty_budget(meter, still._replace(seconds=40.0, joules=40.0 * WATTS)).warnings  # 0.35 %
    wide = meter.with_uncertainty(gain_u=0.1, offset_u=0.0, noise=0.0, resolution=0.0)
    assert not uncertainty_budget(wide, still).warnings  # its interval holds that


def test_of_a_part_time_sensor_the_interval_in_step_is_that_of_what_it_does_not_see() -> None:
    card = Channel("gpu", Quantity.POWER, resolution=0.0, refresh_s=0.1, window_s=0.025)
    seen = IntervalStatistics(10.0, 10.0 * WATTS, 100, told=100, range_watts=(0.0, 2.0 * WATTS))
    (why,) = uncertainty_budget(card, seen).warnings
    assert "sees 25% of the time" in why
    low, high = map(float, re.findall(r"anything from (\S+) to (\S+) J", why)[0])
    # On for half of what is seen: from an eighth to seven eighths of the time, and a period at the ends.
    assert low == pytest.approx(10.0 * 2.0 * WATTS / 8.0 - 0.1 * WATTS, rel=0.01)
    assert high == pytest.approx(10.0 * 2.0 * WATTS * 7.0 / 8.0 + 0.1 * WATTS, rel=0.01)


@pytest.mark.parametrize("joules", [-500.0, 0.0, 500.0])
def test_of_a_power_that_goes_below_nothing_the_interval_in_step_does_too(joules: float) -> None:
    """A rail that is charged and discharged: as of the card above, all 100 W less."""
    rail = Channel("rail", Quantity.POWER, resolution=0.0, refresh_s=0.1, window_s=0.025)
    seen = IntervalStatistics(10.0, joules, 100, told=100, range_watts=(-WATTS, WATTS))
    (why,) = uncertainty_budget(rail, seen).warnings
    low, high = map(float, re.findall(r"anything from (\S+) to (\S+) J", why)[0])
    above = seen._replace(joules=joules + 10.0 * WATTS, range_watts=(0.0, 2.0 * WATTS))
    (why,) = uncertainty_budget(rail, above).warnings
    expected = [float(each) - 10.0 * WATTS for each in re.findall(r"anything from (\S+) to (\S+) J", why)[0]]
    assert (low, high) == pytest.approx(expected, abs=1.0)


def test_where_no_rest_was_shown_a_load_in_step_may_rest_at_nothing() -> None:
    assert span_of_powers(90.0, 100.0) == (0.0, 100.0)
    assert span_of_powers(30.0, 100.0) == (30.0, 100.0)
    t = np.arange(0.0, 20.0, 0.1)
    dips = np.where(t < 10.0, 1.0, 0.0)
    assert rests(Response(0.1, 0.025), t, 100.0 - 60.0 * dips)
    assert not rests(Response(0.1, 0.025), t, 100.0 - 5.0 * dips)


@pytest.mark.parametrize("window_s", [0.005, 0.025])
@pytest.mark.parametrize(
    ("phases", "periods"), [(1, 1), (1, 3), (1, 8), (1, 9), (1, 13), (1, 40), (2, 17), (3, 2), (3, 7), (3, 25), (7, 6)]
)
def test_a_load_of_a_known_fraction_of_the_period_is_held_however_short_it_is(
    window_s: float, phases: int, periods: int
) -> None:
    rng, period_s, seconds = np.random.default_rng(periods), 0.1 * phases / periods, 10.0
    for _ in range(200):
        duty, begin_s = rng.uniform(0.1, 0.9), rng.uniform(0.0, period_s)
        # Readings show the same pieces of a load that rests at nothing and uses 200 W, again and again.
        pieces = [true_joules(period_s, duty, at, at + window_s) for at in begin_s + 0.1 * np.arange(phases)]
        seen = float(np.mean(pieces)) / WATTS * duty * 2.0 * WATTS / window_s
        low, high = joules_in_step(
            Response(0.1, window_s),
            seen * seconds,
            seconds,
            (0.0, 2.0 * WATTS),
            0.0,
            load_period_s=(period_s, period_s),
        )
        assert low - 1e-6 <= duty * 2.0 * WATTS * seconds <= high + 1e-6


@pytest.mark.parametrize("blocks", [3, 4, 6, 12])
def test_blocks_that_keep_no_step_are_seldom_said_to_be_left_out_at_one_place(blocks: int) -> None:
    # Of four blocks half leave out more than a quarter of a period that readings of a quarter do not see.
    rng, response = np.random.default_rng(3), Response(0.1, 0.025)
    t = np.arange(0.0, 10.0, 0.1)
    said = [left_out_s(response, t, np.sort(rng.uniform(1.0, 9.0, blocks))) > 0.0 for _ in range(1000)]
    assert np.mean(said) < 0.02  # by chance 0.01, of which three standard errors are 0.01
    in_step = np.asarray(1.03 + 0.5 * np.arange(12), np.float64)
    assert left_out_s(response, t, in_step) == pytest.approx(0.075)
