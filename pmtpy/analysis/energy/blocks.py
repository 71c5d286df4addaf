"""Least squares in which each row touches a few neighbouring unknowns: linear cost, and variances with the solution.

The normal equations are banded. They are eliminated block by block (the recursion of a Kalman smoother in information
form), which also gives the covariance of unknowns that occur together in a row: nothing else of the inverse is needed.
Pure numpy. Blocks are kept small, so that no threads are woken for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.core.rows import Floats, Ints

_SMALLEST = 24  # unknowns in a block: below it the time goes into the loop, above it into products


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a matrix with few columns each.

    Attributes
    ----------
    index : int64, shape (n, r)
        Columns of each row; a column that occurs twice adds up.
    value : float64, shape (n, r)
    """

    index: Ints
    value: Floats

    def times(self, unknown: Floats) -> Floats:
        """Return the product with a vector or with columns, ``unknown`` of shape (size,) or (size, k)."""
        return np.asarray(np.einsum("nr,nr...->n...", self.value, unknown[self.index]), np.float64)

    def transposed(self, columns: Floats, size: int) -> Floats:
        """Return the transpose times ``columns`` of shape (n, k); shape (size, k)."""
        flat = self.index.ravel()
        each = self.value[:, :, None] * columns[:, None, :]
        sums = [np.bincount(flat, each[:, :, k].ravel(), size) for k in range(columns.shape[1])]
        return np.asarray(np.stack(sums, axis=1) if sums else np.zeros((size, 0)), np.float64)


@dataclass(frozen=True, slots=True)
class Solution:
    """Solution for several right sides, and what is kept of the inverse."""

    unknowns: Floats
    blocks: Floats
    pivots: Floats

    @property
    def log_determinant(self) -> float:
        """Logarithm of the determinant of the normal equations."""
        return float(np.sum(np.linalg.slogdet(self.pivots)[1]))


class BlockSystem:
    """Normal equations ``sum of weight * row' row`` of some kinds of rows, to be solved for many choices of weights."""

    __slots__ = ("_block", "_blocks", "_pairs", "_places", "size")

    def __init__(self, size: int, kinds: Sequence[Rows]) -> None:
        self.size = size
        widest = max(int(np.max(np.ptp(rows.index, axis=1))) for rows in kinds)
        self._block = max(_SMALLEST, widest + 1)
        self._blocks = -(-size // self._block)
        self._places = [self._places_of(rows.index) for rows in kinds]
        self._pairs = [(rows.value[:, :, None] * rows.value[:, None, :]).reshape(len(rows.value), -1) for rows in kinds]

    def _places_of(self, index: Ints) -> Ints:
        """Return where in the blocks each product of two entries of a row lies; beyond the end: below the diagonal."""
        b = self._block
        left, right = np.repeat(index, index.shape[1], axis=1), np.tile(index, (1, index.shape[1]))
        across = right // b - left // b
        return np.asarray(np.where(across < 0, self._blocks * b * 2 * b, left * 2 * b + across * b + right % b))

    def solve(self, weights: Sequence[Floats], ridge: float, right: Floats) -> Solution:
        """Solve for the columns of ``right``, shape (size, k), each kind of rows weighed by an array of its length."""
        b, n = self._block, self._blocks
        flat = np.zeros(n * b * 2 * b + 1)
        for places, pairs, weight in zip(self._places, self._pairs, weights, strict=True):
            flat += np.bincount(places.ravel(), (pairs * weight[:, None]).ravel(), len(flat))
        whole = flat[:-1].reshape(n, b, 2 * b)
        diagonal, beside = whole[:, :, :b], whole[:, :, b:]
        at = np.arange(b)
        diagonal[:, at, at] += ridge
        diagonal[-1, at[self.size - (n - 1) * b :], at[self.size - (n - 1) * b :]] = 1.0
        padded = np.zeros((n * b, right.shape[1]))
        padded[: self.size] = right
        sides = padded.reshape(n, b, -1)
        inverse, onward, pivots = np.empty((n, b, b)), np.empty((n, b, b)), np.empty((n, b, b))
        left = diagonal[0]
        for i in range(n):
            inverse[i] = np.linalg.inv(left)
            pivots[i] = left
            if i + 1 < n:
                onward[i] = inverse[i] @ beside[i]
                left = diagonal[i + 1] - beside[i].T @ onward[i]
                sides[i + 1] -= onward[i].T @ sides[i]
        found, kept = np.empty_like(sides), np.zeros((n, b, 2 * b))
        found[-1], kept[-1, :, :b] = inverse[-1] @ sides[-1], inverse[-1]
        for i in range(n - 2, -1, -1):
            found[i] = inverse[i] @ sides[i] - onward[i] @ found[i + 1]
            spread = onward[i] @ kept[i + 1, :, :b]
            kept[i, :, b:] = -spread
            kept[i, :, :b] = inverse[i] + spread @ onward[i].T
        return Solution(found.reshape(n * b, -1)[: self.size], np.append(kept.ravel(), 0.0), pivots)

    def variances(self, blocks: Floats, kind: int) -> Floats:
        """Return the variance of each row of one kind, from the ``blocks`` of a solution."""
        places = self._places[kind]
        wide = math.isqrt(places.shape[1])
        square = places.reshape(-1, wide, wide)
        square = np.where(square == len(blocks) - 1, np.swapaxes(square, 1, 2), square)
        return np.asarray(np.sum(blocks[square].reshape(places.shape) * self._pairs[kind], axis=1), np.float64)
