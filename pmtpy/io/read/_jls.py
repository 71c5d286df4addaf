"""Reader of our own JLS files: the rows of a part, and nothing else of the file."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pmtpy._extras import extra
from pmtpy.core.markers import joined
from pmtpy.io import jls
from pmtpy.io.read import _own
from pmtpy.io.read._parts import Part
from pmtpy.io.read._recording import Recording
from pmtpy.io.read._sidecar import wrong_in

if TYPE_CHECKING:
    import pandas as pd

KIND = "pmtpy JLS"

_VALUE = 8  # bytes
_BLOCK = 1 << 19  # samples that are taken apart at once
_BLOCK_ROWS = 1 << 16  # samples that are passed on at once


def recognises(recording: Recording) -> bool:
    """Whether a file is JLS."""
    return recording.head.startswith(jls.MAGIC)


@contextlib.contextmanager
def opened(recording: Recording) -> Iterator[jls.JlsFile]:
    """Open a file; say of the recording what it says of itself."""
    with extra("pyjls", "reading JLS"):
        import pyjls  # noqa: F401  (only to see that it is there)
    recording.unit = "sample"
    with jls.JlsFile(recording.path) as file:
        wrong = wrong_in(file.facts)
        if wrong:
            raise recording.error(f"its metadata cannot be believed: {wrong}; copy it again from its source")
        recording.facts, recording.spoilt = file.facts, False
        recording.notes += file.notes
        yield file


def names(file: jls.JlsFile) -> list[str]:
    """Return the columns that it stands for, ``marker`` among them."""
    return list(file.facts["columns"])


def read(recording: Recording, part: Part) -> pd.DataFrame:
    """Read the rows of a part."""
    with opened(recording) as file:
        filled = [n for n in names(file) if n not in {"time", "marker"}]
        first, last = samples(file, part)
        most = last - first
        if part.max_rows is not None:
            most = min(most, part.max_rows)
        recording.budget.allow(most * (len(filled) + 1) * _VALUE, f"{most:,} rows of {len(filled) + 1} columns")
        columns = {n: np.full(most, 0 if n == "lost" else np.nan, np.int64 if n == "lost" else float) for n in filled}
        labels = _fill(file, columns, first, last, most)
        columns = {"time": file.start_unix_s + columns["elapsed"]} | columns
        ordered = {n: columns[n] for n in names(file) if n in columns}
    return _own.finished(recording, ordered, labels, part, KIND)


def samples(file: jls.JlsFile, part: Part) -> tuple[int, int]:
    """Return the number of the first sample of a part, and that behind its last."""
    first = file.sample_at(part.start) if part.start > 0 else 0
    return first, file.length if part.stop == math.inf else max(first, file.sample_at(part.stop))


def blocks(
    file: jls.JlsFile, begin: int, end: int
) -> Iterator[tuple[dict[str, npt.NDArray[Any]], list[tuple[int, str]], int]]:
    """Yield the rows among some samples, block after block: columns without the markers, these, the number behind."""
    for first in range(begin, end, _BLOCK_ROWS):
        last = min(end, first + _BLOCK_ROWS)
        found, marks = file.rows(first, last)
        if len(found["elapsed"]):
            found["time"] = file.start_unix_s + found["elapsed"]
            unknown = np.full(len(found["elapsed"]), np.nan)  # of columns without a single sample
            yield {n: found.get(n, unknown) for n in names(file) if n != "marker"}, list(joined(marks).items()), last


def _fill(
    file: jls.JlsFile, columns: dict[str, npt.NDArray[Any]], first: int, last: int, most: int
) -> list[tuple[int, str]]:
    """Fill columns with the rows of the samples ``first`` to ``last``, cut to their number; return their labels."""
    taken, labels = 0, list[tuple[int, str]]()
    while first < last and taken < most:
        end = min(last, first + _BLOCK, first + max(file.stride, most - taken))
        found, marks = file.rows(first, end)
        count = min(len(found["elapsed"]), most - taken)
        for name, values in found.items():
            columns[name][taken : taken + count] = values[:count]
        labels += [(taken + row, text) for row, text in joined(marks).items() if row < count]
        taken, first = taken + count, end
    for name in columns:
        columns[name] = columns[name][:taken]
    return labels
