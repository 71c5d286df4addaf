"""Reader of pmtpy's own CSV and Parquet files, and of the metadata that belong to them."""

from __future__ import annotations

import csv as csv_module
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.errors import BackendUnavailableError, FileFormatError
from pmtpy.io.read._lines import Recording, looks_cut, read_bytes

if TYPE_CHECKING:
    import pandas as pd

_START = b"time,elapsed,marker,lost,"
_CHUNK = 1 << 24  # bytes that are checked line by line at once
_NEWEST_FORMAT = 1
_TEXT, _WHOLE = "marker", "lost"


def is_csv(start: bytes) -> bool:
    """Whether a file starts like ours."""
    return start.startswith(_START)


def csv(path: Path, *, skip_broken: bool, content: bytes | None = None) -> pd.DataFrame:
    """Read a CSV file: in one go if every line is whole, else line by line."""
    table = _at_once(path, content)
    recording = Recording(path, b"", skip_broken=skip_broken)
    if table is None:
        recording = Recording(path, read_bytes(path) if content is None else content, skip_broken=skip_broken)
        table = _line_by_line(recording)
        recording.judge()
    facts, notes = _sidecar(path)
    _describe(table, path, "pmtpy CSV", facts)
    table.attrs["broken_lines"] = recording.broken_lines
    table.attrs["notes"] = notes
    return table


def _at_once(path: Path, content: bytes | None) -> pd.DataFrame | None:
    """Read with pyarrow, on all cores. None where that is not installed or a line is not whole."""
    try:
        import pyarrow as pa
        from pyarrow import csv as pa_csv
    except ImportError:
        return None
    source: Any = io.BytesIO(content) if content is not None else str(path)
    if not _ends_whole(path, content):
        return None
    names = _names(path, content)
    types = {n: pa.string() if n == _TEXT else pa.int64() if n == _WHOLE else pa.float64() for n in names}
    try:
        table = pa_csv.read_csv(
            source,
            read_options=pa_csv.ReadOptions(block_size=1 << 22),
            convert_options=pa_csv.ConvertOptions(column_types=types, null_values=[""]),
        )
    except pa.ArrowInvalid:
        return None
    if table.column(_WHOLE).null_count:
        return None
    frame: pd.DataFrame = table.to_pandas(split_blocks=True, self_destruct=True)
    return frame


def _ends_whole(path: Path, content: bytes | None) -> bool:
    if content is not None:
        return content.endswith(b"\n")
    with path.open("rb") as file:
        file.seek(-1, io.SEEK_END)
        return file.read(1) == b"\n"


def _names(path: Path, content: bytes | None) -> list[str]:
    if content is not None:
        first = content.split(b"\n", 1)[0]
    else:
        with path.open("rb") as file:
            first = file.readline()
    names = _fields(first.rstrip(b"\r\n"))
    if (
        len(set(names)) < len(names)
        or names[:4] != ["time", "elapsed", _TEXT, _WHOLE]
        or "\N{REPLACEMENT CHARACTER}" in "".join(names)
    ):
        msg = f"{path}, line 1: the header names a column twice, or is not text"
        raise FileFormatError(msg)
    return names


def _line_by_line(recording: Recording) -> pd.DataFrame:
    """Read what can be read, and note what cannot."""
    import pandas as pd

    names = _names(recording.path, recording.content)
    parts = [_part(recording, names, lines, number) for number, lines in _chunks(recording)]
    return pd.concat(parts, ignore_index=True)


def _chunks(recording: Recording) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines behind the header, some megabytes at a time, with the number of the first of them."""
    content = recording.content
    position, number = content.find(b"\n") + 1 or len(content), 2
    before = b""
    while True:
        end = content.find(b"\n", min(position + _CHUNK, len(content)))
        lines = content[position : end if end >= 0 else len(content)].split(b"\n")
        if end < 0:
            last = lines.pop()
            before = lines[-1] if lines else before
            if last and looks_cut(last, before):
                recording.broken(number + len(lines), "it has no end (was the writer stopped while writing it?)")
            elif last:
                lines.append(last)
            yield number, lines
            return
        before = lines[-1]
        yield number, lines
        position, number = end + 1, number + len(lines)


def _part(recording: Recording, names: list[str], lines: list[bytes], first: int) -> pd.DataFrame:
    good, at = [], []
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        width = line.count(b",") + 1
        if b'"' in line:
            width = len(_fields(line))
        if width == len(names):
            good.append(line)
            at.append(number)
        else:
            recording.broken(number, f"{width} fields where there should be {len(names)}")
    try:
        return _parse(names, good)
    except ValueError:
        readable = [_readable(names, line) for line in good]
        for number, ok in zip(at, readable, strict=True):
            if not ok:
                recording.broken(number, "a field is not a number")
        return _parse(names, [line for line, ok in zip(good, readable, strict=True) if ok])


def _fields(line: bytes) -> list[str]:
    """Split one line; none if it is no line of CSV (a carriage return in it)."""
    try:
        return next(csv_module.reader([line.decode("utf-8", "replace")]), [])
    except csv_module.Error:
        return []


def _parse(names: list[str], lines: list[bytes]) -> pd.DataFrame:
    import pandas as pd

    numeric = [n for n in names if n not in {_TEXT, _WHOLE}]
    part: pd.DataFrame = pd.read_csv(
        io.BytesIO(b"\n".join(lines) + b"\n"),
        names=names,
        dtype=dict.fromkeys(numeric, np.float64) | {_TEXT: str, _WHOLE: np.int64},
        keep_default_na=False,
        na_values={n: [""] for n in numeric},
        encoding_errors="replace",
    )
    return part


def _readable(names: list[str], line: bytes) -> bool:
    try:
        for name, text in zip(names, _fields(line), strict=True):
            if name == _WHOLE:
                np.int64(int(text))
            elif name != _TEXT and text:
                float(text)
            if name != _TEXT and "_" in text:  # a number to Python only
                return False
    except (ValueError, OverflowError):
        return False
    return True


def _sidecar(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """Metadata beside the file, and what is to be said about them."""
    beside = path.with_name(path.name.removesuffix(".gz") + ".json")
    try:
        facts = json.loads(beside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, [f"{beside.name} is missing: it is not known whether the file is complete or virtual"]
    except (OSError, ValueError) as error:
        return None, [
            f"{beside.name} cannot be read ({error}): it is not known whether the file is complete or virtual"
        ]
    if not isinstance(facts, dict):
        return None, [f"{beside.name} holds no metadata"]
    return facts, []


def with_sidecar(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Add what our own metadata beside a foreign format say, if there are any."""
    facts, _ = _sidecar(path)
    if facts is not None and "virtual" in facts and "target" in facts:
        table.attrs |= {"virtual": facts["virtual"], "complete": facts.get("complete"), "metadata": facts}
    return table


def parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        remedy = "pip install 'pmtpy[parquet]'"
        raise BackendUnavailableError("load", "reading Parquet needs pyarrow", remedy) from error
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        msg = f"{path} is not whole (a Parquet file whose writer was killed cannot be read): {error}"
        raise FileFormatError(msg) from error
    if not ",".join(table.column_names).encode().startswith(_START):
        msg = f"{path} is a Parquet file, but not one of pmtpy: its columns are {', '.join(table.column_names[:6])} ..."
        raise FileFormatError(msg)
    facts = json.loads((table.schema.metadata or {}).get(b"pmtpy", b"null"))
    frame: pd.DataFrame = table.to_pandas(split_blocks=True, self_destruct=True)
    _describe(frame, path, "pmtpy Parquet", facts)
    return frame


def _describe(table: pd.DataFrame, path: Path, kind: str, facts: dict[str, Any] | None) -> None:
    known = facts or {}
    if known.get("format", 0) > _NEWEST_FORMAT:
        msg = f"{path} was written by a newer pmtpy (format {known['format']}, known here up to {_NEWEST_FORMAT})"
        raise FileFormatError(msg)
    summed = [c["name"] for c in known.get("channels", []) if c.get("in_total")]
    table.attrs = {
        "path": str(path),
        "format": kind,
        "clock": "host's monotonic clock, with the wall time of the start",
        "total": " + ".join(summed) if summed else "as recorded",
        "joules": "recorded",
        "uncovered_s": None,
        "virtual": known.get("virtual"),
        "complete": known.get("complete"),
        "metadata": facts,
        "broken_lines": [],
        "notes": [],
    }
