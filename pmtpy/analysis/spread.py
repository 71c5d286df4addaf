"""Standard errors of a least-squares fit that do not take the residuals for equal or unrelated. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.model import Floats

_UNSEEN = 1e-12  # of 1: a smaller eigenvalue is rounding


@dataclass(frozen=True, slots=True)
class Spread:
    """Covariance of the parameters of a fit: for even noise, for uneven and related residuals, and of the times.

    The second is White's with the leverage correction HC3 (MacKinnon and White, J. Econometrics 29, 1985) and Bartlett
    weights over neighbours (Newey and West, Econometrica 55, 1987). Where a few updates on one flank decide it has
    nothing to go by and falls too low; there the first holds. The third is what the error of the times does to the
    readings on steep flanks.
    """

    even: Floats
    uneven: Floats
    times: Floats

    @staticmethod
    def of(design: Floats, residuals: Floats, weights: Floats, *, prior_sd: float, late: Floats) -> Spread:
        """Compute the three.

        Parameters
        ----------
        design : float64, shape (n, p)
            Derivatives of the readings by each parameter.
        residuals, weights : float64, shape (n,)
            Of the fit; Huber's weights.
        prior_sd : float
            Standard deviation of what is known beforehand of the last parameter.
        late : float64, shape (n,)
            What an error of the times, of one standard deviation, does to each reading.
        """
        scale = np.maximum(np.sqrt(np.sum(design**2, axis=0)), 1e-100)  # its square is still a number
        z = design / scale
        n, p = z.shape
        # Huber's M-estimate: the variance of the clipped residuals over the squared share of those not clipped.
        whole = max(float(np.mean(weights >= 1.0)), 0.5)
        variance = float(np.sum((weights * residuals) ** 2)) / max(n - p, 1) * float(np.mean(weights)) / whole**2
        prior = np.zeros((p, p))
        prior[-1, -1] = variance / (prior_sd * scale[-1]) ** 2
        bread = _inverse(np.asarray((z * weights[:, None]).T @ z + prior, np.float64))
        leverage = np.clip(np.sum((z @ bread) * z, axis=1) * weights, 0.0, 0.7)
        clipped = weights * residuals * float(np.mean(weights)) / whole
        scores = z * (clipped / (1.0 - leverage))[:, None]
        meat = scores.T @ scores + prior * variance
        lags = int(n**0.25)
        for lag in range(1, lags + 1):
            cross = scores[lag:].T @ scores[:-lag]
            meat += (1.0 - lag / (lags + 1.0)) * (cross + cross.T)
        shaken = z * (weights * late)[:, None]
        size = np.outer(scale, scale)
        return Spread(bread * variance / size, bread @ meat @ bread / size, bread @ shaken.T @ shaken @ bread / size)

    def deviation(self, mix: Floats) -> float:
        """Standard deviation of a linear combination of the parameters."""
        square = max(float(mix @ self.even @ mix), float(mix @ self.uneven @ mix)) + float(mix @ self.times @ mix)
        return math.sqrt(max(square, 0.0))


def _inverse(normal: Floats) -> Floats:
    """Invert a normal matrix; a direction that the data do not see has an immense variance, not none.

    A pseudo-inverse would leave such a direction out: a load in step with the updates would make a width seem known.
    """
    size = np.sqrt(np.maximum(np.diag(normal), _UNSEEN))
    values, vectors = np.linalg.eigh(normal / np.outer(size, size))
    return np.asarray((vectors / np.maximum(values, _UNSEEN)) @ vectors.T / np.outer(size, size), np.float64)
