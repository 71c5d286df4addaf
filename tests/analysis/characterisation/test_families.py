"""A family of kernels is known wherever each of them is: to its search, to its fit, and to the profile made of it."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.characterisation._families import FAMILIES, PARAMETERS, RIVALS, age_of, variances, widths_of
from pmtpy.analysis.characterisation._forward import Problem, problem_of
from pmtpy.analysis.characterisation._initial_guess import Grid, seeds
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core import response
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats

PERIOD_S, STEP_S = 0.1, 1e-3
WIDTHS = {"window": 0.3, "tau": 0.2, "second": 0.1}  # seconds
AFTER_S = np.arange(0.0, 8.0, STEP_S)  # forty time constants


def moments(rise: Floats) -> tuple[float, float]:
    """Mean and variance of a kernel's ages, from its answer to a step from 0 to 1 at ``AFTER_S``."""
    left = 1.0 - rise
    mean = float(np.trapezoid(left, AFTER_S))
    return mean, float(np.trapezoid(2.0 * AFTER_S * left, AFTER_S)) - mean**2


def point_of(family: str) -> Floats:
    widths = [WIDTHS[name] if name in widths_of(family) else 0.0 for name in PARAMETERS[1:4]]
    return np.array([0.0, *widths, 1.0, 0.0])


@pytest.fixture
def step() -> Problem:
    reference = PowerTrace.from_energy(np.array([-50.0, 0.0, 50.0]), np.array([0.0, 0.0, 50.0]))
    readings = np.where(AFTER_S > 1.0, 1.0, 0.0)
    return problem_of(Updates(np.arange(len(AFTER_S)), AFTER_S, readings, PERIOD_S), reference, metered=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_kernel_shows_is_as_old_and_as_wide_as_its_family_says(family: str, step: Problem) -> None:
    point = point_of(family)
    mean, variance = moments(step.filtered(point, family))
    assert mean == pytest.approx(age_of(point), rel=1e-3)
    assert variance == pytest.approx(sum(variances(family, point)), rel=1e-3)


# A rival with a second time constant is never more than a candidate, so a profile does not undo it.
@pytest.mark.parametrize("family", [name for name in FAMILIES if "second" not in widths_of(name)])
def test_a_profile_undoes_the_kernel_that_was_fitted(family: str) -> None:
    point = point_of(family)
    shown = Response(PERIOD_S, window_s=float(point[1]), tau_s=float(point[2]), family=family).step(AFTER_S)
    assert moments(shown) == pytest.approx((age_of(point), sum(variances(family, point))), rel=1e-3)


def test_a_search_begins_somewhere_for_each_family() -> None:
    edges_s, at_s = np.arange(-15.0, 36.0), np.arange(0.0, 20.0, PERIOD_S)
    levels = np.where(edges_s % 3.0 == 0.0, 90.0, 30.0)
    reference = PowerTrace.from_energy(edges_s, np.cumsum(levels))
    readings = levels[np.searchsorted(edges_s, at_s)]
    grid = Grid.of(at_s, readings, reference, period_s=PERIOD_S, lead_s=0.0)
    assert seeds(grid, PERIOD_S).keys() == FAMILIES.keys()


def test_a_profile_knows_the_name_of_each_family() -> None:
    assert {*FAMILIES, "", AMBIGUOUS} == response.FAMILIES, "name it in pmtpy/core/response.py, too"
    assert set(RIVALS) < FAMILIES.keys()
