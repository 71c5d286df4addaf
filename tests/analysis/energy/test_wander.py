"""Corrected energies of a sensor whose publishing clock wanders: its phase is followed, so their intervals hold."""

from __future__ import annotations

import numpy as np

from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.energy.estimate import region_energy
from pmtpy.core.response import Response
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from tests.support.uncertainty.worlds import random_load, random_region


def errors(wander_s: float, polling: Polling, worlds: int) -> list[float]:
    """Errors of corrected energies in standard uncertainties; gain and zero are off by as much as stated."""
    found = []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        load, edges = random_load(rng, 42.0)
        model = SensorModel(phase_s=rng.uniform(0, 0.1), wander_s=wander_s, noise_w=0.3, step_w=0.01, seed=seed + 1)
        t_ns, watts = model.record(load, 40.0, polling, seed=seed)
        t_s = t_ns / 1e9
        updates = update_series(t_s, watts, estimate_updates(t_s, watts))
        response = Response(
            updates.period_s, 0.1, gain_u=0.002, offset_u=0.2, lag_u=0.001, noise_w=0.3, step_w=0.01
        )  # fmt: skip
        for _ in range(25):
            start, end = random_region(rng, edges, 0.3, 38.0)
            energy = region_energy(updates.t_s, updates.watts, response, start_s=start, end_s=end)
            true = float(load.joules(np.array(end)) - load.joules(np.array(start)))
            true += 0.002 * rng.standard_normal() * true + 0.2 * rng.standard_normal() * (end - start)
            found.append((energy.joules - true) / energy.uncertainty_joules)
    return found


def test_intervals_hold_though_the_phase_wanders() -> None:
    assert np.mean(np.abs(errors(0.003, Polling(0.007, 0.0007), 3)) < 1.96) >= 0.92
