"""The energy of an interval from the readings of a sensor that is late, averages, or looks away. Pure numpy.

One estimator for every sensor and every load: :mod:`pmtpy.analysis.energy._posterior` finds the power behind the
readings, and the energy is a sum over it; a load that is stamped adds unknowns
(:mod:`pmtpy.analysis.energy._stamped`). What the readings cannot say is a hypothesis: that the power stepped just
where the region begins or ends (weighed by how well it explains the readings), and that the load repeats in step with
the sensor (stated beside the result).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.energy._posterior import STRETCH, Pace, Posterior, Readings, Terms
from pmtpy.analysis.energy._stamped import StampedLoad
from pmtpy.analysis.signal.estimate import NAMED, Z95, Estimate, mixed, rounding_error
from pmtpy.analysis.uncertainty.channel_times import FULL_COVERAGE
from pmtpy.analysis.uncertainty.in_step import joules_in_step, to_be_said
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError

_ROUNDS = 8  # of finding power and pace in turn
_LATE_STARTS_S = (0.02, 0.04, 0.06)  # by which stamps may be late: beyond some ms one is no straight line of the other
_CONTEXT_PERIODS = 40.0  # periods either side that tell how the power moves, and the levels of a stamped load
_STEP_ODDS = 0.2  # odds beforehand that the power stepped just where a region begins, or ends
_QUIET_PERIODS = 1.5  # periods outside such a step in which nothing else happened
# A square wave is ahead of its mean by what one that is cut anywhere is off by at its ends, times root 6; readings by
# as much less as their kernel is long. Half of it at each end, within 95 %; the scatter is stated doubled.
_IN_PHASE = math.sqrt(6.0 / 2.0) / (2.0 * Z95)
# Half of what a square wave of a period up to that of the readings holds is T/(8 sqrt 3), 0.07 of its swing and T; and
# its swing is larger than what readings show of it.
_FAST_LOAD_SHARE = 0.1
_MARKED_GAP_PERIODS = 3.0  # periods without an update that mark a result
_HARDLY_KNOWN_U = 0.02  # standard uncertainty of a stamped load's energy from which it is said that it is hardly known


@dataclass(frozen=True, slots=True)
class Energy:
    """An energy with its interval.

    Attributes
    ----------
    joules : float
        The corrected energy.
    uncertainty_joules : float
        Standard uncertainty.
    method : str
        How it was found: ``reconstruction``, or ``load-informed`` where the load's stamps took part.
    parts : tuple of (name, joules)
        What the uncertainty is made of.
    warnings : tuple of str
        What a reader of the number must know.
    aliased : (float, float)
        Where the energy lies, at 95 %, even if the load repeats in step with the sensor, whose readings then do not
        show it; as wide as the interval where the load's stamps rule that out.
    evidence : float
        Logarithm of how likely the readings are by a stamped load, a constant aside; 0 without one.
    """

    joules: float
    uncertainty_joules: float
    method: str
    parts: tuple[tuple[str, float], ...] = ()
    warnings: tuple[str, ...] = ()
    aliased: tuple[float, float] = (math.nan, math.nan)
    evidence: float = 0.0

    @classmethod
    def of(
        cls, joules: float, method: str, parts: Sequence[tuple[str, float]], warnings: tuple[str, ...] = ()
    ) -> Energy:
        """Make one of independent parts of its uncertainty, the greatest first."""
        ranked = tuple(sorted(((n, u) for n, u in parts if u > 0), key=lambda p: -p[1]))
        made = cls(joules, math.sqrt(sum(u * u for _, u in ranked)), method, ranked, warnings)
        return replace(made, aliased=(made.low, made.high))

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.joules - Z95 * self.uncertainty_joules

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.joules + Z95 * self.uncertainty_joules


def region_energy(
    t_s: Floats,
    watts: Floats,
    response: Response,
    *,
    start_s: float,
    end_s: float,
    load: LoadIntervals | None = None,
    ahead_s: float = 0.0,
    load_period_s: tuple[float, float] | None = None,
) -> Energy:
    """Energy of an interval with everything corrected that the response allows, and its interval.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        Updates as shown by the sensor (not corrected), in order, reaching a lag beyond both ends; those around the
        interval tell more of it, 40 periods either side.
    response : Response
        Kernel, gain, offset and their uncertainties.
    load : LoadIntervals, optional
        When the load was on, also before and after the interval.
    ahead_s : float
        By how much the updates may fall short of the end, so that the power goes on as it did, less and less surely.
    load_period_s : (float, float), optional
        Between which the period of a load that repeats is known to be; None: any, and the worst case is that of a load
        in step with the readings.

    Raises
    ------
    CoverageError
        The updates do not reach over the interval, or the interval is empty.
    ValueError
        The response does not know the time between updates.
    """
    if not response.period_s:
        msg = "an energy cannot be corrected without the time between updates: give the response a period"
        raise ValueError(msg)
    region, power = (start_s, end_s), response.power(watts)
    near = _around(t_s, response, region, ahead_s)
    t, seen = t_s[near], power[near]
    begins = float(t[0]) - response.delay_s - response.span_s
    inside = slice(*np.searchsorted(t - response.lag_s, region))
    # A power that lasts is rounded alike in all readings; what differs between them is noise of the estimator.
    rounded = rounding_error(seen[inside], response.noise_in_s, response.step_w / response.gain)
    notes = _gaps(t, response, region)
    ends = float(t[-1]) - response.delay_s
    if load is not None and load.knows(*region) and load.switches(begins, ends):
        stamped = StampedLoad.beforehand(load, response, t, seen, region)
        readings = Readings(t, seen, response, region, load.unknown(begins, ends))
        found = _informed(readings, stamped)
        if stamped.late(found):
            notes = (*notes, _off_the_stamps(*(float(x) for x in found.unknowns[1:3])))
        energy = _stated(found, response, region, "load-informed", notes, rounded_w=rounded)
        energy = replace(energy, evidence=found.evidence)
        share = math.sqrt(found.variance) / max(abs(found.joules), 1e-300)
        return energy if share <= _HARDLY_KNOWN_U else replace(energy, warnings=(*energy.warnings, _hardly(share)))
    found = _alone(Readings(t, seen, response, region), t, region)
    swings_w = sum(_swing(found, response, at) for at in region)
    energy = _stated(found, response, region, "reconstruction", notes, rounded_w=rounded)
    return _in_step(energy, power, response, length_s=end_s - start_s, swings_w=swings_w, load_period_s=load_period_s)


def likely_energy(
    t_s: Floats,
    watts: Floats,
    responses: Sequence[tuple[float, Response]],
    *,
    start_s: float,
    end_s: float,
    load: LoadIntervals | None = None,
    ahead_s: float = 0.0,
    load_period_s: tuple[float, float] | None = None,
) -> Energy:
    """Energy of an interval by each response that a sensor may have, with the share of belief in it.

    The mean of all, and what they differ by as a part of the uncertainty; all else is as :func:`region_energy` says.
    """
    about = {"start_s": start_s, "end_s": end_s, "ahead_s": ahead_s}
    found = [
        region_energy(t_s, watts, response, **about, load=load, load_period_s=load_period_s)
        for _, response in responses
    ]
    return mixture([(share, each) for (share, _), each in zip(responses, found, strict=True)], "kernel")


def mixture(parts: Sequence[tuple[float, Energy]], cause: str) -> Energy:
    """Return an energy that is one of several, each with its share of belief; ``cause`` is what they differ by."""
    if len(parts) == 1:
        return parts[0][1]
    found, share = [each for _, each in parts], np.array([share for share, _ in parts])
    best = found[int(np.argmax(share))]
    share /= np.sum(share)
    joules = float(share @ [e.joules for e in found])
    # One of little belief lies outside of two standard deviations of the mixture, but not of its quantiles.
    ends = mixed([(p, Estimate(e.joules, e.low, e.high)) for p, e in zip(share.tolist(), found, strict=True)])
    widest = max(abs(end - joules) for end in ends) / Z95
    apart = math.sqrt(max(widest**2 - best.uncertainty_joules**2, 0.0))
    both = Energy.of(joules, best.method, [*best.parts, (cause, apart)], best.warnings)
    low, high = (float(share @ [e.aliased[i] - e.joules for e in found]) for i in (0, 1))
    aliased = min(both.low, joules + low), max(both.high, joules + high)
    return replace(both, aliased=aliased, evidence=best.evidence)


# --- which readings ---


def _around(t_s: Floats, response: Response, region: tuple[float, float], ahead_s: float) -> slice:
    """Return the readings that tell something of an interval, or refuse it."""
    start, end = region
    if not end > start:
        msg = f"the interval from {start} to {end} s is empty"
        raise CoverageError(msg)
    period = response.period_s
    reach = max(_CONTEXT_PERIODS * period, 2.0 * response.span_s) + abs(response.delay_s)
    first, last = (int(i) for i in np.searchsorted(t_s, [start - reach, end + reach]))
    seen_s = t_s[first:last] - response.lag_s  # what stands for half a period either side
    until = (
        max(seen_s[-1] + period / 2.0, t_s[last - 1] - response.delay_s) + ahead_s if last > first + 1 else -math.inf
    )
    if until < end - 1e-9 or seen_s[0] > start + period / 2.0 + 1e-9:
        msg = f"updates do not cover the interval from {start:.3f} to {end:.3f} s"
        raise CoverageError(msg)
    return slice(first, last)


def _gaps(t_s: Floats, response: Response, region: tuple[float, float]) -> tuple[str, ...]:
    """Say so when updates are missing for longer than three periods."""
    reach = 2.0 * response.period_s
    near = t_s[(t_s > region[0] + response.lag_s - reach) & (t_s < region[1] + response.lag_s + reach)]
    widest = float(np.max(np.diff(near))) if len(near) > 1 else 0.0
    if widest <= _MARKED_GAP_PERIODS * response.period_s:
        return ()
    return (f"no update for {widest:.3g} s inside the region: what the power did meanwhile is not known",)


# --- with and without the load's stamps ---


class _Explained(NamedTuple):
    """Readings explained by a stamped load, and by what pace and about what values of its unknowns."""

    found: Posterior
    pace: Pace
    at: Floats
    square: Floats


def _informed(readings: Readings, load: StampedLoad) -> Posterior:
    """Explain readings by a stamped load and a rest; and by one whose stamps alone scatter, where that explains more.

    Both are weighed by what the first found of its rise: a load that repeats in step shows next to none, and each finds
    another.
    """
    first = _started(readings, load)
    even = load.evened()
    odds = readings.solve(first.pace, even.about(first.at, first.square), judged=True).evidence - first.found.evidence
    share = 1.0 / (1.0 + math.exp(-min(max(odds, -500.0), 500.0)))
    if share * (1.0 + NAMED) < 1.0:
        return first.found
    other = _started(readings, even).found
    best = other if share > 0.5 else first.found
    joules = (1.0 - share) * first.found.joules + share * other.joules
    variance = (1.0 - share) * (first.found.variance + (first.found.joules - joules) ** 2)
    variance += share * (other.variance + (other.joules - joules) ** 2)
    return replace(best, joules=joules, variance=variance)


def _started(readings: Readings, load: StampedLoad) -> _Explained:
    """Explain readings by a stamped load and a rest; from another start too where its stamps may be off by more."""
    first = _explained(readings, load, (0.0, 0.0))
    if not load.telling:
        return first

    def odds(start: tuple[float, float]) -> float:
        return readings.solve(first.pace, load.about(*load.start(readings.y, *start)), judged=True).evidence

    steps = [sign * by for by in _LATE_STARTS_S for sign in (-1.0, 1.0)]
    late = max([(0.0, 0.0), *((0.0, by) for by in steps)], key=odds)
    best = max([late, *((by, late[1]) for by in steps), *((by, late[1] + by) for by in steps)], key=odds)
    return max([first, _explained(readings, load, best)], key=lambda f: f.found.evidence) if any(best) else first


def _explained(readings: Readings, load: StampedLoad, start: tuple[float, float]) -> _Explained:
    at, square = load.start(readings.y, *start)
    pace = readings.first()
    for _ in range(_ROUNDS):
        found = readings.solve(pace, load.about(at, square))
        at, pace = found.unknowns, readings.next(pace, found)
        square = (at - load.mean) ** 2 + np.diag(found.spread)
    pace = readings.stated(pace)
    return _Explained(readings.solve(pace, load.about(at, square), judged=True), pace, at, square)


def _off_the_stamps(early_s: float, late_s: float) -> str:
    said = [
        f"{what} {1e3 * abs(by):.2g} ms {'early' if by > 0.0 else 'late'}"
        for what, by in (("begins", late_s), ("ends", late_s - early_s))
    ]
    return (
        f"the readings follow the load best if its stamps are off, {' and '.join(said)}, and are corrected for that: "
        "were they taken when the work had ended, and by the same clock?"
    )


def _hardly(share: float) -> str:
    return (
        "the sensor sees the load in too few phases to tell its levels from its duty cycle, so its energy is known "
        f"to {Z95 * share:.0%} only: take another period of the load"
    )


def _alone(readings: Readings, t_s: Floats, region: tuple[float, float]) -> Posterior:
    """Explain readings alone; and with a step just at the start, the end, or both, as far as that explains them better.

    A program's regions begin and end where its load does. Readings that see all the time prove it by their values: a
    step elsewhere between two readings would leave another mean.
    """
    nothing, pace = Terms.none(len(t_s)), readings.first()
    for _ in range(_ROUNDS):
        pace = readings.next(pace, readings.solve(pace, nothing))
    pace = readings.stated(pace)
    found = [readings.solve(pace, nothing, judged=True)]
    odds = [found[0].evidence]
    for ends in (region[:1], region[1:], region):
        found.append(
            readings.solve(_calm(pace, readings, ends, region[1]), _steps(ends, region[1], readings, t_s), judged=True)
        )
        odds.append(found[-1].evidence + len(ends) * math.log(_STEP_ODDS))
    weight = np.exp(np.array(odds) - max(odds))
    weight /= np.sum(weight)
    joules = float(weight @ [f.joules for f in found])
    variance = float(weight @ [f.variance + (f.joules - joules) ** 2 for f in found])
    return replace(found[0], joules=joules, variance=variance)


def _calm(pace: Pace, readings: Readings, ends: Sequence[float], end_s: float) -> Pace:
    """Return a pace by which nothing but the step itself happened before a start, or after an end."""
    walk, inner, period = pace.walk.copy(), readings.bounds_s[1:-1], readings.response.period_s
    for at in ends:
        outside = (inner - at if at == end_s else at - inner) / period
        near = (outside > 0.0) & (outside < _QUIET_PERIODS)
        beside = pace.walk[np.abs(inner - at) < STRETCH * period]
        walk[near] = np.minimum(walk[near], np.quantile(beside, 0.25)) if len(beside) else walk[near]
    return replace(pace, walk=walk)


def _steps(at: Sequence[float], end_s: float, readings: Readings, t_s: Floats) -> Terms:
    """Return the terms of steps at some instants."""
    n, k, response = len(t_s), len(at), readings.response
    columns = np.column_stack([response.step(t_s - response.delay_s - a) for a in at])
    sd = np.full(k, max(float(np.ptp(readings.y)), response.noise_in_s, 1e-9))
    weights = np.array([end_s - a for a in at])
    return Terms(np.zeros(k), np.zeros(k), sd, np.zeros(n), columns, 0.0, weights)


# --- what is stated ---


def _stated(
    found: Posterior,
    response: Response,
    region: tuple[float, float],
    method: str,
    notes: tuple[str, ...],
    *,
    rounded_w: float,
) -> Energy:
    """Put what the sensor itself is wrong by beside what the readings leave open."""
    start, end = (int(np.searchsorted(found.bounds_s, at)) for at in region)
    last = len(found.watts) - 1  # the power just before and just after the two ends
    rose = [found.watts[min(max(end + i, 0), last)] - found.watts[min(max(start + i, 0), last)] for i in (-1, 0)]
    # A load faster than the readings is ahead of its mean where a region begins or ends with it, at both ends alike.
    ahead = 0.0 if len(found.unknowns) else sum(_ahead_of_mean(found, response, at) for at in region)
    parts = [
        ("reconstruction", math.sqrt(max(0.0, found.variance))),
        ("edges", ahead),
        ("gain", response.gain_u * abs(found.joules - response.known_at_w * (region[1] - region[0]))),
        ("offset", response.offset_u / response.gain * (region[1] - region[0])),
        ("state", response.off_line_j(region[1] - region[0])),
        ("resolution", rounded_w * (region[1] - region[0])),
        ("lag", response.lag_u * float(np.max(np.abs(rose)))),
        # A step is anywhere in what is not seen of its period.
        ("blind", response.blind_s / math.sqrt(12.0) * math.hypot(*(_swing(found, response, at) for at in region))),
    ]
    return Energy.of(found.joules, method, parts, notes)


def _ahead_of_mean(found: Posterior, response: Response, at_s: float) -> float:
    """Return by how many joules a load that readings do not resolve may be ahead of its mean where it begins or ends.

    Readings scatter by it; of one that is as short as their period, or is on where they look away, they show a swing.
    """
    scatter = float(np.interp(at_s, (found.bounds_s[1:] + found.bounds_s[:-1]) / 2.0, found.scatter))
    shown = _IN_PHASE * math.sqrt(scatter * max(response.period_s, response.span_s))
    return max(shown, _FAST_LOAD_SHARE * _swing(found, response, at_s) * response.period_s)


def _swing(found: Posterior, response: Response, at_s: float) -> float:
    """Return the largest less the smallest power within a period of an instant, the stamped load included."""
    near = np.abs((found.bounds_s[1:] + found.bounds_s[:-1]) / 2.0 - at_s) < response.period_s
    rise = float(found.unknowns[0]) if len(found.unknowns) else 0.0
    return float(np.ptp(found.watts[near])) + abs(rise)


def _in_step(
    energy: Energy,
    power: Floats,
    response: Response,
    *,
    length_s: float,
    swings_w: float,
    load_period_s: tuple[float, float] | None,
) -> Energy:
    """State what the energy may be if the load repeats in step with the sensor (:func:`joules_in_step`)."""
    shown = float(np.min(power)), float(np.max(power))
    least, most = joules_in_step(response, energy.joules, length_s, shown, swings_w, load_period_s=load_period_s)
    low, high = min(energy.low, least), max(energy.high, most)
    energy = replace(energy, aliased=(low, high))
    if not to_be_said(low, high, energy.joules, (energy.high - energy.low) / 2.0):
        return energy
    sees = "" if response.coverage >= FULL_COVERAGE else f"the sensor sees {response.coverage:.0%} of the time: "
    least = max(low, min(energy.joules, 0.0))  # no load uses less than nothing, unless it was shown to
    why = (
        f"{sees}a load that repeats nearly in step with its updates, every {response.period_s:.3g} s, can alias: "
        f"the energy then is anything from {least:.4g} to {high:.4g} J; stamps of the load rule that out"
        f"{'' if load_period_s else ', or its period where you know it'}"
    )
    return replace(energy, warnings=(*energy.warnings, why))
