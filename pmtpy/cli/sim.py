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


def _pmd(world: World, args: argparse.Namespace) -> SerialBoard:
    return PmdBoard(world, streaming=args.streaming, noise_codes=1.5 if args.noise else 0.0)


def _powersensor2(world: World, args: argparse.Namespace) -> SerialBoard:
    return powersensor2.Board(world, streaming=args.streaming, noise=1.0 if args.noise else 0.0)


# Instruments that send what is asked of them, and nothing else: what their ports are called, and their far side.
_SERIAL = {"pmd": ("ttyUSB0", _pmd), "powersensor2": ("ttyACM0", _powersensor2)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument(
        "instrument",
        metavar="INSTRUMENT",
        help=f"powersensor3; or {', '.join(_SERIAL)} (which take --load, --link, --streaming and --no-noise)",
    )
    serve.add_arguments(parser)
    parser.epilog = serve.EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    stop: Stop = args.stop
    name = canonical(args.instrument)
    if name == "powersensor3":
        return serve.run(args, asked_to_end=lambda: stop.asked)
    if name not in _SERIAL:
        msg = f"only powersensor3, {', '.join(_SERIAL)} can be simulated behind a terminal; other sensors: NAME:virtual"
        raise TargetError(msg)
    port, make = _SERIAL[name]
    return serial_serve.serve(
        lambda world: make(world, args), args.load, args.link, port, asked_to_end=lambda: stop.asked
    )
