"""Reader of the text dump of PowerSensor3's host library, relative and absolute.

Facts: ``host/src/PowerSensor.cc`` of PowerSensor3 1.4 to 1.6.1. One line per frame since 1.5: a marker character, the
time of *arrival*, microseconds since the line before, the board's time modulo 1024 us, then current, voltage and power
of each pair in use, and the total. Up to 1.4 markers were lines of their own, ``M CHAR``, before the marked frame.

The distance of rows is taken from the board's time stamps; the host's times say how many of the board's 1024 us turns
went by unseen. Where the microseconds since the line before agree with the stamps, they are those of the samples and
tell the turns of each row. Otherwise frames arrived in bursts, and turns show only where many rows are put together.
Relative times have six digits, so that from 100 s on they do not tell turns: the microseconds do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.io.columns import mean_powers
from pmtpy.io.read import _check
from pmtpy.io.read._delimited import FLOAT, TEXT, Columns, Kind, without_marks
from pmtpy.io.read._recording import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table

if TYPE_CHECKING:
    import pandas as pd

_TURN_US = 1024
_STAMP_LIMIT = 1e9  # no stamp is as great
_BLOCK_S = 1.0  # arrival is compared with the board's time once in this span: long against a burst
_NO_MARK = "S"
_DIGITS = 6  # of relative times
_SAME_US = 2  # two roundings
_LEAST_SHARE = 0.9  # of the rows
_CRYSTALS = 1e-4  # by so much two clocks may differ


def recognises(recording: Recording) -> bool:
    """Whether the first line is the header of such a dump."""
    first = recording.first_line()
    return "device_timestamp" in first.split() and "," not in first


def read(recording: Recording) -> pd.DataFrame:
    """Read a dump whose header was recognised."""
    names = recording.first_line().split()
    if "time" not in names:
        raise recording.error(f"line 1: the header lacks the column time: {' '.join(names)}")
    _check.names(recording, names)
    if names[0] != "marker" and recording.head.split(b"\n", 2)[1:2][0][:2] == b"S ":
        names = ["marker", *names]  # of 1.4 and older
    kinds: dict[str, Kind] = {n: TEXT if n == "marker" else FLOAT for n in names}
    columns, at, lines = without_marks(recording, kinds)
    left = _check.in_order(recording, columns["time"], at)
    stamps = columns["device_timestamp"]
    for number in at[left & ~(np.abs(stamps) < _STAMP_LIMIT)].tolist():
        recording.broken(number, "its device_timestamp is not a number of microseconds")
    left &= np.abs(stamps) < _STAMP_LIMIT
    columns, at = {n: c[left] for n, c in columns.items()}, at[left]
    if not len(at):
        raise recording.empty("there is no row in it; was anything measured?")
    return _table(recording, columns, at, _marks(columns, at, lines))


def _marks(columns: Columns, at: Ints, lines: list[tuple[int, bytes]]) -> tuple[tuple[int, str], ...]:
    """Return the marked rows with their labels: by their first field, or by the line of a marker before them."""
    found: dict[int, str] = {}
    if "marker" in columns:  # the library writes NUL for a mark without a name
        found = {i: str(c).replace("\0", "?") for i, c in enumerate(columns["marker"]) if c != _NO_MARK}
    for number, line in lines:
        row = int(np.searchsorted(at, number))
        if row < len(at):
            found[row] = _label(line)
    return tuple(sorted(found.items()))


def _label(line: bytes) -> str:
    """Text of a marker line: ``M <char>``, or ``M <start> <stop> <tag> "<name>"``."""
    text = line[2:].decode("utf-8", "replace").strip()
    name = re.search(r'"(.*)"', text)
    return name.group(1) if name else text.split(maxsplit=1)[0] if text else "M"


def _table(recording: Recording, values: Columns, at: Ints, marks: tuple[tuple[int, str], ...]) -> pd.DataFrame:
    arrival = values["time"]
    unix = bool(arrival[0] > _check.UNIX_S)
    step_us = _steps(values["device_timestamp"])
    host_us = None if step_us is None else _host_us(recording, values, step_us, at, unix=unix)
    if step_us is None:
        elapsed, how = arrival - arrival[0], "arrival at the host"
    elif host_us is None:
        step_us[step_us == 0] = _TURN_US
        elapsed, how = _elapsed(step_us, arrival), "the board's time stamps, held to the host's clock"
        _note_unseen(recording, step_us, arrival)
    else:
        step_us = np.maximum(step_us + _TURN_US * np.rint((host_us - step_us) / _TURN_US).astype(np.int64), 0)
        elapsed = np.concatenate([[0], np.cumsum(step_us)]) / 1e6
        how = "the board's time stamps, their turns counted by the host's times"
    lost = None if step_us is None else _lost(step_us)
    _hold_lost(recording, lost)
    means = mean_powers(recording.facts or {})
    numbers = [n.removeprefix("current") for n in values if n.startswith("current")]
    powers = tuple(
        Power(f"pair{p}", values[f"power{p}"], values[f"voltage{p}"], values[f"current{p}"], mean=bool(means))
        for p in numbers
        if f"power{p}" in values and f"voltage{p}" in values
    )
    if not powers:
        raise recording.error("line 1: the header names no pair with current, voltage and power; correct the header")
    total = values["power_total"] if "power_total" in values else np.sum([p.watts for p in powers], axis=0)
    _check.sums(recording, "power_total", total, [p.watts for p in powers], at)
    start = arrival[0] if unix else None
    zero = "Unix time" if unix else "seconds since the start; when that was is not in the file"
    return table(
        recording,
        RecordedCurve(
            None if start is None else start + elapsed,
            elapsed,
            at,
            Power("power_total", total, mean=bool(means)),
            powers,
            marks,
            lost,
        ),
        kind="PowerSensor3 dump, " + ("absolute" if unix else "relative"),
        clock=f"{how}; {zero}",
        total="sum of the pairs in use",
    )


def _steps(stamps: Floats) -> Ints | None:
    """Microseconds from row to row by the board's 10-bit time, less whole turns; None if it stands still."""
    step_us: Ints = np.mod(np.diff(stamps.astype(np.int64)), _TURN_US)
    return step_us if step_us.any() else None


def _lost(step_us: Ints) -> Ints:
    """Rows missing before each row."""
    usual = max(1.0, float(np.median(step_us)))
    lost = np.maximum(np.rint(step_us / usual).astype(np.int64) - 1, 0)
    return np.concatenate([[0], lost])


def _host_us(recording: Recording, values: Columns, step_us: Ints, at: Ints, *, unix: bool) -> Floats | None:
    """Microseconds from row to row by the host, where its times are those of samples; None if they are of bursts.

    They are the microseconds since the line before; the times, where these say otherwise (a line was taken out) and
    have digits enough to tell.
    """
    since_us = values.get("dt_micro")
    if since_us is None:
        return None
    since_us = since_us[1:]
    off = np.mod(since_us - step_us + _TURN_US / 2, _TURN_US) - _TURN_US / 2
    if not np.mean(np.abs(off) <= _SAME_US) >= _LEAST_SHARE:
        return None
    time = values["time"]
    digit_us = np.ones(len(step_us))
    if not unix:
        size = np.floor(np.log10(np.maximum(np.abs(time[1:]), 1.0)))
        digit_us = 10.0 ** (size + 7 - _DIGITS)
    coarse = np.flatnonzero(digit_us > _TURN_US / 2)
    if len(coarse):
        recording.notes.append(
            f"line {at[coarse[0] + 1]} and later: the times have {_DIGITS} digits, which are steps of"
            f" {digit_us[coarse[0]] / 1e6:g} s and more; gaps are told by dt_micro alone, and lines that were taken out"
            " do not show; absolute times have all digits"
        )
    by_time_us = np.diff(time) * 1e6
    differ = ~(np.abs(by_time_us - since_us) <= _TURN_US / 2 + digit_us)
    return np.where(differ, by_time_us, since_us)


def _note_unseen(recording: Recording, step_us: Ints, arrival: Floats) -> None:
    """Note that turns went by unseen between bursts: it is not known between which rows."""
    board = np.concatenate([[0], np.cumsum(step_us)]) / 1e6
    behind = (arrival - arrival[0]) - board
    third = len(behind) // 3
    if not third:
        return
    ahead = float(behind[-third:].min() - behind[:third].min())
    if ahead > max(_TURN_US / 2e6, _CRYSTALS * float(arrival[-1] - arrival[0])):
        recording.notes.append(
            f"by the host's clock it is {ahead:.4f} s longer than by the board's time stamps: rows were lost that are"
            " not in the column lost, and where is not known, because frames arrived in bursts"
        )


def _hold_lost(recording: Recording, lost: Ints | None) -> None:
    """Hold the rows that are missing by their times against the count that was written."""
    written, found = (recording.facts or {}).get("lost"), 0 if lost is None else int(lost.sum())
    if type(written) is int and written != found:
        recording.notes.append(
            f"{amount(written, 'row was', 'rows were')} lost by its metadata, {found} by the times of its rows: "
            "what was lost before the"
            " first or after the last row, or within one interval, has no place in it"
        )


def _elapsed(step_us: Ints, arrival: Floats) -> Floats:
    """Seconds since the first row: the board's steps, with turns that went by unseen added from arrival times.

    Arrival is never early, so the least delay in each block of rows tells how far the board's time has fallen behind;
    between blocks that is interpolated.
    """
    board = np.concatenate([[0], np.cumsum(step_us)]) / 1e6
    behind = (arrival - arrival[0]) - board
    rows = max(1, round(_BLOCK_S / max(float(np.median(step_us)) / 1e6, 1e-6)))
    starts = np.arange(0, len(board), rows)
    if len(starts) < 3:  # too short for turns to matter
        return board
    least = np.minimum.reduceat(behind, starts)
    middle = board[np.minimum(starts + rows // 2, len(board) - 1)]
    elapsed = board + np.interp(board, middle, least)
    return np.asarray(np.maximum.accumulate(elapsed - elapsed[0]), np.float64)
