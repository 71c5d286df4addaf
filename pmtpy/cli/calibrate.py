"""``pmtpy calibrate``: fit what was measured, and write it down for others to use.

``transfer`` predicts power, time and energy of tuned configurations at clocks at which they were not measured;
``profile`` turns what ``pmtpy characterise`` found into a calibration profile for one device; ``energy``, which
corrects a recording by a profile, is in :mod:`pmtpy.cli.calibrate_energy`.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from pmtpy.analysis.transfer.predict import Prediction, fit_transfer, predict
from pmtpy.analysis.transfer.table import Table
from pmtpy.analysis.uncertainty.budget import COVERAGE_FACTOR, of_another
from pmtpy.cli import calibrate_energy
from pmtpy.cli.calibrate_energy import pair_of_numbers
from pmtpy.cli.common import options_for, say
from pmtpy.core.calibration.curves import Affine, Number
from pmtpy.core.calibration.matching import refuse_stranger
from pmtpy.core.calibration.profile import RECORDED, Profile
from pmtpy.core.calibration.response import Behaviour
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.errors import CalibrationError, FileFormatError, SinkError, TargetError
from pmtpy.sensor.registry import canonical, create, split_target

_COLUMNS = ("config", "set_clock_mhz", "core_freq_mhz", "time_ms", "power_w")
_WRITTEN = ("config", "set_clock_mhz", "power_w", "time_ms", "energy_j", "energy_low_j", "energy_high_j")
# Standard deviation of energies of one card over repeated measurements by the good practice of Yang, Adamek, Armour
# (arXiv 2312.02741): 0.25 %. Assumed of another session of any card where there is but one recording of it.
_REPEATABILITY = 0.0025
_TOLD = 5  # notes that are printed in full


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
        help="predict energy of tuned configurations at other clocks",
        description="Predict power, time and energy at other clocks, with 95 % intervals. Each configuration is "
        "measured at one clock or two; the training table has a few configurations at all of them.",
        epilog="example:\n  pmtpy calibrate transfer --train all_clocks.csv --measured one_clock.csv "
        "--clocks 1485,1650,1815 -o predicted.csv",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    columns = ", ".join([*_COLUMNS, "temperature_c"])
    transfer.add_argument("--train", required=True, metavar="TABLE", help=f"CSV with the columns {columns}")
    transfer.add_argument("--measured", required=True, metavar="TABLE", help="the same, for what is to be predicted")
    transfer.add_argument("--clocks", required=True, metavar="MHZ,MHZ,...", help="clocks to predict, as asked for")
    transfer.add_argument("-o", "--output", required=True, metavar="OUT.csv", help="where to write the predictions")
    profile = what.add_parser(
        "profile",
        help="make a calibration profile of what characterise found",
        description="Make a calibration profile for one device from the JSON of `pmtpy characterise`. Whose it is, a "
        "recording by pmtpy says itself; of another tool's recording, --target names the device, which is opened to "
        "take that down. The profile is refused for any other device. Where neither is known, or with --device, it "
        "is for recordings of a device that is elsewhere, and no sensor takes it. Of several recordings of the "
        "device the mean is taken, and how much they differ tells how well it holds for another one; to the "
        "uncertainty of a single one the repeatability is added that was published for such sensors.",
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
    whose.add_argument("--device", default="", metavar="MODEL", help="else its name, for the record")
    shown = "watts shown over which it was done; default: the lowest and the highest reading, as FOUND.json says"
    profile.add_argument("--range", metavar="LOW,HIGH", help=shown)
    option = "an option of the backend of --target (repeatable)"
    profile.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help=option)
    profile.add_argument("--channel", help="the channel of the device; default: the one in the file")
    profile.add_argument(
        "--repeatability",
        type=float,
        metavar="PERCENT",
        help=f"how much the gain differs from session to session, one standard deviation; of a single recording; "
        f"default {_REPEATABILITY:.2%}, published for repeated energies of one card".replace("%", "%%"),
    )
    profile.add_argument("-o", "--output", required=True, metavar="PROFILE.json")
    profile.add_argument(
        "--no-meter",
        action="store_true",
        help="there was no reference meter: take the kernel from the recording, and leave gain and offset as the "
        "sensor shows them, as uncertain as --target states",
    )
    calibrate_energy.add_parser(what)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    return {"transfer": _transfer, "profile": _profile, "energy": calibrate_energy.run}[args.what](args)


# --- transfer ---


def _transfer(args: argparse.Namespace) -> int:
    """Fit, predict, write."""
    clocks = _clocks(args.clocks)
    train, measured = read_table(Path(args.train)), read_table(Path(args.measured))
    found = predict(fit_transfer(train), measured, clocks)
    _write(Path(args.output), found)
    width = float(np.median([p.energy_high_j / p.energy_j - 1.0 for p in found]))
    say(
        f"{len(measured.by_config())} configuration(s) at {len(clocks)} clock(s) written to {args.output}; "
        f"half the energies are known to within {width:.1%} (95 %)"
    )
    notes = list(dict.fromkeys(f"{p.config}: {p.note}" for p in found if p.note))
    for note in notes[:_TOLD]:
        say(f"note: {note}")
    if len(notes) > _TOLD:
        say(f"note: {len(notes) - _TOLD} more configurations are marked like these")
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


def read_table(path: Path) -> Table:
    """Read a table of tuning results; gzip is undone, columns that are not needed are ignored.

    Raises
    ------
    FileFormatError
        It cannot be read, lacks a column, or has a value that is no number: file, line and column are named.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise FileFormatError(msg) from error
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    missing = [c for c in _COLUMNS if c not in (rows.fieldnames or ())]
    if missing:
        there = ", ".join(rows.fieldnames or ()) or "none"
        msg = f"{path}: line 1: the columns {', '.join(missing)} are missing; separated by commas there are: {there}"
        raise FileFormatError(msg)
    names: list[str] = []
    numbers: list[list[float]] = []
    for row in rows:
        names.append(str(row["config"]))
        numbers.append([_number(path, rows.line_num, c, row[c]) for c in _COLUMNS[1:]])
        warm = row.get("temperature_c")
        numbers[-1].append(_number(path, rows.line_num, "temperature_c", warm) if warm else math.nan)
    if not names:
        msg = f"{path}: no rows below the header"
        raise FileFormatError(msg)
    set_mhz, core, time_ms, power, warmth = np.array(numbers, np.float64).T
    return Table(tuple(names), set_mhz, core, warmth, time_ms / 1e3, power)


def _number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (column != "temperature_c" and value <= 0):
        msg = f"{path}: line {line}: {column} must be a number" + (
            f", not {text!r}" if column == "temperature_c" else f" above zero, not {text!r}"
        )
        raise FileFormatError(msg)
    return value


def _write(path: Path, found: Sequence[Prediction]) -> None:
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_WRITTEN)
            for p in found:
                numbers = (p.power_w, p.time_s * 1e3, p.energy_j, p.energy_low_j, p.energy_high_j)
                writer.writerow([p.config, f"{p.set_mhz:g}", *(f"{x:.7g}" for x in numbers)])
    except OSError as error:
        msg = f"{path}: the predictions could not be written: {error}"
        raise SinkError(msg) from error


# --- profile ---


def _profile(args: argparse.Namespace) -> int:
    """Take the estimates, the device's identity, and write them together."""
    found = [_found(Path(name)) for name in args.found]
    low, high = pair_of_numbers(args.range) if args.range else _shown(found)
    if args.no_meter and not args.target:
        msg = "--no-meter takes what the device states of its gain, so it needs the device: --target"
        raise TargetError(msg)
    curve, spread = (Affine(), "") if args.no_meter else _curve(found, args.repeatability)
    channels = list(dict.fromkeys(str(f.get("channel", "")) for f in found))
    if not args.channel and len(channels) > 1:
        msg = (
            f"the recordings are of different channels: {', '.join(channels)}; give those of one, or name it: --channel"
        )
        raise TargetError(msg)
    identity, channel = _whose(args, args.channel or channels[0], found)
    if args.no_meter:
        curve = Affine(Number(1.0, channel.gain_u), Number(0.0, channel.offset_u))
        spread = f"no meter: the gain is as shown, to the {channel.gain_u:.3g} that is stated of such sensors"
    came = (
        ("characterised", ", ".join(args.found)),
        ("date", dt.datetime.now(tz=dt.timezone.utc).date().isoformat()),
        ("repeatability", spread),
    )
    profile = Profile(identity, channel.name, curve, low, high, _behaviours(found), came)
    recorded = _identities(found)
    for each in recorded:
        refuse_stranger(replace(profile, device=each), recorded[0] if args.device else identity)
    try:
        Path(args.output).write_text(profile.to_json(), encoding="utf-8")
    except OSError as error:
        msg = f"{args.output}: the profile could not be written: {error}"
        raise SinkError(msg) from error
    of = args.target or args.device or f"{identity.model} {identity.serial}".strip() or "recordings of"
    say(f"profile {profile.digest} for {of} {channel.name} written to {args.output}; repeatability: {spread}")
    return 0


def _curve(found: Sequence[dict[str, object]], percent: float | None) -> tuple[Affine, str]:
    """Gain and offset with how well they hold for another session, and a text that says where that is from."""
    gains, offsets = [_estimate(f, "gradient") for f in found], [_estimate(f, "intercept_w") for f in found]
    if len(found) > 1:
        if percent is not None:
            msg = "--repeatability is for a single recording; that of several is found from them"
            raise TargetError(msg)
        return Affine(_pooled(gains), _pooled(offsets)), f"found from {len(found)} recordings"
    if percent is not None and not 0.0 <= percent < 100.0:
        msg = f"--repeatability {percent:g}: write a share in percent, for example 0.25"
        raise TargetError(msg)
    share = _REPEATABILITY if percent is None else percent / 100.0
    # One recording says nothing of how the next one differs. What is published is of energies, which contain both.
    gain = Number(gains[0].value, math.hypot(gains[0].u, share * gains[0].value))
    where = "assumed, as published for repeated energies of one card" if percent is None else "as stated"
    return Affine(gain, offsets[0]), f"{share:.3g} of the gain, {where}"


def _pooled(numbers: Sequence[Number]) -> Number:
    return Number(*of_another([n.value for n in numbers], [n.u for n in numbers]))


def _behaviours(found: Sequence[dict[str, object]]) -> Behaviour:
    """Return what the recordings say of how the sensor follows time; they must name the same kernel."""
    each = [_behaviour(f) for f in found]
    families = list(dict.fromkeys(b.family for b in each))
    if len(each) == 1 or len(families) > 1:
        if len(each) > 1:
            msg = f"the recordings disagree about the kernel: {', '.join(f or 'none' for f in families)}"
            raise CalibrationError(msg)
        return each[0]

    def pooled(numbers: list[Number | None]) -> Number | None:
        known = [n for n in numbers if n is not None]
        return _pooled(known) if len(known) > 1 else (known[0] if known else None)

    return Behaviour(
        families[0],
        pooled([b.refresh_s for b in each]),
        pooled([b.window_s for b in each]),
        pooled([b.tau_s for b in each]),
        pooled([b.delay_s for b in each]),
        pooled([b.noise for b in each]),
    )


def _shown(found: Sequence[dict[str, object]]) -> tuple[float, float]:
    """Return the lowest and the highest reading of all recordings."""
    spans = [f.get("shown_w") for f in found]
    if not all(isinstance(s, list) and len(s) == 2 for s in spans):
        msg = "what was found does not say which watts were shown; state them: --range LOW,HIGH"
        raise TargetError(msg)
    ends = [float(x) for s in spans if isinstance(s, list) for x in s]
    return min(ends), max(ends)


def _identities(found: Sequence[dict[str, object]]) -> list[Identity]:
    """Return the devices that the recordings are of, as far as they say."""
    facts = [f.get("identity") for f in found]
    names = [f.name for f in fields(Identity) if f.name != "notes"]
    return [Identity(**{n: f[n] for n in names if n in f}) for f in facts if isinstance(f, dict) and "backend" in f]


def _whose(args: argparse.Namespace, name: str, found: Sequence[dict[str, object]]) -> tuple[Identity, Channel]:
    """Return the device that was characterised, and the channel there; of one elsewhere, its name."""
    if not args.target:
        known = [] if args.device else _identities(found)
        return known[0] if known else Identity(RECORDED, args.device), Channel(name, Quantity.POWER)
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
    return document


def _number_of(entry: object, scale: float = 1.0) -> Number | None:
    """Read an estimate, ``{"value", "low", "high"}`` at 95 %, as a value with its standard uncertainty."""
    if not isinstance(entry, dict):
        return None
    try:
        value, low, high = (float(entry[key]) * scale for key in ("value", "low", "high"))
    except (KeyError, TypeError, ValueError):
        return None
    return Number(value, abs(high - low) / 2.0 / COVERAGE_FACTOR)


def _estimate(found: dict[str, object], key: str) -> Number:
    number = _number_of(found.get(key))
    if number is None:
        declined = found.get("declined")
        why = declined.get(key, "") if isinstance(declined, dict) else ""
        msg = f"there is no {key} in what was found{': ' if why else ''}{why}; characterise against a reference meter"
        raise CalibrationError(msg)
    return number


def _behaviour(found: dict[str, object]) -> Behaviour:
    kernel = found.get("kernel")
    of = kernel if isinstance(kernel, dict) else {}
    ms, noise = 1e-3, found.get("noise_w")
    return Behaviour(
        family=str(of.get("family", "")),
        refresh_s=_number_of(found.get("update_period_ms"), ms),
        window_s=_number_of(of.get("window_ms"), ms),
        tau_s=_number_of(of.get("tau_ms"), ms),
        delay_s=_number_of(of.get("offset_ms"), ms),
        noise=Number(float(noise)) if isinstance(noise, float) else None,
    )
