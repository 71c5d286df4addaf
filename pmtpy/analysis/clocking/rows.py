"""Rows of a live sensor whose period is known: when each update behind them was published.

A live sensor keeps a row for each poll that brought something new. The clock of publishing is followed as in a
recording, but that its period is given; where the rows do not tell it (too few, polls slower than the sensor, another
period) each update is as old as a value is on average when it is read. Pure; seconds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pmtpy.analysis.clocking.intervals import Intervals
from pmtpy.analysis.clocking.phase import follow_known
from pmtpy.analysis.clocking.polling import Polling
from pmtpy.analysis.clocking.updates import clock_of, update_series
from pmtpy.analysis.signal.updates import Updates, stamp_step, tidy
from pmtpy.core.response import Number
from pmtpy.core.rows import Floats

_UNIFORM = 1.645  # half of 95 % of a uniform distribution, in standard deviations: polls in step leave the phase open
_AGAIN = 0.75  # of the period: nearer to another update a value that comes again is no update of its own


def date_rows(t_s: Floats, watts: Floats, period: Number, aged_s: float) -> Updates:
    """Find the updates behind rows; ``jitter_s`` of the result is the standard uncertainty that all of them share.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        Rows in order; values may repeat where another register of the device made the row.
    period : Number
        Time between updates, and its standard uncertainty.
    aged_s : float
        How old a value can be at its row: the time between polls; 0 where the device itself says when it was renewed.
    """
    if aged_s > 0.0 and len(t_s) > 1:
        t, v = tidy(*Polling(aged_s).polls(t_s, watts, np.zeros(len(t_s), np.int64)))
        origin = float(t[0] + t[-1]) / 2.0
        seen = Intervals(t[:-1] - origin, t[1:] - origin, np.asarray(np.diff(v) != 0.0, np.bool_))
        path = follow_known(seen, period, stamp_step(t))
        if path is not None:
            updates = update_series(t, v, clock_of(path, origin, seen))
            return replace(updates, jitter_s=path.phase_s.half_width / _UNIFORM)
    aged = min(aged_s, period.value)
    apart = _AGAIN * period.value
    new = np.diff(watts, prepend=math.nan) != 0.0
    follows = np.append(t_s[new], math.inf)[np.cumsum(new)] if len(t_s) else t_s  # the next new value
    kept, last = list[int](), -math.inf
    for i, (at, fresh, after) in enumerate(zip(t_s.tolist(), new.tolist(), follows.tolist(), strict=True)):
        if fresh or (at - last >= apart and after - at >= apart):
            kept.append(i)
            last = at
    k = np.arange(len(kept))
    return Updates(k, t_s[kept] - aged / 2.0, watts[kept], period.value, aged / math.sqrt(12.0))
