"""Recording of a live sensor under a load that is made for it, for ``pmtpy characterise``.

The register is polled as often as is useful, at irregular intervals so that polls never keep step with updates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterise import LoadStamps, Series
from pmtpy.cli.loads import Maker, cpu_load, gpu_load, schedule, virtual_load
from pmtpy.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.errors import TargetError
from pmtpy.model import Channel, Floats, Form, Ints, Quantity
from pmtpy.registry import canonical, opener, options_from_text, split_target
from pmtpy.source import Source

_SLOWEST_S, _FASTEST_S = 0.003, 0.0002
_POLLS_PER_REFRESH = 12.0
_GPUS = {"nvml"}
_VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class Live:
    """What was recorded: a channel as polled, and when the load was on, both in seconds since the start.

    ``virtual`` is true when the sensor's far side is emulated.
    """

    channel: str
    polls: Series
    load: LoadStamps | None
    virtual: bool


def record(
    target: str,
    options: Mapping[str, str],
    *,
    channel: str | None,
    seconds: float,
    interval_s: float | None = None,
    clock: Clock = HOST_CLOCK,
    progress: Callable[[str], None] = lambda _: None,
) -> Live:
    """Record a sensor while a load is made for it.

    Parameters
    ----------
    target : str
        ``name[:device]``.
    options : mapping
        Options of the backend, as text. With a ``load`` of its own a virtual device is recorded as it is.
    channel : str, optional
        Name of a channel of power or energy; None: the first that the source reads directly, power before energy.
    seconds : float
        How long.
    interval_s : float, optional
        Mean time between polls. None: a twelfth of the refresh period, 0.2 to 3 ms.
    progress : callable
        Told what is going on.

    Raises
    ------
    TargetError
        No such target, channel or option.
    BackendUnavailableError
        The sensor cannot be used, or nothing here can make a load for it.
    """
    target = canonical(target)
    name, device = split_target(target)
    edges = schedule(seconds)
    maker, given = _maker(name, device, options, edges, clock)
    source = opener(name, device)(device, clock=clock, **options_from_text(target, given))
    try:
        column, chosen = _channel(source, channel, target)
        interval = interval_s or _interval(chosen)
        progress(f"recording {target}, {chosen.name}, for {seconds:g} s, every {1e3 * interval:.3g} ms")
        with maker as running:
            start_ns = clock.now_ns()
            t_ns, values = _poll(source, column, clock, round(seconds * NS_PER_S), interval)
            switched = running.edges_ns()
    finally:
        source.close()
    t = np.asarray((t_ns - start_ns) / NS_PER_S, np.float64)
    values = np.asarray((values + chosen.offset) * chosen.scale, np.float64)
    if chosen.quantity is Quantity.ENERGY:
        values = _mean_power(t, values)
    load = None
    if len(switched):
        load = LoadStamps(np.asarray((switched - start_ns) / NS_PER_S, np.float64), seconds)
    return Live(chosen.name, Series(t, values), load, source.identity.virtual)


def _maker(
    name: str, device: str | None, options: Mapping[str, str], edges_s: Floats, clock: Clock
) -> tuple[Maker, Mapping[str, str]]:
    """Return who makes the load, and the options with which the source is then opened."""
    if device is not None and device.startswith(_VIRTUAL):
        return virtual_load(options, edges_s, clock)
    if name in _GPUS:
        return gpu_load(device, edges_s, clock), options
    return cpu_load(edges_s, clock), options


def _channel(source: Source, wanted: str | None, target: str) -> tuple[int, Channel]:
    """Return the column of the Block and the channel to record."""
    if source.stream:
        msg = f"{target} delivers every sample by itself and averages nothing away: there is nothing to characterise"
        raise TargetError(msg)
    direct = [(i, c) for i, c in enumerate(c for c in source.channels if c.form is Form.DIRECT) if c.measures_energy]
    names = [c.name for _, c in direct]
    ranked = [pair for kind in (Quantity.POWER, Quantity.ENERGY) for pair in direct if pair[1].quantity is kind]
    match = next((pair for pair in ranked if wanted in {None, pair[1].name}), None)
    if match is None:
        msg = f"{target} has no channel {wanted or 'of power or energy'}; it reads {', '.join(names) or 'none'}"
        raise TargetError(msg)
    return match


def _interval(channel: Channel) -> float:
    if channel.refresh_s is None:
        return _SLOWEST_S
    return min(max(channel.refresh_s / _POLLS_PER_REFRESH, _FASTEST_S), _SLOWEST_S)


def _poll(source: Source, column: int, clock: Clock, length_ns: int, interval_s: float) -> tuple[Ints, Floats]:
    """Poll for ``length_ns``: instants, and the newest count at each. A register that has not moved repeats itself."""
    rng, never = np.random.default_rng(1), threading.Event()
    stamps: list[int] = []
    counts: list[float] = []
    newest = float("nan")
    end_ns = clock.now_ns() + length_ns
    while (now_ns := clock.now_ns()) < end_ns:
        block = source.read()
        if len(block):
            newest = float(block.raw[-1, column])
        stamps.append((now_ns + clock.now_ns()) // 2)
        counts.append(newest)
        clock.wait_until(now_ns + round(interval_s * NS_PER_S * rng.uniform(0.6, 1.4)), never)
    return np.array(stamps, np.int64), np.array(counts, np.float64)


def _mean_power(t_s: Floats, joules: Floats) -> Floats:
    """Mean power between the last two moves of a counter, shown until it moves again."""
    moves = np.flatnonzero(np.diff(joules) > 0.0) + 1
    watts = np.full(len(joules), np.nan)
    if len(moves) > 1:
        mean = np.diff(joules[moves]) / np.diff(t_s[moves])
        index = np.searchsorted(moves[1:], np.arange(len(joules)), side="right") - 1
        watts = np.where(index >= 0, mean[np.maximum(index, 0)], np.nan)
    return np.asarray(watts, np.float64)
