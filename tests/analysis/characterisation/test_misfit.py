"""What fits of kernels are weighed by: a likelihood that knows what errors of the updates' times do to each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pmtpy.analysis.characterisation._covariance import Noise
from pmtpy.analysis.characterisation._description import misfits
from pmtpy.analysis.characterisation._families import BOXCAR
from pmtpy.analysis.characterisation._forward import Problem, evaluate, problem_of
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from tests.support.drawn_sensors import Kernel, Power, Sensor

_PERIOD, _WINDOW, _CUT = 0.1, 0.04, 0.002


def _shaken() -> Problem:
    """Each window begins 2 ms before a slot of the load does, or 1 to 3 ms: it is dated as if its phase were steady."""
    rng = np.random.default_rng(3)
    edges = np.asarray(_PERIOD * (1.0 + np.arange(402)), np.float64)
    on = rng.integers(0, 2, len(edges) + 1)
    k = np.arange(10, 390)
    dated = np.asarray(_PERIOD * k + _WINDOW - _CUT, np.float64)
    late = -1e-3 * np.sin(dated)
    power = Power(edges, np.where(on, 220.0, 60.0))
    watts = Sensor(_PERIOD, Kernel(BOXCAR, _WINDOW)).readings(power, np.asarray(dated + late, np.float64), rng)
    levels = np.append(0.0, np.cumsum(on[1:-1] * np.diff(edges)))
    load = PowerTrace.from_energy(edges, np.asarray(levels, np.float64))
    return problem_of(Updates(k, dated, watts, _PERIOD, jitter_s=1e-3), load, metered=False)


def test_errors_of_instants_explain_what_a_kernel_makes_of_them_and_nothing_to_one_that_sees_no_edge() -> None:
    problem = _shaken()
    none = [0.0, 0.0, 1.0, 0.0]
    plain = np.where(np.min(np.abs(problem.y[:, None] - [60.0, 220.0]), axis=1) < 1.5, 1.0, 1e-6)  # no edge in them
    right, blind = (
        evaluate(problem, BOXCAR, np.array([0.0, window, *none]), plain) for window in (_WINDOW, _WINDOW - 2.0 * _CUT)
    )
    assert right.gain == pytest.approx(160.0, rel=0.02)
    assert np.std(right.residuals) > 1.5  # 4 W/ms, 0.7 ms, at every second reading
    noise = Noise(np.full(len(problem.y), 0.3**2), 0.3**2)
    still = misfits(replace(problem, jitter=0.0), right, noise)
    misfit = misfits(problem, right, noise)
    assert misfit(right) < still(right) - 500.0
    assert misfit(blind) > misfit(right) + 500.0
