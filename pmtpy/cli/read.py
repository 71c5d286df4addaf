"""``pmtpy read``: one reading of each sensor, per channel."""

from __future__ import annotations

import argparse
import json
import threading
from typing import Any

from pmtpy.cli import report
from pmtpy.cli.common import add_targets, chosen_targets, number_or_none, opened
from pmtpy.clock import HOST_CLOCK, seconds_of
from pmtpy.measurement import Measurement
from pmtpy.regions import Region
from pmtpy.sensor import Sensor
from pmtpy.state import State

_WATCH = "200ms"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add_targets(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument(
        "--for",
        dest="duration",
        default=_WATCH,
        metavar="TIME",
        help=f"watch this long before reading, so that counters have a power (default {_WATCH})",
    )
    parser.epilog = "examples:\n  pmtpy read rapl:virtual\n  pmtpy read powersensor3:virtual -o load=constant:60 --json"


def run(args: argparse.Namespace) -> int:
    """Open, watch for a moment, read, print."""
    watch_ns = round(seconds_of(args.duration, bare_s=1.0) * 1e9)
    with opened(chosen_targets(args.targets), args.option) as sensors:
        region = Region("read", {s.target: s for s in sensors})
        with region:
            HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + watch_ns, threading.Event())
        readings = [(s, s.read(), region[s.target]) for s in sensors]
        if args.json:
            print(json.dumps([document(*each) for each in readings], indent=2))
        else:
            for each in readings:
                _show(*each)
            print(report.SPREAD)
    return 0


def document(sensor: Sensor, state: State, measured: Measurement) -> dict[str, Any]:
    """Return the JSON of one sensor: watts now, joules since it was opened."""
    per_name: dict[str, Any] = {}
    for i, name in enumerate(state.names):
        part = measured if i == 0 else measured.channels[name]
        per_name[name] = {
            "joules": number_or_none(state.joules[i]),
            "watts": number_or_none(state.watts[i]),
            "uncertainty_joules": number_or_none(part.uncertainty_joules),
            "method": part.method,
        }
    return {
        "target": sensor.target,
        "virtual": sensor.identity.virtual,
        "seconds": measured.seconds,
        "total": per_name.pop("total"),
        "channels": per_name,
        "coverage": measured.coverage,
        "lost": state.lost,
        "warnings": list(measured.warnings),
    }


def _show(sensor: Sensor, state: State, measured: Measurement) -> None:
    who = " ".join(filter(None, (sensor.identity.model, sensor.identity.serial)))
    open_s = (state.t_ns - sensor.anchor.monotonic_ns) / 1e9
    print(f"{sensor.target}{' (virtual)' if sensor.identity.virtual else ''}{': ' if who else ''}{who}")
    print(f"  watts now, joules of the {open_s:.3g} s since it was opened")
    recent = sensor.history(0.0)
    values = list(recent.values[-1]) if len(recent) else []
    labels = {c.name: f"  {c.label}" for c in sensor.channels if c.label}
    rows: list[tuple[str, ...]] = []
    for i, name in enumerate(state.names):
        part = measured if i == 0 else measured.channels[name]
        joules = f"{state.joules[i]:.4f} J"
        how = f"+- {part.uncertainty_joules:.2g} J  {part.method}{labels.get(name, '')}"
        rows.append((f"  {name}", f"{state.watts[i]:.4f} W", joules, how))
    rows += [(f"  {name}", f"{value:.10g}", "", "") for name, value in zip(recent.value_names, values, strict=False)]
    print("\n".join(report.aligned(rows)))
    for warning in measured.warnings:
        print(f"  note: {warning}")
