"""What one reading costs: how long the call takes, as a distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

SHOWN_PERCENTILES = (1.0, 25.0, 50.0, 75.0, 99.0, 99.9)
_BINS_PER_OCTAVE = 2


@dataclass(frozen=True, slots=True)
class Latency:
    """How long readings take."""

    reads: int
    # mean and standard deviation of all readings, those that were held up too; the shortest and the longest
    mean_s: float
    sd_s: float
    least_s: float
    most_s: float
    percentiles_s: Floats  # shape (6,); at :data:`SHOWN_PERCENTILES`
    edges_s: Floats  # shape (n + 1,); edges of the bins of the histogram, half an octave each
    counts: Ints  # shape (n,)


def latency_of(durations_s: Floats) -> Latency:
    """Summarise how long readings took.

    Parameters
    ----------
    durations_s : float64, shape (n,)
        Of each reading, from before the call until after it; positive.

    Raises DeclinedError: fewer than a hundred readings.
    """
    d = np.asarray(durations_s, np.float64)
    needed = round(100.0 / SHOWN_PERCENTILES[0])  # of which that share is still one reading
    if len(d) < needed:
        msg = f"{amount(len(d), 'reading says', 'readings say')} little of what one costs: take at least {needed}"
        raise DeclinedError(msg)
    d = np.maximum(d, 1e-9)  # a clock that did not move between two calls moves in steps of at least a nanosecond
    low = np.floor(_BINS_PER_OCTAVE * np.log2(d.min()))
    high = np.ceil(_BINS_PER_OCTAVE * np.log2(d.max()) + 1e-9)
    edges = np.asarray(2.0 ** (np.arange(low, high + 1.5) / _BINS_PER_OCTAVE), np.float64)
    counts, _ = np.histogram(d, edges)
    return Latency(
        len(d),
        float(d.mean()),
        float(d.std(ddof=1)),
        float(d.min()),
        float(d.max()),
        np.asarray(np.percentile(d, SHOWN_PERCENTILES), np.float64),
        edges,
        counts.astype(np.int64),
    )
