"""What rows of our own recordings are held against: one clock, totals that are sums, energies that follow from powers.

The rule by which each channel's energy came about is in the metadata: a counter has moved by its power times the time
since it moved before, samples are joined by straight lines, means hold since the row before. Few rows that break the
rule are wrong in one of their fields (a digit was lost), and are noted; where many do, it is not the rule that the
recording was made by. Without metadata it is taken for the rule that the fewest rows break.
Whatever the rule, energies rise by what lies between the powers of neighbouring rows: columns that contradict each
other throughout are noted too. What recordings of all kinds are held against is in :mod:`pmtpy.io.read._check`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.channel import TOTAL, Derivation, EnergyMethod
from pmtpy.core.counters import TOO_SOON_SHARE
from pmtpy.core.numbers import real
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Ints
from pmtpy.io.columns import counted_among, downsampled, summed
from pmtpy.io.read import _check
from pmtpy.io.read._check import late
from pmtpy.io.read._recording import Recording

_OFF, _TIME_S, _JOULES = 0.03, 2e-6, 3e-6  # relative; of the two rounded times, and of the two rounded energies
_MOST_WRONG, _MOST_WRONG_SHARE = 4, 1e-3  # rows that may be wrong, and which share of all

_DIGIT = 1e-3  # what the last digit of volts, amperes and watts stands for at most
_PIECES, _PIECE = 16, 20_000  # stretches of rows, and rows of one, in which whole columns are held against each other
_COUNTER, _TRAPEZOID, _MEAN = (m.value for m in (EnergyMethod.COUNTER, EnergyMethod.TRAPEZOID, EnergyMethod.MEAN))
# Relative: of a counter, whose moves are spread over a refresh; and of sums of counters and of what is not known.
_LOOSELY, _BY_FAR = 0.3, 0.9
_MIN_ROWS = 10

Columns = dict[str, npt.NDArray[Any]]


@dataclass(slots=True)
class _Law:
    """One channel: its rule, its newest row, when it moved last, and what was found.

    A counter moves by its power times the time since it moved before, or, where that is less than its refresh, by that
    times up to a refresh, since it may have been used as evenly. Without metadata (``refresh_s`` is NaN) only what is
    off by far is told, and the usual time between moves is taken for the refresh.
    """

    name: str
    rule: str
    refresh_s: float
    last: tuple[float, float, float] | None = None  # time, watts, joules
    moved_s: float = np.nan
    rows: int = 0
    wrong: int = 0
    first: str = field(default="")

    @property
    def _told(self) -> bool:
        return bool(np.isfinite(self.refresh_s))

    def feed(self, t: Floats, watts: Floats, joules: Floats, unbroken: npt.NDArray[np.bool_], at: Ints) -> None:
        """Take the rows of a block; ``unbroken``: nothing is lost before a row."""
        if self.last is None:
            self.last = float(t[0]), float(watts[0]), float(joules[0])
        before = self.last
        t, watts, joules = (np.concatenate([[b], now]) for b, now in zip(before, (t, watts, joules), strict=True))
        self.last = float(t[-1]), float(watts[-1]), float(joules[-1])
        span, risen = np.diff(t), np.diff(joules)
        most_s = span
        if self.rule == _COUNTER:
            # A restart that shows no energy begins the count anew, at an instant that the row does not tell.
            anew = (risen == 0.0) & (np.isnan(watts[1:]) | ~unbroken)
            moves = np.flatnonzero((risen != 0.0) | anew)
            moved = np.where(anew[moves], np.nan, t[1:][moves])
            since = np.diff(moved, prepend=self.moved_s)
            self.moved_s = float(moved[-1]) if len(moved) else self.moved_s
            since[_left_as_it_was(since, watts, moves, self.refresh_s)] = np.nan
            span, most_s = np.full((2, len(span)), np.nan)
            most = self.refresh_s if self._told else 0.0
            if not self._told and np.isfinite(since).any():
                most = float(np.nanmedian(since))
            span[moves], most_s[moves] = since, np.maximum(since, most)
        mean = (watts[1:] + watts[:-1]) / 2 if self.rule == _TRAPEZOID else watts[1:]
        one, other = mean * span, mean * most_s
        expected = np.clip(risen, np.minimum(one, other), np.maximum(one, other))
        share = _OFF if self._told else _BY_FAR
        with np.errstate(invalid="ignore"):
            off = np.abs(risen - expected) > (
                share * np.maximum(np.abs(risen), np.abs(expected)) + _TIME_S * np.abs(mean) + _JOULES
            )
        off &= unbroken & (risen != 0.0)  # of time without known energy nothing is counted
        self.rows += len(span)
        found = np.flatnonzero(off)
        if len(found) and not self.wrong:
            i = int(found[0])
            self.first = (
                f"line {at[i]}: {self.name}_W is {watts[i + 1]:g} W and {self.name}_J has risen by {risen[i]:g} J"
                f" where {expected[i]:g} J belong to it"
            )
        self.wrong += len(found)


def _left_as_it_was(since: Floats, watts: Floats, moves: Ints, refresh_s: float) -> npt.NDArray[np.bool_]:
    """Of which moves a counter's power tells nothing: they came so soon that it was left as before."""
    left: npt.NDArray[np.bool_] = (since < TOO_SOON_SHARE * refresh_s) & (watts[1:][moves] == watts[:-1][moves])
    return left


@dataclass(slots=True)
class _Product:
    """One power that was formed from volts and amperes of the same row."""

    name: str
    scale: float
    rows: int = 0
    wrong: int = 0
    first: str = field(default="")

    def feed(self, columns: Columns, at: Ints) -> None:
        """Take the rows of a block."""
        volts, amperes, watts = (columns[f"{self.name}_{unit}"] for unit in "VAW")
        expected = volts * amperes * self.scale
        with np.errstate(invalid="ignore"):
            off = np.abs(watts - expected) > (
                _OFF * np.maximum(np.abs(watts), np.abs(expected)) + _DIGIT * (np.abs(volts) + np.abs(amperes) + 1.0)
            )
        self.rows += len(watts)
        found = np.flatnonzero(off)
        if len(found) and not self.wrong:
            i = int(found[0])
            self.first = (
                f"line {at[i]}: {self.name}_W is {watts[i]:g} W, {self.name}_V times {self.name}_A {expected[i]:g} W"
            )
        self.wrong += len(found)


class RowLaws:
    """What rows of ours are held against, block by block: one clock that goes on, totals that are sums."""

    def __init__(self, recording: Recording, names: list[str]) -> None:
        self._recording = recording
        self._last = -np.inf  # elapsed
        self._origin: float | None = None
        parts = summed(recording.facts)
        totals = {f"total_{unit}": [f"{n}_{unit}" for n in parts] for unit in "WJ"}
        # by total: columns of which it is the sum
        self._summed = {total: of for total, of in totals.items() if of and {total, *of} <= set(names)}

    def left(self, columns: Columns, at: Ints) -> npt.NDArray[np.bool_]:
        """Return which rows of the next block hold; the others are noted as broken lines."""
        left = _check.own_rows(self._recording, columns, at, self._last)
        good = columns if left.all() else {n: c[left] for n, c in columns.items()}
        if not left.any():
            return left
        at = at[left]
        self._last = float(good["elapsed"][-1])
        if self._origin is None:
            self._origin = float(good["time"][0] - good["elapsed"][0])
        _check.agree(self._recording, good["time"], good["elapsed"], at, self._origin)
        # A file that fails it is noted once.
        for total, of in list(self._summed.items()):
            if _check.sums(self._recording, total, good[total], [good[n] for n in of], at, last_digit=_DIGIT):
                del self._summed[total]
        return left


class EnergyLaws:
    """What rows of ours are held against, block by block; :meth:`end` notes what was found."""

    def __init__(self, recording: Recording, names: list[str]) -> None:
        self._recording = recording
        facts = recording.facts or {}
        every = downsampled(facts)
        self._laws: list[_Law] = []
        self._products: list[_Product] = []
        self._guesses: list[list[_Law]] = []  # of channels that no metadata tell of: each rule it may be made by
        converted = bool(facts.get("converted_from"))  # its rows may be means over time without a known energy
        if not converted and not facts.get("channels"):
            powers = counted_among(names)
            parts = [n for n in powers if n != TOTAL] or powers  # a total is made by several rules at once
            self._guesses = [[_Law(n, method.value, np.nan) for method in EnergyMethod] for n in parts]
        for channel in facts.get("channels", []) if not converted else []:
            name, rule, refresh_s = channel["name"], channel.get("rule"), channel.get("refresh_s")
            if isinstance(rule, str) and {f"{name}_W", f"{name}_J"} <= set(names):
                self._laws.append(_Law(name, _MEAN if every else rule, real(refresh_s) or 0.0))
            made_of = {f"{name}_{unit}" for unit in "VAW"}
            if channel.get("form") == Derivation.PRODUCT.value and not every and made_of <= set(names):
                scale = real(channel.get("scale"))
                self._products.append(_Product(name, 1.0 if scale is None else scale))

    def feed(self, columns: Columns, at: Ints) -> None:
        """Take the next rows."""
        for product in self._products:
            product.feed(columns, at)
        laws = [*self._laws, *itertools.chain(*self._guesses)]
        if laws and len(at):
            unbroken = columns["lost"] == 0
            for law in laws:
                law.feed(columns["elapsed"], columns[f"{law.name}_W"], columns[f"{law.name}_J"], unbroken, at)

    def end(self) -> None:
        """Note rows of which one field must be wrong."""
        likely = [min(guesses, key=lambda law: law.wrong) for guesses in self._guesses]
        held: list[_Law | _Product] = [*self._laws, *likely, *self._products]
        for law in held:
            if 0 < law.wrong <= max(_MOST_WRONG, _MOST_WRONG_SHARE * law.rows):
                more = f" (and {amount(law.wrong - 1, 'more such row')})" if law.wrong > 1 else ""
                self._recording.notes.append(
                    f"{law.first}{more}: one of them is wrong; copy the file again from its source"
                )


class Contradictions:
    """Which energies do not follow from the powers beside them, beyond what happens between two rows.

    Between the powers of two neighbouring rows lies what was added between them; the watts of a counter hold since it
    moved before. Of a total that counters are in, and of columns without metadata, only what is off by far is told:
    its watts are those of several moves. (That a total is the sum of its parts is held against them elsewhere.)
    """

    def __init__(self, facts: dict[str, Any] | None, names: Iterable[str]) -> None:
        self._channels = {c["name"]: (c.get("rule"), c.get("refresh_s")) for c in (facts or {}).get("channels", [])}
        self._sums = dict.fromkeys(counted_among(list(names)), (0.0, 0.0, 0.0))  # of each: low, high, risen
        self._rows = self._stretches = 0

    def feed(self, columns: Columns) -> None:
        """Take a stretch of rows, of which not more than the first are looked at."""
        t, lost = columns["elapsed"][:_PIECE], columns["lost"][:_PIECE]
        self._rows, self._stretches = self._rows + len(t), self._stretches + 1
        whole = lost[1:] == 0
        holes, _ = late(np.diff(t), np.diff(t))  # time without known energy, where nothing was counted over them
        for name, sums in self._sums.items():
            watts, joules = columns[f"{name}_W"][:_PIECE], columns[f"{name}_J"][:_PIECE]
            known = whole & np.isfinite(joules[1:] + joules[:-1] + watts[1:])
            known[holes] &= joules[holes + 1] != joules[holes]
            rule, refresh_s = self._channels.get(name, (None, None))
            own_s = (real(refresh_s) or 0.0) if rule == _COUNTER else None
            more = _between(t, watts, joules, known) if own_s is None else _moved(t, watts, joules, known, own_s)
            low, high, risen = (had + new for had, new in zip(sums, more, strict=True))
            self._sums[name] = low, high, risen

    def notes(self) -> list[str]:
        """Say which, by the stretches that were taken."""
        found = []
        for name, (low, high, risen) in self._sums.items() if self._rows >= _MIN_ROWS else ():
            rule, _ = self._channels.get(name, (None, None))
            share = _OFF if rule in {_TRAPEZOID, _MEAN} else _LOOSELY if rule == _COUNTER else _BY_FAR
            # Each bound by itself: where the load moves between all rows the two lie far apart, and beside the high one
            # the low one would be nothing.
            below, above = (share * max(abs(risen), abs(end)) + _JOULES * self._stretches for end in (low, high))
            if not low - below <= risen <= high + above:
                found.append(
                    f"{name}_J rises by {risen:.4g} J where {name}_W makes {(low + high) / 2.0:.4g} J: one of the two "
                    "columns is wrong (of another unit, or another part?), and which is not known"
                )
        return found


def contradictions(facts: dict[str, Any] | None, columns: Columns) -> list[str]:
    """Say which energies of whole columns do not follow from the powers beside them, by some stretches of rows."""
    held, rows = Contradictions(facts, columns), len(columns["elapsed"])
    for start in np.unique(np.linspace(0, max(0, rows - _PIECE), _PIECES).astype(np.int64)).tolist():
        held.feed({n: values[start : start + _PIECE] for n, values in columns.items()})
    return held.notes()


def _between(t: Floats, watts: Floats, joules: Floats, known: npt.NDArray[np.bool_]) -> tuple[float, float, float]:
    """Least and greatest energy by the powers at both ends of intervals, and what was counted in them."""
    known = known & np.isfinite(watts[:-1])
    ends = [of[known] * np.diff(t)[known] for of in (watts[1:], watts[:-1])]
    low, high = np.minimum(*ends), np.maximum(*ends)
    return float(low.sum()), float(high.sum()), float(np.diff(joules)[known].sum())


def _moved(
    t: Floats, watts: Floats, joules: Floats, known: npt.NDArray[np.bool_], refresh_s: float
) -> tuple[float, float, float]:
    """Energy of a counter by its powers since it moved before, or over a refresh, and what was counted."""
    risen, broken = np.diff(joules), np.cumsum(~known)
    moves = np.flatnonzero(known & (risen != 0.0))
    since, told = np.diff(t[1:][moves]), np.diff(broken[moves]) == 0
    told &= ~_left_as_it_was(since, watts, moves[1:], refresh_s)
    least = (watts[1:][moves][1:] * since)[told]
    most = (watts[1:][moves][1:] * np.maximum(since, refresh_s))[told]
    return float(least.sum()), float(most.sum()), float(risen[moves][1:][told].sum())
