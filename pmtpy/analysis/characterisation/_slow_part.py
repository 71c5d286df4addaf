"""A part of what a sensor shows that follows the power far later than the rest: a lack of fit that looks like noise.

A filter beside the first one, or a converter that warms with its load, adds a response of seconds. Of no family with
one age it is seen by what it leaves, and that lasts as long as the errors of a board do; but it is told from these, and
from nothing else, by following the load. Beside a fitted kernel ``h`` it is one of

    (1 - share) h + share * exp(-age / tau) / tau

solved for as two parameters more of the fit, with errors that last in the noise. Pure; times are seconds, powers watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.characterisation._covariance import Spread
from pmtpy.analysis.characterisation._description import design_of, errors
from pmtpy.analysis.characterisation._families import ONE_POLE, PARAMETERS, age_of, spread_of, widths_of
from pmtpy.analysis.characterisation._forward import Fit, Problem
from pmtpy.analysis.signal.estimate import STANDS_OUT, Z95, Estimate, student_95
from pmtpy.core.rows import Floats

_SLOWER = 3.0  # deviations of a kernel's ages: what is not as much later is its own shape
_MOST_SHARE = 0.25  # of a recording: what is later is seen in no more than a few stretches of it
_GRID = 1.5  # ratio of time constants that are tried at first
_MOST_STEP = math.log(1.5)  # by which a time constant is moved at last


@dataclass(frozen=True, slots=True)
class SlowPart:
    """What a fit with a slow part says."""

    share: float
    late_s: float  # time constant of the slow part
    # of the kernel beside it; none where it has none
    window_s: Estimate
    tau_s: Estimate
    gain: Estimate
    intercept_w: Estimate
    lag_s: Estimate
    spread_s: Estimate  # standard deviation of the ages that it shows
    residual_w: float  # root mean square of what it leaves


def slow_part(problem: Problem, fit: Fit) -> SlowPart | None:
    """Return the kernel with a slow part beside that of a fit; None where the readings show none for sure."""
    names, design = design_of(problem, fit)
    at = 3 + len(widths_of(fit.family))  # where its columns go

    def behind(tau_s: float) -> Floats:
        """Return by how much the readings of a one-pole differ from those of the fit, in watts."""
        offset, _, _, _, wander, rate = fit.point.tolist()
        slow = problem.filtered(np.array([offset, 0.0, tau_s, 0.0, wander, rate]), ONE_POLE)
        return np.asarray(fit.gain * (slow - design[:, 0]), np.float64)

    def solved(left: Floats, *columns: Floats) -> tuple[Floats, Spread, Floats]:
        """Return by how much each parameter moves, with what doubt, and what that leaves of what was left."""
        whole = np.insert(design, [at] * len(columns), np.stack(columns, axis=1), axis=1)
        _, spread = errors(problem, replace(fit, residuals=left), whole)
        return spread.shift, spread, np.asarray(left - whole @ spread.shift, np.float64)

    def deviations(tau_s: float) -> float:
        """By how many deviations, as if of a normal distribution, the share is more than none."""
        shift, spread, _ = solved(fit.residuals, behind(tau_s))
        alone = np.eye(len(shift))[at]
        return Z95 * float(shift[at]) / (student_95(spread.freedom(alone)) * spread.deviation(alone))

    least, most = _SLOWER * fit.spread, _MOST_SHARE * float(problem.t[-1] - problem.t[0])
    if not 0.0 < least < most:
        return None
    tried = np.geomspace(least, most, 1 + math.ceil(math.log(most / least, _GRID))).tolist()
    tau_s = max(tried, key=deviations)
    if deviations(tau_s) < STANDS_OUT:
        return None
    # Once more, with the noise that is left; and how surely the time constant is known.
    first, _, left = solved(fit.residuals, behind(tau_s))
    longer = first[at] * (behind(tau_s * _GRID) - behind(tau_s / _GRID)) / (2.0 * math.log(_GRID))
    more, spread, left = solved(left, behind(tau_s), longer)
    total = np.insert(first, at + 1, 0.0) + more
    tau_s *= math.exp(float(np.clip(total[at + 1], -_MOST_STEP, _MOST_STEP)))
    moved = dict(zip([*names[:at], "share", "longer", *names[at:]], total.tolist(), strict=True))
    return _stated(problem, fit, (moved, spread, left), tau_s)


def _stated(problem: Problem, fit: Fit, solved: tuple[dict[str, float], Spread, Floats], tau_s: float) -> SlowPart:
    """Return what a fit with a slow part says.

    ``solved``: by how much each parameter is off the fit without one, how surely, and what is left of the readings.
    """
    moved, found, left = solved
    point = fit.point + np.array([moved.get(name, 0.0) for name in PARAMETERS])
    point[1:4] = np.maximum(point[1:4], 0.0)
    gain, intercept = fit.gain + moved["gain"], fit.intercept + moved["intercept"]
    share, early, late = moved["share"] * fit.gain / gain, float(point[0]) + age_of(point), float(point[0]) + tau_s
    lag = (1.0 - share) * early + share * late
    ages2 = spread_of(fit.family, point) ** 2 + (early - lag) ** 2, tau_s**2 + (late - lag) ** 2
    deviation = math.sqrt(max((1.0 - share) * ages2[0] + share * ages2[1], 0.0))

    def estimate(value: float, parts: dict[str, float]) -> Estimate:
        mix = np.array([parts.get(name, 0.0) for name in moved])
        return Estimate.normal(value, found.deviation(mix), found.freedom(mix))

    rest = 1.0 - share
    older = {"offset": 1.0, "window": rest / 2.0, "tau": rest, "second": rest, "share": late - early}
    wider = {"share": ages2[1] - ages2[0], "longer": 2.0 * share * tau_s * (tau_s + late - lag)}
    return SlowPart(
        share,
        tau_s,
        estimate(float(point[1]), {"window": 1.0}),
        estimate(float(point[2]), {"tau": 1.0}),
        estimate(gain, {"gain": 1.0}),
        estimate(intercept, {"intercept": 1.0}),
        estimate(lag, older | {"longer": share * tau_s}).widened(Z95 * problem.common),
        estimate(deviation, {name: part / (2.0 * max(deviation, 1e-12)) for name, part in wider.items()}),
        math.sqrt(float(np.mean(left**2))),
    )
