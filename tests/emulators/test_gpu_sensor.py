"""The sensor simulator against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.emulators.gpu_sensor import Polling, SensorModel, parse_sensor_model
from pmtpy.emulators.load import Constant, Load, Sine, Square, Table, pseudo_random
from pmtpy.errors import TargetError
from tests.support.tails import with_tails

STEP = Table(np.array([0.0, 1.0]), np.array([50.0, 250.0]))  # 200 W up at 1 s


def test_a_boxcar_shows_the_mean_of_its_window() -> None:
    model = SensorModel(window_s=0.1, delay_s=0.003)
    t = np.array([0.9, 1.003, 1.053, 1.103, 2.0])
    assert model.filtered(STEP, t) == pytest.approx([50, 50, 150, 250, 250], abs=1e-9)


@given(tau=st.floats(0.001, 1.0), after=st.floats(0.0, 3.0))
def test_a_one_pole_follows_a_step_exponentially(tau: float, after: float) -> None:
    got = SensorModel(window_s=0.0, tau_s=tau).filtered(STEP, 1.0 + after)
    # The bound of the quadrature: a step inside a cell is misplaced by at most (3/256)^2/8 of its height.
    assert float(got) == pytest.approx(250 - 200 * math.exp(-after / tau), abs=200 * 2e-5)


@given(tau=st.floats(0.005, 0.2), window=st.floats(0.005, 0.2), after=st.floats(0.25, 2.0))
def test_both_kernels_convolve(tau: float, window: float, after: float) -> None:
    got = SensorModel(window_s=window, tau_s=tau).filtered(STEP, 1.0 + after)
    tail = tau / window * (math.exp(-(after - window) / tau) - math.exp(-after / tau))
    assert float(got) == pytest.approx(250 - 200 * tail, abs=200 * 2e-5 * max(1.0, tau / window))


def test_a_one_pole_attenuates_and_delays_a_sine() -> None:
    load, tau = Sine(low=0, high=100, hz=3.0), 0.05
    t = np.linspace(5, 6, 50)
    omega = 2 * math.pi * 3.0
    gain = 1 / math.sqrt(1 + (omega * tau) ** 2)
    expected = 50 + 50 * gain * np.sin(omega * t - math.atan(omega * tau))
    assert SensorModel(window_s=0, tau_s=tau).filtered(load, t) == pytest.approx(expected, abs=50 * 1e-4)


def test_without_a_kernel_the_momentary_power_is_shown() -> None:
    assert SensorModel(window_s=0).filtered(STEP, np.array([0.5, 1.5])) == pytest.approx([50, 250])


@pytest.mark.parametrize("wander", [0.0, 0.004])
def test_the_register_shows_the_newest_tick(wander: float) -> None:
    model = SensorModel(update_s=0.1, phase_s=0.033, wander_s=wander)
    t = np.linspace(-3, 300, 20_001)
    k = model.last_tick(t)
    assert np.all(model.tick_times(k) <= t)
    assert np.all(model.tick_times(k + 1) > t)
    drift = model.tick_times(k) - (0.033 + 0.1 * k)
    assert np.abs(drift).max() <= wander + 1e-12
    assert np.abs(drift).max() >= wander / 2


def test_readings_are_scaled_clipped_and_rounded() -> None:
    model = SensorModel(gain=0.9, offset_w=2.0, step_w=0.5, limit_w=100.0)
    assert model.readings(Constant(50.3), np.array([1.0])) == pytest.approx([47.5])  # 47.27 rounds to 47.5
    assert model.readings(Constant(300.0), np.array([1.0])) == pytest.approx([100.0])
    assert replace(model, offset_w=-99.0).readings(Constant(50.0), np.array([1.0])) == pytest.approx([0.0])


def test_the_same_tick_always_shows_the_same_value() -> None:
    model = SensorModel(noise_w=1.0)
    k = np.arange(1000)
    all_at_once = model.tick_readings(Constant(100.0), k)
    assert np.array_equal(all_at_once, [model.tick_readings(Constant(100.0), i) for i in k])
    assert not np.array_equal(all_at_once, replace(model, seed=2).tick_readings(Constant(100.0), k))


def test_the_noise_has_the_stated_spread_and_no_memory() -> None:
    noise = SensorModel(noise_w=2.0).tick_readings(Constant(100.0), np.arange(40_000)) - 100.0
    # Standard errors: 2/200 for the mean, 2/sqrt(80000) for the deviation, 1/200 for the correlation; five of each.
    assert noise.mean() == pytest.approx(0, abs=0.05)
    assert noise.std() == pytest.approx(2.0, abs=0.036)
    assert float(np.corrcoef(noise[:-1], noise[1:])[0, 1]) == pytest.approx(0, abs=0.025)


def test_the_averaged_channel_ramps_for_a_second() -> None:
    averaged = SensorModel().averaged()
    assert averaged.readings(STEP, np.array([1.0, 1.501, 2.001])) == pytest.approx([50, 150, 250])


def test_the_counter_moves_on_its_own_clock_and_agrees_with_the_load() -> None:
    model = SensorModel(gain=0.95, offset_w=1.0, counter_update_s=0.1, counter_step_j=0.001)
    t = np.linspace(0, 5, 1001)
    joules = model.counter(STEP, t)
    assert np.count_nonzero(np.diff(joules)) == 50
    true = 0.95 * STEP.joules(t) + t
    assert np.all(joules <= true + 1e-9)
    assert np.all(joules > true - 0.001 - 0.1 * (0.95 * 250 + 1))  # at most one tick behind


def test_stamps_lead_stall_and_repeat_as_asked() -> None:
    polling = Polling(lead_s=0.004, stamp_step_s=0.001, stall_share=0.02, stall_s=0.05, repeat_share=0.01)
    read, stamp = polling.instants(60.0, seed=3)
    assert np.all(np.diff(read) > 0)
    assert np.diff(read).max() > 0.04
    assert np.any(np.diff(stamp) == 0)
    assert np.median(read - stamp) == pytest.approx(0.0045, abs=0.0002)  # the lead, and half a step of rounding down
    assert np.array_equal(read, polling.instants(60.0, seed=3)[0])
    assert np.any(np.diff(Polling(backward_share=0.01).instants(60.0)[1]) < 0)


def test_a_fast_clock_stretches_the_stamps() -> None:
    read, stamp = Polling(rate=1.001, shift_s=7.0).instants(10.0)
    assert stamp == pytest.approx(7.0 + 1.001 * read)


def test_a_recording_repeats_each_update() -> None:
    t_ns, watts = SensorModel(noise_w=0.5).record(Constant(100.0), 10.0)
    assert len(t_ns) == len(watts) > 1300
    assert np.count_nonzero(np.diff(watts)) == pytest.approx(100, abs=1)


def test_falls_stop_halfway_when_clocks_are_held() -> None:
    load = with_tails(np.array([0.0, 1.0, 2.0, 5.0, 5.5]), np.array([10.0, 110.0, 10.0, 110.0, 10.0]), 1.0, 0.2)
    assert load.watts(np.array([0.5, 1.5, 2.5, 3.5, 6.0, 7.0])) == pytest.approx([10, 110, 30, 10, 30, 10])
    cut = with_tails(np.array([0.0, 1.0, 1.5]), np.array([100.0, 0.0, 50.0]), 1.0, 0.2)
    assert cut.watts(np.array([1.2, 1.6])) == pytest.approx([20, 50])


@pytest.mark.parametrize("load", [Square(hz=1.3), pseudo_random(50, 250, 20, 20, 3)])
def test_a_full_window_loses_no_energy(load: Load) -> None:
    model = SensorModel(update_s=0.1, window_s=0.1)
    k = np.arange(1, 101)
    assert model.tick_readings(load, k).sum() * 0.1 == pytest.approx(float(load.joules(np.array(10.0))))


def test_known_boards_can_be_named_and_changed() -> None:
    assert parse_sensor_model("a100").response.coverage == pytest.approx(0.247, abs=0.001)
    assert parse_sensor_model("a100:gain=1,seed=7").gain == 1.0
    assert parse_sensor_model("update_s=0.05,window_s=0.05").response.lag_s == pytest.approx(0.025)
    for wrong in ("b300", "a100:colour=1", "a100:gain=high", "a100:gain"):
        with pytest.raises(TargetError, match="rtx3090"):
            parse_sensor_model(wrong)


def test_a_sensor_that_cannot_be_is_refused() -> None:
    fields = "update_s", "window_s", "tau_s", "gain", "offset_w", "noise_w", "counter_update_s", "limit_w", "wander_s"
    absurd = [f"{field}={value}" for field in fields for value in ("nan", "-inf")]
    for spec in ("update_s=0", "update_s=inf", "window_s=-1", "wander_s=0.2", "gain=0", "noise_w=1e300", *absurd):
        with pytest.raises(TargetError, match=spec.partition("=")[0].replace("wander_s", "wander")):
            parse_sensor_model(spec)
