"""What a fit of a kernel is worth: its intervals, once errors that last are known of. Pure; seconds, watts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.characterisation._covariance import Noise, Spread, blocks, off_line
from pmtpy.analysis.characterisation._families import PARAMETERS, RIVALS, age_of, spread_of, variances, widths_of
from pmtpy.analysis.characterisation._forward import (
    WANDER_SD,
    Fit,
    Problem,
)
from pmtpy.analysis.characterisation.kernel import Shape
from pmtpy.analysis.signal.estimate import STANDS_OUT, Z95, Estimate, robust_sd, rounding_error
from pmtpy.analysis.signal.trace import PowerTrace, Responder
from pmtpy.core.response import Number
from pmtpy.core.rows import Floats

_GRAINS, _MOST_GRAINS = 8.0, 50_000.0  # steps in a cell, in which a response is summed, and at the most
_FADED = 8.0  # time constants after which a ten millionth of the square of a one-pole is left


def describe(problem: Problem, fit: Fit) -> Shape:
    """Return the fit with its intervals, moved to where errors that last leave it (see ``spread``)."""
    names, design = design_of(problem, fit)
    noise, spread = errors(problem, fit, design)
    # What means are off on flanks is what the lines between rows do, not an error that lasts.
    shift = {} if problem.own_s is not None else dict(zip(names, spread.shift, strict=True))
    point = _moved(problem, fit, noise, shift) if shift else fit.point
    offset, window, tau, second, wander, rate = (float(p) for p in point)

    def estimate(value: float, parts: dict[str, float], known: float = 0.0) -> Estimate:
        mix = np.array([parts.get(name, 0.0) for name in names])
        return Estimate.normal(value, spread.deviation(mix), spread.freedom(mix)).widened(Z95 * known)

    rounding = rounding_error(problem.rounded, robust_sd(fit.residuals))
    mean, deviation = float(np.mean(design[:, 0])), max(float(np.std(design[:, 0])), 1e-300)
    # The line is that of the levels, which last; by how much it is another on flanks is part of its error.
    gain_off, intercept_off = np.hypot(spread.shift[:2], off_line(design[:, 0], noise.slow))
    # The width is that of the reference's clock; on the readings' clock it is shorter by what the reference gains.
    return Shape(
        fit.family,
        estimate(window / (1.0 + rate), {"window": 1.0}) if window > 0 else None,
        estimate(tau / (1.0 + rate), {"tau": 1.0}) if tau > 0 and not second else None,
        estimate(offset, {"offset": 1.0}, problem.common),
        estimate(offset + age_of(point), {"offset": 1.0, "window": 0.5, "tau": 1.0, "second": 1.0}, problem.common),
        estimate(rate, {"rate": 1.0}, problem.drift) if problem.metered else None,
        estimate(fit.gain, {"gain": 1.0}, math.hypot(rounding / deviation, float(gain_off))),
        estimate(fit.intercept, {"intercept": 1.0}, math.hypot(rounding, rounding * mean / deviation, intercept_off)),
        fit.loss,
        robust_sd(fit.residuals),
        1.0 - float(np.mean(fit.residuals**2)) / float(np.var(problem.y)),
        float(np.mean(fit.residuals[1:] * fit.residuals[:-1])) / float(np.var(problem.y)),
        wander=wander,
        spread_s=_spread(fit.family, point, estimate) if fit.family in RIVALS else None,
    )


def _spread(family: str, point: Floats, estimate: Callable[[float, dict[str, float]], Estimate]) -> Estimate:
    """Return the standard deviation of the ages that a kernel of several widths shows, which is known better than they.

    Its square is the sum of the variances, each the square of a width times a constant.
    """
    value, each = spread_of(family, point), variances(family, point)
    rows = zip(PARAMETERS[1:4], each, point[1:4].tolist(), strict=True)
    return estimate(value, {name: part / (width * value) for name, part, width in rows if width})


def errors(problem: Problem, fit: Fit, design: Floats) -> tuple[Noise, Spread]:
    """Return the noise of a fit's residuals, and what it makes of its parameters, from its design."""
    noise = Noise.of(fit.residuals, problem.rounded, np.asarray(fit.gain * design[:, 0], np.float64))
    late, alike_s = np.asarray(problem.late_s * design[:, 2], np.float64), fit.spread
    flanks, followed = 2 * blocks(design[:, 0]), design.shape[1] - 2
    seen = float(fit.residuals @ fit.residuals) * flanks / max(flanks - followed, 1e-9)
    if problem.scattered:
        # Residuals show how far ages scatter, unless the few flanks were followed by as many parameters.
        aged = _shaken(problem, fit, late)
        late = np.hypot(problem.row_s * design[:, 2], _share(aged, seen) * aged)
    if problem.own_s is not None:
        # Of means residuals show by how much they are off, unless the few flanks were followed by as many parameters;
        # that rows stood alike to all flanks that were seen, so that none is off, does not say that they would to one
        # more. A flank between two samples is in two means, one between rows of a counter in one.
        expected = max(float(late @ late), 1e-300)
        late = late * math.sqrt(min(1.0, (flanks * seen / expected + 1.0) / (flanks + 1.0)))
        alike_s += 2.0 * float(np.median(problem.own_s)) if problem.late_s else 0.0
        late = np.where(np.abs(fit.residuals) > np.abs(late), fit.residuals, late)
    prior = {i: Number(0.0, problem.reach_s) for i in range(2, 3 + len(widths_of(fit.family)))}
    if problem.own_s is not None:
        # Where cells of both keep step, a width does to every reading what an offset does. But of one that was wider by
        # itself, or by a cell, other readings would show the flanks.
        prior[3] = Number(0.0, math.hypot(float(np.median(problem.own_s)), fit.window))
    prior[-1] = Number(float(fit.point[-1]), problem.rate_sd)
    if problem.wanders:
        prior[-2] = Number(float(fit.point[-2]) - 1.0, WANDER_SD)
    return noise, Spread.of(problem.t, design, fit.residuals, noise, prior=prior, late=(late, alike_s))


def design_of(problem: Problem, fit: Fit) -> tuple[list[str], Floats]:
    """Return the names of the parameters, and the derivatives of the readings by them, shape (n, p).

    Of those that are differences of the reference, what stands out from its noise: between edges the offset does
    nothing but scatter, and thousands of readings that nothing else moves would seem to tell when they were taken. A
    width does something there where the kernel holds edges: much like a gain, under a load of nearly its period.
    """
    known = {"wander": 0.1} if problem.wanders else {}
    names = ["offset", *widths_of(fit.family), *known, "rate"]
    steps = known | {"offset": problem.step_s, "rate": 0.02 * problem.rate_sd}
    columns = [problem.filtered(fit.point, fit.family), np.ones(len(problem.y))]
    density = _density(problem, fit)
    moved = np.ones(len(problem.y))
    for name in names:
        # A share of a width that is next to nothing is lost in the rounding of stamps since an epoch.
        step = steps.get(name, max(0.02 * float(fit.point[PARAMETERS.index(name)]), problem.step_s))
        whole = name in ("wander", "rate")  # these move a kernel as a whole, as the offset does
        column, told = _by(problem, fit, name, step, 0.0 if whole else density)
        moved = told if name == "offset" else moved
        columns.append(column * (moved if whole else told))
    design = np.stack(columns, axis=1)
    return ["gain", "intercept", *names], design


def _by(problem: Problem, fit: Fit, name: str, step: float, density: float) -> tuple[Floats, Floats]:
    """Return the derivative of the readings by a parameter, and which share of each stands out from the noise."""
    at = PARAMETERS.index(name)
    change = step * np.eye(len(PARAMETERS))[at]
    up, down = fit.point + change, fit.point - change
    down[1:4] = np.maximum(down[1:4], 0.0)
    apart = problem.filtered(up, fit.family) - problem.filtered(down, fit.family)
    column = np.asarray(fit.gain * apart / (up[at] - down[at]), np.float64)
    if not density:
        return column, np.ones(len(column))
    scatter = _scatter(problem, density, (fit.family, up), (fit.family, down)) / (up[at] - down[at])
    return column, _standing_out(column, scatter)


def misfits(problem: Problem, least: Fit, noise: Noise) -> Callable[[Fit], float]:
    """Return what tells of a fit minus twice the log-likelihood of the readings, and of what is known beforehand.

    The noise is one for all fits, from ``least``; but what errors of the instants do is what each kernel makes of them.
    One that sees no edge moves with none: by another's slopes it would be forgiven what it does not explain.
    """
    told, density = told_by(problem, least), _density(problem, least)
    seen = float(least.residuals @ least.residuals)
    scattered = _share(_shaken(problem, least, np.zeros(0)), seen) if problem.scattered else 1.0

    def misfit(fit: Fit) -> float:
        slope, share = _by(problem, fit, "offset", problem.step_s, density)
        late = _shaken(problem, fit, np.asarray(problem.jitter * slope * share, np.float64))
        shaken = replace(noise, late=scattered * late)
        return shaken.misfit(problem.t, told(fit)) + problem.unusual(fit) ** 2

    return misfit


def _share(late: Floats, seen: float) -> float:
    """Return by what share errors of the instants are less than expected: no more squares are theirs than are left."""
    return math.sqrt(min(1.0, seen / max(float(late @ late), 1e-300)))


def _shaken(problem: Problem, fit: Fit, slopes: Floats) -> Floats:
    """Return what an error of its instant, of one standard deviation, does to each reading.

    As its slope says, if such errors are small beside the kernel. An age that nobody knows may be longer than all of a
    kernel: it does no more than what there is to see in that time.
    """
    if not problem.scattered:
        return slopes
    later, earlier = (fit.point + by * np.eye(len(fit.point))[0] for by in (problem.jitter, -problem.jitter))
    apart = problem.filtered(later, fit.family) - problem.filtered(earlier, fit.family)
    return np.asarray(fit.gain * apart / 2.0, np.float64)


@dataclass(frozen=True, slots=True)
class Solved:
    """What more parameters do to a fit."""

    fit: Fit
    moved: Mapping[str, float]  # by how much each parameter is another then, by name
    left: Floats  # of the readings, shape (n,)
    _spread: Spread

    @property
    def point(self) -> Floats:
        """The parameters of the kernel then."""
        point = self.fit.point + np.array([self.moved.get(name, 0.0) for name in PARAMETERS])
        point[1:4] = np.maximum(point[1:4], 0.0)
        return np.asarray(point, np.float64)

    @property
    def residual_w(self) -> float:
        """Root mean square of what is left."""
        return math.sqrt(float(np.mean(self.left**2)))

    def estimate(self, value: float, parts: Mapping[str, float]) -> Estimate:
        """Return a value that moves by ``parts`` with each parameter, with its interval."""
        mix = np.array([parts.get(name, 0.0) for name in self.moved])
        return Estimate.normal(value, self._spread.deviation(mix), self._spread.freedom(mix))

    def deviations(self, name: str) -> float:
        """By how many deviations, as if of a normal distribution, a parameter is another."""
        return Z95 * self.moved[name] / max(self.estimate(0.0, {name: 1.0}).half_width, 1e-300)


@dataclass(frozen=True, slots=True)
class Beside:
    """A fit beside which more parameters can be solved for, with errors that last in the noise."""

    problem: Problem
    fit: Fit
    _names: list[str]
    _design: Floats

    @staticmethod
    def of(problem: Problem, fit: Fit) -> Beside:
        """Return that of a fit."""
        return Beside(problem, fit, *design_of(problem, fit))

    @property
    def residual_w(self) -> float:
        """Root mean square of what the fit leaves."""
        return math.sqrt(float(np.mean(self.fit.residuals**2)))

    @property
    def reference(self) -> Floats:
        """The reference through the kernel, in its watts."""
        return self.column("gain")

    def column(self, name: str) -> Floats:
        """Return the derivative of the readings by a parameter."""
        return np.asarray(self._design[:, self._names.index(name)], np.float64)

    def solved(self, columns: Mapping[str, Floats], after: Solved | None = None) -> Solved:
        """Solve for parameters more, from their columns; ``after``: from what was left then, and in that noise."""
        at = 3 + len(widths_of(self.fit.family))
        names = [*self._names[:at], *columns, *self._names[at:]]
        design = np.insert(self._design, [at] * len(columns), np.stack([*columns.values()], axis=1), axis=1)
        left = self.fit.residuals if after is None else after.left
        before = {} if after is None else after.moved
        _, spread = errors(self.problem, replace(self.fit, residuals=left), design)
        moved = {name: before.get(name, 0.0) + by for name, by in zip(names, spread.shift.tolist(), strict=True)}
        return Solved(self.fit, moved, np.asarray(left - design @ spread.shift, np.float64), spread)


def rises_late(problem: Problem, fit: Fit) -> Estimate:
    """Return by how much later than a load's falls the readings follow its rises, seconds.

    As if it were one parameter more of the fit: a load that does what its stamps say rises and falls alike.
    """
    edges, levels = problem.reference.rows_s, problem.reference.watts()
    step = min(problem.step_s, float(np.min(np.diff(edges))) / 3.0)

    def moved(by_s: float) -> Floats:
        later = PowerTrace.of_levels(np.where(np.diff(levels) > 0.0, edges + by_s, edges), levels)
        return replace(problem, reference=later, respond=Responder(later)).filtered(fit.point, fit.family)

    column = fit.gain * (moved(step) - moved(-step)) / (2.0 * step)
    found = Beside.of(problem, fit).solved({"later": np.asarray(column, np.float64)})
    return found.estimate(found.moved["later"], {"later": 1.0})


def told_by(problem: Problem, least: Fit) -> Callable[[Fit], Floats]:
    """Return what leaves the residuals of a fit without what the reference's noise alone makes them differ by.

    From those of ``least``. A wider kernel lets less of that noise through, so that it leaves less of it: of thousands
    of readings between edges, which tell nothing of a width, the widest would seem the likeliest.
    """
    density = _density(problem, least)

    def told(fit: Fit) -> Floats:
        apart = fit.residuals - least.residuals
        if density == 0.0 or fit is least:
            return fit.residuals
        scatter = _scatter(problem, density, (least.family, least.point), (fit.family, fit.point))
        return np.asarray(least.residuals + _standing_out(apart, scatter) * apart, np.float64)

    return told


def _standing_out(values: Floats, scatter: float) -> Floats:
    """Return which share of each value stands out from a scatter, a limit: none of what lies within it."""
    return np.asarray(1.0 - np.minimum(scatter / np.maximum(np.abs(values), 1e-300), 1.0) ** 2, np.float64)


def _density(problem: Problem, fit: Fit) -> float:
    """Return the spectral density of the reference's noise in the readings' watts: no more than the fit leaves."""
    if problem.noise == 0.0:
        return 0.0
    still = fit.point * [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    through = _area_of_square(problem, (fit.family, still))
    return min(problem.noise * fit.gain**2, fit.loss / max(through, 1e-300))


def _scatter(problem: Problem, density: float, kernel: tuple[str, Floats], other: tuple[str, Floats]) -> float:
    """Return by how much two kernels, families and points, differ by noise of a density alone, at most, watts."""
    return STANDS_OUT * math.sqrt(density * _area_of_square(problem, kernel, other))


def _area_of_square(problem: Problem, *kernels: tuple[str, Floats]) -> float:
    """Return the integral of the square of a kernel, or of how two differ, 1/s: what it lets through of white noise.

    It shows in what they make of one cell of unit area. Their wander and their rates are left out.
    """
    cell = problem.cell
    own = 0.0 if problem.own_s is None else float(np.median(problem.own_s))
    grain = max(2.0 * problem.step_s, cell) / _GRAINS
    first = min(float(point[0]) for _, point in kernels)
    last = max(float(p[0] + p[1] + _FADED * (p[2] + p[3])) for _, p in kernels)
    aside = 2.0 * (problem.step_s + cell)
    # Of a fit that ran away the narrower kernel may be missed: by what it leaves it is out of the question anyway.
    grain = max(grain, (last - first + 2.0 * aside + own) / _MOST_GRAINS)
    t = np.arange(first - aside, last + aside + own, grain)
    pulse = PowerTrace.from_energy(np.array([-cell, 0.0, cell, 2.0 * cell]), np.array([0.0, 0.0, 1.0, 1.0]))
    still, owns = np.zeros(len(t)), None if problem.own_s is None else np.full(len(t), own)
    one = replace(problem, t=t, wander=still, own_s=owns, middle=0.0, respond=Responder(pulse))
    shape = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    shown = [one.filtered(point * shape, family) for family, point in kernels]
    return grain * float(np.sum((shown[0] - shown[1] if len(shown) > 1 else shown[0]) ** 2))


def _moved(problem: Problem, fit: Fit, noise: Noise, shift: dict[str, float]) -> Floats:
    """Return the point of a fit after a shift, if that leaves less there, and not only along the tangent."""
    point = fit.point + np.array([shift.get(name, 0.0) for name in PARAMETERS])
    if np.any((point <= 0.0)[1:4] & (point != fit.point)[1:4]):
        return fit.point
    x = problem.filtered(point, fit.family)
    left = problem.y - (fit.gain + shift["gain"]) * x - fit.intercept - shift["intercept"]
    if noise.misfit(problem.t, np.asarray(left, np.float64)) > noise.misfit(problem.t, fit.residuals):
        return fit.point
    return np.asarray(point, np.float64)
