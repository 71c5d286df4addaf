"""Energies of the same intervals side by side: by the meter, by readings held as they come, and corrected.

The held energy is what a program gets that polls the register and multiplies by the time until the next poll. Pure;
times are seconds on one clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.energy.estimate import region_energy
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates, tidy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError, DeclinedError


@dataclass(frozen=True, slots=True)
class Readings:
    """A channel as polled, and the updates behind the polls, on one clock."""

    t_s: Floats
    watts: Floats
    updates: Updates


@dataclass(frozen=True, slots=True)
class EnergyComparison:
    """One interval."""

    start_s: float
    end_s: float
    reference_j: float  # by the meter
    held_j: float  # by holding each poll until the next
    corrected_j: Estimate  # by everything the sensor's response allows; ``method`` says how
    method: str
    aliased_j: Estimate  # the same, with the interval that holds even if the load repeats in step with the sensor
    warnings: tuple[str, ...] = ()  # what a reader of the corrected energy must know

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
    readings: Readings,
    meter: PowerTrace,
    response: Response,
    interval: tuple[float, float],
    load: LoadIntervals | None = None,
) -> EnergyComparison:
    """Compare the energies of one interval.

    Raises DeclinedError: meter or readings do not reach over the interval.
    """
    start, end = interval
    if start < meter.start_s or end > meter.end_s or end <= start:
        msg = f"the meter does not reach over the interval from {start:.3f} to {end:.3f} s"
        raise DeclinedError(msg)
    held = held_polls(readings.t_s, readings.watts, start, end)
    updates = readings.updates
    try:
        found = region_energy(updates.t_s, updates.watts, response, start_s=start, end_s=end, load=load)
    except CoverageError as error:
        raise DeclinedError(str(error)) from error
    corrected = Estimate(found.joules, found.low, found.high)
    aliased = Estimate(found.joules, *found.aliased)
    return EnergyComparison(
        start, end, meter.energy(start, end), held, corrected, found.method, aliased, found.warnings
    )
