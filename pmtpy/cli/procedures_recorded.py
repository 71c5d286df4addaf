"""Procedures with recordings: against a reference, parts against a whole, steps, hours, work."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pmtpy.analysis.procedures.agreement import Agreement, Clocks, PolynomialFit, agreement_of
from pmtpy.analysis.procedures.stability import stability_of
from pmtpy.analysis.procedures.steps import steps_of
from pmtpy.analysis.procedures.windows import later_watts, mean_watts
from pmtpy.analysis.procedures.work import WorkWindows, join
from pmtpy.analysis.signal.clock_fit import RATE_SD
from pmtpy.cli.page import Kind, Line, Page, Table, note
from pmtpy.cli.procedure_answer import Answer, progress, recording_of, sensor_of, with_interval
from pmtpy.core.channel import TOTAL
from pmtpy.core.presentation import amount
from pmtpy.errors import DeclinedError, TargetError
from pmtpy.lab.procedures import (
    Windows,
    energy_curve,
    parts_of,
    time_column,
    windows_of,
)
from pmtpy.lab.recorded import power_column
from pmtpy.lab.stability import measure_stability, recorded_stability
from pmtpy.lab.traces import shown_by
from pmtpy.lab.two_clocks import together
from pmtpy.lab.work_log import begin_of, read_work_log
from pmtpy.sensor.registry import is_virtual


def agreement(target: str, args: argparse.Namespace) -> Answer:
    """Mean powers of workloads against a reference."""
    tables = recording_of(target, args), recording_of(args.against, args, beside=target)
    columns = power_column(tables[0], args.channel, target), power_column(tables[1], None, args.against)
    laid = together(*tables, columns)
    tables = laid.tables
    curves = [energy_curve(t, c, time_column(tables)) for t, c in zip(tables, columns, strict=True)]
    windows = windows_of(tables, curves, args.window)
    ends = windows.starts_s, windows.ends_s
    sensor_w, reference_w = (mean_watts(curve, *ends) for curve in curves)
    middles = np.asarray(windows.starts_s + windows.ends_s, np.float64) / 2.0
    rate_u = None if laid.one_clock else RATE_SD
    found = agreement_of(sensor_w, reference_w, Clocks(later_watts(curves[1], *ends), middles, laid.rate, rate_u))
    page: list[Line | Table] = [
        Line(f"{target} against {args.against}: mean power of workloads ({columns[0][:-2]})", Kind.HEADING)
    ]
    page += _agreement_page(found, "sensor", "reference", windows)
    page += map(note, laid.notes)
    document = {"target": target, "channel": columns[0][:-2], "reference": args.against, "marked": windows.marked}
    document |= {"lag_s": laid.lag_s.as_dict() if laid.lag_s is not None else None, "notes": list(laid.notes)}
    document |= asdict(found)
    return Answer(document, page)


def parts(target: str, args: argparse.Namespace) -> Answer:
    """The sum of the parts against the whole."""
    table = recording_of(target, args)
    domains = {c["name"]: c.get("domain") or "" for c in (table.attrs["metadata"] or {}).get("channels", ())}
    wholes = {w: p for w, p in parts_of(domains).items() if w != TOTAL}
    if not wholes:
        msg = f"{target} does not say which channels are parts of which; the metadata beside a dump (PATH.json) would"
        raise TargetError(msg)
    names = {name for whole, parts in wholes.items() for name in (whole, *parts)}
    curves = {name: energy_curve(table, f"{name}_W", "elapsed") for name in names}
    windows = windows_of([table], list(curves.values()), args.window)
    watts = {name: mean_watts(curve, windows.starts_s, windows.ends_s) for name, curve in curves.items()}
    page: list[Line | Table] = [Line(f"{target}: the sum of the parts against the whole", Kind.HEADING)]
    document: dict[str, Any] = {"target": target, "marked": windows.marked, "wholes": {}, "declined": {}}
    for whole, parts in wholes.items():
        page.append(Line(f"{whole}: {' + '.join(parts)}", Kind.HEADING))
        try:
            found = agreement_of(np.sum([watts[part] for part in parts], axis=0), watts[whole])
        except DeclinedError as error:
            document["declined"][whole] = str(error)
            page.append(note(str(error)))
            continue
        page += _agreement_page(found, "parts", "whole", windows)
        document["wholes"][whole] = {"parts": list(parts)} | asdict(found)
    return Answer(document, page)


def _agreement_page(found: Agreement, one: str, other: str, windows: Windows) -> Page:
    length_s = float(np.median(windows.ends_s - windows.starts_s))
    what = "regions" if windows.marked else f"windows of {length_s:.3g} s"
    range_w = f"{found.low_w:.4g} to {found.high_w:.4g} W"
    as_is = f"{one} as they are" if one == "parts" else f"{one} as it is"
    compared = [(as_is, found.mape_percent, found.mae_w, "")]
    for name, fit in (("linear fit", found.linear), ("quadratic fit", found.quadratic)):
        if fit is not None:
            compared.append((name, fit.mape_percent, fit.mae_w, _polynomial(fit)))
    rows = [["", "mean error  (95 %)", "", ""]]
    rows += [[f"  {n}", with_interval(percent, "%"), with_interval(off, "W"), how] for n, percent, off, how in compared]
    page: list[Line | Table] = [
        Line(f"  {found.workloads} {what}, {range_w}; {one} / {other}: {found.ratio:.4f}"),
        Table(rows),
    ]
    page += [note(f"{name}: {why}") for name, why in found.declined.items()]
    if left_out := len(windows.starts_s) - found.workloads:
        page.append(note(f"left out: {left_out} in which rows are missing, or too far apart"))
    return page


def _polynomial(fit: PolynomialFit) -> str:
    return " ".join(
        f"{c.value:+.4g} {'W' if i == 0 else 'x' if i == 1 else 'x^2/W'}" for i, c in enumerate(fit.coefficients)
    )


def steps(target: str, args: argparse.Namespace) -> Answer:
    """How it answers a load that is switched between two levels."""
    table = recording_of(target, args)
    column = power_column(table, args.channel, target)
    found = steps_of(*(table[c].to_numpy("float64") for c in ("elapsed", column)))
    rise_ms, interval_ms = sorted((1e3 * found.rise_s).tolist()), 1e3 * found.interval_s
    middle, worst = rise_ms[len(rise_ms) // 2], rise_ms[-1]
    how = "resolved" if found.resolved else "within what the readings resolve"
    page: list[Line | Table] = [
        Line(f"{target} ({column[:-2]}): steps between two levels", Kind.HEADING),
        Line(f"  levels    {found.low_w:.4g} and {found.high_w:.4g} W; a reading scatters by {found.noise_w:.3g} W"),
        Line(f"  steps     {found.rising} up, {found.falling} down, {1e3 * found.period_s:.4g} ms apart"),
        Line(f"  10-90 %   median {middle:.4g} ms, longest {worst:.4g} ms: {how} ({interval_ms:.4g} ms)"),
    ]
    if not found.settled:
        lacks = f"still lack up to {found.rest_w:.2g} W at their ends, and the levels are what they tend to"
        unknown = math.isnan(found.rest_w)
        why = "do not settle, so that levels and times are those of this recording alone" if unknown else lacks
        page.append(note(f"plateaus {why}; let the load rest longer"))
    if found.resting:
        steps = amount(found.resting, "step rests", "steps rest")
        what = "between the levels for a while, or a register shows one renewal there; the times contain it"
        page.append(note(f"{steps} {what}"))
    document = {
        "target": target, "channel": column[:-2],
        "low_w": found.low_w, "high_w": found.high_w, "noise_w": found.noise_w,
        "rising": found.rising, "falling": found.falling, "rise_ms": {"median": middle, "max": worst},
        "interval_ms": interval_ms, "period_ms": 1e3 * found.period_s, "resolved": found.resolved,
        "rest_w": None if math.isnan(found.rest_w) else found.rest_w, "resting": found.resting,
    }  # fmt: skip
    return Answer(document, page)


def stability(target: str, args: argparse.Namespace) -> Answer:
    """How steady it is over hours."""
    if Path(target).exists():
        table = recording_of(target, args)
        blocks = recorded_stability(table, power_column(table, args.channel, target), args.window)
    else:
        target, options = sensor_of(target, args)
        if is_virtual(target):
            progress(f"{target} is virtual: its hours pass in simulated time")
        blocks = measure_stability(
            target, options, total_s=args.duration, every_s=args.every, length_s=args.window, channel=args.channel,
            progress=progress,
        )  # fmt: skip
    found = stability_of(*blocks)
    drift = found.drift_w_per_h
    wanders = found.sd_w > 2.0 * found.noise_w
    page: list[Line | Table] = [
        Line(f"{target}: how steady it is", Kind.HEADING),
        Line(f"  blocks    {found.blocks} of {args.window:g} s over {found.hours:.4g} h, mean {found.mean_w:.5g} W"),
        Line(
            f"  worst     {found.worst_w:.3g} W off; means scatter by {found.sd_w:.3g}, noise by {found.noise_w:.3g} W"
        ),
        Line(f"  drift     {with_interval(drift.scaled(1e3), 'mW/h')}"),
    ]
    if wanders:
        page.append(note("the means scatter by more than noise, so the drift's interval allows for a wander"))
    document = {"target": target, "virtual": is_virtual(target), **asdict(found), "drift_w_per_h": drift.as_dict()}
    return Answer(document, page)


def work(target: str, args: argparse.Namespace) -> Answer:
    """Energy for each unit of an application's work."""
    table = recording_of(target, args)
    column = power_column(table, args.channel, target)
    log = read_work_log(Path(args.work))
    begin_s = begin_of(table, args.begin, absolute=log.absolute)
    notes = list(log.notes)
    if not log.absolute and args.begin is None:
        notes.append("the work is taken to begin at the first row; where a marker says when, name it by --begin")
    times = "time" if log.absolute else "elapsed"
    if log.absolute and not table["time"].notna().all():
        msg = f"{args.work} tells Unix time and {target} does not: name the marker at which the work began by --begin"
        raise TargetError(msg)
    curve = energy_curve(table, column, times)
    windows = WorkWindows(log.starts_s + begin_s, log.ends_s + begin_s, log.amounts, log.kinds)
    found = join(windows, curve, shown_by(table, column, times))
    rows = [["work", "seconds", log.unit, "joules", f"J/{log.unit}", "+-"]]
    rows += [
        [c.kind, f"{c.seconds:.4g}", f"{c.amount:.5g}", f"{c.joules:.5g}", f"{c.per_unit:.5g}", f"{c.u:.2g}"]
        for c in found.costs
    ]
    page: list[Line | Table] = [
        Line(f"{target}: energy for the work of {args.work} ({column[:-2]})", Kind.HEADING),
        Table(rows),
    ]
    if found.outside or found.idle:
        page.append(
            note(f"left out: {amount(found.outside, 'interval')} outside or with lost rows, {found.idle} without work")
        )
    page += map(note, notes)
    least = max(found.costs, key=lambda cost: cost.sensor_u / abs(cost.joules) if cost.joules else math.inf)
    page += [note(f"{least.kind}: {warning}") for warning in least.warnings]  # the others' are the same but smaller
    page.append(note("+- is one standard uncertainty: the scatter of intervals, and what the sensor leaves open"))
    document = {
        "target": target, "channel": column[:-2], "log": args.work, "unit": log.unit,
        "outside": found.outside, "idle": found.idle,
        "notes": notes, "work": [asdict(cost) for cost in found.costs],
    }  # fmt: skip
    return Answer(document, page)
