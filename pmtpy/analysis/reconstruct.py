"""The power behind readings whose windows overlap: the smoothest one that explains them, with its uncertainty.

Power is constant in cells of a period or less. A random walk from cell to cell is the prior, so the result minimises

    sum over readings (A x - y)^2 / noise^2  +  sum over cells (x_j+1 - x_j)^2 / walk^2      with  x >= floor

where the size of the walk is the smallest that explains the readings as well as their noise allows (the discrepancy
principle of Morozov). Several channels of one board (instant and average) obey one power: their rows are stacked.
The uncertainty of any energy is that of the posterior; see docs/corrections.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.response import Response
from pmtpy.errors import CoverageError
from pmtpy.model import Floats

_LONGEST = 1500  # cells: beyond, the dense solution takes minutes
_REWEIGHT = 4
_TAIL = 2.0  # degrees of freedom of the steps' distribution
_ROUNDS = 20  # of finding the cells that lie on the floor


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """Power in cells.

    Attributes
    ----------
    bounds_s : float64, shape (m + 1,)
        Bounds of the cells.
    watts : float64, shape (m,)
        Mean power of each.
    covariance : float64, shape (m, m)
        Posterior covariance of ``watts``.
    walk_w : float
        Standard deviation of the step from cell to cell that was found.
    """

    bounds_s: Floats
    watts: Floats
    covariance: Floats
    walk_w: float

    def _weights(self, start_s: float, end_s: float) -> Floats:
        inside = np.minimum(self.bounds_s[1:], end_s) - np.maximum(self.bounds_s[:-1], start_s)
        return np.asarray(np.maximum(inside, 0.0), np.float64)

    def energy(self, start_s: float, end_s: float) -> float:
        """Joules of an interval."""
        return float(self._weights(start_s, end_s) @ self.watts)

    def energy_u(self, start_s: float, end_s: float) -> float:
        """Standard uncertainty of :meth:`energy`, gain and offset aside."""
        weights = self._weights(start_s, end_s)
        return math.sqrt(max(0.0, float(weights @ self.covariance @ weights)))

    def edge_u(self, t_s: float) -> float:
        """Standard uncertainty of an energy that begins or ends at ``t_s``, for a step somewhere in its cell.

        Largest less smallest power of the cell and its neighbours, times a cell, over the root of 30; derived in
        docs/uncertainty.md.
        """
        j = int(np.clip(np.searchsorted(self.bounds_s, t_s, side="right") - 1, 0, len(self.watts) - 1))
        swing = float(np.ptp(self.watts[max(0, j - 1) : j + 2]))
        return swing * float(self.bounds_s[1] - self.bounds_s[0]) / math.sqrt(30.0)

    def at(self, t_s: float) -> float:
        """Power of the cell that holds an instant."""
        j = int(np.clip(np.searchsorted(self.bounds_s, t_s, side="right") - 1, 0, len(self.watts) - 1))
        return float(self.watts[j])


def reconstruct(
    channels: Sequence[tuple[Floats, Floats, Response]], start_s: float, end_s: float, *, floor_w: float = 0.0
) -> Reconstruction:
    """Find the power around an interval from the updates of one or more channels.

    Parameters
    ----------
    channels : sequence of (t_s, watts, response)
        Updates of each channel as shown, and its response.
    start_s, end_s : float
        The interval; readings up to two kernel widths either side are used.
    floor_w : float
        Power is at least this (the idle power, or nothing).

    Raises
    ------
    CoverageError
        Too few readings around the interval, or an interval too long for this method.
    """
    reach = max(2.0 * (r.span_s + abs(r.delay_s)) + r.period_s for _, _, r in channels)
    rows = [(t[near], w[near], r) for t, w, r in channels for near in [_near(t, start_s, end_s, reach)]]
    n = sum(len(t) for t, _, _ in rows)
    if n < 4 or max(float(t[-1]) for t, _, _ in rows if len(t)) < end_s:
        msg = f"{n} readings around the interval from {start_s:.3f} to {end_s:.3f} s do not cover it"
        raise CoverageError(msg)
    cell = min(r.period_s for _, _, r in channels)
    first = min(float(t[0]) - 1.5 * (r.span_s + r.delay_s) for t, _, r in rows if len(t))
    last = max(float(t[-1]) - r.delay_s for t, _, r in rows if len(t))
    m = math.ceil((last - first) / cell)
    if m > _LONGEST:
        msg = f"the interval needs {m} cells of {cell:.3g} s; reconstruct at most {_LONGEST} at a time"
        raise CoverageError(msg)
    bounds = np.asarray(first + cell * np.arange(m + 1), np.float64)
    kernel = np.concatenate([r.cells(t, bounds) for t, _, r in rows])
    # What lies before the first cell continues it: the kernel's tail is folded into that cell.
    kernel[:, 0] += 1.0 - kernel.sum(axis=1)
    shown = np.concatenate([r.power(w) for _, w, r in rows])
    noise = np.concatenate([np.full(len(t), max(r.noise_in_s, 1e-3), np.float64) for t, _, r in rows])
    white = np.asarray(kernel / noise[:, None], np.float64)
    return _solve(white, shown / noise, bounds, floor_w)


def _near(t_s: Floats, start_s: float, end_s: float, reach: float) -> slice:
    low, high = np.searchsorted(t_s, [start_s - reach, end_s + reach])
    return slice(int(low), int(high))


def _solve(kernel: Floats, shown: Floats, bounds: Floats, floor_w: float) -> Reconstruction:
    """Choose the walk by its likelihood, then solve with it."""
    m = kernel.shape[1]
    normal, right = kernel.T @ kernel, kernel.T @ shown
    rough = _rough(np.ones(m - 1))
    square = float(shown @ shown)

    def surprise(log_walk: float) -> float:
        """Twice the negative logarithm of the marginal likelihood, constants aside."""
        hessian = normal + math.exp(-2.0 * log_walk) * rough
        sign, determinant = np.linalg.slogdet(hessian)
        explained = float(right @ np.linalg.solve(hessian, right))
        return float(sign * determinant + 2.0 * (m - 1) * log_walk + square - explained)

    log_walk = _lowest(surprise, math.log(0.01), math.log(1000.0))
    stiff, walk = np.full(m - 1, math.exp(-2.0 * log_walk)), math.exp(log_walk)
    for _ in range(_REWEIGHT):  # loads step: let the walk be long-tailed (Student's t), cells that jump are less stiff
        posterior = np.linalg.inv(normal + _rough(stiff))
        variance = np.diag(posterior)
        moved = np.diff(posterior @ right) ** 2 + variance[1:] + variance[:-1] - 2.0 * np.diag(posterior, 1)
        weight = (_TAIL + 1.0) / (_TAIL + moved / walk**2)
        walk = math.sqrt(float(np.mean(weight * moved)))
        stiff = weight / walk**2
    hessian = normal + _rough(stiff)
    watts, free = _above(hessian, right, floor_w)
    covariance = np.zeros((m, m))
    covariance[np.ix_(free, free)] = np.linalg.inv(hessian[np.ix_(free, free)])
    return Reconstruction(bounds, watts, covariance, walk)


def _rough(stiffness: Floats) -> Floats:
    """Quadratic form of the weighted steps from cell to cell: ``sum of stiffness_j (x_j+1 - x_j)^2``."""
    diagonal = np.concatenate([stiffness, [0.0]]) + np.concatenate([[0.0], stiffness])
    return np.asarray(np.diag(diagonal) - np.diag(stiffness, 1) - np.diag(stiffness, -1), np.float64)


def _lowest(of: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function of one valley is lowest (golden section)."""
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = of(a), of(b)
    for _ in range(16):
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = of(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = of(b)
    return (low + high) / 2.0


def _above(
    hessian: Floats, right: Floats, floor_w: float
) -> tuple[Floats, np.ndarray[tuple[int, ...], np.dtype[np.intp]]]:
    """Solve for the cells, those that would fall below the floor set to it; return them and which are free."""
    m = len(right)
    watts, free = np.linalg.solve(hessian, right), np.arange(m)
    for _ in range(_ROUNDS):
        below = watts[free] < floor_w
        if not np.any(below):
            break
        free = free[~below]
        fixed = np.setdiff1d(np.arange(m), free)
        watts = np.full(m, floor_w)
        rest = right[free] - hessian[np.ix_(free, fixed)] @ watts[fixed]
        watts[free] = np.linalg.solve(hessian[np.ix_(free, free)], rest)
    return np.asarray(watts, np.float64), free
