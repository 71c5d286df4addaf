"""Gradient and intercept of a sensor against a meter, and how far a board is off that line by what it is doing.

    reading = gain * (h * P)(u - offset) + intercept + state

The state (idle, boost, clocks that are kept up) lasts for some time, so that a region which spans n of them has it by
one in root n. Where a kernel was fitted, its regression is the one that counts: it knows how far an error of shape and
time reaches into the gain. Pure; powers are watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.characterisation._covariance import MEMORIES_S, OFF_LINE
from pmtpy.analysis.characterisation._forward import METER_GRAIN, point_of, problem_of
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.signal.estimate import (
    SAME_SHARE,
    STANDS_OUT,
    STRAY,
    Z95,
    Estimate,
    huber_weights,
    robust_sd,
    rounding_error,
    written,
)
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import MIN_UPDATES, Updates
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_FASTEST_HZ = 0.5  # of what lasts: the fastest memory; what moves faster averages out in a region
_VARIANCES = np.geomspace(1e-4, 30.0, 16)  # of what lasts, in those of the residuals
_MEANS = 4  # short means in a long one
# Of a load's standard deviation: less of it that the sensor follows shows a gain by its kernel alone. Drawn squares
# without a rest have 0.001 to 0.04 (12 s, spreads of 0.3 and 0.5 s), telegraphs 0.15 and more, squares with a rest 0.5.
_MIN_FOLLOWED = 0.1
_LONGEST_PARTS = 2.5  # in a recording: what turns seldomer is a change in it, not a part of its rate
_MOST_CELLS = 2**18
_SAME_UNIT = 0.5  # no sensor shows less of the power, or as much more


@dataclass(frozen=True, slots=True)
class Transfer:
    """Steady-state gradient and intercept: ``reading = gain * power + intercept``."""

    gain: Estimate
    intercept_w: Estimate
    # the true power at which the error of the gain does nothing, and the standard uncertainty of the line there, in
    # watts of a reading
    level_at_w: float
    level_u: float
    # how far readings are off the line for a while, one standard deviation, and for how long
    state_w: float
    state_s: float
    r2: float  # share of the variance explained
    note: str = ""  # empty, or what is doubtful: another unit, residuals that bend with the power, a gain that drifts


@dataclass(frozen=True, slots=True)
class Points:
    """What a sensor showed beside what the reference would have shown, at instants in order."""

    t_s: Floats
    reference_w: Floats
    shown_w: Floats
    line: tuple[Estimate, Estimate]  # gain and offset of what was shown, by the fit that laid the two on each other
    doubt_w: float = 0.0  # standard uncertainty of all readings by what else the kernel may be
    premise: str = ""  # what the line is right by alone, where the load does not prove it


def of_means(points: Points) -> Points:
    """Return points with the line of longer means, which hang less on how either side smooths.

    Two curves that smooth otherwise differ on each flank, which bends a line through short means one way or the other,
    and errors of either side one way each: so it lies between the two regressions, and what these differ by, and by
    how much the line of the short means is another, is in its intervals.

    Raises DeclinedError: too few points, or such that do not vary.
    """
    whole = len(points.t_s) // _MEANS * _MEANS
    x, y = (np.mean(w[:whole].reshape(-1, _MEANS), axis=1) for w in (points.reference_w, points.shown_w))
    if len(x) < MIN_UPDATES:
        msg = (
            f"{amount(len(points.t_s), 'mean is', 'means are')} too few for a gradient ({_MEANS * MIN_UPDATES} are "
            "needed): record longer"
        )
        raise DeclinedError(msg)
    (xx, xy), (_, yy) = np.cov(x, y).tolist()
    if not min(xx, yy) > 0.0:
        msg = "the means of either side are alike, and show no gradient: use a load with two distinct levels"
        raise DeclinedError(msg)
    each = xy / xx, yy / max(xy, 1e-300)
    gain, (short, offset) = math.sqrt(max(each[0], 1e-300) * each[1]), points.line
    doubt = math.hypot(each[1] - each[0], gain - short.value)
    level = float(np.mean(x))
    found = Estimate.within(gain, math.hypot(short.half_width, doubt))
    intercept = float(np.mean(y)) - gain * level
    found_w = Estimate.within(intercept, math.hypot(offset.half_width, doubt * level))
    return replace(points, line=(found, found_w))


def line_of(points: Points) -> Transfer:
    """Return a line that was fitted with its kernel, and what the readings are off it.

    Raises DeclinedError: too few points, or a power that hardly varies.
    """
    (gain, intercept), t, x, y = points.line, points.t_s, points.reference_w, points.shown_w
    if len(x) < MIN_UPDATES:
        msg = f"{amount(len(x), 'update is', 'updates are')} too few for a gradient ({MIN_UPDATES} are needed)"
        raise DeclinedError(msg)
    if not gain.told:
        msg = (
            f"the power ranges over {float(np.ptp(x)):.3g} W, which shows the gradient as {written(gain)}: it needs "
            "a load with two distinct levels that does not keep step with the updates"
        )
        raise DeclinedError(msg)
    residuals = np.asarray(y - gain.value * x - intercept.value, np.float64)
    w = huber_weights(residuals)
    lasting_u, state_w, state_s = _lasting(t, x, residuals)
    rounding, deviation, bend = rounding_error(y, robust_sd(residuals)), float(np.std(x)), _bend(x, residuals, w)
    drift = _drift(t, x, residuals, w)
    # Of a gain that drifts it is not known which one will be met: one between its ends, or beyond.
    off = math.hypot(bend / deviation, drift)
    gain = gain.widened(Z95 * off)
    intercept = intercept.widened(Z95 * math.hypot(bend, off * float(np.mean(x))))
    # The line turns about the mean power, unless it hardly moves where there is none: kernels in question then show
    # other means of a load, and agree at its rest.
    turns_at = min(float(np.average(x, weights=w)), intercept.sd / max(gain.sd, 1e-300))
    level_u = math.hypot(lasting_u, rounding, bend, points.doubt_w)
    # The offset is known no better than the level that it is reckoned from.
    from_level = Z95 * math.hypot(level_u, gain.sd * turns_at)
    intercept = intercept.widened(math.sqrt(max(from_level**2 - intercept.half_width**2, 0.0)))
    return Transfer(
        gain,
        intercept,
        turns_at,
        level_u,
        state_w,
        state_s,
        _explained(y, residuals, w),
        "; ".join(filter(None, (points.premise, _units(gain.value), _note(bend, drift)))),
    )


def _explained(y: Floats, residuals: Floats, w: Floats) -> float:
    return 1.0 - float(np.sum(w * residuals**2) / np.sum(w * (y - np.average(y, weights=w)) ** 2))


def _slow(scores: Floats) -> Floats:
    """Return the covariance of the sum of scores in order of time, from their slow parts.

    A board is off its line by a watt for seconds, by what it is doing: how far shows in the slowest cosines of the
    scores and not from one update to the next. Their number is that of Lazarus, Lewis, Stock and Watson, HAR Inference,
    J. Business and Economic Statistics 36 (2018).
    """
    from scipy.fft import dct

    many = max(round(0.4 * len(scores) ** (2.0 / 3.0)), 4)
    parts = dct(scores, axis=0)[1 : many + 1] / math.sqrt(2.0)
    return np.asarray(parts.T @ parts / many, np.float64)


def _lasting(t_s: Floats, power: Floats, residuals: Floats) -> tuple[float, float, float]:
    """What readings are off a line for a while, by its residuals: watts of a reading.

    A line takes what lasts as long as the recording for its own, so that the residuals show less of it than there is.
    So each memory (Ornstein and Uhlenbeck) and each variance is weighed by how likely the slow cosines of the residuals
    are by it, whatever the gradient (Whittle's likelihood, restricted), and beforehand: a standard deviation may be
    none, and is hardly a multiple of what is published of boards (half of a Cauchy distribution [G06]).

    [G06] Gelman, Prior distributions for variance parameters in hierarchical models, Bayesian Analysis 1 (2006).

    Returns
    -------
    level_u : float
        Standard uncertainty of the line's level at the mean power of the recording.
    state_w, state_s : float
        One standard deviation, and for how long it is: so that the mean of ``seconds`` has
        ``state_w * sqrt(min(1, state_s / seconds))``.
    """
    from scipy.fft import dct

    n, lasted = len(t_s), float(t_s[-1] - t_s[0])
    jumps = np.diff(residuals)
    own = max(float(np.mean((huber_weights(jumps, STRAY) * jumps) ** 2)) / 2.0, 1e-300)
    expected = max((OFF_LINE * float(np.ptp(power))) ** 2, 1e-300)
    many = int(np.clip(2.0 * _FASTEST_HZ * lasted, 6, n - 1))
    left, load = (dct(x, norm="ortho")[1 : many + 1] for x in (residuals, power))
    memories, turns = np.array(MEMORIES_S), np.pi * np.arange(1, many + 1) / n
    kept = np.exp(-lasted / (n - 1) / memories)[:, None]
    shape = (1.0 - kept**2) / (1.0 + kept**2 - 2.0 * kept * np.cos(turns))
    slow = _VARIANCES * max(float(np.mean(residuals**2)), expected)
    density = own + slow[None, :, None] * shape[:, None, :]
    loads = np.sum(load**2 / density, axis=2) + 1e-300
    misfit = np.sum(left**2 / density, axis=2) - np.sum(left * load / density, axis=2) ** 2 / loads
    likely = -0.5 * (np.sum(np.log(density), axis=2) + misfit + np.log(loads))
    share = np.exp(likely - np.max(likely)) * np.sqrt(slow) / (1.0 + slow / expected)
    share *= slow / np.sum(share)  # of the variance, by memory and size
    variance, spans = float(np.sum(share)), lasted / memories
    # of the mean over the recording, and summed over all time
    mean = float(np.sum(share * (2.0 / spans * (1.0 + np.expm1(-spans) / spans))[:, None]))
    return math.sqrt(own / n + mean), math.sqrt(variance), 2.0 * float(np.sum(share * memories[:, None])) / variance


def _part_of(column: Floats, beside: tuple[Floats, ...], residuals: Floats, w: Floats) -> float:
    """Return how much of a column, beside others, residuals hold for sure: 0 of one that does not stand out.

    A board that is off its line for a while, by what it is doing, is no bent sensor and no drifting one: the part must
    stand out from how far the slow parts of the residuals are off.
    """
    design = np.stack([np.ones(len(column)), *beside, column], axis=1)
    inverse = np.linalg.pinv((design * w[:, None]).T @ design)
    parts = inverse @ (design.T @ (w * residuals))
    left = residuals - design @ parts
    slow = _slow(np.asarray(design * (w * left)[:, None], np.float64))
    even = float(np.average(residuals**2, weights=w)) * float(inverse[-1, -1])
    error = math.sqrt(max(even, float((inverse @ slow @ inverse)[-1, -1]), 1e-300))
    return float(parts[-1]) if abs(parts[-1]) >= STANDS_OUT * error else 0.0


def _bend(x: Floats, residuals: Floats, w: Floats) -> float:
    """Return how much the residuals bend, at one standard deviation of the power; 0 where it hardly matters."""
    z = (x - np.mean(x)) / max(float(np.std(x)), 1e-300)
    bend = _part_of(z * z, (z,), residuals, w)
    return bend if abs(bend) >= SAME_SHARE * float(np.ptp(x)) else 0.0


def _drift(t_s: Floats, x: Floats, residuals: Floats, w: Floats) -> float:
    """Return by how much the gain is more at the end of a recording than in its middle; 0 where it hardly matters.

    A level that drifts is what lasts, and no gain.
    """
    z = x - np.mean(x)
    late = 2.0 * (t_s - t_s[0]) / max(float(t_s[-1] - t_s[0]), 1e-300) - 1.0
    drift = _part_of(z * late, (z, late), residuals, w)
    return drift if abs(drift) >= SAME_SHARE else 0.0


def _note(bend: float, drift: float) -> str:
    """Say so when residuals are curved, or grow: then the sensor is no line, or the load was not steady."""
    said = []
    if bend:
        said.append(
            f"a curved residual: the residuals bend by {bend:+.2g} W at a standard deviation of the power: "
            "the sensor is not linear or the load was not steady"
        )
    if drift:
        said.append(
            f"the gain drifts: it is {200.0 * drift:+.2g} % more at the end of the recording than at its beginning; "
            "record again once sensor and meter are warm"
        )
    return "; ".join(said)


def _units(gain: float) -> str:
    """Say so if a gain is that of one sensor in milliwatts beside another in watts, or none that a sensor has."""
    thousands = round(math.log10(gain) / 3.0) if gain > 0.0 else 0
    if not _SAME_UNIT <= gain / 1e3**thousands <= 1.0 / _SAME_UNIT:
        return (
            f"it shows {gain:.2g} times what the reference shows, as no sensor does of a power that both see: one "
            "of them sees another part of the machine, or the load keeps step with the updates"
        )
    if not thousands:
        return ""
    times = f"{1e3**thousands:,.0f} times" if thousands > 0 else f"1/{1e3**-thousands:,.0f} of"
    return f"it shows about {times} what the reference shows: one of them is not in watts but, say, in milliwatts"


def points_of(updates: Updates, meter: PowerTrace, fit: KernelFit, pivot_s: float) -> Points:
    """Return readings beside what the kernel that was fitted to them makes of a meter.

    Those are left out at which a kernel in question sees anything of which the meter knows nothing.

    Parameters
    ----------
    updates, meter
        The series of updates and the meter's curve, as they went into the fit of the kernel.
    fit : KernelFit
        The kernel, or the kernels in question.
    pivot_s : float
        The instant at which the two clocks agree, as in the fit of the kernel.

    Raises DeclinedError: too few updates, or a power that does not vary.
    """
    problem = problem_of(updates, meter.thinned(METER_GRAIN * updates.period_s), pivot_s, metered=True)
    best, *shapes = (point_of(shape) for shape in (fit.best, *fit.shapes))
    problem = problem.part(np.all([problem.shown(point) for point in (best, *shapes)], axis=0))
    doubt = 0.0
    if fit.free is not None:  # none of the families is right
        x = fit.free.shown(problem.reference, problem.at(best) + float(best[0]))
    else:
        x, share = problem.filtered(best), dict(fit.odds)
        # Of a load that keeps step with the updates each kernel sees another share.
        apart = [float(np.mean(problem.filtered(point) - x)) for point in shapes]
        each = zip(fit.shapes, apart, strict=True)
        doubt = fit.best.gain.value * math.sqrt(sum(share.get(s.family, 0.0) * off * off for s, off in each))
    t = problem.middle + problem.t
    return Points(t, x, problem.y, (fit.best.gain, fit.best.intercept_w), doubt, _premise(meter, t, fit))


def _premise(meter: PowerTrace, t_s: Floats, fit: KernelFit) -> str:
    """Say that the gain hangs on the shape of the kernel, where no part of the load is slow enough to be followed.

    All kernels of unit sum and one spread ``s`` of ages show what turns slower than ``1/(2 pi s)`` nearly alike, and
    of what is faster each another share.
    """
    spread = fit.spread.value
    begin, end = max(float(t_s[0]), meter.start_s), min(float(t_s[-1]), meter.end_s)
    cell = max(min(float(np.median(np.diff(t_s))), spread) / 2.0, (end - begin) / _MOST_CELLS)
    power = np.diff(np.interp(np.arange(begin, end, cell), meter.t_s, meter.joules)) / cell
    turns = np.abs(np.fft.rfft(power - np.mean(power))) ** 2  # untapered: a rest is at the ends
    hertz = np.fft.rfftfreq(len(power), cell)
    followed_hz = max(1.0 / (2.0 * math.pi * max(spread, 1e-12)), _LONGEST_PARTS / (end - begin))
    if float(np.sum(turns[hertz < followed_hz])) >= _MIN_FOLLOWED**2 * float(np.sum(turns)):
        return ""
    named = f"the {fit.family} that was fitted" if fit.family != AMBIGUOUS else "one of those that were fitted"
    kernel = named if fit.free is None else "the one of free shape"
    return (
        f"no part of the load is slow enough for the sensor to follow: gain and offset are right only if its kernel is "
        f"{kernel}, which such a load does not prove; record some rest before it, or a load that is not regular"
    )
