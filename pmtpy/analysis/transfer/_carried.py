"""A kernel configuration anchored at the clocks at which it was measured, and carried from there to others.

:class:`Transfer` is what a training table tells: the shared shapes of power and time (:mod:`._shape`), how levels and
slopes of configurations go together, and how its clocks behave. :func:`carry` takes one configuration's own
measurements from their clocks to others: one regression of two levels and two slopes, with what the training tells of
them as its prior, whether it was measured at one clock or at several. Clocks are the measured ones, never those asked
for. Variances are those of the model; :mod:`pmtpy.analysis.transfer.predict` checks and scales them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.estimate import MISSED, STANDS_OUT, STRAY
from pmtpy.analysis.transfer._shape import ClockShape, fit_shape, follow, knots_of
from pmtpy.analysis.transfer.table import Table
from pmtpy.core.rows import Floats

HELD = 0.985  # a clock that stays below this share of the one asked for is held down
_BEYOND = 0.03  # relative: where more than a few rows go so far beyond the power of those held down, it was no limit
_TURNS = 4  # of searches for what enters to first order
_GRID = 500  # clocks tried: a thousandth of the range is far below what a clock is known by
# Variance of an imagined configuration more, unlike any seen, whose levels tell nothing: from a sixth of the usual to
# six times it; slopes, 1 on average, from 0 (a kernel that the clock does not touch) to 2. Three configurations
# that happen to agree do not show that all do.
_PRIOR_VARIANCES = np.tile([math.log(6.0) ** 2 / 3.0, 1.0 / 3.0], 2)
_ROUNDED = 1e-5  # relative; numbers of tables are rounded. Without any noise the regression has no solution


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the training set tells."""

    train: Table  # the rows used
    # shared shapes
    power: ClockShape
    time: ClockShape
    # shape (4,) and (4, 4); level and slope of power, level and slope of time of configurations: mean and covariance
    mean: Floats
    spread: Floats
    # shape (clocks,); clock asked for, rising; median of the clocks measured there (of those that no power limit held
    # down; the highest where it held all), and of the temperatures
    clocks: Floats
    reached: Floats
    usual_c: Floats
    cap_w: float  # power limit that held clocks down; infinite if none did

    def core(self, set_mhz: Floats) -> Floats:
        """Clock to expect when ``set_mhz`` is asked for and the power limit allows it."""
        return np.asarray(np.interp(set_mhz, self.clocks, self.reached), np.float64)


def fit(table: Table) -> Transfer:
    """Learn from a table in which every configuration was measured at two clocks or more."""
    clocks = np.unique(table.set_mhz)
    held = table.core_mhz < HELD * table.set_mhz
    cap_w = _power_limit(table.power_w, held)
    reached, usual = [], []
    for clock in clocks:
        here = table.set_mhz == clock
        core_mhz = table.core_mhz[here if math.isinf(cap_w) else here & ~held]
        # Where the limit held all of them, it would be the highest at least without it.
        reached.append(_median(core_mhz) if len(core_mhz) else float(np.max(table.core_mhz[here])))
        usual.append(_median(table.temperature_c[here]))
    reached_mhz, usual_c = np.array(reached), np.array(usual)
    number = {name: i for i, name in enumerate(table.by_config())}
    index = np.array([number[c] for c in table.config], np.int64)
    log_f, knots, warm = np.log(table.core_mhz), knots_of(np.sort(np.log(reached_mhz))), _warmer(table, clocks, usual_c)
    power = fit_shape(index, log_f, np.log(table.power_w), warm, knots)
    time = fit_shape(index, log_f, np.log(table.time_s), warm, knots)
    mean, spread = together(np.stack([power.level, power.slope, time.level, time.slope], axis=1))
    return Transfer(table, power, time, mean, spread, clocks, reached_mhz, usual_c, cap_w)


def together(each: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of what configurations are like, shape (configurations, 4); outliers weigh less (Huber)."""
    weight = np.ones(len(each))
    for _ in range(_TURNS):
        mean = np.average(each, axis=0, weights=weight)
        off = each - mean
        total = float(np.sum(weight))
        spread = ((off.T * weight) @ off + np.diag(_PRIOR_VARIANCES)) / (total + 1.0)
        away = np.sqrt(np.sum(off @ np.linalg.inv(spread) * off, axis=1))
        weight = STRAY / np.maximum(away, STRAY)
    return np.asarray(mean, np.float64), np.asarray(spread, np.float64)


def _power_limit(power_w: Floats, held: npt.NDArray[np.bool_]) -> float:
    """Power at which clocks were held down; infinite if that was not the reason, or none was."""
    limit = _median(power_w[held])
    beyond = np.count_nonzero(power_w[~held] > limit * (1.0 + _BEYOND))
    return limit if np.any(held) and beyond < MISSED * len(power_w) else math.inf


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


def carry(model: Transfer, rows: Table, targets_mhz: Floats) -> Carried:
    """Carry one configuration from its measured ``rows`` to other clocks, those reached and not those asked for."""
    log_f, wanted = np.log(rows.core_mhz), np.log(targets_mhz)
    warm = _warmer(rows, model.clocks, model.usual_c)
    shapes, n = (model.power, model.time), len(log_f)
    y = np.concatenate([np.log(q) - s.warmth * warm for s, q in zip(shapes, (rows.power_w, rows.time_s), strict=True)])
    noise = np.repeat([max(s.noise, _ROUNDED**2) for s in shapes], n)
    # A level far from all of the training tells no more of slopes than one at their edge.
    found, prior = model.mean.copy(), model.mean.copy()
    own = np.array([np.mean(half) for half in np.split(y - _lines(shapes, prior, log_f)[0], 2)])
    edge = STRAY * np.sqrt(np.diag(model.spread)[::2])
    prior[::2] += own - np.clip(own, -edge, edge)
    for _ in range(_TURNS):
        shown, columns = _lines(shapes, found, log_f)
        off = y - shown - columns @ (prior - found)
        told = np.linalg.solve(columns @ model.spread @ columns.T + np.diag(noise), np.column_stack([off, columns]))
        found = prior + model.spread @ columns.T @ told[:, 0]
    left = model.spread - model.spread @ columns.T @ told[:, 1:] @ model.spread
    square = float(off @ told[:, 0])  # chi square of its measurements
    strange = square > STANDS_OUT**2 + len(y)
    shown, columns = _lines(shapes, found, wanted)
    energy = columns[: len(wanted)] + columns[len(wanted) :]
    variance = np.sum(energy @ left * energy, axis=1) + sum(s.noise for s in shapes)
    power, time = np.split(shown, 2)
    return Carried(power, time, np.asarray(variance * (square if strange else 1.0), np.float64), strange)


def _lines(shapes: tuple[ClockShape, ClockShape], at: Floats, log_f: Floats) -> tuple[Floats, Floats]:
    """Return log powers, then log times, at some clocks, and their derivatives by levels and slopes about ``at``."""
    n = len(log_f)
    shown, columns = np.empty(2 * n), np.zeros((2 * n, 4))
    for i, shape in enumerate(shapes):
        here, s = slice(i * n, (i + 1) * n), shape.at(log_f)
        bent, rate = follow(float(at[2 * i + 1]), s)
        shown[here] = at[2 * i] + bent
        columns[here, 2 * i], columns[here, 2 * i + 1] = 1.0, s * rate
    return shown, columns


def expected_clocks(model: Transfer, rows: Table, set_mhz: Floats) -> Floats:
    """Clocks that a configuration will reach where ``set_mhz`` are asked for: its own power may meet the limit.

    Where it would exceed the limit even at the lowest clock of the training, that clock is given.
    """
    core = model.core(set_mhz)
    if math.isinf(model.cap_w):
        return core
    fine = np.linspace(model.reached.min(), model.reached.max(), _GRID)
    power = np.maximum.accumulate(carry(model, rows, fine).power)
    below = int(np.searchsorted(power, math.log(model.cap_w), side="right"))
    return np.asarray(np.minimum(core, fine[max(0, below - 1)]), np.float64)
