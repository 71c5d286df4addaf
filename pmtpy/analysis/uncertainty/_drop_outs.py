"""Readings of nothing in the midst of a power: a monitor that failed for a moment, or a part that was off. Pure.

A register that shows 90 W, then nothing or less for some readings, then 90 W again, may have been read while its chip
was reset, or tell the truth: nothing in the numbers decides. So the energy stays as it was shown, and what is missing
if the part went on as before and after is stated. A load that is off again and again is a load.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.uncertainty.channel_times import STREAM_S
from pmtpy.core.rows import Floats

_MAX_DROP_OUT_S, _MAX_DROP_OUT_SAMPLES = 1.0, 3.0  # a part that is off for longer was switched off
_MIN_POWERS_RATIO = 0.5  # the lower of the two powers around it, as a share of the higher one, at least
_MOST_DROP_OUTS = 2  # in and around an interval; more are a load


def missing_joules(t: Floats, powers: Floats, sample_s: float, length: float) -> list[float]:
    """Return how much more each channel may have used in an interval that begins at 0.

    Parameters
    ----------
    t : float64, shape (n,)
        Seconds from the begin of the interval of rows in and around it.
    powers : float64, shape (k, n)
    """
    if sample_s < STREAM_S or powers.min(initial=math.inf) > 0.0:
        return [0.0] * len(powers)
    longest = max(_MAX_DROP_OUT_S, _MAX_DROP_OUT_SAMPLES * sample_s)
    return [_missing(t, p, longest, length) if p.min() <= 0.0 else 0.0 for p in powers]


def _missing(t: Floats, power: Floats, longest: float, length: float) -> float:
    runs = np.flatnonzero(np.diff(power <= 0.0, prepend=False, append=False)).reshape(-1, 2).tolist()
    if len(runs) > _MOST_DROP_OUTS:
        return 0.0
    missing = 0.0
    for first, after in runs:
        before = first - 1
        if before < 0 or after == len(t):
            continue
        at, p = t[before : after + 1], power[before : after + 1]
        seconds, inside = float(at[-1] - at[0]), float(min(length, at[-1]) - max(0.0, at[0]))
        low, high = sorted((float(p[0]), float(p[-1])))
        if seconds <= longest and inside > 0.0 and low >= _MIN_POWERS_RATIO * high:
            shown = float(np.diff(at) @ (p[1:] + p[:-1])) / 2.0
            missing += ((low + high) / 2.0 * seconds - shown) * inside / seconds
    return missing
