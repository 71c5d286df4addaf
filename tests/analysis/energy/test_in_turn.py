"""Two kinds of blocks of different power in turn, near multiples of the sensor's period, against their own energy."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis.energy.estimate import region_energy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table

PERIOD = 0.05


@pytest.mark.parametrize(("window", "tau"), [(0.1, 0.0), (0.25, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("periods", [0.5, 2 / 3, 1.0, 2.0])
def test_two_powers_in_turn_are_in_the_interval(window: float, tau: float, periods: float) -> None:
    held, apart = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        every = periods * PERIOD * (1.0 + rng.choice([-1, 1]) * 10 ** rng.uniform(-3.5, -1.3))
        on = np.arange(1.0, 6.0, every)
        first = np.arange(len(on)) % 2 == 0
        off = on + every * np.where(first, *rng.uniform(0.15, 0.85, 2))
        power = np.where(first, 240.0, rng.uniform(0.7, 1.0) * 240.0)
        edges = np.append(0.0, np.stack([on, off], axis=1).ravel())
        load = Table(edges, np.append(60.0, np.stack([power, np.full(len(on), 60.0)], axis=1).ravel()))
        model = SensorModel(PERIOD, rng.uniform(0, PERIOD), 0.0, window * PERIOD, tau * PERIOD, noise_w=0.3, seed=seed)
        k = np.arange(int(model.last_tick(0.2)), int(model.last_tick(6.5)) + 1)
        response = Response(PERIOD, window * PERIOD, tau * PERIOD, noise_w=0.3)
        start, end = 2.0 + rng.uniform(0, every), 4.5
        found = region_energy(
            model.tick_times(k),
            model.tick_readings(load, k),
            response,
            start_s=start,
            end_s=end,
            load=LoadIntervals(on, off),
        )
        true = float(np.diff(load.joules(np.array([start, end])))[0])
        held.append(found.low <= true <= found.high)
        apart.append(abs(found.joules - true) / (found.high - found.joules))
    assert np.mean(held) >= 7 / 8
    assert max(apart) < 2.0  # half-widths; 12 where all blocks are taken for one kind
