"""Rails that each have sample times of their own, as rows that all share. Pure: arrays in and out.

What is shared is energy: the curve of each rail is read at common instants, and a row holds the mean power of each rail
since the row before. So nothing is counted twice or left out, however the times of the rails lie to each other. A rail
that is missing is NaN in the rows that it misses: its share, and the sum, are uncovered there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmtpy.core.rows import Block, Floats, Ints

_COVERED = 0.5  # of a row's interval: less, and the rail is missing in it


class _Rail:
    """The curves of one rail since the last common row."""

    __slots__ = ("joules", "t_ns", "uncovered_ns")

    def __init__(self, columns: int) -> None:
        self.t_ns: Ints = np.empty(0, np.int64)
        self.joules: Floats = np.empty((0, columns))
        self.uncovered_ns: Floats = np.empty((0, columns))

    def drop_before(self, t_ns: int) -> None:
        """Forget what no later row needs."""
        first = max(0, int(np.searchsorted(self.t_ns, t_ns, side="right")) - 1)
        self.t_ns, self.joules, self.uncovered_ns = self.t_ns[first:], self.joules[first:], self.uncovered_ns[first:]


class Rails:
    """Brings curves of several rails to common rows. Used by one thread at a time.

    Parameters
    ----------
    columns : sequence of int
        How many curves each rail has.
    patience_ns : int
        A rail of which nothing has come for so long is missing, and the others go on without it.
    """

    def __init__(self, columns: Sequence[int], patience_ns: int) -> None:
        self._rails = [_Rail(n) for n in columns]
        self._patience_ns = patience_ns
        self._last_ns = -1

    def add(self, rail: int, t_ns: Ints, joules: Floats, uncovered_ns: Floats) -> None:
        """Append rows of a rail's curves: instants, cumulative joules and cumulative uncovered time, (n, curves)."""
        mine = self._rails[rail]
        mine.t_ns = np.concatenate([mine.t_ns, t_ns])
        mine.joules = np.concatenate([mine.joules, joules])
        mine.uncovered_ns = np.concatenate([mine.uncovered_ns, uncovered_ns])

    def take(self, now_ns: int) -> Block | None:
        """Return the rows that are complete by now, or None: mean watts of each curve since the row before.

        The rows have the times of the rail that has most; a rail is waited for until its patience ends.
        """
        newest = [int(rail.t_ns[-1]) if len(rail.t_ns) else -1 for rail in self._rails]
        present = [t for t in newest if t >= 0 and now_ns - t <= self._patience_ns]
        waits = any(t < 0 for t in newest) and self._last_ns < 0 and now_ns - max(newest) <= self._patience_ns
        if not present or waits:
            return None
        horizon = min(present)
        if self._last_ns < 0:  # the first row is the instant at which all that are there have begun
            self._last_ns = max(int(rail.t_ns[0]) for rail, t in zip(self._rails, newest, strict=True) if t in present)
        times = [rail.t_ns[(rail.t_ns > self._last_ns) & (rail.t_ns <= horizon)] for rail in self._rails]
        at: Ints = max(times, key=len)
        if not len(at):
            return None
        edges = np.concatenate([[self._last_ns], at])
        watts = np.concatenate([_means(rail, edges) for rail in self._rails], axis=1)
        self._last_ns = int(at[-1])
        for rail in self._rails:
            rail.drop_before(self._last_ns)
        return Block(at, watts)


def _means(rail: _Rail, edges: Ints) -> Floats:
    """Mean watts of each curve between successive edges; NaN where most of the interval is not covered."""
    columns = rail.joules.shape[1]
    out = np.full((len(edges) - 1, columns), np.nan)
    if not len(rail.t_ns):
        return out
    inside = np.clip(edges, rail.t_ns[0], rail.t_ns[-1])
    dt = np.diff(edges).astype(np.float64)
    for k in range(columns):
        joules = np.diff(np.interp(inside, rail.t_ns, rail.joules[:, k]))
        covered = np.diff(inside) - np.diff(np.interp(inside, rail.t_ns, rail.uncovered_ns[:, k]))
        enough = covered >= _COVERED * dt
        out[enough, k] = joules[enough] / covered[enough] * 1e9
    return out
