"""Filters for display."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.core.rows import Floats
from pmtpy.plotting._smooth import kalman, likeliest_process, smoothed

RNG = np.random.default_rng(1)
T = np.linspace(0.0, 39.9, 400)
NOISY: Floats = np.asarray(100 + RNG.normal(0, 2.0, 400), np.float64)


def test_a_kalman_filter_settles_at_its_steady_gain() -> None:
    impulse = np.zeros(400)
    impulse[-1] = 1.0
    q, r = 4.0 * 0.1, 2.0**2
    p = (q + (q * q + 4.0 * q * r) ** 0.5) / 2.0
    levels, _ = kalman(T, impulse, 2.0, 4.0)
    assert levels[-1] == pytest.approx(p / (p + r))


def test_the_likeliest_process_tells_a_still_level_from_a_walking_one() -> None:
    walk: Floats = NOISY + np.cumsum(RNG.normal(0, 1.0, 400))  # 1 W per root 0.1 s: 10 W^2 per second
    still = likeliest_process(T, NOISY, 2.0)
    assert still < 0.1
    assert 3.0 < likeliest_process(T, walk, 2.0) < 30.0
    assert kalman(T, NOISY, 2.0, still)[0][100:].std() < 0.5
    assert likeliest_process(T[:2], NOISY[:2], 2.0) == 0.0


def test_a_picture_is_smoothed_but_where_nothing_is_known() -> None:
    holed = NOISY.copy()
    holed[200:203] = np.nan
    out = smoothed(T, holed)
    assert np.flatnonzero(np.isnan(out)).tolist() == [200, 201, 202]
    assert np.nanstd(out[100:]) < 0.6 * np.nanstd(holed[100:])
