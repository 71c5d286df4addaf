"""``pmtpy sim NAME``: a virtual instrument behind a real pseudo-terminal, for any host program."""

from __future__ import annotations

import argparse

from pmtpy.cli.stopping import Stop
from pmtpy.emulators import serial_serve
from pmtpy.emulators.pmd import PmdBoard
from pmtpy.emulators.powersensor3 import serve
from pmtpy.errors import TargetError
from pmtpy.sensor.registry import canonical

_INSTRUMENTS = ("powersensor3", "pmd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument(
        "instrument",
        metavar="INSTRUMENT",
        help="powersensor3, or pmd (which takes --load, --link, --streaming and --no-noise)",
    )
    serve.add_arguments(parser)
    parser.epilog = serve.EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if canonical(args.instrument) not in _INSTRUMENTS:
        msg = f"only {', '.join(_INSTRUMENTS)} can be simulated behind a terminal; other sensors: NAME:virtual"
        raise TargetError(msg)
    stop: Stop = args.stop
    if canonical(args.instrument) == "pmd":
        return serial_serve.serve(
            lambda world: PmdBoard(world, streaming=args.streaming, noise_codes=1.5 if args.noise else 0.0),
            args.load, args.link, "ttyUSB0", asked_to_end=lambda: stop.asked,
        )  # fmt: skip
    return serve.run(args, asked_to_end=lambda: stop.asked)
