"""Polls that brought nothing new are put back, so that a change is known to have happened since the poll before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.analysis.clocking import Polling, estimate_updates
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
