"""Readings explained by a load whose stamps are known: how likely they are by it, and the power that they then tell.

A load as loads are, with stamps that are off (:mod:`pmtpy.analysis.energy._stamped`), is weighed against one whose
stamps alone scatter, and against one that does not follow its stamps at all. Pure numpy; times are seconds.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.energy._posterior import MORE_ROUNDS, ROUNDS, Pace, Posterior, Readings
from pmtpy.analysis.energy._stamped import StampedLoad
from pmtpy.analysis.signal.estimate import NAMED
from pmtpy.core.rows import Floats

# That are followed, where a profile leaves open by how much readings are late: which explains most is seen only where
# it leads. Of 200 single blocks the likeliest to begin with alone missed six without a word, by up to nine deviations.
_MOST_STARTS = 3


class _Explained(NamedTuple):
    """Readings explained by a stamped load, and by what pace and about what values of its unknowns."""

    found: Posterior
    ideal: Posterior  # the same of a load that is even and switched at its stamps
    pace: Pace
    at: Floats
    square: Floats
    evidence: float  # of either


def explained_by_stamps(readings: Readings, load: StampedLoad) -> tuple[Posterior, float]:
    """Explain readings by a stamped load and a rest; and by one whose stamps alone scatter, where that explains more.

    Both are weighed by what the first found of its rise: a load that repeats in step shows next to none, and each finds
    another. Returned with it: how surely the readings follow the stamps at all.
    """
    first = _started(readings, load)
    followed = load.followed(first.ideal, first.found)
    even = load.evened()
    odds = readings.solve(first.pace, even.about(first.at, first.square), judged=True).evidence - first.found.evidence
    share = 1.0 / (1.0 + math.exp(-min(max(odds, -500.0), 500.0)))
    if share * (1.0 + NAMED) < 1.0:
        return replace(first.found, evidence=first.evidence), followed
    other = _started(readings, even)
    best = other if share > 0.5 else first
    joules, variance = np.array([(e.found.joules, e.found.variance) for e in (first, other)]).T
    both = best.found.averaged(joules, variance, np.array([1.0 - share, share]))
    return replace(both, evidence=best.evidence), followed


def _started(readings: Readings, load: StampedLoad) -> _Explained:
    """Explain readings by a stamped load and a rest; from other starts too where readings or stamps may be off.

    That readings are late, and that the power follows late, explain them nearly alike: by small steps the one is not
    left for the other, however much more it explains. All findings are weighed by that.
    """
    first = _explained(readings, load, (0.0, 0.0))

    @functools.cache
    def odds(start: tuple[float, float]) -> float:  # of an ideal load, which has nothing else to explain a delay by
        return readings.solve(first.pace, load.about(*load.start(*start), ideal=True), judged=True).evidence

    usual_s, stamps_s = load.late_starts_s
    nowhere = (0.0, 0.0)
    usual = sorted([(0.0, by) for by in usual_s], key=odds, reverse=True)
    late = max([nowhere, *usual[:1], *((0.0, by) for by in stamps_s)], key=odds)
    best = max([late, *((by, late[1]) for by in stamps_s), *((by, late[1] + by) for by in stamps_s)], key=odds)
    if best == nowhere:
        return first
    starts = list(dict.fromkeys([best, *usual]))[:_MOST_STARTS]
    found = [first, *(_explained(readings, load, start) for start in starts)]
    likelier = max(found, key=lambda f: f.evidence)
    share = np.exp([f.evidence - likelier.evidence for f in found])
    joules, variance = np.array([(f.found.joules, f.found.variance) for f in found]).T
    return likelier._replace(found=likelier.found.averaged(joules, variance, share / np.sum(share)))


def _explained(readings: Readings, load: StampedLoad, start: tuple[float, float]) -> _Explained:
    """Explain readings by a load as loads are; and say how likely that is, or that it is an ideal one.

    An even load that is switched at its stamps has few unknowns, so that readings which show one tell for its rise and
    for where they were seen. Of how the power follows each switch they tell less: no energy is surer by it.
    """

    def found(pace: Pace, at: Floats, square: Floats, rounds: int, *, ideal: bool) -> tuple[Pace, Floats, Floats]:
        for _ in range(rounds):
            one = readings.solve(pace, load.about(at, square, ideal=ideal))
            at, pace = one.unknowns, readings.next(pace, one)
            square = (at - load.mean) ** 2 + np.diag(one.spread)
        return pace, at, square

    usual = found(readings.first(), *load.start(*start), ROUNDS, ideal=False)
    pace, at, square = found(*usual, MORE_ROUNDS, ideal=True)
    even = readings.solve(readings.stated(pace), load.about(at, square, ideal=True), judged=True)
    pace, at, square = readings.stated(usual[0]), *usual[1:]
    stated = readings.solve(pace, load.about(at, square), judged=True)
    return _Explained(stated, even, pace, at, square, float(np.logaddexp(stated.evidence, even.evidence)))
