"""Energy of a kernel configuration at clocks at which it was not measured.

The idea that works: configurations share the *shape* of power and time over the clock, each has its own *level*. So
each is measured at one or two clocks, and the shape comes from a few configurations that were measured at all of
them. In logarithms, for power and for time alike:

    log y_c(f) = u_c + k_c s(f) + gamma (temperature - usual temperature at f) + residual        k_c = 1 + b x_c + d_c

``s`` is the shared shape; ``k_c`` says how strongly a configuration follows it, which its own levels ``x_c`` tell in
part; the rest ``d_c`` has the variance that the training set shows. One clock fixes ``u_c``, two fix ``k_c`` as well.
Clocks are the measured ones, never those asked for. Intervals come from leaving each training configuration out.
docs/frequency.md derives all this, and says what the published models do and why they fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.errors import DeclinedError
from pmtpy.model import Floats, Ints
from pmtpy.uncertainty import student_95

MIN_CONFIGS = 3
_NEAR = 0.004  # measured clocks closer than this, relative, are one knot of the shape
_CAPPED = 0.985  # a clock that stays below this share of the one asked for is held down by the power limit
_BOUND_SLACK = 0.002  # relative; clocks this far beyond the training's still count as inside
_LEVEL_CONFIGS = 15  # configurations from which the effect of the level on the slope can be told
_TAIL_CONFIGS = 20  # configurations from which the tails of the errors can be seen
_FOLDS = 40  # at most so many parts are left out in turn
_HUBER = 1.345  # 95 % efficiency on normal noise (Huber and Ronchetti, Robust Statistics, 2009)
_ROUNDS = 12
_STRANGE = 4.0  # standard deviations: one in ten thousand by chance


@dataclass(frozen=True, slots=True)
class Table:
    """Tuning results: one row for each configuration and clock.

    Attributes
    ----------
    config : tuple of str
        Which configuration.
    set_mhz, core_mhz : float64, shape (n,)
        Clock asked for and clock measured.
    temperature_c : float64, shape (n,)
        Temperature; NaN where it was not measured.
    time_s, power_w : float64, shape (n,)
        Mean time and power of a run.
    """

    config: tuple[str, ...]
    set_mhz: Floats
    core_mhz: Floats
    temperature_c: Floats
    time_s: Floats
    power_w: Floats

    def rows(self, keep: Ints) -> Table:
        """Return the rows numbered ``keep``."""
        return Table(
            tuple(self.config[i] for i in keep),
            self.set_mhz[keep],
            self.core_mhz[keep],
            self.temperature_c[keep],
            self.time_s[keep],
            self.power_w[keep],
        )

    def by_config(self) -> dict[str, Ints]:
        """Row numbers of each configuration, in order of first appearance."""
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self.config):
            found.setdefault(name, []).append(i)
        return {name: np.array(rows, np.int64) for name, rows in found.items()}


@dataclass(frozen=True, slots=True)
class Prediction:
    """One configuration at one clock. The 95 % interval is that of the energy.

    ``note`` says what a reader must know: that the clock is held down by the power limit, for instance.
    """

    config: str
    set_mhz: float
    power_w: float
    time_s: float
    energy_j: float
    energy_low_j: float
    energy_high_j: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The shared shape of one quantity, in logarithms."""

    knots: Floats  # log of measured clocks
    values: Floats  # s at the knots
    spread: float  # variance of d_c
    noise: float  # variance of a residual
    level: Floats  # b: effect of the centred levels on k
    warmth: float  # gamma, per degree

    def at(self, log_f: Floats) -> Floats:
        """Shape at a clock; beyond the knots it goes on with the slope of the outermost two."""
        return np.asarray(_hat(self.knots, log_f) @ self.values, np.float64)

    def beyond(self, log_f: Floats) -> Floats:
        """How much of :meth:`at` is extrapolated."""
        return np.asarray(self.at(log_f) - self.at(np.clip(log_f, self.knots[0], self.knots[-1])), np.float64)


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the training set tells: see :func:`fit_transfer`."""

    train: Table
    power: _Shape
    time: _Shape
    centre: Floats  # mean levels (log power, log time) of the training configurations
    reach: Floats  # shape (2, 2): least and largest level seen
    clocks: Floats  # clocks asked for in training, rising
    reached: Floats  # clock measured at each
    usual_c: Floats  # temperature at each
    capped: tuple[bool, ...]
    cap_w: float  # power at which clocks were held down; infinite if none was

    def core(self, set_mhz: Floats) -> Floats:
        """Clock to expect when ``set_mhz`` is asked for."""
        return np.asarray(np.interp(set_mhz, self.clocks, self.reached), np.float64)


def fit_transfer(train: Table) -> Transfer:
    """Learn the shared shapes from configurations that were measured at several clocks.

    Raises
    ------
    DeclinedError
        Fewer than three such configurations, or fewer than two clocks: how configurations differ cannot be told.
    """
    _refuse_nonsense(train)
    kept = [rows for rows in train.by_config().values() if len(np.unique(train.set_mhz[rows])) >= 2]
    clocks = np.unique(train.set_mhz)
    if len(kept) < MIN_CONFIGS or len(clocks) < 2:
        msg = (
            f"the training table has {len(kept)} configurations measured at two clocks or more, over {len(clocks)} "
            f"clocks; at least {MIN_CONFIGS} and 2 are needed to tell what configurations share"
        )
        raise DeclinedError(msg)
    table = train.rows(np.concatenate(kept))
    return _fit(table, leveled=len(kept) >= _LEVEL_CONFIGS)


def _refuse_nonsense(table: Table) -> None:
    for name, column in (("core_freq_mhz", table.core_mhz), ("time_ms", table.time_s), ("power_w", table.power_w)):
        bad = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
        if len(bad):
            msg = f"row {bad[0] + 1} of the table: {name} must be a positive number, not {column[bad[0]]:g}"
            raise DeclinedError(msg)


def _fit(table: Table, *, leveled: bool) -> Transfer:
    clocks = np.unique(table.set_mhz)
    at = [table.set_mhz == c for c in clocks]
    reached = np.maximum.accumulate([float(np.median(table.core_mhz[a])) for a in at])
    usual = np.array([_median(table.temperature_c[a]) for a in at])
    capped = tuple(bool(r < _CAPPED * c) for r, c in zip(reached, clocks, strict=True))
    held = np.isin(table.set_mhz, clocks[np.array(capped)])
    cap_w = float(np.median(table.power_w[held])) if held.any() else math.inf
    warm = table.temperature_c - np.interp(table.set_mhz, clocks, usual)
    warm = np.where(np.isfinite(warm), warm, 0.0)
    levels, centre, reach = _levels(table)
    knots = _knots(np.log(reached))
    shapes = [_fit_shape(table, np.log(y), warm, knots, levels, leveled=leveled) for y in (table.power_w, table.time_s)]
    return Transfer(table, shapes[0], shapes[1], centre, reach, clocks, np.asarray(reached), usual, capped, cap_w)


def _median(values: Floats) -> float:
    good = values[np.isfinite(values)]
    return float(np.median(good)) if len(good) else math.nan


def _knots(log_f: Floats) -> Floats:
    """Merge measured clocks that are nearly the same: several settings beyond the power limit reach one clock."""
    knots = [float(log_f[0])]
    for f in log_f[1:]:
        if f - knots[-1] > _NEAR:
            knots.append(float(f))
    return np.array(knots)


def _levels(table: Table) -> tuple[dict[str, Floats], Floats, Floats]:
    """Mean log power and log time of each configuration about the mean of all, that mean, and the range."""
    raw = {
        name: np.array([np.mean(np.log(table.power_w[rows])), np.mean(np.log(table.time_s[rows]))])
        for name, rows in table.by_config().items()
    }
    stacked = np.stack(list(raw.values()))
    centre = stacked.mean(axis=0)
    reach = np.stack([stacked.min(axis=0), stacked.max(axis=0)]) - centre
    return {name: level - centre for name, level in raw.items()}, centre, reach


def _hat(knots: Floats, log_f: Floats) -> Floats:
    """Weights of the knots in a linear inter- and extrapolation at ``log_f``; shape (n, knots)."""
    weights = np.zeros((len(log_f), len(knots)))
    if len(knots) == 1:
        return weights + 1.0
    i = np.clip(np.searchsorted(knots, log_f) - 1, 0, len(knots) - 2)
    part = (log_f - knots[i]) / (knots[i + 1] - knots[i])
    rows = np.arange(len(log_f))
    weights[rows, i], weights[rows, i + 1] = 1.0 - part, part
    return weights


def _fit_shape(
    table: Table, y: Floats, warm: Floats, knots: Floats, levels: dict[str, Floats], *, leveled: bool
) -> _Shape:
    """Fit one quantity by turns: levels and slopes of the configurations, shape, temperature; outliers weigh less."""
    names = list(levels)
    index = np.array([names.index(c) for c in table.config])
    x = np.stack([levels[c] for c in names])
    hat = _hat(knots, np.log(table.core_mhz))
    n, weight = len(names), np.ones(len(y))
    slope, spread, noise, warmth = np.ones(n), 0.1, 1e-3, 0.0
    effect = np.zeros(x.shape[1])
    values = knots - knots[0] if len(knots) > 1 else np.zeros(1)
    mean = np.zeros(n)
    for turn in range(_ROUNDS):
        s = hat @ values
        target = y - warmth * warm
        total = np.bincount(index, weight, n)
        s_mean = np.bincount(index, weight * s, n) / total
        y_mean = np.bincount(index, weight * target, n) / total
        ds, dy = s - s_mean[index], target - y_mean[index]
        moment = np.bincount(index, weight * ds * ds, n) + 1e-12
        prior = 1.0 + x @ effect
        stiff = noise / max(spread, 1e-9)
        slope = (np.bincount(index, weight * ds * dy, n) + stiff * prior) / (moment + stiff)
        mean = y_mean - slope * s_mean
        known = moment / (moment + stiff)
        if leveled:
            effect = np.linalg.solve((x.T * known) @ x + 1e-3 * np.eye(x.shape[1]), (x.T * known) @ (slope - 1.0))
        spread = float(np.mean((slope - 1.0 - x @ effect) ** 2 + noise / (moment + stiff)))
        values = _solve_shape(hat, slope[index], target - mean[index], weight)
        scale = float(np.mean(slope - x @ effect))
        values, slope = values * scale, slope / scale
        residual = y - mean[index] - slope[index] * (hat @ values)
        # Temperature last, and only what clock and configuration leave over: over the clocks it rose with time.
        warmth = _slope(warm, residual, weight) if turn > 1 else 0.0
        residual = residual - warmth * warm
        deviation = 1.4826 * float(np.median(np.abs(residual))) + 1e-9
        weight = np.minimum(1.0, _HUBER * deviation / np.maximum(np.abs(residual), 1e-12))
        freedom = max(1, len(y) - 2 * n - len(knots))
        noise = float(np.sum(weight * residual * residual)) / freedom
    return _Shape(knots, values, spread, noise, effect, warmth)


def _solve_shape(hat: Floats, slope: Floats, y: Floats, weight: Floats) -> Floats:
    design = hat * slope[:, None]
    left = (design.T * weight) @ design + 1e-9 * np.eye(design.shape[1])
    values = np.linalg.solve(left, (design.T * weight) @ y)
    return np.asarray(values - values[0], np.float64)


def _slope(x: Floats, y: Floats, weight: Floats) -> float:
    square = float(np.sum(weight * x * x))
    return float(np.sum(weight * x * y)) / square if square > 0 else 0.0


# --- prediction ---


@dataclass(frozen=True, slots=True)
class _Guess:
    """Log power and log time of one configuration at some clocks, and the variance of the log energy."""

    power: Floats
    time: Floats
    variance: Floats
    strange: bool  # its own clocks disagree with the shared shape


def _guess(model: Transfer, rows: Table, targets_mhz: Floats) -> _Guess:
    """Transfer one configuration from its measured rows to other clocks."""
    log_f, wanted = np.log(rows.core_mhz), np.log(targets_mhz)
    usual = np.interp(rows.set_mhz, model.clocks, model.usual_c)
    warm = np.where(np.isfinite(rows.temperature_c - usual), rows.temperature_c - usual, 0.0)
    level = np.array(
        [
            np.mean(np.log(rows.power_w) - model.power.at(log_f)) + np.mean(model.power.values),
            np.mean(np.log(rows.time_s) - model.time.at(log_f)) + np.mean(model.time.values),
        ]
    )
    x = np.clip(level - model.centre, model.reach[0], model.reach[1])
    out, variance, strange = [], np.zeros(len(wanted)), False
    for shape, y in ((model.power, np.log(rows.power_w)), (model.time, np.log(rows.time_s))):
        s, target = shape.at(log_f), y - shape.warmth * warm
        ds = s - s.mean()
        stiff = shape.noise / max(shape.spread, 1e-12)
        moment = float(ds @ ds)
        prior = 1.0 + float(x @ shape.level)
        slope = (float(ds @ target) + stiff * prior) / (moment + stiff)
        ahead = shape.at(wanted) - s.mean()
        # What its own clocks disagree by with the shared shape, against what configurations differ by.
        square = (float(ds @ target) - moment * prior) ** 2 / max(moment, 1e-300)
        if moment > 0 and square > _STRANGE**2 * (moment * shape.spread + shape.noise):
            strange, variance = True, variance + square
        out.append(target.mean() + slope * ahead)
        variance = variance + shape.noise * (1.0 / len(y) + 1.0) + ahead**2 * shape.noise / (moment + stiff)
        # Outside the training's clocks the shape may be anything from level to twice as steep: rectangular.
        variance = variance + float(np.mean(shape.beyond(log_f) ** 2)) / 3.0
    return _Guess(out[0], out[1], variance, strange)


def _left_out(model: Transfer, pattern: Floats) -> float:
    """Leave each training configuration out and predict it from the clocks in ``pattern``.

    Returns the half-width, in predicted standard deviations, that holds 95 % of the errors of log energies. From 20
    configurations on it is read off the errors, which have long tails; below, it is Student's t times their root
    mean square, each configuration bringing two errors (power and time).
    """
    groups = list(model.train.by_config().values())
    folds = np.array_split(np.arange(len(groups)), min(_FOLDS, len(groups)))
    errors: list[Floats] = []
    for fold in folds:
        rest = [groups[i] for i in range(len(groups)) if i not in set(fold.tolist())]
        part = _fit(model.train.rows(np.concatenate(rest)), leveled=len(groups) >= _LEVEL_CONFIGS)
        for i in fold:
            rows = model.train.rows(groups[i])
            given = np.unique([int(np.argmin(np.abs(rows.set_mhz - p))) for p in pattern])
            others = np.setdiff1d(np.arange(len(rows.config)), given)
            inside = others[(rows.set_mhz[others] >= part.clocks[0]) & (rows.set_mhz[others] <= part.clocks[-1])]
            if not len(inside):
                continue
            guess = _guess(part, rows.rows(given), rows.core_mhz[inside])
            error = guess.power + guess.time - np.log(rows.power_w[inside] * rows.time_s[inside])
            errors.append(np.abs(error) / np.sqrt(guess.variance))
    n = len(errors)
    if n >= _TAIL_CONFIGS:
        return float(np.quantile(np.concatenate(errors), 0.95)) * (1.0 + 1.0 / n)
    square = float(np.mean([np.mean(e**2) for e in errors])) if errors else 1.0
    return student_95(2 * max(1, n - 1)) * max(math.sqrt(square), 0.1) * math.sqrt(1.0 + 1.0 / max(1, n))


def predict(model: Transfer, measured: Table, clocks_mhz: Sequence[float]) -> list[Prediction]:
    """Predict each configuration of ``measured`` at each clock (asked for, MHz), with 95 % intervals of the energy.

    Raises
    ------
    DeclinedError
        A clock outside those of the training: past the ridge or the power limit nothing is known there.
    """
    _refuse_nonsense(measured)
    wanted = np.array(clocks_mhz, np.float64)
    low, high = model.clocks[0], model.clocks[-1]
    beyond = [c for c in clocks_mhz if not low * (1 - _BOUND_SLACK) <= c <= high * (1 + _BOUND_SLACK)]
    if beyond:
        msg = (
            f"clock {beyond[0]:g} MHz lies outside those of the training table, {low:g} to {high:g} MHz; past them "
            "voltage and power limit are unknown: measure some configurations there"
        )
        raise DeclinedError(msg)
    widths: dict[tuple[float, ...], float] = {}
    found: list[Prediction] = []
    for name, rows in measured.by_config().items():
        own = measured.rows(rows)
        pattern = tuple(float(model.clocks[np.argmin(np.abs(model.clocks - c))]) for c in np.unique(own.set_mhz))
        if pattern not in widths:
            widths[pattern] = _left_out(model, np.array(pattern))
        found += _describe(model, name, own, wanted, widths[pattern])
    return found


def _strange(model: Transfer, own: Table, guess: _Guess) -> str:
    low, high = math.exp(model.power.knots[0]), math.exp(model.power.knots[-1])
    stray = own.core_mhz[(own.core_mhz < low * (1 - _BOUND_SLACK)) | (own.core_mhz > high * (1 + _BOUND_SLACK))]
    if len(stray):
        return f"measured at {stray[0]:.0f} MHz, outside the clocks of the training"
    return "its measured clocks disagree with the shared shape; one may be an outlier" if guess.strange else ""


def _describe(model: Transfer, name: str, own: Table, wanted: Floats, width: float) -> list[Prediction]:
    guess = _guess(model, own, model.core(wanted))
    out = []
    for i, clock in enumerate(wanted):
        power, time_s = math.exp(guess.power[i]), math.exp(guess.time[i])
        note = _strange(model, own, guess)
        if model.capped[int(np.argmin(np.abs(model.clocks - clock)))]:
            note = f"the power limit held this clock at {model.core(np.array([clock]))[0]:.0f} MHz in training"
        elif power > model.cap_w:
            note = f"above the power limit of {model.cap_w:.0f} W that the training met: the clock will be held down"
        half = width * math.sqrt(guess.variance[i])
        energy = power * time_s
        out.append(
            Prediction(
                name, float(clock), power, time_s, energy, energy * math.exp(-half), energy * math.exp(half), note
            )
        )
    return out
