"""How often a sensor that stamps its own updates renews its value: the mean interval, and how the intervals scatter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.procedures._slope import slope
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.updates import MIN_UPDATES
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError


@dataclass(frozen=True, slots=True)
class UpdateInterval:
    """The interval between updates."""

    mean_s: Estimate  # seconds from one update to the next, those that nobody saw counted
    # updates that were seen, and those that must lie between them
    updates: int
    unseen: int
    # shape (3,); the 1st, 50th and 99th percentile of the intervals between updates that were seen one after the
    # other
    percentiles_s: Floats


def updates_of(t_s: Floats) -> UpdateInterval:
    """Find the mean interval of updates from the stamps of the sensor itself.

    Updates are a clock ``t = phase + k period`` whose stamps scatter independently and whose phase walks.

    Parameters
    ----------
    t_s : float64, shape (n,)
        Stamp of each update that was seen, increasing.

    Raises DeclinedError: fewer than 20 updates.
    """
    t = np.asarray(t_s, np.float64)
    if len(t) < MIN_UPDATES:
        msg = f"{amount(len(t), 'update is', 'updates are')} too few for their interval: record longer"
        raise DeclinedError(msg)
    intervals = np.diff(t)
    usual = float(np.median(intervals))
    between = np.maximum(np.round(intervals / usual), 1.0)
    k = np.concatenate([[0.0], np.cumsum(between)])
    mean = slope(k, t - usual * k, float(np.spacing(np.abs(t).max()))).moved(usual)
    alone = intervals[between == 1.0]
    percentiles = np.asarray(np.percentile(alone, (1.0, 50.0, 99.0)), np.float64)
    return UpdateInterval(mean, len(t), int(np.sum(between - 1.0)), percentiles)
