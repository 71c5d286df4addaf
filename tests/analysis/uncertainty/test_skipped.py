"""A register that skips renewals for a while: the stated uncertainty holds what the power did meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.uncertainty._skipped import skipped_joules
from pmtpy.analysis.uncertainty.budget import uncertainty_budget
from pmtpy.analysis.uncertainty.interval_statistics import lag_corrected
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Floats
from tests.support.uncertainty.one import summarise_one
from tests.support.uncertainty.worlds import telegraph

PERIOD_S = 0.1
GPU = Channel("gpu", Quantity.POWER, refresh_s=PERIOD_S, window_s=PERIOD_S, resolution=0.0)


def deviation(seed: int, *, skips: bool, polled: bool, still_s: float = 0.0) -> tuple[float, float, float]:
    """Deviation of one interval in standard uncertainties, and the part of the skipped renewals, and the energy."""
    rng = np.random.default_rng(seed)
    # Of a register that stands still nothing tells the power but what the load did around.
    at, joules = telegraph(rng, 30.0, longest_s=0.5 if still_s else 10**0.5)

    def true(t: Floats | float) -> Floats:
        found: Floats = np.asarray(np.interp(t, at, joules))
        return found

    renewed = np.arange(0.2 + rng.uniform(0.0, PERIOD_S), 29.9, PERIOD_S)
    shown = (true(renewed) - true(renewed - PERIOD_S)) / PERIOD_S + rng.standard_normal(len(renewed))
    if skips:  # from 9 to 14 s only every second or third
        spell = np.flatnonzero((renewed > 9.0) & (renewed < 14.0))
        kept = np.setdiff1d(np.arange(len(renewed)), np.setdiff1d(spell, spell[:: 2 + seed % 2]))
        renewed, shown = renewed[kept], shown[kept]
    kept_on = (renewed < 9.0) | (renewed > 9.0 + still_s)
    renewed, shown = renewed[kept_on], shown[kept_on]
    t, watts = renewed, shown
    if polled:
        t = np.cumsum(rng.uniform(0.8, 1.2, 1200)) * PERIOD_S / 4.0
        t = t[(t > renewed[0]) & (t < renewed[-1])]
        watts = shown[np.searchsorted(renewed, t, "right") - 1]
    start = rng.uniform(7.0, 10.0)
    end = start + rng.uniform(2.0, 8.0)
    fine = np.unique(np.concatenate([t, [start, end]]))
    area = np.concatenate([[0.0], np.cumsum(np.diff(fine) * np.interp((fine[1:] + fine[:-1]) / 2.0, t, watts))])
    found = float(np.interp(end, fine, area) - np.interp(start, fine, area))
    near = (t > start - 2.0) & (t < end + 2.0)
    seen = summarise_one(
        GPU,
        np.round(t[near] * 1e9).astype(np.int64),
        watts[near],
        start_ns=round(start * 1e9),
        end_ns=round(end * 1e9),
        joules=found,
        aged_s=PERIOD_S / 4.0 if polled else 0.0,
    )
    seen = lag_corrected(seen)
    budget = uncertainty_budget(GPU, seen)
    energy = float(true(end) - true(start))
    return (seen.joules - energy) / budget.uncertainty_joules, dict(budget.components).get("skipped", 0.0), energy


@pytest.mark.parametrize("polled", [False, True])
def test_the_interval_holds_the_energy_over_renewals_that_were_skipped(*, polled: bool) -> None:
    found = [deviation(seed, skips=True, polled=polled) for seed in range(100)]
    assert np.mean([abs(z) <= 2.0 for z, *_ in found]) >= 0.9  # 95 % of a hundred, two standard errors
    assert np.sqrt(np.mean([z * z for z, *_ in found])) <= 1.3


@pytest.mark.parametrize("still_s", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("polled", [False, True])
def test_a_register_that_stands_still_for_seconds_is_not_believed(*, still_s: float, polled: bool) -> None:
    found = [deviation(seed, skips=False, polled=polled, still_s=still_s)[0] for seed in range(100)]
    assert np.mean(np.abs(found) <= 2.0) >= 0.85  # the errors of two levels are no bell
    assert np.sqrt(np.mean(np.square(found))) <= 1.5


def test_where_none_was_skipped_next_to_nothing_is_added() -> None:
    assert all(deviation(seed, skips=False, polled=False)[1] == 0.0 for seed in range(20))
    added = [deviation(seed, skips=False, polled=True) for seed in range(20)]
    assert np.median([part / joules for _, part, joules in added]) < 1e-3


def test_what_is_missing_counts_by_the_step_over_the_gap_and_its_share_inside() -> None:
    # Renewals 0.1 s apart, three missing between 0.2 and 0.6 s, over which the power goes from 100 to 140 W.
    t = np.array([0.0, 0.1, 0.2, 0.6, 0.7])
    watts = np.array([[100.0, 100.0, 100.0, 140.0, 140.0]])

    def skipped(length: float, *, held: bool) -> list[float]:
        return skipped_joules(t, watts, [0.0], refresh_s=0.1, sample_s=0.1, length=length, held=held)

    (whole,) = skipped(0.7, held=True)
    assert whole == pytest.approx(0.1 * 40.0 * np.sqrt((9 + 3) / 4.0))  # D S sqrt((m^2 + m) / 2), half of S^2
    (half,) = skipped(0.4, held=True)
    assert half == pytest.approx(whole / 2.0)
    assert skipped(0.2, held=True) == [0.0]
    (joined,) = skipped(0.7, held=False)
    assert joined == pytest.approx(whole / np.sqrt(2.0))


def test_rows_that_came_and_are_left_out_were_not_skipped() -> None:
    t = np.array([0.0, 0.1, 0.2, 0.6, 0.7, 1.0])
    watts = np.array([[100.0, 101.0, 100.0, 140.0, 141.0, 150.0]])
    (whole,) = skipped_joules(t, watts, [1.0], refresh_s=0.1, sample_s=0.1, length=1.0, held=True)
    left_out = [(0.2, 0.6)]
    (part,) = skipped_joules(t, watts, [1.0], refresh_s=0.1, sample_s=0.1, length=1.0, held=True, left_out_s=left_out)
    (rest,) = skipped_joules(t[3:], watts[:, 3:], [1.0], refresh_s=0.1, sample_s=0.1, length=1.0, held=True)
    assert 0.0 < part < whole
    assert part == pytest.approx(rest, rel=0.5)


def test_of_a_hole_between_like_values_no_more_is_known_than_of_the_power_all_in_all() -> None:
    """Rows each 0.1 s; the power was seen at 60 and at 10 W, then at 10 W for 3 s, and a hole of 2 s is amid these."""
    t = np.concatenate([np.arange(-40, 10), np.arange(30, 50)]) / 10.0
    powers = np.where(t < -2.0, 60.0, 10.0)[None]
    (found,) = skipped_joules(t, powers, [0.0], refresh_s=PERIOD_S, sample_s=PERIOD_S, length=4.0, held=False)
    off = 50.0**2 * np.mean(powers[0, :-1] == 60.0)  # of all rows but the one before the hole
    assert found == pytest.approx(PERIOD_S * np.sqrt(0.125 * off * (20.0**2 + 20.0)), rel=0.05)
    assert found > 2.0
    t = t[(t < 1.0) | (t > 3.5)]  # of one value that was seen to rest the hole begins where it was seen last
    polls = np.sort(np.concatenate([t, t + 0.03, t + 0.06]))
    rested = np.full((1, len(polls)), 10.0)
    (none,) = skipped_joules(polls, rested, [0.0], refresh_s=PERIOD_S, sample_s=PERIOD_S, length=4.0, held=False)
    assert none == 0.0
