"""Energies of powers whose energy nobody has counted, in files of our own layout: integrated, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.io.columns import mean_columns, powers_among
from pmtpy.io.read._check import late
from pmtpy.io.read._table import Power, integrate

RECORDED = "recorded"  # what is said of energies none of which was missing
_MEDIAN_ROWS = 10_000  # of the newest rows, by which the next block tells what interval is usual


class Integrated:
    """Adds the energies that are missing among some columns; of means as such, else by the trapezoidal rule.

    Where no metadata tell how rows came about, a column of energies without any is missing as well, and rows are
    missing where none came for long: that time has no energy.

    Attributes
    ----------
    names : list of str
        The columns, with the energies behind their powers.
    told : bool
        Whether metadata tell how rows came about.
    uncovered_s : float
        For how long that of the total is not known, so far.
    """

    def __init__(self, names: Sequence[str], facts: Mapping[str, Any] | None) -> None:
        self._powers = powers_among(names)
        self._missing = [n for n in self._powers if f"{n}_J" not in names]
        self.names = [m for n in names for m in ([n, f"{n[:-2]}_J"] if n[:-2] in self._missing else [n])]
        known = facts or {}
        self.told = bool(known.get("channels"))
        self._means = mean_columns(known)
        self.uncovered_s = 0.0
        self._last: dict[str, tuple[float, float, float]] = {}  # of each: time, power and energy of the last row
        self._steps: Floats = np.zeros(0)
        self._holes: list[tuple[float, float, float]] = []  # behind when, how long, the usual interval; seconds

    def __bool__(self) -> bool:
        """Whether any is missing."""
        return bool(self._missing)

    def look(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Tell from the first rows which energies are empty though their powers are not."""
        if not self.told:
            self._missing += [
                n
                for n in self._powers
                if n not in self._missing and np.isnan(columns[f"{n}_J"]).all() and np.isfinite(columns[f"{n}_W"]).any()
            ]

    @property
    def said(self) -> str:
        """How energies came about."""
        if not self._missing:
            return RECORDED
        means = {n in self._means for n in self._missing}
        how = "each of which is a mean since the row before" if means == {True} else "by the trapezoidal rule"
        some = "" if len(self._missing) == len(self._powers) else f"{RECORDED}; of {', '.join(self._missing)} "
        return f"{some}integrated from the watts, {how}"

    def notes(self) -> list[str]:
        """Say where rows are missing."""
        if not self._holes:
            return []
        more = f" (and {amount(len(self._holes) - 1, 'more time')})" if len(self._holes) > 1 else ""
        at, long, usual = self._holes[0]
        what = f"no row for {long:.3f} s, where one comes every {usual:.3g} s; that time has no energy"
        return [f"behind {at:.6g} s{more}: {what}"]

    def add(self, columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the next rows with all columns, in order."""
        made = dict(columns)
        some = self._missing if len(columns["elapsed"]) else []
        hole = self._hole(columns["elapsed"]) if some else np.zeros(0, np.bool_)
        for name in some:
            before = self._last.get(name)
            t, watts, unknown = columns["elapsed"], columns[f"{name}_W"], (columns["lost"] > 0) | hole
            if before is not None:
                t, watts, unknown = np.append(before[0], t), np.append(before[1], watts), np.append(False, unknown)
            joules, uncovered_s = integrate(t, Power(name, watts, mean=name in self._means), unknown)
            base = 0.0 if before is None or np.isnan(before[2]) else before[2]
            if base and np.isnan(joules).all():  # no power is known in this block: nothing is added
                joules = np.zeros(len(joules))
            joules = joules + base
            self._last[name] = float(t[-1]), float(watts[-1]), float(joules[-1])
            made[f"{name}_J"] = joules if before is None else joules[1:]
            self.uncovered_s += uncovered_s if name == "total" else 0.0
        for name in self._missing:
            made.setdefault(f"{name}_J", np.empty(0))
        rest = [n for n in made if n not in self.names]
        return {n: made[n] for n in (*rest, *self.names) if n in made}

    def _hole(self, elapsed: Floats) -> npt.NDArray[np.bool_]:
        """Mark the rows before which others are missing, as far as the intervals between them tell."""
        last = next(iter(self._last.values()), None)
        steps = np.diff(elapsed, prepend=elapsed[0] if last is None else last[0])
        known = np.concatenate([self._steps, steps[1:] if last is None else steps])
        self._steps = known[-_MEDIAN_ROWS:]
        hole: npt.NDArray[np.bool_] = np.zeros(len(steps), np.bool_)
        if not self.told:
            rows, usual = late(steps, known)
            hole[rows] = True
            self._holes += [(float(elapsed[i] - steps[i]), float(steps[i]), usual) for i in rows.tolist()]
        return hole
