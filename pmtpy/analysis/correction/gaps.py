"""Updates that are missing: what stands in for them, and what that may be wrong by. Pure; seconds, watts.

A missing update is never seen, so the power in its place is anything between its neighbours' or beyond: half-way is the
best guess, wrong by a root mean square of their difference over the root of 12. Where a load is known to have started
the power was that of the one before until then, and that of the one after from then on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.response import Response
from pmtpy.core.rows import Floats

_MISSING = 1.5  # periods between two updates from which one is missing
_LONG = 3.0  # periods without an update that mark a result


@dataclass(frozen=True, slots=True)
class Filled:
    """A series of updates without gaps.

    Attributes
    ----------
    t_s, power : float64, shape (n,)
    gaps : float64, shape (k, 3)
        Begin and end of the time that each gap's substitutes stand for, and the difference of its neighbours.
    """

    t_s: Floats
    power: Floats
    gaps: Floats

    def unsure(self, start_s: float, end_s: float) -> float:
        """Standard uncertainty of an interval's energy by the gaps in it."""
        if not len(self.gaps):
            return 0.0
        near = self.power[(self.t_s > start_s) & (self.t_s < end_s)]
        rough = float(np.sqrt(np.mean(np.diff(near) ** 2))) if len(near) > 1 else 0.0
        inside = np.minimum(self.gaps[:, 1], end_s) - np.maximum(self.gaps[:, 0], start_s)
        wrong = np.maximum(inside, 0.0) * np.maximum(np.abs(self.gaps[:, 2]), rough)
        return math.sqrt(float(np.sum(wrong**2)) / 12.0)


def fill(t_s: Floats, power: Floats, response: Response, starts_s: Floats) -> Filled:
    """Let substitutes stand where updates are missing.

    Parameters
    ----------
    t_s, power : float64, shape (n,)
        Updates, gain and offset undone.
    starts_s : float64, shape (m,)
        When a load is known to have started.
    """
    period, early = response.period_s, response.lag_s + response.period_s / 2.0
    times, values, gaps = [t_s], [power], []
    for i in np.flatnonzero(np.diff(t_s) > _MISSING * period):
        many = max(1, round(float(t_s[i + 1] - t_s[i]) / period) - 1)
        step = float(t_s[i + 1] - t_s[i]) / (many + 1)
        begins = t_s[i] + step * np.arange(1, many + 1) - early
        before, after = float(power[i]), float(power[i + 1])
        known = starts_s[(starts_s >= t_s[i] - early) & (starts_s < t_s[i + 1] - early)]
        share = np.clip((begins + step - known[-1]) / step, 0.0, 1.0) if len(known) else np.full(many, 0.5)
        times.append(np.asarray(begins + early, np.float64))
        values.append(np.asarray(before + (after - before) * share, np.float64))
        gaps.append((float(begins[0]), float(begins[-1]) + step, after - before))
    order = np.argsort(np.concatenate(times), kind="stable")
    return Filled(
        np.concatenate(times)[order],
        np.concatenate(values)[order],
        np.array(gaps, np.float64).reshape(-1, 3),
    )


def long_gaps(t_s: Floats, period_s: float, start_s: float, end_s: float) -> tuple[str, ...]:
    """Say so when updates are missing for longer than three periods."""
    near = t_s[(t_s > start_s - 2 * period_s) & (t_s < end_s + 2 * period_s)]
    widest = float(np.max(np.diff(near))) if len(near) > 1 else 0.0
    if widest <= _LONG * period_s:
        return ()
    return (f"no update for {widest:.3g} s inside the region, which is bridged by the values beside it",)
