"""What every estimator returns: a value with its 95 % interval; and the few bits of statistics they share.

An estimator that cannot tell raises :class:`~pmtpy.errors.DeclinedError` with the reason; it never returns a number
that the data do not support. Pure mathematics; times are seconds, power watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.core.presentation import in_same_digits
from pmtpy.core.rows import Floats

MISSED = 0.05  # how often an interval may miss; of several that are judged together, how often one of them may
Z95 = 1.959964  # two-sided 95 % of the normal distribution
# Two-sided 95 % of Student's t beside the degrees of freedom.
_DEGREES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 30.0, math.inf)
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.042, Z95)
STANDS_OUT = 4.0  # standard deviations that noise alone does not reach in any of thousands of values
_MAX_SLOPE_ERROR = 1.0 / 3.0  # half-width: of 500 drawn pairs of constant powers none had so sure a slope
STRAY = 3.0  # standard deviations beyond which one of many values counts less
SAME_SHARE = 1e-3  # of what matters in it: values that differ by less are taken for the same
NAMED = 20.0  # to one: odds from which one of several is named, and from which another is out of the question
MIN_EXPLAINED = 0.5  # share of a variance, or of changes: what explains less of it is something else
ONE_CLOCK_RATE = 1e-6  # by which one clock may seem to run from itself
_HALVINGS = 40  # of the range in which a quantile is sought: to 1e-12 of it
_MOST_PLACES = 12  # of an interval in the unit that the caller chose
# By how many standard deviations instants are moved one way, to see what that changes.
SHIFTS = np.arange(0.1, 3.0, 0.2)
_SHIFT_WEIGHTS = np.exp(-0.5 * SHIFTS**2) / float(np.exp(-0.5 * SHIFTS**2) @ SHIFTS**2)
NO_VALUE = "-"  # stands where there is no estimate


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval, all in the unit that the field holding it names."""

    value: float
    low: float
    high: float

    @staticmethod
    def within(value: float, half_width: float) -> Estimate:
        """Make an interval that reaches as far to either side."""
        return Estimate(value, value - half_width, value + half_width)

    @staticmethod
    def normal(value: float, standard_error: float, freedom: float = math.inf) -> Estimate:
        """Make the interval of a value with a standard error of ``freedom`` degrees of freedom, 2 at least."""
        return Estimate.within(value, student_95(max(freedom, 2.0)) * standard_error)

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2.0

    @property
    def sd(self) -> float:
        """Standard uncertainty, of an interval that is a normal distribution's."""
        return self.half_width / Z95

    @property
    def told(self) -> bool:
        """Whether a slope is known at all: constant values now and then show one that is not there."""
        return self.half_width < _MAX_SLOPE_ERROR * self.value

    def moved(self, by: float) -> Estimate:
        """Return the estimate from another origin."""
        return Estimate(self.value + by, self.low + by, self.high + by)

    def turned(self) -> Estimate:
        """Return a relative rate as the other of two clocks has it: ``(1 + a) (1 + b) = 1``."""
        return self.scaled(-1.0 / (1.0 + self.value))

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate in another unit (seconds to milliseconds: 1000)."""
        ends = sorted((self.low * factor, self.high * factor))
        return Estimate(self.value * factor, ends[0], ends[1])

    def widened(self, by: float) -> Estimate:
        """Return the estimate with an independent error of 95 % half-width ``by`` added in quadrature."""
        return Estimate(
            self.value,
            self.value - math.hypot(self.value - self.low, by),
            self.value + math.hypot(self.high - self.value, by),
        )

    def not_negative(self) -> Estimate:
        """Return the estimate of what is not below 0."""
        return replace(self, low=max(self.low, 0.0))

    def contains(self, truth: float) -> bool:
        """Whether ``truth`` lies in the interval."""
        return self.low <= truth <= self.high

    def __str__(self) -> str:
        """Return value and half-width, both to the second digit of the latter: ``0.9996 +- 0.0056``."""
        return written(self)

    def as_dict(self) -> dict[str, float]:
        """Return ``{"value", "low", "high"}``, as the JSON of every verb has it."""
        return {"value": self.value, "low": self.low, "high": self.high}


def mixed(share: Floats, value: Floats, low: Floats, high: Floats) -> tuple[float, float]:
    """Return the 95 % interval of what is one of several estimates, each with its share of belief, shape (n,) each.

    Its ends are quantiles of the mixture of their normal distributions, found by halving.
    """
    wanted = np.array([MISSED / 2.0, 1.0 - MISSED / 2.0]) * np.sum(share)
    first, last = float(np.min(2.0 * low - value)), float(np.max(2.0 * high - value))
    step, ends = (last - first) / 2.0, np.full((2, 1), (first + last) / 2.0)
    for _ in range(_HALVINGS):
        off = ends - value
        sds = Z95 * off / np.maximum(np.where(off < 0.0, value - low, high - value), 1e-300)
        odd = np.reshape([math.erf(z) for z in (sds / math.sqrt(2.0)).ravel()], sds.shape)
        step /= 2.0
        ends[:, 0] += np.where((1.0 + odd) @ share < 2.0 * wanted, step, -step)
    return float(ends[0, 0]), float(ends[1, 0])


def student_95(degrees: float) -> float:
    """Two-sided 95 % quantile of Student's t, of one degree of freedom or more; from two on within a hundredth.

    Its logarithm is taken between those of a table, by the inverse of the degrees of freedom.
    """
    return float(np.exp(np.interp(-1.0 / max(degrees, 1.0), -1.0 / np.array(_DEGREES), np.log(_STUDENT))))


def median(values: Floats) -> float:
    """Return the median, NaN of none and if one is NaN: numpy's own takes ten times as long for a few."""
    last = len(values) - 1
    if last < 0:
        return math.nan
    parted = np.partition(values, [last // 2, (last + 1) // 2, last])
    return float(parted[last // 2] + parted[(last + 1) // 2]) / 2.0 if parted[last] == parted[last] else math.nan


def moved_either_way(later: Floats, earlier: Floats) -> Floats:
    """Return what an error of instants does, one standard deviation, from what ``SHIFTS`` either way change.

    Root mean square over a normal distribution, on that side which does more: what changes in proportion changes by one
    deviation's worth, and short bursts that one deviation would leap over count. Shapes (..., shifts) to (...).
    """
    sides = (np.sqrt(changes**2 @ _SHIFT_WEIGHTS) for changes in (later, earlier))
    return np.maximum(*sides)


def robust_sd(values: Floats) -> float:
    """Standard deviation of the bulk of ``values``: 1.4826 times the median distance from the median."""
    return 1.4826 * median(np.abs(values - median(values))) if len(values) else 0.0


def bend_sd(values: Floats, level: float = 0.25) -> float:
    """Standard deviation of what is new in each of ``values``, by a quantile of their second differences; NaN of few.

    Of what changes evenly nothing is left in these; the quantile (at ``level``) leaves out those that are something
    else, such as a load's.
    """
    from scipy.special import ndtri

    bends = np.abs(np.diff(values, 2))
    return float(np.quantile(bends, level) / (ndtri((1.0 + level) / 2.0) * math.sqrt(6.0))) if len(bends) else math.nan


def huber_weights(residuals: Floats, k: float = 1.345, scale: float | None = None) -> Floats:
    """Return Huber's weights for ``residuals``: 1 in the bulk, falling as 1/|r| outside ``k`` standard deviations.

    ``k = 1.345`` keeps 95 % efficiency on normal noise (Huber and Ronchetti, Robust Statistics, 2009). The bulk is
    taken as no narrower than a quarter of the standard deviation: readings that stand still for most of a recording
    are no measure of the noise of those that move; or ``scale`` is their standard deviation.
    """
    scale = max(robust_sd(residuals), 0.25 * float(np.std(residuals))) if scale is None else scale
    if scale <= 0.0:
        return np.ones(len(residuals))
    return np.asarray(np.minimum(1.0, k * scale / np.maximum(np.abs(residuals), 1e-300)), np.float64)


def counting(residuals: Floats) -> float:
    """As how many each of ``residuals`` counts, one at the most: those that err like the one before count as few."""
    like = float(residuals[1:] @ residuals[:-1]) / max(float(residuals @ residuals), 1e-300)
    like = min(max(like, 0.0), 1.0 - 1.0 / len(residuals))
    return (1.0 - like) / (1.0 + like)


def rounding_error(values: Floats, residual_sd: float, step: float | None = None) -> float:
    """Standard error of a mean of rounded ``values`` that averaging does not remove; None: the ``step`` they show.

    Rounding errs by up to half a step, the same way whenever the same value is shown, so errors average only over
    distinct values; noise of more than a third of a step makes them average over readings too (dither: the mean error
    falls as ``exp(-2 pi^2 sd^2 / step^2)``; Widrow and Kollar, Quantization Noise, 2008).
    """
    distinct, counts = np.unique(np.round(values, 6), return_counts=True)
    if step is None:
        step = float(np.min(np.diff(distinct))) if len(distinct) > 1 else 0.0
    if step == 0.0:
        return 0.0
    noise = max(residual_sd**2 - step**2 / 12.0, 0.0)
    share = float(np.sum((counts / len(values)) ** 2))
    return step / math.sqrt(12.0) * math.exp(-2.0 * math.pi**2 * noise / step**2) * math.sqrt(share)


def as_json(e: Estimate | None, factor: float = 1.0) -> dict[str, float] | None:
    """Return value and interval in another unit, as the JSON of every verb has them."""
    return e.scaled(factor).as_dict() if e is not None else None


def written(e: Estimate | None, factor: float = 1.0) -> str:
    """Write a value with its half-width, both to the second digit of the latter."""
    if e is None:
        return NO_VALUE
    value, half = e.value * factor, e.half_width * factor
    if not half > 0.0:
        return f"{value:.6g}"
    return " +- ".join(in_same_digits(value, half, _MOST_PLACES))
