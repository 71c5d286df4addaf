"""Rows that are integrated later say what they would have said at once."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Layout, Point, Row
from pmtpy.core.source import PolledSource
from pmtpy.errors import ReadError, SourceLostError
from pmtpy.sensor._curve import Curve
from pmtpy.sensor.history import Bookmark
from pmtpy.sensor.sensor import Sensor, acquisition_of

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
        mark = Bookmark(t_ns) if noted else later.history.bookmark(t_ns)
        if noted:
            later.note(row, mark)
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


class Scripted(PolledSource):
    """Two counters that show what they are told to, as bad ones do."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.identity, self.channels, self.shown = Identity("scripted"), CHANNELS, [0.0, 0.0]

    def poll(self) -> Sequence[float]:
        """Show them."""
        if math.inf in self.shown:
            msg = "it does not answer"
            raise ReadError(msg)
        return self.shown

    def close(self) -> None:
        """Nothing to release."""


COUNTS = st.floats(0, 999_999) | st.sampled_from([0.0, 1.0, 999_999.0, math.nan, math.inf])


@given(st.lists(st.tuples(st.integers(1, 10**10), COUNTS, COUNTS), min_size=2, max_size=150))
def test_states_are_the_same_whenever_they_are_asked(steps: list[tuple[int, float, float]]) -> None:
    """Counters that wrap, rest, fall, fail and jump: read by two sensors, of which one is asked each time."""
    clock = ManualClock()
    sources = Scripted(clock), Scripted(clock)
    with Sensor(sources[0], "same", clock) as at_once, Sensor(sources[1], "same", clock) as later:
        asked, kept = [], []
        for ns, a, b in steps:
            clock.advance(ns * 1e-9)
            for source in sources:
                source.shown = [a, b]
            try:
                asked.append(_told(at_once.read()))
            except SourceLostError:
                with pytest.raises(SourceLostError):
                    later.read()
                break
            kept.append(later.read())
    assert repr([_told(state) for state in reversed(kept)]) == repr(asked[::-1])  # NaN is not equal to itself


def _told(state: pmt.State) -> tuple[object, ...]:
    return state.t_ns, state.joules, state.watts, state.uncovered_ns, state.lost, state.extended_ns


def test_a_state_that_nobody_asked_tells_threads_and_copies_the_same() -> None:
    clock = ManualClock()
    with Sensor(Reused(clock), "reused", clock) as sensor:
        states = []
        for _ in range(200):  # more than wait
            clock.advance(0.001)
            states.append(sensor.read())
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda i: states[i].joules[0], [*range(150, 160)] * 20))
        assert told == pytest.approx([1e-3 * (i + 1) for i in [*range(150, 160)] * 20])
        clock.advance(0.001)
        newest = [sensor.read() for _ in range(4)]
        assert newest[0].place is not None
        sent = pickle.loads(pickle.dumps(newest[0]))  # noqa: S301  (made a word before)
        assert sent == newest[0]
    assert copy.copy(newest[1]) == newest[1]
    assert newest[2].place is None  # it holds nothing but its numbers
    assert pmt.joules(states[0], newest[2]) == pytest.approx(0.202)
    assert "joules=(0.204" in repr(newest[3])
    with pytest.raises(AttributeError):
        newest[3].volts  # type: ignore[attr-defined]  # noqa: B018


def test_a_state_is_told_although_its_row_was_interrupted_or_a_handler_asks_meanwhile() -> None:
    clock = ManualClock()
    with Sensor(Reused(clock), "reused", clock) as sensor:
        states = []
        for _ in range(3):
            clock.advance(0.001)
            states.append(sensor.read())
        curve = acquisition_of(sensor)._curve  # there is no instant at which a signal could be sent
        within = list[float]()

        def interrupted(_rows: object) -> None:
            patch.undo()
            within.append(states[2].joules[0])
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(curve.kept, "append", interrupted)
            with pytest.raises(KeyboardInterrupt):
                states[0].joules  # noqa: B018
        assert within == [0.0]  # as far as it was known then
        clock.advance(0.001)
        sensor.read()
        assert [s.joules[0] for s in states[:2]] == pytest.approx([1e-3, 2e-3])


def test_many_rows_that_wait_are_worked_out_behind_a_region_and_not_within() -> None:
    clock = ManualClock()
    with Sensor(Reused(clock), "reused", clock) as sensor:
        states = []
        for _ in range(31):
            clock.advance(0.001)
            states.append(sensor.read())
        with pmt.region("some", sensor):
            clock.advance(0.001)
            assert states[0].place is not None
        assert {state.place for state in states} == {None}
