"""Gradient and intercept of a sensor against a meter, from any trace: readings regressed on the filtered meter.

    reading = gain * (h * P)(u - offset) + intercept

With a wrong kernel the flanks of a load attenuate the gain, so updates at which the kernels still in question differ
count for less. Pure; powers are watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.characterisation.kernel import MIN_UPDATES, KernelFit, Shape
from pmtpy.analysis.signal.estimate import Z95, Estimate, huber_weights, robust_sd, rounding_error
from pmtpy.analysis.signal.trace import PowerTrace, Responder
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_SPAN = 30.0  # the meter's power must range over this many times the residuals, or the gain is mostly noise
_STRETCHES = 10
_CURVED = 4.0  # standard errors at which a quadratic term is called real ...
_BENT = 0.001  # ... and the share of the range below which it does not matter: at its ends it is several times this


@dataclass(frozen=True, slots=True)
class Transfer:
    """Steady-state gradient and intercept."""

    # ``reading = gain * power + intercept``. The intercept's interval allows for how far the board was off the line
    # for a while, by what it was doing.
    gain: Estimate
    intercept_w: Estimate
    # the true power at which the error of the gain does nothing, and the standard uncertainty of a reading there
    level_at_w: float
    level_u: float
    # Range of true power over which they were fitted. Nothing is known outside.
    low_w: float
    high_w: float
    # share of the variance explained, and the robust deviation of the residuals
    r2: float
    residual_w: float
    note: str = ""  # empty, or what is doubtful: residuals that bend with the power

    def power(self, reading_w: float) -> Estimate:
        """Return the true power behind a steady reading.

        Raises DeclinedError: the power lies outside the calibrated range by more than a tenth of it.
        """
        power = (reading_w - self.intercept_w.value) / self.gain.value
        margin = 0.1 * (self.high_w - self.low_w)
        if not self.low_w - margin <= power <= self.high_w + margin:
            msg = f"{power:.4g} W lies outside the calibrated range of {self.low_w:.4g} to {self.high_w:.4g} W"
            raise DeclinedError(msg)
        error = math.hypot((power - self.level_at_w) * self.gain.half_width / Z95, self.level_u)
        return Estimate.normal(power, error / self.gain.value)


def fit_line(x: Floats, y: Floats, *, weights: Floats | None = None, x_noise_w: float = 0.0) -> Transfer:
    """Regress ``y`` on ``x`` with Huber's weights on top of those given.

    Parameters
    ----------
    x, y : float64, shape (n,)
        True power and reading.
    x_noise_w : float
        Standard deviation of the noise in ``x``, which attenuates the gain by ``1 - noise^2 / var(x)``: undone.

    Raises DeclinedError: too few points, or a power that hardly varies.
    """
    given = np.ones(len(x)) if weights is None else weights
    if len(x) < MIN_UPDATES:
        msg = f"{len(x)} updates are too few for a gradient ({MIN_UPDATES} are needed)"
        raise DeclinedError(msg)
    design = np.stack([np.ones(len(x)), x - np.mean(x)], axis=1)
    w = given
    for _ in range(8):
        fit = np.linalg.lstsq(design * np.sqrt(w)[:, None], y * np.sqrt(w), rcond=None)[0]
        residuals = np.asarray(y - design @ fit, np.float64)
        w = given * huber_weights(np.asarray(residuals * np.sqrt(given), np.float64))
    sd = robust_sd(residuals)
    span = float(np.quantile(x, 0.98) - np.quantile(x, 0.02))
    if span < max(_SPAN * sd / math.sqrt(len(x)), 1e-9) or span < 0.02 * abs(float(np.mean(x))):
        msg = f"the power ranges over {span:.3g} W only: a gradient needs a load with two distinct levels"
        raise DeclinedError(msg)
    bread = np.linalg.inv((design * w[:, None]).T @ design)
    leverage = np.clip(np.sum((design @ bread) * design, axis=1) * w, 0.0, 0.95)
    scores = design * (w * residuals / np.sqrt(1.0 - leverage))[:, None]
    meat, freedom = _slow(np.asarray(scores, np.float64))
    uneven, even = bread @ meat @ bread, bread * float(np.sum(w * residuals**2)) / (float(np.sum(w)) - 2.0)
    spread = uneven if np.trace(uneven) > np.trace(even) else even
    kept = 1.0 - x_noise_w**2 / float(np.var(x))
    gain = float(fit[1]) / kept
    rounding, deviation = rounding_error(y, sd), float(np.std(x))
    bend = _bend(x, residuals, w)
    sd_gain = math.hypot(math.sqrt(spread[1, 1]), rounding / deviation, bend / deviation) / kept
    # Where the errors of gain and level do not come together. Off the line the board may be in another state too, which
    # no slope mends.
    mean, apart = float(np.mean(x)), float(spread[0, 1] / spread[1, 1])
    level = math.hypot(math.sqrt(max(spread[0, 0] - apart * spread[0, 1], 0.0)), rounding, bend)
    level = math.hypot(level, _off_line(residuals, given))
    at = mean - apart
    return Transfer(
        Estimate.normal(gain, sd_gain, freedom),
        Estimate.normal(float(fit[0]) - gain * mean, math.hypot(level, at * sd_gain), freedom),
        at,
        level,
        float(np.min(x)),
        float(np.max(x)),
        1.0 - float(np.sum(w * residuals**2) / np.sum(w * (y - np.average(y, weights=w)) ** 2)),
        sd,
        _note(bend),
    )


def _slow(scores: Floats) -> tuple[Floats, float]:
    """Return the covariance of the sum of scores in order of time, from their slow parts, and its degrees of freedom.

    A board is off its line by a watt for seconds, by what it is doing: how far shows in the slowest cosines of the
    scores and not from one update to the next. Their number is that of Lazarus, Lewis, Stock and Watson, HAR Inference,
    J. Business and Economic Statistics 36 (2018).
    """
    n = len(scores)
    many = max(round(0.4 * n ** (2.0 / 3.0)), 4)
    turns = np.pi * np.arange(1, many + 1)[:, None] * (np.arange(n) + 0.5) / n
    parts = math.sqrt(2.0) * np.cos(turns) @ scores
    return np.asarray(parts.T @ parts / many, np.float64), float(many)


def _off_line(residuals: Floats, weights: Floats) -> float:
    """How far stretches of a trace are off the line, beyond what the scatter within them explains: watts, standard.

    The stretches are a tenth of the readings, in order of time: a part of a second to seconds, in which a board idles,
    works or keeps its clocks up.
    """
    parts = np.array_split(np.arange(len(residuals)), _STRETCHES)
    means = np.array([np.average(residuals[p], weights=weights[p]) for p in parts])
    scatter = [
        float(np.average((residuals[p] - m) ** 2, weights=weights[p])) / len(p)
        for p, m in zip(parts, means, strict=True)
    ]
    return math.sqrt(max(float(np.mean(means**2)) - float(np.mean(scatter)), 0.0))


def _bend(x: Floats, residuals: Floats, w: Floats) -> float:
    """Return how much the residuals bend, at one standard deviation of the power; 0 where it hardly matters.

    A board that is off its line for a while, by what it is doing, is no bent sensor: the bend must stand out from how
    far the slow parts of the residuals are off.
    """
    z = (x - np.mean(x)) / max(float(np.std(x)), 1e-300)
    design = np.stack([np.ones(len(z)), z, z * z], axis=1)
    inverse = np.linalg.pinv((design * w[:, None]).T @ design)
    bend = inverse @ (design.T @ (w * residuals))
    left = residuals - design @ bend
    slow, _ = _slow(np.asarray(design * (w * left)[:, None], np.float64))
    even = float(np.average(residuals**2, weights=w)) * float(inverse[2, 2])
    error = math.sqrt(max(even, float((inverse @ slow @ inverse)[2, 2]), 1e-300))
    return float(bend[2]) if abs(bend[2]) >= max(_CURVED * error, _BENT * float(np.ptp(x))) else 0.0


def _note(bend: float) -> str:
    """Say so when the residuals are curved: then the load was not steady or the sensor is not linear."""
    if bend == 0.0:
        return ""
    return (
        f"a curved residual: the residuals bend by {bend:+.2g} W at a standard deviation of the power: "
        "the sensor is not linear or the load was not steady"
    )


def fit_transfer(updates: Updates, meter: PowerTrace, fit: KernelFit, pivot_s: float) -> Transfer:
    """Fit gradient and intercept of a trace whose kernel was fitted.

    Parameters
    ----------
    updates, meter
        The series of updates and the meter's curve, as they went into the fit of the kernel.
    fit : KernelFit
        The kernel, or the kernels in question.
    pivot_s : float
        The instant at which the two clocks agree, as in the fit of the kernel.

    Raises DeclinedError: too few updates, or a power that hardly varies.
    """
    inside = (updates.t_s > meter.start_s) & (updates.t_s < meter.end_s)
    t, y = updates.t_s[inside], updates.watts[inside]
    wander = np.zeros(len(t)) if updates.wander_s is None else updates.wander_s[inside]
    t = np.asarray(t + (fit.best.wander - 1.0) * wander, np.float64)
    respond = Responder(meter)
    x = _seen(respond, t, fit.best, pivot_s)
    doubt = np.max([np.abs(_seen(respond, t, shape, pivot_s) - x) for shape in fit.likely], axis=0)
    if fit.free is not None:  # none of the families is right
        rate = fit.best.rate.value if fit.best.rate is not None else 0.0
        x, doubt = fit.free.shown(meter, pivot_s + (t - pivot_s) * (1.0 + rate)), np.zeros(len(t))
    noise = max(fit.best.residual_w, 1e-6)
    line = fit_line(x, y, weights=np.asarray(noise**2 / (noise**2 + doubt**2), np.float64))
    # The fit of the kernel knows how far an error of its shape and time reaches into the gain; the line does not.
    gain = _at_least(line.gain, fit.best.gain.half_width)
    reach = math.hypot(Z95 * line.level_u, line.level_at_w * gain.half_width)
    return replace(line, gain=gain, intercept_w=_at_least(line.intercept_w, reach))


def _at_least(estimate: Estimate, half_width: float) -> Estimate:
    half = max(estimate.half_width, half_width)
    return Estimate(estimate.value, estimate.value - half, estimate.value + half)


def _seen(respond: Responder, t: Floats, shape: Shape, pivot_s: float) -> Floats:
    rate = shape.rate.value if shape.rate is not None else 0.0
    window = shape.window_s.value if shape.window_s is not None else 0.0
    tau = shape.tau_s.value if shape.tau_s is not None else 0.0
    at = pivot_s + (t - pivot_s) * (1.0 + rate) - shape.offset_s.value
    return respond(at, window * (1.0 + rate), tau * (1.0 + rate))
