"""When a sensor publishes: update period and phase from polled readings, by the update lattice.

A change between two polls ``(a, b]`` proves that the sensor published in that interval. The period ``T`` and the
phase are those of the lattice ``phase + k T`` of which most such intervals contain a point. Readings that repeat
cost nothing: an update that changes nothing is simply not seen. Polls at a fraction of the period, stalls, and early
or rounded stamps, which spoil run lengths, do no harm here.

The search follows docs/characterise.md (lattice), and must never assume what a period usually is.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.estimate import Z95, Estimate, t95
from pmtpy.analysis.series import Updates, stamp_step, tidy
from pmtpy.errors import DeclinedError
from pmtpy.model import Floats, Ints

MIN_CHANGES = 12  # below this, chance alone finds a lattice among the many candidates
MIN_COVERAGE = 0.85  # share of changes that the lattice must explain (docs/characterise.md)
_COARSE_CHANGES = 60
_BLOCK_S = 12.0  # the phase wanders by milliseconds in minutes, so it is followed in blocks of this length
_NOISE_S = (
    1e-4,
    2e-4,
    4e-4,
    8e-4,
    1.6e-3,
    3.2e-3,
    6.4e-3,
    1.28e-2,
)  # candidates for the softness of the intervals' ends
_SOFT_S = (0.0, 5e-4, 1e-3, 2e-3, 4e-3)  # how far a stamp may be off before a change no longer counts
# Unseen wander: the phase is granted a random walk of this variance per second, about a hundredth of what
# public recordings of a GA102 board show, so that a short recording does not claim what the next one contradicts.
_WALK_S = 2e-9
_STRAY = 0.01  # share of changes that are no update at all (torn readings, clock steps)


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
        Middle of each block of the recording, and how far the updates there lie behind ``phase_s + k T``.
    poll_s : float
        Median time between polls.
    """

    period_s: Estimate
    phase_s: Estimate
    coverage: float
    changes: int
    blocks_s: Floats
    block_phase_s: Floats
    poll_s: float

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
        The readings hardly change; there are too few changes; the polls are too slow for the sensor; or no period
        explains enough of the changes.
    """
    t, v = tidy(t_s, values)
    if len(t) < 3:
        msg = f"{len(t)} polls are too few to find an update period"
        raise DeclinedError(msg)
    origin, step, poll = float(t[0]), stamp_step(t), float(np.median(np.diff(t)))
    # A stamp that was cut off to its resolution lies half a step early on average.
    polls = t - origin + step / 2.0
    at = np.flatnonzero(np.diff(v) != 0.0)
    if len(at) < MIN_CHANGES:
        msg = (
            f"the readings change {len(at)} times, too few to find an update period ({MIN_CHANGES} are needed): "
            "the power is constant or the recording too short; use a load that varies"
        )
        raise DeclinedError(msg)
    if len(at) > 0.85 * len(polls):
        msg = (
            f"the readings change at {100 * len(at) / len(polls):.0f} % of the polls, which are {1e3 * poll:.3g} ms "
            "apart: the sensor publishes faster than it was polled; poll at least three times as often"
        )
        raise DeclinedError(msg)
    period, coverage = _search(polls, at, step)
    lattice = _refine(polls[at], polls[at + 1], period, step)
    return replace(
        lattice,
        phase_s=Estimate(*(x + origin for x in (lattice.phase_s.value, lattice.phase_s.low, lattice.phase_s.high))),
        coverage=coverage,
        blocks_s=lattice.blocks_s + origin,
        poll_s=poll,
    )


# --- the search ---


def _search(polls: Floats, at: Ints, step: float) -> tuple[float, float]:
    """Return the best period over all that the polls can resolve, and its coverage."""
    a, b, poll = polls[at], polls[at + 1], float(np.median(np.diff(polls)))
    n = min(len(a), _COARSE_CHANGES)
    first = int(np.argmin(b[n - 1 :] - a[: len(a) - n + 1]))
    last = first + n
    lo, hi = 1.25 * poll, 1.2 * float(np.median(np.diff((a + b) / 2.0)))
    if hi <= lo:
        msg = f"the readings change every {1e3 * hi / 1.2:.3g} ms, too often for polls {1e3 * poll:.3g} ms apart"
        raise DeclinedError(msg)
    fine = poll / (4.0 * (b[last - 1] - a[first]))  # relative step that moves the far end by a quarter of a poll
    grid = lo * np.exp(np.arange(0.0, math.log(hi / lo) + fine, fine))
    tried = len(grid)
    score = _scores(a[first:last], b[first:last], grid, step)
    while first > 0 or last < len(a):
        coarse, span = fine, 2.5 * (b[last - 1] - a[first])
        first, last = _wider(a, b, first, last, span)
        fine = poll / (4.0 * (b[last - 1] - a[first]))
        near = 1.0 + 2.0 * coarse * np.linspace(-1.0, 1.0, 2 * math.ceil(2.0 * coarse / fine) + 1)
        grid = np.unique(np.concatenate([c * near for c in _peaks(grid, score, 12)]))
        tried += len(grid)
        score = _scores(a[first:last], b[first:last], grid, step)
    # Bonferroni over the periods tried and the phases that the overlap was maximised over: one false in a thousand.
    return _accept(polls, at, float(grid[int(np.argmax(score))]), step, math.log(1000.0 * tried * len(a)))


def _accept(polls: Floats, at: Ints, period: float, step: float, enough: float) -> tuple[float, float]:
    """Return period and coverage if the lattice explains the changes much better than it explains any poll.

    Chance is the share of all polls, changed or not, that a lattice point precedes: polls at regular intervals beat
    with many a period.
    """
    a, b = polls[:-1], polls[1:]
    coverage = 0.0
    for soft in (s for s in _SOFT_S if s <= period / 8.0):  # jittering stamps miss the narrow intervals of fast polls
        start, length = a - soft - step / 2.0, b - a + 2.0 * soft + step
        telling = length < 0.95 * period
        changed = np.zeros(len(a), np.bool_)
        changed[at] = True
        changed &= telling
        phase = _common_phase(start[changed], length[changed], period)
        inside = np.mod(phase - start, period) <= length
        coverage, chance = float(np.mean(inside[changed])), float(np.mean(inside[telling]))
        evidence = float(np.sum(changed)) * float(_divergence(np.array([coverage]), np.array([chance]))[0])
        if coverage >= MIN_COVERAGE and coverage > chance and evidence >= enough:
            return period, coverage
    msg = (
        f"no update period explains the changes: the best, {1e3 * period:.4g} ms, explains {100 * coverage:.0f} % of "
        f"{len(at)}, which chance might do as well"
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
        telling = widened < 0.95 * period
        n = np.sum(telling, axis=1)
        overlap = _most_overlap(np.mod(a - step / 2.0, period), widened, period, telling)
        covered = overlap / np.maximum(n, 1)
        chance = np.sum(np.where(telling, widened / period, 0.0), axis=1) / np.maximum(n, 1)
        score[i : i + rows] = np.where(covered > chance, n * _divergence(covered, chance), 0.0)
    return score


def _most_overlap(
    start: Floats, length: Floats, period: Floats, telling: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> Floats:
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


# --- the posterior ---


def _refine(a: Floats, b: Floats, period: float, step: float) -> UpdateLattice:
    """Return the posterior of period and phase about a period found, and the wander of the phase."""
    telling = (b - a) < 0.95 * period
    a, b = a[telling], b[telling]
    phase = _common_phase(a - step / 2.0, b - a + step, period)
    middle = (a[0] + b[-1]) / 2.0
    phase += period * round((middle - phase) / period)
    for _ in range(3):  # the numbering of the updates may change while period and phase settle
        seen = _Seen(a, b, np.round(((a + b) / 2.0 - phase) / period))
        period, phase, sd_period, sd_phase, noise = _posterior(seen, period, phase, step)
    blocks, drift, sd_drift = _blocks(seen, period, phase, noise)
    wander = _wander(blocks, drift, sd_drift, period, float(b[-1] - a[0]))
    return UpdateLattice(
        Estimate.normal(period, math.hypot(sd_period, wander)),
        Estimate.normal(phase, math.hypot(sd_phase, float(np.std(drift)), 0.2 * noise)),
        1.0,
        len(a),
        blocks,
        drift,
        0.0,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Changes, each between two polls, with the number of the update that each shows."""

    after: Floats
    before: Floats
    k: Floats

    def log_likelihood(self, u: Floats, noise: float) -> Floats:
        """Log probability of the changes when the updates are at ``u`` and the stamps are soft by ``noise``.

        Summed over the last axis, along which ``u`` has one instant for each change.
        """
        soft = noise * 0.5513  # a logistic of this scale has the standard deviation ``noise``
        inside = 1.0 / (1.0 + np.exp(np.clip((self.after - u) / soft, -40, 40)))
        inside -= 1.0 / (1.0 + np.exp(np.clip((self.before - u) / soft, -40, 40)))
        return np.asarray(np.sum(np.log(_STRAY + (1.0 - _STRAY) * np.maximum(inside, 0.0)), axis=-1), np.float64)


def _common_phase(start: Floats, length: Floats, period: float) -> float:
    """Return the phase that most of the intervals contain."""
    grid = np.arange(0.0, 1.0, 1.0 / 400.0) * period
    count = np.sum(np.mod(grid[:, None] - start, period) <= length, axis=1)
    best = np.flatnonzero(count == np.max(count))
    angle = np.angle(np.mean(np.exp(2j * math.pi * grid[best] / period)))
    return float(angle / (2.0 * math.pi) * period)


def _posterior(seen: _Seen, period: float, phase: float, step: float) -> tuple[float, float, float, float, float]:
    """Return mean period and phase, their standard deviations, and the softness of the stamps.

    A grid over both, zoomed until it holds the posterior well; flat priors.
    """
    reach = float(np.max(np.abs(seen.k))) + 1.0
    half_phase = float(np.median(seen.before - seen.after)) / 2.0 + step
    half_period = half_phase / reach * 2.0
    noises = [s for s in _NOISE_S if s >= 0.14 * step and s <= period / 8.0]
    noises = noises or [period / 8.0]  # a stamp cut off to more than the period can tell nothing finer
    noise = noises[len(noises) // 2]
    sd_period = sd_phase = 0.0
    for zoom in range(6):
        if zoom in {1, 3}:
            fits = [float(seen.log_likelihood(phase + period * seen.k, s)) for s in noises]
            noise = noises[int(np.argmax(fits))]
        unit = np.linspace(-1.0, 1.0, 25 if zoom < 5 else 61)
        periods, phases = period + unit * half_period, phase + unit * half_phase
        p = _normalised(_on_grid(seen, periods, phases, noise))
        over_period, over_phase = np.sum(p, axis=1), np.sum(p, axis=0)
        period, phase = float(over_period @ periods), float(over_phase @ phases)
        sd_period = math.sqrt(float(over_period @ (periods - period) ** 2))
        sd_phase = math.sqrt(float(over_phase @ (phases - phase) ** 2))
        half_period = min(half_period, max(4.0 * sd_period, half_period / 8.0))
        half_phase = min(half_phase, max(4.0 * sd_phase, half_phase / 8.0))
    return period, phase, _spread_95(periods, over_period), _spread_95(phases, over_phase), noise


def _on_grid(seen: _Seen, periods: Floats, phases: Floats, noise: float) -> Floats:
    """Log likelihood for each period and phase, in parts so that an hour's recording needs no gigabytes."""
    total = np.zeros((len(periods), len(phases)))
    for i in range(0, len(seen.k), 256):
        part = _Seen(seen.after[i : i + 256], seen.before[i : i + 256], seen.k[i : i + 256])
        total += part.log_likelihood(phases[None, :, None] + periods[:, None, None] * part.k, noise)
    return total


def _spread_95(grid: Floats, p: Floats) -> float:
    """Half the central 95 % of a distribution, in units of a normal one's: with hard ends it has no tails."""
    ends = np.interp([0.025, 0.975], np.cumsum(p) - p / 2.0, grid)
    return float(ends[1] - ends[0]) / 2.0 / Z95


def _normalised(log_p: Floats) -> Floats:
    p = np.exp(log_p - np.max(log_p))
    return np.asarray(p / np.sum(p), np.float64)


def _blocks(seen: _Seen, period: float, phase: float, noise: float) -> tuple[Floats, Floats, Floats]:
    """Return middle, phase and its standard deviation for each block of the recording, the period being known."""
    start, end = float(seen.after[0]), float(seen.before[-1])
    edges = np.linspace(start, end + 1e-9, max(1, int((end - start) / _BLOCK_S)) + 1)
    grid = np.linspace(-0.25, 0.25, 401) * period
    rows = []
    for left, right in itertools.pairwise(edges):
        mine = (seen.after >= left) & (seen.after < right)
        if np.sum(mine) < MIN_CHANGES:
            continue
        part = _Seen(seen.after[mine], seen.before[mine], seen.k[mine])
        p = _normalised(part.log_likelihood(phase + period * part.k + grid[:, None], noise))
        mean = float(p @ grid)
        rows.append(((left + right) / 2.0, mean, math.sqrt(float(p @ (grid - mean) ** 2))))
    if len(rows) < 2:
        rows = [((start + end) / 2.0, 0.0, 0.0)]
    middles, drift, sd = np.array(rows, np.float64).T
    return middles, drift, sd


def _wander(blocks: Floats, drift: Floats, sd: Floats, period: float, span_s: float) -> float:
    """Standard error of the period due to a wandering phase.

    The phase is taken for a slow walk: what it moved from block to block beyond the errors of the blocks adds up
    over the recording, and is a change of period to whoever fits a line.
    """
    unseen = math.sqrt(_WALK_S / span_s) * period
    if len(blocks) < 3:
        return unseen
    moved = np.diff(drift)
    # Twice the walk that the blocks show: a slow wander moves the same way for several blocks.
    excess = 2.0 * max(0.0, float(np.sum(moved**2 - sd[1:] ** 2 - sd[:-1] ** 2)))
    seen = math.sqrt(excess) * period / float(blocks[-1] - blocks[0]) * t95(len(moved)) / t95(math.inf)
    return max(seen, unseen)


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
        lattice.period_s.half_width / Z95 / period,
    )
