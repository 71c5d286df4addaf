"""Measurements as a page for a person, and as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pmtpy.cli.page import Line, Table, notes
from pmtpy.core.presentation import amount, in_same_digits, number_or_none
from pmtpy.errors import PmtError
from pmtpy.regions.measurement import Measurement

SPREAD = "+- is one standard uncertainty; the truth lies within twice it in 95 of 100 cases"
_HEAD = ("sensor", "seconds", "joules", "+-", "watts", "how")
_NO_MEASUREMENTS: Mapping[str, Measurement] = MappingProxyType({})


def page(
    measured: Mapping[str, Measurement | PmtError],
    total: Measurement | None,
    *,
    no_sum: str | None = "",
    until_lost: Mapping[str, Measurement] = _NO_MEASUREMENTS,
) -> list[Line | Table]:
    """Return the page: sensors with their channels, the total, what a reader must know.

    ``no_sum``: why they make no sum, where they make none; None: none is asked for.
    ``until_lost``: what sensors that were lost had measured before.
    """
    shown = {target: until_lost.get(target, m) for target, m in measured.items()}
    good = {target: m for target, m in shown.items() if isinstance(m, Measurement)}
    rows: list[tuple[str, ...]] = []
    for target, m in good.items():
        rows.append(_row(target, m))
        rows += [_row(f"  {name}", c) for name, c in m.channels.items()]
    if total is not None and len(measured) > 1:
        rows.append(_row("total", total))
    failed = {target: m for target, m in measured.items() if isinstance(m, PmtError)}
    why = f"nothing is known of {', '.join(failed)}" if failed else no_sum
    missing = [f"no total: {why}"] if no_sum is not None and total is None and len(measured) > 1 else []
    if total is not None:
        missing += [w for w in total.warnings if not any(w in m.warnings for m in good.values())]
    return [
        Table([_HEAD, *rows]),
        *([Line(SPREAD)] if rows else []),
        *notes([*(f"{target}: {error}" for target, error in failed.items()), *warnings(good), *missing]),
    ]


def _row(name: str, m: Measurement) -> tuple[str, ...]:
    lost = f", {amount(m.lost, 'row')} lost" if m.lost else ""
    covered = f", {m.coverage:.2%} covered" if m.coverage < 1 else ""
    how = f"{m.method}{covered}{lost}{', virtual' if m.virtual else ''}"
    watts, _ = in_same_digits(m.watts, m.uncertainty_joules / m.seconds if m.seconds > 0 else math.nan)
    return (name, f"{m.seconds:.4f}", *in_same_digits(m.joules, m.uncertainty_joules), watts, how)


def numbers(m: Measurement) -> dict[str, Any]:
    """Return the energy of a measurement, and how it was found, for JSON."""
    return {
        "joules": number_or_none(m.joules),
        "watts": number_or_none(m.watts),
        "uncertainty_joules": number_or_none(m.uncertainty_joules),
        "method": m.method,
    }


def document(target: str, m: Measurement | PmtError, until_lost: Measurement | None = None) -> dict[str, Any]:
    """Return the JSON of one sensor; of one that was lost, its error and what it had measured before."""
    if isinstance(m, PmtError):
        before = document(target, until_lost) if until_lost is not None else {"target": target}
        return {**before, "error": str(m)}
    return {
        "target": target,
        "virtual": m.virtual,
        "seconds": m.seconds,
        "total": numbers(m),
        "channels": {name: numbers(c) for name, c in m.channels.items()},
        "coverage": m.coverage,
        "lost": m.lost,
        "warnings": list(m.warnings),
    }


def warnings(measured: Mapping[str, Measurement]) -> list[str]:
    """Return what the measurements warn of, each text once, behind the names of all that it is about."""
    about: dict[str, list[str]] = {}
    for target, m in measured.items():
        for warning in warnings_of(m):
            who, text = _subject(target, m, warning)
            if who not in about.setdefault(text, []):
                about[text].append(who)
    return [_sentence(who, text) for text, who in about.items()]


def warnings_of(m: Measurement) -> list[str]:
    """Return what a measurement warns of, and what its lines that lack energy do: a part is in no total."""
    lacking = [w for c in m.channels.values() if c.coverage < 1.0 for w in c.warnings]
    return [*m.warnings, *(w for w in lacking if not any(w.partition(": ")[2] in said for said in m.warnings))]


def _subject(target: str, m: Measurement, warning: str) -> tuple[str, str]:
    """Split a warning into what it is about and what it says."""
    own = warning.removeprefix(target)
    if own != warning and own[:2] in {": ", " i"}:
        return target, own
    channel, _, text = warning.partition(": ")
    return (f"{target}: {channel}", f": {text}") if channel in m.channels else (target, f": {warning}")


def _sentence(who: list[str], text: str) -> str:
    """Join the names of all that a text is about; a target that several of them have is named once."""
    if len(who) > 1:
        text = text.replace(" is virtual: its ", " are virtual: their ", 1)
    parts: dict[str, list[str]] = {}
    for each in who:
        target, _, channel = each.partition(": ")
        parts.setdefault(target, []).extend([channel] if channel else [])
    return ", ".join(f"{t}: {', '.join(c)}" if c else t for t, c in parts.items()) + text
