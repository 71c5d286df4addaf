"""Rows packed: whatever the order and number in which they come, the same rows come out again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Frame, Layout, Point
from pmtpy.sensor._ring import Ring

LAYOUT = Layout((Channel("gpu", Quantity.POWER, domain="gpu/0"), Channel("t", Quantity.TEMPERATURE)))


def row(i: int) -> Point:
    return Point(1_000 * i, (float(i), i + 0.5), (2.0 * i, 3.0 * i), (40.0 + i,), i % 3, (7 * i, 8 * i))


def add(ring: Ring, rows: list[Point], *, single: bool) -> None:
    if single:
        ring.waiting += rows
    else:
        ring.append(Frame.of_points(rows))


def assert_holds(ring: Ring, rows: list[Point]) -> None:
    whole, expected = ring.frame(0, len(ring)), Frame.of_points(rows)
    for name in ("t_ns", "watts", "joules", "values", "lost", "uncovered_ns"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(expected, name))


@given(pieces=st.lists(st.tuples(st.integers(1, 2500), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_rows_come_out_as_they_went_in(pieces: list[tuple[int, bool, bool]]) -> None:
    ring, sent, kept = Ring(LAYOUT), 0, 0
    for number, single, ask in pieces:
        add(ring, [row(i) for i in range(sent, sent + number)], single=single)
        sent += number
        assert len(ring) == sent - kept
        if ask:
            ring.pack()
            if (left_ns := ring.left_ns(100)) is not None:
                ring.drop()
                kept = left_ns // 1_000
                assert sent - kept >= 100
    rows = [row(i) for i in range(kept, sent)]
    assert_holds(ring, rows)
    middle = len(rows) // 2
    assert ring.point(middle) == rows[middle]
    assert ring.t_ns(middle) == rows[middle].t_ns
    assert ring.lost_up_to(middle) == sum(i % 3 for i in range(kept + middle + 1))
    for t_ns in (rows[middle].t_ns, rows[middle].t_ns + 1, rows[-1].t_ns, rows[-1].t_ns + 1):
        assert ring.row_of(t_ns) == sum(r.t_ns < t_ns for r in rows)
        assert ring.row_of(t_ns, after=True) == sum(r.t_ns <= t_ns for r in rows)
    cut = ring.frame(middle // 2, middle)
    assert cut.t_ns.tolist() == [r.t_ns for r in rows[middle // 2 : middle]]


def test_what_is_handed_out_does_not_change_when_rows_come() -> None:
    ring = Ring(LAYOUT)
    ring.append(Frame.of_points([row(i) for i in range(100)]))
    before = ring.frame(10, 20)
    copy = before.watts.copy()
    for i in range(100, 9000):
        ring.waiting.append(row(i))
        if i % 700 == 0:
            ring.pack()
    ring.pack()
    ring.drop()
    np.testing.assert_array_equal(before.watts, copy)


def test_rows_that_nobody_asked_for_are_dropped_unpacked() -> None:
    ring, rows = Ring(LAYOUT), [row(i) for i in range(3000)]
    ring.append(Frame.of_points(rows[:500]))
    ring.waiting += rows[500:]
    ring.drop_waiting(1500)
    assert_holds(ring, rows[2000:])
    assert ring.lost_up_to(999) == sum(i % 3 for i in range(3000))


def test_a_block_of_a_stream_is_kept_as_it_is() -> None:
    ring = Ring(LAYOUT)
    for i in range(0, 9_000, 3_000):
        frame = Frame.of_points([row(k) for k in range(i, i + 3_000)])
        ring.append(frame)
        assert np.shares_memory(ring.frame(i + 5, i + 10).watts, frame.watts)
