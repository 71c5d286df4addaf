"""Correlations of two curves at all shifts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pmtpy.analysis.signal.correlogram import correlogram
from pmtpy.analysis.signal.trace import PowerTrace


@pytest.mark.parametrize("lengths", [(400, 300), (300, 400), (401, 401)])
def test_correlations_at_all_shifts_are_those_of_what_both_have_in_common(lengths: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    step = 0.01
    fixed, moving = (rng.uniform(50.0, 150.0, n) for n in lengths)
    curves = [
        PowerTrace.of_levels(np.arange(0.0, len(w) + 0.5) * step, np.array([0.0, *w, 0.0])) for w in (moving, fixed)
    ]
    found = correlogram(curves[0], curves[1], step_s=step)
    for r, shift_s in list(zip(found.r, found.shift_s, strict=True))[::37]:
        k = round(shift_s / step)
        here, there = fixed[max(k, 0) : k + len(moving)], moving[max(-k, 0) : len(fixed) - k]
        assert r == pytest.approx(np.corrcoef(here, there)[0, 1], abs=1e-6)
    assert len(found.r) > min(lengths) / 2


def test_curves_are_correlated_without_half_a_second_of_imports() -> None:
    made = """
import sys
import numpy as np
from pmtpy.analysis.signal.correlogram import correlogram
from pmtpy.analysis.signal.trace import PowerTrace
one = PowerTrace.of_levels(0.1 * np.arange(200), np.arange(201.0) % 17.0)
correlogram(one, one, step_s=0.1).best()
print("scipy.signal" in sys.modules, "scipy.stats" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", made], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False"]
