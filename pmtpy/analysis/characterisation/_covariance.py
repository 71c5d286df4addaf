"""Standard errors of a fit whose residuals have neighbours that err alike; and the better fit that follows from it.

A board is off its line by a watt or two for as long as it does one thing: while it idles, boosts, keeps its clocks up.
Readings that err together count as few, so residuals are taken as the sum of noise of its own for each reading and of
a slow error, which fades from memory with time (Ornstein and Uhlenbeck). A fit that knows of the slow error follows a
flank from the readings just before and after it, not from levels seconds away (generalised least squares); and what
the slow error leaves possible is in its intervals. Of a single step a few readings on its flanks decide, and the many
on its levels do not say how far those few are off: intervals are as wide as so few degrees of freedom ask for [IK16].
Where kernels are weighed against each other, what errors of the updates' times do on flanks is noise that lasts, too:
by how much those are off is hardly known, and else passes for a shape. Pure; times are seconds.

[H89] Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, Cambridge 1989. [IK16] Imbens, Kolesar,
Robust Standard Errors in Small Samples, Review of Economics and Statistics 98 (2016), after Bell and McCaffrey (2002).
[Y24] Yang, Adamek, Armour, arXiv 2312.02741, results sheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import STRAY, huber_weights
from pmtpy.core.response import Number
from pmtpy.core.rows import Floats

_MIN_EIGENVALUE = 1e-12  # of 1: a smaller eigenvalue is rounding
# Steady readings at six loads from idle to full lie on a line with an R2 of 0.9999 [Y24]: off it by a hundredth of the
# standard deviation of the levels, which is 0.34 of their range. So much is expected of a board beforehand, and worth
# this many levels that were seen: a single step hides it, gain and intercept meet its two.
OFF_LINE, _EXPECTED = 0.01 * 0.34, 2.0
# By how much updates' times scatter about their mean, of their standard error: of 104 drawn sensors 0.07 to 1.6 (5 to
# 95 %), and more where the phase jumped. Which it is, no recording says; likelihoods are means over these.
_LATE_SHARES = (0.1, 0.3, 1.0, 3.0)
MEMORIES_S = (0.3, 1.0, 3.0, 10.0)  # from a boost to a warm-up; which of them it is, few seconds cannot tell


@dataclass(frozen=True, slots=True)
class Noise:
    """What errs in readings: variances of each for itself, and of what lasts.

    In the likelihood of a kernel also errors of the instants, of which nobody knows how large they are.
    """

    own: Floats
    slow: float
    late: Floats | None = None  # what an error of each instant, as large as is expected, does to a reading, in watts

    @staticmethod
    def of(residuals: Floats, readings: Floats, followed: Floats) -> Noise:
        """Tell the two apart by how residuals differ from one reading to the next.

        ``followed`` is what the readings follow, in their watts. Rounding errs on flanks even where it cannot be seen
        on steady levels, which always show the same value.
        """
        swing, seen = float(np.ptp(followed)), 2.0 * (blocks(followed) - 1)
        jumps = np.diff(residuals)
        kept = huber_weights(jumps, STRAY) * jumps
        distinct = np.unique(np.round(readings, 6))
        step = float(np.min(np.diff(distinct))) if len(distinct) > 1 else 0.0
        own = max(float(np.mean(kept**2)) / 2.0, step**2 / 12.0, 1e-12 * swing**2, 1e-300)
        weights = huber_weights(residuals, STRAY)
        hidden = (OFF_LINE * swing) ** 2 * _EXPECTED / (_EXPECTED + seen)
        return Noise(
            own / weights, max(float(np.mean((weights * residuals) ** 2)) - own, hidden, _MIN_EIGENVALUE * own)
        )

    def products(self, t_s: Floats, columns: Floats) -> Floats:
        """Return the scalar products of columns, shape (n, m), weighed by the inverse covariance of the readings.

        One matrix for each memory, shape (memories, m, m). What errs alike in neighbours counts once. Errors of the
        instants are not in it.
        """
        shown = columns / self.own[:, None]
        parts = []
        for solve, _ in self._memories(t_s):
            parts.append(columns.T @ shown - shown.T @ solve(shown))
        return np.asarray(parts, np.float64)

    def misfit(self, t_s: Floats, residuals: Floats) -> float:
        """Minus twice the log-likelihood of residuals, a constant aside.

        Of the mean of likelihoods over how large errors of the instants are; the logarithm is a mean over memories.
        """
        return float(self.misfits(t_s, residuals[:, None])[0])

    def misfits(self, t_s: Floats, columns: Floats) -> Floats:
        """Return that of each of several columns of residuals, shape (n, m)."""
        shown = columns / self.own[:, None]
        known = np.sum(columns * shown, axis=0) + float(np.sum(np.log(self.own)))
        each = [
            np.mean([log - np.sum(shown * solve(shown), axis=0) for solve, log in self._memories(t_s, share)], axis=0)
            for share in (_LATE_SHARES if self.late is not None and np.any(self.late) else (0.0,))
        ]
        least = np.min(each, axis=0)
        return np.asarray(known + least - 2.0 * np.log(np.mean(np.exp((least - each) / 2.0), axis=0)), np.float64)

    def _memories(self, t_s: Floats, share: float = 0.0) -> Iterator[tuple[Callable[[Floats], Floats], float]]:
        """Yield, for each memory, what solves for the sum of both precisions, and the logarithm of its determinant.

        Each of what lasts is a chain: the inverse of its covariance has but one diagonal beside the main one, so that
        the inverse of the sum follows from ``D^-1 - D^-1 H (K^-1 + H' D^-1 H)^-1 H' D^-1`` at linear cost. ``H`` says
        what each link does to its reading: the slow error 1, a share of the times' error what that does.
        """
        from scipy.linalg import cho_solve_banded, cholesky_banded

        gaps = np.diff(t_s)
        does = np.full((1, len(self.own)), math.sqrt(self.slow))
        if share and self.late is not None:
            does = np.stack([does[0], share * self.late])
        many = len(does)
        for memory in MEMORIES_S:
            chain, new = _chain(gaps, memory)
            band = np.zeros((many + 1, many * len(self.own)))  # of both chains, link by link in turn
            for i, each in enumerate(does):
                band[-1, i::many] = chain[1] + each**2 / self.own
                band[0, i::many] = chain[0]
            if many > 1:
                band[-2, 1::many] = does[0] * does[1] / self.own
            factor = cholesky_banded(band, check_finite=False)
            level = 2.0 * float(np.sum(np.log(factor[-1]))) + many * float(np.sum(np.log(new)))

            def solve(right: Floats, factor: Floats = factor) -> Floats:
                links = (right[:, None, :] * does.T[:, :, None]).reshape(-1, right.shape[1])
                found = cho_solve_banded((factor, False), links, check_finite=False).reshape(len(right), many, -1)
                return np.asarray(np.sum(found * does.T[:, :, None], axis=1), np.float64)

            yield solve, level


@dataclass(frozen=True, slots=True)
class Spread:
    """By how much the parameters of a fit move once the slow error is known of, and their covariance then."""

    shift: Floats  # shape (p,)
    # shape (p, p); of noise and slow error, over all that its memory may be; and of what errors of the times do to
    # readings on steep flanks
    covariance: Floats
    _rows: Floats  # the design, each reading in units of its own noise
    _bread: Floats

    @staticmethod
    def of(
        t_s: Floats,
        design: Floats,
        residuals: Floats,
        noise: Noise,
        *,
        prior: Mapping[int, Number],
        late: tuple[Floats, float],
    ) -> Spread:
        """Compute both.

        Parameters
        ----------
        t_s : float64, shape (n,)
            Instants of the readings, in order.
        design : float64, shape (n, p)
            Derivatives of the readings by each parameter.
        residuals : float64, shape (n,)
            Of the fit.
        prior : mapping of int to Number
            By how much a parameter is off what was expected beforehand, and the standard deviation of that.
        late : float64, shape (n,), and float
            What an error of the times, of one standard deviation, does to each reading, and for how long a reading
            shows one change, in which it errs alike.
        """
        from scipy.linalg import solveh_banded

        scale = np.maximum(np.sqrt(np.sum(design**2, axis=0)), 1e-100)  # its square is still a number
        z, p = design / scale, design.shape[1]
        known, pull = np.zeros((p, p)), np.zeros(p)
        for i, off in prior.items():
            known[i, i] = (off.u * scale[i]) ** -2.0
            pull[i] = -known[i, i] * off.value * scale[i]
        shifts, covariances = [], []
        for product in noise.products(t_s, np.column_stack([z, residuals])):
            inverse = _inverse(np.asarray(product[:p, :p] + known, np.float64))
            shifts.append(inverse @ (product[:p, p] + pull))
            covariances.append(inverse)
        shift = np.mean(shifts, axis=0)
        apart = np.asarray(shifts) - shift
        rows = np.asarray(z / np.sqrt(noise.own)[:, None], np.float64)
        bread = _inverse(np.asarray(rows.T @ rows + known, np.float64))
        shaken = rows * (late[0] / np.sqrt(noise.own))[:, None]
        times = bread @ shaken.T @ solveh_banded(_chain(np.diff(t_s), late[1])[0], shaken) @ bread
        size = np.outer(scale, scale)
        covariance = np.mean(covariances, axis=0) + apart.T @ apart / len(shifts) + times
        return Spread(np.asarray(shift / scale, np.float64), covariance / size, rows * scale, bread / size)

    def deviation(self, mix: Floats) -> float:
        """Standard deviation of a linear combination of the parameters."""
        return math.sqrt(max(float(mix @ self.covariance @ mix), 0.0))

    def freedom(self, mix: Floats) -> float:
        """Degrees of freedom of that deviation: how many readings decide, less what the fit makes of them [IK16].

        Each reading's part is ``a``, its leverage ``h``; the variance is a quadratic form of the residuals whose first
        two moments are those of chi-squared with this many degrees. What was known beforehand scatters by nothing.
        """
        part = self._rows @ (self._bread @ mix)
        told = float(part @ part) / max(float(mix @ self._bread @ mix), 1e-300)
        part = part / max(float(np.max(np.abs(part))), 1e-300)
        # A reading that a parameter follows tells nothing of its own error.
        leverage = np.clip(np.sum((self._rows @ self._bread) * self._rows, axis=1), 0.0, 1.0 - 1.0 / len(part))
        share = part**2 / (1.0 - leverage)
        cross = self._bread @ ((self._rows * share[:, None]).T @ self._rows)
        square = float(np.sum(part**4) + np.trace(cross @ cross) - np.sum((share * leverage) ** 2))
        return float(np.sum(part**2)) ** 2 / max(square * told**2, 1e-300)


def _chain(gaps_s: Floats, memory_s: float) -> tuple[Floats, Floats]:
    """Return the inverse correlation of what fades from memory, as upper bands, and what is new at each instant."""
    gaps = np.maximum(gaps_s, _MIN_EIGENVALUE) / max(memory_s, _MIN_EIGENVALUE)
    kept, new = np.exp(-gaps), -np.expm1(-2.0 * gaps)  # new: 1 - kept^2
    band = np.zeros((2, len(gaps) + 1))
    band[1] = np.append(1.0, 1.0 / new)
    band[1, :-1] += kept * kept / new
    band[0, 1:] = -kept / new
    return band, np.asarray(new, np.float64)


def off_line(power: Floats, slow: float) -> tuple[float, float]:
    """Return what a line through the levels of a load is off for what the board does at each, as standard errors.

    Of gain and intercept, from the reference as the readings see it, shape (n,), and the variance of the slow error. A
    single step has one low and one high level, each off by its own error; every further block is another try.
    """
    low, high = float(np.min(power)), float(np.max(power))
    error = math.sqrt(slow / blocks(power)) / max(high - low, 1e-300)
    return math.sqrt(2.0) * error, error * math.hypot(low, high)


def blocks(power: Floats) -> int:
    """How often a power rises above the middle of its range, but once at least."""
    above = power > (np.min(power) + np.max(power)) / 2.0
    return max(int(np.count_nonzero(above[1:] & ~above[:-1])), 1)


def _inverse(normal: Floats) -> Floats:
    """Invert a normal matrix; a direction that the data do not see has an immense variance, not none.

    A pseudo-inverse would leave such a direction out: a load in step with the updates would make a width seem known.
    """
    size = np.sqrt(np.maximum(np.diag(normal), _MIN_EIGENVALUE))
    values, vectors = np.linalg.eigh(normal / np.outer(size, size))
    return np.asarray((vectors / np.maximum(values, _MIN_EIGENVALUE)) @ vectors.T / np.outer(size, size), np.float64)
