"""What is asked of an interval, and what was seen of a channel in it: plain records, in seconds, watts and joules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pmtpy.core.rows import Floats


class Edge(NamedTuple):
    """The power around one end of an interval."""

    # Of a power: what was shown at the edge, which is what the sensor had seen before it. Of a counter: the mean
    # power up to the edge.
    watts: float = 0.0
    # largest less smallest power shown near the edge: from a sample interval, or half a window, before it to the lag
    # and as much after it
    peak_to_peak_watts: float = 0.0
    # time between the rows on either side of the edge; 0 when the register was read at the edge itself
    gap_s: float = 0.0
    # of a power that lines join: by how much the energy inside would be higher if the load changed at the edge itself
    lost_joules: float = 0.0
    old_s: float = 0.0  # how old what the register showed there may be: a counter between two of its moves
    by_lines: bool = False  # a counter whose energy there is on a line from move to move, as old as that at their rows
    behind_s: float = 0.0  # how long after its last move, whose power was taken to go on


class Late(NamedTuple):
    """What a stream did of late, whose newest rows have not come yet."""

    peak_to_peak_watts: float = 0.0  # largest less smallest power
    peak_watts: float = 0.0
    off_joules: float = 0.0  # by how much its newest power, carried on for as long as now, was off; 0: not known


class Between(NamedTuple):
    """What is open of a counter whose energy goes by lines from one move to the next, in the times between moves."""

    open_joules: float = 0.0  # by how much the energy may be off if the load changes once in the time about each end
    told_s: float = math.inf  # for how long of the interval moves have told the power by now
    longest_s: float = 0.0  # the longer one of the two times between moves in which the ends lie
    spanned_joules: float = math.inf  # energy of all such times that the interval touches, which has no more


class IntervalStatistics(NamedTuple):
    """What was seen of one channel in one interval."""

    # length of the interval, and the energy found in the part of it that is covered
    seconds: float
    joules: float
    rows: int  # rows inside the interval
    # the power around its two ends
    start: Edge = Edge()
    end: Edge = Edge()
    # sample interval, the time for which one reading stands: the refresh period, or the time between rows if that is
    # longer
    sample_s: float = 0.0
    rms_step_watts: float = 0.0  # root mean square change of the power from one sample to the next
    # Root of the mean product of successive changes where they are opposite: what one sample adds and the next takes
    # away again. ``rms_step_watts / sqrt(2)`` for a power that changes faster than it is sampled; 0 for steps that
    # last.
    alternating_watts: float = 0.0
    # root mean square bend of the readings over one window, of a window of several samples: faster changes than the
    # window, of which it shows but a rest
    curvature_watts: float = 0.0
    # deviation of single readings, where the channel does not state it: from the smaller changes seen
    noise_watts: float = 0.0
    # by how much the energy would be higher with the readings counted from when they happened, by a lag that is stated
    late_joules: float = 0.0
    lag_joules: float = 0.0  # what is open of the lag, standard uncertainty; all of it where it is a guess
    extrapolated_s: float = 0.0  # for how long the power of the newest row was taken to go on, up to the end
    peak_watts: float = 0.0  # largest power seen in or next to the interval
    range_watts: tuple[float, float] = (0.0, 0.0)  # lowest and highest power seen in and around it
    uncovered_s: float = 0.0  # seconds for which no energy is known; they are not in ``joules``
    told: int = 1  # rows that show what was inside: of a power they are later than that by its lag
    renewed_s: float = 0.0  # how long before its row a power may have been renewed; 0: rows bear the instant
    bridged_s: float = 0.0  # seconds of holes between rows, over which the rows beside them were joined all the same
    lost: int = 0  # rows lost inside the interval
    # by how much the energy changes when all rows are shifted by what their times may be off, and by what may be
    # missing between them
    clock_joules: float = 0.0
    # the same from what the newest row shows, which is further back than the row, by the lag
    unseen_s: float = 0.0
    late: Late | None = None  # of a stream whose rows have not come
    # what is missing if readings of nothing between two like powers were those of a monitor that failed
    dropped_joules: float = 0.0
    # standard uncertainty of what a power was while its register was not renewed though it was due
    skipped_joules: float = 0.0
    # power of a counter before the rest that has lasted since before the interval; NaN: since it began to count
    rested_watts: float = 0.0
    behind_s: float = 0.0  # how much older than the end of the interval the newest row is
    between: Between = Between()  # of a counter
    lost_why: str = ""  # of the last row that was lost, where a reading failed


class Interval(NamedTuple):
    """What was integrated over an interval that begins at 0."""

    seconds: float  # its length
    # for each channel: the energy found, and the seconds for which none is known
    joules: Sequence[float]
    uncovered_s: Sequence[float]
    lost: int = 0  # rows lost inside
    time_u_s: float = 0.0  # standard uncertainty of the times of the rows, common to all of them
    missing_s: float = 0.0  # standard uncertainty of the time between the rows, some of which may be missing
    # how long ago a register may have been renewed when it was read; 0 where rows bear the instant of renewal
    aged_s: float = 0.0
    # usual time between the rows that came, where the rows themselves are not kept any more, or it has been found
    # before; 0: they are, and show it
    spacing_s: float = 0.0
    carry_s: float = math.inf  # how long the power of the newest row was taken to go on beyond it, where none has come
    # for each channel of a stream whose rows have not come: what it did of late; empty: they have
    of_late: Sequence[Late] = ()
    # for each channel: power of a counter before a rest that has lasted since before the interval (NaN: since it began
    # to count); empty: none does
    rested_watts: Sequence[float] = ()
    # from when to when rows came that are left out here, or forgotten: their absence is no gap
    left_out_s: Sequence[tuple[float, float]] = ()
    lost_why: str = ""  # of the last row that was lost, where a reading failed


def left_out(before_s: Sequence[float] | Floats, after_s: Sequence[float] | Floats) -> list[tuple[float, float]]:
    """Return the stretch between rows around one end of an interval and those around the other, where there is one."""
    if not len(before_s) or not len(after_s) or not after_s[0] > before_s[-1]:
        return []
    return [(float(before_s[-1]), float(after_s[0]))]
