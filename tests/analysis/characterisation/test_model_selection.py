from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.analysis.characterisation._forward import Fit
from pmtpy.analysis.characterisation._model_selection import with_doubt
from pmtpy.analysis.characterisation.kernel import KernelFit, Shape
from pmtpy.analysis.signal.estimate import Estimate

_NONE = Estimate.within(0.0, 0.0)


def _fit(offset_s: float, gain: float = 1.0) -> Fit:
    point = np.array([offset_s, 0.1, 0.0, 0.0, 1.0, 0.0])
    return Fit("boxcar", point, gain, 0.0, np.zeros(100), 1.0)


def _found() -> KernelFit:
    width, gain, lag = Estimate.within(0.1, 0.001), Estimate.within(1.0, 0.01), Estimate.within(0.06, 0.003)
    shape = Shape("boxcar", width, None, Estimate.within(0.01, 0.003), lag, None, gain, _NONE, 1.0, 1.0, 0.99)
    return KernelFit("boxcar", shape, (shape,), 100)


def test_a_profile_and_a_covariance_that_tell_of_one_valley_are_not_added() -> None:
    best = _fit(0.01)
    slopes = [(_fit(0.01 + by), misfit) for by, misfit in ((-0.004, 4.0), (0.004, 4.0), (0.01, 30.0))]
    found = with_doubt(_found(), [(best, 0.0)], slopes).best
    assert found.lag_s.half_width == pytest.approx(math.hypot(0.003, 0.004))
    assert found.offset_s.high == pytest.approx(0.01 + math.hypot(0.003, 0.004))
    assert (found.gain.low, found.gain.high) == pytest.approx((0.99, 1.01))


def test_another_minimum_is_as_uncertain_as_the_best() -> None:
    found = with_doubt(_found(), [(_fit(0.01), 0.0), (_fit(0.014, 1.02), 3.0), (_fit(0.05), 30.0)], []).best
    assert (found.lag_s.low, found.lag_s.high) == pytest.approx((0.057, 0.067))
    assert (found.gain.low, found.gain.high) == pytest.approx((0.99, 1.03))
