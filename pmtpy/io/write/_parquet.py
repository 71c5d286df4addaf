"""The columns of the CSV file as Parquet, with the metadata in the file's own schema. Needs ``pyarrow``.

Row groups are appended to the file as they fill; nothing in it is ever rewritten. The account of them, without which a
Parquet file cannot be read, is its last part. Until that is written, a folder beside the file holds it, and the rows
that wait for the next row group (:mod:`pmtpy.io._unfinished`): whatever becomes of the program or the disk,
:func:`pmtpy.load` reads the file up to the last rows that were written. See decision 32.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy._extras import extra
from pmtpy.core.markers import joined
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Frame, Ints
from pmtpy.errors import SinkError
from pmtpy.io import _unfinished as unfinished
from pmtpy.io.columns import column_names, columns
from pmtpy.io.write._journal import Journal
from pmtpy.io.write.base import Ending, Header, Options, metadata
from pmtpy.io.write.file import Output

_METADATA_KEY = "pmtpy"
_ROW_GROUP = 100_000  # rows: some seconds of a stream, some megabytes
_MIN_ROW_GROUP = 1_000  # rows of a row group on a disk that is nearly full


class ParquetSink:
    """Writes a Parquet file, a hundred thousand rows at a time.

    A row group that the disk refuses is tried again, in smaller pieces, with each Frame that comes; while none fits,
    further Frames are refused, so what waits is bounded and nothing that was accepted is dropped before the end.
    """

    def __init__(self, output: Output, header: Header, _how: Options) -> None:
        self._output = output
        self._header = header
        self._columns = columns(header.layout)
        self._names = column_names(header.layout)
        self._origin: tuple[int, Floats] | None = None
        self._encoder = _Encoder(self._names)
        self._waiting: list[Any] = []  # record batches
        self._count = 0  # rows of those
        self._rows = 0  # in row groups
        self._size = _ROW_GROUP
        self._accounts: list[Any] = []
        self._broken: SinkError | None = None  # a stream that took half a row group
        output.empty()
        output.write(unfinished.MAGIC)
        self._journal: Journal | None = None
        if output.regular and output.path is not None:
            self._journal = Journal(output.path, metadata(header, self._names), overwrite=output.overwrite)

    def write(self, frame: Frame) -> None:
        """Take the rows of ``frame``; they go to the file when a row group is full."""
        if not len(frame):
            return
        if self._count >= _ROW_GROUP:
            self._flush(_ROW_GROUP)
        if self._origin is None:
            self._origin = (int(frame.t_ns[0]), frame.joules[0].copy())
        batch = self._encoder.batch(self._arrays(frame, *self._origin))
        if self._journal is not None:
            self._journal.rows(self._encoder.stream(batch, self._rows + self._count))
        self._waiting.append(batch)
        self._count += len(frame)
        if self._count >= _ROW_GROUP:
            with contextlib.suppress(SinkError):  # the rows are kept; the next Frame is refused if there is no room yet
                self._flush(_ROW_GROUP)

    def _arrays(self, frame: Frame, start_ns: int, start_joules: Floats) -> Iterator[Any]:
        anchor = self._header.anchor
        unix_ns = frame.t_ns + anchor.unix_offset_ns
        yield unix_ns // 10**9 + unix_ns % 10**9 / 1e9
        yield (frame.t_ns - start_ns) / 1e9
        yield joined(frame.marks)
        yield np.asarray(frame.lost, np.int64)
        counted = replace(frame, joules=frame.joules - start_joules)
        for column in self._columns:
            yield column.of(counted)

    def _flush(self, least: int) -> None:
        """Write row groups while at least ``least`` rows wait.

        Raises SinkError: the disk refuses even a small one. Rows that are not written still wait.
        """
        if self._broken is not None:
            raise self._broken
        while self._count >= least:
            table = self._encoder.table(self._waiting)
            group, rest = table.slice(0, self._size), table.slice(self._size)
            try:
                self._append(group)
            except SinkError:
                if self._journal is not None:
                    self._journal.forget()  # what waits is in memory, and a row group needs the room
                if self._size <= _MIN_ROW_GROUP or self._broken is not None:
                    raise
                self._size = max(_MIN_ROW_GROUP, self._size // 4)
                continue
            self._waiting, self._size = rest.to_batches(), _ROW_GROUP
            self._rows, self._count = self._rows + len(group), len(rest)
            if self._journal is not None and len(rest):
                self._journal.rows(self._encoder.stream(self._encoder.table(self._waiting), self._rows))

    def _append(self, group: Any) -> None:
        """Append one row group and note its account; on an error the file is as it was before."""
        content, account = self._encoder.group(group, self._output.size)
        try:
            self._output.write(content)
        except SinkError as error:
            if not self._output.regular:
                self._broken = error
            raise
        if self._journal is not None:
            try:
                self._output.settle()  # an account of what is not there yet would be worse than none
                self._journal.group(account)
            except SinkError:
                self._output.take_back(len(content))
                raise
        self._accounts.append(account)

    def close(self, ending: Ending) -> Ending:
        """Write what waits, the metadata and the account of all row groups; only then is the folder removed."""
        finished = False
        try:
            if self._count:
                try:
                    self._flush(1)
                except SinkError as error:
                    ending = self._short(ending, error)
            facts = json.dumps(metadata(self._header, self._names, ending))
            self._output.write(self._encoder.end({_METADATA_KEY: facts}, self._accounts))
            self._output.settle()
            finished = True
        except SinkError as error:
            if self._journal is None:
                raise
            msg = f"{error}; its end is missing, so only pmtpy.load reads it, up to its last whole rows"
            raise SinkError(msg) from error
        finally:
            if self._journal is not None and finished:
                self._journal.remove()
            elif self._journal is not None:
                self._journal.release()
            self._output.close()
        return ending

    def _short(self, ending: Ending, error: SinkError) -> Ending:
        """Return the ending of a file that misses the rows that wait."""
        text = "; ".join(
            filter(None, (ending.error, f"{error}; the last {amount(self._count, 'row is', 'rows are')} missing"))
        )
        return replace(
            ending, rows=ending.rows - self._count, dropped=ending.dropped + self._count, complete=False, error=text
        )

    def discard(self) -> None:
        """Remove what lies beside the file."""
        if self._journal is not None:
            self._journal.remove()


class _Encoder:
    """Rows to the bytes of Parquet and of Arrow streams. No files.

    Nothing here may import a module for the first time after the start: at the end of a program, pandas for one cannot
    be imported any more. So arrays are handed to pyarrow as buffers, which it does not look into.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        with extra("pyarrow", "writing Parquet"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        self._pa, self._pq = pa, pq
        types = {"marker": pa.string(), "lost": pa.int64()}
        self._schema = pa.schema([(n, types.get(n, pa.float64())) for n in names])
        self._nothing = pa.py_buffer(bytes(1 << 24))  # never touched, so it takes no memory
        self.end({_METADATA_KEY: ""}, [])  # whatever the library loads when it is first used

    def batch(self, arrays: Iterator[Any]) -> Any:
        """Make a record batch of the columns of one Frame; that of the markers is given as row and label."""
        taken = list(arrays)
        n = len(taken[0])
        made = [self._text(a, n) if isinstance(a, dict) else self._numbers(a) for a in taken]
        return self._pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _numbers(self, values: Floats | Ints) -> Any:
        kind = self._pa.int64() if values.dtype == np.int64 else self._pa.float64()
        content = self._pa.py_buffer(np.ascontiguousarray(values))
        return self._pa.Array.from_buffers(kind, len(values), [None, content])

    def _text(self, labelled: dict[int, str], n: int) -> Any:
        texts = {row: label.encode("utf-8", "replace") for row, label in labelled.items()}
        lengths: npt.NDArray[np.int32] = np.zeros(n + 1, np.int32)
        for row, text in texts.items():
            lengths[row + 1] = len(text)
        content = b"".join(texts[row] for row in sorted(texts))
        starts = self._pa.py_buffer(np.cumsum(lengths, dtype=np.int32))
        return self._pa.Array.from_buffers(self._pa.string(), n, [None, starts, self._pa.py_buffer(content)])

    def table(self, batches: list[Any]) -> Any:
        """Join record batches."""
        return self._pa.Table.from_batches(batches, self._schema)

    def stream(self, rows: Any, first: int) -> bytes:
        """Return rows as an Arrow stream that knows the number of its first row."""
        schema = self._schema.with_metadata({unfinished.FIRST_ROW: str(first)})
        place = self._pa.BufferOutputStream()
        with self._pa.ipc.new_stream(place, schema) as stream:
            stream.write(rows.replace_schema_metadata(schema.metadata))
        return bytes(place.getvalue())

    def group(self, table: Any, at: int) -> tuple[bytes, bytes]:
        """Return one row group as it stands at byte ``at`` of a file, and the account of it."""
        content = _Tape(keep=False)
        stream = self._pa.PythonFile(content, "w")
        with self._writer(stream) as writer:
            # Places in the account are those of the stream. So it is led to where the row group will stand.
            while stream.tell() < at:
                stream.write(self._nothing.slice(0, min(at - stream.tell(), self._nothing.size)))
            content.keep = True
            writer.write_table(table)
        return content.split()

    def end(self, facts: dict[str, str], accounts: list[bytes]) -> bytes:
        """Return the last part of a file: the account of all its row groups, and its metadata."""
        content = _Tape()
        with self._writer(self._pa.PythonFile(content, "w")) as writer:
            writer.add_key_value_metadata(facts)
        whole = self._account(content.split()[1])
        for account in accounts:
            whole.append_row_groups(self._account(account))
        place = io.BytesIO()
        whole.write_metadata_file(place)
        return place.getvalue()[len(unfinished.MAGIC) :]

    def _account(self, content: bytes) -> Any:
        return self._pq.read_metadata(self._pa.BufferReader(unfinished.MAGIC + content))

    def _writer(self, stream: Any) -> Any:
        return self._pq.ParquetWriter(
            stream,
            self._schema,
            compression="zstd",
            use_dictionary=["marker", "lost"],
            store_schema=False,  # a stored schema would hide the metadata that are added at the end
            write_page_checksum=True,
        )


class _Tape(io.RawIOBase):
    """Keeps what is written to it, while ``keep`` is true."""

    def __init__(self, *, keep: bool = True) -> None:
        super().__init__()
        self.keep = keep
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Whether it can be written to: yes."""
        return True

    def write(self, content: Any) -> int:
        """Take ``content``."""
        if self.keep:
            self._parts.append(bytes(content))
        return len(content)

    def split(self) -> tuple[bytes, bytes]:
        """Return what stands before the account of a Parquet file, and the account with its length and the mark."""
        whole = b"".join(self._parts)
        end = len(whole) - len(unfinished.MAGIC) - 4
        account = end - int.from_bytes(whole[end : end + 4], "little")
        return whole[:account], whole[account:]
