"""Procedures of the published evaluations on a live sensor or on recordings; :mod:`pmtpy.analysis.procedures` judges.

What a reading costs is measured on the source itself, without poller, lock and history; everything else on what any
sensor shows.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pmtpy._extras import require
from pmtpy.analysis.clocking import Polling, estimate_updates
from pmtpy.analysis.procedures.internal_rate import Pattern, find_pattern
from pmtpy.analysis.procedures.latency import Latency, latency_of
from pmtpy.analysis.procedures.updates import UpdateInterval, updates_of
from pmtpy.analysis.procedures.windows import calm_ends, nearest, recorded, sparsest
from pmtpy.analysis.repetition.resolve import LEAST_BLOCKS
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.channel import TOTAL, Derivation, Identity, outermost
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.markers import Span
from pmtpy.core.rows import Floats
from pmtpy.core.source import Source, Timestamps
from pmtpy.errors import TargetError
from pmtpy.io.columns import mean_powers
from pmtpy.lab.loads import LEVELS_W, fast_load
from pmtpy.lab.record import GPUS, Recorder, chosen_column
from pmtpy.lab.recorded import regions_of, times_of
from pmtpy.lab.traces import polls_alone
from pmtpy.sensor.history import Recent
from pmtpy.sensor.registry import create, is_virtual, opener, options_from_text, split_target

if TYPE_CHECKING:
    import pandas as pd

# Other ways in which a backend can be read, to be measured beside its own: backend, name, options.
_WAYS: Mapping[str, Mapping[str, Mapping[str, str]]] = types.MappingProxyType(
    {"occ": {"selected records": {}, "whole block": {"whole": "true"}}}
)
_AS_MEASURED = "as measured"
_STAMPED_POLL_S = 0.005  # a sensor that stamps its updates is asked so often, at the most
_MOST_OF_OTHERS = 0.1  # of stamped rows at which one value rests while others move: by chance, as they are rounded
_CRYSTALS = 1e-4  # two of 50 millionths each: by so much the stamps of a device may run off the host's clock
_PATTERN_POLL_NS = 10_000_000  # a pattern of up to 10 Hz or so is looked for


def ways_of(target: str) -> Mapping[str, Mapping[str, str]]:
    """Return the ways in which a target can be read, and the options of each."""
    return _WAYS.get(split_target(target)[0], {_AS_MEASURED: {}})


@contextmanager
def _source(target: str, options: Mapping[str, str], clock: Clock) -> Iterator[Source]:
    name, device = split_target(target)
    source = opener(name, device)(device, clock=clock, **options_from_text(target, options))
    try:
        yield source
    finally:
        source.close()


def measure_latency(target: str, options: Mapping[str, str], reads: int) -> Latency:
    """Time readings of a source, one after the other.

    Parameters
    ----------
    target : str
        ``name[:device]``.
    options : mapping
        Options of the backend, as text.
    reads : int
        How many.

    Raises TargetError, BackendUnavailableError: the target cannot be opened, or delivers by itself.
    """
    with _source(target, options, HOST_CLOCK) as source:
        if source.traits.streaming:
            msg = f"{target} delivers every sample by itself: no reading waits, so there is no cost to measure"
            raise TargetError(msg)
        stamps = np.empty(reads + 1, np.int64)
        stamps[0] = HOST_CLOCK.now_ns()
        for i in range(reads):
            source.read_row()
            stamps[i + 1] = HOST_CLOCK.now_ns()
    return latency_of(np.diff(stamps) / NS_PER_S)


@dataclass(frozen=True, slots=True)
class FoundUpdates:
    """How often a sensor renews its value."""

    channel: str  # whose; empty where all channels are renewed together
    mean_s: Estimate  # seconds between updates
    detail: UpdateInterval | None  # how the intervals scatter, where the sensor stamps them itself
    stated_s: float | None  # what the backend states of it
    share: float = 1.0  # of the updates that brought another value, where changes tell
    patterned: bool = False  # those come too regularly for chance


def measure_updates(
    target: str,
    options: Mapping[str, str],
    seconds: float,
    clock: Clock = HOST_CLOCK,
    progress: Callable[[str], None] = lambda _: None,
    *,
    channel: str | None = None,
) -> FoundUpdates:
    """Find how often a sensor renews its value: by its own stamps, else by the changes of its value under a load.

    Parameters as :func:`measure_latency`; ``channel`` is whose value, None: the first power.

    Raises DeclinedError: it cannot be told.
    Raises TargetError, BackendUnavailableError: the target cannot be opened.
    """
    with _source(target, options, clock) as source:
        direct = [c for c in source.channels if c.derivation is Derivation.DIRECT]
        registers = [] if source.traits.streaming else [c for c in direct if c.measures_energy]
        chosen = chosen_column(direct, channel, target) if channel is not None or len(registers) > 1 else None
        stated = {c.name: c.refresh_s for c in source.channels if c.measures_energy and c.refresh_s}
        source.read()
        if source.traits.timestamps is Timestamps.DEVICE_UPDATE:
            progress(f"reading the stamps of {target} for {seconds:g} s")
            stamped = _stamped(source, chosen, seconds, clock)
            if stamped is not None:
                whose = next(iter(stated), "") if chosen is None else direct[chosen].name
                return FoundUpdates("", *stamped, stated.get(whose))
            progress(f"{target} renews its registers at different times, and stamps all of them")
    live = Recorder(seconds, channel=channel, clock=clock, progress=progress).alone(target, options)
    found, name = estimate_updates(live.t_s, live.series.watts, unequal=True, uncut=True), live.about.name
    return FoundUpdates(name, found.period_s, None, stated.get(name), found.seen, found.patterned)


def _stamped(
    source: Source, column: int | None, seconds: float, clock: Clock
) -> tuple[Estimate, UpdateInterval] | None:
    """Return the interval of the stamps; None where they are not those of one column."""
    import threading

    never = threading.Event()
    end_ns = clock.now_ns() + round(seconds * NS_PER_S)
    blocks = []
    step_ns = round(min(source.traits.interval_s / 2.0, _STAMPED_POLL_S) * NS_PER_S)
    while (now_ns := clock.now_ns()) < end_ns:
        blocks.append(source.read())
        clock.wait_until(now_ns + step_ns, never)
    if column is not None:
        moved = np.diff(np.concatenate([np.asarray(block.raw, np.float64) for block in blocks]), axis=0) != 0.0
        if len(moved) and np.mean(moved.any(axis=1) & ~moved[:, column]) > _MOST_OF_OTHERS:
            return None
    found = updates_of(np.concatenate([block.t_ns for block in blocks]) / NS_PER_S)
    return found.mean_s.widened(_CRYSTALS * found.mean_s.value), found


def measure_internal_rate(
    target: str,
    options: Mapping[str, str],
    load_hz: float,
    seconds: float,
    *,
    channel: str | None = None,
    clock: Clock = HOST_CLOCK,
) -> tuple[Pattern, Identity]:
    """Find the slow pattern that a load of ``load_hz``, made here, leaves in what a sensor shows.

    Parameters
    ----------
    target, options
        As :func:`measure_latency`. A virtual device watches the load; a load on real processors is made by all cores
        but one.
    channel : str, optional
        None: the total, else the first power.

    Raises DeclinedError: there is no pattern.
    Raises TargetError, BackendUnavailableError: the target cannot be opened, or no such load can be made for it.
    """
    import threading

    require("scipy", "the rate inside a sensor")  # said before the load is made, not after
    name, _ = split_target(target)
    virtual = is_virtual(target)
    maker: AbstractContextManager[object] = nullcontext()
    if virtual:
        low, high = LEVELS_W
        options = {**options, "load": f"square:low={low:g},high={high:g},hz={load_hz!r}"}
    elif name in GPUS:
        msg = (
            f"{target}: a load of {load_hz:g} Hz cannot be made on a GPU from here; make it in a program of your own, "
            "record it with 'pmtpy dump' at three frequencies, and give the recordings instead"
        )
        raise TargetError(msg)
    else:
        maker = fast_load(load_hz, clock)
    typed = {k: v for k, v in options_from_text(target, options).items() if k != "history_s"}
    with maker, create(target, clock=clock, history_s=2.0 * seconds + 10.0, **typed) as sensor:  # type: ignore[arg-type]
        stop, end_ns = threading.Event(), clock.now_ns() + round(seconds * NS_PER_S)
        while (now_ns := clock.now_ns()) < end_ns and not clock.wait_until(now_ns + _PATTERN_POLL_NS, stop):
            sensor.read()  # here too, because the poller of a busy machine comes late
        recent = sensor.history()
        t_s = (recent.t_ns - recent.t_ns[0]) / NS_PER_S
        return find_pattern(t_s, shown_watts(recent, channel, target), load_hz), sensor.identity


def shown_watts(recent: Recent, channel: str | None, target: str) -> Floats:
    """Return one power of a history; None: the total, else the first.

    Raises TargetError: there is no such power.
    """
    chosen = channel or (TOTAL if TOTAL in recent.names else recent.names[0])
    if chosen not in recent.names:
        msg = f"{target} has no power {chosen!r}; it has: {', '.join(recent.names)}"
        raise TargetError(msg)
    return np.asarray(recent.watts[:, recent.names.index(chosen)], np.float64)


def recorded_internal_rate(table: pd.DataFrame, column: str, load_hz: float) -> Pattern:
    """Find the slow pattern in a recording. Errors as :func:`~pmtpy.analysis.procedures.internal_rate.find_pattern`."""
    return find_pattern(table["elapsed"].to_numpy(np.float64), table[column].to_numpy(np.float64), load_hz)


# --- workloads: regions, or windows of equal length ---


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of a recording whose mean powers are compared."""

    # shape (n,); in the times of the recording
    starts_s: Floats
    ends_s: Floats
    marked: bool  # they are regions: markers enclose them, or they were measured


def time_column(tables: Sequence[pd.DataFrame]) -> str:
    """Return the times that recordings share: of a single one the elapsed time, which nobody sets; else wall time.

    Raises TargetError: several recordings, one of which has no wall time.
    """
    if len(tables) == 1:
        return "elapsed"
    lacking = [str(t.attrs["path"]) for t in tables if times_of(t) != "time"]
    if not lacking:
        return "time"
    msg = f"{lacking[0]} does not say when its rows were taken, so two recordings cannot be put side by side"
    raise TargetError(msg)


def windows_of(tables: Sequence[pd.DataFrame], curves: Sequence[PowerTrace], length_s: float) -> Windows:
    """Return the workloads of recordings: regions of the first one that has enough, else windows of about one length.

    Regions are those that markers enclose and those that the program measured meanwhile, without any that holds others.

    They end where the powers rest, as far as there are rows: regions within their first and their last quarter, windows
    within a quarter of their length, and these are longer than asked where rows are.

    Parameters
    ----------
    curves : sequence of PowerTrace
        What is compared of each recording.

    Raises TargetError: the recordings share too little time.
    """
    column = time_column(tables)
    times = [np.maximum.accumulate(t[column].to_numpy(np.float64)) for t in tables]  # a wall clock may be set back
    start, end = max(float(t[0]) for t in times), min(float(t[-1]) for t in times)
    for t, table in zip(times, tables, strict=True):
        starts, ends = _innermost([s for s in regions_of(table, t) if s.start >= start and s.end <= end])
        if len(starts) >= LEAST_BLOCKS:
            quarter = (ends - starts) / 4.0
            starts, ends = (
                calm_ends(curves, starts, starts + quarter, starts),
                calm_ends(curves, ends - quarter, ends, ends),
            )
            return Windows(starts, ends, marked=True)
    count = int((end - start) / length_s)
    if count < LEAST_BLOCKS:
        msg = (
            f"the recordings share {max(end - start, 0.0):.3g} s, too little for windows of {length_s:g} s: record "
            "both at the same time, and longer"
        )
        raise TargetError(msg)
    edges = np.asarray(start + length_s * np.arange(count + 1), np.float64)
    rows = nearest(sparsest(curves), edges)
    own = np.abs(rows - edges) <= length_s / 2.0
    edges, rows = edges[own], rows[own]
    edges = np.unique(calm_ends(curves, edges - length_s / 4.0, edges + length_s / 4.0, rows))
    return Windows(edges[:-1], edges[1:], marked=False)


def _innermost(spans: Sequence[Span]) -> tuple[Floats, Floats]:
    """Return starts and ends of the regions, sorted by their starts, that hold no other one."""
    at = np.array([(s.start, s.end) for s in spans], np.float64).reshape(-1, 2)
    first_end = np.append(np.minimum.accumulate(at[::-1, 1])[::-1], np.inf)  # of a region and those that start later
    alone = first_end[1:] > at[:, 1]
    return at[alone, 0], at[alone, 1]


def energy_curve(table: pd.DataFrame, column: str, times: str) -> PowerTrace:
    """Return the energy of a power over time.

    Parameters
    ----------
    column : str
        ``NAME_W``; its energies are in ``NAME_J``, where they were recorded.
    times : str
        The column of times, as :func:`time_column` says.

    Raises DeclinedError: fewer than three rows have an energy.
    """
    names, nothing = (times, column, f"{column[:-1]}J", "lost"), np.full(len(table), np.nan)
    t, watts, joules, lost = (table[n].to_numpy(np.float64) if n in table else nothing for n in names)
    joules = nothing if polls_alone(table) else joules
    metadata = table.attrs["metadata"]
    polling = Polling.of(metadata)
    if polling is not None and not np.isfinite(joules).any():
        t, watts = polling.polls(t, watts, lost)
        return recorded(t, watts, np.full(len(t), np.nan), np.zeros(len(t)))
    mean = column[:-2] in mean_powers(metadata or {})
    return recorded(t, watts, joules, lost, mean=mean, whole=polling is not None)


def parts_of(domains: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the wholes among channels, and the parts directly inside each.

    Parameters
    ----------
    domains : mapping
        Path of the physical part by channel, as :class:`~pmtpy.core.channel.Channel` has it.

    Returns
    -------
    dict
        Names of the parts by the name of the whole; a whole of less than two parts is left out: what one part lacks
        says nothing of it.
    """
    first = {path: name for name, path in reversed(list(domains.items())) if path}
    found = {}
    for path, name in first.items():
        machine = path == "host"
        inside = {
            p: n for p, n in first.items()
            if p != path and (p.startswith(f"{path}/") or (machine and not p.startswith("external")))
        }  # fmt: skip
        names = list(inside.values())
        parts = tuple(names[i] for i in outermost(list(inside)))
        if len(parts) > 1:
            found[name] = parts
    return found
