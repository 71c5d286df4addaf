"""What was seen of channels in and around an interval: how much the power moved, how fast, how late it is shown.

Pure arithmetic on rows; :mod:`pmtpy.analysis.uncertainty.budget` judges. What the numbers are for, and why these, is
derived in docs/uncertainty.md. Channels that are alike in time are worked out together, because a region costs the
measured program what this module costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.estimate import SHIFTS, moved_either_way
from pmtpy.analysis.signal.trace import HOLE
from pmtpy.analysis.signal.updates import POLLED, SAME_TIME_S
from pmtpy.analysis.uncertainty._counter_ends import Cells
from pmtpy.analysis.uncertainty._drop_outs import missing_joules
from pmtpy.analysis.uncertainty._moves import Moves, unstated_refresh_s
from pmtpy.analysis.uncertainty._skipped import skipped_joules
from pmtpy.analysis.uncertainty.channel_times import (
    LAG_U,
    SEVERAL_RENEWALS,
    STREAM_S,
    UNSEEN_RENEWALS,
    is_power,
    lag_s,
    row_age_s,
    span_s,
)
from pmtpy.analysis.uncertainty.components import DOUBTFUL_SHARE
from pmtpy.analysis.uncertainty.interval import Between, Edge, Interval, IntervalStatistics
from pmtpy.core.channel import Channel, Derivation, EnergyMethod
from pmtpy.core.rows import Floats

CONTEXT_SAMPLES = 20  # on either side: they tell how the power moves where the interval itself has but a few
CONTEXT_ROWS = 300  # on either side of an end, where all rows of a recording are at hand: more tell nothing new
CONTEXT_AHEAD = 10.0  # times what is extrapolated: how far a load moves in that time must have been seen
_APART = 0.99  # of a sample interval: of the polls of one reading those are taken that are so far apart
# Lower quartile of the size of a difference of two readings with white noise of one watt: root 2 times 0.3186.
_QUARTILE = 0.4506
_MIN_STEPS = 4  # that a quartile needs


def summarise(
    channels: Sequence[Channel],
    t_s: Floats,
    watts: Floats,
    interval: Interval,
    moved: npt.NDArray[np.bool_] | None = None,
    *,
    shown: Floats | None = None,
) -> list[IntervalStatistics]:
    """Gather what the rows in and around an interval say of each channel.

    Parameters
    ----------
    t_s : float64, shape (n,)
        Seconds from the start of the interval of the rows that are still known, in order: those inside, and some either
        side, which tell how the power moves when the interval holds but a few. Of a long interval the middle may be
        missing. None at all is allowed.
    watts : float64, shape (k, n)
        One row for each channel; NaN where nothing is known yet.
    moved : bool, shape (k, n), optional
        Of counters: whether they moved since the row before. None: always.
    shown : float64, shape (k, n), optional
        Joules that counters showed, where their energy goes by lines from one move to the next. None: from row to row.
    """
    found: list[IntervalStatistics | None] = [None] * len(channels)
    times = {"spacing_s": interval.spacing_s, "aged_s": interval.aged_s}
    for columns, together in _sorted(channels, t_s, watts, moved, shown, **times):
        for i, seen in zip(columns, together.seen(interval, columns), strict=True):
            found[i] = seen
    return [f for f in found if f is not None]


def usual_s(gaps: Floats) -> float:
    """Return the middle one of the times between rows (of an even number the longer of two); 0 where there is none."""
    middle = len(gaps) // 2
    return float(np.partition(gaps, middle)[middle]) if len(gaps) else 0.0


def late_joules(channels: Sequence[Channel], t_s: Floats, watts: Floats, length_s: float, aged_s: float) -> list[float]:
    """Return by how much :func:`lag_corrected` will change each energy, without all else that :func:`summarise` finds.

    Arguments as there; powers only. 0 where the lag is a guess.
    """
    found = [0.0] * len(channels)
    some = [i for i, channel in enumerate(channels) if may_be_lag_corrected(channel)]
    for columns, together in _sorted([channels[i] for i in some], t_s, watts[some], aged_s=aged_s):
        for i, late in zip(columns, together.late(length_s), strict=True):
            found[some[i]] = late
    return found


def may_be_lag_corrected(channel: Channel) -> bool:
    """Whether :func:`lag_corrected` may change its energy."""
    stated = channel.lag_s is not None or channel.window_s is not None
    return stated and channel.energy_method is EnergyMethod.TRAPEZOID


def lag_corrected(seen: IntervalStatistics) -> IntervalStatistics:
    """Move the readings of a momentary power back by the lag that its channel states.

    Afterwards only the uncertainty of the lag remains. Nothing is changed where the lag is a guess, or where the energy
    at one of the ends is not known.
    """
    if seen.uncovered_s or not seen.late_joules:
        return seen
    return seen._replace(joules=seen.joules + seen.late_joules, late_joules=0.0)


def _sorted(
    channels: Sequence[Channel],
    t_s: Floats,
    watts: Floats,
    moved: npt.NDArray[np.bool_] | None = None,
    shown: Floats | None = None,
    *,
    spacing_s: float = 0.0,
    aged_s: float,
) -> Iterator[tuple[list[int], _Together]]:
    """Yield the channels that are alike, by number, and their rows."""
    known = np.isfinite(watts)  # the first row of a counter has no power yet, nor one with which it began anew
    used = known
    if moved is not None and not moved.all():
        used = known & (moved | ~np.any(known & moved, axis=1, keepdims=True))
    for columns in _alike(channels, known, used):
        mask = used[columns[0]]
        whole = bool(mask.all())
        power = watts[columns] if whole else watts[columns][:, mask]
        own_t = t_s if whole else t_s[mask]
        together = _Together([channels[i] for i in columns], t_s, own_t, power, spacing_s=spacing_s, aged_s=aged_s)
        if shown is not None and not together.power and together.refresh:
            together.lines = _lines(t_s, mask, shown[columns], power)
        if not whole and moved is not None:
            rested = known[columns[0]] & ~mask & ~moved[columns[0]]
            together.moves = Moves.of(t_s, own_t, together.refresh, known[columns[0]], rested)
        yield columns, together


def _lines(all_t: Floats, moved: npt.NDArray[np.bool_], shown: Floats, watts: Floats) -> Cells | None:
    """Return the times between moves, of counters whose energy goes by lines from one to the next; None: unknown.

    A whole time before the one in which the interval begins tells what the power was before it. A sensor that was
    opened just before has none: then the row with which it began to count begins the first of these times.
    """
    rows = np.flatnonzero(moved)
    told = int(all_t[rows].searchsorted(0.0, "right")) >= 2
    if not told:
        if not len(rows) or not rows[0] or all_t[rows[0] - 1] > 0.0:
            return None
        rows = np.concatenate(([rows[0] - 1], rows))
        watts = np.concatenate((watts[:, :1], watts), axis=1)
    return Cells(all_t[rows], shown[:, rows], watts, 0.0, goes_on=False, told_before=told)


def _alike(channels: Sequence[Channel], known: npt.NDArray[np.bool_], used: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Sort the channels by how they follow time and by the rows that count for them."""
    groups: dict[object, list[int]] = {}
    for i, c in enumerate(channels):
        rows = (used[i].tobytes(), known[i].tobytes() if known is not used else b"")
        groups.setdefault((c.energy_method, c.derivation, c.response, rows), []).append(i)
    return list(groups.values())


class _Together:
    """The rows of channels that are alike in time; of counters those that moved them.

    ``t`` has shape (n,), ``p`` (g, n); ``all_t`` are all rows, whether they moved the counters or not.
    """

    def __init__(
        self, channels: Sequence[Channel], all_t: Floats, t: Floats, p: Floats, *, spacing_s: float, aged_s: float
    ) -> None:
        self.channels, self.like = channels, channels[0]
        self.all_t, self.t, self.p = all_t, t, p
        self.gaps = t[1:] - t[:-1]
        apart = spacing_s or usual_s(self.gaps)
        self.refresh = self.oldest = self.like.refresh_s or 0.0
        self.sample_s = max(self.refresh, apart)
        self.power = is_power(self.like)
        self.held = self.like.energy_method is not EnergyMethod.TRAPEZOID
        self.lag = lag_s(self.like, row_age_s(self.refresh, apart, aged_s) if self.power else 0.0)
        self.window = self.like.window_s or 0.0
        self.blur = (self.window + self.refresh) / 2.0  # how much more than its lag a row may be behind what it shows
        # Of a single pole without a window: what it shows is what it is, but for its own rate times the time constant.
        response = self.like.response
        self.low_pass_s = response.tau_s if self.power and not self.held and not response.window_s else 0.0
        self.moves = Moves(all_t, t, self.refresh)
        self.lines: Cells | None = None  # of counters that go by lines from move to move

    def seen(self, interval: Interval, columns: Sequence[int]) -> list[IntervalStatistics]:
        """Return what was seen of each channel."""
        length = interval.seconds
        first, last = self.all_t.searchsorted([0.0, length], "right").tolist()
        if not len(self.t):
            return [self._blank(interval, i) for i in columns]
        lag = max(self.lag, 0.0) if self.power else 0.0
        begun, ended = self.all_t.searchsorted([lag + self.blur, length + lag], "right").tolist()
        beyond = length - float(self.all_t[-1])
        ahead = min(max(0.0, beyond), interval.carry_s)
        unseen = min(max(0.0, beyond + lag), interval.carry_s + lag)
        rms, alternating, noise = self._movement(length + abs(self.lag), ahead)
        if not self.power and not self.refresh:
            self.oldest = unstated_refresh_s(self.all_t, self.t, self.p)
        aged = min(interval.aged_s, self.oldest or interval.aged_s)
        if aged and self.sample_s > SEVERAL_RENEWALS * self.refresh:
            aged = self.refresh or aged  # whatever the polls were to be: each finds it renewed
        starts, ends = self._edge(0.0, aged, begins=True), self._edge(length, aged, begins=False)
        nothing = [0.0] * len(self.p)
        by_lines, goes_on = starts[0].by_lines or ends[0].by_lines, ends[0].by_lines
        between = self._between(length, aged, goes_on=goes_on) if by_lines else None
        means = self._means(length, starts, ends) if self.power and self.held else None
        if between is not None and goes_on:  # no row has shown yet what was used since the last move
            unseen = min(max(unseen, length - float(self.t[-1])), interval.carry_s)
        of_late = [interval.of_late[i] if interval.of_late else None for i in columns]
        # The age is uniform up to ``aged``, perhaps the same for all rows. Its mean is part of a lag that is corrected.
        age_u = aged / math.sqrt(12.0 if may_be_lag_corrected(self.like) else 3.0)
        time_u = math.hypot(interval.time_u_s, age_u) if self.power else interval.time_u_s
        late, lag_u, clock = self._energies(length, time_u).tolist()
        if interval.missing_s and length > 0.0:
            share = interval.missing_s / length
            clock = [math.hypot(c, share * interval.joules[i]) for c, i in zip(clock, columns, strict=True)]
        curvature = self._curvature(length)
        peaks: list[float] = self._near(0.0, length).max(axis=1).tolist()
        lowest, highest = self.p.min(axis=1).tolist(), self.p.max(axis=1).tolist()
        dropped = missing_joules(self.t, self.p, self.sample_s, length) if self.power else nothing
        times = {"refresh_s": self.refresh, "sample_s": self.sample_s, "length": length}
        skipped, holes_s = nothing, 0.0
        if self.power:
            known = [*interval.left_out_s, *self._counted_s(length)]
            skipped = skipped_joules(self.t, self.p, rms, held=self.held, left_out_s=known, **times)
            holes_s = self._holes_s(length, known)
        return [
            IntervalStatistics(
                length,
                interval.joules[column],
                last - first,
                starts[i],
                ends[i],
                sample_s=self.sample_s,
                rms_step_watts=rms[i],
                alternating_watts=alternating[i],
                curvature_watts=curvature[i],
                noise_watts=0.0 if channel.noise else noise[i],
                late_joules=late[i],
                lag_joules=0.0 if between else lag_u[i],  # there it is part of what is open
                extrapolated_s=ahead,
                peak_watts=peaks[i],
                range_watts=(lowest[i], highest[i]),
                uncovered_s=interval.uncovered_s[column],
                told=ended - begun,
                renewed_s=aged if self.power else 0.0,
                bridged_s=max(0.0, holes_s - interval.uncovered_s[column]),
                lost=interval.lost,
                clock_joules=clock[i],
                unseen_s=unseen,
                late=of_late[i],
                dropped_joules=dropped[i],
                skipped_joules=skipped[i],
                rested_watts=interval.rested_watts[column] if interval.rested_watts else 0.0,
                behind_s=max(0.0, beyond),
                between=between[i] if between else Between(means[i]) if means else Between(),
                lost_why=interval.lost_why,
            )
            for i, (column, channel) in enumerate(zip(columns, self.channels, strict=True))
        ]

    def _blank(self, interval: Interval, column: int) -> IntervalStatistics:
        """Say what is known where no row has a power: a counter that shows nothing then has never been seen to move."""
        joules, length = interval.joules[column], interval.seconds
        mean = joules / length if length > 0 else 0.0
        edge, unknown_s = Edge(mean), interval.uncovered_s[column]
        return IntervalStatistics(
            length,
            joules,
            0,
            edge,
            edge,
            peak_watts=mean,
            uncovered_s=unknown_s,
            lost=interval.lost,
            rested_watts=0.0 if self.power or joules else math.nan,
            lost_why=interval.lost_why,
        )

    # -- how the power moves ---------------------------------------------------------------------------------------

    def _movement(self, until_s: float, ahead_s: float) -> tuple[list[float], list[float], list[float]]:
        """RMS step, alternating part and noise, of the interval or of what surrounds it, whichever moved more."""
        t, p, gaps, sample = self.t, self.p, self.gaps, max(self.sample_s, 1e-9)
        # Polls of one reading stand closer than the register is renewed; those at random instants often stand close.
        renewed = self.refresh or sample
        if self.power and len(gaps) and gaps.min() < POLLED * renewed and (p[:, 1:] == p[:, :-1]).any():
            kept = _apart(t, _APART * renewed)
            t, p = t[kept], p[:, kept]
            gaps = t[1:] - t[:-1]
        steps = p[:, 1:] - p[:, :-1]
        noise = _noise(steps) if self.power else [0.0] * len(p)
        squares, products = steps * steps, -steps[:, 1:] * steps[:, :-1]
        context = max(CONTEXT_SAMPLES * sample, CONTEXT_AHEAD * ahead_s)
        bounds = [0.0, until_s + sample, -context, until_s + context]
        a, b, c, d = t[1:].searchsorted(bounds, "right").tolist()
        inner_s, outer_s = max(1.0, _held_s(gaps[a:b], sample)), max(1.0, _held_s(gaps[c:d], sample))
        most = np.maximum(squares[:, a:b].sum(axis=1) / inner_s, squares[:, c:d].sum(axis=1) / outer_s)
        opposite = np.maximum(
            products[:, max(0, a - 1) : max(0, b - 1)].sum(axis=1) / inner_s,
            products[:, max(0, c - 1) : max(0, d - 1)].sum(axis=1) / outer_s,
        )
        moved, changed = np.sqrt(most).tolist(), np.sqrt(np.maximum(opposite, 0.0)).tolist()
        return moved, changed, noise

    def _curvature(self, length: float) -> list[float]:
        """How much the readings bend within one window of several samples, root mean square."""
        window, t = self.window, self.t
        if not self.power or window <= SEVERAL_RENEWALS * self.sample_s:
            return [0.0] * len(self.p)
        at = t[(t - window >= t[0]) & (t > -2.0 * window) & (t < length + 2.0 * window)]
        if not len(at):
            return [0.0] * len(self.p)
        found = []
        for p in self.p:
            bend = np.interp(at, t, p) - 2.0 * np.interp(at - window / 2.0, t, p) + np.interp(at - window, t, p)
            found.append(math.sqrt(float(bend @ bend) / len(at)))
        return found

    def _counted_s(self, length: float) -> list[tuple[float, float]]:
        """Times between rows of the interval that are long, and yet known: a ratio of two counters is the mean of each.

        How the power went within one is not known, which an end inside of it would have to tell.
        """
        if self.like.derivation is not Derivation.RATIO:
            return []
        begin, end = self.t[:-1], self.t[1:]
        at = np.flatnonzero((self.gaps > SEVERAL_RENEWALS * self.sample_s) & (begin >= 0.0) & (end <= length))
        return list(zip(begin[at].tolist(), end[at].tolist(), strict=True))

    def _holes_s(self, length: float, known: Sequence[tuple[float, float]]) -> float:
        """How much of the interval lies in holes: times without a row, which show none of it.

        They are longer than ten sample intervals, or as long as three of them where that is a good part of the
        interval: of a short one a busy machine leaves no reading of a whole piece of work. A window that reaches back
        over a hole shows its end. Of a stream the losses are counted. What is ``known`` all the same is none.
        """
        if self.sample_s < STREAM_S:
            return 0.0
        at = np.flatnonzero(
            self.gaps > min(HOLE * self.sample_s, max(UNSEEN_RENEWALS * self.sample_s, DOUBTFUL_SHARE * length))
        )
        if not len(at):
            return 0.0
        begin, end = self.t[at], self.t[at + 1]
        for low, high in known:
            there = (begin > low) | (end < high)
            begin, end = begin[there], end[there]
        end = np.maximum(end - (span_s(self.like) or 0.0), begin)
        inside = np.minimum(end, length) - np.maximum(begin, 0.0)
        return float(np.maximum(inside, 0.0).sum())

    # -- the two ends ----------------------------------------------------------------------------------------------

    def _near(self, low: float, high: float) -> Floats:
        """Powers of the rows from the last one before ``low`` to the first one after ``high``; at least one."""
        first = max(0, int(self.t.searchsorted(low, "right")) - 1)
        return self.p[:, first : max(first, int(self.t.searchsorted(high))) + 1]

    def _edge(self, at: float, aged: float, *, begins: bool) -> list[Edge]:
        """Describe the rows around an instant, which show what was so up to ``aged`` before."""
        t, p = self.t, self.p
        blur = max(self.sample_s, self.window / 2.0)  # a step at the edge is spread over a window about it
        # Of a counter the first row has no power yet: what it did from there to the next, those behind it tell.
        near = self._near(at - blur, max(at, float(t[0])) + self.lag + blur)
        swing = (near.max(axis=1) - near.min(axis=1)).tolist()
        beside = int(self.all_t.searchsorted(at - SAME_TIME_S))  # a row so near to an end was read at it
        on_row = beside < len(self.all_t) and float(self.all_t[beside]) <= at + SAME_TIME_S
        at = float(self.all_t[beside]) if on_row else at
        after = int(t.searchsorted(at))
        inner = 0 < after < len(t)
        before = float(self.all_t[beside - 1]) if not after and beside else at
        gap = float(self.gaps[after - 1]) if inner else abs(before - float(t[min(after, len(t) - 1)]))
        gap = 0.0 if on_row else gap
        if self.power:
            shown = p[:, min(after, len(t) - 1)]
            if inner:
                shown = shown + (p[:, after - 1] - shown) * ((t[after] - at) / self.gaps[after - 1])
            # whether the rows are as old as they are on average, or as they can be
            ages = [self._lost_by_lines(at + self.lag + older, begins=begins) for older in (0.0, self.blur)]
            lost = [max(pair, key=abs) for pair in zip(*ages, strict=True)]
            return [Edge(w, s, gap, lost[i]) for i, (w, s) in enumerate(zip(shown.tolist(), swing, strict=True))]
        # Beyond the newest row the power of the last move was taken to go on: that is "ahead", and no age.
        clean = not on_row and self.moves.clean(beside, gap if inner else 0.0)
        prompt = not on_row and (clean or self.moves.prompt(at, after))
        by_lines = prompt and self.lines is not None
        old = aged if clean or by_lines else self.oldest
        if not prompt:
            old = max(old, self.moves.age_s(at, after))
        # The last move before a rest is of a part of the time since the row before it; the one before is whole. And one
        # that stood still may show a part of what it lacks with its next move.
        shown = p[:, after] if after < len(t) else p[:, -2:].max(axis=1)
        if not prompt and inner and float(t[after]) > at:
            shown = np.maximum(shown, p[:, after - 1])
        behind_s = max(0.0, at - float(t[-1])) if by_lines else 0.0
        return [Edge(w, s, gap, 0.0, old, by_lines, behind_s) for w, s in zip(shown.tolist(), swing, strict=True)]

    def _lost_by_lines(self, at: float, *, begins: bool) -> list[float]:
        """Energy behind the instant of a step, or before it, that a straight line from row to row shows beyond it."""
        t, p = self.t, self.p
        after = int(t.searchsorted(at))
        if self.held or not 0 < after < len(t):
            return [0.0] * len(p)
        inside = float(t[after]) - at if begins else at - float(t[after - 1])
        step = p[:, after] - p[:, after - 1] if begins else p[:, after - 1] - p[:, after]
        lost: list[float] = (step * (inside * inside / (2.0 * float(self.gaps[after - 1])))).tolist()
        return lost

    def _between(self, length: float, aged: float, *, goes_on: bool) -> list[Between] | None:
        """Say what the times between moves leave open; ``goes_on``: to the end, with the power of the last move."""
        if self.lines is None:
            return None
        cells = self.lines._replace(length=length, goes_on=goes_on)
        lowest, highest = self.p.min(axis=1), self.p.max(axis=1)
        most = 2.0 * highest if cells.told_before else np.full(len(highest), self.like.max_watts or math.inf)
        opened = cells.open_joules((0.0, aged / 2.0, aged), highest - lowest, most).tolist()
        told_s, longest_s = cells.told_s(aged) if goes_on else math.inf, cells.longest_s()
        both = zip(opened, cells.spanned_joules(aged).tolist(), strict=True)
        return [Between(each, told_s, longest_s, spanned) for each, spanned in both]

    def _means(self, length: float, starts: Sequence[Edge], ends: Sequence[Edge]) -> list[float] | None:
        """Say what means over the times between rows leave open at the two ends, as moves of a counter do."""
        t, p = self.t, self.p
        if self.sample_s < STREAM_S:
            return None
        t = np.concatenate(([t[0] - self.sample_s], t))  # the first one is a mean as well
        if int(t.searchsorted(0.0, "right")) < 2:
            return None
        p = np.concatenate((p[:, :1], p), axis=1)
        shown = np.zeros(p.shape)
        np.cumsum(p[:, 1:] * np.diff(t), axis=1, out=shown[:, 1:])
        cells = Cells(t, shown, p, length, goes_on=True)
        swing = np.array([max(a.peak_to_peak_watts, b.peak_to_peak_watts) for a, b in zip(starts, ends, strict=True)])
        opened: list[float] = cells.open_joules((0.0,), swing, np.full(len(p), math.inf)).tolist()
        return opened

    # -- energies --------------------------------------------------------------------------------------------------

    def _energies(self, length: float, time_u: float) -> Floats:
        """By how much the energy is late, and what is open of that and of the clock, shape (3, g).

        A lag that is stated is corrected: what is open of it, and of the clock, is so about the instants that are
        found by it. Where it is a guess the rows may be as late as that, and are not early.
        """
        corrected = may_be_lag_corrected(self.like)
        to, lag_u = (self.lag, LAG_U * self.lag) if corrected else (0.0, self.lag)
        by = np.outer([lag_u, time_u], np.concatenate([SHIFTS, -SHIFTS]))
        found = self._shifted(np.append(to, to + by.ravel()), length)
        changes = (found[:, 2:] - found[:, 1:2]).reshape(len(found), 2, 2, -1)
        later, earlier = changes[:, :, 0], changes[:, :, 1]
        if not corrected:
            earlier[:, 0] = 0.0
        return np.vstack((found[:, 1] - found[:, 0], moved_either_way(later, earlier).T))

    def late(self, length: float) -> list[float]:
        """By how much the energy is late, alone."""
        if not len(self.t):
            return [0.0] * len(self.p)
        as_shown, found = self._shifted(np.array([self.lag]), length).T
        late: list[float] = (found - as_shown).tolist()
        return late

    def _shifted(self, by: Floats, length: float) -> Floats:
        """Energy as it is shown, and as it is if the rows are late by each of ``by``, shape (g, 1 + len(by)).

        What a single pole shows is behind by its time constant times its rate; only the rest of its lag is a shift.
        """
        starts = np.append(0.0, by - self.low_pass_s)
        at = np.concatenate((starts, length + starts))
        run = self._running(at)
        if self.low_pass_s:
            behind = self.low_pass_s * self._shown(at)
            behind[:, [0, len(starts)]] = 0.0
            run += behind
        return run[:, len(starts) :] - run[:, : len(starts)]

    def _shown(self, at: Floats) -> Floats:
        """Power that was shown at instants, by straight lines between rows; beyond them the nearest."""
        return np.array([np.interp(at, self.t, p) for p in self.p])

    def _running(self, at: Floats) -> Floats:
        """Energy from the first row to instants, shape (g, instants); beyond the rows the nearest power goes on."""
        t, p, gaps = self.t, self.p, self.gaps
        after = t.searchsorted(at)
        before = np.maximum(after - 1, 0)
        nearest = np.minimum(after, len(t) - 1)
        past = at - t[before]
        mean = p[:, nearest]
        if self.held:
            between = p[:, 1:]
        else:
            between = (p[:, 1:] + p[:, :-1]) * 0.5
            inside = nearest > before
            part = np.where(inside, past / np.where(inside, t[nearest] - t[before], 1.0), 0.0) * 0.5
            mean = p[:, before] + (mean - p[:, before]) * part
        run = np.zeros(p.shape)
        np.cumsum(between * gaps, axis=1, out=run[:, 1:])
        energy: Floats = run[:, before] + mean * past
        return energy


def _apart(t: Floats, least_s: float) -> npt.NDArray[np.intp]:
    """Pick rows that are at least so far apart: one poll for each reading."""
    kept, due = [], -math.inf
    for i, at in enumerate(t.tolist()):
        if at >= due:
            kept.append(i)
            due = at + least_s
    return np.array(kept)


def _held_s(gaps: Floats, sample: float) -> float:
    """Sample intervals in so many gaps, holes left out."""
    return float(np.minimum(gaps, HOLE * sample).sum()) / sample


def _noise(steps: Floats) -> list[float]:
    """Deviation of single readings from the smaller changes between them; the larger ones are the load's."""
    number = steps.shape[1]
    if number < _MIN_STEPS:
        return [0.0] * len(steps)
    quarter = (number - 1) // 4
    quartile = np.partition(abs(steps), quarter, axis=1)[:, quarter]
    noise: list[float] = (quartile / _QUARTILE).tolist()
    return noise
