"""``pmtpy certify``: whether a sensor keeps what is asked of it, by a load that is made for it, and the report."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import os
import sys
from dataclasses import fields
from statistics import fmean as mean

from pmtpy.analysis.signal.estimate import NO_VALUE
from pmtpy.cli.characterise import page as characterised
from pmtpy.cli.common import check_new, parse_options, say, write_new
from pmtpy.cli.options import add_json, add_options, add_overwrite, count
from pmtpy.cli.page import Kind, Line, Page, Table, note
from pmtpy.cli.settings import load_settings
from pmtpy.cli.terminal import is_terminal, show
from pmtpy.core.calibration.matching import refuse_unfit
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.clock import duration_of, seconds_of
from pmtpy.core.presentation import amount
from pmtpy.errors import CalibrationError, TargetError
from pmtpy.lab.certify import Certificate, certify
from pmtpy.lab.certify_plan import Plan
from pmtpy.lab.certify_rules import Rules
from pmtpy.lab.make_profile import profile_of
from pmtpy.lab.record import OF_SENSORS
from pmtpy.sensor import profile_store
from pmtpy.sensor.registry import canonical

PASSED, BROKEN = 0, 10
_WORD = {True: "pass", False: "FAIL", None: "-"}
_KIND = {True: Kind.GOOD, False: Kind.BAD, None: Kind.NOTE}
_DEFAULT = Plan()
_EXAMPLES = """examples:
  pmtpy certify nvml:0 --meter powersensor3 --store
  pmtpy certify nvml:0 --channel gpu.average --report gpu0.json --profile gpu0-profile.json
  pmtpy certify nvml:virtual -o profile=rtx3090 --rule gain=10

The sensor is recorded while this tool loads the device: on a GPU through PyTorch or CuPy, on a CPU by computing.
First the load switches at random, for update period and averaging window; then steady levels of it, for linearity;
then short blocks, for how well energies repeat. Without a meter, gain and linearity cannot be judged. Nothing else
should run meanwhile.

exit status:
  0 no rule is broken (those that could not be judged are listed), 10 a rule is broken
  1 the recording tells nothing, 2 usage, 3 sensor unavailable, 4 sensor lost"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("target", metavar="TARGET", help="a sensor, name[:device]")
    parser.add_argument("--channel", metavar="NAME", help="which power; default: the first that the sensor reads")
    parser.add_argument("--meter", metavar="TARGET", help="a sensor to trust, which measures the same power meanwhile")
    rules = ", ".join(f"{f.name}={getattr(Rules(), f.name):g}" for f in fields(Rules))
    text = f"change a rule (repeatable); percent, but for coverage. Default: {rules}".replace("%", "%%")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME=VALUE", help=text)
    parser.add_argument(
        "--duration",
        default="20s",
        metavar="TIME",
        help="length of the first part, a load that switches at random (default 20s)",
    )
    shares = ",".join(f"{share:g}" for share in _DEFAULT.shares)
    parser.add_argument(
        "--levels",
        default=shares,
        metavar="SHARE,...",
        help=f"shares of the full load that are held steady (default {shares})",
    )
    parser.add_argument("--level-time", default="4s", metavar="TIME", help="how long each level lasts (default 4s)")
    parser.add_argument(
        "--rounds", type=count(), default=_DEFAULT.rounds, help="how often all levels are taken (default 2)"
    )
    parser.add_argument(
        "--trials",
        type=count(),
        default=_DEFAULT.trials,
        help="trials of short blocks, by which it is seen how well energies repeat (default 4)",
    )
    parser.add_argument(
        "--repetitions", type=count(), default=_DEFAULT.repetitions, help="short blocks in each trial (default 32)"
    )
    parser.add_argument("--interval", metavar="TIME", help="mean time between polls (default: 3ms or less)")
    parser.add_argument("--report", metavar="FILE", help="write the report as JSON, too")
    parser.add_argument("--profile", metavar="FILE", help="write a calibration profile of what was found")
    add_overwrite(parser)
    parser.add_argument(
        "--store", action="store_true", help="keep the profile where pmtpy looks for it when it opens this very device"
    )
    add_json(parser)
    add_options(parser)
    parser.epilog = _EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Certify, print, write what was asked for."""
    check_new(args.report, args.profile, overwrite=args.overwrite)
    target = canonical(args.target)
    said = load_settings().texts_for(target, os.environ)
    made = certify(
        target,
        {key: text for key, text in said.items() if key not in OF_SENSORS} | parse_options(args.option),
        _plan(args),
        _rules(args.rule),
        channel=args.channel,
        meter=args.meter,
        interval_s=seconds_of(args.interval) if args.interval else None,
        progress=lambda text: say(text) if is_terminal(sys.stderr) else None,
    )
    if args.json:
        print(json.dumps(made.document(), indent=2))
    else:
        show(page(made))
    if args.report:
        write_new(args.report, json.dumps(made.document(), indent=2) + "\n", overwrite=args.overwrite)
    if args.profile or args.store:
        _profile(made, args)
    return PASSED if made.passed else BROKEN


def _plan(args: argparse.Namespace) -> Plan:
    try:
        shares = tuple(float(part) for part in args.levels.split(","))
    except ValueError:
        msg = f"--levels {args.levels!r}: give shares of the device, such as 0.25,0.5,1"
        raise TargetError(msg) from None
    return Plan(
        duration_of(args.duration), shares, duration_of(args.level_time), args.rounds, args.trials, args.repetitions
    )


def _rules(texts: list[str]) -> Rules:
    changes = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            changes[name] = float(value)
            Rules().but(changes)
            wrong = not 0.0 <= changes[name] <= (1.0 if name == "coverage" else 100.0)
        except (ValueError, KeyError):
            wrong = True
        if wrong:
            known = ", ".join(f.name for f in fields(Rules))
            msg = f"--rule {text!r}: give NAME=VALUE in percent, or a share of coverage; the rules are {known}"
            raise TargetError(msg)
    return Rules().but(changes)


def _profile(made: Certificate, args: argparse.Namespace) -> None:
    """Write the profile of what was found, and say where."""
    date = dt.datetime.fromtimestamp(made.conditions["unix_s"], tz=dt.timezone.utc).date().isoformat()
    against = made.reference or "no meter"
    if made.line is None and made.reference:
        against = f"nothing: {made.reference} told no gain"
    came = (("certified against", against), ("date", date))
    try:
        profile: Profile = profile_of(made.profiled(), made.channel, came)
    except CalibrationError as error:
        if args.profile:  # the file that was asked for is missing, and the exit status says so
            raise
        say(f"not stored: {error}")
        return
    if args.profile:
        write_new(args.profile, profile.to_json(), overwrite=args.overwrite)
        say(f"profile {profile.digest} written to {args.profile}")
    if args.store:
        try:
            refuse_unfit(profile, made.channel)
            path, before = profile_store.save(profile)
            replaced = f", in the place of {before.digest} ({before.summary})" if before is not None else ""
            say(f"profile {profile.digest} ({profile.summary}) stored in {path}{replaced}")
        except CalibrationError as error:
            say(f"not stored: {error}")


# --- the report ---


def page(made: Certificate) -> Page:
    """Return the report for a person."""
    identity, about = made.found.identity or {}, made.conditions
    device = [str(identity.get(key, "")) for key in ("model", "serial")]
    lines: list[Line | Table] = [
        _result(made),
        Line(f"  device    {' '.join(filter(None, device))}, driver {identity.get('version') or 'not told'}"),
        Line(f"  date      {dt.datetime.fromtimestamp(about['unix_s'], tz=dt.timezone.utc):%Y-%m-%d %H:%M} UTC"),
        Line(f"  machine   {about['machine']['host']}, {about['machine']['cpu']}"),
    ]
    lines += [Line(f"  {name}: {value}") for name, value in about["settings"].items()]
    lines += [Line(f"  {_range(name, *ends)}") for name, ends in about["ranges"].items()]
    lines.append(Line(f"  reference {made.reference or 'none: give a meter with --meter'}"))
    lines.append(Line("rules", Kind.HEADING))
    width = max(len(v.rule) for v in made.verdicts)
    for v in made.verdicts:
        lines.append(Line(f"  {_WORD[v.passed]:<4}  {v.rule:<{width}}  {v.demand}", _KIND[v.passed]))
        lines.append(Line(f"        {'':<{width}}  {v.found}"))
    lines.append(Line("steady levels", Kind.HEADING))
    rows = [["  load", "shown", "rounds apart", "there", ""]]
    for share in sorted({level.share for level in made.levels}):
        rounds = [level for level in made.levels if level.share == share]
        shown, there = ([getattr(level, name) for level in rounds] for name in ("shown_w", "reference_w"))
        known = f"{mean(there):.2f} W" if all(map(math.isfinite, there)) else NO_VALUE
        apart = f"{max(shown) - min(shown):.2f} W" if len(shown) > 1 else NO_VALUE
        rows.append([f"  {100 * share:.0f} %", f"{mean(shown):.2f} W", apart, known, ""])
    lines.append(Table(rows))
    profiled, told = made.profiled(), " ".join(v.found for v in made.verdicts)
    profiled["declined"] = {name: why for name, why in profiled["declined"].items() if why not in told}
    lines += characterised(made.found.target, profiled)
    if made.found.virtual:
        lines.append(note(f"{made.found.target} is virtual: what was found are the settings of its emulation"))
    return lines


def _result(made: Certificate) -> Line:
    """Say it in one line: a sensor passes that keeps all rules, and not one of which nobody knows whether it does."""
    undecided, rules = sum(v.passed is None for v in made.verdicts), len(made.verdicts)
    left = f"{undecided} of {amount(rules, 'rule')} could not be judged"
    if not made.passed:
        result, kind = f"FAILS{f'; {left}' if undecided else ''}", Kind.BAD
    elif undecided:
        result, kind = f"breaks no rule, but {left}", Kind.TEXT
    else:
        result, kind = "passes", Kind.GOOD
    return Line(f"{made.found.target}, {made.channel.name}: {result}", kind)


def _range(name: str, low: float, high: float) -> str:
    stem, _, unit = name.rpartition("_")
    scale, unit = (1e6, "MHz") if unit == "Hz" else (1.0, unit)
    upper = f" to {high / scale:g}" if high > low else ""
    return f"{stem.replace('_', ' ')}: {low / scale:g}{upper} {unit}"
