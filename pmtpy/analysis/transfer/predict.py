"""Energy of a kernel configuration at clocks at which it was not measured.

The idea that works: configurations share the *shape* of power and time over the clock, each has its own *level*. So
each is measured at one or two clocks, and the shape comes from a few configurations that were measured at all of
them. For power and for time alike (:mod:`._shape`):

    y_c(f) = v_c (1 + k_c s(f)) exp(gamma w + residual)

What is measured at one clock fixes ``v_c``, at two ``k_c`` as well; before that, what training configurations with a
like power and time have is expected of ``k_c``. Both are one regression (:mod:`._carried`). Clocks are the measured
ones, never those asked for. Intervals come from leaving each training configuration out. docs/frequency.md derives all
this, and says what the published models do and why they fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import student_95
from pmtpy.analysis.transfer._carried import HELD, Transfer, carry, expected_clocks, fit
from pmtpy.analysis.transfer._shape import SAME_CLOCK
from pmtpy.analysis.transfer.table import Table
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_MIN_CONFIGS = 3
_PARTS = 20  # in which configurations are left out: one by one where they are fewer
# Levels this far outside the training's, or further than these lie apart, are called alien.
_MAX_LEVEL_DISTANCE = math.log(3.0)
# Units differ by a thousand. Between them and this lies what configurations of one chip differ by; and so far from all
# that was learnt, nothing says that it holds.
_REFUSED_LEVEL_DISTANCE = math.log(100.0)


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


def fit_transfer(train: Table) -> Transfer:
    """Learn the shared shapes from configurations that were measured at several clocks.

    Raises DeclinedError: fewer than three such configurations, or fewer than two clocks: how configurations differ
    cannot be told.
    """
    train.check()
    kept = [rows for rows in train.by_config().values() if len(np.unique(train.set_mhz[rows])) >= 2]
    clocks = np.unique(train.set_mhz)
    if len(kept) < _MIN_CONFIGS or len(clocks) < 2:
        msg = (
            f"the training table has {amount(len(kept), 'configuration')} measured at two clocks or more, over "
            f"{amount(len(clocks), 'clock')}; at least {_MIN_CONFIGS} and 2 are needed to tell what "
            "configurations share"
        )
        raise DeclinedError(msg)
    return fit(train.rows(np.concatenate(kept)))


@dataclass(frozen=True, slots=True)
class Fold:
    """What is learnt without some configurations, and these."""

    model: Transfer
    left: tuple[Table, ...]


def folds_of(train: Table) -> list[Fold]:
    """Leave out the configurations of a training table in turn: what intervals come from."""
    groups = list(train.by_config().values())
    parts = np.array_split(np.arange(len(groups)), min(len(groups), _PARTS))
    found = []
    for part in parts:
        rest = np.concatenate([rows for i, rows in enumerate(groups) if i not in part])
        found.append(Fold(fit(train.rows(rest)), tuple(train.rows(groups[i]) for i in part)))
    return found


def _width(folds: Sequence[Fold], pattern: Sequence[float]) -> float:
    """Predict the configurations left out from the clocks in ``pattern``.

    Returns the half-width, in predicted standard deviations, that holds 95 % of the errors of log energies: Student's t
    times the root mean square of those of configurations.
    """
    errors = [e for fold in folds for e in _errors(fold, pattern) if len(e)]
    n = len(errors)
    square = float(np.mean([np.mean(e**2) for e in errors])) if errors else 1.0
    return student_95(max(1, n - 1)) * math.sqrt(square) * math.sqrt(1.0 + 1.0 / max(1, n))


def _errors(fold: Fold, pattern: Sequence[float]) -> list[Floats]:
    """Errors of the log energies of each configuration left out, in predicted standard deviations."""
    model, found = fold.model, []
    for rows in fold.left:
        given = np.unique([int(np.argmin(np.abs(rows.set_mhz - p))) for p in pattern])
        others = np.setdiff1d(np.arange(len(rows.config)), given)
        inside = others[(rows.set_mhz[others] >= model.clocks[0]) & (rows.set_mhz[others] <= model.clocks[-1])]
        own = rows.rows(given)
        guess = carry(model, own, expected_clocks(model, own, rows.set_mhz[inside]))
        error = guess.power + guess.time - np.log(rows.power_w[inside] * rows.time_s[inside])
        found.append(np.asarray(error / np.sqrt(guess.variance), np.float64))
    return found


def predict(
    model: Transfer, measured: Table, clocks_mhz: Sequence[float], folds: Sequence[Fold] | None = None
) -> list[Prediction]:
    """Predict each configuration of ``measured`` at each clock (asked for, MHz), with 95 % intervals of the energy.

    ``folds`` are those of the model's table, for whoever predicts by it more than once; None: they are made.

    Raises DeclinedError: a clock outside those of the training: past the ridge or the power limit nothing is known
    there. Or a configuration measured further outside them than they lie apart, or whose power or time is a hundred
    times more or less than any in the training.
    """
    measured.check()
    wanted = np.array(clocks_mhz, np.float64)
    low, high = model.clocks[0], model.clocks[-1]
    beyond = [c for c in clocks_mhz if not low * (1 - SAME_CLOCK) <= c <= high * (1 + SAME_CLOCK)]
    if beyond:
        msg = (
            f"clock {beyond[0]:g} MHz lies outside those of the training table, {low:g} to {high:g} MHz; past them "
            "voltage and power limit are unknown: measure some configurations there"
        )
        raise DeclinedError(msg)
    _refuse_far(model, measured)
    folds = folds_of(model.train) if folds is None else folds
    widths: dict[tuple[float, ...], float] = {}
    found: list[Prediction] = []
    for name, rows in measured.by_config().items():
        own = measured.rows(rows)
        pattern = tuple(float(model.clocks[np.argmin(np.abs(model.clocks - c))]) for c in own.set_mhz)
        if pattern not in widths:
            widths[pattern] = _width(folds, pattern)
        reached = expected_clocks(model, own, wanted)
        guess = carry(model, own, reached)
        general = _doubts(model, own)
        if guess.strange:
            general.append("its measurements disagree with each other or with the shared shape; one may be an outlier")
        for i, clock in enumerate(wanted):
            power, time_s = math.exp(guess.power[i]), math.exp(guess.time[i])
            energy, factor = power * time_s, math.exp(widths[pattern] * math.sqrt(guess.variance[i]))
            note = "; ".join(_held(model, clock, reached[i]) + general)
            found.append(Prediction(name, float(clock), power, time_s, energy, energy / factor, energy * factor, note))
    return found


def _refuse_far(model: Transfer, measured: Table) -> None:
    low, high = model.reached.min(), model.reached.max()
    away = np.maximum(low / measured.core_mhz, measured.core_mhz / high)
    far = int(np.argmax(away))
    if away[far] > (high / low) * (1 + SAME_CLOCK):
        msg = (
            f"{measured.config[far]} was measured at {measured.core_mhz[far]:g} MHz, too far from the {low:g} to "
            f"{high:g} MHz of the training table to be predicted from it; is core_freq_mhz in MHz in both tables?"
        )
        raise DeclinedError(msg)
    for rows in measured.by_config().values():
        own = measured.rows(rows)
        for name, away in _levels_away(model, own):
            if away > _REFUSED_LEVEL_DISTANCE:
                msg = (
                    f"the {name} of {own.config[0]} is {math.exp(away):.0f} times more or less than any of the "
                    "training table, too far from it to be predicted from it; is the unit the same in both tables?"
                )
                raise DeclinedError(msg)


def _levels_away(model: Transfer, own: Table) -> list[tuple[str, float]]:
    """How far power and time of a configuration lie outside those of the training, as a natural logarithm."""
    columns = (("power_w", own.power_w, model.train.power_w), ("time_ms", own.time_s, model.train.time_s))
    found = []
    for name, ours, theirs in columns:
        level = float(np.mean(np.log(ours)))
        found.append((name, max(math.log(theirs.min()) - level, level - math.log(theirs.max()))))
    return found


def _held(model: Transfer, wanted: float, reached: float) -> list[str]:
    if reached >= HELD * wanted:
        return []
    if math.isinf(model.cap_w):
        return [f"this clock reached only {reached:.0f} MHz in training"]
    lowest = reached <= model.reached[0]
    return [
        f"the power limit of {model.cap_w:.0f} W holds this clock at {reached:.0f} MHz"
        + (" or below" if lowest else "")
    ]


def _doubts(model: Transfer, own: Table) -> list[str]:
    """How a configuration's measurements differ from all of the training."""
    found = []
    low, high = model.reached.min() * (1 - SAME_CLOCK), model.reached.max() * (1 + SAME_CLOCK)
    stray = own.core_mhz[(own.core_mhz < low) | (own.core_mhz > high)]
    if len(stray):
        found.append(f"measured at {stray[0]:.0f} MHz, outside the clocks of the training")
    warm, usual = (t.temperature_c[np.isfinite(t.temperature_c)] for t in (own, model.train))
    if len(warm) and len(usual) and not 2 * usual.min() - usual.max() <= np.mean(warm) <= 2 * usual.max() - usual.min():
        found.append(f"measured at {np.mean(warm):.0f} degrees, far from the temperatures of the training")
    apart = {"power_w": np.ptp(np.log(model.train.power_w)), "time_ms": np.ptp(np.log(model.train.time_s))}
    found += [
        f"its {name} is far from any of the training: is the unit the same in both tables?"
        for name, away in _levels_away(model, own)
        if away > max(float(apart[name]), _MAX_LEVEL_DISTANCE)
    ]
    return found
