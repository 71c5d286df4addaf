"""The columns of a dump: which there are, in which order, with how many decimals, and their values out of a Frame.

Order and names are those of the public interface and must not change. Pure: arrays in, arrays out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pmtpy.core.channel import TOTAL, Channel, Derivation, EnergyMethod, Quantity
from pmtpy.core.rows import Floats, Frame, Layout

FIXED = ("time", "elapsed", "marker", "lost")
DATA_SET = ("time", "job", "sensor", "channel", "run", "joules", "watts", "uncovered_s", "lost", "gain_u", "virtual")
"""Of every file of a data set, in order. ``host`` and ``date`` are the names of folders."""

_JOULES = 6  # decimals at least; a microjoule is 20 mW over a frame of 50 us
_DEFAULT_DECIMALS = 6  # where the maker states no step
_LEAST_DECIMALS, _MOST_DECIMALS = 3, 9


# The arrays of a Frame that have columns of a file.
Array = Literal["watts", "joules", "values"]


def arrays_of(frame: Frame) -> dict[Array, Floats]:
    """Return the arrays by name, each of shape (rows, columns)."""
    return {"watts": frame.watts, "joules": frame.joules, "values": frame.values}


@dataclass(frozen=True, slots=True)
class Column:
    """One numeric column behind the fixed four."""

    name: str  # as in the file, unit included
    array: Array
    index: int  # which column of that array; negative: the sensor has no total, and the column stays empty
    places: int  # decimals in a text file

    def of(self, frame: Frame) -> Floats:
        """Values of this column, shape (n,)."""
        if self.index < 0:
            return np.full(len(frame), np.nan)
        column: Floats = arrays_of(frame)[self.array][:, self.index]
        return column


def _places(step: float, least: int = _LEAST_DECIMALS) -> int:
    """Decimals that show one step and one digit more, so that rounding costs at most a twentieth of a step."""
    if not step > 0:
        return max(_DEFAULT_DECIMALS, least)
    return min(max(math.ceil(-math.log10(step)) + 1, least), _MOST_DECIMALS)


def _power_step(channel: Channel, by_name: dict[str, Channel]) -> float:
    if channel.quantity is Quantity.ENERGY:
        return 0.0  # power is a difference of counts over any time, so its step is not known
    if channel.derivation is Derivation.PRODUCT and channel.resolution is None:
        return math.prod(by_name[o].smallest_step for o in channel.operands)
    return channel.smallest_step


def columns(layout: Layout) -> tuple[Column, ...]:
    """Columns behind the fixed four: the total, each energy channel with its volts and amperes, the other values."""
    by_name = {c.name: c for c in layout.channels}
    position = {c.name: j for j, c in enumerate(layout.values)}
    body: list[Column] = []
    used: set[str] = set()
    for i, channel in enumerate(layout.energy, start=1):
        if channel.derivation is Derivation.PRODUCT:
            for operand in (by_name[o] for o in channel.operands):
                name = f"{channel.name}_{operand.unit}"
                body.append(Column(name, "values", position[operand.name], _places(operand.smallest_step)))
                used.add(operand.name)
        joules = _places(channel.smallest_step, _JOULES) if channel.quantity is Quantity.ENERGY else _JOULES
        body.append(Column(f"{channel.name}_W", "watts", i, _places(_power_step(channel, by_name))))
        body.append(Column(f"{channel.name}_J", "joules", i, joules))
    others = [
        Column(f"{c.name}_{c.unit}", "values", j, _places(c.smallest_step, 0))
        for j, c in enumerate(layout.values)
        if c.name not in used
    ]
    summed = [c for c in body if c.index in layout.in_total]
    index = 0 if layout.has_total else -1  # a zero would pass for a measurement
    units: dict[str, Array] = {"W": "watts", "J": "joules"}
    total = [
        Column(f"{TOTAL}_{unit}", array, index, max((c.places for c in summed if c.array == array), default=_JOULES))
        for unit, array in units.items()
    ]
    return (*total, *body, *others)


def powers_among(names: Iterable[str]) -> list[str]:
    """Return the powers that have a column, without unit, in order."""
    return [n.removesuffix("_W") for n in names if n.endswith("_W")]


def counted_among(names: Collection[str]) -> list[str]:
    """Return those of them whose energy has a column as well."""
    return [n for n in powers_among(names) if f"{n}_J" in names]


def one_word(name: str) -> str:
    """Return a name as it stands in a header whose fields are parted by blanks, and which is no CSV's."""
    return "_".join(name.replace(",", " ").split())


def column_names(layout: Layout) -> tuple[str, ...]:
    """Names of all columns of a file, in order."""
    return (*FIXED, *(c.name for c in columns(layout)))


def downsampled(facts: Mapping[str, Any]) -> bool:
    """Whether each row of a recording stands for an interval of a stream, as its metadata say."""
    return facts.get("interval_s") is not None and facts.get("polled_s") is None


def summed(facts: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the channels that make the total, as metadata say."""
    return [c["name"] for c in (facts or {}).get("channels", []) if c.get("in_total")]


def mean_powers(facts: Mapping[str, Any]) -> set[str]:
    """Return the names of the channels whose watts are means since the row before, as far as metadata say so."""
    every, means = downsampled(facts), {EnergyMethod.COUNTER.value, EnergyMethod.MEAN.value}
    return {c["name"] for c in facts.get("channels", []) if every or c.get("rule") in means}


def mean_columns(facts: Mapping[str, Any]) -> set[str]:
    """Return the names of the powers whose watts are such means: the total is one if all its parts are."""
    found, parts = mean_powers(facts), summed(facts)
    return found | {TOTAL} if parts and found.issuperset(parts) else found


def with_gap(frame: Frame, missing: int, marks: Iterable[str] = ()) -> Frame:
    """Add ``missing`` rows to the loss before the first row, and labels of rows that were dropped to that row."""
    lost = frame.lost.copy()
    lost[0] += missing
    return replace(frame, lost=lost, marks=(*((0, label) for label in marks), *frame.marks))
