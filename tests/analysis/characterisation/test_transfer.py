from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.characterisation.gain import fit_line, fit_transfer
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.correction.energy import Readings, compare_energy, held_polls
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.errors import DeclinedError
from tests.support.simulated import pseudo_random_bench, square_bench


def test_gradient_and_intercept_cover_the_truth_as_often_as_they_say() -> None:
    gains = intercepts = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = rng.uniform(50.0, 250.0, 80)
        y = 0.95 * x - 3.0 + rng.normal(0.0, 1.0, 80) * (1.0 + x / 200.0)
        y[rng.integers(0, 80, 2)] += 60.0  # two readings of something else
        found = fit_line(x, y)
        gains += found.gain.contains(0.95)
        intercepts += found.intercept_w.contains(-3.0)
    assert gains >= 53  # 95 % of 60, less two binomial deviations of 1.7
    assert intercepts >= 53


def test_noise_of_the_meter_does_not_attenuate_the_gain() -> None:
    rng = np.random.default_rng(3)
    power = rng.uniform(50.0, 100.0, 4000)
    noisy = power + rng.normal(0.0, 6.0, 4000)
    assert fit_line(noisy, power).gain.value < 0.9
    assert fit_line(noisy, power, x_noise_w=6.0).gain.value == pytest.approx(1.0, abs=0.02)


def test_a_curved_sensor_is_noted_and_a_straight_one_is_not() -> None:
    x = np.linspace(50.0, 250.0, 200)
    noise = np.random.default_rng(1).normal(0.0, 0.3, 200)
    assert fit_line(x, 0.9 * x + noise).note == ""
    assert "bend" in fit_line(x, 0.9 * x + 8e-4 * (x - 150.0) ** 2 + noise).note


def test_power_is_inverted_inside_the_calibrated_range_only() -> None:
    x = np.linspace(50.0, 250.0, 200)
    found = fit_line(x, 0.95 * x - 3.0 + np.random.default_rng(1).normal(0.0, 0.3, 200))
    assert found.power(0.95 * 180.0 - 3.0).contains(180.0)
    with pytest.raises(DeclinedError, match="outside the calibrated range"):
        found.power(400.0)


def test_constant_power_and_few_updates_are_declined() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(DeclinedError, match="two distinct levels"):
        fit_line(rng.normal(100.0, 0.3, 100), rng.normal(95.0, 0.3, 100))
    with pytest.raises(DeclinedError, match="too few"):
        fit_line(np.arange(5.0), np.arange(5.0))


def test_a_dynamic_trace_gives_the_steady_gradient() -> None:
    model = SensorModel(0.1, 0.02, window_s=0.0, tau_s=0.0125, gain=0.955, offset_w=-1.2, noise_w=0.3, step_w=0.01)
    bench = pseudo_random_bench(0.04)
    updates, meter = bench.updates(model), bench.meter()
    found = fit_transfer(updates, meter, fit_kernel(updates, meter, metered=True, pivot_s=5.0), 5.0)
    assert found.gain.value == pytest.approx(0.955, abs=0.012)
    assert found.intercept_w.value == pytest.approx(-1.2, abs=2.5)
    assert found.gain.contains(0.955)


def test_energies_are_compared_with_the_meters() -> None:
    model = SensorModel(0.1, 0.02, window_s=0.1, gain=0.95, offset_w=-3.0, noise_w=0.2, step_w=0.01)
    bench = square_bench(0.73)
    t_ns, watts = model.record(bench.load, 10.0, Polling())
    t = np.asarray(t_ns * 1e-9, np.float64)
    response = Response(0.1, 0.1, 0.0, 0.0, 0.95, -3.0, 0.002, 0.3, 0.0005, 0.0, 0.2)
    found = compare_energy(Readings(t, watts, bench.updates(model)), bench.meter(), response, (1.0, 8.3))
    truth = float(np.diff(bench.load.joules(np.array([1.0, 8.3])))[0])
    assert found.reference_j == pytest.approx(truth, rel=1e-3)
    assert found.held_error < -0.03
    assert found.corrected_j.contains(truth)
    assert abs(found.corrected_error) < 0.008  # docs/characterise.md: 0.8 % over 6 s


def test_of_a_sensor_that_looks_away_both_intervals_are_given_and_said() -> None:
    # On for the quarter of each period that the sensor sees, which it shows as always on.
    on = np.arange(0.0, 20.0, 0.1)
    meter = PowerTrace.from_energy(
        np.sort(np.concatenate([on, on + 0.025])), np.concatenate([[0.0], np.cumsum(np.tile([5.0, 4.5], 200))[:-1]])
    )
    k = np.arange(1, 199)
    t = np.asarray(0.1 * k + 0.025, np.float64)
    watts = np.full(len(k), 200.0) - 140.0 * (k < 20)
    response = Response(0.1, 0.025, 0.0, 0.0, 1.0, 0.0, 0.002, 0.3, 0.0005, 0.0, 0.2)
    found = compare_energy(Readings(t, watts, Updates(k, t, watts, 0.1)), meter, response, (8.0, 12.0))
    assert not found.corrected_j.contains(found.reference_j)
    assert found.aliased_j.contains(found.reference_j)
    assert found.aliased_j.value == found.corrected_j.value
    assert any("sees 25% of the time" in why for why in found.warnings)


def test_energies_outside_a_recording_are_declined() -> None:
    t = np.arange(0.0, 5.0, 0.01)
    assert held_polls(t, np.full(len(t), 50.0), 1.0, 2.0) == pytest.approx(50.0)
    with pytest.raises(DeclinedError, match="do not reach"):
        held_polls(t, t, 1.0, 6.0)


def test_a_board_that_is_off_its_line_for_a_while_widens_the_intercept() -> None:
    rng = np.random.default_rng(3)
    x = np.where(np.arange(160) % 40 < 20, 130.0, 440.0) + rng.normal(0.0, 3.0, 160)
    y = 0.95 * x + rng.normal(0.0, 0.3, 160)
    plain = fit_line(np.asarray(x), np.asarray(y))
    y[60:90] -= 2.0  # keeps its clocks up, and what feeds them is not sensed
    off = fit_line(np.asarray(x), np.asarray(y))
    assert off.intercept_w.half_width > 3.0 * plain.intercept_w.half_width
    assert off.intercept_w.half_width > 1.5


@pytest.mark.parametrize("curved", [-0.02, 0.01, 0.02, 0.04])
def test_a_sensor_that_bends_a_little_is_noted_and_holds_the_ends_of_its_range(curved: float) -> None:
    held = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = rng.beta(1.3, 1.6, 130) * 140.0 + 20.0  # an irregular load behind a window of its length
        true = np.array([25.0, 60.0, 90.0, 120.0, 155.0])

        def shows(watts: Floats) -> Floats:
            return np.asarray(watts + curved * 70.0 * (1.0 - ((watts - 90.0) / 70.0) ** 2) + 16.0, np.float64)

        found = fit_line(np.asarray(x), np.asarray(shows(np.asarray(x)) + rng.normal(0.0, 0.3, 130)))
        assert "curved" in found.note or abs(curved) < 0.02
        power = [found.power(float(reading)) for reading in shows(true)]
        held += [p.contains(float(t)) for p, t in zip(power, true, strict=True)]
    assert np.mean(held) >= 0.9
