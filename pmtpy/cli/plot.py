"""``pmtpy plot``: power over time as a picture, from any recording that :func:`pmtpy.load` reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from pmtpy.cli.common import say
from pmtpy.cli.options import add_part, add_reading, part_of
from pmtpy.core.presentation import amount, utf8
from pmtpy.errors import TargetError
from pmtpy.io.read.cut import Cut
from pmtpy.plotting.interactive import MAX_DRAWN_ROWS, SUFFIX, write_html
from pmtpy.plotting.overview import of_file
from pmtpy.plotting.recording import SUFFIXES, plot
from pmtpy.plotting.style import drawable, theme_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a recording by pmtpy, PMT, PowerSensor3, nvidia-smi, ..."
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PICTURE",
        help=f"{', '.join(SUFFIXES)}, or {SUFFIX}: a page for the browser that needs"
        " nothing else; default: the first FILE with .png, here",
    )
    parser.add_argument("--overlay", action="store_true", help="all totals in one panel instead of one panel per FILE")
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="colours for light or dark paper")
    parser.add_argument("--smooth", action="store_true", help="smooth the lines for the eye, and say so in the picture")
    parser.add_argument(
        "--channel", action="append", metavar="NAME", help="draw this power (may be given several times)"
    )
    add_reading(parser)
    add_part(parser, "the first FILE")
    parser.epilog = (
        "examples:\n  pmtpy plot run.csv -o run.png\n  pmtpy plot run.csv -o run.html\n"
        "  pmtpy plot run.csv --from 100ms --to 200ms -o part.html\n"
        "  pmtpy plot rapl.csv nvml-0.csv --overlay -o both.pdf\n"
        "  pmtpy plot gpudata.csv.gz PMD_data.bin.gz timestamps.csv --utc-offset 3600 -o meter.svg"
    )


def run(args: argparse.Namespace) -> int:
    """Load, draw, say where the picture is."""
    paths = [Path(f) for f in args.files]
    out = Path(args.output) if args.output else Path(paths[0].name.removesuffix(".gz")).with_suffix(".png")
    into_page = out.suffix.lower() == SUFFIX
    if into_page and args.overlay:
        msg = f"an {SUFFIX} file shows recordings below each other, on one axis of time; leave --overlay out"
        raise TargetError(msg)
    if into_page and args.smooth:
        msg = f"an {SUFFIX} file shows what was measured at every zoom; leave --smooth out"
        raise TargetError(msg)
    shown = {}
    cut = Cut.of(paths[0], *part_of(args), utc_offset_s=args.utc_offset)
    for path in paths:
        name = drawable(path.name if [p.name for p in paths].count(path.name) == 1 else str(path))
        try:
            shown[name] = of_file(
                path,
                *cut.ends(path),
                most=MAX_DRAWN_ROWS if into_page else None,
                skip_broken=args.skip_broken,
                utc_offset_s=args.utc_offset,
            )
        except OSError as error:
            if error.errno is None:
                raise
            msg = f"cannot read {path}: {error.strerror}"
            if not path.exists() and path.suffix == "":
                msg += f"; plot draws recordings: pmtpy dump {path} makes one, pmtpy view {path} shows a sensor"
            raise TargetError(msg) from error
        broken = shown[name].facts["broken_lines"]
        if broken:
            say(f"{path}: {amount(len(broken), 'line')} left out, the first is line {broken[0]}")
        for note in shown[name].facts["notes"]:
            say(utf8(f"note: {path}: {note}"))
    if into_page:
        write_html(shown, out, channels=args.channel, theme=theme_of(args.theme))
    else:
        plot(shown, out, overlay=args.overlay, channels=args.channel, smooth=args.smooth, theme=theme_of(args.theme))
    print(drawable(str(out)))
    return 0
