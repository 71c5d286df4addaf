"""Power in cells, and which readings each part of it moves: the columns of the estimator. Pure; seconds, watts.

The power is the sum of independent sources: a step at each bound between two cells (a slow power that walks), what
each cell has above it (a load faster than the cells), and the noise of each reading. Neither the level of the power
nor what a one-pole held at the start is one of them: readings are replaced by differences that know nothing of these,

    d_k = (y_k+1 - q_k y_k)/(1 - q_k)      q_k = exp(-(t_k+1 - t_k)/tau), 0 without a one-pole
    e_k = d_k - d_k-1

of which each source moves a few, however slow the one-pole is. The level is what one ``d`` near the region shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import SAME_SHARE
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats, Ints

_IN_A_PERIOD = 4  # cells in a period ...
_IN_A_WINDOW = 20  # ... but no more than this in a window of several


def bounds_of(ends_s: Floats, response: Response, until_s: float, also_s: Floats) -> Floats:
    """Lay cells between the ends of the readings' kernels, from one kernel before the first to ``until_s``.

    Bounds are also at ``also_s``.
    """
    period, window, tau = response.period_s, response.window_s, response.tau_s
    first = ends_s[0] - max(window + 5.0 * tau, period)
    lead = np.arange(ends_s[0] - period, first - period, -period)[::-1]
    tail = np.arange(ends_s[-1] + period, until_s + period, period)
    marks = [lead, ends_s, tail]
    marks += [ends_s - part for part in (window, tau) if 0.0 < part < period]
    marks.append(also_s[(also_s > first) & (also_s < max(ends_s[-1], until_s))])
    bounds = np.sort(np.concatenate(marks))
    bounds = bounds[np.diff(bounds, prepend=-np.inf) > SAME_SHARE * period]
    cell = max(period / _IN_A_PERIOD, min(window / _IN_A_WINDOW, period))
    many = np.maximum(1, np.ceil(np.diff(bounds) / cell - SAME_SHARE)).astype(np.int64)
    place = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    inner = np.repeat(bounds[:-1], many) + place * np.repeat(np.diff(bounds) / many, many)
    return np.asarray(np.append(inner, bounds[-1]), np.float64)


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences ``e`` of readings whose kernels end at ``ends_s``, and the ``d`` that shows the level."""

    ends_s: Floats
    of: Floats  # shape (n - 1, 3); weights of the readings before, at and after each difference's place
    # int, float64 of shape (2,); the first of two readings that show the level, and their weights
    anchor: int
    anchored: Floats

    @classmethod
    def over(cls, ends_s: Floats, tau_s: float, near_s: float) -> Differences:
        """Make them; the level is shown by the first reading whose kernel ends after ``near_s``."""
        n = len(ends_s)
        kept = np.exp(-np.diff(ends_s) / tau_s) if tau_s > 0.0 else np.zeros(n - 1)
        newer = 1.0 / (1.0 - kept)  # weight of the newer reading in each d; that of the older is what is left of 1
        of = np.zeros((n - 1, 3))
        of[0] = (0.0, -1.0, 1.0)
        of[1:] = np.stack([newer[:-1] - 1.0, 1.0 - newer[1:] - newer[:-1], newer[1:]], axis=1)
        at = int(np.clip(np.searchsorted(ends_s, near_s), 1, n - 1)) - 1
        return cls(ends_s, of, at, np.array([1.0 - newer[at], newer[at]]))

    def __call__(self, readings: Floats) -> Floats:
        """Return the differences of readings, shape (n, k)."""
        made = self.of[:, 1, None] * readings[:-1] + self.of[:, 2, None] * readings[1:]
        made[1:] += self.of[1:, 0, None] * readings[:-2]
        return np.asarray(made, np.float64)

    def level(self, readings: Floats) -> Floats:
        """Return what shows the level of readings, shape (n, k) to (k,)."""
        return np.asarray(self.anchored @ readings[self.anchor : self.anchor + 2], np.float64)


@dataclass(frozen=True, slots=True)
class Sources:
    """What moves the differences: all steps, then the excess of all cells, then the noise of all readings.

    The variance of a step is that of its walk, square watts per second; of an excess, square watts times seconds; of
    a noise, square watts.
    """

    # shape (s,), float64 of shape (s, k); the first difference that each moves, and by how much it moves that and the
    # next
    first: Ints
    columns: Floats
    level: Floats  # shape (s,); by how much it moves what shows the level
    rows: int  # number of differences, some of which may stand for none
    # number of steps, and of cells
    steps: int
    cells: int

    @classmethod
    def of(cls, bounds_s: Floats, differences: Differences, response: Response) -> Sources:
        """Hold cells between ``bounds_s`` against readings through the kernel of a sensor."""
        ends, many = differences.ends_s, len(differences.of)
        n, m = many + 1, len(bounds_s) - 1
        newest = np.searchsorted(ends, bounds_s)  # the first reading that a step at each bound moves ...
        settled = np.searchsorted(ends, bounds_s + response.window_s)  # ... and the first of which it is all
        wide = max(3, int(np.max(settled[1:] - newest[:-1])) + 2)
        rows = max(many, wide)
        first = np.clip(newest - 1, 0, rows - wide)
        padded = np.vstack([differences.of, np.zeros((rows - many, 3))])
        near = np.clip(first[:, None] - 1 + np.arange(wide + 2), 0, n - 1)
        weights = padded[first[:, None] + np.arange(wide)]

        def moved(shown: Floats) -> Floats:
            """Return the differences of what readings ``near`` show."""
            return np.asarray(sum(weights[: len(shown), :, c] * shown[:, c : c + wide] for c in range(3)), np.float64)

        begun = response.step(ends[near] - bounds_s[:, None])
        over = response.step(ends[near[:-1]] - bounds_s[1:, None])
        steps, cells = moved(begun)[1:-1], moved(begun[:-1] - over)
        shows = np.stack([response.step(ends[differences.anchor + i] - bounds_s) for i in (0, 1)], axis=1)
        level = shows @ differences.anchored
        lengths = np.diff(bounds_s)
        apart, root = np.sqrt((lengths[1:] + lengths[:-1]) / 2.0), np.sqrt(lengths)
        place = np.clip(np.arange(n) - 1, 0, rows - wide)
        at = place[:, None] + np.arange(wide)
        which = np.arange(n)[:, None] - at + 1  # of the three weights of a difference, that of this reading
        noise = np.where((which >= 0) & (which < 3), padded[at, np.clip(which, 0, 2)], 0.0)
        felt = np.zeros(n)
        felt[differences.anchor : differences.anchor + 2] = differences.anchored
        return cls(
            np.concatenate([first[1:-1], first[:-1], place]),
            np.vstack([steps * apart[:, None], cells / root[:, None], noise]),
            np.concatenate([level[1:-1] * apart, (level[:-1] - level[1:]) / root, felt]),
            rows,
            m - 1,
            m,
        )

    def times(self, rows: Floats) -> Floats:
        """Return the product of each column with vectors of the differences, shape (rows, k) to (s, k)."""
        near = rows[self.first[:, None] + np.arange(self.columns.shape[1])]
        return np.asarray(np.einsum("sr,srk->sk", self.columns, near), np.float64)

    def sums(self, amounts: Floats) -> Floats:
        """Return what amounts of all sources, shape (s,), are in the differences, shape (rows,)."""
        at = self.first[:, None] + np.arange(self.columns.shape[1])
        each = (self.columns * amounts[:, None]).ravel()
        return np.asarray(np.bincount(at.ravel(), each, self.rows), np.float64)
