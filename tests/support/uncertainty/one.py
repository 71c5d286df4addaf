"""What was seen of one channel, by instants in nanoseconds on any clock."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.uncertainty.interval import Interval, IntervalStatistics
from pmtpy.analysis.uncertainty.interval_statistics import summarise
from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats, Ints


def summarise_one(
    channel: Channel,
    t_ns: Ints,
    watts: Floats,
    *,
    start_ns: int,
    end_ns: int,
    joules: float,
    moved: npt.NDArray[np.bool_] | None = None,
    uncovered_s: float = 0.0,
    lost: int = 0,
    time_u_s: float = 0.0,
    aged_s: float = 0.0,
) -> IntervalStatistics:
    """Do as :func:`summarise` for one channel."""
    t_s = np.asarray(t_ns - start_ns, np.float64) / 1e9
    interval = Interval((end_ns - start_ns) / 1e9, [joules], [uncovered_s], lost, time_u_s, aged_s=aged_s)
    (seen,) = summarise([channel], t_s, watts[None], interval, None if moved is None else moved[None])
    return seen
