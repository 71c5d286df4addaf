"""Power over time as a curve with an exact integral, and what a response kernel makes of it.

A curve is constant between its knots. Its mean over any window and its response to a one-pole filter are then exact
for any sampling: no resampling, no grid. Pure; times are seconds on one clock, powers watts (or 0 and 1 for a load).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.updates import MIN_UPDATES
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.moves import moved
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_HELD_ENDS_S = 3600.0  # how far the ends of a curve are held: longer than any kernel
OFF_S = 2.0  # a load is known to be off for at least this long before its first and after its last edge
HOLE = 10.0  # usual intervals without a row, after which nothing is known of the time between (docs/file-formats.md)
_REACHED = 0.01  # share of a kernel that lies where nothing is known, beyond which a reading tells nothing
_KNOTS_PER_TAU = 32.0  # of a curve behind a one-pole, at the least: it is off by 1e-4 of a swing then
_STATES = 4  # that a search comes back to: two values at hand, and a step from each
_END_S = 0.1  # the level held beyond an end is the median over this much of the curve


def _in_order(
    t_s: Floats, values: Floats, what: str, among: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.bool_]:
    """Return which come after the one before, of all or of those ``among`` them, if they make a curve."""
    keep = np.ones(len(t_s), np.bool_) if among is None else among
    t = t_s if keep.all() else t_s[keep]
    if len(t):
        keep[keep] = np.concatenate([[True], t[1:] > t[:-1]])
    many = int(np.count_nonzero(keep))
    if many < 3 or not np.all(np.isfinite(values)[keep]):
        msg = f"{many} {what} in order of time are too few, or are not all numbers"
        raise DeclinedError(msg)
    return keep


def _with_ends(values: Floats, keep: npt.NDArray[np.bool_]) -> Floats:
    """Return those that are kept between two places for the ends of a curve; without a copy beside this where all are.

    A meter has millions of samples.
    """
    room = np.empty(int(np.count_nonzero(keep)) + 2)
    room[1:-1] = values if keep.all() else values[keep]
    return room


@dataclass(frozen=True, slots=True)
class PowerTrace:
    """Power that is constant between knots, with its ends held at their levels."""

    t_s: Floats  # shape (n + 1,); knots. The first and the last lie far outside what was recorded.
    joules: Floats  # shape (n + 1,); cumulative energy at the knots
    # the part that was recorded
    start_s: float
    end_s: float
    late_s: float = 0.0  # of samples: standard error of when power changed, somewhere between two of them
    holes_s: Floats = field(default_factory=lambda: np.empty((0, 2)))  # shape (m, 2); parts of which nothing is known

    @staticmethod
    def from_samples(t_s: Floats, watts: Floats) -> PowerTrace:
        """Make a curve of samples in order of time: between two samples the mean of both."""
        t, p = np.asarray(t_s, np.float64), np.asarray(watts, np.float64)
        keep = _in_order(t, p, "samples of a reference")
        t, p = t[keep], p[keep]
        head = float(np.median(p[t <= t[0] + _END_S]))
        tail = float(np.median(p[t >= t[-1] - _END_S]))
        late = float(np.median(np.diff(t))) / math.sqrt(12.0)
        levels = np.concatenate([[head], (p[1:] + p[:-1]) / 2.0, [tail]])
        return replace(PowerTrace.of_levels(t, levels), late_s=late)

    @staticmethod
    def from_energy(t_s: Floats, joules: Floats) -> PowerTrace:
        """Make a curve of readings of a counter in order of time: between two readings their mean power."""
        return PowerTrace._counted(t_s, joules, None)

    @staticmethod
    def of_counter(t_s: Floats, joules: Floats) -> PowerTrace:
        """Make a curve of rows of a counter in order of time: one that rests has not used less power."""
        return PowerTrace._counted(t_s, joules, moved(joules))

    @staticmethod
    def _counted(t_s: Floats, joules: Floats, among: npt.NDArray[np.bool_] | None) -> PowerTrace:
        t, e = np.asarray(t_s, np.float64), np.asarray(joules, np.float64)
        keep = _in_order(t, e, "readings of a counter", among)
        t, e = _with_ends(t, keep), _with_ends(e, keep)
        e[1:-1] -= e[1]
        first, last = e[2] / (t[2] - t[1]), (e[-2] - e[-3]) / (t[-2] - t[-3])
        t[[0, -1]] = t[1] - _HELD_ENDS_S, t[-2] + _HELD_ENDS_S
        e[[0, -1]] = -_HELD_ENDS_S * first, e[-2] + _HELD_ENDS_S * last
        return PowerTrace(t, e, float(t[1]), float(t[-2]))

    @staticmethod
    def of_load(load: LoadIntervals) -> PowerTrace:
        """Make a load that is 1 while it is on, and 0 else."""
        edges = load.edges
        if len(edges) < 1 or np.any(np.diff(edges) <= 0):
            msg = f"a load needs switching instants that increase, not {len(edges)} of them in disorder"
            raise DeclinedError(msg)
        curve = PowerTrace.of_levels(edges, np.arange(len(edges) + 1) % 2)
        return replace(curve, start_s=curve.start_s - OFF_S, end_s=curve.end_s + OFF_S)

    @staticmethod
    def of_levels(edges_s: Floats, levels: npt.ArrayLike) -> PowerTrace:
        """Make a curve of the instants at which its power changes, and the power before and after each."""
        held = np.concatenate([[edges_s[0] - _HELD_ENDS_S], edges_s, [edges_s[-1] + _HELD_ENDS_S]])
        joules = np.zeros(len(held))
        np.cumsum(levels * np.diff(held), out=joules[1:])
        joules -= joules[1]
        return PowerTrace(held, joules, float(edges_s[0]), float(edges_s[-1]))

    def watts(self) -> Floats:
        """Power between the knots, shape (n,)."""
        power = np.diff(self.joules)
        power /= np.diff(self.t_s)
        return power

    @property
    def cell_s(self) -> float:
        """Median time between the knots that were recorded."""
        return float(np.median(np.diff(self.rows_s), overwrite_input=True))

    @property
    def rows_s(self) -> Floats:
        """Knots that were recorded."""
        return self.t_s[1:-1]

    def read_at(self, rows_s: Floats, shown_s: float = 0.0) -> PowerTrace:
        """Return the curve with holes where its rows, in order of time, stayed out (:func:`stayed_out`)."""
        return self.without(rows_s, stayed_out(rows_s, shown_s))

    def without(self, rows_s: Floats, unknown: npt.NDArray[np.bool_]) -> PowerTrace:
        """Return the curve with holes from some of its rows to the next, shape (n - 1,); those that touch are one."""
        edges = np.diff(np.concatenate([[False], unknown, [False]]).astype(np.int8))
        return replace(self, holes_s=np.stack([rows_s[edges > 0], rows_s[edges < 0]], axis=1))

    def known(self, start_s: Floats, end_s: Floats) -> npt.NDArray[np.bool_]:
        """Whether intervals have no part in a hole."""
        begun = np.searchsorted(self.holes_s[:, 0], end_s, side="left")
        return np.asarray(np.searchsorted(self.holes_s[:, 1], start_s, side="right") == begun)

    def shows(self, at_s: Floats, window_s: float | Floats, tau_s: float) -> npt.NDArray[np.bool_]:
        """Whether kernels (see :class:`Responder`) have no share worth mentioning in a hole, or before the curve."""
        edges = np.concatenate([[self.start_s], self.holes_s.ravel()])
        at = np.flatnonzero(np.diff(edges) == 0.0)  # a hole from the start on
        edges = np.delete(edges, [at, at + 1])
        hidden = PowerTrace.of_levels(edges, np.arange(1, len(edges) + 2) % 2)
        return np.asarray(Responder(hidden)(at_s, window_s, tau_s) <= _REACHED)

    def until(self, at_s: Floats) -> Floats:
        """Cumulative energy at instants, joules."""
        return np.interp(at_s, self.t_s, self.joules)

    def energy(self, start_s: float, end_s: float) -> float:
        """Energy between two instants, joules."""
        return float(np.diff(self.until(np.array([start_s, end_s])))[0])

    def thinned(self, step_s: float) -> PowerTrace:
        """Return the curve with fewer knots: of those within one step the first, and any before a longer piece.

        The energy at those that stay is kept.
        """
        cell = self.rows_s / step_s
        np.floor(cell, out=cell)
        keep = np.concatenate([[True, True], cell[1:] > cell[:-1], [True]])
        del cell  # of millions of knots each array counts
        keep[:-1] |= np.diff(self.t_s) > step_s
        return replace(self, t_s=self.t_s[keep], joules=self.joules[keep])

    def between(self, start_s: float, end_s: float) -> PowerTrace:
        """Return the curve with its knots between two instants only; what is beyond keeps its energy, not its shape."""
        keep = (self.t_s >= start_s) & (self.t_s <= end_s)
        keep[[0, -1]] = True
        start, end = max(self.start_s, start_s), min(self.end_s, end_s)
        return replace(self, t_s=self.t_s[keep], joules=self.joules[keep], start_s=start, end_s=end)

    def shifted(self, by_s: float, rate: float = 0.0, about_s: float | None = None) -> PowerTrace:
        """Return the curve on another clock: ``t -> t (1 + rate) + by_s`` with ``about_s``, or its middle, as zero."""
        middle = (self.start_s + self.end_s) / 2.0 if about_s is None else about_s

        def move(t: Floats) -> Floats:
            at = np.subtract(t, middle)
            at *= 1.0 + rate
            at += middle
            at += by_s
            return np.asarray(at, np.float64)

        ends = move(np.array([self.start_s, self.end_s]))
        joules, holes = self.joules * (1.0 + rate) if rate else self.joules, move(self.holes_s)
        return replace(
            self, t_s=move(self.t_s), joules=joules, start_s=float(ends[0]), end_s=float(ends[1]), holes_s=holes
        )


def stayed_out(rows_s: Floats, shown_s: float = 0.0) -> npt.NDArray[np.bool_]:
    """Whether rows are missing between each, in order of time, and the next, shape (n - 1,).

    A gap over which no more than one of values was missed that are each shown for ``shown_s`` is none.
    """
    many = len(rows_s) > MIN_UPDATES
    usual = float(np.median(np.diff(rows_s), overwrite_input=True)) if many else math.inf
    return np.asarray(np.diff(rows_s) > max(HOLE * usual, 2.0 * shown_s), np.bool_)


def outside(unknown_s: Floats, start_s: float, end_s: float) -> list[tuple[float, float]]:
    """Return what of an interval lies outside of parts, shape (m, 2)."""
    parts = []
    for a, b in unknown_s[np.argsort(unknown_s[:, 0])].tolist():
        parts.append((start_s, min(a, end_s)))
        start_s = max(start_s, b)
    return [(a, b) for a, b in [*parts, (start_s, end_s)] if a < b]


class Responder:
    """The response of kernels to one curve, at rest until its first level ends.

    Behind a one-pole the recursion over the knots is exact, but a meter has hundreds of them within a time constant:
    of those that are nearer to each other than a small share of it one is kept. The last states are kept as well.
    """

    def __init__(self, curve: PowerTrace) -> None:
        self._begin_s = float(curve.t_s[1])
        self._curve = replace(curve, t_s=curve.t_s - self._begin_s)  # since an epoch, ages would be rounded
        self._watts = self._curve.watts()
        self._thin: dict[float, PowerTrace] = {}
        self._states: dict[float, Floats] = {}
        self._twice: tuple[float, Floats, Floats] | None = None

    def __call__(self, at_s: Floats, window_s: float | Floats, tau_s: float) -> Floats:
        """Return the weighted mean power before each instant, by a boxcar, a one-pole, or one after the other.

        Parameters
        ----------
        at_s : float64, any shape
            Where the kernels end.
        window_s : float, or float64 of that shape
            Width of the boxcar; 0: none.
        tau_s : float
            Time constant of the one-pole; 0: none.
        """
        t = np.asarray(at_s - self._begin_s, np.float64)
        none = not isinstance(window_s, np.ndarray) and window_s <= 0.0
        if none and tau_s <= 0.0:
            return self._watts[_place(self._curve.t_s, t)]
        late_j = self._curve.until(t)
        if none:
            return self._smooth(t, late_j, tau_s)
        early = t - window_s
        early_j = self._curve.until(early)
        energy = late_j - early_j
        if tau_s > 0.0:
            # Of tau x' = P - x follows that the integral of x is that of P less tau times the growth of x.
            energy = energy - tau_s * (self._smooth(t, late_j, tau_s) - self._smooth(early, early_j, tau_s))
        return np.asarray(energy / window_s, np.float64)

    def triangle(self, at_s: Floats, base_s: float) -> Floats:
        """Return the mean power before each instant under a triangle, which is two boxcars of half its base."""
        half, at = base_s / 2.0, at_s - self._begin_s
        if self._twice is None:
            self._twice = _integrals(self._curve.t_s, self._watts)
        mean, once, twice = self._twice
        late, middle, early = (self._integral(np.asarray(at - age), mean, once, twice) for age in (0.0, half, base_s))
        return np.asarray(mean + (late - 2.0 * middle + early) / half**2, np.float64)

    def _integral(self, t: Floats, mean: float, once: Floats, twice: Floats) -> Floats:
        i = _place(self._curve.t_s, t)
        knot = np.maximum(i, 1)
        since = t - self._curve.t_s[knot]
        return np.asarray(twice[knot] + (once[knot] + (self._watts[i] - mean) * since / 2.0) * since, np.float64)

    def _smooth(self, t: Floats, until_j: Floats, tau_s: float) -> Floats:
        """Return the state of a one-pole at instants until which the energy is known."""
        length = 2.0 ** math.floor(math.log2(tau_s / _KNOTS_PER_TAU))
        if length not in self._thin:
            thin = self._curve.thinned(length)
            # Of a short time constant all knots stay: the curve itself is kept, not one copy for each.
            self._thin[length] = self._curve if len(thin.t_s) == len(self._curve.t_s) else thin
        thin = self._thin[length]
        if tau_s not in self._states:
            if len(self._states) == _STATES:
                del self._states[next(iter(self._states))]  # the oldest
            watts = self._watts if thin is self._curve else thin.watts()
            self._states[tau_s] = _behind(thin.t_s, watts, tau_s)
        i = _place(thin.t_s, t)
        since = np.maximum(t - thin.t_s[i], 0.0)
        decay = -since / tau_s
        # Of the piece that has begun the energy is known up to the instant itself.
        share = np.divide(-np.expm1(decay), since, out=np.full(t.shape, 1.0 / tau_s), where=since > 0.0)
        left = self._states[tau_s][i] * np.exp(decay)
        return np.asarray(left + share * (until_j - thin.joules[i]), np.float64)


def _place(knots_s: Floats, at_s: Floats) -> Ints:
    """Return the piece between knots in which each instant lies; beyond the ends the first or the last."""
    return np.asarray(np.searchsorted(knots_s[1:-1], at_s, side="right"), np.int64)


def _integrals(t: Floats, power: Floats) -> tuple[float, Floats, Floats]:
    """Return the mean of a curve, and at its knots the integral of what it is off that, and the integral of this."""
    mean = float(np.mean(power[1:-1])) if len(power) > 2 else float(power[0])
    gaps = np.diff(t)
    # From the second knot on: the first lies so far off that sums from it would be rounded by what it adds.
    rise = (power - mean) * gaps
    once = np.cumsum(np.append(-rise[0], rise))
    area = (once[:-1] + rise / 2.0) * gaps
    return mean, once, np.cumsum(np.append(-area[0], area))


def _behind(t: Floats, power: Floats, tau_s: float) -> Floats:
    """State of a one-pole at the knots, starting from rest at the first level.

    The recursion ``x[j+1] = P[j] + q[j] (x[j] - P[j])`` is a triangular system with one band beside the diagonal.
    """
    from scipy.linalg.blas import dtbsv

    kept = np.diff(t)
    np.exp(np.divide(kept, -tau_s, out=kept), out=kept)
    states = np.empty(len(t))
    states[0] = power[0]
    np.subtract(1.0, kept, out=states[1:])
    states[1:] *= power
    band = np.empty((2, len(t)), order="F")  # of which the diagonal is taken for ones
    np.negative(kept, out=band[1, :-1])
    del kept
    return np.asarray(dtbsv(1, band, states, lower=1, diag=1, overwrite_x=1), np.float64)
