"""Measurements as a table for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pmtpy.errors import PmtError
from pmtpy.regions.measurement import Measurement

SPREAD = "+- is one standard uncertainty; the truth lies within twice it in 95 of 100 cases"
_HEAD = ("sensor", "seconds", "joules", "+-", "watts", "how")


def table(
    measured: Mapping[str, Measurement | PmtError], total: Measurement | None, *, summed: bool = True
) -> list[str]:
    """Return the lines: sensors with their channels, the total if one is ``summed``, what a reader must know."""
    rows: list[tuple[str, ...]] = [_HEAD]
    notes: list[str] = []
    for target, m in measured.items():
        if isinstance(m, PmtError):
            notes.append(f"{target}: {m}")
            continue
        rows.append(_row(target, m))
        rows += [_row(f"  {name}", c) for name, c in m.channels.items()]
        notes += [w if w.startswith(target) else f"{target}: {w}" for w in m.warnings]
    if total is not None and len(measured) > 1:
        rows.append(_row("total", total))
    if summed and total is None and len(measured) > 1:
        notes.append(
            "no total: a sensor is missing, or two of them may see the same device (an external meter and a built-in"
            " sensor, a GPU and all GPUs at a socket, or a socket whose number is not known)"
        )
    return [*aligned(rows), *([SPREAD] if len(rows) > 1 else []), *(f"note: {note}" for note in dict.fromkeys(notes))]


def _row(name: str, m: Measurement) -> tuple[str, ...]:
    lost = f", {m.lost} rows lost" if m.lost else ""
    covered = f", {m.coverage:.2%} covered" if m.coverage < 1 else ""
    how = f"{m.method}{covered}{lost}{', virtual' if m.virtual else ''}"
    return (name, f"{m.seconds:.4f}", f"{m.joules:.6g}", f"{m.uncertainty_joules:.2g}", f"{m.watts:.6g}", how)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns in line: words left, numbers between right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        numbers = [cell.rjust(w) for cell, w in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip())
    return lines
