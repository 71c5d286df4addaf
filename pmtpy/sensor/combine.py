"""Several rails as one sensor: an accelerator that is fed by more than one rail is one reading.

Rails that are asked are read directly after each other and make one row, whose instant is the middle of the readings.
Where one has times of its own (a stream, readings that the device stamps), the curves of all are brought to common rows
(``_merged``). Everything above the waist is as for any sensor: energy, regions, dumps, peak power of the *sum*.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pmtpy.core import arguments
from pmtpy.core.channel import Channel, Derivation, Identity, Quantity, summable
from pmtpy.core.clock import HOST_CLOCK, Clock, interval_seconds
from pmtpy.core.rows import Block, Row
from pmtpy.core.source import PolledSource, Remarks, Source, Timestamps, Traits, columns
from pmtpy.errors import ReadError, SourceLostError, TargetError
from pmtpy.sensor._merged import MergedSource, limits_of, mean_channel, remarks_of, settings_of
from pmtpy.sensor.registry import canonical, opener, split_target
from pmtpy.sensor.sensor import Sensor


def combine(
    name: str,
    targets: Sequence[str],
    *,
    interval: float | str | None = None,
    history_s: float = 2.0,
    clock: Clock = HOST_CLOCK,
    each: Mapping[str, Mapping[str, object]] | None = None,
    **options: object,
) -> Sensor:
    """Open several sensors as one.

    Parameters
    ----------
    name : str
        Name of the whole, which becomes its target and the part that it measures.
    targets : sequence of str
        The rails, e.g. ``["hwmon:ina226/0", "hwmon:ina226/1"]``.
    interval, history_s, clock
        As for :func:`pmtpy.create`.
    each : mapping of target to options
        Options of single rails, over those for all.
    **options
        For all rails alike.

    Raises
    ------
    TargetError
        No rails, one of them twice, or no sum of them because one may see what another sees.
    BackendUnavailableError
        One of them cannot be opened; the others are closed again.
    """
    arguments.instance(name, str, "the name of a combination, which is text")
    wanted = "the rails of a combination: a list of targets"
    given = arguments.sequence(targets, wanted)
    if any(isinstance(t, Sensor) for t in given):
        msg = (
            f"{name}: a combination opens its rails itself: give targets as text, close the sensors, and give options"
            " of single rails by each={target: {...}}"
        )
        raise TargetError(msg)
    rails = [canonical(t) for t in given]
    if len(rails) < 2 or len(set(rails)) != len(rails):
        msg = f"{name}: a combination needs at least two different rails, not {list(targets)}"
        raise TargetError(msg)
    interval_s = interval_seconds(interval)
    history_s = arguments.number(history_s, "history_s, a number of seconds, 0 to 1e9", least=0.0, most=1e9)
    sources: list[Source] = []
    try:
        for rail in rails:
            backend, device = split_target(rail)
            sources.append(opener(backend, device)(device, clock=clock, **{**options, **(each or {}).get(rail, {})}))
        whole = _whole(name, rails, sources, clock)
        return Sensor(whole, name, clock, history_s=history_s, interval_s=interval_s, rails=rails)
    except BaseException:
        for source in sources:
            source.close()
        raise


def _whole(name: str, rails: Sequence[str], sources: Sequence[Source], clock: Clock) -> Source:
    """Return the source of all rails."""
    if all(s.traits.timestamps is Timestamps.HOST_READ and not s.traits.streaming for s in sources):
        return _Combined(name, rails, sources, clock)
    channels = [mean_channel(c) for c in _combined(name, rails, sources) if c.measures_energy]
    whole = MergedSource(rails, sources, channels, clock)
    whole.identity, whole.traits = _identity(name, rails, sources), _traits(sources)
    return whole


def _identity(name: str, rails: Sequence[str], sources: Sequence[Source]) -> Identity:
    identities = [s.identity for s in sources]
    return Identity(
        name,
        " + ".join(rails),
        version=", ".join(dict.fromkeys(i.version for i in identities if i.version)),
        virtual=any(i.virtual for i in identities),
        notes=tuple(dict.fromkeys(note for i in identities for note in i.notes)),
    )


def _traits(sources: Sequence[Source]) -> Traits:
    traits = [s.traits for s in sources]
    return Traits(
        interval_s=min(t.interval_s for t in traits),
        deadline_s=min((t.deadline_s for t in traits if t.deadline_s is not None), default=None),
        blocking=any(t.blocking for t in traits),
    )


class _Combined(PolledSource):
    """The rails of one accelerator. Owns their sources."""

    gone_after_s = math.inf  # each rail judges by itself when it is gone

    def __init__(self, name: str, rails: Sequence[str], sources: Sequence[Source], clock: Clock) -> None:
        super().__init__(clock)
        self._sources = list(sources)
        self._name, self._rails = name, list(rails)
        self._last: list[list[float] | None] = [None] * len(sources)
        self._lost_rails: dict[int, tuple[int, SourceLostError]] = {}  # rails that are, since when, and why
        self._fresh = False  # a rail has restarted since the last row
        self._restarted: set[int] = set()  # columns whose counters have not gone on since the last row
        self.channels = _combined(name, rails, sources)
        self.identity = _identity(name, rails, sources)
        self.traits = _traits(sources)

    def poll(self) -> Sequence[float] | Block:
        """Read every rail; one that has not refreshed keeps its counts, and nothing is known of one that failed.

        A counter that fails spoils the row: the next one that all rails give bridges it, since counters go on counting.
        Where a rail has restarted, its counters do not continue, so neither does the whole. A counter that its own rail
        does not believe is not believed here either, and nothing of a rail that is lost.
        """
        row: list[float] = []
        failed, unread = "", dict[int, str]()
        for i, source in enumerate(self._sources):
            taken = self._taken(i, source)
            if taken is None:
                row += [math.nan] * columns(source.channels)
                continue
            unread |= {len(row) + column: why for column, why in source.unread.items()}
            if isinstance(taken, Row):
                self._last[i] = list(taken.counts)
            elif isinstance(taken, Block) and len(taken):
                self._last[i] = taken.raw[-1].tolist()
                self._fresh = self._fresh or taken.fresh
                self._restarted.update(len(row) + column for column in taken.restarted)
            counts = self._last[i]
            if counts is None or source.last_read_failed:
                why = f": {source.last_failure}" if source.last_failure else ""
                who = " ".join(filter(None, (self._name + ":", source.identity.backend, source.identity.model)))
                failed = f"{who} gave no reading{why}"
                if any(c.quantity is Quantity.ENERGY for c in source.channels):
                    raise ReadError(failed)
                counts = [math.nan] * columns(source.channels)
                unread |= dict.fromkeys(range(len(row), len(row) + len(counts)), failed)
            row += counts
        if failed and all(map(math.isnan, row)):
            raise ReadError(failed)
        self._unread = unread
        if not self._fresh and not self._restarted:
            return row
        self._last_t_ns = max(self._clock.now_ns(), self._last_t_ns + 1)
        made = replace(Block.row(self._last_t_ns, row, fresh=self._fresh), restarted=tuple(sorted(self._restarted)))
        self._fresh = False
        self._restarted.clear()
        return made

    def _taken(self, i: int, source: Source) -> Block | Row | None:
        """Read one rail; None where it is lost.

        Raises SourceLostError: all of them are.
        """
        if i not in self._lost_rails:
            try:
                return source.read_row()
            except SourceLostError as error:
                self._lost_rails[i] = self._clock.now_ns(), error
        if len(self._lost_rails) == len(self._sources):
            raise self._lost_rails[i][1]
        return None

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return what is known of a stretch of any of the rails, and which are lost."""
        lost = {self._rails[i]: lost for i, lost in self._lost_rails.items()}
        return remarks_of(self._sources, lost, begin_ns, end_ns)

    def limits(self) -> Mapping[str, float]:
        """Return what holds a rail back, and for how long it has held back the worst of them."""
        return limits_of(self._sources)

    def settings(self) -> Mapping[str, str]:
        """Return what is set on each rail, under its name."""
        return settings_of(self._rails, self._sources)

    def close(self) -> None:
        """Close all rails."""
        for source in self._sources:
            source.close()


def _prefixes(rails: Sequence[str]) -> list[str]:
    """Return a short, distinct channel prefix for each rail."""
    slugs = [re.sub(r"[^a-z0-9]+", "-", rail.partition(":")[2].lower() or rail).strip("-") for rail in rails]
    return slugs if len(set(slugs)) == len(slugs) else [f"rail{i}" for i in range(len(rails))]


def _combined(name: str, rails: Sequence[str], sources: Sequence[Source]) -> tuple[Channel, ...]:
    """Return the channels of all rails, each under its rail's prefix; those that make the sum as parts of the whole.

    Raises TargetError: what one rail sees of another is not known, so that a sum could count it twice
    (:func:`summable`).
    """
    parts = [(rail, _domain(c, s.channels, rail)) for rail, s in zip(rails, sources, strict=True) for c in s.channels]
    chosen, why = summable(parts, rails=True)
    if why:
        msg = f"{name}: no sum of {', '.join(rails)}: {why}; watch them side by side instead"
        raise TargetError(msg)
    prefixes = [p for p, s in zip(_prefixes(rails), sources, strict=True) for _ in s.channels]
    channels = [c for s in sources for c in s.channels]
    return tuple(
        replace(
            c,
            name=f"{prefix}.{c.name}",
            operands=tuple(f"{prefix}.{o}" for o in c.operands),
            domain=parts[i][1] if i in chosen else "",  # as it is: beside others a part is told again
        )
        for i, (c, prefix) in enumerate(zip(channels, prefixes, strict=True))
    )


def _domain(channel: Channel, beside: Sequence[Channel], rail: str) -> str:
    """Return the part that a channel measures; of a chip that does not say so, and measures but one, that rail."""
    if channel.domain or not channel.measures_energy:
        return channel.domain
    alone = sum(c.measures_energy for c in beside) == 1 and channel.derivation is not Derivation.RATIO
    return f"external/{rail}" if alone else ""
