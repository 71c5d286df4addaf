"""Procedures with a sensor itself: what a reading costs, how often its value is renewed, its internal rate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pmtpy.analysis.procedures.internal_rate import InternalRate, internal_rate_of
from pmtpy.analysis.procedures.latency import SHOWN_PERCENTILES, Latency
from pmtpy.cli.page import Kind, Line, Table, note
from pmtpy.cli.procedure_answer import Answer, progress, recording_of, sensor_of, with_interval
from pmtpy.core.presentation import amount
from pmtpy.errors import TargetError
from pmtpy.lab.procedures import (
    measure_internal_rate,
    measure_latency,
    measure_updates,
    recorded_internal_rate,
    ways_of,
)
from pmtpy.lab.recorded import power_column
from pmtpy.sensor.registry import is_virtual

_BAR = 40


def latency(target: str, args: argparse.Namespace) -> Answer:
    """What one reading costs."""
    target, options = sensor_of(target, args)
    made: dict[str, Latency] = {}
    for name, way in ways_of(target).items():
        progress(f"{target}: {amount(args.reads, 'reading')}, {name}")
        made[name] = measure_latency(target, {**options, **way}, args.reads)
    page: list[Line | Table] = [Line(f"{target}: what one reading costs", Kind.HEADING)]
    head = ["", "mean", "sd", *(f"{p:g} %" for p in SHOWN_PERCENTILES), "longest", ""]
    rows = [head, *([name, *_microseconds(cost), "us"] for name, cost in made.items())]
    page.append(Table(rows))
    for name, cost in made.items():
        page.append(Line(f"{name}, {amount(cost.reads, 'reading')}:"))
        page += _histogram(cost)
    if is_virtual(target):
        page.append(note(f"{target} is virtual: each reading includes the work of its emulation"))
    document = {"target": target, "virtual": is_virtual(target), "latency": {n: _cost(c) for n, c in made.items()}}
    return Answer(document, page)


def _microseconds(cost: Latency) -> list[str]:
    shown = [cost.mean_s, cost.sd_s, *cost.percentiles_s, cost.most_s]
    return [f"{1e6 * value:.2f}" for value in shown]


def _histogram(cost: Latency) -> list[Line]:
    """Bars of the bins that hold more than a two-hundredth of the readings."""
    highest = int(cost.counts.max())
    lines = []
    for number, low, high in zip(cost.counts.tolist(), cost.edges_s[:-1], cost.edges_s[1:], strict=True):
        if number * 200 >= cost.reads:
            bar = "#" * max(1, round(_BAR * number / highest))
            lines.append(Line(f"  {1e6 * low:9.2f} to {1e6 * high:9.2f} us  {100 * number / cost.reads:5.1f} %  {bar}"))
    return lines


def _cost(cost: Latency) -> dict[str, Any]:
    return {
        "reads": cost.reads,
        "mean_us": 1e6 * cost.mean_s,
        "sd_us": 1e6 * cost.sd_s,
        "min_us": 1e6 * cost.least_s,
        "max_us": 1e6 * cost.most_s,
        "percentiles_us": {f"{p:g}": 1e6 * v for p, v in zip(SHOWN_PERCENTILES, cost.percentiles_s, strict=True)},
        "histogram": {"edges_us": (1e6 * cost.edges_s).tolist(), "counts": cost.counts.tolist()},
    }


def updates(target: str, args: argparse.Namespace) -> Answer:
    """How often the value is renewed."""
    target, options = sensor_of(target, args)
    found = measure_updates(target, options, args.duration, progress=progress, channel=args.channel)
    mean, detail = found.mean_s.scaled(1e3), found.detail
    page: list[Line | Table] = [
        Line(f"{target}: how often the value is renewed", Kind.HEADING),
        Line(f"  update interval  {with_interval(mean, 'ms')}"),
        Line(f"  updates          {1e3 / mean.value:.4g} per second"),
    ]
    if found.patterned:
        often = found.share / found.mean_s.value
        page[-1] = Line(f"  updates          {often:.4g} to {1e3 / mean.value:.4g} per second")
        page.append(
            note(
                f"changes come at {100 * found.share:.0f} % of these renewals, in too regular a pattern "
                "for values that repeat: the value may be renewed only then, at unequal intervals"
            )
        )
    elif detail is None:
        page.append(Line(f"  seen             {100 * found.share:.0f} % of them brought another value"))
    if found.stated_s:
        off = 100.0 * (found.mean_s.value / found.stated_s - 1.0)
        page.append(Line(f"  stated           {1e3 * found.stated_s:.4g} ms ({off:+.2f} %)"))
    if detail is not None:
        low, middle, high = (1e3 * detail.percentiles_s).tolist()
        page.append(Line(f"  1, 50, 99 %      {low:.3f}, {middle:.3f}, {high:.3f} ms"))
        page.append(Line(f"  seen             {amount(detail.updates, 'update')}, {detail.unseen} missed between them"))
    document = {
        "target": target,
        "virtual": is_virtual(target),
        "channel": found.channel or None,
        "update_interval_ms": mean.as_dict(),
        "changed_share": None if detail is not None else found.share,
        "patterned": found.patterned,
        "stated_ms": None if found.stated_s is None else 1e3 * found.stated_s,
        "updates": None if detail is None else detail.updates,
        "unseen": None if detail is None else detail.unseen,
        "percentiles_ms": None if detail is None else (1e3 * detail.percentiles_s).tolist(),
    }
    return Answer(document, page)


def internal_rate(args: argparse.Namespace) -> Answer:
    """How often the sensor samples inside."""
    frequencies = args.frequencies
    recorded = [Path(t).is_file() for t in args.targets]
    if any(recorded):
        found, names = _of_recordings(frequencies, args)
    elif len(args.targets) == 1:
        found, names = _of_sensor(args.targets[0], frequencies, args)
    else:
        msg = "--internal-rate takes one sensor, or one recording for each of --frequencies"
        raise TargetError(msg)
    page: list[Line | Table] = [Line(f"{names}: how often it samples inside", Kind.HEADING)]
    rows = [[f"{p.load_hz:g} Hz", f"{p.hz.value:.5f}", f"{p.hz.half_width:.5f}", "Hz"] for p in found.patterns]
    page += [Table([["load", "pattern", "+-", ""], *rows]), Line(f"  internal rate  {with_interval(found.hz, 'Hz')}")]
    page.append(note("by the host's clock; if a multiple of the rate lies near these frequencies, it is that multiple"))
    document = {
        "target": names,
        "virtual": is_virtual(names),
        "internal_rate_hz": found.hz.as_dict(),
        "patterns": [{"load_hz": p.load_hz, "pattern_hz": p.hz.as_dict(), "share": p.share} for p in found.patterns],
    }
    return Answer(document, page)


def _of_recordings(frequencies: list[float], args: argparse.Namespace) -> tuple[InternalRate, str]:
    if len(args.targets) != len(frequencies):
        msg = (
            f"{amount(len(args.targets), 'recording')} and {len(frequencies)} --frequencies: give one recording for "
            "each"
        )
        raise TargetError(msg)
    patterns = []
    for path, hz in zip(args.targets, frequencies, strict=True):
        table = recording_of(path, args)
        patterns.append(recorded_internal_rate(table, power_column(table, args.channel, path), hz))
    return internal_rate_of(patterns), ", ".join(args.targets)


def _of_sensor(target: str, frequencies: list[float], args: argparse.Namespace) -> tuple[InternalRate, str]:
    target, options = sensor_of(target, args)
    seconds: float = args.duration
    patterns = []
    for hz in frequencies:
        progress(f"{target}: a load of {hz:g} Hz for {seconds:g} s")
        patterns.append(measure_internal_rate(target, options, hz, seconds, channel=args.channel)[0])
    return internal_rate_of(patterns), target
