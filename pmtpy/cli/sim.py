"""``pmtpy sim NAME``: a virtual instrument behind a real pseudo-terminal, for any host program."""

from __future__ import annotations

import argparse

from pmtpy.cli.stopping import Stop
from pmtpy.emulators import powersensor2, serial_serve
from pmtpy.emulators.pmd import PmdBoard
from pmtpy.emulators.powersensor3 import serve
from pmtpy.emulators.serial_board import SerialBoard
from pmtpy.emulators.world import World
from pmtpy.errors import TargetError
from pmtpy.sensor.registry import canonical

_INSTRUMENTS = ("powersensor3", "pmd", "powersensor2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument(
        "instrument",
        metavar="INSTRUMENT",
        help="powersensor3; or pmd, powersensor2 (which take --load, --link, --streaming and --no-noise)",
    )
    serve.add_arguments(parser)
    parser.epilog = serve.EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if canonical(args.instrument) not in _INSTRUMENTS:
        msg = f"only {', '.join(_INSTRUMENTS)} can be simulated behind a terminal; other sensors: NAME:virtual"
        raise TargetError(msg)
    stop: Stop = args.stop
    name = canonical(args.instrument)
    if name != "powersensor3":
        return serial_serve.serve(
            lambda world: _board(name, world, args), args.load, args.link,
            {"pmd": "ttyUSB0", "powersensor2": "ttyACM0"}[name], asked_to_end=lambda: stop.asked,
        )  # fmt: skip
    return serve.run(args, asked_to_end=lambda: stop.asked)


def _board(name: str, world: World, args: argparse.Namespace) -> SerialBoard:
    """Make the far side of an instrument that sends what is asked of it, and nothing else."""
    if name == "pmd":
        return PmdBoard(world, streaming=args.streaming, noise_codes=1.5 if args.noise else 0.0)
    return powersensor2.Board(world, streaming=args.streaming, noise=1.0 if args.noise else 0.0)
