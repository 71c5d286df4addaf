"""Reader of ``nvidia-smi --query-gpu=timestamp,power.draw,... --format=csv`` logs, with and without units.

Facts: the query help of nvidia-smi (``nvidia-smi --help-query-gpu``) and logs of it. Fields are separated by a comma
and a blank; units stand in the header and, without ``nounits``, behind each value. Time stamps are local wall time
without a zone. A field that a card cannot answer is text in square brackets. Several GPUs take turns, row by row; a row
may be missing, so they are paired by the field that names the GPU, and by time. A log that was appended to (``>>``) has
its header again where the next run begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.io.read import _check
from pmtpy.io.read._delimited import TEXT, Columns, Delimited, joined
from pmtpy.io.read._recording import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table
from pmtpy.io.read._wall_time import unix_times

if TYPE_CHECKING:
    import pandas as pd

LOG = "nvidia-smi log"  # what recordings of this kind are called
_HEAD = re.compile(r"([\w.]+)(?:\s*\[(.+)\])?")
_NOT_THERE = re.compile(r"\[.*\]|N/A|ERR!|Not Supported|")
_TIME = "%Y/%m/%d %H:%M:%S.%f"
_OTHER_WRITING = str.maketrans({"-": "/", "T": " "})  # of the same: ISO 8601
_WHOLE_SECONDS = re.compile(r"\d{4}[/-]\d\d?[/-]\d\d?[ T]\d\d?:\d\d:\d\d")
_UNITS = {  # nvidia-smi's unit: ours, and how many of ours it is
    "W": ("W", 1.0),
    "mW": ("W", 1e-3),
    "MHz": ("Hz", 1e6),
    "%": ("percent", 1.0),
    "MiB": ("B", 2.0**20),
    "C": ("C", 1.0),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
}
# What says which GPU a row is of, the most lasting first: a card that falls off the bus, or a start of the machine,
# gives the others another index. (Cards for homes have no serial number.)
_WHICH_GPU = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index", "serial", "gpu_serial")
_BEST = ("power.draw.instant", "power.draw", "power.draw.average")  # as the total: the fastest first
_ONE_ROUND = 0.2  # of the time between rounds: rows closer than this are of one round
_MOST_CLOSE = 0.4  # of the rows, in the log of one GPU


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of the query: its values in SI, or text."""

    name: str
    suffix: str
    values: npt.NDArray[Any]

    @property
    def is_power(self) -> bool:
        """Whether it is a power of the card."""
        return self.suffix == "W" and "power.draw" in self.name


@dataclass(frozen=True, slots=True)
class _Log:
    """The rows of a log: Unix times, lines, whose clock it is, and the fields."""

    times: Floats
    lines: Ints
    clock: str
    fields: list[_Field]
    begins: list[int]  # lines at which other runs begin


def recognises(recording: Recording) -> bool:
    """Whether the first line is the header of such a log."""
    fields = [f.strip() for f in recording.first_line().split(",")]
    return len(fields) > 1 and any("power.draw" in f for f in fields)


def read(recording: Recording) -> pd.DataFrame:
    """Read a log whose header was recognised."""
    heads = [f.strip() for f in recording.first_line().split(",")]
    _check.names(recording, heads)
    if "timestamp" not in heads:
        raise recording.error("the log has no timestamp field; query it with --query-gpu=timestamp,...")
    kinds = dict.fromkeys(heads, TEXT)
    reader, begins = Delimited(recording, kinds, ","), list[int]()
    parts = [reader.numbered(*_rows(recording, heads, number, block, begins)) for number, block in reader.blocks()]
    text, at = joined(parts, kinds)
    text = {n: np.array([str(v).strip() for v in c], object) for n, c in text.items()}
    fields, naive, left = _values(recording, text, at)
    naive, at = naive[left], at[left]
    if not len(at):
        raise recording.empty("there is no row in it; was nvidia-smi stopped at once?")
    times, clock = unix_times(recording, naive, at, recording.utc_offset_s)
    which = next((text[n][left] for n in _WHICH_GPU if n in text), None)
    rounds = _rounds(recording, times, at, which, text["index"][left] if "index" in text else which)
    log = _Log(times, at, clock, [_Field(f.name, f.suffix, f.values[left]) for f in fields], begins)
    return _table(recording, log, rounds)


def _rows(recording: Recording, heads: list[str], number: int, block: bytes, begins: list[int]) -> tuple[bytes, Ints]:
    """Return the rows of some lines, the first of which has a number, and their numbers, without headers of other runs.

    Raises FileFormatError: another run has other fields.
    """
    numbers = np.arange(number, number + block.count(b"\n"))
    if b"power.draw" not in block:
        return block, numbers
    lines = block[:-1].split(b"\n")
    again = [i for i, line in enumerate(lines) if b"power.draw" in line]
    for i in again:
        if [f.strip() for f in lines[i].decode("utf-8", "replace").split(",")] != heads:
            why = f"line {number + i} is another header: a log with other fields was appended to this one"
            raise recording.error(f"{why}; take them apart there: head -n {number + i - 1}, tail -n +{number + i}")
    begins += [number + i for i in again]
    rows = [line for i, line in enumerate(lines) if i not in set(again)]
    return b"".join(line + b"\n" for line in rows), np.delete(numbers, again)


def _wall_times(recording: Recording, column: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return time stamps as if they were Unix seconds, and which of them are ones.

    Raises FileFormatError: most are written in another way, which does not tell the time.
    """
    import pandas as pd

    stamps = pd.to_datetime(pd.Series(column, dtype=object), format=_TIME, errors="coerce")
    if stamps.isna().any():
        texts = [text.translate(_OTHER_WRITING) for text in column.tolist()]
        stamps = pd.to_datetime(pd.Series(texts, dtype=object), format=_TIME, errors="coerce")
    good = ~stamps.isna().to_numpy()
    if good.sum() < len(good) / 2:
        shown = str(column[~good][0])
        found = f"times are written as {shown!r}, and nvidia-smi writes 2026/03/05 12:00:00.123"
        cure = "another program has saved it; take the log as it was recorded"
        if _WHOLE_SECONDS.fullmatch(shown):
            cure += "; if there is no other, put .500 behind each time: half a second is then open at every edge"
        else:
            cure += ", or write its times so (nothing tells 3/5 from 5/3)"
        raise recording.error(f"{found}; {cure}")
    return stamps.to_numpy("datetime64[us]").astype(np.int64) / 1e6, good


def _values(recording: Recording, text: Columns, at: Ints) -> tuple[list[_Field], Floats, npt.NDArray[np.bool_]]:
    """Return the fields in SI, the wall times, and which rows can be read; the others are reported."""
    naive, good = _wall_times(recording, text["timestamp"])
    why = dict.fromkeys(np.flatnonzero(~good).tolist(), "a field is neither a time nor a number: timestamp")
    fields = []
    for head, column in text.items():
        match = _HEAD.fullmatch(head)
        if head == "timestamp" or match is None:
            continue
        name, unit = match.group(1), match.group(2)
        if unit is None and "power.draw" in head:
            unit = "W"  # of a header that was written by hand; nvidia-smi knows no other
        if unit is None and head.startswith("temperature"):
            unit = "C"
        if unit is None:
            fields.append(_Field(name, "", _bare(column)))
            continue
        if unit not in _UNITS and "power.draw" in head:
            raise recording.error(f"line 1: {name} is in {unit!r}, not a unit of nvidia-smi; write W or mW there")
        suffix, factor = _UNITS.get(unit, (unit, 1.0))
        values, wrong = _numbers(column, unit)
        why |= {
            row: f"a field is neither a number of {unit} nor marked as missing: {name}" for row in wrong if good[row]
        }
        fields.append(_Field(name, suffix, values * factor))
    for row, reason in sorted(why.items()):
        recording.broken(int(at[row]), reason)
    good[list(why)] = False
    return fields, naive, good


def _numbers(column: npt.NDArray[Any], unit: str) -> tuple[Floats, list[int]]:
    """Return numbers that may have their unit behind them; NaN where there is none; and rows that are neither."""
    values, wrong = np.full(len(column), np.nan), []
    for row, text in enumerate(column.tolist()):
        number, _, behind = text.partition(" ")
        try:
            values[row] = float(number)
            known = behind.strip() in {"", unit} and "_" not in number
        except ValueError:
            known = _NOT_THERE.fullmatch(text) is not None
        if not known:
            wrong.append(row)
    return values, wrong


def _bare(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a field without a unit: as numbers if all are, else as text."""
    try:
        return np.array([float(text) for text in column.tolist()])
    except ValueError:
        return column


def _rounds(
    recording: Recording,
    times: Floats,
    at: Ints,
    which: npt.NDArray[Any] | None,
    listed: npt.NDArray[Any] | None,
) -> dict[str, Ints]:
    """Return for each GPU its row in each round of the log, -1 where it has none. The name is empty for a single GPU.

    The GPUs of a round come in one order, that of what is ``listed``, and close together. So a round ends where the
    order does, or where the next row is nearer to the next round.
    """
    names = [] if which is None else list(dict.fromkeys(which.tolist()))
    if len(names) < 2:
        if which is None:
            _refuse_several(recording, times)
        return {"": np.arange(len(times))}
    assert which is not None and listed is not None  # noqa: S101, PT018  (there are names)
    card, order = _places(which), _places(listed)
    limit = _reach(times, order)
    starts, seen = [0], 0.0
    for row in range(1, len(times)):
        seen = times[starts[-1]]
        if order[row] <= order[row - 1] or not 0 <= times[row] - seen <= limit:
            starts.append(row)
    number = np.zeros(len(times), np.int64)
    number[starts[1:]] = 1
    number = np.cumsum(number)
    rounds: Ints = np.full((len(names), len(starts)), -1)
    rounds[card, number] = np.arange(len(times))
    missing = (rounds < 0).any(axis=0)
    if missing.any():
        first, others = int(np.flatnonzero(missing)[0]), int(missing.sum()) - 1
        more = f" (and {amount(others, 'more round')})" if others else ""
        recording.notes.append(f"line {at[rounds[:, first].max()]}{more}: not every GPU has a row")
    return dict(zip(_called(recording, at, which, listed), rounds, strict=True))


def _places(names: npt.NDArray[Any]) -> Ints:
    """Return at which place each name came first among all names."""
    place = {name: i for i, name in enumerate(dict.fromkeys(names.tolist()))}
    return np.array([place[name] for name in names.tolist()])


def _called(recording: Recording, at: Ints, which: npt.NDArray[Any], listed: npt.NDArray[Any]) -> list[str]:
    """Return what the columns of each GPU begin with: its index where it was first listed, if no other had that."""
    first: dict[str, str] = {}
    for name, shown, line in zip(which.tolist(), listed.tolist(), at.tolist(), strict=True):
        if first.setdefault(name, shown) != shown:
            recording.notes.append(
                f"line {line}: {name}, until then listed as {first[name]}, is listed as {shown}: the GPUs were"
                " numbered anew; columns keep to the card"
            )
            break
    numbers = list(first.values())
    own = len(set(numbers)) == len(numbers)
    return [f"gpu{n if own and n.isdigit() else i}." for i, n in enumerate(numbers)]


def _reach(times: Floats, order: Ints) -> float:
    """Return the longest time from the first to the last row of a round: half-way from what is usual to the next."""
    fresh = np.flatnonzero(np.concatenate([[True], np.diff(order) <= 0]))
    lasts = np.concatenate([fresh[1:] - 1, [len(times) - 1]])
    usual = float(np.median(times[lasts] - times[fresh]))
    between = np.diff(times[fresh])
    return (usual + float(np.median(between))) / 2 if len(between) else np.inf


def _refuse_several(recording: Recording, times: Floats) -> None:
    """Refuse the log of several GPUs that does not say which row is of which: their rows would pass for one's.

    Raises FileFormatError: it says how to query.
    """
    steps = np.abs(np.diff(times))
    if len(steps) < 2:
        return
    close = float((steps < _ONE_ROUND * np.quantile(steps, 0.9)).mean())
    if close > _MOST_CLOSE:
        why = "rows come in rounds, as of several GPUs, and no field says of which"
        raise recording.error(f"{why}; query it with --query-gpu=index,timestamp,..., or log one GPU with --id=0")


def _table(recording: Recording, log: _Log, rounds: dict[str, Ints]) -> pd.DataFrame:
    every = np.stack(list(rounds.values()))
    first = np.where(every >= 0, every, np.iinfo(np.int64).max).min(axis=0)
    time, lines = log.times[first], log.lines[first]
    elapsed, unknown = _check.wall_clock(recording, time, lines)
    for begin in log.begins:
        row = int(np.searchsorted(lines, begin))
        if 0 < row < len(lines):
            unknown[row] = True
            recording.notes.append(f"line {begin}: the header again: another run begins; the time before has no energy")
    powers: list[Power] = []
    others: dict[str, npt.NDArray[Any]] = {}
    chosen: list[Power] = []
    for prefix, rows in rounds.items():
        mine = []
        for field in log.fields:
            values = _picked(field.values, rows)
            if field.is_power:
                mine.append(Power(prefix + field.name, np.asarray(values, np.float64)))
            else:
                others[prefix + field.name + (f"_{field.suffix}" if field.suffix else "")] = values
        if not mine:
            raise recording.error("line 1: no power.draw field is in watts; query power.draw")
        powers += mine
        chosen.append(_total(mine, prefix))
    return table(
        recording,
        RecordedCurve(
            time,
            elapsed,
            lines,
            Power("total", np.sum([p.watts for p in chosen], axis=0)),
            tuple(powers),
            unknown=unknown,
            others=others,
        ),
        kind=LOG,
        clock=log.clock,
        total=" + ".join(p.name for p in chosen),
    )


def _picked(values: npt.NDArray[Any], rows: Ints) -> npt.NDArray[Any]:
    """Return the values of some rows; where there is no row, NaN or no text."""
    picked: npt.NDArray[Any] = values[np.maximum(rows, 0)].copy()
    if (rows < 0).any():
        picked[rows < 0] = np.nan if picked.dtype.kind == "f" else ""
    return picked


def _total(powers: list[Power], prefix: str) -> Power:
    """Choose the power of the card itself, the fastest that has values."""
    by_name = {p.name.removeprefix(prefix): p for p in powers}
    candidates = [by_name[n] for n in _BEST if n in by_name] + powers
    return next((p for p in candidates if np.isfinite(p.watts).any()), candidates[0])
