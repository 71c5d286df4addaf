"""The one table that every recording becomes: fixed columns first, energy integrated where it was not recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints

if TYPE_CHECKING:
    import pandas as pd

    from pmtpy.io.read._lines import Recording

FIXED = ("time", "elapsed", "marker", "lost", "total_W", "total_J")


@dataclass(frozen=True, slots=True)
class Power:
    """One power over time, with the volts and amperes it was made of where they are known."""

    name: str
    watts: Floats
    volts: Floats | None = None
    amperes: Floats | None = None


@dataclass(frozen=True, slots=True)
class RecordedCurve:
    """What a reader found in a file.

    Attributes
    ----------
    time : float64, shape (n,), or None
        Unix seconds; None: the file does not tell.
    elapsed : float64, shape (n,)
        Seconds since the first row.
    total : float64, shape (n,)
        Total power in watts.
    powers : tuple of Power
    marks : tuple of (row, label)
    lost : int64, shape (n,), or None
        Rows missing before each row; None: none are.
    others : mapping
        Further columns by their full names.
    """

    time: Floats | None
    elapsed: Floats
    total: Floats
    powers: tuple[Power, ...] = ()
    marks: tuple[tuple[int, str], ...] = ()
    lost: Ints | None = None
    others: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def integrate(elapsed: Floats, watts: Floats, lost: Ints | None) -> tuple[Floats, float]:
    """Energy since the first row by the trapezoidal rule, and the seconds over which it is not known.

    An interval with lost rows, or with an end that has no value, adds no energy. Without any value there is none at
    all, not a zero.
    """
    seconds = np.diff(elapsed)
    if not np.isfinite(watts).any():
        return np.full(len(elapsed), np.nan), float(seconds.sum())
    pieces = seconds * (watts[1:] + watts[:-1]) / 2
    unknown = ~np.isfinite(pieces)
    if lost is not None:
        unknown |= lost[1:] > 0
    pieces[unknown] = 0.0
    return np.concatenate([[0.0], np.cumsum(pieces)]), float(seconds[unknown].sum())


def marker_column(n: int, marks: tuple[tuple[int, str], ...]) -> list[str]:
    """Make a label for each row; several on one row are joined by a semicolon."""
    column = [""] * n
    for row, label in marks:
        column[row] = f"{column[row]};{label}" if column[row] else label
    return column


def table(recording: Recording, curve: RecordedCurve, *, kind: str, clock: str, total: str) -> pd.DataFrame:
    """Make the table of what a reader found, after its broken lines have been judged."""
    import pandas as pd

    recording.judge()
    n = len(curve.elapsed)
    total_joules, uncovered = integrate(curve.elapsed, curve.total, curve.lost)
    columns: dict[str, Any] = {
        "time": np.full(n, np.nan) if curve.time is None else curve.time,
        "elapsed": curve.elapsed,
        "marker": marker_column(n, curve.marks),
        "lost": np.zeros(n, np.int64) if curve.lost is None else curve.lost,
        "total_W": curve.total,
        "total_J": total_joules,
    }
    for power in curve.powers:
        if power.volts is not None:
            columns[f"{power.name}_V"] = power.volts
        if power.amperes is not None:
            columns[f"{power.name}_A"] = power.amperes
        columns[f"{power.name}_W"] = power.watts
        columns[f"{power.name}_J"] = integrate(curve.elapsed, power.watts, curve.lost)[0]
    made: pd.DataFrame = pd.DataFrame(columns | dict(curve.others))
    made["marker"] = made["marker"].astype(str)
    made.attrs = {
        "path": str(recording.path),
        "format": kind,
        "clock": clock,
        "total": total,
        "joules": "integrated from the watts by the trapezoidal rule",
        "uncovered_s": uncovered,
        "virtual": None,
        "complete": None,
        "metadata": None,
        "broken_lines": recording.broken_lines,
        "notes": [],
    }
    return made
