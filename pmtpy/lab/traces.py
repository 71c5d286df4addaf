"""Recordings as traces that can be compared: their clock, marks, powers, and what they state of each channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.analysis.clocking import Polling
from pmtpy.analysis.comparison.results import Trace, stated
from pmtpy.analysis.procedures.work import ShownPower
from pmtpy.analysis.signal.updates import tidy
from pmtpy.analysis.uncertainty.interval_statistics import usual_s
from pmtpy.analysis.uncertainty.recorded import RowsOfPower, as_renewed
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.markers import Span
from pmtpy.errors import TargetError
from pmtpy.io.channels import channel_of
from pmtpy.io.columns import downsampled
from pmtpy.io.read import load
from pmtpy.io.recorded import aged_of, time_u_of
from pmtpy.lab.recorded import (
    one_run,
    power_column,
    power_columns,
    regions_of,
    said_of_regions,
    stamped_load,
    times_of,
    untold,
)

if TYPE_CHECKING:
    import pandas as pd


def split(thing: str) -> tuple[str, str | None]:
    """Split ``FILE#CHANNEL``; a file whose own name has a ``#`` is taken whole."""
    if Path(thing).is_file():
        return thing, None
    path, hash_, channel = thing.rpartition("#")
    return (path, channel) if hash_ else (thing, None)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Recordings that are to be compared: :func:`pmtpy.analysis.compare` takes the traces."""

    traces: Sequence[Trace]
    one_clock: bool
    warnings: Sequence[str]  # what has to be known of the recordings


def side_by_side(
    things: Sequence[str],
    channels: Sequence[str] = (),
    *,
    one_clock: bool | None = None,
    read: Callable[[str], pd.DataFrame] = load,
) -> SideBySide:
    """Read recordings that are to be compared.

    Parameters
    ----------
    things : sequence of str
        Each ``FILE`` or ``FILE#CHANNEL``. Marks of a file that has no power belong to the one before, else to the next.
    channels : sequence of str
        Which powers of each ``FILE``; none: its total.
    one_clock : bool, optional
        Whether the times of all come from one clock. None: if one run wrote them.
    read : callable
        Reads a file.

    Raises TargetError: there is no such power, or but one of all; one clock is asked for, and some files tell no Unix
    time.
    """
    traces: list[Trace] = []
    tables: list[pd.DataFrame] = []
    waiting: list[Span] = []
    said: list[str] = []
    empty: list[str] = []
    paths = list(dict.fromkeys(split(thing)[0] for thing in things))
    for thing in things:
        path, channel = split(thing)
        table = read(path)
        spans = regions_of(table, table[times_of(table)].to_numpy(np.float64))
        if not power_columns(table):
            if not spans:
                empty.append(f"{path} has neither a power nor marks in it")
            elif traces:
                traces[-1] = replace(traces[-1], regions=(*traces[-1].regions, *spans))
            else:
                waiting += spans
            continue
        shown = Path(path).name if [Path(p).name for p in paths].count(Path(path).name) == 1 else path
        several = sum(split(other)[0] == path for other in things) > 1 or len(channels) > 1
        for name in [channel] if channel else channels or ["total"]:
            trace = trace_of(table, name, f"{shown}#{name}" if several or channel else shown)
            traces.append(replace(trace, regions=(*waiting, *spans)))
            waiting, spans = [], []
        said += said_of_regions(table)
        tables.append(table)
    if empty and len(traces) < 2:  # a comparison would only say that there are too few
        raise TargetError("; ".join(empty))
    if one_run(tables):  # a region of several sensors stands in the file of each
        traces = _told_once(traces)
    one = one_run(tables) if one_clock is None else one_clock
    if one and len({times_of(t) for t in tables}) > 1:
        msg = "some of these files tell Unix time and some only time since their start: that is not one clock"
        raise TargetError(msg)
    warnings = [f"{t.attrs['path']} is virtual: its energy is emulated" for t in tables if t.attrs["virtual"]]
    warnings += [f"{t.attrs['path']}: {note}" for t in tables for note in t.attrs["notes"]]
    return SideBySide(traces, one, [*warnings, *dict.fromkeys(said), *(f"{each}: left out" for each in empty)])


def _told_once(traces: Sequence[Trace]) -> list[Trace]:
    """Return traces of one clock without regions that one before them has."""
    found: list[Trace] = []
    for trace in traces:
        before = [span for one in found for span in one.regions]
        found.append(replace(trace, regions=tuple(untold(trace.regions, before))))
    return found


def polls_alone(read: pd.DataFrame) -> bool:
    """Whether a recording is one of polls: nobody has counted their energy, it was integrated when they were read."""
    return str(read.attrs["format"]).startswith("pmtpy") and read.attrs["joules"].startswith("integrated")


def trace_of(read: pd.DataFrame, name: str, shown: str) -> Trace:
    """Return one power of a recording, which is shown under a name.

    Raises TargetError: there is no such power; the message lists what there is.
    """
    column = power_column(read, name, str(read.attrs["path"]))
    bare = column.removesuffix("_W")
    joules = read[f"{bare}_J"].to_numpy(np.float64) if f"{bare}_J" in read and not polls_alone(read) else None
    return Trace(
        shown,
        read[times_of(read)].to_numpy(np.float64),
        read[column].to_numpy(np.float64),
        joules,
        read["lost"].to_numpy(np.int64),
        stated_of(read, bare),
        polling=Polling.of(read.attrs["metadata"]),
        time_u_s=time_u_of(read.attrs["metadata"]),
        aged_s=aged_of(read.attrs["metadata"]),
        load=stamped_load(read),
        virtual=read.attrs["virtual"] is True,
    )


def shown_by(read: pd.DataFrame, column: str, times: str) -> ShownPower:
    """Return the rows of a power (``NAME_W``) in a column of times, and what is stated of it."""
    trace = trace_of(read, column.removesuffix("_W"), column.removesuffix("_W"))
    t_s, watts = tidy(read[times].to_numpy(np.float64), trace.watts)
    channel = trace.channel or Channel(trace.name, Quantity.POWER, resolution=0.0)
    channel = as_renewed(channel, t_s, watts)
    return ShownPower(channel, RowsOfPower(t_s, watts, usual_s(np.diff(t_s))), trace.time_u_s, trace.aged_s)


def stated_of(read: pd.DataFrame, name: str) -> Channel | None:
    """Return what the file's metadata say of a channel; of a total that is the sum of several, what holds for all."""
    metadata = read.attrs["metadata"] or {}
    known = metadata.get("channels", ())
    try:
        parts = [channel_of(c) for c in known if (c.get("in_total") if name == "total" else c["name"] == name)]
    except (KeyError, TypeError, ValueError):  # metadata of another program, or spoilt
        parts = []
    columns = {c.name: read[f"{c.name}_W"] for c in parts if f"{c.name}_W" in read}
    watts = {part: float(column.mean()) for part, column in columns.items() if column.notna().any()}
    return stated(name, parts, watts, mean_s=_mean_s(metadata))


def _mean_s(metadata: Mapping[str, Any]) -> float | None:
    """Return over which time each row is a mean, of a stream that was dumped with fewer rows; None of any other."""
    return float(metadata["interval_s"]) if downsampled(metadata) else None
