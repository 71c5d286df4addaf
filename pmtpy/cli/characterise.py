"""``pmtpy characterise``: how a sensor behaves, from a recording of it or live under a load that is made for it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmtpy.analysis.characterisation.characterise import characterise
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS
from pmtpy.analysis.characterisation.results import Reference
from pmtpy.analysis.signal.estimate import NAMED
from pmtpy.cli import procedures
from pmtpy.cli.common import parse_options, say
from pmtpy.cli.options import add_json, add_options, add_part, part_of
from pmtpy.cli.page import Kind, Line, Table
from pmtpy.cli.settings import load_settings
from pmtpy.cli.terminal import is_terminal, show
from pmtpy.core.clock import duration_of, seconds_of
from pmtpy.core.presentation import fixed, in_same_digits
from pmtpy.errors import TargetError
from pmtpy.io.read.cut import Cut
from pmtpy.io.recorded import corrected_by
from pmtpy.lab.found import Found
from pmtpy.lab.own_cures import own_cures
from pmtpy.lab.recorded import (
    AS_SHOWN,
    one_run,
    power_column,
    power_columns,
    read_file,
    read_series,
    read_stamps,
    sensor_column,
    stamped_load,
    used_stamps,
)
from pmtpy.lab.traces import stated_of
from pmtpy.sensor.registry import canonical, split_target

if TYPE_CHECKING:
    import pandas as pd

_EXAMPLES = """examples:
  pmtpy characterise nvml:virtual
  pmtpy characterise gpudata.csv --channel power.draw.instant --load timestamps.csv --meter PMD_data.bin --json
  pmtpy characterise nvml:0 --duration 30s

The clocks of recordings need not agree: zones, offsets and rates are found.
A TARGET is polled while this tool makes a load: on a GPU through PyTorch or CuPy, on a CPU by computing on all
cores, on a virtual device by the load it watches."""

_MOST_PLACES = 9  # a rate of clocks is 1e-9 and less uncertain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="a recording, or a sensor name[:device]")
    which = (
        "which power, such as gpu.instant; default: the first that the sensor reads (of another tool's log, its total)"
    )
    parser.add_argument("--channel", metavar="NAME", help=which)
    parser.add_argument(
        "--load",
        metavar="FILE",
        help="when the load was on: a file of stamps, a trace of PyTorch's profiler, or a recording with stamps of its "
        "load, markers or regions (recordings only)",
    )
    parser.add_argument(
        "--meter",
        metavar="FILE",
        help="a recording of the same time by a meter that is trusted: gain and offset are found against it",
    )
    parser.add_argument(
        "--duration", type=duration_of, metavar="TIME", help="how long to record a sensor (default 20s)"
    )
    parser.add_argument(
        "--interval", type=seconds_of, metavar="TIME", help="mean time between polls of a sensor (default: 3ms or less)"
    )
    parser.add_argument("--skip-broken", action="store_true", help="leave out lines that cannot be read")
    add_json(parser)
    add_part(parser)
    add_options(parser)
    procedures.add_arguments(parser)
    parser.epilog = _EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Characterise each target, print; or do the procedure that was asked for."""
    procedure = procedures.chosen(args)
    if procedure is not None:
        return procedure(args)
    made = [_one(target, args) for target in args.targets]
    found = [each.found for each in made]
    if args.json:
        documents = [each.document() for each in made]
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        for target, each in zip(args.targets, found, strict=True):
            show(page(target, each.document()))
    for each in found:
        for note in each.notes:
            say(f"note: {note}")
    return 0


def _one(target: str, args: argparse.Namespace) -> Found:
    if Path(target).is_file():
        if args.option:
            msg = f"{target} is a recording: -o is for sensors"
            raise TargetError(msg)
        return _recorded(target, args)
    if Path(target).is_dir():
        msg = f"{target} is a folder: give the sensor's log in it, and what else it holds with --load and --meter"
        raise TargetError(msg)
    if Path(split_target(target)[0]).suffix or "/" in split_target(target)[0]:
        msg = f"there is no file {target}, and no sensor has such a name"
        raise TargetError(msg)
    if args.part_from is not None or args.part_to is not None:
        msg = f"there is no file {target}, and --from and --to take a part of a recording; --duration is for sensors"
        raise TargetError(msg)
    if args.load or args.meter:
        msg = (
            f"there is no file {target}, and --load and --meter go with recordings; record the sensor with "
            f"'pmtpy dump {target}' beside the meter first"
        )
        raise TargetError(msg)
    from pmtpy.lab.record import OF_SENSORS, Recorder

    interval: float | None = args.interval
    target = canonical(target)
    said = load_settings().texts_for(target, os.environ)
    options = {key: text for key, text in said.items() if key not in OF_SENSORS} | parse_options(args.option)
    live = Recorder(args.duration, args.channel, interval, progress=_progress).alone(target, options)
    if live.identity.virtual:
        say(f"note: {target} is virtual: what was found are the settings of its emulation")
    found = characterise(live.about.name, live.series, load=live.load)
    found = found if live.load is None else own_cures(found)
    return Found.of(found, target, live.identity, live.series, channel=live.about)


def _progress(text: str) -> None:
    """Say what is going on, on a terminal only."""
    if is_terminal(sys.stderr):
        say(text)


# --- recordings ---


def _recorded(path: str, args: argparse.Namespace) -> Found:
    cut = Cut.of(path, *part_of(args))
    table = read_file(path, cut.ends(path), skip_broken=args.skip_broken, report=say)
    column = sensor_column(table, args.channel, path)
    facts = table.attrs["metadata"] or {}
    by = corrected_by(facts, column[:-2])
    if by:
        what = f"{column[:-2]} of {path} was corrected by the profile {', '.join(sorted(by))} while it was recorded"
        if args.meter:
            msg = f"{what}, so gain and offset of its sensor are no longer in it: {AS_SHOWN}"
            raise TargetError(msg)
        say(f"note: {what}: its clock and kernel can be told, but no profile can be made of it; for that {AS_SHOWN}")
    load = read_stamps(args.load, skip_broken=args.skip_broken, report=say) if args.load else None
    meter, one_clock = _metered(path, args, cut, table) if args.meter else (None, False)
    own = stamped_load(table) if load is None and not one_clock else None  # a meter by the same clock tells more
    polls = read_series(table, column, alone=load is None and own is None and not args.meter)
    load = load if own is None else used_stamps(polls, own, path, say)
    stated = stated_of(table, column.removesuffix("_W"))
    del table  # the other columns of an hour take as much memory as what is made of this one
    found = characterise(column.removesuffix("_W"), polls, load=load, meter=meter, one_clock=one_clock)
    return Found.of(found, facts.get("target", ""), facts.get("identity"), polls, channel=stated, corrected_by=by)


def _metered(path: str, args: argparse.Namespace, cut: Cut, table: pd.DataFrame) -> tuple[Reference, bool]:
    """Return what the meter recorded, and whether one clock stamped it and the readings in ``table``."""
    if Path(args.meter).exists() and Path(args.meter).samefile(path):
        msg = f"{path} cannot be its own meter: --meter is the recording of another instrument"
        raise TargetError(msg)
    ends = cut.ends(args.meter)
    metered = read_file(args.meter, ends, skip_broken=args.skip_broken, report=say, only="total")
    if not power_columns(metered):  # what powers it has instead is told
        metered = read_file(args.meter, ends, skip_broken=args.skip_broken)
    power_column(metered, None, args.meter)
    shown, one_clock = read_series(metered, "total_W"), one_run([table, metered])
    del metered  # of millions of rows each column counts
    return Reference(shown), one_clock


# --- the table ---


# How a person is told what the document calls so; what is declined may be any of them, and more.
_LABELS: Mapping[str, tuple[str, str]] = types.MappingProxyType(
    {
        "update_period_ms": ("update period", "ms"),
        "step.rise_ms": ("step: {kind}, rise", "ms"),
        "step.delay_ms": ("step: delay", "ms"),
        "kernel.window_ms": ("kernel: {family}, window", "ms"),
        "kernel.tau_ms": ("kernel: time constant", "ms"),
        "kernel.spread_ms": ("kernel: spread", "ms"),
        "kernel.offset_ms": ("kernel: offset", "ms"),
        "kernel.lag_ms": ("kernel: mean lag", "ms"),
        "levels_w.off": ("shown, load off", "W"),
        "levels_w.on": ("shown, load on", "W"),
        "gradient": ("gradient", ""),
        "intercept_w": ("intercept", "W"),
    }
)


def page(target: str, document: Mapping[str, Any]) -> list[Line | Table]:
    """Return for a person what the document of a characterisation says."""
    made: list[Line | Table] = [Line(f"{target}: {document['channel']}", Kind.HEADING)]
    facts = {"kind": document["step"]["kind"] or "-", "family": document["kernel"]["family"]}
    rows = {key: (label.format(**facts), unit) for key, (label, unit) in _LABELS.items()}
    width = max(len(name) for name, _ in rows.values())
    for key, (name, unit) in rows.items():
        part, _, inner = key.rpartition(".")
        estimate = ((document.get(part) if part else document) or {}).get(inner)
        if inner == "spread_ms" and document["kernel"]["family"] != AMBIGUOUS:
            continue  # its widths say it
        if estimate is not None and estimate["value"] is None:
            made.append(Line(f"  {name:<{width}}  below {estimate['high']:.4g} {unit}"))
        elif estimate is not None:
            low, high = estimate["low"], estimate["high"]
            value, _ = in_same_digits(estimate["value"], (high - low) / 2.0, _MOST_PLACES)
            places = len(value.partition(".")[2])
            interval = f"95 %: {fixed(low, places)} to {fixed(high, places)}"
            made.append(Line(f"  {name:<{width}}  {value:>10} {unit:<2}  ({interval})"))
    if document["kernel"]["family"] == AMBIGUOUS and (likely := _likely(document["kernel"].get("candidates", ()))):
        made.append(Line(f"  {'kernel: may be':<{width}}  {likely}"))
    for name, energy in document["energy"].items():
        low, high = energy["corrected_j"]["low"], energy["corrected_j"]["high"]
        text = (
            f"  energy, {name}: meter {energy['reference_j']:.2f} J, as shown {energy['held_error_percent']:+.2f} %, "
            f"corrected {energy['corrected_error_percent']:+.2f} % ({low:.2f} to {high:.2f} J)"
        )
        made.append(Line(text))
    for name, why in document["declined"].items():
        first = why.split(": ")[0]  # "needs the update period: ...", whose own reason stands there already
        told = rows[name][0] if name in rows else name.replace("_ms", "").replace(".", ": ", 1)
        made.append(Line(f"  not determined, {told}: {first if first.startswith('needs the ') else why}", Kind.NOTE))
    return made


def _likely(candidates: Sequence[Mapping[str, Any]]) -> str:
    """Name the kernels that are left, the likeliest first, with the share of belief in each; not a single one."""
    left = [each for each in candidates if each["share"] * NAMED > 1.0]
    return ", ".join(f"{each['family']} {100.0 * each['share']:.0f} %" for each in left) if len(left) > 1 else ""
