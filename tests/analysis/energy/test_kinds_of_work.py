"""Loads that are not one of two levels: other levels behind blocks, ramps, warming up, unstamped work, two kinds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bench_energy import SENSORS, WORK, trial

SEEDS = range(100, 104)  # of each sensor


@pytest.mark.parametrize("stamped", [False, True], ids=["alone", "stamped"])
@pytest.mark.parametrize("load", WORK)
def test_intervals_hold_the_energy_of_other_work_than_one_of_two_levels(load: str, *, stamped: bool) -> None:
    # A gain that is known: of most sensors that is all of the interval where there are stamps.
    found = [trial(sensor, load, seed, stamped=stamped, gain_u=0.0) for sensor in SENSORS for seed in SEEDS]
    off, half, held, _ = np.array(found, np.float64).T
    assert np.mean(held) >= 0.83  # 28 trials: three standard errors of 0.95 are 0.12
    assert np.max(np.abs(off) / half) < 3.0  # and none is far outside
    if stamped:
        assert np.median(half) < 0.03
