"""Curves in few slices: nothing that a picture must show may get lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.plotting.decimate import envelope, held, interrupted, joined_spans, widened

_CURVES = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.floats(-1e6, 1e6), st.just(np.nan))), min_size=1, max_size=200
)


@given(_CURVES, st.integers(1, 50))
def test_extremes_survive_and_the_mean_lies_between_them(rows: list[tuple[int, float]], slices: int) -> None:
    t = np.cumsum([gap for gap, _ in rows]).astype(np.float64)
    y = np.array([value for _, value in rows])
    curve = envelope(t, y, slices)
    known = y[np.isfinite(y)]
    assert len(curve) <= max(slices, 1)
    if not len(known):
        assert len(curve) == 0
        return
    assert curve.low.min() == known.min()
    assert curve.high.max() == known.max()
    slack = 1e-9 * (1 + np.abs(known).max())
    assert (curve.mean >= curve.low - slack).all()
    assert (curve.mean <= curve.high + slack).all()
    assert (np.diff(curve.t) >= -1e-9).all()
    assert curve.t[0] >= t[0] - 1e-9
    assert curve.t[-1] <= t[-1] + 1e-9


def test_few_rows_stand_for_themselves() -> None:
    t, y = np.array([0.0, 1.0, 5.0]), np.array([1.0, np.nan, 3.0])
    curve = envelope(t, y, 10)
    assert curve.t.tolist() == [0.0, 5.0]
    assert curve.low.tolist() == curve.high.tolist() == [1.0, 3.0]


def test_a_spike_of_one_row_in_a_million_is_seen() -> None:
    y = np.full(1_000_000, 50.0)
    y[123_456] = 400.0
    curve = envelope(np.arange(1e6), y, 1000)
    assert curve.high.max() == 400.0
    assert curve.t[curve.high.argmax()] == pytest.approx(123_456, abs=1000)


def test_slices_are_equal_in_time_and_not_in_rows() -> None:
    t = np.concatenate([np.linspace(0, 1, 1000), np.linspace(1.01, 10, 100)])
    curve = envelope(t, t, 10)
    np.testing.assert_allclose(curve.high - curve.low, 1.0, atol=0.15)


def test_a_curve_is_interrupted_where_rows_were_lost() -> None:
    t = np.array([0.0, 1.0, 2.0, 7.0, 8.0])
    starts, ends = np.array([2.0]), np.array([7.0])
    curve = interrupted(envelope(t, t, 10), starts, ends)
    assert curve.t.tolist() == [0.0, 1.0, 2.0, 4.5, 7.0, 8.0]
    assert np.isnan(curve.mean).tolist() == [False, False, False, True, False, False]


def test_a_short_loss_inside_a_slice_does_not_interrupt_it() -> None:
    curve = envelope(np.arange(1000.0), np.ones(1000), 10)
    assert len(interrupted(curve, np.array([40.0]), np.array([43.0]))) == 10


def test_neighbouring_losses_are_one_span() -> None:
    starts, ends = joined_spans(np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0, 5.0]))
    assert (starts.tolist(), ends.tolist()) == ([1.0, 4.0], [3.0, 5.0])


def test_spans_too_short_to_see_are_widened_and_joined() -> None:
    starts, ends = widened(np.array([1.0, 1.5, 10.0]), np.array([1.1, 1.6, 20.0]), 1.0)
    np.testing.assert_allclose(starts, [0.55, 10.0])
    np.testing.assert_allclose(ends, [2.05, 20.0])
    assert len(widened(np.empty(0), np.empty(0), 1.0)[0]) == 0


def test_no_slices_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="0 slices"):
        envelope(np.arange(3.0), np.arange(3.0), 0)


def test_rows_that_are_means_are_drawn_over_the_time_of_which_they_are_and_slices_are_not() -> None:
    t, y = np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0, 3.0])
    counter = {"name": "package0", "rule": "counter", "in_total": True}
    facts = {"channels": [counter, {"name": "dram", "rule": "integrated", "in_total": False}]}
    for name in ("package0", "total"):
        steps = held(envelope(t, y, 10), name, facts)
        assert steps.t.tolist() == [0.0, 0.0, 1.0, 1.0, 5.0]
        assert steps.mean.tolist() == [1.0, 2.0, 2.0, 3.0, 3.0]
    assert held(envelope(t, y, 10), "dram", facts).t.tolist() == t.tolist()
    assert len(held(envelope(t, y, 2), "package0", facts)) == 2
