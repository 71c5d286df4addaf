"""Corrections on request, beside those that are chosen: a published one for comparison, and one without stamps.

Pure; seconds, watts, joules; updates, never polls. docs/corrections.md says what they are worth.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.energy.estimate import Energy
from pmtpy.analysis.uncertainty.components import of_scale
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError

_MAX_UNSEEN_SHARE = 0.25  # of a load's cycle: folding cannot bridge more
_MIN_UPDATES = 10  # updates that folding needs


def held_energy(t_s: Floats, watts: Floats, *, start_s: float, end_s: float, period_s: float) -> float:
    """Energy of an interval when each update counts from its publication to the next: what holding the register gives.

    Raises CoverageError: the updates do not reach over the interval.
    """
    bounds = np.append(t_s, t_s[-1:] + period_s)
    if start_s < bounds[0] - 1e-9 or end_s > bounds[-1] + 1e-9:
        msg = f"updates do not cover the interval from {start_s:.3f} to {end_s:.3f} s"
        raise CoverageError(msg)
    joules = np.concatenate([[0.0], np.cumsum(watts * np.diff(bounds))])
    return float(np.interp(end_s, bounds, joules) - np.interp(start_s, bounds, joules))


def invert_one_pole(t_s: Floats, watts: Floats, tau_s: float) -> Floats:
    """Undo a one-pole filter, exactly for a power that is constant between updates.

    Returns the mean power of each interval that *ends* at an update; the first one is the first reading itself. The
    variance of the noise grows by ``(1 + q) / (1 - q)``, ``q = exp(-dt / tau)``.
    """
    if tau_s == 0.0 or len(t_s) < 2:
        return np.array(watts, np.float64)
    q = np.exp(-np.diff(t_s) / tau_s)
    return np.concatenate([watts[:1], (watts[1:] - q * watts[:-1]) / (1.0 - q)])


def burtscher(t_s: Floats, watts: Floats, capacitance_s: float, limit_w: float = math.inf) -> Floats:
    """Correct K20-class readings as Burtscher, Zecena and Zong do (GPGPU-7, 2014): central differences.

    ``P(t) = y + C dy/dt``, negative results set to 0, those above the board's limit to the limit. For comparison:
    :func:`invert_one_pole` does the same exactly. The authors' released tool uses ``C``
    = 840 ms for a K20; it is the one-pole time constant of the board at hand and has to be fitted for it.
    """
    if len(t_s) < 3:
        return np.array(watts, np.float64)
    slope = np.zeros(len(t_s))
    slope[1:-1] = (watts[2:] - watts[:-2]) / (t_s[2:] - t_s[:-2])
    return np.asarray(np.clip(watts + capacitance_s * slope, 0.0, limit_w), np.float64)


def folded_energy(
    t_s: Floats, watts: Floats, response: Response, load_period_s: float, *, start_s: float, end_s: float
) -> Energy:
    """Energy of a periodic load by equivalent-time sampling: updates sorted by load phase, averaged over the phase.

    Each update weighs half the phase between its neighbours, so an uneven spread over the phases does not alias.
    Good for whole periods; the shape of the result is not the shape of the power.

    Raises CoverageError: fewer than 10 updates in the interval, or a quarter of the load's cycle that none of them
    sees.
    """
    inside = (t_s >= start_s + response.lag_s) & (t_s < end_s + response.lag_s)
    if np.count_nonzero(inside) < _MIN_UPDATES:
        msg = f"only {np.count_nonzero(inside)} updates fall into the interval; folding needs {_MIN_UPDATES}"
        raise CoverageError(msg)
    phase = np.mod(t_s[inside] - response.lag_s, load_period_s) / load_period_s
    order = np.argsort(phase)
    phase, power = phase[order], response.power(watts[inside])[order]
    gaps = np.diff(np.append(phase, phase[0] + 1.0))
    if float(gaps.max()) > _MAX_UNSEEN_SHARE:
        msg = (
            f"no update sees {float(gaps.max()):.0%} of the load's cycle of {load_period_s:.4g} s: it nearly beats "
            "with the sensor; take a longer interval or another period"
        )
        raise CoverageError(msg)
    mean = float(np.sum((power + np.roll(power, -1)) / 2.0 * gaps))
    jumps = np.abs(np.diff(np.append(power, power[0])))
    jumps = np.where(gaps > 3.0 / len(gaps), float(np.ptp(power)), jumps)  # anything may hide in a wide gap
    length = end_s - start_s
    parts = [
        ("phase", float(np.sqrt(np.sum((jumps * gaps) ** 2) / 12.0)) * length),
        *of_scale(response, response.gain_u, response.offset_u / response.gain, mean * length, length).items(),
    ]
    return Energy.of(mean * length, "phase folding", parts)
