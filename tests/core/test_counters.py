from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.counters import increment, sure_ns


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
    parts=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
)
def test_within_the_sure_time_no_possible_count_is_ambiguous(
    scale: float, wrap: float, most: float, refresh_s: float | None, parts: tuple[float, float]
) -> None:
    channel = Channel("c", Quantity.ENERGY, scale=scale, wrap=wrap, max_watts=most, refresh_s=refresh_s)
    limit_ns = sure_ns(channel)
    if limit_ns < 1:
        return
    seconds = int(limit_ns * parts[0]) * 1e-9
    possible = most * (seconds + 2 * (refresh_s or 0.0)) + scale
    counts = min(parts[1] * possible / scale, wrap) * (1 - 1e-9)
    assert increment(counts, 0.0, channel, seconds) == counts * scale
