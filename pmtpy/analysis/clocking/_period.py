"""Which period: candidates with a free phase in each piece of the recording, weighed by the paths of their phases."""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.clocking._comb import MAX_PERIOD_RATIO, Comb, log_mean_exp, most_evidence
from pmtpy.analysis.clocking._intervals import MOST_POLLS, FasterThanPollsError, Intervals
from pmtpy.analysis.clocking._phase import BLURS, weigh
from pmtpy.analysis.signal.estimate import STANDS_OUT
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_PIECE = 32  # updates over which a phase is taken as fixed at first; between pieces it is free, so that it may jump
_GRAINS = 8.0  # of the period: no finer are phases resolved at first
_MOST_CHANGES = 700  # are looked at, in the part of the recording that has most
_PEAKS = 5  # candidates that are followed


def search(seen: Intervals, poll: float, step: float) -> list[tuple[float, float, float]]:
    """Return candidates for the period, how far each may be off, relative, and the share of belief in it."""
    from scipy.special import logsumexp

    part = seen.densest(_MOST_CHANGES)
    gaps = np.diff(part.before[part.changed])
    lo, hi = (
        (1.0 + STANDS_OUT * BLURS[0]) * poll,
        max(1.3 * float(np.median(gaps)), 3.0 * float(np.quantile(gaps, 0.2))),
    )
    if hi <= lo:
        raise too_fast(seen)
    grid, score = list[float](), list[float]()
    while lo < hi:
        # A candidate moves the end of a piece by half a poll, or half a grain, from the last.
        grain = max(poll, lo / _GRAINS)
        band = np.arange(lo, min(hi, MAX_PERIOD_RATIO * lo), grain / (2.0 * _PIECE)).tolist()
        cell = grain / 8.0
        soft, coarse = min(cell, (lo - poll) / (2.0 * STANDS_OUT)), part.coarse(cell)
        if most_evidence(coarse, lo, soft, _PIECE) > 0.0:
            comb = Comb(coarse, lo, cell, soft)
            score += [_free(comb, part, period) for period in band]
            grid += band
        lo *= MAX_PERIOD_RATIO
    if not grid:
        msg = "no update period explains the changes better than chance: they come too seldom for any"
        raise DeclinedError(msg)
    weighed, nears = list[tuple[float, float]](), dict[float, float]()
    for _, period in _distinct(list(zip(score, grid, strict=True)), poll):
        reach = max(2.0 * poll / period, 1.0 / _GRAINS) / _PIECE
        log, _, better, near = weigh(part.coarse(period / MOST_POLLS), period, reach, step)
        weighed.append((log, better))
        nears[better] = near
    found = _distinct(weighed, poll)  # some have found the same
    whole = logsumexp([log for log, _ in found])
    return [(period, nears[period], math.exp(log - whole)) for log, period in found]


def _free(comb: Comb, part: Intervals, period: float) -> float:
    """Evidence for a period in nats, with a free phase in each piece."""
    logs = comb.blocks(period, _pieces(part, period), round(period / comb.cell))
    return float(np.sum(log_mean_exp(logs.T)))


def _pieces(part: Intervals, period: float) -> Floats:
    """Return the bounds of the pieces in which the phase is taken as one, none shorter than wanted."""
    start, end = float(part.after[0]), float(part.before[-1])
    return np.linspace(start, end, max(int((end - start) / (_PIECE * period)), 1) + 1)


def too_fast(seen: Intervals) -> FasterThanPollsError:
    """Bound the period of a sensor that is too fast for its polls: each change has had an update of its own."""
    poll = float(np.median(seen.length))
    # Gaps count as well: held up between stamp and reading, a poller finds what was renewed in the gap after the stamp.
    bound = float(np.sum(seen.length)) / max(1, int(np.sum(seen.changed)))
    msg = (
        f"the readings change at most polls, {1e3 * poll:.3g} ms apart, or at random: the sensor publishes faster than "
        f"it was polled, or nearly (its period is below {1e3 * bound:.3g} ms)"
    )
    return FasterThanPollsError(msg, bound, polls="poll at least three times as often")


def _distinct(scored: list[tuple[float, float]], poll: float) -> list[tuple[float, float]]:
    """Return the best (score, period) that are not the same: in a piece they slip by a period, or by two polls."""
    taken = list[tuple[float, float]]()
    for score, period in sorted(scored, reverse=True):
        if all(_PIECE * abs(period - c) > max(c, 2.0 * poll) for _, c in taken):
            taken.append((score, period))
        if len(taken) == _PEAKS:
            break
    return taken
