"""What all pictures of recordings have in common: their curves, their axis of time, and their title."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pmtpy.core.channel import TOTAL
from pmtpy.core.presentation import utf8
from pmtpy.errors import TargetError
from pmtpy.plotting.overview import Overview, of_table

if TYPE_CHECKING:
    import pandas as pd

_MOST_LINES = 6  # more in one panel cannot be told apart


_SEEN = 5e-5  # share of the time without a known energy from which on a mean of four digits is another
_WHOLE_SECONDS_FROM_S = 1e4  # from here on, whole seconds are enough, and powers of ten are not read


def overviews(
    recordings: Mapping[str, Overview | pd.DataFrame], channels: Sequence[str] | None = None
) -> dict[str, Overview]:
    """Return recordings as overviews.

    Raises TargetError: none of them has power over time.
    """
    found = {name: r if isinstance(r, Overview) else of_table(r) for name, r in recordings.items()}
    if not channels and not any(has_power(o) for o in found.values()):
        part = "" if any(o.rows for o in found.values()) else ", or in the part that was asked for"
        msg = f"there is no power over time in {', '.join(found) or 'nothing'}{part}"
        raise TargetError(msg)
    return found


def has_power(shown: Overview) -> bool:
    """Whether a recording has a total power at all."""
    return math.isfinite(shown.mean(f"{TOTAL}_W"))


def common_origin(shown: Mapping[str, Overview]) -> float | None:
    """Unix time of the earliest row, if all recordings have Unix times and each overlaps another (or is alone)."""
    spans = [(o.start_unix_s + o.first, o.start_unix_s + o.last) for o in shown.values() if o.rows]
    if not spans or any(math.isnan(a) or math.isnan(b) for a, b in spans):
        return None
    spans.sort()
    reached = spans[0][1]
    for start, end in spans[1:]:
        if start > reached:
            return None
        reached = max(reached, end)
    return spans[0][0]


def shift(shown: Overview, origin: float | None) -> float:
    """Return where the zero of a recording's times is on the axis."""
    return 0.0 if origin is None else shown.start_unix_s - origin


def drawn_powers(shown: Overview, channels: Sequence[str] | None) -> list[str]:
    """Return the powers to draw: those asked for, else the total and the largest others, in the order of the file.

    Raises TargetError: there is no power of a name that is asked for.
    """
    there = shown.powers
    if channels is not None:
        missing = [c for c in channels if c not in there]
        if missing:
            where = shown.facts.get("path", "the table")
            msg = f"there is no power called {', '.join(missing)} in {where}; there are: {', '.join(there)}"
            raise TargetError(msg)
        return list(channels)
    means = {c: shown.mean(f"{c}_W") for c in there}
    others = [c for c in there if c != TOTAL and math.isfinite(means[c])]
    whole = shown.facts.get("total")
    apart = has_power(shown) and whole not in others  # else it is one of them, and is drawn under its own name
    wanted = others if not apart else [TOTAL, *others] if len(others) > 1 else [TOTAL]
    first = [c for c in wanted if c in {TOTAL, whole}]
    rest = sorted((c for c in wanted if c not in first), key=lambda c: -means[c])
    chosen = [*first, *rest][:_MOST_LINES]
    return [*first, *(c for c in wanted if c in chosen and c not in first)]  # each has its colour whatever it draws


def title(name: str, shown: Overview, only: str = "") -> str:
    """Return what is written above a recording: what it is, and on a second line what it took."""
    attrs = shown.facts
    target = (attrs.get("metadata") or {}).get("target", attrs.get("format", ""))
    notes = [n for n, say in (("VIRTUAL", attrs.get("virtual")), ("incomplete", attrs.get("complete") is False)) if say]
    who = "  ".join(filter(None, (name, f"({target})" if target else "", only)))
    text = who + "".join(f"  [{n}]" for n in notes)
    seconds, joules = shown.last - shown.first, shown.joules
    whole = "whole file: " if shown.regions else ""  # a region's energy is another
    if math.isfinite(joules) and seconds > 0:
        text += (
            f"\n{whole}{si(joules)}J in {seconds:,.0f} s"
            if seconds >= _WHOLE_SECONDS_FROM_S
            else f"\n{whole}{si(joules)}J in {seconds:.4g} s"
        )
        uncovered = shown.uncovered_s
        if uncovered is not None and uncovered > _SEEN * seconds:
            text += f", {uncovered:.3g} s of them not covered"
        elif uncovered is not None or not shown.lost:  # else nobody knows here for how long the energy stands
            text += f", mean {si(joules / seconds)}W"
    return text


def noted(shown: Overview) -> list[str]:
    """Return what a reader must know of a recording: what its file says, or that it says nothing."""
    return [utf8(f"note: {each}") for each in shown.facts.get("notes") or ()]


def si(value: float) -> str:
    """Write four digits and a prefix."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m")):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}"
    return f"{value:.4g} "
