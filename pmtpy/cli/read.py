"""``pmtpy read``: one reading of each sensor, per channel."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from typing import Any

from pmtpy.cli import report
from pmtpy.cli.common import chosen_targets, opened
from pmtpy.cli.options import add_json, add_targets
from pmtpy.cli.page import Kind, Line, Table
from pmtpy.cli.terminal import progress, show
from pmtpy.core.channel import TOTAL
from pmtpy.core.clock import duration_of
from pmtpy.core.presentation import in_same_digits
from pmtpy.core.state import State
from pmtpy.io.columns import columns
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of

_WATCH = "200ms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add_targets(parser)
    add_json(parser)
    parser.add_argument(
        "--for",
        dest="duration",
        type=duration_of,
        default=_WATCH,
        metavar="TIME",
        help=f"watch this long before reading, so that counters have a power (default {_WATCH})",
    )
    parser.epilog = "examples:\n  pmtpy read rapl:virtual\n  pmtpy read powersensor3:virtual -o load=constant:60 --json"


def run(args: argparse.Namespace) -> int:
    """Open, watch for a moment, read, print."""
    watch_s: float = args.duration
    with opened(chosen_targets(args.targets), args.option) as sensors:
        begun_ns = {s.target: _first_row_ns(s) for s in sensors}
        region = Region("read", {s.target: s for s in sensors})
        with progress("reading", watch_s, enabled=not args.quiet) as tell, region:
            args.stop.rest(watch_s, tell)
        readings = [_Reading(s, s.read(), region[s.target], begun_ns[s.target]) for s in sensors]
        if args.json:
            print(json.dumps([document(each) for each in readings], indent=2))
        else:
            show([part for each in readings for part in page(each)] + [Line(report.SPREAD)])
    return 0


def _first_row_ns(sensor: Sensor) -> int:
    """Instant from which the joules of a sensor count, when it has just been opened."""
    recent = sensor.history()
    return int(recent.t_ns[0]) if len(recent) else acquisition_of(sensor).anchor.monotonic_ns


@dataclass(frozen=True, slots=True)
class _Reading:
    """A state, what is known of the time that was watched, and since when the joules of the state count."""

    sensor: Sensor
    state: State
    watched: Measurement
    begun_ns: int

    @property
    def seconds(self) -> float:
        """Time over which the joules of the state were counted."""
        return (self.state.t_ns - self.begun_ns) / 1e9

    def part(self, name: str) -> Measurement:
        """Return what was watched of a channel, or of the total."""
        return self.watched if name == self.state.names[0] else self.watched.channels[name]

    def uncertainty_joules(self, name: str) -> float:
        """Standard uncertainty of the joules since the first row, at most: that of the time watched in proportion."""
        return self.part(name).uncertainty_joules * max(1.0, self.seconds / self.watched.seconds)


def document(reading: _Reading) -> dict[str, Any]:
    """Return the JSON of one sensor: watts now, joules since it was opened and over how many seconds."""
    state, u_of = reading.state, reading.uncertainty_joules
    found = zip(state.names, state.joules, state.watts, strict=True)
    each = {n: replace(reading.part(n), joules=j, watts=w, uncertainty_joules=u_of(n)) for n, j, w in found}
    total, warnings = each.pop(TOTAL), tuple(report.warnings_of(reading.watched))
    total = replace(total, seconds=reading.seconds, lost=state.lost, channels=each, warnings=warnings)
    return report.document(reading.sensor.target, total)


def page(reading: _Reading) -> list[Line | Table]:
    """Return one sensor for a person."""
    sensor, state = reading.sensor, reading.state
    who = " ".join(filter(None, (sensor.identity.model, sensor.identity.serial)))
    title = f"{sensor.target}{' (virtual)' if sensor.identity.virtual else ''}{': ' if who else ''}{who}"
    recent = sensor.history(0.0)
    values = list(recent.values[-1]) if len(recent) else []
    labels = {c.name: f"  {c.label}" for c in sensor.channels if c.label}
    rows: list[tuple[str, ...]] = []
    for name, joules, watts in zip(state.names, state.joules, state.watts, strict=True):
        energy, doubt = in_same_digits(joules, reading.uncertainty_joules(name))
        how = f"+- {doubt} J  {reading.part(name).method}{labels.get(name, '')}"
        rows.append((f"  {name}", f"{watts:.4f} W", f"{energy} J", how))
    places = {c.index: c.places for c in columns(acquisition_of(sensor).layout) if c.array == "values"}
    rows += [
        (f"  {name}", f"{value:.{places[i]}f}" if math.isfinite(value) else "-", "", "")
        for i, (name, value) in enumerate(zip(recent.value_names, values, strict=False))
    ]
    return [
        Line(title, Kind.HEADING),
        Line(f"  watts now, joules of the {reading.seconds:.3g} s since it was opened"),
        Table(rows, headed=False),
        *(Line(f"  note: {warning}", Kind.NOTE) for warning in report.warnings_of(reading.watched)),
    ]
