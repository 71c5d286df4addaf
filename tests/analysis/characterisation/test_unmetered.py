from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pmtpy.analysis.characterisation._families import BOXCAR, ONE_POLE
from pmtpy.analysis.characterisation._kernel_from_load import fit_load_kernel
from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.characterisation.registers import Register, side_by_side
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.load import Table
from tests.support.drawn_sensors import Kernel, Polls, Power, Sensor, record
from tests.support.simulated import HIGH, LOW, Bench, pseudo_random_bench, square_bench

_ONE_POLE = SensorModel(0.1, window_s=0.0, tau_s=0.0125, delay_s=-0.002, noise_w=0.2)
_BOXCAR = SensorModel(0.1, window_s=0.02, delay_s=-0.002, noise_w=0.2)
_REST, _HELD = 40.0, 80.0  # before the load, and while clocks are held after it


@dataclass(frozen=True)
class Card(Bench):
    """A load that rests at another power before and after it than between its blocks."""

    @property
    def load(self) -> Table:
        starts = np.concatenate([[-10.0], self.edges_s])
        watts = np.where(np.arange(len(starts)) % 2, HIGH, LOW)
        watts[0], watts[-1] = _REST, _HELD
        return Table(starts, watts)


def card(bench: Bench) -> Card:
    return Card(bench.edges_s, bench.seconds)


def fit(bench: Bench, model: SensorModel, seed: int = 1) -> tuple[KernelFit, tuple[str, ...]]:
    return fit_load_kernel(bench.updates(model), bench.intervals, 0.008)


@pytest.mark.parametrize("bench", [square_bench(0.0754), pseudo_random_bench(0.017)])
def test_another_power_before_and_after_the_load_does_not_bend_the_kernel(bench: Bench) -> None:
    found, _ = fit(card(bench), _ONE_POLE)
    assert found.family == ONE_POLE
    assert found.best.tau_s is not None
    assert found.best.tau_s.value == pytest.approx(0.0125, rel=0.08)
    assert found.best.tau_s.contains(0.0125)
    whole = fit_kernel(card(bench).updates(_ONE_POLE), bench.stamps(), metered=False)
    assert whole.best.loss > 10.0 * found.best.loss  # watts squared that the two levels do not explain


def test_the_power_at_rest_tells_a_window_from_its_aliases_under_a_regular_load() -> None:
    found, _ = fit(card(square_bench(0.0754)), _BOXCAR)
    assert found.family == BOXCAR
    assert found.best.window_s is not None
    assert found.best.window_s.contains(0.02)
    assert found.best.window_s.half_width < 0.002


@pytest.mark.parametrize(
    ("period", "window"),
    [
        *((0.0719, 0.0678), (0.0892, 0.1414)),
        *((0.3493, 1.0), (0.6128, 0.9)),  # a mean of many updates
    ],
)
def test_a_window_is_not_lost_beside_its_aliases_under_a_square_wave(period: float, window: float) -> None:
    """Of half duty, windows of ``n L + w`` and ``n L - w`` show the same up to a gain: who finds one has all."""
    for bench in (square_bench(period), card(square_bench(period))):
        found, _ = fit(bench, SensorModel(0.1, window_s=window, delay_s=-0.002, noise_w=0.2))
        spans = found.spans("window_s")
        assert spans is not None
        assert spans.contains(window)


def test_of_offsets_whole_periods_apart_the_nearest_to_zero_is_taken_and_this_is_said() -> None:
    notes = set()
    for seed in range(1, 2):
        found, said = fit(card(square_bench(0.0754)), _ONE_POLE, seed)
        notes |= set(said)
        assert found.family == AMBIGUOUS or abs(found.best.offset_s.value) < 0.02
    assert any("the one nearest to zero was taken" in note for note in notes)


@dataclass(frozen=True)
class Sagging(Card):
    """Power that falls by a thirtieth over the first seconds of a load, and then creeps up."""

    @property
    def load(self) -> Table:
        starts = np.concatenate([[-10.0], self.edges_s])
        since = np.maximum(starts - self.edges_s[0], 0.0)
        share = 1.0 + 0.033 * np.exp(-since / 1.5) + 0.004 * since
        watts = np.where(np.arange(len(starts)) % 2, LOW + (HIGH - LOW) * share, LOW)
        watts[0], watts[-1] = _REST, _HELD
        return Table(starts, watts)


def test_power_that_sags_is_in_the_interval_where_few_phases_are_seen() -> None:
    bench = square_bench(0.1337, 12.0)
    sagging = Sagging(bench.edges_s, bench.seconds)
    found, _ = fit(sagging, _ONE_POLE)
    assert found.best.tau_s is not None
    assert found.best.tau_s.value == pytest.approx(0.0125, rel=0.08)
    assert found.best.tau_s.contains(0.0125)


def test_a_single_block_is_fitted_as_a_whole() -> None:
    bench = Bench(np.array([2.0, 8.0]), 10.0)
    found, notes = fit(bench, _ONE_POLE)
    assert notes == ()
    assert found.updates > 90


def test_what_load_stamps_are_worth_is_in_the_interval() -> None:
    found, _ = fit(card(pseudo_random_bench(0.0034, 4.0)), SensorModel(0.02, window_s=0.01, noise_w=0.05))
    assert found.best.window_s is not None
    assert found.best.window_s.half_width >= 0.4e-3
    assert found.best.offset_s.half_width >= 0.4e-3


@pytest.mark.parametrize("late_s", [0.008, 0.0, -0.008])
def test_a_load_that_rises_at_other_times_than_its_stamps_say_is_told_and_is_in_the_lag(late_s: float) -> None:
    """By the rises alone the sensor would be so much later than by the falls: which of them is right, nobody knows."""
    rng, seconds, kernel = np.random.default_rng(3), 30.0, Kernel("boxcar", 0.1)
    stamps = np.cumsum(rng.uniform(0.05, 0.45, 112)) + 1.2
    edges = stamps + late_s * (np.arange(len(stamps)) % 2 == 0)
    power = Power(edges, np.where(np.arange(len(edges) + 1) % 2, 250.0, 60.0))
    sensor = Sensor(0.1, kernel, phase_s=0.0123, noise_w=0.4)
    drawn = record(sensor, power, Polls("irregular", 0.007, 0.001), seconds, seed=1)
    lattice = estimate_updates(drawn.t_s, drawn.watts)
    updates = update_series(drawn.t_s, drawn.watts, lattice)
    found, notes = fit_load_kernel(updates, LoadIntervals.switched(stamps, seconds), lattice.poll_s)
    assert found.rises_late_s is not None
    assert found.rises_late_s.contains(late_s)
    assert found.rises_late_s.half_width < 0.002
    assert found.best.lag_s.contains(kernel.mean_age_s)
    assert found.best.lag_s.contains(kernel.mean_age_s + late_s)
    assert found.best.lag_s.half_width < abs(late_s) / 2.0 + 0.001
    assert [note.partition(" ms ")[2].partition(" than")[0] for note in notes] == (
        ["later"] * (late_s > 0.0) + ["earlier"] * (late_s < 0.0)
    )


@pytest.mark.parametrize(
    ("kernel", "of_period", "spread_s"),
    [
        (Kernel("two-pole", tau_s=0.008), 0.493, math.sqrt(2.0) * 0.008),
        (Kernel("two-pole", tau_s=0.006), 1.07, math.sqrt(2.0) * 0.006),
        (Kernel("triangular", 0.05), 2.03, 0.05 / math.sqrt(24.0)),
    ],
)
def test_two_filters_in_a_row_are_not_named_by_a_square_load_in_step_and_their_lag_is_right(
    kernel: Kernel, of_period: float, spread_s: float
) -> None:
    """Such a load shows a few harmonics only: other kernels, looked for from one start, seemed likelier than these."""
    period, seconds = 0.05, 20.0
    half = of_period * period / 2.0
    edges = np.asarray(1.2 + half * np.arange(2 * int(8.5 / half)), np.float64)
    power = Power(edges, np.where(np.arange(len(edges) + 1) % 2, 250.0, 60.0))
    sensor = Sensor(period, kernel, phase_s=0.0123, gain=0.97, offset_w=-4.0, noise_w=0.4)
    drawn = record(sensor, power, Polls("irregular", 0.007, 0.001), seconds, seed=1)
    lattice = estimate_updates(drawn.t_s, drawn.watts)
    updates = update_series(drawn.t_s, drawn.watts, lattice)
    found, notes = fit_load_kernel(updates, LoadIntervals.switched(edges, seconds), lattice.poll_s)
    assert found.family == AMBIGUOUS
    assert found.best.lag_s.contains(kernel.mean_age_s)
    assert found.best.lag_s.half_width < 0.2 * period
    assert found.spread.contains(spread_s)
    assert "the one nearest to zero was taken" in notes[0]


@pytest.mark.parametrize("window_s", [0.08, 1.0])
def test_what_the_load_did_where_nobody_stamped_it_does_not_tell_of_the_sensor(window_s: float) -> None:
    """A program is profiled for a part of a recording; before that the device worked without a rest, behind it too."""
    rng = np.random.default_rng(1)
    edges = 20.0 + np.cumsum(rng.uniform(0.3, 1.5, 60))
    on = edges.reshape(-1, 2)
    known = (float(edges[0]) - 0.01, float(edges[-1]) + 0.01)
    worked = np.concatenate([[3.0, known[0]], edges, [known[1], known[1] + 9.0]])
    load = Table(np.append(-10.0, worked), np.where(np.arange(len(worked) + 1) % 2, HIGH, LOW))
    sensor = SensorModel(update_s=0.1, window_s=window_s, noise_w=0.2)
    t_ns, watts = sensor.record(load, known[1] + 12.0, Polling(interval_s=0.0071))
    polls = Series(np.asarray(t_ns * 1e-9, np.float64), watts)
    stamps = LoadIntervals(on[:, 0], on[:, 1], np.array([known]))
    found = characterise("gpu", polls, load=stamps)
    assert found.kernel is not None, found.declined
    assert found.kernel.family == BOXCAR
    assert found.kernel.best.window_s is not None
    assert found.lag_s is not None
    assert found.kernel.best.window_s.contains(window_s)
    assert found.lag_s.contains(window_s / 2.0)
    assert found.kernel.best.window_s.half_width < 0.005
    assert any("what is found by them is found there alone" in note for note in found.notes)
    if window_s < 0.1:  # the same fit, in either case
        (register,), _ = side_by_side([Register("gpu", polls.t_s, polls.watts, load=stamps)])
        assert register.kernel == found.kernel
    still = characterise("gpu", polls, load=replace(stamps, known_s=np.array([[30.0, 30.01]])))
    assert "of no change" in still.declined["kernel"]
    assert "of no change" in still.declined["step"]
