"""Rails of which some have times of their own, as one source: their curves of energy are read at common instants.

A rail that fails, restarts or is lost is missing in the rows that it misses, and so is the sum there; the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Quantity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rails import Rails
from pmtpy.core.rows import Block, Floats, Frame, Ints, Layout, Point
from pmtpy.core.source import Remarks, Source
from pmtpy.errors import SourceLostError

_MIN_RAIL_TIMEOUT_S = 1.0


class MergedSource(Source):
    """The rails of a whole. Owns their sources.

    Parameters
    ----------
    rails, sources
        What they are called, and their sources.
    channels : sequence of Channel
        Channels of the whole that make energy, rail by rail in the order of each rail's layout.
    """

    def __init__(
        self, rails: Sequence[str], sources: Sequence[Source], channels: Sequence[Channel], clock: Clock
    ) -> None:
        self._names, self._sources, self._clock = list(rails), list(sources), clock
        self._integrators = [Integrator(Layout(source.channels)) for source in sources]
        columns = [len(i.layout.energy) for i in self._integrators]
        slowest = max((c.refresh_s or 0.0 for c in channels), default=0.0)
        self._shared = Rails(columns, round(max(_MIN_RAIL_TIMEOUT_S, 4 * slowest) * NS_PER_S))
        self._lost: dict[int, tuple[int, SourceLostError]] = {}  # rails that are, since when, and why
        self.channels = tuple(channels)

    def read(self) -> Block:
        """Read each rail; return the rows that all have reached."""
        for i, source in enumerate(self._sources):
            if i in self._lost:
                continue
            try:
                taken = source.read_row()
            except SourceLostError as error:
                self._lost[i] = self._clock.now_ns(), error
                continue
            rows = self._integrators[i].advance(taken)
            if rows is not None:
                self._shared.add(i, *_curves(rows))
        if len(self._lost) == len(self._sources):
            raise max(self._lost.values(), key=lambda lost: lost[0])[1]
        return self._shared.take(self._clock.now_ns()) or Block.empty(len(self.channels))

    @property
    def last_read_failed(self) -> bool:
        """Whether any rail's last reading failed."""
        return any(source.last_read_failed for source in self._sources)

    @property
    def last_failure(self) -> str:
        """Why the last reading of a rail failed, of the first that did."""
        return next(filter(None, (source.last_failure for source in self._sources)), "")

    @property
    def has_backlog(self) -> bool:
        """Whether any rail has more."""
        return any(source.has_backlog for source in self._sources)

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Return what is known of a stretch of any of the rails, and which are lost."""
        return remarks_of(self._sources, {self._names[i]: lost for i, lost in self._lost.items()}, begin_ns, end_ns)

    def limits(self) -> Mapping[str, float]:
        """Return what holds a rail back, and for how long it has held back the worst of them."""
        return limits_of(self._sources)

    def settings(self) -> Mapping[str, str]:
        """Return what is set on each rail, under its name."""
        return settings_of(self._names, self._sources)

    def close(self) -> None:
        """Close all rails."""
        for source in self._sources:
            source.close()


def remarks_of(
    sources: Sequence[Source], lost: Mapping[str, tuple[int, SourceLostError]], begin_ns: int, end_ns: int
) -> Remarks:
    """Return what is known of a stretch of any of the rails, and which are ``lost``, since when, and why."""
    told = [source.remarks(begin_ns, end_ns) for source in sources]
    gone = [f"{rail} was lost and is missing from then on: {why}" for rail, (at, why) in lost.items() if at < end_ns]
    return Remarks(
        max(t.time_u_s for t in told),
        (*dict.fromkeys(warning for t in told for warning in t.warnings), *gone),
        max(t.missing_s for t in told),
    )


def limits_of(sources: Sequence[Source]) -> dict[str, float]:
    """Return what holds any of several sources back: of each cause the longest."""
    found: dict[str, float] = {}
    for cause, seconds in (item for source in sources for item in source.limits().items()):
        found[cause] = max(seconds, found.get(cause, 0.0))
    return found


def settings_of(rails: Sequence[str], sources: Sequence[Source]) -> dict[str, str]:
    """Return what is set on each of several sources: rails of one kind have settings of one name and several values."""
    both = zip(rails, sources, strict=True)
    return {f"{rail}: {name}": value for rail, source in both for name, value in source.settings().items()}


def _curves(rows: Frame | Point) -> tuple[Ints, Floats, Floats]:
    """Instants, joules and uncovered time of the parts; the total is made anew of all rails."""
    if isinstance(rows, Point):
        rows = Frame.of_points([rows])
    return rows.t_ns, rows.joules[:, 1:], rows.uncovered_ns[:, 1:].astype(np.float64)


def mean_channel(channel: Channel) -> Channel:
    """Return a part's channel as the mean power since the row before."""
    return replace(
        channel,
        quantity=Quantity.POWER,
        scale=1.0,
        offset=0.0,
        wrap=None,
        derivation=Derivation.DIRECT,
        operands=(),
        method=EnergyMethod.MEAN,
        resolution=channel.smallest_step if channel.quantity is Quantity.POWER else 0.0,
        least_watts=0.0,
    )
