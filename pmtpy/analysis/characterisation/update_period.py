"""When a sensor publishes: update period and phase from polled readings, by the update lattice.

A change between two polls ``(a, b]`` proves that the sensor published in that interval. The period ``T`` and the
phase are those of the lattice ``phase + k T`` of which most such intervals contain a point. Readings that repeat
cost nothing: an update that changes nothing is simply not seen. Polls at a fraction of the period, stalls, and early
or rounded stamps, which spoil run lengths, do no harm here.

Here a period is searched, accepted or declined; ``track`` follows the clock from there. docs/characterise.md explains
both. Nothing here may assume what a period usually is, nor take the load's edges for the sensor's updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.characterisation.phase_tracking import Track, follow
from pmtpy.analysis.signal.estimate import Z95, Estimate
from pmtpy.analysis.signal.updates import Updates, stamp_step, tidy
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_Bools = npt.NDArray[np.bool_]

MIN_CHANGES = 12  # below this, chance alone finds a lattice among the many candidates
MIN_COVERAGE = 0.85  # share of changes that the lattice must explain (docs/characterise.md)
_ONE_IN_A_THOUSAND = math.log(1000.0)
_COARSE_CHANGES = 60
_SEARCH_S = 20.0  # in longer pieces a wandering phase leaves any one lattice
_FAST = 0.85  # share of polls that change, above which there is no telling when
_TELLING = 0.95  # share of a period up to which polls tell one update from two
_RATE = 1e-3  # no clock is seen to run wrong by more for long, relative
_IN_A_ROW = 0.1  # share of changes at three polls in a row: a sensor that publishes every other poll has none
# What the load may have done by itself: jumps between levels that come back.
_LEVEL_SHARE, _LEVEL_RUNS = 1.0 / 32.0, 3  # of the runs of equal readings, held by one reading
_NOISE_SPAN = 0.1  # share of the readings' span below which a change is noise ...
_FINE = 16.0  # ... if the span has that many steps of the readings' resolution: else the levels are the steps


@dataclass(frozen=True, slots=True)
class UpdateLattice:
    """The publishing clock of a sensor, as seen in one recording.

    Attributes
    ----------
    period_s : Estimate
        Time between updates.
    phase_s : Estimate
        Instant of the update nearest the middle of the recording, on the clock of the polls.
    coverage : float
        Share of the changes that the lattice explains.
    changes : int
        Number of changes that were used.
    blocks_s, block_phase_s : array
        Instants through the recording, and how far the updates there lie behind ``phase_s + k T``.
    poll_s : float
        Median time between polls.
    drift : float
        Standard error of the mean rate of the updates in this recording, relative; that of the period is larger,
        since the phase wanders.
    """

    period_s: Estimate
    phase_s: Estimate
    coverage: float
    changes: int
    blocks_s: Floats
    block_phase_s: Floats
    poll_s: float
    drift: float = 0.0

    def times(self, k: Ints) -> Floats:
        """Instants of the updates ``k``, seconds; update 0 is at ``phase_s``."""
        nominal = self.phase_s.value + np.asarray(k, np.float64) * self.period_s.value
        return np.asarray(nominal + np.interp(nominal, self.blocks_s, self.block_phase_s), np.float64)


def estimate_updates(t_s: Floats, values: Floats) -> UpdateLattice:
    """Find update period and phase.

    Parameters
    ----------
    t_s : float64, shape (n,)
        Stamps of the polls in seconds, on any clock.
    values : float64, shape (n,)
        What was read.

    Raises
    ------
    DeclinedError
        There are too few changes; they are jumps between a few levels, which the load may have made; the polls are too
        slow for the sensor; or no period explains enough of the changes.
    """
    t, v = tidy(t_s, values)
    if len(t) < 3:
        msg = f"{len(t)} polls are too few to find an update period"
        raise DeclinedError(msg)
    step, poll = stamp_step(t), float(np.median(np.diff(t)))
    at, own = _changes(v, poll)
    origin = float(t[at[0]] + t[at[-1] + 1]) / 2.0
    # A stamp that was cut off to its resolution lies half a step early on average.
    polls = t - origin + step / 2.0
    try:
        track, coverage = _tracked(polls, at, own, step)
    except DeclinedError as error:
        if np.mean((np.diff(at)[1:] == 1) & (np.diff(at)[:-1] == 1)) > _IN_A_ROW:
            raise DeclinedError(_too_fast(poll, "often at three polls in a row")) from error
        raise
    phase = track.phase_s
    return UpdateLattice(
        track.period_s,
        Estimate(phase.value + origin, phase.low + origin, phase.high + origin),
        coverage,
        len(at),
        track.t_s + origin,
        track.off_s,
        poll,
        track.drift,
    )


def _changes(v: Floats, poll: float) -> tuple[Ints, _Bools]:
    """Return the polls after which the readings changed, and which changes are the sensor's own."""
    at = np.flatnonzero(np.diff(v) != 0.0)
    if len(at) < MIN_CHANGES:
        msg = (
            f"the readings change {len(at)} times, too few to find an update period ({MIN_CHANGES} are needed): "
            "the power is constant or the recording too short; use a load that varies"
        )
        raise DeclinedError(msg)
    if len(at) > _FAST * len(v):
        raise DeclinedError(_too_fast(poll, f"at {100 * len(at) / len(v):.0f} % of the polls"))
    own = _own(v, at)
    if np.sum(own) < MIN_CHANGES:
        msg = (
            f"all but {np.sum(own)} of {len(at)} changes are jumps between a few levels, which may be the load's as "
            "well as the sensor's; use a load that switches irregularly and within the update period"
        )
        raise DeclinedError(msg)
    return at, own


def _tracked(polls: Floats, at: Ints, own: _Bools, step: float) -> tuple[Track, float]:
    """Find the period, follow the clock from there, and see how many changes that explains."""
    period, reach, enough = _search(polls, at, step)
    telling = at[polls[at + 1] - polls[at] < _TELLING * period]
    if len(telling) < MIN_CHANGES:
        msg = f"only {len(telling)} of {len(at)} changes lie between polls within {1e3 * period:.4g} ms: poll faster"
        raise DeclinedError(msg)
    track = follow(polls[telling], polls[telling + 1], period, reach, step)
    return track, min(_coverage(polls, at, track, enough), _coverage(polls, at[own], track, _ONE_IN_A_THOUSAND))


def _too_fast(poll: float, when: str) -> str:
    return (
        f"the readings change {when}, {1e3 * poll:.3g} ms apart, and at no slower beat: the sensor publishes faster "
        "than it was polled, or nearly; poll at least three times as often"
    )


def _own(v: Floats, at: Ints) -> _Bools:
    """Which changes the load cannot have made by jumping between a few levels: the sensor's noise and means.

    A sensor without noise that follows at once shows the load's edges and nothing else, and they may lie on a
    lattice of their own. A level is a reading that comes back again and again.
    """
    runs = v[np.append(at, at[-1] + 1)]
    values, which, counts = np.unique(runs, return_inverse=True, return_counts=True)
    levels = (counts >= max(_LEVEL_RUNS, _LEVEL_SHARE * len(runs)))[which]
    jump = levels[:-1] & levels[1:]
    span = float(values[-1] - values[0])
    if span >= _FINE * float(np.min(np.diff(values))):
        jump &= np.abs(np.diff(runs)) > _NOISE_SPAN * span
    return np.asarray(~jump, np.bool_)


# --- the search ---


def _search(polls: Floats, at: Ints, step: float) -> tuple[float, float, float]:
    """Return the best period that the polls can resolve, how far it may be off, relative, and what it must explain.

    The last is the evidence, in nats, that chance reaches once in a thousand recordings, by Bonferroni over the periods
    tried and the phases that the overlap was maximised over.
    """
    a, b, poll = polls[at], polls[at + 1], float(np.median(np.diff(polls)))
    n = min(len(a), _COARSE_CHANGES)
    first = int(np.argmin(b[n - 1 :] - a[: len(a) - n + 1]))
    last = first + n
    lo, hi = 1.25 * poll, 1.2 * float(np.median(np.diff((a + b) / 2.0)))
    if hi <= lo:
        msg = f"the readings change every {1e3 * hi / 1.2:.3g} ms, too often for polls {1e3 * poll:.3g} ms apart"
        raise DeclinedError(msg)
    span, most = b[last - 1] - a[first], min(_SEARCH_S, b[-1] - a[0])
    fine = poll / (4.0 * span)  # relative step that moves the far end by a quarter of a poll
    grid = lo * np.exp(np.arange(0.0, math.log(hi / lo) + fine, fine))
    tried = len(grid)
    score = _scores(a[first:last], b[first:last], grid, step)
    while span < most:
        coarse, span = fine, min(2.5 * span, most)
        first, last = _wider(a, b, first, last, span)
        fine = poll / (4.0 * span)
        near = 1.0 + 2.0 * coarse * np.linspace(-1.0, 1.0, 2 * math.ceil(2.0 * coarse / fine) + 1)
        grid = np.unique(np.concatenate([c * near for c in _peaks(grid, score, 12)]))
        tried += len(grid)
        score = _scores(a[first:last], b[first:last], grid, step)
    return float(grid[int(np.argmax(score))]), 8.0 * fine + _RATE, _ONE_IN_A_THOUSAND + math.log(tried * len(a))


def _coverage(polls: Floats, at: Ints, track: Track, enough: float) -> float:
    """Return the share of changes that the track explains, if that is much more than it explains of any polls.

    Chance is the share of all polls, changed or not, that a lattice point precedes: polls at regular intervals beat
    with many a period.
    """
    telling = np.diff(polls) < _TELLING * track.period_s.value
    changed = np.zeros(len(telling), np.bool_)
    changed[at] = True
    changed &= telling
    u, coverage = track.nearest((polls[1:] + polls[:-1]) / 2.0), 0.0
    for soft in (0.0, track.soft_s, 2.0 * track.soft_s):
        inside = (u >= polls[:-1] - soft) & (u <= polls[1:] + soft)
        coverage, chance = float(np.mean(inside[changed])), float(np.mean(inside[telling]))
        evidence = float(np.sum(changed)) * float(_divergence(np.array([coverage]), np.array([chance]))[0])
        if coverage >= MIN_COVERAGE and coverage > chance and evidence >= enough:
            return coverage
    msg = (
        f"no update period explains the changes: the best, {1e3 * track.period_s.value:.4g} ms, explains "
        f"{100 * coverage:.0f} % of {len(at)}, which chance might do as well"
    )
    raise DeclinedError(msg)


def _wider(a: Floats, b: Floats, first: int, last: int, span: float) -> tuple[int, int]:
    """Widen the rows ``first:last`` about their middle until they last ``span`` seconds."""
    middle = (a[first] + b[last - 1]) / 2.0
    start = max(middle - span / 2.0, a[0])
    end = min(start + span, b[-1])
    start = max(min(start, end - span), a[0])
    return int(np.searchsorted(a, start)), int(np.searchsorted(b, end, side="right"))


def _peaks(grid: Floats, score: Floats, most: int) -> Floats:
    order, taken = np.argsort(-score), list[float]()
    for i in order:
        if all(abs(grid[i] / c - 1.0) > 0.004 for c in taken):
            taken.append(float(grid[i]))
        if len(taken) == most:
            break
    return np.array(taken)


def _scores(a: Floats, b: Floats, periods: Floats, step: float) -> Floats:
    """Return the evidence for each period, in nats, from the largest number of intervals with one phase in common.

    Evidence is ``n KL(coverage || chance)``, by which a fraction of the true period, which explains everything as
    well but more easily by chance, loses.
    """
    widened = np.maximum(b - a, 0.0) + step
    score = np.zeros(len(periods))
    rows = max(1, 400_000 // len(a))
    for i in range(0, len(periods), rows):
        period = periods[i : i + rows, None]
        telling = widened < _TELLING * period
        n = np.sum(telling, axis=1)
        overlap = _most_overlap(np.mod(a - step / 2.0, period), widened, period, telling)
        covered = overlap / np.maximum(n, 1)
        chance = np.sum(np.where(telling, widened / period, 0.0), axis=1) / np.maximum(n, 1)
        score[i : i + rows] = np.where(covered > chance, n * _divergence(covered, chance), 0.0)
    return score


def _most_overlap(start: Floats, length: Floats, period: Floats, telling: _Bools) -> Floats:
    """Return the largest number of wrapped intervals ``[start, start + length]`` with a point in common, per row."""
    end = start + length
    wraps = end > period
    weight = np.where(telling, 1.0, 0.0)
    points = np.concatenate([start, np.where(wraps, end - period, end)], axis=1)
    turns = np.concatenate([weight, -weight], axis=1)
    order = np.argsort(points, axis=1, kind="stable")  # starts come first in a tie, so touching ends do overlap
    running = np.cumsum(np.take_along_axis(turns, order, axis=1), axis=1)
    return np.asarray(np.max(running, axis=1) + np.sum(weight * wraps, axis=1), np.float64)


def _divergence(p: Floats, q: Floats) -> Floats:
    """Kullback-Leibler divergence of two coins, in nats."""
    p, q = np.clip(p, 1e-12, 1.0 - 1e-12), np.clip(q, 1e-12, 1.0 - 1e-12)
    return np.asarray(p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q)), np.float64)


# --- the series ---


def update_series(t_s: Floats, values: Floats, lattice: UpdateLattice) -> Updates:
    """Reduce polls to updates: each takes the value of the poll nearest the middle of its time on display.

    Updates that nobody polled are left out.
    """
    t, v = tidy(t_s, values)
    t = t + stamp_step(t) / 2.0
    period = lattice.period_s.value
    k = np.arange(math.floor((t[0] - lattice.phase_s.value) / period) - 1, (t[-1] - lattice.phase_s.value) / period + 1)
    u = lattice.times(k.astype(np.int64))
    cell = np.searchsorted(u, t, side="right") - 1
    inside = (cell >= 0) & (cell < len(u) - 1)
    t, v, cell = t[inside], v[inside], cell[inside]
    distance = np.abs(t - (u[cell] + period / 2.0))
    order = np.lexsort((distance, cell))
    _, first = np.unique(cell[order], return_index=True)
    chosen = order[first]
    return Updates(
        k[cell[chosen]].astype(np.int64),
        u[cell[chosen]],
        v[chosen],
        period,
        lattice.phase_s.half_width / Z95,
        lattice.drift,
    )
