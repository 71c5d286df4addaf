"""The energy between two instants of a curve, with uncertainty, coverage, warnings.

Nothing here reads a sensor or asks for the time: it judges what an acquisition has kept. The way of every region is
the same: the rows around it, corrected where a profile knows how, each channel judged once, a witness asked where there
is one, and the records made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, of_product, sum_budgets, uncertainty_budget
from pmtpy.analysis.uncertainty.channel_times import is_power, reach_s
from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.interval_statistics import CONTEXT_AHEAD, CONTEXT_SAMPLES, lag_corrected, summarise
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import TOTAL, Channel, Derivation
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats, Frame, Layout
from pmtpy.regions.measurement import Measurement, calibration_of, widest
from pmtpy.sensor.acquisition import Acquisition
from pmtpy.sensor.history import CurvePoint

# Standard deviations between a counter and the power of the same part, beyond which they contradict each other: by
# chance once in 370 times (normal distribution).
_CONTRADICTION_SD = 3.0
_AGREEMENT_SD = 1.0  # within which another power of the part takes the counter's side
_STILL_REFRESHES = 3.0  # one may pass before a counter moves, and one more if rows come late
_CONTEXT_S = CONTEXT_SAMPLES * 0.1  # pollers read every 0.1 s or faster
_STREAM_S = 1e-3 * 0.9  # a period below this is that of a stream: no register is as fast
_MOST_ROWS = 500  # at either end of a region: more tell nothing new of how the power moves
_LATE_NS = 30_000_000  # rows of a stream come within less, through a pseudo-terminal too
_LATELY_S, _MEAN_NS = 1.0, 1_000_000  # how far back, and over how long, powers of late are looked at
_FORGOTTEN = (
    "the rows of the region are not kept any more, so how the power moved is judged by its ends alone; ask sooner, or "
    "keep more with history_s="
)


@dataclass(frozen=True, slots=True)
class _Found:
    """The energy of one channel and its judgement."""

    channel: Channel
    joules: float
    uncovered_s: float
    budget: UncertaintyBudget
    corrected: str = ""

    def warned(self, warning: str) -> _Found:
        budget = replace(self.budget, warnings=(*self.budget.warnings, warning))
        return replace(self, budget=budget)


def interval_energy(
    made: Acquisition,
    a: CurvePoint,
    b: CurvePoint,
    peaks: Sequence[float] = (),
    load: LoadIntervals | None = None,
) -> Measurement:
    """Measure between two points of one curve: the total and every channel.

    Parameters
    ----------
    peaks : sequence of float
        The largest power of the total and each channel, where they were followed.
    load : LoadIntervals, optional
        When the load was on, in seconds from ``a``.
    """
    profiles = _kernels(made)
    reach = [_reach_s(c, profiles.get(c.name)) for c in made.layout.energy]
    margin = max(
        [_margin_s(c, r, corrected=c.name in profiles) for c, r in zip(made.layout.energy, reach, strict=True)],
        default=0.0,
    )
    margin = max(margin, CONTEXT_AHEAD * (a.extended_ns + b.extended_ns) / 1e9)
    rows = made.around(a, b, margin, most=None if profiles else _MOST_ROWS)
    stretch = _Stretch.of(made, a, b, rows)
    found = _found(stretch, profiles, load)
    found = _witnessed(found, made.layout, stretch.interval.seconds)
    return _recorded(stretch, found, peaks, settled=stretch.settled(reach))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What an acquisition has kept of an interval: the rows around it, channels in rows, and what was integrated."""

    made: Acquisition
    a: CurvePoint
    b: CurvePoint
    rows: Frame
    t_s: Floats
    watts: Floats
    interval: Interval
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, made: Acquisition, a: CurvePoint, b: CurvePoint, rows: Frame) -> _Stretch:
        remarks = made.remarks(a.t_ns, b.t_ns)
        came, seconds = b.rows - a.rows, (b.t_ns - a.t_ns) / 1e9
        kept = np.count_nonzero((rows.t_ns > a.t_ns) & (rows.t_ns <= b.t_ns))
        forgotten = 2 * kept < min(came, _MOST_ROWS)
        warnings = (*remarks.warnings, _FORGOTTEN) if forgotten else remarks.warnings
        interval = Interval(
            seconds,
            [y - x for x, y in zip(a.joules[1:], b.joules[1:], strict=True)],
            [min(y - x, b.t_ns - a.t_ns) / 1e9 for x, y in zip(a.uncovered_ns[1:], b.uncovered_ns[1:], strict=True)],
            b.lost - a.lost,
            remarks.time_u_s,
            remarks.missing_s,
            remarks.aged_s,
            # Each update of a stream is a row; of a register nobody knows what polls that are forgotten have missed.
            seconds / came if forgotten and made.source.traits.streaming else 0.0,
            made.carry_s,
            _of_late(made, a, b),
        )
        t_s = np.asarray(rows.t_ns - a.t_ns, np.float64) / 1e9
        return cls(made, a, b, rows, t_s, rows.watts.T[1:], interval, warnings)

    def only(self, columns: Sequence[int]) -> Interval:
        """Return what was integrated of some channels."""
        all_of = self.interval
        joules, unknown = ([values[i] for i in columns] for values in (all_of.joules, all_of.uncovered_s))
        of_late = [all_of.of_late[i] for i in columns] if all_of.of_late else ()
        return all_of._replace(joules=joules, uncovered_s=unknown, of_late=of_late)

    def settled(self, reach: Sequence[float]) -> bool:
        """Whether no later row can change the judgement: all that tell of the end have come, or it was read there."""
        if self.a.extended_ns or self.b.extended_ns:
            return False
        past_s = float(self.t_s[-1]) - self.interval.seconds
        read_there = self.b.after.t_ns == self.b.t_ns
        energy = self.made.layout.energy
        return all(past_s >= r for r, c in zip(reach, energy, strict=True) if not read_there or is_power(c))


def _found(stretch: _Stretch, profiles: Mapping[str, Profile], load: LoadIntervals | None) -> list[_Found]:
    """Find and judge the energy of every channel: corrected where its profile knows how, else as it was integrated."""
    layout, interval, watts = stretch.made.layout, stretch.interval, stretch.watts
    found: dict[int, _Found] = {}
    for i, channel in enumerate(layout.energy):
        if channel.name in profiles and not interval.uncovered_s[i]:
            better = _corrected(stretch, profiles[channel.name], i, load)
            if better is not None:
                found[i] = better
    plain = [i for i in range(len(layout.energy)) if i not in found]
    if plain:
        channels = [_informed(layout.energy[i], layout.values, stretch.rows.values) for i in plain]
        some = watts[plain] if found else watts
        seen = summarise(channels, stretch.t_s, some, stretch.only(plain), _moved(channels, stretch.rows, plain))
        for i, channel, as_shown in zip(plain, channels, seen, strict=True):
            one = lag_corrected(channel, as_shown)
            budget, corrected = uncertainty_budget(channel, one), "" if one is as_shown else "lag corrected"
            found[i] = _Found(channel, one.joules, one.uncovered_s, budget, corrected)
            why = stretch.made.doubt(i + 1, stretch.a.t_ns) if one.uncovered_s else ""
            found[i] = found[i].warned(f"{channel.name}: {why}") if why else found[i]
    calibration = stretch.made.calibration
    if calibration is None:
        return [found[i] for i in sorted(found)]
    beyond = [calibration.warning(c, watts[i]) for i, c in enumerate(layout.energy)]
    return [found[i].warned(warning) if warning else found[i] for i, warning in enumerate(beyond)]


def _of_late(made: Acquisition, a: CurvePoint, b: CurvePoint) -> list[tuple[float, float]]:
    """Between which powers each channel was of late, where the rows of a stream are late; else nothing.

    Those are means over a millisecond, in which noise of single samples does not count, from a while before the newest
    row: the load may do again what it did then.
    """
    if not made.source.traits.streaming or b.extended_ns <= _LATE_NS:
        return []
    rows = made.around(a, b, max(_LATELY_S, CONTEXT_AHEAD * b.extended_ns / 1e9))
    if len(rows) < 2:
        return []
    together = max(1, round(_MEAN_NS * (len(rows) - 1) / int(rows.t_ns[-1] - rows.t_ns[0])))
    watts = rows.watts[: len(rows) // together * together, 1:]
    means = watts.reshape(-1, together, watts.shape[1]).mean(axis=1)
    known = [column[np.isfinite(column)] for column in means.T]
    return [(float(w.min()), float(w.max())) if len(w) else (0.0, 0.0) for w in known]


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


def _corrected(stretch: _Stretch, profile: Profile, i: int, load: LoadIntervals | None) -> _Found | None:
    """Correct one channel as a recording would be; None where its profile, or what has come by now, forbids it."""
    from pmtpy.analysis.correction.live import live_energy  # only those who have a profile pay for it

    channel, interval = stretch.made.layout.energy[i], stretch.interval
    if not interval.seconds > 0.0:
        return None
    better = live_energy(
        profile,
        channel,
        stretch.t_s,
        stretch.watts[i],
        seconds=interval.seconds,
        aged_s=stretch.made.aged_s,
        load=load,
    )
    if better is None:
        return None
    lost = (f"{channel.name}: {interval.lost} rows were lost inside the region",) if interval.lost else ()
    budget = UncertaintyBudget(better.uncertainty_joules, better.parts, (*better.warnings, *lost))
    return _Found(channel, better.joules, 0.0, budget, better.method)


def _kernels(made: Acquisition) -> dict[str, Profile]:
    """Return the profiles of the channels of power that know the kernel."""
    profiles = made.calibration.profiles if made.calibration is not None else {}
    powers = [c for c in made.layout.energy if is_power(c) and c.name in profiles] if profiles else []
    return {c.name: profiles[c.name] for c in powers if profiles[c.name].response.shaped}


def _reach_s(channel: Channel, profile: Profile | None) -> float:
    """How long after an instant rows still tell something of it."""
    if profile is None:
        return reach_s(channel)
    from pmtpy.analysis.correction.live import after_s

    return max(reach_s(channel), after_s(profile.response))


def _margin_s(channel: Channel, reach: float, *, corrected: bool) -> float:
    """How far around a region rows tell something of it, or of when the register is renewed."""
    if not corrected:
        return max(_context_s(channel), reach)
    from pmtpy.analysis.correction.live import BEFORE_S

    return max(_context_s(channel), BEFORE_S, 2.0 * reach)


def _context_s(channel: Channel) -> float:
    """How far around a region rows tell something of it.

    A register may be polled far less often than it refreshes, so that seconds are needed; of a stream, nothing is.
    """
    refresh = channel.refresh_s
    context = CONTEXT_SAMPLES * refresh if refresh is not None and refresh < _STREAM_S else _CONTEXT_S
    return max(context, CONTEXT_SAMPLES * (refresh or 0.0), 2.0 * (channel.window_s or 0.0), reach_s(channel))


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


def _witnessed(found: list[_Found], layout: Layout, seconds: float) -> list[_Found]:
    """Widen the counters that the power of the same part contradicts (docs/uncertainty.md, "Witness")."""
    for i, powers in layout.witnesses:
        found[i] = _held_against(found[i], [found[p] for p in powers], seconds)
    for i, parts in layout.inside:
        found[i] = _held_against_part(found[i], max([found[p] for p in parts], key=lambda f: f.joules), seconds)
    return found


def _held_against_part(whole: _Found, part: _Found, seconds: float) -> _Found:
    """Take the energy of a part that one of its own parts exceeds for not known: at least the part was used."""
    excess = part.joules - whole.joules
    allowed = math.hypot(whole.budget.uncertainty_joules, part.budget.uncertainty_joules)
    if whole.uncovered_s or not excess > _CONTRADICTION_SD * allowed:
        return whole
    warning = (
        f"{whole.channel.name}: it says {whole.joules:.4g} J and {part.channel.name}, a part of it, {part.joules:.4g}"
        " J; one of the two is wrong, so its energy is not known"
    )
    span = ("contradiction", math.hypot(excess, part.budget.uncertainty_joules))
    budget = UncertaintyBudget.of([span, *whole.budget.components], (*whole.budget.warnings, warning))
    return replace(whole, uncovered_s=seconds, budget=budget)


def _held_against(counter: _Found, powers: Sequence[_Found], seconds: float) -> _Found:
    channel, own, power = counter.channel, counter.budget, powers[0]
    apart = [abs(counter.joules - p.joules) for p in powers]
    allowed = [math.hypot(own.uncertainty_joules, p.budget.uncertainty_joules) for p in powers]
    # A part-time power may miss the load; then the average, which sees all of it, is on the counter's side.
    agreed = any(x <= _AGREEMENT_SD * u for x, u in zip(apart, allowed, strict=True))
    # However uncertain the power is: a counter that has not moved for several refreshes has not counted it.
    still = counter.joules < channel.smallest_step and seconds >= _STILL_REFRESHES * (channel.refresh_s or math.inf)
    still = still and power.joules > 10 * channel.smallest_step
    if not still and (apart[0] <= _CONTRADICTION_SD * allowed[0] or agreed):
        return counter
    warning = (
        f"{channel.name}: the counter says {counter.joules:.4g} J and {power.channel.name} {power.joules:.4g} J, "
        "further apart than their uncertainties allow; one of them is wrong here (a counter that rested, a power that"
        " missed the load), and the uncertainty of the counter now spans both"
    )
    span = ("contradiction", math.hypot(apart[0], power.budget.uncertainty_joules))
    budget = UncertaintyBudget.of([span, *own.components], (*own.warnings, warning))
    return replace(counter, budget=budget)


# --- records ---


def _recorded(stretch: _Stretch, found: Sequence[_Found], peaks: Sequence[float], *, settled: bool) -> Measurement:
    """Make the records of every channel, and of their sum."""
    made, a, b = stretch.made, stretch.a, stretch.b
    seconds, lost, layout = (b.t_ns - a.t_ns) / 1e9, b.lost - a.lost, made.layout
    identity, target = made.source.identity, made.target
    origin = (f"{target} is virtual: its energy is emulated",) if identity.virtual else ()
    profiles = made.calibration.profiles if made.calibration is not None else {}
    energies = np.array([(math.nan, 0.0), *[(f.joules, f.uncovered_s) for f in found]])
    watts = layout.mean_watts(energies[:, 0], seconds, energies[:, 1]).tolist()
    channels = {
        f.channel.name: Measurement(
            target,
            f.channel.name,
            seconds,
            f.joules,
            watts[i],
            f.budget.uncertainty_joules,
            _method(f),
            f.channel.refresh_s,
            f.channel.window_s,
            _coverage(seconds, f.uncovered_s),
            lost,
            (*origin, *_about(f.channel, stretch.remarks), *f.budget.warnings),
            identity.virtual,
            peak_watts=peaks[i] if peaks else math.nan,
            settled=settled,
            components=f.budget.components,
            calibration=f.channel.reference if f.channel.name in profiles else None,
        )
        for i, f in enumerate(found, 1)
    }
    parts = [found[i - 1] for i in layout.in_total]
    summed = sum_budgets([p.budget for p in parts]) if parts else UncertaintyBudget(math.nan)
    joules = sum([p.joules for p in parts]) if parts else math.nan
    uncovered_s = min(b.uncovered_ns[0] - a.uncovered_ns[0], b.t_ns - a.t_ns) / 1e9
    uncovered_s = max([uncovered_s, *[p.uncovered_s for p in parts]])
    no_total = f"{target}: which channels make a total is not known for this device; read the channels"
    return Measurement(
        target,
        TOTAL,
        seconds,
        joules,
        watts[0],
        summed.uncertainty_joules,
        " + ".join(dict.fromkeys([_method(p) for p in parts])),
        widest([p.channel.refresh_s for p in parts]),
        widest([p.channel.window_s for p in parts]),
        _coverage(seconds, uncovered_s),
        lost,
        (*origin, *identity.notes, *(() if parts else (no_total,)), *stretch.remarks, *summed.warnings),
        identity.virtual,
        channels,
        peaks[0] if peaks else math.nan,
        settled,
        summed.components,
        calibration_of({p.channel.name: channels[p.channel.name].calibration for p in parts}),
    )


def _about(channel: Channel, remarks: Sequence[str]) -> list[str]:
    """Pick what a source remarks on one channel, or on what it is made of."""
    return [remark for remark in remarks if remark.startswith((f"{channel.name}:", f"{channel.name}."))]


def _method(found: _Found) -> str:
    own = found.channel.energy_method.value
    return f"{own}, {found.corrected}" if found.corrected else own


def _coverage(seconds: float, uncovered_s: float) -> float:
    return min(1.0, max(0.0, 1.0 - uncovered_s / seconds)) if seconds > 0 else 1.0
