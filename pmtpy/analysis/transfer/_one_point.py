"""A kernel configuration anchored at the clocks at which it was measured, and carried from there to others.

:class:`Transfer` is what a training table tells: the shared shapes of power and time (:mod:`.shape`)
and how its clocks behave. :func:`carry` takes one configuration's own measurements from their clocks to others, with
the slopes that its like in the training have (:mod:`.alike`). Clocks are the measured ones, never those
asked for. Variances are those of the model; :mod:`pmtpy.analysis.transfer.predict` checks and scales them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.transfer._nearest import Likeness, learn
from pmtpy.analysis.transfer._shape import ClockShape, fit_shape, follow, knots_of
from pmtpy.analysis.transfer.table import Table
from pmtpy.core.rows import Floats

HELD = 0.985  # a clock that stays below this share of the one asked for is held down
_LIMITED, _ALIKE = 3, 0.03  # so many rows held down at powers this alike (relative) show a power limit ...
_ABOVE = 0.05  # ... unless more than this share of the others goes beyond it: then something else held them down
_STRANGE = 4.0  # standard deviations: one in ten thousand by chance
_GRID = 500  # clocks tried: a thousandth of the range is far below what a clock is known by
_TURNS = 4  # of the search for a configuration's slope, which enters to first order


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the training set tells."""

    train: Table  # the rows used
    # shared shapes
    power: ClockShape
    time: ClockShape
    # shape (clocks,); clock asked for, rising; median of the clocks measured there (of those that no power limit held
    # down; the highest where it held all), and of the temperatures
    clocks: Floats
    reached: Floats
    usual_c: Floats
    cap_w: float  # power limit that held clocks down; infinite if none did

    def core(self, set_mhz: Floats) -> Floats:
        """Clock to expect when ``set_mhz`` is asked for and the power limit allows it."""
        return np.asarray(np.interp(set_mhz, self.clocks, self.reached), np.float64)

    def likeness(self, set_mhz: Floats) -> Likeness:
        """What a configuration's mean log power and log time at these clocks tell of its two slopes."""
        here, there = np.log(self.core(set_mhz)), np.log(self.reached)
        shapes = (self.power, self.time)
        slopes = np.stack([s.slope for s in shapes], axis=1)

        def swing(i: int, slope: Floats) -> Floats:
            """How the quantity goes from the measured clocks to all those of the training, for each slope."""
            away = follow(slope[:, None], shapes[i].at(there)[None, :])[0]
            return np.asarray(away - _mean_here(shapes[i], slope, here)[:, None], np.float64)

        truth = swing(0, slopes[:, 0]) + swing(1, slopes[:, 1])

        def loss(guessed: Floats) -> Floats:
            """Mean absolute error of the log energy over the clocks."""
            error = swing(0, guessed[:, 0]) + swing(1, guessed[:, 1]) - truth
            return np.asarray(np.mean(np.abs(error), axis=1), np.float64)

        levels = np.stack([s.level + _mean_here(s, s.slope, here) for s in shapes], axis=1)
        return learn(levels, slopes, loss)


def _mean_here(shape: ClockShape, slope: Floats, here: Floats) -> Floats:
    return np.asarray(follow(slope[:, None], shape.at(here)[None, :])[0].mean(axis=1), np.float64)


def fit(table: Table) -> Transfer:
    """Learn from a table in which every configuration was measured at two clocks or more."""
    clocks = np.unique(table.set_mhz)
    held = table.core_mhz < HELD * table.set_mhz
    cap_w = _power_limit(table.power_w, held)
    reached, usual = [], []
    for clock in clocks:
        here = table.set_mhz == clock
        free = here & ~held
        if math.isinf(cap_w) or np.any(free):
            reached.append(float(np.median(table.core_mhz[here if math.isinf(cap_w) else free])))
        else:
            reached.append(float(np.max(table.core_mhz[here])))  # without the limit it would be this at least
        usual.append(_median(table.temperature_c[here]))
    reached_mhz, usual_c = np.array(reached), np.array(usual)
    number = {name: i for i, name in enumerate(table.by_config())}
    index = np.array([number[c] for c in table.config], np.int64)
    log_f, knots, warm = np.log(table.core_mhz), knots_of(np.sort(np.log(reached_mhz))), _warmer(table, clocks, usual_c)
    power = fit_shape(index, log_f, np.log(table.power_w), warm, knots)
    time = fit_shape(index, log_f, np.log(table.time_s), warm, knots)
    return Transfer(table, power, time, clocks, reached_mhz, usual_c, cap_w)


def _power_limit(power_w: Floats, held: npt.NDArray[np.bool_]) -> float:
    """Power at which clocks were held down; infinite if that was not the reason, or none was."""
    if np.count_nonzero(held) < _LIMITED:
        return math.inf
    limit = float(np.median(power_w[held]))
    alike = float(np.median(np.abs(power_w[held] / limit - 1.0))) < _ALIKE
    above = np.mean(power_w[~held] > limit * (1.0 + _ALIKE)) if not held.all() else 0.0
    return limit if alike and above < _ABOVE else math.inf


def _median(values: Floats) -> float:
    good = values[np.isfinite(values)]
    return float(np.median(good)) if len(good) else math.nan


def _warmer(table: Table, clocks: Floats, usual_c: Floats) -> Floats:
    """Degrees above what is usual at the clock; 0 where that is not known."""
    warm = table.temperature_c - np.interp(table.set_mhz, clocks, usual_c)
    return np.where(np.isfinite(warm), warm, 0.0)


@dataclass(frozen=True, slots=True)
class Carried:
    """Log power and log time of one configuration at some clocks, and the variance of the log energy.

    ``strange`` says that its own measurements disagree with each other or with the shared shape; the variance allows
    for that.
    """

    power: Floats
    time: Floats
    variance: Floats
    strange: bool


def carry(model: Transfer, like: Likeness, rows: Table, targets_mhz: Floats) -> Carried:
    """Carry one configuration from its measured ``rows`` to other clocks.

    Parameters
    ----------
    like : Likeness
        That of the model for the clocks asked for in ``rows``.
    targets_mhz : float64
        Clocks reached, not asked for.
    """
    log_f, wanted, nominal = np.log(rows.core_mhz), np.log(targets_mhz), np.log(model.core(rows.set_mhz))
    warm = _warmer(rows, model.clocks, model.usual_c)
    pairs = [(s, np.log(y) - s.warmth * warm) for s, y in ((model.power, rows.power_w), (model.time, rows.time_s))]
    slopes = like.expect(np.array([float(np.mean(y + _between(s, log_f, nominal))) for s, y in pairs]))
    found, swings, strange, variance = [], [], False, np.zeros(len(wanted))
    for (shape, y), prior, spread in zip(pairs, slopes, np.diag(like.covariance), strict=True):
        slope, moment, square = _own_slope(shape.at(log_f), y, float(prior), shape.noise / max(float(spread), 1e-9))
        # What its own clocks disagree by with the shared shape, against what configurations differ by.
        if square > _STRANGE**2 * (moment * float(spread) + shape.noise):
            strange, variance = True, variance + square
        # ... and what measurements at one clock disagree by with each other: any of them may be the true one.
        again = _apart(rows.set_mhz, y)
        if again > _STRANGE**2 * shape.noise:
            strange, variance = True, variance + again
        bent, rate = follow(slope, shape.at(log_f))
        away, away_rate = follow(slope, shape.at(wanted))
        found.append(float(np.mean(y - bent)) + away)
        # Of the variance of a slope this share is left by the measured clocks.
        left = shape.noise / (moment * float(spread) + shape.noise)
        swings.append((shape.at(wanted) * away_rate - np.mean(shape.at(log_f) * rate)) * math.sqrt(left))
        variance = variance + shape.noise * (1.0 / len(y) + 1.0)
        # Outside the training's clocks the shape may be anything from level to twice as steep: rectangular.
        variance = variance + float(np.mean(shape.beyond(log_f) ** 2)) / 3.0
    swing = np.stack(swings)
    # Errors of the two slopes go together: what computes more draws more when it is faster.
    variance = variance + np.sum(swing * (like.covariance @ swing), axis=0)
    return Carried(found[0], found[1], variance, strange)


def expected_clocks(model: Transfer, like: Likeness, rows: Table, set_mhz: Floats) -> Floats:
    """Clocks that a configuration will reach where ``set_mhz`` are asked for: its own power may meet the limit.

    Where it would exceed the limit even at the lowest clock of the training, that clock is given.
    """
    core = model.core(set_mhz)
    if math.isinf(model.cap_w):
        return core
    fine = np.linspace(model.reached.min(), model.reached.max(), _GRID)
    power = np.maximum.accumulate(carry(model, like, rows, fine).power)
    below = int(np.searchsorted(power, math.log(model.cap_w), side="right"))
    return np.asarray(np.minimum(core, fine[max(0, below - 1)]), np.float64)


def _between(shape: ClockShape, start: Floats, end: Floats) -> Floats:
    """What an average configuration's logarithm changes by between two clocks."""
    return np.asarray(follow(1.0, shape.at(end))[0] - follow(1.0, shape.at(start))[0], np.float64)


def _apart(set_mhz: Floats, y: Floats) -> float:
    """Variance of measurements at the same clock; 0 where none was repeated."""
    _, group, counts = np.unique(set_mhz, return_inverse=True, return_counts=True)
    left = y - (np.bincount(group, y) / counts)[group]
    return float(left @ left) / max(len(y) - len(counts), 1)


def _own_slope(s: Floats, y: Floats, prior: float, stiff: float) -> tuple[float, float, float]:
    """Slope by the measured clocks and the prior, weight of the former, and squared misfit of the prior alone."""
    slope, square = prior, 0.0
    for turn in range(_TURNS):
        bent, rate = follow(slope, s)
        ahead = s * rate - float(np.mean(s * rate))
        moment = float(ahead @ ahead)
        if turn == 0:
            square = float(ahead @ (y - bent)) ** 2 / max(moment, 1e-300)
        slope = (float(ahead @ (y - bent)) + moment * slope + stiff * prior) / (moment + stiff)
    return slope, moment, square
