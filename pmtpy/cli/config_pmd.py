"""``pmtpy config pmd:PORT``: the configuration stored in a PMD-USB, shown and set."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from pmtpy.backends.pmd.codec import AVERAGED, PAIRS, STREAMING, Config, Layout
from pmtpy.backends.pmd.device import Meter, open_meter
from pmtpy.cli.common import say
from pmtpy.cli.options import count
from pmtpy.cli.page import Kind, Line, Page, Table
from pmtpy.cli.terminal import show
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.pmd import PmdBoard
from pmtpy.emulators.serial_board import MemoryLine
from pmtpy.emulators.world import make_world
from pmtpy.errors import TargetError

COLUMNS = tuple(f"{pair}.{what}" for pair in PAIRS for what in ("voltage", "current"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments that only this meter has."""
    add = parser.add_argument_group("of a PMD-USB").add_argument
    add("--averaging", type=count(0), metavar="N", help="0 to 3: displayed values over 1, 64, 4096 or 32768 samples")
    add("--offset", action="append", default=[], metavar="CHANNEL=CODE",
        help=f"code added to what a converter says, -128 to 127, e.g. {COLUMNS[1]}=-2; may be repeated")  # fmt: skip
    add("--store", action="store_true", help="for good; without it, until the meter loses power")


def run(args: argparse.Namespace, device: str | None) -> int:
    """Open the meter, make the changes, verify and show them."""
    world = make_world("constant:100", clock=HOST_CLOCK)
    if device == "virtual":
        meter = Meter(MemoryLine(PmdBoard(world), HOST_CLOCK), "virtual")
        meter.connect()
    else:
        meter = open_meter(device, clock=HOST_CLOCK)
    try:
        if isinstance(meter.kind, Layout):
            msg = (
                f"{meter.name} is a {meter.kind.model}: only a PMD-USB has a configuration that can be shown or changed"
            )
            raise TargetError(msg)
        before = meter.read_config()
        config = _changed(before, args)
        if config != before and not args.dry_run:
            meter.write_config(config, store=args.store)
            say(f"set on {meter.name}{' for good' if args.store else ' until it loses power'}, and verified")
        if args.json:
            print(json.dumps({"target": f"pmd:{meter.name}", **asdict(config), "rest": config.rest.hex()}, indent=2))
        else:
            show(page(meter, config))
    finally:
        meter.stop()
        meter.close()
    return 0


def _changed(config: Config, args: argparse.Namespace) -> Config:
    offsets = list(config.offsets)
    for text in args.offset:
        name, _, code = text.partition("=")
        if name not in COLUMNS or not code.lstrip("-").isdigit():
            msg = f"--offset {text}: it is CHANNEL=CODE, and the channels are {', '.join(COLUMNS)}"
            raise TargetError(msg)
        offsets[COLUMNS.index(name)] = int(code)
    try:
        averaging = config.averaging if args.averaging is None else args.averaging
        return config.but(offsets=tuple(offsets), averaging=averaging)
    except ValueError as error:
        raise TargetError(str(error)) from error


def page(meter: Meter, config: Config) -> Page:
    """Return the configuration for a person."""
    rows = [("channel", "offset (codes)"), *((name, str(o)) for name, o in zip(COLUMNS, config.offsets, strict=True))]
    heading = Line(f"{meter.name}: {STREAMING}, firmware {meter.firmware}", Kind.HEADING)
    return [
        heading,
        Line(f"displayed values are means over {AVERAGED[config.averaging]} samples of 29 us"),
        Table(rows),
    ]
