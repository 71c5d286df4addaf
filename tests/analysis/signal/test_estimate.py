from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.analysis.signal.estimate import (
    Estimate,
    bend_sd,
    huber_weights,
    mixed,
    robust_sd,
    rounding_error,
    student_95,
)


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        (2.5, 3.558),
        (3, 3.182),
        (4.6, 2.638),
        (5, 2.571),
        (10, 2.228),
        (30, 2.042),
        (1e9, 1.960),
        (1e250, 1.960),
        (math.inf, 1.960),
    ],
)
def test_quantiles_of_student_agree_with_the_printed_table(freedom: float, quantile: float) -> None:
    assert student_95(freedom) == pytest.approx(quantile, rel=0.012)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.floats(-1e3, 1e3))
def test_a_change_of_unit_keeps_the_value_inside_its_interval(value: float, se: float, factor: float) -> None:
    scaled = Estimate.normal(value, se).scaled(factor)
    assert scaled.low <= scaled.value <= scaled.high


def test_independent_errors_add_in_quadrature() -> None:
    wide = Estimate(1.0, 1.0 - 3.0, 1.0 + 3.0).widened(4.0)
    assert wide.half_width == pytest.approx(5.0)
    assert wide.contains(5.9)
    assert not wide.contains(6.1)


def test_the_robust_deviation_ignores_a_tenth_of_wild_values() -> None:
    values = np.concatenate([np.random.default_rng(1).standard_normal(900), np.full(100, 1e6)])
    assert robust_sd(values) == pytest.approx(1.0, rel=0.3)
    assert np.all(huber_weights(values)[-100:] < 0.2)


def test_second_differences_show_what_is_new_in_each_value_and_not_what_they_follow() -> None:
    rng = np.random.default_rng(5)
    values = 3.0 + 0.7 * np.arange(4000) + 0.2 * rng.standard_normal(4000)
    assert bend_sd(values, 0.25) == pytest.approx(0.2, rel=0.06)  # two standard errors of a quartile of 4000
    values[::40] += 50.0  # of which 7.5 % of the second differences know
    assert bend_sd(values, 0.25) == pytest.approx(0.2, rel=0.15)
    assert math.isnan(bend_sd(values[:2], 0.25))


def test_rounding_does_not_average_out_unless_noise_dithers_it() -> None:
    rng = np.random.default_rng(1)
    quiet = rng.choice([60.0, 61.0], 500)  # no noise: each value errs by up to half a step, whenever it is shown
    assert rounding_error(quiet, 0.25) == pytest.approx(math.sqrt(0.5 / 12.0), rel=0.02)
    noisy = np.round(rng.choice([60.3, 210.4], 500) + rng.normal(0.0, 1.0, 500))
    assert rounding_error(noisy, 1.04) < 1e-6
    assert rounding_error(np.full(10, 60.0), 0.0) == 0.0


def test_an_interval_of_one_of_several_holds_each_by_the_belief_in_it() -> None:
    def ends(*share: float) -> tuple[float, float]:  # of one about 0, and of one about 10, both +- 1.96
        parts = np.array([(0.0, -1.96, 1.96), (10.0, 8.04, 11.96)])[: len(share)]
        return mixed(np.array(share), *parts.T)

    assert ends(1.0) == pytest.approx((-1.96, 1.96), abs=1e-4)
    assert ends(1.0, 1e-3) == pytest.approx((-1.96, 1.96), abs=0.05)
    assert ends(2.0, 2.0) == pytest.approx((-1.645, 11.645), abs=0.01)
    certain = np.zeros(1)
    assert mixed(np.ones(1), certain, certain, certain) == (0.0, 0.0)
