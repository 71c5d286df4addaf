"""``pmtpy characterise``: how a sensor behaves, from a recording of it or live under a load that is made for it."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.analysis.characterise import Characterisation, LoadStamps, Series, characterise
from pmtpy.analysis.marks import regions
from pmtpy.cli.common import add_options, parse_options, say
from pmtpy.clock import seconds_of
from pmtpy.errors import TargetError
from pmtpy.recordings import load as load_file

if TYPE_CHECKING:
    import pandas as pd

_EXAMPLES = """examples:
  pmtpy characterise nvml:virtual
  pmtpy characterise gpudata.csv --channel power.draw.instant --load timestamps.csv --meter PMD_data.bin --json
  pmtpy characterise nvml:0 --duration 30s

Of a FILE the readings are characterised; --load gives the stamps of when a load was on (a load stamp file, or any
recording with start and end markers), --meter a reference. Clocks need not agree: zones, offsets and rates are found.
A TARGET is polled while this tool makes a load: on a GPU through PyTorch or CuPy, on a CPU by computing on all
cores, on a virtual device by the load it watches."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="a recording, or a sensor name[:device]")
    parser.add_argument("--channel", metavar="NAME", help="which power; default: the fastest of a recording or sensor")
    parser.add_argument("--load", metavar="FILE", help="when the load was on (recordings only)")
    parser.add_argument("--meter", metavar="FILE", help="a reference meter's recording of the same time")
    parser.add_argument("--duration", default="20s", metavar="TIME", help="how long to record a sensor (default 20s)")
    parser.add_argument("--interval", metavar="TIME", help="mean time between polls of a sensor (default: 3ms or less)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    add_options(parser)
    parser.epilog = _EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Characterise each target, print."""
    found = [_one(target, args) for target in args.targets]
    if args.json:
        documents = [each.document() for each in found]
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        for target, each in zip(args.targets, found, strict=True):
            _show(target, each)
    for each in found:
        for note in each.notes:
            say(f"note: {note}")
    return 0


def _one(target: str, args: argparse.Namespace) -> Characterisation:
    if Path(target).is_file():
        if args.option:
            msg = f"{target} is a recording: -o is for sensors"
            raise TargetError(msg)
        return _recorded(target, args.channel, args.load, args.meter)
    if args.load or args.meter:
        msg = (
            f"there is no file {target}, and --load and --meter go with recordings; record the sensor with "
            f"'pmtpy dump {target}' beside the meter first"
        )
        raise TargetError(msg)
    from pmtpy.cli.live import record

    interval = seconds_of(args.interval) if args.interval else None
    live = record(
        target,
        parse_options(args.option),
        channel=args.channel,
        seconds=seconds_of(args.duration),
        interval_s=interval,
        progress=_progress,
    )
    if live.virtual:
        say(f"note: {target} is virtual: what was found are the settings of its emulation")
    return characterise(live.channel, live.polls, load=live.load)


def _progress(text: str) -> None:
    """Say what is going on, on a terminal only."""
    if sys.stderr.isatty():
        say(text)


# --- recordings ---


def _recorded(path: str, channel: str | None, load: str | None, meter: str | None) -> Characterisation:
    table = load_file(path)
    column = power_column(table, channel, path)
    return characterise(
        column.removesuffix("_W"),
        read_series(table, column),
        load=read_stamps(load) if load else None,
        meter=read_series(load_file(meter), "total_W") if meter else None,
    )


def power_column(table: pd.DataFrame, channel: str | None, path: str) -> str:
    """Return the column of a channel, named with or without its unit."""
    powers = [c for c in table.columns if c.endswith("_W") and table[c].notna().any()]
    if channel is None:
        chosen = f"{table.attrs.get('total', '')}_W"
        return chosen if chosen in powers else next(iter(powers[::-1]), "total_W")
    bare = channel.split(" [")[0].removesuffix("_W")
    if f"{bare}_W" in powers:
        return f"{bare}_W"
    msg = f"{path} has no channel {channel!r} with a power; it has: {', '.join(p.removesuffix('_W') for p in powers)}"
    raise TargetError(msg)


def read_series(table: pd.DataFrame, column: str) -> Series:
    """Return the known powers of a column, at wall times where the recording has them."""
    absolute = bool(table["time"].notna().all())
    t = table["time" if absolute else "elapsed"].to_numpy(np.float64)
    watts = table[column].to_numpy(np.float64)
    known = np.isfinite(t) & np.isfinite(watts)
    return Series(t[known], watts[known], absolute)


def read_stamps(path: str) -> LoadStamps:
    """Read when a load was on: from a load stamp file, or from the start and end markers of any recording."""
    table = load_file(path)
    absolute = bool(table["time"].notna().all())
    t = table["time" if absolute else "elapsed"].to_numpy(np.float64)
    marked = table["marker"].fillna("").astype(str)
    marks = [(float(at), one) for at, label in zip(t, marked, strict=True) for one in label.split(";") if one]
    edges = [edge for region in regions(marks)[0] for edge in (region.start, region.end)]
    if not edges or any(b <= a for a, b in itertools.pairwise(edges)):
        msg = f"{path} has no markers (on/off, start/end) that say when the load was on, one block after the other"
        raise TargetError(msg)
    return LoadStamps(np.array(edges), float(t[-1]), absolute)


# --- the table ---


def _show(target: str, found: Characterisation) -> None:
    document = found.document()
    print(f"{target}: {document['channel']}")
    step, kernel = document["step"], document["kernel"]
    rows: list[tuple[str, Any, str]] = [
        ("update period", document["update_period_ms"], "ms"),
        (f"step: {step['kind'] or '-'}, rise", step["rise_ms"], "ms"),
        ("step: delay", step["delay_ms"], "ms"),
        (f"kernel: {kernel['family']}, window", kernel["window_ms"], "ms"),
        ("kernel: time constant", kernel["tau_ms"], "ms"),
        ("kernel: offset", kernel["offset_ms"], "ms"),
        ("gradient", document["gradient"], ""),
        ("intercept", document["intercept_w"], "W"),
    ]
    width = max(len(name) for name, _, _ in rows)
    for name, estimate, unit in rows:
        if estimate is not None:
            low, high = estimate["low"], estimate["high"]
            print(f"  {name:<{width}}  {estimate['value']:10.4f} {unit:<2}  (95 %: {low:.4f} to {high:.4f})")
    for name, energy in document["energy"].items():
        low, high = energy["corrected_j"]["low"], energy["corrected_j"]["high"]
        print(
            f"  energy, {name}: meter {energy['reference_j']:.2f} J, held {energy['held_error_percent']:+.2f} %, "
            f"corrected {energy['corrected_error_percent']:+.2f} % ({low:.2f} to {high:.2f} J)"
        )
    for name, why in document["declined"].items():
        print(f"  declined, {name}: {why}")
