from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.clocking import FasterThanPollsError, PublishingClock, _phase, estimate_updates, update_series
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.updates import Updates, stamp_step, tidy
from pmtpy.core.rows import Floats, Ints
from pmtpy.emulators.gpu_sensor import Polling, SensorModel
from pmtpy.emulators.load import Constant, Load, Square, Table, pseudo_random
from pmtpy.errors import DeclinedError
from tests.support.drawn_sensors import draw, record
from tests.support.recorded import read_log


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
    # docs/fit.md: 0.1 % for polls up to a fifth of the period, 0.5 % for coarse ones
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


@pytest.mark.parametrize(("late_s", "repeats", "patterned"), [(0.02, 0.0, True), (0.0, 0.0, False), (0.0, 0.6, False)])
def test_changes_in_a_pattern_are_told_from_values_that_repeat(
    late_s: float, repeats: float, *, patterned: bool
) -> None:
    """Renewed each 80 and 120 ms by turns: a lattice of 40 ms, of which two fifths bring changes."""
    rng = np.random.default_rng(5)
    at = 0.1 * np.arange(200) + late_s * (np.arange(200) % 2)
    kept = at[rng.random(200) >= repeats]
    polls = np.cumsum(rng.uniform(0.003, 0.012, 2600))
    values = rng.normal(100.0, 2.0, len(kept) + 1)[np.searchsorted(kept, polls)]
    clock = estimate_updates(polls, values, unequal=patterned)
    period = 0.04 if patterned else 0.1
    assert clock.period_s.contains(period)
    assert clock.seen == pytest.approx(0.4 if patterned else 1.0 - repeats, abs=0.08)
    assert clock.patterned == patterned


@pytest.mark.parametrize("unequal", [0.05, 0.15, 0.3, 0.4])
def test_updates_at_unequal_intervals_have_no_period_that_is_a_fraction_of_them(unequal: float) -> None:
    """Each interval is 0.1 s times what is drawn between ``1 - unequal`` and ``1 + unequal``."""
    for seed in (1, 3):
        rng = np.random.default_rng(seed)
        at = np.cumsum(0.1 * rng.uniform(1.0 - unequal, 1.0 + unequal, 330))
        polls = np.cumsum(rng.uniform(0.004, 0.006, 5800))
        values = rng.normal(100.0, 20.0, len(at) + 1)[np.searchsorted(at, polls)]
        if unequal < 0.1:
            seen = at[at < polls[-1]]
            assert estimate_updates(polls, values).period_s.contains(float(seen[-1] - seen[0]) / (len(seen) - 1))
        else:
            with pytest.raises(DeclinedError, match=r"at unequal intervals, [\d.]+ ms|of unequal intervals|may be"):
                estimate_updates(polls, values)


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


@pytest.mark.parametrize("wander_s", [0.0, 0.004])
def test_intervals_cover_the_truth_as_often_as_they_say(wander_s: float) -> None:
    period_held = phase_held = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        period = float(rng.uniform(0.02, 0.12))
        model = SensorModel(
            period, rng.uniform(0, period), wander_s, noise_w=0.2, step_w=0.1, window_s=period / 2, seed=seed
        )
        polling = Polling(period * rng.uniform(0.06, 0.4), period * 0.02, 0.01, stamp_step_s=0.001)
        lattice = estimate_updates(*_polled(model, polling, 10.0, seed))
        tick = model.tick_times(np.round((lattice.phase_s.value - model.phase_s) / period) + np.arange(-1, 2))
        period_held += lattice.period_s.contains(period)
        phase_held += bool(np.any((tick >= lattice.phase_s.low) & (tick <= lattice.phase_s.high)))
    assert period_held >= 17  # 95 % of 20, less twice the binomial deviation of 1; at size: benchmarks/bench_lattice.py
    assert phase_held >= 17


def test_polls_in_step_with_the_sensor_leave_the_phase_open_by_a_poll() -> None:
    model = SensorModel(0.104, 0.031, noise_w=0.3, step_w=0.01)  # eight polls of exactly 13 ms
    lattice = estimate_updates(*_polled(model, Polling(0.013, 0.0)))
    assert 0.004 < lattice.phase_s.half_width < 0.0065
    assert lattice.period_s.contains(0.104)


def test_a_wandering_phase_is_followed() -> None:
    model = SensorModel(0.1, wander_s=0.004, noise_w=0.3, step_w=0.01)
    load = pseudo_random(40.0, 200.0, 17.0, 62.0, 1)
    t_ns, watts = model.record(load, 60.0, Polling(0.008, 0.001), start_s=1.0)
    updates = update_series(_seconds(t_ns), watts, estimate_updates(_seconds(t_ns), watts))
    ticks = model.tick_times(np.round((updates.t_s - model.phase_s) / 0.1))
    assert np.sqrt(np.mean((updates.t_s - ticks) ** 2)) < 0.0007  # it wanders by several
    assert np.ptp(ticks - np.round(ticks / 0.1) * 0.1) > 0.002


def test_an_honest_minute_finds_the_period_to_a_fiftieth_of_a_percent() -> None:
    model = SensorModel(0.02004, wander_s=0.001, window_s=0.01, noise_w=0.3, step_w=0.1)
    lattice = estimate_updates(*_polled(model, Polling(0.004, 0.001, 0.005), seconds=60.0))
    assert lattice.period_s.value == pytest.approx(0.02004, rel=0.0002)
    assert lattice.period_s.half_width < 0.0004 * 0.02004


def test_a_phase_that_jumps_does_not_pull_the_period() -> None:
    model = SensorModel(0.1, noise_w=0.3, step_w=0.01)
    t, watts = _polled(model, Polling(0.008, 0.001), seconds=20.0)
    moved = np.where(t > 11.0, t + 0.013, t)  # from here on each read takes 13 ms longer
    lattice = estimate_updates(moved, watts)
    assert lattice.coverage > 0.9
    assert lattice.period_s.contains(0.1)
    assert np.ptp(lattice.block_phase_s) == pytest.approx(0.013, abs=0.002)


def test_updates_are_not_dated_where_the_phase_jumped() -> None:
    worst, left = [], []
    for seed in range(400, 408):
        drawn = draw(seed, family="boxcar", load="telegraph", polls="irregular", phase="jumping", seconds=16.0)
        found = update_series(drawn.t_s, drawn.watts, estimate_updates(drawn.t_s, drawn.watts))
        dated = found.dated()

        def off(t_s: Floats, true: Floats = drawn.updates_s, early: float = drawn.polls.lead_s) -> float:
            at = np.clip(np.searchsorted(true, t_s + early), 1, len(true) - 1)
            return float(np.max(np.fmin(np.abs(true[at] - t_s - early), np.abs(true[at - 1] - t_s - early))))

        worst.append((off(found.t_s) / found.period_s, off(dated.t_s) / found.period_s))
        left.append(1.0 - len(dated) / len(found))
    every, kept = np.array(worst).T
    assert np.median(every) > 0.1  # a jump is a slope of a second
    assert np.sum(kept < 0.02) >= 7  # one that shows few changes is found to jump in the next block
    assert 0.0 < np.max(left) < 0.25


@pytest.mark.parametrize("seconds", [1.0, 15.0])
def test_periods_from_ten_milliseconds_to_a_second(seconds: float) -> None:
    period = seconds / 15.0 * 0.15
    lattice = estimate_updates(
        *_polled(SensorModel(period, noise_w=0.3), Polling(0.2 * period, 0.02 * period), seconds * 4)
    )
    assert lattice.period_s.value == pytest.approx(period, rel=0.001)


_STARTS: Floats = np.asarray(np.cumsum(np.random.default_rng(3).uniform(0.02, 0.3, 200)), np.float64)
_TENTHS: Floats = np.asarray(np.arange(400) * 0.1, np.float64)
_IRREGULAR = Table(_STARTS, np.where(np.arange(200) % 2, 210.0, 60.0))
_LEVELS = Table(_TENTHS, np.random.default_rng(4).choice([60.0, 90.0, 120.0, 150.0, 180.0], 400))


@pytest.mark.parametrize("load", [Square(60.0, 210.0, 10.0), pseudo_random(60.0, 210.0, 10.0, 25.0, 1), _LEVELS])
@pytest.mark.parametrize("update_s", [0.0005, 0.002])
def test_edges_of_the_load_are_not_taken_for_updates(load: Load, update_s: float) -> None:
    model = SensorModel(update_s, window_s=update_s, step_w=0.01)
    t_ns, watts = model.record(load, 20.0, Polling(0.005, 0.0005), start_s=1.0)
    with pytest.raises(DeclinedError, match="jumps between a few levels"):
        estimate_updates(_seconds(t_ns), watts)


def test_a_sensor_without_noise_is_told_from_its_load_by_its_means() -> None:
    t_ns, watts = SensorModel(0.02, window_s=0.02, step_w=0.01).record(_IRREGULAR, 20.0, Polling(0.005, 0.0005))
    assert estimate_updates(_seconds(t_ns), watts).period_s.contains(0.02)


def test_noise_rounded_to_a_watt_is_told_from_levels_of_a_load() -> None:
    model = SensorModel(0.02, window_s=0.01, noise_w=0.3, step_w=1.0)
    t_ns, watts = model.record(Square(60.0, 210.0, 10.0), 20.0, Polling(0.005, 0.0005), start_s=1.0)
    assert estimate_updates(_seconds(t_ns), watts).period_s.contains(0.02)


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


def test_a_sensor_faster_than_the_polls_is_named_even_if_rounding_hides_half_of_its_updates() -> None:
    model = SensorModel(0.0015, window_s=0.0015, noise_w=0.4, step_w=1.0)
    t_ns, watts = model.record(Square(60.0, 210.0, 5.0), 10.0, Polling(0.0024, 0.0001), start_s=1.0)
    assert 0.3 < np.mean(np.diff(watts) != 0.0) < 0.8
    with pytest.raises(DeclinedError, match="publishes faster than it was polled"):
        estimate_updates(_seconds(t_ns), watts)


def test_polls_that_pause_longer_than_the_period_are_declined() -> None:
    t = np.sort(np.concatenate([np.arange(0.0, 40.0, 1.0), np.arange(0.0, 40.0, 1.0) + 0.01]))
    with pytest.raises(DeclinedError):
        estimate_updates(t, np.repeat(np.random.default_rng(1).normal(100.0, 10.0, 41), 2)[1:81])


def test_a_register_of_seconds_that_is_polled_each_millisecond_is_found() -> None:
    rng = np.random.default_rng(1)
    t = np.arange(0.0, 120.0, 0.001)
    t += rng.uniform(0.0, 0.0005, len(t))
    shown = np.floor(t / 2.0 + 0.3).astype(np.int64)
    clock = estimate_updates(t, rng.normal(100.0, 3.0, shown[-1] + 1)[shown])
    assert clock.period_s.contains(2.0)
    assert clock.period_s.half_width < 1e-3
    assert clock.poll_s == pytest.approx(0.001, rel=0.05)
    off = clock.times(np.arange(-20, 20)) - 1.4
    np.testing.assert_allclose(off - 2.0 * np.round(off / 2.0), 0.0, atol=0.01)


def test_changes_at_random_instants_are_declined() -> None:
    rng = np.random.default_rng(5)
    t = np.arange(0.0, 20.0, 0.007)
    changes = np.cumsum(rng.exponential(0.1, 400))
    watts = rng.normal(100.0, 20.0, 401)[np.searchsorted(changes, t)]
    with pytest.raises(DeclinedError, match=r"no update period|may be"):
        estimate_updates(t, watts)


def test_polls_out_of_order_are_left_out_and_stamp_resolution_is_seen() -> None:
    t, v = tidy(np.array([1.0, 2.0, 2.0, 1.5, 3.0, np.nan]), np.arange(6.0))
    assert t.tolist() == [1.0, 2.0, 3.0]
    assert v.tolist() == [0.0, 1.0, 4.0]
    assert stamp_step(np.asarray(1688840907.0 + np.arange(100) * 0.007, np.float64)) == 0.001
    assert stamp_step(np.random.default_rng(1).random(100)) == 0.0
    assert stamp_step(np.append(np.arange(100) * 0.007, 0.7013)) == 0.001  # one stamp from elsewhere


def test_one_poll_is_no_several_in_what_is_said() -> None:
    with pytest.raises(DeclinedError, match=r"^1 poll is too few to find an update period"):
        estimate_updates(np.array([1.0]), np.array([100.0]))
    with pytest.raises(DeclinedError, match=r"^the readings change 1 time, too few"):
        estimate_updates(np.asarray(0.01 * np.arange(100), np.float64), np.repeat([100.0, 120.0], 50))


@pytest.mark.parametrize("scatter_s", [3e-4, 1.5e-5])
def test_polls_on_a_beat_are_not_taken_for_stamps_that_were_cut_off(scatter_s: float) -> None:
    """A mean of 0.9973 s, polled each 0.1 s as exactly as an idle machine can: updates were dated 50 ms late."""
    rng = np.random.default_rng(9)
    polls = 0.1 * np.arange(900) + np.clip(rng.normal(0.0, scatter_s, 900), -3.0 * scatter_s, 3.0 * scatter_s)
    t = np.asarray(polls - polls[0], np.float64)  # of a recording that is looked at alone
    watts = rng.normal(100.0, 20.0, 100)[np.floor((t + 0.3) / 0.9973).astype(np.int64)]
    updates = update_series(t, watts, estimate_updates(t, watts))
    late_s = np.mod(updates.t_s + 0.3 + 0.4, 0.9973) - 0.4
    assert np.max(np.abs(late_s)) < 0.01  # the phase is passed by polls each 2.7 ms


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
    # polled every 60 ms, and read some 15 ms late for part of the time: it cannot be known to a hundredth of a percent
    assert lattice.period_s.half_width * 1e3 > 0.05
    assert lattice.period_s.contains(0.1003)


@pytest.mark.parametrize("late", [0.2, 0.5, 0.8])
def test_polls_in_step_leave_the_phase_open_by_a_poll_whatever_their_stamps(late: float) -> None:
    # Three polls in a period, always at the same places of it; only their stamps scatter, which proves nothing.
    period = 0.18
    poll = period / 3.0
    stamps = period * np.arange(-60.0, 60.0)[:, None] + poll * (np.array([0.0, 1.0, 2.0]) - late)
    stamps += 0.03 * poll * np.random.default_rng(1).standard_normal(stamps.shape)
    values = np.random.default_rng(2).normal(100.0, 10.0, 120)[:, None] + np.zeros(3)
    found = estimate_updates(stamps.ravel(), np.roll(values.ravel(), 1))
    assert found.period_s.contains(period)
    phase = found.phase_s
    assert phase.contains(period * round(phase.value / period))
    assert phase.high - phase.low > 0.5 * poll


@pytest.mark.parametrize("seed", [44, 45])
def test_what_all_times_of_a_wandering_phase_share_is_known_better_than_each_of_them(seed: int) -> None:
    """A phase that is off at one place is not at the next, so that a lag, which all tell of, is known better."""
    drawn = draw(seed, polls="irregular", load="telegraph", phase="wandering", seconds=20.0)
    updates = update_series(drawn.t_s, drawn.watts, estimate_updates(drawn.t_s, drawn.watts))
    off = updates.t_s[:, None] - (drawn.updates_s - drawn.polls.lead_s)
    mean = float(np.mean(off[np.arange(len(off)), np.argmin(np.abs(off), axis=1)]))
    assert abs(mean) <= 1.96 * updates.shared_s
    assert updates.shared_s < 0.6 * updates.jitter_s


def test_walks_that_no_path_is_drawn_of_are_left_out_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(45, polls="irregular", load="telegraph", phase="steady", seconds=20.0)
    found = estimate_updates(drawn.t_s, drawn.watts)
    monkeypatch.setattr(_phase, "_OUT_OF_QUESTION", np.inf)
    every = estimate_updates(drawn.t_s, drawn.watts)
    assert every.period_s.contains(found.period_s.value)
    assert found.period_s.half_width == pytest.approx(every.period_s.half_width, rel=0.15)
    assert found.phase_s.value == pytest.approx(every.phase_s.value, abs=0.1 * every.phase_s.half_width)


def test_fewer_times_share_more_but_never_more_than_each_is_off_by() -> None:
    updates = Updates(np.arange(100), np.linspace(0.0, 9.9, 100), np.zeros(100), 0.1, jitter_s=1e-3, common_s=4e-4)
    assert updates.shared_s == pytest.approx(4e-4)
    assert updates.where(slice(0, 25)).shared_s == pytest.approx(8e-4)
    assert updates.where(slice(0, 4)).shared_s == pytest.approx(1e-3)
    assert Updates(updates.k, updates.t_s, updates.watts, 0.1, jitter_s=1e-3).shared_s == pytest.approx(1e-3)


@pytest.mark.parametrize("share", [0.2, 0.37, 0.63])
def test_half_of_the_period_is_not_named_where_the_phase_jumps(share: float) -> None:
    """A jump by a part of the period makes a fraction of it explain all changes; but not the polls without one."""
    for seed in (1, 2):
        drawn = draw(seed, polls="irregular", load="telegraph", phase="steady", seconds=20.0)
        sensor = replace(drawn.sensor, phase="jumping", jump_s=share * drawn.sensor.period_s, jump_at_s=8.0)
        drawn = record(sensor, drawn.power, drawn.polls, 20.0, seed=seed)
        found = estimate_updates(drawn.t_s, drawn.watts)
        assert found.period_s.contains(sensor.period_s)
        assert found.period_s.half_width < 0.01 * sensor.period_s


@pytest.mark.parametrize("seed", [2, 3])
def test_half_of_the_period_is_not_named_where_the_phase_jumps_twice_and_polls_are_missing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = np.arange(100)
    updates = 0.1 * (k + np.select([k < 30, k < 55], [0.0, 0.39], 1.21))
    t = np.sort(0.2 + 0.01 * np.arange(970) + 0.001 * rng.standard_normal(970))
    t = t[np.all([(t < gap) | (t > gap + rng.uniform(0.05, 0.4)) for gap in rng.uniform(0.5, 9.0, 8)], axis=0)]
    found = estimate_updates(t, rng.standard_normal(100)[np.searchsorted(updates, t) - 1])
    assert found.period_s.contains(0.1)


@pytest.mark.parametrize("share", [0.49, 0.6, 0.655, 0.8])
def test_regular_polls_near_a_simple_fraction_of_the_period_do_not_hide_it(share: float) -> None:
    drawn = draw(3, polls="regular", load="telegraph", phase="steady", seconds=20.0)
    polls = replace(drawn.polls, interval_s=share * drawn.sensor.period_s, stamp_s=0.0)
    drawn = record(drawn.sensor, drawn.power, polls, 20.0, seed=4)
    found = estimate_updates(drawn.t_s, drawn.watts)
    assert found.period_s.contains(drawn.sensor.period_s)
    assert found.period_s.half_width < 0.003 * drawn.sensor.period_s


@pytest.mark.parametrize("share", [0.4974, 0.5025, 0.3325, 0.6655])
def test_polls_that_slip_by_an_update_now_and_then_tell_a_period_from_its_mirror(share: float) -> None:
    """Polls at 0.4974 of it see of a period as much longer than two polls the same, but where they slip."""
    rng = np.random.default_rng(1)
    t = share * 0.1 * np.arange(int(40.0 / (share * 0.1))) + 1e-4 * rng.random(int(40.0 / (share * 0.1)))
    found = estimate_updates(t, rng.normal(100.0, 10.0, 402)[np.floor(t / 0.1 - 0.3).astype(int) + 1])
    assert found.period_s.contains(0.1)
    assert found.period_s.half_width < 0.002 * 0.1  # the mirror lies 0.5 to 1 % away


def test_a_starved_poller_leaves_gaps_and_no_updates_that_were_not_there() -> None:
    drawn = draw(5, polls="starved", load="telegraph", phase="wandering", seconds=25.0)
    found = estimate_updates(drawn.t_s, drawn.watts)
    assert found.period_s.contains(drawn.sensor.period_s)
    updates = update_series(drawn.t_s, drawn.watts, found)
    assert np.max(np.diff(updates.k)) > 1
    # Each update is the sensor's own: no further from one of them than stamps are early and phases blurred.
    nearest = np.min(np.abs(updates.t_s[:, None] - drawn.updates_s[None, :]), axis=1)
    assert np.quantile(nearest, 0.95) < 0.25 * drawn.sensor.period_s


def test_a_sensor_faster_than_its_polls_gets_a_bound() -> None:
    t, watts = _polled(SensorModel(update_s=0.004, noise_w=0.3), Polling(0.010, 0.001))
    with pytest.raises(FasterThanPollsError, match="below") as error:
        estimate_updates(t, watts)
    assert 0.004 < error.value.bound_s < 0.0115
    document = characterise("power", Series(t, watts)).document()
    assert document["update_period_ms"] == {"value": None, "low": 0.0, "high": 1e3 * error.value.bound_s}
    assert "faster" in document["declined"]["update_period_ms"]


def test_the_candidates_are_weighed() -> None:
    drawn = draw(7, polls="irregular", load="telegraph", phase="steady", seconds=15.0)
    found = estimate_updates(drawn.t_s, drawn.watts)
    shares = [share for _, share in found.candidates]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] > 0.95
    assert 0.5 < found.seen <= 1.0


@pytest.mark.parametrize("hole_s", [3600.0, 3.0 * 86400.0])
def test_a_hole_of_hours_leaves_the_period_and_the_updates_on_both_sides_of_it(hole_s: float) -> None:
    rng = np.random.default_rng(1)
    t = np.cumsum(rng.uniform(0.006, 0.014, 3000))
    t[1700:] += hole_s
    k = np.floor((t - 0.013) / 0.1)
    _, which = np.unique(k, return_inverse=True)
    found = estimate_updates(t, np.round(rng.uniform(50.0, 200.0, int(np.max(which)) + 1), 2)[which])
    assert found.period_s.contains(0.1)
    updates = update_series(t, np.asarray(which, np.float64), found)
    assert len(updates) == pytest.approx(300, abs=3)
    off = np.mod(updates.t_s - 0.013 + 0.05, 0.1) - 0.05
    assert np.max(np.abs(off)) < 0.002  # a fifth of a poll


@pytest.mark.parametrize(
    ("noise_w", "resolution_w", "stale"), [(0.3, 0.01, True), (0.0, 0.01, False), (0.3, 1.0, False)]
)
def test_a_value_that_noise_cannot_repeat_was_not_renewed(noise_w: float, resolution_w: float, *, stale: bool) -> None:
    """A fifth of the renewals do not come. Of plateaus without noise, or in coarse steps, equal values are readings."""
    rng = np.random.default_rng(11)
    u = 0.05 * np.arange(600)
    on = np.repeat(rng.random(200) < 0.5, 3)
    watts = np.where(on, 200.0, 60.0) + noise_w * rng.standard_normal(600)
    came = (rng.random(600) > 0.2) | (np.arange(600) == 0)
    shown = np.round(watts[np.maximum.accumulate(np.where(came, np.arange(600), 0))] / resolution_w) * resolution_w
    t = np.arange(0.0, 30.0, 0.0047)
    v = shown[np.searchsorted(u, t, side="right") - 1]
    period, phase = Estimate(0.05, 0.0499, 0.0501), Estimate(0.0, -1e-4, 1e-4)
    clock = PublishingClock(period, phase, 1.0, 0.8, np.array([0.0, 30.0]), np.zeros(2), 0.0047)
    found = update_series(t, v, clock)
    assert found.stale == (pytest.approx(np.sum(~came), abs=12) if stale else 0)


def test_a_rest_without_noise_beside_a_load_that_has_some_is_read_all_the_time() -> None:
    """As a mean over a second of a card that idles: a third of its updates show the value before, one after another."""
    rng = np.random.default_rng(12)
    watts = np.where(np.arange(600) < 220, 25.31, np.round(200.0 + 0.3 * rng.standard_normal(600), 2))
    t = np.arange(0.0, 30.0, 0.0047)
    v = watts[np.searchsorted(0.05 * np.arange(600), t, side="right") - 1]
    period, phase = Estimate(0.05, 0.0499, 0.0501), Estimate(0.0, -1e-4, 1e-4)
    clock = PublishingClock(period, phase, 1.0, 0.6, np.array([0.0, 30.0]), np.zeros(2), 0.0047)
    assert update_series(t, v, clock).stale == 0


def _shown(watts: Floats, seconds: float = 30.0) -> int:
    """How many of the updates of 50 ms, polled each 4.7 ms, are taken for renewals that did not come."""
    t = np.arange(0.0, seconds, 0.0047)
    v = watts[np.searchsorted(0.05 * np.arange(len(watts)), t, side="right") - 1]
    period, phase = Estimate(0.05, 0.0499, 0.0501), Estimate(0.0, -1e-4, 1e-4)
    clock = PublishingClock(period, phase, 1.0, 0.6, np.array([0.0, seconds]), np.zeros(2), 0.0047)
    return update_series(t, v, clock).stale


@pytest.mark.parametrize("long", [5, 20])
@pytest.mark.parametrize("blocks", [1, 12], ids=["fast load", "plateaus"])
def test_a_register_that_stands_for_a_while_amid_noise_was_not_renewed(long: int, blocks: int) -> None:
    rng = np.random.default_rng(13)
    watts = np.round(np.repeat(rng.uniform(60.0, 200.0, 600 // blocks), blocks) + 0.3 * rng.standard_normal(600), 3)
    for begins in range(30, 570, 60):
        watts[begins : begins + long] = watts[begins - 1]
    assert _shown(watts) == 9 * long


def test_rests_without_noise_are_readings_where_their_power_comes_again_or_is_shown_by_no_other() -> None:
    rng = np.random.default_rng(14)
    noisy = np.round(rng.uniform(60.0, 200.0, 600), 3)
    again = np.where(np.arange(600) % 100 < 10, 100.0, noisy)  # a clock that is held, between loads above and below
    below = np.where(np.arange(600) % 300 < 30, 25.0 + np.arange(600) // 300, noisy)
    assert _shown(again) == _shown(below) == 0
