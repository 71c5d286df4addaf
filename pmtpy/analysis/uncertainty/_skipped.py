"""Renewals that a register skipped: what the power was meanwhile is known by what was shown before and after. Pure.

Drivers publish only every second or third value for a while, where they are busy or the part is about to sleep. Of a
register that is polled this looks like a load that rests, so runs of one value count by how much they end with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmtpy.analysis.uncertainty.channel_times import POLLED, SELDOM, STREAM_S
from pmtpy.core.rows import Floats, median

_RESTED = 1.25  # refresh periods between the first and the last poll that found one value: one was skipped
# Samples. A value that stands for longer is that of a load which rests, where values are often alike.
_LONG = 4.5


def skipped_joules(
    t: Floats,
    powers: Floats,
    rms_step_watts: Sequence[float],
    noise_watts: Sequence[float],
    *,
    refresh_s: float,
    sample_s: float,
    length: float,
    held: bool,
) -> list[float]:
    """Return the standard uncertainty of the energy in the gaps of an interval that begins at 0, for each channel.

    Where ``m`` values of a power that jumps by ``S`` from one to the next are missing, the last one stands for them:
    of values that are independent of each other that is off by ``D S sqrt((m^2 + m) / 2)``, ``D`` being the time
    between two; a single step is off by less. Half of ``S^2`` is taken from the step over the gap itself, half from all
    steps. Rows that are renewals are joined by straight lines, which halves the square.

    Parameters
    ----------
    t : float64, shape (n,)
        Seconds from the begin of the interval of rows in and around it.
    powers : float64, shape (k, n)
    rms_step_watts, noise_watts : sequence of float
        How much each channel changes from one sample to the next, and its noise; 0 where values are often alike.
    refresh_s, sample_s : float
        Time between two renewals, 0: not known; and the time for which one reading stands.
    held : bool
        Whether one value stands for the time up to its row, without lines.
    """
    if not refresh_s or sample_s < STREAM_S or len(t) < 3:
        return [0.0] * len(powers)
    gaps = t[1:] - t[:-1]
    polled = median(gaps) < POLLED * refresh_s
    if not polled and float(gaps.max()) <= SELDOM * sample_s:
        return [0.0] * len(powers)
    scale = sample_s * math.sqrt(0.25 if polled or held else 0.125)
    found = []
    for p, rms, noise in zip(powers, rms_step_watts, noise_watts, strict=True):
        begins = np.flatnonzero(np.concatenate(([True], p[1:] != p[:-1]))) if polled else np.arange(len(t))
        first, last = t[begins], t[np.concatenate((begins[1:], [len(t)])) - 1]
        after = np.concatenate((first[1:], last[-1:]))
        rested, gap = last - first, np.maximum(after - first, 1e-9)  # the newest row has none
        skipped = (rested > _RESTED * refresh_s) & ((rested <= _LONG * sample_s) | (noise > 0.0))
        skipped |= after - last > SELDOM * sample_s
        skipped &= (first < length) & (after > 0.0)
        shown = p[begins]
        step = np.concatenate((shown[1:] - shown[:-1], [0.0]))
        inside = (np.minimum(after, length) - np.maximum(first, 0.0)) / gap
        missing = np.maximum(gap / sample_s - 1.0, 0.0)
        squares = (step * step + rms * rms) * (missing * missing + missing) * (inside * inside)
        found.append(scale * math.sqrt(float(squares[skipped].sum())))
    return found
