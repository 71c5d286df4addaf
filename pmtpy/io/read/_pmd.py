"""Reader of ElmorLabs PMD recordings, and of the load time stamps that belong to them.

Facts: Yang, Adamek, Armour, GitHub ``JimZeyuYang/GPU_Power_Benchmark``, and their recordings. Records of nine
little-endian ``uint16``: a tick count and four pairs of voltage and current, 12-bit codes in the upper bits, 7.568 mV
and 48.8 mA a code. Codes are signed: their authors clamp negatives to 0, which gives an idle pair 0.6 W too much, and
scale the voltage of the third pair by 7.5 mV, a slip; neither is done here. The tick turns over every
22 ms. The streaming was noted 50 ms after its first sample, in ``PMD_start_ts.txt`` beside the recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats, Ints
from pmtpy.io.read import _check
from pmtpy.io.read._delimited import FLOAT, Columns, Delimited, Gathering
from pmtpy.io.read._recording import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table

if TYPE_CHECKING:
    import pandas as pd

METER, STAMPS = "PMD recording", "load time stamps"  # what recordings of these two kinds are called
_RECORD = 18  # bytes
_NAMES = ("pair1", "pair2", "pair3", "pair4")  # of voltage and current in a record
# Named in the scripts of Yang et al. (others there: 2933.5, 2938), and in the middle of what fits to the loads of their
# sessions give: 2933.26 and 2936.10. As of the live meter, ``backends.pmd``.
_TICKS_PER_MS = 2934.5
_VOLTS, _AMPERES = 0.007568, 0.0488  # per code
_START_DELAY_S = 0.05
_JITTER, _REGULAR = 0.1, 0.5  # more than half of the steps are within a tenth of the usual one
_COST = 40  # bytes of memory per byte of the recording
_STRETCHED = 2.5  # every 147 ms a gap of 1.7 sample periods is normal


def recognises(recording: Recording) -> bool:
    """Whether these are such records: four low bits of voltages and currents are unused, and the clock ticks."""
    head = recording.head
    if len(head) < 2 * _RECORD:
        return False
    words = np.frombuffer(head, "<u2", len(head) // _RECORD * 9).reshape(-1, 9)
    steps = np.mod(np.diff(words[:, 0].astype(np.int64)), 2**16)
    usual = float(np.median(steps))
    ticking = usual > 0 and float((np.abs(steps - usual) < _JITTER * usual).mean()) > _REGULAR
    return ticking and not bool((words[:, 1:] & 0xF).any())


def read(recording: Recording) -> pd.DataFrame:
    """Read a recording that was recognised."""
    recording.unit = "record"
    found, room = dict[str, Gathering](), recording.path.stat().st_size // _RECORD
    for words, at in _records(recording):
        for name, values in _columns(words, at, recording.only).items():
            found.setdefault(name, Gathering(values.dtype, room)).take(values)
    columns = {name: found.pop(name).values() for name in list(found)}
    if not columns or not len(columns["at"]):
        raise recording.error("there is no record in it")
    steps = np.diff(columns.pop("ticks"))  # of 16 bits, as the clock has, which goes round
    rate = recording.ticks_per_ms or _TICKS_PER_MS
    elapsed = np.zeros(len(steps) + 1)
    np.cumsum(steps, out=elapsed[1:])
    elapsed /= rate * 1000
    usual = max(1.0, float(np.median(steps))) if len(steps) else 1.0
    lost, late = np.zeros(len(elapsed), np.int64), np.flatnonzero(steps > _STRETCHED * usual)
    lost[late + 1] = np.rint(steps[late] / usual) - 1
    powers = tuple(
        Power(name, columns[f"{name}_W"], columns[f"{name}_V"], columns[f"{name}_A"])
        for name in _NAMES
        if f"{name}_W" in columns
    )
    start = _start(recording)
    where = "from PMD_start_ts.txt" if start is not None else "PMD_start_ts.txt is not beside it, so no Unix time"
    given = (
        "as given"
        if recording.ticks_per_ms
        else "assumed: it differs by 0.1 % from session to session; ticks_per_ms sets it"
    )
    return table(
        recording,
        RecordedCurve(
            None if start is None else start + elapsed,
            elapsed,
            columns["at"],
            Power("total", columns["total_W"]),
            powers,
            lost=lost,
        ),
        kind=METER,
        clock=f"device ticks, {rate:g} per ms ({given}); {where}",
        total="sum of the four pairs, negative currents kept (its authors clamp them: 0.6 W for an idle pair)",
    )


def _records(recording: Recording) -> Iterator[tuple[npt.NDArray[np.uint16], Ints]]:
    """Yield the words of whole records, some megabytes at a time, and their numbers; what is none is noted."""
    count, rest = 0, b""
    for part in recording.parts(_COST):
        content = rest + part
        many = len(content) // _RECORD
        words, rest = np.frombuffer(content, "<u2", many * 9).reshape(-1, 9), content[many * _RECORD :]
        at: Ints = np.arange(count + 1, count + many + 1)
        count += many
        wrong = np.bitwise_or.reduce(words[:, 1:], axis=1) & 0xF != 0
        for number in at[wrong].tolist():
            recording.broken(number, "it is not a record: bits are set that the device never sets")
        yield (words[~wrong], at[~wrong]) if wrong.any() else (words, at)
    if rest:
        recording.broken(count + 1, f"a record that is cut: {len(rest)} of {_RECORD} bytes")


def _columns(words: npt.NDArray[np.uint16], at: Ints, only: str | None) -> Columns:
    """Return the numbers of some records, their ticks, their total power, and the pairs that are asked for."""
    columns: Columns = {"at": at, "ticks": words[:, 0].astype(np.uint16), "total_W": np.zeros(len(words))}
    for i, name in enumerate(_NAMES):
        volts, amperes = (_codes(words[:, 1 + 2 * i + j]) * scale for j, scale in enumerate((_VOLTS, _AMPERES)))
        watts = volts * amperes
        columns["total_W"] += watts
        if only in {None, name}:
            columns |= {f"{name}_V": volts, f"{name}_A": amperes, f"{name}_W": watts}
    return columns


def _codes(words: npt.NDArray[np.uint16]) -> Floats:
    """Return the signed codes in the upper bits of words."""
    return np.right_shift(words.astype(np.uint16).view(np.int16), 4).astype(np.float64)


def _start(recording: Recording) -> float | None:
    """Unix seconds of the first sample."""
    path = recording.path.with_name("PMD_start_ts.txt")
    if not path.is_file():
        return None
    try:
        return int(path.read_text(encoding="ascii")) / 1e6 - _START_DELAY_S
    except (ValueError, OverflowError) as error:
        msg = f"{path.name} beside it holds no whole number of microseconds; correct or remove it"
        raise recording.error(msg) from error


def are_load_stamps(recording: Recording) -> bool:
    """Whether these are a list of microseconds under the header ``timestamp``."""
    start = recording.head[:4096].split()
    return len(start) > 1 and start[0] == b"timestamp" and all(f.isdigit() for f in start[1:-1] or start[1:])


def read_load_stamps(recording: Recording) -> pd.DataFrame:
    """Read the times at which a load was switched; each was written twice, the last is the end of the run.

    The table has a row for each instant and no power: ``marker`` says ``on``, ``off`` or ``end``.
    """
    columns, at = Delimited(recording, {"timestamp": FLOAT}, " ").all()
    left = _check.in_order(recording, columns["timestamp"], at)
    stamps, at = columns["timestamp"][left] / 1e6, at[left]
    if not len(stamps):
        raise recording.empty("there is no time stamp in it; was the load ever switched?")
    again = np.concatenate([[False], np.diff(stamps) == 0.0])
    stamps, at = stamps[~again], at[~again]
    labels = ["on" if i % 2 == 0 else "off" for i in range(len(stamps))]
    labels[-1] = "end"
    return table(
        recording,
        RecordedCurve(
            stamps,
            stamps - stamps[0],
            at,
            Power("total", np.full(len(stamps), np.nan)),
            marks=tuple(enumerate(labels)),
        ),
        kind=STAMPS,
        clock="host's wall clock (UTC)",
        total="none: there is no power in this file",
    )
