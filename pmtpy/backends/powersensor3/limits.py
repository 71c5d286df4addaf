"""What a sensor of a board can measure, and what can be true of it: ends of the converter, ranges of modules. Pure.

A reading at the end of its range is a lower bound, not a measurement; a stored value that no module can have is no
calibration. Ranges: PowerSensor3 1.6.1 (default sensitivities), Melexis MLX91221 at a supply of 3.3 V (half the
supply over the sensitivity either way); the name of a module is the current for which its accuracy is stated (ISPASS
2025, Table I).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.backends._serial.journal import Journal
from pmtpy.backends.powersensor3._codec import Levels
from pmtpy.backends.powersensor3.config import (
    FULL_SCALE_V,
    MAX_LEVEL,
    SENSITIVITY_V_PER_A,
    Records,
    SensorRecord,
)
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import TargetError

_RATED_A = {"MLX10": 10.0, "MLX20": 20.0, "MLX50": 50.0, "MLX75": 75.0}
# A stored sensitivity within a factor of two of the module's own; of an unknown current module one whose range is 2 A
# to 1600 A; of a voltage input a full scale from 1.6 V to 1100 V.
_PLAUSIBLE_FACTOR = 2.0
_PLAUSIBLE_CURRENT_V_PER_A = (0.001, 0.8)
_PLAUSIBLE_GAIN = (0.003, 2.0)
# Zero of a current near half the supply; of a voltage near nothing, or near half the supply where it can be negative.
_PLAUSIBLE_ZERO_V = ((0.5, 2.8), (-0.5, 2.0))
# The mean of several conversions stands one level short of the end when one of them does.
_END_LEVELS = 1
_RATED = 1.05  # noise and a zero that is off do not make it more than it is rated for
_UNITS = ("A", "V")
_AT_ZERO_LEVELS = 16  # a sensor whose zero lies this close to an end of the converter rests there without saturating


def _plausible_sensitivity(sensor: int, kind: str) -> tuple[float, float]:
    """Return the smallest and the largest stored sensitivity, V/A or gain, that a sensor of this type can have."""
    if sensor % 2:
        return _PLAUSIBLE_GAIN
    default = SENSITIVITY_V_PER_A.get(kind)
    if default is None:
        return _PLAUSIBLE_CURRENT_V_PER_A
    return default / _PLAUSIBLE_FACTOR, default * _PLAUSIBLE_FACTOR


def implausible(sensor: int, record: SensorRecord) -> str:
    """Say what in a stored record cannot be true; empty where all can."""
    return _sensitivity(sensor, record) or _zero(sensor, record)


def _sensitivity(sensor: int, record: SensorRecord) -> str:
    what, unit = ("gain", "") if sensor % 2 else ("sensitivity", " V/A")
    low, high = _plausible_sensitivity(sensor, record.type)
    if low <= abs(record.sensitivity) <= high:  # false also for NaN
        return ""
    return (
        f"sensor {sensor} ({record.type or 'no type'}): {what} {record.sensitivity:g}{unit} is not plausible, "
        f"which is {low:.3g} to {high:.3g}{unit}"
    )


def _zero(sensor: int, record: SensorRecord) -> str:
    low, high = _PLAUSIBLE_ZERO_V[sensor % 2]
    if low <= record.vref <= high:
        return ""
    return (
        f"sensor {sensor} ({record.type or 'no type'}): a zero (vref) at {record.vref:g} V is not plausible, "
        f"which is {low:g} to {high:g} V"
    )


def refuse_implausible(before: Records, after: Records) -> None:
    """Refuse to store what no module can have, where it differs from what is stored.

    Raises TargetError: the message names the sensor, the value, the range, and the unit that was perhaps meant.
    """
    for sensor, (old, new) in enumerate(zip(before, after, strict=True)):
        wrong = ""
        if repr(old.sensitivity) != repr(new.sensitivity):
            wrong = _sensitivity(sensor, new)
        if repr(old.vref) != repr(new.vref) and new.vref != 0:  # 0: not calibrated yet
            wrong = wrong or _zero(sensor, new)
        if wrong and (new.in_use or new.sensitivity not in {0.0, 1.0}):  # of a sensor that was never set up
            low, high = _plausible_sensitivity(sensor, new.type)
            milli = abs(new.sensitivity) / 1000
            hint = f" {new.sensitivity:g} mV/A are {new.sensitivity / 1000:g} V/A." if low <= milli <= high else ""
            raise TargetError(f"{wrong}; nothing was stored.{hint} If it is right, say so with --force")


@dataclass(frozen=True, slots=True)
class Range:
    """Levels between which one sensor measures."""

    # at or beyond these a level is an end of the range, and no measurement
    low: int
    high: int
    # beyond these the accuracy is not stated
    rated_low: int
    rated_high: int
    # value in A or V = (level + offset) * scale
    scale: float
    offset: float
    rated: float  # amperes that the module is made for; infinite where nothing is known


def range_of(sensor: int, record: SensorRecord) -> Range:
    """Return where a sensor measures: within the converter, and of a known module within its range."""
    low, high = _END_LEVELS, MAX_LEVEL - _END_LEVELS
    per_volt = MAX_LEVEL / FULL_SCALE_V
    zero = record.vref * per_volt
    if zero < _AT_ZERO_LEVELS:
        low = -1
    if zero > MAX_LEVEL - _AT_ZERO_LEVELS:
        high = MAX_LEVEL + 1
    rated_low, rated_high, rated = low, high, math.inf
    if sensor % 2 == 0 and record.type in _RATED_A:
        level_per_a = abs(record.sensitivity) * per_volt
        rated = _RATED_A[record.type]
        reach = FULL_SCALE_V / 2 / SENSITIVITY_V_PER_A[record.type] * level_per_a
        low, high = max(low, math.floor(zero - reach)), min(high, math.ceil(zero + reach))
        rated_low = math.floor(zero - _RATED * rated * level_per_a)
        rated_high = math.ceil(zero + _RATED * rated * level_per_a)
    return Range(low, high, rated_low, rated_high, 1.0 / (record.sensitivity * per_volt), -zero, rated)


class Ends:
    """Finds readings at the ends of their ranges. Columns are those of a Block: current, voltage, current, ..."""

    def __init__(self, ranges: Sequence[tuple[str, Range]]) -> None:
        self._names = [name for name, _ in ranges]
        self._ranges = [r for _, r in ranges]
        self._low, self._high = (np.array([getattr(r, k) for r in self._ranges]) for k in ("low", "high"))
        self._beneath = np.maximum(self._low, np.array([r.rated_low for r in self._ranges]))
        self._above = np.minimum(self._high, np.array([r.rated_high for r in self._ranges]))
        self._least = (self._beneath + 1).tolist()
        self._most = (self._above - 1).tolist()
        self._scale, self._offset = (np.array([getattr(r, k) for r in self._ranges]) for k in ("scale", "offset"))

    def mask(self, levels: Levels, t_ns: Ints, interval_s: float, journal: Journal) -> npt.NDArray[np.uint16] | Floats:
        """Return the levels, those at an end as NaN (not known), and note them in the journal."""
        lowest, highest = levels.min(axis=0).tolist(), levels.max(axis=0).tolist()
        if all(map(operator.ge, lowest, self._least)) and all(map(operator.le, highest, self._most)):
            return levels
        at_low, at_high = levels <= self._low, levels >= self._high
        values = (levels + self._offset) * self._scale
        least = np.abs(values[:, ::2] * values[:, 1::2]).repeat(2, axis=1)  # watts of the pair, were the end reached
        beyond = (levels < self._beneath) | (levels > self._above)
        for side, hit in (("lower", at_low), ("upper", at_high), ("rated", beyond & ~at_low & ~at_high)):
            for column in np.flatnonzero(hit.any(axis=0)).tolist():
                rows = np.flatnonzero(hit[:, column])
                joules = float(least[rows, column].sum()) * interval_s
                begin, end = int(t_ns[rows[0]]) - round(interval_s * 1e9), int(t_ns[rows[-1]])
                journal.add(f"{side} {column}", begin, end, len(rows) * interval_s, joules)
        ends = at_low | at_high
        return np.where(ends, np.nan, levels) if ends.any() else levels

    def sentences(self, found: Mapping[str, tuple[float, float]]) -> list[str]:
        """Say what a journal holds of a stretch."""
        out = []
        for column, (name, limits) in enumerate(zip(self._names, self._ranges, strict=True)):
            pair = name.partition(".")[0]
            for side, level in (("lower", limits.low), ("upper", limits.high)):
                seconds, joules = found.get(f"{side} {column}", (0.0, 0.0))
                if seconds:
                    value = (level + limits.offset) * limits.scale
                    out.append(
                        f"{name}: at the {side} end of its range (level {level}, {value:.3g} {_UNITS[column % 2]}) for "
                        f"{seconds:.3g} s; no energy of {pair} is known there, it is at least {joules:.4g} J more"
                    )
            seconds, _ = found.get(f"rated {column}", (0.0, 0.0))
            if seconds:
                out.append(
                    f"{name}: beyond the {limits.rated:g} A of its module for {seconds:.3g} s; how accurate "
                    "it is there is not stated"
                )
        return out
