"""Two levels of a load behind readings that filter it, from the stamps of when it was on. Pure; seconds, watts.

The readings are those of a load that is low or high, with what is known beforehand of the rest:

    y_k = low + rise * (h * s)(u_k - delay)        s: 1 while the load is on, and 0 else

The load is on for less than its stamps say (``early``), the readings are later than the profile says (``late``), and
the kernel is wider (``wide``). Readings that see many phases of the load decide all three; those that see few cannot
tell a longer load from a stronger one, and then the interval has what was known beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.signal.response import Response
from pmtpy.analysis.uncertainty.budget import COVERAGE_FACTOR, student_95
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats

_FEW = 10  # updates that a regression of two levels needs
_WIDER = (0.0, 0.5, 1.5, 3.5)  # how far beyond the interval, either way, in its lengths, readings are taken as well ...
_PAUSE = 3.0  # longest time between two switches inside, beyond which a load that is not switched has paused
_SETTLING_S = 1.0  # of a load that begins: left out, as the published method does (Yang et al., about 9 s runs)
_ENOUGH = 0.003  # ... until the energy is known to this share
# How much shorter a load is on than its stamps say: 0.7 ms under the recorded square wave; 14 to 37 ms of 6 s, since
# the blocks of a kernel end unevenly (docs/corrections.md). Root mean square; never longer: stamps enclose it.
_EARLY_S, _EARLY_SHARE = 7e-4, 0.005
LATE_S = 9e-4  # rows are stamped 3 to 6 ms before they are read, not alike in every session: that range over sqrt(12)
_WIDE = (1e-3, 0.25)  # error of the kernel's width: below it is nothing, above its derivative says nothing of it
_STEPS = np.array([1e-4, 1e-4, 5e-3])  # of early, late, wide, for derivatives: well below any kernel
_ROUNDS = 8  # of Gauss and Newton
_UNSEEN = 3.0  # a load that was never shown may be so many times what was: a board idles at some tenth of its limit
_FORMER = 4.0  # readings on a flank that the usual jitter of switches counts for
_SETTLED = 0.03  # standard uncertainties below which a step is none
_FAR = 3.0  # standard deviations of what was known beforehand that a step may not leave


@dataclass(frozen=True, slots=True)
class Levels:
    """A load's two levels, and when it really was on.

    Attributes
    ----------
    low_w, rise_w : float
        Power between the parts of the load, and how much more it is in them.
    timing : float64, shape (3,)
        Seconds by which the load ends earlier than its stamps say, seconds by which readings are late, and the width
        of the kernel over that of the profile, less 1.
    covariance : float64, shape (5, 5)
        Of all five.
    stretch_s : float
        How long the stretch around the interval is of which readings were used; 0: the interval alone.
    off_w : float
        Standard uncertainty of how far the readings inside are off the fit, where those around were used.
    told : bool
        Whether the readings differ enough to tell the two levels apart.
    """

    low_w: float
    rise_w: float
    timing: Floats
    covariance: Floats
    stretch_s: float
    off_w: float
    told: bool

    def shown(self, t_s: Floats, response: Response, load: LoadIntervals) -> Floats:
        """Return what the sensor would show of the load alone, 1 when on, at ``t_s``."""
        return _seen(t_s, response, load, self.timing)

    def columns(self, t_s: Floats, response: Response, load: LoadIntervals) -> Floats:
        """Return the derivatives of the readings with respect to the five; shape (n, 5)."""
        return _columns(t_s, response, load, (self.rise_w, self.timing))

    def shares(self, load: LoadIntervals, start_s: float, end_s: float) -> Floats:
        """Return the derivatives of the energy of an interval with respect to the five."""
        early, step = float(self.timing[0]), float(_STEPS[0])
        at = [load.ending(early + by).share(start_s, end_s) for by in (-step, 0.0, step)]
        return np.array([end_s - start_s, at[1], self.rise_w * (at[2] - at[0]) / (2.0 * step), 0.0, 0.0])

    def energy(self, load: LoadIntervals, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the energy of an interval and its standard uncertainty, gain and offset aside."""
        shares = self.shares(load, start_s, end_s)
        fitted = math.sqrt(max(0.0, float(shares @ self.covariance @ shares)))
        joules = self.low_w * float(shares[0]) + self.rise_w * float(shares[1])
        return joules, math.hypot(fitted, self.off_w * (end_s - start_s))


def fit_levels(
    t_s: Floats, watts: Floats, response: Response, load: LoadIntervals, *, start_s: float, end_s: float, telling: float
) -> Levels | None:
    """Fit the levels to the readings in an interval, or to those around it as well if the energy is better known so.

    None where there are fewer than 10 readings, or the load is never switched.
    """
    if not load.switches(start_s, end_s):
        return None
    length, best, least = end_s - start_s, None, math.inf
    first, last = _alike(load, start_s, end_s)
    seen_s, power = t_s - response.lag_s, response.power(watts)
    for widened in _WIDER:
        reach = widened * length
        low, high = max(start_s - reach, first), min(end_s + reach, last)
        near = (seen_s >= low) & (seen_s < high) & response.knows(load, t_s)
        if np.count_nonzero(near) < _FEW:
            continue
        levels = _fit(t_s[near], power[near], response, load, telling)
        if widened:
            inside = (seen_s >= start_s) & (seen_s < end_s)
            levels = _kept_to(levels, t_s[inside], power[inside], response, load)
            levels = replace(levels, stretch_s=min(high, load.until_s) - max(low, load.since_s))
        joules, u = levels.energy(load, start_s, end_s)
        if u < least:
            best, least = levels, u
        if u < _ENOUGH * abs(joules):
            break
    return best


def _alike(load: LoadIntervals, start_s: float, end_s: float) -> tuple[float, float]:
    """Return the stretch around an interval in which the load goes on as inside: no long pause, nor its first second.

    A board idles at another power than between two parts of a load, and its clocks and temperature rise at first.
    """
    edges = load.edges
    inside = edges[(edges > start_s) & (edges < end_s)]
    long = _PAUSE * float(np.max(np.diff(inside, prepend=start_s, append=end_s)))
    pauses = np.flatnonzero(np.diff(edges, prepend=-math.inf, append=math.inf) > long)  # before edge i
    begins = edges[pauses[pauses < len(edges)]]
    ends = edges[pauses[pauses > 0] - 1]
    first = float(np.max(begins[begins <= start_s], initial=-math.inf)) + _SETTLING_S
    last = float(np.min(ends[ends >= end_s], initial=math.inf))
    return (min(first, start_s) if math.isfinite(first) else start_s), (last if math.isfinite(last) else end_s)


def _kept_to(levels: Levels, t: Floats, power: Floats, response: Response, load: LoadIntervals) -> Levels:
    """Let a fit to more than the interval leave no mean in the readings of the interval, where these are enough."""
    residuals = power - levels.low_w - levels.rise_w * levels.shown(t, response, load)
    n, mean = len(t), float(np.mean(residuals)) if len(t) else 0.0
    if n < _FEW:
        return replace(levels, off_w=abs(mean))
    return replace(levels, low_w=levels.low_w + mean, off_w=float(np.std(residuals)) / math.sqrt(n))


def _beforehand(response: Response, load: LoadIntervals, top_w: float) -> tuple[Floats, Floats, float]:
    """Return what is known of the five before any reading, mean and standard deviation, and the jitter of switches."""
    early = math.hypot(_EARLY_S, _EARLY_SHARE * float(np.median(load.off_s - load.on_s)))
    late = math.hypot(LATE_S, response.lag_u)
    # The lag's interval bounds that of the width, which moves the lag by half as much.
    wide = float(np.clip(2.0 * math.hypot(response.tau_u, response.lag_u) / max(response.span_s, 1e-9), *_WIDE))
    # The low level is anything up to what was shown; the high one may never have been. Time on: half a normal one.
    mean = np.array([top_w / 2.0, top_w / 2.0, early * math.sqrt(2.0 / math.pi), 0.0, 0.0])
    sd = np.array([top_w / math.sqrt(12.0), _UNSEEN * top_w, early * math.sqrt(1.0 - 2.0 / math.pi), late, wide])
    return mean, np.maximum(sd, 1e-9), early / 2.0


def _fit(t: Floats, power: Floats, response: Response, load: LoadIntervals, telling: float) -> Levels:
    """Least squares by Gauss and Newton, with what is known beforehand."""
    mean, sd, usual_jitter = _beforehand(response, load, float(np.max(power)))
    found, scatter = mean, _Scatter(max(float(np.std(power)), 1e-6), usual_jitter, 1.0)
    told = float(np.std(_seen(t, response, load, mean[2:]))) >= telling
    known = np.diag(1.0 / sd)
    for turn in range(_ROUNDS):
        design = _columns(t, response, load, (float(found[1]), found[2:]))
        shaken = design[:, 2] ** 2 + (design[:, 2] + design[:, 3]) ** 2  # by an end and by a start, for each second
        each = scatter.of(shaken)
        over = power - design[:, :2] @ found[:2]
        if not told:  # what is left of the load may be jitter: then the readings tell their mean alone
            design, over = np.full_like(design, design.mean(axis=0)), np.full_like(over, over.mean())
        # All readings weigh alike: then they leave no mean, and the energy is right where the load's shape is not.
        usual = math.sqrt(float(np.mean(each**2)))
        stacked = np.vstack([design / usual, known])
        step, *_ = np.linalg.lstsq(stacked, np.concatenate([over / usual, known @ (mean - found)]), rcond=None)
        found = np.clip(found + step, mean - _FAR * sd, mean + _FAR * sd)
        inverse = np.linalg.inv(stacked.T @ stacked)
        weighed = design * (each / usual**2)[:, None]
        covariance = inverse @ (weighed.T @ weighed + known**2) @ inverse
        if turn > 1 and np.all(np.abs(step) < _SETTLED * np.sqrt(np.diag(covariance))):
            break  # not before: the scatter follows the levels by a round
        spent = float(np.sum((design @ inverse) * design)) / usual**2
        residuals = power - found[0] - found[1] * _seen(t, response, load, found[2:])
        squares = np.asarray(residuals**2 * len(t) / (len(t) - spent), np.float64)
        least = max(response.step_w / response.gain, 1e-6)
        scatter = scatter.after(squares, shaken, least, usual_jitter).alike(residuals, shaken)
    covariance = np.asarray(covariance * (student_95(len(t) - 2) / COVERAGE_FACTOR) ** 2, np.float64)
    return Levels(float(found[0]), float(found[1]), np.asarray(found[2:], np.float64), covariance, 0.0, 0.0, told)


@dataclass(frozen=True, slots=True)
class _Scatter:
    """Why readings are off: noise, and switches that are off their stamps, each by itself."""

    noise_w: float
    jitter_s: float
    inflation: float  # of the variance of a mean, by neighbouring residuals that are alike: (1 + r)/(1 - r)

    def of(self, shaken: Floats) -> Floats:
        """Return the standard deviation of each reading; ``shaken`` is its square per square second of jitter."""
        return np.asarray(np.sqrt((self.noise_w**2 + self.jitter_s**2 * shaken) * self.inflation), np.float64)

    def after(self, squares: Floats, shaken: Floats, least_w: float, usual_s: float) -> _Scatter:
        """Return the scatter that explains squared residuals, by moments weighed as that of the round before has it."""
        weights = (self.noise_w**2 + self.jitter_s**2 * shaken) ** -2.0
        above = float(np.sum(weights * shaken * (squares - self.noise_w**2)))
        jitter2 = (_FORMER / usual_s**2 + above) / (_FORMER / usual_s**4 + float(np.sum(weights * shaken**2)))
        jitter2 = max(jitter2, (usual_s / 20.0) ** 2)
        noise2 = float(np.sum(weights * (squares - jitter2 * shaken)) / np.sum(weights))
        return _Scatter(math.sqrt(max(noise2, least_w**2)), math.sqrt(jitter2), self.inflation)

    def alike(self, residuals: Floats, shaken: Floats) -> _Scatter:
        """Return the same with the inflation that the residuals show."""
        z = residuals / np.sqrt(self.noise_w**2 + self.jitter_s**2 * shaken)
        r = min(max(float(z[1:] @ z[:-1]) / max(float(z @ z), 1e-300), 0.0), 0.9)
        return replace(self, inflation=(1.0 + r) / (1.0 - r))


def _seen(t_s: Floats, response: Response, load: LoadIntervals, timing: Floats) -> Floats:
    early, late, wide = timing.tolist()
    window, tau = response.window_s, response.tau_s
    delay = response.delay_s + late - wide * (window / 2.0 + tau)  # wider, but about the same middle
    wider = replace(response, window_s=window * (1.0 + wide), tau_s=tau * (1.0 + wide), delay_s=delay)
    return wider.shown(load.ending(early), t_s)


def _columns(t_s: Floats, response: Response, load: LoadIntervals, at: tuple[float, Floats]) -> Floats:
    rise, timing = at
    columns = [np.ones(len(t_s)), _seen(t_s, response, load, timing)]
    for step in np.diag(_STEPS):
        moved = _seen(t_s, response, load, timing + step) - _seen(t_s, response, load, timing - step)
        columns.append(rise * moved / (2.0 * float(step.sum())))
    return np.column_stack(columns)
