"""Long recordings: the search for the clock holds its largest array once, and asks it in pieces."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from pmtpy.analysis.clocking import _comb
from pmtpy.analysis.clocking._comb import Comb
from pmtpy.analysis.clocking._intervals import _RUN, Intervals
from pmtpy.analysis.clocking._phase import _MOST_CHANGES, follow
from pmtpy.core.rows import Floats

PERIOD_S, POLL_S, LASTS_S = 0.1, 0.0125, 1200.0


def _polls(lasts_s: float = LASTS_S) -> tuple[Floats, Floats]:
    """Readings that are renewed with noise each 0.1 s, polled at uneven times."""
    rng = np.random.default_rng(7)
    t = np.arange(0.0, lasts_s, POLL_S)
    t += rng.uniform(0.0, POLL_S, len(t))
    shown = np.floor(t / PERIOD_S).astype(np.int64)
    return t, rng.normal(100.0, 1.0, shown[-1] + 1)[shown]


def _peak_of_following(seen: Intervals) -> int:
    tracemalloc.start()
    path = follow(seen, PERIOD_S, 1e-6, 1e-6)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.period_s.low < PERIOD_S < path.period_s.high
    assert abs(float(path.nearest(np.zeros(1))[0])) < POLL_S / 10.0
    return peak


def test_a_long_recording_is_followed_in_the_memory_of_a_short_one() -> None:
    def around(lasts_s: float) -> Intervals:
        t, watts = _polls(lasts_s)
        return Intervals.between(t - lasts_s / 2.0, watts)  # updates at whole multiples of the period

    updates = 2 * (_MOST_CHANGES // 2)
    short, long = around((updates - 800) * PERIOD_S), around(6 * updates * PERIOD_S)
    follow(around(10.0), PERIOD_S, 1e-4, 1e-6)  # what is imported is not counted
    polls = 6 * 8 * len(long.changed)  # bytes: a few numbers for each poll
    assert _peak_of_following(long) < _peak_of_following(short) + polls


def test_of_many_changes_runs_from_all_over_the_recording_are_kept() -> None:
    t, watts = _polls()
    seen = Intervals.between(t, watts)
    few = seen.thinned(1000)
    assert 450 <= np.sum(few.changed) <= 1000 + _RUN
    assert few.after[0] == seen.after[0]
    assert few.before[-1] == seen.before[-1]
    np.testing.assert_array_equal(few.after[1:], few.before[:-1])
    left_out = few.length > 10.0 * POLL_S
    assert np.max(few.length) < LASTS_S / 40.0
    assert not np.any(few.changed & left_out)
    kept = np.isin(seen.after, few.after[~left_out])
    np.testing.assert_array_equal(seen.changed[kept], few.changed[~left_out])
    assert seen.thinned(10**6) is seen


def test_polls_that_are_joined_say_of_longer_times_what_they_said() -> None:
    t, watts = _polls(60.0)
    seen = Intervals.between(t, watts)
    few = seen.coarse(3.1 * POLL_S)
    np.testing.assert_array_equal(few.after[1:], few.before[:-1])
    assert (few.after[0], few.before[-1]) == (seen.after[0], seen.before[-1])
    assert np.median(few.length) == pytest.approx(3.1 * POLL_S, rel=0.1)
    inside = np.searchsorted(few.before, seen.before[seen.changed])
    np.testing.assert_array_equal(np.unique(inside), np.flatnonzero(few.changed))
    assert seen.coarse(0.9 * POLL_S) is seen


def test_what_polls_say_does_not_hang_on_what_is_left_out_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    t, watts = _polls(60.0)
    kept = ((t < 20.0) | (t > 27.3)) & ((t < 35.0) | (t > 35.2)) & ((t < 40.0) | (t > 59.0))
    seen = Intervals.between(t[kept], watts[kept])
    closed = Comb(seen, PERIOD_S, PERIOD_S / 192, 0.1 * POLL_S)
    none = np.zeros(0, np.int64)
    monkeypatch.setattr(_comb._Holes, "between", lambda *_: _comb._Holes(none, none))
    whole = Comb(seen, PERIOD_S, PERIOD_S / 192, 0.1 * POLL_S)
    assert closed._views.shape[1] < 0.6 * whole._views.shape[1]
    # Blocks in each part, one that ends in a hole, one in a hole, and one that begins in it.
    edges = np.array([0.1, 18.0, 23.0, 25.0, 30.0, 34.7, 37.0, 39.7, 59.2, 59.8])
    for period in (PERIOD_S, 1.0173 * PERIOD_S, 1.2 * PERIOD_S):
        for begin_at in (-90, 0, 17):
            made = closed.blocks(period, edges, 192, begin_at)
            np.testing.assert_allclose(made, whole.blocks(period, edges, 192, begin_at), rtol=0.0, atol=1e-3)
            assert np.all(made[2] == 0.0)  # nats: nothing is known of what is not seen
            assert np.ptp(made[0]) > 10.0
            looked_at = closed._about(math.ceil(0.0 / period), math.ceil(60.0 / period), period, begin_at)
            assert np.all(np.diff(looked_at) > 0)
            assert len(looked_at) < 0.6 * 60.0 / period  # and not at those in the holes


def test_blocks_asked_in_pieces_are_those_asked_at_once() -> None:
    t, watts = _polls()
    seen = Intervals.between(t[:20_000], watts[:20_000])
    comb = Comb(seen, PERIOD_S, PERIOD_S / 96, 0.1 * POLL_S)
    # Blocks of very different lengths, and one that no update falls into.
    edges = np.array([1.0, 1.04, 1.06, 30.0, 30.2, 150.0, 249.0])
    made = comb.blocks(PERIOD_S, edges, 96)
    each = [comb.blocks(PERIOD_S, edges[i : i + 2], 96)[0] for i in range(len(edges) - 1)]
    np.testing.assert_array_equal(made, np.stack(each))


def test_blocks_are_asked_in_the_memory_of_a_piece() -> None:
    t, watts = _polls()
    comb = Comb(Intervals.between(t, watts), PERIOD_S, PERIOD_S / 192, 0.1 * POLL_S)
    edges = np.linspace(1.0, LASTS_S - 1.0, 122)
    comb.blocks(PERIOD_S, edges[:2], 192)
    tracemalloc.start()
    comb.blocks(PERIOD_S, edges, 192)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * LASTS_S / PERIOD_S * 192 * 4  # half of what all updates' cells are, in single precision
