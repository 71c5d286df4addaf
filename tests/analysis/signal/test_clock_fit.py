from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pmtpy.analysis.signal.clock_fit import RATE_SD, fit_clock, follow_clock, zone_shift
from pmtpy.analysis.signal.correlogram import correlogram
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.errors import DeclinedError
from tests.support.recorded import TICKS_PER_MS, read_pmd, read_stamps
from tests.support.simulated import Bench, pseudo_random_bench, square_bench


def test_a_meters_offset_and_rate_are_found_from_many_edges() -> None:
    bench = square_bench(0.25)
    clock = fit_clock(bench.meter(shift_s=0.013, rate=0.0009), bench.edges_s[::2], bench.edges_s[1::2])
    assert clock.rate.value == pytest.approx(0.0009, abs=2e-5)
    assert clock.lag_s.value == pytest.approx(0.013, abs=3e-4)  # the samples are 0.2 ms apart
    back = clock.on_host(bench.meter(shift_s=0.013, rate=0.0009, noise_w=0.0))
    start, end = float(bench.edges_s[0]), float(bench.edges_s[-1])
    truth = float(bench.load.joules(np.array([end]))[0] - bench.load.joules(np.array([start]))[0])
    assert back.energy(start, end) == pytest.approx(truth, rel=2e-4)


def test_a_single_edge_gives_an_offset_and_of_the_rate_what_is_known_of_clocks() -> None:
    bench = Bench(np.array([2.0, 8.0]), 10.0)
    clock = fit_clock(bench.meter(shift_s=-0.004), bench.edges_s[::2], bench.edges_s[1::2])
    assert (clock.rate.value, clock.rate.sd) == pytest.approx((0.0, RATE_SD))
    assert clock.lag_s.contains(-0.004)


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("cell_s", [1e-3, 2e-3, 5e-3, 9e-3])
def test_an_edge_within_a_row_of_a_slow_meter_is_not_taken_to_its_begin(*, cell_s: float, counts: bool) -> None:
    rng = np.random.default_rng(5)
    on = 1.0 + np.cumsum(rng.uniform(0.5, 0.9, 40))
    edges = np.sort(np.concatenate([on, on + 0.25]))
    bench, lag = Bench(edges, float(edges[-1]) + 1.0), 0.0017
    t = np.arange(0.0, bench.seconds, cell_s)
    if counts:
        meter = PowerTrace.from_energy(t + lag, bench.load.joules(t))
    else:
        meter = PowerTrace.from_samples(t + lag, bench.load.watts(t) + 0.5 * rng.standard_normal(len(t)))
    clock = fit_clock(meter, edges[::2], edges[1::2])
    # Between two samples an edge may lie anywhere: forty are known to 0.05 of a row on the mean.
    assert clock.lag_s.value == pytest.approx(lag, abs=1e-4 if counts else 3.0 * cell_s / np.sqrt(12.0 * 40.0))
    assert clock.lag_s.contains(lag)
    alone = fit_clock(meter, edges[:1], edges[1:2])
    assert alone.lag_s.contains(lag)


def test_a_meter_that_shows_no_edge_is_declined() -> None:
    bench = square_bench(0.5)
    flat = PowerTrace.from_samples(np.arange(0.0, 10.0, 1e-3), 60.0 + np.random.default_rng(1).standard_normal(10000))
    with pytest.raises(DeclinedError, match="no rise"):
        fit_clock(flat, bench.edges_s[::2], bench.edges_s[1::2])


def test_edges_of_another_load_are_declined() -> None:
    bench, other = pseudo_random_bench(0.11, seed=1), pseudo_random_bench(0.0937, seed=7)
    with pytest.raises(DeclinedError, match=r"scatter|no rise"):
        fit_clock(other.meter(), bench.edges_s[::2], bench.edges_s[1::2])


@pytest.mark.parametrize("shift", [-0.7, 0.0, 0.35, 1234.5])
def test_the_same_load_is_recognised_at_any_shift(shift: float) -> None:
    bench = pseudo_random_bench(0.13)
    found = correlogram(bench.meter(shift_s=shift), bench.stamps()).best()
    assert found == pytest.approx(-shift, abs=0.006)


@pytest.mark.parametrize("start", [1.0, 16.0, 32.0])
def test_a_short_part_is_recognised_wherever_it_lies_in_a_long_recording(start: float) -> None:
    bench = pseudo_random_bench(0.13, 36.0)
    meter, part = bench.meter(shift_s=0.35), bench.counted().between(start, start + 3.0)
    assert correlogram(meter, part).best() == pytest.approx(-0.35, abs=0.006)
    assert correlogram(part, meter).best() == pytest.approx(0.35, abs=0.006)


def test_recordings_of_different_loads_do_not_look_alike() -> None:
    with pytest.raises(DeclinedError, match="do not look alike"):
        correlogram(pseudo_random_bench(0.13, 20.0, 1).meter(), pseudo_random_bench(0.13, 20.0, 5).stamps()).best()


def test_half_and_quarter_hours_between_zones_are_found_and_other_distances_declined() -> None:
    reference = pseudo_random_bench(0.13).stamps()
    assert zone_shift(3600.0, 3610.0, reference) == -3600.0
    assert zone_shift(-19800.0, -19790.0, reference) == 19800.0
    assert zone_shift(5.75 * 3600.0, 5.75 * 3600.0 + 10.0, reference) == -5.75 * 3600.0
    assert zone_shift(0.0, 10.0, reference) == 0.0
    with pytest.raises(DeclinedError, match="do not overlap"):
        zone_shift(700.0, 710.0, reference)
    with pytest.raises(DeclinedError, match="do not overlap"):
        zone_shift(86400.0, 86410.0, reference)


@pytest.mark.parametrize(
    ("log", "reference", "shift"),
    [
        ((0.0, 7200.0), (5400.0, 7200.0), 0.0),  # a part of a long log is where it stands
        ((0.0, 86400.0), (50000.0, 50600.0), 0.0),
        ((1000.0, 1600.0), (0.0, 7200.0), 0.0),
        ((0.0, 7200.0), (7000.0, 7300.0), 0.0),  # it goes on a little longer
        ((0.0, 7200.0), (5400.0, 9000.0), 0.0),
        ((0.0, 10800.0), (3600.0, 14400.0), 3600.0),  # begun and ended together in two zones
        ((3600.0, 4200.0), (0.0, 600.0), -3600.0),
        ((20000.0, 27200.0), (12900.0, 13200.0), -7200.0),
    ],
)
def test_recordings_longer_than_the_steps_of_zones_stay_where_they_meet(
    log: tuple[float, float], reference: tuple[float, float], shift: float
) -> None:
    curve = PowerTrace.from_samples(np.arange(reference[0], reference[1] + 1.0), np.ones(round(np.ptp(reference)) + 1))
    assert zone_shift(*log, curve) == shift
    unix_s = 1.7e9
    assert zone_shift(log[0] + unix_s, log[1] + unix_s, curve.shifted(unix_s)) == shift


@pytest.mark.parametrize("rate", [-0.002, 0.0015])
@pytest.mark.parametrize("bench", [square_bench(0.0134), pseudo_random_bench(0.017, 40.0)])
def test_a_meter_that_drifts_by_more_than_a_block_of_a_fast_load_is_followed(bench: Bench, rate: float) -> None:
    meter = bench.meter(shift_s=0.3, rate=rate)
    curve, clock, why = follow_clock(meter, bench.intervals)
    assert why == ""
    assert clock is not None
    assert curve.end_s - curve.start_s == pytest.approx((meter.end_s - meter.start_s) / (1.0 + rate), rel=1e-5)
    middle, half = bench.seconds / 2.0, (bench.seconds + 1.0) / 2.0
    assert curve.start_s == pytest.approx(middle - half, abs=1e-3)
    assert curve.end_s == pytest.approx(middle + half, abs=1e-3)


def test_a_first_block_at_low_clocks_does_not_hide_by_how_many_periods_a_meter_is_off() -> None:
    bench = square_bench(0.0997)
    meter = bench.meter(shift_s=0.004, rate=0.0009)
    middle = (meter.t_s[1:] + meter.t_s[:-1]) / 2.0
    first = (middle > bench.edges_s[0]) & (middle < bench.edges_s[1])
    watts = np.where(first, 60.0 + 0.45 * (meter.watts() - 60.0), meter.watts())
    slow = PowerTrace.from_samples(middle[1:-1], watts[1:-1])
    curve, _, why = follow_clock(slow, bench.intervals)
    assert why == ""
    assert curve.start_s == pytest.approx(-0.5, abs=2e-3)


def test_a_meter_that_was_started_late_is_followed_from_where_it_is() -> None:
    bench = pseudo_random_bench(0.13, 20.0)
    whole = bench.meter(shift_s=0.3)
    late = PowerTrace.from_samples(whole.t_s[30_000:-1], whole.watts()[30_000:])
    curve, clock, why = follow_clock(late, bench.intervals)
    assert why == ""
    assert clock is not None
    assert curve.start_s == pytest.approx(late.start_s - 0.3, abs=1e-3)


def long_blocks(blocks: int, pause_s: float = 8.0) -> Bench:
    edges = 1.0 + np.arange(blocks)[:, None] * (6.0 + pause_s) + np.array([0.0, 6.0])
    return Bench(edges.ravel(), float(edges[-1, -1]) + 3.0)


@pytest.mark.parametrize("rate", [-0.002, 0.0009])
@pytest.mark.parametrize("blocks", [4, 20])
def test_a_meter_is_followed_over_minutes_of_long_blocks(blocks: int, rate: float) -> None:
    bench = long_blocks(blocks)
    curve, clock, why = follow_clock(bench.meter(shift_s=0.02, rate=rate), bench.intervals, reach_s=2.0)
    assert why == ""
    assert clock is not None
    assert clock.rate.half_width < 5e-4
    assert (curve.start_s, curve.end_s) == pytest.approx((-0.5, bench.seconds + 0.5), abs=5e-3)


def test_clocks_that_ramp_up_in_stairs_do_not_delay_a_meter_that_saw_only_the_rise() -> None:
    bench = long_blocks(1)
    meter = bench.meter(shift_s=0.02)
    t = (meter.t_s[1:] + meter.t_s[:-1])[1:-1] / 2.0
    stairs = np.clip(0.4 + 0.1 * np.floor((t - 0.02 - bench.edges_s[0]) / 0.025), 0.0, 1.0)
    watts = np.where(t - 0.02 > bench.edges_s[0], 60.0 + stairs * (meter.watts()[1:-1] - 60.0), meter.watts()[1:-1])
    part = (t > 0.2) & (t < 4.0)
    rising = PowerTrace.from_samples(t[part], watts[part])
    curve, clock, why = follow_clock(rising, bench.intervals, reach_s=2.0)
    assert why == ""
    assert clock is not None
    assert curve.start_s == pytest.approx(rising.start_s - 0.02, abs=2e-3)


def test_a_few_edges_close_together_show_no_rate_that_no_clock_has() -> None:
    bench = Bench(np.array([1.0, 1.2, 1.4, 1.6, 1.8, 2.0]), 3.0)
    clock = fit_clock(bench.meter(rate=0.001), bench.edges_s[::2], bench.edges_s[1::2])
    assert abs(clock.rate.value) < 0.002
    assert clock.rate.contains(0.001)


@pytest.mark.parametrize("shift", [3.2, -4.0])
@pytest.mark.parametrize("bench", [long_blocks(1), pseudo_random_bench(0.13, 20.0)])
def test_a_meter_that_is_further_off_than_expected_is_found_where_it_alone_looks_alike(
    bench: Bench, shift: float
) -> None:
    meter = bench.meter(shift_s=shift)
    curve, clock, why = follow_clock(meter, bench.intervals, reach_s=2.0)
    assert why == ""
    assert clock is not None
    assert curve.start_s == pytest.approx(meter.start_s - shift, abs=2e-3)


def test_a_meter_of_a_regular_load_is_taken_to_be_as_near_as_its_clock_says() -> None:
    bench = square_bench(0.25)
    meter = bench.meter(shift_s=0.3)
    curve, _, _ = follow_clock(meter, bench.intervals, reach_s=2.0)
    assert curve.start_s == pytest.approx(meter.start_s - 0.3, abs=2e-3)


def test_a_meter_of_another_load_is_not_followed() -> None:
    bench, other = pseudo_random_bench(0.13, 20.0, 1), pseudo_random_bench(0.13, 20.0, 5)
    with pytest.raises(DeclinedError, match="do not look alike"):
        follow_clock(other.meter(), bench.intervals, reach_s=2.0)


def test_the_tick_rate_of_a_recorded_meter_is_found(recordings: Path) -> None:
    folder = recordings / "rtx3090-squarewave"
    stamps = read_stamps(folder / "timestamps.csv")[:-1]
    clock = fit_clock(PowerTrace.from_samples(*read_pmd(folder)), stamps[::2], stamps[1::2])
    assert TICKS_PER_MS * (1.0 + clock.rate.value) == pytest.approx(2936.06, abs=0.1)
