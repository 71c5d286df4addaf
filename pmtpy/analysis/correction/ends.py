"""Readings of a one-pole near the ends of a region, freed of noise where the power was steady. Pure; seconds, watts.

The energy of a region from an inverted one-pole is the integral of the readings, and the time constant times their rise
from one end to the other: all but nothing of the noise is that of two readings. Around each end the power is mostly
steady, where readings keep to

    y(t) = x + (y_end - x) exp(-(t - end)/tau)

So those near an end are replaced by this curve, where it explains them: a load that was switched there leaves far more
than noise. See docs/corrections.md.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.signal.response import Response
from pmtpy.core.rows import Floats

_NEAR = 10  # periods on either side, or twice as many before: with more, drifts are no longer steady
_FEW = 6  # readings that a curve of two unknowns is checked by
_CHANCE = 3.5  # standard deviations that the scatter about the curve may exceed that of noise by


def calm_ends(t_s: Floats, power: Floats, response: Response, ends_s: tuple[float, float]) -> tuple[Floats, float]:
    """Replace readings near both ends by curves of steady power.

    Parameters
    ----------
    t_s, power : float64, shape (n,)
        Instants and values, gain and offset undone.
    ends_s : (float, float)
        Start and end of the region.

    Returns
    -------
    calmed : float64, shape (n,)
    noise_w : float
        Standard uncertainty of the difference of the two readings at the ends.
    """
    calmed, variance = power, 0.0
    reach = min(_NEAR * response.period_s, response.tau_s)  # where the curve still bends by what readings can show
    for end in ends_s:
        at = end + response.delay_s
        for low, high in ((at - reach, at + reach), (at - 2.0 * reach, at)):
            near = (t_s >= low) & (t_s <= high)
            curve, share = _steady(t_s[near] - at, power[near], response)
            if curve is not None:
                calmed = calmed.copy()
                calmed[near] = curve
                break
        variance += share * response.noise_in_s**2
    return calmed, math.sqrt(variance)


def _steady(since: Floats, power: Floats, response: Response) -> tuple[Floats | None, float]:
    """Return the curve, and the share of one reading's variance that its value at the end has; None, 1 where none."""
    n, noise = len(since), response.noise_in_s
    if n < _FEW:
        return None, 1.0
    decay = np.exp(-since / response.tau_s)
    design = np.column_stack([1.0 - decay, decay])  # the power, and the reading at the end
    unknown, *_ = np.linalg.lstsq(design, power, rcond=None)
    curve = np.asarray(design @ unknown, np.float64)
    scatter = float(np.sum((power - curve) ** 2)) / (n - 2)
    rough = float(np.mean(np.diff(power, 2) ** 2)) / 6.0  # the same of white noise, and less of a power that moved
    if scatter > min(noise**2, rough) * (1.0 + _CHANCE * math.sqrt(2.0 / (n - 2))):
        return None, 1.0
    return curve, float(np.linalg.inv(design.T @ design)[1, 1])
