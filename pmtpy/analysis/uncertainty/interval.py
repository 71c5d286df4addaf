"""What is asked of an interval, and what was seen of a channel in it: plain records, in seconds, watts and joules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Edge(NamedTuple):
    """The power around one end of an interval.

    Attributes
    ----------
    watts : float
        Of a power: what was shown at the edge, which is what the sensor had seen before it. Of a counter: the mean
        power up to the edge.
    peak_to_peak_watts : float
        Largest less smallest power shown near the edge: from a sample interval, or half a window, before it to the lag
        and as much after it.
    gap_s : float
        Time between the rows on either side of the edge; 0 when the register was read at the edge itself.
    old_s : float
        How old what the register showed there may be: a counter between two of its moves.
    """

    watts: float = 0.0
    peak_to_peak_watts: float = 0.0
    gap_s: float = 0.0
    old_s: float = 0.0


class IntervalStatistics(NamedTuple):
    """What was seen of one channel in one interval.

    Attributes
    ----------
    seconds, joules : float
        Length of the interval, and the energy found in the part of it that is covered.
    rows : int
        Rows inside the interval.
    start, end : Edge
        The power around its two ends.
    sample_s : float
        Sample interval, the time for which one reading stands: the refresh period, or the time between rows if that
        is longer.
    rms_step_watts : float
        Root mean square change of the power from one sample to the next.
    alternating_watts : float
        Root of the mean product of successive changes where they are opposite: what one sample adds and the next takes
        away again. ``rms_step_watts / sqrt(2)`` for a power that changes faster than it is sampled; 0 for steps that
        last.
    curvature_watts : float
        Root mean square bend of the readings over one window, of a window of several samples: faster changes than the
        window, of which it shows but a rest.
    noise_watts : float
        Deviation of single readings, where the channel does not state it: from the smaller changes seen.
    late_joules : float
        By how much the energy would be higher with the readings counted from when they happened.
    extrapolated_s : float
        How far the end lies beyond the newest row.
    levels : int
        Different values that were shown in the interval: a load of two powers is rounded in two ways, however often.
    peak_watts : float
        Largest power seen in or next to the interval.
    most_joules : float
        What the samples that touch the interval hold in all; infinite where they are not all known.
    uncovered_s : float
        Seconds for which no energy is known; they are not in ``joules``.
    lost : int
        Rows lost inside the interval.
    clock_joules : float
        By how much the energy changes when all rows are shifted by what their times may be off, and by what may be
        missing between them.
    range_watts : float
        Largest less smallest power seen in and around the interval.
    unseen_s : float
        How far the end lies beyond what the newest row shows: further than beyond the row, by the lag.
    looked : float
        Readings in and around the interval that tell how the power moves.
    dropped_joules : float
        What is missing if readings of nothing between two like powers were those of a monitor that failed.
    """

    seconds: float
    joules: float
    rows: int
    start: Edge = Edge()
    end: Edge = Edge()
    sample_s: float = 0.0
    rms_step_watts: float = 0.0
    alternating_watts: float = 0.0
    curvature_watts: float = 0.0
    noise_watts: float = 0.0
    late_joules: float = 0.0
    extrapolated_s: float = 0.0
    levels: int = 1
    peak_watts: float = 0.0
    most_joules: float = math.inf
    uncovered_s: float = 0.0
    lost: int = 0
    clock_joules: float = 0.0
    range_watts: float = 0.0
    unseen_s: float = 0.0
    looked: float = math.inf
    dropped_joules: float = 0.0


class Interval(NamedTuple):
    """What was integrated over an interval that begins at 0.

    Attributes
    ----------
    seconds : float
        Its length.
    joules, uncovered_s : sequence of float
        For each channel: the energy found, and the seconds for which none is known.
    lost : int
        Rows lost inside.
    time_u_s : float
        Standard uncertainty of the times of the rows, common to all of them.
    missing_s : float
        Standard uncertainty of the time between the rows, some of which may be missing.
    aged_s : float
        How long ago a register may have been renewed when it was read; 0 where rows bear the instant of renewal.
    """

    seconds: float
    joules: Sequence[float]
    uncovered_s: Sequence[float]
    lost: int = 0
    time_u_s: float = 0.0
    missing_s: float = 0.0
    aged_s: float = 0.0
