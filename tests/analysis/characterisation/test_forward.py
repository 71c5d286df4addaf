"""How kernels are fitted to readings."""

from __future__ import annotations

import numpy as np

from pmtpy.analysis.characterisation._forward import _least
from pmtpy.core.rows import Floats


def test_residuals_are_worked_out_once_where_their_derivatives_are_asked_for() -> None:
    tried = []

    def residuals(at: Floats) -> Floats:
        tried.append(tuple(at.tolist()))
        return np.array([at[0] - 3.0, np.exp(at[1]) - 2.0, 0.1 * at[0] * at[1]])

    found = _least(residuals, np.array([1.0, 0.5]), np.array([1e-4, 1e-4]), np.array([-np.inf, 0.0]))
    assert np.allclose(found, [2.99, 0.65], atol=0.03)
    assert len(tried) == len(set(tried))
