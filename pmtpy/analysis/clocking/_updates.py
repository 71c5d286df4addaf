"""Polls in, the publishing clock and the series of updates out."""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.clocking._edges import in_step, longest_period
from pmtpy.analysis.clocking._intervals import (
    MIN_CHANGES,
    MOST_POLLS,
    BoundedError,
    FasterThanPollsError,
    Intervals,
    few_own,
    own_changes,
)
from pmtpy.analysis.clocking._period import search, too_fast
from pmtpy.analysis.clocking._phase import ONE_IN_A_THOUSAND, PhasePath, follow
from pmtpy.analysis.signal.estimate import MIN_EXPLAINED, NAMED, STRAY, Estimate
from pmtpy.analysis.signal.renewal import Bools
from pmtpy.analysis.signal.updates import Updates, stamp_step, tidy
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError, Reason

# Share of the polls that bring a change right after another, above which no sensor is slower than they are; and of the
# changes that come at the very next update, below which a lattice has none where updates are.
_IN_A_ROW = 0.05
# Updates that bring the value before are no readings if they are so many times as many as by chance, and come one after
# another no more often than that.
_BEYOND_CHANCE = 4.0
_SOON_POLLS = 1.5  # polls, within which a sensor that is faster than they are shows an edge of the load
_EARLIEST = 0.25  # of the period, by which the instant that is followed may lie behind the stamp
# By which a clock runs wrong for a while, relative: more than recorded ones, which wander by 4 ms in a minute.
RATE = 1e-3
_MAX_STANDING = 0.25  # of the values shown, those that stand for long: of a sensor without noise more do


@dataclass(frozen=True, slots=True)
class PublishingClock:
    """The publishing clock of a sensor, as seen in one recording."""

    period_s: Estimate  # time between updates
    phase_s: Estimate  # instant of the update nearest the middle of the recording, on the clock of the polls
    coverage: float  # share of the changes that the clock explains
    seen: float  # share of the updates that brought a change that somebody saw
    # instants through the recording, and how far the updates there lie behind ``phase_s + k T``
    blocks_s: Floats
    block_phase_s: Floats
    poll_s: float  # median time between polls
    # standard error of the mean rate of the updates in this recording, relative; that of the period is larger, since
    # the phase wanders
    drift: float = 0.0
    # standard error of the mean phase in this recording: what is off at one place is not at the next
    common_s: float = math.inf
    # (float, float): periods that were weighed and the share of belief in each, the likeliest first
    candidates: tuple[tuple[float, float], ...] = ()
    # updates bring changes in too regular a pattern for chance: the value may be renewed at some of these instants only
    patterned: bool = False
    step_s: float = 0.0  # what stamps were cut off to: on average they lie half of that early

    def times(self, k: Ints) -> Floats:
        """Instants of the updates ``k``, seconds; update 0 is at ``phase_s``."""
        nominal = self.phase_s.value + np.asarray(k, np.float64) * self.period_s.value
        return np.asarray(nominal + np.interp(nominal, self.blocks_s, self.block_phase_s), np.float64)


def estimate_updates(
    t_s: Floats, values: Floats, *, unequal: bool = False, uncut: bool = False, edges_s: Floats | None = None
) -> PublishingClock:
    """Find update period and phase.

    Parameters
    ----------
    t_s : float64, shape (n,)
        Stamps of the polls in seconds, on any clock.
    values : float64, shape (n,)
        What was read.
    unequal : bool
        Whether a lattice will do of which only some instants bring a value, in a pattern of their own.
    uncut : bool
        Whether stamps are known to be as their clock told them. Else those that lie on a coarse decimal step, as polls
        that keep their beat do as well, are taken for ones that were cut off to it.
    edges_s : float64, shape (m,), optional
        When the load was switched, in order, on the clock of the polls.

    Raises FasterThanPollsError: the sensor publishes faster than it was polled, or nearly.
    Raises BoundedError: no period is found, but the readings follow the load so soon that it is bounded.
    Raises DeclinedError: there are too few changes; they are jumps between a few levels, which the load may have made;
    no period explains them better than chance and than another; or they come at unequal intervals.
    """
    t, v = tidy(t_s, values)
    if len(t) < 3:
        msg = f"{amount(len(t), 'poll is', 'polls are')} too few to find an update period"
        raise DeclinedError(msg)
    try:
        return _estimated(t, v, edges_s, unequal=unequal, uncut=uncut)
    except BoundedError:
        raise
    except DeclinedError as error:
        raise _bounded(error.reason, t, v, edges_s) from error


def _bounded(reason: Reason, t: Floats, v: Floats, edges_s: Floats | None) -> DeclinedError:
    """Return why there is no period, with the bound that a load gives, or that it would."""
    if edges_s is None:
        if np.count_nonzero(np.diff(v)) < MIN_CHANGES:  # it does not follow a load
            return DeclinedError(reason.why, polls=reason.polls, load=reason.load)
        stamps = "a sensor that is faster than the polls may look the same, which stamps of the load would tell"
        return DeclinedError(reason.why, polls=reason.polls, load="; ".join(filter(None, (reason.load, stamps))))
    bound = longest_period(t, v, edges_s)
    if bound is None:
        return DeclinedError(reason.why, polls=reason.polls, load=reason.load)
    why = (
        f"the readings follow the load so soon that the update period is below {1e3 * bound:.3g} ms; by their changes "
        f"alone, {reason.why}"
    )
    return BoundedError(why, bound, polls=reason.polls, load=reason.load)


def _estimated(t: Floats, v: Floats, edges_s: Floats | None, *, unequal: bool, uncut: bool) -> PublishingClock:
    """Find update period and phase of polls in order."""
    first, *others = _stretches(t)
    if others:
        clock = _estimated(t[first], v[first], edges_s, unequal=unequal, uncut=uncut)
        return _joined(clock, [(t[rows], v[rows]) for rows in others])
    step = 0.0 if uncut else stamp_step(t)
    origin = float(t[0] + t[-1]) / 2.0
    polls = t - origin + step / 2.0  # a stamp that was cut off to its resolution lies half a step early on average
    seen, own = Intervals.between(polls, v), own_changes(v)
    poll = float(np.median(seen.length))
    try:
        path, coverage, odds = _weighed(seen, own, poll, step)
    except DeclinedError as error:
        if isinstance(error, FasterThanPollsError) or np.mean(seen.changed[1:] & seen.changed[:-1]) < _IN_A_ROW:
            raise
        raise too_fast(seen) from error
    if edges_s is not None:
        _refuse_edges(seen, own, path, edges_s - origin)
    clock = replace(clock_of(path, origin, seen, coverage, odds), step_s=step)
    if clock.patterned and not unequal and np.mean(_steps(seen, path) == 1.0) < _IN_A_ROW:
        period = 1e3 * clock.period_s.value
        msg = (
            f"the value is renewed at unequal intervals, {period / clock.seen:.3g} ms on average: changes come at "
            f"{100 * clock.seen:.0f} % of the instants of the best lattice, {period:.4g} ms, "
            "and hardly ever at two in a row"
        )
        raise DeclinedError(msg)
    return clock


def _refuse_edges(seen: Intervals, own: Bools, path: PhasePath, edges: Floats) -> None:
    """Decline a clock that the load keeps as well, if nothing speaks for it but the changes right after its edges."""
    within = _SOON_POLLS * float(np.median(seen.length))
    edges = edges[(edges > seen.after[0]) & (edges < seen.before[-1])]
    if len(edges) < MIN_CHANGES or not in_step(edges, path.period_s.value, within):
        return
    # What is stamped before it is read shows edges that come after its stamp.
    first, last = np.searchsorted(edges, seen.after - within), np.searchsorted(edges, seen.before + within / 2.0)
    others = own & (first == last)
    if np.sum(others) < MIN_CHANGES:
        changes, period = int(np.sum(seen.changed)), 1e3 * path.period_s.value
        msg = (
            f"of {changes} changes {amount(changes - int(np.sum(others)), 'follows', 'follow')} the load, which keeps "
            f"the step that was found in them, {period:.4g} ms"
        )
        raise DeclinedError(msg, load="use a load that switches irregularly")
    explained(seen, path, others)


def _stretches(t_s: Floats) -> list[slice[int, int, None]]:
    """Return the parts of a recording between holes that are longer than all the rest, that of most polls first.

    A logger was off for days, or its clock was set: nothing is known of the phase from one part to the next, and a
    lattice of milliseconds through all of it would be searched for hours.
    """
    gaps = np.diff(t_s)
    ends = np.flatnonzero(gaps > len(gaps) * float(np.median(gaps))) + 1
    bounds = [0, *ends.tolist(), len(t_s)]
    return sorted((slice(a, b) for a, b in itertools.pairwise(bounds)), key=lambda rows: rows.start - rows.stop)


def _joined(clock: PublishingClock, others: list[tuple[Floats, Floats]]) -> PublishingClock:
    """Return a clock with the phases of other parts of its recording, where they show one; its period stays."""
    period, step, blocks, phases = clock.period_s.value, clock.step_s, [clock.blocks_s], [clock.block_phase_s]
    for t, v in others:
        origin = float(t[0] + t[-1]) / 2.0
        seen = Intervals.between(t - origin + step / 2.0, v)
        if np.sum(seen.changed) < MIN_CHANGES:
            continue
        with contextlib.suppress(DeclinedError):
            path = follow(seen, period, clock.period_s.sd / period, step, known=True)
            own = clock_of(path, origin, seen, clock.coverage)
            at = own.times(np.round((own.blocks_s - own.phase_s.value) / own.period_s.value).astype(np.int64))
            off = at - clock.phase_s.value
            blocks.append(own.blocks_s)
            phases.append(np.unwrap(off - period * np.round(off / period), period=period))
    order = np.argsort([each[0] for each in blocks])
    return replace(
        clock,
        blocks_s=np.concatenate([blocks[i] for i in order]),
        block_phase_s=np.concatenate([phases[i] for i in order]),
    )


def clock_of(
    path: PhasePath,
    origin: float,
    seen: Intervals,
    coverage: float,
    odds: tuple[tuple[float, float], ...] = (),
) -> PublishingClock:
    """Return the clock of a path whose times count from ``origin``."""
    phase = path.phase_s
    return PublishingClock(
        path.period_s,
        phase.moved(origin),
        coverage,
        _seen_share(seen, path),
        path.blocks_s + origin,
        path.block_phase_s,
        float(np.median(seen.length)),
        path.drift,
        path.common_s,
        odds,
        _patterned(seen, path),
    )


def _steps(seen: Intervals, path: PhasePath) -> Floats:
    """Updates from each change to the next."""
    period = path.period_s.value
    which = seen.changed & seen.known(period, path.soft_s)
    at = path.nearest((seen.before[which] + seen.after[which]) / 2.0)
    steps = np.round(np.diff(at) / period)
    return np.asarray(steps[steps > 0.0], np.float64)


def _patterned(seen: Intervals, path: PhasePath) -> bool:
    """Whether updates bring a change less often right after another change than if they did so at random.

    Shares that differ from time to time, as a load's pauses make them, bring changes in a row more often.
    """
    steps = _steps(seen, path)
    if not len(steps):
        return False
    in_a_row, chance = float(np.mean(steps == 1.0)), 1.0 / float(np.mean(steps))
    return in_a_row < chance and len(steps) * _divergence(in_a_row, chance) > ONE_IN_A_THOUSAND


def _divergence(share: float, chance: float) -> float:
    """Nats by which each case of a share speaks against chance."""
    from scipy.special import rel_entr

    return float(rel_entr(share, chance) + rel_entr(1.0 - share, 1.0 - chance))


def _seen_share(seen: Intervals, path: PhasePath) -> float:
    """Share of the updates that bring a change, while anything changes."""
    period, known = path.period_s.value, seen.known(path.period_s.value, path.soft_s)
    of = np.floor((seen.after[known] - seen.after[0]) / (8.0 * period)).astype(np.int64)
    hits, seconds = np.bincount(of, seen.changed[known]), np.bincount(of, seen.length[known])
    return float(min(np.sum(hits) * period / max(np.sum(seconds[hits > 0]), period), 1.0))


def _weighed(
    seen: Intervals, own: Bools, poll: float, step: float
) -> tuple[PhasePath, float, tuple[tuple[float, float], ...]]:
    """Return the clock, the share of changes that it explains, and the periods that were weighed."""
    found = search(seen, poll, step)
    odds = tuple((period, share) for period, _, share in found)
    period, reach, share = found[0]
    if share * (1.0 + NAMED) < NAMED:
        named = " or ".join(f"{1e3 * p:.4g} ms ({100 * s:.0f} %)" for p, s in odds if s > 0.02)
        msg = f"the update period may be {named}"
        raise DeclinedError(msg, polls="poll at irregular intervals, below a fifth of the shortest")
    starts = seen.starts(period / MOST_POLLS)
    seen, own = seen.joined(starts), np.logical_or.reduceat(own, starts)
    path = follow(seen, period, reach, step)
    return path, explained(seen, path, own), odds


def explained(seen: Intervals, path: PhasePath, own: Bools) -> float:
    """Return the share of changes that the clock explains, if it is much more than of any polls.

    Raises DeclinedError: of those changes that are the sensor's own it explains no more than chance.
    """
    known = seen.known(path.period_s.value, path.soft_s)
    u = path.nearest((seen.before + seen.after) / 2.0)
    inside = (u >= seen.after - 2.0 * path.soft_s) & (u <= seen.before + 2.0 * path.soft_s)
    mine, chance = inside[known & own], float(np.mean(inside[known]))
    share = float(np.mean(mine)) if len(mine) else 0.0
    if share < MIN_EXPLAINED or share <= chance or len(mine) * _divergence(share, chance) < ONE_IN_A_THOUSAND:
        if 2 * len(mine) < np.sum(known & seen.changed):
            raise few_own(len(mine), int(np.sum(seen.changed)))
        msg = (
            f"no update period explains the changes: the best, {1e3 * path.period_s.value:.4g} ms, explains "
            f"{100 * share:.0f} % of {len(mine)}, which chance or a clock of unequal intervals might do as well"
        )
        raise DeclinedError(msg)
    return float(np.mean(inside[known & seen.changed]))


def update_series(t_s: Floats, values: Floats, clock: PublishingClock, renewed_s: Floats | None = None) -> Updates:
    """Reduce polls to updates: each takes the value of the poll nearest the middle of its time on display.

    Updates that nobody polled are left out, and those that were not renewed. Where the device itself says when it
    renewed the value (``renewed_s``), that is when they were published: the clock of the polls only counts them.
    """
    t, v = tidy(t_s, values)
    t = t + clock.step_s / 2.0
    period = clock.period_s.value
    shown = (t - clock.phase_s.value - np.interp(t, clock.blocks_s, clock.block_phase_s)) / period
    newest = np.floor(shown).astype(np.int64)
    order = np.lexsort((np.abs(shown - newest - 0.5), newest))
    k, first = np.unique(newest[order], return_index=True)
    watts = v[order[first]]
    renewed = _renewed(watts)
    k, watts, stale = k[renewed], watts[renewed], int(np.sum(~renewed))
    nominal, moves = clock.phase_s.value + k * period, np.abs(np.diff(clock.block_phase_s))
    wander = np.asarray(np.interp(nominal, clock.blocks_s, clock.block_phase_s), np.float64)
    moved = moves[np.clip(np.searchsorted(clock.blocks_s, nominal) - 1, 0, len(moves) - 1)]
    found = Updates(
        k,
        clock.times(k),
        watts,
        period,
        clock.phase_s.sd,
        clock.drift,
        wander,
        moved,
        stale,
        common_s=min(clock.common_s, clock.phase_s.sd),
    )
    if renewed_s is None or not len(renewed_s) or not len(k):
        return found
    return _at_instants(found, renewed_s)


def _at_instants(updates: Updates, stamps_s: Floats) -> Updates:
    """Move updates to where stamps of new values put them: never early, and no later than those nearby say.

    Most stamps are exact, and some a poll late: what counts is how early they are, as the clock between them allows.
    Where most are not, their times are too early by about as much as those usually are late. A clock that jumped allows
    nothing from one side of the jump to the other.
    """
    period = updates.period_s
    path = np.interp(stamps_s, updates.t_s, updates.t_s - period * updates.k)
    k = np.floor((stamps_s - path) / period + _EARLIEST)
    late = stamps_s - period * k
    jumped = updates.jumped
    # Each stretch between jumps has a number, and so has each jump.
    stretches = np.cumsum(np.diff(jumped, prepend=jumped[:1]))
    of = stretches[np.clip(np.searchsorted(updates.k, k), 0, len(stretches) - 1)]
    least, at = late.copy(), updates.t_s.copy()
    for stretch in np.unique(of).tolist():
        some, mine = of == stretch, stretches == stretch
        drift = RATE * stamps_s[some]
        behind = np.minimum.accumulate(late[some] - drift) + drift
        ahead = np.minimum.accumulate((late[some] + drift)[::-1])[::-1] - drift
        least[some] = np.minimum(behind, ahead)
        at[mine] = period * updates.k[mine] + np.interp(updates.k[mine], k[some], least[some])
    off = float(np.median(late - least))
    return replace(updates, t_s=np.asarray(at, np.float64), jitter_s=off)


def _renewed(watts: Floats) -> Bools:
    """Which updates brought a value of their own, rather than the one before once more because the driver skipped them.

    If values repeated by chance (noise, a slow ramp), moves by one step of the resolution would be about as frequent:
    far more repeats than that are skipped renewals. On a plateau without noise every reading repeats: there most values
    stand, or one that stood goes on standing, at powers that come again or at which nothing else is shown.
    """
    moves = np.abs(np.diff(watts))
    stands = moves == 0.0
    moved, share = moves[~stands], float(np.mean(stands)) if len(stands) else 0.0
    by_chance = float(np.sum(moved < 1.5 * np.min(moved))) / 2.0 if len(moved) else 0.0
    if not _BEYOND_CHANCE * by_chance < np.sum(stands) < len(stands) / 2.0:
        return np.ones(len(watts), np.bool_)
    again = stands[1:][stands[:-1]]
    alike = STRAY * math.sqrt(share * (1.0 - share) / max(len(again), 1))
    if len(again) > 0 and np.mean(again) - share > alike:
        stands &= _amid_others(watts)
    return np.concatenate([[True], ~stands | (np.sum(stands) <= _BEYOND_CHANCE * by_chance)])


def _amid_others(watts: Floats) -> Bools:
    """Which values, but the first, are shown at one time only, amid others that move, where few of them ever stand.

    A part that rests may be looked at each second only: there one value that stands follows another.
    """
    begins = np.flatnonzero(np.concatenate([[True], np.diff(watts) != 0.0]))
    values, lasts = watts[begins], np.diff(begins, append=len(watts))
    stood = lasts > 1
    if np.sum(stood) > _MAX_STANDING * len(values) or len(values) < MIN_CHANGES:
        return np.zeros(len(watts) - 1, np.bool_)
    beside = np.concatenate([[False], stood[:-1]]) | np.concatenate([stood[1:], [False]])
    moving, (kinds, times) = values[~stood], np.unique(values[stood], return_counts=True)
    amid = stood & ~beside & (values > np.min(moving)) & (values < np.max(moving))
    return np.repeat(amid & np.isin(values, kinds[times == 1]), lasts)[1:]
