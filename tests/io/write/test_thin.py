"""Thinning: fewer rows, the same energy."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Frame, Layout
from pmtpy.io.write.downsample import Thinner

_LAYOUT = Layout((Channel("part", Quantity.POWER, domain="rail0"),))


def _rows(gaps_ms: list[int], marked: list[int] | None = None) -> Frame:
    """Rows with the given distances, energy 2 J per ms, and one lost row before each."""
    t_ns = np.cumsum(gaps_ms).astype(np.int64) * 1_000_000
    n = len(t_ns)
    joules = np.stack([t_ns / 5e5] * 2, axis=1)
    marks = tuple((row, str(row)) for row in marked or [])
    return Frame(
        t_ns, np.zeros((n, 2)), joules, t_ns[:, None] / 1e6, np.ones(n, np.int64), np.zeros((n, 2), np.int64), marks
    )


def _thin(frame: Frame, interval_s: float, cuts: list[int]) -> Frame:
    thinner = Thinner(_LAYOUT, interval_s)
    edges = sorted({0, len(frame), *(c for c in cuts if c < len(frame))})
    parts = [thinner.feed(frame.part(a, b)) for a, b in itertools.pairwise(edges)]
    last = thinner.flush()
    return Frame.joined([*parts, *([last] if last is not None else [])])


_GAPS = st.lists(st.integers(1, 30), min_size=2, max_size=60)


@given(_GAPS, st.integers(1, 50), st.lists(st.integers(0, 60)), st.lists(st.integers(0, 59), unique=True))
def test_nothing_is_lost_however_the_rows_are_split(
    gaps: list[int], interval_ms: int, cuts: list[int], marked: list[int]
) -> None:
    frame = _rows(gaps, sorted(m for m in marked if m < len(gaps)))
    whole, split = _thin(frame, interval_ms / 1000, []), _thin(frame, interval_ms / 1000, cuts)
    for thinned in (whole, split):
        np.testing.assert_array_equal(thinned.t_ns, whole.t_ns)
        assert thinned.joules[-1].tolist() == frame.joules[-1].tolist()
        assert thinned.t_ns[0] == frame.t_ns[0]
        assert thinned.lost.sum() == len(frame)
        assert [label for _, label in thinned.marks] == [label for _, label in frame.marks]
        np.testing.assert_allclose(thinned.watts[1:], 2000.0)
        assert thinned.marks == whole.marks


@given(_GAPS, st.integers(1, 50))
def test_there_is_one_row_for_each_interval_that_has_rows(gaps: list[int], interval_ms: int) -> None:
    frame = _rows(gaps)
    since_ms = (frame.t_ns - frame.t_ns[0]) // 1_000_000
    intervals = {int(-(-ms // interval_ms)) for ms in since_ms}
    assert len(_thin(frame, interval_ms / 1000, [])) == len(intervals)


def test_other_values_are_averaged() -> None:
    thinned = _thin(_rows([1] * 5), 0.002, [])
    assert thinned.values[:, 0].tolist() == [1.0, 2.5, 4.5]


def test_time_without_known_energy_does_not_lower_the_mean() -> None:
    frame = _rows([10] * 4)
    joules = frame.joules.copy()
    joules[2:] -= 20.0  # 10 ms before row 2 were not measured
    frame = replace(frame, joules=joules, uncovered_ns=np.array([[0, 0], [0, 0], [10_000_000] * 2, [10_000_000] * 2]))
    np.testing.assert_allclose(_thin(frame, 0.03, []).watts[1:], 2000.0)


def test_an_interval_without_any_known_energy_has_no_mean() -> None:
    frame = replace(_rows([10, 10]), uncovered_ns=np.array([[0, 0], [10_000_000] * 2]))
    assert np.isnan(_thin(frame, 0.01, []).watts[1]).all()


def test_parts_that_lack_different_stretches_have_a_total_that_is_their_sum() -> None:
    """30 W and 70 W over 40 ms, of which the one lacks the second 10 ms and the other the third."""
    layout = Layout(tuple(Channel(name, Quantity.POWER, domain=name) for name in ("a", "b")))
    t_ns = np.arange(5) * 10_000_000
    known = np.array([[0, 0], [1, 1], [1, 2], [2, 2], [3, 3]])  # tens of milliseconds of each part
    parts = known * 0.01 * [30.0, 70.0]
    joules = np.column_stack([parts.sum(axis=1), parts])
    unknown = np.column_stack([[0, 0, 1, 2, 2], np.arange(5)[:, None] - known]) * 10_000_000
    frame = Frame(t_ns, joules * np.nan, joules, np.empty((5, 0)), np.zeros(5, np.int64), unknown)
    thinner = Thinner(layout, 1.0)
    thinner.feed(frame)
    last = thinner.flush()
    assert last is not None
    np.testing.assert_allclose(last.watts[-1], [100.0, 30.0, 70.0])


def test_a_mark_keeps_its_instant_and_the_row_before_it() -> None:
    thinned = _thin(_rows([1] * 12, [0, 1, 6]), 0.004, [])
    assert (thinned.t_ns / 1e6).tolist() == [1, 2, 5, 6, 7, 9, 12]
    assert thinned.marks == ((0, "0"), (1, "1"), (4, "6"))


def test_a_mark_moves_to_the_row_of_its_interval_where_rows_are_even() -> None:
    thinner = Thinner(_LAYOUT, 0.004, even=True)
    thinned = thinner.feed(_rows([1] * 9, [0, 1, 4, 5]))
    assert (thinned.t_ns / 1e6).tolist() == [1, 5]
    assert thinned.marks == ((0, "0"), (1, "1"), (1, "4"))


def test_an_interval_of_no_length_is_refused() -> None:
    with pytest.raises(ValueError, match="interval"):
        Thinner(_LAYOUT, 0.0)
