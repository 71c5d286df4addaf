"""``pmtpy calibrate energy``: the energies of a recording, corrected by a profile that was made before.

A profile belongs to one device. A recording that says of which device it is, is compared with it; one that does not is
taken for its owner's word, which is said. Never corrects a sensor that publishes at another period than the profile's.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.correction.live import known_responses
from pmtpy.analysis.energy.estimate import Energy, likely_energy
from pmtpy.analysis.signal.clock_fit import zone_shift
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.cli.common import say
from pmtpy.cli.page import Table, notes
from pmtpy.cli.terminal import show
from pmtpy.cli.values import add_json
from pmtpy.core.calibration.matching import refuse_stranger
from pmtpy.core.calibration.profile import RECORDED, Profile, parse_profile
from pmtpy.core.channel import Identity
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.errors import CalibrationError, TargetError
from pmtpy.lab.recorded import marked_load, power_column, read_file, read_series, read_stamps

if TYPE_CHECKING:
    import pandas as pd

_MAX_BLOCKS = 20  # blocks of a load; more are taken as one
_ANOTHER = 0.005  # share by which no sensor's update period differs from itself: it keeps within 0.1 %


def add_parser(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the arguments."""
    energy = what.add_parser(
        "energy",
        help="correct the energies of a recording with a profile",
        description="Energies of a recording, corrected by a profile for gain, offset, lag and kernel, with 95 % "
        "intervals: of each marked region, of each block of the load, or between two times.",
        epilog="examples:\n  pmtpy calibrate energy run.csv --profile nvml0.json\n"
        "  pmtpy calibrate energy gpudata.csv --profile gpu.json --load timestamps.csv --json\n"
        "  pmtpy calibrate energy run.csv --profile nvml0.json --between 2.0,5.5",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    energy.add_argument("recording", metavar="FILE", help="any recording that pmtpy reads")
    energy.add_argument("--profile", required=True, metavar="PROFILE.json")
    energy.add_argument("--channel", metavar="NAME", help="which power of the recording; default: the profile's")
    energy.add_argument("--load", metavar="FILE", help="when the load was on; sharpens the result")
    energy.add_argument("--between", metavar="FROM,TO", help="seconds since the first row")
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


def run(args: argparse.Namespace) -> int:
    """Correct a recording, print an energy for each interval."""
    profile = parse_profile(_text_of(Path(args.profile)), args.profile)
    if args.between:
        pair_of_numbers(args.between)  # what is written wrong is said before the work begins
    if not profile.response.shaped:
        msg = (
            "the profile does not know the kernel of its sensor, so only gain and offset could be corrected: "
            "characterise the sensor under an irregular load, and make the profile from that"
        )
        raise CalibrationError(msg)
    table = read_file(args.recording, skip_broken=args.skip_broken, report=say)
    _refuse_another(profile, table, args.recording)
    column = power_column(table, args.channel or profile.channel, args.recording)
    _refuse_another_channel(profile, table, column, args.recording)
    polls = read_series(table, column, alone=not args.load)
    lattice = estimate_updates(polls.t_s, polls.watts)
    _refuse_another_period(profile, lattice.period_s, args.recording)
    updates = update_series(polls.t_s, profile.curve.true(polls.watts), lattice)
    first, shift, load = float(polls.t_s[0]), 0.0, None
    if args.load:
        load = read_stamps(args.load, skip_broken=args.skip_broken, report=say)
        if polls.absolute != load.absolute:
            msg = f"{args.recording} and {args.load} are on different clocks: one of them has no wall time"
            raise TargetError(msg)
        if polls.absolute:  # a log in local time without a zone is whole or half hours off
            shift = zone_shift(float(updates.t_s[0]), float(updates.t_s[-1]), PowerTrace.of_load(load))
    responses = known_responses(profile, updates.period_s, updates.watts)
    lead = max(_lead(response) for _, response in responses)
    found = []
    for start, end in _intervals(args, table, load, (first + shift, float(polls.t_s[-1]) + shift), lead):
        energy = likely_energy(updates.t_s + shift, updates.watts, responses, start_s=start, end_s=end, load=load)
        found.append((start - first - shift, end - start, energy))
    beyond = profile.outside(updates.watts)
    if beyond:
        say(f"note: {beyond} of {len(updates)} updates lie outside the calibrated range: extrapolated there")
    _print(args, profile, found)
    return 0


def _refuse_another(profile: Profile, table: pd.DataFrame, path: str) -> None:
    """Refuse a profile of another device than the recording's, as far as the recording says which that is."""
    facts = (table.attrs["metadata"] or {}).get("identity")
    if isinstance(facts, dict) and profile.device.backend != RECORDED:
        known = {key: facts[key] for key in ("backend", "model", "serial", "version", "virtual") if key in facts}
        refuse_stranger(profile, Identity(**known))
        return
    of = f"{profile.device.model}{' (virtual)' if profile.device.virtual else ''}".strip()
    say(f"note: nothing in {path} says of which device it is; it is taken for the profile's{of and f', {of}'}")


def _refuse_another_channel(profile: Profile, table: pd.DataFrame, column: str, path: str) -> None:
    """Refuse a channel beside the profile's own, unless both show the same; elsewhere names differ by logger."""
    own = f"{profile.channel}_W"
    if column == own:
        return
    asked = column.removesuffix("_W")
    if own in table.columns and table[own].notna().any() and not table[own].equals(table[column]):
        msg = (
            f"the profile is of {profile.channel}, and {path} has that beside {asked}: each channel has a response of "
            f"its own; leave --channel out, or make a profile of {asked}"
        )
        raise CalibrationError(msg)
    say(f"note: {asked} of {path} is taken for what the profile calls {profile.channel}")


def _refuse_another_period(profile: Profile, period_s: Estimate, path: str) -> None:
    stated = profile.response
    if not stated.period_s:
        return
    if abs(period_s.value - stated.period_s) > _ANOTHER * stated.period_s + 2.0 * stated.period_u + period_s.half_width:
        msg = (
            f"{path} updates every {1e3 * period_s.value:.4g} ms and the profile's sensor every "
            f"{1e3 * stated.period_s:.4g} ms: another device or channel; name the channel with --channel, or make a "
            "profile of this one"
        )
        raise CalibrationError(msg)


def _print(args: argparse.Namespace, profile: Profile, found: Sequence[tuple[float, float, Energy]]) -> None:
    if args.json:
        energies = [
            {
                "start_s": start,
                "seconds": seconds,
                "joules": e.joules,
                "low": e.low,
                "high": e.high,
                "uncertainty_joules": e.uncertainty_joules,
                "method": e.method,
                "warnings": e.warnings,
            }
            for start, seconds, e in found
        ]
        print(json.dumps({"recording": args.recording, "profile": profile.digest, "energies": energies}, indent=2))
        return
    head = ("start", "seconds", "joules", "95 %: low", "high", "method")
    rows = [
        (f"{start:.3f} s", f"{seconds:.3f} s", f"{e.joules:.4f} J", f"{e.low:.4f} J", f"{e.high:.4f} J", e.method)
        for start, seconds, e in found
    ]
    show([Table([head, *rows])])
    show(notes(warning for _, _, e in found for warning in e.warnings), sys.stderr)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: the profile cannot be read: {error}"
        raise CalibrationError(msg) from error


def _lead(response: Response) -> float:
    """How much of a recording's ends cannot be corrected."""
    return abs(response.lag_s) + response.span_s + 2.0 * response.period_s


def _intervals(
    args: argparse.Namespace,
    table: pd.DataFrame,
    load: LoadIntervals | None,
    extent: tuple[float, float],
    lead_s: float,
) -> list[tuple[float, float]]:
    """Return the intervals asked for, on the clock of the load or of the recording."""
    first, last = extent
    if args.between:
        low, high = pair_of_numbers(args.between)
        return [(first + low, first + high)]
    if load is None:
        load = marked_load(table, alone=True)
        if load is None:
            return [(first + lead_s, last - lead_s)]
    inside = [
        (float(a), float(b)) for a, b in zip(load.on_s, load.off_s, strict=True) if a > first and b < last - lead_s
    ]
    if len(inside) > _MAX_BLOCKS:
        say(f"note: the {len(inside)} blocks of the load are taken as one; --between FROM,TO takes a part of them")
        return [(inside[0][0], inside[-1][1])]
    return inside or [(first + lead_s, last - lead_s)]
