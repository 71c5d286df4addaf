"""Calibration of a sampling meter against known inputs, and against the tables of its paper."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibration.meter import TABLE_I, allan, noise_by_rate, power_error, steady_mean, voltage_gain, zero_vref
from pmtpy.backends.powersensor3.config import FULL_SCALE_V, MAX_LEVEL
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Floats
from pmtpy.emulators.powersensor3.source import open_virtual
from pmtpy.errors import DeclinedError

N = 131_072


def white(seed: int, mean: float, deviation: float, n: int = N) -> Floats:
    return np.asarray(mean + deviation * np.random.default_rng(seed).standard_normal(n), np.float64)


def board(load: str, seconds: float) -> tuple[Floats, Floats]:
    """Return amperes and volts of one 12 V / 10 A module on the virtual board."""
    clock = ManualClock()
    with_noise = open_virtual(clock=clock, load=load, pairs="MLX10:12:1:gpu")
    amps, volts = with_noise.channels[:2]
    raw = []
    for _ in range(round(seconds / 0.1)):
        clock.advance(0.1)
        raw.append(np.asarray(with_noise.read().raw, np.float64))
    with_noise.close()
    levels = np.concatenate(raw)
    return (levels[:, 0] + amps.offset) * amps.scale, (levels[:, 1] + volts.offset) * volts.scale


def test_a_zero_is_found_to_its_standard_error() -> None:
    # 115 mA of Hall noise over 128 k samples: 0.3 mA, so 0.04 mV at 0.12 V/A.
    errors = []
    for seed in range(40):
        found = zero_vref(white(seed, 0.02, 0.115), 1.65, 0.12)
        assert found.half_width == pytest.approx(1.96 * 0.12 * 0.115 / math.sqrt(N), rel=0.6)
        errors.append(found.contains(1.65 + 0.12 * 0.02))
    assert np.mean(errors) > 0.85  # 40 trials of 95 %


def test_a_zero_is_right_for_either_polarity() -> None:
    assert zero_vref(white(1, 0.05, 0.1), 1.65, -0.12).value == pytest.approx(1.65 - 0.006, abs=1e-4)


def test_a_gain_carries_the_uncertainty_of_the_supply() -> None:
    found = voltage_gain(white(2, 12.3, 0.02), 0.091, 12.0, 0.012)
    assert found.value == pytest.approx(0.091 * 1.025, rel=1e-4)
    assert found.half_width == pytest.approx(1.96 * 0.091 * 1.025 * 0.001, rel=0.02)


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (white(1, 0.0, 0.1, 500), "500 samples are too few"),
        (np.full(5000, 0.3), "saturated or not connected"),
        (white(1, 0.0, 0.1) + np.linspace(0, 0.1, N), "not constant"),
        (white(1, 3.0, 0.1), "unplug the load"),
    ],
)
def test_samples_that_hold_no_zero_are_declined(samples: Floats, why: str) -> None:
    with pytest.raises(DeclinedError, match=why):
        zero_vref(samples, 1.65, 0.12)


def test_a_supply_that_does_not_fit_is_declined() -> None:
    with pytest.raises(DeclinedError, match="another sensor"):
        voltage_gain(white(1, 5.0, 0.01), 0.091, 12.0)


def test_the_error_model_gives_table_one() -> None:
    for name, module in TABLE_I.items():
        error = power_error(module.volts, module.volts_error, 10.0, module.amps_error)
        # The paper rounds to two digits and, as its figures show, leaves the term of the voltage small.
        assert error == pytest.approx(module.published_w, rel=0.03), name


def test_white_noise_averages_as_table_two_does() -> None:
    rows = noise_by_rate(white(3, 6.0, 0.718), 20_000.0)
    assert [r.block for r in rows] == [1, 2, 4, 20, 40]
    for row, published in zip(rows, (0.718, 0.507, 0.358, 0.160, 0.113), strict=True):
        assert row.std == pytest.approx(published, rel=0.03)
        assert row.std == pytest.approx(row.predicted_std, rel=0.03)
    assert rows[0].peak_to_peak == pytest.approx(2 * 4.4 * 0.718, rel=0.15)  # extremes of 128 k normal numbers
    assert noise_by_rate(np.zeros(10), 20_000.0) == []


def test_allan_deviation_of_white_noise_falls_as_the_root_of_time() -> None:
    found = allan(white(4, 0.0, 0.7), 20_000.0)
    assert found.deviation[0] == pytest.approx(0.7, rel=0.02)
    assert found.slope.value == pytest.approx(-0.5, abs=0.02)
    assert found.white


def test_drift_is_seen_in_the_allan_deviation() -> None:
    walk = np.cumsum(white(5, 0.0, 0.02)) + white(6, 0.0, 0.1)
    found = allan(np.asarray(walk, np.float64), 20_000.0)
    assert not found.white
    assert found.floor < found.deviation[-1] / 3
    with pytest.raises(DeclinedError, match="tell nothing"):
        allan(np.zeros(5000), 20_000.0)


def test_a_mean_says_how_well_it_is_known() -> None:
    mean = steady_mean(white(7, 5.0, 0.2), "test")
    assert mean.value == pytest.approx(5.0, abs=5 * mean.u)
    assert mean.noise == pytest.approx(0.2, rel=0.01)


def test_the_virtual_board_is_calibrated_to_its_truth() -> None:
    amps, volts = board("constant:0", 6.6)
    # The stored vref is that of the board; what remains is rounding down in the firmware: below one level.
    level_a = FULL_SCALE_V / MAX_LEVEL / 0.12
    assert len(amps) > 128_000
    assert abs(steady_mean(amps, "amps").value) < level_a
    assert voltage_gain(volts, 0.091, 12.0).value == pytest.approx(0.091, rel=0.003)


def test_the_virtual_board_is_as_noisy_as_table_two() -> None:
    amps, volts = board("constant:12", 6.6)
    rows = noise_by_rate(amps * volts, 20_000.0)
    for row, published in zip(rows, (0.722, 0.511, 0.362, 0.163, 0.117), strict=True):
        assert row.std == pytest.approx(published, rel=0.08)
    assert allan(amps * volts, 20_000.0).white
