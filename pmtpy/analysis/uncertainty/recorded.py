"""The uncertainty of energies between two instants of a recording, by the rows around both.

Those are differences of the recorded curve, which is late: what is let in at one end and left out at the other is all
uncertainty here, unless it is corrected.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.signal.estimate import SHIFTS
from pmtpy.analysis.signal.renewal import renewal
from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, sum_budgets, uncertainty_budget
from pmtpy.analysis.uncertainty.channel_times import STREAM_S, is_power, renewed_each
from pmtpy.analysis.uncertainty.counted import counted
from pmtpy.analysis.uncertainty.interval import Interval, IntervalStatistics
from pmtpy.analysis.uncertainty.interval_statistics import CONTEXT_ROWS, summarise
from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats, Layout


def recorded_uncertainties(layout: Layout, t_s: Floats, watts: Floats, joules: Floats, interval: Interval) -> Floats:
    """Judge energies by what their channels know of themselves and how the power moves around the two ends.

    Parameters
    ----------
    layout : Layout
        Of the sensor, as its metadata state it.
    t_s : float64, shape (n,)
        Times of the rows around both ends, in order, each once; the interval begins at 0.
    watts, joules : float64, shape (n, 1 + channels)
        Of those rows, the total first.
    interval : Interval
        What is recorded of the interval, without the total.

    Returns
    -------
    float64, shape (1 + channels,)
        Standard uncertainties in joules, the total first; NaN where nothing can be said.
    """
    unknown = np.full(1 + len(layout.energy), math.nan)
    budgets = recorded_budgets(layout, t_s, watts, joules, interval)
    if budgets:
        unknown[1:] = [budget.uncertainty_joules for budget in budgets]
        if layout.in_total:
            kinds = [layout.energy[i - 1].kind for i in layout.in_total]
            unknown[0] = sum_budgets([budgets[i - 1] for i in layout.in_total], kinds).uncertainty_joules
    return unknown


def recorded_budgets(
    layout: Layout, t_s: Floats, watts: Floats, joules: Floats, interval: Interval
) -> list[UncertaintyBudget]:
    """Judge energies as :func:`recorded_uncertainties` does, each by itself; empty where nothing can be said."""
    if len(t_s) < 2 or not layout.energy:
        return []
    powers = [is_power(c) for c in layout.energy]
    # Energies of recordings count from their first row.
    so_far = joules[t_s <= interval.seconds, 1:].max(axis=0, initial=0.0)
    rests = [math.nan if not (power or joule) else 0.0 for power, joule in zip(powers, so_far.tolist(), strict=True)]
    interval = interval._replace(rested_watts=rests)
    channels = [as_renewed(c, t_s, w) for c, w in zip(layout.energy, watts.T[1:], strict=True)]
    shown, moved = counted(channels, t_s, watts.T[1:], joules.T[1:])
    seen = summarise(channels, t_s, shown, interval, moved, shown=joules.T[1:])
    return [uncertainty_budget(c, s) for c, s in zip(channels, seen, strict=True)]


class RowsOfPower(NamedTuple):
    """Rows of one power of a recording, or of the mean powers of a counter, in order, each once.

    ``spacing_s`` is the usual time between two of them.
    """

    t_s: Floats
    watts: Floats
    spacing_s: float

    def seen(self, channel: Channel, start_s: float, interval: Interval) -> IntervalStatistics:
        """Gather what the rows in and around an interval say, which begins at ``start_s``."""
        reach_s = float(SHIFTS[-1]) * interval.time_u_s
        first, last = self.t_s.searchsorted([start_s - reach_s, start_s + interval.seconds + reach_s]).tolist()
        near = slice(max(0, first - CONTEXT_ROWS), last + CONTEXT_ROWS)
        t_s = np.asarray(self.t_s[near] - start_s, np.float64)
        (seen,) = summarise([channel], t_s, self.watts[None, near], interval._replace(spacing_s=self.spacing_s))
        return seen


def as_renewed(channel: Channel, t_s: Floats, watts: Floats) -> Channel:
    """Return a register of power as its rows show that it is renewed, where that is more seldom than is stated."""
    stated_s = channel.refresh_s or 0.0
    if not is_power(channel) or stated_s < STREAM_S:
        return channel
    known = np.isfinite(watts)
    found = renewal(t_s[known], watts[known], stated_s)
    return renewed_each(channel, found.every_s) if found.another else channel
