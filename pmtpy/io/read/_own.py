"""Reader of pmtpy's own CSV files, and what our own formats share: names of columns, and the table of what was read."""

from __future__ import annotations

import csv as csv_module
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pmtpy.io.columns import FIXED, summed
from pmtpy.io.read import _check, _sidecar
from pmtpy.io.read._delimited import FLOAT, INT, TEXT, Columns, Delimited, Gathering, Kind, release
from pmtpy.io.read._integrated import Integrated
from pmtpy.io.read._laws import EnergyLaws, RowLaws, contradictions
from pmtpy.io.read._parts import Part
from pmtpy.io.read._recording import Recording
from pmtpy.io.read._table import label_column

if TYPE_CHECKING:
    import pandas as pd

KIND = "pmtpy CSV"

_START = ",".join(FIXED).encode() + b","
_KINDS: dict[str, Kind] = {"marker": TEXT, "lost": INT}
_VALUE = 8  # bytes
_MARGIN = 1.05  # of the rows that are expected
_ROUGHLY = 0.5  # an estimate of the rows from a part of the file is not off by more than this factor


def starts(line: bytes) -> bool:
    """Whether names of columns are ours."""
    return line.startswith(_START)


def recognises(recording: Recording) -> bool:
    """Whether a file is a CSV file of ours."""
    return starts(recording.head)


def check_names(recording: Recording, names: list[str]) -> None:
    """Refuse a header that is not one of ours.

    Raises FileFormatError: what is wrong with it.
    """
    _check.names(recording, names)
    if tuple(names[:4]) != FIXED:
        raise recording.error(f"line 1: the header does not start with {', '.join(FIXED)}; correct the header")
    if "total_W" not in names:
        raise recording.error("line 1: the header lacks total_W, which every recording has")


def read(recording: Recording, part: Part) -> pd.DataFrame:
    """Read a CSV file, some megabytes at a time."""
    names = header(recording)
    gathered = _Gathered(recording, names, part)
    for columns, so_far in csv_blocks(recording, names):
        rows = len(columns["elapsed"])
        if gathered.rows == 0 and part.whole and not recording.packed and rows:
            size = recording.path.stat().st_size
            expected = rows * size / so_far
            recording.budget.allow(_ROUGHLY * expected * len(names) * _VALUE, f"its {size / 1e9:.3g} GB")
            gathered.expect(expected)
        if not gathered.take(columns):
            break
    recording.judge()
    return gathered.table()


def header(recording: Recording) -> list[str]:
    """Return the names of the columns of a CSV file, and note that its metadata are missing.

    Raises FileFormatError: it is not one of ours.
    """
    recording.notes += [recording.no_facts] if recording.no_facts else []
    first = recording.head.split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r")
    try:
        names = next(csv_module.reader([first]), [])
    except csv_module.Error as error:
        raise recording.error(f"line 1: the header is not a line of CSV ({error}); correct the header") from error
    check_names(recording, names)
    return names


def csv_blocks(recording: Recording, names: list[str]) -> Iterator[tuple[Columns, int]]:
    """Yield the rows that hold, some megabytes at a time, and how many bytes have been read by then."""
    lines = Delimited(recording, {n: _KINDS.get(n, FLOAT) for n in names}, ",")
    checks, laws, read = RowLaws(recording, names), EnergyLaws(recording, names), 0
    for number, block in recording.blocks():
        columns, at = lines.rows(number, block)
        read += len(block)
        left = checks.left(columns, at)
        good = columns if left.all() else {n: c[left] for n, c in columns.items()}
        laws.feed(good, at[left])
        yield good, read
    laws.end()


class _Gathered:
    """Columns of our own rows, as they come, of the part that was asked for.

    Attributes
    ----------
    rows : int
        Taken so far.
    """

    def __init__(self, recording: Recording, names: list[str], part: Part) -> None:
        self.rows = 0
        self._recording = recording
        self._part = part
        asked = {*FIXED, f"{recording.only}_W", f"{recording.only}_J"}
        held = [n for n in names if n != "marker" and (recording.only is None or n in asked)]
        self._names = held
        self.expect(0)
        self._labels: list[tuple[int, str]] = []

    def expect(self, rows: float) -> None:
        """Make room for about so many rows."""
        room = int(_MARGIN * rows)
        self._held = {n: Gathering(_KINDS.get(n, FLOAT), room) for n in self._names}

    def take(self, columns: Columns) -> bool:
        """Take the rows that belong to the part; return whether more may follow."""
        found = len(columns["elapsed"])
        if not found:
            return True
        rows = self._part.rows(columns["elapsed"], self.rows)
        for name, column in self._held.items():
            column.take(columns[name][rows])
        marker = columns["marker"][rows]
        self._labels += [(self.rows + int(row), str(marker[row])) for row in np.flatnonzero(marker != "")]
        self.rows += rows.stop - rows.start
        self._recording.budget.allow(self.rows * len(self._held) * _VALUE * 2, f"the {self.rows} rows read so far")
        return rows.stop == found and (self._part.max_rows is None or self.rows < self._part.max_rows)

    def table(self) -> pd.DataFrame:
        """Make the table."""
        release()
        columns = {name: column.values() for name, column in self._held.items()}
        return finished(self._recording, columns, self._labels, self._part, KIND)


def finished(
    recording: Recording,
    columns: dict[str, npt.NDArray[Any]],
    labels: list[tuple[int, str]],
    part: Part,
    kind: str,
) -> pd.DataFrame:
    """Make the table of our own rows, and say what is known of them."""
    import pandas as pd

    if not recording.broken_lines:
        recording.notes += contradictions(recording.facts, columns) + open_ends(columns)
    whole = Integrated(list(columns), recording.facts)
    whole.look(columns)
    if whole:
        columns = whole.add(columns)
        recording.notes += whole.notes()

    _check.unix_time(recording, columns["time"])
    marker = label_column(len(columns["time"]), labels)
    first = {n: columns.pop(n) for n in FIXED[:2]}
    made: pd.DataFrame = pd.DataFrame({**first, "marker": marker, **columns}, copy=False)
    known, notes = recording.facts, recording.notes
    said = attrs(recording.path, kind, known, broken_lines=recording.broken_lines, notes=notes)
    if whole:
        said |= {"joules": whole.said, "uncovered_s": whole.uncovered_s}
    if part.whole:
        _sidecar.hold_to_count(said, len(made), recording.facts, int(made["lost"].sum()))
    else:
        said["uncovered_s"] = whole.uncovered_s if whole else None
        said["notes"].append(part.note())
        if whole:
            said["notes"].append("energies were not recorded: those that were integrated count from the first row read")
    made.attrs.update(said)
    return made


def open_ends(columns: dict[str, npt.NDArray[Any]]) -> list[str]:
    """Say which energies are known of earlier rows, and not of the last."""
    ends = [n for n, c in columns.items() if n.endswith("_J") and len(c) and np.isnan(c[-1]) and not np.isnan(c).all()]
    return [f"the last row does not say its {', '.join(ends)}: what was used up to there is not known"] if ends else []


def attrs(
    path: Path,
    kind: str,
    facts: dict[str, Any] | None,
    *,
    broken_lines: list[int],
    notes: list[str],
    rows: int | None = None,
) -> dict[str, Any]:
    """Return what is known of a recording of ours, ``attrs`` of its table; ``rows``: how many, where all were read."""
    parts = summed(facts)
    said = {
        "path": str(path),
        "format": kind,
        "clock": "wall time, as of the recording that it was converted from"
        if (facts or {}).get("clock") == "unix"
        else "host's monotonic clock, with the wall time of the start",
        "total": " + ".join(parts) if parts else "as recorded",
        "joules": "recorded",
        "uncovered_s": (facts or {}).get("uncovered_s"),
        "virtual": (facts or {}).get("virtual"),
        "complete": (facts or {}).get("complete"),
        "metadata": facts,
        "broken_lines": broken_lines,
        "notes": list(dict.fromkeys([*notes, *_sidecar.said(facts)])),
    }
    if rows is not None:
        _sidecar.hold_to_count(said, rows, facts)
    return said
