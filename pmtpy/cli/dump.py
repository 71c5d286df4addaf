"""``pmtpy dump`` (and ``pmt-dump``): log sensors continuously, for a time, until Ctrl-C, or while a command runs."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pmtpy.analysis.uncertainty.channel_times import is_power
from pmtpy.cli import report
from pmtpy.cli.command import run_command
from pmtpy.cli.common import LOST, aside, check_writable, chosen_targets, opened, say, warn_of_the_rest, write_report
from pmtpy.cli.options import add_overwrite, add_targets, size_of
from pmtpy.cli.page import Kind, Line
from pmtpy.cli.stopping import Stop
from pmtpy.cli.terminal import progress
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, duration_of, seconds_of
from pmtpy.core.nearest import nearest
from pmtpy.core.presentation import amount, duration, utf8
from pmtpy.errors import PmtError, SinkError, SourceLostError, TargetError
from pmtpy.io.origin import launch_of, this_machine
from pmtpy.io.write import FORMATS, SUFFIXES, DataSetPlace, Ending, format_named
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of, dump_error_of, dumped_so_far, stop_dumps

_WATCH_S = 0.1
_DAY_S = 86400.0
_LATEST_S = 2.0  # of later readings; as long as the end of a dump is waited for itself


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add_targets(parser)
    parser.add_argument(
        "-f",
        "--file",
        default=os.environ.get("PMT_DUMP_FILE") or None,
        metavar="FILE",
        help="where to write (default: PMT_DUMP_FILE); several targets each get FILE with their name put in; "
        "without it one target writes to stdout, and several write TARGET.csv each (or as --format says) into the "
        "current folder",
    )
    parser.add_argument("--format", choices=FORMATS, help="file format; default: by the suffix of FILE, else csv")
    parser.add_argument(
        "--interval",
        type=seconds_of,
        default=os.environ.get("PMT_DUMP_INTERVAL") or None,
        metavar="TIME",
        help="one row per TIME: 10ms, 0.5s, 100Hz, or bare milliseconds; default: PMT_DUMP_INTERVAL, else every row",
    )
    parser.add_argument(
        "--duration", type=duration_of, metavar="TIME", help="end after this time (bare: seconds); default: at Ctrl-C"
    )
    add_overwrite(parser)
    parser.add_argument(
        "--dataset",
        metavar="ROOT",
        help="grow a data set of many hosts, for pmt.dataset and other engines: ROOT/host=.../date=.../*.parquet",
    )
    parser.add_argument(
        "--job", metavar="ID", help="with --dataset: which job the rows are of; default: what the launcher says"
    )
    parser.add_argument(
        "--rotate",
        type=_rotation_of,
        metavar="SIZE|TIME",
        help="with --dataset: begin a new file before one is larger than SIZE (default 64MB), or each TIME "
        "(default 10min); each day in any case",
    )
    parser.add_argument("--output", metavar="FILE", help="write the summary to FILE instead of stderr")
    parser.usage = "pmtpy dump TARGET... [-f FILE] [options] [-- COMMAND...]"
    parser.epilog = (
        "examples:\n"
        "  pmtpy dump powersensor3 -f run.csv --duration 5s\n"
        "  pmtpy dump rapl nvml:0 --interval 100ms -f run.csv -- ./solve\n"
        "  pmtpy dump rapl --dataset energy --interval 1s --rotate 1h --duration 3600s\n"
        "  pmtpy dump powersensor3:virtual -o load=sine:low=20,high=80,hz=5 --duration 1s | head"
    )


def run(args: argparse.Namespace) -> int:
    """Dump until the time is over, the command has ended, or the user stops it."""
    _check_together(args)
    check_writable(args.output)
    if args.format is None and args.dataset is None:
        check_suffix(args.file, "; or --format says what it is")
    warn_of_the_rest("dump", "one dump on each node is enough, as one task of each", on_each_node=True)
    targets = chosen_targets(args.targets)
    seconds: float | None = args.duration
    if args.dataset is not None:
        paths: Sequence[Path | DataSetPlace | None] = [_place(args)] * len(targets)
    else:
        paths = dump_paths(targets, args.file, args.format)
    with opened(targets, args.option, interval=args.interval) as sensors:
        region = Region("dump", {s.target: s for s in sensors})
        files = [path for path in paths if isinstance(path, Path)]
        started: list[Sensor] = []
        problems: list[PmtError] = []
        endings: dict[str, Ending] = {}
        try:
            for sensor, path in zip(sensors, paths, strict=True):
                where = sys.stdout if path is None else path
                sensor.start_dump(where, format=args.format, interval=args.interval, overwrite=args.overwrite)
                started.append(sensor)
            with region:
                if args.command:
                    command = run_command(args.command)
                    code = args.ended = command.status
                else:
                    code = _watch(args, sensors, files, seconds)
            if args.command and command.ran:
                command.tell_what_goes_on()
                linger(region, started, args.stop)
        finally:
            problems += end_dumps(started, endings)
        gone = [path for path in files if _is_gone(path)]
        problems += [SinkError(f"the rows of {path} are lost: it was deleted meanwhile") for path in gone]
        _report(args, region, paths, endings, problems, energies=not args.command or command.ran)
    if args.command:
        return code
    lost = any(isinstance(p, SourceLostError) for p in problems)
    return LOST if lost else 1 if problems else code


def _check_together(args: argparse.Namespace) -> None:
    """Raise TargetError where an option would do nothing, or something else, beside the others or without one."""
    into_set, said = args.dataset is not None, ""
    if args.duration is not None and args.command:
        say("note: the dump ends with the command, not after --duration")
    if into_set and args.format is not None:
        said = "--format does not go with --dataset: its files are Parquet"
    elif into_set and args.file is not None and args.file != os.environ.get("PMT_DUMP_FILE"):
        said = "-f does not go with --dataset: its files have names of their own"
    elif not into_set and (args.rotate is not None or args.job is not None):
        said = (
            f"{'--job' if args.rotate is None else '--rotate'} goes with --dataset alone: a dump without it is one file"
        )
    if said:
        raise TargetError(said)


def _place(args: argparse.Namespace) -> DataSetPlace:
    """Return where the data set grows, and as whose."""
    launch, machine = launch_of(os.environ), this_machine(os.environ)
    job = args.job if args.job is not None else launch.job
    place = DataSetPlace(Path(args.dataset), machine.host, utf8(job))
    if isinstance(args.rotate, int):
        return replace(place, most_bytes=args.rotate)
    return place if args.rotate is None else replace(place, every_s=int(args.rotate))


def _rotation_of(text: str) -> int | float:
    """Return at which size in bytes (an integer), or after how many seconds, a file is ended.

    Raises TargetError: the text is neither.
    """
    with contextlib.suppress(TargetError):
        return size_of(text)
    if not text.isdecimal() and text.islower():  # 64 and 64M might be meant as sizes
        with contextlib.suppress(TargetError):
            seconds = duration_of(text)
            if 1.0 <= seconds <= _DAY_S:
                return float(round(seconds))
    msg = (
        f"{text!r} does not say when to begin a new file: write a size such as 64MB, or a time (1s to 1d) such as 10min"
    )
    raise TargetError(msg)


def check_suffix(file: str | None, hint: str = "") -> None:
    """Refuse a file whose suffix promises another format than any of ours; none at all means CSV.

    Raises TargetError: it does.
    """
    given = Path(file).suffix.lower() if file else ""
    if given and given not in SUFFIXES:
        near = nearest(given, SUFFIXES)
        msg = f"{file}: no format has the suffix {given}; there are: {', '.join(SUFFIXES)}{hint}{near}"
        raise TargetError(msg)


def dump_paths(targets: Sequence[str], file: str | None, kind: str | None) -> list[Path | None]:
    """Return a file for each target; None is stdout, for a single target without a name."""
    suffix = format_named(kind or "csv").suffixes[0]
    if len(targets) == 1:
        return [Path(file) if file else None]
    slugs = [re.sub(r"[^A-Za-z0-9]+", "-", t).strip("-") for t in targets]
    if file is None:
        return [Path(f"{slug}{suffix}") for slug in slugs]
    path = Path(file)
    if not path.suffix:
        msg = f"with several targets -f needs a name with a suffix, such as run{suffix}, not {file!r}"
        raise TargetError(msg)
    return [path.with_name(f"{path.stem}-{slug}{path.suffix}") for slug in slugs]


def _watch(args: argparse.Namespace, sensors: Sequence[Sensor], files: Sequence[Path], seconds: float | None) -> int:
    """Wait for the end: of the time, of the last sensor or file that works, or of the user's patience."""
    stop: Stop = args.stop
    start_ns, limit_s = HOST_CLOCK.now_ns(), math.inf if seconds is None else seconds
    shown = args.file is not None and not args.quiet  # else the rows themselves may be on the terminal
    # Whoever stops it has seen enough: the files are ended cleanly, with status 0.
    with (
        stop.taken(),
        progress("logging, until Ctrl-C" if seconds is None else "logging", seconds, enabled=shown) as tell,
    ):
        told: set[str] = set()
        while any(acquisition_of(s).intake.alive and not _reader_gone(dump_error_of(s)) for s in sensors):
            for sensor in sensors:  # a disk that is full now may have room again before the end
                if (error := dump_error_of(sensor)) and sensor.target not in told and not _reader_gone(error):
                    told.add(sensor.target)
                    say(f"warning: {sensor.target}: {error}; the measurement goes on, and writing is tried again")
            passed_s = (HOST_CLOCK.now_ns() - start_ns) / NS_PER_S
            tell(passed_s, status(sensors, files) if shown else "")
            if passed_s >= limit_s:
                break
            stop.rest(min(_WATCH_S, limit_s - passed_s))
    return 0


def status(sensors: Sequence[Sensor], files: Sequence[Path]) -> str:
    """Return in a few words what is in the files so far: rows, watts now, size, losses."""
    rows, lost = (sum(numbers) for numbers in zip(*(dumped_so_far(s) for s in sensors), strict=True))
    newest = [acquisition_of(s).newest for s in sensors]
    watts = "  ".join(f"{point.watts[0]:.4g} W" for point in newest[:3] if point is not None)
    size = 0
    for path in files:
        with contextlib.suppress(OSError):  # it is not there yet
            size += path.stat().st_size
    missing = f"  {lost:,} lost" if lost else ""
    return f"{watts}  {amount(rows, 'row', form=',')}{f'  {_bytes(size)}' * bool(files)}{missing}"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def linger(region: Region, sensors: Sequence[Sensor], stop: Stop) -> None:
    """Let dumps go on behind a region for as long as readings still tell something of it.

    By what each sensor states of its refresh, window and lag; whoever asks for an end has it at once. The region is
    looked at meanwhile: of a stream its rows are not kept for so long, and what is settled stays.
    """
    acquired = [acquisition_of(sensor) for sensor in sensors]
    powers = [c for made in acquired if made.intake.alive for c in made.layout.energy if is_power(c)]

    def look(_passed_s: float) -> None:
        region.outcomes()

    with stop.taken():
        stop.rest(min(_LATEST_S, max((c.response.needed_s for c in powers), default=0.0)), look)


def end_dumps(sensors: Sequence[Sensor], endings: dict[str, Ending] | None = None) -> list[PmtError]:
    """End all dumps; return what went wrong, and put down by target how each ended that ended well."""
    problems: list[PmtError] = []
    for sensor, ended in zip(sensors, stop_dumps(sensors), strict=True):
        if isinstance(ended, PmtError):
            problems += [] if _reader_gone(ended) else [ended]
        elif endings is not None:
            endings[sensor.target] = ended
    return problems


def _amount(ending: Ending) -> str:
    """Say how much is in a file: it begins before and ends after the stretch that is reported, by a few rows."""
    lost = f", {ending.lost:,} lost" if ending.lost else ""
    short = f", the last {duration(ending.short_s)} missing" if ending.short_s else ""
    return f" ({ending.rows:,} row{'s' if ending.rows != 1 else ''}{lost}{short})"


def _is_gone(path: Path | DataSetPlace) -> bool:
    """Whether a file that was written is not there: a writer does not hear of that."""
    return isinstance(path, Path) and not path.exists()


def _reader_gone(error: PmtError | None) -> bool:
    """Whether whoever read our stdout has seen enough (``| head``): that is an end, not a fault."""
    cause = error.__cause__ if error is not None else None
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__cause__
    return cause is not None


def _report(
    args: argparse.Namespace,
    region: Region,
    paths: Sequence[Path | DataSetPlace | None],
    endings: Mapping[str, Ending],
    problems: Sequence[PmtError],
    *,
    energies: bool,
) -> None:
    """Say what the sensors measured, unless there was no command to measure, and what was written."""
    made = report.page(region.outcomes(), None, no_sum=None, until_lost=region.until_lost()) if energies else []
    for target, path in zip(region.targets, paths, strict=True):
        if path is not None and not _is_gone(path):
            made.append(Line(f"written: {os.fspath(path)}{_amount(endings[target]) if target in endings else ''}"))
    made += [Line(f"warning: {p}", Kind.WARNING) for p in problems]
    if args.output:
        write_report(made, args.output)
    elif not args.quiet:
        aside(made)
