"""The path of the phase through a recording, and how well it is known: a hidden Markov model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.clocking._comb import Comb
from pmtpy.analysis.clocking._intervals import Intervals
from pmtpy.analysis.signal.estimate import MISSED, STANDS_OUT, STRAY, Z95, Estimate
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_BLOCK_S, _BLOCK_UPDATES, _MOST_BLOCKS = 1.0, 8.0, 121
_MOST_CHANGES = 64 * _MOST_BLOCKS  # are weighed: of more the phases of blocks are no better known than to a cell
_CELLS_PER_POLL = 24.0
_JUMP = 1e-3  # chance of a jump from one block to the next, as of all that is held to be chance no more:
ONE_IN_A_THOUSAND = -math.log(_JUMP)  # nats
# What a short recording cannot see: by how much the period of half a minute differs from that of the next, relative,
# on boards of three kinds (V100, GA102, GA100; lattices in pieces of the recordings of [Y24]). The wander is bounded,
# so that the error of a slope falls as the length to the power 1.5 beyond that.
_BETWEEN_PIECES = (5e-5, 8e-5, 2e-4)
_PIECE_S = 30.0
# By how much the phase walks, s per root second: from a quiet clock, over those boards, to several ms in a second.
_WALKS = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3)
BLURS = (1.0 / 30.0, 1.0 / 10.0, 1.0 / 4.0)  # of a poll: by how much stamps are off
_MIN_PERIODS, _MOST_PERIODS = 9, 401  # weighed at a time
_AT_ONCE, _MOST_KEPT = 32, 128  # periods whose arrays are held at once, and kept
_PEAKS_IN_REACH, _WILDER_WALK = 20.0, 10.0  # above which a peak is looked for by a walk that is so many times wilder
# Standard uncertainties of a known period: three periods that have the variance of all.
_PERIOD_NODES = math.sqrt(1.5) * np.array([-1.0, 0.0, 1.0])
_MAX_NATS_BELOW_BEST = 8.0  # nats
_PATHS = 1000
_OUT_OF_QUESTION = 3.0 * _MAX_NATS_BELOW_BEST  # of 1000 paths none is drawn from 7 nats on
_PLACES = range(1, 7)  # in a poll; of more, each would be nearer to the next than what stamps are taken to be off by


@dataclass(frozen=True, slots=True)
class PhasePath:
    """The clock through a recording, times counted from its middle; fields as in ``PublishingClock``."""

    period_s: Estimate
    phase_s: Estimate
    blocks_s: Floats
    block_phase_s: Floats
    soft_s: float
    drift: float
    common_s: float

    def nearest(self, t_s: Floats) -> Floats:
        """Instant of an update near each of ``t_s``, seconds: less than a period away."""
        line = self.phase_s.value + np.interp(t_s, self.blocks_s, self.block_phase_s)
        return np.asarray(line + np.round((t_s - line) / self.period_s.value) * self.period_s.value, np.float64)


class _Comb:
    """The blocks of a recording in each of which the phase is one, and what polls say of it."""

    def __init__(self, seen: Intervals, period: float, soft: float) -> None:
        start, end = float(seen.after[0]), float(seen.before[-1])
        pairs = int(np.clip((end - start) / max(_BLOCK_S, _BLOCK_UPDATES * period), 3, _MOST_BLOCKS)) // 2
        self.edges: Floats = np.asarray(np.linspace(start, end, 2 * pairs + 2), np.float64)
        self.block = float(self.edges[1] - self.edges[0])
        cells = int(np.clip(_CELLS_PER_POLL * period / float(np.median(seen.length)), 96, 400))
        self.cell, self.cells, self.soft = period / cells, cells, soft
        self._comb = Comb(seen, period, self.cell, soft)
        self.poll, self.span = float(np.median(seen.length)), end - start
        told = np.sum(self._blocks(period)[pairs - 1 : pairs + 2], axis=0)
        turns = np.exp(told - np.max(told) + 2j * math.pi * np.arange(cells) / cells)
        self.begin_at = round((float(np.angle(np.sum(turns))) / (2.0 * math.pi) - 0.5) * cells)

    def logs(self, period: float) -> Floats:
        """Log-likelihood of each block over phases, which begin half a period from what the middle says.

        A path that goes on beyond them counts one update twice, or misses one, so only a jump leads there: else a path
        at the cut would go to and fro, and have from each block what speaks for it.
        """
        return self._blocks(period, self.begin_at)

    def _blocks(self, period: float, begin_at: int = 0) -> Floats:
        # From a period before: of each phase all updates count that polls tell of.
        edges = np.append(self.edges[0] - period, self.edges[1:])
        return self._comb.blocks(period, edges, self.cells, begin_at)

    def at_random(self) -> float:
        """Log-likelihood of changes at random."""
        return self._comb.at_random()


@dataclass(frozen=True, slots=True)
class _Walk:
    """One hypothesis: a period, and by how much the phase walks; filtered."""

    period: float
    walk: float
    log: float
    states: Floats | None  # none where no path is drawn


def follow(seen: Intervals, period: float, reach: float, resolution: float, *, known: bool = False) -> PhasePath:
    """Follow the publishing clock through a recording.

    Parameters
    ----------
    seen : Intervals
        Times from the middle of the recording.
    period, reach : float
        A period, and by how much of itself it may be wrong.
    resolution : float
        Resolution of the stamps.
    known : bool
        Whether that reach is the standard uncertainty of a period that is not looked for.
    """
    told = seen.thinned(_MOST_CHANGES)
    log, comb, best, near = weigh(told, period, reach, resolution, known=known)
    period = period if known else best
    if log < ONE_IN_A_THOUSAND:
        msg = f"no update period explains the changes better than chance: the best is {1e3 * period:.4g} ms"
        raise DeclinedError(msg)
    span, poll = comb.span, comb.poll
    reaches = [reach if known else max(near, 3.0 * walk / math.sqrt(span) + poll / span) for walk in _WALKS]
    found = list[_Walk]()
    for walk, far in zip(_WALKS, reaches, strict=True):
        if not (found and _out_of_question(comb, max(found, key=lambda w: w.log), walk, known=known)):
            found += _weigh(comb, period, far, walk, known=known)
    return _drawn(found, comb, period, seen, _PATHS)


def weigh(
    seen: Intervals, period: float, reach: float, resolution: float, *, known: bool = False
) -> tuple[float, _Comb, float, float]:
    """Return the evidence of a walk of middling size above that of changes at random, and the likeliest period.

    And by how much of itself the likely ones may lie from it. With the blur that has most evidence: the more stamps are
    off, the fewer polls tell something.
    """
    poll = float(np.median(seen.length))

    def by(soft: float, period: float, reach: float) -> tuple[float, _Comb, float, float]:
        comb = _Comb(seen, period, soft)
        found = _weigh(comb, period, reach, _WALKS[3], known=known)
        best = max(found, key=lambda w: w.log)
        above = best.log - comb.at_random()
        near = (found[-1].period / found[0].period - 1.0) / 2.0  # a narrower peak than the walk has is chance
        return above, comb, best.period, max(near, _width_of_peak(comb, _WALKS[3]))

    first, *others = sorted({*(blur * poll for blur in BLURS), max(0.3 * resolution, BLURS[0] * poll)})
    found = by(first, period, reach)
    about = (period, reach) if known else found[2:]
    for soft in others:
        found = max(found, by(soft, *about), key=lambda row: row[0])
    return found


def _drawn(found: list[_Walk], comb: _Comb, period: float, seen: Intervals, paths: int) -> PhasePath:
    """Draw paths as often as hypotheses are likely, and read the clock off them."""
    logs = np.array([w.log for w in found])
    share = np.exp(logs - np.max(logs))
    rng = np.random.default_rng(1)
    number = rng.multinomial(paths, share / np.sum(share))
    drawn = [
        _draw(w, w.states, comb, int(n), rng) for w, n in zip(found, number, strict=True) if n and w.states is not None
    ]
    return _in_step(_read(drawn, comb, period, rng), seen)


def _weigh(comb: _Comb, period: float, reach: float, walk: float, *, known: bool = False) -> list[_Walk]:
    """Filter a walk of one size at periods about one, closer and closer, until those that are likely are resolved.

    A period that is off moves the phase through the recording. Where it moves it by a poll more than the walk does, all
    is as unlikely as at any other, so that nothing leads from there to the right one: polls at nearly half of the
    period see the same of one that is as much longer as it is shorter, but where they slip.
    """
    if known:
        return _filter(comb, period * (1.0 + reach * _PERIOD_NODES), walk)
    if reach > _PEAKS_IN_REACH * _width_of_peak(comb, walk):  # a wilder walk has a wider peak, which fewer periods find
        period, reach = _around(*_about(comb, period, reach, _WILDER_WALK * walk))
    for _ in range(4):
        found, likely = _about(comb, period, reach, walk)
        period, reach = _around(found, likely)
        if len(likely) >= _MIN_PERIODS // 3:
            break
    # What is not on the grid of periods has its share too, and what has no states.
    near = found[max(likely[0] - 1, 0) : likely[-1] + 2]
    kept = [w for w in near if w.states is not None]
    share = math.log(len(near) / len(kept) * (found[1].period / found[0].period - 1.0))
    return [replace(w, log=w.log + share) for w in kept]


def _about(comb: _Comb, period: float, reach: float, walk: float) -> tuple[list[_Walk], Ints]:
    """Filter a walk at periods about one; and return which of them are likely."""
    n = int(np.clip(2.0 * math.ceil(reach / _width_of_peak(comb, walk)) + 1, _MIN_PERIODS, _MOST_PERIODS))
    found = _filter(comb, period * (1.0 + reach * np.linspace(-1.0, 1.0, n)), walk)
    logs = np.array([w.log for w in found])
    return found, np.flatnonzero(logs > np.max(logs) - _MAX_NATS_BELOW_BEST)


def _around(found: list[_Walk], likely: Ints) -> tuple[float, float]:
    """Return the period in the middle of the likely ones, and by how much of itself it may be wrong."""
    first, last, step = found[likely[0]].period, found[likely[-1]].period, found[1].period - found[0].period
    return (first + last) / 2.0, ((last - first) / 2.0 + step) / first


def _out_of_question(comb: _Comb, best: _Walk, walk: float, *, known: bool) -> bool:
    """Whether a walk that is wilder than the likeliest so far is less likely by so much that no path of it is drawn.

    The wilder a walk, the less it minds which period it is asked for: that of the likeliest will do.
    """
    log = _filter(comb, np.array([best.period]), walk)[0].log
    share = 0.0 if known else math.log(_width_of_peak(comb, walk))  # of the periods, as _weigh counts them
    return log + share < best.log - _OUT_OF_QUESTION


def _width_of_peak(comb: _Comb, walk: float) -> float:
    """Return how far apart periods may be, relative, that are told apart if the phase walks."""
    return math.hypot(comb.poll / 2.0 / comb.span, walk / math.sqrt(comb.span))


def _filter(comb: _Comb, periods: Floats, walk: float) -> list[_Walk]:
    """Weigh the phases of each block by all blocks up to it, for each period.

    States, the largest arrays, are kept of those only that paths may be drawn of, and of some if there are many.
    """
    found, every = list[_Walk](), 1
    for part in np.array_split(periods, math.ceil(len(periods) / _AT_ONCE)):
        found += _filter_at_once(comb, part, walk)
        least = max(w.log for w in found) - _OUT_OF_QUESTION
        while sum(w.log > least for w in found[::every]) > _MOST_KEPT:
            every *= 2
        found = [w if w.log > least and i % every == 0 else replace(w, states=None) for i, w in enumerate(found)]
    return found


def _filter_at_once(comb: _Comb, periods: Floats, walk: float) -> list[_Walk]:
    from scipy.ndimage import convolve1d

    weights = np.stack([comb.logs(float(period)) for period in periods])
    tops = np.max(weights, axis=2)
    np.exp(np.subtract(weights, tops[:, :, None], out=weights), out=weights)
    step = _step(walk * math.sqrt(comb.block) / comb.cell, comb.cells)
    state = np.full((len(periods), comb.cells), 1.0 / comb.cells)
    evidence = np.sum(tops, axis=1)
    for i in range(weights.shape[1]):
        if i:
            state = (1.0 - _JUMP) * convolve1d(state, step, axis=1, mode="reflect") + _JUMP / comb.cells
        state = state * weights[:, i] + 1e-300
        total = np.sum(state, axis=1)
        evidence += np.log(total)
        state /= total[:, None]
        weights[:, i] = state
    rows = zip(periods, evidence, weights, strict=True)
    return [_Walk(float(period), walk, float(log), states.copy()) for period, log, states in rows]


def _step(sd: float, cells: int) -> Floats:
    """Probability of a move by so many cells from block to block, of a standard deviation ``sd`` in cells."""
    if sd < 0.6:
        return np.array([sd * sd / 2.0, 1.0 - sd * sd, sd * sd / 2.0])
    n = min(math.ceil(STANDS_OUT * sd), (cells - 1) // 2)
    p = np.exp(-0.5 * (np.arange(-n, n + 1) / sd) ** 2)
    return np.asarray(p / np.sum(p), np.float64)


def _reflected(at: Ints, cells: int) -> Ints:
    """Return where in a range of cells those are that lie up to as much beyond it, as if its ends were mirrors."""
    at = np.maximum(at, -1 - at)
    return np.asarray(np.minimum(at, 2 * cells - 1 - at), np.int64)


def _draw(w: _Walk, states: Floats, comb: _Comb, n: int, rng: np.random.Generator) -> tuple[_Walk, Floats, Floats]:
    """Draw paths backward: phases of the blocks in seconds, not wrapped, and what of their moves are jumps."""
    step = _step(w.walk * math.sqrt(comb.block) / comb.cell, comb.cells)
    half = len(step) // 2
    total = np.cumsum(states[-1])
    at = np.minimum(np.searchsorted(total, rng.random(n) * total[-1]), comb.cells - 1)
    path, jumps = [at], list[Floats]()
    move = np.arange(-half, half + 1)
    for state in states[-2::-1]:
        here = path[-1] % comb.cells
        before = _reflected(here[:, None] + move, comb.cells)
        walked = state[before] * step * (1.0 - _JUMP)
        any_cell = np.full((n, 1), _JUMP / comb.cells)
        total = np.cumsum(np.concatenate([walked, any_cell], axis=1), axis=1)
        chosen = np.minimum(np.sum(total < rng.random((n, 1)) * total[:, -1:], axis=1), len(step))
        jumped = chosen == len(step)
        there = path[-1] - here + before[np.arange(n), np.minimum(chosen, len(step) - 1)]
        if np.any(jumped):
            cell = rng.choice(comb.cells, int(np.sum(jumped)), p=state / np.sum(state))
            away = np.mod(cell - path[-1][jumped] + comb.cells // 2, comb.cells) - comb.cells // 2
            there[jumped] = path[-1][jumped] + away
        jumps.append(np.where(jumped, (path[-1] - there) * comb.cell, 0.0))
        path.append(there)
    phases = (np.stack(path[::-1], axis=1) + comb.begin_at + 0.5) * comb.cell
    return w, np.asarray(phases, np.float64), np.stack(jumps[::-1], axis=1)


def _read(drawn: list[tuple[_Walk, Floats, Floats]], comb: _Comb, period: float, rng: np.random.Generator) -> PhasePath:
    """Read period, phase and wander off the paths."""
    edges = comb.edges
    t, span = (edges[1:] + edges[:-1]) / 2.0, float(edges[-1] - edges[0])
    centred = t - np.mean(t)
    slope = centred / (centred @ centred)
    offs, steady, rates, bents = [], [], [], []
    for w, phases, jumps in drawn:
        # The phases are those of k times the hypothesis' period: here of k times one period for all.
        off = phases + t * (w.period / period - 1.0) + comb.cell * (rng.random((len(phases), 1)) - 0.5)
        offs.append(off)
        # Nobody can tell whether a jump is the clock's or the reader's: the interval has it in half of the slopes.
        jumped = np.pad(np.cumsum(jumps, axis=1), ((0, 0), (1, 0)))
        steady.append((off - jumped) @ slope)
        rates.append((off - jumped * (rng.random((len(off), 1)) < 0.5)) @ slope)
        # A line through a walk of a step per root second has the slope of sqrt(6 / 5 D) of these over D seconds.
        unseen = rng.choice(_BETWEEN_PIECES, len(off)) * min(1.0, (_PIECE_S / span) ** 1.5)
        bents.append(np.hypot(w.walk * math.sqrt(1.2 / span), unseen) * rng.standard_normal(len(off)))
    off, rate, bent = np.concatenate(offs), np.concatenate(rates), np.concatenate(bents)
    middle = off[:, len(t) // 2]
    about = period * float(np.angle(np.mean(np.exp(2j * math.pi * middle / period)))) / (2.0 * math.pi)
    off -= period * np.round((middle - about) / period)[:, None]
    path = np.median(off, axis=0)
    mean = float(np.median(np.concatenate(steady)))
    phase = float(path[len(t) // 2])  # the middle block is about instant 0
    at = np.concatenate([edges[:1], t, edges[-1:]])
    return PhasePath(
        _interval(period * (1.0 + mean), period * (1.0 + rate + bent)),
        _interval(phase, off[:, len(t) // 2]),
        at,
        np.asarray(np.interp(at, t, path) - phase - mean * at, np.float64),
        comb.soft,
        float(np.std(rate)),
        float(np.std(np.mean(off, axis=1))),
    )


def _interval(value: float, draws: Floats) -> Estimate:
    low, high = np.quantile(draws, [MISSED / 2.0, 1.0 - MISSED / 2.0])
    return Estimate(value, float(low), float(high))


def _in_step(path: PhasePath, seen: Intervals) -> PhasePath:
    """Widen the intervals where polls keep step with the sensor.

    The likelihood of a change takes the read for anywhere about its stamp. Where reads keep step, each lies at the same
    distance from its update, and what scatters is the stamps: of many, the most extreme bounds the phase, and wrongly,
    by two or three standard deviations. How far polls are in step shows in where within their intervals successive
    updates fall: at one place, or at two that are half an interval apart (two updates in five polls), and so on.
    """
    which = seen.changed & seen.known(path.period_s.value, path.soft_s)
    after, before = seen.after[which], seen.before[which]
    poll = float(np.median(before - after))
    place = np.mod((before - path.nearest((after + before) / 2.0)) / (before - after), 1.0)
    by = max(_left_open(np.mod(n * place, 1.0), path.soft_s, poll / n) for n in _PLACES)
    period, phase = path.period_s, path.phase_s
    slope = 2.0 * by / float(before[-1] - after[0]) * period.value
    return replace(
        path,
        period_s=Estimate(period.value, period.low - slope, period.high + slope),
        phase_s=Estimate(phase.value, phase.low - by, phase.high + by),
        common_s=path.common_s + by / Z95,
    )


def _left_open(place: Floats, soft_s: float, poll_s: float) -> float:
    """Return by how much the phase may be off beyond what the likelihood says, by the places of successive updates.

    These are shares of ``poll_s``, the time from one to the next place of reads that keep step. If all fall into one
    half of it, nothing shows whether it is stamps that scatter or reads.
    """
    starts = np.arange(max(len(place) // 10, 1)) * len(place) // max(len(place) // 10, 1)
    many = np.diff(starts, append=len(place))
    power = np.abs(np.add.reduceat(np.exp(2j * math.pi * place), starts) / many) ** 2
    by = STRAY * max(float(np.mean(power - (1.0 - power) / np.maximum(many - 1, 1))), 0.0) * soft_s
    order = np.sort(place)
    gaps = np.diff(order, append=order[0] + 1.0)
    if np.max(gaps) > 0.5:
        around = np.mod(place - order[(int(np.argmax(gaps)) + 1) % len(order)], 1.0)
        by = max(by, STRAY * float(np.std(around)) * poll_s)
    return by
