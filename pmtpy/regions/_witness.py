"""Readings of one part held against each other: what another contradicts is as uncertain as that (docs/uncertainty.md).

Pure. A counter and the powers beside it, or several powers, tell one energy. Where two of them cannot both be right,
nothing says which is wrong, unless more of the others agree with one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget
from pmtpy.analysis.uncertainty.channel_times import is_power
from pmtpy.analysis.uncertainty.components import STANDSTILL
from pmtpy.analysis.uncertainty.counted import counted
from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.interval_statistics import summarise
from pmtpy.core.presentation import amount, duration
from pmtpy.core.rows import Frame
from pmtpy.regions._found import Found
from pmtpy.regions._kept import Kept
from pmtpy.regions._parting import beyond_all_shown, stretch_s, widest

# Standard deviations between two readings of one part, beyond which they contradict each other: by chance once in 370
# times (normal distribution).
_CONTRADICTION_SD = 3.0
# Over the stretch of many in which they differ most: by chance once in two million times.
_PARTING_SD = 5.0
_AGREEMENT_SD = 1.0  # within which another reading of the part takes the side of one
_STILL_REFRESHES = 3.0  # one may pass before a counter moves, and one more if rows come late
_WRONG = "a counter that rested or leapt, a power that stood still or missed the load"


def witnessed(found: Sequence[Found], kept: Kept, rows: Frame) -> list[Found]:
    """Make each energy as uncertain as what contradicts it."""
    layout, told = kept.facts.layout, list(found)
    for places in layout.witnesses:
        for i, doubt in zip(places, _doubts([found[i] for i in places], kept.seconds), strict=True):
            told[i] = doubt.of(told[i])
        _doubt_where_they_part(told, found, places, kept, rows)
        counters = [i for i in places if not is_power(found[i].channel)]
        powers = [i for i in places if i not in counters]
        for i in [i for i in counters if told[i] is found[i] and powers]:
            told[i] = _held_against_each_power(found, i, powers, kept, rows)
    for i, parts in layout.inside:
        told[i] = _held_against_part(told[i], max([told[p] for p in parts], key=lambda f: f.joules), kept.seconds)
    return told


class _Doubt(NamedTuple):
    """What contradicts an energy: by how much, and what is to be said of it."""

    joules: float = 0.0
    text: str = ""

    def of(self, found: Found) -> Found:
        """Make an energy as uncertain."""
        if not self.joules:
            return found
        warning = f"{found.channel.name}: {self.text}" if self.text else ""
        return found._replace(budget=_known(found.budget)).contradicted(self.joules, warning)


def _doubts(
    readings: Sequence[Found], seconds: float, most_sd: float = _CONTRADICTION_SD, where: str = ""
) -> list[_Doubt]:
    """Doubt each reading of a part that another one contradicts, unless more of them agree with it than with that.

    ``seconds``: for how long a counter that has not moved has not; 0: that tells nothing.
    """
    known = [f._replace(budget=_known(f.budget)) for f in readings]
    every = range(len(known))
    apart_sd = [[_apart_sd(a, b) for b in known] for a in known]
    agree = [[j for j in every if j != i and apart_sd[i][j] <= _AGREEMENT_SD] for i in every]

    def contradicts(j: int, i: int) -> bool:
        if _stands_still(known[i], known[j], seconds):
            return True
        # One that has seen less of the time, or has never moved, tells nothing against one that has seen more.
        able = known[j].uncovered_s <= known[i].uncovered_s and known[j].budget is readings[j].budget
        # Nor does one as it was shown, or by its kernel alone, against one that knows what fell between the readings.
        able = able and (known[j].load_informed or not known[i].load_informed)
        able = able and not _stands_still(known[j], known[i], seconds)
        return able and apart_sd[i][j] > most_sd and len(agree[j]) >= len(agree[i])

    found = []
    for i, one in enumerate(known):
        rivals = [j for j in every if j != i and contradicts(j, i)]
        if not rivals:
            # Of a counter that has never moved the others tell what its part used.
            other = next(f for j, f in enumerate(known) if j != i)
            found.append(_Doubt() if one.budget is readings[i].budget else _Doubt(_span(one, other)))
            continue
        rival = max(rivals, key=lambda j: _span(one, known[j]))
        side = [known[j] for j in (rival, *agree[rival]) if j != i][:2]
        outvoted = len(agree[rival]) > len(agree[i])
        text = _told(one, side, where) if outvoted else _told(one, side[:1], where)
        found.append(_Doubt(_span(one, known[rival]), text))
    return found


def _told(one: Found, others: Sequence[Found], where: str) -> str:
    says = "it says" if is_power(one.channel) else "the counter says"
    if len(others) == 1:
        (other,) = others
        return (
            f"{where}{says} {one.joules:.4g} J and {other.channel.name} {other.joules:.4g} J, further apart than their "
            f"uncertainties allow; one of them is wrong here ({_WRONG}), and the uncertainty spans both"
        )
    names = " and ".join([f.channel.name for f in others])
    energies = " and ".join([f"{f.joules:.4g}" for f in others])
    return (
        f"{where}{says} {one.joules:.4g} J, {names} {energies} J: it is wrong here ({_WRONG}), and its uncertainty "
        "spans all"
    )


def _apart_sd(a: Found, b: Found) -> float:
    allowed = math.hypot(a.budget.uncertainty_joules, b.budget.uncertainty_joules)
    return abs(a.joules - b.joules) / allowed if allowed else math.inf


def _span(one: Found, other: Found) -> float:
    """How far an energy is off if the other one is right, which is uncertain itself."""
    return math.hypot(one.joules - other.joules, other.budget.uncertainty_joules)


def _stands_still(counter: Found, other: Found, seconds: float) -> bool:
    """Whether a counter has not moved for several refreshes, and so has not counted what a power shows.

    However uncertain that is.
    """
    channel = counter.channel
    still = not is_power(channel) and counter.joules < channel.smallest_step
    still = still and seconds >= _STILL_REFRESHES * (channel.refresh_s or math.inf)
    return still and is_power(other.channel) and other.joules > 10 * channel.smallest_step


def _doubt_where_they_part(
    told: list[Found], found: Sequence[Found], places: Sequence[int], kept: Kept, rows: Frame
) -> None:
    """Hold two readings against each other where they differ most, of what rows are still kept."""
    t_s, channels = kept.times_s(rows), [found[i].channel for i in places]
    length_s = stretch_s(channels)
    if length_s > kept.seconds / 2.0:
        return  # all of it tells as much
    first, last = t_s.searchsorted([0.0, kept.seconds], "left").tolist()
    inside = slice(first, last)
    for pair in combinations(places, 2):
        if any(told[i] is not found[i] or found[i].load_informed for i in pair):
            continue  # rows of a stretch are as shown, not as corrected
        columns = [i + 1 for i in pair]
        gains = (_PARTING_SD * found[pair[0]].channel.gain_u, _PARTING_SD * found[pair[1]].channel.gain_u)
        joules, uncovered_ns = rows.joules[inside][:, columns], rows.uncovered_ns[inside][:, columns]
        there = widest(t_s[inside], joules, uncovered_ns, gains, length_s)
        if there is None:
            continue
        for i, doubt in zip(places, _doubts_within(found, places, kept, rows, first + np.array(there)), strict=True):
            if told[i] is found[i] and not found[i].load_informed:
                told[i] = doubt.of(told[i])


def _doubts_within(
    found: Sequence[Found], places: Sequence[int], kept: Kept, rows: Frame, ends: Sequence[int]
) -> list[_Doubt]:
    """Hold readings against each other over a stretch of the interval, from a row to another."""
    (begin, end), columns, t_s = ends, list(places), kept.times_s(rows)
    channels, joules = [found[i].channel for i in places], rows.joules[:, 1:][:, columns]
    at_s, seconds = float(t_s[begin]), float(t_s[end] - t_s[begin])
    grown = (joules[end] - joules[begin]).tolist()
    left_out = [(x - at_s, y - at_s) for x, y in kept.left_out_s()]
    remarks = kept.remarks
    stretch = Interval(
        seconds, grown, [0.0] * len(columns), 0, remarks.time_u_s, 0.0, remarks.aged_s, left_out_s=left_out
    )
    powers, moved = counted(channels, t_s, rows.watts.T[1:][columns], rows.joules.T[1:][columns])
    seen = summarise(channels, t_s - at_s, powers, stretch, moved)
    readings = [Found.judged(channel, one) for channel, one in zip(channels, seen, strict=True)]
    where = f"within {seconds:.3g} s from {at_s:.3g} s after the beginning "
    return _doubts(readings, 0.0, _PARTING_SD, where)


def _held_against_each_power(found: Sequence[Found], i: int, powers: Sequence[int], kept: Kept, rows: Frame) -> Found:
    """Hold each move of a counter against the highest power about it, where one sees all of the time."""
    counter = found[i].channel
    seeing = [p for p in powers if 0.0 < (found[p].channel.refresh_s or 0.0) <= (found[p].channel.window_s or 0.0)]
    if not seeing or not counter.refresh_s:
        return found[i]
    p = min(seeing, key=lambda k: found[k].channel.window_s or 0.0)
    power, t_s = found[p].channel, kept.times_s(rows)
    leaps = beyond_all_shown(
        t_s,
        rows.joules[:, i + 1],
        rows.watts[:, p + 1],
        refresh_s=max(counter.refresh_s, power.refresh_s or 0.0),
        window_s=power.window_s or 0.0,
        gains=(_PARTING_SD * counter.gain_u, _PARTING_SD * power.gain_u),
        noise_w=_PARTING_SD * math.hypot(power.noise, power.offset_u),
    )
    leaps = [(a, b) for a, b in leaps if t_s[b] > 0.0 and t_s[a] < kept.seconds]
    if not leaps:
        return found[i]
    grown = np.array([rows.joules[b, [i + 1, p + 1]] - rows.joules[a, [i + 1, p + 1]] for a, b in leaps])
    a, b = leaps[0]
    times = f", and {amount(len(leaps) - 1, 'time')} more" if len(leaps) > 1 else ""
    warning = (
        f"{counter.name}: {t_s[b]:.3g} s after the beginning the counter grew by {grown[0, 0]:.4g} J within "
        f"{duration(float(t_s[b] - t_s[a]))}{times}, which no reading of {power.name} about it shows; one of them is "
        "wrong there (a counter that leapt, a power that missed the load), and the uncertainty of the counter now spans"
        " both"
    )
    return found[i].contradicted(float(np.sum(grown[:, 0] - grown[:, 1])), warning)


def _held_against_part(whole: Found, part: Found, seconds: float) -> Found:
    """Take the energy of a part that one of its own parts exceeds for not known: at least the part was used."""
    excess, own = part.joules - whole.joules, _known(whole.budget)
    allowed = math.hypot(own.uncertainty_joules, part.budget.uncertainty_joules)
    if whole.uncovered_s or not excess > _CONTRADICTION_SD * allowed:
        return whole
    warning = (
        f"{whole.channel.name}: it says {whole.joules:.4g} J and {part.channel.name}, a part of it, {part.joules:.4g}"
        " J; one of the two is wrong, so its energy is not known"
    )
    span = math.hypot(excess, part.budget.uncertainty_joules)
    return whole._replace(uncovered_s=seconds, budget=own).contradicted(span, warning)


def _known(budget: UncertaintyBudget) -> UncertaintyBudget:
    """Return what is known of a counter that has never moved, where others tell what its part used."""
    known = [c for c in budget.components if c[0] != STANDSTILL]
    return budget if len(known) == len(budget.components) else UncertaintyBudget.of(known, budget.warnings)
