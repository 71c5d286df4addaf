"""``pmtpy top``: every available sensor on one screen, or a line a second where there is no terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pmtpy.cli.common import LOST, chosen_targets, open_all, say
from pmtpy.cli.dump import check_suffix, dump_paths
from pmtpy.cli.options import add_targets
from pmtpy.cli.terminal import is_terminal
from pmtpy.core.clock import HOST_CLOCK, duration_of
from pmtpy.errors import TargetError
from pmtpy.live.lines import plain
from pmtpy.live.recording import Recorder
from pmtpy.live.watch import Watch
from pmtpy.sensor.sensor import acquisition_of

_LINE_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add_targets(parser, otherwise="every available one")
    parser.add_argument(
        "--window",
        type=duration_of,
        default="10s",
        metavar="TIME",
        help="time over which mean, min and max are taken (default 10s)",
    )
    parser.add_argument(
        "--duration", type=duration_of, metavar="TIME", help="end after this time; default: at q or Ctrl-C"
    )
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="what the key d records into (default top-0.csv, top-1.csv, ...)"
    )
    parser.epilog = (
        "examples:\n"
        "  pmtpy top                                  every available sensor\n"
        "  pmtpy top powersensor3:virtual rapl:virtual\n"
        "  pmtpy top rapl | tee power.txt             a line a second"
    )


def run(args: argparse.Namespace) -> int:
    """Open the sensors, show them until the user has seen enough."""
    window_s: float = args.window
    if not window_s > 0:
        msg = f"--window must be longer than nothing, not {args.window}"
        raise TargetError(msg)
    limit_s: float | None = args.duration
    check_suffix(args.file)
    screen = is_terminal(sys.stdout) and is_terminal(sys.stdin)
    if screen:
        from pmtpy.live.top import show_top
    targets = chosen_targets(args.targets, everything=True)
    with open_all(targets, args.option, strict=bool(args.targets)) as sensors:
        watch = Watch(sensors, window_s)
        if not screen:
            return _lines(args, watch, limit_s)
        names = [s.target for s in sensors]
        status = show_top(watch, Recorder(sensors, lambda: _free(names, args.file)), limit_s=limit_s)
        failed = [s.target for s in sensors if acquisition_of(s).intake.failure is not None]
    if failed:
        say(f"lost at the end: {', '.join(failed)}")
    return status


def _lines(args: argparse.Namespace, watch: Watch, limit_s: float | None) -> int:
    """Write one line a second."""
    start_ns = HOST_CLOCK.now_ns()
    with args.stop.taken():
        watch.look()
        while limit_s is None or (HOST_CLOCK.now_ns() - start_ns) / 1e9 < limit_s:
            args.stop.rest(_LINE_S)
            print(plain(watch.look()), flush=True)
    return LOST if all(acquisition_of(s).intake.failure is not None for s in watch.sensors) else 0


def _free(targets: list[str], file: str | None) -> list[Path]:
    """Return files that do not exist yet, one for each target."""
    place = Path(file) if file else Path("top.csv")
    number = 0
    while True:
        stem = place.with_name(f"{place.stem}-{number}{place.suffix or '.csv'}")
        paths = [p for p in dump_paths(targets, str(stem), None) if p is not None]
        if not any(p.exists() or p.with_name(p.name + ".json").exists() for p in paths):
            return paths
        number += 1
