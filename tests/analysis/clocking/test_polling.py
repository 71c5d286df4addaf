"""Polls that brought nothing new are put back, so that a change is known to have happened since the poll before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.analysis.clocking import Polling, estimate_updates, update_series
from pmtpy.core.rows import Floats, Ints
from pmtpy.emulators.gpu_sensor import Polling as Reader
from pmtpy.emulators.gpu_sensor import SensorModel
from tests.support.simulated import pseudo_random_bench

Bools = npt.NDArray[np.bool_]


def news(values: Floats, also: Bools) -> Bools:
    """Rows that a dump has: those with a new value, those of another register, and the first."""
    return np.concatenate([[True], np.diff(values) != 0.0]) | also


@given(st.integers(2, 60), st.floats(1e-3, 0.3), st.integers(0, 2**32 - 1))
def test_what_was_left_out_of_a_regular_rhythm_comes_back(n: int, period_s: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    t: Floats = np.asarray(5.0 + np.arange(n) * period_s, np.float64)
    v = np.asarray(rng.integers(0, 2, n), np.float64)
    kept = news(v, np.arange(n) == n - 1)
    times, values = Polling(period_s).polls(t[kept], v[kept], np.zeros(int(np.sum(kept)), np.int64))
    assert times == pytest.approx(t, abs=1e-9)
    assert values.tolist() == v.tolist()


def test_nothing_is_put_back_where_rows_were_lost() -> None:
    lost: Ints = np.array([0, 3], np.int64)
    times, _ = Polling(0.1).polls(np.array([0.0, 1.0]), np.array([5.0, 6.0]), lost)
    assert times.tolist() == [0.0, 1.0]


def test_polls_that_never_happened_are_not_put_back() -> None:
    # The poller was held up: its row is off the beat of all others.
    t = np.concatenate([0.1 * np.arange(20), [2.57], 2.6 + 0.1 * np.arange(5), [3.5]])
    times, _ = Polling(0.1).polls(t, np.arange(27.0), np.zeros(27, np.int64))
    assert not np.any((times > 1.95) & (times < 2.55))
    assert np.count_nonzero((times > 3.05) & (times < 3.45)) == 4


def test_a_row_with_the_devices_own_time_was_polled_half_a_period_later_on_average() -> None:
    times, values = Polling(0.1, stamped=True).polls(np.array([0.0, 0.3]), np.array([5.0, 6.0]), np.zeros(2, np.int64))
    assert times == pytest.approx([0.05, 0.15, 0.25, 0.35])
    assert values.tolist() == [5.0, 5.0, 5.0, 6.0]


def test_a_row_of_another_register_does_not_say_when_a_value_with_its_own_time_was_still_the_old_one() -> None:
    t, values = np.array([0.0, 0.27, 0.3]), np.array([5.0, 5.0, 6.0])
    times, _ = Polling(0.1, stamped=True).polls(t, values, np.zeros(3, np.int64))
    assert times == pytest.approx([0.05, 0.15, 0.25, 0.35])
    times, _ = Polling(0.1, stamped=True).polls(t, values, np.array([0, 4, 0], np.int64))
    assert times == pytest.approx([0.05, 0.35])


def test_the_metadata_of_a_stream_and_of_another_tool_tell_of_no_polls() -> None:
    assert Polling.of(None) is None
    assert Polling.of({"polled_s": None, "stamped": False}) is None
    assert Polling.of({"polled_s": 0.02, "stamped": True}) == Polling(0.02, stamped=True)
    assert Polling.of({"polled_s": 0.02, "stamped": True, "aged_s": 0.0}) == Polling(0.02, stamped=True)


def test_a_device_that_stamps_when_it_was_read_was_polled_then() -> None:
    """Registers of 100 ms, read at random: dated half a poll late if rows were taken for renewals."""
    rng = np.random.default_rng(4)
    reads = np.cumsum(rng.uniform(0.02, 0.03, 1000))
    k = np.floor((reads - 0.0371) / 0.1).astype(np.int64)
    first = np.diff(k, prepend=-1) > 0
    read = Polling.of({"polled_s": 0.025, "stamped": True, "aged_s": 0.025})
    assert read is not None
    t, watts = reads[first], rng.normal(100.0, 20.0, k[-1] + 1)[k[first]]
    assert read.renewed(t, watts) is None
    times, values = read.polls(t, watts)
    updates = update_series(times, values, estimate_updates(times, values))
    late_s = np.mod(updates.t_s - 0.0371 + 0.05, 0.1) - 0.05
    assert abs(np.mean(late_s)) < 0.005


@pytest.mark.parametrize("polled_s", [0.05, 0.02, 0.005])
@pytest.mark.parametrize("cut", [0.0, 1e-3])
def test_what_a_device_says_that_it_renewed_then_is_known_as_well_as_it_says(polled_s: float, cut: float) -> None:
    """Polls tell no better than they are apart, where they keep step; rows of another register lie between."""
    stamps = 5e8 + 0.1371 + 0.099993 * np.arange(300)
    watts = np.random.default_rng(1).normal(100.0, 20.0, 300)
    t, shown = np.sort(np.concatenate([stamps, stamps[:-1] + 0.0312])), np.repeat(watts, 2)[:-1]
    if cut:
        t = np.floor(t / cut) * cut
    polling = Polling(polled_s, stamped=True, uncut=not cut)
    times, values = polling.polls(t, shown)
    clock = estimate_updates(times, values, uncut=polling.uncut)
    updates = update_series(times, values, clock, polling.renewed(t, shown))
    assert len(updates) > 290
    late = updates.t_s - stamps[np.round((updates.t_s - stamps[0]) / 0.099993).astype(np.int64)]
    assert np.max(np.abs(late)) < 0.51 * cut + 1e-5
    assert updates.jitter_s < 1e-5
    np.testing.assert_array_equal(updates.watts, watts[np.round((updates.t_s - stamps[0]) / 0.099993).astype(np.int64)])


@pytest.mark.parametrize("jump_s", [0.03, -0.04])
@pytest.mark.parametrize("polled_s", [0.007, 0.02])
def test_a_phase_that_jumps_spoils_no_date_that_the_device_gave(polled_s: float, jump_s: float) -> None:
    """Dates before it, or behind it, were early by as much as the jump, until a clock could have drifted that far."""
    renewed = 0.03 + 0.1 * np.arange(400) + jump_s * (np.arange(400) >= 170)
    shown = 100.0 + 20.0 * np.random.default_rng(3).standard_normal(len(renewed))
    polling = Polling(polled_s, stamped=True, uncut=True)
    times, values = polling.polls(renewed, shown)
    updates = update_series(times, values, estimate_updates(times, values, uncut=True), polling.renewed(renewed, shown))
    dated = updates.dated()
    assert len(dated) >= 375  # but for a second or two about the jump
    off = np.min(np.abs(dated.t_s[:, None] - renewed[None, :]), axis=1)
    assert np.max(off) < 1e-9
    assert dated.jitter_s < 1e-9


def test_the_period_is_the_sensors_and_not_the_rhythm_of_the_rows() -> None:
    # Rows of another register 3 ms before most updates: their distances would be taken for those of the polls.
    bench = pseudo_random_bench(0.17)
    sensor = SensorModel(0.1, 0.03, window_s=0.08, noise_w=0.3, step_w=0.01)
    t_ns, watts = sensor.record(bench.load, 20.0, Reader(0.007, 0.0))
    t = t_ns / 1e9
    other = np.concatenate([[False], np.diff(np.floor((t + 0.003) / 0.1)) > 0])
    kept = news(watts, other)
    times, values = Polling(0.007).polls(t[kept], watts[kept], np.zeros(int(np.sum(kept)), np.int64))
    found = estimate_updates(times, values).period_s
    assert found.low < 0.1 < found.high
    assert found.half_width < 1e-4
