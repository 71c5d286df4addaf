"""Logs in which applications tell when they did how much: fio's logs, and any CSV with times.

fio (documentation, "Log File Formats"): time in ms, value, direction (0 read, 1 write, 2 trim), size in bytes, and
more. Each direction is told on its own, whenever its requests end.
With ``log_avg_msec`` a line tells of a stretch of time: its size is 0, and its value is KiB/s in a log of
bandwidth (``_bw``) alone. Without, each line is one request, whatever its value is: its size is what was done.
With ``log_unix_epoch=1`` the time is Unix time, else since the job began.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.analysis.procedures.work import MIXED
from pmtpy.core.rows import Floats
from pmtpy.errors import FileFormatError, TargetError

if TYPE_CHECKING:
    import pandas as pd

_UNIX_FROM_S = 1e9  # a smaller time counts from the beginning of the job
_KIB, _GB = 1024.0, 1e9
_DIRECTIONS = {"0": "read", "1": "write", "2": "trim"}
_TIMES, _AMOUNTS = ("time", "timestamp", "time_s", "elapsed"), ("bytes", "amount", "count", "items")
_NO_BANDWIDTH = re.compile(r"_(iops|[cs]?lat)[._]")  # fio's other logs, which look alike
# A tenth, to a rounding: single requests are taken together for so long, since readings of power are no finer.
_REQUESTS_S = 0.0999
_DIGITS = 3  # fio tells milliseconds
_MIN_AMOUNTS = 10  # amounts, from which on it is told that they only rise
_KINDS = ("size", "request_size", "block_size", "kind", "name")


@dataclass(frozen=True, slots=True)
class WorkLog:
    """Windows of work."""

    # starts_s, ends_s, amounts: shape (n,); in Unix seconds, or since the job began; the work in ``unit``
    starts_s: Floats
    ends_s: Floats
    amounts: Floats
    kinds: tuple[str, ...]
    unit: str
    absolute: bool  # the times are Unix time
    notes: tuple[str, ...] = ()  # what a reader must know, in whole sentences


_Entry = tuple[float, float, str]  # time in s, amount, kind


@dataclass(frozen=True, slots=True)
class _Entries:
    """What the lines of a log say."""

    rows: list[_Entry]
    unit: str
    rates: bool = False  # amounts are for each second since the line before of their kind
    requests: bool = False  # each line is a single one


def read_work_log(path: Path) -> WorkLog:
    """Read a log.

    Raises TargetError: there is no such file, or it cannot be opened.
    Raises FileFormatError: it is neither fio's nor a CSV with times and amounts; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise TargetError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{path} cannot be read: {error}"
        raise FileFormatError(msg) from error
    lines = [line for line in text.splitlines() if line.strip()]
    notes = []
    if lines and not text.endswith("\n"):
        notes.append("its last line has no end, so it may be cut: it is left out")
        del lines[-1]
    if len(lines) < 2:
        msg = f"{path} holds too few lines for a log of work: {len(lines)}"
        raise FileFormatError(msg)
    numbers = lines[0].replace(" ", "").split(",")
    fio = len(numbers) >= 3 and all(n.isdigit() for n in numbers[:4])
    found = _windows(path, _fio(path, lines) if fio else _table(path, lines))
    return replace(found, notes=(*notes, *found.notes))


def _fio(path: Path, lines: Sequence[str]) -> _Entries:
    """Read fio's lines; amounts are gigabytes."""
    found, sizes = [], []
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split(",")]
        try:
            at_s, rate, size = int(fields[0]) / 1e3, int(fields[1]) * _KIB / _GB, int(fields[3])
            direction = _DIRECTIONS[fields[2]]
        except (ValueError, IndexError, KeyError) as error:
            msg = f"{path}, line {number}: it is not fio's TIME, KIB/S, DIRECTION, SIZE: {line!r}"
            raise FileFormatError(msg) from error
        sizes.append(size)
        found.append((at_s, size / _GB if size else rate, f"{direction} {_size(size)}".strip()))
    if all(sizes):
        return _Entries(found, "GB", requests=True)
    if any(sizes):
        msg = f"{path} has lines with a size and lines without: of single requests, or with log_avg_msec, but not both"
        raise FileFormatError(msg)
    if other := _NO_BANDWIDTH.search(path.name):
        msg = f"{path} is fio's log of {other[1]}, which does not say how much was done: give that of bandwidth (_bw)"
        raise FileFormatError(msg)
    return _Entries(found, "GB", rates=True)


def _size(size: int) -> str:
    if not size:
        return ""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def _table(path: Path, lines: Sequence[str]) -> _Entries:
    """Read the rows of a CSV."""
    reader = csv.DictReader(lines)
    names = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = names
    time = next((name for name in _TIMES if name in names), None)
    amount = next((name for name in _AMOUNTS if name in names), None)
    kind = next((name for name in _KINDS if name in names), None)
    if time is None or amount is None:
        msg = f"{path}: a log of work has a column {' or '.join(_TIMES)} (seconds) and one of {', '.join(_AMOUNTS)}"
        raise FileFormatError(msg)
    scale = _GB if amount == "bytes" else 1.0
    found = []
    for number, row in enumerate(reader, 2):
        try:
            at_s, done = float(row[time]), float(row[amount])
        except (TypeError, ValueError):
            at_s = done = math.nan
        if not (math.isfinite(at_s) and 0.0 <= done < math.inf):
            msg = f"{path}, line {number}: {time} must be a number, and {amount} one of 0 or more"
            raise FileFormatError(msg)
        found.append((at_s, done / scale, (row[kind] or "") if kind else "all"))
    return _Entries(found, "GB" if amount == "bytes" else amount.removesuffix("s"))


def _windows(path: Path, entries: _Entries) -> WorkLog:
    before: _Entry = (-math.inf, 0.0, "")
    same = 0
    for number, entry in enumerate(entries.rows, 1):
        if entry[0] < before[0]:
            msg = f"{path}, entry {number}: time goes back"
            raise FileFormatError(msg)
        same += (entry[0], entry[2]) == (before[0], before[2])
        before = entry
    absolute = entries.rows[0][0] > _UNIX_FROM_S
    times = sorted({time_s for time_s, _, _ in entries.rows} | (set() if absolute else {0.0}))
    if len(times) < 2:
        msg = f"{path}: all entries have the same time"
        raise FileFormatError(msg)
    starts, ends, amounts, kinds = _at_rates(entries.rows, times) if entries.rates else _since_before(entries, times)
    return WorkLog(starts, ends, amounts, kinds, entries.unit, absolute, tuple(_notes(entries, same)))


_Found = tuple[Floats, Floats, Floats, tuple[str, ...]]  # starts and ends in s, amounts, kinds


def _since_before(entries: _Entries, times: Sequence[float]) -> _Found:
    """Make windows between successive times; of one instant all lines together, since one energy is spent on them."""
    at: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for time_s, amount, kind in entries.rows:
        at[time_s].append((amount, kind))
    found, kinds = [], []
    for group in _together(times, _REQUESTS_S if entries.requests else 0.0):
        done = [one for time_s in group[1:] for one in at[time_s]]
        names = {name for _, name in done}
        found.append((group[0], group[-1], math.fsum(amount for amount, _ in done)))
        kinds.append(names.pop() if len(names) == 1 else MIXED)
    starts, ends, amounts = np.array(found, np.float64).T
    return starts, ends, amounts, tuple(kinds)


def _at_rates(rows: Sequence[_Entry], times: Sequence[float]) -> _Found:
    """Cut the time where any line's interval ends; what goes on at once is done together.

    A line is the mean since the line before of its direction. Where that one is much further away than lines usually
    are there was a pause, and where it is nearer another job tells beside it: fio averages over equal times.
    """
    ends = np.array([time_s for time_s, _, _ in rows])
    rates, kinds = np.array([rate for _, rate, _ in rows]), np.array([kind for _, _, kind in rows], object)
    names: list[str] = list(dict.fromkeys(kinds))
    steps: Floats = np.sort(np.concatenate([np.diff(ends[kinds == name]) for name in names]))
    if not steps.any():
        steps = np.sort(np.diff(times))
    usual_s = float(steps[np.searchsorted(np.cumsum(steps), steps.sum() / 2.0)])  # half of the time is in longer ones
    starts = ends - usual_s
    for name in names:
        (mine,) = np.nonzero(kinds == name)
        follows = np.abs(np.diff(ends[mine]) - usual_s) <= usual_s / 2.0
        starts[mine[1:][follows]] = ends[mine[:-1][follows]]
    starts = np.asarray(np.round(np.maximum(starts, 0.0), _DIGITS), np.float64)
    edges = np.unique(np.concatenate([starts, ends]))
    cells = [np.searchsorted(edges, at) for at in (starts, ends)]

    def sums(of: Floats) -> Floats:
        """Sum in each cell what lines have whose intervals it lies in."""
        begun, ended = (np.bincount(at, of, len(edges)) for at in cells)
        return np.asarray(np.cumsum(begun - ended)[:-1], np.float64)

    works = np.array([sums((kinds == name) & (rates > 0.0)) > 0.0 for name in names])
    amounts = np.where(works.any(axis=0), sums(rates), 0.0) * np.diff(edges)  # sums come back to 0 but for rounding
    told = sums(np.ones(len(rows))) > 0.0
    alone = np.array(names, object)[np.argmax(works, axis=0)]
    called = np.where(works.sum(axis=0) > 1, MIXED, alone)
    return edges[:-1][told], edges[1:][told], amounts[told], tuple(called[told])


def _together(times: Sequence[float], least_s: float) -> Iterator[Sequence[float]]:
    """Cut times into stretches that begin where the one before ends and last ``least_s`` and more, but for the last."""
    first = 0
    for i in range(1, len(times)):
        if times[i] - times[first] >= least_s or i == len(times) - 1:
            yield times[first : i + 1]
            first = i


def _notes(entries: _Entries, same: int) -> list[str]:
    if entries.requests:
        return ["each line is taken for one request of its size, not for a bandwidth, since fio did not average"]
    notes = []
    if same:
        notes.append(
            f"entries with time and kind of the one before ({same}) are taken for work side by side, not copies"
        )
    amounts = [amount for _, amount, _ in entries.rows]
    if not entries.rates and len(amounts) >= _MIN_AMOUNTS and all(a < b for a, b in pairwise(amounts)):
        notes.append("amounts rise from each entry to the next: asked for is what was done since the one before")
    return notes


def begin_of(table: pd.DataFrame, label: str | None, *, absolute: bool) -> float:
    """Return what is added to a log's times: 0 for Unix time, else when the work began by the recording's elapsed time.

    Raises TargetError: there is no such marker, or one is given although the log tells Unix time.
    """
    if absolute:
        if label is not None:
            msg = "the log has Unix times already: leave --begin out"
            raise TargetError(msg)
        return 0.0
    if label is None:
        return 0.0
    marks = table["marker"].fillna("").astype(str).str.split(";")
    rows = [i for i, labels in enumerate(marks) if label in labels]
    if not rows:
        msg = f"the recording has no marker {label!r}"
        raise TargetError(msg)
    return float(table["elapsed"].iloc[rows[0]])
