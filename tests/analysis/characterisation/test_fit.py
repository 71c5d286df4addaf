"""Kernels of free shape: they tell gain and lag whatever the sensor does, and when no named family is right."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pmtpy.analysis.characterisation._forward import polish, problem_of
from pmtpy.analysis.characterisation._free_shape import fit_free
from pmtpy.analysis.characterisation.gain import line_of, points_of
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.characterisation.results import as_widths
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.response import TRIANGULAR
from pmtpy.core.rows import Floats
from pmtpy.emulators.load import Table
from tests.support.drawn_sensors import Drawn, draw
from tests.support.simulated import pseudo_random_bench


def updates_of(drawn: Drawn, seed: int) -> Updates:
    """Return the series of updates as it was, so that no finder of it stands between kernel and truth."""
    rng = np.random.default_rng(seed)
    t = drawn.updates_s[(drawn.updates_s > 0.0) & (drawn.updates_s < drawn.seconds)]
    return Updates(np.arange(len(t)), t, drawn.sensor.readings(drawn.power, t, rng), drawn.sensor.period_s)


def meter_of(drawn: Drawn, seed: int) -> PowerTrace:
    """Return a meter that counts, read each millisecond: exact at its readings, and few knots."""
    t = np.arange(-0.5, drawn.seconds + 0.5, 1e-3)
    knots = np.concatenate([[t[0] - 1.0], drawn.power.steps_s, [t[-1] + 1.0]])
    joules = np.interp(t, knots, np.concatenate([[0.0], np.cumsum(np.diff(knots) * drawn.power.watts)]))
    noise = np.cumsum(2e-4 * np.random.default_rng(seed).standard_normal(len(t)))
    return PowerTrace.from_energy(t, np.asarray(joules + noise, np.float64))


def fitted(drawn: Drawn, seed: int) -> tuple[KernelFit, Updates, PowerTrace]:
    updates, meter = updates_of(drawn, seed), meter_of(drawn, seed)
    return fit_kernel(updates, meter, metered=True, pivot_s=drawn.seconds / 2.0), updates, meter


@pytest.mark.parametrize("family", ["boxcar", "one-pole", "two-pole", "triangular"])
def test_a_kernel_of_free_shape_tells_gain_and_lag(family: str) -> None:
    for seed in (1, 2):
        drawn = draw(seed, family=family, load="telegraph", phase="steady", seconds=15.0)
        sensor = drawn.sensor
        updates, meter = updates_of(drawn, seed), meter_of(drawn, seed)
        lag = sensor.kernel.mean_age_s + sensor.delay_s
        spread = {"boxcar": 0.29, "triangular": 0.2}.get(family, 0.0) * sensor.kernel.window_s + sensor.kernel.tau_s
        free = fit_free(updates.t_s, updates.watts, meter, lag_s=1.05 * lag, spread_s=1.2 * spread)
        assert free is not None
        assert free.gain.value == pytest.approx(sensor.gain, rel=0.01)
        assert free.lag_s.value == pytest.approx(lag, abs=0.05 * spread + 0.001)
        assert np.sum(free.weights) == pytest.approx(1.0)


@pytest.mark.parametrize("family", ["two-pole", "triangular"])
@pytest.mark.parametrize("load", ["telegraph", "square"])
def test_a_kernel_of_none_of_the_families_is_not_named(family: str, load: str) -> None:
    for seed in (1,):
        drawn = draw(seed, family=family, load=load, phase="steady", seconds=15.0)
        sensor = drawn.sensor
        fit, updates, meter = fitted(drawn, seed)
        assert fit.family == AMBIGUOUS
        if fit.free is None:  # a square wave may leave more doubts than this one
            assert load == "square"
            continue
        assert fit.reason.startswith("none of these kernels")
        assert f"a {fit.odds[0][0]} one comes nearest" in fit.reason
        assert fit.odds[0][0] == family
        # What does not depend on the family is told, and right.
        assert fit.best.lag_s.contains(sensor.kernel.mean_age_s + sensor.delay_s)
        assert line_of(points_of(updates, meter, fit, drawn.seconds / 2.0)).gain.contains(sensor.gain)
        window, tau = sensor.kernel.window_s, sensor.kernel.tau_s  # a triangle has w^2 / 24, two poles 2 tau^2
        spread = window / math.sqrt(24.0) if family == "triangular" else math.sqrt(2.0) * tau
        assert fit.spread.contains(spread)
        widths = as_widths(fit)
        if family == TRIANGULAR:  # of which a profile is made
            (nearest,) = fit.rivals
            assert nearest.window_s
            assert nearest.window_s.value == pytest.approx(window, rel=0.02)
            assert nearest.lag_s.contains(sensor.kernel.mean_age_s + sensor.delay_s)
        bounds = [widths[name] for name in ("window_ms", "tau_ms")]
        assert all(b and b["value"] is None and b["low"] == 0.0 and (b["high"] or 0.0) >= 1e3 * spread for b in bounds)


@pytest.mark.parametrize("family", ["two-pole", "triangular"])
def test_a_gain_beside_no_family_is_as_well_known_as_by_the_kernel_that_comes_nearest(family: str) -> None:
    """What a family that is wrong leaves is no error of the readings: it made gains four to eight times as wide."""
    drawn = draw(3, family=family, load="telegraph", phase="steady", seconds=15.0)
    fit, _, _ = fitted(drawn, 3)
    assert fit.reason.startswith("none of these kernels")
    assert fit.best.gain.contains(drawn.sensor.gain)
    assert fit.best.gain.half_width < 0.003 * drawn.sensor.gain


@pytest.mark.parametrize(("seed", "load"), [(13, "telegraph"), (14, "bursts")])
def test_few_readings_of_two_filters_in_a_row_are_not_taken_for_another_family(seed: int, load: str) -> None:
    """A free shape has too many parameters for them; a cascade of two filters, with as many as a family, has not."""
    drawn = draw(seed, family="two-pole", load=load, seconds=15.0)
    fit, _, _ = fitted(drawn, seed)
    assert fit.family == AMBIGUOUS
    assert dict(fit.odds)["two-pole"] > 0.05


@pytest.mark.parametrize("family", ["boxcar", "one-pole"])
def test_the_right_family_is_not_refuted(family: str) -> None:
    for seed in (1,):
        drawn = draw(seed, family=family, load="telegraph", phase="steady", seconds=15.0)
        fit, _, _ = fitted(drawn, seed)
        assert fit.family == family
        assert fit.free is None
        assert fit.odds[0][0] in (family, "boxcar*one-pole")
        assert sum(share for _, share in fit.odds) == pytest.approx(1.0)


def test_noise_that_lasts_is_no_lack_of_fit() -> None:
    drawn = draw(2, family="boxcar", load="telegraph", phase="steady", seconds=15.0)
    drawn = replace(drawn, sensor=replace(drawn.sensor, lasting_w=2.0, lasting_s=1.0))
    assert fitted(drawn, 2)[0].free is None


@pytest.mark.parametrize("seed", range(12))
def test_readings_that_tell_nothing_of_a_shape_take_its_width_nowhere(seed: int) -> None:
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, 20.0, 0.01)
    power = np.where(t % rng.uniform(0.2, 3.0) < 0.4, 100.0, 50.0)
    reference = PowerTrace.from_samples(t, power)
    at, watts = np.sort(rng.uniform(2.0, 18.0, 200)), rng.normal(100.0, 20.0, 200)
    problem = problem_of(Updates(np.arange(200), at, watts, 0.1), reference, metered=True)
    width = float(rng.choice([0.005, 0.1, 0.5]))
    rival = polish(problem, TRIANGULAR, np.array([0.05, width, 0.0, 0.0, 1.0, 0.0]), np.ones(200))
    assert np.isfinite([rival.gain, rival.intercept, rival.lag]).all()
    assert float(np.std(rival.residuals)) == pytest.approx(20.0, rel=0.3)


def test_too_few_readings_and_a_flat_reference_give_no_free_shape() -> None:
    t = np.linspace(1.0, 9.0, 40)
    flat = PowerTrace.from_samples(np.linspace(0.0, 10.0, 100), np.full(100, 60.0))
    assert fit_free(t, np.full(40, 60.0), flat, lag_s=0.05, spread_s=0.03) is None
    assert fit_free(np.linspace(1.0, 9.0, 200), np.full(200, 60.0), flat, lag_s=0.05, spread_s=0.03) is None


def test_a_long_tail_is_in_the_mean_lag_of_a_kernel_of_no_family() -> None:
    # A reading that shows a window of 0.1 s for two thirds, and one of half a second for the rest.
    rng = np.random.default_rng(0)
    bench = pseudo_random_bench(0.09, seconds=40.0, seed=0)
    at = np.asarray(np.arange(0.5 + rng.uniform(0.0, 0.1), 39.0, 0.1), np.float64)

    def mean(window: float, at: Floats = at, load: Table = bench.load) -> Floats:
        return np.asarray((load.joules(at) - load.joules(np.asarray(at - window))) / window, np.float64)

    watts = np.asarray((2.0 * mean(0.1) + mean(0.5)) / 3.0 + 0.3 * rng.standard_normal(len(at)), np.float64)
    found = fit_kernel(Updates(np.arange(len(at)), at, watts, 0.1, 1e-4), bench.meter(seed=0), metered=True)
    assert found.family == AMBIGUOUS
    assert found.best.lag_s.contains((2.0 * 0.05 + 0.25) / 3.0)
    assert found.best.lag_s.half_width < 0.02  # a sixth of it
    assert found.best.gain.contains(1.0)
