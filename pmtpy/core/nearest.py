"""The nearest name to one that was mistyped, for messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``. Did you mean X?``, the end of a message, for the known name that is most like a word; or nothing.

    Upper and lower case count as alike: ``PowerSensor3`` is near ``powersensor3``. So do suffixes with and without
    their dot, which all of them share.
    """
    from difflib import get_close_matches  # only a mistake pays for it

    by_lower = {name.lower().lstrip("."): name for name in known}
    found = get_close_matches(word.lower().lstrip("."), by_lower, n=1)
    return f". Did you mean {by_lower[found[0]]}?" if found else ""
