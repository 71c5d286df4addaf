"""What a reader of an energy must know beside its uncertainty, in whole sentences. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pmtpy.analysis.signal.estimate import Z95
from pmtpy.analysis.signal.updates import POLLED
from pmtpy.analysis.uncertainty._causes import Causes
from pmtpy.analysis.uncertainty.channel_times import FULL_COVERAGE, span_s
from pmtpy.analysis.uncertainty.components import DOUBTFUL_SHARE, STANDSTILL
from pmtpy.analysis.uncertainty.in_step import aliasing, in_step_with, joules_in_step
from pmtpy.core.presentation import duration, not_covered, rows_lost
from pmtpy.core.response import Response


def notices(of: Causes, components: Mapping[str, float], uncertainty_joules: float) -> list[str]:
    """Say all of it of one energy, from the components of its uncertainty and what they add up to."""
    short = _too_short(of, components)
    said = [
        *short,
        *([] if short else _nothing_read(of)),
        *_standing_still(of, components),
        *_backwards(of, components),
        *_not_covered(of),
        *_bridged(of),
        *_not_come_yet(of, components),
        *_missing(of),
        *_in_step(of, uncertainty_joules),
    ]
    return [f"{of.channel.name}: {why}" for why in said]


def _behind(of: Causes) -> bool:
    """Whether rows are later than the power of the newest one is taken to go on: then there is no energy either."""
    return of.seen.uncovered_s > 0 and of.seen.behind_s > of.seen.extrapolated_s


def _nothing_read(of: Causes) -> list[str]:
    if of.seen.rows or not of.power or _behind(of):
        return []
    return [f"no reading falls into the region of {duration(of.seen.seconds)}"]


def _standing_still(of: Causes, components: Mapping[str, float]) -> list[str]:
    """Say that a counter has not moved, or a power not been shown, and what that does not tell."""
    seen, out = of.seen, list[str]()
    if math.isnan(components[STANDSTILL]):
        out.append(
            "its counter has not moved since it was first read: the part is off, or the counter does not count, and it "
            "does not tell which"
        )
    elif not of.power and not seen.joules and seen.seconds > max(of.refresh_s, seen.uncovered_s):
        out.append(
            f"its counter did not move in {duration(seen.seconds)}: the part used less than a step of {of.step:.2g} J, "
            "or the counter stands still"
        )
    if unseen_w := of.unseen_w():
        out.append(
            f"it showed 0 W all the time: the part is off or uses less than a step of {unseen_w:.2g} W, or the sensor "
            "does not measure"
        )
    return out


def _backwards(of: Causes, components: Mapping[str, float]) -> list[str]:
    """Say that a power was negative all the time, and by more than its zero may be off."""
    low, high = of.seen.range_watts
    if not of.power or not high < 0.0:
        return []
    zero = math.hypot(components["offset"], components["noise"], components["resolution"])
    if not of.seen.joules < -Z95 * zero:
        return []
    shown = f"it was negative all the time ({low:.3g} to {high:.3g} W)"
    why = "the sensor is wired the other way round, its zero is off, or energy flows back here, as into a battery"
    return [f"{shown}: {why}; it is counted as given back"]


def _not_covered(of: Causes) -> list[str]:
    seen = of.seen
    if not seen.uncovered_s > 0:
        return []
    late = (
        f". Its newest row is {duration(seen.behind_s)} older than the end of the region: rows come late, or not at "
        "all; asking later tells more"
    )
    return [not_covered(seen.uncovered_s, seen.seconds) + (late if _behind(of) else "")]


def _bridged(of: Causes) -> list[str]:
    seen = of.seen
    if not seen.bridged_s > DOUBTFUL_SHARE * seen.seconds:
        return []
    there = f"no reading came in {duration(seen.bridged_s)} of {duration(seen.seconds)}"
    joined = "those on either side were joined, and what the power did between them is not known"
    return [f"{there}; {joined}, which the uncertainty holds"]


def _not_come_yet(of: Causes, components: Mapping[str, float]) -> list[str]:
    seen = of.seen
    if _behind(of) or seen.late is None or not seen.extrapolated_s > DOUBTFUL_SHARE * seen.seconds:
        return []
    return [
        f"rows of the last {duration(min(seen.extrapolated_s, seen.seconds))} have not come yet; the power before was "
        "taken to go on there, and asking a little later tells more"
        + ("; of a load that began meanwhile nothing is known" if math.isnan(components["ahead"]) else "")
    ]


def _missing(of: Causes) -> list[str]:
    seen, out = of.seen, list[str]()
    if seen.dropped_joules:
        out.append(
            "it showed no power for a moment, between readings of like powers; if that was a fault of the monitor, "
            f"{seen.dropped_joules:.3g} J are missing, which the uncertainty holds"
        )
    if seen.lost:
        out.append(rows_lost(seen.lost, seen.lost_why))
    return out


def _in_step(of: Causes, uncertainty_joules: float) -> list[str]:
    """Say what the energy may be if the load repeats in step with the readings, where that says more."""
    seen, span, part_time = of.seen, span_s(of.channel), of.covers < FULL_COVERAGE
    if not of.power or not of.sample_s or not (part_time or of.wide()):  # of others "edges" has it
        return []
    between = seen.joules, seen.joules
    covers = None if span is None and part_time else of.covers
    if covers is not None and seen.seconds > seen.uncovered_s:
        like = Response(of.sample_s, of.sample_s if span is None else span)
        swings = seen.start.peak_to_peak_watts + seen.end.peak_to_peak_watts
        between = joules_in_step(like, seen.joules, seen.seconds - seen.uncovered_s, seen.range_watts, max(0.0, swings))
    seldom = 0.0 < of.refresh_s < POLLED * of.sample_s  # the register is renewed more often than it is read
    why = aliasing(
        seen.joules,
        Z95 * uncertainty_joules,
        between,
        lowest_w=seen.range_watts[0],
        covers=covers,
        period=in_step_with(of.sample_s, of.window_s, of.refresh_s if seldom else 0.0),
        cure="measure longer, or vary the start over several runs",
        always=part_time,
    )
    return [why] if why else []


def _too_short(of: Causes, components: Mapping[str, float]) -> list[str]:
    seen, short = of.seen, of.seen.seconds < max(of.needed_s, of.refresh_s)
    ahead = components["ahead"] if seen.late is None else 0.0  # a longer region would not bring rows sooner
    others = math.hypot(components["edges"], ahead, components["lag"], components["sampling"])
    blurred = math.hypot(others, components["clock"])
    # No powered part uses none.
    used = abs(seen.joules) or (blurred if of.channel.least_watts > 0.0 else math.inf)
    if not short and not 2.0 * blurred > DOUBTFUL_SHARE * used:
        return []
    share = 0.0 if short else 2.0 * blurred / used
    # A reading more or less at either end would leave less open: it is not the refresh that does.
    often = 2.0 * (of.refresh_s + of.window_s) < DOUBTFUL_SHARE * seen.seconds
    if not short and often and components["clock"] > others:
        return [_unsure_times(seen.seconds, share)]
    return [too_short(seen.seconds, of.refresh_s, of.window_s, share)]


def _unsure_times(seconds: float, open_share: float) -> str:
    """Say that the times of the rows of a fast sensor are hardly known."""
    return (
        "its readings reached this machine late, and when they were taken is not known well enough: that "
        f"leaves up to {open_share:.0%} of the energy of {duration(seconds)} open; measure longer, or while the "
        "machine is less busy"
    )


def too_short(seconds: float, refresh_s: float, window_s: float, open_share: float = 0.0) -> str:
    """Say that a region is too short for the readings of a channel to tell its energy."""
    what = f"the region of {duration(seconds)} is too short for"
    if not refresh_s:
        return f"{what} the rows that were read"
    why = f" and averages over {duration(window_s)}" if window_s else ""
    if open_share:
        why += f": what falls between its readings leaves up to {open_share:.0%} of the energy open"
    advice = "measure longer, or repeat the work inside the region"
    return f"{what} this sensor, which refreshes every {duration(refresh_s)}{why}; {advice}"
