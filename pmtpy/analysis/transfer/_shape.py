"""The shape over the clock that the configurations of one table share, for one quantity (power or time).

    y_c(f) = v_c (1 + k_c s(f)) exp(gamma w + residual)

``s`` is the shared shape, 0 at the middle clock; ``v_c`` the level of configuration c there; ``k_c``, 1 on average,
how strongly it follows the shape; ``w`` how much warmer it was than is usual at that clock. Time on a roofline,
``A/f + B``, has exactly this form with ``s = f0/f - 1`` and ``k = A/(A + B f0)``; so has power that is a static part
and one that switches. ``s`` is not assumed, though, but found. Everything is done in logarithms, where errors are
relative; docs/frequency.md derives it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import huber_weights, robust_sd
from pmtpy.core.rows import Floats, Ints

SAME_CLOCK = 0.004  # clocks closer than this, relative, are one
_ROUNDS = 12
# Standard deviation of what a degree may do, relative: silicon is known by 0.002 (docs/frequency.md), either sign left
# open. It matters only where a handful of rows would have to tell.
_WARMTH = 0.003
_FLOOR = 0.05  # 1 + k s is kept above this: no clock in range makes a kernel twenty times faster or cooler


def follow(slope: Floats | float, s: Floats) -> tuple[Floats, Floats]:
    """Return ``log(1 + k s)`` and its derivative by ``k s``."""
    inside = np.maximum(_FLOOR, 1.0 + slope * s)
    return np.log(inside), np.asarray(1.0 / inside, np.float64)


def knots_of(log_f: Floats) -> Floats:
    """Merge rising clocks that are nearly the same: several settings beyond the power limit reach one clock."""
    knots = [float(log_f[0])]
    for f in log_f[1:]:
        if f - knots[-1] > SAME_CLOCK:
            knots.append(float(f))
    return np.array(knots)


def _hat(knots: Floats, log_f: Floats) -> Floats:
    """Weights of the knots in a linear inter- and extrapolation at ``log_f``; shape (n, knots)."""
    from scipy.interpolate import BSpline

    if len(knots) == 1:
        return np.ones((len(log_f), 1))
    weights = BSpline.design_matrix(log_f, np.pad(knots, 1, mode="edge"), 1, extrapolate=True)
    return np.asarray(weights.toarray(), np.float64)


@dataclass(frozen=True, slots=True)
class ClockShape:
    """The shared shape of one quantity, and how each configuration of the training follows it."""

    # float64; logarithms of the clocks, and ``s`` there; straight between
    knots: Floats
    values: Floats
    # shape (configurations,); ``log v_c`` and ``k_c``
    level: Floats
    slope: Floats
    # variance of ``k_c`` and of a residual
    spread: float
    noise: float
    warmth: float  # ``gamma``, per degree

    def at(self, log_f: Floats) -> Floats:
        """``s`` at a clock; beyond the knots it goes on with the slope of the outermost two."""
        return np.asarray(_hat(self.knots, log_f) @ self.values, np.float64)


def fit_shape(index: Ints, log_f: Floats, y: Floats, warm: Floats, knots: Floats) -> ClockShape:
    """Fit levels, slopes, shape and temperature by turns, each time to first order; outliers weigh less (Huber).

    Parameters
    ----------
    index : int64, shape (n,)
        Configuration of each row, counted from 0.
    log_f, y : float64, shape (n,)
        Logarithms of the measured clock and of the quantity.
    warm : float64, shape (n,)
        Degrees above what is usual at the clock.
    knots : float64
        Where the shape may bend, in log clock.
    """
    hat, n = _hat(knots, log_f), int(index.max()) + 1
    weight = np.ones(len(y))
    slope, spread, noise, warmth = np.ones(n), 0.1, 1e-3, 0.0
    values = _centred(np.exp(_polished(index, np.argmax(hat, axis=1), len(knots), y)) - 1.0)
    for turn in range(_ROUNDS):
        s = hat @ values
        bent, rate = follow(slope[index], s)
        ahead = s * rate  # derivative by the slope
        target = y - warmth * warm - bent + slope[index] * ahead
        total = np.bincount(index, weight, n)
        a_mean = np.bincount(index, weight * ahead, n) / total
        y_mean = np.bincount(index, weight * target, n) / total
        da, dy = ahead - a_mean[index], target - y_mean[index]
        moment = np.bincount(index, weight * da * da, n) + 1e-12
        stiff = noise / max(spread, 1e-9)
        slope = (np.bincount(index, weight * da * dy, n) + stiff) / (moment + stiff)
        level = y_mean - slope * a_mean
        spread = float(np.mean((slope - 1.0) ** 2 + noise / (moment + stiff)))
        bent, rate = follow(slope[index], s)
        steep = slope[index] * rate  # derivative by the shape
        left = y - warmth * warm - level[index] - bent + steep * s
        design = hat * steep[:, None]
        normal = (design.T * weight) @ design + 1e-9 * np.eye(len(knots))
        values = _centred(np.linalg.solve(normal, (design.T * weight) @ left)) * float(np.mean(slope))
        slope = slope / float(np.mean(slope))
        residual = y - level[index] - follow(slope[index], hat @ values)[0]
        # Temperature last, and only what clock and configuration leave over: over the clocks it rose with time.
        heat = float(np.sum(weight * warm * warm)) + noise / _WARMTH**2
        warmth = float(np.sum(weight * warm * residual)) / heat if turn > 1 else 0.0
        residual = residual - warmth * warm
        weight = huber_weights(residual, scale=max(robust_sd(residual), 1e-9))
        freedom = max(1, len(y) - 2 * n - len(knots))
        noise = float(np.sum(weight * residual * residual)) / freedom
    return ClockShape(knots, values, level, slope, spread, noise, warmth)


def _polished(index: Ints, knot: Ints, knots: int, y: Floats) -> Floats:
    """Median polish (Tukey, Exploratory Data Analysis, 1977): effect of each knot, a start that no outlier moves."""
    grid = np.full((int(index.max()) + 1, knots), np.nan)
    grid[index, knot] = y
    effect, seen = np.zeros(knots), ~np.all(np.isnan(grid), axis=0)
    for _ in range(3):
        level = np.nanmedian(grid - effect, axis=1)
        effect[seen] = np.nanmedian((grid - level[:, None])[:, seen], axis=0)
    return effect


def _centred(values: Floats) -> Floats:
    """Shift the shape so that it is 0 at the middle knot: the levels are those there."""
    return np.asarray(values - values[len(values) // 2], np.float64)
