"""A recording of any length in a bounded number of slices of time, made while it is read, block by block. Pure.

Each slice keeps the least, mean and greatest value of every column, the energies at its last row, and what was lost in
it. While there are few rows, each is a slice of its own; then slices are twice as long each time there are too many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from pmtpy.core.markers import at_own_instants
from pmtpy.core.rows import Floats, Ints
from pmtpy.plotting.decimate import Envelope

MAX_SLICES = 1 << 14
"""Slices that are kept at most; of a long recording at least half as many."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices in order of time; one without rows is not among them."""

    rows: Ints  # shape (m,); in each slice
    lost: Ints  # shape (m,); rows lost in it, before its rows or between them
    t: Floats  # shape (m,); sum of the times of its rows
    last: Floats  # shape (m,); time of its last row
    known: Ints  # shape (m, k); rows that have a value, for each column
    # shape (m, k); sum of the values, the least and the greatest; NaN where none is known
    total: Floats
    low: Floats
    high: Floats
    joules: Floats  # shape (m, p); energies at the last row

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.rows)

    @classmethod
    def of_rows(cls, t: Floats, values: Floats, joules: Floats, lost: Ints) -> Slices:
        """Make each row a slice of its own."""
        known = np.isfinite(values)
        ones = np.ones(len(t), np.int64)
        total = np.where(known, values, 0.0)
        return cls(ones, lost, t, t, known.astype(np.int64), total, values, values, joules)

    def joined(self, first: npt.NDArray[np.intp]) -> Slices:
        """Join neighbours; ``first`` are the numbers of those that begin a slice, 0 among them."""
        if len(first) == len(self):
            return self
        last = np.append(first[1:], len(self)) - 1
        added = {n: np.add.reduceat(getattr(self, n), first, axis=0) for n in ("rows", "lost", "t", "known", "total")}
        low, high = np.fmin.reduceat(self.low, first, axis=0), np.fmax.reduceat(self.high, first, axis=0)
        return Slices(**added, last=self.last[last], low=low, high=high, joules=self.joules[last])

    def then(self, other: Slices) -> Slices:
        """Append later slices."""
        return Slices(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))

    def part(self, chosen: slice) -> Slices:
        """Return some neighbours."""
        return Slices(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def thinned(self, most: int) -> Slices:
        """Return at most about ``most`` slices of equal time."""
        if len(self) <= most:
            return self
        edges = np.linspace(self.last[0], self.last[-1], most + 1)
        return self.joined(np.unique(np.concatenate([[0], np.searchsorted(self.last, edges[1:-1])])))

    def curve(self, column: int, most: int | None = None) -> Envelope:
        """Return a column as a curve in about ``most`` slices of equal time (None: in as many as there are)."""
        at = self if most is None else self.thinned(most)
        some = at.known[:, column] > 0
        mean = at.total[some, column] / at.known[some, column]
        return Envelope(at.t[some] / at.rows[some], at.low[some, column], mean, at.high[some, column])


@dataclass(slots=True)
class Slicer:
    """Makes slices of rows as they come. Used by one thread."""

    most: int = MAX_SLICES  # slices that are kept at most
    # gaps that are kept at most, which is enough for a picture; None: all, from which coverage can be told
    most_gaps: int | None = MAX_SLICES
    width_s: float = 0.0  # length of a slice; 0: each row is one
    # times of the first and the last row; NaN before there is one
    first_t: float = float("nan")
    newest: float = float("nan")
    # shape (p,); energies at the first row; NaN where it has none
    first_joules: Floats = field(default_factory=lambda: np.empty(0))
    # (start, end, rows lost): the longest, if there are more than are kept
    gaps: list[tuple[float, float, int]] = field(default_factory=list)
    rows: int = 0
    _slices: Slices | None = None
    # (time of its row, that of the row before, label)
    _marked: list[tuple[float, float, str]] = field(default_factory=list)

    def add(
        self, t: Floats, values: Floats, joules: Floats, lost: Ints, labels: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Take the next rows.

        Parameters
        ----------
        t : float64, shape (n,)
            Seconds, not falling.
        values, joules : float64, shape (n, k) and (n, p)
        lost : int64, shape (n,)
        """
        if not len(t):
            return
        self.rows += len(t)
        before = self.newest if self._slices is not None else float(t[0])
        if self._slices is None:
            self.first_t, self.first_joules = float(t[0]), np.array(joules[0], np.float64)
        gone = np.flatnonzero(lost)
        gone = gone[(gone > 0) | (self.rows > len(t))]  # what was lost before the first row is no gap
        starts = np.where(gone > 0, t[gone - 1], before)
        self.gaps += zip(starts.tolist(), t[gone].tolist(), lost[gone].tolist(), strict=True)
        if self.most_gaps is not None and len(self.gaps) > self.most_gaps:
            longest = sorted(self.gaps, key=lambda g: g[0] - g[1])[: self.most_gaps // 2]
            self.gaps = sorted(longest)
        since = self.newest if self.rows > len(t) else math.inf
        self._marked += [(float(t[row]), float(t[row - 1]) if row else since, label) for row, label in labels]
        self.newest = float(t[-1])
        new = Slices.of_rows(t, values, joules, lost)
        if self.width_s:
            new = new.joined(self._firsts(new))
        self._slices = new if self._slices is None else self._slices.then(new)
        if self.width_s:
            # The block before may have ended within a slice.
            self._slices = self._slices.joined(self._firsts(self._slices))
        while len(self._slices) > self.most:
            span = self.newest - self.first_t
            self.width_s = 2 * self.width_s if self.width_s else max(2 * span / self.most, 1e-9)
            self._slices = self._slices.joined(self._firsts(self._slices))
            if span <= 0:  # all at one instant: nothing parts them
                break

    def _firsts(self, slices: Slices) -> npt.NDArray[np.intp]:
        key = np.floor((slices.last - self.first_t) / self.width_s)
        return np.flatnonzero(np.diff(key, prepend=-1.0))

    def marks(self, own: Iterable[tuple[float, str]] = ()) -> list[tuple[float, str]]:
        """Return the labels, each at the instant at which it was set where ``own`` tells it, else at its row."""
        rows, since = [(t, label) for t, _, label in self._marked], [before for _, before, _ in self._marked]
        return sorted(at_own_instants(rows, since, own), key=itemgetter(0))

    def slices(self) -> Slices | None:
        """Return what was made so far; None: there are no rows."""
        return self._slices
