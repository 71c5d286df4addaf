"""How long what lasts in ``pmtpy certify``, and when the load is switched for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError, TargetError
from pmtpy.lab.loads import schedule

_PAUSE_S = 0.2  # between stretches, and by up to as much again at random: no phase of the sensor is met twice
_ASIDE_S = 0.3  # at rest before and after a trial, so that what the sensor shows at its ends is known
_PAUSE_SHARE = 0.5  # of a repetition's length: what is left between two of them
_DITHER_S = 0.1  # at random, after every few repetitions: the update period of most sensors
_EVERY = 4
_TAIL_S = 1.5  # after the last block, for what the sensor still has to say


@dataclass(frozen=True, slots=True)
class Plan:
    """How long what lasts."""

    response_s: float = 20.0  # one long block and then pseudo-random ones, for period and kernel; at least 10
    # of the device that are loaded for the steady levels, besides none of it
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    level_s: float = 4.0  # each of them, each time; its second half counts
    rounds: int = 2  # how often all levels are taken, in another order each time
    # trials of how many short blocks
    trials: int = 4
    repetitions: int = 32
    block_s: float = 0.1  # how long one of these is
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what makes no procedure."""
        if not (all(0.0 < share <= 1.0 for share in self.shares) and len(set(self.shares)) > 1):
            msg = f"levels {', '.join(f'{s:g}' for s in self.shares)}: give at least two different shares, above 0 to 1"
            raise TargetError(msg)
        if not (self.level_s >= 0.5 and self.rounds >= 1 and self.trials >= 2 and self.repetitions >= 1):
            msg = "a certificate needs levels of 0.5 s or more, taken at least once, and at least two trials"
            raise TargetError(msg)

    def scheme(self) -> Scheme:
        """Return when the load is to be switched, and which stretch is for what."""
        rng = np.random.default_rng(self.seed)
        edges = [float(t) for t in schedule(self.response_s, self.seed)]
        blocks = [1.0] * (len(edges) // 2)
        now, levels, trials = self.response_s, [], []
        for _ in range(self.rounds):
            for share in rng.permutation([0.0, *self.shares]):
                begin = now + _PAUSE_S * (1.0 + rng.uniform())
                now = begin + self.level_s
                levels.append((float(share), begin, now))
                if share:
                    edges += [begin, now]
                    blocks.append(float(share))
        for _ in range(self.trials):
            begin = now + _ASIDE_S
            now += (2.0 + rng.uniform()) * _ASIDE_S
            for i in range(self.repetitions):
                edges += [now, now + self.block_s]
                blocks.append(1.0)
                now += self.block_s * (1.0 + _PAUSE_SHARE) + (_DITHER_S * rng.uniform() if i % _EVERY == 0 else 0.0)
            now += _ASIDE_S
            trials.append((begin, now))
        return Scheme(np.array(edges), tuple(blocks), tuple(levels), tuple(trials), self.response_s, now + _TAIL_S)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A plan in seconds since the start: switches of the load with the share of each block, and what to look at."""

    edges_s: Floats
    shares: tuple[float, ...]
    levels: tuple[tuple[float, float, float], ...]
    trials: tuple[tuple[float, float], ...]
    response_s: float
    seconds: float

    def met(self, edges_s: Floats) -> Scheme:
        """Return the stretches as they really were, by when the load was switched.

        Raises DeclinedError: the load ended early.
        """
        if len(edges_s) != len(self.edges_s):
            msg = f"the load was switched {len(edges_s)} times instead of {len(self.edges_s)}: it ended early; repeat"
            raise DeclinedError(msg)
        by = float(np.median(edges_s - self.edges_s))
        levels = tuple((share, begin + by, end + by) for share, begin, end in self.levels)
        trials = tuple((begin + by, end + by) for begin, end in self.trials)
        return replace(self, levels=levels, trials=trials, response_s=self.response_s + by)
