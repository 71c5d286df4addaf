"""Reader of our own Parquet files: one row group at a time into columns of the right length.

A file that has no end, because its writer was killed or its disk was full, is read by what lies beside it
(:mod:`pmtpy.io._unfinished`): its row groups, and the rows that waited for the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pmtpy._extras import extra
from pmtpy.core.closing import Closing
from pmtpy.errors import PmtError
from pmtpy.io import _unfinished as unfinished
from pmtpy.io.columns import DATA_SET
from pmtpy.io.read import _own, _sidecar
from pmtpy.io.read._delimited import Columns
from pmtpy.io.read._laws import RowLaws
from pmtpy.io.read._parts import Part
from pmtpy.io.read._recording import Recording

if TYPE_CHECKING:
    import pandas as pd

KIND = "pmtpy Parquet"

_VALUE = 8  # bytes
_INDEX = "__index_level_"  # columns that pandas adds for rows that were picked out


def recognises(recording: Recording) -> bool:
    """Whether a file is Parquet, or the beginning of one of ours."""
    head = recording.head
    return head.startswith(unfinished.MAGIC) or (not head and unfinished.folder(recording.path).is_dir())


def read(recording: Recording, part: Part) -> pd.DataFrame:
    """Read a Parquet file."""
    with opened(recording) as file:
        return file.read(part)


@contextlib.contextmanager
def opened(recording: Recording) -> Iterator[ParquetRecording]:
    """Open a Parquet file; what pyarrow finds wrong with it is said as a fault of the file."""
    with extra("pyarrow", "reading Parquet"):
        import pyarrow as pa
    try:
        with ParquetRecording(recording) as file:
            yield file
    except PmtError:
        raise
    except (pa.ArrowException, OSError) as error:
        msg = f"it is damaged, or not whole: {error}; copy it again from its source, or from a copy"
        raise recording.error(msg) from error


class ParquetRecording(Closing):
    """One Parquet file of ours, with the rows beside it if it has no end."""

    def __init__(self, recording: Recording) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._recording = recording
        recording.unit = "row"
        self._pa, self._pq = pa, pq
        self._tail: list[Any] = []
        self._ahead = ThreadPoolExecutor(1, "pmtpy-read")
        beside = unfinished.folder(recording.path)
        account = self._account(beside) if beside.is_dir() and not self._ended() else None
        known = pq.read_metadata(recording.path) if account is None else account
        self._file = pq.ParquetFile(
            recording.path,
            metadata=known,
            memory_map=True,
            pre_buffer=True,
            page_checksum_verification=True,
            read_dictionary=[
                n for n in ("marker",) if n in known.schema.names
            ],  # of a column that is not there it raises
        )
        if account is None:
            text = (known.metadata or {}).get(b"pmtpy")
        else:
            self._tail = self._waiting(beside, account.num_rows)
            text = (beside / unfinished.FACTS).read_bytes()
        if text is not None:
            found = _sidecar.parsed(text, recording.path)
            recording.facts, recording.spoilt = found.facts, found.spoilt
            recording.no_facts = ""
            if found.spoilt:
                recording.no_facts = (
                    f"its metadata cannot be read ({found.why}): it is not known whether it is complete or virtual"
                )
                recording.notes.append(recording.no_facts)

    def close(self) -> None:
        """Close the file, and end the thread that reads ahead in it."""
        self._ahead.shutdown(cancel_futures=True)
        self._file.close()

    def _ended(self) -> bool:
        with self._recording.path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - len(unfinished.MAGIC)))
            return size > 2 * len(unfinished.MAGIC) and file.read() == unfinished.MAGIC

    def _account(self, beside: Path) -> Any:
        """Join the accounts of the row groups that are in the file as a whole."""
        size = self._recording.path.stat().st_size
        whole = None
        for content in unfinished.records(beside / unfinished.GROUPS):
            account = self._pq.read_metadata(self._pa.BufferReader(unfinished.MAGIC + content))
            if _end_of(account) > size:
                break
            if whole is None:
                whole = account
            else:
                whole.append_row_groups(account)
        if whole is None:  # no row group yet: the tail is all there is
            place = self._pa.BufferOutputStream()
            waiting = self._waiting(beside, 0)
            schema = waiting[0].schema if waiting else None
            if schema is None:
                msg = "its writer was stopped before the first rows were written"
                raise self._recording.error(msg + ": there is nothing to read; measure again")
            self._pq.ParquetWriter(place, schema.remove_metadata()).close()
            whole = self._pq.read_metadata(self._pa.BufferReader(place.getvalue()))
        return whole

    def _waiting(self, beside: Path, rows: int) -> list[Any]:
        """Return the rows behind the first ``rows``, which are in row groups, as tables that follow each other."""
        found = []
        for content in unfinished.records(beside / unfinished.TAIL):
            table = self._pa.ipc.open_stream(content).read_all()
            first = int(table.schema.metadata[unfinished.FIRST_ROW])
            if first > rows:
                break
            found.append(table.slice(rows - first))
            rows = max(rows, first + len(table))
        return found

    def read(self, part: Part) -> pd.DataFrame:
        """Read the rows of a part."""
        names = self.names()
        groups = self._groups(part)
        most = sum(self._file.metadata.row_group(i).num_rows for i in groups) + sum(map(len, self._tail))
        if part.max_rows is not None:
            most = min(most, part.max_rows)
        self._recording.budget.allow(most * len(names) * _VALUE, f"{most:,} rows of {len(names)} columns")
        filled = _Filling(names, most, part)
        for columns, labels, _ in self._checked(names, groups):
            if not filled.take(columns, labels):
                break
        self._recording.judge()
        return _own.finished(self._recording, *filled.done(), part, KIND)

    def blocks(self, part: Part) -> Iterator[tuple[Columns, list[tuple[int, str]], float]]:
        """Yield the row groups that may have rows of a part: columns without the markers, these, the share so far."""
        return self._checked(self.names(), self._groups(part))

    def _checked(self, names: list[str], groups: list[int]) -> Iterator[tuple[Columns, list[tuple[int, str]], float]]:
        checks = RowLaws(self._recording, names)
        numeric = [n for n in names if n != "marker"]
        before = sum(self._file.metadata.row_group(i).num_rows for i in range(groups[0])) if groups else 0
        for done, table in enumerate(self._tables(groups, names), start=1):
            if not len(table):
                continue
            if table.column("lost").null_count:
                raise self._recording.error("a row does not say how many were lost before it; pmtpy did not write it")
            found: Columns = {n: _numbers(table.column(n), n) for n in numeric}
            left = checks.left(found, np.arange(before + 1, before + len(table) + 1))
            labels = _labels(table)
            if not left.all():
                found = {n: c[left] for n, c in found.items()}
                place = np.cumsum(left) - 1
                labels = [(int(place[row]), text) for row, text in labels if left[row]]
            before += len(table)
            yield found, labels, done / (len(groups) + len(self._tail))

    def _tables(self, groups: list[int], names: list[str]) -> Iterator[Any]:
        """Yield row groups, then what waited for the next; while one is worked on, the next is unpacked."""
        if groups:
            coming = self._ahead.submit(self._file.read_row_group, groups[0], names)
            for i in groups[1:]:
                ready, coming = coming, self._ahead.submit(self._file.read_row_group, i, names)
                yield ready.result()
            yield coming.result()
        yield from self._tail

    def names(self) -> list[str]:
        """Return the names of the columns, which are those of ours."""
        every = list(self._file.schema_arrow.names)
        names = [n for n in every if not n.startswith(_INDEX)]
        if not _own.starts((",".join(names) + ",").encode()):
            found = ", ".join(names[:6])
            msg = f"it is a Parquet file, but not one of pmtpy: its columns are {found} ...; read it with pandas"
            if tuple(names) == DATA_SET:
                msg = "it is a part of a data set; pmtpy.dataset(ROOT) reads all of that"
            raise self._recording.error(msg)
        _own.check_names(self._recording, names)
        kinds = {"marker": self._is_text, "lost": self._pa.types.is_integer}
        for field in self._file.schema_arrow:
            if field.name in names and not kinds.get(field.name, self._is_number)(field.type):
                wanted = "text" if field.name == "marker" else "whole numbers" if field.name == "lost" else "numbers"
                raise self._recording.error(f"column {field.name} is of type {field.type}; write it anew as {wanted}")
        self._look_at_accounts()
        # Each name stands there twice: in the list of columns, and in the account of each row group.
        groups = [self._file.metadata.row_group(i) for i in range(self._file.metadata.num_row_groups)]
        if any(g.column(j).path_in_schema != name for g in groups for j, name in enumerate(every)):
            msg = "its columns are not called as those of its row groups are; copy it again from its source"
            raise self._recording.error(msg)
        return names

    def _look_at_accounts(self) -> None:
        """Let the library read the account of every column of every row group, and one row.

        Asked for a single account that is damaged (pyarrow 26: the sizes of a column), it ends the whole program. Here,
        where it looks at all of them to know which bytes to fetch, it raises an error.
        """
        every = range(self._file.metadata.num_row_groups)
        if every:
            next(self._file.iter_batches(batch_size=1, row_groups=every), None)

    def _is_number(self, kind: Any) -> bool:
        return bool(self._pa.types.is_integer(kind) or self._pa.types.is_floating(kind))

    def _is_text(self, kind: Any) -> bool:
        kind = kind.value_type if self._pa.types.is_dictionary(kind) else kind
        return bool(self._pa.types.is_string(kind) or self._pa.types.is_large_string(kind))

    def _groups(self, part: Part) -> list[int]:
        """Return the row groups that may have rows of a part, by the least and the greatest time noted for each."""
        count, chosen = self._file.metadata.num_row_groups, []
        column = self._file.schema_arrow.names.index("elapsed")
        for i in range(count):
            known = self._file.metadata.row_group(i).column(column).statistics
            if known is None or not known.has_min_max or (known.max >= part.start and known.min < part.stop):
                chosen.append(i)
        return chosen


def _end_of(account: Any) -> int:
    """Return the byte behind the last column of the row groups of an account."""
    ends = [0]
    for i in range(account.num_row_groups):
        group = account.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            starts = [s for s in (column.dictionary_page_offset, column.data_page_offset) if s is not None]
            ends.append(min(starts) + column.total_compressed_size)
    return max(ends)


class _Filling:
    """Columns of the length that is needed at most, filled from the front.

    Memory that nothing is written to is none: where no rows are lost, the column that says so takes no time either.
    """

    def __init__(self, names: list[str], most: int, part: Part) -> None:
        self._part = part
        self._rows = 0
        self._columns: dict[str, npt.NDArray[Any]] = {
            n: np.zeros(most, np.int64) if n == "lost" else np.empty(most) for n in names if n != "marker"
        }
        self._labels: list[tuple[int, str]] = []

    def take(self, found: Columns, labels: list[tuple[int, str]]) -> bool:
        """Take the rows that belong to the part; return whether more may follow."""
        rows = self._part.rows(found["elapsed"], self._rows)
        end = self._rows + rows.stop - rows.start
        for name, values in found.items():
            if name != "lost" or values.any():
                self._columns[name][self._rows : end] = values[rows]
        self._labels += [(self._rows + row - rows.start, t) for row, t in labels if rows.start <= row < rows.stop]
        self._rows = end
        if self._part.max_rows is not None and end >= self._part.max_rows:
            return False
        return bool(rows.stop == len(found["elapsed"]))

    def done(self) -> tuple[dict[str, npt.NDArray[Any]], list[tuple[int, str]]]:
        """Return the columns as far as they are filled, and the labels."""
        return {name: values[: self._rows] for name, values in self._columns.items()}, self._labels


def _numbers(column: Any, name: str) -> npt.NDArray[Any]:
    """Return a column as it is held in memory; other programs write whole watts as whole numbers."""
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found.astype(np.int64 if name == "lost" else np.float64, copy=False)


def _labels(table: Any) -> list[tuple[int, str]]:
    """Return the rows of a table that have a label, with it."""
    found, before = [], 0
    for chunk in table.column("marker").chunks:
        texts = chunk if hasattr(chunk, "indices") else chunk.dictionary_encode()
        named = [i for i, text in enumerate(texts.dictionary.to_pylist()) if text]
        if named:
            which = texts.indices.fill_null(-1).to_numpy()
            rows = np.flatnonzero(np.isin(which, named)).tolist()
            found += [(before + row, texts.dictionary[int(which[row])].as_py()) for row in rows]
        before += len(chunk)
    return found
