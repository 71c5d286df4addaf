from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pmtpy.analysis.characterisation._kernel_from_load import fit_load_kernel
from pmtpy.analysis.characterisation._step_response import (
    INSTANT,
    LINEAR,
    LOGARITHMIC,
    SLOW,
    StepResponse,
    find_block,
    fit_step,
    highest_block,
    long_blocks,
)
from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.errors import DeclinedError
from tests.support.drawn_sensors import Kernel, Polls, Power, Sensor, record
from tests.support.recorded import read_log, read_pmd, read_stamps
from tests.support.simulated import Bench, square_bench
from tests.support.tails import with_tails

_STEP = Bench(np.array([2.03, 8.03]), 10.0)


def _step(model: SensorModel) -> StepResponse:
    updates = _STEP.updates(model)
    fit, _ = fit_load_kernel(updates, _STEP.intervals, 0.008)
    return fit_step(updates, *long_blocks(_STEP.intervals)[0], fit=fit)


@pytest.mark.parametrize(
    ("model", "kind", "rise_s"),
    [
        (SensorModel(0.1, window_s=0.1, noise_w=0.5), INSTANT, 0.08),
        (SensorModel(0.1, window_s=0.0, tau_s=0.0125, noise_w=0.5), INSTANT, 0.0275),
        (SensorModel(0.1, window_s=1.0, noise_w=0.5), LINEAR, 0.8),
        (SensorModel(0.015, window_s=0.0, tau_s=0.055, noise_w=0.2), LOGARITHMIC, 0.1208),
        (SensorModel(0.1, window_s=0.0, tau_s=0.3, noise_w=0.2), LOGARITHMIC, 0.659),
    ],
)
def test_each_kind_of_response_is_recognised(model: SensorModel, kind: str, rise_s: float) -> None:
    found = _step(model)
    assert found.kind == kind
    assert found.rise_s.contains(rise_s)  # 0.8 windows, ln 9 time constants
    assert found.delay_s is not None
    half = model.window_s / 2.0 + model.tau_s * np.log(2.0)
    assert found.delay_s.contains(float(half))


@pytest.mark.parametrize("hold_s", [0.3, 1.5])
def test_clocks_held_after_the_load_change_nothing_of_its_rise(hold_s: float) -> None:
    model = SensorModel(0.1, window_s=0.1, noise_w=0.5)
    load = with_tails(np.array([-10.0, 2.03, 8.03]), np.array([60.0, 210.0, 60.0]), hold_s, 0.15)
    t_ns, watts = model.record(load, 10.0, Polling(0.008, 0.001, 0.01), seed=1)
    t = np.asarray(t_ns * 1e-9, np.float64)
    found = fit_step(update_series(t, watts, estimate_updates(t, watts)), *long_blocks(_STEP.intervals)[0])
    assert found.kind == INSTANT
    assert found.rise_s.contains(0.08)
    assert found.delay_s is not None
    assert found.delay_s.contains(0.05)


def test_a_slow_load_is_told_from_a_slow_sensor_by_the_meter() -> None:
    ramp = np.linspace(0.0, 1.0, 60)
    t = np.concatenate([[0.0], 2.0 + 0.25 * ramp, [8.0, 8.001, 10.0]])
    watts = np.concatenate([[60.0], 60.0 + 150.0 * ramp, [210.0, 60.0, 60.0]])
    meter = PowerTrace.from_samples(t, watts)
    u = np.arange(0.1, 10.0, 0.1)
    from pmtpy.analysis.signal.trace import Responder

    updates = Updates(np.arange(len(u)), u, Responder(meter)(u, 0.1, 0.0), 0.1)
    found = fit_step(updates, 2.0, 8.0, fit=fit_kernel(updates, meter, metered=True))
    assert found.kind == SLOW
    assert "the load itself is slow" in found.note


def test_rise_and_delay_cover_the_truth_as_often_as_they_say() -> None:
    rises = delays = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tau = float(rng.uniform(0.02, 0.3))
        model = SensorModel(0.1, rng.uniform(0, 0.1), window_s=0.0, tau_s=tau, noise_w=0.5, seed=seed)
        k = np.arange(1, 99)
        updates = Updates(k, model.tick_times(k), model.tick_readings(_STEP.load, k), 0.1)
        found = fit_step(updates, 2.03, 8.03)
        assert found.delay_s is not None
        rises += found.rise_s.contains(float(np.log(9.0)) * tau)
        delays += found.delay_s.contains(float(np.log(2.0)) * tau)
    assert rises >= 34  # 95 % of 40, less about three binomial deviations of 1.4
    assert delays >= 34


def test_a_sensor_that_takes_seconds_is_at_its_plateau_when_the_block_ends() -> None:
    found = _step(SensorModel(0.015, window_s=0.0, tau_s=0.84, noise_w=0.3))
    assert found.kind == LOGARITHMIC
    assert found.rise_s.contains(float(np.log(9.0)) * 0.84)
    # On so flat a flank a tenth of a percent of the step is a hundredth of a second.
    assert 0.01 < found.rise_s.half_width < 0.1


def test_rows_stamped_before_they_are_read_make_the_delay_less_sure() -> None:
    early = 0.004
    model = SensorModel(0.02, 0.003, window_s=0.01)
    k = np.arange(1, 490)
    updates = Updates(k, model.tick_times(k) - early, model.tick_readings(_STEP.load, k), 0.02)
    exact, unsure = fit_step(updates, 2.03, 8.03), fit_step(updates, 2.03, 8.03, early_s=early)
    assert exact.delay_s is not None
    assert unsure.delay_s is not None
    assert unsure.delay_s.high == pytest.approx(exact.delay_s.value + early, abs=2e-3)
    assert unsure.delay_s.low == exact.delay_s.low


def test_of_a_stair_of_loads_the_highest_step_is_taken_and_of_equal_ones_the_first() -> None:
    edges = np.array([2.0, 6.0, 8.0, 12.0, 14.0, 18.0])
    u = np.arange(0.1, 20.0, 0.1)
    for heights, wanted in (((10.0, 60.0, 100.0), 14.0), ((98.0, 100.0, 99.0), 2.0)):
        watts = np.full(len(u), 50.0)
        for start, height in zip(edges[::2], heights, strict=True):
            watts[(u > start) & (u <= start + 4.0)] += height
        updates = Updates(np.arange(len(u)), u, watts, 0.1)
        assert highest_block(updates, long_blocks(LoadIntervals.switched(edges))) == (wanted, wanted + 4.0)


def test_the_block_is_found_without_stamps_but_gives_no_delay() -> None:
    updates = _STEP.updates(SensorModel(0.1, window_s=1.0, noise_w=0.5))
    polls = Series(updates.t_s.repeat(4) + np.tile(np.arange(4) * 0.025 + 0.001, len(updates)), updates.watts.repeat(4))
    found = characterise("power", polls).step
    assert found is not None
    assert found.kind == LINEAR
    assert found.delay_s is None


def test_readings_that_begin_under_the_load_have_no_step() -> None:
    updates = _STEP.updates(SensorModel(0.1, window_s=0.1, noise_w=0.5))
    late = Updates(updates.k[30:45], updates.t_s[30:45], updates.watts[30:45], updates.period_s)
    with pytest.raises(DeclinedError, match="too few for a step response"):
        fit_step(late, *long_blocks(_STEP.intervals)[0])


def test_a_square_wave_and_constant_power_have_no_step() -> None:
    bench = square_bench(0.34)
    with pytest.raises(DeclinedError, match="no single step"):
        long_blocks(bench.intervals)
    with pytest.raises(DeclinedError, match="no load step"):
        find_block(bench.updates(SensorModel(0.1, noise_w=0.5)))
    quiet = Bench(np.array([2.0, 8.0]), 10.0)
    updates = quiet.updates(SensorModel(0.1, gain=1e-6, offset_w=60.0, noise_w=0.5))
    with pytest.raises(DeclinedError, match="steady"):
        fit_step(updates, 2.0, 8.0)


@pytest.mark.parametrize(
    ("folder", "column", "kind", "rise_ms", "delay_ms"),
    # Rise and delay: gpu-sensor-units.csv of the publishers, mean of 32 runs; that of the K40m from its time constant.
    [
        ("rtx3090-step", "power.draw.instant [W]", SLOW, 249.0, 130.0),
        ("rtx3090-step", "power.draw.average [W]", LINEAR, 912.0, 597.0),
        ("k40m-step", "power.draw [W]", LOGARITHMIC, 120.0, 32.0),
    ],
)
def test_recorded_cards_respond_as_published(  # noqa: PLR0917  (columns of the table)
    recordings: Path, folder: str, column: str, kind: str, rise_ms: float, delay_ms: float
) -> None:
    t, watts = read_log(recordings / folder / "gpudata.csv.gz", column)
    t = np.asarray(t - 3600.0, np.float64)
    updates = update_series(t, watts, estimate_updates(t, watts))
    stamps: Floats = read_stamps(recordings / folder / "timestamps.csv")
    meter = PowerTrace.from_samples(*read_pmd(recordings / folder))
    fit = fit_kernel(updates, meter, metered=True)
    found = fit_step(updates, *long_blocks(LoadIntervals.switched(stamps[:-1], stamps[-1]))[0], fit=fit)
    assert found.kind == kind
    assert found.rise_s.contains(rise_ms * 1e-3)
    assert found.delay_s is not None
    assert found.delay_s.contains(delay_ms * 1e-3)


def test_a_block_that_lasts_longer_than_any_kernel_is_fitted_by_its_one_edge() -> None:
    power = Power(np.array([3.0, 23.0]), np.array([50.0, 200.0, 50.0]))
    sensor = Sensor(0.02, Kernel("boxcar", 0.01), 0.003, noise_w=1.0)
    drawn = record(sensor, power, Polls("irregular", 0.003, 0.0005), 26.0, seed=1)
    found = characterise("power", Series(drawn.t_s, drawn.watts))
    assert found.step is not None
