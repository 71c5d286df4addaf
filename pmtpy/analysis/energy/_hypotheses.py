"""Where a load may begin and end about a region: hypotheses, weighed by how well each explains the readings.

A program's regions begin and end where its load does, or a while before and after it; a sensor that averages, or looks
away, shows only a part of that. So the power may have stepped just where the region begins or ends, or anywhere near,
and it may have been a block of which no reading shows the power alone: as long as the region, beginning or ending with
it, or neither. An instant that is not the region's own is one of a grid, and may be off by half a step of it. All of
them are combinations of a few steps, for which the readings are solved once. Pure numpy; times are seconds, powers
watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.energy._posterior import Explained, NormalEquations, Posterior, Readings, Terms
from pmtpy.core.rows import Floats

# Odds beforehand, against a power that walks: of a step just where a region begins, or ends, or near there; and of a
# block, which begins with the region in one of three cases, and ends with it in one of three.
_STEP_ODDS, _BLOCK_ODDS, _ALIGNED_SHARE = 1.0 / 3.0, 3.0, 1.0 / 3.0
_MAX_RISE = 3.0  # of the highest reading: of a power that was hardly shown
_GRAIN, _REACH = 0.25, 5  # of the readings' period, a step of the grid, as long as a cell; steps of it either side
_RAMP_S = 0.015  # by which a part of a load's power comes late


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """What a load may have done about a region, each by up to three unknowns."""

    shown: Floats  # shape (n + 1, k); what readings show of a watt from each of some instants on; last, its energy
    mix: Floats  # shape (m, 3, k); of which of these the unknowns of each hypothesis consist
    sd: Floats  # shape (m, 3); what is known of them beforehand
    odds: Floats  # shape (m,); logarithm of the odds beforehand
    reach_s: float  # about either end of the region, in which it may have done that

    @classmethod
    def about(cls, region: tuple[float, float], readings: Readings) -> Hypotheses:
        """Make those about a region."""
        (start, end), period, y = region, readings.response.period_s, readings.y
        grain = _GRAIN * period
        grid = np.sort(np.concatenate([at + grain * np.arange(-_REACH, _REACH + 1) for at in region]))
        grid = grid[np.diff(grid, prepend=-math.inf) > grain / 2.0]
        at, many = np.concatenate([region, grid]), len(grid)
        index = np.arange(len(at))
        own = index < len(region)  # the region's own instants
        steps_s = np.concatenate([at, grid - grain / 2.0, grid + grain / 2.0, [start + _RAMP_S]])
        unit = np.eye(len(steps_s))
        off = np.zeros((len(at), len(steps_s)))
        off[~own] = unit[len(at) : len(at) + many] - unit[len(at) + many : -1]
        off[0] = unit[0] - unit[-1]  # after a pause, a part of a load's power comes late
        begins, ends = np.nonzero((at[:, None] < at) & (index[:, None] != 1) & (index != 0))
        blocks = np.stack([unit[begins] - unit[ends], off[begins], off[ends]], axis=1)
        steps = np.stack([unit[: len(at)], off, np.zeros_like(off)], axis=1)
        both = np.stack([unit[0], unit[1], off[0]])[None]  # a rise and a fall that are not alike
        mix = np.concatenate([steps, both, blocks])
        # Where each of them is one of several alike.
        kind = 2 * own[begins] + own[ends]
        alike = np.outer(
            [1.0 - _ALIGNED_SHARE, _ALIGNED_SHARE], [1.0 - _ALIGNED_SHARE, _ALIGNED_SHARE]
        ).ravel() / np.bincount(kind, minlength=4)
        odds = [_STEP_ODDS * np.where(own, 1.0, 1.0 / many), [_STEP_ODDS**2], _BLOCK_ODDS * alike[kind]]
        least = max(readings.response.noise_in_s, 1e-9)
        rise = _MAX_RISE * max(float(np.max(np.abs(y))), least)
        # An end is anywhere in its step of the grid: that of a power which is about what was shown.
        slid = max(float(np.ptp(y)), least) / math.sqrt(12.0)
        sd = np.tile([rise, slid, slid], (len(mix), 1))
        sd[len(steps), 1] = rise
        sd[~np.any(mix, axis=2)] = 1.0  # of what is no unknown
        shown = readings.response.step(readings.ends_s[:, None] - steps_s)
        energy = np.clip(end - steps_s, 0.0, end - start)
        return cls(np.vstack([shown, energy]), mix, sd, np.log(np.concatenate(odds)), (_REACH + 0.5) * grain)

    @property
    def steps(self) -> Terms:
        """The steps of which they consist, of which nothing is known."""
        nothing = np.zeros(self.shown.shape[1])
        return Terms(nothing, nothing, nothing + math.inf, np.zeros(len(self.shown)), self.shown)

    def posterior(self, which: int, readings: Readings, by: Explained) -> Posterior:
        """Return what is known if one of them holds; ``by``: readings and :attr:`steps` against the sources."""
        used = np.any(self.mix[which], axis=1)
        mix, nothing = self.mix[which][used], np.zeros(np.count_nonzero(used))
        columns = self.shown @ mix.T
        terms = Terms(nothing, nothing, self.sd[which][used], np.zeros(len(columns)), columns)
        return readings.posterior(by.mixed(mix), terms)

    def judged(self, told: NormalEquations) -> tuple[Floats, Floats, Floats]:
        """Return the joules, their variance, and the logarithm of the odds of each, shape (m,)."""
        left = self.mix @ told.products @ self.mix.transpose(0, 2, 1)
        unknowns = np.arange(self.sd.shape[1])
        left[:, unknowns, unknowns] += self.sd**-2.0
        spread, right, felt = np.linalg.inv(left), self.mix @ told.right, self.mix @ told.felt
        found = (spread @ right[:, :, None])[:, :, 0]
        fits = np.sum(right * found, axis=1) - np.linalg.slogdet(left)[1]
        return (
            told.joules + np.sum(felt * found, axis=1),
            told.variance + np.sum(felt * (spread @ felt[:, :, None])[:, :, 0], axis=1),
            told.evidence + fits / 2.0 - np.sum(np.log(self.sd), axis=1) + self.odds,
        )
