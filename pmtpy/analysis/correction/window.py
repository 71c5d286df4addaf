"""The energy of a long interval seen through a window of several periods: reconstructed at its ends, added up between.

A reconstruction of all of it would cost the cube of its length, and tell nothing more. Pure; seconds, watts.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.correction.bins import bins, held_energy
from pmtpy.analysis.correction.deconvolve import Reconstruction
from pmtpy.analysis.signal.response import Response
from pmtpy.core.rows import Floats


def joined(
    channel: tuple[Floats, Floats, Response],
    head: tuple[Reconstruction, float, float],
    tail: tuple[Reconstruction, float, float],
) -> tuple[float, float]:
    """Energy of a long interval, reconstructed at its ends, and its uncertainty.

    Between them the updates are added up as they are, shifted by their lag: that is exact but for what the window
    spreads over the two seams, which the reconstructions on either side know.
    """
    t_s, watts, response = channel
    (first, start, seam), (last, other, end) = head, tail
    before = first.weights(start, seam) + _seam(first, t_s, response, seam)
    after = last.weights(other, end) - _seam(last, t_s, response, other)
    middle = held_energy(
        t_s, response.power(watts), start_s=seam, end_s=other, period_s=response.period_s, lag_s=response.lag_s
    )
    noise = response.noise_in_s * math.sqrt(response.period_s * (other - seam))
    joules = float(before @ first.watts) + middle + float(after @ last.watts)
    return joules, math.hypot(first.spread(before), last.spread(after), noise)


def _seam(found: Reconstruction, t_s: Floats, response: Response, seam_s: float) -> Floats:
    """By how many seconds of each cell the shifted updates before a seam hold more than the cells before it."""
    reach = response.span_s + 2.0 * response.period_s
    near = np.abs(t_s - seam_s) < 2.0 * reach + abs(response.delay_s)
    bounds = bins(t_s[near], response)
    held = np.clip(seam_s - bounds[:-1], 0.0, np.diff(bounds)) @ response.cells(t_s[near], found.bounds_s)
    cells = np.diff(found.bounds_s)
    apart = np.abs(found.bounds_s[:-1] + cells / 2.0 - seam_s)
    return np.asarray(
        np.where(apart < reach, held - np.clip(seam_s - found.bounds_s[:-1], 0.0, cells), 0.0), np.float64
    )
