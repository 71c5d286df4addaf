"""How a sensor weighs the past: the response kernel, fitted against a reference curve.

    y_k = gain * (h * P)(u_k - offset) + intercept

with ``h`` a boxcar, a one-pole filter, or one after the other. Gain and intercept are solved inside (variable
projection), so only shape and time are searched. The reference is a meter, whose clock may be off by an offset and a
rate, or the switching instants of a load, whose two levels are then unknown. What the data cannot tell apart is
called ambiguous; docs/characterise.md has the formulas, the sources and the traps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.curve import Curve, Responder
from pmtpy.analysis.estimate import Estimate, huber_weights, minimise, robust_sd, rounding_error
from pmtpy.analysis.series import Updates
from pmtpy.analysis.shapes import AMBIGUOUS, BOTH, BOXCAR, CLEAR_RATIO, ONE_POLE, KernelFit, Shape
from pmtpy.analysis.spread import Spread
from pmtpy.errors import DeclinedError
from pmtpy.model import Floats

MIN_UPDATES = 20
_RATE_SD = 1.5e-3  # clock rates of one meter differed by 0.1 % between sessions
_GAIN_METER = (0.7, 1.4)  # against a meter in the same circuit: breaks the tie between a window and its aliases
_MIN_R2 = 0.8


@dataclass(frozen=True, slots=True)
class _Problem:
    """Updates against a reference: times relative to the pivot, readings, response."""

    t: Floats
    y: Floats
    middle: float
    respond: Responder
    period: float
    jitter: float
    drift: float
    rate_sd: float  # how far the reference's clock may run from that of the updates, relative
    metered: bool

    @property
    def gains(self) -> tuple[float, float]:
        """Between which the gain must lie: near 1 for a meter in the same circuit, else anything above 0."""
        return _GAIN_METER if self.metered else (0.0, math.inf)

    def filtered(self, window: float, tau: float, offset: float, rate: float = 0.0) -> Floats:
        return self.respond(self.middle + self.t * (1.0 + rate) - offset, window, tau)


def fit_kernel(
    updates: Updates,
    reference: Curve,
    *,
    metered: bool,
    lead_s: float = 0.0,
    pivot_s: float | None = None,
    rate_sd: float | None = None,
) -> KernelFit:
    """Fit the response kernel.

    Parameters
    ----------
    updates : Updates
        The series of updates, on the host's clock.
    reference : Curve
        The meter's power, or the load (0 and 1), on nearly the same clock.
    metered : bool
        Whether the reference is a meter in watts: then its clock rate is fitted too, and the gain must be plausible.
    lead_s : float
        How far the two clocks may differ, beyond an update either way.
    pivot_s : float, optional
        The instant at which the two clocks agree; None: the middle of the updates. The offset is that of this instant.
    rate_sd : float, optional
        Standard deviation of the reference's rate, relative; None: 0.15 % for a meter, none for a load.

    Raises
    ------
    DeclinedError
        Too few updates in the reference; constant power; a reference that does not explain the readings; a load
        whose period nearly equals the update period.
    """
    problem = _problem(updates, reference, pivot_s, metered=metered)
    if rate_sd is not None:
        problem = replace(problem, rate_sd=math.hypot(rate_sd, updates.drift, 1e-6))
    if not metered:
        _refuse_synchronous(reference, updates)
    rough = replace(problem, respond=Responder(reference.thinned(updates.period_s / 20.0)))
    centre = _coarse_lag(rough, lead_s)
    seeds = {family: _seeds(rough, family, centre) for family in (BOXCAR, ONE_POLE, BOTH)}
    even = np.ones(len(problem.y))
    fits = [_polish(problem, family, seed, even) for family, found in seeds.items() for seed in found]
    best = min(fits, key=lambda f: f.loss)
    r2 = 1.0 - float(np.mean(best.residuals**2)) / float(np.var(problem.y)) if best.loss < math.inf else 0.0
    if r2 < _MIN_R2:
        msg = (
            f"the reference explains only {100 * max(r2, 0.0):.0f} % of the variance of the readings: another device, "
            "another time, a load that is not flat, or a window that a load of this period does not show"
        )
        raise DeclinedError(msg)
    # One set of weights, from the best fit of all: with weights of its own each fit would forgive itself just those
    # few updates on a flank by which it could be told from the others.
    weights = huber_weights(best.residuals)
    fits = [_polish(problem, f.family, f.point, weights) for f in fits]
    fits = [f for f in fits if f.loss < math.inf]
    found = [min((f for f in fits if f.family == family), key=lambda f: f.loss) for family in {f.family for f in fits}]
    fit = _choose(tuple(_describe(problem, f, weights) for f in found), len(problem.y))
    return _with_doubt(fit, fits)


def _problem(updates: Updates, reference: Curve, pivot_s: float | None = None, *, metered: bool) -> _Problem:
    t, y = updates.t_s, updates.watts
    if metered:
        inside = (t > reference.start_s) & (t < reference.end_s)
        t, y = t[inside], y[inside]
    if len(t) < MIN_UPDATES:
        msg = f"{len(t)} updates lie within the reference, too few for a kernel ({MIN_UPDATES} are needed)"
        raise DeclinedError(msg)
    if float(np.ptp(y)) <= 0.0 or (robust_sd(np.diff(y)) == 0.0 and float(np.std(y)) < 1e-9):
        msg = "the power is constant: every kernel of unit area fits; use a load that varies"
        raise DeclinedError(msg)
    middle = float((t[0] + t[-1]) / 2.0) if pivot_s is None else pivot_s
    return _Problem(
        t - middle,
        y,
        middle,
        Responder(reference),
        updates.period_s,
        updates.jitter_s,
        updates.drift,
        math.hypot(_RATE_SD if metered else 1e-6, updates.drift),
        metered=metered,
    )


def _refuse_synchronous(load: Curve, updates: Updates) -> None:
    """Decline a regular load that beats with the updates less than twice in the recording."""
    on = load.t_s[1:-1:2]
    if len(on) < 8:
        return
    period = float(np.median(np.diff(on)))
    regular = robust_sd(np.asarray(np.diff(on), np.float64)) < 0.02 * period
    beats = float(on[-1] - on[0]) * abs(1.0 / updates.period_s - round(period / updates.period_s or 1) / period)
    if regular and round(period / updates.period_s) <= 1 and beats < 2.0:
        msg = (
            f"the load's period, {1e3 * period:.4g} ms, is too near the update period, {1e3 * updates.period_s:.4g} "
            "ms: every update sees the same part of the load; use another period, or a pseudo-random load"
        )
        raise DeclinedError(msg)


# --- search ---


def _correlations(problem: _Problem, window: float, tau: float, offsets: Floats) -> Floats:
    """Correlation of the readings with the response, for each offset; -1 where the gain is not plausible."""
    x = problem.respond(problem.middle + problem.t - offsets[:, None], window, tau)
    x = x - np.mean(x, axis=1, keepdims=True)
    y = problem.y - np.mean(problem.y)
    square, product = np.sum(x * x, axis=1), x @ y
    low, high = problem.gains
    plausible = (product > low * square) & (product < high * square)
    return np.asarray(np.where(plausible, product / np.sqrt(np.maximum(square, 1e-300) * (y @ y)), -1.0), np.float64)


def _coarse_lag(problem: _Problem, lead: float) -> float:
    """Mean lag at which a window of one update period fits best; lags up to 1.5 s are looked at."""
    step = problem.period / 8.0
    offsets = np.arange(-lead - problem.period, lead + 1.5 + problem.period, step)
    best = offsets[np.argmax(_correlations(problem, problem.period, 0.0, offsets))]
    return float(best + problem.period / 2.0)


def _shapes_to_try(period: float, family: str) -> list[tuple[float, float]]:
    # Evenly spaced above one period: what a window shows of a regular load turns with every period of the load.
    windows = period * np.concatenate([np.geomspace(0.06, 1.0, 36), np.arange(1.08, 16.0, 0.08)])
    taus = period * np.geomspace(0.04, 12.0, 36)
    if family == BOXCAR:
        return [(float(w), 0.0) for w in windows]
    if family == ONE_POLE:
        return [(0.0, float(x)) for x in taus]
    return [(float(w), float(x)) for x in taus[::4] for w in windows[::3]]


def _seeds(problem: _Problem, family: str, centre: float) -> list[Floats]:
    """Return the best local optima of the correlation over shape and offset: (offset, window, tau, rate 0)."""
    thin = max(1, len(problem.t) // 400)
    small = replace(problem, t=problem.t[::thin], y=problem.y[::thin])
    tried = []
    for window, tau in _shapes_to_try(problem.period, family):
        reach = 0.75 * problem.period + 0.25 * (window + tau)
        offsets = centre - window / 2.0 - tau + np.linspace(-reach, reach, 41)
        r = _correlations(small, window, tau, offsets)
        i = int(np.argmax(r))
        tried.append((float(r[i]), float(offsets[i]), window, tau))
    if family == BOTH:
        top = sorted(tried, reverse=True)[:1]
    else:
        r = np.array([-1.0, *(t[0] for t in tried), -1.0])
        peaks = np.flatnonzero((r[1:-1] >= r[:-2]) & (r[1:-1] > r[2:]))
        top = sorted((tried[i] for i in peaks), reverse=True)[:4] or tried[:1]
    return [np.array([*t[1:], 0.0]) for t in top if t[0] > 0.9 * top[0][0] or t is top[0]]


# --- local fit ---


@dataclass(frozen=True, slots=True)
class _Fit:
    family: str
    point: Floats  # offset, window, tau, rate
    gain: float
    intercept: float
    residuals: Floats
    loss: float


def _linear(x: Floats, y: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted least squares of ``y`` on ``x``: gain and intercept."""
    total = float(np.sum(weights))
    mean_x, mean_y = float(weights @ x) / total, float(weights @ y) / total
    spread = float(weights @ (x - mean_x) ** 2)
    gain = float(weights @ ((x - mean_x) * (y - mean_y))) / spread if spread > 0.0 else 0.0
    return gain, mean_y - gain * mean_x


def _unpack(problem: _Problem, family: str, theta: Floats) -> tuple[float, float, float, float]:
    """Offset, window, tau, rate of a vector of search parameters (logarithms of widths, so they stay positive)."""
    widths = np.exp(np.clip(theta[1 : 3 if family == BOTH else 2], -16.0, 4.0))
    window = float(widths[0]) if family != ONE_POLE else 0.0
    tau = float(widths[-1]) if family != BOXCAR else 0.0
    return float(theta[0]), window, tau, float(theta[-1]) * problem.rate_sd


def _polish(problem: _Problem, family: str, point: Floats, weights: Floats) -> _Fit:
    """Refine a fit."""
    offset, window, tau, rate = (float(p) for p in point)
    widths = {BOXCAR: [window], ONE_POLE: [tau], BOTH: [window, tau]}[family]
    theta = np.array([offset, *np.log(np.maximum(widths, 1e-6)), rate / problem.rate_sd])
    steps = np.array([max(2e-4, problem.period / 200.0), *[0.02 for _ in widths], 0.02])
    root = np.sqrt(weights)
    for _ in range(2):  # the prior of the rate weighs as much as one residual, whose size the first round finds
        noise = math.sqrt(float(np.mean(weights * _evaluate(problem, family, theta, weights).residuals ** 2)))

        def residuals(moving: Floats, noise: float = noise) -> Floats:
            return np.append(root * _evaluate(problem, family, moving, weights).residuals, noise * moving[-1])

        theta, _ = minimise(residuals, theta, steps)
    return _evaluate(problem, family, theta, weights)


def _evaluate(problem: _Problem, family: str, theta: Floats, weights: Floats) -> _Fit:
    offset, window, tau, rate = _unpack(problem, family, theta)
    x = problem.filtered(window, tau, offset, rate)
    gain, intercept = _linear(x, problem.y, weights)
    residuals = np.asarray(problem.y - gain * x - intercept, np.float64)
    low, high = problem.gains
    loss = float(np.mean(weights * residuals**2)) if low < gain < high else math.inf
    return _Fit(family, np.array([offset, window, tau, rate]), gain, intercept, residuals, loss)


# --- description ---


def _describe(problem: _Problem, fit: _Fit, weights: Floats) -> Shape:
    """Return the fit with its intervals, from the sandwich covariance of all its parameters."""
    offset, window, tau, rate = (float(p) for p in fit.point)
    # The width is that of the reference's clock; on the readings' clock it is shorter by what the reference gains.
    names = ["offset", *(["window"] if window > 0 else []), *(["tau"] if tau > 0 else []), "rate"]
    values = {"offset": offset, "window": window, "tau": tau, "rate": rate}
    columns = []
    for name in names:
        span = {"offset": max(2e-4, problem.period / 200.0), "rate": 0.02 * problem.rate_sd}.get(
            name, 0.02 * values[name]
        )
        up, down = ({**values, name: values[name] + sign * span} for sign in (1.0, -1.0))
        moved = [problem.filtered(v["window"], v["tau"], v["offset"], v["rate"]) for v in (up, down)]
        columns.append(fit.gain * (moved[0] - moved[1]) / (2.0 * span))
    x = problem.filtered(window, tau, offset, rate)
    design = np.stack([x, np.ones(len(x)), *columns], axis=1)
    late = problem.jitter * columns[0]
    spread = Spread.of(design, fit.residuals, weights, prior_sd=problem.rate_sd, late=np.asarray(late, np.float64))
    names = ["gain", "intercept", *names]

    def estimate(value: float, parts: dict[str, float], known: float = 0.0) -> Estimate:
        sd = spread.deviation(np.array([parts.get(name, 0.0) for name in names]))
        return Estimate.normal(value, math.hypot(sd, known), max(len(x) - len(names), 2))

    rounding = rounding_error(problem.y, robust_sd(fit.residuals))
    mean, deviation = float(np.mean(x)), max(float(np.std(x)), 1e-300)

    return Shape(
        fit.family,
        estimate(window / (1.0 + rate), {"window": 1.0}) if window > 0 else None,
        estimate(tau / (1.0 + rate), {"tau": 1.0}) if tau > 0 else None,
        estimate(offset, {"offset": 1.0}, problem.jitter),
        estimate(window / 2 + tau + offset, {"offset": 1.0, "window": 0.5, "tau": 1.0}, problem.jitter),
        estimate(rate, {"rate": 1.0}, problem.drift) if problem.metered else None,
        estimate(fit.gain, {"gain": 1.0}, rounding / deviation),
        estimate(fit.intercept, {"intercept": 1.0}, rounding * math.hypot(1.0, mean / deviation)),
        fit.loss,
        robust_sd(fit.residuals),
        1.0 - float(np.mean(fit.residuals**2)) / float(np.var(problem.y)),
    )


# --- choice ---


def _choose(shapes: tuple[Shape, ...], n: int) -> KernelFit:
    """Return the simplest family that no other beats clearly, or say that the simple ones cannot be told apart."""
    shapes = tuple(sorted(shapes, key=lambda s: s.loss))
    singles = [s for s in shapes if s.family != BOTH]
    both = [s for s in shapes if s.family == BOTH]
    best = singles[0] if singles else both[0]
    if both and best.loss > CLEAR_RATIO * both[0].loss:
        return KernelFit(BOTH, both[0], shapes, best.loss / max(both[0].loss, 1e-30), n)
    ratio = singles[1].loss / max(best.loss, 1e-30) if len(singles) > 1 else math.inf
    if ratio >= CLEAR_RATIO:
        return KernelFit(best.family, best, shapes, ratio, n)
    reason = f"{_name(singles[0])} and {_name(singles[1])} fit nearly equally (losses differ by a factor {ratio:.2g})"
    return KernelFit(AMBIGUOUS, best, shapes, ratio, n, reason + "; use a pseudo-random load")


def _name(shape: Shape) -> str:
    width = shape.window_s or shape.tau_s
    return f"a {shape.family}" + (f" of {1e3 * width.value:.3g} ms" if width else "")


def _with_doubt(fit: KernelFit, fits: list[_Fit]) -> KernelFit:
    """Call the fit ambiguous if quite another width fits nearly as well, or any; then widen what depends on it."""
    best = fit.best
    reason = fit.reason or _doubt(best, fits)
    if not reason:
        return fit
    near = [f for f in fits if f.loss < CLEAR_RATIO * best.loss]

    def spanned(estimate: Estimate, others: list[float]) -> Estimate:
        return replace(estimate, low=min(estimate.low, *others), high=max(estimate.high, *others))

    best = replace(
        best,
        gain=spanned(best.gain, [f.gain for f in near]),
        intercept_w=spanned(best.intercept_w, [f.intercept for f in near]),
        lag_s=spanned(best.lag_s, [float(f.point[0] + f.point[1] / 2.0 + f.point[2]) for f in near]),
    )
    return replace(fit, family=AMBIGUOUS, best=best, reason=reason)


def _doubt(best: Shape, fits: list[_Fit]) -> str:
    width = best.window_s or best.tau_s
    if width is None:
        return ""
    value, spread = width.value, width.half_width
    if spread > 0.5 * value:
        return (
            f"the data fix the width of the kernel only to {1e3 * value:.3g} +/- {1e3 * spread:.2g} ms: the load is "
            "too slow or too weak for it; use a pseudo-random load"
        )
    for rival in (f for f in fits if f.family == best.family and f.loss < CLEAR_RATIO * best.loss):
        other = float(rival.point[1] or rival.point[2])
        if abs(other - value) > max(0.15 * value, spread):
            return (
                f"kernels {1e3 * value:.3g} and {1e3 * other:.3g} ms wide fit nearly equally: a regular load hides the "
                "difference; use a pseudo-random load, an uneven duty cycle or several periods"
            )
    return ""
