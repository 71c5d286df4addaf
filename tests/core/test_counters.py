from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.channel import Channel, EnergyMethod, Quantity
from pmtpy.core.counters import increment, sure_ns
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Frame, Layout, Point, Row


def test_a_fall_without_wrap_is_a_restart() -> None:
    assert increment(3.0, 20.0, Channel("c", Quantity.ENERGY), 1.0) is None


RAPL = Channel("c", Quantity.ENERGY, scale=1e-6, wrap=262_143_328_850.0, max_watts=500)


@pytest.mark.parametrize(
    ("new", "old", "seconds", "expected"),
    [
        (5e6, 3e6, 0.1, 2.0),
        (1e6, 262_143_328_850.0 - 1e6, 0.1, 2.0),  # a wrap
        (1e6, 200e9, 1.0, None),  # a fall that as a wrap would mean 62 kJ in a second: a restart
        (200e9, 1e6, 1.0, None),  # an impossible jump: a misread count
        (5e6, 3e6, 600.0, None),  # 600 s at 500 W may hold a whole turn more
        (5e6, 3e6, 500.0, 2.0),
    ],
)
def test_a_wrap_must_be_possible_and_unambiguous(
    new: float, old: float, seconds: float, expected: float | None
) -> None:
    got = increment(new, old, RAPL, seconds)
    assert got == (None if expected is None else pytest.approx(expected))


@given(
    scale=st.floats(1e-9, 1.0),
    wrap=st.floats(1e3, 1e15),
    most=st.floats(1e-3, 1e5),
    refresh_s=st.none() | st.floats(1e-6, 1.0),
    parts=st.tuples(st.floats(1e-3, 1e3), st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)
def test_within_the_sure_time_no_possible_count_is_ambiguous(
    scale: float, wrap: float, most: float, refresh_s: float | None, parts: tuple[float, float, float]
) -> None:
    counts_in_a_step, of_the_time, of_the_possible = parts
    step = counts_in_a_step * scale
    channel = Channel("c", Quantity.ENERGY, scale, wrap=wrap, max_watts=most, refresh_s=refresh_s, resolution=step)
    limit_ns = sure_ns(channel)
    if limit_ns < 1:
        return
    seconds = int(limit_ns * of_the_time) * 1e-9
    possible = most * (seconds + 2 * (refresh_s or 0.0)) + step
    counts = min(of_the_possible * possible / scale, wrap) * (1 - 1e-9)
    assert increment(counts, 0.0, channel, seconds) == counts * scale


# -- rests -------------------------------------------------------------------------------------------------------------

# A package whose register is said to move each millisecond, in steps of 61 uJ, and that always uses 20 mW and more.
PACKAGE = Channel(
    "package0",
    Quantity.ENERGY,
    scale=1e-6,
    resolution=61e-6,
    refresh_s=1e-3,
    max_watts=1000.0,
    least_watts=0.02,
    domain="host/socket0/package",
)
OTHER = replace(PACKAGE, name="package1", domain="host/socket1/package")


def follow(channels: Sequence[Channel], rows: Sequence[tuple[float, Sequence[float]]]) -> tuple[Point, Integrator]:
    """The newest point of rows of (seconds, joules of each counter)."""
    integrator = Integrator(Layout(tuple(channels)))
    for t_s, joules in rows:
        row = Row(round(t_s * 1e9), [x if math.isnan(x) else round(x * 1e6) for x in joules])
        point = integrator.advance(row)
    assert isinstance(point, Point)
    return point, integrator


# A meter that shows kilowatt-hours with three decimals, and one that counts millijoules but moves by 3.6 kJ.
@pytest.mark.parametrize("scale", [3.6e6, 1e-3])
def test_a_step_is_what_the_channel_states_and_not_one_count(scale: float) -> None:
    meter = Channel("meter", Quantity.ENERGY, scale, resolution=3600.0, refresh_s=1.0, max_watts=1000.0)
    integrator = Integrator(Layout((meter,)))
    points = [integrator.advance(Row(i * 10**9, [3600.0 / scale * (i // 40)])) for i in range(41)]
    resting, moved = points[-2:]
    assert isinstance(resting, Point)
    assert isinstance(moved, Point)
    assert resting.watts[1] == pytest.approx(3600.0 / 39.0)  # it used less than a step in all that time
    assert moved.joules[1] == pytest.approx(3600.0)


def test_a_step_is_no_jump_though_it_is_more_than_can_be_used_since_the_last_row() -> None:
    meter = Channel("meter", Quantity.ENERGY, 1e-3, resolution=3600.0, refresh_s=1.0, max_watts=1000.0)
    assert increment(3.6e6, 0.0, meter, seconds=1.0) == pytest.approx(3600.0)


def test_a_powered_part_whose_counter_rests_is_not_known() -> None:
    point, integrator = follow([PACKAGE], [(t, [50.0]) for t in (0.0, 0.5, 1.0)])
    assert point.joules[1] == 0.0
    assert point.uncovered_ns == (10**9, 10**9)
    assert math.isnan(point.watts[0])
    assert "rests although the part is powered" in integrator.doubts[1][1]


def test_a_part_that_may_be_switched_off_rests() -> None:
    point, integrator = follow([replace(PACKAGE, least_watts=0.0)], [(t, [50.0]) for t in (0.0, 0.5, 1.0)])
    assert point.uncovered_ns == (0, 0)
    assert not integrator.doubts


def test_a_frozen_counter_uncovers_the_total_but_not_its_neighbour() -> None:
    third = replace(PACKAGE, name="package2", domain="host/socket2/package")
    point, _ = follow(
        [PACKAGE, OTHER, third], [(t, [100.0 * t, 50.0, 50.0]) for t in np.arange(0.0, 2.01, 0.1).tolist()]
    )
    assert point.joules[1] == pytest.approx(200.0)
    assert point.uncovered_ns[1] == 0
    assert point.uncovered_ns[2] == point.uncovered_ns[0] == 2 * 10**9


def test_a_counter_that_dies_is_known_up_to_its_last_move() -> None:
    point, _ = follow([PACKAGE], [(t, [100.0 * min(t, 1.0)]) for t in np.arange(0.0, 3.01, 0.1).tolist()])
    assert point.joules[0] == pytest.approx(100.0)
    assert point.uncovered_ns[0] == pytest.approx(2e9, abs=1)


@pytest.mark.parametrize("watts", [30.0, 100.0, 900.0])
@pytest.mark.parametrize("step_s", [0.1, 1.0, 3.0])
def test_of_a_counter_slower_than_stated_the_first_step_alone_is_unknown(watts: float, step_s: float) -> None:
    """Steps of a second read at 50 Hz: more than can be used in 20 ms, so they are of the time since the last."""
    lumps = [(t, [watts * step_s * math.floor(t / step_s + 1e-9)]) for t in np.arange(0.0, 30.0001, 0.02).tolist()]
    point, _ = follow([PACKAGE], lumps)
    assert point.joules[0] == pytest.approx((30.0 - step_s) * watts)
    assert point.uncovered_ns[0] == pytest.approx(step_s * 1e9, abs=1)


def test_a_counter_that_stood_still_and_goes_on_has_not_counted_that_time() -> None:
    times = np.arange(0.0, 30.01, 0.1).tolist()
    point, _ = follow([PACKAGE], [(t, [100.0 * (t if t <= 10 else max(10.0, t - 10.0))]) for t in times])
    assert point.joules[0] == pytest.approx(1990.0)  # its first move may have been made at any time since the last
    assert point.uncovered_ns[0] == pytest.approx(10.1e9, abs=1)


@pytest.mark.parametrize("shown", [10.0, 20.0, 10.001], ids=["goes on", "catches up", "falls behind"])
def test_in_the_time_without_known_energy_no_energy_is_counted(shown: float) -> None:
    """So the energy of any interval, wherever it begins and ends, is that of its covered part and of nothing else."""
    times = np.arange(0.0, 30.01, 0.1).tolist()

    def joules(t: float) -> float:
        return 100.0 * (t if t <= 10 else 10.0 if t < 20.0 else shown + t - 20.0)

    integrator = Integrator(Layout((PACKAGE,)))
    points = [integrator.advance(Row(round(t * 1e9), [round(joules(t) * 1e6)])) for t in times]
    for a in points[::7]:
        for b in points[::11]:
            assert isinstance(a, Point)
            assert isinstance(b, Point)
            if a.t_ns < b.t_ns:
                unknown_s = (b.uncovered_ns[0] - a.uncovered_ns[0]) / 1e9
                assert b.joules[0] - a.joules[0] == pytest.approx(100.0 * ((b.t_ns - a.t_ns) / 1e9 - unknown_s))
                assert a.uncovered_ns[0] == a.uncovered_ns[1]


def test_what_two_parts_do_not_know_at_once_counts_once_in_the_total() -> None:
    times = np.arange(0.0, 10.01, 0.1).tolist()
    rows = [(t, [100.0 * (t if t < 2 or t > 6 else 2.0), 100.0 * (t if t < 4 or t > 8 else 4.0)]) for t in times]
    point, _ = follow([PACKAGE, OTHER], rows)
    assert point.uncovered_ns[1] == point.uncovered_ns[2] == pytest.approx(4.1e9, abs=0.11e9)
    assert point.uncovered_ns[0] == pytest.approx(6.1e9, abs=0.11e9)


def test_a_counter_that_was_not_read_begins_anew_where_it_is_read_again() -> None:
    times = np.arange(0.0, 3.01, 0.1).tolist()
    point, integrator = follow(
        [PACKAGE, OTHER], [(t, [100.0 * t, math.nan if 1 < t < 2.05 else 10 * t]) for t in times]
    )
    assert point.joules == pytest.approx((319.0, 300.0, 19.0))
    assert point.uncovered_ns == pytest.approx((1.1e9, 0, 1.1e9), abs=1)
    point, integrator = follow([PACKAGE, OTHER], [(t, [100.0 * t, math.nan if t > 1 else 10 * t]) for t in times])
    assert point.joules[2] == pytest.approx(10.0)
    assert point.uncovered_ns[1] == 0
    assert point.uncovered_ns[2] == pytest.approx(2e9, rel=0.001)
    assert integrator.doubts[2][1] == "it could not be read"


def test_what_cannot_be_used_is_not_believed_of_a_power_either() -> None:
    for method in (EnergyMethod.TRAPEZOID, EnergyMethod.MEAN):
        power = Channel("p", Quantity.POWER, method=method, domain="gpu/0", max_watts=400.0, least_watts=1.0)
        rows = [[50.0], [50.0], [9000.0], [50.0], [0.0], [50.0], [math.nan], [50.0]]
        block = Block(np.arange(8, dtype=np.int64) * 10**9, np.array(rows))
        bad = 6 if method is EnergyMethod.TRAPEZOID else 3
        for blocks in ([block], [Block(block.t_ns[i : i + 1], block.raw[i : i + 1]) for i in range(8)]):
            integrator = Integrator(Layout((power,)))
            frame = [integrator.advance(b) for b in blocks][-1]
            assert isinstance(frame, Frame)
            assert frame.joules[-1].tolist() == [50.0 * (7 - bad)] * 2
            assert frame.uncovered_ns[-1].tolist() == [bad * 10**9] * 2


def test_some_counters_restart_alone() -> None:
    integrator = Integrator(Layout((PACKAGE, OTHER)))
    integrator.advance(Row(0, [0.0, 0.0]))
    block = Block(np.array([10**9]), np.array([[1e6, 1e6]]), restarted=(1,))
    frame = integrator.advance(block)
    assert isinstance(frame, Frame)
    assert frame.joules[-1].tolist() == [1.0, 1.0, 0.0]
    assert frame.uncovered_ns[-1].tolist() == [10**9, 0, 10**9]


def test_a_jump_is_judged_by_the_time_since_the_last_move_and_a_wrap_by_that_since_the_last_look() -> None:
    counter = Channel("c", Quantity.ENERGY, scale=1.0, wrap=100_000.0, max_watts=100.0)
    assert increment(600.0, 0.0, counter, 1.0) is None
    assert increment(600.0, 0.0, counter, 1.0, 9.0) == 600.0
    assert increment(0.0, 600.0, counter, 1.0) is None


@pytest.mark.parametrize("caught_up", [3.0, 30.0])
def test_of_one_that_leaps_behind_a_part_of_its_catch_up_nothing_is_known_since_it_stood_still(
    caught_up: float,
) -> None:
    """100 W, moves each 0.1 s; it stands for 0.7 s, is read when it shows a part of the lack, and then all of it."""
    counter = Channel("c", Quantity.ENERGY, scale=1e-6, domain="gpu/0", refresh_s=0.1, max_watts=110.0)
    shown = [(t / 10, [10.0 * t]) for t in range(11)]
    shown += [(t / 10, [100.0]) for t in range(11, 18)]
    before, _ = follow([counter], [*shown, (1.8, [100.0 + caught_up])])
    assert before.uncovered_ns == (0, 0)
    point, integrator = follow([counter], [*shown, (1.8, [100.0 + caught_up]), (1.9, [190.0])])
    assert point.joules[1] == 100.0 + caught_up
    assert point.uncovered_ns == (900_000_000, 900_000_000)
    assert "jumped by an impossible amount" in integrator.doubts[1][1]


def test_a_counter_that_begins_anew_takes_no_time_before_its_last_row_with_it() -> None:
    counter = Channel("c", Quantity.ENERGY, scale=1e-6, domain="gpu/0", refresh_s=0.1, max_watts=110.0)
    rows = [(t / 10, [10.0 * t]) for t in range(11)]
    point, _ = follow([counter], [*rows, (1.1, [0.0])])
    assert point.uncovered_ns == (100_000_000, 100_000_000)
    # A leap takes the last move with it, and one that follows nothing that is known to be unknown.
    point, _ = follow([counter], [*rows, (1.1, [1e6]), (1.2, [2e6])])
    assert point.uncovered_ns == (300_000_000, 300_000_000)
