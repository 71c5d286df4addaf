"""Recordings as traces that can be compared: their clock, marks, powers, and what they state of each channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.analysis.clocking import Polling
from pmtpy.analysis.comparison.results import Trace
from pmtpy.core.channel import Channel, EnergyMethod, Quantity
from pmtpy.core.markers import Span, paired
from pmtpy.errors import TargetError
from pmtpy.io.recorded import aged_of, time_u_of

if TYPE_CHECKING:
    import pandas as pd


def clock_of(read: pd.DataFrame) -> str:
    """Return the column with the best time that the file tells."""
    return "time" if read["time"].notna().all() else "elapsed"


def marked(read: pd.DataFrame) -> list[Span]:
    """Return what was marked, on the clock of :func:`clock_of`."""
    t = read[clock_of(read)].to_numpy(np.float64)
    rows = np.flatnonzero((read["marker"] != "").to_numpy())
    labels = read["marker"].iloc[rows].tolist()
    return paired([(float(t[row]), one) for row, label in zip(rows, labels, strict=True) for one in label.split(";")])[
        0
    ]


def polls_alone(read: pd.DataFrame) -> bool:
    """Whether a recording is one of polls: nobody has counted their energy, it was integrated when they were read."""
    return str(read.attrs["format"]).startswith("pmtpy") and read.attrs["joules"].startswith("integrated")


def trace_of(read: pd.DataFrame, name: str, shown: str) -> Trace:
    """Return one power of a recording, which is shown under a name.

    Raises TargetError: there is no such power; the message lists what there is.
    """
    bare = name.removesuffix("_W")
    column = f"{bare}_W"
    if column not in read or read[column].isna().all():
        there = ", ".join(c.removesuffix("_W") for c in read.columns if c.endswith("_W") and read[c].notna().any())
        msg = f"{read.attrs['path']} has no power called {name!r}; it has: {there} (FILE#CHANNEL names one per file)"
        raise TargetError(msg)
    joules = read[f"{bare}_J"].to_numpy(np.float64) if f"{bare}_J" in read and not polls_alone(read) else None
    return Trace(
        shown,
        read[clock_of(read)].to_numpy(np.float64),
        read[column].to_numpy(np.float64),
        joules,
        read["lost"].to_numpy(np.int64),
        _stated(read, bare),
        polling=Polling.of(read.attrs["metadata"]),
        time_u_s=time_u_of(read.attrs["metadata"]),
        aged_s=aged_of(read.attrs["metadata"]),
    )


def _stated(read: pd.DataFrame, name: str) -> Channel | None:
    """Return what the file's metadata say of a channel; of a total that is the sum of several, what holds for all."""
    known = {c["name"]: c for c in (read.attrs["metadata"] or {}).get("channels", ())}
    parts = (
        [c for c in known.values() if c.get("in_total")] if name == "total" else [known[name]] if name in known else []
    )
    if not parts:
        return None
    columns = {c["name"]: read[f"{c['name']}_W"] for c in parts if f"{c['name']}_W" in read}
    watts = {part: float(column.mean()) for part, column in columns.items() if column.notna().any()}
    whole = max(abs(sum(watts.values())), 1e-9)

    def most(key: str) -> float | None:
        values = [float(c[key]) for c in parts if c.get(key) is not None]
        return max(values) if values else None

    def together(key: str) -> float:
        return float(np.sqrt(sum(float(c.get(key) or 0.0) ** 2 for c in parts)))

    mean_s = _mean_s(read.attrs["metadata"])
    return Channel(
        name,
        Quantity.ENERGY if all(c["quantity"] == "energy" for c in parts) else Quantity.POWER,
        method=EnergyMethod(parts[0]["rule"]) if parts[0].get("rule") else None,
        refresh_s=mean_s or most("refresh_s"),
        window_s=mean_s or most("window_s"),
        lag_s=most("lag_s"),
        resolution=most("resolution"),
        gain_u=float(np.sqrt(sum((float(c.get("gain_u") or 0.0) * watts.get(c["name"], 0.0)) ** 2 for c in parts)))
        / whole,
        offset_u=together("offset_u"),
        noise=together("noise"),
    )


def _mean_s(metadata: Mapping[str, Any]) -> float | None:
    """Return over which time each row is a mean, of a stream that was dumped with fewer rows; None of any other."""
    thinned = metadata.get("interval_s") is not None and metadata.get("polled_s", 0.0) is None
    return float(metadata["interval_s"]) if thinned else None
