"""How often a sensor samples inside, from loads of known frequency near its rate: by aliasing.

A load of frequency ``f`` that is sampled at a rate near ``f`` shows as a slow pattern at ``|f - rate|``. At one
frequency the side is not known; at three neighbouring ones it is: the pattern grows faster with ``f`` on one side and
slower on the other. The frequency of the load is that of the host's clock, and so is the rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import MIN_EXPLAINED, NAMED, STRAY, Estimate, counting
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_HARMONICS = 5  # of a pattern: that of a square load is a square
_FEWEST_CYCLES = 1.5
_MOST_HARMONICS = 60  # that are folded back: weaker ones turn the phase by less than a sixtieth


@dataclass(frozen=True, slots=True)
class Pattern:
    """The slow pattern that a fast load makes."""

    load_hz: float  # frequency of the load
    hz: Estimate  # frequency of the pattern
    share: float  # part of the variance that it explains


@dataclass(frozen=True, slots=True)
class InternalRate:
    """How often a sensor samples inside."""

    # the rate, by the host's clock, if the loads were near it: else the multiple of it that they were near
    hz: Estimate
    patterns: tuple[Pattern, ...]


def find_pattern(t_s: Floats, watts: Floats, load_hz: float) -> Pattern:
    """Find the slow pattern in what a sensor shows under a fast load.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        Means or samples of power, about evenly spaced.
    Raises DeclinedError: there is no pattern, it is too fast for the readings, or there is less than one and a half of
    its cycles.
    """
    t, w = np.asarray(t_s, np.float64), np.asarray(watts, np.float64)
    known = np.isfinite(t) & np.isfinite(w)
    t, w = t[known] - t[known].mean(), w[known] - w[known].mean()
    length = float(np.ptp(t)) if len(t) else 0.0
    if len(t) < 8 * _HARMONICS or not length > 0.0 or not np.any(w):
        msg = (
            f"under a load of {load_hz:g} Hz there are too few values ({len(t)}), or they do not change: record longer"
        )
        raise DeclinedError(msg)
    from scipy.fft import next_fast_len, rfft
    from scipy.optimize import minimize_scalar

    nyquist = 0.5 * (len(t) - 1) / length
    even = np.interp(np.linspace(t[0], t[-1], len(t)), t, w)
    padded = next_fast_len(len(t), real=True)
    # The fundamental is the strongest of a pattern's parts; the harmonics then keep its square shape from pulling it.
    strongest = 1 + int(np.argmax(np.abs(rfft(even, padded)[1:-1])))
    first = strongest / padded * 2.0 * nyquist
    near = (max(first - 0.5 / length, 0.2 / length), first + 0.5 / length)
    found = minimize_scalar(lambda hz: _rest(t, w, hz), bounds=near, method="bounded",
                            options={"xatol": 1e-7 / length})  # fmt: skip
    hz = float(found.x)
    share = 1.0 - float(found.fun) / float(w @ w)
    if share < MIN_EXPLAINED:
        msg = (
            f"under a load of {load_hz:g} Hz nothing slow repeats itself (the best explains {100 * share:.0f} %): "
            "record longer, or take another frequency"
        )
        raise DeclinedError(msg)
    if hz > nyquist / _HARMONICS:  # the last of them would be folded back onto it
        msg = (
            f"under a load of {load_hz:g} Hz the pattern, {hz:.3g} Hz, is too fast for readings of "
            f"{2.0 * nyquist:.3g} Hz: take a frequency that lies nearer to the rate"
        )
        raise DeclinedError(msg)
    if hz * length < _FEWEST_CYCLES:
        msg = (
            f"under a load of {load_hz:g} Hz the pattern is slower than {1.0 / hz:.3g} s, of which the recording holds "
            f"{hz * length:.1f}: record longer, or take another frequency"
        )
        raise DeclinedError(msg)
    return Pattern(load_hz, Estimate.normal(hz, _error(t, w, hz), len(t) - 2 * _HARMONICS - 1), share)


def _design(t: Floats, hz: float) -> Floats:
    angle = 2.0 * math.pi * hz * np.outer(t, np.arange(1, _HARMONICS + 1))
    return np.concatenate([np.cos(angle), np.sin(angle), np.ones((len(t), 1))], axis=1)


def _rest(t: Floats, w: Floats, hz: float) -> float:
    design = _design(t, hz)
    rest = w - design @ np.linalg.lstsq(design, w, rcond=None)[0]
    return float(rest @ rest)


def _error(t: Floats, w: Floats, hz: float) -> float:
    """Standard error of the frequency: the derivative by it, less what amplitudes can make up for."""
    design = _design(t, hz)
    weights = np.linalg.lstsq(design, w, rcond=None)[0]
    rest = w - design @ weights
    by_hz = (_design(t, hz * (1.0 + 1e-6)) - _design(t, hz * (1.0 - 1e-6))) @ weights / 2e-6 / hz
    own = by_hz - design @ np.linalg.lstsq(design, by_hz, rcond=None)[0]
    # What is left over has a memory (the corners of the pattern).
    variance = float(rest @ rest) / max(len(t) - 2 * _HARMONICS - 2, 1) / counting(np.asarray(rest, np.float64))
    return math.hypot(math.sqrt(variance / float(own @ own)), _folded(t, hz))


def _folded(t: Floats, hz: float) -> float:
    """Standard error by what readings fold back: the higher harmonics of a square pattern, the n-th as strong as 1/n.

    Where readings keep nearly in step with the pattern, harmonics fall onto the lower ones, whose phases they turn by
    up to that share; how nearly, the phases of the readings tell.
    """
    turns = np.exp(2j * math.pi * hz * t)
    reach = t / float(np.std(t))  # what turns along with the time is a frequency
    power, variance = turns**_HARMONICS, 0.0
    for n in range(_HARMONICS + 1, _MOST_HARMONICS + 1):
        power = power * turns
        variance += (abs(np.mean(power)) ** 2 + abs(np.mean(reach * power)) ** 2) / 2.0 / n**2
    return math.sqrt(variance) / (2.0 * math.pi * float(np.std(t)))


def internal_rate_of(patterns: Sequence[Pattern]) -> InternalRate:
    """Find the one rate that makes all patterns.

    Parameters
    ----------
    patterns : sequence of Pattern
        At three or more neighbouring frequencies of the load.

    Raises DeclinedError: fewer than three; no rate makes all of them; or two rates do.
    """
    if len({p.load_hz for p in patterns}) < 3:
        msg = "the side of a pattern is told by three neighbouring frequencies of the load: give three"
        raise DeclinedError(msg)
    load = np.array([p.load_hz for p in patterns])
    hz = np.array([p.hz.value for p in patterns])
    sd = np.array([max(p.hz.sd, 1e-9) for p in patterns])
    weight = 1.0 / sd**2
    choices = []
    for sides in itertools.product((1.0, -1.0), repeat=len(patterns)):
        rates = load - np.array(sides) * hz
        mean = float(weight @ rates / weight.sum())
        choices.append((float(weight @ (rates - mean) ** 2), mean))
    choices.sort()
    (best, rate), (second, other) = choices[:2]
    freedom = len(patterns) - 1
    if best > STRAY**2 * freedom:
        shown = ", ".join(f"{p.hz.value:.4g} Hz at {p.load_hz:g} Hz" for p in patterns)
        msg = f"no one rate makes these patterns: {shown}; take frequencies that lie nearer to the rate"
        raise DeclinedError(msg)
    if second - best < 2.0 * math.log(NAMED) and abs(other - rate) > 3.0 / math.sqrt(weight.sum()):
        msg = f"{rate:.4f} Hz and {other:.4f} Hz explain the patterns alike: record longer, or take other frequencies"
        raise DeclinedError(msg)
    spread = max(1.0, best / freedom)
    return InternalRate(Estimate.normal(rate, math.sqrt(spread / weight.sum())), tuple(patterns))
