"""Time without a known energy, as curves over the time: straight but for the corners, which alone are kept."""

from __future__ import annotations

import numpy as np

from pmtpy.core.rows import Floats

_SLOPE_TOLERANCE = 1e-6  # slopes, of which 0 is all known and 1 nothing


class Uncovered:
    """How the time without a known energy grows, of some powers."""

    def __init__(self, powers: int) -> None:
        self._corners: list[tuple[list[float], list[float]]] = [([], []) for _ in range(powers)]
        self._newest = [(0.0, 0.0, np.nan)] * powers  # (time, uncovered time, slope before it); NaN: there is no row

    def add(self, t: Floats, unknown: Floats, joules: Floats) -> None:
        """Take the next rows: seconds, and up to them the seconds without a known energy, shape (n, powers).

        Rows without an energy are passed over: whether it is known, the next one that has one tells.
        """
        for j in range(len(self._corners)):
            rows = np.flatnonzero(np.isfinite(joules[:, j]))
            if not len(rows):
                continue
            last_t, last_u, slope = self._newest[j]
            if np.isnan(slope):
                last_t, last_u, slope = float(t[rows[0]]), float(unknown[rows[0], j]), np.inf
            at, u = np.append(last_t, t[rows]), np.append(last_u, unknown[rows, j])
            passed = np.diff(at)
            slopes = np.append(slope, np.divide(np.diff(u), passed, out=np.zeros(len(rows)), where=passed > 0))
            corner = np.flatnonzero(~(np.abs(np.diff(slopes)) <= _SLOPE_TOLERANCE))
            self._corners[j][0].extend(at[corner].tolist())
            self._corners[j][1].extend(u[corner].tolist())
            self._newest[j] = float(at[-1]), float(u[-1]), float(slopes[-1])

    def between(self, start: float, stop: float) -> Floats:
        """Return the seconds without a known energy between two instants, one per power; NaN: it has no energy."""
        found = np.full(len(self._corners), np.nan)
        for j, ((times, grown), (last_t, last_u, slope)) in enumerate(zip(self._corners, self._newest, strict=True)):
            if not np.isnan(slope):
                a, b = np.interp([start, stop], [*times, last_t], [*grown, last_u])
                found[j] = b - a
        return found
