"""Updates as bins of constant power, and the energy of an interval from them, cut exactly at both ends. Pure."""

from __future__ import annotations

import numpy as np

from pmtpy.analysis.signal.response import Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError


def held_energy(t_s: Floats, watts: Floats, *, start_s: float, end_s: float, period_s: float, lag_s: float) -> float:
    """Energy of an interval when each update stands for one period about the middle of what it saw.

    Update ``k`` stands for ``[t - lag - period/2, t - lag + period/2)``; a missing one is bridged by its predecessor.
    Bins are cut exactly at both ends of the interval. With ``lag_s = -period_s / 2`` each value counts from its
    publication to the next: what holding the register gives.

    Raises
    ------
    CoverageError
        The updates do not reach over the interval.
    """
    return sum_bins(bins(t_s, Response(period_s, delay_s=lag_s)), watts, start_s, end_s)


def sum_bins(bounds: Floats, watts: Floats, start_s: float, end_s: float) -> float:
    """Energy of an interval from the powers of bins; raises CoverageError where they do not reach over it."""
    if not len(watts) or start_s < bounds[0] - 1e-9 or end_s > bounds[-1] + 1e-9:
        msg = f"updates do not cover the interval from {start_s:.3f} to {end_s:.3f} s"
        raise CoverageError(msg)
    joules = np.concatenate([[0.0], np.cumsum(watts * np.diff(bounds))])
    return float(np.interp(end_s, bounds, joules) - np.interp(start_s, bounds, joules))


def bins(t_s: Floats, response: Response, ahead_s: float = 0.0) -> Floats:
    """Bounds of the times that updates stand for; the last one goes on for ``ahead_s`` more."""
    return np.append(t_s, t_s[-1:] + response.period_s + ahead_s) - response.lag_s - response.period_s / 2.0
