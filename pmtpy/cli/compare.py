"""``pmtpy compare``: two or more sensors that watch the same power, live or from recordings, held against a reference.

On live sensors the clock is one, so a lag is a sensor's own. The clocks of files are not trusted unless one program
wrote them all in one run; then, too, energies are compared after the files were moved in time onto the reference.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy._extras import require
from pmtpy.analysis.comparison.compare import compare
from pmtpy.analysis.comparison.results import Comparison, Trace
from pmtpy.cli import report
from pmtpy.cli.command import run_command
from pmtpy.cli.common import LOST, check_writable, deliver, opened, say
from pmtpy.cli.comparison_report import page
from pmtpy.cli.dump import end_dumps
from pmtpy.cli.options import add_part, add_reading, part_of
from pmtpy.cli.stopping import Stop
from pmtpy.cli.terminal import progress
from pmtpy.cluster.clocks import Clocks
from pmtpy.core.clock import HOST_CLOCK, duration_of, seconds_of
from pmtpy.core.markers import Span
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import SourceLostError, TargetError
from pmtpy.io.read import load
from pmtpy.io.read.cut import Cut
from pmtpy.lab.traces import side_by_side, split, trace_of
from pmtpy.plotting.recording import SUFFIXES
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.registry import canonical, split_target
from pmtpy.sensor.sensor import Sensor, acquisition_of

if TYPE_CHECKING:
    import pandas as pd

    from pmtpy.emulators.world import World

_MARGIN_S = 0.5  # recorded before and after what is measured, so that its edges are seen
_DURATION = "10s"


@dataclass(frozen=True, slots=True)
class _Watched:
    """What is to be compared, and what is known of it beside its rows."""

    traces: Sequence[Trace]
    one_clock: bool
    whole: bool = True
    spans: Sequence[Span] = ()
    measured: dict[tuple[str, str], tuple[float, float, float]] | None = None
    truth: Callable[[float, float], float] | None = None
    true_watts: Callable[[Floats], Floats] | None = None
    warnings: Sequence[str] = ()
    facts: dict[str, Any] | None = None
    status: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add = parser.add_argument
    add("--theme", choices=("light", "dark"), default="light", help="colours of the picture (default light)")
    things = "a recording (FILE or FILE#CHANNEL), or a sensor (name[:device] or name[:device]#CHANNEL)"
    add("things", nargs="+", metavar="FILE_OR_TARGET", help=things)
    add("--reference", metavar="NAME", help="compare the others with this one; default: the one sampled most often")
    add("--channel", action="append", default=[], metavar="NAME", help="this power of each FILE (repeatable)")
    clock = "whether the times of all FILEs come from one clock; default: one if one run wrote them"
    add("--clock", choices=("one", "unknown"), help=clock)
    add(
        "--duration",
        type=duration_of,
        metavar="TIME",
        help=f"how long to watch sensors without a command (default {_DURATION})",
    )
    add(
        "--interval",
        type=seconds_of,
        metavar="TIME",
        help="how often sensors that must be polled are polled: 10ms, 100Hz; default: as each states",
    )
    add_reading(parser)
    add_part(parser, "the first FILE")
    add(
        "--clocks",
        metavar="CLOCKS",
        help="put FILEs of several nodes on one axis, by the file CLOCKS that pmt.mpi.clocks wrote",
    )
    add("--json", action="store_true", help="print one JSON document; a command's stdout then goes to stderr")
    add("--output", metavar="FILE", help="write the report to FILE; a command's streams are then left alone")
    option = f"draw into PICTURE ({', '.join(SUFFIXES)}); or set an option of a backend, for all that have it"
    add("-o", "--option", action="append", default=[], metavar="PICTURE | KEY=VALUE", help=option)
    parser.usage = "pmtpy compare FILE_OR_TARGET... [-o PICTURE] [options] [-- COMMAND...]"
    parser.epilog = (
        "examples:\n"
        "  pmtpy compare powersensor3 nvml:0 -o both.png -- ./solve\n"
        "  pmtpy compare nvml:virtual rapl:virtual powersensor3:virtual -o load=square:low=50,high=250,hz=0.7 "
        "--duration 5s\n"
        "  pmtpy compare gpudata.csv PMD_data.bin timestamps.csv --json"
    )


def run(args: argparse.Namespace) -> int:
    """Compare, report, draw."""
    picture = [text for text in args.option if "=" not in text]
    options = [text for text in args.option if "=" in text]
    if len(picture) > 1 or any(Path(p).suffix.lower() not in SUFFIXES for p in picture):
        msg = f"-o takes one picture ({', '.join(SUFFIXES)}) or KEY=VALUE, not {', '.join(picture)}"
        raise TargetError(msg)
    check_writable(args.output, *picture)
    require("pandas", "reading what was logged")  # said before a command has run for an hour, not after
    if picture:
        require("matplotlib", "a picture")
    files = [thing for thing in args.things if Path(split(thing)[0]).is_file()]
    if files and len(files) < len(args.things):
        missing = next(t for t in args.things if t not in files)
        if Path(split(missing)[0]).is_dir():
            msg = f"{missing} is a folder, and no recording: name the file in it"
            raise TargetError(msg)
        msg = f"recordings and live sensors cannot be compared at once, and there is no file {missing}"
        raise TargetError(msg)
    if not files and (gone := next((t for t in args.things if Path(split_target(t)[0]).suffix), "")):
        msg = f"there is no file {gone}, and no sensor has such a name"
        raise TargetError(msg)
    if not files and (args.part_from is not None or args.part_to is not None):
        msg = "--from and --to take a part of recordings; how long sensors are watched says --duration"
        raise TargetError(msg)
    if files and (options or args.command):
        msg = f"{files[0]} is a recording: backend options and a command are for live sensors"
        raise TargetError(msg)
    watched = _files(args) if files else _live(args, options)
    if watched is None:
        return int(args.ended)
    _compare(args, watched, picture)
    return watched.status


def _compare(args: argparse.Namespace, watched: _Watched, picture: Sequence[str]) -> None:
    """Compare what was watched, report, draw."""
    found = compare(
        watched.traces,
        reference=_named(args.reference, watched.traces),
        one_clock=watched.one_clock,
        regions=watched.spans,
        whole=watched.whole,
        measured=watched.measured,
        truth=watched.truth,
    )
    _report(args, found, watched)
    if picture:
        from pmtpy.plotting.comparison import draw
        from pmtpy.plotting.style import theme_of

        draw(found, watched.traces, Path(picture[0]), watched.true_watts, theme_of(args.theme))
        if not args.quiet:
            say(f"drawn: {picture[0]}")


def _report(args: argparse.Namespace, found: Comparison, watched: _Watched) -> None:
    made = (
        json.dumps((watched.facts or {}) | found.document() | {"warnings": list(watched.warnings)}, indent=2)
        if args.json
        else page(found, watched.warnings)
    )
    deliver(made, args.output, of_command=bool(args.command))


def _named(wanted: str | None, traces: Sequence[Trace]) -> str | None:
    """Return the full name of the reference: a target may be given by its alias, a file by its channel."""
    names = [t.name for t in traces]
    if wanted is None or wanted in names:
        return wanted
    ends = [n for n in names if n.endswith((f"#{wanted}", f"/{wanted}"))]
    if len(ends) == 1:
        return ends[0]
    msg = f"the reference {wanted!r} is not one of: {', '.join(names)}"
    raise TargetError(msg)


# -- recordings --------------------------------------------------------------------------------------------------------


def _files(args: argparse.Namespace) -> _Watched:
    clocks, moved = Clocks.read(Path(args.clocks)) if args.clocks else None, list[str]()
    cut = Cut.of(split(args.things[0])[0], *part_of(args), utc_offset_s=args.utc_offset)

    def read(path: str) -> pd.DataFrame:
        table = load(path, *cut.ends(path), skip_broken=args.skip_broken, utc_offset_s=args.utc_offset)
        if not len(table):
            part = " in the part that was asked for; choose another with --from and --to" if cut.asked else ""
            msg = f"{path} has no rows{part}"
            raise TargetError(msg)
        if clocks is not None:
            table, said = clocks.place(table, path)
            moved.append(said)
        if table.attrs["broken_lines"]:
            say(f"{path}: {amount(len(table.attrs['broken_lines']), 'line')} left out")
        return table

    one = True if clocks is not None and args.clock is None else None if args.clock is None else args.clock == "one"
    found = side_by_side(args.things, args.channel, one_clock=one, read=read)
    return _Watched(found.traces, found.one_clock, warnings=[*found.warnings, *dict.fromkeys(moved)])


# -- live sensors ------------------------------------------------------------------------------------------------------


def _live(args: argparse.Namespace, options: Sequence[str]) -> _Watched | None:
    """Watch sensors for a while or while a command runs; None: there is no such command, and nothing to compare."""
    if args.channel or args.clock:
        msg = "--channel and --clock are for recordings; live sensors have one clock, and their totals are compared"
        raise TargetError(msg)
    wanted = [_target(thing) for thing in args.things]
    if len(set(wanted)) < 2:
        msg = f"a comparison needs two or more sensors, or channels of one (TARGET#CHANNEL); {args.things[0]} is one"
        raise TargetError(msg)
    targets = list(dict.fromkeys(target for target, _ in wanted))
    seconds = args.duration or duration_of(_DURATION)
    stop: Stop = args.stop
    with opened(targets, options, interval=args.interval) as sensors, tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.csv" for i in range(len(sensors))]
        region = Region("compare", {s.target: s for s in sensors})
        world = _world(sensors)
        try:
            for sensor, file in zip(sensors, files, strict=True):
                sensor.start_dump(file)
            stop.rest(_MARGIN_S)
            start_ns = HOST_CLOCK.now_ns()
            with region:
                status = 0
                if args.command:
                    command = run_command(args.command, divert_stdout=args.json and not args.output)
                    status = args.ended = command.status
                    if not command.ran:
                        return None
                else:
                    with stop.taken(), progress("comparing", seconds, enabled=not args.quiet) as tell:
                        stop.rest(seconds, tell)  # what was seen until Ctrl-C is compared all the same
            stop.rest(_MARGIN_S)
        finally:
            problems = end_dumps(sensors)
        if args.command:
            command.tell_what_goes_on()
        name = " ".join(args.command) if args.command else "all"
        span = Span(0.0, region.seconds, name)
        outcomes = region.outcomes()
        found = {target: m for target, m in outcomes.items() if isinstance(m, Measurement)}
        by_target = {s.target: (s, load(f)) for s, f in zip(sensors, files, strict=True)}
        traces = [_lived(*by_target[target], channel, start_ns) for target, channel in wanted]
    facts: dict[str, Any] = {"command": args.command, "exit_status": status} if args.command else {}
    lost = any(isinstance(p, SourceLostError) for p in problems)
    return _Watched(
        traces,
        one_clock=True,
        whole=len(found) < len(outcomes),  # of what was lost half-way, what all have in common can still be compared
        spans=[span],
        measured={
            (trace.name, name): (m.joules, m.uncertainty_joules, m.watts)
            for trace, (target, channel) in zip(traces, wanted, strict=True)
            if target in found
            for m in [found[target].channels[channel] if channel else found[target]]
        },
        truth=partial(_true_joules, world, start_ns) if world else None,
        true_watts=partial(_true_watts, world, start_ns) if world else None,
        warnings=[*report.warnings(found), *map(str, problems)],
        facts=facts,
        status=status if args.command else LOST if lost else 1 if problems else 0,
    )


def _world(sensors: Sequence[Sensor]) -> World | None:
    """Return the emulated world that all of these sensors watch, for the truth; None if one of them is real."""
    if not all(s.identity.virtual for s in sensors):
        return None
    from pmtpy.emulators.world import open_world

    return open_world(acquisition_of(sensors[0]).clock)


def _true_joules(world: World, start_ns: int, a_s: float, b_s: float) -> float:
    return world.joules_between(start_ns + round(a_s * 1e9), start_ns + round(b_s * 1e9))


def _true_watts(world: World, start_ns: int, t_s: Floats) -> Floats:
    return world.watts(start_ns + np.asarray(t_s * 1e9, np.int64))


def _target(thing: str) -> tuple[str, str]:
    """Split ``TARGET#CHANNEL``; without a channel it is the total, as an empty name."""
    target, _, channel = thing.partition("#")
    return canonical(target), channel


def _lived(sensor: Sensor, read: pd.DataFrame, channel: str, start_ns: int) -> Trace:
    """Return what a sensor has written, on the host's monotonic clock, in seconds since the start."""
    anchor = acquisition_of(sensor).anchor
    trace = trace_of(read, channel or "total", f"{sensor.target}#{channel}" if channel else sensor.target)
    return trace.shifted(-anchor.unix_ns / 1e9).shifted((anchor.monotonic_ns - start_ns) / 1e9)
