"""Long recordings: the search for the clock holds its largest array once, and asks it in pieces."""

from __future__ import annotations

import tracemalloc

import numpy as np

from pmtpy.analysis.clocking._comb import _PIECE, Comb
from pmtpy.analysis.clocking._intervals import Intervals
from pmtpy.analysis.clocking._phase import weigh
from pmtpy.core.rows import Floats

PERIOD_S, POLL_S, LASTS_S = 0.1, 0.0125, 1200.0


def _polls() -> tuple[Floats, Floats]:
    """Readings that are renewed with noise each 0.1 s, polled at uneven times."""
    rng = np.random.default_rng(7)
    t = np.arange(0.0, LASTS_S, POLL_S)
    t += rng.uniform(0.0, 0.3 * POLL_S, len(t))
    shown = np.floor(t / PERIOD_S).astype(np.int64)
    return t, rng.normal(100.0, 1.0, shown[-1] + 1)[shown]


def test_a_clock_is_weighed_in_the_memory_of_one_comb() -> None:
    t, watts = _polls()
    seen, short = Intervals.between(t, watts), Intervals.between(t[:800], watts[:800])
    weigh(short, PERIOD_S, 1e-4, 1e-6, known=True)  # what is imported is not counted
    # The largest array: the logarithms of two likelihoods on 192 cells of each period, in single precision.
    comb_bytes = 2 * 192 * LASTS_S / PERIOD_S * 4
    tracemalloc.start()
    weigh(seen, PERIOD_S, 1e-6, 1e-6, known=True)  # at three periods: what each of these takes is not counted
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < comb_bytes + 10 * 8 * _PIECE  # and what a piece of it is made of; two combs are 2 comb_bytes and that


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
