"""Reader of the text dump of PowerSensor3's host library, relative and absolute.

Facts: ``host/src/PowerSensor.cc`` of PowerSensor3 1.4 to 1.6.1. One line per frame since 1.5: a marker character, the
time of *arrival*, microseconds since the line before, the board's time modulo 1024 us, then current, voltage and power
of each pair in use, and the total. Up to 1.4 markers were lines of their own, ``M CHAR``, before the marked frame.

Frames arrive in bursts, and relative times have six digits only, so the distance of rows is taken from the board's
time stamps, and arrival only says how many of the board's 1024 us turns went by unseen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.core.rows import Floats, Ints
from pmtpy.io.read._lines import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table

if TYPE_CHECKING:
    import pandas as pd

_UNIX_S = 1e8
_TURN_US = 1024
_BLOCK_S = 1.0  # arrival is compared with the board's time once in this span: long against a burst
_NO_MARK = "S"


def recognises(recording: Recording) -> bool:
    """Whether the first line is the header of such a dump."""
    first = recording.first_line()
    return "device_timestamp" in first.split() and "," not in first


def read(recording: Recording) -> pd.DataFrame:
    """Read a dump whose header was recognised."""
    lines = recording.lines()
    names = lines[0].decode("utf-8", "replace").split()
    if "time" not in names or len(set(names)) < len(names):
        raise recording.error(f"line 1: the header lacks a column or names one twice: {' '.join(names)}")
    inline = names[0] == "marker"
    columns = names[1:] if inline else names
    rows, at, labels, waiting = [], [], [], ""
    for number, line in enumerate(lines[1:], start=2):
        if line.startswith(b"M ") and len(line.split()) < len(names):
            waiting = _label(line)
        elif line.strip():
            char, _, rest = line.partition(b" ") if inline or line.startswith(b"S ") else (b"S", b"", line)
            text = char.decode("utf-8", "replace").replace(
                "\0", "?"
            )  # the library writes NUL for a mark without a name
            labels.append(waiting or ("" if text == _NO_MARK else text))
            rows.append(rest)
            at.append(number)
            waiting = ""
    values, kept = recording.numbers(rows, at, len(columns))
    if not len(values):
        recording.judge()
        raise recording.error("there is no row in it")
    by_line = dict(zip(at, labels, strict=True))
    marks = tuple((row, by_line[line]) for row, line in enumerate(kept) if by_line[line])
    return _table(recording, {name: values[:, i] for i, name in enumerate(columns)}, marks)


def _label(line: bytes) -> str:
    """Text of a marker line: ``M <char>``, or ``M <start> <stop> <tag> "<name>"``."""
    text = line[2:].decode("utf-8", "replace").strip()
    name = re.search(r'"(.*)"', text)
    return name.group(1) if name else text.split(maxsplit=1)[0] if text else "M"


def _table(recording: Recording, values: dict[str, Floats], marks: tuple[tuple[int, str], ...]) -> pd.DataFrame:
    arrival = values["time"]
    unix = bool(arrival[0] > _UNIX_S)
    step_us, lost = _steps(values["device_timestamp"])
    if step_us is None:
        elapsed, how = arrival - arrival[0], "arrival at the host"
    else:
        elapsed, how = _elapsed(step_us, arrival), "the board's time stamps, held to the host's clock"
    pairs = [n.removeprefix("current") for n in values if n.startswith("current")]
    powers = tuple(
        Power(f"pair{p}", values[f"power{p}"], values[f"voltage{p}"], values[f"current{p}"])
        for p in pairs
        if f"power{p}" in values and f"voltage{p}" in values
    )
    total = values["power_total"] if "power_total" in values else np.sum([p.watts for p in powers], axis=0)
    if np.shape(total) != arrival.shape:
        raise recording.error("line 1: the header names no power")
    start = arrival[0] if unix else None
    zero = "Unix time" if unix else "seconds since the start; when that was is not in the file"
    return table(
        recording,
        RecordedCurve(None if start is None else start + elapsed, elapsed, total, powers, marks, lost),
        kind="PowerSensor3 dump, " + ("absolute" if unix else "relative"),
        clock=f"{how}; {zero}",
        total="sum of the pairs in use",
    )


def _steps(stamps: Floats) -> tuple[Ints | None, Ints | None]:
    """Microseconds from row to row by the board's 10-bit time, and rows missing before each row."""
    step_us: Ints = np.mod(np.diff(stamps.astype(np.int64)), _TURN_US)
    if not len(step_us) or not step_us.any():
        return None, None
    step_us[step_us == 0] = _TURN_US
    usual = max(1.0, float(np.median(step_us)))
    lost = np.maximum(np.rint(step_us / usual).astype(np.int64) - 1, 0)
    return step_us, np.concatenate([[0], lost])


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
