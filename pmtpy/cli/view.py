"""``pmtpy view``: sensors as they measure, or recordings, on a page in the browser."""

from __future__ import annotations

import argparse
import contextlib
import logging
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pmtpy.cli.common import announce, chosen_targets, opened, say
from pmtpy.cli.options import add_options, add_reading, port, size_of
from pmtpy.cluster.clocks import Clocks
from pmtpy.core.presentation import utf8
from pmtpy.errors import TargetError

if TYPE_CHECKING:
    from pmtpy.live.tracks import Track


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    things = "recordings (any FILE that plot reads), or sensors (name[:device]); without any, the default sensors"
    parser.add_argument("things", nargs="*", metavar="TARGET_OR_FILE", help=things)
    add_options(parser)
    parser.add_argument("--port", type=port, default=0, metavar="N", help="listen at this port; default: a free one")
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="IP",
        help="listen here instead of on this machine alone: then whoever learns the printed address, or reads the"
        " network (nothing is encrypted), sees the page and can set marks",
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="colours of the page")
    parser.add_argument(
        "--keep",
        type=size_of,
        metavar="SIZE",
        help="of sensors, single rows older than a minute stay on disk (in /var/tmp, or TMPDIR) until they take SIZE,"
        " such as 20GB; default: 2GB, and a quarter of the room at most. What is older stays as means of 10 ms",
    )
    parser.add_argument("--clocks", metavar="CLOCKS", help="put FILEs of several nodes on one axis, by pmt.mpi.clocks")
    add_reading(parser)
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    parser.epilog = (
        "examples:\n"
        "  pmtpy view powersensor3:virtual nvml:virtual\n"
        "  pmtpy view run.jls other.csv\n"
        "  ssh -L 5006:localhost:5006 host pmtpy view --port 5006 --no-browser powersensor3"
    )


def run(args: argparse.Namespace) -> int:
    """Open what was named, serve it until Ctrl-C."""
    from pmtpy.live.desk import Desk
    from pmtpy.live.sensing import LiveTrack, room_of_each
    from pmtpy.live.server import View
    from pmtpy.plotting.style import theme_of

    files = [t for t in args.things if Path(t).is_file()]
    sensors = [t for t in args.things if t not in files]
    if folder := next((t for t in sensors if Path(t).is_dir()), ""):
        msg = f"{folder} is a folder; give the recordings in it"
        raise TargetError(msg)
    gone = next(
        (t for t in sensors if Path(t).suffix and ("/" in t or Path(t).suffix in {".csv", ".jls", ".parquet"})), ""
    )
    if gone:
        msg = f"there is no file {gone}"
        raise TargetError(msg)
    tracks = _recorded(files, args)
    targets = chosen_targets(sensors) if sensors or not files else []
    with args.stop.taken(), contextlib.ExitStack() as stack:
        if targets:
            room = room_of_each(len(targets), args.keep)
            opened_ = stack.enter_context(opened(targets, args.option))
            tracks += [LiveTrack(s, most_bytes=room, reopens=True) for s in opened_]
        view = View(Desk(tracks), args.address, args.port, theme_of(args.theme))
        announce(view.url)
        if args.address not in {"127.0.0.1", "localhost", "::1"}:
            say(
                f"warning: listening at {args.address}: whoever learns this address sees the page; nothing is encrypted"
            )

        def ready() -> None:
            if not args.no_browser:
                webbrowser.open(view.url)

        if not args.verbose:
            logging.getLogger("bokeh").setLevel(logging.ERROR)  # that a page was closed is no news
            logging.getLogger("tornado").setLevel(logging.ERROR)
        view.run(ready)
    return 0


def _recorded(files: Sequence[str], args: argparse.Namespace) -> list[Track]:
    """Open recordings; with the clocks of their nodes, on one axis."""
    from pmtpy.live.stored import StoredTrack
    from pmtpy.live.tracks import JlsTrack

    clocks = Clocks.read(Path(args.clocks)) if args.clocks else None
    tracks: list[Track] = []
    for name in files:
        path = Path(name)
        track: Track = (
            JlsTrack(name, path)
            if path.suffix == ".jls"
            else StoredTrack.of_file(name, path, skip_broken=args.skip_broken, utc_offset_s=args.utc_offset, report=say)
        )
        if track.note:
            say(utf8(f"note: {name}: {track.note}"))
        if clocks is not None:
            length_s = track.span[1] - track.span[0]
            track.start_unix_s, said = clocks.start(track.facts, name, track.start_unix_s, length_s)
            say(said)
        tracks.append(track)
    return tracks
