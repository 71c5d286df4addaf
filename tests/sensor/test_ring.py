"""Rows packed: whatever the order and number in which they come, the same rows come out again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.rows import Frame, Layout, Point
from pmtpy.sensor.ring import Ring

LAYOUT = Layout((Channel("gpu", Quantity.POWER, domain="gpu/0"), Channel("t", Quantity.TEMPERATURE)))


def row(i: int) -> Point:
    return Point(1_000 * i, (float(i), i + 0.5), (2.0 * i, 3.0 * i), (40.0 + i,), i % 3, (7 * i, 8 * i))


@given(pieces=st.lists(st.tuples(st.integers(1, 400), st.booleans(), st.integers(0, 500)), min_size=1, max_size=12))
def test_rows_come_out_as_they_went_in(pieces: list[tuple[int, bool, int]]) -> None:
    ring, sent, kept = Ring(LAYOUT), 0, 0
    for number, single, drop in pieces:
        rows = [row(i) for i in range(sent, sent + number)]
        for piece in rows if single else [Frame.of_points(rows)]:
            ring.append(piece)
        sent += number
        assert len(ring) == sent - kept
        forget = min(drop, len(ring.t_ns) - 1)
        ring.drop(forget)
        kept += forget
    expected = Frame.of_points([row(i) for i in range(kept, sent)])
    whole = ring.frame(0, len(ring))
    for name in ("t_ns", "watts", "joules", "values", "lost", "uncovered_ns"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(expected, name))
    middle = (sent - kept) // 2
    assert ring.point(middle) == row(kept + middle)
    assert ring.lost_up_to(middle) == sum(i % 3 for i in range(kept + middle + 1))


def test_what_is_handed_out_does_not_change_when_rows_come() -> None:
    ring = Ring(LAYOUT)
    ring.append(Frame.of_points([row(i) for i in range(100)]))
    before = ring.frame(10, 20)
    copy = before.watts.copy()
    ring.drop(50)
    for i in range(100, 2000):
        ring.append(row(i))
    assert ring.t_ns[0] == 50_000
    np.testing.assert_array_equal(before.watts, copy)


def test_a_stretch_may_lie_in_several_segments_and_outlive_those_before() -> None:
    ring, rows = Ring(LAYOUT), [row(i) for i in range(13_000)]
    ring.append(Frame.of_points(rows[:9_000]))  # more than two segments in one piece
    ring.drop(5_000)
    for i in range(9_000, 13_000, 700):
        ring.append(Frame.of_points(rows[i : i + 700]))
    whole, expected = ring.frame(0, len(ring)), Frame.of_points(rows[5_000:])
    for name in ("t_ns", "watts", "joules", "values", "lost", "uncovered_ns"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(expected, name))
    assert [ring.point(i) for i in (0, 3_192, 7_999)] == [rows[i] for i in (5_000, 8_192, 12_999)]
    assert ring.lost_up_to(7_999) == sum(i % 3 for i in range(13_000))
