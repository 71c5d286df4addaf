"""Readings that are late by what a profile leaves open, beside right stamps: one block whose energy is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pmtpy.analysis import region_energy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Number, Response

LOW_W, HIGH_W = 40.0, 240.0
PERIOD_S, WINDOW_S, NOISE_W, STEP_W = 0.02, 0.16, 0.3, 0.1


@pytest.mark.parametrize("lag_u", [PERIOD_S / np.sqrt(12.0), 0.02])
@pytest.mark.parametrize("late_by", [-1.5, -1.0, 0.0, 1.0, 1.8])
@pytest.mark.parametrize("lasts_s", [0.1, 0.3, 1.0])
def test_a_delay_within_what_the_profile_leaves_open_is_no_ramp_of_the_power(
    lag_u: float, late_by: float, lasts_s: float
) -> None:
    on_s, late_s = 12.345, late_by * lag_u
    rng = np.random.default_rng(17)
    t = np.arange(4.007, 24.0, PERIOD_S)
    block_s = np.clip(t - late_s - on_s, 0.0, lasts_s) - np.clip(t - late_s - WINDOW_S - on_s, 0.0, lasts_s)
    watts = LOW_W + (HIGH_W - LOW_W) * block_s / WINDOW_S + NOISE_W * rng.standard_normal(len(t))
    watts = np.round(watts / STEP_W) * STEP_W
    response = Response(PERIOD_S, WINDOW_S, gain_u=0.002, lag_u=lag_u, noise_w=NOISE_W, step_w=STEP_W)
    load = LoadIntervals(np.array([on_s]), np.array([on_s + lasts_s + 5e-4]))
    found = region_energy(t, watts, response, start_s=on_s, end_s=on_s + lasts_s, load=load)
    assert found.low <= HIGH_W * lasts_s <= found.high
    # No wider than a delay that is not known at all makes it, and the gain.
    assert found.high - found.low < 2.0 * (2.0 * lag_u * (HIGH_W - LOW_W) + 0.02 * HIGH_W * lasts_s)


@pytest.mark.parametrize(
    ("lasts_s", "late_s", "phase_s"), [(0.3, 0.0222, 0.094), (0.1, 0.015, 0.0), (0.3, 0.012, 0.085)]
)
def test_of_a_window_as_wide_as_the_period_each_delay_is_tried(lasts_s: float, late_s: float, phase_s: float) -> None:
    """A block in two to five readings: of several delays to begin with only one leads to the right one."""
    on_s, period_s = 12.0 + phase_s, 0.1
    t = np.arange(2.0, 24.0, period_s)
    begun = t - late_s - on_s
    block_s = np.clip(begun, 0.0, lasts_s) - np.clip(begun - period_s, 0.0, lasts_s)
    watts = LOW_W + (HIGH_W - LOW_W) * block_s / period_s + NOISE_W * np.random.default_rng(9).standard_normal(len(t))
    response = Response.stated(
        "boxcar", refresh_s=Number(period_s), window_s=Number(period_s, 0.001), noise=Number(NOISE_W)
    )  # neither a time constant nor a delay is stated
    load = LoadIntervals(np.array([on_s]), np.array([on_s + lasts_s + 5e-4]))
    found = region_energy(t, watts, replace(response, gain_u=0.002), start_s=on_s, end_s=on_s + lasts_s, load=load)
    assert found.low <= HIGH_W * lasts_s <= found.high
    assert found.joules == pytest.approx(HIGH_W * lasts_s, abs=0.5)
