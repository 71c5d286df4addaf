"""The energy of an interval from the readings of a sensor that is late, averages, or looks away. Pure numpy.

One estimator for every sensor and every load: :mod:`pmtpy.analysis.energy._posterior` finds the power behind the
readings, and the energy is a sum over it. Readings are explained by themselves
(:mod:`pmtpy.analysis.energy._without_stamps`), or by a load whose stamps are known
(:mod:`pmtpy.analysis.energy._by_stamps`); here is what is asked of them, and what is stated. That the load repeats in
step with the sensor is a hypothesis that no reading tells of: it is stated beside the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.energy._by_stamps import explained_by_stamps
from pmtpy.analysis.energy._posterior import Posterior, Readings
from pmtpy.analysis.energy._stamped import StampedLoad
from pmtpy.analysis.energy._without_stamps import ahead_of_mean, explained_alone, swing
from pmtpy.analysis.signal.estimate import NAMED, Z95, mixed, rounding_error
from pmtpy.analysis.uncertainty.budget import UncertaintyBudget
from pmtpy.analysis.uncertainty.channel_times import UNSEEN_RENEWALS
from pmtpy.analysis.uncertainty.components import of_scale
from pmtpy.analysis.uncertainty.in_step import (
    aliasing,
    in_step_with,
    joules_in_step,
    left_out_s,
    rests,
    span_of_powers,
    top_unseen,
)
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.presentation import amount, duration
from pmtpy.core.response import FORGOTTEN, Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError

_CONTEXT_PERIODS = 40.0  # periods either side that tell how the power moves, and the levels of a stamped load
_TOP_UNSEEN = (
    "of a load that repeats so, the readings may see the same part each time, and never its highest power: if it ever "
    "uses more than the {:.4g} W that were shown, no interval here holds; stamps of the load tell that (region.load(), "
    "--load FILE), or a while at full load in the recording"
)
_NOT_FOLLOWED = (
    "the readings do not follow the load's stamps, which were not used: are they of this run, of this device, of its "
    "clock, and complete?"
)
_ODD_DELAYS = (
    "the readings follow the load's stamps with delays that are not usual, for which they were corrected as far as "
    "they tell: were the stamps taken when the work had ended, and by the same clock, and are readings polled in time?"
)
_TOLD_WHOLE = "they have to tell of all of it (stamp by region.load(), or once before it begins)"
_HARDLY_KNOWN_U = 0.02  # standard uncertainty of a stamped load's energy from which it is said that it is hardly known
# Of a load, of all of it: up to so much from either end of it a reading shows a level. Where readings show both, what
# they leave open is not for want of phases.
_SHOWS_LEVEL = 0.25


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

    def __post_init__(self) -> None:
        """Take plain numbers for those of arrays, whose text is another, and which JSON does not know."""
        parts, (low, high) = tuple([(name, float(u)) for name, u in self.parts]), self.aliased
        numbers = {name: float(getattr(self, name)) for name in ("joules", "uncertainty_joules", "evidence")}
        for name, value in {**numbers, "parts": parts, "aliased": (float(low), float(high))}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls, joules: float, method: str, parts: Sequence[tuple[str, float]], warnings: tuple[str, ...] = ()
    ) -> Energy:
        """Make one of independent parts of its uncertainty."""
        budget = UncertaintyBudget.of(parts, warnings)
        made = cls(joules, budget.uncertainty_joules, method, budget.components, budget.warnings)
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
        The response does not know the time between updates; or the updates are not as many finite powers as instants
        in order.
    """
    t_s, watts = _updates(t_s, watts)
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

    def unstamped() -> Energy:
        found, ahead_j = explained_alone(Readings(t, seen, response, region), region)
        swings_w = sum(swing(found, response, at) for at in region)
        one = _stated(found, response, region, "reconstruction", notes, rounded_w=rounded, parts={"edges": ahead_j})
        one = _in_step(one, (t_s, power), response, region, swings_w=swings_w, load_period_s=load_period_s)
        if load_period_s is None or not top_unseen(response, t_s - response.lag_s, power, region, load_period_s):
            return one
        return replace(one, warnings=(*one.warnings, _TOP_UNSEEN.format(float(np.max(power)))))

    if load is None or not load.knows(*region) or not load.switches(begins, ends):
        one, why = unstamped(), partly_stamped(load, *region)
        return replace(one, warnings=(*filter(None, [why]), *one.warnings))
    stamped = StampedLoad.beforehand(load, response, t, seen, region)
    found, share = explained_by_stamps(Readings(t, seen, response, region, load.unknown(begins, ends)), stamped)
    energy = _left_out(_by_stamps(found, stamped, notes, rounded_w=rounded), stamped, seen)
    if share * (1.0 + NAMED) > NAMED:
        return energy
    both = mixture([(share, energy), (1.0 - share, unstamped())], "stamps")
    warnings = both.warnings if share > 0.5 else (*both.warnings, _NOT_FOLLOWED)
    return replace(both, warnings=warnings, evidence=found.evidence)


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


def stamps_around_s(response: Response) -> float:
    """How far around an interval the readings are that tell of it, and what they show of before; seconds."""
    readings_s = max(_CONTEXT_PERIODS * response.period_s, 2.0 * response.span_s)
    return readings_s + 2.0 * abs(response.delay_s) + FORGOTTEN * response.span_s


def partly_stamped(load: LoadIntervals | None, start_s: float, end_s: float) -> str:
    """Say that stamps tell of a part of an interval only, for which they are not used; else nothing."""
    if load is None or load.knows(start_s, end_s):
        return ""
    first, last = load.longest_known(start_s, end_s)
    if not last > first:
        return ""
    if last < end_s:
        told = f"for {duration(last - first)} of its {duration(end_s - start_s)} only"
    else:
        told = f"only from {duration(first - start_s)} after its start on"
    return f"the load's stamps tell of the region {told}, and are not used: {_TOLD_WHOLE}"


def mixture(parts: Sequence[tuple[float, Energy]], cause: str) -> Energy:
    """Return an energy that is one of several, each with its share of belief; ``cause`` is what they differ by."""
    if len(parts) == 1:
        return parts[0][1]
    found, share = [each for _, each in parts], np.array([share for share, _ in parts])
    best = found[int(np.argmax(share))]
    share /= np.sum(share)
    each_j, low, high = np.array([(e.joules, e.low, e.high) for e in found]).T
    joules = float(share @ each_j)
    # One of little belief lies outside of two standard deviations of the mixture, but not of its quantiles.
    widest = max(abs(end - joules) for end in mixed(share, each_j, low, high)) / Z95
    apart = math.sqrt(max(widest**2 - best.uncertainty_joules**2, 0.0))
    both = Energy.of(joules, best.method, [*best.parts, (cause, apart)], best.warnings)
    low, high = (float(share @ [e.aliased[i] - e.joules for e in found]) for i in (0, 1))
    aliased = min(both.low, joules + low), max(both.high, joules + high)
    return replace(both, aliased=aliased, evidence=best.evidence)


# --- which readings ---


def _updates(t_s: Floats, watts: Floats) -> tuple[Floats, Floats]:
    """Return instants and powers as arrays that can be worked with."""
    t, shown = np.asarray(t_s, np.float64), np.asarray(watts, np.float64)
    if t.ndim != 1 or t.shape != shown.shape:
        msg = f"t_s and watts are as many instants as powers, in one row each, not {t.shape} and {shown.shape}"
        raise ValueError(msg)
    if not (np.isfinite(shown).all() and (np.diff(t) >= 0.0).all()):
        msg = "updates are finite powers at instants in order: leave out values that are missing, and sort by time"
        raise ValueError(msg)
    return t, shown


def _around(t_s: Floats, response: Response, region: tuple[float, float], ahead_s: float) -> slice:
    """Return the readings that tell something of an interval, or refuse it."""
    start, end = region
    if not end > start:
        msg = f"the interval from {start} to {end} s is empty"
        raise CoverageError(msg)
    period = response.period_s
    reach = max(_CONTEXT_PERIODS * period, 2.0 * response.span_s) + abs(response.delay_s)
    first, last = (int(i) for i in np.searchsorted(t_s, [start - reach, end + reach]))
    # What was shown last before the interval and first after it tells of it, however far away that was.
    inside = np.searchsorted(t_s, np.array([start, end]) + response.lag_s)
    first, last = max(min(first, int(inside[0]) - 1), 0), min(max(last, int(inside[1]) + 1), len(t_s))
    seen_s = t_s[first:last] - response.lag_s  # what stands for half a period either side
    until = (
        max(seen_s[-1] + period / 2.0, t_s[last - 1] - response.delay_s) + ahead_s if last > first + 1 else -math.inf
    )
    if until < end - 1e-9 or seen_s[0] > start + period / 2.0 + 1e-9:
        msg = f"updates do not cover the interval from {start:.3f} to {end:.3f} s"
        raise CoverageError(msg)
    return slice(first, last)


def _gaps(t_s: Floats, response: Response, region: tuple[float, float]) -> tuple[str, ...]:
    """Say so when updates are missing for longer than three periods in the region, or around it."""
    start, end = (at + response.lag_s for at in region)
    first, last = np.searchsorted(t_s, start, "right") - 1, np.searchsorted(t_s, end) + 1
    widest = float(np.max(np.diff(t_s[max(first, 0) : last]), initial=0.0))
    if widest <= UNSEEN_RENEWALS * response.period_s:
        return ()
    unknown = "what the power did meanwhile is not known"
    return (f"no update, or none of a known instant, for {widest:.3g} s in or around the region: {unknown}",)


# --- with and without the load's stamps ---


def _by_stamps(found: Posterior, load: StampedLoad, gaps: tuple[str, ...], *, rounded_w: float) -> Energy:
    """State the energy that a stamped load explains the readings by, and what is odd about it."""
    response, region, notes = load.response, load.region, gaps
    late, odd = load.late(found), load.odd(found)
    if late:
        notes = (*notes, _off_the_stamps(*(float(x) for x in found.unknowns[1:3])))
    elif odd:
        notes = (*notes, _ODD_DELAYS)
    parts = {
        # What the stamps do not explain may be ahead of its mean at the ends, as any power without stamps.
        "edges": ahead_of_mean(found, response, region),
        "sampling": math.sqrt(load.unseen_w2(found) * (region[1] - region[0]) * response.period_s),
        "clock": load.delayed_j(found),
    }
    energy = _stated(found, response, region, "load-informed", notes, rounded_w=rounded_w, parts=parts)
    share = math.sqrt(found.variance) / max(abs(found.joules), 1e-300)
    # Where updates are missing no other load would be known better.
    warnings = energy.warnings if gaps or share <= _HARDLY_KNOWN_U else (*energy.warnings, _hardly(load, share))
    return replace(energy, warnings=warnings, evidence=found.evidence)


def _left_out(energy: Energy, load: StampedLoad, shown_w: Floats) -> Energy:
    """State what the energy may be if all blocks do alike where no reading looks: no stamp says that they are even."""
    response, on = load.response, load.load
    left_s = left_out_s(response, load.t_s, on.on_s[(on.on_s > load.t_s[0]) & (on.on_s < load.t_s[-1])])
    if not left_s:
        return energy
    lowest, highest = span_of_powers(float(np.min(shown_w)), float(np.max(shown_w)))
    blocks_s = np.minimum(on.off_s, load.region[1]) - np.maximum(on.on_s, load.region[0])
    by = float(np.sum(np.clip(blocks_s, 0.0, left_s))) * (highest - lowest)
    cure = "readings look away from each stamped block at the same place: let blocks last longer or shorter, in turn"
    return _worst_case(energy, response, (energy.low - by, energy.high + by), lowest, cure)


def _off_the_stamps(early_s: float, late_s: float) -> str:
    said = [
        f"{what} {1e3 * abs(by):.2g} ms {'early' if by > 0.0 else 'late'}"
        for what, by in (("begins", late_s), ("ends", late_s - early_s))
    ]
    return (
        f"the readings follow the load best if its stamps are off, {' and '.join(said)}, and are corrected for that: "
        "were they taken when the work had ended, and by the same clock? So it looks, too, if a block begins or ends "
        "with less power than it has between"
    )


def _hardly(load: StampedLoad, share: float) -> str:
    """Say that an energy is hardly known: of several blocks of which readings do not show both levels, why."""
    known, (start, end), on = f"to {Z95 * share:.0%} only", load.region, load.load
    t_s = load.t_s[slice(*np.searchsorted(load.t_s - load.response.lag_s, load.region))]
    blocks = int(np.count_nonzero((on.on_s < end) & (on.off_s > start)))
    seen = load.response.shown(on, t_s)
    if blocks > 1 and len(t_s) and not float(np.min(seen)) < _SHOWS_LEVEL < 1.0 - _SHOWS_LEVEL < float(np.max(seen)):
        return (
            "the sensor sees the load in too few phases to tell its levels from its duty cycle, so its energy is known "
            f"{known}: take another period of the load"
        )
    of = f"{amount(len(t_s), 'reading')} of {amount(blocks, 'block')} of the load in the region, and those around it,"
    return f"{of} tell its energy {known}: measure more blocks in one, or longer ones"


# --- what is stated ---


def _stated(
    found: Posterior,
    response: Response,
    region: tuple[float, float],
    method: str,
    notes: tuple[str, ...],
    *,
    rounded_w: float,
    parts: Mapping[str, float],
) -> Energy:
    """Put what the sensor itself is wrong by beside what the readings leave open; ``parts``: more of the latter."""
    start, end = (int(np.searchsorted(found.bounds_s, at)) for at in region)
    last = len(found.watts) - 1  # the power just before and just after the two ends
    rose = [found.watts[min(max(end + i, 0), last)] - found.watts[min(max(start + i, 0), last)] for i in (-1, 0)]
    rise = float(found.unknowns[0]) if len(found.unknowns) else 0.0
    swings = [swing(found, response, at) + abs(rise) for at in region]
    seconds = region[1] - region[0]
    all_parts = {
        "reconstruction": math.sqrt(max(0.0, found.variance)),
        **parts,
        **of_scale(response, response.gain_u, response.offset_u / response.gain, found.joules, seconds),
        "resolution": rounded_w * seconds,
        "lag": response.lag_u * float(np.max(np.abs(rose))),
        # A step is anywhere in what is not seen of its period.
        "blind": response.blind_s / math.sqrt(12.0) * math.hypot(*swings),
    }
    return Energy.of(found.joules, method, list(all_parts.items()), notes)


def _in_step(
    energy: Energy,
    shown: tuple[Floats, Floats],
    response: Response,
    region: tuple[float, float],
    *,
    swings_w: float,
    load_period_s: tuple[float, float] | None,
) -> Energy:
    """State what the energy may be if the load repeats in step with the sensor (:func:`joules_in_step`).

    ``shown``: when readings were published, and the power by each.
    """
    lowest, highest = float(np.min(shown[1])), float(np.max(shown[1]))
    powers = lowest if rests(response, *shown) else min(lowest, 0.0), highest
    seconds = region[1] - region[0]
    least, most = joules_in_step(response, energy.joules, seconds, powers, swings_w, load_period_s=load_period_s)
    cure = "stamps of the load rule that out (region.load(), --load FILE)"
    cure += "" if load_period_s else ", or its period (--load-period)"
    return _worst_case(energy, response, (min(energy.low, least), max(energy.high, most)), lowest, cure)


def _worst_case(energy: Energy, response: Response, aliased: tuple[float, float], lowest_w: float, cure: str) -> Energy:
    """State where the energy lies at the worst; and say so, with what rules it out, if it is far from the rest."""
    why = aliasing(
        energy.joules,
        (energy.high - energy.low) / 2.0,
        aliased,
        lowest_w=lowest_w,
        covers=response.coverage,
        period=in_step_with(response.period_s, response.window_s),
        cure=cure,
    )
    return replace(energy, aliased=aliased, warnings=(*energy.warnings, *filter(None, [why])))
