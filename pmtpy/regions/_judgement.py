"""The judgement of an interval: the energy of each channel, how far to trust it, and what a reader must know.

Pure: the way of every interval is the same. The rows around it, corrected where a profile knows how, each channel
judged once, a witness asked where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, of_product, sum_budgets
from pmtpy.analysis.uncertainty.channel_times import is_power, renewed_each
from pmtpy.analysis.uncertainty.components import DOUBTFUL_SHARE
from pmtpy.analysis.uncertainty.counted import counted
from pmtpy.analysis.uncertainty.interval_statistics import late_joules, summarise
from pmtpy.core.channel import Channel, Derivation
from pmtpy.core.presentation import rows_lost
from pmtpy.core.rows import Floats, Frame
from pmtpy.errors import CoverageError
from pmtpy.regions._found import LAG_CORRECTED, Found
from pmtpy.regions._kept import Kept
from pmtpy.regions._witness import witnessed

# Moves of a counter that tell what they have in common: by chance n of them are multiples of g once in g^n times.
_MIN_MOVES = 3
_ROUNDING_COUNTS = 0.01  # counts; what rounding leaves of a sum of them
_FORGOTTEN = (
    "the rows of the region are not kept any more, so how the power moved is judged by its ends alone; ask sooner, or "
    "keep more with history_s="
)
_TOO_LONG = (
    "the region is longer than its rows are kept, so it is not corrected for how the sensor follows time; keep more "
    "with history_s="
)


class Judgement(NamedTuple):
    """What was found of every channel with energy, in order, and of their sum."""

    found: tuple[Found, ...]
    summed: UncertaintyBudget
    remarks: tuple[str, ...]  # what holds for all of them


def judged(kept: Kept) -> Judgement:
    """Find and judge the energy of every channel, and of their sum."""
    rows, layout = Frame.joined(kept.rows.frames), kept.facts.layout
    found, forgotten = _found(kept, rows)
    found = witnessed(found, kept, rows)
    parts = [found[i - 1].budget for i in layout.in_total]
    kinds = [layout.energy[i - 1].kind for i in layout.in_total]
    summed = sum_budgets(parts, kinds) if parts else UncertaintyBudget(math.nan)
    remarks = kept.remarks.warnings
    return Judgement(tuple(found), summed, (*remarks, _FORGOTTEN) if forgotten else remarks)


def energies(kept: Kept) -> list[tuple[float, str]] | None:
    """Return the energy and the method of every channel, as :func:`judged` finds them, or None if only that can.

    A profile that knows the kernel changes the energy itself, and so does a part that seems to have used more than the
    whole that it lies in. ``tests/regions/test_judged_when_asked.py`` holds the two functions together.
    """
    layout = kept.facts.layout
    if kept.facts.kernels or kept.open_renewals:
        return None
    found = [(joules, c.energy_method.value) for c, joules in zip(layout.energy, kept.joules, strict=True)]
    late = [i for i in kept.facts.late if not kept.uncovered_s[i]]
    if late:
        rows = Frame.joined(kept.rows.frames)
        powers = [layout.energy[i] for i in late]
        by = late_joules(powers, kept.times_s(rows), rows.watts.T[1:][late], kept.seconds, kept.remarks.aged_s)
        for i, joules in zip(late, by, strict=True):
            if joules:
                found[i] = found[i][0] + joules, f"{found[i][1]}, {LAG_CORRECTED}"
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
            better = _corrected(kept, i, t_s, watts[i])
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
        some, joules = (of[plain] if found else of for of in (watts, rows.joules.T[1:]))
        powers, moved = counted(channels, t_s, some, joules)
        seen = summarise(channels, t_s, powers, interval, moved, shown=joules)
        for i, channel, as_shown in zip(plain, channels, seen, strict=True):
            found[i] = Found.judged(channel, as_shown)
            why = kept.doubts.get(i)
            found[i] = found[i].warned(f"{channel.name}: {why}") if why else found[i]
            if i in uncorrected:
                found[i] = found[i].warned(f"{channel.name}: {uncorrected[i]}")
    found |= {
        i: _allowing(found[i], kept, i, rows) for i, c in enumerate(layout.energy) if c.name in kept.open_renewals
    }
    calibration = kept.facts.calibration
    if calibration is None:
        return [found[i] for i in sorted(found)], forgotten
    beyond = [calibration.warning(c, watts[i]) for i, c in enumerate(layout.energy)]
    return [found[i].warned(warning) if warning else found[i] for i, warning in enumerate(beyond)], forgotten


def _corrected(kept: Kept, i: int, t_s: Floats, watts: Floats) -> Found | None:
    """Correct one channel as a recording would be; None where there is nothing to correct.

    Raises
    ------
    CoverageError
        The rows that have come by now do not tell enough.
    """
    # only those who have a profile pay for it
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
    lost = (f"{channel.name}: {rows_lost(kept.lost, kept.remarks.failure)}",) if kept.lost else ()
    budget = UncertaintyBudget(better.uncertainty_joules, better.parts, (*better.warnings, *lost))
    return Found(channel, better.joules, 0.0, budget, better.method)


def _allowing(found: Found, kept: Kept, i: int, rows: Frame) -> Found:
    """Allow for a register that may be renewed more seldom than is known of it."""
    from pmtpy.analysis.energy.estimate import Energy, mixture  # only those of which it is open pay for it

    channel = kept.facts.layout.energy[i]
    another = kept.open_renewals[channel.name]
    if kept.uncovered_s[i]:
        return found
    seldom, t_s, watts = renewed_each(channel, another.every_s), kept.times_s(rows), rows.watts.T[i + 1 : i + 2]
    other = Found.judged(seldom, summarise([seldom], t_s, watts, kept.interval(rows, [i])[0])[0])
    either = [(1.0 - another.share, found), (another.share, other)]
    both = mixture(
        [(share, Energy.of(f.joules, f.corrected, f.budget.components, f.budget.warnings)) for share, f in either],
        "kernel",
    )
    said = f"{channel.name}: {kept.facts.perhaps_another(channel.name, another.every_s)}"
    wider = both.uncertainty_joules - found.budget.uncertainty_joules > DOUBTFUL_SHARE * abs(both.joules)
    warnings = (*both.warnings, said) if wider or both.method != found.corrected else both.warnings
    budget = UncertaintyBudget(both.uncertainty_joules, both.parts, warnings)
    return found._replace(joules=both.joules, budget=budget, corrected=both.method)


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
