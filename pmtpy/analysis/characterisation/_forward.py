"""Readings as a kernel, a gain and a clock make them of a reference: one problem, and its least squares from a start.

Gain and intercept are solved inside (variable projection), so only shape and time are searched. Pure; times are
seconds, powers watts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.characterisation._families import BOTH, PARAMETERS, age_of, spread_of, widths_of
from pmtpy.analysis.characterisation.kernel import Shape
from pmtpy.analysis.signal.clock_fit import RATE_GROWTH, RATE_SD
from pmtpy.analysis.signal.correlogram import sampled
from pmtpy.analysis.signal.estimate import ONE_CLOCK_RATE, SAME_SHARE, bend_sd, robust_sd
from pmtpy.analysis.signal.trace import PowerTrace, Responder
from pmtpy.analysis.signal.updates import MIN_UPDATES, Updates
from pmtpy.core.presentation import amount
from pmtpy.core.response import TRIANGULAR
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

# How much of the wander is believed before the readings say so: of a phase that is steady, all that polls at regular
# intervals seem to show is their own.
WANDER_SD = 0.5
_GAIN_SD = 0.17  # of its logarithm, against a meter in the same circuit: 0.7 to 1.4; where few phases show, a wider ...
# ... kernel with a larger gain fits as well, without end
_PLAUSIBLE_SD = 3.0  # 0.6 to 1.67
# Power between blocks less that at rest, of the swing, and how far it is from that: 150 against 127 W of 350 is 0.1.
_REST, _REST_SD = 0.125, 0.14
_ARRIVED, _ROUNDS = 1e-6, 40  # relative gain of a step below which a search has arrived, and how many it may take
METER_GRAIN = 0.005  # of a period: nothing finer on a meter shows in a kernel
_MAX_AGE_S = 0.3  # beside three periods: the oldest end of a kernel; signed, the earliest lies a period in the future


@dataclass(frozen=True, slots=True)
class Fit:
    """One fit: its parameters, and the mean square of what it leaves, in watts squared, under Huber's weights."""

    family: str
    point: Floats  # offset, window, tau, second time constant, share of the phase's wander that is believed, rate
    gain: float
    intercept: float
    residuals: Floats
    loss: float

    @property
    def offset(self) -> float:
        """Age of the kernel's end, seconds."""
        return float(self.point[0])

    @property
    def window(self) -> float:
        """Width of the boxcar, or of the triangle, seconds; 0: none."""
        return float(self.point[1])

    @property
    def tau(self) -> float:
        """Time constant of the one-pole, seconds; 0: none."""
        return float(self.point[2])

    @property
    def lag(self) -> float:
        """Mean age of what a reading shows, seconds."""
        return self.offset + age_of(self.point)

    @property
    def spread(self) -> float:
        """Standard deviation of that age within the kernel, seconds."""
        return spread_of(self.family, self.point)


@dataclass(frozen=True, slots=True)
class Problem:
    """Updates against a reference: times relative to the pivot, readings, response."""

    t: Floats
    y: Floats
    wander: Floats
    middle: float
    respond: Responder
    reference: PowerTrace
    cell: float  # median time between the reference's rows: it has thousands, and this is asked for each kernel
    period: float
    jitter: float
    common: float  # standard error that the times of all updates share
    drift: float
    rate_sd: float  # how far the reference's clock may run from that of the updates, relative
    metered: bool
    step_s: float  # by which an offset is moved for a derivative
    late_s: float  # standard error of when the reference, or a reading, shows a change
    row_s: float  # that of the reference alone, whose rows date a change; 0: it knows
    noise: float  # spectral density of the noise on the reference, watts squared times seconds; 0: none is seen
    reach_s: float  # half the length of the stretch in which an offset is looked for; a width is not wider either
    own_s: Floats | None = None  # over how much time before its instant each reading is a mean itself
    scattered: bool = False  # whether nobody knows how old readings are: each may be off by ``jitter`` or less
    rest_w: float | None = None  # what was read before the load, at rest

    def at(self, point: Floats) -> Floats:
        """Return where kernels end, on the reference's clock."""
        offset, *_, wander, rate = (float(p) for p in point)
        t = self.t if wander == 1.0 else self.t + (wander - 1.0) * self.wander
        return np.asarray(self.middle + t * (1.0 + rate) - offset, np.float64)

    def filtered(self, point: Floats, family: str = "") -> Floats:
        """Return what the kernel of a point makes of the reference, in its unit."""
        if family == TRIANGULAR and point[1] > METER_GRAIN * self.period:  # a narrower one is what a boxcar is
            return self.respond.triangle(self.at(point), float(point[1]))
        window, second, tau, at = float(point[1]), *sorted(point[2:4].tolist()), self.at(point)
        if second:
            second = second if abs(second / tau - 1.0) > SAME_SHARE else (1.0 - SAME_SHARE) * tau
            both = tau * self.respond(at, window, tau) - second * self.respond(at, window, second)
            return np.asarray(both / (tau - second), np.float64)
        if self.own_s is None:
            return self.respond(at, window, tau)
        # Of two boxcars in a row, one about the same middle with the variance of both.
        wide = np.hypot(self.own_s, window)
        return self.respond(at - (self.own_s + window - wide) / 2.0, np.asarray(wide, np.float64), tau)

    def shown(self, point: Floats) -> npt.NDArray[np.bool_]:
        """Whether the kernel of a point sees nothing, at each reading, that the reference does not know."""
        if not self.metered:  # of a load all is known
            return np.ones(len(self.y), np.bool_)
        wide = float(point[1]) if self.own_s is None else np.asarray(self.own_s + float(point[1]), np.float64)
        return self.reference.shows(self.at(point), wide, float(point[2]) + float(point[3]))

    def part(self, keep: slice[int, int, None] | npt.NDArray[np.bool_]) -> Problem:
        """Return the problem of some of the readings."""
        own = None if self.own_s is None else self.own_s[keep]
        return replace(self, t=self.t[keep], y=self.y[keep], wander=self.wander[keep], own_s=own)

    def unusual(self, fit: Fit) -> float:
        """Return how far a fit is from what sensors and loads have, in standard deviations.

        Against a meter that is the gain. Against the switching of a load it is the power between its blocks, above that
        at rest: clocks that are held let a card draw more than that, not less. Nothing if the gain may be any, as of
        means whose reference need not be in their units.
        """
        if self.metered and self.own_s is None:
            return math.log(max(fit.gain, 1e-9)) / _GAIN_SD
        if self.rest_w is None:
            return 0.0
        return ((fit.intercept - self.rest_w) / max(fit.gain, 1e-9) - _REST) / _REST_SD

    @property
    def rounded(self) -> Floats:
        """What was read, of which the least difference tells a resolution; nothing of means."""
        return self.y if self.own_s is None else self.y[:0]

    @property
    def wanders(self) -> bool:
        """Whether the phase was found to wander."""
        return bool(np.any(self.wander))


def plausible(gain: float) -> bool:
    """Whether a gain against a meter is one that a sensor may have."""
    return abs(math.log(max(gain, 1e-9))) < _PLAUSIBLE_SD * _GAIN_SD


def point_of(shape: Shape) -> Floats:
    """Return the parameters (see ``PARAMETERS``) of a fit that was described, widths on the reference's clock."""
    rate = shape.rate.value if shape.rate is not None else 0.0
    widths = [(1.0 + rate) * width.value if width is not None else 0.0 for width in (shape.window_s, shape.tau_s)]
    return np.array([shape.offset_s.value, *widths, 0.0, shape.wander, rate])


def ends(period_s: float, lead_s: float) -> tuple[float, float]:
    """Return the least and the greatest age of the end of a kernel, where clocks differ by up to ``lead_s``."""
    return -period_s - lead_s, 3.0 * period_s + _MAX_AGE_S + lead_s


def problem_of(
    updates: Updates, reference: PowerTrace, pivot_s: float | None = None, *, metered: bool, lead_s: float = 0.0
) -> Problem:
    """Return the problem of a series of updates; DeclinedError: too few of them, or constant power."""
    t, y = updates.t_s, updates.watts
    wander = np.zeros(len(t)) if updates.wander_s is None else updates.wander_s
    first, last = ends(updates.period_s, lead_s)
    if metered:
        inside = (t > reference.start_s) & (t < reference.end_s) & reference.known(t - last, t - first)
        t, y, wander = t[inside], y[inside], wander[inside]
    if len(t) < MIN_UPDATES:
        msg = (
            f"{amount(len(t), 'update lies', 'updates lie')} within the reference, too few for a kernel "
            f"({MIN_UPDATES} are needed)"
        )
        raise DeclinedError(msg)
    if float(np.ptp(y)) <= 0.0 or (robust_sd(np.diff(y)) == 0.0 and float(np.std(y)) < 1e-9):
        msg = "the power is constant: every kernel of unit area fits"
        raise DeclinedError(msg, load="use a load that varies")
    middle = float((t[0] + t[-1]) / 2.0) if pivot_s is None else pivot_s
    step = max(2e-4, METER_GRAIN * updates.period_s)
    cell = reference.cell_s if len(reference.rows_s) > 1 else 0.0  # of a load there may be one edge only
    row = cell / math.sqrt(12.0) if metered else 0.0
    return Problem(
        t - middle,
        y,
        wander,
        middle,
        Responder(reference),
        reference,
        cell,
        updates.period_s,
        updates.jitter_s,
        updates.shared_s,
        updates.drift,
        math.hypot(RATE_SD if metered else ONE_CLOCK_RATE, updates.drift),
        metered,
        step,
        math.hypot(updates.jitter_s, row),
        row,
        _noise(reference, step, cell) if cell else 0.0,
        (last - first) / 2.0,
        scattered=updates.aged_s > 0.0,
    )


def problem_of_means(edges_s: Floats, curve: PowerTrace, reference: PowerTrace, *, rate_sd: float) -> Problem:
    """Return the problem of a curve's means between instants, shape (n + 1,)."""
    watts = np.asarray(np.diff(np.interp(edges_s, curve.t_s, curve.joules)) / np.diff(edges_s), np.float64)
    middle = float(edges_s[0] + edges_s[-1]) / 2.0
    own = np.asarray(np.diff(edges_s), np.float64)
    period, cell = float(np.median(own)), reference.cell_s
    return Problem(
        np.asarray(edges_s[1:] - middle, np.float64),
        watts,
        wander=np.zeros(len(own)),
        middle=middle,
        respond=Responder(reference),
        reference=reference,
        cell=cell,
        period=period,
        jitter=0.0,
        common=0.0,
        drift=0.0,
        rate_sd=rate_sd,
        metered=True,
        step_s=period / 20.0,
        late_s=math.hypot(curve.late_s, reference.late_s),
        row_s=reference.late_s,
        noise=_noise(reference, period / 20.0, cell),
        reach_s=math.inf,
        own_s=own,
    )


def _noise(reference: PowerTrace, step_s: float, cell_s: float) -> float:
    """Return the spectral density of the noise on a reference, by how it bends over the steps of a derivative.

    Cells may be means of two samples each, so that neighbours err alike: two of them are the least that shows it.
    """
    grain = 2.0 * max(step_s, cell_s)
    bends = bend_sd(sampled(reference, reference.start_s, reference.end_s, grain))
    return grain * bends**2 if bends > 0.0 else 0.0


def linear(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted least squares of ``y`` on ``x``: gain, which is not negative, and intercept."""
    total = float(np.sum(weights))
    mean_x, mean_y = float(weights @ x) / total, float(weights @ y) / total
    off_x = x - mean_x
    spread = float(weights @ off_x**2)
    gain = float(weights @ (off_x * (y - mean_y))) / spread if spread > 0.0 else 0.0
    return max(gain, 0.0), mean_y - max(gain, 0.0) * mean_x


def polish(problem: Problem, family: str, point: Floats, weights: Floats, *, fixed: str = "") -> Fit:
    """Refine a fit: all of it, or all but the ``"offset"``, the ``"window"``, the ``"tau"`` or the ``"wander"``.

    One width is searched by its logarithm. Of two the variances are: at the same mean lag readings follow them evenly
    down to none, where a logarithm would go on without end.
    """
    named = widths_of(family)
    at = [PARAMETERS.index(name) for name in named]
    both, lagged = family == BOTH, family == BOTH and fixed != "offset"
    unit = max(spread_of(family, point), 1e-6) * np.array([math.sqrt(12.0), 1.0])

    def unpack(theta: Floats) -> Floats:
        out = np.array([theta[0], 0.0, 0.0, 0.0, theta[-2], theta[-1] * problem.rate_sd])
        out[at] = unit * np.sqrt(theta[1:-2]) if both else np.exp(np.clip(theta[1:-2], -16.0, 4.0))
        out[0] -= age_of(out) if lagged else 0.0
        return out

    offset = float(point[0]) + (age_of(point) if lagged else 0.0)
    widths = (point[at] / unit) ** 2 if both else np.log(np.maximum(point[at], 1e-6))
    start = np.array([offset, *widths, point[-2], point[-1] / problem.rate_sd])
    steps = np.array([problem.step_s, *[0.02 for _ in named], 0.1, 0.02])
    least = np.array([-math.inf, *[0.0 if both else -math.inf for _ in named], -math.inf, -math.inf])
    held = [fixed == name for name in ("offset", *named)]
    free = np.array([*np.logical_not(held), fixed != "wander" and problem.wanders, True])
    root = np.sqrt(weights)
    theta = start.copy()
    # A prior weighs as much as one residual, whose size the first round finds.
    for _ in range(2 if problem.metered or problem.rest_w is not None else 1):
        noise = math.sqrt(evaluate(problem, family, unpack(theta), weights).loss)

        def whole(moving: Floats) -> Floats:
            full = start.copy()
            full[free] = moving
            return np.asarray(full, np.float64)

        def residuals(moving: Floats, noise: float = noise) -> Floats:
            full = whole(moving)
            fit = evaluate(problem, family, unpack(full), weights)
            prior = np.array([(full[-2] - 1.0) / WANDER_SD, full[-1], problem.unusual(fit)])
            return np.append(root * fit.residuals, noise * prior)

        theta = whole(_least(residuals, theta[free], steps[free], least[free]))
    return evaluate(problem, family, unpack(theta), weights)


def _least(residuals: Callable[[Floats], Floats], start: Floats, steps: Floats, bounds: Floats) -> Floats:
    """Return the parameters of the least squares, none below its bound; derivatives are differences over ``steps``."""
    from scipy.optimize import least_squares

    tried: tuple[Floats, Floats] | None = None  # the derivatives are asked for where the residuals were last, or nearly

    def whole(at: Floats) -> Floats:
        nonlocal tried
        if tried is None or not np.array_equal(tried[0], at):
            tried = at.copy(), residuals(at)
        return tried[1]

    def jacobian(at: Floats) -> Floats:
        here = whole(at)
        return np.stack([residuals(at + step) - here for step in np.diag(steps)], axis=1) / steps

    found = least_squares(whole, start, jacobian, (bounds, math.inf), ftol=_ARRIVED, x_scale="jac", max_nfev=_ROUNDS)
    return np.where(found.active_mask < 0, bounds, found.x)  # what lies at its bound lies on it


def follow(problem: Problem, family: str, point: Floats, weights: Floats, capture_s: float) -> Fit:
    """Polish over longer and longer stretches: a clock is followed from where the readings tell most.

    A rate that is not known yet moves what is far away by more than ``capture_s``, from which a search finds its way;
    each stretch is as long as the rate found so far lets it be.
    """
    span, total = capture_s / problem.rate_sd, float(problem.t[-1] - problem.t[0])
    while span < total:
        ends = np.searchsorted(problem.t, problem.t + span)
        sums = np.cumsum([np.append(0.0, problem.y), np.append(0.0, problem.y**2)], axis=1)
        n = np.maximum(ends - np.arange(len(ends)), 1)
        first, second = sums[:, ends] - sums[:, :-1]
        begin = int(np.argmax((second - first**2 / n) * (problem.t + span <= problem.t[-1])))
        keep = slice(begin, int(ends[begin]))
        point, span = polish(problem.part(keep), family, point, weights[keep]).point, RATE_GROWTH * span
    return polish(problem, family, point, weights)


def evaluate(problem: Problem, family: str, point: Floats, weights: Floats) -> Fit:
    """Return the fit at parameters (see ``PARAMETERS``): gain and intercept are solved for."""
    x = problem.filtered(point, family)
    gain, intercept = linear(x, problem.y, weights)
    residuals = np.asarray(problem.y - gain * x - intercept, np.float64)
    loss = float(np.mean(weights * residuals**2))
    return Fit(family, point, gain, intercept, residuals, loss)
