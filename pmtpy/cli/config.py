"""``pmtpy config``: show, change, calibrate, save and restore what a board has stored; of a PMD-USB: ``config_pmd``."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pmtpy.backends.powersensor3 import config
from pmtpy.backends.powersensor3.config import Records
from pmtpy.backends.powersensor3.device import Board, open_board
from pmtpy.backends.powersensor3.limits import refuse_implausible
from pmtpy.cli import config_pmd
from pmtpy.cli.common import check_new, say, write_new
from pmtpy.cli.options import add_json, add_overwrite, count
from pmtpy.cli.page import Kind, Line, Page, Table, notes
from pmtpy.cli.terminal import show
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.errors import FileFormatError, TargetError
from pmtpy.sensor.registry import canonical, split_target

# The paper averages 128 k samples; one second is enough for a thousandth of the noise to remain.
SAMPLES = 20_000
_FIELDS = ("type", "name", "vref", "sensitivity", "polarity", "in_use")
# Options that only one of the two instruments has, by the name that the parser gives them.
_OF_BOARDS = {
    name: f"--{name.replace('_', '-')}" for name in ("sensor", *_FIELDS, "calibrate_zero", "calibrate_gain")
} | {"source": "--import", "export": "--export", "force": "--force", "reboot": "--reboot", "dfu": "--dfu"}
_OF_METERS = {name: f"--{name}" for name in ("averaging", "offset", "store")}
_EXAMPLES = """examples:
  pmtpy config powersensor3:virtual
  pmtpy config powersensor3 --sensor 0 --type MLX20 --name gpu --in-use on
  pmtpy config powersensor3 --sensor 0 --calibrate-zero          with no current through it
  pmtpy config powersensor3 --sensor 1 --calibrate-gain 12.03 --samples 128000
                                                                 with a known voltage on it, for 6.4 s
  pmtpy config powersensor3 --export board.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add = parser.add_argument
    add(
        "target",
        metavar="powersensor3[:DEVICE]",
        help="the board; without DEVICE, the only one that is connected; or pmd:PORT",
    )
    add("--sensor", type=count(0), action="append", default=[], metavar="N",
        help="sensor to change, 0 to 7 (even: current, odd: voltage); may be repeated")  # fmt: skip
    add("--type", metavar="NAME", help="module type; MLX10, MLX20, MLX50 and MLX75 bring their sensitivity")
    add("--name", help="name of the pair, stored for both its sensors")
    add(
        "--vref",
        type=float,
        metavar="VOLTS",
        help="voltage at the pin for zero input; a current module has about 1.65, a voltage input 0",
    )
    add(
        "--sensitivity",
        "--gain",
        type=float,
        metavar="X",
        help="volts per ampere, or the gain of a voltage input (0.091 on the 12 V modules)",
    )
    add("--polarity", type=int, choices=(1, -1), help="-1: mounted the other way round")
    add("--in-use", choices=("on", "off"), help="whether the sensor is connected")
    add("--calibrate-zero", action="store_true", help="make what the sensor reads now its zero")
    add("--calibrate-gain", type=float, metavar="VALUE", help="make what the sensor reads now VALUE amperes or volts")
    add(
        "--samples",
        type=count(most=1_000_000),
        default=SAMPLES,
        metavar="N",
        help=f"frames to average over (default {SAMPLES})",
    )
    add("--import", dest="source", metavar="FILE", help="take the configuration of all sensors from a file")
    add("--export", metavar="FILE", help="write the configuration to a file ('-': stdout)")
    add_overwrite(parser)
    add("--force", action="store_true", help="store also values that no known module can have")
    add("--dry-run", action="store_true", help="show what would be stored, and store nothing")
    add("--reboot", action="store_true", help="reboot the board at the end")
    add("--dfu", action="store_true", help="reboot the board into its boot loader at the end")
    add_json(parser)
    config_pmd.add_arguments(parser)
    parser.epilog = _EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Open the board, make the changes in the order of the options, store them at once, show the result."""
    name, device = split_target(canonical(args.target))
    _refuse_others(name, args)
    if name == "pmd":
        return config_pmd.run(args, device)
    if name != "powersensor3":
        msg = f"only powersensor3 and pmd have a stored configuration, not {name!r}"
        raise TargetError(msg)
    wants_sensor = any(getattr(args, f) is not None for f in _FIELDS) or _calibrates(args)
    if wants_sensor and not args.sensor:
        raise TargetError("say which sensor to change: --sensor N, 0 to 7")
    if args.export != "-":
        check_new(args.export, overwrite=args.overwrite)
    with _opened(device) as board:
        records = _changed(board, args)
        if not args.force:
            refuse_implausible(board.records, records)
        if records != board.records and not args.dry_run:
            board.write_records(records, plausible=not args.force)
            records = board.records
            say(f"stored on {board.name}, and verified by reading it back")
        _report(board, records, args)
        if args.reboot or args.dfu:
            board.reset(dfu=args.dfu)
            say(f"{board.name} reboots{' into its boot loader' if args.dfu else ''}")
    return 0


def _refuse_others(name: str, args: argparse.Namespace) -> None:
    """Raise TargetError where an option is of the other instrument, so that nothing would come of it."""
    others = {"pmd": _OF_BOARDS, "powersensor3": _OF_METERS}.get(name, {})
    given = [option for key, option in others.items() if _is_given(getattr(args, key))]
    if given:
        msg = f"{', '.join(given)}: {name} has nothing of the kind"
        raise TargetError(msg)


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != []


def _calibrates(args: argparse.Namespace) -> bool:
    return args.calibrate_zero or args.calibrate_gain is not None


@contextlib.contextmanager
def _opened(device: str | None) -> Iterator[Board]:
    with contextlib.ExitStack() as stack:
        if device == "virtual":
            from pmtpy.emulators.powersensor3 import VirtualBoard

            # As on a bench before anything is measured: voltage, and no current, so that a zero can be taken.
            device = stack.enter_context(VirtualBoard("constant:0")).path
        board = open_board(device, clock=HOST_CLOCK)
        stack.callback(board.close)
        yield board


def _changed(board: Board, args: argparse.Namespace) -> Records:
    records = board.records if args.source is None else _imported(args.source)
    fields = {f: getattr(args, f) for f in _FIELDS}
    fields["in_use"] = None if args.in_use is None else args.in_use == "on"
    for sensor in args.sensor:
        records = config.set_fields(records, sensor, **fields)
    if not _calibrates(args):
        return records
    levels = board.collect(args.samples)
    for sensor in args.sensor:
        before, mean, spread = records[sensor], float(levels[:, sensor].mean()), float(levels[:, sensor].std())
        config.refuse_unsteady(sensor, spread)
        if args.calibrate_zero:
            records = config.calibrated_zero(records, sensor, mean)
        if args.calibrate_gain is not None:
            records = config.calibrated_gain(records, sensor, mean, args.calibrate_gain)
        after = records[sensor]
        config.refuse_unlikely(sensor, before, after)
        say(
            f"sensor {sensor}: mean level {mean:.3f} (std {spread:.2f}, {len(levels)} frames); "
            f"vref {before.vref:.5f} V -> {after.vref:.5f} V, "
            f"sensitivity {before.sensitivity:.5g} -> {after.sensitivity:.5g}"
        )
    return records


def _imported(path: str) -> Records:
    try:
        return config.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise TargetError(msg) from error
    except (UnicodeDecodeError, FileFormatError) as error:
        msg = f"{path}: {error}"
        raise FileFormatError(msg) from error


def _report(board: Board, records: Records, args: argparse.Namespace) -> None:
    if args.export is not None:
        text = config.to_json(records, board.firmware.text)
        if args.export == "-":
            sys.stdout.write(text)
            return
        write_new(args.export, text, overwrite=args.overwrite)
        say(f"wrote {args.export}")
    if args.json:
        sensors = [asdict(r) for r in records]
        document = {"target": f"powersensor3:{board.name}", "firmware": board.firmware.text, "sensors": sensors}
        print(json.dumps({**document, "notes": board.notes}, indent=2))
    else:
        show(page(board, records))


def page(board: Board, records: Records) -> Page:
    """Return the configuration for a person."""
    rows = [("sensor", "pair", "of", "type", "name", "vref", "sensitivity", "in use")]
    for sensor, r in enumerate(records):
        kind, unit = ("voltage", "V/V") if sensor % 2 else ("current", "V/A")
        numbers = (f"{r.vref:.5f} V", f"{r.sensitivity:.5f} {unit}", "yes" if r.in_use else "no")
        rows.append((str(sensor), str(sensor // 2), kind, r.type, r.name, *numbers))
    return [Line(f"{board.name}: firmware {board.firmware.text}", Kind.HEADING), Table(rows), *notes(board.notes)]
