"""Procedures of the published evaluations, on simulated sensors whose rate, updates and errors are known."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.procedures.agreement import agreement
from pmtpy.analysis.procedures.internal_rate import InternalRate, find_pattern, internal_rate
from pmtpy.analysis.procedures.read_cost import read_cost
from pmtpy.analysis.procedures.update_interval import update_interval
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

STUDY_HZ = 1996.24  # the POWER9 study's rate by aliasing


def _shown(load_hz: float, rate_hz: float, seconds: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Means of 80 samples, each of which falls on a square load: what the sensor of the study shows."""
    t = np.arange(int(rate_hz * seconds)) / rate_hz
    high = (t * load_hz + rng.uniform() + rng.normal(0.0, 0.02, len(t))) % 1.0 < 0.5
    watts = np.where(high, 150.0, 90.0) + rng.normal(0.0, 3.0, len(t))
    whole = len(t) // 80 * 80
    means = [np.asarray(a[:whole].reshape(-1, 80).mean(axis=1), np.float64) for a in (t, watts)]
    return means[0], means[1]


def _rate(rate_hz: float, loads_hz: tuple[float, ...], rng: np.random.Generator, seconds: float = 20.0) -> InternalRate:
    return internal_rate([find_pattern(*_shown(hz, rate_hz, seconds, rng), hz) for hz in loads_hz])


def test_the_pattern_of_many_readings_is_found_in_one_look() -> None:
    rng = np.random.default_rng(1)
    t = np.sort(np.arange(40_000) + rng.uniform(0.0, 0.2, 40_000)) * 5e-4
    watts = 60.0 + 30.0 * np.sign(np.sin(2.0 * np.pi * 1.37 * t + 0.3)) + rng.normal(0.0, 1.0, len(t))
    found = find_pattern(t, watts, 2000.0)
    assert found.hz.contains(1.37)
    assert found.hz.half_width < 1e-3


def test_the_patterns_of_the_study_give_its_rate() -> None:
    found = _rate(STUDY_HZ, (1995.0, 1996.0, 1997.0), np.random.default_rng(1))
    assert [round(p.hz.value, 2) for p in found.patterns] == [1.24, 0.24, 0.76]
    assert found.hz.contains(STUDY_HZ)
    assert found.hz.value == pytest.approx(STUDY_HZ, rel=1e-6)


def test_nine_of_ten_rates_lie_in_their_intervals_on_either_side_of_the_loads() -> None:
    rng, held = np.random.default_rng(2), 0
    sides = np.concatenate([rng.uniform(1994.5, 1994.7, 6), rng.uniform(1997.2, 1997.3, 6)])
    for rate in sides:
        found = _rate(rate, (1994.9, 1995.9, 1996.9), rng, 8.0)
        assert found.hz.value == pytest.approx(rate, abs=0.003)
        held += found.hz.contains(rate)
    assert held >= 10


def test_what_has_no_pattern_or_no_one_rate_is_declined() -> None:
    rng = np.random.default_rng(3)
    t = np.asarray(np.arange(500) * 0.04, np.float64)
    with pytest.raises(DeclinedError, match="nothing slow repeats itself"):
        find_pattern(t, 100.0 + rng.normal(0.0, 1.0, 500), 1996.0)
    with pytest.raises(DeclinedError, match="do not change"):
        find_pattern(t, np.full(500, 100.0, np.float64), 1996.0)
    with pytest.raises(DeclinedError, match="too fast for readings"):
        find_pattern(*_shown(1990.0, 1996.04, 20.0, rng), 1990.0)
    with pytest.raises(DeclinedError, match="record longer"):
        find_pattern(*_shown(1996.0, 1996.04, 20.0, rng), 1996.0)
    patterns = [find_pattern(*_shown(hz, STUDY_HZ, 20.0, rng), hz) for hz in (1995.0, 1996.0)]
    with pytest.raises(DeclinedError, match="three"):
        internal_rate(patterns)
    stranger = find_pattern(*_shown(1997.0, 1999.2, 20.0, rng), 1997.0)
    with pytest.raises(DeclinedError, match="no one rate"):
        internal_rate([*patterns, stranger])


@pytest.mark.parametrize("walk_s", [0.0, 1e-5, 3e-4])
@pytest.mark.parametrize("scatter_s", [1e-5, 1e-3])
def test_the_update_interval_is_held(walk_s: float, scatter_s: float) -> None:
    held = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        k = np.arange(500)
        t = 0.04008 * k + np.cumsum(rng.normal(0.0, walk_s, 500)) + rng.normal(0.0, scatter_s, 500)
        seen = rng.uniform(size=500) > 0.03
        seen[[0, -1]] = True
        found = update_interval(np.asarray(t[seen], np.float64))
        held += found.mean_s.contains(0.04008)
        assert found.unseen == 500 - int(seen.sum())
    assert held >= 51


def test_updates_that_are_too_few_are_declined() -> None:
    with pytest.raises(DeclinedError, match="too few"):
        update_interval(np.asarray(np.arange(5) * 0.04, np.float64))


def test_what_a_reading_costs_is_a_distribution() -> None:
    durations = np.concatenate([np.full(990, 4e-6), np.full(10, 1e-3)])
    found = read_cost(durations)
    assert found.reads == found.counts.sum() == 1000
    assert found.mean_s == pytest.approx(durations.mean())
    assert found.percentiles_s[2] == pytest.approx(4e-6)
    assert found.most_s == pytest.approx(1e-3)
    assert found.edges_s[0] <= 4e-6
    assert found.edges_s[-1] > 1e-3
    with pytest.raises(DeclinedError, match="100"):
        read_cost(durations[:50])


def test_agreement_finds_the_curve_that_was_put_in() -> None:
    sensor = np.linspace(60.0, 400.0, 40)
    reference = 12.0 + 1.25 * sensor + 2e-4 * sensor**2
    found = agreement(sensor, reference)
    values = [c.value for c in found.quadratic.coefficients]
    assert values == pytest.approx([12.0, 1.25, 2e-4], rel=1e-6)
    assert found.quadratic.mape_percent.high < 1e-9
    assert found.linear.mae_w.low > 0.5
    assert found.ratio == pytest.approx(sensor.mean() / reference.mean())
    assert found.mae_w.value == pytest.approx(np.mean(reference - sensor))
    with pytest.raises(DeclinedError, match="5 needed"):
        agreement(sensor[:4], reference[:4])


def test_coefficients_and_mean_errors_lie_in_their_intervals() -> None:
    rng, held, mean_w = np.random.default_rng(5), np.zeros(2), 1.5 * np.sqrt(2.0 / np.pi)
    sensor = np.linspace(60.0, 400.0, 25)
    for _ in range(200):
        found = agreement(sensor, 12.0 + 1.25 * sensor + rng.normal(0.0, 1.5, 25))
        held += found.linear.coefficients[1].contains(1.25), found.linear.mae_w.contains(mean_w)
    assert np.all((held >= 180) & (held <= 199)), held
