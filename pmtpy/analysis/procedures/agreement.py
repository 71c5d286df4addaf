"""How two measurements of power agree over workloads: a sensor and a reference, or a whole and the sum of its parts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_FEWEST = 5  # workloads: a parabola and two to spare


@dataclass(frozen=True, slots=True)
class PolynomialFit:
    """``reference = c0 + c1 sensor (+ c2 sensor^2)``, by least squares."""

    coefficients: tuple[Estimate, ...]  # c0 in W, c1 without a unit, c2 in 1/W
    mape_percent: Estimate  # mean of ``|fit - reference| / reference``
    mae_w: Estimate  # mean of ``|fit - reference|``


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a sensor agrees with a reference."""

    workloads: int
    # the least and the most power of the reference
    low_w: float
    high_w: float
    ratio: float  # mean power of the sensor by mean power of the reference
    # mape_percent, mae_w: of the sensor as it is: mean of ``|sensor - reference|``, relative to the reference and in
    # watts
    mape_percent: Estimate
    mae_w: Estimate
    linear: PolynomialFit
    quadratic: PolynomialFit


def agreement(sensor_w: Floats, reference_w: Floats) -> Agreement:
    """Compare mean powers of workloads.

    Parameters
    ----------
    sensor_w, reference_w : float64, shape (n,)
        Mean power of each workload, by both.

    Raises DeclinedError: fewer than five workloads, or all of one power.
    """
    x, y = np.asarray(sensor_w, np.float64), np.asarray(reference_w, np.float64)
    known = np.isfinite(x) & np.isfinite(y) & (y > 0.0)
    x, y = x[known], y[known]
    if len(x) < _FEWEST:
        msg = f"{len(x)} workloads are known and {_FEWEST} needed at the least: mark more of them"
        if len(x) < len(known):
            msg += f" ({len(known) - len(x)} more lack rows in one of the two, or are too short for its rows)"
        raise DeclinedError(msg)
    if np.ptp(x) == 0.0:
        msg = (
            f"all {len(x)} workloads have the same power, so only their mean can be compared: mark some of different "
            "power"
        )
        raise DeclinedError(msg)
    off = np.abs(x - y)
    return Agreement(
        len(x),
        float(y.min()),
        float(y.max()),
        float(x.mean() / y.mean()),
        _mean(off / y * 100.0),
        _mean(off),
        _fitted(x, y, 1),
        _fitted(x, y, 2),
    )


def _mean(off: Floats, fitted: int = 1) -> Estimate:
    """Mean of distances, of which none is below 0; its interval is that of other workloads of the same kind."""
    freedom = len(off) - fitted
    spread = float(np.std(off)) / math.sqrt(freedom)
    found = Estimate.normal(float(np.mean(off)), spread, freedom)
    return replace(found, low=max(found.low, 0.0))


def _fitted(x: Floats, y: Floats, degree: int) -> PolynomialFit:
    centre, width = float(x.mean()), float(np.ptp(x))
    design = np.vander((x - centre) / width, degree + 1, increasing=True)
    found, *_ = np.linalg.lstsq(design, y, rcond=None)
    rest = y - design @ found
    freedom = len(x) - degree - 1
    covariance = np.linalg.inv(design.T @ design) * float(rest @ rest) / freedom
    # From powers of (x - centre) / width to powers of x.
    back = np.zeros((degree + 1, degree + 1))
    for i in range(degree + 1):
        power = np.polynomial.polynomial.polypow([-centre / width, 1.0 / width], i)
        back[: i + 1, i] = power
    values, errors = back @ found, np.sqrt(np.diag(back @ covariance @ back.T))
    off = np.abs(rest)
    return PolynomialFit(
        tuple(Estimate.normal(float(v), float(e), freedom) for v, e in zip(values, errors, strict=True)),
        _mean(off / y * 100.0, degree + 1),
        _mean(off, degree + 1),
    )
