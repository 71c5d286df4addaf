"""What is held of a meter while a sensor is characterised beside it."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.characterisation._families import BOTH
from pmtpy.analysis.characterisation._forward import Fit, evaluate, problem_of
from pmtpy.analysis.characterisation.kernel_fit import _distinct
from pmtpy.analysis.characterisation.results import Reference, Series
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.errors import DeclinedError


def test_a_meter_of_two_samples_is_declined_when_its_curve_is_asked_for() -> None:
    meter = Reference(Series(np.array([0.0, 1.0]), np.array([1.0, 1.0])))
    with pytest.raises(DeclinedError, match="2 samples"):
        meter.curve()


def test_a_curve_that_was_let_go_is_there_no_more() -> None:
    meter = Reference(Series(np.arange(10.0), np.ones(10)))
    assert meter.curve().energy(0.0, 9.0) == pytest.approx(9.0)
    meter.let_go()
    with pytest.raises(DeclinedError, match="looked at already"):
        meter.curve()


def test_a_counter_that_rests_or_stands_twice_makes_the_curve_of_its_moves() -> None:
    t, joules = np.array([0.0, 1.0, 2.0, 3.0, 3.0, 4.0]), np.array([0.0, 5.0, 5.0, 15.0, 16.0, 25.0])
    curve = PowerTrace.of_counter(t, joules)
    # The move at 2 s is none, the second one at 3 s comes at no time of its own.
    np.testing.assert_allclose(curve.watts(), [5.0, 5.0, 5.0, 10.0, 10.0])
    np.testing.assert_array_equal(curve.rows_s, [0.0, 1.0, 3.0, 4.0])


def test_kernels_along_a_valley_of_widths_are_one_and_others_are_not() -> None:
    t = 0.1 * np.arange(100.0)
    at = np.arange(-5.0, 15.0, 1e-3)
    load = PowerTrace.from_samples(at, np.asarray(60.0 + 100.0 * (at % 0.7 > 0.3), np.float64))
    problem = problem_of(Updates(np.arange(100), t, load.until(t + 0.01) - load.until(t), 0.1), load, metered=True)

    def fit(window_s: float, tau_s: float) -> Fit:
        lag_s = 0.02
        point = np.array([lag_s - window_s / 2.0 - tau_s, window_s, tau_s, 0.0, 1.0, 0.0])
        return evaluate(problem, BOTH, point, np.ones(100))

    # Of one lag: a window of 0.3 ms adds 0.3 per mille of the variance to that of 11 ms; half a millisecond more of
    # the time constant is another kernel.
    beside_nothing, none, other = fit(0.0003, 0.011), fit(0.0, 0.011), fit(0.0, 0.0115)
    assert len(_distinct(problem, [beside_nothing, none])) == 1
    assert len(_distinct(problem, [beside_nothing, none, other])) == 2
