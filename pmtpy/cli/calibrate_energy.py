"""``pmtpy calibrate energy``: the energies of a recording, corrected by a profile that was made before."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence

from pmtpy.cli.common import aside, say
from pmtpy.cli.options import add_json
from pmtpy.cli.page import Table, notes, of_longest
from pmtpy.cli.terminal import show
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.clock import duration_of
from pmtpy.errors import TargetError
from pmtpy.lab.correct_recording import CorrectedEnergy, correct_recording
from pmtpy.lab.recorded import read_file, read_stamps
from pmtpy.sensor.profile_store import read_profile


def add_parser(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the arguments."""
    energy = what.add_parser(
        "energy",
        help="correct the energies of a recording with a profile",
        description="Energies of a recording, corrected by a profile, with intervals of 95 %: of "
        "each marked region, of each block of the load, or between two times.",
        epilog="examples:\n  pmtpy calibrate energy run.csv --profile nvml0.json\n"
        "  pmtpy calibrate energy gpudata.csv --profile gpu.json --load timestamps.csv --json\n"
        "  pmtpy calibrate energy run.csv --profile nvml0.json --between 2.0,5.5\n"
        "  pmtpy calibrate energy run.csv --profile nvml0.json --load-period 2s..",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    energy.add_argument("recording", metavar="FILE", help="any recording that pmtpy reads")
    energy.add_argument(
        "--profile", required=True, metavar="PROFILE.json", help="what `calibrate profile` or `certify` wrote"
    )
    energy.add_argument("--channel", metavar="NAME", help="which power of the recording; default: the profile's")
    energy.add_argument(
        "--load",
        metavar="FILE",
        help="when the load was on: makes the result surer. A file of stamps, or a recording with markers: this one, "
        "if its marked regions are the work and nothing ran between them",
    )
    energy.add_argument(
        "--load-period",
        metavar="FROM..TO",
        help="between which times a load without stamps is known to repeat, such as 30ms..40ms, 2s.., ..50ms or 33ms: "
        "the worst case of a load in step with the sensor is then that of such a one",
    )
    energy.add_argument(
        "--between",
        metavar="FROM,TO",
        help="one interval, in seconds since the first row; default: each marked region or block of the load",
    )
    energy.add_argument("--skip-broken", action="store_true", help="leave out lines that cannot be read")
    add_json(energy)


def pair_of_numbers(text: str) -> tuple[float, float]:
    """Read a lower and a higher number with a comma between them.

    Raises TargetError: the text is nothing of the kind.
    """
    try:
        low, high = (float(x) for x in text.split(","))
    except ValueError:
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        msg = f"{text!r}: write the lower and the higher number with a comma between them, for example 30,350"
        raise TargetError(msg)
    return low, high


def period_range(text: str) -> tuple[float, float]:
    """Read ``FROM..TO`` in seconds; either end may be left out, and one duration alone is both.

    Raises TargetError: the text is nothing of the kind.
    """
    first, dots, last = text.partition("..")
    if not (first or last):
        msg = f"{text!r}: say between which times the load repeats, for example 30ms..40ms, 2s.. or 33ms"
        raise TargetError(msg)
    low = duration_of(first) if first else 0.0
    high = duration_of(last) if last else math.inf if dots else low
    if low > high:
        msg = f"{text!r}: the longer period comes last"
        raise TargetError(msg)
    return low, high


def run(args: argparse.Namespace) -> int:
    """Correct a recording, print an energy for each interval."""
    profile = read_profile(args.profile)
    between = pair_of_numbers(args.between) if args.between else None
    table = read_file(args.recording, skip_broken=args.skip_broken, report=say)
    load = read_stamps(args.load, skip_broken=args.skip_broken, report=say) if args.load else None
    periods = period_range(args.load_period) if args.load_period else None
    found = correct_recording(
        table, profile, channel=args.channel, load=load, between=between, load_period_s=periods, report=say
    )
    _print(args, profile, found)
    return 0


def _print(args: argparse.Namespace, profile: Profile, found: Sequence[CorrectedEnergy]) -> None:
    if args.json:
        energies = [
            {
                "region": each.name,
                "start_s": each.start_s,
                "seconds": each.seconds,
                "joules": each.energy.joules,
                "low": each.energy.low,
                "high": each.energy.high,
                "aliased": each.energy.aliased,
                "uncertainty_joules": each.energy.uncertainty_joules,
                "method": each.energy.method,
                "warnings": each.energy.warnings,
            }
            for each in found
        ]
        print(json.dumps({"recording": args.recording, "profile": profile.digest, "energies": energies}, indent=2))
        return
    head: tuple[str, ...] = ("start", "seconds", "joules", "95 %: low", "high", "method")
    rows = list[tuple[str, ...]]()
    for each in found:
        joules, low, high = (f"{x:.4f} J" for x in (each.energy.joules, each.energy.low, each.energy.high))
        rows.append((f"{each.start_s:.3f} s", f"{each.seconds:.3f} s", joules, low, high, each.energy.method))
    if any(each.name for each in found):
        head, rows = ("region", *head), [(each.name, *row) for each, row in zip(found, rows, strict=True)]
    show([Table([head, *rows])])
    longest = sorted(found, key=lambda one: -one.seconds)
    told = [(each.name or f"at {each.start_s:.3f} s", why) for each in longest for why in each.energy.warnings]
    aside(notes(of_longest(told, several=len(found) > 1)))
