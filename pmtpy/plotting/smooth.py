"""Smoothing for the eye: moving mean, g-h filter and Kalman filter. Never before energy.

A causal filter moves energy in time, and its gains do not carry over from one kernel to the next (Fejsko, MSc thesis,
Leiden 2025, dropped all three for that reason). Feed updates, not polls: nine repeats of one update are one
observation. Formulas: docs/corrections.md, "Smoothing".
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.core.rows import Floats

_DECADES = 6  # the process noise is searched over this many decades either side of the readings' own variance


def moving_mean(watts: Floats, n: int = 9) -> Floats:
    """Mean of the last ``n`` readings, of fewer at the beginning."""
    total = np.concatenate([[0.0], np.cumsum(watts)])
    last = np.arange(1, len(watts) + 1)
    first = np.maximum(last - n, 0)
    return np.asarray((total[last] - total[first]) / (last - first), np.float64)


def g_h(t_s: Floats, watts: Floats, g: float = 0.3, h: float | None = None) -> Floats:
    """Track level and slope: predict ``x + dt v``, correct by ``g r`` and ``h r / dt``.

    ``h`` defaults to ``g^2 / (2 - g)``, which damps critically (Benedict and Bordner, 1962).
    """
    gain_v = g * g / (2.0 - g) if h is None else h
    out = np.array(watts, np.float64)
    level, slope = float(out[0]) if len(out) else 0.0, 0.0
    for i in range(1, len(out)):
        dt = float(t_s[i] - t_s[i - 1])
        predicted = level + dt * slope
        residual = float(watts[i]) - predicted
        level = predicted + g * residual
        slope += gain_v * residual / dt if dt > 0 else 0.0
        out[i] = level
    return out


def kalman(t_s: Floats, watts: Floats, noise_w: float, process: float | None = None) -> Floats:
    """Follow a level that walks at random: variance ``process`` per second, readings with deviation ``noise_w``.

    ``process`` None: of greatest likelihood for these readings.
    """
    q = likeliest_process(t_s, watts, noise_w) if process is None else process
    return _kalman(t_s, watts, noise_w, q)[0]


def likeliest_process(t_s: Floats, watts: Floats, noise_w: float) -> float:
    """Variance per second of the level's walk under which the innovations are likeliest."""
    if len(watts) < 3:
        return 0.0
    scale = float(np.var(np.diff(watts))) / max(float(np.median(np.diff(t_s))), 1e-9) + 1e-12
    grid = scale * np.logspace(-_DECADES, 1, 8 * (_DECADES + 1))
    return float(min(grid, key=lambda q: _kalman(t_s, watts, noise_w, float(q))[1]))


def steady_gain(process: float, noise_w: float, dt: float) -> float:
    """Gain at which the filter settles: ``P = (Q + sqrt(Q^2 + 4 Q R)) / 2``, ``K = P / (P + R)``."""
    q, r = process * dt, noise_w * noise_w
    p = (q + math.sqrt(q * q + 4.0 * q * r)) / 2.0
    return p / (p + r) if p + r > 0 else 1.0


def _kalman(t_s: Floats, watts: Floats, noise_w: float, process: float) -> tuple[Floats, float]:
    """Run the filter; return the levels and twice the negative log likelihood, constants aside."""
    out = np.array(watts, np.float64)
    r = max(noise_w * noise_w, 1e-12)
    level, p, surprise = float(out[0]) if len(out) else 0.0, r, 0.0
    for i in range(1, len(out)):
        p += process * float(t_s[i] - t_s[i - 1])
        residual, spread = float(watts[i]) - level, p + r
        surprise += math.log(spread) + residual * residual / spread
        gain = p / spread
        level += gain * residual
        p *= 1.0 - gain
        out[i] = level
    return out, surprise
