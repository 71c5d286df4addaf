"""``pmtpy calibrate``: fit what was measured, and write it down for others to use.

``transfer`` predicts power, time and energy of tuned configurations at clocks at which they were not measured;
``profile`` turns what ``pmtpy characterise`` found into a calibration profile for one device; ``energy``, which
corrects a recording by a profile, is in :mod:`pmtpy.cli.calibrate_energy`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmtpy.analysis.transfer.predict import fit_transfer, predict
from pmtpy.cli import calibrate_energy
from pmtpy.cli.calibrate_energy import pair_of_numbers
from pmtpy.cli.common import check_new, options_for, say, write_new
from pmtpy.cli.options import add_overwrite
from pmtpy.core.calibration.curves import Affine
from pmtpy.core.calibration.matching import refuse_stranger
from pmtpy.core.calibration.profile import RECORDED, Profile
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.presentation import amount
from pmtpy.errors import CalibrationError, FileFormatError, TargetError
from pmtpy.lab.make_profile import (
    REPEATABILITY,
    as_stated,
    calibration_line,
    candidates,
    identities,
    response_of,
    shown_range,
    stated_channel,
)
from pmtpy.lab.recorded import AS_SHOWN
from pmtpy.lab.tuning_table import COLUMNS, as_csv, read_table
from pmtpy.sensor.registry import canonical, create, split_target

_TOLD = 5  # notes that are printed in full
_OF_A_CHARACTERISATION = frozenset({"update_period_ms", "kernel", "gradient"})  # keys of which any says what it is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.epilog = (
        "examples:\n"
        "  pmtpy characterise both-nvml-0.csv --meter both-powersensor3.csv --json > found.json\n"
        "  pmtpy calibrate profile found.json -o nvml0.json\n"
        "  pmtpy calibrate energy another.csv --profile nvml0.json --between 2.0,5.5\n"
        "  pmtpy calibrate transfer --train all_clocks.csv --measured one_clock.csv --clocks 1485,1650 -o predicted.csv"
    )
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    transfer = what.add_parser(
        "transfer",
        help="predict the energy of tuned kernels at clocks that were not measured",
        description="Predict power, time and energy at other clocks, with 95 % intervals. Each configuration is "
        "measured at one clock or two; the training table has a few configurations at every clock.",
        epilog="example:\n  pmtpy calibrate transfer --train all_clocks.csv --measured one_clock.csv "
        "--clocks 1485,1650,1815 -o predicted.csv",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    columns = ", ".join([*COLUMNS, "temperature_c"])
    transfer.add_argument(
        "--train", required=True, metavar="TABLE", help=f"Kernel Tuner's cache, or a CSV with {columns}"
    )
    transfer.add_argument("--measured", required=True, metavar="TABLE", help="the same, of what is to be predicted")
    power = "which power of a cache of Kernel Tuner, such as pmt_nvml_0_power; default: the only one"
    transfer.add_argument("--power", default="", metavar="NAME", help=power)
    transfer.add_argument("--clocks", required=True, metavar="MHZ,MHZ,...", help="clocks to predict, as asked for")
    transfer.add_argument("-o", "--output", required=True, metavar="OUT.csv", help="where to write the predictions")
    add_overwrite(transfer)
    profile = what.add_parser(
        "profile",
        help="make a calibration profile from what characterise found",
        description="Make a calibration profile for one device from the JSON of `pmtpy characterise`. A recording by "
        "pmtpy names its device; for another tool's recording, name the device with --target, and it is opened to "
        "read its identity. The profile is refused for any other device. With --device, or where the device is not "
        "known, the profile is for recordings of a device that is elsewhere, and no sensor accepts it. From several "
        "recordings of the device the mean is taken, and their spread tells how well it holds for the next one; for "
        "a single recording, the repeatability published for such sensors is added to the uncertainty.",
        epilog="examples:\n  pmtpy characterise log.csv --load timestamps.csv --meter meter.csv --json > found.json\n"
        "  pmtpy calibrate profile found.json --target nvml:0 --channel gpu.instant --range 30,350 -o nvml0.json\n"
        "  pmtpy calibrate profile found.json --device 'NVIDIA A100' --range 30,350 -o a100.json\n"
        "  pmtpy calibrate energy another.csv --profile a100.json --load its_timestamps.csv",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found = "what `pmtpy characterise --json` printed, of one recording or of several of the same device"
    profile.add_argument("found", nargs="+", metavar="FOUND.json", help=found)
    whose = profile.add_mutually_exclusive_group()
    whose.add_argument("--target", help="the device that was characterised, if it is in this machine")
    whose.add_argument(
        "--device", default="", metavar="MODEL", help="its name for the record, where --target is not given"
    )
    shown = "range of the readings in watts; default: the lowest and the highest, as FOUND.json says"
    profile.add_argument("--range", metavar="LOW,HIGH", help=shown)
    option = "an option of the backend of --target (repeatable)"
    profile.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help=option)
    profile.add_argument("--channel", help="the channel of the device; default: the one in the file")
    profile.add_argument(
        "--repeatability",
        type=float,
        metavar="PERCENT",
        help=f"how much the gain differs from session to session, one standard deviation; of a single recording; "
        f"default {REPEATABILITY:.2%}, published for repeated energies of one card".replace("%", "%%"),
    )
    profile.add_argument(
        "-o", "--output", required=True, metavar="PROFILE.json", help="where to write the calibration profile"
    )
    add_overwrite(profile)
    profile.add_argument(
        "--no-meter",
        action="store_true",
        help="there was no reference meter: take the kernel from the recording, and leave gain and offset as the "
        "sensor shows them, as uncertain as --target states, or else FOUND.json",
    )
    calibrate_energy.add_parser(what)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    return {"transfer": _transfer, "profile": _profile, "energy": calibrate_energy.run}[args.what](args)


# --- transfer ---


def _transfer(args: argparse.Namespace) -> int:
    """Fit, predict, write."""
    check_new(args.output, overwrite=args.overwrite)
    clocks = _clocks(args.clocks)
    train, measured = (read_table(Path(table), args.power) for table in (args.train, args.measured))
    found = predict(fit_transfer(train), measured, clocks)
    write_new(args.output, as_csv(found), overwrite=args.overwrite)
    width = float(np.median([p.energy_high_j / p.energy_j - 1.0 for p in found]))
    say(
        f"{amount(len(measured.by_config()), 'configuration')} at {amount(len(clocks), 'clock')} written to "
        f"{args.output}; "
        f"half the energies are known to within {width:.1%} (95 %)"
    )
    notes = list(dict.fromkeys(f"{p.config}: {p.note}" for p in found if p.note))
    for note in notes[:_TOLD]:
        say(f"note: {note}")
    if len(notes) > _TOLD:
        say(f"note: {amount(len(notes) - _TOLD, 'more configuration has', 'more configurations have')} such notes")
    return 0


def _clocks(text: str) -> list[float]:
    try:
        clocks = [float(c) for c in text.split(",") if c.strip()]
    except ValueError:
        clocks = []
    if not clocks or not all(math.isfinite(c) and c > 0 for c in clocks):
        msg = f"--clocks {text!r}: write clocks in MHz with commas between them, for example 1485,1650,1815"
        raise TargetError(msg)
    return clocks


# --- profile ---


def _profile(args: argparse.Namespace) -> int:
    """Take the estimates, the device's identity, and write them together."""
    check_new(args.output, overwrite=args.overwrite)
    found = [_found(Path(name)) for name in args.found]
    recordings = [{key: value for key, value in each.items() if key != "target"} for each in found]
    if any(each in recordings[:i] for i, each in enumerate(recordings)):
        msg = "the same recording is given twice: of how one session differs from another a copy says nothing"
        raise TargetError(msg)
    low, high = pair_of_numbers(args.range) if args.range else shown_range(found)
    curve, spread = (Affine(), "") if args.no_meter else calibration_line(found, args.repeatability)
    channels = list(dict.fromkeys(str(f.get("channel", "")) for f in found))
    if not args.channel and len(channels) > 1:
        msg = (
            f"the recordings are of different channels: {', '.join(channels)}; give those of one, or name it: --channel"
        )
        raise TargetError(msg)
    identity, channel = _whose(args, args.channel or channels[0], found)
    if args.no_meter:
        curve, spread = as_stated(channel)
    came = (
        ("characterised", ", ".join(args.found)),
        ("date", dt.datetime.now(tz=dt.timezone.utc).date().isoformat()),
        ("repeatability", spread),
    )
    profile = Profile(identity, channel.name, curve, low, high, response_of(found), came, candidates(found))
    recorded = identities(found)
    for each in recorded:
        refuse_stranger(replace(profile, device=each), recorded[0] if args.device else identity)
    write_new(args.output, profile.to_json(), overwrite=args.overwrite)
    of = args.target or args.device or f"{identity.model} {identity.serial}".strip() or "recordings of"
    say(f"profile {profile.digest} for {of} {channel.name} written to {args.output}; repeatability: {spread}")
    if why := profile.doubt(channel):
        say(f"note: {why}")
    return 0


def _whose(args: argparse.Namespace, name: str, found: Sequence[dict[str, object]]) -> tuple[Identity, Channel]:
    """Return the device that was characterised, and the channel there; of one elsewhere, its name."""
    if not args.target:
        known = [] if args.device else identities(found)
        return known[0] if known else Identity(RECORDED, args.device), stated_channel(name, found)
    target = canonical(args.target)
    options = options_for([target], args.option)[target]
    options.pop("calibration", None)  # the settings may name the profile that is to be replaced
    with create(*split_target(target), **options) as sensor:  # type: ignore[arg-type]
        identity, channels = sensor.identity, {c.name: c for c in sensor.channels}
    if name not in channels:
        msg = f"{args.target} has no channel {name!r}; it has: {', '.join(channels)}; name one with --channel"
        raise TargetError(msg)
    return identity, channels[name]


def _found(path: Path) -> dict[str, object]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise TargetError(msg) from error
    except ValueError as error:
        msg = f"{path}: this is no JSON, as `pmtpy characterise --json` prints it: {error}"
        raise FileFormatError(msg) from error
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, dict):
        msg = f"{path}: one JSON object, as `pmtpy characterise --json` prints for one channel, was expected"
        raise FileFormatError(msg)
    if "parameters" in document:
        msg = f"{path}: this is a calibration profile already; one is made of what `pmtpy characterise --json` printed"
        raise FileFormatError(msg)
    if not _OF_A_CHARACTERISATION & document.keys():
        msg = f"{path}: this is JSON of something else; a profile is made of what `pmtpy characterise --json` printed"
        raise FileFormatError(msg)
    by = document.get("corrected_by")
    if by:
        msg = (
            f"{path}: the readings were corrected by a profile ({by}) while they were recorded, so they do not show "
            f"what a profile has to correct: {AS_SHOWN}"
        )
        raise CalibrationError(msg)
    return document
