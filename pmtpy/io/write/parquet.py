"""The columns of the CSV file as Parquet, with the metadata in the file's own schema. Needs ``pyarrow``.

A Parquet file can only be read once its end is written: a process that is killed leaves nothing. Use CSV where that
matters.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pmtpy.core.rows import Floats, Frame
from pmtpy.errors import SinkError
from pmtpy.io.columns import FIXED, column_names, columns, join, labels
from pmtpy.io.write._file import Output
from pmtpy.io.write.base import Ending, Header, metadata

METADATA_KEY = "pmtpy"
_ROW_GROUP = 100_000  # rows: some seconds of a stream, some megabytes


class ParquetSink:
    """Writes a Parquet file, some hundred thousand rows at a time."""

    def __init__(self, output: Output, header: Header) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            msg = "writing Parquet needs pyarrow: pip install 'pmtpy[parquet]'"
            raise SinkError(msg) from error
        self._pa = pa
        self._output = output
        self._name = output.name
        self._header = header
        self._columns = columns(header.layout)
        self._origin: tuple[int, Floats] | None = None
        self._waiting: list[Frame] = []
        self._rows = 0  # of those
        self._broken: SinkError | None = None
        types = {"marker": pa.string(), "lost": pa.int64()}
        self._schema = pa.schema([(n, types.get(n, pa.float64())) for n in column_names(header.layout)])
        output.empty()
        self._stream = output.binary()
        with self._explained():
            self._writer: Any = pq.ParquetWriter(
                self._stream,
                self._schema,
                compression="zstd",
                use_dictionary=["marker", "lost"],
                store_schema=False,  # a stored schema would hide the metadata that are added at the end
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what goes wrong inside the library into our error, and remember it: there is no second try."""
        try:
            yield
        except (OSError, ValueError, self._pa.ArrowException) as error:
            msg = f"cannot write {self._name}, and without its end the file is unreadable: {error}"
            self._broken = SinkError(msg)
            raise self._broken from error

    def write(self, frame: Frame) -> None:
        """Take the rows of ``frame``; they go to the file when a row group is full."""
        if self._broken is not None:
            raise self._broken
        if not len(frame):
            return
        if self._origin is None:
            self._origin = (int(frame.t_ns[0]), frame.joules[0].copy())
        self._waiting.append(frame)
        self._rows += len(frame)
        if self._rows >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting or self._origin is None:
            return
        frame, self._waiting, self._rows = join(self._waiting), [], 0
        with self._explained():
            self._writer.write_table(self._pa.table(self._arrays(frame, *self._origin), schema=self._schema))

    def _arrays(self, frame: Frame, start_ns: int, start_joules: Floats) -> dict[str, Any]:
        anchor = self._header.anchor
        unix_ns = frame.t_ns + (anchor.unix_ns - anchor.monotonic_ns)
        marked = labels(frame)
        fixed: tuple[Any, ...] = (
            unix_ns // 10**9 + unix_ns % 10**9 / 1e9,
            (frame.t_ns - start_ns) / 1e9,
            [marked.get(row, "") for row in range(len(frame))],
            np.asarray(frame.lost, np.int64),
        )
        counted = replace(frame, joules=frame.joules - start_joules)
        return dict(zip(FIXED, fixed, strict=True)) | {c.name: c.of(counted) for c in self._columns}

    def close(self, ending: Ending) -> None:
        """Write what is left, the metadata and the end of the file."""
        try:
            if self._broken is None:
                self._flush()
                with self._explained():
                    facts = metadata(self._header, tuple(self._schema.names), ending)
                    self._writer.add_key_value_metadata({METADATA_KEY: json.dumps(facts)})
        finally:
            self._release()

    def _release(self) -> None:
        with contextlib.closing(self._output), self._explained(), self._stream:
            self._writer.close()
