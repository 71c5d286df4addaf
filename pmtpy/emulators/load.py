"""Loads: power as a function of time with its integral in closed form. The truth against which sensors are judged.

Times are seconds since the epoch of the emulated world (float64 arrays or scalars), powers watts, energies joules.
A load is written as ``kind:key=value,...``: see :func:`parse_load`.
"""

from __future__ import annotations

import csv
import math
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np

from pmtpy.core.arguments import number
from pmtpy.core.rows import Floats
from pmtpy.errors import TargetError

_MOST_SLOTS = 10_000_000  # of a random load: 160 MB
_LARGEST_NUMBER = 1e15  # of any number in the text of a load: a seed is an exact one up to there
_Indices = np.ndarray[tuple[int, ...], np.dtype[np.intp]]


class Load(Protocol):
    """Power over time, and its integral from time 0."""

    def watts(self, t_s: Floats) -> Floats:
        """Power in watts at each instant."""
        ...

    def joules(self, t_s: Floats) -> Floats:
        """Integral of the power from 0 to each instant, in joules (negative before 0)."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same power always."""

    level: float = 60.0

    def watts(self, t_s: Floats) -> Floats:
        """Power in watts at each instant."""
        return np.full(np.shape(t_s), self.level)

    def joules(self, t_s: Floats) -> Floats:
        """Integral from 0, joules."""
        return self.level * np.asarray(t_s, np.float64)


@dataclass(frozen=True, slots=True)
class Square:
    """``high`` during the first ``duty`` of each period, then ``low``.

    Or not at once: for ``hold`` seconds, at most until the next period, ``stay`` of the drop remains. So a GPU keeps
    its clocks for a while after a load (150 W against 127 W on an RTX 3090: Yang et al., arXiv 2312.02741, data).
    """

    low: float = 30.0
    high: float = 90.0
    hz: float = 1.0
    duty: float = 0.5
    hold: float = 0.0
    stay: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what is no square wave."""
        for name, most in (("duty", 1.0), ("stay", 1.0), ("hold", math.inf)):
            number(
                getattr(self, name), f"the {name} of a square load, a number from 0 to {most:g}", least=0.0, most=most
            )

    def watts(self, t_s: Floats) -> Floats:
        """Power in watts at each instant."""
        phase = np.asarray(t_s, np.float64) * self.hz
        part = phase - np.floor(phase)
        held = np.where(part < self.duty + self.hold * self.hz, self.stay, 0.0)
        return self.low + (self.high - self.low) * np.where(part < self.duty, 1.0, held)

    def joules(self, t_s: Floats) -> Floats:
        """Integral from 0, joules."""
        phase = np.asarray(t_s, np.float64) * self.hz
        whole = np.floor(phase)
        part, tail = phase - whole, min(self.hold * self.hz, 1.0 - self.duty)
        on = whole * self.duty + np.minimum(part, self.duty)
        held = whole * tail + np.clip(part - self.duty, 0.0, tail)
        return self.low * np.asarray(t_s, np.float64) + (self.high - self.low) * (on + self.stay * held) / self.hz


@dataclass(frozen=True, slots=True)
class Sine:
    """A sine between ``low`` and ``high``, at its mean and rising at time 0."""

    low: float = 30.0
    high: float = 90.0
    hz: float = 1.0

    def watts(self, t_s: Floats) -> Floats:
        """Power in watts at each instant."""
        mean, amplitude = (self.high + self.low) / 2, (self.high - self.low) / 2
        return mean + amplitude * np.sin(2 * math.pi * self.hz * np.asarray(t_s, np.float64))

    def joules(self, t_s: Floats) -> Floats:
        """Integral from 0, joules."""
        t = np.asarray(t_s, np.float64)
        mean, amplitude, omega = (self.high + self.low) / 2, (self.high - self.low) / 2, 2 * math.pi * self.hz
        return mean * t + amplitude * (1 - np.cos(omega * t)) / omega


@dataclass(frozen=True, slots=True)
class Ramp:
    """A sawtooth: from ``low`` to ``high`` in each period, then back at once."""

    low: float = 30.0
    high: float = 90.0
    hz: float = 1.0

    def watts(self, t_s: Floats) -> Floats:
        """Power in watts at each instant."""
        phase = np.asarray(t_s, np.float64) * self.hz
        return self.low + (self.high - self.low) * (phase - np.floor(phase))

    def joules(self, t_s: Floats) -> Floats:
        """Integral from 0, joules."""
        phase = np.asarray(t_s, np.float64) * self.hz
        whole = np.floor(phase)
        part = phase - whole
        return self.low * np.asarray(t_s, np.float64) + (self.high - self.low) * (whole + part * part) / (2 * self.hz)


class Table:
    """Steps: ``watts[i]`` from ``starts_s[i]`` until the next start; the last one lasts for ever.

    Serves both ``steps`` and a recorded trace, and any load that can be written as steps (a pseudo-random one).
    """

    def __init__(self, starts_s: Floats, watts: Floats) -> None:
        starts = np.asarray(starts_s, np.float64)
        levels = np.asarray(watts, np.float64)
        known = len(starts) == len(levels) > 0 and bool(np.isfinite(starts).all() and np.isfinite(levels).all())
        if not known or np.any(np.diff(starts) <= 0):
            msg = (
                "a load that is a table of steps needs as many powers as starts, all numbers, and starts that increase"
            )
            raise TargetError(msg)
        self._starts, self._watts = starts, levels
        cumulative = np.concatenate([[0.0], np.cumsum(levels[:-1] * np.diff(starts))])
        self._joules = cumulative - self._integral(np.zeros(1), cumulative)[0]

    def _place(self, t_s: Floats) -> _Indices:
        return np.clip(np.searchsorted(self._starts, t_s, side="right") - 1, 0, len(self._starts) - 1)

    def _integral(self, t_s: Floats, cumulative: Floats) -> Floats:
        i = self._place(t_s)
        return np.asarray(cumulative[i] + self._watts[i] * (t_s - self._starts[i]), np.float64)

    def watts(self, t_s: Floats) -> Floats:
        """Power in watts at each instant."""
        return np.asarray(self._watts[self._place(np.asarray(t_s, np.float64))], np.float64)

    def joules(self, t_s: Floats) -> Floats:
        """Integral from 0, joules."""
        return self._integral(np.asarray(t_s, np.float64), self._joules)


class Work:
    """``high`` while the program works, else ``low``: the program says when, by ``pmtpy.emulators.work``."""

    def __init__(self, low: float = 30.0, high: float = 90.0) -> None:
        self._low, self._rise = low, high - low
        self._lock = threading.Lock()
        self._working = 0
        self._switched: list[float] = []  # seconds; on at the first, off at the second, ...

    def begin(self, t_s: float) -> None:
        """Let the power be high from now on; what overlaps is high until the last of it ends."""
        with self._lock:
            self._working += 1
            if self._working == 1:
                self._switched.append(t_s)

    def end(self, t_s: float) -> None:
        """End what was begun."""
        with self._lock:
            self._working -= 1
            if self._working == 0:
                self._switched.append(t_s)

    def _switches(self) -> Floats:
        with self._lock:
            return np.array(self._switched, np.float64)

    def watts(self, t_s: Floats) -> Floats:
        """Power in watts at each instant, as far as it is past."""
        high = np.searchsorted(self._switches(), t_s, side="right") % 2
        return np.asarray(self._low + self._rise * high, np.float64)

    def joules(self, t_s: Floats) -> Floats:
        """Integral from 0, joules."""
        t, switches = np.asarray(t_s, np.float64), self._switches()
        signs = np.where(np.arange(len(switches)) % 2, -1.0, 1.0)
        since = np.maximum(t[..., None] - switches, 0.0)
        return np.asarray(self._low * t + self._rise * (since @ signs), np.float64)


def pseudo_random(low: float, high: float, hz: float, seconds: float, seed: int) -> Table:
    """Make a load that is ``low`` or ``high`` at random in each slot of ``1 / hz`` seconds, repeatable by seed."""
    n = round(seconds * hz)
    if not (hz > 0.0 and 0 < n <= _MOST_SLOTS and seed >= 0):
        given = f"hz={hz:g}, seconds={seconds:g}, seed={seed}"
        msg = f"a random load has 1 to {_MOST_SLOTS:,} slots, hz x seconds, and a seed of 0 or more: not {given}"
        raise TargetError(msg)
    bits = np.random.default_rng(seed).integers(0, 2, n)
    return Table(np.arange(n) / hz, np.where(bits, high, low))


_KINDS: dict[str, type[Constant | Square | Sine | Ramp]] = {
    "constant": Constant,
    "square": Square,
    "sine": Sine,
    "ramp": Ramp,
}
_HELP = (
    "constant:60 | square:low=30,high=90,hz=2,duty=0.5,hold=0,stay=0.2 | sine:low=30,high=90,hz=2 | "
    "ramp:low=30,high=90,hz=2 | steps:0=30,1.5=90,... (start in seconds = watts) | "
    "random:low=30,high=90,hz=10,seconds=60,seed=1 | work:low=30,high=90 (by pmtpy.emulators.work) | "
    "csv:PATH (columns of any recording with time and total_W, or two columns seconds,watts)"
)


def _numbers(text: str, spec: str) -> dict[str, float]:
    pairs: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        try:
            parsed = float(value if equals else key)
        except ValueError:
            parsed = math.nan
        if not abs(parsed) <= _LARGEST_NUMBER:
            msg = f"load {spec!r}: {item!r} is no number up to {_LARGEST_NUMBER:g}; a load is {_HELP}"
            raise TargetError(msg)
        pairs[key if equals else "level"] = parsed
    return pairs


def _recorded(path: str, spec: str) -> Table:
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            names, *rows = [*csv.reader(file)] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        msg = f"load {spec!r}: cannot read {path}: {error}"
        raise TargetError(msg) from error
    time = next((n for n in ("elapsed", "time", "seconds", "t_s") if n in names), "")
    power = next((n for n in ("total_W", "watts", "power", "power_total") if n in names), "")
    if not time or not power or not rows:
        msg = f"load {spec!r}: {path} needs columns elapsed or time, and total_W or watts, and rows"
        raise TargetError(msg)
    i, j = names.index(time), names.index(power)
    try:
        pairs = np.array([(float(row[i]), float(row[j])) for row in rows], np.float64)
        return Table(pairs[:, 0] - pairs[0, 0], pairs[:, 1])
    except (IndexError, ValueError) as error:
        msg = f"load {spec!r}: {path} has a row that is not a time with a power: {error}"
        raise TargetError(msg) from error


def parse_load(spec: str) -> Load:
    """Make a load from its text.

    Raises TargetError: unknown kind, unknown or malformed parameter, unreadable recording. The message shows the
    grammar.
    """
    kind, _, rest = spec.partition(":")
    if kind == "csv":
        return _recorded(rest, spec)
    if not rest and kind.replace(".", "", 1).isdecimal():
        return Constant(float(kind))
    numbers = _numbers(rest, spec)
    if kind == "steps":
        try:
            return Table(np.array([float(k) for k in numbers]), np.array(list(numbers.values())))
        except ValueError:
            msg = f"load {spec!r}: steps are written start=watts; a load is {_HELP}"
            raise TargetError(msg) from None
    if kind == "random":
        known = {"low": 30.0, "high": 90.0, "hz": 10.0, "seconds": 60.0, "seed": 1.0}
        if not numbers.keys() - known.keys():
            p = {**known, **numbers}
            return pseudo_random(p["low"], p["high"], p["hz"], p["seconds"], int(p["seed"]))
    elif kind == "work" and not numbers.keys() - {"low", "high"}:
        return Work(**numbers)
    elif kind in _KINDS:
        maker = _KINDS[kind]
        if not numbers.keys() - {f.name for f in fields(maker)} and numbers.get("hz", 1.0) > 0:
            return maker(**numbers)
    msg = f"no load {spec!r}; a load is {_HELP}"
    raise TargetError(msg)
