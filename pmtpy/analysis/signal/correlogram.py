"""How much two curves look alike, over the shift of one of them. Pure; times are seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

ALIKE_CORRELATION = 0.5  # correlation below which two curves are not alike
_MOST_PEAKS = 12  # that are told: each is tried by whoever asked


def sampled(curve: PowerTrace, start_s: float, end_s: float, step_s: float) -> Floats:
    """Return the mean power in steps from start to end, watts."""
    edges = _steps(start_s, end_s, step_s)
    return np.asarray(np.diff(curve.until(edges)) / step_s, np.float64)


def _steps(start_s: float, end_s: float, step_s: float) -> Floats:
    return np.asarray(start_s + step_s * np.arange(math.ceil((end_s - start_s) / step_s) + 1), np.float64)


def seen(curve: PowerTrace, step_s: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return a curve in steps from its start, less its mean, nothing where it is not known; and where it is."""
    edges, x = _steps(curve.start_s, curve.end_s, step_s), sampled(curve, curve.start_s, curve.end_s, step_s)
    known = curve.known(edges[:-1], edges[1:])
    return np.asarray(known * (x - float(known @ x) / max(int(np.count_nonzero(known)), 1)), np.float64), known


def flanks_s(curve: PowerTrace, step_s: float) -> Floats:
    """Return when the power goes from near its lowest to near its highest, or back, in seconds from its start."""
    watts, known = seen(curve, step_s)
    low, high = np.quantile(watts[known], [0.02, 0.98])
    level = (watts - low) / max(float(high - low), 1e-300)
    settled = np.flatnonzero(known & ((level > 0.75) | (level < 0.25)))  # noise between the levels is no flank
    return np.asarray(step_s * settled[1:][np.diff(level[settled] > 0.75)], np.float64)


@dataclass(frozen=True, slots=True)
class Correlogram:
    """Correlation of two curves over the shift of one of them."""

    shift_s: Floats  # shape (n,); what is added to the times of the moving curve, in order
    r: Floats  # shape (n,); pearson's correlation over the part where both were recorded
    common: Floats  # shape (n,); how much that part is, as a share of the shorter one

    @property
    def well(self) -> npt.NDArray[np.bool_]:
        """At which shifts they have at least half as much in common as they can have."""
        return np.asarray(self.common > 0.5 * np.max(self.common), np.bool_)

    @property
    def alike(self) -> float:
        """Return the largest correlation at those."""
        return float(np.max(self.r[self.well]))

    def best(self, usual_s: float | None = None) -> float:
        """Return the shift at which they look most alike; where shifts of about ``usual_s`` are likelier, those first.

        Raises DeclinedError: they do not look alike at any.
        """
        well = self.well
        r, shift_s = self.r[well], self.shift_s[well]
        if np.max(r) < ALIKE_CORRELATION:
            msg = f"the two recordings do not look alike at any shift (best correlation {np.max(r):.2f}"
            turned = "; one is like the other's negative: is it connected the wrong way round?"
            msg += f", or {np.min(r):.2f}{turned})" if np.min(r) < -ALIKE_CORRELATION else ")"
            raise DeclinedError(msg)
        return float(shift_s[np.argmin(unlikely(r, shift_s, usual_s))])

    def peaks(self, usual_s: float | None = None) -> Floats:
        """Return the shifts at which they look nearly as much alike as at the best, which is the first.

        Raises DeclinedError: they do not look alike at any.
        """
        best = self.best(usual_s)
        r = np.concatenate([[-1.0], self.r, [-1.0]])
        at = np.flatnonzero((r[1:-1] >= r[:-2]) & (r[1:-1] > r[2:]) & (r[1:-1] > 0.8 * np.max(self.r)))
        order = at[np.argsort(unlikely(self.r[at], self.shift_s[at], usual_s), kind="stable")][:_MOST_PEAKS]
        return np.concatenate([[best], self.shift_s[order][self.shift_s[order] != best]])


def unlikely(r: Floats | float, shift_s: Floats | float, usual_s: float | None) -> Floats:
    """Return what speaks against shifts: what is not explained, and how far they are beyond what is usual; logarithm.

    Two clocks are apart by about ``usual_s`` (None: by anything), and now and then by much more.
    """
    apart = np.log1p((np.asarray(shift_s) / usual_s) ** 2) / 2.0 if usual_s is not None else 0.0
    return np.asarray(np.log(np.maximum(1.0 - np.asarray(r), 1e-9)) + apart, np.float64)


def correlogram(
    moving: PowerTrace, fixed: PowerTrace, *, reach_s: float | None = None, step_s: float = 0.005, common: float = 0.5
) -> Correlogram:
    """Correlate two curves at all shifts that leave a share of the shorter one in common.

    Parameters
    ----------
    reach_s : float, optional
        Largest shift; None: any, for clocks that have nothing in common.
    step_s : float
        Grain of the shift, unless the recordings are so long that it must be coarser.
    common : float
        The least share of the shorter one that both have in common.

    Raises DeclinedError: no shift within reach lets them overlap by so much.
    """
    length = max(fixed.end_s - fixed.start_s, moving.end_s - moving.start_s)
    step = max(step_s, length / 200_000)
    (f, here), (m, there) = seen(fixed, step), seen(moving, step)
    known_f, known_m = np.asarray(here, np.float64), np.asarray(there, np.float64)
    n, sum_f, sum_m, both, square_f, square_m = _at_all_shifts(
        (known_f, f, f * f), (known_m, m, m * m), ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
    )
    shorter = min(float(np.sum(known_f)), float(np.sum(known_m)))
    count = np.maximum(n, 1.0)
    covariance = both - sum_f * sum_m / count
    spread_f = square_f - sum_f**2 / count
    spread_m = square_m - sum_m**2 / count
    floor = 1e-3 * min(float(f @ f), float(m @ m)) + 1e-12
    r = covariance / np.sqrt(np.maximum(spread_f, floor) * np.maximum(spread_m, floor))
    shifts = step * np.arange(1 - len(m), len(f)) + (fixed.start_s - moving.start_s)
    usable = n > common * shorter
    if reach_s is not None:
        usable &= np.abs(shifts) <= reach_s
    if not np.any(usable):
        within = "at any shift" if reach_s is None else f"within {reach_s:g} s of each other"
        msg = f"the recordings do not overlap {within}"
        raise DeclinedError(msg)
    found = (shifts, r, n / max(shorter, 1.0))
    return Correlogram(*(np.asarray(values[usable], np.float64) for values in found))


def _at_all_shifts(fixed: Sequence[Floats], moving: Sequence[Floats], pairs: Sequence[tuple[int, int]]) -> list[Floats]:
    """Return the scalar products of pairs of series at all shifts, from all of the moving one before to behind.

    By one transform of each (scipy.signal does two for each pair, and takes half a second to import).
    """
    from scipy import fft

    length = len(fixed[0]) + len(moving[0]) - 1
    padded = fft.next_fast_len(length, real=True)
    ahead, back = [fft.rfft(x, padded) for x in fixed], [fft.rfft(x[::-1], padded) for x in moving]
    return [np.asarray(fft.irfft(ahead[i] * back[j], padded)[:length], np.float64) for i, j in pairs]
