"""Reference meters whose rows are means since the row before: the power they do not show must not narrow a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from pmtpy.analysis import Trace, compare
from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import refuse_coarse
from pmtpy.analysis.characterisation.results import Series
from pmtpy.core.channel import Channel, EnergyMethod, Quantity
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.errors import DeclinedError
from tests.support.simulated import Bench, pseudo_random_bench

SECONDS = 20.0


def polls(bench: Bench, model: SensorModel) -> Series:
    t_ns, watts = model.record(bench.load, SECONDS, Polling(0.007, 0.0007, 0.01), start_s=0.0)
    return Series(np.asarray(t_ns * 1e-9, np.float64), watts)


def means(bench: Bench, cell_s: float) -> Series:
    """Rows as a dump of fewer rows has them: energy at the row, and the mean power since the one before."""
    t = np.arange(0.0, SECONDS, cell_s)
    joules = bench.load.joules(t)
    watts = np.diff(joules, prepend=joules[:1] - bench.load.watts(t[:1]) * cell_s) / cell_s
    return Series(t, watts, joules=np.asarray(joules - joules[0], np.float64))


@pytest.mark.parametrize("cell_s", [0.002, 0.008, 0.016])
def test_a_kernel_is_found_within_its_interval_whatever_the_meters_rows(cell_s: float) -> None:
    bench = pseudo_random_bench(0.067, SECONDS)
    boxcar = characterise("gpu", polls(bench, SensorModel(0.1, 0.03, window_s=0.08)), meter=means(bench, cell_s))
    assert boxcar.kernel is not None
    assert boxcar.kernel.best.window_s is not None
    assert boxcar.kernel.best.window_s.contains(0.08)
    pole = characterise(
        "gpu", polls(bench, SensorModel(0.1, 0.03, window_s=0.0, tau_s=0.03)), meter=means(bench, cell_s)
    )
    assert pole.kernel is not None
    assert pole.kernel.best.tau_s is not None
    assert pole.kernel.best.tau_s.contains(0.03)


def test_a_finer_meter_knows_a_kernel_better() -> None:
    bench = pseudo_random_bench(0.067, SECONDS)
    log = polls(bench, SensorModel(0.1, 0.03, window_s=0.08))
    fits = [characterise("gpu", log, meter=means(bench, cell_s)).kernel for cell_s in (0.001, 0.016)]
    widths = [fit.best.window_s.half_width for fit in fits if fit is not None and fit.best.window_s is not None]
    assert len(widths) == 2
    assert widths[1] > 1.96 * 0.016**2 / 0.08 > widths[0]  # the doubt that docs/fit.md derives


def test_a_meter_no_finer_than_the_sensor_is_declined_for_the_kernel() -> None:
    bench = pseudo_random_bench(0.067, SECONDS)
    found = characterise("gpu", polls(bench, SensorModel(0.1, 0.03, window_s=0.08)), meter=means(bench, 0.2))
    assert found.kernel is None
    assert "a reading every 200 ms, too coarse" in found.declined["kernel"]
    with pytest.raises(DeclinedError, match="too coarse to show over which time readings 100 ms apart"):
        refuse_coarse(0.2, 0.1)


def test_one_clock_ties_the_kernels_end_to_the_readings_without_a_load() -> None:
    bench = pseudo_random_bench(0.067, SECONDS)
    log = polls(bench, SensorModel(0.1, 0.03, window_s=0.08, delay_s=0.012))
    found = characterise("gpu", log, meter=means(bench, 0.001), one_clock=True)
    assert found.offset_s is not None
    assert found.offset_s.contains(0.012)
    assert found.offset_s.half_width < 0.004
    apart = characterise("gpu", log, meter=means(bench, 0.001))
    assert apart.offset_s is None
    assert "nothing ties" in apart.declined["kernel.offset_ms"]


@pytest.mark.parametrize("cell_s", [0.005, 0.02])
def test_rows_whose_energies_say_that_they_are_means_are_so_without_a_word_of_their_channel(cell_s: float) -> None:
    bench = pseudo_random_bench(0.067, SECONDS)
    rows = means(bench, cell_s)
    t = np.arange(0.5, SECONDS, 0.1)
    shown = np.asarray((bench.load.joules(t) - bench.load.joules(t - 0.1)) / 0.1, np.float64)
    traces = [Trace("meter", rows.t_s, rows.watts, rows.joules), Trace("register", t + 7.01377, shown)]
    found = compare(traces, reference="meter")["register"]
    assert found.lag_s is not None
    assert found.lag_s.contains(7.06377)
    assert found.lag_s.half_width < 0.3 * cell_s
    assert found.clock is not None
    assert found.clock.lag_s.contains(7.01377)


def test_rows_of_means_are_neither_late_nor_smoothed_in_a_comparison() -> None:
    bench = pseudo_random_bench(0.067, SECONDS)
    t = np.arange(0.0, SECONDS, 0.1)
    counted = np.asarray(0.95 * bench.load.joules(t) + 2.0 * t, np.float64)
    watts = np.diff(counted, prepend=counted[0] - 1.0) / 0.1
    counter = Channel("counter", Quantity.ENERGY, refresh_s=0.1, resolution=0.0)
    mean = Channel("meter", Quantity.POWER, method=EnergyMethod.MEAN, refresh_s=0.008, window_s=0.008, resolution=0.0)
    rows = means(bench, 0.008)
    found = compare(
        [
            Trace("counter", t, watts, counted, channel=counter),
            Trace("meter", rows.t_s, rows.watts, rows.joules, channel=mean),
        ],
        reference="meter",
        one_clock=True,
    )["counter"]
    assert found.lag_s is not None
    assert found.lag_s.contains(0.0)
    assert found.transfer is not None
    assert found.transfer.gain.contains(0.95)
    assert found.transfer.intercept_w.contains(2.0)
