"""From what a sensor shows to what was there: calibration curves.

Curves are memoryless, so that they can be applied to any slice of a stream, before powers are formed and integrated.
SI in, SI out; nothing here fits or guesses. How a sensor follows time is
the business of :mod:`pmtpy.core.response`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.core.response import Number
from pmtpy.core.rows import Floats

_ONE, _ZERO = Number(1.0), Number(0.0)


@dataclass(frozen=True, slots=True)
class Affine:
    """The sensor shows ``gain * true + offset``; ``covariance`` is that of the two."""

    gain: Number = _ONE
    offset: Number = _ZERO
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


CalibrationCurve = Affine | Polynomial | Lookup
