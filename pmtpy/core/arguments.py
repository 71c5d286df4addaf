"""What a caller gives, checked once, at the public face: what is wrong is said in the caller's words, as a TargetError.

Pure: nothing is opened or looked up here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, TypeVar

from pmtpy.errors import TargetError

_T = TypeVar("_T")


def instance(value: object, kind: type[_T], what: str) -> _T:
    """Return ``value`` if it is one of ``kind``; ``what`` says what is meant, as "a label, which is text"."""
    if not isinstance(value, kind):
        raise _refused(value, what)
    return value


def sequence(value: object, what: str) -> Sequence[Any]:
    """Return a list or a tuple; text is none, though it can be walked through."""
    if not isinstance(value, list | tuple):
        raise _refused(value, what)
    return value


def path(value: object, what: str) -> str:
    """Return a path as text.

    A number is none: the system would take it for a file that is already open, and close it afterwards.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value:
        raise _refused(value, f"{what}, which is a path")
    return value


def number(value: object, what: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a real number between two bounds; no truth value, no NaN, no text."""
    try:
        real = math.nan if isinstance(value, bool | str | bytes) else float(value)  # type: ignore[arg-type]  # judged here
    except (TypeError, ValueError, OverflowError):
        real = math.nan
    if not least <= real <= most:
        raise _refused(value, what)
    return real


def _refused(value: object, what: str) -> TargetError:
    return TargetError(f"{value!r} is not {what}")


def one_of(value: _T, allowed: Sequence[_T], what: str) -> _T:
    """Return ``value`` if it is one of those that there are."""
    if value not in allowed:
        msg = f"{what} {value!r} is unknown; there are: {', '.join(str(a) or 'none' for a in allowed)}"
        raise TargetError(msg)
    return value
