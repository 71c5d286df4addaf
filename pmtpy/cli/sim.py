"""``pmtpy sim powersensor3``: a virtual board behind a real pseudo-terminal, for any host program."""

from __future__ import annotations

import argparse

from pmtpy.cli.stopping import Stop
from pmtpy.emulators.powersensor3 import serve
from pmtpy.errors import TargetError
from pmtpy.sensor.registry import canonical

INSTRUMENTS = ("powersensor3",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("instrument", metavar="powersensor3", help="what to simulate")
    serve.add_arguments(parser)
    parser.epilog = serve.EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if canonical(args.instrument) not in INSTRUMENTS:
        msg = f"only {', '.join(INSTRUMENTS)} can be simulated behind a terminal; other sensors: NAME:virtual"
        raise TargetError(msg)
    stop: Stop = args.stop
    return serve.run(args, asked_to_end=lambda: stop.asked)
