"""Rows that are integrated later say what they would have said at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Layout, Point, Row
from pmtpy.core.source import PolledSource
from pmtpy.sensor._curve import Curve
from pmtpy.sensor.history import Bookmark
from pmtpy.sensor.sensor import Sensor

CHANNELS = tuple(
    Channel(name, Quantity.ENERGY, scale=1e-3, wrap=1e6, domain=f"host/{name}", max_watts=1e5) for name in ("a", "b")
)


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 10**9), st.integers(0, 2000), st.integers(0, 2), st.booleans()),
        min_size=2,
        max_size=600,
    )
)
def test_it_makes_no_difference_when_rows_are_integrated(steps: list[tuple[int, int, int, bool]]) -> None:
    at_once, later = Curve(Layout(CHANNELS), {}, 1e9), Curve(Layout(CHANNELS), {}, 1e9)
    t_ns, counts, marks = 0, [0, 500_000], list[tuple[Bookmark, Bookmark]]()
    for dt_ns, used, lost, noted in steps:
        t_ns += dt_ns
        counts = [(counts[0] + used) % 1_000_000, (counts[1] + 2 * used) % 1_000_000]
        row = Row(t_ns, counts, lost)
        for curve in (at_once,) if noted else (at_once, later):
            point = curve.advance(row)
            assert isinstance(point, Point)
            curve.kept.append(point)
        mark = later.note(row) if noted else later.history.bookmark(t_ns)
        marks.append((mark, at_once.history.bookmark(t_ns)))
        assert later.newest_ns == at_once.newest_ns == t_ns
    assert repr(later.history.newest) == repr(at_once.history.newest)  # NaN where there is no power yet
    assert later.lost == at_once.lost
    for mark, other in marks:
        found, expected = later.history.reading(mark), at_once.history.reading(other)
        assert (found.joules, found.uncovered_ns) == (expected.joules, expected.uncovered_ns)
        assert (found.lost, found.rows) == (expected.lost, expected.rows)


class Reused(PolledSource):
    """A counter of 1 mJ for each reading, always in the same list."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.identity, self.channels, self.reads = Identity("reused"), CHANNELS[:1], 0
        self._counts = [0.0]

    def poll(self) -> Sequence[float]:
        """Count on."""
        self.reads += 1
        self._counts[0] += 1.0
        return self._counts

    def close(self) -> None:
        """Nothing to release."""


@pytest.mark.parametrize("regions", [1, 2000])
def test_a_region_reads_twice_and_any_number_of_them_wait(regions: int) -> None:
    clock = ManualClock()
    source = Reused(clock)
    with Sensor(source, "reused", clock) as sensor:
        before, made = source.reads, []
        for _ in range(regions):
            with pmt.region("some", sensor) as region:
                clock.advance(1e-3)
            clock.advance(1e-3)
            made.append(region)
        assert source.reads - before == 2 * regions
        assert [r[sensor].joules for r in made] == pytest.approx([1e-3] * regions)
        assert sum(r.so_far()["reused"] for r in made) == pytest.approx(1e-3 * regions)
