"""What is known of sampled channels before any row has come: how to compute all of them at once, and what rows share.

Prepared once for each source, so that a block of a stream costs few calls on whole matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pmtpy.core.channel import Channel, EnergyMethod


class Matrix:
    """How to compute all sampled channels at once: which rows of the matrix of SI values enter which result."""

    __slots__ = ("halved", "products", "rows", "scale", "scaled", "total", "values")

    def __init__(self, samples: Sequence[tuple[int, Channel, int, int]], values: list[int], total: list[int]) -> None:
        self.rows = len(samples)
        halved = [out for out, channel, *_ in samples if channel.energy_method is EnergyMethod.TRAPEZOID]
        self.halved = _even(halved) if halved else None  # momentary: the half-way value of two rows counts
        self.products = None
        if samples and all(j >= 0 for *_, j in samples):
            self.products = (_even([i for *_, i, _ in samples]), _even([j for *_, j in samples]))
        self.scale = np.array([[channel.scale if j >= 0 else 1.0] for _, channel, _, j in samples])
        self.scaled = bool(np.any(self.scale != 1.0))
        self.values = _even(values)
        self.total = _even(total) if total else None


def _even(indices: list[int]) -> slice | list[int]:
    """Return evenly spaced indices as a slice, which numpy need not copy."""
    steps = {b - a for a, b in pairwise(indices)} or {1}
    if len(steps) == 1 and min(steps) > 0:
        return slice(indices[0], indices[-1] + 1, steps.pop()) if indices else slice(0)
    return indices


class Ordinary:
    """What ordinary rows share, of which nothing is lost or unknown: made once, handed out by slices, never written."""

    __slots__ = ("lost", "rows", "uncovered", "uncovered_ns")

    def __init__(self, uncovered_ns: tuple[int, ...], rows: int) -> None:
        self.rows, self.uncovered_ns = rows, uncovered_ns
        self.lost = np.zeros(rows, np.int64)
        self.uncovered = np.repeat(np.array(uncovered_ns, np.int64)[:, None], rows, axis=1)
        self.lost.flags.writeable = self.uncovered.flags.writeable = False


def covered_ns(channel: Channel, dt_ns: int) -> int:
    """Return, of an interval with lost rows, the part that the row at its end still covers.

    A momentary sample covers nothing before itself. An interval mean covers the interval that it is the mean of.
    """
    if channel.energy_method is not EnergyMethod.MEAN or channel.window_s is None:
        return 0
    return min(dt_ns, round(channel.window_s * 1e9))
