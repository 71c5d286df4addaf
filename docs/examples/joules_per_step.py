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
    """Call :meth:`done` after each step.

    ``warm_up`` steps are left out: compilation, caches and a cold device belong to none of them. ``shared`` says who
    else draws from the same sensor; it is repeated in the report, because no sensor can divide its joules.
    """

    sensor: pmt.Sensor
    warm_up: int = 3
    wait: Callable[[], object] = lambda: None
    shared: str = ""
    joules: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    units: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wait()
        self._last, self._seen = self.sensor.read(), 0

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

    def per_unit(self) -> float:
        """Joules per unit over all steady steps; NaN before there are any."""
        units = math.fsum(self.units)
        return math.fsum(self.joules) / units if units else math.nan

    def report(self) -> str:
        """Say what a step and a unit cost; sums over many steps, because one may be shorter than the sensor sees."""
        if not self.joules:
            return f"no steady step yet: {self._seen} of {self.warm_up} warm-up steps"
        total, steps = math.fsum(self.joules), len(self.joules)
        text = f"{total / steps:.4g} J per step, {self.per_unit():.4g} J per unit, {steps} steady steps"
        text += f", {total / math.fsum(self.seconds):.4g} W ({min(self._seen, self.warm_up)} warm-up steps left out)"
        return text + (f"; shared with {self.shared}: these are the joules of all of them" if self.shared else "")
