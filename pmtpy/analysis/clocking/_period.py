"""Which period: every candidate's evidence, with a free phase in each piece of the recording."""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.clocking._intervals import MIN_CHANGES, FasterThanPollsError, Intervals
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_STRAYS = (0.25, 50.0)  # chance that a poll brings a change without an update, as known beforehand: a beta distribution
_LIKE_OTHERS = 2.0  # tosses that what is known of a piece from all others is worth
_ONE_IN_A_THOUSAND = math.log(1000.0)
_FASTEST = 1.05  # usual polls: the shortest period that is looked for
_PIECE = 32  # updates over which a phase is taken as fixed at first; between pieces it is free, so that it may jump
_GRAINS = 16.0  # of the period: no finer are phases resolved at first
_LONGER = 3  # times as long are the pieces by which a candidate is refined
_MOST_CHANGES = 700  # are looked at, in the part of the recording that has most
_PEAKS = 5  # candidates that are followed
_ALIKE = 0.03  # periods that differ by less are one candidate


def search(seen: Intervals, poll: float, step: float) -> list[tuple[float, float, float]]:
    """Return candidates for the period, how far each may be off, relative, and the share of belief in it."""
    from scipy.special import logsumexp

    part = _densest(seen)
    gaps = np.diff(part.before[part.changed])
    lo, hi = _FASTEST * poll, max(1.3 * float(np.median(gaps)), 3.0 * float(np.quantile(gaps, 0.2)))
    if hi <= lo:
        raise too_fast(seen)
    grid = _coarse(lo, hi, poll)
    score = np.array([_score(part, float(period), _PIECE, max(step, period / _GRAINS)) for period in grid])
    refined = [_refined(part, float(p), poll, step) for p in _peaks(grid, score, poll / _PIECE)]
    # Of a piece with a jump in it half of the period explains all. So all are weighed in pieces of the same lengths,
    # each in those that suit it.
    lengths = [_PIECE * p for p, _ in refined]
    found = np.array([max(_score(part, p, length / p, step) for length in lengths) for p, _ in refined])
    order = np.argsort(-found, kind="stable")
    refined, found, tried = [refined[i] for i in order], found[order], len(grid)
    if found[0] < _ONE_IN_A_THOUSAND + math.log(tried):
        msg = f"no update period explains the changes better than chance: the best is {1e3 * refined[0][0]:.4g} ms"
        raise DeclinedError(msg)
    share = np.exp(found - logsumexp(found))
    return [(p, reach, float(s)) for (p, reach), s in zip(refined, share, strict=True)]


def _refined(part: Intervals, period: float, poll: float, step: float) -> tuple[float, float]:
    """Return the best period about one, and how far it may be off, relative."""
    reach = max(poll, period / _GRAINS) / (_PIECE * period)
    fine = poll / (3.0 * _LONGER * _PIECE * period)
    grid = period * (1.0 + np.linspace(-reach, reach, 2 * math.ceil(reach / fine) + 1))
    score = [_score(part, float(p), _LONGER * _PIECE, step) for p in grid]
    return float(grid[int(np.argmax(score))]), 4.0 * fine


def _densest(seen: Intervals) -> Intervals:
    """Return the part of the recording that has most changes, if it has more than are looked at."""
    at = np.flatnonzero(seen.changed)
    if len(at) <= _MOST_CHANGES:
        return seen
    ends = seen.before[at]
    first = int(np.argmin(ends[_MOST_CHANGES - 1 :] - ends[: len(ends) - _MOST_CHANGES + 1]))
    rows = slice(at[first], at[first + _MOST_CHANGES - 1] + 1)
    return Intervals(seen.after[rows], seen.before[rows], seen.changed[rows])


def too_fast(seen: Intervals) -> FasterThanPollsError:
    """Bound the period of a sensor that is too fast for its polls: each change has had an update of its own."""
    poll = float(np.median(seen.length))
    # Gaps count as well: held up between stamp and reading, a poller finds what was renewed in the gap after the stamp.
    bound = float(np.sum(seen.length)) / max(1, int(np.sum(seen.changed)))
    msg = (
        f"the readings change at most polls, {1e3 * poll:.3g} ms apart, or at random: the sensor publishes faster than "
        f"it was polled, or nearly (its period is below {1e3 * bound:.3g} ms); poll at least three times as often"
    )
    return FasterThanPollsError(msg, bound)


def _coarse(lo: float, hi: float, poll: float) -> Floats:
    """Return periods of which each moves the end of a piece by half a poll, or half a grain, from the last."""
    near = np.arange(lo, min(hi, _GRAINS * poll), poll / (2.0 * _PIECE))
    far = near[-1] * np.exp(np.arange(0.0, math.log(max(hi / near[-1], 1.0)), 1.0 / (2.0 * _PIECE * _GRAINS)))
    return np.unique(np.concatenate([near, far]))


def _peaks(grid: Floats, score: Floats, blur: float) -> Floats:
    """Return the best periods that are not the same; ``blur`` is by how much the width of polls hides a difference."""
    taken = list[float]()
    for period in grid[np.argsort(-score, kind="stable")].tolist():
        if all(abs(period - c) > max(_ALIKE * c, 2.0 * blur) for c in taken):
            taken.append(period)
        if len(taken) == _PEAKS:
            break
    return np.array(taken)


def _score(seen: Intervals, period: float, piece: float, soft: float) -> float:
    """Evidence for a period in nats, above changes at random, with a free phase in each piece of so many updates.

    Both what updates bring (a change or none) and what polls without an update bring are coins of unknown bias
    (beta-binomial); the second seldom falls on a change.
    """
    from scipy.special import betaln

    # The time is that of many calls on short arrays; each of these is the quickest that says the same.
    known = seen.known(period)
    a, b, changed = seen.after[known], seen.before[known], seen.changed[known]
    if np.count_nonzero(changed) < MIN_CHANGES:
        return -math.inf
    of = ((a - a[0]) / (piece * period)).astype(np.int64)
    pieces = int(of[-1]) + 1
    updates = np.bincount(of, b - a, pieces) / period
    polls, hits = np.bincount(of, minlength=pieces), np.bincount(of, changed, pieces)
    # The ends of a change are soft, but for one that it shares with the next change: an update is in one of the two.
    soft_end = np.ones(len(a) + 1, np.bool_)
    soft_end[1:-1] = ~(changed[1:] & changed[:-1] & (a[1:] == b[:-1]))
    first, last = soft_end[:-1][changed], soft_end[1:][changed]
    a, b, of = a[changed], b[changed], of[changed]
    length = b - a
    poll = _median(length)
    soft = max(0.3 * soft, 0.02 * poll)
    cells = int(min(max(24.0 * period / max(poll, soft), 48), 128))  # of polls in step each end must be told apart
    begin = np.floor((a - soft / 2.0 * first) * (cells / period)).astype(np.int64)
    long = np.floor((b + soft / 2.0 * last) * (cells / period)).astype(np.int64) - begin
    start = begin % cells
    end = start + np.minimum(np.maximum(long, 0), cells)
    size = pieces * (2 * cells + 1)
    row = of * (2 * cells + 1)
    turns = np.bincount(row + start, minlength=size) - np.bincount(row + end, minlength=size)
    covered = np.add.accumulate(turns.reshape(pieces, -1)[:, :-1], axis=1)
    inside = np.minimum(covered[:, :cells] + covered[:, cells:], updates[:, None])
    # Phases that explain fewer changes than the best add next to nothing.
    best = np.maximum.reduce(inside, axis=1)
    share = np.add.reduce(inside > best[:, None] - 0.5, axis=1) / cells
    strays = hits - best
    others = np.maximum(polls - updates, strays)
    either = soft / 2.0 * (first * 1.0 + last)
    wider = float(np.add.reduce(np.log1p(either / np.maximum(length, soft / 10.0)))) / len(length)
    log = _coin(best, updates) + np.log(share) - best * wider
    log += betaln(strays + _STRAYS[0], others - strays + _STRAYS[1]) - betaln(*_STRAYS)
    return float(np.add.reduce(log - _coin(hits, polls)))


def _median(values: Floats) -> float:
    ordered, middle = np.sort(values), len(values) // 2
    return float(ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0)


def _coin(heads: Floats | Ints, tosses: Floats | Ints) -> Floats:
    """Evidence for a coin whose bias differs from piece to piece, but is alike in most (beta-binomial)."""
    from scipy.special import betaln

    share = min(max(float(np.add.reduce(heads) / np.add.reduce(tosses)), 0.005), 0.995)
    a, b = _LIKE_OTHERS * share, _LIKE_OTHERS * (1.0 - share)
    return np.asarray(betaln(heads + a, tosses - heads + b) - betaln(a, b), np.float64)
