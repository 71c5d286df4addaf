"""Where kernels that explain the readings may lie: the loss over every width, time constant and offset, on a grid.

With ``E(t)`` the integral of the reference, a boxcar of width ``w`` that ends ``d`` before an update shows
``(E(u - d) - E(u - d - w)) / w``; behind a one-pole the same holds with ``F = E - tau x`` for ``E``, ``x`` being the
reference behind the one-pole. So one table of ``F`` over a grid of lags, and the scalar products of its columns, give
the loss of *every* window at *every* offset: nothing has to be guessed beforehand, neither a lag nor a width.
Pure; times are seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterisation._families import BOTH, BOXCAR, FAMILIES, ONE_POLE, TWO_POLE, widths_of
from pmtpy.analysis.characterisation._forward import ends
from pmtpy.analysis.characterisation._model_selection import SAME_WIDTH_SHARE
from pmtpy.analysis.signal.trace import PowerTrace, Responder
from pmtpy.core.response import TRIANGULAR
from pmtpy.core.rows import Floats

MAX_WIDTH_PERIODS = 16.0  # periods: the widest window, and the slowest one-pole, that is looked for
_PER_PERIOD = 20  # grid steps in an update period, so that the narrowest window is one step ...
_LAGS = 1000  # ... unless that makes more of them than this; of readings as many show the shape of the loss
_TAUS = 36
_TIED = 3.0  # losses on the grid that differ by less may be of fits that are alike


@dataclass(frozen=True, slots=True)
class Grid:
    """Readings against the reference at lags: ``power[k, j]`` is its mean in the cell of lags ``j`` before update k."""

    y: Floats
    lags_s: Floats
    step_s: float
    offsets: int
    power: Floats
    oldest: Responder
    t: Floats

    @staticmethod
    def of(t_s: Floats, watts: Floats, reference: PowerTrace, *, period_s: float, lead_s: float) -> Grid:
        """Tabulate the reference at the lags of every kernel that is looked for.

        ``t_s`` are the updates on the reference's clock, known to within ``lead_s`` either way.
        """
        pick = np.linspace(0, len(t_s) - 1, min(len(t_s), _LAGS)).astype(np.intp)
        t, y = t_s[pick], watts[pick]
        first, last = ends(period_s, lead_s)
        step = max(period_s / _PER_PERIOD, (last - first + MAX_WIDTH_PERIODS * period_s) / _LAGS)
        offsets = int((last - first) / step) + 1
        lags = first + step * np.arange(offsets + int(MAX_WIDTH_PERIODS * period_s / step) + 1)
        thin = reference.thinned(step / 2.0)
        energy = np.interp(t[:, None] - lags, thin.t_s, thin.joules)
        power = np.asfortranarray((energy[:, :-1] - energy[:, 1:]) / step)  # it is asked for lag by lag
        # Only what varies from update to update counts: a gain is fitted, and an intercept takes the mean.
        power -= np.mean(power, axis=0)
        return Grid(
            np.asarray(y - np.mean(y), np.float64),
            np.asarray(lags, np.float64),
            step,
            offsets,
            power,
            Responder(thin),
            t,
        )

    def losses(self, product: Floats, square: Floats) -> Floats:
        """Sum of squares that is left, from the scalar products of the response with the readings and itself."""
        gain = np.maximum(np.divide(product, square, out=np.zeros_like(product), where=square > 0.0), 0.0)
        return np.asarray(self.y @ self.y - gain * product, np.float64)

    def slowed(self, tau_s: float) -> Floats:
        """Return the reference behind a one-pole at the lags, centred; shape (updates, lags)."""
        return self._behind(self.power, tau_s)

    def slowed_twice(self, slow: Floats, tau_s: float) -> Floats:
        """Return what is ``slowed`` behind another one-pole of the same time constant."""
        return self._behind(np.asarray((slow[:, :-1] + slow[:, 1:]) / 2.0, np.float64), tau_s)

    def _behind(self, power: Floats, tau_s: float) -> Floats:
        q = float(np.exp(-self.step_s / tau_s))
        state = self.oldest(self.t - self.lags_s[-1], 0.0, tau_s)
        out = np.empty((len(self.t), len(self.lags_s)), order="F")
        out[:, -1] = state - np.mean(state)
        np.multiply(1.0 - q, power, out=out[:, :-1])
        older = np.empty(len(self.t))
        for j in range(len(self.lags_s) - 2, -1, -1):
            out[:, j] += np.multiply(q, out[:, j + 1], out=older)
        return out

    def _energy(self) -> Floats:
        """Return the energy of the reference, centred, from each lag to the last; shape (updates, lags)."""
        energy = np.zeros((len(self.t), len(self.lags_s)), order="F")
        np.cumsum(self.power[:, ::-1], axis=1, out=energy[:, -2::-1])
        energy *= self.step_s
        return energy

    def triangles(self) -> tuple[Floats, Floats]:
        """Return the bases of triangles, shape (m,), and the losses over base and offset."""
        table = np.cumsum(self._energy()[:, ::-1], axis=1)[:, ::-1] * self.step_s
        along, gram = table.T @ self.y, table.T @ table
        halves = np.arange(1, (len(self.lags_s) - self.offsets) // 2)
        losses = np.empty((len(halves), self.offsets))
        first = slice(0, self.offsets)
        for i, m in enumerate(halves):
            middle, last = slice(m, m + self.offsets), slice(2 * m, 2 * m + self.offsets)
            product = along[first] - 2.0 * along[middle] + along[last]
            square = np.diag(gram)[first] + 4.0 * np.diag(gram)[middle] + np.diag(gram)[last]
            square = square - 4.0 * np.diagonal(gram, m)[first] - 4.0 * np.diagonal(gram, m)[middle]
            square = square + 2.0 * np.diagonal(gram, 2 * m)[first]
            area = (m * self.step_s) ** 2
            losses[i] = self.losses(np.asarray(product / area), np.asarray(square / area**2))
        return np.asarray(2.0 * halves * self.step_s, np.float64), losses

    def windows(self, slow: Floats | None, tau_s: float) -> tuple[Floats, Floats]:
        """Return the windows, shape (m,), and the losses over window and offset behind a one-pole or none."""
        table = self._energy()
        if slow is not None:
            table -= tau_s * slow
        along, gram = table.T @ self.y, table.T @ table
        own = np.diag(gram)
        cells = np.arange(1, len(self.lags_s) - self.offsets)
        losses = np.empty((len(cells), self.offsets))
        for i, m in enumerate(cells):
            ends = slice(m, m + self.offsets)
            product = along[: self.offsets] - along[ends]
            square = own[: self.offsets] + own[ends] - 2.0 * np.diagonal(gram, m)[: self.offsets]
            losses[i] = self.losses(product / (m * self.step_s), square / (m * self.step_s) ** 2)
        return np.asarray(cells * self.step_s, np.float64), losses


def seeds(grid: Grid, period_s: float, within_s: float = math.inf) -> dict[str, list[Floats]]:
    """Return for each family the deepest minima of the loss: vectors (offset, window, tau), the deepest first.

    Only those whose mean age, ``offset + window / 2 + tau``, is within ``within_s`` of none.
    """
    windows, plain = grid.windows(None, 0.0)
    taus = np.asarray(period_s * np.geomspace(0.04, MAX_WIDTH_PERIODS, _TAUS), np.float64)
    poles, twice, mixed = np.empty((_TAUS, grid.offsets)), np.empty((_TAUS, grid.offsets)), []
    for i, tau in enumerate(taus.tolist()):
        slow = grid.slowed(tau)
        x = slow[:, : grid.offsets]
        poles[i] = grid.losses(x.T @ grid.y, np.sum(x * x, axis=0))
        x = grid.slowed_twice(slow, tau)[:, : grid.offsets]
        twice[i] = grid.losses(x.T @ grid.y, np.sum(x * x, axis=0))
        if i % 4 == 2:  # time constants 1.8 apart, half of what a fit finds its way over
            minima = _minima(grid, windows, grid.windows(slow, tau)[1])
            mixed.append(np.insert(minima, 3, tau, axis=1))
    # Over one width and the offset; a second time constant begins as the first.
    plane = {BOXCAR: (windows, plain), ONE_POLE: (taus, poles), TWO_POLE: (taus, twice), TRIANGULAR: grid.triangles()}
    other = {family: 3 if "window" in widths_of(family) else 2 for family in plane}  # column of the width it has not
    found = {family: np.insert(_minima(grid, *each), other[family], 0.0, axis=1) for family, each in plane.items()}
    found[BOTH] = np.concatenate(mixed)
    return {name: _deepest(found[name], within_s, period_s, family.minima) for name, family in FAMILIES.items()}


def _deepest(rows: Floats, within_s: float, period_s: float, most: int) -> list[Floats]:
    """Return so many vectors of rows (loss, offset, window, tau), by their loss, equal ones by their offset and so on.

    Of each width the deepest, and that of the least age if it is not much worse: under a regular load the same width
    fits at one lag after the other, and these would crowd out the widths that fit as well.
    """
    near = rows[np.abs(rows[:, 1] + rows[:, 2] / 2.0 + rows[:, 3]) <= within_s]
    near = near[np.lexsort(near.T[::-1])]
    age = np.abs(near[:, 1] + near[:, 2] / 2.0 + near[:, 3])
    spread = np.hypot(near[:, 2] / math.sqrt(12.0), near[:, 3])
    left, groups = np.ones(len(near), np.bool_), list[tuple[bool, float, list[Floats]]]()
    while np.any(left):
        first = int(np.argmax(left))
        alike = left & (np.abs(spread - spread[first]) <= SAME_WIDTH_SHARE * spread[first])
        left &= ~alike
        tied = np.flatnonzero(alike & (near[:, 0] <= _TIED * abs(near[first, 0])))
        youngest = int(tied[np.argmin(age[tied])])
        both = [first, youngest] if age[first] - age[youngest] > period_s / 4.0 else [first]
        worse = near[first, 0] > _TIED * abs(near[0, 0])
        groups.append((bool(worse), near[first, 0] if worse else spread[first], [near[i, 1:] for i in both]))
    # Of those that fit alike the narrow ones: each width has aliases a period of the load wider, and so on.
    ranked = groups[:1] + sorted(groups[1:], key=lambda group: group[:2])
    return [point for _, _, points in ranked for point in points][:most]


def _minima(grid: Grid, widths: Floats, losses: Floats) -> Floats:
    """Return a row (loss, offset, width) for each cell that is no higher than its eight neighbours."""
    walled = np.pad(losses, 1, constant_values=np.inf)
    rows = np.minimum(np.minimum(walled[:-2], walled[1:-1]), walled[2:])
    least = np.minimum(np.minimum(rows[:, :-2], rows[:, 1:-1]), rows[:, 2:])
    i, j = np.nonzero(losses <= least)
    return np.stack([losses[i, j], grid.lags_s[j], widths[i]], axis=1)
