"""Two or more sensors that watched the same power: how each stands to a reference in time and in watts, and in joules.

Each question goes to the estimator that knows it (update period, response kernel, transfer, alignment); what the data
cannot tell is declined there, and absent here with its reason. Uncertainties of energies are those of
:mod:`pmtpy.analysis.uncertainty.budget`. Pure: arrays in, records out; times are seconds, powers watts, energies
joules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pmtpy.analysis.comparison._pairwise import Follows, Prepared, against, alone, prepare
from pmtpy.analysis.comparison.results import Compared, Comparison, Energy, RegionEnergies, Trace
from pmtpy.analysis.energy.estimate import region_energy, stamps_around_s
from pmtpy.analysis.signal.estimate import SHIFTS, Z95, Estimate, moved_either_way
from pmtpy.analysis.signal.trace import outside
from pmtpy.analysis.uncertainty.budget import uncertainty_budget
from pmtpy.analysis.uncertainty.channel_times import is_power
from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.recorded import RowsOfPower
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.markers import Span
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError, TargetError

WHOLE = "whole"
_UNPLACED = "its regions are left out: how its clock stands to the reference's is not known"


def compare(
    traces: Sequence[Trace],
    *,
    reference: str | None = None,
    one_clock: bool = False,
    regions: Sequence[Span] = (),
    whole: bool = True,
    measured: Mapping[tuple[str, str], tuple[float, float, float]] | None = None,
    truth: Callable[[float, float], float] | None = None,
) -> Comparison:
    """Compare sensors that watched the same power.

    Parameters
    ----------
    traces : sequence of Trace
        At least two, with different names.
    reference : str, optional
        Name of the trace that the others are held against. None: the one that is sampled most finely.
    one_clock : bool
        Whether all times come from one clock. Then a lag is a sensor's own, and energies are taken between the same
        instants. Else each trace is moved in time onto the reference, by its lag less the age of what it
        averages.
    regions : sequence of Span
        Spans to take energies over, on the reference's clock, beside those that the traces carry.
    whole : bool
        Take energies also over all that the traces have in common.
    measured : mapping of (trace, region name) to (joules, uncertainty, mean watts), optional
        Energies that are known better than from the rows.
    truth : callable, optional
        True energy between two instants of the reference's clock, where that is known.

    Raises
    ------
    TargetError
        Fewer than two traces, two of one name, or a reference that is none of them.
    DeclinedError
        A trace has fewer than three rows.
    """
    chosen = _reference(traces, reference)
    ready = {t.name: prepare(t) for t in traces}
    base = ready[chosen]
    found: dict[str, Compared] = {}
    following: dict[str, Follows] = {}
    for name, p in ready.items():
        found[name], follows = (alone(p), None) if name == chosen else against(p, base, one_clock=one_clock)
        if follows is not None:
            following[name] = follows
    laid = {n: one_clock or n == chosen or found[n].clock is not None for n in ready}
    for name, p in ready.items():
        if p.trace.regions and not laid[name]:
            found[name] = replace(found[name], notes=(*found[name].notes, _UNPLACED))
    rows = []
    for span, owner in _spans(ready, found, chosen, regions, laid, whole=whole).items():
        energies = {}
        for name, p in ready.items():
            own = one_clock or name == owner
            time_u_s = p.trace.time_u_s if own else _carried_u_s(ready[owner], (found[owner], found[name]), span)
            energy = _energy(p, found[name], span, time_u_s, own=own) if laid[name] else None
            if energy is None:
                continue
            if (name, span.name) in (measured or {}):
                joules, u, watts = (measured or {})[name, span.name]
                energy = replace(energy, joules=joules, uncertainty_joules=u, watts=watts)
            if name in following:
                off_s = _carried_u_s(ready[owner], [found[owner]], span)
                load, off_j = (p.trace.load, 0.0) if one_clock else (None, _moved_j(base, span, off_s))
                energy = _corrected(name, energy, following[name], span, load, off_j=off_j)
            energies[name] = energy
        true_j = truth(span.start, span.end) if truth is not None else None
        common = {n: _in_common(ready, found, (n, chosen), span) for n in energies} if chosen in energies else {}
        rows.append(RegionEnergies(span, _differences(energies, chosen, common), true_j))
    return Comparison(chosen, one_clock, tuple(found[t.name] for t in traces), tuple(rows))


def _apart_s(trace: Trace) -> float:
    """Return how far rows are apart; two of one instant, as of a log of several registers, are one."""
    t_s = np.unique(trace.t_s)
    return float(np.median(np.diff(t_s))) if len(t_s) > 1 else math.inf


def _reference(traces: Sequence[Trace], wanted: str | None) -> str:
    names = [t.name for t in traces]
    if len(traces) < 2 or len(set(names)) < len(names):
        msg = f"a comparison needs two or more traces with different names, not: {', '.join(names) or 'none'}"
        raise TargetError(msg)
    if wanted is None:
        return min(traces, key=_apart_s).name
    if wanted not in names:
        msg = f"the reference {wanted!r} is not one of: {', '.join(names)}"
        raise TargetError(msg)
    return wanted


# -- energies ----------------------------------------------------------------------------------------------------------


def _spans(
    ready: Mapping[str, Prepared],
    found: Mapping[str, Compared],
    reference: str,
    given: Sequence[Span],
    laid: Mapping[str, bool],
    *,
    whole: bool,
) -> dict[Span, str]:
    """Return all regions on the reference's clock: the whole that all have in common, those given, those marked.

    And for each the trace whose clock it was told on: there its ends are exact. Those of a trace that was not ``laid``
    on the reference have no place there.
    """
    starts, ends = [], []
    for name, p in ready.items():
        t = _on_reference(found[name], np.array([p.curve.start_s, p.curve.end_s]))
        starts.append(float(t[0]))
        ends.append(float(t[1]))
    common = [Span(max(starts), min(ends), WHOLE)] if whole and max(starts) < min(ends) else []
    spans = dict.fromkeys([*common, *given], reference)
    for name, p in ready.items():
        for r in p.trace.regions if laid[name] else ():
            t = _on_reference(found[name], np.array([r.start, r.end]))
            spans.setdefault(Span(float(t[0]), float(t[1]), r.name), name)
    return spans


def _on_reference(s: Compared, t: Floats) -> Floats:
    return t if s.clock is None else s.clock.on_reference(t)


def _on_own(s: Compared, start_s: float, end_s: float) -> tuple[float, float]:
    """Return an interval of the reference's clock on that of the sensor."""
    ends = np.array([start_s, end_s])
    start, end = (ends if s.clock is None else s.clock.on_own(ends)).tolist()
    return start, end


def _carried_u_s(owner: Prepared, laid: Iterable[Compared], span: Span) -> float:
    """How far the ends of a region may be off on another clock than its owner's: its owner's own times, and both fits.

    Rows were laid upon rows: by how much the other's are late, or off, was taken out, but by how much its owner's are
    late was not in its ends.
    """
    fits = [max(s.clock.off_by(t) for t in (span.start, span.end)) / Z95 for s in laid if s.clock is not None]
    return math.hypot(owner.trace.time_u_s, owner.delay_s[1], *filter(math.isfinite, fits))


def _moved_j(base: Prepared, span: Span, by_s: float) -> float:
    """By how much the reference's energy of a region changes where this is off by so much, one standard deviation."""
    by = by_s * np.concatenate([[0.0], SHIFTS, -SHIFTS])
    joules = base.curve.until(span.end + by) - base.curve.until(span.start + by)
    later, earlier = np.split(joules[1:] - joules[0], 2)
    return float(moved_either_way(later, earlier))


def _energy(p: Prepared, s: Compared, span: Span, time_u_s: float, *, own: bool) -> Energy | None:
    """Energy of a span as the sensor shows it; None where its rows do not reach over it.

    Unless it is seen on its ``own`` clock, by how much the rows of a power are late was taken out like a shift of all.
    """
    start, end = _on_own(s, span.start, span.end)
    slack = 1e-6 + 1e-9 * abs(end - start)
    if not (p.curve.start_s - slack <= start < end <= p.curve.end_s + slack):
        return None
    joules, hidden_s = p.energy(start, end)
    lost, bridged_s = _lost(p, start, end)
    uncovered_s = hidden_s if p.counted else max(bridged_s, hidden_s)
    stated, channel = p.trace.channel, p.channel
    if channel.window_s is None and s.kernel is not None and s.kernel.best.window_s is not None:
        channel = channel.timed(window_s=s.kernel.best.window_s.value)

    aged_s = p.trace.aged_s if own or not is_power(channel) else 0.0
    interval = Interval(end - start, [joules], [uncovered_s], lost, time_u_s, aged_s=aged_s)
    statistics = RowsOfPower(p.t_s, p.watts, p.spacing_s).seen(channel, start, interval)
    judged = uncertainty_budget(channel, statistics)
    doubt = (
        () if stated is not None else (f"{p.trace.name}: how well it is calibrated is not known, and not in its +-",)
    )
    # Curves of means stand still where rows are missing; lines between samples bridge them.
    known_s = end - start - (uncovered_s if p.summed else hidden_s)
    mean = joules / known_s if known_s > 0.0 else math.nan
    share = 1.0 - hidden_s / (end - start)
    return Energy(
        joules,
        judged.uncertainty_joules,
        mean,
        coverage=share,
        warnings=(*judged.warnings, *doubt),
        calibration_known=stated is not None,
    )


def _in_common(
    ready: Mapping[str, Prepared], found: Mapping[str, Compared], names: tuple[str, str], span: Span
) -> tuple[float, float] | None:
    """Return the energies of two traces over what both know of a span; None where both know all of it."""
    unknown = np.concatenate([_on_reference(found[name], ready[name].unknown_s) for name in names])
    parts = outside(unknown, span.start, span.end)
    if parts == [(span.start, span.end)]:
        return None
    one, other = (sum(ready[n].curve.energy(*_on_own(found[n], *part)) for part in parts) for n in names)
    return one, other


def _lost(p: Prepared, start: float, end: float) -> tuple[int, float]:
    """Rows lost within a span, and the seconds that have none but these."""
    t, lost, missing = p.trace.t_s, p.trace.lost, p.gaps
    if lost is None:
        return 0, 0.0
    overlap = np.minimum(t[missing], end) - np.maximum(t[missing - 1], start)
    inside = overlap > 0.0
    return int(np.sum(lost[missing][inside])), float(np.sum(overlap[inside]))


def _corrected(
    name: str, energy: Energy, follows: Follows, span: Span, load: LoadIntervals | None, *, off_j: float
) -> Energy:
    """Undo lag, gain and offset; by ``off_j`` the energy changes with what the ends may be off on the reference."""
    updates, response, ends = follows.updates, follows.response, (span.start, span.end)
    if load is not None:
        updates, load = updates.dated(), load.about(*ends, stamps_around_s(response))
    try:
        found = region_energy(updates.t_s, updates.watts, response, start_s=ends[0], end_s=ends[1], load=load)
    except CoverageError as error:
        return replace(energy, warnings=(*energy.warnings, f"{name}: not corrected: {error}"))
    warnings = (*energy.warnings, *(f"{name}: corrected: {why}" for why in found.warnings))
    made = Estimate(found.joules, found.low, found.high).widened(Z95 * off_j)
    return replace(energy, corrected_j=made, warnings=warnings)


def _differences(
    energies: Mapping[str, Energy],
    reference: str,
    common: Mapping[str, tuple[float, float] | None],
) -> dict[str, Energy]:
    base = energies.get(reference)
    if base is None:
        return dict(energies)
    found = {}
    for name, e in energies.items():
        if name == reference:
            found[name] = e
            continue
        joules, base_j = common[name] or (e.joules, base.joules)
        off, u = joules - base_j, math.hypot(e.uncertainty_joules, base.uncertainty_joules)
        known = e.calibration_known and base.calibration_known and u > 0.0
        relative = off / base_j if base_j else math.nan
        found[name] = replace(e, difference_j=off, difference=relative, sigmas=off / u if known else math.nan)
    return found
