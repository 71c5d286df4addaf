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

from pmtpy.analysis.signal.response import Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError

_LONGEST = 1500  # cells: beyond, the dense solution takes minutes
_REWEIGHT = 8
_DOUBTS = (0.0, 0.03, 0.1, 0.3)  # in a reading, in how far the readings move from update to update
_TAIL = 2.0  # degrees of freedom of the steps' distribution ...
_READING_TAIL = 4.0  # ... and of the readings': 4 is the usual robust choice (Lange, Little, Taylor, JASA 84, 1989)
_SLIVER = 0.1  # of a cell: a bound this near a start gives way to it
_FREE = 1e-4  # stiffness at a known start, relative: a step a hundred times as large as elsewhere
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

    def weights(self, start_s: float, end_s: float) -> Floats:
        """Seconds of each cell inside an interval."""
        inside = np.minimum(self.bounds_s[1:], end_s) - np.maximum(self.bounds_s[:-1], start_s)
        return np.asarray(np.maximum(inside, 0.0), np.float64)

    def energy(self, start_s: float, end_s: float) -> float:
        """Joules of an interval."""
        return float(self.weights(start_s, end_s) @ self.watts)

    def energy_u(self, start_s: float, end_s: float) -> float:
        """Standard uncertainty of :meth:`energy`, gain and offset aside."""
        return self.spread(self.weights(start_s, end_s))

    def spread(self, weights: Floats) -> float:
        """Standard uncertainty of a weighed sum of the cells."""
        return math.sqrt(max(0.0, float(weights @ self.covariance @ weights)))

    def edge_u(self, t_s: float) -> float:
        """Standard uncertainty of an energy that begins or ends at ``t_s``, for a step somewhere in its cell.

        Largest less smallest power of the cell and its neighbours, times a cell, times ``f (1 - f)`` for a cut after
        the share ``f`` of it: nothing at a bound, where the energy is known, and one over the root of 30 in the mean
        over all cuts (docs/uncertainty.md).
        """
        j = self._cell(t_s)
        left, right = float(self.bounds_s[j]), float(self.bounds_s[j + 1])
        return self.swing(t_s) * max(t_s - left, 0.0) * max(right - t_s, 0.0) / (right - left)

    def swing(self, t_s: float) -> float:
        """Largest less smallest power of the cell that holds an instant and its neighbours."""
        j = self._cell(t_s)
        return float(np.ptp(self.watts[max(0, j - 1) : j + 2]))

    def at(self, t_s: float) -> float:
        """Power of the cell that holds an instant."""
        return float(self.watts[self._cell(t_s)])

    def _cell(self, t_s: float) -> int:
        return int(np.clip(np.searchsorted(self.bounds_s, t_s, side="right") - 1, 0, len(self.watts) - 1))


def reconstruct(
    channels: Sequence[tuple[Floats, Floats, Response]],
    start_s: float,
    end_s: float,
    *,
    floor_w: float = 0.0,
    starts_s: Floats | None = None,
    ahead_s: float = 0.0,
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
    starts_s : float64, shape (n,), optional
        When a load is known to have started: there cells begin, and power may step freely.
    ahead_s : float
        How far the interval may reach beyond what the newest reading saw: there the last power goes on, as uncertain as
        it moves.

    Raises
    ------
    CoverageError
        Too few readings around the interval, or an interval too long for this method.
    """
    reach = max(2.0 * (r.span_s + abs(r.delay_s)) + r.period_s for _, _, r in channels)
    rows = [(t[near], w[near], r) for t, w, r in channels for near in [_near(t, start_s, end_s, reach)]]
    n = sum(len(t) for t, _, _ in rows)
    if n < 4 or max(float(t[-1]) for t, _, _ in rows if len(t)) + ahead_s < end_s:
        msg = f"{n} readings around the interval from {start_s:.3f} to {end_s:.3f} s do not cover it"
        raise CoverageError(msg)
    cell = min(r.period_s for _, _, r in channels)
    first = min(float(t[0]) - 1.5 * (r.span_s + r.delay_s) for t, _, r in rows if len(t))
    last = max(float(t[-1]) - r.delay_s for t, _, r in rows if len(t))
    m = math.ceil((last - first) / cell)
    if m > _LONGEST:
        msg = f"the interval needs {m} cells of {cell:.3g} s; reconstruct at most {_LONGEST} at a time"
        raise CoverageError(msg)
    # The kernels' ends fall on bounds, so each reading adds a whole cell: the last bound is the newest kernel's end.
    more = math.ceil(max(0.0, min(end_s - last, ahead_s)) / cell)
    bounds = np.asarray(last + cell * np.arange(-m, 1 + more), np.float64)
    known = np.zeros(0) if starts_s is None else starts_s[(starts_s > bounds[1]) & (starts_s < bounds[-2])]
    bounds, stepping = _begin(bounds, known, cell)
    kernel = np.concatenate([r.cells(t, bounds) for t, _, r in rows])
    # What lies before the first cell continues it: the kernel's tail is folded into that cell.
    kernel[:, 0] += 1.0 - kernel.sum(axis=1)
    shown = np.concatenate([r.power(w) for _, w, r in rows])
    noise = np.concatenate([np.full(len(t), max(r.noise_in_s, 1e-3), np.float64) for t, _, r in rows])
    doubt = np.concatenate([np.abs(np.gradient(r.power(w))) for _, w, r in rows]) / noise
    problem = _Problem(np.asarray(kernel / noise[:, None], np.float64), shown / noise, doubt, stepping)
    return _solve(problem, bounds, floor_w)


def _begin(bounds: Floats, starts: Floats, cell: float) -> tuple[Floats, Floats]:
    """Let cells begin at the starts; and return how stiff each inner bound is, those at a start hardly."""
    near = np.abs(bounds[:, None] - starts[None, :]).min(axis=1, initial=np.inf) < _SLIVER * cell
    near[[0, -1]] = False
    bounds = np.sort(np.concatenate([bounds[~near], starts]))
    return bounds, np.where(np.isin(bounds[1:-1], starts), _FREE, 1.0)


def _near(t_s: Floats, start_s: float, end_s: float, reach: float) -> slice:
    low, high = np.searchsorted(t_s, [start_s - reach, end_s + reach])
    return slice(int(low), int(high))


@dataclass(frozen=True, slots=True)
class _Problem:
    """Readings over their noise, and what makes them up: kernel, steps between cells, and doubt in each reading."""

    kernel: Floats
    shown: Floats
    doubt: Floats
    stepping: Floats  # stiffness of each step, relative

    def trust(self, doubt: float) -> Floats:
        """How far each reading is believed at first."""
        return np.asarray(1.0 / (1.0 + (doubt * self.doubt) ** 2), np.float64)

    def normal(self, trust: Floats) -> tuple[Floats, Floats]:
        """Left and right side of the normal equations."""
        weighed = self.kernel.T * trust
        return np.asarray(weighed @ self.kernel, np.float64), np.asarray(weighed @ self.shown, np.float64)


def _solve(problem: _Problem, bounds: Floats, floor_w: float) -> Reconstruction:
    """Solve from several starts, and take the solution that steps and readings make the most likely.

    Loads step, and a window of many updates now and then holds one more or less. So both steps and readings are
    long-tailed, and there are several minima: a reading that is wrong by an update may be explained by a power that
    jumps up and down. Starts differ in how far readings on a flank are believed at first.
    """
    walk = _likely_walk(*problem.normal(problem.trust(_DOUBTS[-2])), problem.stepping)
    found = [_settle(problem, problem.trust(doubt), walk) for doubt in _DOUBTS]
    _, hessian, right, walk = min(found, key=lambda f: f[0])
    watts, free = _above(hessian, right, floor_w)
    covariance = np.zeros(hessian.shape)
    covariance[np.ix_(free, free)] = np.linalg.inv(hessian[np.ix_(free, free)])
    return Reconstruction(bounds, watts, covariance, walk)


def _settle(problem: _Problem, trust: Floats, walk: float) -> tuple[float, Floats, Floats, float]:
    """Return the surprise, the normal equations and the walk that weights of Student's t lead to from one start."""
    kernel, shown, stepping = problem.kernel, problem.shown, problem.stepping
    normal, right = problem.normal(trust)
    stiff = stepping / walk**2
    for _ in range(_REWEIGHT):
        posterior = np.linalg.inv(normal + _rough(stiff))
        watts, variance = posterior @ right, np.diag(posterior)
        missed = (shown - kernel @ watts) ** 2
        moved = stepping * np.diff(watts) ** 2
        surprise = _surprise(missed, _READING_TAIL) + _surprise(moved / walk**2, _TAIL) + len(moved) * math.log(walk)
        missed = missed + np.sum((kernel @ posterior) * kernel, axis=1)
        moved = moved + stepping * (variance[1:] + variance[:-1] - 2.0 * np.diag(posterior, 1))
        trust = (_READING_TAIL + 1.0) / (_READING_TAIL + missed)
        weight = (_TAIL + 1.0) / (_TAIL + moved / walk**2)
        walk = math.sqrt(float(np.mean(weight * moved)))
        stiff = np.asarray(stepping * weight / walk**2, np.float64)
        normal, right = problem.normal(trust)
    return surprise, np.asarray(normal + _rough(stiff), np.float64), right, walk


def _surprise(squares: Floats, tail: float) -> float:
    """Negative logarithm of Student's t of standardised squares, constants aside."""
    return float(np.sum(np.log1p(squares / tail))) * (tail + 1.0) / 2.0


def _likely_walk(normal: Floats, right: Floats, stepping: Floats) -> float:
    """Return the walk of greatest marginal likelihood."""
    rough = _rough(stepping)

    def surprise(log_walk: float) -> float:
        """Twice the negative logarithm of the marginal likelihood, constants aside."""
        hessian = normal + math.exp(-2.0 * log_walk) * rough
        sign, determinant = np.linalg.slogdet(hessian)
        explained = float(right @ np.linalg.solve(hessian, right))
        return float(sign * determinant + 2.0 * len(stepping) * log_walk - explained)

    return math.exp(_lowest(surprise, math.log(0.01), math.log(1000.0)))


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
