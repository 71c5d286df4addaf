"""When a load was on: stretches of time, not overlapping, and what follows from them alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from pmtpy.core._arrays import Floats

MOST_AROUND = 8192
"""Switches looked at for one interval, unless it has more itself: they tell the levels well enough."""


@dataclass(frozen=True, slots=True)
class LoadIntervals:
    """When the load was on, by stamps of its program: ``on_s[i]`` to ``off_s[i]``, in order, not overlapping.

    The stamps are all there are in the stretches ``known_s``, shape (k, 2), in order, not overlapping; what the load
    did before, between and after these is not known. ``absolute``: whether the times are wall time, else they count
    from an instant of their own.
    """

    on_s: Floats
    off_s: Floats
    known_s: Floats = field(default_factory=lambda: np.array([[-math.inf, math.inf]]))
    absolute: bool = True

    @classmethod
    def switched(cls, edges_s: Floats, end_s: float | None = None, *, absolute: bool = True) -> LoadIntervals:
        """Make them of the instants at which the load was switched on, off, on, ...

        A load that was never switched off was on until ``end_s``, when its recording ended.
        """
        edges = np.asarray(edges_s, np.float64)
        if len(edges) % 2 and end_s is not None:
            edges = np.append(edges, max(end_s, float(edges[-1])))
        return cls(edges[::2], edges[1::2], absolute=absolute)

    def __post_init__(self) -> None:
        """Refuse intervals that overlap or are out of order."""
        if len(self.on_s) != len(self.off_s) or np.any(np.diff(self.edges) < 0):
            msg = "a load needs as many ends as starts, each after the one before"
            raise ValueError(msg)

    @property
    def edges(self) -> Floats:
        """All changes in order: on, off, on, off, ..."""
        edges = np.empty(2 * len(self.on_s))
        edges[::2], edges[1::2] = self.on_s, self.off_s
        return edges

    def ending(self, early_s: float) -> LoadIntervals:
        """Return the load with each end earlier, though not before its start nor after the next one."""
        return replace(self, off_s=np.clip(self.off_s - early_s, self.on_s, np.append(self.on_s[1:], np.inf)))

    def shifted(self, by_s: float) -> LoadIntervals:
        """Return the load on a clock that is ahead by ``by_s``."""
        return replace(self, on_s=self.on_s + by_s, off_s=self.off_s + by_s, known_s=self.known_s + by_s)

    def about(self, start_s: float, end_s: float, margin_s: float) -> LoadIntervals:
        """Return what is told of an interval and of a margin around it; of less where it is switched very often."""
        while margin_s > 1e-9 and self.switches(start_s - margin_s, end_s + margin_s) > MOST_AROUND:
            margin_s /= 2.0
        first, last = start_s - margin_s, end_s + margin_s
        on, known = (self.off_s >= first) & (self.on_s <= last), self.known_s
        known = known[(known[:, 1] >= first) & (known[:, 0] <= last)]
        ends = np.clip(self.on_s[on], first, None), np.clip(self.off_s[on], None, last)
        return replace(self, on_s=ends[0], off_s=ends[1], known_s=np.clip(known, first, last))

    def knows(self, start_s: float, end_s: float) -> bool:
        """Whether all that the load did in an interval is known."""
        return bool(np.any((self.known_s[:, 0] <= start_s) & (self.known_s[:, 1] >= end_s)))

    def longest_known(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the longest stretch within an interval of which all is known; an empty one where nothing is."""
        known: list[tuple[float, float]] = np.clip(self.known_s, start_s, end_s).tolist()
        return max(known, key=lambda each: each[1] - each[0], default=(start_s, start_s))

    def unknown(self, start_s: float, end_s: float) -> Floats:
        """Return the stretches of an interval in which it is not known what the load did, shape (k, 2)."""
        bounds = np.concatenate([[start_s], np.clip(self.known_s.ravel(), start_s, end_s), [end_s]]).reshape(-1, 2)
        return bounds[bounds[:, 1] > bounds[:, 0]]

    def share(self, start_s: float, end_s: float) -> float:
        """Seconds for which the load was on within an interval."""
        inside = np.minimum(self.off_s, end_s) - np.maximum(self.on_s, start_s)
        return float(np.sum(np.maximum(inside, 0.0)))

    def switches(self, start_s: float, end_s: float) -> int:
        """How often the load was switched within an interval, its ends left out."""
        return int(np.count_nonzero((self.edges > start_s) & (self.edges < end_s)))

    def lead_s(self, start_s: float, end_s: float) -> float:
        """By how many seconds on the load runs ahead of its mean within an interval, root mean square."""
        knots = np.concatenate([[start_s], np.clip(self.edges, start_s, end_s), [end_s]])
        length = np.diff(knots)
        on = np.where(np.arange(len(length)) % 2, length, 0.0)
        lead = np.concatenate([[0.0], np.cumsum(on - length * (np.sum(on) / (end_s - start_s)))])
        a, b = lead[:-1], lead[1:]
        mean = float(np.sum(length * (a + b))) / 2.0 / (end_s - start_s)
        square = float(np.sum(length * (a * a + a * b + b * b))) / 3.0 / (end_s - start_s)
        return math.sqrt(max(0.0, square - mean * mean))
