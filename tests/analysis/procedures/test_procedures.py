"""Procedures of the published evaluations, on simulated sensors whose rate, updates and errors are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from pmtpy.analysis.procedures.agreement import Clocks, agreement_of
from pmtpy.analysis.procedures.internal_rate import InternalRate, find_pattern, internal_rate_of
from pmtpy.analysis.procedures.latency import latency_of
from pmtpy.analysis.procedures.updates import updates_of
from pmtpy.analysis.procedures.windows import calm_ends, later_watts, mean_watts
from pmtpy.analysis.signal.trace import PowerTrace
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
    return internal_rate_of([find_pattern(*_shown(hz, rate_hz, seconds, rng), hz) for hz in loads_hz])


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


@pytest.mark.parametrize("loads_per_reading", [50, 52.34])
def test_readings_that_keep_in_step_with_a_pattern_are_not_surer_than_they_are(loads_per_reading: float) -> None:
    """Where each tenth reading, say, shows the same phase, corners that lie between readings tell of no frequency."""
    held = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rate, patterns = 1701.3157 + rng.uniform(-0.05, 0.05), []
        for load in (1699.0, 1700.0, 1701.0):
            samples = np.arange(int(rate * 20.0)) / rate
            high = (samples * load + rng.uniform()) % 1.0 < 0.4
            ends = np.arange(loads_per_reading, len(samples), loads_per_reading).astype(int)
            # A third of each reading's time is seen, so that a pattern's flank falls onto few readings.
            watts = np.array([60.0 + 100.0 * high[e - 16 : e].mean() for e in ends]) + rng.normal(0.0, 0.3, len(ends))
            patterns.append(find_pattern(np.asarray(ends / rate, np.float64), watts, load))
        held += internal_rate_of(patterns).hz.contains(rate)
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
        internal_rate_of(patterns)
    stranger = find_pattern(*_shown(1997.0, 1999.2, 20.0, rng), 1997.0)
    with pytest.raises(DeclinedError, match="no one rate"):
        internal_rate_of([*patterns, stranger])


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
        found = updates_of(np.asarray(t[seen], np.float64))
        held += found.mean_s.contains(0.04008)
        assert found.unseen == 500 - int(seen.sum())
    assert held >= 51


def test_the_interval_of_few_updates_that_walk_a_little_beside_their_scatter_is_held() -> None:
    rng, held = np.random.default_rng(1), 0
    for _ in range(200):
        walk = np.cumsum(rng.normal(0.0, 1e-4, 50))
        held += updates_of(np.arange(50) * 0.04 + walk + rng.normal(0.0, 5e-4, 50)).mean_s.contains(0.04)
    assert held >= 178  # by the moments of the intervals, which find no walk now and then, 160


def test_updates_that_are_too_few_are_declined() -> None:
    with pytest.raises(DeclinedError, match="too few"):
        updates_of(np.asarray(np.arange(5) * 0.04, np.float64))


def test_what_a_reading_costs_is_a_distribution() -> None:
    durations = np.concatenate([np.full(990, 4e-6), np.full(10, 1e-3)])
    found = latency_of(durations)
    assert found.reads == found.counts.sum() == 1000
    assert found.mean_s == pytest.approx(durations.mean())
    assert found.percentiles_s[2] == pytest.approx(4e-6)
    assert found.most_s == pytest.approx(1e-3)
    assert found.edges_s[0] <= 4e-6
    assert found.edges_s[-1] > 1e-3
    with pytest.raises(DeclinedError, match="100"):
        latency_of(durations[:50])


def test_agreement_finds_the_curve_that_was_put_in() -> None:
    sensor = np.linspace(60.0, 400.0, 40)
    reference = 12.0 + 1.25 * sensor + 2e-4 * sensor**2
    found = agreement_of(sensor, reference)
    assert found.linear is not None
    assert found.quadratic is not None
    values = [c.value for c in found.quadratic.coefficients]
    assert values == pytest.approx([12.0, 1.25, 2e-4], rel=1e-6)
    assert found.quadratic.mape_percent.high < 1e-9
    assert found.linear.mae_w.low > 0.5
    assert found.ratio == pytest.approx(sensor.mean() / reference.mean())
    assert found.mae_w.value == pytest.approx(np.mean(reference - sensor))
    with pytest.raises(DeclinedError, match="5 needed"):
        agreement_of(sensor[:4], reference[:4])


def _curve(t: Floats, starts: Floats, levels: Floats) -> PowerTrace:
    """What a recording whose rows hold means says of a load with known levels."""
    so_far = np.concatenate([[0.0], np.cumsum(levels[:-1] * np.diff(starts))])
    level = np.searchsorted(starts, t, side="right") - 1
    joules = np.asarray(so_far[level] + levels[level] * (t - starts[level]), np.float64)
    return PowerTrace.from_energy(t, joules)


@pytest.mark.parametrize("late_s", [0.0, 0.01])
def test_a_row_that_a_change_of_the_load_cuts_is_not_in_the_line(late_s: float) -> None:
    """A square of 4 s, whose edges lie at the ends of windows of 1 s and within rows of 21 ms: 0.7 % before."""
    edges = np.arange(0.0, 120.0, 2.0)
    watts = np.asarray(np.where(np.arange(60) % 2 == 0, 60.0, 200.0), np.float64)
    reference = _curve(np.arange(2.0, 118.0, 0.05), edges, watts)
    sensor = _curve(np.arange(2.013, 118.0, 0.021), edges + late_s, 0.95 * watts + 5.0)
    nominal = np.arange(3.0, 117.0)
    ends = calm_ends([sensor, reference], nominal - 0.25, nominal + 0.25, nominal)
    shown, true = (mean_watts(curve, ends[:-1], ends[1:]) for curve in (sensor, reference))
    clocks = Clocks(later_watts(reference, ends[:-1], ends[1:]), (ends[:-1] + ends[1:]) / 2.0)
    line = agreement_of(shown, true, clocks).linear
    assert line is not None
    assert line.coefficients[1].contains(1.0 / 0.95)
    assert line.coefficients[1].value == pytest.approx(1.0 / 0.95, rel=3e-4)


def test_how_power_rises_is_known_of_windows_that_end_with_the_recording() -> None:
    t = np.arange(0.0, 10.01, 0.05)
    curve = PowerTrace.from_energy(t, 60.0 * t + 0.75 * t**2)
    starts = np.arange(0.0, 10.0)
    assert later_watts(curve, starts, starts + 1.0) == pytest.approx(1.5, rel=1e-9)  # W/s


@pytest.mark.parametrize("rate", [-0.006, 0.0, 0.002])
def test_of_a_ramp_the_slope_is_known_no_better_than_how_two_clocks_run(rate: float) -> None:
    """The curves were laid together by a rate, which on a ramp is as good as another gain; truly there is none."""
    rng, at = np.random.default_rng(4), np.arange(1.0, 115.0)
    true = 60.0 + 1.5 * at + rng.normal(0.0, 0.1, len(at))
    shown = 60.0 + 1.5 * (at + rate * (at - at.mean()))  # the windows of the sensor lie elsewhere
    later = np.full(len(at), 1.5)
    known = agreement_of(shown, true, Clocks(later, at, rate, 0.0015)).linear
    assert known is not None
    slope = known.coefficients[1]
    assert slope.contains(1.0)
    assert slope.half_width == pytest.approx(2.0 * 0.0015, rel=0.1)
    certain = agreement_of(shown, true, Clocks(later, at, rate)).linear
    assert certain is not None
    assert certain.coefficients[1].contains(1.0) == (rate == 0.0)


def test_a_line_needs_workloads_that_differ() -> None:
    rng = np.random.default_rng(3)
    for reference in (100.0 + rng.normal(0.0, 0.1, 40), 100.0 + np.cumsum(rng.normal(0.0, 0.1, 40))):
        found = agreement_of(np.asarray(97.0 + rng.normal(0.0, 0.1, 40), np.float64), np.asarray(reference, np.float64))
        assert found.linear is None
        assert found.quadratic is None
        assert "(rms), by which a slope is" in found.declined["linear"]
        assert found.ratio == pytest.approx(0.97, abs=0.01)
    assert agreement_of(np.full(9, 50.0), np.full(9, 51.0)).linear is None


def test_a_slope_is_held_whichever_of_the_two_scatters() -> None:
    rng, held = np.random.default_rng(6), 0
    for sensor_w, reference_w in ((10.0, 1.0), (1.0, 10.0), (10.0, 10.0)):
        for _ in range(40):
            truth = rng.uniform(50.0, 300.0, 60)
            shown = truth + rng.normal(0.0, sensor_w, 60), 5.0 + 1.1 * truth + rng.normal(0.0, reference_w, 60)
            sensor, reference = (np.asarray(w, np.float64) for w in shown)
            line = agreement_of(sensor, reference).linear
            held += line is not None and line.coefficients[1].contains(1.1)
    assert 108 <= held <= 120  # 95 % of 120, or more: which of the two scatters nobody told


def test_a_line_is_no_surer_than_a_sensor_that_scatters_much_or_drifts_lets_it_be() -> None:
    rng, held = np.random.default_rng(8), np.zeros(2)
    for _ in range(40):
        truth = np.sort(rng.uniform(100.0, 250.0, 60))
        drift = lfilter(
            [3.0], [1.0, -0.8], rng.standard_normal(60)
        )  # off by 5 W for five workloads, one after the other
        for i, off in enumerate((rng.normal(0.0, 10.0, 60), drift)):
            line = agreement_of(np.asarray(truth + off, np.float64), truth).linear
            held[i] += line is not None and line.coefficients[1].contains(1.0)
    assert np.all(held >= 34), held  # 95 % of 40, less three binomial deviations of 1.4


def test_coefficients_and_mean_errors_lie_in_their_intervals() -> None:
    rng, held, mean_w = np.random.default_rng(5), np.zeros(2), 1.5 * np.sqrt(2.0 / np.pi)
    sensor = np.linspace(60.0, 400.0, 25)
    for _ in range(200):
        found = agreement_of(sensor, 12.0 + 1.25 * sensor + rng.normal(0.0, 1.5, 25))
        assert found.linear is not None
        held += found.linear.coefficients[1].contains(1.25), found.linear.mae_w.contains(mean_w)
    assert np.all((held >= 180) & (held <= 199)), held
