"""What is expected of a configuration, told by configurations that are like it.

Gaussian-process regression of some targets on some features, under a handful of priors. Each of these is judged by
leaving every configuration out, which costs nothing extra (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, 5.4.2), and they are averaged: those as good as the best, within the error of telling them apart,
count as much as it does. Averaging beats choosing where configurations are few. The plain mean of all is one of the
priors, so features that tell nothing do no harm. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from pmtpy.analysis.transfer._shape import believed
from pmtpy.core.rows import Floats

MIN_ALIKE = 6  # two features, their effects and a constant: fewer configurations cannot check them
_REACH = 3.0  # standard deviations beyond which a feature is taken as that far: nothing is extrapolated further
# Priors over broad ranges, in standard deviations of the features: from neighbours only to nearly a plane, from
# exact to mostly noise. A plane is part of each.
_LENGTHS, _NOISES, _PLANE = (0.5, 2.0), (0.2, 1.0, 5.0), 0.3
_CONSTANT = 100.0  # prior variance of the mean: unknown
# Variance of one imagined configuration more, unlike any seen: slopes, 1 on average, from 0 (a kernel that the clock
# does not touch) to 2. Three that happen to agree do not show that all do.
_UNSEEN = 1.0 / 3.0
_ROUNDS = 3

Loss = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class _Prior:
    """How far a likeness reaches (0: nowhere, all are one group), and how much of a target is its own."""

    length: float
    noise: float

    def covariance(self, x: Floats, y: Floats) -> Floats:
        if self.length == 0.0:
            return np.full((len(x), len(y)), _CONSTANT)
        square = np.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=2)
        return np.asarray(np.exp(-0.5 * square / self.length**2) + _PLANE * x @ y.T + _CONSTANT, np.float64)


@dataclass(frozen=True, slots=True)
class Likeness:
    """What features tell of targets."""

    # shape (targets, targets); of the errors made where each training configuration was left out, and of one more,
    # unlike them
    covariance: Floats
    _centre: Floats
    _scale: Floats
    _x: Floats
    _priors: tuple[tuple[_Prior, Floats], ...]  # each with its regression weights, times its share in the average

    def expect(self, features: Floats) -> Floats:
        """Expect the targets, shape (targets,), of a configuration with these features, shape (features,)."""
        own = np.clip((features - self._centre) / self._scale, -_REACH, _REACH)[None, :]
        return np.asarray(sum(p.covariance(own, self._x)[0] @ weights for p, weights in self._priors), np.float64)


def learn(features: Floats, targets: Floats, loss: Loss) -> Likeness:
    """Learn from training configurations.

    Parameters
    ----------
    features, targets : float64, shape (n, features) and (n, targets)
    loss : callable
        Of predicted targets, shape (n, targets): how bad each is, shape (n,).
    """
    n = len(targets)
    centre, scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
    x = np.clip((features - centre) / scale, -_REACH, _REACH)
    priors = [_Prior(0.0, 1.0)]
    if n >= MIN_ALIKE:
        priors += [_Prior(*p) for p in product(_LENGTHS, _NOISES)]
    found = [_regress(p.covariance(x, x), p.noise, targets, loss) for p in priors]
    losses = np.stack([loss(targets - error) for _, error in found])
    behind = losses - losses[int(np.argmin(losses.mean(axis=1)))]
    doubt = np.maximum(behind.std(axis=1) / math.sqrt(n), 1e-12)
    share = np.exp(-behind.mean(axis=1) / doubt)
    share = share / share.sum()
    error = sum(w * e for w, (_, e) in zip(share, found, strict=True))
    weighted = tuple((p, np.asarray(w * a, np.float64)) for w, p, (a, _) in zip(share, priors, found, strict=True))
    covariance = (error.T @ error + _UNSEEN * np.eye(targets.shape[1])) / (n + 1)
    return Likeness(np.asarray(covariance, np.float64), centre, scale, x, weighted)


def _regress(prior: Floats, noise: float, targets: Floats, loss: Loss) -> tuple[Floats, Floats]:
    """Return the weights of the regression, and each configuration's error when left out; outliers count less."""
    weight = np.ones(len(targets))
    for _ in range(_ROUNDS):
        inverse = np.linalg.inv(prior + np.diag(noise / weight))
        error = np.asarray((inverse @ targets) / np.diag(inverse)[:, None], np.float64)
        bad = loss(targets - error)
        weight = np.maximum(believed(bad), 1e-3)
    return np.asarray(inverse @ targets, np.float64), error
