from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from scipy import stats

from pmtpy.analysis.repetition.resolve import (
    LEAST_BLOCKS,
    Verdict,
    compare_blocks,
    drift,
    enough,
    estimate,
    half_width,
    outliers,
    planned,
)
from pmtpy.core.rows import Floats


def blocks(change: float, scatter: float, number: int = 8) -> tuple[list[float], list[float]]:
    """Energies of two works, the second ``1 + change`` times the first, with a known scatter of the ratio."""
    wave = [scatter * (-1) ** i for i in range(number)]
    first = [100.0 + 5.0 * i for i in range(number)]  # drifts by a third: both alike
    return first, [(1.0 + change) * math.exp(w) * f for f, w in zip(first, wave, strict=True)]


@pytest.mark.parametrize(
    ("change", "scatter", "verdict"),
    [
        (0.03, 0.005, Verdict.MORE),
        (-0.03, 0.005, Verdict.LESS),
        (0.001, 0.005, Verdict.SAME),
        (0.009, 0.0001, Verdict.SAME),  # surely there, and surely smaller than what matters
        (0.01, 0.05, Verdict.UNRESOLVED),
        (0.0, 0.02, Verdict.UNRESOLVED),  # not significant is not the same
    ],
)
def test_each_verdict_has_its_case(change: float, scatter: float, verdict: Verdict) -> None:
    found = compare_blocks(*blocks(change, scatter), 0.01, 0.0)
    assert found.verdict is verdict
    assert found.value == pytest.approx(change, abs=1e-9)


def test_fewer_blocks_than_five_have_no_verdict() -> None:
    assert compare_blocks(*blocks(0.5, 0.001, LEAST_BLOCKS - 1), 0.01, 0.0).verdict is Verdict.UNRESOLVED
    assert compare_blocks(*blocks(0.5, 0.001, 1), 0.01, 0.0).high == math.inf


@pytest.mark.parametrize(
    ("first", "second"), [(0.0, 5.0), (5.0, 0.0), (0.0, 0.0), (-5.0, 5.0), (5.0, -5.0), (-5.0, -6.0)]
)
def test_of_energies_that_are_not_above_zero_nothing_follows(first: float, second: float) -> None:
    found = compare_blocks([first] * 6, [second] * 6, 0.01, 0.0)
    assert found.verdict is Verdict.UNRESOLVED
    assert np.isnan([found.value, found.low, found.high]).all()


def wider(n: int) -> float:
    """By how much the interval of so many blocks is wider than Student's, because the end is chosen by the width."""
    return 1.0 + 2.0 / n


def test_the_interval_of_a_difference_is_that_of_scipy_and_a_little_wider() -> None:
    first, second = blocks(0.02, 0.005)
    ratios = np.log(second) - np.log(first)
    low, high = stats.t.interval(0.95, len(ratios) - 1, ratios.mean(), wider(len(ratios)) * stats.sem(ratios))
    found = compare_blocks(first, second, 0.01, 0.0)
    assert (found.low, found.high) == pytest.approx((math.expm1(low), math.expm1(high)), rel=1e-3)


def test_what_all_trials_share_widens_the_interval_of_one_and_no_repeatability() -> None:
    alone, shared = estimate([99.0, 100.0, 101.0], 0.0), estimate([99.0, 100.0, 101.0], 5.0)
    assert alone.repeatability == shared.repeatability == pytest.approx(wider(3) * 4.303 / math.sqrt(3.0))
    assert shared.high - shared.value == pytest.approx(math.hypot(shared.repeatability, 1.96 * 5.0), rel=1e-4)


def test_an_interval_of_half_the_difference_that_matters_always_decides() -> None:
    rng = np.random.default_rng(1)
    for change in np.linspace(-0.02, 0.02, 41):
        ratios = rng.standard_normal(12)
        ratios *= 0.00497 / half_width(ratios.tolist())
        second = np.exp(ratios - ratios.mean() + math.log1p(change))
        assert compare_blocks([1.0] * 12, second.tolist(), 0.01, 0.0).verdict is not Verdict.UNRESOLVED


def test_it_ends_by_the_width_and_not_before_five_blocks() -> None:
    assert not enough([0.0] * (LEAST_BLOCKS - 1), 0.01, paired=False)
    wide = [0.02 * (-1) ** i for i in range(8)]
    assert not enough(wide, 0.01, paired=False)
    assert not enough([0.5 + w for w in wide], 0.01, paired=True)  # however sure it is that there is a difference
    narrow = [0.004 * (-1) ** i for i in range(8)]
    assert enough(narrow, 0.01, paired=True)


def test_what_is_planned_is_enough() -> None:
    rng = np.random.default_rng(2)
    few = (0.02 * rng.standard_normal(6)).tolist()
    n = planned(few, 0.01, paired=True)
    deviation = float(np.std(few, ddof=1))
    assert wider(n) * stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n) <= math.log1p(0.01) / 2.0 * 1.001
    assert wider(n - 1) * stats.t.ppf(0.975, n - 2) * deviation / math.sqrt(n - 1) > math.log1p(0.01) / 2.0


def at_the_end(drawn: Floats, target: float) -> list[float]:
    """Take of drawn blocks as many as are enough."""
    values, n = [float(each) for each in drawn], LEAST_BLOCKS
    while not enough(values[:n], target, paired=False):
        n += 1
    return values[:n]


@pytest.mark.parametrize("scatter", [0.5, 1.0, 1.5, 2.0, 3.0])  # over what is wanted: about 5 to 40 blocks
def test_intervals_at_the_end_hold_the_truth_although_the_end_was_chosen(scatter: float) -> None:
    # Of normal blocks the mean says nothing of their scatter, by which the end was chosen: an interval of half-width h
    # after n of them holds the truth with a probability of erf(h / (scatter / sqrt(n)) / sqrt(2)), whatever the mean
    # is. The probabilities of 600 ends have a standard deviation of at most 0.1: their mean one of 0.4 %.
    rng, target, held = np.random.default_rng(3), 0.01, []
    for _ in range(600):
        seen = at_the_end(scatter * target * rng.standard_normal(200), target)
        held.append(math.erf(half_width(seen) / (scatter * target) * math.sqrt(len(seen) / 2.0)))
    assert np.mean(held) >= 0.95 - 2.0 * np.std(held) / math.sqrt(len(held))
    assert np.mean(held) <= 0.985


def test_intervals_at_the_end_hold_the_truth_of_heavy_tails_too() -> None:
    rng, target, number = np.random.default_rng(7), 0.01, 600
    ends = [at_the_end(2.0 * target * rng.laplace(size=200) / math.sqrt(2.0), target) for _ in range(number)]
    held = sum(abs(math.fsum(seen) / len(seen)) <= half_width(seen) for seen in ends)
    assert held / number >= 0.95 - 2.0 * math.sqrt(0.95 * 0.05 / number)


def test_a_drift_is_told_from_noise() -> None:
    t = np.arange(20.0)
    noise = 0.2 * np.random.default_rng(4).standard_normal(20)
    change, sure = drift(t, 100.0 + 0.1 * t + noise)
    assert sure
    assert change == pytest.approx(0.019, abs=0.005)
    assert not drift(t, 100.0 + noise)[1]


def test_a_drift_is_that_of_least_squares_and_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    for n in (4, 5, 9, 40):
        t, values = np.cumsum(rng.random(n)), 100.0 + rng.standard_normal(n)
        line = stats.linregress(t, values)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "scipy.stats", None)
            change, sure = drift(t, values)
        assert change == pytest.approx(line.slope * np.ptp(t) / values.mean())
        assert sure == (line.pvalue < 0.05)
    assert drift(np.arange(5.0), 3.0 + np.arange(5.0))[1]  # without any noise
    assert drift(np.arange(5.0), np.full(5, 3.0)) == (0.0, False)


def test_the_one_trial_that_lies_far_off_is_named() -> None:
    values = (100.0 + np.random.default_rng(5).standard_normal(20)).tolist()
    assert outliers(values) == []
    values[7] = 130.0
    assert outliers(values) == [7]
