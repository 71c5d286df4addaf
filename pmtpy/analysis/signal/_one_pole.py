"""A curve of constant pieces behind a one-pole filter, at any instant.

The recursion over its knots is exact, but a meter has hundreds of them within a time constant. There the curve is taken
in even cells of an eighth to a sixteenth of the time constant, by its mean and its first moment in each: what
higher moments would add is a hundred-thousandth of the swing. Both moments are differences of integrals that are
known at any instant, so that the last cell may end anywhere. Pure; times are seconds, powers watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.core.rows import Floats, Ints

_CELLS = 8.0  # in a time constant, at the least
_MIN_KNOTS_PER_CELL = 2.0  # knots that a cell must have to be worth its while
_STATES = 4  # that a search comes back to: two values at hand, and a step from each


def place(knots_s: Floats, at_s: Floats) -> Ints:
    """Return the piece between knots in which each instant lies; beyond the ends the first or the last."""
    return np.clip(np.searchsorted(knots_s, at_s, side="right") - 1, 0, len(knots_s) - 2)


class OnePole:
    """The filter behind one curve, at rest until its first level ends. Keeps states for the last time constants."""

    def __init__(self, knots_s: Floats, watts: Floats) -> None:
        self._begin_s, self._p = float(knots_s[1]), watts
        self._t = np.asarray(knots_s - self._begin_s, np.float64)  # since an epoch, ages would be rounded
        self._usual_s = float(np.median(np.diff(knots_s)))
        self._whole: _Integrals | None = None
        self._cells: dict[float, _Cells] = {}
        self._states: dict[float, Floats] = {}

    def __call__(self, at_s: Floats, tau_s: float) -> Floats:
        """Return the power behind the filter."""
        at_s = np.asarray(at_s - self._begin_s, np.float64)
        length = 2.0 ** math.floor(math.log2(tau_s / _CELLS))
        if length < _MIN_KNOTS_PER_CELL * self._usual_s:
            x, i = self._state(tau_s, None), place(self._t, at_s)
            fade = np.exp(-np.maximum(at_s - self._t[i], 0.0) / tau_s)
            return np.asarray(self._p[i] + (x[i] - self._p[i]) * fade, np.float64)
        whole = self._integrals()
        if length not in self._cells:
            self._cells[length] = _Cells.of(whole, length)
        cells = self._cells[length]
        return cells.behind(self._state(tau_s, cells), whole, at_s, tau_s)

    def triangle(self, at_s: Floats, base_s: float) -> Floats:
        """Return the mean power before each instant under a triangle, which is two boxcars of half its base."""
        whole, half, at = self._integrals(), base_s / 2.0, at_s - self._begin_s
        late, middle, early = (whole.at(np.asarray(at - age, np.float64))[1] for age in (0.0, half, base_s))
        return np.asarray(whole.mean + (late - 2.0 * middle + early) / half**2, np.float64)

    def _integrals(self) -> _Integrals:
        if self._whole is None:
            self._whole = _Integrals.of(self._t, self._p)
        return self._whole

    def _state(self, tau_s: float, cells: _Cells | None) -> Floats:
        if tau_s not in self._states:
            if len(self._states) == _STATES:
                del self._states[next(iter(self._states))]  # the oldest
            self._states[tau_s] = _exact(self._t, self._p, tau_s) if cells is None else cells.states(tau_s)
        return self._states[tau_s]


@dataclass(frozen=True, slots=True)
class _Integrals:
    """A curve less its mean, its integral from the second knot on, and the integral of that, at the knots."""

    t: Floats
    p: Floats
    once: Floats
    twice: Floats
    mean: float

    @staticmethod
    def of(t: Floats, power: Floats) -> _Integrals:
        mean = float(np.mean(power[1:-1])) if len(power) > 2 else float(power[0])
        p, gaps = power - mean, np.diff(t)
        # From the second knot on: the first lies so far off that sums from it would be rounded by what it adds.
        rise = p * gaps
        once = np.cumsum(np.append(-rise[0], rise))
        area = (once[:-1] + rise / 2.0) * gaps
        twice = np.cumsum(np.append(-area[0], area))
        return _Integrals(t, np.asarray(p, np.float64), once, twice, mean)

    def at(self, t: Floats) -> tuple[Floats, Floats]:
        """Return both integrals at instants."""
        i = place(self.t, t)
        knot = np.maximum(i, 1)
        since = t - self.t[knot]
        rise = self.p[i] * since
        once, twice = self.once[knot] + rise, self.twice[knot] + (self.once[knot] + rise / 2.0) * since
        return np.asarray(once, np.float64), np.asarray(twice, np.float64)


@dataclass(frozen=True, slots=True)
class _Cells:
    """A curve in even cells: both integrals at their ends, and the mean and the first moment in each."""

    begin_s: float
    length_s: float
    first: float  # level before
    once: Floats
    twice: Floats
    means: Floats
    moments: Floats

    @staticmethod
    def of(whole: _Integrals, length_s: float) -> _Cells:
        begin = float(whole.t[1])
        cells = math.ceil((float(whole.t[-2]) - begin) / length_s) + 1
        t = np.asarray(begin + length_s * np.arange(cells + 1), np.float64)
        once, twice = whole.at(t)
        means = np.diff(once) / length_s
        moments = length_s * (once[1:] + once[:-1]) / 2.0 - np.diff(twice)
        return _Cells(begin, length_s, float(whole.p[0]), once, twice, np.asarray(means), np.asarray(moments))

    def states(self, tau_s: float) -> Floats:
        """Return the filter at the ends of the cells: each keeps a share of the one before."""
        from scipy.linalg.blas import dtbsv

        kept, half = math.exp(-self.length_s / tau_s), math.exp(-self.length_s / (2.0 * tau_s))
        states = np.empty(len(self.once))
        states[0] = self.first
        np.add((1.0 - kept) * self.means, (half / tau_s**2) * self.moments, out=states[1:])
        band = np.full((2, len(states)), -kept, order="F")
        return np.asarray(dtbsv(1, band, states, lower=1, diag=1, overwrite_x=1), np.float64)

    def behind(self, states: Floats, whole: _Integrals, at_s: Floats, tau_s: float) -> Floats:
        """Return the filter at instants: what is left of the cell before, and what the part of this one adds."""
        at = np.maximum(at_s, self.begin_s)
        i = np.minimum((at - self.begin_s) / self.length_s, len(self.once) - 1.0).astype(np.intp)
        since = at - (self.begin_s + self.length_s * i)
        once, twice = whole.at(np.asarray(at, np.float64))
        moment = since * (once + self.once[i]) / 2.0 - (twice - self.twice[i])
        share = np.divide(
            -np.expm1(-since / tau_s), since, out=np.full(np.shape(since), 1.0 / tau_s), where=since > 0.0
        )
        added = share * (once - self.once[i]) + np.exp(-since / (2.0 * tau_s)) * moment / tau_s**2
        return np.asarray(whole.mean + states[i] * np.exp(-since / tau_s) + added, np.float64)


def _exact(t: Floats, power: Floats, tau_s: float) -> Floats:
    """State of the filter at the knots, starting from rest at the first level.

    The recursion ``x[j+1] = P[j] + q[j] (x[j] - P[j])`` is a triangular system with one band beside the diagonal.
    """
    from scipy.linalg.blas import dtbsv

    band = np.ones((2, len(t)), order="F")
    kept = band[1, :-1]
    np.divide(t[1:] - t[:-1], -tau_s, out=kept)
    np.exp(kept, out=kept)
    states = np.empty(len(t))
    states[0] = power[0]
    np.subtract(1.0, kept, out=states[1:])
    states[1:] *= power
    np.negative(kept, out=kept)
    return np.asarray(dtbsv(1, band, states, lower=1, diag=1, overwrite_x=1), np.float64)
