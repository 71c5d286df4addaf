"""The energy between two instants of a curve, with uncertainty, coverage, warnings.

Nothing here reads a sensor or asks for the time: it works on what an acquisition has kept. Joules, watts and seconds
are computed at once, corrections of the lag included. The uncertainty costs several times as much, so it is computed
when somebody asks for it, from the rows that were there when the energy was asked for. With a profile, or where
channels contradict each other, the energy itself depends on that, so both are computed at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget
from pmtpy.core.channel import TOTAL, Channel
from pmtpy.core.presentation import said_once
from pmtpy.regions._judgement import Judgement, energies, judged
from pmtpy.regions._kept import Kept
from pmtpy.regions._pending import Pending
from pmtpy.regions.measurement import Measurement, sum_of, to_be_judged
from pmtpy.sensor.acquisition import Acquisition
from pmtpy.sensor.history import CurvePoint


def interval_energy(
    made: Acquisition,
    a: CurvePoint,
    b: CurvePoint,
    peaks: Sequence[float] = (),
    told: Sequence[str] = (),
) -> Measurement:
    """Measure between two points of one curve: the total and every channel.

    Parameters
    ----------
    peaks : sequence of float
        The largest power of the total and each channel, where they were followed.
    told : sequence of str
        What holds for the interval whatever was measured in it: warnings of the total and of each channel.
    """
    kept = Kept.of(made, a, b)
    pending = Pending(partial(judged, kept))
    early = energies(kept)
    if early is None:
        known = [_Known(f.joules, f.uncovered_s, f.method) for f in pending.result().found]
    else:
        pending.wait()
        both = zip(early, kept.uncovered_s, strict=True)
        known = [_Known(joules, unknown, method) for (joules, method), unknown in both]
    trust = _Trust(kept, tuple(told), pending)
    return _recorded(kept, known, peaks, trust)


class _Known(NamedTuple):
    """What is known of one channel before it is judged."""

    joules: float
    uncovered_s: float
    method: str

    def watts(self, seconds: float) -> float:
        """Mean power over the time that is covered; NaN where none is."""
        covered_s = seconds - self.uncovered_s
        return self.joules / covered_s if covered_s > 0 else math.nan


def _recorded(kept: Kept, known: Sequence[_Known], peaks: Sequence[float], trust: _Trust) -> Measurement:
    """Make the records of every channel, and of their sum."""
    seconds, facts = kept.seconds, kept.facts
    profiles = facts.calibration.profiles if facts.calibration is not None else {}
    record = partial(
        Measurement,
        target=kept.target,
        virtual=kept.identity.virtual,
        seconds=seconds,
        lost=kept.lost,
        settled=kept.settled(),
    )
    channels = {
        c.name: to_be_judged(
            record(
                name=c.name,
                joules=one.joules,
                watts=one.watts(seconds),
                uncertainty_joules=math.nan,  # until it is judged
                method=one.method,
                peak_watts=peaks[i + 1] if peaks else math.nan,
                refresh_s=c.refresh_s,
                window_s=c.window_s,
                coverage=_coverage(seconds, one.uncovered_s),
                calibration=c.reference if c.name in profiles else None,
                warnings=(),
            ),
            partial(trust.of_channel, i),
        )
        for i, (c, one) in enumerate(zip(facts.layout.energy, known, strict=True))
    }
    layout = facts.layout
    unknown_s = [known[i - 1].uncovered_s for i in layout.in_total]
    parts = {c.name: channels[c.name] for c in [layout.energy[i - 1] for i in layout.in_total]}
    uncovered_s = min(kept.b.uncovered_ns[0] - kept.a.uncovered_ns[0], kept.b.t_ns - kept.a.t_ns) / 1e9
    total = record(
        name=TOTAL,
        joules=sum([p.joules for p in parts.values()]) if parts else math.nan,
        # Parts can lack different stretches: the mean is the sum of theirs, each over its own time.
        watts=sum([p.watts for p in parts.values()]) if parts else math.nan,
        peak_watts=peaks[0] if peaks else math.nan,
        coverage=_coverage(seconds, max([uncovered_s, *unknown_s])),
        channels=channels,
        **sum_of(parts),
    )
    return to_be_judged(total, trust.of_total)


class _Trust(NamedTuple):
    """How far to trust the measurements of one interval; each is told when it is asked."""

    kept: Kept
    told: tuple[str, ...]  # of the interval itself
    pending: Pending[Judgement]

    def of_channel(self, i: int) -> UncertaintyBudget:
        judgement = self.pending.result()
        found = judgement.found[i]
        warnings = (*self._origin(), *_about(found.channel, judgement.remarks), *found.budget.warnings)
        return found.budget._replace(warnings=warnings)

    def of_total(self) -> UncertaintyBudget:
        judgement = self.pending.result()
        summed = judgement.summed
        target, identity = self.kept.target, self.kept.identity
        no_total = f"{target}: which channels make a total is not known for this device; read the channels"
        untold = () if self.kept.facts.layout.in_total else (no_total,)
        of_parts = said_once(summed.warnings, {f.channel.name for f in judgement.found})
        warnings = (*self._origin(), *identity.notes, *untold, *judgement.remarks, *of_parts)
        return summed._replace(warnings=warnings)

    def _origin(self) -> tuple[str, ...]:
        virtual = (f"{self.kept.target} is virtual: its energy is emulated",) if self.kept.identity.virtual else ()
        return (*virtual, *self.told)


def _about(channel: Channel, remarks: Sequence[str]) -> list[str]:
    """Pick what a source remarks on one channel, or on what it is made of."""
    return [remark for remark in remarks if remark.startswith((f"{channel.name}:", f"{channel.name}."))]


def _coverage(seconds: float, uncovered_s: float) -> float:
    return min(1.0, max(0.0, 1.0 - uncovered_s / seconds)) if seconds > 0 else 1.0
