"""What leaves an energy uncertain, cause by cause: a standard uncertainty in joules of each. Pure arithmetic.

It knows a :class:`~pmtpy.core.Channel` (what the sensor's maker or a calibration says) and
:class:`IntervalStatistics` (what was seen in one interval), and nothing else. Every formula is derived in
docs/uncertainty.md under the name of its component.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmtpy.analysis.signal.estimate import STANDS_OUT, Z95
from pmtpy.analysis.uncertainty.channel_times import SEVERAL_RENEWALS, STREAM_S, is_power, seen_share, span_s
from pmtpy.analysis.uncertainty.components import DOUBTFUL_SHARE, STANDSTILL, of_scale
from pmtpy.analysis.uncertainty.interval import Edge, IntervalStatistics
from pmtpy.core.channel import Channel, EnergyMethod

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
# Energy that no look saw, as a share of the most that it can be, which 0, 1, 2, ... looks leave room for in 95 of 100
# cases: it is there as likely as not, for any share of the time, at any power up to the most. After n looks that missed
# it, it is there in one of n + 2 cases, and its share of the time goes as (1 - f)^n (rule of succession).
_MISSED = (
    0.5875, 0.3410, 0.2130, 0.1416, 0.0984, 0.0705, 0.0515, 0.0382, 0.0285, 0.0213,
    0.0159, 0.0117, 0.0085, 0.0060, 0.0041, 0.0026, 0.0014, 0.0005, 0.0,
)  # fmt: skip
# The same of the end of an interval, at which no look has been yet. Where n looks of the interval before have not shown
# it, it is there in one of n + 2 cases if that end is as long as one look stands for, and for any share of that time.
_NOT_YET = (
    0.5875, 0.5050, 0.4385, 0.3824, 0.3338, 0.2908, 0.2525, 0.2180, 0.1867, 0.1583,
    0.1323, 0.1087, 0.0872, 0.0677, 0.0501, 0.0343, 0.0205, 0.0087, 0.0,
)  # fmt: skip
# Limit over power at rest, at most, of the boards in the gpu-table of Yang et al. and of Jetson modules.
_REST_TO_LIMIT = 10.0
# Steps of powers are finer, where they are not stated: the coarsest known are those of POWER9's firmware.
_COARSEST_W = 1.0


class Causes:
    """One energy and what its channel and what was seen make of it, each cause by itself.

    A section of docs/uncertainty.md derives each method.
    """

    def __init__(self, channel: Channel, seen: IntervalStatistics) -> None:
        self.channel, self.seen = channel, seen
        self.power, self.mean = is_power(channel), channel.energy_method is EnergyMethod.MEAN
        self.refresh_s, self.window_s = channel.refresh_s or 0.0, channel.window_s or 0.0
        self.sample_s = max(seen.sample_s, self.refresh_s)  # time for which one reading stands
        self.noise_w = channel.noise or seen.noise_watts
        self.step = channel.smallest_step
        span = span_s(channel)
        self.covers = seen_share(channel, self.sample_s)
        between = self.sample_s if self.power else self.refresh_s
        self.open_window_s = self.refresh_s if self.power and span is None else 0.0  # it may be a whole period
        if self.covers < 1.0:  # read at random instants: by chance further apart than usual
            between = max(between, seen.start.gap_s, seen.end.gap_s)
        self.needed_s = between + (span or self.open_window_s)  # shortest interval that is sure to contain a reading
        known_s = seen.seconds - seen.uncovered_s
        self.mean_w = abs(seen.joules) / known_s if known_s > 0 else seen.peak_watts

    def components(self) -> dict[str, float]:
        """Return the standard uncertainty of each cause by its name, those that are zero too."""
        return {
            **self.scale(),
            "resolution": self.resolution(),
            "noise": self.noise(),
            "edges": self.edges(),
            "ahead": self.ahead(),
            # one end is let in, one left out: the power is that of an earlier interval
            "lag": math.hypot(self.seen.late_joules, self.seen.lag_joules),
            "clock": self.seen.clock_joules,  # all rows may be shifted by as much
            "sampling": self.sampling(),
            "unresolved": self.unresolved(),
            STANDSTILL: self.standstill(),
            "uncovered": self.uncovered(),
            "lost": self.lost(),
            "drop-out": self.seen.dropped_joules,
            "skipped": self.seen.skipped_joules,  # renewals that did not come
        }

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
        one = (self.unseen_w() or self.step) / 2.0 / _BOUND
        if not self.power:
            return one * math.sqrt(2.0)
        cut_off = 0.0 if self.channel.offset_u else _BOUND**2 / 2.0
        return one * self.seen.seconds * math.sqrt(cut_off + 1.0)

    def unseen_w(self) -> float:
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
            ends = (seen.between.open_joules / _BOUND) ** 2 + self._counted(seen.start) + self._counted(seen.end)
            return max(math.sqrt(ends), math.sqrt(2.0) * rested_j)
        sample, window = self.sample_s, 0.0 if self.mean else self.window_s  # a mean's window is its sample interval
        curved = _BEND_VARIANCE * (seen.curvature_watts * min(window, _MAX_CURVED_LENGTHS * seen.seconds)) ** 2
        own_s = 0.0 if self.wide() else self.window_s  # of a wide one its bends tell
        squares = 2.0 * (curved + self._hidden(own_s))  # what lies between the windows is in "sampling"
        # What lines lose of a region that is the work: of windows without gaps, the steps beside them are that.
        smeared = (1.0 - self.covers) * abs(seen.start.lost_joules + seen.end.lost_joules) / _BOUND
        bridged = 0.0
        for edge in (seen.start, seen.end):
            swing = max(0.0, edge.peak_to_peak_watts - STANDS_OUT * self.noise_w)
            bridged += self.covers * (swing * sample / _IN_A_GAP) ** 2
            smeared += swing * self._smeared_s(window or self.open_window_s) / 2.0 / _BOUND
        return math.hypot(math.sqrt(squares + max(bridged, (seen.between.open_joules / _BOUND) ** 2)), smeared)

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

    def wide(self) -> bool:
        """Whether a window spreads an instant over several readings."""
        return self.window_s > SEVERAL_RENEWALS * self.sample_s

    def _counted(self, edge: Edge) -> float:
        """Square of what one end of a counter's interval may be off; what was shown there is up to a refresh old.

        An age that is uniform up to ``T`` has the variance ``T^2/12`` and the mean square ``T^2/3``: the one for the
        power that is known, the other for what the power at that moment is off it. On a line from move to move
        the energy there is known, and what that leaves open of both ends together is no part of this.
        """
        power = max(edge.watts, self.mean_w)
        if edge.by_lines:
            behind = (_BURSTS * power * edge.behind_s) ** 2 / 3.0
            return self._hidden(edge.gap_s) + (power * edge.old_s) ** 2 / 12.0 + behind
        bridged = (edge.peak_to_peak_watts * edge.gap_s / _IN_A_GAP) ** 2 + self._hidden(edge.gap_s)
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
        # In one of n + 2 cases it begins in the time of the next look, in k of n + 1 + k in that of the next k.
        unseen = max(ahead - self._looked_s(), self.seen.behind_s)
        looks = (self._looks() + 1.0) * sample / unseen - 1.0 if unseen > 0.0 else math.inf
        begun = _room(looks, _NOT_YET) * self._unlike_w() * min(unseen, self.seen.seconds)
        return math.hypot(max(near, min(walked, most), between), begun)

    def sampling(self) -> float:
        """What the times of the readings do not tell: what lay between the windows, and since when each value stood.

        A register that is read again and again shows each value from up to ``renewed_s`` after its renewal on, each by
        another part of that: so each step between two values is misplaced.
        """
        slipped = self._beyond_noise() * self._readings() * self.seen.renewed_s**2 / 12.0
        if self.covers == 1.0:
            return math.sqrt(slipped)
        fast = max(0.0, self.seen.alternating_watts**2 - self.channel.noise**2) * 5.0 / 6.0
        each = self._beyond_noise() / 12.0 + fast
        shown = (1.0 - self.covers) * each * self._readings() * self.sample_s**2
        missed = (1.0 - self.covers) * _room(self._looks(), _MISSED) * self._unlike_w() * self.seen.seconds
        return math.sqrt(slipped + shown + missed * missed)

    def _looked_s(self) -> float:
        """For how long of what rows are late several of them look at the load all the same, as wide windows do."""
        response = self.channel.response
        return max(0.0, response.lag_s - response.delay_s - self.sample_s) if self.power else 0.0

    def _looks(self) -> float:
        """Readings that have told of the interval."""
        return max(0.0, min(self._readings(), float(self.seen.told)))

    def _unlike_w(self) -> float:
        """How far the power may have been off its mean while nobody looked: as far as it was seen to go.

        Of an interval whose readings show a part at rest alone, which is measured all the same, up to its limit.
        """
        low, high = self.seen.range_watts
        if self.seen.peak_watts - low <= DOUBTFUL_SHARE * self.seen.peak_watts:
            high = max(high, min(self._most_w(), _REST_TO_LIMIT * low))
        return max(high - self.mean_w, self.mean_w - low)

    def unresolved(self) -> float:
        """Less than one reading: the power inside can be anything from nothing to the most it can be."""
        seen = self.seen
        read_at_both = not self.power and seen.start.gap_s == seen.end.gap_s == 0.0
        if read_at_both or seen.uncovered_s >= seen.seconds:
            return 0.0
        spanned = seen.between.spanned_joules
        short = min(self._up_to(min(self._most_w() * seen.seconds, spanned)), self._up_to(self._shown_joules()))
        # Of a sensor that looks away between its readings: none fell into the interval, however long that is. Of a
        # counter: none of its moves has told of it yet.
        unseen = self.power and self.covers < 1.0 and not seen.told
        short *= 1.0 if unseen else self._share_untold(seen.between.told_s, self.needed_s)
        # A counter has told no more than its moves have.
        most = min(2.0 * max(self.mean_w, seen.range_watts[1]) * seen.seconds, spanned)
        untold = self._share_untold(seen.between.told_s, max(self.needed_s, seen.between.longest_s))
        return max(short, untold * self._up_to(most) if untold else 0.0)

    def at_most(self) -> float:
        """No energy is off by more than from what was found to anything between nothing and what the part can draw."""
        limit, seen = self._limit_w(), self.seen
        return math.inf if limit is None or seen.joules < 0.0 else self._up_to(limit * seen.seconds)

    def _up_to(self, most: float) -> float:
        """How far anything from nothing to so much is off what was used, which may be far from the middle of that."""
        return math.inf if math.isinf(most) else math.hypot(most / 2.0 / _BOUND, most / 2.0 - self.seen.joules)

    def _shown_joules(self) -> float:
        """What readings that have seen all of the interval leave room for, with as much again as for a steady load.

        All that it used beyond the rest lies in the windows that reach into it, none of which shows more than the
        highest.
        """
        seen, (low, high) = self.seen, self.seen.range_watts
        if not self.power or seen.unseen_s or self.covers < 1.0:
            return math.inf
        beyond_rest = low * seen.seconds + (high - low) * (seen.seconds + self.needed_s)
        return max(2.0 * max(self.mean_w, high) * seen.seconds, beyond_rest)

    def _share_untold(self, told_s: float, needed_s: float) -> float:
        """How far the interval is from one of which a whole reading has told: 1 where nothing has."""
        return max(0.0, 1.0 - max(0.0, min(told_s, self.seen.seconds)) / needed_s) if needed_s > 0.0 else 0.0

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

        Where that is because rows are late, it may have held the largest power of late. A hole over which the rows
        beside it were joined, and the time since a reading was due at the end, may have held as much more, or less:
        what came and went within it nobody saw. Where that is most of the time, the rest does not tell of it.
        """
        seen, limit = self.seen, self.channel.max_watts
        most = max(self.mean_w, seen.late.peak_watts if seen.late is not None else 0.0)
        bridged = self._bridged() + most * self.overdue_s()
        if seen.uncovered_s <= 0.0:
            return bridged
        known_s = seen.seconds - seen.uncovered_s
        if (known_s > self.sample_s and not self._never_moved()) or (known_s > 0.0 and self.mean_w):
            return most * seen.uncovered_s + bridged
        return math.nan if limit is None else limit * seen.uncovered_s / _BOUND + bridged

    def _bridged(self) -> float:
        seen = self.seen
        if 2.0 * seen.bridged_s <= seen.seconds:
            return self.mean_w * seen.bridged_s
        return max(self._most_w() / _BOUND, self.mean_w) * seen.bridged_s

    def _most_w(self) -> float:
        """Power that nobody saw, at most: the limit, or twice what was seen."""
        limit = self._limit_w()
        return limit if limit is not None else 2.0 * max(self.mean_w, self.seen.peak_watts)

    def _limit_w(self) -> float | None:
        return self.channel.max_watts if self.channel.kept_watts is None else self.channel.kept_watts

    def overdue_s(self) -> float:
        """For how long, up to the end, a register was not read though it was due; a stream's rows are on their way."""
        if self.seen.late is None or self.sample_s < STREAM_S:
            return 0.0
        return min(self.seen.extrapolated_s, self.seen.seconds)

    def lost(self) -> float:
        """Lost rows that were bridged by their neighbours."""
        seen = self.seen
        if not seen.lost or seen.uncovered_s > 0:
            return 0.0
        spacing = self.refresh_s or seen.seconds / max(1, seen.rows + seen.lost)
        return seen.rms_step_watts * spacing * seen.lost / 2.0 / _BOUND


def _room(looks: float, left: Sequence[float]) -> float:
    """Return the share of the most which so many looks leave room for, as a standard uncertainty."""
    return float(np.interp(looks, range(len(left)), left)) / Z95
