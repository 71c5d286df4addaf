"""Readings explained by themselves: a power that walks, and steps where the region begins and ends.

What no reading shows is a hypothesis, weighed by how well it explains the readings: that the power stepped just there,
since a program's regions begin and end where its load does. Pure numpy; times are seconds, powers watts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmtpy.analysis.energy._posterior import MORE_ROUNDS, ROUNDS, Posterior, Readings, Terms
from pmtpy.analysis.signal.estimate import Z95
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats

# Odds beforehand that the power stepped just where a region begins, or ends, or that it rose for as long as it lasts.
_STEP_ODDS = 1.0 / 3.0
_MAX_STEP = 3.0  # of the highest reading: of a power that was hardly shown
# A square wave is ahead of its mean by what one that is cut anywhere is off by at its ends, times root 6; readings by
# as much less as their kernel is long. Half of it at each end, within 95 %.
_IN_PHASE = math.sqrt(6.0) / (2.0 * Z95)
# Half of what a square wave of a period up to that of the readings holds is T/(8 sqrt 3) of its swing, which is twice
# what readings show of it.
_FAST_LOAD_SHARE = 1.0 / (4.0 * math.sqrt(3.0))


def explained_alone(readings: Readings, region: tuple[float, float]) -> tuple[Posterior, float]:
    """Explain readings alone; and with a step at the start, the end, or both, as far as that explains them better.

    A program's regions begin and end where its load does, and after one the power is often what it was before: one
    rise, for as long as the region lasts, which readings may hardly show. Those that see all the time prove it by their
    values: a step elsewhere between two readings would leave another mean; but for a block that is not shown by itself,
    such as work that runs on behind the region that launched it. Returned with it: by how many joules the load may be
    ahead of its mean at the two ends.
    """
    nothing, response, pace = Terms.none(len(readings.y)), readings.response, readings.first()
    for _ in range(ROUNDS - MORE_ROUNDS):
        pace = readings.next(pace, readings.solve(pace, nothing))
    found: list[Posterior] = []
    odds: list[float] = []
    begins, ends = (_step(at, region[1], readings) for at in region)
    steps = [(), (begins,), (ends,), (begins, ends), (begins - ends,)]
    for columns, where in zip(steps, [(), region[:1], region[1:], region, region], strict=True):
        terms, own = _rises(columns, readings) if columns else nothing, pace
        for _ in range(MORE_ROUNDS):
            own = readings.next(own, readings.solve(own, terms))
        found.append(readings.solve(readings.stated(own), terms, judged=True))
        beforehand = len(columns) * math.log(_STEP_ODDS)
        odds.append(found[-1].evidence + beforehand)
        if where:  # a step elsewhere in what no reading sees there explains them as well
            hidden = sum(math.log(max(_unseen(readings, at), 1e-300)) for at in where)
            if len(where) == 2 and not _seen_within(readings, region):
                hidden = math.log(_STEP_ODDS)  # as does a higher block that is shorter, or a lower one that is longer
            odds[0] = float(np.logaddexp(odds[0], odds[-1] + hidden))
    weight = np.exp(np.array(odds) - max(odds))
    weight /= np.sum(weight)
    # A load faster than the readings is ahead of its mean where a region begins or ends with it, at both ends alike.
    ahead = [sum(ahead_of_mean(f, response, at) for at in region) for f in found]
    return found[0].averaged(found, weight), math.sqrt(float(weight @ np.square(ahead)))


def _seen_within(readings: Readings, region: tuple[float, float]) -> bool:
    """Whether a reading tells the power within a region alone; of a slow one, what is new since the one before."""
    ends, response = readings.ends_s, readings.response
    looks = response.window_s if not response.tau_s and response.window_s < response.period_s else response.period_s
    return bool(np.any((ends - looks >= region[0]) & (ends <= region[1])))


def _unseen(readings: Readings, at_s: float) -> float:
    """Return the share of the time between the two readings about an instant that neither sees."""
    ends, response = readings.ends_s, readings.response
    after = int(np.clip(np.searchsorted(ends, at_s), 1, len(ends) - 1))
    return max(0.0, 1.0 - response.span_s / max(float(ends[after] - ends[after - 1]), response.period_s))


def _step(at_s: float, end_s: float, readings: Readings) -> Floats:
    """Return what readings show of a step of one watt at an instant and, last, its energy until ``end_s``."""
    return np.append(readings.response.step(readings.ends_s - at_s), end_s - at_s)


def _rises(columns: Sequence[Floats], readings: Readings) -> Terms:
    """Return the terms of rises of the power, any of them, each seen by its column."""
    nothing, shown = np.zeros(len(columns)), np.column_stack(columns)
    highest = max(float(np.max(np.abs(readings.y))), readings.response.noise_in_s, 1e-9)
    return Terms(nothing, nothing, nothing + _MAX_STEP * highest, np.zeros(len(shown)), shown)


def ahead_of_mean(found: Posterior, response: Response, at_s: float) -> float:
    """Return by how many joules a load that readings do not resolve may be ahead of its mean where it begins or ends.

    Readings scatter by it; of one that is as short as their period, or is on where they look away, they show a swing.
    """
    scatter = float(np.interp(at_s, (found.bounds_s[1:] + found.bounds_s[:-1]) / 2.0, found.scatter))
    shown = _IN_PHASE * math.sqrt(scatter * max(response.period_s, response.span_s))
    return max(shown, _FAST_LOAD_SHARE * swing(found, response, at_s) * response.period_s)


def swing(found: Posterior, response: Response, at_s: float) -> float:
    """Return the largest less the smallest power within a period of an instant, but for what terms explain."""
    near = np.abs((found.bounds_s[1:] + found.bounds_s[:-1]) / 2.0 - at_s) < response.period_s
    return float(np.ptp(found.watts[near]))
