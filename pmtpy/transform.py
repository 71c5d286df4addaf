"""From what a sensor shows to what was there: calibration curves, and how a sensor follows time.

Curves are memoryless, so that they can be applied to any slice of a stream, before powers are formed and integrated;
what undoes a sensor's memory is applied to a region's rows afterwards. SI in, SI out; nothing here fits or guesses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.model import Floats


@dataclass(frozen=True, slots=True)
class Number:
    """A value and its standard uncertainty, in the unit of its field."""

    value: float
    u: float = 0.0


@dataclass(frozen=True, slots=True)
class Affine:
    """The sensor shows ``gain * true + offset``; ``covariance`` is that of the two."""

    gain: Number = Number(1.0)
    offset: Number = Number(0.0)
    covariance: float = 0.0

    def true(self, shown: Floats) -> Floats:
        """Invert: what was there when the sensor showed ``shown``."""
        return np.asarray((shown - self.offset.value) / self.gain.value, np.float64)

    def slope(self, shown: float) -> float:  # noqa: ARG002  (the same everywhere)
        """Change of the true value with the one shown."""
        return 1.0 / self.gain.value


@dataclass(frozen=True, slots=True)
class Polynomial:
    """True value as a polynomial of the one shown, lowest power first; ``u`` is relative, ``zero_u`` in SI."""

    coefficients: tuple[float, ...]
    u: float = 0.0
    zero_u: float = 0.0

    def true(self, shown: Floats) -> Floats:
        """Evaluate the polynomial."""
        return np.asarray(np.polynomial.polynomial.polyval(shown, np.asarray(self.coefficients)), np.float64)

    def slope(self, shown: float) -> float:
        """Change of the true value with the one shown."""
        derivative = np.polynomial.polynomial.polyder(np.asarray(self.coefficients))
        return float(np.polynomial.polynomial.polyval(shown, derivative))


@dataclass(frozen=True, slots=True)
class Lookup:
    """True values at a row of shown ones, joined by straight lines and continued by the outermost ones."""

    shown: tuple[float, ...]
    values: tuple[float, ...]
    u: float = 0.0
    zero_u: float = 0.0

    def true(self, shown: Floats) -> Floats:
        """Interpolate; beyond the ends go on with the slope of the last piece."""
        x, y = np.asarray(self.shown), np.asarray(self.values)
        i = np.clip(np.searchsorted(x, shown) - 1, 0, len(x) - 2)
        return np.asarray(y[i] + (shown - x[i]) * (y[i + 1] - y[i]) / (x[i + 1] - x[i]), np.float64)

    def slope(self, shown: float) -> float:
        """Change of the true value with the one shown."""
        i = int(np.clip(np.searchsorted(self.shown, shown) - 1, 0, len(self.shown) - 2))
        return (self.values[i + 1] - self.values[i]) / (self.shown[i + 1] - self.shown[i])


Curve = Affine | Polynomial | Lookup


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


@dataclass(frozen=True, slots=True)
class Lateness:
    """What is taken back of how a sensor follows time when the energy of a region is found.

    Attributes
    ----------
    shift_s : float
        The curve is read so much later than the region's ends.
    tau_s : float
        Time constant of a one-pole that is inverted; 0: none is.
    u_s : float
        Standard uncertainty of the two together.
    """

    shift_s: float
    tau_s: float
    u_s: float


def invert_one_pole(t_s: Floats, watts: Floats, tau_s: float) -> Floats:
    """Undo a one-pole filter, exactly for a power that is constant between updates.

    Returns the mean power of each interval that *ends* at an update; the first one is the first reading itself. The
    variance of the noise grows by ``(1 + q) / (1 - q)``, ``q = exp(-dt / tau)``.
    """
    if tau_s == 0.0 or len(t_s) < 2:
        return np.array(watts, np.float64)
    q = np.exp(-np.diff(t_s) / tau_s)
    return np.concatenate([watts[:1], (watts[1:] - q * watts[:-1]) / (1.0 - q)])
