"""Logs in which applications tell when they did how much: fio's bandwidth log, and any CSV with times.

fio (``write_bw_log``, documentation, "Log File Formats"): time in ms, KiB/s, direction (0 read, 1 write, 2 trim), block
size in bytes (0 where averaged), and more. With ``log_unix_epoch=1`` the time is Unix time, else since the job
began.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from pmtpy.analysis.procedures.work import MIXED
from pmtpy.core.rows import Floats
from pmtpy.errors import FileFormatError

_UNIX_FROM_S = 1e9  # a smaller time counts from the beginning of the job
_KIB, _GB = 1024.0, 1e9
_DIRECTIONS = {"0": "read", "1": "write", "2": "trim"}
_TIMES, _AMOUNTS = ("time", "timestamp", "time_s", "elapsed"), ("bytes", "amount", "count", "items")
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


def read_work_log(path: Path) -> WorkLog:
    """Read a log.

    Raises FileFormatError: it is neither fio's nor a CSV with times and amounts; the message names the line.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise FileFormatError(msg) from error
    if len(lines) < 2:
        msg = f"{path} holds {len(lines)} lines: too few for a log of work"
        raise FileFormatError(msg)
    numbers = lines[0].replace(" ", "").split(",")
    rows = _fio(path, lines) if len(numbers) >= 3 and all(n.isdigit() for n in numbers) else _table(path, lines)
    return _windows(path, *rows)


def _fio(path: Path, lines: Sequence[str]) -> tuple[list[tuple[float, float, str]], str, bool]:
    """Return (time, amount per second, kind) of each line; amounts are gigabytes."""
    found = []
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split(",")]
        try:
            at_s, rate, size = float(fields[0]) / 1e3, float(fields[1]) * _KIB / _GB, int(fields[3])
            direction = _DIRECTIONS[fields[2]]
        except (ValueError, IndexError, KeyError) as error:
            msg = f"{path}, line {number}: it is not fio's TIME, KIB/S, DIRECTION, SIZE: {line!r}"
            raise FileFormatError(msg) from error
        found.append((at_s, rate, f"{direction} {_size(size)}".strip()))
    return found, "GB", True


def _size(size: int) -> str:
    if not size:
        return ""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def _table(path: Path, lines: Sequence[str]) -> tuple[list[tuple[float, float, str]], str, bool]:
    """Return (time, amount, kind) of each row of a CSV."""
    reader = csv.DictReader(lines)
    names = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = names
    time = next((name for name in _TIMES if name in names), None)
    amount = next((name for name in _AMOUNTS if name in names), None)
    kind = next((name for name in _KINDS if name in names), None)
    if time is None or amount is None:
        msg = f"{path}: a log of work has a column {' or '.join(_TIMES)} (seconds) and one of {', '.join(_AMOUNTS)}"
        raise FileFormatError(msg)
    found = []
    for number, row in enumerate(reader, 2):
        try:
            found.append(
                (
                    float(row[time]),
                    float(row[amount]) / (_GB if amount == "bytes" else 1.0),
                    row[kind] if kind else "all",
                )
            )
        except (TypeError, ValueError) as error:  # noqa: PERF203  (the line is told)
            msg = f"{path}, line {number}: {time} and {amount} must be numbers"
            raise FileFormatError(msg) from error
    return found, "GB" if amount == "bytes" else amount.removesuffix("s"), False


def _windows(path: Path, rows: list[tuple[float, float, str]], unit: str, rates: bool) -> WorkLog:  # noqa: FBT001
    """Make windows between successive times; of one instant all lines together, since one energy is spent on them."""
    at: dict[float, list[tuple[float, str]]] = defaultdict(list)
    last = -np.inf
    for number, (time_s, amount, kind) in enumerate(rows, 1):
        if time_s < last:
            msg = f"{path}, entry {number}: time goes back"
            raise FileFormatError(msg)
        last = time_s
        at[time_s].append((amount, kind))
    times = list(at)
    absolute = times[0] > _UNIX_FROM_S
    if not absolute and times[0] > 0:
        times = [0.0, *times]
    starts, ends, amounts, kinds = [], [], [], []
    for begin, end in pairwise(times):
        entries = at[end]
        names = {name for _, name in entries}
        starts.append(begin)
        ends.append(end)
        amounts.append(sum(amount for amount, _ in entries) * (end - begin if rates else 1.0))
        kinds.append(names.pop() if len(names) == 1 else MIXED)
    if not starts:
        msg = f"{path}: all entries have the same time"
        raise FileFormatError(msg)
    return WorkLog(np.array(starts), np.array(ends), np.array(amounts), tuple(kinds), unit, absolute)
