"""Readings explained by themselves: a power that walks, and what a load may have done where a region begins and ends.

What no reading shows is a hypothesis (:mod:`pmtpy.analysis.energy._hypotheses`), weighed by how well it explains the
readings. Pure numpy; times are seconds, powers watts.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.energy._hypotheses import Hypotheses
from pmtpy.analysis.energy._posterior import MORE_ROUNDS, ROUNDS, Pace, Posterior, Readings, Terms
from pmtpy.analysis.signal.estimate import Z95, student_95
from pmtpy.core.response import Response

# A square wave is ahead of its mean by what one that is cut anywhere is off by at its ends, times root 6. Half of it at
# each end, within 95 %.
_IN_PHASE = math.sqrt(6.0) / (2.0 * Z95)
_PACED = 8  # hypotheses beside which the pace is found, the likeliest
# Half of what a square wave of a period up to that of the readings holds is T/(8 sqrt 3) of its swing, which is twice
# what readings show of it.
_FAST_LOAD_SHARE = 1.0 / (4.0 * math.sqrt(3.0))
_MOST_SWINGS = 6.0  # times that, at most: beyond it little more is held of bursts, and loads cut anywhere pay


def explained_alone(readings: Readings, region: tuple[float, float]) -> tuple[Posterior, float]:
    """Explain readings alone; and by each of what a load may have done about the region, as far as that is likelier.

    The pace of the walk is that beside the likeliest of them, in the mean: many may be as likely as each other, and by
    the pace beside one of them that one would be so much likelier that its energy was stated. Returned with it: by how
    many joules the load may be ahead of its mean at the two ends.
    """
    nothing, pace = Terms.none(len(readings.y)), readings.first()
    for _ in range(ROUNDS - MORE_ROUNDS):
        pace = readings.next(pace, readings.solve(pace, nothing))
    may = Hypotheses.about(region, readings)
    calm = readings.calm(pace, region, may.reach_s)
    for _ in range(MORE_ROUNDS):
        pace = readings.next(pace, readings.solve(pace, nothing))
        by = readings.explained(calm, may.steps)
        *_, odds = may.judged(readings.normal(by))
        likely = np.argsort(-odds, kind="stable")[:_PACED]
        share = np.exp(odds[likely] - odds[likely[0]])
        beside = [readings.next(calm, may.posterior(int(i), readings, by)) for i in likely]
        calm = Pace.mean(beside, share / np.sum(share))
    pace, calm = readings.stated(pace), readings.stated(calm)
    by = readings.explained(calm, may.steps)
    joules, variance, odds = may.judged(readings.normal(by))
    walks = readings.solve(pace, nothing, judged=True)
    steps = may.posterior(int(np.argmax(odds)), readings, by)
    share = np.exp(np.append(odds, walks.evidence) - max(float(np.max(odds)), walks.evidence))
    share /= np.sum(share)
    joules, variance = np.append(joules, walks.joules), np.append(variance, walks.variance)
    # A load faster than the readings is ahead of its mean where a region begins or ends with it, at both ends alike.
    walking, stepping = (ahead_of_mean(found, readings.response, region) for found in (walks, steps))
    ahead = math.sqrt(share[-1] * walking**2 + (1.0 - share[-1]) * stepping**2)
    return walks.averaged(joules, variance, share), ahead


def ahead_of_mean(found: Posterior, response: Response, region: tuple[float, float]) -> float:
    """Return by how many joules a load that readings do not resolve may be ahead of its mean at the ends of a region.

    Readings scatter by it; of one that is as short as their period, or is on where they look away, they show a swing.
    A few readings about each end tell the scatter: the degrees of freedom of the sum are those of Welch and
    Satterthwaite (JCGM 100, G.4).
    """
    middle = (found.bounds_s[1:] + found.bounds_s[:-1]) / 2.0
    scatter, freedom = (np.interp(region, middle, each) for each in (found.scatter, found.freedom))
    shown = _IN_PHASE * np.sqrt(scatter * response.period_s)
    known = float(np.sum(shown)) ** 2 / max(float(np.sum(shown**2 / np.maximum(freedom, 1e-9))), 1e-300)
    # A long kernel hides some of it; that it does, and that few readings tell, need not both be so.
    hidden = math.sqrt(max(response.span_s / response.period_s, 1.0))
    may_be = max(hidden, student_95(known) / Z95) * shown
    least = _FAST_LOAD_SHARE * response.period_s * np.array([swing(found, response, at) for at in region])
    return float(np.sum(np.clip(may_be, least, _MOST_SWINGS * hidden * least)))


def swing(found: Posterior, response: Response, at_s: float) -> float:
    """Return the largest less the smallest power within a period of an instant, but for what terms explain."""
    near = np.abs((found.bounds_s[1:] + found.bounds_s[:-1]) / 2.0 - at_s) < response.period_s
    return float(np.ptp(found.watts[near]))
