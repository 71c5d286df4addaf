"""The shape that configurations share over the clock."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.transfer._shape import ClockShape, fit_shape, follow, knots_of
from pmtpy.core.rows import Floats

CLOCKS = np.array([500.0, 700.0, 900.0, 1100.0, 1300.0, 1600.0, 1900.0])
SHARES = np.array([0.05, 0.3, 0.5, 0.8, 1.0])  # of the time at 1100 MHz that goes with the clock


def fitted(log_y: Floats, warm: Floats | None = None) -> ClockShape:
    configs, clocks = log_y.shape
    index = np.repeat(np.arange(configs), clocks)
    log_f = np.tile(np.log(CLOCKS[:clocks]), configs)
    hot = np.zeros(log_y.size) if warm is None else warm.ravel()
    return fit_shape(index, log_f, log_y.ravel(), hot, np.log(CLOCKS[:clocks]))


def rooflines(shares: Floats) -> Floats:
    """Log time of kernels ``A/f + B``."""
    return np.asarray(np.log(shares[:, None] * 1100.0 / CLOCKS + 1.0 - shares[:, None]), np.float64)


def test_rooflines_over_a_wide_range_are_followed_exactly() -> None:
    shape = fitted(rooflines(SHARES) + np.arange(5)[:, None])
    assert shape.level == pytest.approx(np.arange(5), abs=1e-3)
    assert shape.slope == pytest.approx(SHARES / SHARES.mean(), abs=5e-3)
    again = shape.level[:, None] + follow(shape.slope[:, None], shape.at(np.log(CLOCKS))[None, :])[0]
    assert again == pytest.approx(rooflines(SHARES) + np.arange(5)[:, None], abs=2e-3)


def test_one_wild_value_does_not_bend_the_shape_even_among_three() -> None:
    clean = rooflines(np.array([0.7, 0.8, 0.9]))
    wild = clean.copy()
    wild[1, 6] += np.log(1.4)
    at = np.log(CLOCKS)
    assert fitted(wild).at(at) == pytest.approx(fitted(clean).at(at), abs=0.01)  # a mean would move by 0.1


def test_temperature_is_found_and_left_alone_where_nothing_tells_it() -> None:
    rng = np.random.default_rng(6)
    warm = 3.0 * rng.standard_normal((30, len(CLOCKS)))
    level = rooflines(rng.uniform(0.3, 1.0, 30)) + 0.003 * rng.standard_normal(warm.shape)
    # Three standard errors: 0.003 / (3 sqrt(210)), and a little for what levels and slopes take up.
    assert fitted(level + 0.002 * warm, warm).warmth == pytest.approx(0.002, abs=0.0003)
    hardly = 1e-3 * rng.standard_normal(warm.shape)
    assert abs(fitted(level, hardly).warmth) < 0.001


def test_clocks_that_are_nearly_the_same_are_one_knot() -> None:
    assert len(knots_of(np.log([1000.0, 1001.0, 1002.0, 1050.0]))) == 2


def test_a_slope_cannot_make_a_quantity_negative() -> None:
    value, rate = follow(np.array([-50.0]), np.array([1.0]))
    assert np.isfinite(value)
    assert np.isfinite(rate)
