"""Arguments that several verbs have, and the values that they take, each a ``type=`` of argparse.

A value is checked where it is parsed, needed or not; :class:`~pmtpy.cli.parser.Parser` says what is wrong, and ends
with the status of usage.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

from pmtpy.core.clock import duration_of
from pmtpy.errors import TargetError

MAX_COUNT = 10**8  # of anything that is counted: repetitions, readings
_A_DAY_S = 86_400.0


def count(least: int = 1, most: int = MAX_COUNT) -> Callable[[str], int]:
    """Take a whole number within limits."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            msg = f"{text!r} is not a whole number from {least:,} to {most:,}"
            raise TargetError(msg)
        return value

    return parse


def port(text: str) -> int:
    """Take the number of a port; 0 stands for a free one."""
    try:
        return count(0, 65_535)(text)
    except TargetError:
        msg = f"{text!r} is not a port, a whole number from 0 to 65535"
        raise TargetError(msg) from None


def size_of(text: str) -> int:
    """Take a size in bytes with its unit, such as 64MB."""
    found = re.fullmatch(r"(\d+)\s*([kMGT]?)B", text)
    if not found or not int(found[1]):
        msg = f"{text!r} is not a size such as 64MB or 20GB"
        raise TargetError(msg)
    return int(found[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}[found[2]]


def utc_offset(text: str) -> float:
    """Take seconds ahead of UTC."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not -_A_DAY_S <= value <= _A_DAY_S:
        msg = f"{text!r} is not a number of seconds ahead of UTC, such as 3600 or -18000: less than a day either way"
        raise TargetError(msg)
    return value


def duration_or_none(text: str) -> float:
    """Take a duration, or 0 for none of it."""
    return 0.0 if text.strip() in {"0", "0s"} else duration_of(text)


def add_targets(parser: argparse.ArgumentParser, *, otherwise: str = "an error") -> None:
    """Add TARGET arguments and ``-o key=value``; say what happens where no target is named anywhere."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a sensor: rapl, nvml:0, powersensor3:/dev/ttyACM0, or rapl:virtual without hardware; default: PMT_NAME "
        f"and PMT_DEVICE, else the sensors of pmtpy.toml, else {otherwise}",
    )
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``-o key=value``."""
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set an option of the sensor (repeatable), such as interval=20ms or load=constant:60; its page in the "
        "documentation lists them. Of several sensors, each that has the option gets it",
    )


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add ``--overwrite``, of a verb that writes through :func:`pmtpy.cli.common.write_new`."""
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add the options by which recordings are read."""
    add = parser.add_argument
    add("--skip-broken", action="store_true", help="leave out lines that cannot be read, and say how many")
    add("--utc-offset", type=utc_offset, metavar="SECONDS", help="how far wall times without a zone are ahead of UTC")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")


def add_part(parser: argparse.ArgumentParser, of: str = "FILE") -> None:
    """Add the options that name a part of a recording."""
    add = parser.add_argument
    since = f"(2h, 90s, 500ms) after the first row of {of}"
    add("--from", dest="part_from", type=duration_or_none, metavar="TIME", help=f"only what lies TIME {since} or later")
    add("--to", dest="part_to", type=duration_of, metavar="TIME", help="only what lies before that")


def part_of(args: argparse.Namespace) -> tuple[float | None, float | None]:
    """Return from where to where, in seconds; None: from the beginning, to the end.

    Raises TargetError: it ends before it begins.
    """
    start, stop = args.part_from, args.part_to
    if stop is not None and not (start or 0.0) < stop:
        msg = f"--to {stop:g} s does not lie behind --from {start:g} s; both count from the first row"
        raise TargetError(msg)
    return start, stop
