"""Files that a sensor's rows are written to. :func:`open_sink` chooses the format; :class:`Writer` feeds it.

A sink gets Frames and writes rows. It never waits for a sensor, never asks for the time, and replaces no file unless
told to.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from pmtpy.errors import TargetError
from pmtpy.io.write._file import Output, Target
from pmtpy.io.write.base import Ending, Header, Sink
from pmtpy.io.write.csv import CsvSink
from pmtpy.io.write.jls import JlsSink
from pmtpy.io.write.parquet import ParquetSink
from pmtpy.io.write.pmt import PmtSink
from pmtpy.io.write.powersensor3 import PowerSensor3Sink
from pmtpy.io.write.writer import DEFAULT_MAX_ROWS, Writer

FORMATS = ("csv", "parquet", "jls", "pmt", "powersensor3")
SUFFIXES = {  # what a name says of its format
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jls": "jls",
    ".pmt": "pmt",
    ".powersensor3": "powersensor3",
    ".ps3": "powersensor3",
}

__all__ = ["DEFAULT_MAX_ROWS", "FORMATS", "SUFFIXES", "Ending", "Header", "Sink", "Writer", "open_sink"]


def open_sink(
    target: Target,
    header: Header,
    *,
    format: str | None = None,  # noqa: A002  (the word of the public interface)
    overwrite: bool = False,
    absolute: bool | None = None,
    columns: Sequence[tuple[str, Sequence[int]]] | None = None,
) -> Sink:
    """Open a file or stream for writing, and write what is known before the first row.

    Parameters
    ----------
    target : path or stream
        A stream stays open at the end. Metadata go beside a file, or into it; a stream has none.
    header : Header
    format : {"csv", "parquet", "jls", "pmt", "powersensor3"} or None
        None: by the suffix of the path; CSV for any other suffix and for a stream.
    overwrite : bool
        Replace a file that exists.
    absolute : bool or None
        For the two foreign text formats: Unix time, or seconds since the first row. None: what their own tools do by
        default (PMT: Unix time; PowerSensor3: since the start).
    columns : sequence of (str, sequence of int), or None
        For PMT's text: see :class:`PmtSink`.

    Raises
    ------
    SinkError
        The file exists, cannot be made or written, or the format cannot hold what this sensor measures.
    TargetError
        There is no such format.
    """
    suffix = PurePath(target).suffix.lower() if isinstance(target, (str, PurePath)) else ""
    chosen = format if format is not None else SUFFIXES.get(suffix, "csv")
    if chosen not in FORMATS:
        msg = f"no file format is called {chosen!r}; there are: {', '.join(FORMATS)}"
        raise TargetError(msg)
    output = Output(target, overwrite=overwrite)
    try:
        if chosen == "parquet":
            return ParquetSink(output, header, overwrite=overwrite)
        if chosen == "jls":
            return JlsSink(output, header, overwrite=overwrite)
        if chosen == "pmt":
            return PmtSink(output, header, absolute=absolute is not False, overwrite=overwrite, columns=columns)
        if chosen == "powersensor3":
            return PowerSensor3Sink(output, header, absolute=bool(absolute), overwrite=overwrite)
        return CsvSink(output, header, overwrite=overwrite)
    except BaseException:
        output.discard()
        raise
