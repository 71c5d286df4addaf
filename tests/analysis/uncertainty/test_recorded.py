"""Energies of recordings: what their counters leave unknown, and by how much their curves are late."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.recorded import recorded_uncertainties
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Layout
from tests.support.uncertainty.worlds import telegraph

COUNTER = Channel("rail", Quantity.ENERGY, scale=1e-6, domain="host/rail", max_watts=20_000, gain_u=0.03)


@pytest.mark.parametrize("watts", [0.0, 100.0])
def test_of_a_recorded_counter_that_never_moved_nothing_is_known(watts: float) -> None:
    t = np.arange(-1.0, 3.0, 0.1)
    joules = np.column_stack([watts * (t + 1.0)] * 2)  # energies of recordings count from their first row
    power = np.full(joules.shape, watts)
    total, own = recorded_uncertainties(Layout((COUNTER,)), t, power, joules, Interval(2.0, [2.0 * watts], [0.0]))
    if watts:
        assert 0.03 * 200.0 <= own == total < 10.0
    else:
        assert math.isnan(own)
        assert math.isnan(total)


def error(seed: int, window_s: float) -> float:
    """Error of a recorded energy, in standard uncertainties: means over a window, published ten times a second."""
    rng = np.random.default_rng(seed)
    at, joules = telegraph(rng, 30.0, longest_s=3.0)
    t = np.arange(1.2 + rng.uniform(0.0, 0.1), 29.9, 0.1)
    shown = (np.interp(t, at, joules) - np.interp(t - window_s, at, joules)) / window_s
    start = t[round(rng.uniform(60, 90))]
    end = t[np.searchsorted(t, start + rng.uniform(1.0, 8.0))]
    curve = np.concatenate([[0.0], np.cumsum(np.diff(t) * (shown[1:] + shown[:-1]) / 2.0)])
    used, true = (float(np.diff(np.interp([start, end], x, y))[0]) for x, y in ((t, curve), (at, joules)))
    channel = Channel("gpu", Quantity.POWER, domain="gpu/0", refresh_s=0.1, window_s=window_s, lag_s=window_s / 2)
    watts, energy = (np.column_stack([y, y]) for y in (shown, curve))
    _, u = recorded_uncertainties(Layout((channel,)), t - start, watts, energy, Interval(end - start, [used], [0.0]))
    return (used - true) / float(u)


@pytest.mark.parametrize("window_s", [0.1, 1.0])
def test_a_recorded_curve_is_not_moved_so_that_all_of_its_lag_is_uncertain(window_s: float) -> None:
    found = np.abs([error(seed, window_s) for seed in range(100)])
    assert np.mean(found <= 2.0) >= 0.9  # 95 % of a hundred, two standard errors
