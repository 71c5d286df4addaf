"""The publishing clock of a sensor through a recording: its period, its phase, and how the phase wanders.

Given are a period near the true one and the changes: pairs of polls ``(a, b]`` between which the sensor published.
Sought is what they leave possible. The phase is a path through the recording: in each block of a few seconds it has a
value and a rate; the rate changes a little from block to block, and once in a long while the phase jumps. All paths
are weighed at once on a grid of phases and rates (a hidden Markov model [R89]); then some are drawn, each as often as
the changes make it likely [S02], and every interval is read off the draws. A fit with an error for each change would
claim too much where polls keep step with the sensor: there all changes say the same, and many say no more than one.

Pure; times are seconds, rates seconds per second. The same changes always give the same draws.

[R89] Rabiner, Proc. IEEE 77 (1989), 257. [S02] Scott, J. Am. Stat. Assoc. 97 (2002), 337: filter forward, draw
backward. [Y24] Yang, Adamek, Armour, arXiv 2312.02741: recordings in which the wander was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.core.rows import Floats

_Complex = npt.NDArray[np.complex128]

_BLOCK_S = 2.5  # within it a phase that wanders by 4 ms in a minute bends by some 20 us
_BLOCK_CHANGES = 10  # fewer in a block could be met by jumps from block to block
_MOST_BLOCKS = 151
_RATES = 33
_CELLS = 1024
_BLUR = 0.6  # cells by which the phase spreads in each block: a narrower distribution rings when it is shifted
_PATHS = 1500
_MIDDLE_BLOCKS = 17  # enough to tell how soft the stamps are
_UNLIKELY = 4.0  # nats by which a softness must lose to be dropped

# How far stamps are off, as a standard deviation: candidates, weighed by the data.
_SOFT_S = (1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3, 1.28e-2, 2.56e-2)
_STRAY = 0.01  # share of changes that are no update at all (torn readings, clock steps)
_EXTREME = 3.0  # standard deviations: the most extreme stamp of some hundred
_JUMP = 1e-3  # chance of a jump from one block to the next: about one in an hour
# Candidates of how much the rate changes within _MEMORY_S, from a quiet clock to the 4 ms in minutes seen on GA100.
_WALKS = (3e-4, 6e-5, 1e-5)
_MEMORY_S = 12.0
# What a short recording cannot see: by how much the period of half a minute differs from that of the next, relative,
# on boards of three kinds (V100, GA102, GA100; lattices in pieces of the recordings of [Y24]). The wander is bounded,
# so that the error of a slope falls as the length to the power 1.5 beyond that.
_BETWEEN_PIECES = (5e-5, 8e-5, 2e-4)
_PIECE_S = 30.0


@dataclass(frozen=True, slots=True)
class Track:
    """The publishing clock, times counted from the middle of the recording.

    Attributes
    ----------
    period_s, phase_s : Estimate
        Time between updates, and the instant of the update nearest the middle.
    t_s, off_s : array
        Instants through the recording, and how far the updates there lie behind ``phase_s + k period_s``.
    soft_s : float
        How far stamps are off, as a standard deviation.
    drift : float
        Standard error of the mean rate of the updates that were there, relative: the period's without its wander.
    """

    period_s: Estimate
    phase_s: Estimate
    t_s: Floats
    off_s: Floats
    soft_s: float
    drift: float

    def nearest(self, t_s: Floats) -> Floats:
        """Instant of an update near each of ``t_s``, seconds: less than a period away."""
        line = self.phase_s.value + np.interp(t_s, self.t_s, self.off_s)
        return np.asarray(line + np.round((t_s - line) / self.period_s.value) * self.period_s.value, np.float64)


def follow(after: Floats, before: Floats, period: float, reach: float, resolution: float) -> Track:
    """Follow the publishing clock through the changes ``(after, before]``.

    Parameters
    ----------
    after, before : float64, shape (n,)
        Polls before and after each change, in order, seconds from the middle of the recording. None of them a whole
        period apart.
    period, reach : float
        A period, and by how much of itself it may be wrong at most.
    resolution : float
        Resolution of the stamps.
    """
    rng = np.random.default_rng(1)
    start, end = float(after[0]), float(before[-1])
    blocks = 2 * round(min((end - start) / _BLOCK_S, len(after) / _BLOCK_CHANGES, _MOST_BLOCKS - 1) / 2.0) + 1
    edges = np.linspace(start, end, max(3, blocks) + 1)
    grid = _Grid(period, np.linspace(-reach, reach, _RATES), edges)
    softs = _softs(period, resolution)
    for _ in range(3):  # until the rates that are possible fill the grid
        changes = _Changes(after, before, grid)
        softs, best = _plausible(changes, softs)
        wider = grid.about(_draw(_filter(changes.log_likelihoods(best), grid, _WALKS[0])[1], grid, _WALKS[0], rng)[1])
        if wider.reach > 0.6 * grid.reach:
            break
        grid = wider
    evidence, paths, rates = [], list[Floats](), list[Floats]()
    for walk in _WALKS:
        changes = _Changes(after, before, grid)
        for soft in softs:
            log, states = _filter(changes.log_likelihoods(soft), grid, walk)
            path, rate = _draw(states, grid, walk, rng)
            evidence.append(log)
            paths.append(path)
            rates.append(rate)
        grid = grid.about(rates[int(np.argmax(evidence[-len(softs) :])) - len(softs)])
    weight = np.exp(np.array(evidence) - max(evidence))
    which = rng.choice(len(weight), _PATHS, p=weight / np.sum(weight)), np.arange(_PATHS)
    return _in_step(_track(np.stack(paths)[which], np.stack(rates)[which], grid, best, rng), after, before)


def _track(paths: Floats, rates: Floats, grid: _Grid, soft: float, rng: np.random.Generator) -> Track:
    """Read period, phase and wander off paths.

    Nobody can tell whether a jump is the clock's or the reader's: in half of the draws it is part of the slope.
    """
    t, period = grid.instants, grid.period
    middle = paths[:, len(t) // 2]
    about = period * float(np.angle(np.mean(np.exp(2j * math.pi * middle / period)))) / (2.0 * math.pi)
    paths = paths - period * np.round((middle - about) / period)[:, None]
    centred = t - np.mean(t)
    ends = np.pad(rates, ((0, 0), (1, 1)))
    smooth = np.cumsum((ends[:, 1:] + ends[:, :-1]) * (grid.block / 2.0), axis=1)
    smooth = np.pad(smooth, ((0, 0), (1, 0)))
    counted = np.where(rng.random((_PATHS, 1)) < 0.5, paths, smooth)  # the same, unless there are jumps
    slopes = counted @ centred / (centred @ centred)
    bent = _bent(float(t[-1] - t[0]), float(np.std(np.mean(counted, axis=0) - np.mean(slopes) * t)), rng)
    off = np.median(paths, axis=0) - np.mean(slopes) * t  # not their mean: they may jump, each elsewhere
    periods = _interval(period * (1.0 + float(np.mean(slopes))), period * (1.0 + slopes + bent))
    phases = _interval(float(np.median(paths[:, len(t) // 2])), paths[:, len(t) // 2])
    return Track(periods, phases, t, np.asarray(off - phases.value, np.float64), soft, float(np.std(slopes)))


def _in_step(track: Track, after: Floats, before: Floats) -> Track:
    """Widen the intervals where polls keep step with the sensor.

    The likelihood of a change takes the read for anywhere about its stamp. Where reads keep step, each lies at the same
    distance from its update, and what scatters is the stamps: of many, the most extreme bounds the phase, and wrongly,
    by two or three standard deviations. How far polls are in step shows in where within their intervals successive
    updates fall; if all fall into one half, nothing shows whether it is stamps that scatter or reads.
    """
    length = np.maximum(before - after, 1e-12)
    place = np.mod((before - track.nearest((after + before) / 2.0)) / length, 1.0)
    blocks = np.array_split(np.exp(2j * math.pi * place), max(len(place) // _BLOCK_CHANGES, 1))
    power = np.array([abs(np.mean(block)) ** 2 for block in blocks])
    by = _EXTREME * max(float(np.mean(power - (1.0 - power) / (len(blocks[-1]) - 1))), 0.0) * track.soft_s
    order = np.sort(place)
    gaps = np.diff(order, append=order[0] + 1.0)
    if np.max(gaps) > 0.5:
        around = np.mod(place - order[(int(np.argmax(gaps)) + 1) % len(order)], 1.0)
        by = max(by, _EXTREME * float(np.std(around)) * float(np.median(length)))
    period, phase = track.period_s, track.phase_s
    slope = 2.0 * by / max(float(before[-1] - after[0]), 1e-12) * period.value
    return replace(
        track,
        period_s=Estimate(period.value, period.low - slope, period.high + slope),
        phase_s=Estimate(phase.value, phase.low - by, phase.high + by),
    )


def _bent(span: float, wander: float, rng: np.random.Generator) -> Floats:
    """Draw what the wander, seen and unseen, made of the slope of each path.

    A wander of size ``w`` that is forgotten in ``m`` seconds gives a line through ``D`` seconds of it a slope of
    standard deviation ``w sqrt(24 m / D) / D``, and never more than about ``w / D``.
    """
    seen = wander * min(1.0, math.sqrt(24.0 * _MEMORY_S / span)) / span
    unseen = rng.choice(_BETWEEN_PIECES, _PATHS) * min(1.0, (_PIECE_S / span) ** 1.5)
    return np.asarray(np.hypot(seen, unseen) * rng.standard_normal(_PATHS), np.float64)


def _interval(value: float, draws: Floats) -> Estimate:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def _softs(period: float, resolution: float) -> tuple[float, ...]:
    """Candidates for the softness: from what rounding and the cells make of stamps, to an eighth of the period."""
    least = max(resolution / math.sqrt(12.0), 0.7 * period / _CELLS)
    most = period / 8.0
    return tuple(s for s in _SOFT_S if least <= s <= most) or (min(max(least, _SOFT_S[0]), most),)


def _plausible(changes: _Changes, softs: tuple[float, ...]) -> tuple[tuple[float, ...], float]:
    """Return the candidates that the middle of the recording leaves possible, and the likeliest."""
    inner = slice(max(0, (len(changes.ends) - _MIDDLE_BLOCKS) // 2), (len(changes.ends) + _MIDDLE_BLOCKS + 1) // 2)
    logs = [_filter(changes.log_likelihoods(s, inner), changes.grid, _WALKS[0])[0] for s in softs]
    kept = tuple(s for s, log in zip(softs, logs, strict=True) if log > max(logs) - _UNLIKELY)
    return kept, softs[int(np.argmax(logs))]


# --- the hidden Markov model ---


@dataclass(frozen=True, slots=True)
class _Grid:
    """Phases (cells of the period) and rates, over blocks of equal length."""

    period: float
    rates: Floats
    edges: Floats

    @property
    def cell(self) -> float:
        return self.period / _CELLS

    @property
    def block(self) -> float:
        return float(self.edges[1] - self.edges[0])

    @property
    def reach(self) -> float:
        return float(self.rates[-1] - self.rates[0]) / 2.0

    @property
    def instants(self) -> Floats:
        """Both ends of the recording, and the middle of each block."""
        return np.concatenate([self.edges[:1], (self.edges[1:] + self.edges[:-1]) / 2.0, self.edges[-1:]])

    @property
    def half_block(self) -> _Complex:
        """What half a block does to the phase at each rate: a factor to its Fourier transform."""
        f = np.arange(_CELLS // 2 + 1) / _CELLS
        shift = f * self.rates[:, None] * (self.block / 2.0 / self.cell)
        return np.asarray(np.exp(-2j * math.pi * shift - (math.pi * _BLUR * f) ** 2))

    def mixing(self, walk: float) -> Floats:
        """Probability of each rate (column) after each (row), if rates walk by ``walk`` in ``_MEMORY_S``."""
        spread = max(walk * min(math.sqrt(2.0 * self.block / _MEMORY_S), math.sqrt(2.0)), 0.6 * self.reach / _RATES)
        k = np.exp(-0.5 * ((self.rates[:, None] - self.rates) / spread) ** 2)
        return np.asarray(k / np.sum(k, axis=1, keepdims=True), np.float64)

    def about(self, drawn: Floats) -> _Grid:
        """Return the grid with rates about those drawn."""
        reach = min(self.reach, 4.5 * float(np.std(drawn)) + 4.0 * self.reach / _RATES)
        return _Grid(self.period, float(np.mean(drawn)) + np.linspace(-reach, reach, _RATES), self.edges)


class _Changes:
    """The changes of each block: histograms of their starts and ends over phases, for each rate, as transforms."""

    def __init__(self, after: Floats, before: Floats, grid: _Grid) -> None:
        self.grid, self.length = grid, before - after
        self.at = np.append(np.searchsorted(after, grid.edges[:-1]), len(after))
        block = np.repeat(np.arange(len(self.at) - 1), np.diff(self.at))
        since = (after + before) / 2.0 - grid.instants[1:-1][block]
        self.ends = [
            (self._transform(after[i:j], since[i:j]), self._transform(before[i:j], since[i:j]))
            for i, j in zip(self.at[:-1], self.at[1:], strict=True)
        ]

    def _transform(self, x: Floats, since: Floats) -> _Complex:
        place = np.mod(x - self.grid.rates[:, None] * since, self.grid.period) / self.grid.cell
        low = np.floor(place).astype(np.int64)
        row = np.arange(_RATES)[:, None] * _CELLS
        count = np.zeros(_RATES * _CELLS)
        for cell, weight in ((low, 1.0 - (place - low)), (low + 1, place - low)):
            count += np.bincount((row + cell % _CELLS).ravel(), weight.ravel(), len(count))
        return np.asarray(np.fft.rfft(count.reshape(_RATES, _CELLS)))

    def log_likelihoods(self, soft: float, which: slice = slice(None)) -> list[Floats]:
        """Log probability of the changes of each block, over rates and phases.

        Stamps are off, by a logistic ``F`` of scale ``s`` say. Then an update at ``u`` shows in ``(a, b]`` with the
        probability ``F((u - a)/s) - F((u - b)/s) = F((u - a)/s) F((b - u)/s) (1 - exp((a - b)/s))``: its logarithm is
        a sum over starts and ends, so that over all changes it is a convolution of their histograms.
        """
        s, nothing = soft * math.sqrt(3.0) / math.pi, math.log(_STRAY)
        k = np.arange(-2 * _CELLS, 2 * _CELLS)
        x = np.append(k - 0.5, k[-1] + 0.5) * self.grid.cell
        flank = np.log(_STRAY + (1.0 - _STRAY) / (1.0 + np.exp(-np.clip(x / s, -60.0, 60.0))))
        rise = np.fft.rfft(np.bincount(k % _CELLS, np.diff(flank), _CELLS))
        beyond = float(np.sum(flank - np.where(x > 0.0, 0.0, nothing))) * self.grid.cell
        logs = []
        for (starts, ends), i, j in zip(self.ends[which], self.at[:-1][which], self.at[1:][which], strict=True):
            log = np.cumsum(np.fft.irfft(starts * rise - ends * np.conj(rise), _CELLS), axis=1)
            level = nothing + (2.0 * beyond - nothing * self.length[i:j]) / self.grid.period  # mean over the phases
            level += np.log(np.maximum(-np.expm1(-self.length[i:j] / s), _STRAY))
            logs.append(log - np.mean(log, axis=1, keepdims=True) + np.sum(level))
        return logs


def _filter(logs: list[Floats], grid: _Grid, walk: float) -> tuple[float, list[Floats]]:
    """Return the log evidence, and for each block the probability of rates and phases given all up to it."""
    mixing, half = grid.mixing(walk).T, grid.half_block
    evidence, states = math.log(grid.reach / _RATES), list[Floats]()
    state = np.ones((_RATES, _CELLS))
    for i, log in enumerate(logs):
        if i:
            state = np.maximum(np.fft.irfft((mixing @ (np.fft.rfft(state) * half)) * half, _CELLS), 0.0)
            state += _JUMP * np.mean(state, axis=1, keepdims=True)
        top = float(np.max(log))
        state = state * np.exp(log - top) + 1e-300
        total = float(np.sum(state))
        evidence += top + math.log(total)
        state /= total
        states.append(state)
    return evidence, states


def _draw(states: list[Floats], grid: _Grid, walk: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw paths: phases at the grid's instants, not wrapped; and the rates of the blocks."""
    mixing, each, half = grid.mixing(walk).T, np.arange(_RATES), grid.block / 2.0
    total = np.cumsum(states[-1])
    at = np.minimum(np.searchsorted(total, rng.random(_PATHS) * total[-1]), len(total) - 1)
    rate, phase = at // _CELLS, (at % _CELLS + rng.random(_PATHS)) * grid.cell
    phases, rates = [phase + grid.rates[rate] * half, phase], [rate]
    for state in states[-2::-1]:
        back = phase[:, None] - (grid.rates + grid.rates[rate][:, None]) * half
        place = back / grid.cell - 0.5
        low = np.floor(place).astype(np.int64)
        p = state[each, low % _CELLS] * (1.0 - (place - low)) + state[each, (low + 1) % _CELLS] * (place - low)
        jumped = _JUMP * np.mean(state, axis=1) * mixing[rate]
        total = np.cumsum(np.concatenate([p * mixing[rate], jumped], axis=1) + 1e-300, axis=1)
        chosen = np.sum(total[:, :-1] < rng.random(_PATHS)[:, None] * total[:, -1:], axis=1)
        rate = chosen % _RATES
        phase = back[np.arange(_PATHS), rate]
        for i in np.flatnonzero(chosen >= _RATES):
            there = (rng.choice(_CELLS, p=state[rate[i]] / np.sum(state[rate[i]])) + rng.random()) * grid.cell
            phase[i] = there + grid.period * round((phase[i] - there) / grid.period)
        phases.append(phase)
        rates.append(rate)
    phases.append(phase - grid.rates[rate] * half)
    return np.stack(phases[::-1], axis=1), grid.rates[np.stack(rates[::-1], axis=1)]
