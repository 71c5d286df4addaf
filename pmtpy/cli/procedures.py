"""The procedures of the published evaluations, for any sensor, as options of ``pmtpy characterise``."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pmtpy.analysis.procedures.agreement import Agreement, PolynomialFit, agreement
from pmtpy.analysis.procedures.internal_rate import InternalRate, internal_rate
from pmtpy.analysis.procedures.read_cost import SHOWN_PERCENTILES, ReadCost
from pmtpy.analysis.procedures.stability import stability
from pmtpy.analysis.procedures.steps import steps_of
from pmtpy.analysis.procedures.work import join
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.cli.common import parse_options, say
from pmtpy.cli.page import Kind, Line, Page, Table, note
from pmtpy.cli.settings import load_settings
from pmtpy.cli.terminal import is_terminal, show
from pmtpy.cli.values import count
from pmtpy.core.channel import TOTAL
from pmtpy.core.clock import duration_of
from pmtpy.errors import DeclinedError, TargetError
from pmtpy.lab.hours import begin_of, measure_blocks, recorded_blocks
from pmtpy.lab.procedures import (
    mean_watts,
    measure_pattern,
    measure_reads,
    measure_updates,
    parts_of,
    recorded_pattern,
    time_column,
    ways_of,
    windows_of,
)
from pmtpy.lab.record import OF_SENSORS
from pmtpy.lab.recorded import one_run, power_column, read_file
from pmtpy.lab.work_log import read_work_log
from pmtpy.sensor.registry import canonical

_READS = 1 << 14
_BAR = 40
_TWO_KILOHERTZ = "1995,1996,1997"  # about the rate of the POWER9 study's sensor


@dataclass(frozen=True, slots=True)
class _Found:
    """What a procedure found: the document, and the same for a person."""

    document: dict[str, Any]
    page: list[Line | Table]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    group = parser.add_argument_group("procedures of the published evaluations, instead of a characterisation")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--latency", action="store_true", help="what one reading costs (sensors)")
    one.add_argument("--updates", action="store_true", help="how often the value is renewed (sensors)")
    one.add_argument(
        "--internal-rate",
        action="store_true",
        help="how often the sensor samples inside, by loads of --frequencies (a sensor, or a recording for each)",
    )
    one.add_argument("--against", metavar="FILE", help="mean powers of workloads against a reference (recordings)")
    one.add_argument("--parts", action="store_true", help="the sum of the parts against the whole (recordings)")
    one.add_argument(
        "--steps", action="store_true", help="how it answers a load switched between two levels (recordings)"
    )
    one.add_argument(
        "--stability",
        action="store_true",
        help="how steady it is over hours (a recording; or a sensor, for --duration, a block of --window each --every)",
    )
    one.add_argument(
        "--work",
        metavar="LOG",
        help="energy for each unit of work of an application's log: fio's, or a CSV (recordings)",
    )
    group.add_argument("--every", type=duration_of, default="15min", metavar="TIME", help="of --stability (15min)")
    group.add_argument("--begin", metavar="LABEL", help="of --work: the marker at which the application began")
    group.add_argument("--reads", type=count(), default=_READS, metavar="N", help=f"of --latency (default {_READS})")
    group.add_argument(
        "--frequencies",
        type=_frequencies,
        default=_TWO_KILOHERTZ,
        metavar="HZ,HZ,HZ",
        help=f"of --internal-rate: three near the rate (default {_TWO_KILOHERTZ}), each for --duration",
    )
    group.add_argument(
        "--window",
        type=duration_of,
        default="1s",
        metavar="TIME",
        help="of --against and --parts, where no markers enclose regions (1s)",
    )


def chosen(args: argparse.Namespace) -> Callable[[argparse.Namespace], int] | None:
    """Return the procedure that was asked for; None if it is a characterisation."""
    procedures: dict[str, Callable[[str, argparse.Namespace], _Found]] = {
        "latency": _latency,
        "updates": _updates,
        "parts": _parts,
        "against": _against,
        "steps": _steps,
        "stability": _stability,
        "work": _work,
    }
    each = next((procedures[name] for name in procedures if getattr(args, name)), None)
    if each is None and not args.internal_rate:
        return None

    def run(given: argparse.Namespace) -> int:
        if each is None:
            return _shown([_internal_rate(given)], given)
        return _shown([each(target, given) for target in given.targets], given)

    return run


def _shown(found: list[_Found], args: argparse.Namespace) -> int:
    if args.json:
        documents = [each.document for each in found]
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        for each in found:
            show(each.page)
    return 0


def _sensor(target: str, args: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """Return the full name of a sensor, and the options of its backend, as text."""
    if Path(target).exists():
        msg = f"{target} is a recording: this procedure needs the sensor itself"
        raise TargetError(msg)
    target = canonical(target)
    said = load_settings().texts_for(target, os.environ)
    return target, {k: v for k, v in said.items() if k not in OF_SENSORS} | parse_options(args.option)


def _recording(target: str, args: argparse.Namespace) -> Any:
    if not Path(target).exists():
        known = _is_sensor(target)
        what = f"{target} is a sensor, this procedure needs a recording" if known else f"there is no recording {target}"
        how = f"pmtpy dump {target if known else 'TARGET'} -f run.csv -- COMMAND"
        msg = f"{what}: make one first, while the workloads run: {how}"
        raise TargetError(msg)
    return read_file(target, skip_broken=args.skip_broken, report=say)


def _is_sensor(target: str) -> bool:
    try:
        canonical(target)
    except TargetError:
        return False
    return True


def _progress(text: str) -> None:
    if is_terminal(sys.stderr):
        say(text)


# --- what a reading costs ---


def _latency(target: str, args: argparse.Namespace) -> _Found:
    target, options = _sensor(target, args)
    made: dict[str, ReadCost] = {}
    for name, way in ways_of(target).items():
        _progress(f"{target}: {args.reads} readings, {name}")
        made[name] = measure_reads(target, {**options, **way}, args.reads)
    page: list[Line | Table] = [Line(f"{target}: what one reading costs", Kind.HEADING)]
    head = ["", "mean", "sd", *(f"{p:g} %" for p in SHOWN_PERCENTILES), "longest", ""]
    rows = [head, *([name, *_microseconds(cost), "us"] for name, cost in made.items())]
    page.append(Table(rows))
    for name, cost in made.items():
        page.append(Line(f"{name}, {cost.reads} readings:"))
        page += _histogram(cost)
    if _virtual(target):
        page.append(note(f"{target} is virtual: each reading includes the work of its emulation"))
    document = {"target": target, "virtual": _virtual(target), "latency": {n: _cost(c) for n, c in made.items()}}
    return _Found(document, page)


def _virtual(target: str) -> bool:
    return ":virtual" in target


def _microseconds(cost: ReadCost) -> list[str]:
    shown = [cost.mean_s, cost.sd_s, *cost.percentiles_s, cost.most_s]
    return [f"{1e6 * value:.2f}" for value in shown]


def _histogram(cost: ReadCost) -> list[Line]:
    """Bars of the bins that hold more than a two-hundredth of the readings."""
    highest = int(cost.counts.max())
    lines = []
    for number, low, high in zip(cost.counts.tolist(), cost.edges_s[:-1], cost.edges_s[1:], strict=True):
        if number * 200 >= cost.reads:
            bar = "#" * max(1, round(_BAR * number / highest))
            lines.append(Line(f"  {1e6 * low:9.2f} to {1e6 * high:9.2f} us  {100 * number / cost.reads:5.1f} %  {bar}"))
    return lines


def _cost(cost: ReadCost) -> dict[str, Any]:
    return {
        "reads": cost.reads,
        "mean_us": 1e6 * cost.mean_s,
        "sd_us": 1e6 * cost.sd_s,
        "min_us": 1e6 * cost.least_s,
        "max_us": 1e6 * cost.most_s,
        "percentiles_us": {f"{p:g}": 1e6 * v for p, v in zip(SHOWN_PERCENTILES, cost.percentiles_s, strict=True)},
        "histogram": {"edges_us": (1e6 * cost.edges_s).tolist(), "counts": cost.counts.tolist()},
    }


# --- how often the value is renewed ---


def _updates(target: str, args: argparse.Namespace) -> _Found:
    target, options = _sensor(target, args)
    found = measure_updates(target, options, args.duration, progress=_progress)
    mean, detail = found.mean_s.scaled(1e3), found.detail
    page: list[Line | Table] = [
        Line(f"{target}: how often the value is renewed", Kind.HEADING),
        Line(f"  update interval  {_estimate(mean, 'ms')}"),
        Line(f"  updates          {1e3 / mean.value:.4g} per second"),
    ]
    if found.stated_s:
        off = 100.0 * (found.mean_s.value / found.stated_s - 1.0)
        page.append(Line(f"  stated           {1e3 * found.stated_s:.4g} ms ({off:+.2f} %)"))
    if detail is not None:
        low, middle, high = (1e3 * detail.percentiles_s).tolist()
        page.append(Line(f"  1, 50, 99 %      {low:.3f}, {middle:.3f}, {high:.3f} ms"))
        page.append(Line(f"  seen             {detail.updates} updates, {detail.unseen} between them were missed"))
    document = {
        "target": target,
        "virtual": _virtual(target),
        "channel": found.channel or None,
        "update_interval_ms": mean.as_dict(),
        "stated_ms": None if found.stated_s is None else 1e3 * found.stated_s,
        "updates": None if detail is None else detail.updates,
        "unseen": None if detail is None else detail.unseen,
        "percentiles_ms": None if detail is None else (1e3 * detail.percentiles_s).tolist(),
    }
    return _Found(document, page)


def _estimate(e: Estimate, unit: str) -> str:
    """Write a value and its interval to the second digit of the interval's half."""
    places = 6 if not e.half_width > 0.0 else min(max(1 - math.floor(math.log10(e.half_width)), 0), 6)
    return f"{e.value:.{places}f} {unit}  (95 %: {e.low:.{places}f} to {e.high:.{places}f})"


# --- how often it samples inside ---


def _internal_rate(args: argparse.Namespace) -> _Found:
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
    page += [Table([["load", "pattern", "+-", ""], *rows]), Line(f"  internal rate  {_estimate(found.hz, 'Hz')}")]
    page.append(note("by the host's clock; if a multiple of the rate lies near these frequencies, it is that multiple"))
    document = {
        "target": names,
        "virtual": _virtual(names),
        "internal_rate_hz": found.hz.as_dict(),
        "patterns": [{"load_hz": p.load_hz, "pattern_hz": p.hz.as_dict(), "share": p.share} for p in found.patterns],
    }
    return _Found(document, page)


def _frequencies(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(set(found)) < 3 or not all(math.isfinite(f) and f > 0.0 for f in found):
        msg = f"{text!r}: give three frequencies of a load in hertz, such as {_TWO_KILOHERTZ}"
        raise TargetError(msg)
    return found


def _of_recordings(frequencies: list[float], args: argparse.Namespace) -> tuple[InternalRate, str]:
    if len(args.targets) != len(frequencies):
        msg = f"{len(args.targets)} recordings and {len(frequencies)} --frequencies: give one recording for each"
        raise TargetError(msg)
    patterns = []
    for path, hz in zip(args.targets, frequencies, strict=True):
        table = _recording(path, args)
        patterns.append(recorded_pattern(table, power_column(table, args.channel, path), hz))
    return internal_rate(patterns), ", ".join(args.targets)


def _of_sensor(target: str, frequencies: list[float], args: argparse.Namespace) -> tuple[InternalRate, str]:
    target, options = _sensor(target, args)
    seconds: float = args.duration
    patterns = []
    for hz in frequencies:
        _progress(f"{target}: a load of {hz:g} Hz for {seconds:g} s")
        patterns.append(measure_pattern(target, options, hz, seconds, channel=args.channel)[0])
    return internal_rate(patterns), target


# --- workloads ---


def _against(target: str, args: argparse.Namespace) -> _Found:
    tables = [_recording(path, args) for path in (target, args.against)]
    windows = windows_of(tables, args.window)
    times = time_column(tables)
    columns = [power_column(tables[0], args.channel, target), power_column(tables[1], None, args.against)]
    watts = [mean_watts(t, c, windows, times) for t, c in zip(tables, columns, strict=True)]
    found = agreement(*watts)
    page: list[Line | Table] = [Line(f"{target} against {args.against}: mean power of workloads", Kind.HEADING)]
    page += _agreement_page(found, "sensor", "reference", marked=windows.marked)
    if not one_run(tables):
        page.append(note("the recordings are put side by side by their wall times, which are two clocks'"))
    document = {"target": target, "reference": args.against, "marked": windows.marked} | _agreement(found)
    return _Found(document, page)


def _parts(target: str, args: argparse.Namespace) -> _Found:
    table = _recording(target, args)
    domains = {c["name"]: c.get("domain") or "" for c in (table.attrs["metadata"] or {}).get("channels", ())}
    wholes = {w: p for w, p in parts_of(domains).items() if w != TOTAL}
    if not wholes:
        msg = f"{target} says of no two channels that they are parts of a third (its PATH.json would)"
        raise TargetError(msg)
    windows = windows_of([table], args.window)
    times = time_column([table])
    page: list[Line | Table] = [Line(f"{target}: the sum of the parts against the whole", Kind.HEADING)]
    document: dict[str, Any] = {"target": target, "marked": windows.marked, "wholes": {}, "declined": {}}
    for whole, parts in wholes.items():
        page.append(Line(f"{whole}: {' + '.join(parts)}", Kind.HEADING))
        total = sum(mean_watts(table, f"{part}_W", windows, times) for part in parts)
        try:
            found = agreement(total, mean_watts(table, f"{whole}_W", windows, times))  # type: ignore[arg-type]
        except DeclinedError as error:
            document["declined"][whole] = str(error)
            page.append(note(str(error)))
            continue
        page += _agreement_page(found, "parts", "whole", marked=windows.marked)
        document["wholes"][whole] = {"parts": list(parts)} | _agreement(found)
    return _Found(document, page)


def _agreement_page(found: Agreement, one: str, other: str, *, marked: bool) -> Page:
    what = "regions that markers enclose" if marked else "windows of equal length"
    range_w = f"{found.low_w:.4g} to {found.high_w:.4g} W"
    rows = [["", "mean error", "", ""]]
    for name, percent, watts, how in (
        (f"{one} as they are" if one == "parts" else f"{one} as it is", found.mape_percent, found.mae_w, ""),
        ("linear fit", found.linear.mape_percent, found.linear.mae_w, _polynomial(found.linear)),
        ("quadratic fit", found.quadratic.mape_percent, found.quadratic.mae_w, _polynomial(found.quadratic)),
    ):
        rows.append([f"  {name}", f"{percent:.3f} %", f"{watts:.3f} W", how])
    return [
        Line(f"  {found.workloads} {what}, {range_w}; {one} / {other}: {found.ratio:.4f}"),
        Table(rows),
    ]


def _polynomial(fit: PolynomialFit) -> str:
    return " ".join(
        f"{c.value:+.4g} {'W' if i == 0 else 'x' if i == 1 else 'x^2/W'}" for i, c in enumerate(fit.coefficients)
    )


def _agreement(found: Agreement) -> dict[str, Any]:
    document = asdict(found)
    for name in ("linear", "quadratic"):
        fit: PolynomialFit = getattr(found, name)
        document[name]["coefficients"] = [c.as_dict() for c in fit.coefficients]
    return document


# --- steps, hours, work ---


def _steps(target: str, args: argparse.Namespace) -> _Found:
    table = _recording(target, args)
    column = power_column(table, args.channel, target)
    found = steps_of(*(table[c].to_numpy("float64") for c in (time_column([table]), column)))
    rise_ms, interval_ms = sorted((1e3 * found.rise_s).tolist()), 1e3 * found.interval_s
    middle, worst = rise_ms[len(rise_ms) // 2], rise_ms[-1]
    how = "resolved" if found.resolved else "within what the readings resolve"
    page: list[Line | Table] = [
        Line(f"{target}: steps between two levels", Kind.HEADING),
        Line(f"  levels    {found.low_w:.4g} and {found.high_w:.4g} W; a reading scatters by {found.noise_w:.3g} W"),
        Line(f"  steps     {found.rising} up, {found.falling} down, {1e3 * found.period_s:.4g} ms apart"),
        Line(f"  10-90 %   median {middle:.4g} ms, longest {worst:.4g} ms: {how} ({interval_ms:.4g} ms)"),
    ]
    document = {
        "target": target, "low_w": found.low_w, "high_w": found.high_w, "noise_w": found.noise_w,
        "rising": found.rising, "falling": found.falling, "rise_ms": {"median": middle, "max": worst},
        "interval_ms": interval_ms, "period_ms": 1e3 * found.period_s, "resolved": found.resolved,
    }  # fmt: skip
    return _Found(document, page)


def _stability(target: str, args: argparse.Namespace) -> _Found:
    if Path(target).exists():
        table = _recording(target, args)
        blocks = recorded_blocks(table, power_column(table, args.channel, target), time_column([table]), args.window)
    else:
        target, options = _sensor(target, args)
        if _virtual(target):
            _progress(f"{target} is virtual: its hours pass in simulated time")
        blocks = measure_blocks(
            target, options, total_s=args.duration, every_s=args.every, length_s=args.window, channel=args.channel,
            progress=_progress,
        )  # fmt: skip
    found = stability(*blocks)
    drift = found.drift_w_per_h
    page: list[Line | Table] = [
        Line(f"{target}: how steady it is", Kind.HEADING),
        Line(f"  blocks    {found.blocks} of {args.window:g} s over {found.hours:.4g} h, mean {found.mean_w:.5g} W"),
        Line(
            f"  worst     {found.worst_w:.3g} W off; means scatter by {found.sd_w:.3g}, noise by {found.noise_w:.3g} W"
        ),
        Line(f"  drift     {_estimate(drift.scaled(1e3), 'mW/h')}"),
    ]
    document = {"target": target, "virtual": _virtual(target), **asdict(found), "drift_w_per_h": drift.as_dict()}
    return _Found(document, page)


def _work(target: str, args: argparse.Namespace) -> _Found:
    table = _recording(target, args)
    column = power_column(table, args.channel, target)
    log = read_work_log(Path(args.work))
    begin_s = begin_of(table, args.begin, absolute=log.absolute)
    times = time_column([table]) if log.absolute else "elapsed"
    if log.absolute and times != "time":
        msg = f"{args.work} tells Unix time and {target} does not: name the marker at which the work began by --begin"
        raise TargetError(msg)
    found = join(
        log.starts_s + begin_s, log.ends_s + begin_s, log.amounts, log.kinds,
        *(table[name].to_numpy("float64") for name in (times, f"{column[:-1]}J", "lost")),
    )  # fmt: skip
    rows = [["work", "seconds", log.unit, "joules", f"J/{log.unit}", "+-"]]
    rows += [
        [c.kind, f"{c.seconds:.4g}", f"{c.amount:.5g}", f"{c.joules:.5g}", f"{c.per_unit:.5g}", f"{c.u:.2g}"]
        for c in found.costs
    ]
    page: list[Line | Table] = [Line(f"{target}: energy for the work of {args.work}", Kind.HEADING), Table(rows)]
    if found.outside or found.idle:
        page.append(note(f"left out: {found.outside} intervals outside or with lost rows, {found.idle} without work"))
    page.append(note("+- is one standard uncertainty, by the scatter of intervals; the sensor's own comes on top"))
    document = {
        "target": target, "log": args.work, "unit": log.unit, "outside": found.outside, "idle": found.idle,
        "work": [asdict(cost) for cost in found.costs],
    }  # fmt: skip
    return _Found(document, page)
