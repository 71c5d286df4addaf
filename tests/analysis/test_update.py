from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pmtpy.analysis.series import stamp_step, tidy
from pmtpy.analysis.update import estimate_updates, update_series
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.load import Constant, pseudo_random
from pmtpy.errors import DeclinedError
from pmtpy.model import Floats, Ints
from tests.analysis.recorded import read_log


def _seconds(t_ns: Ints) -> Floats:
    return np.asarray(t_ns * 1e-9, np.float64)


def _polled(model: SensorModel, polling: Polling, seconds: float = 12.0, seed: int = 1) -> tuple[Floats, Floats]:
    load = pseudo_random(40.0, 200.0, 1.0 / (1.7 * model.update_s), seconds + 2.0, seed)
    t_ns, watts = model.record(load, seconds, polling, start_s=1.0, seed=seed)
    return _seconds(t_ns), watts


@pytest.mark.parametrize("share", [0.07, 0.13, 0.2, 0.5, 0.6])
def test_the_period_is_found_from_fast_and_from_coarse_polls(share: float) -> None:
    model = SensorModel(update_s=0.1003, noise_w=0.3, step_w=0.01)
    lattice = estimate_updates(*_polled(model, Polling(share * 0.1003, 0.002), seconds=20.0))
    # docs/characterise.md: 0.1 % for polls up to a fifth of the period, 0.5 % for coarse ones
    assert lattice.period_s.value == pytest.approx(0.1003, rel=0.001 if share <= 0.2 else 0.005)


def test_polls_at_a_near_divisor_of_the_period_do_not_pull_it() -> None:
    model = SensorModel(update_s=0.1012, noise_w=0.3, step_w=0.01)  # eight polls of 13 ms are 104 ms
    lattice = estimate_updates(*_polled(model, Polling(0.013, 0.0004, stamp_step_s=0.001)))
    assert lattice.period_s.value == pytest.approx(0.1012, rel=0.001)


def test_repeated_values_do_not_double_the_period() -> None:
    model = SensorModel(update_s=0.02, window_s=0.01, noise_w=0.2, step_w=1.0)
    t, watts = _polled(model, Polling(0.005, 0.0005), seconds=10.0)
    runs = np.diff(t[np.flatnonzero(np.diff(watts))])
    assert np.mean(runs) > 0.025  # a naive mean of the runs is far too long
    assert estimate_updates(t, watts).period_s.value == pytest.approx(0.02, rel=0.001)


def test_stalls_jitter_and_disorderly_stamps_do_no_harm() -> None:
    model = SensorModel(update_s=0.1, wander_s=0.001, noise_w=0.3, step_w=0.01)
    polling = Polling(0.008, 0.001, 0.02, 0.05, 0.004, 0.001, 0.001, repeat_share=0.02, backward_share=0.01)
    lattice = estimate_updates(*_polled(model, polling, seconds=20.0))
    assert lattice.period_s.contains(0.1)
    assert lattice.period_s.value == pytest.approx(0.1, rel=0.001)


def test_every_update_is_read_back_with_its_own_value() -> None:
    model = SensorModel(update_s=0.1, phase_s=0.03, noise_w=0.3, step_w=0.01)
    load = pseudo_random(40.0, 200.0, 6.0, 14.0, 3)
    t_ns, watts = model.record(load, 12.0, Polling(0.007, 0.001), start_s=1.0)
    updates = update_series(_seconds(t_ns), watts, estimate_updates(_seconds(t_ns), watts))
    ticks = np.round((updates.t_s - model.phase_s) / model.update_s).astype(np.int64)
    assert len(updates) >= 119
    assert np.array_equal(updates.watts, model.tick_readings(load, ticks))
    assert updates.t_s == pytest.approx(model.tick_times(ticks), abs=0.002)


def test_updates_that_nobody_polled_are_left_out() -> None:
    model = SensorModel(update_s=0.1, noise_w=0.3, step_w=0.01)
    t, watts = _polled(model, Polling(0.008, 0.001))
    awake = (t < 5.0) | (t > 5.45)
    updates = update_series(t[awake], watts[awake], estimate_updates(t[awake], watts[awake]))
    assert np.max(np.diff(updates.k)) in {4, 5}


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    inside = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        period = float(rng.uniform(0.02, 0.12))
        model = SensorModel(period, rng.uniform(0, period), noise_w=0.2, step_w=0.1, window_s=period / 2, seed=seed)
        polling = Polling(period * rng.uniform(0.06, 0.4), period * 0.02, 0.01, stamp_step_s=0.001)
        inside += estimate_updates(*_polled(model, polling, 10.0, seed)).period_s.contains(period)
    assert inside >= 35  # 95 % of 40, less twice the binomial deviation of 1.4


def test_constant_power_is_declined() -> None:
    t_ns, watts = SensorModel(step_w=0.01).record(Constant(60.0), 10.0, Polling())
    with pytest.raises(DeclinedError, match="power is constant"):
        estimate_updates(_seconds(t_ns), watts)


def test_too_few_updates_are_declined() -> None:
    t, watts = _polled(SensorModel(noise_w=0.3), Polling(), seconds=0.8)
    with pytest.raises(DeclinedError, match="too few"):
        estimate_updates(t, watts)


def test_a_sensor_faster_than_the_polls_is_declined() -> None:
    t, watts = _polled(SensorModel(update_s=0.004, noise_w=0.3), Polling(0.010, 0.001))
    with pytest.raises(DeclinedError, match="faster than it was polled"):
        estimate_updates(t, watts)


def test_changes_at_random_instants_are_declined() -> None:
    rng = np.random.default_rng(5)
    t = np.arange(0.0, 20.0, 0.007)
    changes = np.cumsum(rng.exponential(0.1, 400))
    watts = rng.normal(100.0, 20.0, 401)[np.searchsorted(changes, t)]
    with pytest.raises(DeclinedError, match="no update period"):
        estimate_updates(t, watts)


def test_polls_out_of_order_are_left_out_and_stamp_resolution_is_seen() -> None:
    t, v = tidy(np.array([1.0, 2.0, 2.0, 1.5, 3.0, np.nan]), np.arange(6.0))
    assert t.tolist() == [1.0, 2.0, 3.0]
    assert v.tolist() == [0.0, 1.0, 4.0]
    assert stamp_step(np.asarray(1688840907.0 + np.arange(100) * 0.007, np.float64)) == 0.001
    assert stamp_step(np.random.default_rng(1).random(100)) == 0.0


@pytest.mark.parametrize(
    ("folder", "column", "period_ms", "relative"),
    [
        ("rtx3090-update-period", "power.draw.instant [W]", 99.973, 0.0002),
        ("rtx3090-update-period", "power.draw.average [W]", 99.973, 0.0002),
        ("rtx3090-squarewave", "power.draw.instant [W]", 99.970, 0.001),
        ("rtx3090-step", "power.draw.instant [W]", 99.970, 0.001),
        ("rtx3090-step", "power.draw.average [W]", 99.970, 0.001),
        ("k40m-step", "power.draw [W]", 15.413, 0.005),  # polls at 0.6 of the period
    ],
)
def test_periods_of_recorded_cards(
    recordings: Path, folder: str, column: str, period_ms: float, relative: float
) -> None:
    lattice = estimate_updates(*read_log(recordings / folder / "gpudata.csv.gz", column))
    assert lattice.period_s.value * 1e3 == pytest.approx(period_ms, rel=relative)


@pytest.mark.parametrize("column", [1, 2])
def test_period_of_a_recorded_card_polled_at_six_tenths_of_it(recordings: Path, column: int) -> None:
    lines = (recordings / "rtx4000ada-pmt" / "pmt-nvml.log").read_text(encoding="utf-8").splitlines()
    rows = np.array([[float(x) for x in line.split()] for line in lines if line[0].isdigit()])
    lattice = estimate_updates(rows[:, 0], rows[:, column])
    assert lattice.period_s.value * 1e3 == pytest.approx(100.3, rel=0.005)
