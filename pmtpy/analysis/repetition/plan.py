"""How a piece of work is to be repeated so that a sensor can tell its energy.

By the good practice of Yang, Adamek, Armour (arXiv 2312.02741, section 5) with the numbers of the sensor at hand: so
many repetitions that the ends do not count, nothing taken before the readings show the work, readings counted from when
they happened, and, where a sensor sees a part of the time only, bursts that begin at instants spread evenly over its
period. Unlike there no delay lies inside of what is measured, so no idle energy has to be taken off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pmtpy.analysis.uncertainty.ahead import GOLDEN
from pmtpy.analysis.uncertainty.channel_times import FULL_COVERAGE, is_power, lag_s, reach_s, seen_share
from pmtpy.core.channel import Channel
from pmtpy.core.response import Response

_PERIODS = 50.0  # a trial: the 5 s that the study recommends for the 100 ms of its sensors
_MIN_TRIAL_S = 1.0  # of a trial: below it the interruptions and slow swings of the host count
_LEAST_PHASES, _MOST_PHASES = 8, 32  # the study inserts 8 delays; a sensor that sees less than 1/32 is not helped
_TIME_CONSTANTS = 5.0  # of a low-pass, after which 0.7 % of a step are still to come
# Energy on the wrong side of the ends of a burst that idles before and after, in powers of the work times the rise: at
# most this in simulation (full and part-time sensors, work whose power begins high and ends low).
_EDGE_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Timing:
    """How a sensor follows time, as far as a plan must know; the worst of its channels counts."""

    refresh_s: float  # time for which one reading stands
    seen: float  # share of time that reaches a reading; 0 where that is not known
    rise_s: float  # how long after a step of the load readings do not show all of it yet
    reach_s: float  # how long after an instant readings still tell of it

    @property
    def phases(self) -> int:
        """Instants of the period at which bursts have to begin, so that all of the work is seen; 1: any will do."""
        if self.seen >= FULL_COVERAGE:
            return 1
        needed = math.ceil(1.0 / self.seen) if self.seen > 0.0 else _LEAST_PHASES
        return min(_MOST_PHASES, max(_LEAST_PHASES, needed))


@dataclass(frozen=True, slots=True)
class Plan:
    """One trial: so many bursts of so many repetitions."""

    repetitions: int  # measured in each burst
    bursts: int
    # repetitions before and after those, of which the readings are not taken
    lead: int
    tail: int
    rest_s: float  # how long to wait after a burst, until its readings have come
    period_s: float  # over which the beginnings of bursts are spread; 0: not spread

    @property
    def runs(self) -> int:
        """How often the work is done in one trial."""
        return self.bursts * (self.lead + self.repetitions + self.tail)

    def start(self, trial: int, burst: int, offset: float) -> float:
        """Return when a burst begins, as a part of the period: spread over the bursts, and over all trials."""
        return (offset + (burst + trial * GOLDEN) / self.bursts) % 1.0


def timing_of(channels: Sequence[Channel], poll_s: float, responses: Mapping[str, Response]) -> Timing:
    """Gather how a sensor follows time from what its channels state, and from its profile.

    Parameters
    ----------
    channels : sequence of Channel
        Those that measure energy. A counter beside a power that sees part of the time is not trusted to see more:
        that it moves says nothing of how it samples.
    poll_s : float
        Time between two readings of a register; 0 of a stream.
    responses : mapping of channel name to Response
        What profiles know.
    """
    samples = [_sample_s(c, poll_s) for c in channels]
    return Timing(
        max(samples),
        min(seen_share(c, s) for c, s in zip(channels, samples, strict=True)),
        max(s + _spread_s(c, responses.get(c.name)) for c, s in zip(channels, samples, strict=True)),
        max(reach_s(c) + s for c, s in zip(channels, samples, strict=True)),
    )


def _sample_s(channel: Channel, poll_s: float) -> float:
    refresh = channel.refresh_s or 0.0
    return max(refresh, poll_s) if is_power(channel) else refresh or poll_s


def _spread_s(channel: Channel, how: Response | None) -> float:
    """How long a step is spread over, once it was read."""
    if how is not None and how.shaped:
        return how.window_s + _TIME_CONSTANTS * how.tau_s + max(0.0, how.delay_s)
    if channel.window_s is not None or channel.lag_s is None:
        return (channel.window_s or 0.0) + max(0.0, lag_s(channel) - (channel.window_s or 0.0) / 2.0)
    return _TIME_CONSTANTS * abs(channel.lag_s)  # known by its lag alone: a low-pass


def plan_trial(timing: Timing, once_s: float, target: float) -> Plan:
    """Plan a trial of work that takes ``once_s`` seconds each time, of which ``target`` is wanted (0.01: 1 %)."""
    wanted_s = max(_MIN_TRIAL_S, _PERIODS * timing.refresh_s)
    number = max(1, math.ceil(wanted_s / once_s))
    bursts = min(timing.phases, number)
    repetitions = math.ceil(number / bursts)
    # Where the rise is little beside the burst, idle ends are cheaper than repetitions that are not taken.
    blurred = _EDGE_SHARE * timing.rise_s / (repetitions * once_s)
    in_step = blurred > target / 2.0
    return Plan(
        repetitions,
        bursts,
        math.ceil(timing.rise_s / once_s) if in_step else 0,
        math.ceil(timing.reach_s / once_s) if in_step else 0,
        0.0 if in_step else timing.reach_s,
        timing.refresh_s if timing.phases > 1 else 0.0,
    )
