"""Numbers in what was read as JSON: true and false are none, though Python counts with them (``True == 1``). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping


def real(value: object) -> float | None:
    """Return a finite number; None: it is a truth value, a text, NaN, anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole(value: object) -> int | None:
    """Return a whole number that is written as one, to its last digit; None: it is anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def stated(facts: Mapping[str, object], name: str) -> float:
    """Return the number that facts state under a name.

    Raises KeyError: they do not state it, or ValueError: what they state is no finite number.
    """
    number = real(facts[name])
    if number is None:
        msg = f"{name} must be a number, not {facts[name]!r:.80}"
        raise ValueError(msg)
    return number


def stated_whole(facts: Mapping[str, object], name: str) -> int:
    """Return the whole number that facts state under a name. Raises as :func:`stated`."""
    number = whole(facts[name])
    if number is None:
        msg = f"{name} must be a whole number, not {facts[name]!r:.80}"
        raise ValueError(msg)
    return number
