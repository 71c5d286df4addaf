"""The one table that every recording becomes: fixed columns first, energy integrated where it was not recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.markers import joined
from pmtpy.core.rows import Floats, Ints
from pmtpy.io.read import _check
from pmtpy.io.read._recording import Recording

if TYPE_CHECKING:
    import pandas as pd

_CHUNK_ROWS = 1 << 16  # rows that are worked on at once, where whole columns beside the table take too much memory


@dataclass(frozen=True, slots=True)
class Power:
    """One power over time, with the volts and amperes it was made of where they are known.

    ``mean`` says that each value is the mean since the row before, as counters give it; else it is momentary.
    """

    name: str
    watts: Floats
    volts: Floats | None = None
    amperes: Floats | None = None
    mean: bool = False


@dataclass(frozen=True, slots=True)
class RecordedCurve:
    """What a reader found in a file."""

    time: Floats | None  # shape (n,),; Unix seconds; None: the file does not tell
    elapsed: Floats  # shape (n,); seconds since the first row, in order
    at: Ints  # shape (n,); the line of each row
    total: Power  # total power
    powers: tuple[Power, ...] = ()
    marks: tuple[tuple[int, str], ...] = ()  # (row, label)
    lost: Ints | None = None  # shape (n,),; rows missing before each row; None: none are
    # bool, shape (n,),; rows before which it is not known what happened, though none is counted lost
    unknown: npt.NDArray[np.bool_] | None = None
    others: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # further columns by their full names
    set_s: tuple[tuple[float, str], ...] = ()  # when the marks were set, where the file tells it: (elapsed, label)


def integrate(elapsed: Floats, power: Power, unknown: npt.NDArray[np.bool_]) -> tuple[Floats, float]:
    """Energy since the first row, and the seconds over which it is not known.

    Momentary powers are joined by straight lines; means hold since the row before. An interval that is unknown, or
    has an end without a value, adds no energy. Where none is known there is none at all, not a zero.
    """
    watts, joules = power.watts, np.zeros(len(elapsed))
    pieces = joules[1:]  # of millions of rows each array of its own counts
    if power.mean:
        pieces[:] = watts[1:]
    else:
        np.add(watts[1:], watts[:-1], out=pieces)
        pieces /= 2
    for start in range(0, len(pieces), _CHUNK_ROWS):
        pieces[start : start + _CHUNK_ROWS] *= np.diff(elapsed[start : start + _CHUNK_ROWS + 1])
    without = ~np.isfinite(pieces) | unknown[1:]
    rows = np.flatnonzero(without)
    uncovered_s = float((elapsed[rows + 1] - elapsed[rows]).sum())
    if without.all() and not (len(watts) == 1 and np.isfinite(watts[0])):
        return np.full(len(elapsed), np.nan), uncovered_s
    pieces[without] = 0.0
    np.cumsum(pieces, out=pieces)
    return joules, uncovered_s


def table(recording: Recording, curve: RecordedCurve, *, kind: str, clock: str, total: str) -> pd.DataFrame:
    """Make the table of what a reader found, after its broken lines have been judged."""
    import pandas as pd

    recording.judge()
    n = len(curve.elapsed)
    unknown = np.zeros(n, np.bool_) if curve.unknown is None else curve.unknown.copy()
    if curve.lost is not None:
        unknown |= curve.lost > 0
    if curve.time is not None:
        _check.unix_time(recording, curve.time)
    columns: list[tuple[str, Any]] = [
        ("time", np.full(n, np.nan) if curve.time is None else curve.time),
        ("elapsed", curve.elapsed),
        ("marker", label_column(n, [(row, text) for row, text in joined(curve.marks).items() if row < n])),
        ("lost", np.zeros(n, np.int64) if curve.lost is None else curve.lost),
    ]
    whole = _possible(recording, curve.total, curve.at)
    _check.blanks(recording, [(p.name, p.watts) for p in (curve.total, *curve.powers)], curve.at)
    total_joules, uncovered = integrate(curve.elapsed, whole, unknown)
    columns += [("total_W", whole.watts), ("total_J", total_joules)]
    for found in curve.powers:
        power = _possible(recording, found, curve.at)
        columns += [(f"{power.name}_{u}", v) for u, v in (("V", power.volts), ("A", power.amperes)) if v is not None]
        columns += [
            (f"{power.name}_W", power.watts),
            (f"{power.name}_J", integrate(curve.elapsed, power, unknown)[0]),
        ]
    columns += list(curve.others.items())
    _check.names(recording, [name for name, _ in columns])
    made: pd.DataFrame = pd.DataFrame(_apart(columns), copy=False)
    means = {p.mean for p in (*curve.powers, curve.total)}
    made.attrs = {
        "path": str(recording.path),
        "format": kind,
        "clock": clock,
        "total": total,
        "joules": "integrated from the watts, "
        + ("each of which is a mean since the row before" if means == {True} else "by the trapezoidal rule"),
        "uncovered_s": uncovered,
        "virtual": None,
        "complete": None,
        "metadata": None,
        "broken_lines": recording.broken_lines,
        "notes": recording.notes,
        "marks": sorted(curve.set_s),
    }
    return made


def label_column(n: int, labels: list[tuple[int, str]]) -> Any:
    """Make the column of labels, of which nearly all are empty, of pieces that share their memory where they are so."""
    import pandas as pd

    texts = pd.Series(["", *(text for _, text in labels)], dtype=str)
    rows = np.array([row for row, _ in labels], np.int64)
    empty = texts.take(np.zeros(min(n, _CHUNK_ROWS), np.intp))
    pieces = []
    for start in range(0, max(n, 1), _CHUNK_ROWS):
        here = np.flatnonzero((rows >= start) & (rows < start + _CHUNK_ROWS))
        which = np.zeros(min(n - start, _CHUNK_ROWS), np.intp)
        which[rows[here] - start] = here + 1
        pieces.append(texts.take(which) if len(here) else empty.iloc[: len(which)])
    return pd.concat(pieces, ignore_index=True).array


def _apart(columns: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return columns that may be written to one by one: of two that are one array, or of a part of one, a copy."""
    made: dict[str, Any] = {}
    seen: set[int] = set()
    for name, values in columns:
        own = np.require(values, requirements=("C", "W", "O")) if isinstance(values, np.ndarray) else values
        made[name] = own.copy() if id(own) in seen else own
        seen.add(id(made[name]))
    return made


def _possible(recording: Recording, power: Power, at: Ints) -> Power:
    """Return a power with what cannot be as NaN."""
    watts, volts, amperes = (
        v if v is None else _check.possible(recording, f"{power.name} ({unit})", v, at)
        for v, unit in ((power.watts, "W"), (power.volts, "V"), (power.amperes, "A"))
    )
    assert watts is not None  # noqa: S101
    return Power(power.name, watts, volts, amperes, power.mean)
