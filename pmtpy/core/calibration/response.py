"""How a sensor follows time: its period, window, time constant and delay, and what undoes them in a region's rows.

SI in, SI out; nothing here fits or guesses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.core.calibration.curves import Number
from pmtpy.core.rows import Floats


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the sensor follows time, in seconds; None: not known. See docs/corrections.md for the symbols."""

    family: str = ""
    refresh_s: Number | None = None
    window_s: Number | None = None
    tau_s: Number | None = None
    delay_s: Number | None = None
    noise: Number | None = None

    @property
    def span_s(self) -> float | None:
        """Width of a boxcar that sees as much as the kernel does: its window, plus twice its time constant."""
        if self.window_s is None and self.tau_s is None:
            return None
        return (self.window_s.value if self.window_s else 0.0) + 2.0 * (self.tau_s.value if self.tau_s else 0.0)

    @property
    def end_s(self) -> Number:
        """Age of the kernel's end at the update; where it is not known, 0 give or take half a period (rectangular)."""
        if self.delay_s is not None:
            return self.delay_s
        return Number(0.0, (self.refresh_s.value if self.refresh_s is not None else 0.0) / math.sqrt(12.0))

    @property
    def lag_s(self) -> float | None:
        """Mean age of what a reading shows."""
        span = self.span_s
        return None if span is None else span / 2.0 + self.end_s.value


def invert_one_pole(t_s: Floats, watts: Floats, tau_s: float) -> Floats:
    """Undo a one-pole filter, exactly for a power that is constant between updates.

    Returns the mean power of each interval that *ends* at an update; the first one is the first reading itself. The
    variance of the noise grows by ``(1 + q) / (1 - q)``, ``q = exp(-dt / tau)``.
    """
    if tau_s == 0.0 or len(t_s) < 2:
        return np.array(watts, np.float64)
    q = np.exp(-np.diff(t_s) / tau_s)
    return np.concatenate([watts[:1], (watts[1:] - q * watts[:-1]) / (1.0 - q)])
