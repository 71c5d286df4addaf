"""What the polls say of a lattice of updates: one likelihood for the search of a period and for the path of a phase."""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.clocking._intervals import Intervals
from pmtpy.analysis.signal.estimate import STANDS_OUT
from pmtpy.analysis.signal.renewal import Bools
from pmtpy.core.rows import Floats, Ints

MAX_PERIOD_RATIO = 1.25  # period in the shortest that one comb serves
_STRAY = 0.01  # chance that a poll brings a change without an update (a torn reading, a step of a clock)
_POLLS_PER_RATE = 100  # polls at one rate, where they bring changes at random
_PIECE = 1 << 18  # cells
_SEEN = (0.2, 0.9)  # shares of the updates that bring a change: in each block one of them holds


class _Holes:
    """Cells that a comb leaves out, since no poll tells of them, nor of what begins in them."""

    def __init__(self, begin: Ints, end: Ints) -> None:
        self._begin, self._end = begin, np.concatenate([[0], end])
        self._gone = np.concatenate([[0], np.cumsum(end - begin)])

    @classmethod
    def between(cls, begin: Floats, end: Floats, longest: int) -> _Holes:
        """Make them of where nothing is told, if something that begins there is ``longest`` cells long at most."""
        first, last = np.ceil(begin).astype(np.int64), np.floor(end).astype(np.int64) - longest
        return cls(first[last > first], last[last > first])

    def hold(self, at: Ints) -> Bools:
        """Return which cells are in a hole."""
        return np.asarray(at < self._end[np.searchsorted(self._begin, at, side="right")], np.bool_)

    def told(self) -> tuple[Ints, Ints]:
        """Return where the parts between holes begin and, but for the last, end."""
        return self._end, self._begin

    def close(self, at: Ints) -> Ints:
        """Return where cells are once the holes are left out: those in a hole are where it was."""
        i = np.searchsorted(self._begin, at, side="right")
        return np.asarray(at - self._gone[i] + np.maximum(self._end[i] - at, 0), np.int64)

    def open(self, at: Ints) -> Ints:
        """Return where cells were."""
        return np.asarray(at + self._gone[np.searchsorted(self._begin - self._gone[:-1], at, side="right")], np.int64)


class Comb:
    """The logarithm of ``W`` on cells of time, for each share of updates that bring a change, and one blur of stamps.

    Parameters
    ----------
    seen : Intervals
    period : float
        The shortest that it is asked for, seconds.
    cell, soft : float
        Width of the cells, and by how much stamps are off, seconds.
    """

    def __init__(self, seen: Intervals, period: float, cell: float, soft: float) -> None:
        from scipy.ndimage import gaussian_filter1d

        self.cell, self.soft, self.cells = cell, soft, round(period / cell)
        known = seen.known(period, soft)
        self._told = seen.changed[known]
        self.start = float(seen.after[0]) - 4.0 * period
        longest, halo = math.ceil(MAX_PERIOD_RATIO * self.cells), math.ceil(STANDS_OUT * soft / cell) + 1
        holes = (seen.after[~known] - self.start) / cell + halo, (seen.before[~known] - self.start) / cell - halo
        self._holes = _Holes.between(*holes, longest)
        cells = int(self._holes.close(np.array(math.ceil((seen.before[-1] + 4.0 * period - self.start) / cell) - 1)))
        knots = np.append(seen.after, seen.before[-1])
        totals = [
            np.concatenate([[0.0], np.cumsum(np.where(which, seen.length, 0.0))])
            for which in (known & seen.changed, known & ~seen.changed)
        ]
        log = np.empty((len(_SEEN), cells), np.float32)  # the largest array of all, so it is made piece by piece
        for first in range(0, cells, _PIECE):
            last = min(first + _PIECE, cells)
            begin = max(first - halo, 0)
            grid = self.start + cell * self._holes.open(np.arange(begin, min(last + halo, cells) + 1))
            hit, miss = (
                gaussian_filter1d(
                    np.diff(np.interp(grid, knots, total)) / cell, soft / cell, truncate=STANDS_OUT, mode="constant"
                )[first - begin : last - begin]
                for total in totals
            )
            rest = np.maximum(1.0 - hit - miss, 1e-12)
            for row, q in zip(log, _SEEN, strict=True):
                np.log(hit * (q / _STRAY) + miss * (1.0 - q) + rest, out=row[first:last])
        self._views = np.lib.stride_tricks.sliding_window_view(log, longest, axis=1)

    def blocks(self, period: float, edges: Floats, cells: int, begin_at: int = 0) -> Floats:
        """Log-likelihood of each block over phases: cells that updates lie behind ``k period``, shape (m, cells).

        The first of the phases is ``begin_at`` cells. A phase that goes on below it belongs to the update before.
        """
        from scipy.sparse import csr_array

        edges = edges - begin_at * self.cell
        k = self._about(math.ceil(edges[0] / period), math.ceil(edges[-1] / period), period, begin_at)
        at = np.round((k * period - self.start) / self.cell).astype(np.int64) + begin_at
        told = ~self._holes.hold(at)
        k, at = k[told], self._holes.close(at[told])
        first = np.searchsorted(k, np.ceil(edges / period))
        out = np.zeros((len(edges) - 1, cells), np.float64)
        rows = np.flatnonzero(np.diff(first))  # blocks that updates fall into
        first = np.append(first[rows], first[-1])
        most = max(1, _PIECE // cells)  # updates whose cells are held at once
        begin = 0
        while begin < len(rows):  # as many blocks as have so few updates; one at least
            end = max(int(np.searchsorted(first, first[begin] + most, side="right")) - 1, begin + 1)
            at_here = at[first[begin] : first[end]]
            which = first[begin : end + 1] - first[begin]
            ones = np.ones(len(at_here), np.float32)
            sums = csr_array((ones, np.arange(len(at_here)), which), shape=(end - begin, len(at_here)))
            shares = [sums @ view[at_here, :cells] for view in self._views]
            out[rows[begin:end]] = log_mean_exp(np.stack(shares, axis=1))
            begin = end
        return out

    def _about(self, first: int, last: int, period: float, begin_at: int) -> Ints:
        """Return the updates from ``first`` to before ``last`` between holes, and one on either side of each part.

        Of a long recording polled fast nearly all are in holes: none of these is looked at.
        """
        begin, end = (((at - begin_at) * self.cell + self.start) / period for at in self._holes.told())
        start = np.clip(np.floor(begin).astype(np.int64) - 1, first, last)
        stop = np.clip(np.append(np.ceil(end).astype(np.int64) + 1, last), first, last)
        start = np.maximum(start, np.concatenate([[first], np.maximum.accumulate(stop)[:-1]]))
        most = np.maximum(stop - start, 0)
        return np.asarray(np.arange(np.sum(most)) + np.repeat(start - np.cumsum(most) + most, most), np.int64)

    def at_random(self) -> float:
        """The same of polls that bring changes at random: as strays do, or at a rate that differs by the hundred."""
        from scipy.special import betaln

        of = np.arange(len(self._told)) // _POLLS_PER_RATE
        polls, hits = np.bincount(of), np.bincount(of, self._told)
        log = betaln(hits + 1.0, polls - hits + 1.0) - hits * math.log(_STRAY) - (polls - hits) * math.log1p(-_STRAY)
        return max(float(np.sum(log)), 0.0)


def most_evidence(seen: Intervals, period: float, soft: float, updates: int) -> float:
    """The most that speaks for a lattice of ``period`` or up to ``MAX_PERIOD_RATIO`` times as long, in nats.

    If in each piece of so many updates each change falls on one of them. Below zero no updates at all tell more.
    """
    known, longest = seen.known(period, soft), MAX_PERIOD_RATIO * period
    of = np.floor((seen.before - seen.after[0]) / (updates * longest)).astype(np.int64)
    hits = np.bincount(of, seen.changed & known)
    misses = np.maximum(np.bincount(of, np.where(known, seen.length, 0.0)) / longest - hits, 0.0)
    logs = [math.log(q / _STRAY) * hits + math.log1p(-q) * misses for q in _SEEN]
    return float(np.sum(np.max(logs, axis=0)))


def log_mean_exp(logs: Floats) -> Floats:
    """Logarithm of the mean of exponentials over the last axis but one."""
    top = np.max(logs, axis=-2)
    return np.asarray(top + np.log(np.mean(np.exp(logs - top[..., None, :]), axis=-2)), np.float64)
