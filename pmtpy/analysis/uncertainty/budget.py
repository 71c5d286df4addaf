"""How far a measured energy can be trusted: a standard uncertainty, what it is made of, and plain warnings.

Pure arithmetic in the manner of the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008): each
cause is a component with a standard uncertainty in joules, independent components add in squares, a 95 % interval is
1.96 times the result either way. It knows a :class:`~pmtpy.core.Channel` (what the sensor's maker
or a calibration says) and :class:`IntervalStatistics` (what was seen in one interval), and nothing else. It never
changes the energy. Every formula is derived in docs/uncertainty.md under the name of its component.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.signal.estimate import STANDS_OUT, Z95, student_95
from pmtpy.analysis.signal.updates import POLLED
from pmtpy.analysis.uncertainty.channel_times import FULL_COVERAGE, SEVERAL_RENEWALS, is_power, seen_share, span_s
from pmtpy.analysis.uncertainty.components import COMPONENTS, of_scale
from pmtpy.analysis.uncertainty.in_step import aliasing, in_step_with, joules_in_step
from pmtpy.analysis.uncertainty.interval import Edge, IntervalStatistics
from pmtpy.core.channel import Channel, EnergyMethod
from pmtpy.core.presentation import duration, not_covered
from pmtpy.core.response import Response

_BOUND = math.sqrt(3.0)  # half the width of a rectangular distribution over its standard deviation (JCGM 100, 4.3.7)
# Step times gap over the rms error of an edge: both lie at the same random place of a gap that is filled with its mean.
_IN_A_GAP = math.sqrt(30.0)
# Errors of an edge in a wide window, in squares of the window and of the bend of its readings: fits sines of 0.7 to 2.5
# periods within the window to within a factor of two.
_BEND_VARIANCE = 0.09
_MAX_CURVED_LENGTHS = 4.0  # and no more than the same sines hold in an interval that is short beside the window
# A counter that is read between two of its moves tells the power at that instant by its mean alone. For loads that work
# in bursts the rms error of that mean, relative, is this (docs/uncertainty.md, "Edges").
_BURSTS = 0.66
# A power that is averaged over a window, or counted between two moves, may have been used anywhere in that time: the
# relative error for a load that is on and off for equal times, its period between a tenth of that time and all of it,
# even in the logarithm. Steady readings do not exclude such a load: they may hold a whole number of its periods.
_HIDDEN = 0.067
# A load that none of n readings saw may run for a share of the time whose mean square is 2 / ((n + 2)(n + 3)) (rule of
# succession), at any power between nothing and the mean, which is off the mean by root 1/3 of it.
_NEVER_SEEN = math.sqrt(2.0 / 3.0)
DOUBTFUL_SHARE = 0.1  # of an energy that is open, or of a region whose rows have not come: above it this is said
# Steps of powers are finer, where they are not stated: the coarsest known are those of POWER9's firmware.
_COARSEST_W = 1.0
STANDSTILL = "standstill"  # the component of a counter that has never moved


class UncertaintyBudget(NamedTuple):
    """The judgement of one energy."""

    # Standard uncertainty; a 95 % interval is ``Z95`` times it, either way. NaN where nothing at all is
    # known of the interval.
    uncertainty_joules: float
    # (name, joules): the causes that are not zero, each a standard uncertainty, largest first
    components: tuple[tuple[str, float], ...] = ()
    warnings: tuple[str, ...] = ()  # what a reader of the number must know, in whole sentences

    @classmethod
    def of(cls, components: Sequence[tuple[str, float]], warnings: Sequence[str] = ()) -> UncertaintyBudget:
        """Make one of independent components, the largest first; NaN is kept: not known."""
        ranked = sorted([c for c in components if c[1] != 0.0], key=itemgetter(1), reverse=True)
        return cls(math.sqrt(sum([u * u for _, u in ranked])), tuple(ranked), tuple(warnings))


def uncertainty_budget(channel: Channel, seen: IntervalStatistics) -> UncertaintyBudget:
    """Judge one energy: its standard uncertainty in joules, the components of it, and the warnings."""
    judge = _Judge(channel, seen)
    components = {
        **judge.scale(),
        "resolution": judge.resolution(),
        "noise": judge.noise(),
        "edges": judge.edges(),
        "ahead": judge.ahead(),
        "lag": abs(seen.late_joules),  # one end is let in, one left out: the power is that of an earlier interval
        "clock": seen.clock_joules,  # all rows may be shifted by as much
        "sampling": judge.sampling(),
        "unresolved": judge.unresolved(),
        STANDSTILL: judge.standstill(),
        "uncovered": judge.uncovered(),
        "lost": judge.lost(),
        "drop-out": seen.dropped_joules,
        "skipped": seen.skipped_joules,  # renewals that did not come
    }
    return UncertaintyBudget.of(list(components.items()), judge.warnings(components))


def of_product(channel: Channel, voltage: Channel, current: Channel, volts: float, amperes: float) -> Channel:
    """Return a power that is formed from a voltage and a current with what follows from the two.

    What the channel says of itself holds for a nominal voltage; it is replaced, not added to. Where nothing is known
    of the two, the channel is left as it is.

    Parameters
    ----------
    volts, amperes : float
        Mean of the two in the interval that is judged.

    Notes
    -----
    With U +- EU and I +- EI the power has Ep = sqrt((U EI)^2 + (I EU)^2 + (EI EU)^2) (ISPASS 2025, PowerSensor3,
    error model). The gains' share is proportional to the power and stays relative; zero, noise and step become watts.
    """
    if not any((voltage.gain_u, voltage.offset_u, current.gain_u, current.offset_u)):
        return channel

    def watts(of_volts: float, of_amperes: float) -> float:
        return math.hypot(volts * of_amperes, amperes * of_volts, of_volts * of_amperes)

    return channel.with_uncertainty(
        gain_u=math.hypot(voltage.gain_u, current.gain_u),
        offset_u=watts(voltage.offset_u, current.offset_u),
        noise=watts(voltage.noise, current.noise),
        resolution=watts(voltage.smallest_step, current.smallest_step),
    )


def sum_budgets(budgets: Sequence[UncertaintyBudget]) -> UncertaintyBudget:
    """Judge the sum of several energies over one interval.

    Edges, lag and whatever was not seen, or was undone, come from one load and one pair of instants, so they add
    linearly; the sensors' own errors are independent and add in squares. Warnings are kept, each once.
    """
    if len(budgets) == 1:
        return budgets[0]
    together: dict[str, float] = {}
    for budget in budgets:
        for name, u in budget.components:
            together[name] = together.get(name, 0.0) + (u if COMPONENTS[name].shared else u * u)
    components = [(name, u if COMPONENTS[name].shared else math.sqrt(u)) for name, u in together.items()]
    return UncertaintyBudget.of(components, list(dict.fromkeys(w for b in budgets for w in b.warnings)))


def repeated(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, standard deviation and half-width of the 95 % interval of the mean (Student's t) of repeated runs.

    The interval speaks of repeatability alone: what all runs have in common (gain, zero) is not in it.

    Raises ValueError: fewer than two values: nothing repeats.
    """
    n = len(values)
    if n < 2:
        msg = f"repeatability needs at least two runs, not {n}"
        raise ValueError(msg)
    deviation = float(np.std(values, ddof=1))
    return float(np.mean(values)), deviation, student_95(n - 1) * deviation / math.sqrt(n)


def of_another(values: Sequence[float], within_u: Sequence[float]) -> tuple[float, float]:
    """Mean of what several recordings gave of one quantity, and how uncertain it is for yet another recording.

    The spread between them is estimated from them, which few do badly: the interval of 95 % for another one is
    ``t(k - 1) s sqrt(1 + 1/k)`` either way (a prediction interval), given as a standard uncertainty of that interval.
    It is never below what the recordings state of themselves.

    Raises ValueError: fewer than two recordings: nothing is known of a spread.
    """
    mean, deviation, _ = repeated(values)
    k = len(values)
    spread = student_95(k - 1) / Z95 * deviation * math.sqrt(1.0 + 1.0 / k)
    return mean, max(spread, math.sqrt(math.fsum(u * u for u in within_u) / k))


class _Judge:
    """One energy and what follows from its channel; each section of docs/uncertainty.md derives one method."""

    def __init__(self, channel: Channel, seen: IntervalStatistics) -> None:
        self.channel, self.seen = channel, seen
        self.power, self.mean = is_power(channel), channel.energy_method is EnergyMethod.MEAN
        self.refresh_s, self.window_s = channel.refresh_s or 0.0, channel.window_s or 0.0
        self.sample_s = max(seen.sample_s, self.refresh_s)  # time for which one reading stands
        self.noise_w = channel.noise or seen.noise_watts
        self.step = channel.smallest_step
        span = span_s(channel)
        between = self.sample_s if self.power else self.refresh_s
        self.needed_s = between + (span or 0.0)  # shortest interval that is sure to contain one whole reading
        self.covers = seen_share(channel, self.sample_s)
        known_s = seen.seconds - seen.uncovered_s
        self.mean_w = abs(seen.joules) / known_s if known_s > 0 else seen.peak_watts

    def _readings(self) -> float:
        """Independent readings in the interval, at least one."""
        return max(1.0, self.seen.seconds / self.sample_s if self.sample_s > 0 else self.seen.rows)

    def scale(self) -> dict[str, float]:
        """What is wrong alike in every reading of a power; in a counter's difference all but the gain cancels."""
        of, seen = self.channel, self.seen
        wrong = of_scale(of.response, of.gain_u, of.offset_u, seen.joules, seen.seconds)
        return wrong if self.power else {"gain": wrong["gain"]}

    def resolution(self) -> float:
        """Rounding: twice in a counter's difference; of a power, the same way in all readings: they may be alike.

        A register may as well cut off as round, which is half a step for all values alike, at even odds; a calibrated
        zero contains it.
        """
        one = (self._unseen_w() or self.step) / 2.0 / _BOUND
        if not self.power:
            return one * math.sqrt(2.0)
        cut_off = 0.0 if self.channel.offset_u else _BOUND**2 / 2.0
        return one * self.seen.seconds * math.sqrt(cut_off + 1.0)

    def _unseen_w(self) -> float:
        """Where all readings of a power are zero: what it may have been all the same, less than one step; else 0."""
        seen = self.seen
        known = seen.uncovered_s < seen.seconds and seen.rows > 0
        if not self.power or not known or seen.joules or seen.peak_watts or (seen.unseen_s and seen.range_watts[1]):
            return 0.0
        return self.step if self.channel.resolution is not None else max(self.step, _COARSEST_W)

    def noise(self) -> float:
        """White noise of single readings, averaged over those in the interval; twice in a counter's difference."""
        if not self.power:
            return self.channel.noise * math.sqrt(2.0)
        return self.noise_w * self.seen.seconds / math.sqrt(self._readings()) if self.noise_w else 0.0

    def _beyond_noise(self) -> float:
        """What the RMS step of the power exceeds that of noise alone, squared."""
        white = 2.0 * self.channel.noise**2 if self.power else 0.0
        return max(0.0, self.seen.rms_step_watts**2 - white)

    def edges(self) -> float:
        """Return what the two ends leave open: each falls between two refreshes, or inside an averaging window.

        By how much follows from how far the power moved there.
        """
        seen = self.seen
        if not self.power:
            # One that has rested since before: it stands still, or the part uses nothing (the same as a long age).
            rests = not seen.joules and not self._never_moved()
            rested_j = seen.rested_watts * (seen.seconds - seen.uncovered_s) / _BOUND if rests else 0.0
            return max(math.sqrt(self._counted(seen.start) + self._counted(seen.end)), math.sqrt(2.0) * rested_j)
        sample, window = self.sample_s, 0.0 if self.mean else self.window_s  # a mean's window is its sample interval
        curved = _BEND_VARIANCE * (seen.curvature_watts * min(window, _MAX_CURVED_LENGTHS * seen.seconds)) ** 2
        own_s = 0.0 if self._wide() else self.window_s  # of a wide one its bends tell
        squares = 2.0 * (curved + self._hidden(own_s))  # what lies between the windows is in "sampling"
        smeared = 0.0
        for edge in (seen.start, seen.end):
            swing = max(0.0, edge.peak_to_peak_watts - STANDS_OUT * self.noise_w)
            squares += self.covers * (swing * sample / _IN_A_GAP) ** 2
            smeared += swing * self._smeared_s(window) / 2.0 / _BOUND
        return math.hypot(math.sqrt(squares), smeared)

    def _smeared_s(self, window: float) -> float:
        """Of a region that is the work itself: the energy that a window shows outside of it, over what it shows of it.

        A block of the length ``L`` in a window ``W`` is shown as a trapezium, ``min(L, W)/W`` as high and ``W + L``
        long; a quarter of ``W`` is outside where ``L`` is longer, and all but ``L`` of a much shorter one.
        """
        length = min(self.seen.seconds, window)
        ramps = max(0.0, length - window / 2.0)
        return window - length + ramps * ramps / length if length > 0.0 else 0.0

    def _hidden(self, mean_s: float) -> float:
        """Square of what a load may be ahead of its mean within a time of which the mean alone is known."""
        return (_HIDDEN * self.mean_w * mean_s) ** 2

    def _wide(self) -> bool:
        """Whether a window spreads an instant over several readings."""
        return self.window_s > SEVERAL_RENEWALS * self.sample_s

    def _counted(self, edge: Edge) -> float:
        """Square of what one end of a counter's interval may be off; what was shown there is up to a refresh old.

        An age that is uniform up to ``T`` has the variance ``T^2/12`` and the mean square ``T^2/3``: the one for the
        power that is known, the other for what the power at that moment is off it.
        """
        bridged = (edge.peak_to_peak_watts * edge.gap_s / _IN_A_GAP) ** 2 + self._hidden(edge.gap_s)
        power = max(edge.watts, self.mean_w)
        return bridged + (power * edge.old_s) ** 2 * (1.0 / 12.0 + _BURSTS**2 / 3.0)

    def ahead(self) -> float:
        """No row has come for the last part of the interval: the power may have moved there as it did before.

        Beyond a few samples it walks, one step in each: a walk with steps of ``r`` has the variance ``r^2 a^3 / (3 D)``
        in its integral. A stream whose rows have not come is thousands of samples behind, whose noise hides the steps
        of the load: how far its power, carried on for as long, was off of late tells more.
        """
        late, carried = self.seen.late, min(self.seen.extrapolated_s, self.seen.seconds)
        if late is not None and 2.0 * carried > self.seen.seconds > 0.0:
            # What the power did before does not tell of a load that is measured because it begins: less of it was seen
            # than is missing. If loads began and ended of late it is one of those; else it may be any.
            changes = late.off_joules > DOUBTFUL_SHARE * late.peak_watts * carried
            most = late.peak_to_peak_watts if changes else self.channel.max_watts
            return math.nan if most is None else max(most * carried / _BOUND, late.off_joules)
        if late is not None and late.off_joules:
            return late.off_joules
        ahead, sample = max(self.seen.unseen_s, self.seen.extrapolated_s), self.sample_s
        if ahead <= 0.0:
            return 0.0
        rms = math.sqrt(self._beyond_noise())
        near = rms * math.sqrt(ahead * (sample + ahead) / 2.0)
        walked = rms * math.sqrt(ahead**3 / (3.0 * sample)) if sample > 0.0 else 0.0
        bound_s = min(ahead, self.seen.seconds) / _BOUND
        most = (self.seen.range_watts[1] - self.seen.range_watts[0]) * bound_s  # it stays between those that were seen
        between = late.peak_to_peak_watts * bound_s if late is not None else 0.0
        return max(near, min(walked, most), between)

    def sampling(self) -> float:
        """What is not seen between the windows: steps that are misplaced there, and changes faster than the samples."""
        if self.covers == 1.0:
            return 0.0
        fast = max(0.0, self.seen.alternating_watts**2 - self.channel.noise**2) * 5.0 / 6.0
        each = self._beyond_noise() / 12.0 + fast
        seen = (1.0 - self.covers) * each * self._readings() * self.sample_s**2
        never = (1.0 - self.covers) * _NEVER_SEEN * self.mean_w * self.seen.seconds / (self.seen.looked + 2.5)
        return math.hypot(math.sqrt(seen), never)

    def unresolved(self) -> float:
        """Less than one reading: the power inside can be anything from nothing to the most it can be."""
        seen = self.seen
        read_at_both = not self.power and seen.start.gap_s == seen.end.gap_s == 0.0
        if read_at_both or seen.seconds >= self.needed_s or seen.uncovered_s >= seen.seconds:
            return 0.0
        limit = self.channel.max_watts
        top = limit if limit is not None else 2.0 * max(self.mean_w, seen.peak_watts)
        return (1.0 - seen.seconds / self.needed_s) * top * seen.seconds / 2.0 / _BOUND

    def _never_moved(self) -> bool:
        """Whether a counter has stood since it began to count."""
        return math.isnan(self.seen.rested_watts) and not self.seen.joules

    def standstill(self) -> float:
        """Nothing tells a part that is off from a counter that does not count, where it has never been seen to.

        A part that is powered may have used as much as its limit by the time at which the rest is doubted.
        """
        known_s = self.seen.seconds - self.seen.uncovered_s
        if not self._never_moved() or known_s <= 0.0:
            return 0.0
        limit = self.channel.max_watts if self.channel.least_watts > 0.0 else None
        return math.nan if limit is None else limit * known_s / _BOUND

    def uncovered(self) -> float:
        """Time without known energy may have held as much as the rest; without a whole reading, up to the limit.

        Where that is because rows are late, it may have held the largest power of late.
        """
        unknown_s, limit = self.seen.uncovered_s, self.channel.max_watts
        if unknown_s <= 0.0:
            return 0.0
        known_s = self.seen.seconds - unknown_s
        if known_s > self.sample_s or (known_s > 0.0 and self.mean_w):
            return max(self.mean_w, self.seen.late.peak_watts if self.seen.late is not None else 0.0) * unknown_s
        return math.nan if limit is None else limit * unknown_s / _BOUND

    def lost(self) -> float:
        """Lost rows that were bridged by their neighbours."""
        seen = self.seen
        if not seen.lost or seen.uncovered_s > 0:
            return 0.0
        spacing = self.refresh_s or seen.seconds / max(1, seen.rows + seen.lost)
        return seen.rms_step_watts * spacing * seen.lost / 2.0 / _BOUND

    # -- warnings --------------------------------------------------------------------------------------------------

    def warnings(self, components: dict[str, float]) -> list[str]:
        """Say what a reader of the number must know."""
        name, seen = self.channel.name, self.seen
        out = self._too_short(components)
        # Later than the power of the newest row is taken to go on: then there is no energy either.
        behind = seen.uncovered_s > 0 and seen.behind_s > seen.extrapolated_s
        if seen.rows == 0 and self.power and not out and not behind:
            out.append(f"{name}: no reading falls into the region of {duration(seen.seconds)}")
        if math.isnan(components[STANDSTILL]):
            out.append(
                f"{name}: its counter has not moved since it was first read: the part is off, or the counter does not "
                "count, and it does not tell which"
            )
        elif not self.power and not seen.joules and seen.seconds > max(self.refresh_s, seen.uncovered_s):
            out.append(
                f"{name}: its counter did not move in {duration(seen.seconds)}: the part used less than a step of "
                f"{self.step:.2g} J, or the counter stands still"
            )
        if unseen_w := self._unseen_w():
            out.append(
                f"{name}: it showed 0 W all the time: the part is off or uses less than a step of {unseen_w:.2g} W, or "
                "the sensor does not measure"
            )
        if seen.uncovered_s > 0:
            out.append(
                f"{name}: {not_covered(seen.uncovered_s, seen.seconds)}"
                + (
                    f". Its newest row is {duration(seen.behind_s)} older than the end of the region: rows come late, "
                    "or not at all; asking later tells more"
                    if behind
                    else ""
                )
            )
        if not behind and seen.late is not None and seen.extrapolated_s > DOUBTFUL_SHARE * seen.seconds:
            out.append(
                f"{name}: rows of the last {duration(min(seen.extrapolated_s, seen.seconds))} have not come yet; the "
                "power before was taken to go on there, and asking a little later tells more"
                + ("; of a load that began meanwhile nothing is known" if math.isnan(components["ahead"]) else "")
            )
        if seen.dropped_joules:
            out.append(
                f"{name}: it showed no power for a moment, between readings of like powers; if that was a fault of the "
                f"monitor, {seen.dropped_joules:.3g} J are missing, which the uncertainty holds"
            )
        if seen.lost:
            out.append(f"{name}: {seen.lost} rows were lost inside the region")
        return out + self._in_step(UncertaintyBudget.of(list(components.items())).uncertainty_joules)

    def _in_step(self, uncertainty_joules: float) -> list[str]:
        """Say what the energy may be if the load repeats in step with the readings, where that says more."""
        seen, span, part_time = self.seen, span_s(self.channel), self.covers < FULL_COVERAGE
        if not self.power or not self.sample_s or not (part_time or self._wide()):  # of others "edges" has it
            return []
        between = seen.joules, seen.joules
        covers = None if span is None and part_time else self.covers
        if covers is not None and seen.seconds > seen.uncovered_s:
            like = Response(self.sample_s, self.sample_s if span is None else span)
            swings = seen.start.peak_to_peak_watts + seen.end.peak_to_peak_watts
            between = joules_in_step(
                like, seen.joules, seen.seconds - seen.uncovered_s, seen.range_watts, max(0.0, swings)
            )
        seldom = 0.0 < self.refresh_s < POLLED * self.sample_s  # the register is renewed more often than it is read
        why = aliasing(
            seen.joules,
            Z95 * uncertainty_joules,
            between,
            covers=covers,
            period=in_step_with(self.sample_s, self.window_s, self.refresh_s if seldom else 0.0),
            cure="measure longer, or vary the start over several runs",
            always=part_time,
        )
        return [f"{self.channel.name}: {why}"] if why else []

    def _too_short(self, components: dict[str, float]) -> list[str]:
        seen, short = self.seen, self.seen.seconds < max(self.needed_s, self.refresh_s)
        ahead = components["ahead"] if seen.late is None else 0.0  # a longer region would not bring rows sooner
        others = math.hypot(components["edges"], ahead, components["lag"])
        blurred = math.hypot(others, components["clock"])
        # No powered part uses none.
        used = abs(seen.joules) or (blurred if self.channel.least_watts > 0.0 else math.inf)
        if not short and not 2.0 * blurred > DOUBTFUL_SHARE * used:
            return []
        share = 0.0 if short else 2.0 * blurred / used
        # A reading more or less at either end would leave less open: it is not the refresh that does.
        often = 2.0 * (self.refresh_s + self.window_s) < DOUBTFUL_SHARE * seen.seconds
        if not short and often and components["clock"] > others:
            return [_unsure_times(self.channel.name, seen.seconds, share)]
        return [too_short(self.channel.name, seen.seconds, self.refresh_s, self.window_s, share)]


def _unsure_times(name: str, seconds: float, open_share: float) -> str:
    """Say that the times of the rows of a fast sensor are hardly known."""
    return (
        f"{name}: its readings reached this machine late, and when they were taken is not known well enough: that "
        f"leaves up to {open_share:.0%} of the energy of {duration(seconds)} open; measure longer, or while the "
        "machine is less busy"
    )


def too_short(name: str, seconds: float, refresh_s: float, window_s: float, open_share: float = 0.0) -> str:
    """Say that a region is too short for the readings of a channel to tell its energy."""
    what = f"{name}: the region of {duration(seconds)} is too short for"
    if not refresh_s:
        return f"{what} the rows that were read"
    why = f" and averages over {duration(window_s)}" if window_s else ""
    if open_share:
        why += f": what falls between its readings leaves up to {open_share:.0%} of the energy open"
    advice = "measure longer, or repeat the work inside the region"
    return f"{what} this sensor, which refreshes every {duration(refresh_s)}{why}; {advice}"
