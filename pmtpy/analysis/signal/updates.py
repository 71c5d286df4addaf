"""Readings as arrays: polls put in order, and the series of updates behind them. Pure; times are seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints

MIN_UPDATES = 20  # fewer show no kernel, no line, and not how their times scatter
POLLED = 0.75  # of the time between renewals: rows closer than this are polls of one reading
# Of the period: where the phase moves by more within a block, it jumped, and nobody knows when.
_JUMPED = 0.1
# By which Unix times that are the same may differ: recordings have six decimals, four steps of a float64 of today.
SAME_TIME_S = 1e-6


@dataclass(frozen=True, slots=True)
class Updates:
    """The series of updates behind polled readings, in order."""

    k: Ints  # shape (n,); number of each update on the lattice; a gap means that nobody polled in between
    t_s: Floats  # shape (n,); when it was published, seconds on the clock of the polls
    watts: Floats  # shape (n,); what it showed
    period_s: float  # update period
    # standard error of a time, which those about it share, and of the period, relative
    jitter_s: float = 0.0
    drift: float = 0.0
    # shape (n,); by how much of each time the phase was found to have wandered from a steady clock
    wander_s: Floats | None = None
    moved_s: Floats | None = None  # shape (n,); by how much the phase moved within the block about each
    stale: int = 0  # updates left out because they brought the value before once more
    aged_s: float = 0.0  # how old each was when it was polled, at most, where no clock was followed; else 0
    common_s: float = math.inf  # standard error of the mean of the times; no more than that of each

    @property
    def shared_s(self) -> float:
        """Standard error that all times share."""
        return min(self.common_s, self.jitter_s)

    def __len__(self) -> int:
        """Number of updates."""
        return len(self.k)

    def aged(self, most_s: float) -> Updates:
        """Return the series of values of which each may be older than its time, by any age up to the most."""
        return replace(self, jitter_s=most_s / math.sqrt(12.0), aged_s=most_s, common_s=0.0)

    def shifted(self, by_s: float) -> Updates:
        """Return the series on a clock that is ahead by ``by_s``."""
        return replace(self, t_s=np.asarray(self.t_s + by_s, np.float64))

    @property
    def jumped(self) -> npt.NDArray[np.bool_]:
        """Whether the phase jumped about each update."""
        still = np.zeros(len(self), np.bool_)
        return still if self.moved_s is None else np.asarray(self.moved_s >= _JUMPED * self.period_s, np.bool_)

    def between(self, start_s: float, end_s: float) -> Updates:
        """Return the updates published in ``[start_s, end_s)``."""
        return self.where((self.t_s >= start_s) & (self.t_s < end_s))

    def dated(self) -> Updates:
        """Return the updates whose times are known: where the phase jumped, each may be off by as much as that."""
        return self.where(~self.jumped)

    def telling(self, most: int) -> Updates:
        """Return that stretch of so many updates, one after the other, over which the readings vary most."""
        n = len(self)
        if n <= most:
            return self
        about = self.watts - float(np.mean(self.watts))
        sums = np.cumsum(np.concatenate([[0.0], about]))
        squares = np.cumsum(np.concatenate([[0.0], about**2]))
        first = int(np.argmax(squares[most:] - squares[:-most] - (sums[most:] - sums[:-most]) ** 2 / most))
        return self.where(slice(first, first + most))

    def where(self, keep: npt.NDArray[np.bool_] | slice[int, int, None]) -> Updates:
        """Return some of the updates."""
        wander, moved = (None if each is None else each[keep] for each in (self.wander_s, self.moved_s))
        k = self.k[keep]
        common_s = self.common_s * math.sqrt(len(self) / max(len(k), 1))  # fewer places, whose errors are not one
        return replace(
            self, k=k, t_s=self.t_s[keep], watts=self.watts[keep], wander_s=wander, moved_s=moved, common_s=common_s
        )


def tidy(t_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the polls whose stamps increase; a repeated or backward stamp says nothing about when it was read."""
    t, v = np.asarray(t_s, np.float64), np.asarray(values, np.float64)
    if t.shape != v.shape or t.ndim != 1:
        msg = f"times and values must be two rows of equal length, not {t.shape} and {v.shape}"
        raise ValueError(msg)
    good = np.isfinite(t) & np.isfinite(v)
    newest = np.maximum.accumulate(np.where(good, t, -np.inf))
    good[1:] &= t[1:] > newest[:-1]
    return (t, v) if good.all() else (t[good], v[good])  # millions of polls are not held twice


def stamp_step(t_s: Floats) -> float:
    """Resolution of time stamps in seconds: the coarsest decimal step of which 98 % are multiples, else 0.

    Not all: a log may have a few stamps from another clock, or set back by less than the others advance. Stamps that
    were cut off are multiples as exactly as numbers hold them; polls that keep their beat scatter about such.
    """
    t = np.asarray(t_s, np.float64)
    for step in (1.0, 0.1, 0.01, 1e-3, 1e-4):
        off = np.abs(t / step - np.round(t / step)) * step
        if np.mean(off < SAME_TIME_S) > 0.98:
            return step
    return 0.0
