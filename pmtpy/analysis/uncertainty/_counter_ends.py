"""What a counter leaves open at the two ends of an interval, where its energy goes by lines from move to move. Pure.

Of the time between two moves a counter tells the energy, and not when it was used. A line says: evenly. The other
extreme is that the load changed at the end itself, as it does at both where the region *is* the load: up to there the
power was that of the time before, or behind. Wherever between the two moves a load changed once, the truth lies between
the line and that; docs/uncertainty.md, "Edges".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pmtpy.core.rows import Floats


class Cells(NamedTuple):
    """Times between moves of counters that are alike in time.

    Attributes
    ----------
    t : float64, shape (n,)
        Rows that moved them, seconds from the start of the interval.
    joules, watts : float64, shape (g, n)
        What they showed there, and the power up to there, which is not that of the line where two rows are close
        (:meth:`pmtpy.core.counters.Counter.power`).
    length : float
        Of the interval.
    goes_on : bool
        Whether the power of the last move was taken to go on to the end, where that lies behind it.
    told_before : bool
        Whether a whole time between moves, before the one in which the interval begins, told the power before it. If
        not, the first row is the one with which counting began, whose power is not known.
    """

    t: Floats
    joules: Floats
    watts: Floats
    length: float
    goes_on: bool
    told_before: bool = True

    def open_joules(self, ages_s: tuple[float, ...], swing_w: Floats, most_w: Floats) -> Floats:
        """Return by how much the energy may be off, for loads that change once between two moves.

        Parameters
        ----------
        ages_s : tuple of float
            How old a move may be at its row: for each the worst case is found, and the worst of them counts.
        swing_w : float64, shape (g,)
            By how much the power changed around the interval: it may do so at its ends, whatever the moves there show.
        most_w : float64, shape (g,)
            More than this the power cannot be.
        """
        as_shown = self._lines(0.0)
        worst = np.zeros(len(self.joules))
        for age_s in ages_s:
            late = self._lines(age_s) - as_shown
            first, last = self._outside(age_s, most_w)
            swung = abs(late) + swing_w * self._bent_s(age_s)
            for off in (swung, abs(late + first + last), np.hypot(first, last)):
                worst = np.maximum(worst, off)
        return worst

    def told_s(self, age_s: float) -> float:
        """For how long of the interval moves have told its power by now."""
        return min(self.length, float(self.t[-1]) - age_s)

    def longest_s(self) -> float:
        """Return the longest of the times between moves in which the two ends lie."""
        i, j = self._places(0.0)
        return max([float(self.t[k] - self.t[k - 1]) for k in (i, j) if k < len(self.t)], default=0.0)

    def spanned_joules(self, age_s: float) -> Floats:
        """Return the energy of all times between moves that the interval touches, which has no more; infinite: open."""
        first, last = self._places(0.0)[0], self._places(age_s)[1]
        if last == len(self.t):
            return np.full(len(self.joules), np.inf)
        return np.asarray(self.joules[:, last] - self.joules[:, first - 1], np.float64)

    def _places(self, age_s: float) -> tuple[int, int]:
        """Moves that end the times in which the two ends lie."""
        return int(self.t.searchsorted(age_s, "right")), int(self.t.searchsorted(self.length + age_s, "left"))

    def _lines(self, age_s: float) -> Floats:
        """Return the energy by lines, of moves that are as old as that at their rows."""
        ends = np.array([age_s, self.length + age_s])
        found = np.array([np.interp(ends, self.t, shown) for shown in self.joules])
        if self.goes_on:
            found += self.watts[:, -1:] * np.maximum(ends - self.t[-1], 0.0)
        return np.asarray(found[:, 1] - found[:, 0], np.float64)

    def _bent_s(self, age_s: float) -> float:
        """Return by how much a line errs for each watt by which the power changes at the ends."""
        bent = 0.0
        for end, k in zip((age_s, self.length + age_s), self._places(age_s), strict=True):
            if k < len(self.t):
                begin, stop = float(self.t[k - 1]), float(self.t[k])
                bent += (end - begin) * (stop - end) / (stop - begin)
        return bent

    def _outside(self, age_s: float, most_w: Floats) -> tuple[Floats, Floats]:
        """Return what lines lay outside of either end, and the interval has if the load changed at its ends."""
        t, watts, end = self.t, self.watts, self.length + age_s
        i, j = self._places(age_s)
        none = np.zeros(len(watts))
        if i >= len(t):  # it has not moved since: nothing is told of the power inside
            return none, none
        if not self.told_before:
            return self._any(i, age_s, end, most_w), self._any(j, age_s, end, most_w) if i < j < len(t) else none
        before = watts[:, i - 1]
        first = (self._between(i) - before) * (age_s - t[i - 1])
        if j >= len(t):
            if self.goes_on and i == len(t) - 1:  # a part of this one move tells the power inside, which goes on
                told_s, most_j = float(t[i]) - age_s, most_w * self.length / 2.0
                first = np.clip(first * (self.length / told_s), -most_j, most_j)
            return first, none
        behind = watts[:, j + 1] if j + 1 < len(t) else before
        last = (self._between(j) - behind) * (t[j] - end)
        if i == j:  # no less than nothing was used inside
            least = -self._between(i) * self.length
            share = np.minimum(1.0, least / np.minimum(first + last, -1e-300))
            first, last = first * share, last * share
        return first, last

    def _any(self, k: int, begin: float, end: float, most_w: Floats) -> Floats:
        """Return what the line to a move may be off where as much of its energy as can be was used inside, or outside.

        If the power of that move was taken to go on, as much more; but not more than there can be.
        """

        def most(seconds: float) -> Floats:
            return np.asarray(
                np.minimum(whole, most_w * seconds) if seconds > 0.0 else np.zeros_like(whole), np.float64
            )

        whole = self.joules[:, k] - self.joules[:, k - 1]
        told_s = min(float(self.t[k]), end) - max(float(self.t[k - 1]), begin)
        inside = self._between(k) * told_s
        least = whole - most(float(self.t[k] - self.t[k - 1]) - told_s)
        off = np.maximum(inside - least, most(told_s) - inside)
        carried = self.length / told_s if self.goes_on and k == len(self.t) - 1 and self.t[k] < end else 1.0
        return np.asarray(np.minimum(off * carried, most_w * self.length), np.float64)

    def _between(self, k: int) -> Floats:
        """Mean power on the line to a move."""
        return np.asarray((self.joules[:, k] - self.joules[:, k - 1]) / (self.t[k] - self.t[k - 1]), np.float64)
