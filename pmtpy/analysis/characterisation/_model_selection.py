"""Which of several fits of a kernel the data speak for, and what else they leave possible.

The simplest family that no other beats clearly is named, or none is; another width that fits nearly as well takes the
name away, and the intervals span all that does. Pure; docs/fit.md has the rules.

[S78] Schwarz, Annals of Statistics 6 (1978), 461.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from pmtpy.analysis.characterisation._families import BOXCAR, ONE_POLE, widths_of
from pmtpy.analysis.characterisation._forward import Fit
from pmtpy.analysis.characterisation._free_shape import FreeShape
from pmtpy.analysis.characterisation._lack_of_fit import LackOfFit
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit, Shape
from pmtpy.analysis.signal.estimate import NAMED, Estimate, student_95
from pmtpy.errors import Reason

SAME_WIDTH_SHARE = 0.15  # widths that differ by less, relative, are one minimum
FEW_READINGS = student_95(2) ** 2  # square of what Student's t reaches by chance, 95 %, where two readings decide
OUT_OF_QUESTION = 2.0 * math.log(NAMED)  # beyond the best: of minus twice the log-likelihood


def choose(
    shapes: tuple[Shape, ...],
    misfits: dict[str, float],
    pure: dict[str, str],
    rivals: list[tuple[Fit, float]],
    n: int,
) -> KernelFit:
    """Return the likeliest family with the odds of all of them; without a name if these are below 20 to 1.

    Parameters
    ----------
    shapes : tuple of Shape
        The best of each family.
    misfits : mapping
        Minus twice the log-likelihood of each.
    pure : mapping
        What each family is when a second width that does not matter is left out.
    rivals : list of (Fit, float)
        Fits of shapes that are never named, and their misfits.
    n : int
        Readings.
    """
    # What one parameter more costs [S78].
    cost = misfits | {rival.family: misfit for rival, misfit in rivals}
    cost = {family: misfit + math.log(n) * (len(widths_of(family)) - 1) for family, misfit in cost.items()}
    least = min(cost.values())
    share = {family: math.exp(-min(value - least, 700.0) / 2.0) for family, value in cost.items()}
    total = sum(share.values())
    odds = tuple(sorted(((name, part / total) for name, part in share.items()), key=lambda row: -row[1]))
    likeliest = min(misfits, key=lambda family: cost[family])
    fitted = {s.family: s for s in shapes}
    best = fitted[likeliest]
    # A second width that hardly matters is left out, if it makes no other gain and no other width of the first; else
    # the family without it is wrong. Under a fast load it may lie on all that is seen of the load.
    alone = fitted.get(pure[likeliest])
    if alone and _within(alone, best):
        best = alone
    mine = sum(share[family] for family, alone in pure.items() if best.family in (family, alone)) / total
    fit = KernelFit(best.family, best, tuple(sorted(shapes, key=lambda s: s.loss)), n, odds=odds)
    if mine * (1.0 + NAMED) >= NAMED:
        return fit
    named = " and ".join(f"a {name} has {100.0 * part:.0f} %" for name, part in odds[:2])
    reason = _unsure(f"{named} of the probability, and it takes odds of {NAMED:g} to 1 to name one")
    if odds[0][0] not in fitted and odds[0][1] * (1.0 + NAMED) >= NAMED:
        reason = Reason(f"none of these kernels: a {odds[0][0]} one, which is not named, comes nearest by far")
    return replace(fit, family=AMBIGUOUS, reason=reason)


def _unsure(why: str) -> Reason:
    return Reason(why, load="use a pseudo-random load")


def _within(shape: Shape, best: Shape) -> bool:
    """Whether what a shape says lies in the intervals of another one."""
    pairs = ((getattr(best, name), getattr(shape, name)) for name in ("gain", "window_s", "tau_s"))
    return all(e is None or other is None or e.contains(other.value) for e, other in pairs)


def impure(fit: KernelFit) -> KernelFit:
    """Call a fit ambiguous that leaves a second width possible beside the one it has."""
    other = ONE_POLE if fit.family == BOXCAR else BOXCAR
    reason = f"a {other} may be hidden beside {_name(fit.best)}: too few readings show the flanks of the load"
    return replace(fit, family=AMBIGUOUS, reason=_unsure(reason))


def _name(shape: Shape) -> str:
    width = shape.window_s or shape.tau_s
    return f"a {shape.family}" + (f" of {1e3 * width.value:.3g} ms" if width else "")


def with_doubt(fit: KernelFit, minima: list[tuple[Fit, float]], slopes: list[tuple[Fit, float]]) -> KernelFit:
    """Call the fit ambiguous if quite another width is possible, or any; then let its intervals span what is possible.

    That is each fit that is not out of the question, whatever its family, its widths and its lag (under a regular load
    the same kernel fits at lags that differ by the load's period); each is as uncertain as the best. Both lists,
    the minima and what the profiles found about them, are beside their misfits, minus twice the log-likelihood. Widths
    span the minima alone: they have their profiles already.
    """
    best, least = fit.best, min(misfit for _, misfit in minima)
    near, about = ([f for f, misfit in rows if misfit - least < OUT_OF_QUESTION] for rows in (minima, slopes))
    reason = fit.reason or _doubt(best, near)

    def across(estimate: Estimate, of: Callable[[Fit], float], fits: list[Fit]) -> Estimate:
        off = [0.0, *(of(f) - estimate.value for f in fits)]
        return replace(estimate, low=estimate.low + min(off), high=estimate.high + max(off))

    def spanned(estimate: Estimate, of: Callable[[Fit], float]) -> Estimate:
        """Span minima, each as uncertain as the best, and profiles, which say what a covariance says but in full."""
        value = estimate.value
        found = across(estimate, of, near)
        down, up = (end([0.0, *(of(f) - value for f in about)]) for end in (min, max))
        low, high = value - math.hypot(down, value - estimate.low), value + math.hypot(up, estimate.high - value)
        return replace(estimate, low=min(low, found.low), high=max(high, found.high))

    own = [f for f in near if f.family == best.family]
    best = replace(
        best,
        gain=spanned(best.gain, lambda f: f.gain),
        intercept_w=spanned(best.intercept_w, lambda f: f.intercept),
        offset_s=spanned(best.offset_s, lambda f: f.offset),
        lag_s=spanned(best.lag_s, lambda f: f.lag),
        rate=best.rate and spanned(best.rate, lambda f: float(f.point[-1])),
        window_s=best.window_s and across(best.window_s, lambda f: f.window, own),
        tau_s=best.tau_s and across(best.tau_s, lambda f: f.tau, own),
    )
    spread = fit.spread_s and spanned(fit.spread_s, lambda f: f.spread)
    return replace(fit, family=AMBIGUOUS if reason else fit.family, best=best, reason=reason, spread_s=spread)


def profiled(fit: KernelFit, family: str, name: str, rows: list[tuple[Fit, float]], late_s: float) -> KernelFit:
    """Widen a width of one family to where its profile is out of the question; and bound it.

    Where an edge of the load lies between what two readings see, none of them moves with a width or with the offset,
    and their covariance has no end; but as soon as one sees the edge it is off by much. ``rows`` are fits at other
    widths, or other offsets, beside their misfits beyond that of the best of this family; ``late_s`` is by how much
    each edge may be off, which no misfit knows of.
    """
    column, beside = f"{name}_s", 2.0 * math.sqrt(FEW_READINGS) * late_s

    def judged(shape: Shape) -> Shape:
        estimate: Estimate | None = getattr(shape, column)
        if shape.family != family or estimate is None:
            return shape
        at, value, low, high = [(getattr(f, name), m) for f, m in rows], estimate.value, estimate.low, estimate.high
        if name != "offset":
            low, high = min(low, _crossing(value, at, -1.0)), max(high, _crossing(value, at, 1.0))
        out = [x for x, misfit in at if misfit > FEW_READINGS]
        low = max([low, *(x - beside for x in out if x < value)])
        high = min([high, *(x + beside for x in out if x > value)])
        found = Estimate(value, low, high)
        if name == "offset":
            narrower = low > estimate.low or high < estimate.high
            return _inside(replace(shape, offset_s=found)) if narrower else shape
        return replace(shape, window_s=found) if name == "window" else replace(shape, tau_s=found)

    return replace(fit, best=judged(fit.best), shapes=tuple(judged(s) for s in fit.shapes))


def _inside(shape: Shape) -> Shape:
    """Return a shape whose lag is no further off than its offset and its widths together may be."""
    widths = [e for e in (shape.window_s and shape.window_s.scaled(0.5), shape.tau_s) if e is not None]
    low, high = (
        shape.offset_s.low + sum(max(e.low, 0.0) for e in widths),
        shape.offset_s.high + sum(e.high for e in widths),
    )
    lag = shape.lag_s
    found = Estimate(lag.value, max(min(low, lag.value), lag.low), min(max(high, lag.value), lag.high))
    return replace(shape, lag_s=found, bounded=found != lag)


def _crossing(value: float, rows: list[tuple[float, float]], sign: float) -> float:
    """Return the last width to one side that is not out of the question: about the least a misfit rises as a square."""
    inner, rise = value, 0.0
    for _, width, misfit in sorted((sign * (w - value), w, max(m, 0.0)) for w, m in rows if sign * (w - value) > 0.0):
        if misfit > OUT_OF_QUESTION:
            share = (math.sqrt(OUT_OF_QUESTION) - math.sqrt(rise)) / (math.sqrt(misfit) - math.sqrt(rise))
            return inner + share * (width - inner)
        inner, rise = width, misfit
    return inner


def _alike(fit: Fit, best: Shape) -> bool:
    """Whether a fit is as wide as the best, its interval allowed for."""
    pairs = ((best.window_s, fit.window), (best.tau_s, fit.tau))
    return all(e is None or abs(w - e.value) <= max(SAME_WIDTH_SHARE * e.value, e.half_width) for e, w in pairs)


def _doubt(best: Shape, near: list[Fit]) -> Reason:
    for width in filter(None, (best.window_s, best.tau_s)):
        if width.half_width > 0.5 * width.value:
            return _unsure(
                f"the data fix the width of the kernel only to {1e3 * width.value:.3g} +/- "
                f"{1e3 * width.half_width:.2g} ms: the load is too slow or too weak for it"
            )
    rival = next((f for f in near if f.family == best.family and not _alike(f, best)), None)
    if rival is None:
        return Reason("")
    width = best.window_s or best.tau_s or best.lag_s
    return Reason(
        f"kernels {1e3 * width.value:.3g} and {1e3 * (rival.window or rival.tau):.3g} ms wide fit nearly "
        "equally: too few readings show the flanks of the load, or it is regular",
        load="use a pseudo-random load, an uneven duty cycle or several periods",
    )


def nearest(fit: KernelFit) -> KernelFit:
    """Return a fit of no family with the gain, intercept, lag and spread of what comes nearest by far, if that is none.

    The widths stay those of the best family.
    """
    likeliest, share = fit.odds[0]
    rival = next((shape for shape in fit.rivals if shape.family == likeliest), None)
    if rival is None or share * (1.0 + NAMED) < NAMED:
        return fit
    best = replace(_late(fit.best, rival.lag_s), gain=rival.gain, intercept_w=rival.intercept_w)
    return replace(fit, best=best, spread_s=rival.spread_s)


def refuted(fit: KernelFit, free: FreeShape, left_w: float) -> KernelFit:
    """Return a fit that a kernel of free shape refutes, with the gain, intercept and lag of that one."""
    best = fit.best
    reason = (
        f"none of these kernels: one of free shape leaves {free.residual_w:.2g} W, the best {best.family} "
        f"{left_w:.2g} W; gain, intercept and lag are those of the free shape"
    )
    if fit.odds[0][0] not in {shape.family for shape in fit.shapes}:
        reason += f"; a {fit.odds[0][0]} one comes nearest"

    # The free shape does not know of errors that last, nor of rounding; a fit of a family does. That of the likeliest,
    # named or not, is off by the shape of its kernel least.
    near = next((shape for shape in (*fit.shapes, *fit.rivals) if shape.family == fit.odds[0][0]), best)

    def at(name: str) -> Estimate:
        own: Estimate = getattr(free, name)
        return Estimate.within(own.value, max(getattr(near, name).half_width, own.half_width))

    best = replace(_late(best, at("lag_s")), gain=at("gain"), intercept_w=at("intercept_w"))
    return replace(fit, family=AMBIGUOUS, best=best, reason=Reason(reason), free=free, spread_s=free.spread_s)


def beside(fit: KernelFit, more: LackOfFit) -> KernelFit:
    """Return a fit that lacks something: of no family, and its intervals hold what a fit with it says, too.

    Its values stay those of the kernel that shows most of the power, which is what short work is corrected by.
    """

    def both(one: Estimate, other: Estimate) -> Estimate:
        ends = (one.low, one.high, other.low, other.high)
        return Estimate.within(one.value, max(abs(end - one.value) for end in ends))

    best = fit.best
    reason = (
        f"none of these kernels: {more.found}; with that a {best.family} leaves {more.residual_w:.2g} W, without "
        f"{more.without_w:.2g} W; gain, intercept and lag hold both"
    )
    best = replace(
        best,
        gain=both(best.gain, more.gain),
        intercept_w=both(best.intercept_w, more.intercept_w),
        lag_s=both(best.lag_s, more.lag_s),
        window_s=best.window_s and both(best.window_s, more.window_s),
        tau_s=best.tau_s and both(best.tau_s, more.tau_s),
    )
    return replace(fit, family=AMBIGUOUS, best=best, reason=Reason(reason), spread_s=more.spread_s)


def _late(shape: Shape, lag_s: Estimate) -> Shape:
    """Return a shape with a lag from elsewhere: its offset moves with it."""
    moved = lag_s.value - shape.lag_s.value
    return replace(shape, lag_s=lag_s, offset_s=shape.offset_s.moved(moved).widened(moved))
