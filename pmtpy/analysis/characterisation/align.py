"""How far one power curve runs behind another, when nobody knows whether their clocks agree.

The coarse lag is where the cross-correlation of the two curves peaks; it is then refined to a fraction of a sample by
the fit that finds kernels, of a boxcar, on exact integrals of the curves, so no energy is moved by resampling. A clock
offset and a sensor's own lag look the same from outside: their sum is what is found. Declines where the curves cannot
tell: constant power, no overlap, nothing in common, or a load so regular that several lags fit alike. Pure; times are
seconds, powers watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterisation._covariance import blocks
from pmtpy.analysis.characterisation._description import describe
from pmtpy.analysis.characterisation._families import BOXCAR, ONE_POLE, like, widths_of
from pmtpy.analysis.characterisation._forward import Fit, Problem, evaluate, follow, linear, polish, problem_of_means
from pmtpy.analysis.characterisation._free_shape import REFUTED, FreeShape, fit_free
from pmtpy.analysis.characterisation.gain import Points
from pmtpy.analysis.characterisation.kernel import MIN_FINENESS
from pmtpy.analysis.signal.clock_fit import MEETING_S, RATE_SD, ClockFit
from pmtpy.analysis.signal.correlogram import ALIKE_CORRELATION, correlogram, flanks_s
from pmtpy.analysis.signal.estimate import (
    MIN_EXPLAINED,
    ONE_CLOCK_RATE,
    SAME_SHARE,
    STANDS_OUT,
    Z95,
    Estimate,
    huber_weights,
)
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_FEWEST_CELLS = 16
_CELLS = 4000  # the curves are compared as means of at most this many cells
_MISSING_CORRELATION = 0.15  # short of full correlation: no coarser grain is wanted, whose shifts are coarse as well
_SCATTER = 2.25  # three times 0.75, by which what one flank leaves unexplained scatters about its mean, in simulation
_NEAREST_LAG_SHARE = 1.0 / 3.0  # of the load's period: a lag beyond it is not much likelier than that of the other sign
_RIVAL_SHARE = 0.75  # of what the best lag explains: one that explains more may be right, however little that is
_CONSTANT_SHARE = 0.005  # a power that varies by less than this share of its mean is called constant
_LEAST_COMMON = 0.25  # of the shorter curve: less is alike by chance
_TELLING = 4  # changes of the load that two curves have in common: fewer do not show whether they come again
_MAX_WIDTH_SHARE = 0.125  # of the overlap: no response is looked for that is wider
_SAME_LENGTH = 0.1  # by which cells that are alike may differ
_UNSMOOTHED = 0.05  # of a cell: a width that does not show
_PLACES, _MOST_PLACES = 8.0, 32.0  # a cell, or a width: a load that repeats in a cell is met; and to either side


@dataclass(frozen=True, slots=True)
class _Laid:
    """The faster of two curves laid over the slower one, and the share of the variance that it leaves."""

    problem: Problem
    smoothed: Floats  # shape (n,); the faster one through the kernel
    lag_s: Estimate
    width_s: Estimate
    rate: Estimate
    gain: Estimate
    intercept_w: Estimate
    left: float


@dataclass(frozen=True, slots=True)
class Alignment(ClockFit):
    """How a curve stands to a reference in time: its lag is its clock's offset and its sensor's mean age together.

    Attributes
    ----------
    width_s : Estimate
        Over how much more time the curve averages than the reference; negative: over how much less.
    r2 : float
        Share of the variance that one explains of the other.
    points : Points
        What the two showed, side by side.
    note : str
        Empty, or what was taken for granted.
    repeats_s : float
        Lags that differ by whole multiples of this fit alike; infinite where only one fits.
    """

    width_s: Estimate
    r2: float
    points: Points
    note: str = ""
    repeats_s: float = math.inf

    @property
    def any_lag_s(self) -> Estimate:
        """The lag, with an interval that holds all that fit alike within the reach of the search."""
        if math.isinf(self.repeats_s):
            return self.lag_s
        lag, period = self.lag_s, self.repeats_s
        below, above = (period * max(0, math.floor((MEETING_S + x) / period)) for x in (lag.value, -lag.value))
        return Estimate(lag.value, lag.low - below, lag.high + above)


def align(moving: PowerTrace, reference: PowerTrace, *, one_clock: bool = False) -> Alignment:
    """Find how far a curve runs behind a reference.

    Parameters
    ----------
    moving, reference : PowerTrace
        What two sensors showed of the same power.
    one_clock : bool
        Whether both were stamped by one clock. Then the smallest lag is taken of those that fit alike, and no rate is
        fitted. Else the clocks may differ by any amount.

    Raises DeclinedError: a curve is constant; they do not overlap, or do not look alike at any lag; or several lags fit
    alike.
    """
    for name, curve in (("curve", moving), ("reference", reference)):
        _refuse_constant(name, curve)
    shift, grain, repeats = _coarse(moving, reference, one_clock=one_clock)
    start = max(moving.start_s, reference.start_s - shift)
    end = min(moving.end_s, reference.end_s - shift)
    cell = max(moving.cell_s, reference.cell_s, (end - start) / _CELLS)
    if end - start < _FEWEST_CELLS * cell:
        msg = (
            f"the curves have {max(end - start, 0.0):.3g} s in common, too little to align readings {cell:.3g} s apart"
        )
        raise DeclinedError(msg)
    # Whichever of the two answers more slowly is taken as it is, and the other is smoothed to look like it.
    forth = _lay(moving, reference, (-shift, grain), (start, end), cell, rated=not one_clock)
    back = _lay(reference, moving, (shift, grain), (start + shift, end + shift), cell, rated=not one_clock)
    laid = back if back.left < forth.left else forth
    if math.isinf(laid.left):
        msg = "the curves fit equally well at any lag close to this one: record more changes of the load"
        raise DeclinedError(msg)
    if 1.0 - laid.left < ALIKE_CORRELATION**2:
        msg = (
            f"the two recordings do not look alike: the best lag explains {1.0 - laid.left:.0%} of what they show in "
            f"steps of {cell:.3g} s, and that loads begin or end alike does not tell it; record the same load with both"
        )
        raise DeclinedError(msg)
    sign = -1.0 if laid is back else 1.0
    rate = Estimate.within(0.0, 0.0) if one_clock else laid.rate if laid is back else laid.rate.turned()
    if abs(rate.value) > STANDS_OUT * RATE_SD:
        msg = (
            f"the curves lie upon each other only if one clock ran {abs(rate.value):.2%} faster than the other, and two"
            f" clocks differ by {STANDS_OUT * RATE_SD:.1%} at most: the load changes too slowly, or is not the"
            " same; record a load that switches"
        )
        raise DeclinedError(msg)
    lag, width = laid.lag_s.scaled(sign), laid.width_s.scaled(sign)
    middle = (start + end) / 2.0 + shift
    note = "" if math.isinf(repeats) else f"the lag is {_up_to(repeats)}: the smallest was taken"
    changes = 0 if one_clock else _changes(reference, middle, (end - start) / 2.0, max(cell, grain))
    if changes and changes < _TELLING:
        note = (
            f"the clocks are aligned by {changes} change{'s' if changes > 1 else ''} of the load, taken for the same in"
            " both recordings; of a load that comes again the lag would be off by whole periods"
        )
    points = _points(laid, middle, back=laid is back)
    return Alignment(lag, rate, middle, width, 1.0 - laid.left, points, note, repeats)


def _points(laid: _Laid, middle_s: float, *, back: bool) -> Points:
    problem, smoothed = laid.problem, laid.smoothed
    # Middles of the cells; where the reference is the slower one they are on its clock.
    t = middle_s + problem.t - (problem.own_s if problem.own_s is not None else 0.0) / 2.0
    # The line is that of the levels: on flanks a kernel that is not the right one leaves much, which is part of its
    # error.
    left = problem.y - laid.gain.value * smoothed - laid.intercept_w.value
    gain, offset = linear(smoothed, problem.y, huber_weights(np.asarray(left, np.float64)))
    gain_u, offset_u = laid.gain.half_width, laid.intercept_w.half_width
    reference, shown = smoothed, problem.y
    if back:
        gain = max(gain, 1e-300)
        gain, offset, gain_u, offset_u = 1.0 / gain, -offset / gain, gain_u / gain**2, offset_u / gain
        reference, shown = shown, reference
    return Points(t, reference, shown, (Estimate.within(gain, gain_u), Estimate.within(offset, offset_u)))


def _up_to(repeats_s: float) -> str:
    return f"known up to whole periods of the load, {1e3 * repeats_s:.4g} ms"


def _refuse_constant(name: str, curve: PowerTrace) -> None:
    watts = curve.watts()[1:-1]
    spread = float(np.quantile(watts, 0.98) - np.quantile(watts, 0.02)) if len(watts) else 0.0
    if spread <= _CONSTANT_SHARE * abs(float(np.mean(watts))) + 1e-9:
        msg = f"the {name} is constant within {spread:.3g} W: it does not tell when anything happened; vary the load"
        raise DeclinedError(msg)


def _coarse(moving: PowerTrace, reference: PowerTrace, *, one_clock: bool) -> tuple[float, float, float]:
    """Return the shift at the peak of the correlation, its grain, and by how much shifts differ that fit alike.

    Seen finely, a sensor that averages over a period of its load does not look like the load at all; seen coarsely,
    both show when the load began and ended. So several grains are tried, and the finest that explains enough is taken.
    """
    step = max(moving.cell_s, reference.cell_s) / 2.0
    shorter = min(moving.end_s - moving.start_s, reference.end_s - reference.start_s)
    grains = [step * 4**i for i in range(5) if i == 0 or step * 4**i < shorter / 64.0]
    reach = MEETING_S if one_clock else None
    tried = [(g, correlogram(moving, reference, reach_s=reach, step_s=g, common=_LEAST_COMMON)) for g in grains]
    limit = _rivals(moving, step) * (1.0 - max(c.alike for _, c in tried))
    grain, found = next((g, c) for g, c in tried if 1.0 - c.alike <= max(limit, _MISSING_CORRELATION))
    best = found.best()
    unexplained = 1.0 - np.clip(found.r, 0.0, 1.0) ** 2
    least = float(np.min(unexplained[found.well]))
    most = max(1.0 - MIN_EXPLAINED, 1.0 - _RIVAL_SHARE * (1.0 - least))
    near = unexplained <= max(least, min(_rivals(moving, grain) * least, most), SAME_SHARE)
    # Each stretch of shifts that fit nearly alike is one candidate.
    edges = np.flatnonzero(np.diff(np.concatenate([[0], near.astype(np.int8), [0]])))
    stretches = [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    if len(stretches) == 1:
        return best, grain, math.inf
    shifts = found.shift_s[[s.start + int(np.argmin(unexplained[s])) for s in stretches]]
    apart = float(np.min(np.diff(shifts)))
    nearest = float(shifts[np.argmin(np.abs(shifts))])
    if one_clock and abs(nearest) <= _NEAREST_LAG_SHARE * apart:
        return nearest, grain, apart
    holes = np.concatenate([moving.holes_s, reference.holes_s])
    if np.any(np.abs(np.diff(holes) - apart) <= 4.0 * grain):
        msg = (
            f"there are {len(shifts)} lags that fit alike, {apart:.6g} s from each other, and a recording has as long a"
            " gap: its clock was set meanwhile; compare what is before the gap, or what is after it"
        )
        raise DeclinedError(msg)
    msg = (
        f"the lag is {_up_to(apart)}, at which {len(shifts)} lags fit alike because the load repeats: record a load "
        "that is not regular"
        + (", or a slower one" if one_clock else ", or its start or end, or say that the clocks are one")
    )
    raise DeclinedError(msg)


def _changes(curve: PowerTrace, middle_s: float, half_s: float, step_s: float) -> int:
    """Return how often the power goes up or down in the middle of a curve."""
    at = flanks_s(curve, step_s) + curve.start_s
    return int(np.count_nonzero(np.abs(at - middle_s) <= half_s))


def _rivals(curve: PowerTrace, step_s: float) -> float:
    """Return over how much more unexplained variance than the best a lag may leave by chance.

    What is not explained lies on the flanks of the load, and how much of it on each depends on where in an update the
    flank falls. So it scatters as a mean over the flanks does; half of them are left at the largest lag.
    """
    flanks = max(1, len(flanks_s(curve, step_s)))
    return math.exp(_SCATTER * math.sqrt(3.0 / flanks))


def _lay(
    slow: PowerTrace,
    fast: PowerTrace,
    about: tuple[float, float],
    span: tuple[float, float],
    cell: float,
    *,
    rated: bool,
) -> _Laid:
    """Fit lag, rate and width so that the fast curve, smoothed, looks like the slow one.

    The lag is looked for ``about`` a value, within a reach. The variance left is infinite if no lag is better than
    another, as where the fast curve has one change and that within one cell of the slow one.
    """
    edges = _edges(slow, span, cell)
    problem = problem_of_means(edges, slow, fast, rate_sd=RATE_SD if rated else ONE_CLOCK_RATE)
    aged = edges - about[0]
    shown = slow.known(edges[:-1], edges[1:]) & fast.known(aged[:-1] - about[1] - cell, aged[1:] + about[1] + cell)
    fit = None
    while fit is None or not np.all(shown):
        problem = problem.part(shown)
        fit, doubt_s = _best(problem, about, cell)
        shown = problem.shown(fit.point)
    drawn = math.hypot(_drawn_s(problem, fit), doubt_s)
    shape, free, spread = describe(problem, fit), _free(problem, fit), math.sqrt(12.0)
    lag, gain, intercept, left = shape.lag_s, shape.gain, shape.intercept_w, fit.loss
    width = shape.window_s or (shape.tau_s or Estimate.within(0.0, 0.0)).scaled(spread)
    smoothed = problem.filtered(fit.point)
    if free is not None:
        # It does not know of errors that last, as that of a family does: as much less as what it leaves is less.
        less = free.residual_w / math.sqrt(fit.loss)
        own = float(np.median(problem.own_s)) if problem.own_s is not None else 0.0
        wide = math.sqrt(max(12.0 * free.spread_s.value**2 - own**2, 0.0))

        def at_least(one: Estimate, other: Estimate) -> Estimate:
            return Estimate.within(one.value, max(one.half_width, less * other.half_width))

        lag = at_least(free.lag_s.moved(-own / 2.0), lag)
        gain, intercept = at_least(free.gain, gain), at_least(free.intercept_w, intercept)
        width, left = Estimate.within(wide, spread * free.spread_s.half_width), free.residual_w**2
        smoothed = free.shown(problem.reference, np.asarray(problem.at(fit.point) + fit.offset, np.float64))
    told = lag.half_width < (span[1] - span[0]) / 2.0
    rate = shape.rate or Estimate.within(0.0, 0.0)
    left = left / float(np.var(problem.y)) if told else math.inf
    return _Laid(problem, smoothed, lag.widened(drawn), width, rate, gain, intercept, left)


def _free(problem: Problem, fit: Fit) -> FreeShape | None:
    """Return a kernel of free shape, if it refutes the one that was fitted.

    Of a sensor that responds by a filter beside a meter that averages, one answers as the other does not, and neither
    smooths the other: what is between them goes below none. By a boxcar the lag would be off by a sixth of its width.
    """
    own = problem.own_s if problem.own_s is not None else np.zeros(len(problem.y))
    usual = float(np.median(own))
    part = problem.part(np.asarray(np.abs(own - usual) <= _SAME_LENGTH * usual, np.bool_))
    at = np.asarray(part.at(fit.point) + fit.offset, np.float64)
    spread = math.hypot(fit.spread, usual / math.sqrt(12.0))
    if math.sqrt(12.0) * spread < MIN_FINENESS * problem.cell:  # what lines between rows do would be in its shape
        return None
    free = fit_free(at, part.y, problem.reference, lag_s=fit.lag + usual / 2.0, spread_s=spread)
    left = part.y - fit.gain * part.filtered(fit.point) - fit.intercept
    parameters = 4 + len(widths_of(fit.family))
    if free is None or free.chance(float(left @ left), parameters) > REFUTED:
        return None
    # Each flank shows the whole kernel; of fewer than it has parameters it would follow what else the load does.
    return free if len(flanks_s(problem.reference, problem.cell)) >= free.freedom else None


def _drawn_s(problem: Problem, fit: Fit) -> float:
    """Return how far the fast curve's straight lines between knots draw a lag, as a 95 % half-width.

    A step at a place ``u`` of a cell, the cell's length 1, adds ``max(f - u, 0)`` at ``f``, and on the line
    ``f' (1 - u)``. Over all ``u`` the squares of what both cells beside ``f`` are off are least at
    ``f' = 3 f / 4 + 3 f^2 / 4 - f^3 / 2``: up to 0.024 nearer to a knot. Where readings end all over the cells that
    averages out; where both curves keep step it does not.
    """
    at, knots = problem.at(fit.point), problem.reference.t_s
    right = np.clip(np.searchsorted(knots, at), 1, len(knots) - 1)
    cell = knots[right] - knots[right - 1]
    place = np.clip((at - knots[right - 1]) / cell, 0.0, 1.0)
    return Z95 * abs(float(np.mean(cell * place * (1.0 - place) * (place - 0.5)))) / 2.0


def _best(problem: Problem, about: tuple[float, float], cell: float) -> tuple[Fit, float]:
    """Return the best fit of a boxcar or a one-pole, or that without a width unless that explains much less.

    A width below a cell shows in how the few rows on flanks are off, and lets the lag follow just these. Returned with
    it: how far its lag may be off for another one being right, as a 95 % half-width.
    """
    if len(problem.y) < _FEWEST_CELLS:
        msg = (
            f"the curves have {amount(len(problem.y), 'cell')} of {cell:.3g} s in common that both know: too few to "
            "align them"
        )
        raise DeclinedError(msg)
    even = np.ones(len(problem.y))
    widths = cell * np.concatenate([[_UNSMOOTHED], np.geomspace(1.0, max(_MAX_WIDTH_SHARE * len(even), 2.0), 16)])
    steps = np.maximum(np.hypot(cell, widths) / _PLACES, about[1] / _MOST_PLACES)
    starts = [
        np.array([lag - width / 2.0, width, 0.0, 0.0, 1.0, 0.0])
        for width, step in zip(widths, steps, strict=True)
        for lag in about[0] + np.arange(-about[1], about[1] + step / 2.0, step)
    ]
    losses = [evaluate(problem, BOXCAR, start, even).loss for start in starts]
    best = follow(problem, BOXCAR, starts[int(np.argmin(losses))], even, cell)
    point = best.point + np.array([best.window / 2.0, -best.window, 0.0, 0.0, 0.0, 0.0])
    sharp = polish(problem, BOXCAR, point, even, fixed="window")
    flanks = 2 * blocks(problem.filtered(best.point))
    if sharp.loss <= best.loss * flanks ** (1.0 / flanks):  # what one width costs [S78]
        return sharp, abs(sharp.lag - best.lag)
    pole = polish(problem, ONE_POLE, like(ONE_POLE, best.point, best.spread), even)
    likely, other = sorted((best, pole), key=lambda fit: fit.loss)
    odds = (likely.loss / max(other.loss, 1e-300)) ** (flanks / 2.0)  # against the likelier one, each flank a witness
    return likely, Z95 * math.sqrt(odds) / (1.0 + odds) * abs(likely.lag - other.lag)


def _edges(slow: PowerTrace, span: tuple[float, float], cell: float) -> Floats:
    """Return cells between the curve's own knots: between these a counter tells its exact mean."""
    knots = slow.t_s[(slow.t_s >= span[0]) & (slow.t_s <= span[1])]
    knots = knots[:: max(1, round(cell / slow.cell_s))]
    if len(knots) > _FEWEST_CELLS:
        return knots
    return np.linspace(*span, max(_FEWEST_CELLS, round((span[1] - span[0]) / cell)) + 1)
