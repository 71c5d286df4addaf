"""Recording of a live sensor under a load that is made for it, for ``pmtpy characterise``.

The register is polled as often as is useful, at irregular intervals so that polls never keep step with updates.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

import numpy as np

from pmtpy._extras import require
from pmtpy.analysis.characterisation.registers import counted
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.energy.beside_meter import held_polls
from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S, Clock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats, Ints
from pmtpy.core.source import Source
from pmtpy.errors import DeclinedError, TargetError
from pmtpy.lab.loads import Maker, cpu_load, gpu_load, schedule, virtual_load
from pmtpy.sensor.registry import canonical, is_virtual, opener, options_from_text, split_target

_SLOWEST_S, _FASTEST_S = 0.003, 0.0002
_POLLS_PER_REFRESH = 12.0
_LEADS_S = (0.0, 3.0, 12.0, 48.0)  # by which the load of a virtual device waits for the sensors, one after the other
_ROUNDED = 0.1  # of a count: what a scale, or the digits of a recording, leave of it
GPUS = {"amdsmi", "nvml"}
_PROCESSORS = "processors"
# Options of every opened sensor, of which the register that is characterised knows nothing.
OF_SENSORS: Mapping[str, str] = types.MappingProxyType(
    {
        "calibration": "a sensor is characterised as it is, without a profile",
        "history_s": "all is kept",
        "interval": "give it as --interval",
    }
)


@dataclass(frozen=True, slots=True)
class Polls:
    """All that a register showed, poll by poll, and when the load was on."""

    start_ns: int  # when recording began, on the clock
    t_s: Floats  # shape (n,); middle of each poll, seconds since the start
    channels: tuple[Channel, ...]
    # shape (n, c); in the channels' units. What has not moved repeats itself; NaN before the first reading.
    values: Floats
    chosen: int  # the channel that was asked for, else the one of power that shows the most
    # shape (m,); when the load was switched on, off, on, ..., seconds since the start; empty where that is not known
    edges_s: Floats
    identity: Identity
    # what held the device's clocks back by the beginning and by the end, as :meth:`Source.limits` says
    limits: tuple[Mapping[str, float], ...] = ()
    # what was set on the device at the beginning and at the end, as :meth:`Source.settings` says
    settings: tuple[Mapping[str, str], ...] = ()

    @property
    def about(self) -> Channel:
        """The chosen channel."""
        return self.channels[self.chosen]

    @property
    def series(self) -> Series:
        """The power of the chosen channel."""
        return Series(self.t_s, self.watts(self.chosen), uncut=True)

    @property
    def load(self) -> LoadIntervals | None:
        """When the load was on; None where that is not known."""
        return LoadIntervals.switched(self.edges_s) if len(self.edges_s) else None

    def watts(self, column: int) -> Floats:
        """Power of one channel; of a counter the mean between its last two moves."""
        if self.channels[column].quantity is Quantity.ENERGY:
            return _mean_power(self.t_s, self._joules(column))
        return np.asarray(self.values[:, column], np.float64)

    def energy(self, start_s: float, end_s: float) -> float:
        """Energy that the chosen channel shows of an interval, joules: of a counter by its moves, else polls are held.

        Raises DeclinedError: the polls do not reach over it, or there is none in it.
        """
        if not np.any((self.t_s > start_s) & (self.t_s <= end_s) & np.isfinite(self.values[:, self.chosen])):
            msg = f"there is no reading from {start_s:.2f} to {end_s:.2f} s: repeat while nothing else runs"
            raise DeclinedError(msg)
        if self.about.quantity is not Quantity.ENERGY:
            return held_polls(self.t_s, self.watts(self.chosen), start_s, end_s)
        t, joules = moves_of(self.t_s, self._joules(self.chosen))
        if len(t) < 2 or start_s < t[0] or end_s > t[-1]:
            msg = f"the counter does not move over the interval from {start_s:.2f} to {end_s:.2f} s"
            raise DeclinedError(msg)
        before, after = np.interp([start_s, end_s], t, joules)
        return float(after - before)

    def _joules(self, column: int) -> Floats:
        return _counted(self.channels[column], self.values[:, column])


@dataclass(frozen=True, slots=True)
class Recorder:
    """Records sensors while a load is made for them.

    All raise TargetError (no such target, channel or option), BackendUnavailableError (a sensor cannot be used, or
    nothing here can make a load for it, or scipy is missing, without which nothing is found), and DeclinedError (the
    load began before the first reading).
    """

    seconds: float  # how long
    # of power or energy, which is chosen of each sensor that has it; None: the first that is read directly, power first
    channel: str | None = None
    interval_s: float | None = None  # mean time between polls; None: a twelfth of the refresh period, 0.2 to 3 ms
    clock: Clock = HOST_CLOCK
    progress: Callable[[str], None] = lambda _: None  # is told what is going on
    # is given whose sensor the first is; what it makes is entered before the load begins and left behind it, and may
    # open virtual sensors of the same load
    beside: Callable[[Identity], AbstractContextManager[object]] = lambda _: nullcontext()

    def alone(self, target: str, options: Mapping[str, str]) -> Polls:
        """Record the chosen channel of a sensor, ``name[:device]``.

        With a ``load`` among its options, which are text, a virtual device is recorded as it is.
        """
        (polls,) = self.together({target: options}, schedule(self.seconds))
        return polls

    def together(
        self, targets: Mapping[str, Mapping[str, str]], edges_s: Floats, shares: Sequence[float] = ()
    ) -> list[Polls]:
        """Record all channels of sensors, polled in turn, under a load that is switched on, off, ... at ``edges_s``.

        Each GPU has a load of its own by that schedule; there is one for all that measures processors.

        ``targets`` are options by target; ``shares`` how much of the device each block loads (none: all of it).

        The load of a virtual device begins with its world, before the sensors are open: where they take too long, all
        begin again in a world whose load waits for longer.
        """
        require("scipy", "finding out how a sensor behaves")  # said before the load is made, not after
        given = {canonical(target): options for target, options in targets.items()}
        for target, options in given.items():
            for key in OF_SENSORS.keys() & options.keys():
                msg = f"{target}: {key} is not an option here: {OF_SENSORS[key]}"
                raise TargetError(msg)
        names = " and ".join(given)
        for lead_s in _LEADS_S:
            try:
                return self._recorded(given, edges_s, shares, lead_s)
            except _TooLateError:  # noqa: PERF203  (each opens the sensors anew)
                again = "had begun before all sensors were open; again, with one that waits longer"
                self.progress(f"the load of {names} {again}")
        msg = f"{names}: the load had begun before the first reading, which this machine was too busy to take; repeat"
        raise DeclinedError(msg)

    def _recorded(
        self, given: Mapping[str, Mapping[str, str]], edges_s: Floats, shares: Sequence[float], lead_s: float
    ) -> list[Polls]:
        """Record under a load that begins ``lead_s`` later than its world.

        Raises _TooLateError: that was not late enough.
        """
        clock, makers = self.clock, dict[str, Maker]()
        with ExitStack() as held:
            opened = [self._open(target, given, (edges_s + lead_s, shares), makers, held) for target in given]
            self._refuse_unknown(opened)
            held.enter_context(self.beside(opened[0].source.identity))
            running = {loaded: held.enter_context(maker) for loaded, maker in makers.items()}
            for load in running.values():
                self._wait(load.edges_ns(), edges_s)
            start_ns, before = clock.now_ns(), [(o.source.limits(), o.source.settings()) for o in opened]
            interval = self.interval_s or min(_interval(o.channels[o.chosen]) for o in opened)
            polled = _poll([o.source for o in opened], clock, round(self.seconds * NS_PER_S), interval)
            found = []
            for o, (t_ns, counts), (limits, settings) in zip(opened, polled, before, strict=True):
                switched = running[_loaded(o.target)].edges_ns()
                if len(switched) and not (len(t_ns) and t_ns[0] < switched[0]):
                    raise _TooLateError
                edges = np.asarray((switched - start_ns) / NS_PER_S, np.float64)
                t_s = np.asarray((t_ns - start_ns) / NS_PER_S, np.float64)
                values, about = _values(o.channels, counts), (limits, o.source.limits())
                found.append(
                    Polls(
                        start_ns, t_s, o.channels, values, o.chosen, edges, o.source.identity, about,
                        (settings, o.source.settings()),
                    )
                )  # fmt: skip
            return found

    def _open(
        self,
        target: str,
        given: Mapping[str, Mapping[str, str]],
        blocks: tuple[Floats, Sequence[float]],
        makers: dict[str, Maker],
        held: ExitStack,
    ) -> _Opened:
        """Open a source, and have a load for it among the makers."""
        name, device = split_target(target)
        loaded, options = _loaded(target), given[target]
        if is_virtual(target):
            makers[loaded], options = virtual_load(options, blocks[0], self.clock, blocks[1])
        source = opener(name, device)(device, clock=self.clock, **options_from_text(target, options))
        held.callback(source.close)
        if loaded not in makers:
            makers[loaded] = _maker(target, source.identity, blocks, self.clock)
        channels = _recorded(source, target)
        asked = self.channel if len(given) == 1 or any(c.name == self.channel for c in channels) else None
        chosen = chosen_column(channels, asked, target)
        interval = self.interval_s or _interval(channels[chosen])
        self.progress(
            f"recording {target}, {channels[chosen].name}, for {self.seconds:g} s, every {1e3 * interval:.3g} ms"
        )
        return _Opened(target, source, channels, chosen)

    def _refuse_unknown(self, opened: Sequence[_Opened]) -> None:
        """Refuse a channel that none of several sensors has."""
        if self.channel is None or any(o.channels[o.chosen].name == self.channel for o in opened):
            return
        have = ", ".join(dict.fromkeys(c.name for o in opened for c in o.channels if c.measures_energy))
        names = " nor ".join(o.target for o in opened)
        msg = f"neither {names} has a channel {self.channel} of power or energy; they read {have}"
        raise TargetError(msg)

    def _wait(self, planned_ns: Ints, edges_s: Floats) -> None:
        """Wait until a load that is known beforehand is as far off as it was to be, or nearly so."""
        if not len(planned_ns):
            return
        rest_ns = round(float(edges_s[0]) * NS_PER_S)
        if self.clock.now_ns() > planned_ns[0] - rest_ns // 2:
            raise _TooLateError
        self.clock.wait_until(int(planned_ns[0]) - rest_ns, threading.Event())


class _TooLateError(Exception):
    """The load began, or was about to, before all sensors were open."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A source that is recorded."""

    target: str
    source: Source
    channels: tuple[Channel, ...]
    chosen: int


def _loaded(target: str) -> str:
    """Return what is loaded for a target: its own device, or the processors."""
    return target if split_target(target)[0] in GPUS or is_virtual(target) else _PROCESSORS


def _maker(target: str, identity: Identity, blocks: tuple[Floats, Sequence[float]], clock: Clock) -> Maker:
    """Return who makes the load for a device that is not virtual."""
    edges_s, shares = blocks
    name, device = split_target(target)
    if name in GPUS:
        return gpu_load(device, identity.serial, edges_s, clock, shares)
    return cpu_load(edges_s, clock, shares)


def _recorded(source: Source, target: str) -> tuple[Channel, ...]:
    """Return what the columns of a Block are, and the powers that are made of two of them."""
    if source.traits.streaming:
        msg = f"{target} delivers every sample by itself and averages nothing away: there is nothing to characterise"
        raise TargetError(msg)
    direct = [c for c in source.channels if c.derivation is Derivation.DIRECT]
    return (*direct, *(c for c in source.channels if c.derivation is not Derivation.DIRECT))


def _values(channels: Sequence[Channel], counts: Floats) -> Floats:
    """Return what counts of the direct channels are in the channels' units, and what is made of these."""
    direct = [c for c in channels if c.derivation is Derivation.DIRECT]
    values = (counts + [c.offset for c in direct]) * [c.scale for c in direct]
    column = {c.name: i for i, c in enumerate(direct)}
    made = []
    for channel in channels[len(direct) :]:
        first, second = (column[name] for name in channel.operands)
        if channel.derivation is Derivation.PRODUCT:
            made.append(values[:, first] * values[:, second])
        else:
            total, number = (_counted(direct[i], values[:, i]) for i in (first, second))
            made.append(channel.scale * _slope(number, total, _moves(number)))
    return np.column_stack((values, *made))


def chosen_column(channels: Sequence[Channel], wanted: str | None, target: str) -> int:
    """Return the column of the channel to record: that which is wanted, else the first power, else the first counter.

    Raises TargetError: there is none.
    """
    measuring = [(i, c) for i, c in enumerate(channels) if c.measures_energy]
    ranked = [i for kind in (Quantity.POWER, Quantity.ENERGY) for i, c in measuring if c.quantity is kind]
    match = next((i for i in ranked if wanted in {None, channels[i].name}), None)
    if match is None:
        names = ", ".join(c.name for _, c in measuring) or "none"
        msg = f"{target} has no channel {wanted or 'of power or energy'}; it reads {names}"
        raise TargetError(msg)
    return match


def _interval(channel: Channel) -> float:
    if channel.refresh_s is None:
        return _SLOWEST_S
    return min(max(channel.refresh_s / _POLLS_PER_REFRESH, _FASTEST_S), _SLOWEST_S)


def _poll(sources: Sequence[Source], clock: Clock, length_ns: int, interval_s: float) -> list[tuple[Ints, Floats]]:
    """Poll sources in turn for ``length_ns``: instants, and the newest counts at each.

    A register that has not moved repeats itself.
    """
    rng, never = np.random.default_rng(1), threading.Event()
    stamps: list[list[int]] = [[] for _ in sources]
    counts: list[list[Floats]] = [[] for _ in sources]
    newest = [np.full(sum(c.derivation is Derivation.DIRECT for c in s.channels), np.nan) for s in sources]
    end_ns = clock.now_ns() + length_ns
    while (began_ns := clock.now_ns()) < end_ns:
        now_ns = began_ns
        for i, source in enumerate(sources):
            block = source.read()
            if len(block):
                newest[i] = np.asarray(block.raw[-1], np.float64)
            then_ns = clock.now_ns()
            stamps[i].append((now_ns + then_ns) // 2)
            counts[i].append(newest[i])
            now_ns = then_ns
        clock.wait_until(began_ns + round(interval_s * NS_PER_S * rng.uniform(0.6, 1.4)), never)
    return [(np.array(t, np.int64), np.array(c, np.float64)) for t, c in zip(stamps, counts, strict=True)]


def whole_counts(counts: Floats) -> Floats:
    """Return counts without what is left of rounding, where they are whole."""
    whole = np.round(counts)
    return np.asarray(np.where(np.abs(counts - whole) < _ROUNDED, whole, counts), np.float64)


def moves_of(t_s: Floats, joules: Floats) -> tuple[Floats, Floats]:
    """Return the polls that found a counter moved, and what it showed then."""
    moves = _moves(joules)
    return t_s[moves], joules[moves]


def _moves(counted: Floats) -> Ints:
    return np.flatnonzero(np.diff(counted) > 0.0) + 1


def _counted(channel: Channel, values: Floats) -> Floats:
    """Return what a counter has counted since its first reading; it goes on where the counter began again."""
    known, found = np.isfinite(values), np.full(len(values), np.nan)
    found[known] = counted(whole_counts(values[known] / channel.scale - channel.offset), channel.scale, channel.wrap)[0]
    return found


def _mean_power(t_s: Floats, joules: Floats) -> Floats:
    """Mean power between the last two moves of a counter, shown until it moves again."""
    return _slope(t_s, joules, _moves(joules))


def _slope(x: Floats, y: Floats, moves: Ints) -> Floats:
    """Return by how much ``y`` rose for each of ``x`` between the last two ``moves``; NaN before there are two."""
    slopes = np.append(np.nan, np.diff(y[moves]) / np.diff(x[moves]))
    return np.asarray(slopes[np.maximum(np.searchsorted(moves, np.arange(len(x)), side="right") - 1, 0)], np.float64)
