"""``pmtpy convert``: a recording in another format, or as a trace for other programs' viewers."""

from __future__ import annotations

import argparse
import math
from datetime import datetime
from pathlib import Path

from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.recorded import recorded_uncertainties
from pmtpy.cli.common import check_writable, say
from pmtpy.cli.options import add_part, add_reading, part_of
from pmtpy.cli.terminal import progress
from pmtpy.core.clock import seconds_of
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import TargetError
from pmtpy.io.convert import convert, format_for
from pmtpy.io.write import FILE_FORMATS, Options
from pmtpy.io.write.base import Judged

_PERCENT = 100.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument(
        "source", metavar="FILE", help="a recording: our own, or one of PMT, PowerSensor3, nvidia-smi ..."
    )
    parser.add_argument("target", metavar="NEW_FILE", help="where to; its suffix says the format, unless --format does")
    parser.add_argument("--format", choices=[f.name for f in FILE_FORMATS], help="format of NEW_FILE")
    parser.add_argument(
        "--interval", type=seconds_of, metavar="TIME", help="one row per TIME: 10ms, 0.5s, 100Hz; default: every row"
    )
    add_part(parser)
    parser.add_argument(
        "--start",
        metavar="TIME",
        help="when the recording began, if it does not tell: 2026-01-31T12:00:00+01:00, or Unix seconds",
    )
    add_reading(parser)
    parser.add_argument(
        "--merge",
        metavar="TRACE",
        help="merge with this trace in Chrome's JSON (PyTorch, VizTracer), which is not changed",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace NEW_FILE if it exists")
    rows = [
        f"  {f.name:<13} {', '.join(f.suffixes):<26} {'lacks ' + f.lacks if f.lacks else 'holds everything'}"
        for f in FILE_FORMATS
    ]
    parser.epilog = (
        "formats:\n" + "\n".join(rows) + "\n\nexamples:\n"
        "  pmtpy convert run.csv run.parquet\n"
        "  pmtpy convert gpudata.csv run.csv --utc-offset 3600\n"
        "  pmtpy convert run.parquet run.csv --interval 100ms\n"
        "  pmtpy convert run.csv part.parquet --from 100ms --to 200ms\n"
        "  pmtpy convert run.csv run.pftrace            # ui.perfetto.dev\n"
        "  pmtpy convert run.csv both.json --merge pytorch-trace.json\n"
        "  pmtpy convert occ.csv occ.otf2               # Vampir, otf2-print"
    )


def run(args: argparse.Namespace) -> int:
    """Convert, say what was written and what found no place."""
    into = format_for(args.target, args.format)
    check_writable(None if into.folder and Path(args.target).is_dir() else args.target)
    options = Options(overwrite=args.overwrite, into=Path(args.merge) if args.merge else None)
    interval_s: float | None = args.interval
    start_s = _start_of(args.start) if args.start else None
    with progress(f"converting to {into.name}", _PERCENT, enabled=not args.quiet) as tell:
        try:
            made = convert(
                args.source,
                args.target,
                format=into.name,
                options=options,
                part=part_of(args),
                interval_s=interval_s,
                start_s=start_s,
                skip_broken=args.skip_broken,
                utc_offset_s=args.utc_offset,
                judge=_judge,
                tell=lambda share: tell(_PERCENT * share),
            )
        except OSError as error:
            if error.errno is None or error.filename != args.source:
                raise
            msg = f"cannot read {args.source}: {error.strerror}"
            raise TargetError(msg) from error
    if not args.quiet:
        lost = f", {amount(made.lost, 'row', form=',')} lost in the recording" if made.lost else ""
        say(f"{amount(made.rows, 'row', form=',')}{lost}")
        for note in made.notes:
            say(f"note: {note}")
    print(Path(args.target))
    return 0


def _judge(stretch: Judged) -> Floats:
    """Return the uncertainties of the energies of a region."""
    found = stretch.joules[1:].tolist(), stretch.unknown_s[1:].tolist(), stretch.lost
    interval = Interval(stretch.seconds, *found, stretch.time_u_s, aged_s=stretch.aged_s, left_out_s=stretch.left_out_s)
    around = stretch.t_s, stretch.around_watts, stretch.around_joules
    return recorded_uncertainties(stretch.layout, *around, interval)


def _start_of(text: str) -> float:
    """Return Unix seconds of a time that a user gave.

    Raises TargetError: it is none, or of no zone.
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
        except ValueError:
            when = None
        if when is None or when.tzinfo is None:
            msg = f"{text!r} is no time with a zone: write 2026-01-31T12:00:00+01:00, ...Z for UTC, or Unix seconds"
            raise TargetError(msg) from None
        return when.timestamp()
    if not math.isfinite(seconds):
        msg = f"{text!r} is no time in Unix seconds"
        raise TargetError(msg)
    return seconds
