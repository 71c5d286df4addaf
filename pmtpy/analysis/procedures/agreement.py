"""How two measurements of power agree over workloads: a sensor and a reference, or a whole and the sum of its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.repetition.resolve import LEAST_BLOCKS
from pmtpy.analysis.signal.estimate import Estimate, counting, student_95, written
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_LEAST_SCATTER = 1e-6  # of the powers: below it what is known beforehand would be lost in the digits


@dataclass(frozen=True, slots=True)
class PolynomialFit:
    """``reference = c0 + c1 sensor (+ c2 sensor^2)``, by least squares, of which either may be the one that is off."""

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
    linear: PolynomialFit | None
    quadratic: PolynomialFit | None
    declined: Mapping[str, str]  # why what is None is


@dataclass(frozen=True, slots=True)
class Clocks:
    """What is known of the two clocks of a sensor and a reference, by which its workloads were found.

    ``later_w_per_s`` is how much more each has by the reference if it is looked at a little later, ``at_s`` when it
    was, shape (n,). The clocks were laid together by ``rate``, which may be off by ``rate_u`` about zero; None: one
    clock, or no rate.
    """

    later_w_per_s: Floats
    at_s: Floats
    rate: float = 0.0
    rate_u: float | None = None

    def nuisances(self, known: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
        """Return what an error of the lag and one of the rate do to powers, columns, and how both are known beforehand.

        That is the expected coefficient of each, and one over its standard uncertainty.
        """
        later, at = self.later_w_per_s[known], self.at_s[known]
        if self.rate_u is None:
            return later[:, None], np.zeros(1), np.zeros(1)
        columns = np.column_stack((later, later * (at - at.mean())))
        return columns, np.array([0.0, -self.rate]), np.array([0.0, 1.0 / self.rate_u])


def agreement_of(sensor_w: Floats, reference_w: Floats, clocks: Clocks | None = None) -> Agreement:
    """Compare mean powers of workloads.

    Parameters
    ----------
    sensor_w, reference_w : float64, shape (n,)
        Mean power of each workload, by both.
    clocks : Clocks, optional
        By how much the two are apart in time is fitted with the curves, so that it is not in them. None: they are not.

    Raises DeclinedError: fewer than five workloads.
    """
    x, y = np.asarray(sensor_w, np.float64), np.asarray(reference_w, np.float64)
    known = np.isfinite(x) & np.isfinite(y) & (y > 0.0)
    x, y = x[known], y[known]
    if len(x) < LEAST_BLOCKS:
        msg = (
            f"{amount(len(x), 'workload is', 'workloads are')} known and {LEAST_BLOCKS} needed at the least: mark "
            "more of them"
        )
        if len(x) < len(known):
            msg += f" ({len(known) - len(x)} more: without rows in one of the two, or too short for its rows)"
        raise DeclinedError(msg)
    off = np.abs(x - y)
    apart = (np.empty((len(x), 0)), np.empty(0), np.empty(0)) if clocks is None else clocks.nuisances(known)
    line = _fitted(x, y, apart, 1)
    slope, linear, quadratic, declined = line.coefficients[1], None, None, {}
    if slope.told:
        linear, quadratic = line, _fitted(x, y, apart, 2)
    else:
        scatter = f"{np.std(x):.3g} W of one and {np.std(y):.3g} W of the other"
        declined["linear"] = (
            f"all workloads lie within {scatter} (rms), by which a slope is {written(slope)}: add some of other power"
        )
    spread = float(y.min()), float(y.max()), float(x.mean() / y.mean())
    return Agreement(len(x), *spread, _mean(off / y * 100.0), _mean(off), linear, quadratic, declined)


def _mean(off: Floats, fitted: int = 1) -> Estimate:
    """Mean of distances, of which none is below 0; its interval is that of other workloads of the same kind."""
    freedom = len(off) - fitted
    spread = float(np.std(off)) / math.sqrt(freedom)
    return Estimate.normal(float(np.mean(off)), spread, freedom).not_negative()


def _fitted(x: Floats, y: Floats, apart: tuple[Floats, Floats, Floats], degree: int) -> PolynomialFit:
    """Fit a polynomial to what scatters in both, with what the clocks may be off by (:meth:`Clocks.nuisances`).

    Whose scatter it is nobody says: all of it may be the reference's (least squares of ``y``) or the sensor's (of
    ``x``, by which the slope is steeper). The truth lies between the two.
    """
    from scipy.optimize import least_squares

    columns, expected, sureness = apart
    centre, width = float(x.mean()), float(np.ptp(x)) or 1.0
    powers = np.vander((x - centre) / width, degree + 1, increasing=True)
    design = np.column_stack((powers, columns))
    freely, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    freedom = len(x) - int(rank)
    # What is known beforehand is a row more for each nuisance, in standard deviations of the scatter.
    noise = math.sqrt(float(np.sum((y - design @ freely) ** 2)) / freedom)
    noise = max(noise, _LEAST_SCATTER * float(np.sqrt(np.mean(y**2))))
    more = np.column_stack((np.zeros((len(sureness), degree + 1)), np.diag(noise * sureness)))
    design, wanted = np.vstack((design, more)), np.concatenate((y, noise * sureness * expected))
    found = np.linalg.lstsq(design, wanted, rcond=None)[0]
    rest = (wanted - design @ found)[: len(x)]
    told = counting(rest)  # by a sensor that drifts, neighbours err alike
    covariance = np.linalg.pinv(design.T @ design, hermitian=True) * max(noise**2, float(rest @ rest) / freedom) / told

    def of_sensor(c: Floats) -> Floats:
        slope = np.ones(len(wanted))
        slope[: len(x)] = powers[:, :-1] @ (c[1 : degree + 1] * np.arange(1, degree + 1))
        return np.asarray((wanted - design @ c) / np.where(slope == 0.0, 1e-300, slope), np.float64)

    other = least_squares(of_sensor, found, max_nfev=50).x
    # From powers of (x - centre) / width to powers of x.
    back = np.zeros((degree + 1, degree + 1))
    for i in range(degree + 1):
        power = np.polynomial.polynomial.polypow([-centre / width, 1.0 / width], i)
        back[: i + 1, i] = power
    ours = slice(degree + 1)
    values, between = back @ (found + other)[ours] / 2.0, np.abs(back @ (found - other)[ours]) / 2.0
    errors = student_95(max(freedom * told, 2.0)) * np.sqrt(np.diag(back @ covariance[ours, ours] @ back.T)) + between
    off = np.abs(y - powers @ found[ours])
    return PolynomialFit(
        tuple(map(Estimate.within, values.tolist(), errors.tolist())),
        _mean(off / y * 100.0, degree + 1),
        _mean(off, degree + 1),
    )
