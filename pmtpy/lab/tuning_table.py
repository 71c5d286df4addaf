"""Tables of tuning results: read, and written with what is predicted at other clocks.

Columns of what is read: ``config, set_clock_mhz, core_freq_mhz, temperature_c, time_ms, power_w``; of what is written:
``config, set_clock_mhz, power_w, time_ms, energy_j, energy_low_j, energy_high_j`` (95 %).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pmtpy.analysis.transfer.predict import Prediction
from pmtpy.analysis.transfer.table import Table
from pmtpy.core.numbers import real
from pmtpy.errors import FileFormatError, TargetError

COLUMNS = ("config", "set_clock_mhz", "core_freq_mhz", "time_ms", "power_w")
_CLOCK = "nvml_gr_clock"  # the parameter by which Kernel Tuner's NVML observer sets the clock, MHz
_WRITTEN = ("config", "set_clock_mhz", "power_w", "time_ms", "energy_j", "energy_low_j", "energy_high_j")


def read_table(path: Path, power: str = "") -> Table:
    """Read a table of tuning results; gzip is undone, columns that are not needed are ignored.

    A cache of Kernel Tuner is read as well: its clock is ``nvml_gr_clock``, a configuration is all other parameters,
    and its power is ``power``, or the only one that it has.

    Raises TargetError: there is no such file, or it cannot be opened.
    Raises FileFormatError: it is damaged, lacks a column, or has a value that is not a number: file, line and column
    are named.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise TargetError(msg) from error
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise FileFormatError(msg) from error
    if text.lstrip().startswith("{"):
        return _of_cache(path, text, power)
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    missing = [c for c in COLUMNS if c not in (rows.fieldnames or ())]
    if missing:
        there = ", ".join(rows.fieldnames or ()) or "none"
        msg = f"{path}: line 1: the columns {', '.join(missing)} are missing; separated by commas there are: {there}"
        raise FileFormatError(msg)
    names: list[str] = []
    numbers: list[list[float]] = []
    for row in rows:
        names.append(str(row["config"]))
        numbers.append([_number(path, rows.line_num, c, row[c]) for c in COLUMNS[1:]])
        warm = row.get("temperature_c")
        numbers[-1].append(_number(path, rows.line_num, "temperature_c", warm) if warm else math.nan)
    if not names:
        msg = f"{path}: no rows below the header"
        raise FileFormatError(msg)
    set_mhz, core, time_ms, watts, warmth = np.array(numbers, np.float64).T
    return Table(tuple(names), set_mhz, core, warmth, time_ms / 1e3, watts)


def _of_cache(path: Path, text: str, power: str) -> Table:
    """Make a table of what Kernel Tuner has cached (one that was interrupted lacks its last brackets)."""
    try:
        try:
            document = json.loads(text)
        except ValueError:
            document = json.loads(text.rstrip().rstrip(",") + "}}")
        entries, names = list(document["cache"].values()), list(document["tune_params_keys"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path}: a cache of Kernel Tuner was expected, and is not whole: {error!r}"
        raise FileFormatError(msg) from error
    good = [e for e in entries if real(e.get("time")) is not None]
    if _CLOCK not in names or not good:
        why = f"no parameter {_CLOCK}" if _CLOCK not in names else "no configuration that ran"
        msg = f"{path}: this cache of Kernel Tuner has {why}; tune at several clocks first"
        raise FileFormatError(msg)
    powers = [key for key in good[0] if key.endswith("_power") and f"{key}_uncertainty" in good[0]]
    key = power or (powers[0] if len(powers) == 1 else "")
    if key not in good[0]:
        there = ", ".join(powers) or "none"
        msg = f"{path}: which power is meant has to be said (--power); in this cache there are: {there}"
        raise FileFormatError(msg)
    stem = next((k.removesuffix("_core_freq") for k in good[0] if k.endswith("_core_freq")), "")
    others = [n for n in names if n != _CLOCK]
    rows = [
        (
            float(e[_CLOCK]),
            float(e.get("core_freq", e.get(f"{stem}_core_freq", e[_CLOCK]))),
            float(e.get("temperature", e.get(f"{stem}_temperature", math.nan))),
            float(e["time"]) / 1e3,
            float(e[key]),
        )
        for e in good
        if real(e.get(key)) is not None
    ]
    configs = tuple(",".join(f"{n}={e[n]}" for n in others) or "all" for e in good if real(e.get(key)) is not None)
    set_mhz, core, warmth, time_s, watts = np.array(rows, np.float64).T
    return Table(configs, set_mhz, core, warmth, time_s, watts)


def _number(path: Path, line: int, column: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (column != "temperature_c" and value <= 0):
        msg = f"{path}: line {line}: {column} must be a number" + (
            f", not {text!r}" if column == "temperature_c" else f" above zero, not {text!r}"
        )
        raise FileFormatError(msg)
    return value


def as_csv(found: Sequence[Prediction]) -> str:
    """Return the text of a file of what is predicted, a line each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_WRITTEN)
    for p in found:
        numbers = (p.power_w, p.time_s * 1e3, p.energy_j, p.energy_low_j, p.energy_high_j)
        writer.writerow([p.config, f"{p.set_mhz:g}", *(f"{x:.7g}" for x in numbers)])
    return text.getvalue()
