"""A comparison of sensors as tables for a person."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.comparison.results import Compared, Comparison, RegionEnergies
from pmtpy.analysis.signal.estimate import NO_VALUE, written
from pmtpy.cli.page import Kind, Line, Page, Table, notes, of_each, of_longest
from pmtpy.core.presentation import amount, in_same_digits

_MOST_REGIONS = 6


def page(found: Comparison, warnings: Sequence[str]) -> Page:
    """Return the report: sensors against the reference, energies of regions, and what a reader must know."""
    clock = (
        "one clock: a lag is the sensor's own"
        if found.one_clock
        else "clocks fitted: a lag is the clock's and the sensor's together, in the middle of both"
    )
    made: list[Line | Table] = [Line(f"reference: {found.reference}; {clock}; +- is 95 %"), Line("")]
    head = ("sensor", "updates (ms)", "response (ms)", "lag (ms)", "gain", "offset (W)", "residual (W)", "")
    made.append(Table([head, *(_sensor(s, found.reference) for s in found.sensors)]))
    shown = found.regions[:_MOST_REGIONS]
    for number, each in enumerate(shown):
        made += [Line(""), *_region(each, each.region.name or f"region {number}", found.reference)]
    if len(found.regions) > _MOST_REGIONS:
        made += [
            Line(""),
            Line(f"and {amount(len(found.regions) - _MOST_REGIONS, 'more region')}: --json has them all"),
        ]
    of_sensors = [
        (s.name, what)
        for s in found.sensors
        for what in (*s.notes, *(f"no {_WORDS.get(name, name)}: {why}" for name, why in _missing(s, found.reference)))
    ]
    known = [*warnings, *of_each(of_sensors), *of_each(_of_regions(shown))]
    return [*made, Line(""), *notes(known)] if known else made


def _missing(s: Compared, reference: str) -> Iterable[tuple[str, str]]:
    """Return what is not known of a sensor and why; what needs something that is not known either says that alone."""
    told = s.declined.items() if s.name != reference else ()
    return [(name, why.split(": ")[0] if why.startswith("needs the lag: ") else why) for name, why in told]


def _of_regions(regions: Sequence[RegionEnergies]) -> list[tuple[str, str]]:
    """Return what a reader must know of energies, with the names of the sensors."""
    told: dict[str, list[tuple[str, str]]] = {}
    for number, each in sorted(enumerate(regions), key=lambda one: -one[1].seconds):
        for name, energy in each.energies.items():
            where = each.region.name or f"region {number}"
            told.setdefault(name, []).extend((where, why.removeprefix(f"{name}: ")) for why in energy.warnings)
    return [(name, text) for name, texts in told.items() for text in of_longest(texts, several=len(regions) > 1)]


_WORDS = {"update_period_ms": "update period", "lag_ms": "lag", "kernel": "averaging window", "gain": "gain and offset"}


def response(s: Compared) -> str:
    """Say over which time a sensor averages."""
    if s.kernel is None or s.kernel.family == AMBIGUOUS:
        return NO_VALUE
    best = s.kernel.best
    parts = [f"mean of {written(best.window_s, 1e3)}"] if best.window_s is not None else []
    return ", ".join(parts + ([f"low-pass {written(best.tau_s, 1e3)}"] if best.tau_s is not None else []))


def _sensor(s: Compared, reference: str) -> tuple[str, ...]:
    if s.name == reference:
        return (s.name, written(s.period_s, 1e3), *[""] * 5, "the reference")
    line = s.transfer
    left = f"{s.residual_rms_w:.3g}" if math.isfinite(s.residual_rms_w) else NO_VALUE
    return (
        s.name,
        written(s.period_s, 1e3),
        response(s),
        written(s.lag_s, 1e3),
        written(line.gain if line is not None else None),
        written(line.intercept_w if line is not None else None),
        left,
        "",
    )


def _region(r: RegionEnergies, name: str, reference: str) -> list[Line | Table]:
    truth = f", true energy {r.true_j:.6g} J" if r.true_j is not None else ""
    title = f"{name}: {r.seconds:.4f} s{truth}"
    corrected = any(e.corrected_j is not None for e in r.energies.values())
    head = ["", "joules", "+- (1 sd)", "watts", "to reference", "in sd", *(["corrected (J)"] if corrected else [])]
    rows = [[*head, *(["to truth"] if r.true_j is not None else []), ""]]
    for sensor, e in r.energies.items():
        against = ["", ""] if sensor == reference else [_percent(e.difference), _sigmas(e.sigmas)]
        watts, _ = in_same_digits(e.watts, e.uncertainty_joules / r.seconds if r.seconds > 0 else math.nan)
        cells = [sensor, *e.in_digits(), watts, *against]
        if corrected:
            cells.append(written(e.corrected_j) if e.corrected_j is not None else "")
        if r.true_j is not None:
            cells.append(_percent(e.true_error(r.true_j)))
        rows.append([*cells, ""])
    return [Line(title, Kind.HEADING), Table(rows)]


def _sigmas(value: float) -> str:
    return f"{value:+.1f}" if math.isfinite(value) else NO_VALUE


def _percent(difference: float) -> str:
    return f"{100.0 * difference:+.2f} %" if math.isfinite(difference) else NO_VALUE
