"""Renewals that a register skipped: what the power was meanwhile is known by what was shown before and after. Pure.

Drivers publish only every second or third value for a while, where they are busy or the part is about to sleep; others
stand still for seconds. Of a register that is polled this looks like a load that rests: which it was is told by how
often other values are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmtpy.analysis.signal.trace import HOLE
from pmtpy.analysis.signal.updates import POLLED
from pmtpy.analysis.uncertainty.channel_times import SEVERAL_RENEWALS, STREAM_S
from pmtpy.core.rows import Floats, median

_MAX_SKIPPED = 4.5  # samples; a value that stands for longer is that of a load which rests, where others are alike too
# Of renewals apart from those of a value itself: fewer of them are alike where this many and more are not. What has
# changed less often tells nothing (values that are alike as often as not do so once in 256 times).
_MAX_ALIKE, _MIN_CHANGES = 0.25, 8


def skipped_joules(
    t: Floats,
    powers: Floats,
    rms_step_watts: Sequence[float],
    *,
    refresh_s: float,
    sample_s: float,
    length: float,
    held: bool,
    left_out_s: Sequence[tuple[float, float]] = (),
) -> list[float]:
    """Return the standard uncertainty of the energy in the gaps of an interval that begins at 0, for each channel.

    Where ``m`` values of a power that jumps by ``S`` from one to the next are missing, the last one stands for them:
    of values that are independent of each other that is off by ``D S sqrt((m^2 + m) / 2)``, ``D`` being the time
    between two; a single step is off by less. Half of ``S^2`` is taken from the step over the gap itself, half from
    what the power does elsewhere: of a load that stays for a while ``m`` times the square of one step, but no more than
    it is off the last value all in all; and as much as that in a hole, where a whole piece of work may have come and
    gone that the steps around it do not show. Rows that are renewals are joined by straight lines, which halves the
    square.

    Parameters
    ----------
    t : float64, shape (n,)
        Seconds from the begin of the interval of rows in and around it.
    powers : float64, shape (k, n)
    rms_step_watts : sequence of float
        How much each channel changes from one sample to the next.
    refresh_s, sample_s : float
        Time between two renewals, 0: not known; and the time for which one reading stands.
    held : bool
        Whether one value stands for the time up to its row, without lines.
    left_out_s : sequence of (float, float)
        Stretches of which rows came that are not here.
    """
    if not refresh_s or sample_s < STREAM_S or len(t) < 3:
        return [0.0] * len(powers)
    gaps = t[1:] - t[:-1]
    polled = median(gaps) < POLLED * refresh_s
    if not polled and float(gaps.max()) <= SEVERAL_RENEWALS * sample_s:
        return [0.0] * len(powers)
    scale = sample_s * math.sqrt(0.25 if polled or held else 0.125)
    found = []
    for p, rms in zip(powers, rms_step_watts, strict=True):
        begins = np.flatnonzero(np.concatenate(([True], p[1:] != p[:-1]))) if polled else np.arange(len(t))
        first, last = t[begins], t[np.concatenate((begins[1:], [len(t)])) - 1]
        after = np.concatenate((first[1:], last[-1:]))
        rested = last - first
        # Renewals that showed nothing new: even the seldomest of polls find what stands for two of them for so long.
        alike = np.where(rested > (2.0 - POLLED) * refresh_s, rested / refresh_s, 0.0)
        others, changes = alike.sum() - alike, len(begins) - 1
        seldom = (changes >= _MIN_CHANGES) & (others <= _MAX_ALIKE * (others + changes))
        stood = (alike > 0.0) & ((rested <= _MAX_SKIPPED * sample_s) | seldom)
        since = np.where(stood, first, last)  # of one that was seen to rest nobody looked only behind that
        gap = np.maximum(after - since, 1e-9)  # the newest row has none
        skipped = stood | (after - last > SEVERAL_RENEWALS * sample_s)
        skipped &= (since < length) & (after > 0.0)
        for begin, end in left_out_s:
            skipped &= (since > begin) | (after < end)
        shown = p[begins]
        step = np.concatenate((shown[1:] - shown[:-1], [0.0]))
        inside = (np.minimum(after, length) - np.maximum(since, 0.0)) / gap
        missing = np.maximum(gap / sample_s - 1.0, 0.0)
        other_rows = np.maximum(len(t) - np.diff(begins, append=len(t)), 1)
        off = (p @ p - 2.0 * shown * p.sum() + len(t) * shown * shown) / other_rows  # mean square, of all other rows
        one = np.maximum(off, rms * rms)
        moved = np.where(missing > HOLE, one, np.minimum(rms * rms * np.maximum(missing, 1.0), one))
        squares = (step * step + moved) * (missing * missing + missing) * (inside * inside)
        found.append(scale * math.sqrt(float(squares[skipped].sum())))
    return found
