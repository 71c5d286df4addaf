"""Whether a register is renewed more seldom than its profile says, or is stated: that may be of another one.

Between renewals nothing changes, so all times from one change to the next are whole multiples of the time between
renewals, the measure. A power that changes when it likes has none: each of those times fits one by chance, in as many
of so many cases as what polls leave open of it, or one period of the profile, is of the measure. Many measures are
tried, so that chance has as many tries.

Changes between levels that come again the load may have made by itself, and it may repeat: of such times alike are one.
A load that never changes but in step with some measure, at powers that never come again, looks the same.

That a reading stays the same for many periods is no evidence by itself: the power of an RTX 3090 at rest is renewed
once a second and under load ten times, a K40m showed one value under load for a second (75 periods).

Pure; times are seconds. docs/uncertainty.md ("A register renewed more seldom than is known of it") has the figures.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pmtpy.core.rows import Floats

Bools = npt.NDArray[np.bool_]

_ODDS = 1000.0  # against chance, above which it is believed
_MIN_ODDS = 3.0  # up to which nothing is said: chance has as much now and then
_ANOTHER = 0.05  # of registers those that are slower than is known of them, before anything tells: a guess
_MIN_RATIO = 1.9  # to the period of the profile: what lies on its grid may be twice as far apart, but for its wander
_MAX_RATIO, _MAX_APART = 100.0, 300.0  # to it, of measures and of times from change to change: what is tried is bounded
_WANDER = 0.1  # of the profile's period, by which renewals are early or late at most
_MOST_CHANGES = 60  # the last ones: boards change how often they renew, and so many tell all there is to tell
_FINENESS = 0.25  # of what is open of a time: by as much the measures that are tried leave it open

# What the load may have done by itself: jumps between levels that come back.
_LEVEL_SHARE, _LEVEL_RUNS = 1.0 / 32.0, 3  # of the runs of equal readings, held by one reading
# A change is noise up to this share of the readings' span; of a span with fewer steps than that, no change is.
_NOISE_SPAN = 1.0 / 16.0


class Renewal(NamedTuple):
    """How often a register is renewed, by its readings."""

    every_s: float = 0.0  # that of the profile where changes are as close; 0: nothing tells it
    odds: float = 0.0  # that it is this and more seldom than the profile says, against chance

    @property
    def another(self) -> bool:
        """Whether it is believed that the register is another than the profile's."""
        return self.odds > _ODDS

    @property
    def share(self) -> float:
        """Belief that the register is another, while it is open; else 0."""
        return 0.0 if self.another or self.odds < _MIN_ODDS else 1.0 / (1.0 + 1.0 / (_ANOTHER * self.odds))


def renewal(t_s: Floats, watts: Floats, period_s: float, polled_s: float = 0.0) -> Renewal:
    """Tell how often a register is renewed, and whether that is more seldom than its profile says.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        Rows in order.
    period_s : float
        Time between renewals by the profile, more than 0.
    polled_s : float
        Time between polls, of which those that found nothing new may have made no row; a late one makes less be found.
        0: there is a row for each.
    """
    new = np.flatnonzero(np.diff(watts) != 0.0)[-_MOST_CHANGES:]
    before = t_s[new + 1]
    after = np.maximum(t_s[new], before - polled_s) if polled_s else t_s[new]
    middle, half = (after + before) / 2.0, (before - after) / 2.0 + _WANDER * period_s
    apart, open_s = np.diff(middle), half[1:] + half[:-1]
    most, least = float(np.min(apart + open_s, initial=math.inf)), _MIN_RATIO * period_s
    if most < least:
        return Renewal(period_s)
    if len(apart) < 2:
        return Renewal()
    own = not_the_loads(watts)[new]
    speaks = (own[1:] & own[:-1]) | _first_of_their_kind(apart, 2.0 * open_s)
    near = apart < _MAX_APART * period_s
    if not np.any(near):
        return Renewal()
    return _measure(apart[near], open_s[near], speaks[near], (least, min(most, _MAX_RATIO * period_s)))


def _measure(apart: Floats, open_s: Floats, speaks: Bools, between: tuple[float, float]) -> Renewal:
    """Return of what times are whole multiples, as far as is open of each, and the odds by those that speak for it.

    The measure lies between two bounds.
    """
    least, most = between
    fine = 2.0 * _FINENESS * float(np.min(open_s / apart))
    tried = np.geomspace(least, most, 2 + int(math.log(most / least) / fine))
    multiples = np.maximum(np.rint(apart / tried[:, None]), 1.0)
    allowed = (1.0 + _FINENESS) * open_s
    fits = np.flatnonzero(np.all(np.abs(apart - multiples * tried[:, None]) <= allowed, axis=1))
    if not len(fits):
        return Renewal()
    chance = np.minimum(np.fmax(2.0 * allowed, least / _MIN_RATIO)[speaks] / tried[fits, None], 1.0)
    nats = -np.sum(np.log(chance), axis=1)
    best = int(np.argmax(nats))
    over_all = float(np.logaddexp.reduce(nats)) - math.log(len(tried))  # the mean over all that are tried
    return Renewal(float(np.sum(apart) / np.sum(multiples[fits[best]])), math.exp(over_all))


def _first_of_their_kind(apart: Floats, alike_s: Floats) -> Bools:
    """Which times are not like any that is shorter."""
    order, first, last = np.argsort(apart), np.zeros(len(apart), np.bool_), -math.inf
    for i in order.tolist():
        first[i] = apart[i] > last + alike_s[i]
        last = apart[i] if first[i] else last
    return first


def not_the_loads(v: Floats) -> Bools:
    """Which differences of readings are changes that the load cannot have made by jumping between a few levels.

    A sensor without noise that follows at once shows the load's edges and nothing else, and they may lie on a
    lattice of their own. A level is a reading that comes back again and again.
    """
    out = np.asarray(np.diff(v) != 0.0, np.bool_)
    at = np.flatnonzero(out)
    if not len(at):
        return out
    runs = v[np.append(at, at[-1] + 1)]
    values, which, counts = np.unique(runs, return_inverse=True, return_counts=True)
    levels = (counts >= max(_LEVEL_RUNS, _LEVEL_SHARE * len(runs)))[which]
    jump = levels[:-1] & levels[1:]
    out[at] = ~(jump & (np.abs(np.diff(runs)) > _NOISE_SPAN * float(values[-1] - values[0])))
    return out
