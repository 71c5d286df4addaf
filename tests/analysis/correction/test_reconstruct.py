"""Reconstruction of the power behind overlapping windows."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.correction.deconvolve import reconstruct
from pmtpy.analysis.signal.response import Response
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Constant, Table
from pmtpy.errors import CoverageError

STEP = Table(np.array([0.0, 10.0, 13.0]), np.array([50.0, 250.0, 50.0]))
MODEL = SensorModel(window_s=1.0, noise_w=0.3, phase_s=0.03)
RESPONSE = Response(0.1, 1.0, noise_w=0.3)
K = np.arange(20, 250)


def test_a_step_under_a_running_mean_is_found_again() -> None:
    found = reconstruct([(MODEL.tick_times(K), MODEL.tick_readings(STEP, K), RESPONSE)], 10.0, 13.0)
    # Each edge misplaces f (1 - f) of 200 W in its cell of 0.1 s, at most 5 J. The running mean itself: 650 J.
    assert found.energy(10.0, 13.0) == pytest.approx(750.0, abs=10.0)
    assert found.at(11.0) == pytest.approx(250.0, abs=5.0)
    assert found.at(9.5) == pytest.approx(50.0, abs=5.0)
    error = abs(found.energy(10.0, 13.0) - 750.0)
    assert error < 3 * np.hypot(found.energy_u(10.0, 13.0), np.hypot(found.edge_u(10.0), found.edge_u(13.0)))


def test_a_steady_power_is_reconstructed_as_steady() -> None:
    load = Constant(100.0)
    found = reconstruct([(MODEL.tick_times(K), MODEL.tick_readings(load, K), RESPONSE)], 8.0, 12.0)
    # 40 readings of 0.3 W, each a mean over ten cells: the mean is known to about 0.1 W.
    assert found.energy(8.0, 12.0) == pytest.approx(400.0, abs=1.0)
    assert found.energy_u(8.0, 12.0) < 1.0


def test_a_second_channel_sharpens_the_first() -> None:
    quarter = SensorModel(window_s=0.025, noise_w=0.3, seed=9)
    pair = [
        (MODEL.tick_times(K), MODEL.tick_readings(STEP, K), RESPONSE),
        (quarter.tick_times(K), quarter.tick_readings(STEP, K), Response(0.1, 0.025, noise_w=0.3)),
    ]
    both, one = reconstruct(pair, 10.0, 13.0), reconstruct(pair[:1], 10.0, 13.0)
    assert both.energy_u(10.0, 11.0) < one.energy_u(10.0, 11.0)
    assert both.energy(10.0, 13.0) == pytest.approx(750.0, abs=10.0)


def test_a_window_that_now_and_then_holds_an_update_less_does_no_harm() -> None:
    t, watts = MODEL.tick_times(K), MODEL.tick_readings(STEP, K)
    for k in (5, 9):  # on the flank, a step ahead of what the window holds
        watts[np.searchsorted(t, 10.0) + k] = watts[np.searchsorted(t, 10.0) + k + 1]
    found = reconstruct([(t, watts, RESPONSE)], 10.0, 11.0, starts_s=np.array([10.0]))
    assert found.energy(10.0, 11.0) == pytest.approx(250.0, rel=0.01)
    assert found.energy(10.0, 10.3) == pytest.approx(75.0, rel=0.02)


def test_a_known_start_is_a_bound_at_which_nothing_is_in_doubt() -> None:
    found = reconstruct(
        [(MODEL.tick_times(K), MODEL.tick_readings(STEP, K), RESPONSE)], 10.0, 11.0, starts_s=np.array([10.0])
    )
    assert 10.0 in found.bounds_s
    assert found.edge_u(10.0) == 0.0
    assert found.at(9.999) == pytest.approx(50.0, abs=3.0)
    assert found.at(10.001) == pytest.approx(250.0, abs=15.0)


def test_power_stays_above_its_floor() -> None:
    load = Table(np.array([0.0, 10.0, 10.2, 13.0]), np.array([0.0, 300.0, 0.0, 0.0]))
    found = reconstruct([(MODEL.tick_times(K), MODEL.tick_readings(load, K), RESPONSE)], 9.0, 12.0)
    assert found.watts.min() >= 0.0
    assert found.energy(9.0, 12.0) == pytest.approx(60.0, abs=3.0)


def test_too_few_readings_or_too_long_an_interval_are_declined() -> None:
    t = MODEL.tick_times(K)
    with pytest.raises(CoverageError, match="do not cover"):
        reconstruct([(t, t, RESPONSE)], 40.0, 41.0)
    long = np.arange(0.0, 400.0, 0.1)
    with pytest.raises(CoverageError, match="at most 1500"):
        reconstruct([(long, long, RESPONSE)], 10.0, 390.0)
