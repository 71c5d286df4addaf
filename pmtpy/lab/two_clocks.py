"""Two recordings whose wall times are two clocks': what these are apart is told by what both show, and taken out.

The lag of a sensor and the offset of its clock look the same from outside, and both are taken out. Where the curves do
not tell, they are left as they are if they lie upon each other, and refused if they would, but for their clocks.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.analysis.characterisation.align import Alignment, align
from pmtpy.analysis.signal.correlogram import correlogram
from pmtpy.analysis.signal.estimate import MIN_EXPLAINED, Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.errors import DeclinedError
from pmtpy.lab.procedures import energy_curve, time_column
from pmtpy.lab.recorded import one_run

if TYPE_CHECKING:
    import pandas as pd

_MIN_SHIFT_GAIN = 0.1  # of the variance, which a shift explains and wall times do not: clocks that differ


@dataclass(frozen=True, slots=True)
class Together:
    """Two recordings on the clock of the second."""

    tables: tuple[pd.DataFrame, pd.DataFrame]
    notes: tuple[str, ...]
    lag_s: Estimate | None  # how far the first ran behind, where it was told
    rate: float = 0.0  # by which it was put on the clock of the second
    one_clock: bool = False


def together(sensor: pd.DataFrame, reference: pd.DataFrame, columns: tuple[str, str]) -> Together:
    """Put a recording on the clock of a reference.

    Parameters
    ----------
    columns : str
        ``NAME_W`` of both.

    Raises DeclinedError: their clocks differ, and by how much cannot be told.
    Raises TargetError: one has no wall time.
    """
    times = time_column((sensor, reference))
    if one_run((sensor, reference)):
        return Together((sensor, reference), (), None, one_clock=True)
    both = "the recordings are put side by side by their wall times, which are two clocks'"
    try:
        moving, fixed = (energy_curve(table, c, times) for table, c in zip((sensor, reference), columns, strict=True))
        found = _aligned(moving, fixed)
    except DeclinedError as error:
        return Together((sensor, reference), (f"{both}, and what these are apart cannot be told: {error}",), None)
    if isinstance(found, str):
        raise DeclinedError(found)
    lag = found.lag_s
    if lag.contains(0.0):
        return Together((sensor, reference), (f"{both}; they agree within {1e3 * lag.half_width:.3g} ms",), lag)
    rate = found.rate.value
    # Its powers stay those of its own seconds: what it counted in them is in fewer or more of the reference's.
    energies = {name: sensor[name] / (1.0 + rate) for name in (f"{columns[0][:-1]}J",) if name in sensor}
    moved = sensor.assign(**{times: found.on_reference(sensor[times].to_numpy(np.float64))}, **energies)
    told = f"the sensor's runs behind by {lag.value:.4g} s (95 %: {lag.low:.4g} to {lag.high:.4g}), which is taken out"
    return Together((moved, reference), (f"{both}; {told}", *([found.note] if found.note else [])), lag, rate)


def _aligned(moving: PowerTrace, fixed: PowerTrace) -> Alignment | str:
    """Lay one curve upon another: at any lag, else at the smallest of those that fit alike.

    Returns why the recordings cannot be used as they are, where they would lie upon each other at some lag.

    Raises DeclinedError: nothing shows a lag.
    """
    try:
        return align(moving, fixed)
    except DeclinedError as error:
        with contextlib.suppress(DeclinedError):
            return align(moving, fixed, one_clock=True)
        alike = correlogram(moving, fixed, step_s=max(moving.cell_s, fixed.cell_s))
        here, best = (np.clip(r, 0.0, 1.0) ** 2 for r in (np.interp(0.0, alike.shift_s, alike.r), np.max(alike.r)))
        if best < MIN_EXPLAINED or here > best - _MIN_SHIFT_GAIN:
            raise
        return (
            f"by their wall times the two explain {here:.0%} of each other, and {best:.0%} at another lag: their clocks"
            f" differ, and by how much cannot be told ({error})"
        )
