"""Reader of ``nvidia-smi --query-gpu=timestamp,power.draw,... --format=csv`` logs, with and without units.

Facts: the query help of nvidia-smi (``nvidia-smi --help-query-gpu``) and logs of it. Fields are separated by a comma
and a blank; units stand in the header and, without ``nounits``, behind each value. Time stamps are local wall time
without a zone. A field that a card cannot answer is text in square brackets. Several GPUs take turns, row by row.
"""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats
from pmtpy.io.read._lines import Recording
from pmtpy.io.read._table import Power, RecordedCurve, table

if TYPE_CHECKING:
    import pandas as pd

_HEAD = re.compile(r"([\w.]+)(?:\s*\[(.+)\])?")
_NOT_THERE = re.compile(r"\[.*\]|N/A|ERR!|Not Supported")
_TIME = "%Y/%m/%d %H:%M:%S.%f"
_UNITS = {  # nvidia-smi's unit: ours, and how many of ours it is
    "W": ("W", 1.0),
    "mW": ("W", 1e-3),
    "MHz": ("Hz", 1e6),
    "%": ("percent", 1.0),
    "MiB": ("B", 2.0**20),
    "C": ("C", 1.0),
    "s": ("s", 1.0),
}
_WHICH_GPU = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
_BEST = ("power.draw.instant", "power.draw", "power.draw.average")  # as the total: the fastest first


def recognises(recording: Recording) -> bool:
    """Whether the first line is the header of such a log."""
    fields = [f.strip() for f in recording.first_line().split(",")]
    return len(fields) > 1 and any("power.draw" in f for f in fields)


def read(recording: Recording, utc_offset_s: float | None) -> pd.DataFrame:
    """Read a log whose header was recognised."""
    text = _fields(recording)
    if "timestamp" not in text:
        raise recording.error("the log has no timestamp field; query it with --query-gpu=timestamp,...")
    which = next((n for n in _WHICH_GPU if n in text), None)
    if which is None or text[which].nunique() < 2:
        parts = {"": text}
    else:
        names = text[which].unique().tolist()
        parts = {f"gpu{g if which == 'index' else i}.": text[text[which] == g] for i, g in enumerate(names)}
    common = min(map(len, parts.values()))  # the last round may be cut short
    if not common:
        recording.judge()
        raise recording.error("there is no row in it")
    first = next(iter(parts.values())).iloc[:common]
    time, clock = _unix(first["timestamp"], utc_offset_s)
    powers: list[Power] = []
    others: dict[str, Floats] = {}
    chosen: list[Power] = []
    for prefix, part in parts.items():
        mine = _columns(part.iloc[:common], prefix, others)
        powers += mine
        chosen.append(_total(mine, prefix))
    return table(
        recording,
        RecordedCurve(time, time - time[0], np.sum([p.watts for p in chosen], axis=0), tuple(powers), others=others),
        kind="nvidia-smi log",
        clock=clock,
        total=" + ".join(p.name for p in chosen),
    )


def _fields(recording: Recording) -> pd.DataFrame:
    """Return all fields as text, by name; the header's units are appended to the names, after a blank."""
    import pandas as pd

    lines = recording.lines()
    if b"\r" in lines[0]:
        raise recording.error("line 1: there is a carriage return in the header")
    width = lines[0].count(b",") + 1
    good = [lines[0]]
    at = []
    for number, line in enumerate(lines[1:], start=2):
        if line.count(b",") + 1 == width and b"\r" not in line and not line.startswith(lines[0][:9]):
            good.append(line)
            at.append(number)
        elif line.strip():
            recording.broken(number, f"{line.count(b',') + 1} fields where there should be {width}, or a second header")
    text = pd.read_csv(
        io.BytesIO(b"\n".join(good)),
        skipinitialspace=True,
        dtype=str,
        keep_default_na=False,
        quoting=csv.QUOTE_NONE,
        encoding_errors="replace",
    )
    text.columns = [c.strip() for c in text.columns]
    bad = np.zeros(len(text), np.bool_)
    if "timestamp" in text:
        bad |= pd.to_datetime(text["timestamp"], format=_TIME, errors="coerce").isna().to_numpy()
    for name in text.columns:
        if "[" in name or "power.draw" in name:
            bad |= _unreadable(text[name])
    for row in np.flatnonzero(bad):
        recording.broken(at[row], "a field is neither a number nor marked as missing")
    whole: pd.DataFrame = text[~bad]
    return whole


def _bare(column: pd.Series[str]) -> pd.Series[str]:
    return column.str.strip().str.split(" ").str[0]


def _unreadable(column: pd.Series[str]) -> npt.NDArray[np.bool_]:
    import pandas as pd

    missing = column.str.strip().str.fullmatch(_NOT_THERE).to_numpy(np.bool_)
    return np.asarray(pd.to_numeric(_bare(column), errors="coerce").isna().to_numpy() & ~missing, np.bool_)


def _columns(part: pd.DataFrame, prefix: str, others: dict[str, Floats]) -> list[Power]:
    """Split the fields of one GPU into powers and others, which are added to ``others``, in SI."""
    import pandas as pd

    powers = []
    for head in part.columns:
        match = _HEAD.fullmatch(head)
        if head == "timestamp" or match is None:
            continue
        name, unit = prefix + match.group(1), match.group(2)
        if unit is None and "power.draw" in head:
            unit = "W"  # of a header that was written by hand; nvidia-smi knows no other
        if unit is None and not head.startswith("temperature"):
            numbers = pd.to_numeric(part[head], errors="coerce")
            others[name] = (part[head] if numbers.isna().any() else numbers).to_numpy()
            continue
        suffix, factor = _UNITS.get(unit or "C", (unit, 1.0))
        values = pd.to_numeric(_bare(part[head]), errors="coerce").to_numpy(np.float64) * factor
        if suffix == "W" and "power.draw" in name:
            powers.append(Power(name, values))
        else:
            others[f"{name}_{suffix}"] = values
    return powers


def _total(powers: list[Power], prefix: str) -> Power:
    """Choose the power of the card itself, the fastest that has values."""
    by_name = {p.name.removeprefix(prefix): p for p in powers}
    candidates = [by_name[n] for n in _BEST if n in by_name] + powers
    return next((p for p in candidates if np.isfinite(p.watts).any()), candidates[0])


def _unix(stamps: pd.Series[str], utc_offset_s: float | None) -> tuple[Floats, str]:
    import pandas as pd

    naive = pd.to_datetime(stamps, format=_TIME).to_numpy("datetime64[us]").astype(np.int64) / 1e6
    if utc_offset_s is None:
        start = datetime.fromtimestamp(float(naive[0]), timezone.utc).replace(tzinfo=None)
        offset = start.astimezone().utcoffset()
        utc_offset_s = offset.total_seconds() if offset is not None else 0.0
        zone = f"taken for this machine's zone (UTC{utc_offset_s / 3600:+g} h); utc_offset_s says otherwise"
    else:
        zone = f"{utc_offset_s:g} s ahead of UTC, as given"
    return naive - utc_offset_s, f"local wall time without a zone, {zone}"
