"""What tells the true power of a steady load: a meter beside the sensor, or the world of a virtual device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.uncertainty.channel_times import reach_s
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError
from pmtpy.lab.loads import virtual_watts
from pmtpy.regions.interval_energy import interval_energy
from pmtpy.sensor.history import Recent
from pmtpy.sensor.registry import create
from pmtpy.sensor.sensor import Sensor, acquisition_of

_POLLED_S = 0.005  # a fiftieth of the shortest stretch of a level
# What every energy of one meter has in common: it moves the whole line through the levels, and bends nothing.
_IN_COMMON = frozenset({"gain", "offset"})
# Share of a stretch for which a meter's energy must be known: single frames are lost on a busy machine, and what is not
# known of the energy for their sake is in its uncertainty.
_LEAST_COVERAGE = 0.99


@dataclass(frozen=True, slots=True)
class Known:
    """A mean power, with standard uncertainties in watts: its own, and what it shares with all others."""

    watts: float = math.nan
    own_u: float = 0.0
    shared_u: float = 0.0


@dataclass(frozen=True, slots=True)
class Reference:
    """What is trusted.

    Attributes
    ----------
    name : str
        Its name for the report; empty: there is none.
    mean : callable
        Its mean power between two instants, in seconds since the recording began.
    reach_s : float
        For how long after a change of the load what it shows is still partly what was before.
    curve : Series or None
        What it showed; None: the load itself is known.
    """

    name: str
    mean: Callable[[float, float], Known]
    reach_s: float = 0.0
    curve: Series | None = None


NOTHING = Reference("", lambda _start, _end: Known())


def of_world(edges_s: Floats, shares: tuple[float, ...]) -> Reference:
    """Take the load that a virtual device's world was made to follow."""
    loaded = np.zeros(len(edges_s) + 1)
    loaded[1::2] = shares[: len(edges_s) // 2]
    trace = PowerTrace.of_levels(edges_s, virtual_watts(loaded))
    return Reference("the load of its own world", lambda a, b: Known(trace.energy(a, b) / (b - a)))


def opened(meter: str, clock: Clock, *, history_s: float, interval_s: float | None = None) -> Sensor:
    """Open a meter and let it be read all the time, as often as it refreshes, but not more often than is useful.

    A counter is else read when somebody asks: that tells energies, and nothing of how they came about.

    Parameters
    ----------
    interval_s : float, optional
        How often a meter that must be polled is polled at the most. None: each 5 ms.
    """
    sensor = create(meter, clock=clock, history_s=history_s)
    made = acquisition_of(sensor)
    refreshed_s = min((c.refresh_s for c in made.layout.energy if c.refresh_s), default=math.inf)
    wanted_s = max(refreshed_s, interval_s or _POLLED_S)
    if not made.intake.source.traits.streaming and wanted_s < made.intake.period_s:
        sensor.close()
        sensor = create(meter, clock=clock, history_s=history_s, interval=wanted_s)
        made = acquisition_of(sensor)
    made.read_for_feed(made.intake.period_s)
    with made.intake.lock:
        made.start_feed(lambda _: None)
    return sensor


def of_meter(sensor: Sensor, seen: Recent, name: str, start_ns: int) -> Reference:
    """Take what a sensor measured; it may be closed meanwhile.

    Parameters
    ----------
    seen : Recent
        Its history of the whole recording.
    start_ns : int
        When the recording began, on the clock of both.
    """
    made = acquisition_of(sensor)
    t_s = np.asarray((seen.t_ns - start_ns) / NS_PER_S, np.float64)
    parts = [made.layout.energy[i - 1] for i in made.layout.in_total] or made.layout.energy
    polled_s = 0.0 if made.intake.source.traits.streaming else made.intake.period_s
    reach = polled_s + max((reach_s(c) + (c.window_s or 0.0) for c in parts), default=0.0)

    def mean(start_s: float, end_s: float) -> Known:
        try:
            a, b = made.as_known(*[made.bookmark(start_ns + round(at * NS_PER_S)) for at in (start_s, end_s)])
        except CoverageError:  # it was opened later, or keeps less
            return Known()
        found = interval_energy(made, a, b)
        if not (found.coverage >= _LEAST_COVERAGE and math.isfinite(found.uncertainty_joules)):
            return Known()
        shared = math.hypot(*(joules for part, joules in found.components if part in _IN_COMMON))
        own = math.sqrt(max(0.0, found.uncertainty_joules**2 - shared**2))
        return Known(found.watts, own / found.seconds, shared / found.seconds)

    return Reference(name, mean, reach, Series(t_s, seen.watts[:, 0], joules=seen.joules[:, 0]))
