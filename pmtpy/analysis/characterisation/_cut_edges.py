"""Kernels that cut an edge of a load where the best fit cuts none, or another one: which of them may be right.

Of a load that keeps step with the updates, readings show the same few parts all the time; others, had they been taken a
little later. Where a kernel cuts an edge there, each reading moves by watts with the microseconds by which an instant
is off, so that a kernel which sees no edge explains them better by far, and has another gain. Here kernels are judged
by what no error of the instants explains. Pure; times are seconds, powers watts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterisation._covariance import Noise
from pmtpy.analysis.characterisation._description import told_by
from pmtpy.analysis.characterisation._families import BOXCAR, PARAMETERS
from pmtpy.analysis.characterisation._forward import Fit, Problem
from pmtpy.analysis.signal.estimate import MISSED
from pmtpy.core.rows import Floats

_READINGS = 200  # tell as well as all: a quarter are those that edges move most, the others are from all over
_OFFSETS = 33  # over a period, at which kernels are looked for
_WIDTHS = (0.05, 2.0, 24)  # of boxcars, in periods: from, to, how many
_ENDS_ASIDE = 2.0 * np.arange(-3, 4)  # errors of an instant, by which the ends of boxcars are moved
_UNLIKELY = 100.0  # a kernel that is so much worse is not made likely by what the reference's noise makes it differ by


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels, what they show of the reference at each reading, shape (kernels, n), and how that moves with time."""

    families: list[str]
    points: Floats  # shape (kernels, parameters)
    shown: Floats
    moves: Floats  # per second of an offset

    @staticmethod
    def of(problem: Problem, kernels: Sequence[tuple[str, Floats]]) -> _Kernels:
        """Show the reference through kernels of any family."""
        step = problem.step_s * np.eye(len(PARAMETERS))[0]
        rows = [[problem.filtered(p + by, family) for by in (0.0 * step, step, -step)] for family, p in kernels]
        families, points = zip(*kernels, strict=True)
        return _Kernels._moving(problem, list(families), np.stack(points), np.stack(rows, axis=1))

    @staticmethod
    def boxcars(problem: Problem, points: Floats) -> _Kernels:
        """Show the reference through boxcars that differ by their ends alone, all at once."""
        at = problem.at(points[0] * (np.arange(len(PARAMETERS)) > 0))
        wide = np.broadcast_to(points[:, 1:2], (len(points), len(at)))
        ends = at - points[:, :1]
        rows = [problem.respond(ends - by, wide, 0.0) for by in (0.0, problem.step_s, -problem.step_s)]
        return _Kernels._moving(problem, [BOXCAR] * len(points), points, np.stack(rows))

    @staticmethod
    def _moving(problem: Problem, families: list[str], points: Floats, rows: Floats) -> _Kernels:
        return _Kernels(families, points, rows[0], np.asarray((rows[1] - rows[2]) / (2.0 * problem.step_s), np.float64))

    def and_(self, other: _Kernels) -> _Kernels:
        """Return both."""
        arrays = zip((self.points, self.shown, self.moves), (other.points, other.shown, other.moves), strict=True)
        return _Kernels(self.families + other.families, *(np.concatenate(pair) for pair in arrays))

    def fits(self, problem: Problem, weights: Floats) -> list[Fit]:
        """Return their fits: gains and intercepts are solved for as ``_forward.linear`` does."""
        share = weights / np.sum(weights)
        mean = (self.shown @ share)[:, None]
        apart, y = self.shown - mean, problem.y - problem.y @ share
        gain = np.maximum((apart * y) @ share / np.maximum(apart**2 @ share, 1e-300), 0.0)
        intercept = problem.y @ share - gain * mean[:, 0]
        left = problem.y - gain[:, None] * self.shown - intercept[:, None]
        loss = left**2 @ (weights / len(weights))
        rows = zip(self.families, self.points, gain.tolist(), intercept.tolist(), left, loss.tolist(), strict=True)
        return [Fit(*row) for row in rows]


def beside_edges(
    problem: Problem, best: Fit, others: Sequence[Fit], weights: Floats, noise: Noise
) -> list[tuple[Fit, float]]:
    """Return fits of kernels that may see other parts of a load, and by how much each is worse than the best.

    None of a load that keeps no step with the readings: all parts of it are seen anyway.

    Parameters
    ----------
    best : Fit
        The kernel that all are judged beside; it is looked at at other offsets, too.
    others : sequence of Fit
        More kernels to judge. Boxcars that end near each are, and boxcars of all widths at all offsets.
    weights : float64, shape (n,)
    noise : Noise
        Of the readings, as the best leaves it.
    """
    aside = problem.period * np.linspace(-0.5, 0.5, _OFFSETS)
    if not _in_step(problem, best, aside):
        return []
    step = problem.step_s * np.eye(len(PARAMETERS))[0]
    moves = problem.filtered(best.point + step, best.family) - problem.filtered(best.point - step, best.family)
    many = min(_READINGS, len(problem.y))
    edges = np.argsort(-np.abs(moves), kind="stable")[: many // 4]
    evenly = np.linspace(0.0, len(problem.y) - 1.0, many - len(edges)).round().astype(np.int64)
    rows = np.isin(np.arange(len(problem.y)), np.concatenate([edges, evenly]))
    part, own, weights = problem.part(rows), Noise(noise.own[rows], noise.slow), weights[rows]

    near = [(f.family, f.point) for f in [best, *others]]
    kernels = near + [(best.family, best.point + by * np.eye(len(PARAMETERS))[0]) for by in aside.tolist()]
    seen = _Kernels.of(part, kernels).and_(_Kernels.boxcars(part, _boxcars(problem, best, others, aside)))
    fits = seen.fits(part, weights)
    late_s = np.hypot(problem.late_s, problem.rate_sd * part.t) / math.sqrt(max(best.loss, 1e-300))
    blur = np.hypot(1.0, late_s * np.array([[f.gain] for f in fits]) * seen.moves)

    def misfits(of: Sequence[int], left: Sequence[Floats]) -> Floats:
        """Return minus twice the log-likelihoods of fits by what they leave, which errors of the instants may do."""
        shown = np.stack(left, axis=1) / blur[of].T
        usual = [part.unusual(fits[i]) ** 2 for i in of]
        return np.asarray(own.misfits(part.t, shown) + usual, np.float64)

    told = told_by(part, fits[0])
    least = own.misfit(part.t, fits[0].residuals) + part.unusual(fits[0]) ** 2
    worse = misfits(range(len(fits)), [f.residuals for f in fits]) - least
    likely = np.argsort(worse, kind="stable")[: max(int(np.count_nonzero(worse < _UNLIKELY)), 1)].tolist()
    worse = misfits(likely, [told(fits[i]) for i in likely]) - least
    return list(zip([fits[i] for i in likely], worse.tolist(), strict=True))


def _in_step(problem: Problem, best: Fit, aside_s: Floats) -> bool:
    """Whether readings at other offsets would show other parts of the load: of one that keeps no step all show all.

    By the test of Kolmogorov and Smirnov: whether readings at two offsets show the same distribution of powers.
    """
    from scipy.special import kolmogorov  # (scipy.stats, with this test in it, takes half a second to import)

    shown = np.sort(problem.filtered(best.point, best.family))
    moved = best.point + aside_s[:, None] * np.eye(len(PARAMETERS))[0]
    apart = max(_apart(shown, np.sort(problem.filtered(at, best.family))) for at in moved)
    return bool(kolmogorov(apart * math.sqrt(len(shown) / 2.0)) < MISSED)


def _apart(x: Floats, y: Floats) -> float:
    """Return the most by which the distributions of two samples, both in order and of one size, differ."""
    both = np.append(x, y)
    return float(np.max(np.abs(np.searchsorted(x, both, "right") - np.searchsorted(y, both, "right")))) / len(x)


def _boxcars(problem: Problem, best: Fit, others: Sequence[Fit], aside_s: Floats) -> Floats:
    """Return points of boxcars: of many widths at offsets beside the best's, and such as end near each of the fits."""
    widths = problem.period * np.geomspace(*_WIDTHS)
    offset, width = (grid.ravel() for grid in np.meshgrid(best.offset + aside_s, widths))
    first, last = (grid.ravel() for grid in np.meshgrid(*(2 * [problem.late_s * _ENDS_ASIDE])))
    for fit in [best, *others]:
        wide = math.sqrt(12.0) * fit.spread  # of a boxcar whose ages scatter alike
        offset = np.append(offset, fit.lag - wide / 2.0 + first)
        width = np.append(width, wide + last - first)
    points = np.tile(best.point, (len(offset), 1))
    points[:, 0], points[:, 1], points[:, 2:4] = offset, width, 0.0
    return np.asarray(points[width >= widths[0]], np.float64)
