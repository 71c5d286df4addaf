"""Energies of powers whose energy nobody has counted, in files of our own layout: integrated, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pmtpy.io.columns import mean_powers
from pmtpy.io.read._table import Power, integrate


class Integrated:
    """Adds the energies that are missing among some columns; of means as such, else by the trapezoidal rule.

    Attributes
    ----------
    names : list of str
        The columns, with the energies behind their powers.
    said : str
        How energies came about.
    uncovered_s : float
        For how long that of the total is not known, so far.
    """

    def __init__(self, names: Sequence[str], facts: Mapping[str, Any] | None) -> None:
        powers = [n.removesuffix("_W") for n in names if n.endswith("_W")]
        self._missing = [n for n in powers if f"{n}_J" not in names]
        self.names = [m for n in names for m in ([n, f"{n[:-2]}_J"] if n[:-2] in self._missing else [n])]
        known = facts or {}
        self._means = mean_powers(known)
        summed = {c["name"] for c in known.get("channels", ()) if c.get("in_total")}
        self._means |= {"total"} if summed and summed <= self._means else set()
        means = {n in self._means for n in self._missing}
        how = "each of which is a mean since the row before" if means == {True} else "by the trapezoidal rule"
        some = "" if len(self._missing) == len(powers) else f"recorded; of {', '.join(self._missing)} "
        self.said = f"{some}integrated from the watts, {how}" if self._missing else "recorded"
        self.uncovered_s = 0.0
        self._last: dict[str, tuple[float, float, float]] = {}  # of each: time, power and energy of the last row

    def __bool__(self) -> bool:
        """Whether any is missing."""
        return bool(self._missing)

    def add(self, columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the next rows with all columns, in order."""
        made = dict(columns)
        for name in self._missing if len(columns["elapsed"]) else ():
            before = self._last.get(name)
            t, watts, lost = columns["elapsed"], columns[f"{name}_W"], columns["lost"] > 0
            if before is not None:
                t, watts, lost = np.append(before[0], t), np.append(before[1], watts), np.append(False, lost)
            joules, uncovered_s = integrate(t, Power(name, watts, mean=name in self._means), lost)
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
