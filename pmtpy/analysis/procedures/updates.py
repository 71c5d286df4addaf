"""How often a sensor that stamps its own updates renews its value: the mean interval, and how the intervals scatter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.updates import MIN_UPDATES
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_STRETCHES = 10  # of which the walk of the phase is measured


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

    Updates are a clock ``t = phase + k period`` whose stamps scatter independently and whose phase walks. Over ``m``
    updates the intervals then have the variance ``2 stamp^2 + m step^2``, so that long ones tell the walk from the
    scatter. Least squares over ``k`` errs by ``12 stamp^2 / n^3 + 6/5 step^2 / n`` (variance).

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
    n = len(t)
    centred = k - k.mean()
    period = float(centred @ (t - t.mean()) / (centred @ centred))
    late = t - period * k
    far = n // _STRETCHES
    near_by, apart = float(np.mean(np.diff(late) ** 2)), float(np.mean((late[far:] - late[:-far]) ** 2))
    step = max(0.0, apart - near_by) / max(far - 1, 1)
    stamp = max(0.0, near_by - step) / 2.0
    error = float(np.sqrt(12.0 * stamp / n**3 + 1.2 * step / n))
    mean = Estimate.normal(period, error, _STRETCHES)  # so many long intervals are independent
    alone = intervals[between == 1.0]
    percentiles = np.asarray(np.percentile(alone, (1.0, 50.0, 99.0)), np.float64)
    return UpdateInterval(mean, n, int(np.sum(between - 1.0)), percentiles)
