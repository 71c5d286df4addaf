"""Readings that many independent sources move, each a few neighbouring ones: linear cost, and what is left unknown.

The covariance of the readings is banded. It is eliminated block by block (the recursion of a Kalman smoother), which
also gives that part of its inverse which lies near the diagonal: nothing else of it is needed. Pure numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.core.rows import Floats, Ints

_BLOCK = 48  # rows: below it the time goes into the loop, above it into products


@dataclass(frozen=True, slots=True)
class Solution:
    """Solution for several right sides, and what is kept of the inverse."""

    found: Floats  # shape (rows, k)
    near: Floats  # float64; the inverse about its diagonal; see :meth:`BandedCovariance.seen`
    inverses: Floats  # shape (blocks, b, b); of what was left of each block

    @property
    def log_determinant(self) -> float:
        """Logarithm of the covariance's determinant."""
        return -float(np.sum(np.linalg.slogdet(self.inverses)[1]))


class BandedCovariance:
    """The covariance ``sum of variance * column column'``, to be solved for many choices of the variances.

    Parameters
    ----------
    rows : int
        How many there are.
    first : int64, shape (s,)
        The first row that each source moves; it moves no row but the ``k`` from there.
    columns : float64, shape (s, k)
        By how much.
    """

    __slots__ = ("_block", "_blocks", "_idle", "_pairs", "_places", "_rows")

    def __init__(self, rows: int, first: Ints, columns: Floats) -> None:
        wide = columns.shape[1]
        self._rows = rows
        self._block = b = min(rows, max(_BLOCK, wide))
        self._blocks = -(-rows // b)
        # Rows that nothing moves stand for none: those behind the last, and those of readings that are not there.
        moved = np.bincount((first[:, None] + np.arange(wide)).ravel(), (columns != 0.0).ravel(), self._blocks * b)
        self._idle = np.flatnonzero(moved == 0.0)
        above = np.triu_indices(wide)
        left, right = first[:, None] + above[0], first[:, None] + above[1]
        self._places = np.asarray(left * 2 * b + right - left // b * b, np.int64)
        halved = np.where(above[0] < above[1], 1.0, 0.5)  # the upper triangle, to be added to its transpose
        self._pairs = columns[:, above[0]] * columns[:, above[1]] * halved

    def solve(self, variance: Floats, right: Floats) -> Solution:
        """Solve for the columns of ``right``, shape (rows, k), each source with its variance, shape (s,)."""
        b, n = self._block, self._blocks
        flat = np.bincount(self._places.ravel(), (self._pairs * variance[:, None]).ravel(), n * b * 2 * b)
        whole = flat.reshape(n, b, 2 * b)
        diagonal, beside = whole[:, :, :b] + whole[:, :, :b].swapaxes(1, 2), whole[:, :, b:]
        diagonal[self._idle // b, self._idle % b, self._idle % b] = 1.0
        padded = np.zeros((n * b, right.shape[1]))
        padded[: self._rows] = right
        sides = padded.reshape(n, b, -1)
        inverse, onward = np.empty((n, b, b)), np.empty((n, b, b))
        left = diagonal[0]
        for i in range(n):
            inverse[i] = np.linalg.inv(left)
            if i + 1 < n:
                onward[i] = inverse[i] @ beside[i]
                left = diagonal[i + 1] - beside[i].T @ onward[i]
                sides[i + 1] -= onward[i].T @ sides[i]
        found, near = np.empty_like(sides), np.zeros((n, b, 2 * b))
        found[-1], near[-1, :, :b] = inverse[-1] @ sides[-1], inverse[-1]
        for i in range(n - 2, -1, -1):
            found[i] = inverse[i] @ sides[i] - onward[i] @ found[i + 1]
            spread = onward[i] @ near[i + 1, :, :b]
            near[i, :, b:] = -spread
            near[i, :, :b] = inverse[i] + spread @ onward[i].T
        return Solution(found.reshape(n * b, -1)[: self._rows], near.ravel(), inverse)

    def seen(self, solution: Solution) -> Floats:
        """Return ``column' inverse column`` of each source: times its variance, the share of it that is found out."""
        return np.asarray(2.0 * np.einsum("sp,sp->s", solution.near[self._places], self._pairs), np.float64)
