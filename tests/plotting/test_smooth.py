"""Filters for display."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.core.rows import Floats
from pmtpy.plotting.smooth import g_h, kalman, likeliest_process, moving_mean, steady_gain

RNG = np.random.default_rng(1)
T = np.linspace(0.0, 39.9, 400)
NOISY: Floats = np.asarray(100 + RNG.normal(0, 2.0, 400), np.float64)


def test_a_moving_mean_starts_with_what_there_is() -> None:
    assert moving_mean(np.array([1.0, 2.0, 6.0, 8.0]), 2) == pytest.approx([1, 1.5, 4, 7])
    assert len(moving_mean(np.empty(0))) == 0


def test_a_moving_mean_of_nine_cuts_white_noise_to_a_third() -> None:
    white = np.asarray(RNG.normal(0, 2.0, 40_000), np.float64)
    assert moving_mean(white)[9:].std() == pytest.approx(2 / 3, rel=0.05)


def test_a_g_h_filter_follows_a_ramp_without_lag() -> None:
    uneven = np.cumsum(RNG.uniform(0.05, 0.15, 600))
    assert g_h(uneven, 5 * uneven)[-1] == pytest.approx(5 * uneven[-1], rel=1e-6)
    assert len(g_h(np.empty(0), np.empty(0))) == 0


def test_a_kalman_filter_settles_at_its_steady_gain() -> None:
    impulse = np.zeros(400)
    impulse[-1] = 1.0
    assert kalman(T, impulse, 2.0, 4.0)[-1] == pytest.approx(steady_gain(4.0, 2.0, 0.1))


def test_the_likeliest_process_tells_a_still_level_from_a_walking_one() -> None:
    walk: Floats = NOISY + np.cumsum(RNG.normal(0, 1.0, 400))  # 1 W per root 0.1 s: 10 W^2 per second
    still = likeliest_process(T, NOISY, 2.0)
    assert still < 0.1
    assert 3.0 < likeliest_process(T, walk, 2.0) < 30.0
    assert kalman(T, NOISY, 2.0)[100:].std() < 0.5
    assert likeliest_process(T[:2], NOISY[:2], 2.0) == 0.0
