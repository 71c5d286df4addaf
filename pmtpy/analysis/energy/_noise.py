"""The noise of readings whose profile does not state it, from the readings themselves. Pure numpy; seconds, watts.

Taken too small, intervals do not hold: of a window that sees all, noise of 3 W that is taken for none leaves 46 % of
stamped regions in theirs. Taken too large, they are wide. So it is bounded from above, as closely as can be.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.signal.estimate import bend_sd
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats

_MIN_TOLD = 8  # readings, at the least, from which a rise is taken off: it is fitted, and of three nothing were left


def noise_of(t_s: Floats, watts: Floats, response: Response, load: LoadIntervals | None) -> float:
    """Return the standard deviation of one reading; 0 of so few that they do not tell.

    By how the readings bend. Bursts bend all of them, so that no quantile is free of these; and a sensor that sees all
    shows a power that scatters as it shows noise. Where stamps of the load are known, what it is seen as is taken off.
    """
    told = [bend_sd(watts)]
    if load is not None:
        left = _unexplained(t_s, watts, response, load)
        told += [bend_sd(left)] if len(left) >= _MIN_TOLD else []
    return min([sd for sd in told if math.isfinite(sd)], default=0.0)


def _unexplained(t_s: Floats, watts: Floats, response: Response, load: LoadIntervals) -> Floats:
    """Return what a stamped load does not show, of the readings of the time for which all of its stamps are known."""
    half_s = float(t_s[-1] - t_s[0]) / 2.0 if len(t_s) else 0.0
    if not half_s:
        return np.zeros(0)
    middle_s = float(t_s[0]) + half_s
    load = load.about(middle_s, middle_s, half_s)  # of one that is switched very often, less of it
    first, last = load.longest_known(middle_s - half_s, middle_s + half_s)
    whole = (t_s >= first + response.delay_s + response.span_s) & (t_s <= last + response.delay_s)
    seen, shown = response.shown(load, t_s[whole]), watts[whole]
    return shown - _rise(np.diff(shown, 2), np.diff(seen, 2)) * seen


def _rise(bends: Floats, of_load: Floats) -> float:
    """Return the rise of a load that leaves the least of the bends: the sum of their sizes, since blocks differ."""
    steep = of_load != 0.0
    if not steep.any():
        return 0.0
    rises, weights = bends[steep] / of_load[steep], np.abs(of_load[steep])
    order = np.argsort(rises)
    below = np.cumsum(weights[order])
    return float(rises[order][np.searchsorted(below, below[-1] / 2.0)])
