"""How a sensor weighs the past: the response kernel, fitted against a reference curve.

    y_k = gain * (h * P)(u_k - offset) + intercept

with ``h`` a boxcar, a one-pole filter, or one after the other; two one-poles and a triangle are weighed beside these,
and not named. Gain and intercept are solved inside (variable projection), so only shape and time are searched. The
reference is a meter, whose clock may be off by an offset and a rate, or the switching instants of a load, whose two
levels are then unknown. What the data cannot tell apart is called ambiguous; docs/fit.md has the formulas, the sources
and the traps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.characterisation._cut_edges import beside_edges
from pmtpy.analysis.characterisation._description import describe, design_of, errors, misfits, rises_late
from pmtpy.analysis.characterisation._families import (
    BOTH,
    BOXCAR,
    FAMILIES,
    MINOR,
    ONE_POLE,
    RIVALS,
    like,
    pure_of,
    variances,
    widths_of,
)
from pmtpy.analysis.characterisation._forward import METER_GRAIN, Fit, Problem, plausible, polish, problem_of
from pmtpy.analysis.characterisation._free_shape import REFUTED, FreeShape, fit_free
from pmtpy.analysis.characterisation._initial_guess import MAX_WIDTH_PERIODS, Grid, seeds
from pmtpy.analysis.characterisation._lack_of_fit import lack_of_fit
from pmtpy.analysis.characterisation._model_selection import (
    FEW_READINGS,
    beside,
    choose,
    impure,
    nearest,
    profiled,
    refuted,
    with_doubt,
)
from pmtpy.analysis.characterisation.kernel import KernelFit, Shape
from pmtpy.analysis.signal.correlogram import flanks_s
from pmtpy.analysis.signal.estimate import (
    NAMED,
    ONE_CLOCK_RATE,
    SAME_SHARE,
    Estimate,
    huber_weights,
    robust_sd,
    student_95,
)
from pmtpy.analysis.signal.trace import PowerTrace, Responder
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_SECOND = 0.9  # of the first time constant: where two of them are looked for
_MOST_UPDATES = 2000  # fix a kernel to a few thousandths; more of them cost time only
_UNCOMMON_SHARE = 0.3  # share of the update times' error that is not common to all of them, in simulation
FEWEST_BLOCKS = 8  # of a load: fewer are no run, and show no period
_REGULAR = 0.02  # of its period, by which a regular load may scatter
_USUAL = 5.0 * _REGULAR  # off it: another one, or a pause
_MIN_R2 = 0.8
_PROFILE_STEPS = (0.02, 0.1)  # of the width: least and most of a profile's first step; each is twice the one before
_NARROWEST = 0.02  # of a period
_HOPELESS = 10.0  # times the squares that are left: by chance, of the fewest readings that are fitted, once in 1e5


def fit_kernel(
    updates: Updates,
    reference: PowerTrace,
    *,
    metered: bool,
    lead_s: float = 0.0,
    within_s: float = math.inf,
    pivot_s: float | None = None,
    rate_sd: float | None = None,
    rest_w: float | None = None,
    repeats_s: float | None = None,
) -> KernelFit:
    """Fit the response kernel.

    Parameters
    ----------
    updates : Updates
        The series of updates, on the host's clock.
    reference : PowerTrace
        The meter's power, or the load (0 and 1), on nearly the same clock.
    metered : bool
        Whether the reference is a meter in watts: then its clock rate is fitted too, and the gain must be plausible.
    lead_s : float
        How far the two clocks may differ, beyond an update either way.
    within_s : float
        How far the kernel's mean age may be from none, where a load repeats and the lag is known by other means.
    pivot_s : float, optional
        The instant at which the two clocks agree; None: the middle of the updates. The offset is that of this instant.
    rate_sd : float, optional
        Standard deviation of the reference's rate, relative; None: 0.15 % for a meter, none for a load.
    rest_w : float, optional
        What was read at rest before the load, which is about what is read between its blocks.
    repeats_s : float, optional
        The period of a load that the readings only ever see repeating itself. Offsets that differ by it fit alike, and
        of each kernel the one nearest to none is taken: those of recorded cards end within milliseconds of their
        update.

    Raises DeclinedError: too few updates in the reference; constant power; a reference that does not explain the
    readings; a load whose period nearly equals the update period.
    """
    updates, reference = _telling(updates, reference, metered=metered)
    problem = replace(problem_of(updates, reference, pivot_s, metered=metered, lead_s=lead_s), rest_w=rest_w)
    if rate_sd is not None:
        problem = replace(problem, rate_sd=math.hypot(rate_sd, updates.drift, ONE_CLOCK_RATE))
    if not metered:
        _refuse_synchronous(reference, updates)
    return _judged(*_explained(problem, reference, lead_s, within_s, repeats_s)).not_negative()


def _explained(
    problem: Problem, reference: PowerTrace, lead_s: float, within_s: float, repeats_s: float | None
) -> tuple[Problem, list[Fit]]:
    """Return the readings whose kernels see nothing that the reference does not know, and all fits worth judging."""
    best, shown = None, np.ones(len(problem.y), np.bool_)
    while best is None or not np.all(shown):
        problem = problem.part(shown)
        fits = _fits(problem, reference, lead_s, within_s, repeats_s)
        best = min(fits, key=lambda f: f.loss)
        shown = _shown(problem, fits)
    r2 = 1.0 - float(np.mean(best.residuals**2)) / float(np.var(problem.y))
    if r2 < _MIN_R2:
        msg = (
            f"the reference explains only {100 * max(r2, 0.0):.0f} % of the variance of the readings: another device, "
            "another time, a load that is not flat, a window that a load of this period does not show, or readings "
            "that scatter, as those of a counter that is read about as often as it moves"
        )
        raise DeclinedError(msg)
    return problem, fits


def _shown(problem: Problem, fits: list[Fit]) -> npt.NDArray[np.bool_]:
    """Whether the likeliest kernel, and all that show the load as it does, see nothing that the reference lacks.

    A wide kernel is not to lose by readings that show what was before the reference. What is never named may have any
    widths where the data do not tell them, and takes no part.
    """
    own = [f for f in fits if f.family not in RIVALS]
    each = [min(own, key=lambda f: f.loss).point, *_alias_points(problem, own)]
    return np.asarray(np.all([problem.shown(point) for point in each], axis=0))


def _alias_points(problem: Problem, fits: list[Fit]) -> list[Floats]:
    """Return boxcars that show a regular load as the best one does, where it is one; against a meter with a gain."""
    curve = problem.reference
    on = flanks_s(curve, max(problem.cell, METER_GRAIN * problem.period))[::2] if problem.metered else curve.t_s[1:-1:2]
    boxcars = [f for f in fits if f.family == BOXCAR]
    if (repeats := regular_period(on)) is None or not boxcars:
        return []
    top = min(boxcars, key=lambda f: f.loss)
    points = _aliases(top.point, repeats, MAX_WIDTH_PERIODS * problem.period)
    if not problem.metered:
        return points
    # As much wider, as much more must the gain be.
    return [p for p in points if plausible(top.gain * float(p[1]) / max(top.window, 1e-6))]


def _judged(problem: Problem, fits: list[Fit]) -> KernelFit:
    """Weigh fits against each other: name a family or none, and say how far each number may be off."""
    # One set of weights, from the best fit of all: with weights of its own each fit would forgive itself just those
    # few updates on a flank by which it could be told from the others.
    weights = huber_weights(min(fits, key=lambda f: f.loss).residuals)
    fits = [polish(problem, f.family, f.point, weights) for f in fits]
    least = min(fits, key=lambda f: f.loss)
    noise, _ = errors(problem, least, design_of(problem, least)[1])
    misfit = misfits(problem, least, noise)
    minima = [(f, misfit(f)) for f in fits]
    each = {f.family: (f, m) for f, m in sorted(minima, key=lambda row: -row[1])}  # the best of each family
    found = {family: row for family, row in each.items() if family not in RIVALS}
    fit, free = _chosen(problem, found, [each[family] for family in RIVALS], weights)
    if fit.family in (BOXCAR, ONE_POLE) and not _pure(problem, found[fit.best.family][0], weights):
        fit = impure(fit)
    slopes: list[tuple[Fit, float]] = []
    for shape in fit.likely:
        top, low = found[shape.family]
        for name in [*widths_of(top.family), "offset"]:
            rows = _profile(problem, shape, top, weights, (name, misfit, low))
            fit = profiled(fit, shape.family, name, [(f, m - low) for f, m in rows], problem.late_s)
            slopes += rows
    # What errors of the instants do at edges is weighed there, from the kernel that needs none.
    still = misfits(replace(problem, jitter=0.0), least, noise)
    top = min((f for f in fits if f.family not in RIVALS), key=still)
    cut, low = beside_edges(problem, top, [f for f, _ in found.values()], weights, noise), misfit(top)
    slopes += [(f, low + worse) for f, worse in cut if not fit.best.gain.contains(f.gain)]
    if not problem.metered:
        fit = replace(nearest(fit), rises_late_s=_rises_late(problem, found[fit.best.family][0]))
    fit = with_doubt(fit, minima, slopes)
    # Without a meter it may be the load that changes for seconds, or rises otherwise than it falls.
    more = lack_of_fit(problem, found[fit.best.family][0]) if problem.metered else None
    if more is not None and (free is None or more.residual_w < free[0].residual_w):
        return beside(fit, more)
    return fit.judged() if free is None else refuted(fit, *free)


def _rises_late(problem: Problem, fit: Fit) -> Estimate | None:
    """Return by how much later a load rises than it falls, after its stamps; None if too little of it was seen."""
    edges, at = problem.reference.rows_s, problem.at(fit.point)
    seen = np.count_nonzero((edges > at[0]) & (edges < at[-1]))
    return rises_late(problem, fit) if seen >= FEWEST_BLOCKS else None


def _telling(updates: Updates, reference: PowerTrace, *, metered: bool) -> tuple[Updates, PowerTrace]:
    """Return the updates that tell most, and what of the reference they can show."""
    if metered:
        updates = updates.between(reference.start_s, reference.end_s)
        reference = reference.thinned(METER_GRAIN * updates.period_s)
    updates = updates.telling(_MOST_UPDATES)
    if len(updates):
        margin_s = 4.0 * MAX_WIDTH_PERIODS * updates.period_s
        reference = reference.between(float(updates.t_s[0]) - margin_s, float(updates.t_s[-1]) + margin_s)
    return updates, reference


def _chosen(
    problem: Problem, found: Mapping[str, tuple[Fit, float]], rivals: list[tuple[Fit, float]], weights: Floats
) -> tuple[KernelFit, tuple[FreeShape, float] | None]:
    """Weigh the families, and a kernel of free shape with what the best of them leaves, if that refutes all of them."""
    best = [f for f, _ in found.values()]
    least = min(best, key=lambda f: f.loss)
    at = np.asarray(problem.at(least.point) + least.offset, np.float64)
    free = fit_free(at, problem.y, problem.reference, weights=weights, lag_s=least.lag, spread_s=least.spread)
    fit = choose(
        tuple(describe(problem, f) for f in best),
        {family: m for family, (_, m) in found.items()},
        {f.family: pure_of(f.family, f.point) for f in [*best, *(r for r, _ in rivals)]},
        rivals,
        len(problem.y),
    )
    share = dict(fit.odds)
    fit = replace(fit, rivals=tuple(describe(problem, r) for r, _ in rivals if share[r.family] * NAMED > 1.0))
    named = sum(share for family, share in fit.odds if family in found)
    if free is not None and named * (1.0 + NAMED) < 1.0:
        fit = replace(fit, spread_s=free.spread_s)
    left = []
    for f in best if problem.metered else [*best, *(r for r, _ in rivals)]:
        # Errors of the instants blur a kernel, which a free shape takes up; most of the updates' are alike in all.
        names, design = design_of(problem, f)
        late = math.hypot(_UNCOMMON_SHARE * problem.jitter, problem.row_s) * design[:, 2]
        squares, parameters = float(weights @ (f.residuals**2 - late**2)), len(names)
        if free is None or free.chance(squares, parameters) > REFUTED:
            return fit, None
        if f.family not in RIVALS:
            left.append(math.sqrt(squares / (len(problem.y) - parameters)))
    return fit, (free, min(left)) if free is not None else None


def _refuse_synchronous(load: PowerTrace, updates: Updates) -> None:
    """Decline a regular load that beats with the updates less than twice in the recording."""
    on = load.t_s[1:-1:2]
    period = regular_period(on)
    if period is None:
        return
    beats = float(on[-1] - on[0]) * abs(1.0 / updates.period_s - round(period / updates.period_s or 1) / period)
    if round(period / updates.period_s) <= 1 and beats < 2.0:
        msg = (
            f"the load's period, {1e3 * period:.4g} ms, is too near the update period, {1e3 * updates.period_s:.4g} "
            "ms: every update sees the same part of the load"
        )
        raise DeclinedError(msg, load="use another period, or a pseudo-random load")


def regular_period(on_s: Floats) -> float | None:
    """Return the period of a regular load, from when it was switched on; None of another."""
    if len(on_s) < FEWEST_BLOCKS:
        return None
    periods = np.asarray(np.diff(on_s), np.float64)
    period = float(np.median(periods))
    if not robust_sd(periods) < _REGULAR * period:
        return None
    # Of a load that a meter saw they are whole cells, of which the mean is right.
    return float(np.mean(periods[np.abs(periods - period) <= _USUAL * period]))


# --- search ---


def _fits(
    problem: Problem, reference: PowerTrace, lead_s: float, within_s: float, repeats_s: float | None
) -> list[Fit]:
    """Return fits from every minimum worth following, those of a rough reference first; all updates count alike."""
    even = np.ones(len(problem.y))
    rough = replace(problem, respond=Responder(reference.thinned(problem.period / 20.0)))
    at, fits = problem.middle + problem.t, []
    found = seeds(Grid.of(at, problem.y, reference, period_s=problem.period, lead_s=lead_s), problem.period, within_s)
    for family, points in found.items():
        for offset, window, tau in points:
            start = np.array([offset, window, tau, _SECOND * tau if "second" in widths_of(family) else 0.0, 1.0, 0.0])
            fits.append(polish(rough, family, start, even, fixed="wander"))
    if not any(f.family not in RIVALS for f in fits):
        msg = f"no kernel whose mean age is within {1e3 * within_s:.3g} ms of the lag explains the readings"
        raise DeclinedError(msg)
    for family in (name for name in FAMILIES if name not in RIVALS):
        # A minimum of one family is near one of another, unless the search missed it, or it lies beyond reach.
        if not (own := [f for f in fits if f.family == family]):
            continue
        top = min(own, key=lambda f: f.loss)
        asked = FAMILIES.keys() - {family} - ({f.family for f in fits} & {*RIVALS})  # those have minima of their own
        starts = [(other, like(other, top.point, top.spread)) for other in sorted(asked)]
        fits += [polish(rough, other, start, even, fixed="wander") for other, start in starts]
    fits += [polish(rough, BOXCAR, point, even, fixed="wander") for point in _alias_points(problem, fits)]
    distinct = _distinct(problem, fits)
    fits = [polish(problem, f.family, f.point, even, fixed="wander") for f in distinct]
    return _distinct(problem, fits if repeats_s is None else [_nearest(problem, f, repeats_s) for f in fits])


def _aliases(point: Floats, repeats_s: float, widest_s: float) -> list[Floats]:
    """Return windows that show a load which repeats as one does: up to a gain, if it is on for half of the time.

    Whole periods of it are in the mean, and of the rest the complement shows the same, half a period aside.
    """
    offset, window, *others = (float(p) for p in point)
    part, found = window % repeats_s, []
    for shown in (part, repeats_s - part):
        begin = offset + (part - shown) / 2.0
        begin -= repeats_s * round(begin / repeats_s)
        wider = shown + repeats_s * np.arange(math.ceil((widest_s - shown) / repeats_s))
        found += [np.array([begin, w, *others]) for w in wider.tolist()]
    return found


def _nearest(problem: Problem, fit: Fit, repeats_s: float) -> Fit:
    """Return a fit at that offset which is nearest to none of those that differ by whole periods of the load."""
    shift = -repeats_s * round(fit.offset / repeats_s)
    moved = fit.point + shift * np.eye(len(fit.point))[0]
    return polish(problem, fit.family, moved, np.ones(len(problem.y)), fixed="wander") if shift else fit


def _distinct(problem: Problem, fits: list[Fit]) -> list[Fit]:
    """Return fits without those that another one of their family makes needless.

    Which shows the same: that is a minimum found once more, or another place in a valley of widths, along which a
    search would go once more. Or which leaves so much more than the best of all that no reading would be missed.
    """
    least = min((f.loss for f in fits if f.family not in RIVALS), default=math.inf)
    kept: list[Fit] = []
    for fit in sorted(fits, key=lambda f: f.loss):
        own = [f for f in kept if f.family == fit.family]
        hopeless = bool(own) and fit.loss > _HOPELESS * least
        if not hopeless and not any(_alike(problem, f, fit) for f in own):
            kept.append(fit)
    return kept


def _alike(problem: Problem, one: Fit, other: Fit) -> bool:
    """Whether what two fits of a family show is as old, at either end of the readings, and scatters as far."""
    same = SAME_SHARE * problem.period
    ends = problem.t[[0, -1]]
    ages = one.lag - other.lag - (float(one.point[-1]) - float(other.point[-1])) * ends
    parts = np.subtract(variances(one.family, one.point), variances(other.family, other.point))
    # By variances: a width that is next to nothing beside another one is none, whatever part of nothing it is.
    return bool(np.all(np.abs(ages) < same) and np.all(np.abs(parts) < 2.0 * same * max(one.spread, same)))


def _profile(
    problem: Problem, shape: Shape, best: Fit, weights: Floats, of: tuple[str, Callable[[Fit], float], float]
) -> list[tuple[Fit, float]]:
    """Return fits with one width or the offset held at other values, beside their misfits, outwards either way.

    Until one is out of the question. A covariance is a curvature at one point: where a load keeps step with the
    updates a valley of widths fits alike, and the search ends anywhere along it, at a corner of it as a rule. And where
    an edge lies in what a sensor does not see, or is met by one reading, a stretch of offsets does.
    """
    name, misfit, least = of
    column = {"offset": 0, "window": 1, "tau": 2}[name]
    estimate: Estimate | None = getattr(shape, f"{name}_s")
    width = max(float(best.point[column]), _NARROWEST * problem.period) if column else problem.period
    sd = estimate.sd if estimate is not None and shape.family == best.family else 0.0
    first = float(np.clip(sd / width, *_PROFILE_STEPS))
    found = []
    for sign in (-1.0, 1.0):
        point, change = best.point, 0.0
        for i in count():
            change += sign * first * 2.0**i
            start = point.copy()
            if column:
                to = width * (1.0 + change) if sign > 0.0 else width / (1.0 - change)
                if not _NARROWEST * problem.period < to < MAX_WIDTH_PERIODS * problem.period:
                    break
                start[0] -= (to - float(point[column])) * (0.5 if name == "window" else 1.0)  # the mean lag stays
                start[column] = to
            elif abs(change) < MAX_WIDTH_PERIODS:
                start[0] = best.offset + change * width
            else:
                break
            fit = polish(problem, best.family, start, weights, fixed=name)
            found.append((fit, misfit(fit)))
            if found[-1][1] - least > FEW_READINGS:
                break
            point = fit.point
    return found


def _pure(problem: Problem, best: Fit, weights: Floats) -> bool:
    """Whether the readings exclude that a tenth of the kernel's variance is that of a second width.

    The search for the mixed kernel begins with the lag and the variance of the best. It is excluded if it leaves more,
    in units of the noise, than ``t^2`` of as many degrees of freedom as the readings have on the width.
    """
    names, design = design_of(problem, best)
    noise, spread = errors(problem, best, design)
    offset, window, tau, *others = (float(p) for p in best.point)
    sd = best.spread
    second, first = sd * math.sqrt(MINOR), sd * math.sqrt(1.0 - MINOR)
    mixed_tau, mixed_sd = (second, first) if window else (first, second)
    mixed_w = math.sqrt(12.0) * mixed_sd
    start = np.array([offset + window / 2.0 + tau - mixed_w / 2.0 - mixed_tau, mixed_w, mixed_tau, *others])
    mixed = polish(problem, BOTH, start, weights, fixed="tau" if window else "window")
    misfit = misfits(problem, best, noise)
    return (
        misfit(mixed) - misfit(best)
        > student_95(max(spread.freedom(np.array([float(name in ("window", "tau")) for name in names])), 2.0)) ** 2
    )
