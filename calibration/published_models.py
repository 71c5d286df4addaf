"""Published models of power and time over the clock, to fit single kernels and to show where sharing them fails.

    P(f) = min(P_cap, P_s + a f (1 + max(0, b (f - f_r)))^2)     voltage flat to a ridge clock, then linear
    T(f) = a / (1 + b f) + c / (1 + d f)                         Fejsko 2025; roofline: T(f) = A / f + B
    P_corr = P(f_k) - P^(f_k) + P^(f)                            one kernel's curve moved up or down for all

The first is Kernel Tuner's (Schoonhoven et al., PMBS 2022), the others are those of Fejsko, MSc thesis, Leiden 2025.
Use :mod:`pmtpy.analysis.transfer.predict` to predict; docs/frequency.md compares. Clocks are measured ones, in MHz.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.signal.estimate import Estimate, student_95
from pmtpy.analysis.transfer.table import Table
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_CLOCKS = 5  # the fewest that leave a degree of freedom
_RIDGES, _SLOPES = 401, 400  # grid of ridge clocks and of voltage slopes
_STEEPEST = 3.0  # voltage at the highest clock over that at the ridge: no chip doubles it


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Power of one kernel over the clock."""

    # ``P_s``, ``a`` (W/MHz) and ``b`` (1/MHz)
    static_w: float
    slope: float
    rise: float
    ridge_mhz: Estimate  # clock above which voltage rises
    cap_w: float  # power limit seen, infinite if none was
    residual: float  # root mean square relative residual

    def watts(self, mhz: Floats) -> Floats:
        """Power at clocks ``mhz``."""
        dynamic = self.slope * mhz * (1.0 + np.maximum(0.0, self.rise * (mhz - self.ridge_mhz.value))) ** 2
        return np.asarray(np.minimum(self.cap_w, self.static_w + dynamic), np.float64)


def fit_power_curve(mhz: Floats, watts: Floats, *, cap_w: float = math.inf, noise: float | None = None) -> PowerCurve:
    """Fit the ridge model from many starts, on relative residuals; the two linear parameters are solved inside.

    Parameters
    ----------
    noise : float, optional
        Relative standard deviation of a power; None: from the residuals.

    Raises DeclinedError: fewer than five different clocks, or powers that do not rise with them.
    """
    f, p = np.asarray(mhz, np.float64), np.asarray(watts, np.float64)
    if len(np.unique(np.round(f))) < _CLOCKS or not np.all(p > 0):
        msg = f"a power curve needs positive powers at {_CLOCKS} different clocks or more"
        raise DeclinedError(msg)
    free = p < 0.995 * cap_w
    top = float(f.max())
    ridges = np.linspace(float(f.min()), top, _RIDGES)[:-1]
    best = [_best_slope(f[free], p[free], float(ridge), top) for ridge in ridges]
    losses = np.array([loss for loss, *_ in best])
    i = int(np.argmin(losses))
    loss, static, slope, rise = best[i]
    if slope <= 0:
        msg = "the power does not rise with the clock: held down by its limit, or not this kernel's"
        raise DeclinedError(msg)
    n = int(np.count_nonzero(free))
    freedom = max(1, n - 4)
    # 95 % of one parameter: Student's t squared, or chi-square where the noise is known.
    bound = loss * (1.0 + student_95(freedom) ** 2 / freedom) if noise is None else loss + 3.84 * noise**2
    inside = ridges[losses <= bound]
    ridge = Estimate(float(ridges[i]), float(inside.min()), float(inside.max()))
    return PowerCurve(static, slope, rise, ridge, cap_w, math.sqrt(loss / n))


def _best_slope(f: Floats, p: Floats, ridge: float, top: float) -> tuple[float, float, float, float]:
    """Sum of squared relative residuals, static power, dynamic slope and voltage slope for a ridge."""
    rises = np.linspace(0.0, 1.0, _SLOPES) ** 2 * (_STEEPEST - 1.0) / max(top - ridge, 1.0)
    x = 1.0 / p  # relative residuals: static * x + slope * z - 1
    z = f * (1.0 + np.maximum(0.0, rises[:, None] * (f - ridge))) ** 2 / p
    xx, xz, zz, x1, z1 = float(x @ x), z @ x, np.sum(z * z, axis=1), float(x.sum()), np.sum(z, axis=1)
    determinant = np.maximum(xx * zz - xz * xz, 1e-300)
    static = np.maximum((zz * x1 - xz * z1) / determinant, 0.0)  # a chip does not generate power at rest
    slope = (z1 - static * xz) / zz
    loss = np.sum((static[:, None] * x + slope[:, None] * z - 1.0) ** 2, axis=1)
    i = int(np.argmin(loss))
    return float(loss[i]), float(static[i]), float(slope[i]), float(rises[i])


def roofline_time(mhz: Floats, time_s: Floats) -> tuple[float, float]:
    """Fit ``T = A / f + B`` with ``A, B >= 0`` on relative residuals; return A (s MHz) and B (s)."""
    design = np.stack([1.0 / (mhz * time_s), 1.0 / time_s], axis=1)
    (a, b), *_ = np.linalg.lstsq(design, np.ones(len(mhz)), rcond=None)
    if a < 0.0:
        return 0.0, float(1.0 / np.mean(1.0 / time_s))
    if b < 0.0:
        return float(1.0 / np.mean(1.0 / (mhz * time_s))), 0.0
    return float(a), float(b)


def shared_curve_energy(table: Table, reference: str, at_mhz: float, *, own_time: bool = False) -> Floats:
    """Predict every row's energy by the published recipe: the curves of one configuration for all.

    Power is each configuration's own at the clock ``at_mhz``, moved by the difference that the reference's curve
    makes; time is the reference's, or with ``own_time`` the measured one of each row. Joules, per row of the table;
    NaN where a configuration was not measured at ``at_mhz``.
    """
    groups = table.by_config()
    own = table.rows(groups[reference])
    curve = fit_power_curve(own.core_mhz, own.power_w)
    a, b = roofline_time(own.core_mhz, own.time_s)
    out = np.full(len(table.config), math.nan)
    for rows in groups.values():
        near = rows[np.abs(table.set_mhz[rows] - at_mhz) < 0.5]
        if not len(near):
            continue
        k = near[0]
        shift = curve.watts(table.core_mhz[rows]) - curve.watts(table.core_mhz[[k]])
        time_s = table.time_s[rows] if own_time else a / table.core_mhz[rows] + b
        out[rows] = (table.power_w[k] + shift) * time_s
    return out
