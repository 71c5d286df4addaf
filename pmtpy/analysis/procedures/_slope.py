"""The slope of a series whose level wanders beside it: a drift, or the period of a clock whose phase walks. Pure."""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.signal.estimate import Estimate, mixed
from pmtpy.core.rows import Floats

_MAX_BLOCKS = 64  # values that are weighed: of more, neighbours are taken together
# How far the level walks from one value to the next: variances in that of the white noise, all as likely beforehand.
_WALKS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def slope(x: Floats, y: Floats, least_y: float = 0.0) -> Estimate:
    """Find the slope of a series about a level that walks.

    White noise about a random walk is the local level model (Harvey, Forecasting, 1989, chapter 2). What wanders and
    comes back after a while is held no less often by its intervals than a walk is.

    Parameters
    ----------
    x, y : float64, shape (n,)
        Three values or more, ``x`` increasing.
    least_y : float
        They scatter by no less than that: what rounding leaves of them.
    """
    take = -(-len(y) // _MAX_BLOCKS)
    count = len(y) // take
    x, y = (v[: count * take].reshape(count, take).mean(axis=1) for v in (x - x.mean(), y - y.mean()))
    design = np.stack([np.ones(count), x], axis=1)
    since = 1.0 + (x - x[0]) / np.median(np.diff(x))
    # Two values of one walk share what it had walked up to the earlier; within a mean of several that is a sixth less.
    walk = np.minimum(since[:, None], since) - np.eye(count) * (1.0 - take**-2) / 6.0
    log_odds, found = zip(*(_fitted(design, y, np.eye(count) + size * walk, least_y) for size in _WALKS), strict=True)
    share = np.exp(np.array(log_odds) - max(log_odds))
    share /= share.sum()
    value, low, high = np.array([(e.value, e.low, e.high) for e in found]).T
    return Estimate(float(share @ value), *mixed(share, value, low, high))


def _fitted(design: Floats, y: Floats, covariance: Floats, least_y: float) -> tuple[float, Estimate]:
    """Return the logarithm of the restricted likelihood and the slope, for a covariance known but for its size.

    Patterson and Thompson, Biometrika 58, 1971.
    """
    root = np.linalg.cholesky(covariance)
    x, shown = np.linalg.solve(root, design), np.linalg.solve(root, y)
    normal = x.T @ x
    found = np.linalg.solve(normal, x.T @ shown)
    rest = shown - x @ found
    freedom = len(y) - 2
    variance = max(float(rest @ rest) / freedom, least_y**2, 1e-300)
    sizes = 2.0 * float(np.sum(np.log(np.diag(root)))) + float(np.linalg.slogdet(normal)[1])
    error = math.sqrt(variance * float(np.linalg.inv(normal)[1, 1]))
    return -0.5 * (sizes + freedom * math.log(variance)), Estimate.normal(float(found[1]), error, freedom)
