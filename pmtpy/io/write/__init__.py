"""Files that a sensor's rows are written to. :func:`open_sink` chooses the format; :class:`Writer` feeds it.

A sink gets Frames and writes rows. It never waits for a sensor, never asks for the time, and replaces no file unless
told to. A further format is a module here and a row in :data:`FILE_FORMATS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from pmtpy.core.nearest import nearest
from pmtpy.core.rows import Layout
from pmtpy.errors import TargetError
from pmtpy.io.write._csv import CsvSink
from pmtpy.io.write._dataset import DataSetPlace, DataSetSink
from pmtpy.io.write._jls import JlsSink
from pmtpy.io.write._parquet import ParquetSink
from pmtpy.io.write._pmt import PmtSink
from pmtpy.io.write._powersensor3 import PowerSensor3Sink
from pmtpy.io.write._writer import DEFAULT_MAX_ROWS, Writer
from pmtpy.io.write.base import Ending, Header, Options, RecordedLoad, RecordedMark, RecordedRegion, Sink
from pmtpy.io.write.downsample import Thinner
from pmtpy.io.write.file import Output, Target


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One format that rows can be written in."""

    name: str  # as ``--format`` has it
    suffixes: tuple[str, ...]  # of files, lowercase; the first is the usual one
    sink: Callable[[Any, Header, Options], Sink]  # writes into an :class:`Output`, or makes the folder of a path
    # what the format has no place for, as words to follow "it has no place for"; empty: it holds everything
    lacks: str = ""
    live: bool = True  # whether a dump can be written in it while it is measured; else recordings are converted to it
    merges: bool = False  # whether it can be merged into a file of the user's
    folder: frozenset[str] = frozenset()  # of what is a folder, what stands in it; empty: it is a file
    even: bool = False  # whether its readers take rows for equally far apart

    def open(self, target: Target, header: Header, how: Options) -> Sink:
        """Open a target for a header. Where that fails, no new file stays."""
        if self.folder:
            return self.sink(target, header, how)
        output = Output(target, overwrite=how.overwrite)
        try:
            return self.sink(output, header, how)
        except BaseException:
            output.discard()
            raise


def _trace(module: str, name: str) -> Callable[[Any, Header, Options], Sink]:
    """Return a sink that is loaded when it is used: traces are written by those who convert, and by nobody else."""

    def make(where: Any, header: Header, how: Options) -> Sink:
        made: Sink = vars(importlib.import_module(f"{__name__}.{module}"))[name](where, header, how)
        return made

    return make


FILE_FORMATS = (
    FileFormat("csv", (".csv",), CsvSink),
    FileFormat("parquet", (".parquet", ".pq"), ParquetSink),
    FileFormat("jls", (".jls",), JlsSink),
    FileFormat("pmt", (".pmt",), PmtSink, "energies, volts, amperes, other channels, losses"),
    FileFormat(
        "powersensor3",
        (".ps3", ".powersensor3"),
        PowerSensor3Sink,
        "energies, losses, other channels, more than one letter of a marker",
        even=True,
    ),
    FileFormat(
        "perfetto",
        (".pftrace", ".perfetto-trace"),
        _trace("_perfetto", "PerfettoSink"),
        "how sure each value is",
        live=False,
    ),
    FileFormat(
        "otf2",
        (".otf2",),
        _trace("_otf2", "Otf2Sink"),
        "how sure each value is",
        live=False,
        folder=frozenset({"traces.otf2", "traces.def", "traces"}),
    ),
    FileFormat(
        "chrome",
        (".json",),
        _trace("_chrome", "ChromeSink"),
        "units (but in names), how sure each value is",
        live=False,
        merges=True,
    ),
)

FORMATS = tuple(f.name for f in FILE_FORMATS if f.live)
SUFFIXES = {suffix: f.name for f in FILE_FORMATS if f.live for suffix in f.suffixes}
"""What a name says of the format of a dump."""

__all__ = [
    "DEFAULT_MAX_ROWS",
    "FILE_FORMATS",
    "FORMATS",
    "SUFFIXES",
    "DataSetPlace",
    "Ending",
    "FileFormat",
    "Header",
    "Options",
    "RecordedLoad",
    "RecordedMark",
    "RecordedRegion",
    "Sink",
    "Thinner",
    "Writer",
    "format_named",
    "open_sink",
    "thinner_for",
]


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
    format : str or None
        The name of one of :data:`FORMATS`. None: by the suffix of the path; CSV for any other suffix and for a stream.
    overwrite : bool
        Replace a file that exists.
    absolute : bool or None
        For the two foreign text formats: Unix time, or seconds since the first row. None: what their own tools do by
        default (PMT: Unix time; PowerSensor3: since the start).
    columns : sequence of (str, sequence of int), or None
        For PMT's text: each column's name, and of which powers it is the sum, by their places in a row (0 is the
        total); of none: 0. None: the total, where there is one, and every channel.

    Raises SinkError: the file exists, cannot be made or written, or the format cannot hold what this sensor measures.
    Raises TargetError: there is no such format.
    """
    if isinstance(target, DataSetPlace):
        return DataSetSink(target, header)
    return _chosen(target, format).open(target, header, Options(overwrite, absolute, columns))


def thinner_for(target: Target, format: str | None, layout: Layout, interval_s: float) -> Thinner:  # noqa: A002
    """Return what makes rows of intervals for a target, which is chosen as :func:`open_sink` does."""
    return Thinner(layout, interval_s, even=not isinstance(target, DataSetPlace) and _chosen(target, format).even)


def _chosen(target: Target, format: str | None) -> FileFormat:  # noqa: A002
    suffix = PurePath(target).suffix.lower() if isinstance(target, (str, PurePath)) else ""
    live = [f for f in FILE_FORMATS if f.live]
    return format_named(format if format is not None else SUFFIXES.get(suffix, "csv"), live)


def format_named(name: str, among: Sequence[FileFormat] = FILE_FORMATS) -> FileFormat:
    """Return a format by its name.

    Raises TargetError: none of those has it; the message lists them.
    """
    found = next((f for f in among if f.name == name), None)
    if found is None:
        known = [f.name for f in among]
        msg = f"no file format is called {name!r}; there are: {', '.join(known)}{nearest(str(name), known)}"
        raise TargetError(msg)
    return found
