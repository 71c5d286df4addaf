"""Smoothing for the eye, by a Kalman filter. Never before energy.

A causal filter moves energy in time, and its gains do not carry over from one kernel to the next (Fejsko, MSc thesis,
Leiden 2025, dropped such filters for that reason). Formulas: docs/corrections.md, "Smoothing".
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.core.rows import Floats

_DECADES = 6  # the process noise is searched over this many decades either side of the readings' own variance


def smoothed(t_s: Floats, watts: Floats) -> Floats:
    """Smooth a curve for the eye; what is not known stays so."""
    known = np.isfinite(watts)
    seen, out = watts[known], np.array(watts, np.float64)
    # Of readings side by side the level is nearly the same: half of what they differ by is noise.
    noise_w = 1.4826 * float(np.median(np.abs(np.diff(seen)))) / math.sqrt(2.0) if len(seen) > 1 else 0.0
    out[known], _ = kalman(t_s[known], seen, noise_w, likeliest_process(t_s[known], seen, noise_w))
    return out


def likeliest_process(t_s: Floats, watts: Floats, noise_w: float) -> float:
    """Variance per second of the level's walk under which the innovations are likeliest."""
    if len(watts) < 3:
        return 0.0
    scale = float(np.var(np.diff(watts))) / max(float(np.median(np.diff(t_s))), 1e-9) + 1e-12
    grid = scale * np.logspace(-_DECADES, 1, 8 * (_DECADES + 1))
    return float(min(grid, key=lambda q: kalman(t_s, watts, noise_w, float(q))[1]))


def kalman(t_s: Floats, watts: Floats, noise_w: float, process: float) -> tuple[Floats, float]:
    """Follow a level that walks at random: variance ``process`` per second, readings with deviation ``noise_w``.

    Returns the levels, and twice the negative log likelihood, constants aside.
    """
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
