"""A recording block by block, for those who pass it on: rows in bounded memory where the file is one of ours.

Rows are checked as :func:`pmtpy.load` checks them. The small text formats of others are read as a whole first.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.io.read import _check, _jls, _own, _parquet, load
from pmtpy.io.read._delimited import Columns
from pmtpy.io.read._integrated import RECORDED, Integrated
from pmtpy.io.read._laws import Contradictions
from pmtpy.io.read._parts import WHOLE, Part
from pmtpy.io.read._recording import Recording, check_opens
from pmtpy.io.read._sidecar import said, unended

if TYPE_CHECKING:
    import pandas as pd

    from pmtpy.io.jls import JlsFile

_ROWS = 1 << 16  # of a table that is in memory already


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows that follow each other."""

    # dict of str to array of shape (n,); ``time``, ``elapsed``, ``lost``, ``total_W`` and so on, as
    # :func:`pmtpy.load` has them, but for ``marker``
    columns: Columns
    labels: list[tuple[int, str]]  # (row, label): the markers
    share: float  # how much of the recording has been read with it, 0 to 1


@dataclass(frozen=True, slots=True)
class OpenRecording:
    """A recording that is being read."""

    path: Path
    format: str  # as ``attrs["format"]`` of :func:`pmtpy.load`
    names: list[str]  # the columns, ``marker`` left out
    facts: dict[str, Any] | None  # the metadata that belong to it
    joules: str  # whether energies were recorded or integrated, and how
    notes: list[str]  # what is to be said of it; whole when the blocks have ended
    broken_lines: list[int]  # lines that were left out; whole when the blocks have ended
    # Its rows, once. Raises FileFormatError at the end if there were broken lines that were not to be skipped.
    blocks: Iterator[RowBlock]
    table: pd.DataFrame | None = None  # all of it, where the format is one that is read as a whole
    jls: JlsFile | None = None  # the file, where it is one; open as long as this is
    part: Part = WHOLE  # what of it is read
    spoilt: str = ""  # metadata belong to it that cannot be believed: why

    @property
    def own(self) -> bool:
        """Whether its rows were written by pmtpy."""
        return self.format.startswith("pmtpy")

    @property
    def unended(self) -> bool:
        """Whether its metadata are those of its start: it was not ended, or is still being written."""
        return unended(self.facts)

    def attrs(self, rows: int) -> dict[str, Any]:
        """Return what :func:`pmtpy.load` says of it in ``attrs``, when its ``rows`` rows have been read."""
        if self.table is not None:
            return {str(k): v for k, v in self.table.attrs.items()}
        broken, notes = self.broken_lines, self.notes
        counted = rows if self.part.whole else None
        known = _own.attrs(self.path, self.format, self.facts, broken_lines=broken, notes=notes, rows=counted)
        return known | {"joules": self.joules}


@contextlib.contextmanager
def open_blocks(
    path: str | os.PathLike[str],
    start: float | None = None,
    stop: float | None = None,
    *,
    skip_broken: bool = False,
    utc_offset_s: float | None = None,
) -> Iterator[OpenRecording]:
    """Open a recording of any format that :func:`pmtpy.load` reads. Arguments and errors as there."""
    place, part = Path(path), Part.of(start, stop, None)
    check_opens(place)
    recording = Recording(place, skip_broken=skip_broken)
    if _parquet.recognises(recording):
        with _parquet.opened(recording) as file:
            yield _streamed(recording, part, _parquet.KIND, file.names(), _of_parquet(recording, file, part))
    elif _own.recognises(recording):
        names = _own.header(recording)
        yield _streamed(recording, part, _own.KIND, names, _of_csv(recording, names, part))
    elif _jls.recognises(recording):
        with _jls.opened(recording) as jls:
            made = _streamed(recording, part, _jls.KIND, _jls.names(jls), _of_jls(jls, part))
            yield replace(made, jls=jls)
    else:
        table = load(place, start, stop, skip_broken=skip_broken, utc_offset_s=utc_offset_s)
        made = recording_of(table, {str(k): v for k, v in table.attrs.items()})
        yield replace(made, part=part, spoilt=recording.no_facts if recording.spoilt else "")


def _streamed(
    recording: Recording, part: Part, kind: str, names: list[str], blocks: Iterator[RowBlock]
) -> OpenRecording:
    blocks = _held(recording, names, blocks)
    whole = Integrated([n for n in names if n != "marker"], recording.facts)
    if not whole.told:
        first = list(_first_rows(blocks))
        if first:
            whole.look(first[-1].columns)
        blocks = itertools.chain(first, blocks)
    if whole:
        blocks = _integrated(blocks, whole, recording.notes)
    facts, notes, broken = _of_energies(recording.facts, whole.said), recording.notes, recording.broken_lines
    notes += [*said(facts), *([] if part.whole else [part.note()])]
    spoilt = recording.no_facts if recording.spoilt else ""
    path, named = recording.path, whole.names
    return OpenRecording(path, kind, named, facts, whole.said, notes, broken, blocks, part=part, spoilt=spoilt)


def _held(recording: Recording, names: list[str], blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
    """Yield blocks, and hold their columns against each other, as a table's are when it is finished."""
    laws = Contradictions(recording.facts, names)
    ends = {n: (np.nan, np.nan) for n in names if n.endswith("_J")}  # of each: any that is known, and the newest
    for block in blocks:
        columns = block.columns
        if len(columns["elapsed"]):
            _check.unix_time(recording, columns["time"])
            laws.feed(columns)
            for n, (known, _) in ends.items():
                ends[n] = np.fmax.reduce(columns[n]) if np.isnan(known) else known, columns[n][-1]
        yield block
    if not recording.broken_lines:
        recording.notes += laws.notes() + _own.open_ends({n: np.array(pair) for n, pair in ends.items()})


def _first_rows(blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
    """Yield blocks up to the first that has rows."""
    for block in blocks:
        yield block
        if len(block.columns["elapsed"]):
            break


def _integrated(blocks: Iterator[RowBlock], whole: Integrated, notes: list[str]) -> Iterator[RowBlock]:
    """Yield blocks with the energies that they lack; at the end, note what these lack."""
    for block in blocks:
        yield replace(block, columns=whole.add(block.columns))
    notes += whole.notes()


def _of_csv(recording: Recording, names: list[str], part: Part) -> Iterator[RowBlock]:
    size = recording.path.stat().st_size
    for columns, read in _own.csv_blocks(recording, names):
        marker = columns.pop("marker")
        labels = [(int(row), str(marker[row])) for row in np.flatnonzero(marker != "")]
        block = RowBlock(columns, labels, min(1.0, read / max(size, 1)) if not recording.packed else 0.0)
        yield _within(block, part)
        if _behind(columns, part):
            break
    recording.judge()


def _of_parquet(recording: Recording, file: _parquet.ParquetRecording, part: Part) -> Iterator[RowBlock]:
    for columns, labels, share in file.blocks(part):
        yield _within(RowBlock(columns, labels, share), part)
    recording.judge()


def jls_samples(file: JlsFile, part: Part) -> tuple[int, int]:
    """Return the number of the first sample of a part, and that behind its last."""
    return _jls.samples(file, part)


def _of_jls(file: JlsFile, part: Part) -> Iterator[RowBlock]:
    first, last = _jls.samples(file, part)
    for columns, labels, end in _jls.blocks(file, first, last):
        yield RowBlock(columns, labels, (end - first) / max(last - first, 1))


def _behind(columns: Columns, part: Part) -> bool:
    """Whether no later row can belong to a part."""
    return bool(len(columns["elapsed"])) and float(columns["elapsed"][-1]) >= part.stop


def _within(block: RowBlock, part: Part) -> RowBlock:
    """Cut a block down to what belongs to a part."""
    if part.whole:
        return block
    rows = part.rows(block.columns["elapsed"])
    labels = [(row - rows.start, text) for row, text in block.labels if rows.start <= row < rows.stop]
    return replace(block, columns={n: values[rows] for n, values in block.columns.items()}, labels=labels)


def recording_of(table: pd.DataFrame, attrs: dict[str, Any]) -> OpenRecording:
    """Return a table that is in memory as a recording; ``attrs`` are those of :func:`pmtpy.load`."""
    numeric = [n for n in table.columns if n != "marker" and table[n].dtype.kind in "iuf"]
    left_out = [n for n in table.columns if n != "marker" and n not in numeric]
    notes = [*attrs.get("notes", ()), *(f"column {n} holds no numbers, and is left out" for n in left_out)]
    blocks = _cut(table, numeric)
    path, kind = Path(attrs["path"]), attrs["format"]
    facts, broken = _of_energies(attrs["metadata"], attrs["joules"]), attrs.get("broken_lines", [])
    return OpenRecording(path, kind, numeric, facts, attrs["joules"], notes, broken, blocks, table)


def _of_energies(facts: dict[str, Any] | None, joules: str) -> dict[str, Any] | None:
    """Return metadata without the time that lacks an energy, if these energies are not those that were measured."""
    if facts is None or joules == RECORDED:
        return facts
    return {key: value for key, value in facts.items() if key != "uncovered_s"}


def _cut(table: pd.DataFrame, names: list[str]) -> Iterator[RowBlock]:
    for start in range(0, len(table), _ROWS):
        part = table.iloc[start : start + _ROWS]
        columns: Columns = {n: part[n].to_numpy(np.int64 if n == "lost" else np.float64) for n in names}
        labels = [(i, str(text)) for i, text in enumerate(part["marker"].tolist()) if text]
        yield RowBlock(columns, labels, min(1.0, (start + _ROWS) / len(table)))
