"""Time without a known energy, as curves over the time: straight but for the corners, which alone are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pmtpy.core.rows import Floats
from pmtpy.io.columns import downsampled
from pmtpy.io.recorded import UncoveredTime, layout_of

_SLOPE_TOLERANCE = 1e-6  # slopes, of which 0 is all known and 1 nothing
_UNKNOWN = 0.5  # a slope from which on more is unknown than known


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

    def unknown(self, power: int, start: float = -np.inf, stop: float = np.inf) -> tuple[Floats, Floats]:
        """Return where, about the time between two instants, the energy of a power is not known: starts and ends."""
        (times, grown), (last_t, last_u, slope) = self._corners[power], self._newest[power]
        if np.isnan(slope):
            return np.empty(0), np.empty(0)
        t, u = np.array([*times, last_t]), np.array([*grown, last_u])
        first, last = np.searchsorted(t, [start, stop])
        part = slice(max(0, int(first) - 1), int(last) + 1)
        at = np.flatnonzero(np.diff(u[part]) > _UNKNOWN * np.diff(t[part])) + part.start
        return t[at], t[at + 1]


class UncoveredRows:
    """The time without a known energy of a recording, of some of its powers, while its rows are read.

    Parameters
    ----------
    names : sequence of str
        All columns of the recording.
    facts : dict or None
        Metadata that belong to it.
    joules : str
        How energies came about, for a recording without metadata.
    powers : sequence of str
        Which, without unit, in the order in which they are asked for.
    """

    def __init__(self, names: Sequence[str], facts: dict[str, Any] | None, joules: str, powers: Sequence[str]) -> None:
        self._layout = layout_of(names, facts, joules).layout
        self._rule = UncoveredTime.of(self._layout, thinned=downsampled(facts or {}))
        self._columns = [self._layout.names.index(name) for name in powers]

    def seconds(self, columns: Mapping[str, Any]) -> Floats:
        """Take the next rows, one or more; return for how long no energy is known up to each, shape (n, powers)."""
        t_ns = np.rint(columns["elapsed"] * 1e9).astype(np.int64)
        watts, joules = (self._of_powers(columns, unit) for unit in "WJ")
        found = self._rule.add(t_ns, watts, joules, columns["lost"])[:, self._columns]
        return np.asarray(found / 1e9, np.float64)

    def _of_powers(self, columns: Mapping[str, Any], unit: str) -> Floats:
        """Return the watts or the joules of all powers, shape (n, k); NaN where there is no such column."""
        nothing = np.full(len(columns["elapsed"]), np.nan)
        return np.column_stack([columns.get(f"{name}_{unit}", nothing) for name in self._layout.names])
