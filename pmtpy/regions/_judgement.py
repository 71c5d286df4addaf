"""The judgement of an interval: the energy of each channel, how far to trust it, and what a reader must know.

Pure: the way of every interval is the same. The rows around it, corrected where a profile knows how, each channel
judged once, a witness asked where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, of_product, sum_budgets, uncertainty_budget
from pmtpy.analysis.uncertainty.channel_times import is_power
from pmtpy.analysis.uncertainty.components import DOUBTFUL_SHARE, STANDSTILL
from pmtpy.analysis.uncertainty.interval import Interval, IntervalStatistics
from pmtpy.analysis.uncertainty.interval_statistics import lag_corrected, late_joules, summarise
from pmtpy.core.channel import Channel, Derivation
from pmtpy.core.presentation import duration, rows_lost
from pmtpy.core.rows import Floats, Frame
from pmtpy.errors import CoverageError
from pmtpy.regions._kept import Kept, timed
from pmtpy.regions._parting import beyond_all_shown, stretch_s, widest

# Standard deviations between a counter and the power of the same part, beyond which they contradict each other: by
# chance once in 370 times (normal distribution).
_CONTRADICTION_SD = 3.0
# Over the stretch of many in which they differ most: by chance once in two million times.
_PARTING_SD = 5.0
_AGREEMENT_SD = 1.0  # within which another power of the part takes the counter's side
# Moves of a counter that tell what they have in common: by chance n of them are multiples of g once in g^n times.
_MIN_MOVES = 3
_ROUNDING_COUNTS = 0.01  # counts; what rounding leaves of a sum of them
_STILL_REFRESHES = 3.0  # one may pass before a counter moves, and one more if rows come late
_LAG_CORRECTED = "lag corrected"
_FORGOTTEN = (
    "the rows of the region are not kept any more, so how the power moved is judged by its ends alone; ask sooner, or "
    "keep more with history_s="
)
_TOO_LONG = (
    "the region is longer than its rows are kept, so it is not corrected for how the sensor follows time; keep more "
    "with history_s="
)


class Found(NamedTuple):
    """The energy of one channel and its judgement."""

    channel: Channel
    joules: float
    uncovered_s: float
    budget: UncertaintyBudget
    corrected: str = ""

    @property
    def method(self) -> str:
        """How it was come by."""
        own = self.channel.energy_method.value
        return f"{own}, {self.corrected}" if self.corrected else own

    def warned(self, warning: str) -> Found:
        """Say one thing more of it."""
        budget = self.budget._replace(warnings=(*self.budget.warnings, warning))
        return self._replace(budget=budget)


class Judgement(NamedTuple):
    """What was found of every channel with energy, in order, and of their sum."""

    found: tuple[Found, ...]
    summed: UncertaintyBudget
    remarks: tuple[str, ...]  # what holds for all of them


def judged(kept: Kept) -> Judgement:
    """Find and judge the energy of every channel, and of their sum."""
    rows, layout = Frame.joined(kept.rows.frames), kept.facts.layout
    found, forgotten = _found(kept, rows)
    found = _witnessed(found, kept, rows)
    parts = [found[i - 1].budget for i in layout.in_total]
    summed = sum_budgets(parts) if parts else UncertaintyBudget(math.nan)
    remarks = kept.remarks.warnings
    return Judgement(tuple(found), summed, (*remarks, _FORGOTTEN) if forgotten else remarks)


def energies(kept: Kept) -> list[tuple[float, str]] | None:
    """Return the energy and the method of every channel, as :func:`judged` finds them, or None if only that can.

    A profile that knows the kernel changes the energy itself, and so does a part that seems to have used more than the
    whole that it lies in. ``tests/regions/test_judged_when_asked.py`` holds the two functions together.
    """
    layout = kept.facts.layout
    if kept.facts.kernels:
        return None
    found = [(joules, c.energy_method.value) for c, joules in zip(layout.energy, kept.joules, strict=True)]
    late = [i for i in kept.facts.late if not kept.uncovered_s[i]]
    if late:
        rows = Frame.joined(kept.rows.frames)
        powers = [layout.energy[i] for i in late]
        by = late_joules(powers, kept.times_s(rows), rows.watts.T[1:][late], kept.seconds, kept.remarks.aged_s)
        for i, joules in zip(late, by, strict=True):
            if joules:
                found[i] = found[i][0] + joules, f"{found[i][1]}, {_LAG_CORRECTED}"
    if any(found[p][0] > found[i][0] for i, parts in layout.inside for p in parts):
        return None
    return found


def _found(kept: Kept, rows: Frame) -> tuple[list[Found], bool]:
    """Find the energy of every channel: corrected where its profile knows how, else as it was integrated."""
    layout, t_s, watts = kept.facts.layout, kept.times_s(rows), rows.watts.T[1:]
    found: dict[int, Found] = {}
    uncorrected: dict[int, str] = {}  # why a profile's kernel was not corrected for
    gone = any(begin < kept.seconds and end > 0.0 for begin, end in kept.left_out_s())
    for i, channel in enumerate(layout.energy):
        if channel.name not in kept.facts.kernels or kept.uncovered_s[i]:
            continue
        if gone:
            uncorrected[i] = _TOO_LONG
            continue
        try:
            better = _corrected(kept, i, rows, t_s, watts[i])
        except CoverageError as error:
            uncorrected[i] = f"{error}, so it is not corrected for how the sensor follows time"
        else:
            found |= {i: better} if better is not None else {}
    plain = [i for i in range(len(layout.energy)) if i not in found]
    interval, forgotten = kept.interval(rows, plain)
    if plain:
        channels = [
            _stepped(layout.energy[i], rows.joules[:, i + 1])
            if not is_power(layout.energy[i])
            else _informed(layout.energy[i], layout.values, rows.values)
            for i in plain
        ]
        some = watts[plain] if found else watts
        seen = summarise(channels, t_s, some, interval, _moved(channels, rows, plain))
        for i, channel, as_shown in zip(plain, channels, seen, strict=True):
            found[i] = _judged(channel, as_shown)
            why = kept.doubts.get(i)
            found[i] = found[i].warned(f"{channel.name}: {why}") if why else found[i]
            if i in uncorrected:
                found[i] = found[i].warned(f"{channel.name}: {uncorrected[i]}")
    calibration = kept.facts.calibration
    if calibration is None:
        return [found[i] for i in sorted(found)], forgotten
    beyond = [calibration.warning(c, watts[i]) for i, c in enumerate(layout.energy)]
    return [found[i].warned(warning) if warning else found[i] for i, warning in enumerate(beyond)], forgotten


def _moved(channels: Sequence[Channel], rows: Frame, columns: Sequence[int]) -> Any:
    """Whether counters moved since the row before; None where there are no counters."""
    counters = [not is_power(c) for c in channels]
    if not any(counters):
        return None
    joules = rows.joules.T[1:][columns]
    moved = np.ones(joules.shape, np.bool_)
    moved[:, 1:] = joules[:, 1:] > joules[:, :-1]
    if not all(counters):
        moved[[not counter for counter in counters]] = True
    return moved


def _corrected(kept: Kept, i: int, rows: Frame, t_s: Floats, watts: Floats) -> Found | None:
    """Correct one channel as a recording would be; None where there is nothing to correct.

    Raises
    ------
    CoverageError
        The rows that have come by now do not tell enough.
    """
    # only those who have a profile pay for it
    from pmtpy.analysis.energy.estimate import Energy, mixture
    from pmtpy.analysis.energy.live import live_energy

    channel = kept.facts.layout.energy[i]
    if not kept.seconds > 0.0:
        return None
    better = live_energy(
        kept.facts.kernels[channel.name],
        channel,
        t_s,
        watts,
        seconds=kept.seconds,
        aged_s=kept.remarks.aged_s,
        load=kept.load,
    )
    if better is None:
        return None
    another = kept.open_renewals.get(channel.name)
    if another is not None:
        seldom = timed(channel, another.every_s)
        as_shown = summarise([seldom], t_s, watts[None, :], kept.interval(rows, [i])[0])[0]
        other = _judged(seldom, as_shown)
        plain = Energy.of(other.joules, other.method, other.budget.components, other.budget.warnings)
        both = mixture([(1.0 - another.share, better), (another.share, plain)], "kernel")
        wider = both.uncertainty_joules - better.uncertainty_joules > DOUBTFUL_SHARE * abs(both.joules)
        said = f"{channel.name}: {kept.facts.perhaps_another(channel.name, another.every_s)}"
        better = replace(both, warnings=(*both.warnings, said)) if wider else both
    lost = (f"{channel.name}: {rows_lost(kept.lost, kept.remarks.failure)}",) if kept.lost else ()
    budget = UncertaintyBudget(better.uncertainty_joules, better.parts, (*better.warnings, *lost))
    return Found(channel, better.joules, 0.0, budget, better.method)


def _informed(channel: Channel, others: Sequence[Channel], values: Floats) -> Channel:
    """Return a product with what follows from the voltage and the current that were seen."""
    if channel.derivation is not Derivation.PRODUCT or not len(values):
        return channel
    names = [c.name for c in others]
    volts, amperes = (names.index(operand) for operand in channel.operands)
    both = values[:, (volts, amperes)]
    means = both.mean(axis=0)
    if not np.isfinite(means).all():  # rows in which the converter was at its end tell nothing; the others do
        both = both[np.isfinite(both).all(axis=1)]
        if not len(both):
            return channel
        means = both.mean(axis=0)
    return of_product(channel, others[volts], others[amperes], float(means[0]), float(means[1]))


def _stepped(channel: Channel, joules: Floats) -> Channel:
    """Return a counter with the step that it takes, where all its moves are multiples of more than what one count is.

    A driver may count in millijoules and give microjoules; a meter may give pulses of many joules.
    """
    if channel.derivation is not Derivation.DIRECT:
        return channel
    counts = np.diff(joules) / channel.scale
    whole = np.rint(counts)
    moves = whole[whole > 0.0]
    alike = (moves == moves[:1]).all()  # as of a steady power that is read evenly, or of single steps, which rest
    if (
        alike
        or len(moves) < _MIN_MOVES
        or not np.isfinite(counts).all()
        or np.abs(counts - whole).max() > _ROUNDING_COUNTS
    ):
        return channel
    step = float(np.gcd.reduce(moves.astype(np.int64))) * channel.scale
    if step <= channel.smallest_step:
        return channel
    return channel.with_uncertainty(
        gain_u=channel.gain_u, offset_u=channel.offset_u, noise=channel.noise, resolution=step
    )


def _witnessed(found: list[Found], kept: Kept, rows: Frame) -> list[Found]:
    """Widen the counters that the power of the same part contradicts (docs/uncertainty.md, "Witness")."""
    layout, seconds = kept.facts.layout, kept.seconds
    for i, powers in layout.witnesses:
        whole = _held_against(found[i], [found[p] for p in powers], seconds)
        held = whole if whole is not found[i] else _held_against_where_they_part(found, i, powers, kept, rows)
        for p, power in zip(powers, _outvoted(found[i], [found[p] for p in powers]), strict=True):
            found[p] = power
        found[i] = held if held is not found[i] else _held_against_each_power(found, i, powers, kept, rows)
    for i, parts in layout.inside:
        found[i] = _held_against_part(found[i], max([found[p] for p in parts], key=lambda f: f.joules), seconds)
    return found


def _outvoted(counter: Found, powers: Sequence[Found]) -> list[Found]:
    """Widen each power that the counter and another power of the part contradict, where those two agree."""

    def apart_sd(a: Found, b: Found) -> float:
        allowed = math.hypot(a.budget.uncertainty_joules, b.budget.uncertainty_joules)
        return abs(a.joules - b.joules) / allowed if allowed else math.inf

    counter = counter._replace(budget=_known(counter.budget))
    agreeing = [p for p in powers if apart_sd(counter, p) <= _AGREEMENT_SD]
    found = []
    for power in powers:
        against = [p for p in agreeing if min(apart_sd(power, counter), apart_sd(power, p)) > _CONTRADICTION_SD]
        if against:
            others = f"{counter.channel.name} and {against[0].channel.name}"
            warning = (
                f"{power.channel.name}: it says {power.joules:.4g} J, {others} {counter.joules:.4g} and "
                f"{against[0].joules:.4g} J: it is wrong here (a register that stood still, a power that missed the "
                "load), and its uncertainty spans all"
            )
            span = ("contradiction", abs(power.joules - counter.joules))
            budget = UncertaintyBudget.of([span, *power.budget.components], (*power.budget.warnings, warning))
            power = power._replace(budget=budget)  # noqa: PLW2901
        found.append(power)
    return found


def _held_against_where_they_part(
    found: Sequence[Found], i: int, powers: Sequence[int], kept: Kept, rows: Frame
) -> Found:
    """Hold a counter against the powers of its part where they differ most, of what rows are still kept."""
    columns, t_s = [i, *powers], kept.times_s(rows)
    first, last = t_s.searchsorted([0.0, kept.seconds], "left").tolist()
    channels, inside = [found[k].channel for k in columns], slice(first, last)
    length_s = stretch_s(channels)
    if length_s > kept.seconds / 2.0:
        return found[i]  # all of it tells as much
    joules = rows.joules[:, 1:][:, columns]
    uncovered_ns = rows.uncovered_ns[:, 1:][inside][:, columns[:2]]
    gains = (_PARTING_SD * channels[0].gain_u, _PARTING_SD * channels[1].gain_u)
    there = widest(t_s[inside], joules[inside][:, :2], uncovered_ns, gains, length_s)
    if there is None:
        return found[i]
    begin, end = first + there[0], first + there[1]
    at_s, seconds = float(t_s[begin]), float(t_s[end] - t_s[begin])
    grown = (joules[end] - joules[begin]).tolist()
    left_out = [(x - at_s, y - at_s) for x, y in kept.left_out_s()]
    remarks = kept.remarks
    stretch = Interval(
        seconds, grown, [0.0] * len(columns), 0, remarks.time_u_s, 0.0, remarks.aged_s, left_out_s=left_out
    )
    moved = _moved(channels, rows, columns)
    seen = summarise(channels, t_s - at_s, rows.watts.T[1:][columns], stretch, moved)
    own, *others = [_judged(channel, one) for channel, one in zip(channels, seen, strict=True)]
    held = _held_against(own, others, 0.0, _PARTING_SD)
    if held is own:
        return found[i]
    name, budget = channels[0].name, found[i].budget
    warning = (
        f"{name}: within {seconds:.3g} s from {at_s:.3g} s after the beginning the counter says {own.joules:.4g} J and "
        f"{others[0].channel.name} {others[0].joules:.4g} J, further apart than their uncertainties allow; one of them "
        "is wrong there (a counter that leapt, a power that missed the load), and the uncertainty of the counter now "
        "spans both"
    )
    spans = [c for c in held.budget.components if c[0] == "contradiction"]
    return found[i]._replace(budget=UncertaintyBudget.of([*spans, *budget.components], (*budget.warnings, warning)))


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
    (a, b), budget = leaps[0], found[i].budget
    times = f", and {len(leaps) - 1} times more" if len(leaps) > 1 else ""
    warning = (
        f"{counter.name}: {t_s[b]:.3g} s after the beginning the counter grew by {grown[0, 0]:.4g} J within "
        f"{duration(float(t_s[b] - t_s[a]))}{times}, which no reading of {power.name} about it shows; one of them is "
        "wrong there (a counter that leapt, a power that missed the load), and the uncertainty of the counter now spans"
        " both"
    )
    span = ("contradiction", float(np.sum(grown[:, 0] - grown[:, 1])))
    return found[i]._replace(budget=UncertaintyBudget.of([span, *budget.components], (*budget.warnings, warning)))


def _judged(channel: Channel, as_shown: IntervalStatistics) -> Found:
    one = lag_corrected(channel, as_shown)
    corrected = "" if one is as_shown else _LAG_CORRECTED
    return Found(channel, one.joules, one.uncovered_s, uncertainty_budget(channel, one), corrected)


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
    span = ("contradiction", math.hypot(excess, part.budget.uncertainty_joules))
    budget = UncertaintyBudget.of([span, *own.components], (*own.warnings, warning))
    return whole._replace(uncovered_s=seconds, budget=budget)


def _held_against(counter: Found, powers: Sequence[Found], seconds: float, most_sd: float = _CONTRADICTION_SD) -> Found:
    channel, own, power = counter.channel, _known(counter.budget), powers[0]
    apart = [abs(counter.joules - p.joules) for p in powers]
    allowed = [math.hypot(own.uncertainty_joules, p.budget.uncertainty_joules) for p in powers]
    # A part-time power may miss the load; then the average, which sees all of it, is on the counter's side.
    agreed = any(x <= _AGREEMENT_SD * u for x, u in zip(apart, allowed, strict=True))
    # However uncertain the power is: a counter that has not moved for several refreshes has not counted it.
    still = counter.joules < channel.smallest_step and seconds >= _STILL_REFRESHES * (channel.refresh_s or math.inf)
    still = still and power.joules > 10 * channel.smallest_step
    contradicted = still or not (apart[0] <= most_sd * allowed[0] or agreed)
    if not contradicted and own is counter.budget:
        return counter
    warning = (
        f"{channel.name}: the counter says {counter.joules:.4g} J and {power.channel.name} {power.joules:.4g} J, "
        "further apart than their uncertainties allow; one of them is wrong here (a counter that rested, a power that"
        " missed the load), and the uncertainty of the counter now spans both"
    )
    span = ("contradiction", math.hypot(apart[0], power.budget.uncertainty_joules))
    warnings = (*own.warnings, warning) if contradicted else own.warnings
    return counter._replace(budget=UncertaintyBudget.of([span, *own.components], warnings))


def _known(budget: UncertaintyBudget) -> UncertaintyBudget:
    """Return what is known of a counter that has never moved, where others tell what its part used."""
    known = [c for c in budget.components if c[0] != STANDSTILL]
    return budget if len(known) == len(budget.components) else UncertaintyBudget.of(known, budget.warnings)
