"""Files that a sensor's rows are written to. :func:`open_sink` chooses the format; :class:`Writer` feeds it.

A sink gets Frames and writes rows. It never waits for a sensor, never asks for the time, and replaces no file unless
told to. A further format is a module here and a row in :data:`FILE_FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from pmtpy.errors import TargetError
from pmtpy.io.write._csv import CsvSink
from pmtpy.io.write._dataset import DataSetPlace, DataSetSink
from pmtpy.io.write._jls import JlsSink
from pmtpy.io.write._parquet import ParquetSink
from pmtpy.io.write._pmt import PmtSink
from pmtpy.io.write._powersensor3 import PowerSensor3Sink
from pmtpy.io.write._writer import DEFAULT_MAX_ROWS, Writer
from pmtpy.io.write.base import Ending, Header, RecordedRegion, Sink
from pmtpy.io.write.downsample import Thinner
from pmtpy.io.write.file import Output, Target


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is written. Fields as the arguments of :func:`open_sink`."""

    overwrite: bool = False
    absolute: bool | None = None
    columns: Sequence[tuple[str, Sequence[int]]] | None = None
    into: Path | None = None  # a trace to merge with, where a format can


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One format that rows can be written in."""

    name: str  # as ``--format`` has it
    suffixes: tuple[str, ...]  # of files, lowercase; the first is the usual one
    opener: Callable[[Target, Header, Options], Sink]  # opens a target for a header; returns the sink
    # what the format has no place for, as words to follow "it has no place for"; empty: it holds everything
    lacks: str = ""
    live: bool = True  # whether a dump can be written in it while it is measured; else recordings are converted to it
    merges: bool = False  # whether it can be merged into a file of the user's


def _as_csv(target: Target, header: Header, how: Options) -> Sink:
    return _into(target, how, lambda output: CsvSink(output, header, overwrite=how.overwrite))


def _as_parquet(target: Target, header: Header, how: Options) -> Sink:
    return _into(target, how, lambda output: ParquetSink(output, header, overwrite=how.overwrite))


def _as_jls(target: Target, header: Header, how: Options) -> Sink:
    return _into(target, how, lambda output: JlsSink(output, header, overwrite=how.overwrite))


def _as_pmt(target: Target, header: Header, how: Options) -> Sink:
    absolute = how.absolute is not False
    return _into(
        target,
        how,
        lambda output: PmtSink(output, header, absolute=absolute, overwrite=how.overwrite, columns=how.columns),
    )


def _as_powersensor3(target: Target, header: Header, how: Options) -> Sink:
    absolute = bool(how.absolute)
    return _into(
        target, how, lambda output: PowerSensor3Sink(output, header, absolute=absolute, overwrite=how.overwrite)
    )


def _as_perfetto(target: Target, header: Header, how: Options) -> Sink:
    from pmtpy.io.write._perfetto import PerfettoSink  # traces are written by those who convert, and by nobody else

    return _into(target, how, lambda output: PerfettoSink(output, header))


def _as_otf2(target: Target, header: Header, _how: Options) -> Sink:
    from pmtpy.io.write._otf2 import Otf2Sink

    return Otf2Sink(target, header)


def _as_chrome(target: Target, header: Header, how: Options) -> Sink:
    from pmtpy.io.write._chrome import ChromeSink

    return _into(target, how, lambda output: ChromeSink(output, header, into=how.into))


def _into(target: Target, how: Options, make: Callable[[Output], Sink]) -> Sink:
    """Open one file or stream and make a sink of it; where that fails, no new file stays."""
    output = Output(target, overwrite=how.overwrite)
    try:
        return make(output)
    except BaseException:
        output.discard()
        raise


FILE_FORMATS = (
    FileFormat("csv", (".csv",), _as_csv),
    FileFormat("parquet", (".parquet", ".pq"), _as_parquet),
    FileFormat("jls", (".jls",), _as_jls),
    FileFormat(
        "pmt",
        (".pmt",),
        _as_pmt,
        "energies, volts, amperes, other channels, losses",
    ),
    FileFormat(
        "powersensor3",
        (".ps3", ".powersensor3"),
        _as_powersensor3,
        "energies, losses, other channels, more than one letter of a marker",
    ),
    FileFormat("perfetto", (".pftrace", ".perfetto-trace"), _as_perfetto, "uncertainties of curves", live=False),
    FileFormat("otf2", (".otf2",), _as_otf2, "uncertainties of curves", live=False),
    FileFormat(
        "chrome", (".json",), _as_chrome, "units (but in names), uncertainties of curves", live=False, merges=True
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
    "RecordedRegion",
    "Sink",
    "Thinner",
    "Writer",
    "open_sink",
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
        For PMT's text: see :class:`PmtSink`.

    Raises SinkError: the file exists, cannot be made or written, or the format cannot hold what this sensor measures.
    Raises TargetError: there is no such format.
    """
    if isinstance(target, DataSetPlace):
        return DataSetSink(target, header)
    suffix = PurePath(target).suffix.lower() if isinstance(target, (str, PurePath)) else ""
    chosen = format if format is not None else SUFFIXES.get(suffix, "csv")
    opener = next((f.opener for f in FILE_FORMATS if f.live and f.name == chosen), None)
    if opener is None:
        msg = f"no file format is called {chosen!r}; there are: {', '.join(FORMATS)}"
        raise TargetError(msg)
    return opener(target, header, Options(overwrite, absolute, columns))
