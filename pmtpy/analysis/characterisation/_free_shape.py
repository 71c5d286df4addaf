"""A response kernel of any shape, by least squares: what a named family must not do worse than.

    reading_k = sum over cells j of  h_j * (mean reference between the lags of cell j before u_k)  + intercept

is linear in ``h``, so it has one answer, found without a start. Its sum is the gain, its mean the lag, whatever the
kernel looks like: a cascade of two filters, a triangle, a step with a ramp. If it leaves much less than the best of the
named families, none of these is the sensor's kernel; and then gain, intercept and lag are better taken from here.
Pure; times are seconds, powers watts.

[HT90] Hastie, Tibshirani, Generalized Additive Models, 1990, section 3.9: F-test of a penalised against a parametric
fit, with the trace of the smoother as its degrees of freedom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import Estimate, counting
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.rows import Floats

REFUTED = 1e-6  # chance of what a fit of another shape leaves, below which it is held to be wrong
_CELLS = 32
_ROWS_PER_CELL = 6  # fewer readings than that for a cell show its noise
_BEFORE, _AFTER = 3.0, 4.5  # standard deviations of the kernel, from its mean: an exponential has a long tail
# Of a standard deviation: of an exponential that is cut off there, by which the mean is too early (a share of
# ``exp(-5.5)`` is left out, which is 6.5 time constants old).
_CUT = 6.5 * math.exp(-5.5)
_ROUGHNESS_WEIGHT = 1e-5  # weight of second differences, against the variance of the reference
_MIN_VARIATION = 1e-9  # of the reference: less is rounding
_MIN_EXCESS = 1.25  # times the residual, below which it does not matter


@dataclass(frozen=True, slots=True)
class FreeShape:
    """A kernel of free shape."""

    edges_s: Floats  # shape (m + 1,); ages of the ends of its cells
    weights: Floats  # shape (m,); of the cells; of unit sum
    gain: Estimate
    intercept_w: Estimate
    lag_s: Estimate
    spread_s: Estimate  # standard deviation of the ages that it shows
    left: float  # sum of squares of the residuals, in watts squared
    rows: int  # readings used
    freedom: float  # parameters, in effect

    @property
    def residual_w(self) -> float:
        """Root mean square of what it leaves."""
        return math.sqrt(self.left / (self.rows - self.freedom))

    def shown(self, reference: PowerTrace, at_s: Floats) -> Floats:
        """Return the reference through the kernel, with a gain of one, at instants of the reference's clock."""
        return np.asarray(_cells(reference, at_s, self.edges_s) @ self.weights, np.float64)

    def chance(self, left: float, parameters: int) -> float:
        """Chance that a fit of the right shape, with so many parameters, leaves as large a sum of squares; or 1.

        1 also where what it leaves is not much more than what the free shape leaves.
        """
        spare, rest = self.freedom - parameters, self.rows - self.freedom
        if spare <= 0.0 or rest <= 0.0 or left / (self.rows - parameters) < (_MIN_EXCESS * self.residual_w) ** 2:
            return 1.0
        from scipy.special import fdtrc  # (scipy.stats takes half a second to import)

        return float(fdtrc(spare, rest, max(left - self.left, 0.0) / spare / (self.left / rest)))


def fit_free(
    at_s: Floats, watts: Floats, reference: PowerTrace, *, weights: Floats | float = 1.0, lag_s: float, spread_s: float
) -> FreeShape | None:
    """Fit a kernel of free shape, as far as it reaches: a long tail that is cut off would be missing in its mean.

    Parameters
    ----------
    at_s, watts : float64, shape (n,)
        Instants of the readings on the reference's clock, and what was read.
    weights : float64, shape (n,), or float
        How much each reading counts: where a phase jumps, readings are off whatever the kernel is.
    lag_s, spread_s : float
        About the mean and the standard deviation of the kernel: where it is looked for at first.

    Returns
    -------
    FreeShape or None
        None where there are too few readings, or the reference does not vary within the kernel.
    """
    found = _within(at_s, watts, reference, weights, lag_s=lag_s, spread_s=spread_s)
    while found is not None and found.spread_s.low > spread_s:  # it is wider than where it was looked for
        lag_s, spread_s = found.lag_s.value, found.spread_s.value
        found = _within(at_s, watts, reference, weights, lag_s=lag_s, spread_s=spread_s) or found
    return found


def _within(
    at_s: Floats, watts: Floats, reference: PowerTrace, weights: Floats | float, *, lag_s: float, spread_s: float
) -> FreeShape | None:
    cells = min(_CELLS, len(at_s) // _ROWS_PER_CELL)
    if cells < 3:  # two have no second difference
        return None
    edges = np.asarray(lag_s + spread_s * np.linspace(-_BEFORE, _AFTER, cells + 1), np.float64)
    power = _cells(reference, at_s, edges)
    scale = float(np.std(power))
    if not scale > _MIN_VARIATION * float(np.max(np.abs(power))):
        return None
    design = np.column_stack([power, np.ones(len(at_s))])
    rough = np.zeros((cells - 2, cells + 1))
    rough[:, :cells] = np.diff(np.eye(cells), 2, axis=0) * scale * math.sqrt(_ROUGHNESS_WEIGHT * len(at_s))
    weighted = design * np.reshape(weights, (-1, 1))
    normal = weighted.T @ design
    inverse = np.linalg.pinv(normal + rough.T @ rough, hermitian=True)
    solution = inverse @ (weighted.T @ watts)
    residuals = np.sqrt(weights) * (watts - design @ solution)
    gain, freedom = float(np.sum(solution[:cells])), float(np.trace(inverse @ normal))
    if gain <= 0.0 or freedom >= len(at_s) - 1.0:
        return None
    left = float(residuals @ residuals)
    rest = (len(at_s) - freedom) * counting(np.asarray(residuals, np.float64))
    covariance = inverse * left / max(rest, 1.0)
    age = np.append((edges[1:] + edges[:-1]) / 2.0, 0.0)
    one = np.append(np.ones(cells), 0.0)
    lag = float(age @ solution) / gain
    square = np.append((age[:cells] - lag) ** 2 + (edges[1] - edges[0]) ** 2 / 12.0, 0.0)
    variance = float(square @ solution) / gain
    spread = math.sqrt(max(variance, 0.0))

    def estimate(value: float, mix: Floats) -> Estimate:
        return Estimate.normal(value, math.sqrt(max(float(mix @ covariance @ mix), 0.0)), rest)

    return FreeShape(
        edges,
        np.asarray(solution[:cells] / gain, np.float64),
        estimate(gain, np.asarray(one, np.float64)),
        estimate(float(solution[-1]), np.asarray(1.0 - one, np.float64)),
        estimate(lag, np.asarray((age - lag * one) / gain, np.float64)).widened(_CUT * spread),
        estimate(spread, np.asarray((square - variance * one) / (2.0 * max(spread, 1e-12) * gain), np.float64)),
        left,
        len(at_s),
        freedom,
    )


def _cells(reference: PowerTrace, at_s: Floats, edges_s: Floats) -> Floats:
    """Mean of the reference between the ages of each cell before each instant, shape (n, m)."""
    joules = np.interp(at_s[:, None] - edges_s, reference.t_s, reference.joules)
    return np.asarray((joules[:, :-1] - joules[:, 1:]) / np.diff(edges_s), np.float64)
