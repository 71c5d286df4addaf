"""Millions of rows as the few that a picture can show: least, mean and greatest value in each slice of time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmtpy.core.channel import TOTAL, EnergyMethod
from pmtpy.core.rows import Floats

_MEANS = frozenset({EnergyMethod.COUNTER.value, EnergyMethod.MEAN.value})


@dataclass(frozen=True, slots=True)
class Envelope:
    """A curve in slices of time; slices without a value are left out."""

    t: Floats  # shape (m,); mean time of the values in each slice
    # shape (m,); least, mean and greatest value. NaN where the curve is interrupted.
    low: Floats
    mean: Floats
    high: Floats

    def __len__(self) -> int:
        """Number of slices."""
        return len(self.t)


def envelope(t: Floats, y: Floats, slices: int) -> Envelope:
    """Divide the time from first to last row into equal ``slices`` and summarise each.

    Parameters
    ----------
    t : float64, shape (n,)
        Times, not falling.
    y : float64, shape (n,)
        Values; NaN means that there is none.
    slices : int
        With at most as many values as slices, every value stands for itself.
    """
    if slices < 1:
        msg = f"a curve cannot be drawn in {slices} slices"
        raise ValueError(msg)
    known = np.isfinite(y)
    if not known.all():
        t, y = t[known], y[known]
    if len(t) <= slices:
        return Envelope(t, y, y, y)
    edges = np.linspace(t[0], t[-1], slices + 1)
    first = np.unique(np.concatenate([[0], np.searchsorted(t, edges[1:-1])]))
    first = first[first < len(t)]
    counts = np.diff(np.append(first, len(t)))
    return Envelope(
        np.add.reduceat(t - t[0], first) / counts + t[0],
        np.minimum.reduceat(y, first),
        np.add.reduceat(y, first) / counts,
        np.maximum.reduceat(y, first),
    )


def held(curve: Envelope, name: str, facts: Mapping[str, Any]) -> Envelope:
    """Draw rows that are means since the row before (:func:`are_means`) as steps; slices stay as they are."""
    if len(curve) < 2 or curve.mean is not curve.low or not are_means(name, facts):
        return curve
    values = np.repeat(curve.mean, 2)[1:]
    return Envelope(np.repeat(curve.t, 2)[:-1], values, values, values)


def are_means(name: str, facts: Mapping[str, Any]) -> bool:
    """Whether each value of a power is the mean since the row before, and not that of an instant.

    ``facts`` are a recording's metadata; a total is what its channels are, if they are alike.
    """
    channels = facts.get("channels", ())
    rules = [c.get("rule") for c in channels if (c.get("in_total") if name == TOTAL else c["name"] == name)]
    return bool(rules) and _MEANS.issuperset(rules)


def interrupted(curve: Envelope, starts: Floats, ends: Floats) -> Envelope:
    """Put a NaN into each span (``starts``, ``ends``) that holds no value, so that no line is drawn across it."""
    before = np.searchsorted(curve.t, starts, side="right")
    empty = before == np.searchsorted(curve.t, ends, side="left")
    inside = empty & (before > 0) & (before < len(curve.t))
    at, middle = before[inside], ((starts + ends) / 2)[inside]
    return Envelope(
        np.insert(curve.t, at, middle), *(np.insert(v, at, np.nan) for v in (curve.low, curve.mean, curve.high))
    )


def joined_spans(starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Join spans in order of time of which one begins where the one before ends."""
    if not len(starts):
        return np.empty(0), np.empty(0)
    apart = starts[1:] > ends[:-1]
    return starts[np.concatenate([[True], apart])], ends[np.concatenate([apart, [True]])]


def widened(starts: Floats, ends: Floats, least: float) -> tuple[Floats, Floats]:
    """Make spans in order of time at least ``least`` long, and join those that then overlap: so all can be seen."""
    if not len(starts):
        return starts, ends
    short = np.maximum(least - (ends - starts), 0.0) / 2
    starts, ends = starts - short, np.maximum.accumulate(ends + short)
    apart = starts[1:] > ends[:-1]
    return starts[np.concatenate([[True], apart])], ends[np.concatenate([apart, [True]])]
