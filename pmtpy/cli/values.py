"""Values on the command line: what an option takes is checked where it is parsed, needed or not.

Each is a ``type=`` of argparse; :class:`~pmtpy.cli.parser.Parser` says what is wrong, and ends with the status of
usage.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pmtpy.core.clock import duration_of
from pmtpy.errors import TargetError

MOST = 10**8  # of anything that is counted: repetitions, readings
_A_DAY_S = 86_400.0


def count(least: int = 1, most: int = MOST) -> Callable[[str], int]:
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
