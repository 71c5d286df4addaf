"""Two levels of a load behind readings that filter it, from the stamps of when it was on. Pure; seconds, watts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.response import Activity, Response
from pmtpy.model import Floats
from pmtpy.uncertainty import COVERAGE_FACTOR, student_95

_FEW = 10  # updates that a regression of two levels needs
# How much shorter a load is on than its stamps say: 0.7 ms under the recorded square wave; 14 to 37 ms of 6 s, since
# the blocks of a kernel end unevenly (docs/corrections.md).
_EARLY_S, _EARLY_SHARE = 7e-4, 0.005


@dataclass(frozen=True, slots=True)
class Levels:
    """A load's two levels.

    Attributes
    ----------
    watts : float64, shape (3,)
        Low; rise; rise times by how many seconds the load ends earlier than its stamps say.
    covariance : float64, shape (3, 3)
    around : str
        Empty, or that they come from more than the interval.
    """

    watts: Floats
    covariance: Floats
    around: str


def fit_levels(
    t_s: Floats, watts: Floats, response: Response, load: Activity, *, start_s: float, end_s: float, telling: float
) -> Levels | None:
    """Fit ``y = a + b (h * s)(u - delay) + c (h * s')(u - delay)`` to the readings in an interval.

    ``s'`` is what ``s`` changes by if the load ends earlier, with what is known of that beforehand: readings that see
    few phases of a load cannot tell its duty from its power. Where the updates in the interval cannot tell the levels
    apart (too few, or the filtered load spreads by less than ``telling``), those around it are taken as well, up to
    eight times the interval; None when even they cannot.
    """
    length = end_s - start_s
    for widened in (0.0, 0.5, 1.5, 3.5):
        reach = widened * length
        inside = (t_s >= start_s + response.lag_s - reach) & (t_s < end_s + response.lag_s + reach)
        n, design = int(np.count_nonzero(inside)), columns(t_s[inside], response, load)
        if n >= _FEW and float(np.std(design[:, 1])) >= telling:
            break
    else:
        return None
    power = response.power(watts[inside])
    rough, *_ = np.linalg.lstsq(design[:, :2], power, rcond=None)
    residuals = power - design[:, :2] @ rough
    noise = max(math.sqrt(float(residuals @ residuals) / (n - 2)), 1e-9)
    early_u = math.hypot(_EARLY_S, _EARLY_SHARE * float(np.median(load.off_s - load.on_s)))
    prior = np.array([0.0, 0.0, noise / max(abs(float(rough[1])) * early_u, 1e-9)])
    levels, *_ = np.linalg.lstsq(np.vstack([design, prior]), np.append(power, 0.0), rcond=None)
    residuals = power - design @ levels
    variance = float(residuals @ residuals) / (n - 2) * _inflation(residuals)
    inverse = np.linalg.inv(design.T @ design + np.outer(prior, prior))
    factor = student_95(n - 2) / COVERAGE_FACTOR
    around = f"the two levels come from {2 * reach + length:.3g} s around the region" if widened else ""
    return Levels(np.asarray(levels, np.float64), np.asarray(inverse * variance * factor**2, np.float64), around)


def columns(t_s: Floats, response: Response, load: Activity) -> Floats:
    """One, the load as the sensor sees it, and what that changes by for each second that the load ends earlier."""
    seen = load.seen(response, t_s)
    return np.column_stack([np.ones(len(t_s)), seen, (load.ending(_EARLY_S).seen(response, t_s) - seen) / _EARLY_S])


def shares(load: Activity, start_s: float, end_s: float) -> Floats:
    """Integrals of the same three over an interval."""
    on = load.share(start_s, end_s)
    return np.array([end_s - start_s, on, (load.ending(_EARLY_S).share(start_s, end_s) - on) / _EARLY_S])


def _inflation(residuals: Floats) -> float:
    """How much neighbouring residuals that are alike inflate the variance of a mean: (1 + r)/(1 - r)."""
    lagged = float(residuals[1:] @ residuals[:-1]) / max(float(residuals @ residuals), 1e-300)
    r = min(max(lagged, 0.0), 0.9)
    return (1.0 + r) / (1.0 - r)
