"""What a sensor does that no family of kernels has, and that looks like errors which last: a lack of fit.

A part that follows the power far later than the rest, as a filter beside the first one gives, or a converter that warms
with its load. Beside a fitted kernel ``h`` it is one of

    (1 - share) h + share * exp(-age / tau) / tau

Or rises of the power that are followed later than its falls, as by a sensor that holds its peaks, cannot show more than
so much, or less: no linear one does that. What these leave of the readings of a fit lasts as long as the errors of a
board; but it is told from these, and from nothing else, by following the load. So each is solved for as one parameter
more of the fit, with errors that last in the noise. Pure; times are seconds, powers watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterisation._description import Beside
from pmtpy.analysis.characterisation._families import ONE_POLE, age_of, spread_of
from pmtpy.analysis.characterisation._forward import Fit, Problem
from pmtpy.analysis.signal.estimate import STANDS_OUT, Z95, Estimate
from pmtpy.core.rows import Floats

_SLOWER = 3.0  # deviations of a kernel's ages: what is not as much later is its own shape
# Of these: less matters to no number, and kernels a little off leave as much (0.02 and 0.07, of 200 drawn recordings).
_EVEN = 0.15
_MOST_SHARE = 0.25  # of a recording: what is later is seen in no more than a few stretches of it
_GRID = 1.5  # ratio of time constants that are tried at first, and by which one is moved at most at last


@dataclass(frozen=True, slots=True)
class LackOfFit:
    """What a fit with one thing more says."""

    found: str  # what that is
    # of the kernel beside it; none where it has none
    window_s: Estimate
    tau_s: Estimate
    gain: Estimate
    intercept_w: Estimate
    lag_s: Estimate
    spread_s: Estimate  # standard deviation of the ages that it shows
    residual_w: float  # root mean square of what it leaves, and the fit without
    without_w: float


def lack_of_fit(problem: Problem, fit: Fit) -> LackOfFit | None:
    """Return what leaves least of the readings of a fit; None where they show nothing for sure."""
    beside = Beside.of(problem, fit)
    each = (_slow_part(problem, beside), _one_sided(problem, beside))
    return min((one for one in each if one is not None), key=lambda one: one.residual_w, default=None)


def _slow_part(problem: Problem, beside: Beside) -> LackOfFit | None:
    fit = beside.fit

    def behind(tau_s: float) -> Floats:
        """Return by how much the readings of a one-pole differ from those of the fit, in watts."""
        offset, _, _, _, wander, rate = fit.point.tolist()
        slow = problem.filtered(np.array([offset, 0.0, tau_s, 0.0, wander, rate]), ONE_POLE)
        return np.asarray(fit.gain * (slow - beside.reference), np.float64)

    def deviations(tau_s: float) -> float:
        return beside.solved({"share": behind(tau_s)}).deviations("share")

    least, most = _SLOWER * fit.spread, _MOST_SHARE * float(problem.t[-1] - problem.t[0])
    if not 0.0 < least < most:
        return None
    tried = np.geomspace(least, most, 1 + math.ceil(math.log(most / least, _GRID))).tolist()
    tau_s = max(tried, key=deviations)
    if deviations(tau_s) < STANDS_OUT:
        return None
    # Once more, with the noise that is left; and how surely the time constant is known.
    first = beside.solved({"share": behind(tau_s)})
    longer = first.moved["share"] * (behind(tau_s * _GRID) - behind(tau_s / _GRID)) / (2.0 * math.log(_GRID))
    found = beside.solved({"share": behind(tau_s), "longer": np.asarray(longer, np.float64)}, after=first)
    tau_s *= _GRID ** float(np.clip(found.moved["longer"] / math.log(_GRID), -1.0, 1.0))
    point, moved = found.point, found.moved
    gain = fit.gain + moved["gain"]
    share, early, late = moved["share"] * fit.gain / gain, float(point[0]) + age_of(point), float(point[0]) + tau_s
    lag = (1.0 - share) * early + share * late
    ages2 = spread_of(fit.family, point) ** 2 + (early - lag) ** 2, tau_s**2 + (late - lag) ** 2
    deviation = math.sqrt(max((1.0 - share) * ages2[0] + share * ages2[1], 0.0))
    rest = 1.0 - share
    older = {"offset": 1.0, "window": rest / 2.0, "tau": rest, "second": rest, "share": late - early}
    wider = {"share": ages2[1] - ages2[0], "longer": 2.0 * share * tau_s * (tau_s + late - lag)}
    return LackOfFit(
        f"{100.0 * share:.2g} % of what is read comes some {tau_s:.2g} s late",
        found.estimate(float(point[1]), {"window": 1.0}),
        found.estimate(float(point[2]), {"tau": 1.0}),
        found.estimate(gain, {"gain": 1.0}),
        found.estimate(fit.intercept + moved["intercept"], {"intercept": 1.0}),
        found.estimate(lag, older | {"longer": share * tau_s}).widened(Z95 * problem.common),
        found.estimate(deviation, {name: part / (2.0 * max(deviation, 1e-12)) for name, part in wider.items()}),
        found.residual_w,
        beside.residual_w,
    )


def _one_sided(problem: Problem, beside: Beside) -> LackOfFit | None:
    fit = beside.fit
    # Later by one half on rises, where a reading falls with its age, and earlier by the other on falls. A sensor whose
    # readings bend with the power, which the gradient tells, does either a little.
    power = beside.reference - np.mean(beside.reference)
    bends = power**2 / max(float(np.mean(np.abs(power))), 1e-300)
    columns = {"later": -np.abs(beside.column("offset")) / 2.0, "bends": bends}
    found = beside.solved({name: np.asarray(column, np.float64) for name, column in columns.items()})
    later_s = found.moved["later"]
    if abs(found.deviations("later")) < STANDS_OUT or abs(later_s) < _EVEN * fit.spread:
        return None
    point, moved = found.point, found.moved
    lag, half = float(point[0]) + age_of(point), abs(later_s) / 2.0
    spread = math.hypot(spread_of(fit.family, point), half)
    side = "later" if later_s > 0.0 else "earlier"
    return LackOfFit(
        f"rises of the power are followed {1e3 * abs(later_s):.2g} ms {side} than its falls",
        found.estimate(float(point[1]), {"window": 1.0}).widened(2.0 * half),
        found.estimate(float(point[2]), {"tau": 1.0}).widened(half),
        found.estimate(fit.gain + moved["gain"], {"gain": 1.0}),
        found.estimate(fit.intercept + moved["intercept"], {"intercept": 1.0}),
        found.estimate(lag, {"offset": 1.0, "window": 0.5, "tau": 1.0, "second": 1.0})
        .widened(Z95 * problem.common)
        .widened(half),
        Estimate.within(spread, half),
        found.residual_w,
        beside.residual_w,
    )
