"""One trial of a benchmark: bursts of a piece of work, each a region in the middle of what runs."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pmtpy.analysis.repetition.plan import Plan
from pmtpy.analysis.uncertainty.components import COMPONENTS
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.state import LEAST_COVERAGE
from pmtpy.errors import CoverageError
from pmtpy.lab.bench_work import Work
from pmtpy.lab.conditions import conditions, held_back, limits
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of

_ENDS = {"reconstruction"} | {name for name, of in COMPONENTS.items() if of.at_ends}  # of bursts between idle times
_POLL_S = 0.05  # between two looks whether the readings of a burst have come
_LOOKS = 40


@dataclass(frozen=True, slots=True)
class Trial:
    """What one trial measured; energies are those of one repetition."""

    side: int  # which work: 0 or 1
    block: int
    start_unix_s: float
    middle_s: float  # middle of the trial, seconds since the benchmark began
    repetitions: int  # measured, in all bursts
    # of one repetition; ``watts`` is their mean power
    seconds: float
    joules: float
    watts: float
    # standard uncertainties that all trials share, relative to ``joules``; the last is that of bursts which begin and
    # end in idle time, whose edges the sensor blurs
    gain_u: float
    offset_u: float
    resolution_u: float
    ends_u: float
    coverage: float  # share of the time for which the energy is known
    # temperatures and clocks
    before: Mapping[str, float]
    after: Mapping[str, float]
    # what kept the clocks below what they could be, and for how many seconds of the trial; NaN where all that is
    # known is that it did so at its begin or end
    held_back: Mapping[str, float]
    warnings: tuple[str, ...]  # of the sensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trial stands in its benchmark: its side and block, and the number and phase of its bursts."""

    side: int
    block: int
    number: int
    offset: float
    begin_ns: int


def measure(sensor: Sensor, work: Work, plan: Plan, place: Place) -> Trial:
    """Run one trial.

    Raises
    ------
    WorkFailedError, or what the work raises
    SourceLostError
        The sensor is gone.
    CoverageError
        The energy of too much of the trial is not known.
    """
    made = acquisition_of(sensor)
    clock = made.clock
    looks = [limits(sensor)]
    anchor, start_ns, before = clock.anchor(), clock.now_ns(), conditions(sensor)
    found: list[Measurement] = []
    for burst in range(plan.bursts):
        if plan.period_s:
            _wait_for_phase(clock, plan, plan.start(place.number, burst, place.offset))
        work.run(plan.lead)
        with Region(work.label, {sensor.target: sensor}) as region:
            work.run(plan.repetitions)
        work.run(plan.tail)
        looks.append(limits(sensor))  # soon, before the clocks fall
        rest(clock, plan.rest_s)
        found.append(when_settled(region, sensor, clock))
    end_ns, after = clock.now_ns(), conditions(sensor)
    seconds = math.fsum(m.seconds for m in found)
    coverage = min(m.coverage for m in found)
    if not coverage >= LEAST_COVERAGE:
        why = next(m.warnings for m in found if m.coverage == coverage)
        of = f"{sensor.target}: of {1 - coverage:.0%} of a burst the energy is not known"
        raise CoverageError("; ".join([of, *why]))
    # Up to a twentieth of a burst may be unknown: it is taken to be like the rest of that burst.
    joules = math.fsum(m.joules / m.coverage for m in found)
    gain, offset, resolution = (_share(found, {name}, joules) for name in ("gain", "offset", "resolution"))
    ends = 0.0 if plan.lead else _share(found, _ENDS, joules)  # in step, what comes in at one end goes out at the other
    number = plan.bursts * plan.repetitions
    return Trial(
        place.side,
        place.block,
        anchor.unix_s(start_ns),
        ((start_ns + end_ns) / 2 - place.begin_ns) / NS_PER_S,
        number,
        seconds / number,
        joules / number,
        joules / seconds if seconds > 0 else math.nan,
        gain,
        offset,
        resolution,
        ends,
        coverage,
        before,
        after,
        held_back(looks),
        tuple(dict.fromkeys(w for m in found for w in m.warnings)),
    )


def rest(clock: Clock, seconds: float) -> None:
    """Wait."""
    if seconds > 0.0:
        clock.wait_until(clock.now_ns() + round(seconds * NS_PER_S), threading.Event())


def _wait_for_phase(clock: Clock, plan: Plan, part: float) -> None:
    """Wait until the clock stands at a part of the sensor's period."""
    period_ns = max(1, round(plan.period_s * NS_PER_S))
    ahead = (round(part * period_ns) - clock.now_ns()) % period_ns
    rest(clock, ahead / NS_PER_S)


def when_settled(region: Region, sensor: Sensor, clock: Clock) -> Measurement:
    """Return what the sensor says of a region once all its readings have come; as it is where they take too long."""
    for _ in range(_LOOKS):
        measured = region[sensor]
        if measured.settled:
            break
        rest(clock, _POLL_S)
    return measured


def _share(found: list[Measurement], names: Collection[str], joules: float) -> float:
    """Return components of the uncertainty that all bursts have in common, relative to their energy."""
    total = math.fsum(u for m in found for name, u in m.components if name in names)
    return total / abs(joules) if joules else math.inf
