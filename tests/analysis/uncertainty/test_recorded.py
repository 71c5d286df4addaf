"""Energies of recordings: what their counters leave unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.recorded import recorded_uncertainties
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Layout

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
