"""Loads of which little is seen: few switches, kinds in turn, regions of one reading or from within a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pmtpy.analysis.energy._posterior import Readings, Terms
from pmtpy.analysis.energy.estimate import Energy, region_energy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Table

SENSORS = {
    "part-time": Response(0.1, 0.025, noise_w=0.3, gain_u=0.001),
    "one-pole": Response(0.1, 0.0, 0.25, noise_w=0.3, gain_u=0.001),
    "full": Response(0.1, 0.1, noise_w=0.3, gain_u=0.001),
    "mean of 1 s": Response(0.1, 1.0, noise_w=0.1, gain_u=0.001),
}


def of(
    response: Response,
    edges: Floats,
    watts: Sequence[float],
    region: tuple[float, float],
    seed: int,
    *,
    told: bool = True,
) -> tuple[Energy, float]:
    """Return the energy of a region of blocks between ``edges``, of these powers in turn, and the truth."""
    powers = np.resize(watts, len(edges) // 2)
    load = Table(np.append(0.0, edges), np.append(60.0, np.stack([powers, np.full(len(powers), 60.0)], axis=1).ravel()))
    phase = float(np.random.default_rng(seed).uniform(0.0, response.period_s))
    model = SensorModel(
        response.period_s, phase, 0.0, response.window_s, response.tau_s, noise_w=response.noise_w, seed=seed
    )
    k = np.arange(int(model.last_tick(1.5)), int(model.last_tick(14.5)) + 1)
    t, shown = model.tick_times(k), model.tick_readings(load, k)
    stamps = LoadIntervals(edges[::2], edges[1::2]) if told else None
    found = region_energy(t, shown, response, start_s=region[0], end_s=region[1], load=stamps)
    return found, float(np.diff(load.joules(np.array(region)))[0])


def held(found: Sequence[tuple[Energy, float]]) -> float:
    """Return the share of intervals that hold the truth."""
    return float(np.mean([each.low <= true <= each.high for each, true in found]))


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("blocks", [1, 2])
def test_fewer_than_four_switches(sensor: str, blocks: int) -> None:
    whole, within = [], []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        edges = 6.0 + np.cumsum(rng.uniform(0.2, 1.2, 2 * blocks))
        whole.append(of(SENSORS[sensor], edges, [230.0], (5.5, float(edges[-1]) + 0.5), seed))
        start, end = float(edges[0] + edges[1]) / 2.0, float(edges[-2] + edges[-1]) / 2.0 + 0.05  # begins in a block
        within.append(of(SENSORS[sensor], edges, [230.0], (start, end), seed))
    assert held(whole) >= 14 / 16
    assert held(within) >= 14 / 16


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("sensor", SENSORS)
def test_a_region_that_begins_in_a_block_and_one_of_a_tenth_of_a_second(sensor: str, told: bool) -> None:  # noqa: FBT001
    long, short = [], []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        edges = 2.0 + np.cumsum(rng.uniform(0.15, 0.9, 20))
        edges = edges[edges < 14.0][: 2 * (np.count_nonzero(edges < 14.0) // 2)]
        at = 2 * (len(edges) // 4)
        start = float(edges[at] + rng.uniform(0.2, 0.8) * (edges[at + 1] - edges[at]))
        long.append(of(SENSORS[sensor], edges, [230.0], (start, start + float(rng.uniform(0.5, 2.0))), seed, told=told))
        begins = float(edges[at])
        short.append(of(SENSORS[sensor], edges, [230.0], (begins, begins + 0.1), seed, told=told))
    assert held(long) >= 14 / 16
    assert held(short) >= 14 / 16


@pytest.mark.parametrize("sensor", SENSORS)
def test_three_kinds_in_turn_far_from_multiples_of_the_period(sensor: str) -> None:
    found = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        every = rng.uniform(0.33, 0.37)
        on = np.arange(2.0, 13.5, every) + 0.01 * rng.standard_normal(int(np.ceil(11.5 / every)))
        edges = np.stack([on, on + every * rng.uniform(0.3, 0.7)], axis=1).ravel()
        powers = [240.0, *(240.0 * rng.uniform(0.7, 1.0, 2))]
        start = float(rng.uniform(5.0, 7.0))
        found.append(of(SENSORS[sensor], edges, powers, (start, start + float(rng.uniform(1.0, 3.0))), seed))
    assert held(found) >= 14 / 16


def test_the_cost_grows_with_the_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    multiplied: list[int] = []
    inverse = np.linalg.inv

    def counted(matrix: Floats) -> Floats:
        multiplied.append(len(matrix) ** 3)
        return np.asarray(inverse(matrix), np.float64)

    monkeypatch.setattr(np.linalg, "inv", counted)  # of each block of the banded system
    for response in SENSORS.values():
        cost = []
        for many in (100, 200, 400):
            t = response.period_s * np.arange(float(many))
            readings = Readings(t, 60.0 + 0.3 * np.sin(t), response, (2.0, float(t[-1]) - 2.0))
            multiplied.clear()
            readings.solve(readings.first(), Terms.none(many))
            cost.append(sum(multiplied))
        assert cost[1] / cost[0] == pytest.approx(2.0, rel=0.2)
        assert cost[2] / cost[1] == pytest.approx(2.0, rel=0.1)


def test_where_many_blocks_fit_alike_a_millisecond_does_not_choose_one_of_them() -> None:
    # One reading of a sensor that sees a quarter of the time shows a block: it may be as long as two periods less that.
    t = np.arange(-10.0, 10.0, 0.1) + 0.0428
    busy = (np.abs(t - 0.1428) < 0.01) | ((t > 0.7) & (t < 1.2)) | (t > 1.3)
    watts = np.where(busy, 200.0, 60.0) + np.random.default_rng(1).normal(0.0, 0.25, len(t))
    response = replace(SENSORS["part-time"], gain_u=0.0025, lag_u=7e-4)
    found = [
        region_energy(t + 1e-3 * late, watts, response, start_s=0.0, end_s=0.6) for late in np.linspace(-4.0, 4.0, 9)
    ]
    joules, half = np.array([e.joules for e in found]), np.array([(e.high - e.low) / 2.0 for e in found])
    assert np.all(np.abs(np.diff(joules)) < 0.3 * half[1:])
    assert np.all(np.abs(joules - (36.0 + 140.0 * 0.1)) < half)
