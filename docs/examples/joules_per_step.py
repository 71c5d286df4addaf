"""Joules per step, epoch and token of a training loop, or per request of a server, in the steady part alone.

Copy it beside your program. `Steps` reads the sensor once per step, which costs microseconds to milliseconds (one
reading of the sensor), and waits for the device only if it is told how.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pmtpy as pmt


@dataclass
class Steps:
    """Call :meth:`done` after each step, and :meth:`epoch` after each epoch.

    ``warm_up`` steps are left out: compilation, caches and a cold device belong to none of them. So are ``tail`` steps
    at the end: of a server that empties, the last batches are not full. ``shared`` says who else draws from the same
    sensor; it is repeated in the report, because no sensor can divide its joules.
    """

    sensor: pmt.Sensor
    warm_up: int = 3
    tail: int = 0
    wait: Callable[[], object] = lambda: None
    shared: str = ""
    joules: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    units: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wait()
        self._last, self._seen, self._counted = self.sensor.read(), 0, 0

    def done(self, units: float = 1.0) -> None:
        """Say that a step ended, which made so many units (tokens, samples, requests)."""
        self.wait()
        now = self.sensor.read()
        self._seen += 1
        if self._seen > self.warm_up:
            self.joules.append(pmt.joules(self._last, now))
            self.seconds.append(pmt.seconds(self._last, now))
            self.units.append(units)
        self._last = now

    def epoch(self) -> float:
        """Say that an epoch ended; return the joules of its steady steps."""
        self.epochs.append(math.fsum(self.joules[self._counted :]))
        self._counted = len(self.joules)
        return self.epochs[-1]

    def _steady(self, each: list[float]) -> float:
        return math.fsum(each[: max(0, len(each) - self.tail)])

    def per_unit(self) -> float:
        """Joules per unit over all steady steps; NaN before there are any."""
        units = self._steady(self.units)
        return self._steady(self.joules) / units if units else math.nan

    def report(self) -> str:
        """Say what a step and a unit cost; sums over many steps, because one may be shorter than the sensor sees."""
        steps = len(self.joules) - self.tail
        if steps <= 0:
            return f"no steady step yet: {self._seen} steps; {self.warm_up} warm up, {self.tail} are the tail"
        total = self._steady(self.joules)
        text = f"{total / steps:.4g} J per step, {self.per_unit():.4g} J per unit, {steps} steady steps"
        text += f", {total / self._steady(self.seconds):.4g} W ({self.warm_up} warm-up steps left out"
        text += f", {self.tail} at the end)" if self.tail else ")"
        return text + (f"; shared with {self.shared}: these are the joules of all of them" if self.shared else "")
