"""Energies of the same intervals side by side: by the meter, by readings held as they come, and corrected.

The held energy is what a program gets that polls the register and multiplies by the time until the next poll. Pure;
times are seconds on one clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.energy.estimate import region_energy
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import PowerTrace, outside
from pmtpy.analysis.signal.updates import Updates, tidy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.presentation import not_covered
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError, DeclinedError


@dataclass(frozen=True, slots=True)
class PolledChannel:
    """A channel as polled, and the updates behind the polls, on one clock."""

    t_s: Floats
    watts: Floats
    updates: Updates


@dataclass(frozen=True, slots=True)
class EnergyComparison:
    """One interval."""

    start_s: float
    end_s: float
    reference_j: float  # by the meter, over what it knows of the interval, as all that follow
    held_j: float  # by holding each poll until the next
    corrected_j: Estimate  # by everything the sensor's response allows; ``method`` says how
    method: str
    aliased_j: Estimate  # the same, with the interval that holds even if the load repeats in step with the sensor
    warnings: tuple[str, ...] = ()  # what a reader of the corrected energy must know
    coverage: float = 1.0  # share of the interval that the meter knows

    @property
    def held_error(self) -> float:
        """Relative error of the held energy."""
        return self.held_j / self.reference_j - 1.0

    @property
    def corrected_error(self) -> float:
        """Relative error of the corrected energy."""
        return self.corrected_j.value / self.reference_j - 1.0


def held_polls(t_s: Floats, watts: Floats, start_s: float, end_s: float) -> float:
    """Energy of an interval when each poll's value is held until the next poll, joules."""
    t, v = tidy(t_s, watts)
    if len(t) < 2 or start_s < t[0] or end_s > t[-1]:
        msg = f"the polls do not reach over the interval from {start_s:.3f} to {end_s:.3f} s"
        raise DeclinedError(msg)
    joules = np.concatenate([[0.0], np.cumsum(v[:-1] * np.diff(t))])
    ends = np.interp([start_s, end_s], t, joules)
    return float(ends[1] - ends[0])


def compare_energy(
    readings: PolledChannel,
    meter: PowerTrace,
    response: Response,
    interval: tuple[float, float],
    load: LoadIntervals | None = None,
) -> EnergyComparison:
    """Compare the energies of one interval, over what the meter knows of it.

    Raises DeclinedError: meter or readings do not reach over the interval, or the meter knows nothing of it.
    """
    start, end = interval
    if start < meter.start_s or end > meter.end_s or end <= start:
        msg = f"the meter does not reach over the interval from {start:.3f} to {end:.3f} s"
        raise DeclinedError(msg)
    parts = outside(meter.holes_s, start, end)
    if not parts:
        msg = f"the meter has no rows in the interval from {start:.3f} to {end:.3f} s"
        raise DeclinedError(msg)
    updates = readings.updates
    try:
        found = [region_energy(updates.t_s, updates.watts, response, start_s=a, end_s=b, load=load) for a, b in parts]
    except CoverageError as error:
        raise DeclinedError(str(error)) from error
    known_s = math.fsum(b - a for a, b in parts)
    doubts = [why for f in found for why in f.warnings]
    if len(parts) > 1 or known_s < end - start:
        doubts.insert(0, f"of the meter {not_covered(end - start - known_s, end - start)}")
    joules = math.fsum(f.joules for f in found)
    return EnergyComparison(
        start,
        end,
        math.fsum(meter.energy(a, b) for a, b in parts),
        math.fsum(held_polls(readings.t_s, readings.watts, a, b) for a, b in parts),
        # What errs in one part errs alike in the others, the gain above all: their half-widths are added.
        Estimate(joules, math.fsum(f.low for f in found), math.fsum(f.high for f in found)),
        found[0].method,
        Estimate(joules, *(math.fsum(f.aliased[side] for f in found) for side in (0, 1))),
        tuple(dict.fromkeys(doubts)),
        known_s / (end - start),
    )
