from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Frame, Layout, Point, Row
from pmtpy.errors import CoverageError
from pmtpy.sensor.history import History

LAYOUT = Layout((Channel("gpu", Quantity.POWER, domain="gpu/0"), Channel("t", Quantity.TEMPERATURE)))


def point(t_ns: int, joules: float, watts: float = 5.0, lost: int = 0) -> Point:
    return Point(t_ns, (watts, watts), (joules, joules), (40.0,), lost, (0, 0))


def frame(t_ns: list[int], joules: list[float]) -> Frame:
    return Frame.of_points([point(t, j) for t, j in zip(t_ns, joules, strict=True)])


def filled(seconds: float = 10.0) -> History:
    history = History(LAYOUT, seconds)
    history.append(point(1_000, 0.0))
    history.append(frame([2_000, 3_000, 4_000], [1.0, 3.0, 6.0]))
    history.append(point(5_000, 10.0))
    return history


@pytest.mark.parametrize(
    ("t_ns", "joules", "rows"), [(1_000, 0.0, 1), (1_500, 0.5, 1), (2_000, 1.0, 2), (3_500, 4.5, 3), (4_500, 8.0, 4)]
)
def test_the_curve_between_rows_is_a_straight_line(t_ns: int, joules: float, rows: int) -> None:
    reading = filled().at(t_ns)
    assert reading.joules == (joules, joules)
    assert reading.extended_ns == 0
    assert reading.rows == rows


def test_before_the_very_first_row_nothing_is_known() -> None:
    reading = filled().at(900)
    assert (reading.joules, reading.uncovered_ns, reading.rows) == ((0.0, 0.0), (-100, -100), 0)


def test_beyond_the_newest_row_the_last_power_goes_on() -> None:
    reading = filled().at(5_000 + 2_000_000_000)
    assert reading.joules[0] == 10.0 + 5.0 * 2
    assert reading.extended_ns == 2_000_000_000


def test_beyond_the_newest_row_the_last_power_goes_on_for_a_while_and_then_nothing_is_known() -> None:
    history = filled()
    history.carry_ns = 500_000_000
    reading = history.at(5_000 + 2_000_000_000)
    assert reading.joules[0] == 10.0 + 5.0 * 0.5
    assert (reading.extended_ns, reading.uncovered_ns) == (2_000_000_000, (1_500_000_000, 1_500_000_000))
    assert history.at(5_000 + 400_000_000).uncovered_ns == (0, 0)


def test_what_is_too_old_is_refused() -> None:
    history = History(LAYOUT, 1e-6)
    for i in range(3000):
        history.append(point(i * 1_000, float(i)))
    assert history.at(2_500_500).joules[0] == 2500.5
    with pytest.raises(CoverageError, match="history_s"):
        history.at(999)
    with pytest.raises(CoverageError, match="delivered no reading"):
        History(LAYOUT, 1.0).at(5)


@given(
    cuts=st.lists(st.integers(1, 29), unique=True),
    at=st.integers(0, 30_000),
    steps=st.lists(st.floats(0, 10), min_size=31, max_size=31),
)
def test_a_bookmark_is_settled_by_the_rows_that_pass_it(cuts: list[int], at: int, steps: list[float]) -> None:
    joules = np.cumsum(steps)
    t_ns = np.arange(31) * 1_000
    history = History(LAYOUT, 1e-6)  # forgets almost at once
    history.append(point(0, float(joules[0])))
    mark = history.bookmark(at)
    edges = [1, *sorted(c + 1 for c in cuts), 31]
    for a, b in pairwise(edges):
        history.append(frame(t_ns[a:b].tolist(), joules[a:b].tolist()))
    reading = history.reading(mark)
    assert reading.joules[0] == pytest.approx(float(np.interp(at, t_ns, joules)), abs=1e-9)
    assert reading.extended_ns == 0


def test_old_rows_are_forgotten_and_the_recent_ones_handed_out() -> None:
    history = History(LAYOUT, 2e-6)
    for i in range(100):
        row = point(i * 1_000, float(i))
        history.append(Frame.of_points([row], ((0, "late"),)) if i == 99 else row)
    recent = history.recent(None, 7_000)
    assert recent.t_ns.tolist() == [97_000, 98_000, 99_000]
    assert recent.timestamp[-1] == pytest.approx(106e-6)
    assert recent.marks == ((2, "late"),)
    assert len(history.recent(1e-6, 0)) == 2


def test_recent_rows_become_a_table() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = filled().recent(None, 0).to_pandas()
    assert list(table.columns) == [  # type: ignore[attr-defined]
        "time", "t_ns", "total_W", "gpu_W", "total_J", "gpu_J", "t [C]", "lost", "marker",
    ]  # fmt: skip


def test_an_empty_history_has_no_rows() -> None:
    assert len(History(LAYOUT, 1.0).recent(None, 0)) == 0


def test_a_stream_is_forgotten_whatever_the_number_of_rows_in_a_piece() -> None:
    history, rows, t_ns = History(LAYOUT, 0.1), 160, 0
    nothing = np.zeros(rows, np.int64)
    for _ in range(400):
        times = t_ns + 50_000 * np.arange(1, rows + 1)
        t_ns = int(times[-1])
        watts, uncovered = np.ones((rows, 2)), np.zeros((rows, 2), np.int64)
        history.append(Frame(times, watts, watts, np.ones((rows, 1)), nothing, uncovered))
    # 2000 rows are to be kept; a part of them, and a piece, may be forgotten late.
    assert len(history.recent(1e6, 0)) <= 2000 + 2 * 1024 + rows


def test_single_rows_are_forgotten_however_often_somebody_asks() -> None:
    history = History(LAYOUT, 1e-3)
    for i in range(20_000):  # what a program does that asks for the energy of each of its regions
        history.append(point(i * 1_000, float(i)))
        if i % 5 == 4:
            history.at(i * 1_000 - 1_500)
    # A thousand rows are kept; they are looked through every 2048 rows, and forgotten part by part.
    assert len(history.recent(1e6, 0)) <= 1000 + 2048 + 2 * 1024


def test_a_bookmark_among_rows_that_are_forgotten_is_settled_first() -> None:
    history = History(LAYOUT, 1e-6)
    history.append(point(0, 0.0))
    marks = [history.bookmark(1 + 7_770 * i) for i in range(1000)]
    for first in range(1, 8001, 160):
        t_ns = np.arange(first, first + 160) * 1_000
        history.append(frame(t_ns.tolist(), (t_ns * 1e-3).tolist()))
    assert len(history.recent(None, 0)) < 8000
    for i, mark in enumerate(marks):
        assert history.reading(mark).joules[0] == pytest.approx((1 + 7_770 * i) * 1e-3, abs=1e-9)


@pytest.mark.parametrize("as_one", [False, True])
def test_a_power_that_was_not_read_hides_no_peak(*, as_one: bool) -> None:
    history = History(LAYOUT, 10.0)
    peak = history.follow_peak(0)
    points = [point(t, 0.0, watts) for t, watts in ((1, 5.0), (2, math.nan), (3, 9.0), (4, math.nan), (5, 7.0))]
    for rows in [Frame.of_points(points)] if as_one else points:
        history.append(rows)
    assert peak.watts == (9.0, 9.0)


def test_rows_that_are_forgotten_or_not_asked_for_are_said_to_be_left_out() -> None:
    history = History(LAYOUT, 0.0)
    for i in range(10):
        history.append(point(i * 1_000_000_000, float(i)))
    a = history.at(2_500_000_000)
    for i in range(10, 6000):
        history.append(point(i * 1_000_000_000, float(i)))
    b = history.at(5_990_500_000_000)
    found = history.around(a, b)
    first = int(found.frames[1].t_ns[0])
    assert found.left_out_ns == ((3_000_000_000, first),)
    c = history.at(5_100_500_000_000)
    assert history.around(c, b).left_out_ns == ()
    ((begin, end),) = history.around(c, b, most=50).left_out_ns
    assert (begin, end) == (5_150_000_000_000, 5_941_000_000_000)


@given(at=st.integers(1, 9_999), passed=st.integers(0, 10), as_one=st.booleans())
@example(at=3000, passed=3, as_one=False)  # the newest row, and later one among others
def test_what_is_noted_while_rows_are_appended_is_as_if_it_had_been_noted_before(
    *, at: int, passed: int, as_one: bool
) -> None:
    points = [point(1_000 * i, i * i * 1.0, float(7 * i % 11)) for i in range(1, 11)]
    found = []
    for first in (0, passed):
        history = History(LAYOUT, 1.0)
        history.append(point(0, 0.0))
        for taken in points[:first]:
            history.append(taken)
        mark, peak = history.note(at), history.follow_peak(at)
        if first < len(points):
            for rows in [Frame.of_points(points[first:])] if as_one else points[first:]:
                history.append(rows)
        found.append((history.reading(mark), peak.watts))
    assert found[0] == found[1]


GPU = Layout(
    (
        Channel("gpu", Quantity.ENERGY, domain="gpu/0", refresh_s=0.1),
        Channel("power", Quantity.POWER, domain="gpu/0", refresh_s=0.1, window_s=0.1),
    )
)
MS = 10**6


def polled(watts: float, phase_ms: int, until_ms: int) -> tuple[History, Integrator]:
    """A constant power, counted each 100 ms and read each 20 ms; the power beside it has a row of its own each time."""
    history, integrator = History(GPU, 10.0), Integrator(GPU)
    for ms in range(0, until_ms, 20):
        counted = watts * ((ms - phase_ms) // 100 * 100 + phase_ms) * 1e-3
        history.append(integrator.step(Row(ms * MS, (counted, watts), 0)))
    return history, integrator


@pytest.mark.parametrize("phase_ms", [0, 20, 60])
def test_a_counter_that_rows_find_unmoved_counts_from_move_to_move(phase_ms: int) -> None:
    history, _ = polled(60.0, phase_ms, 2000)
    at = [history.at(ms * MS).joules for ms in range(310, 1500, 30)]  # at rows and between them
    # Each poll at 20 ms meets a move at once: rows would be out by up to 6 J.
    assert np.diff([joules[1] for joules in at]) == pytest.approx(60.0 * 0.03)
    assert all(joules[0] == joules[1] for joules in at)  # the counter makes the total


@pytest.mark.parametrize("newest_ms", [1000, 1020, 1060, 1080])
def test_behind_the_last_move_its_power_goes_on_also_where_later_rows_found_it_unmoved(newest_ms: int) -> None:
    history, _ = polled(60.0, 0, newest_ms + 1)
    for ms in (newest_ms - 1, newest_ms, newest_ms + 1, newest_ms + 15):
        assert history.at(ms * MS).joules[1] - history.at(505 * MS).joules[1] == pytest.approx(60.0 * (ms - 505) * 1e-3)


def test_a_counter_that_rests_for_more_than_a_refresh_used_what_it_shows() -> None:
    history, integrator = polled(60.0, 0, 1001)
    for ms in range(1020, 1500, 20):
        history.append(integrator.step(Row(ms * MS, (60.0, 0.0), 0)))
    assert history.at(1470 * MS).joules[1] == history.at(1000 * MS).joules[1]


def test_a_bookmark_stays_open_until_the_counters_have_moved_behind_it() -> None:
    history, integrator = polled(60.0, 0, 1021)
    mark = history.bookmark(1010 * MS)
    history.append(integrator.step(Row(1040 * MS, (60.0, 60.0), 0)))
    guessed = history.reading(mark).joules[1] - history.at(1000 * MS).joules[1]
    assert guessed == pytest.approx(60.0 * 0.01)
    for ms, counted in ((1100, 90.0), (1200, 96.0), (1300, 102.0)):  # it used 300 W meanwhile
        history.append(integrator.step(Row(ms * MS, (counted, 60.0), 0)))
    settled = history.reading(mark)
    assert settled is mark.reading
    assert settled.joules[1] - history.at(1000 * MS).joules[1] == pytest.approx(300.0 * 0.01)


def test_a_bookmark_whose_rows_are_forgotten_is_settled_before_the_counters_have_moved_twice() -> None:
    history, integrator = History(GPU, 1e-6), Integrator(GPU)
    for ns in range(0, 100 * 1000, 1000):
        history.append(integrator.step(Row(ns, (ns * 1e-9, 1.0), 0)))
    mark = history.bookmark(99_500)
    for ns in range(100 * 1000, 5000 * 1000, 1000):
        history.append(integrator.step(Row(ns, (ns * 1e-9, 1.0), 0)))
    assert history.reading(mark).joules[1] == pytest.approx(99_500e-9)
