"""What one recording is made of, and what it tells of a sensor: plain records, and the document made of them.

Pure; times are seconds, powers watts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pmtpy.analysis.characterisation._step_response import StepResponse
from pmtpy.analysis.characterisation.gain import Transfer
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit, Shape
from pmtpy.analysis.clocking import PublishingClock
from pmtpy.analysis.energy.beside_meter import EnergyComparison
from pmtpy.analysis.signal.estimate import Z95, Estimate, as_json
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError


@dataclass(frozen=True, slots=True)
class Series:
    """Samples over time.

    Attributes
    ----------
    t_s, watts : float64, shape (n,)
    absolute : bool
        Whether the times are wall time; else they count from an unknown instant.
    joules : float64, shape (n,), optional
        Cumulative energy at the times, where it is known: then ``watts`` may be means since the sample before.
    uncut : bool
        Whether the times are as their clock told them; else they may have been cut off to a coarse step.
    renewed_s : float64, shape (m,), optional
        When the device itself says that it renewed the value; of some renewals.
    """

    t_s: Floats
    watts: Floats
    absolute: bool = True
    joules: Floats | None = None
    uncut: bool = False
    renewed_s: Floats | None = None

    def between(self, start_s: float, end_s: float) -> Series:
        """Return what was read in a stretch of time, both ends included."""
        inside = (self.t_s >= start_s) & (self.t_s <= end_s)
        joules = None if self.joules is None else self.joules[inside]
        return replace(self, t_s=self.t_s[inside], watts=self.watts[inside], joules=joules)

    def curve(self) -> PowerTrace:
        """Return the power as a curve: by its energies where they are known, else by its samples.

        Raises
        ------
        DeclinedError
            Too few samples, or they are no numbers.
        """
        if self.joules is None:
            return PowerTrace.from_samples(self.t_s, self.watts).read_at(self.t_s)
        return PowerTrace.of_counter(self.t_s, self.joules).read_at(self.t_s)


class Reference:
    """A meter's curve as it was recorded, for one characterisation: that owns it, and lets it go once it has moved it.

    Of millions of samples each array counts: neither the samples nor the curve are held longer than they are needed.
    """

    __slots__ = ("_curve", "_declined", "absolute")

    def __init__(self, meter: Series) -> None:
        self.absolute = meter.absolute  # as of Series
        self._curve: PowerTrace | None = None
        self._declined = DeclinedError("the meter was looked at already")
        try:
            self._curve = meter.curve()
        except DeclinedError as error:
            self._declined = error

    def curve(self) -> PowerTrace:
        """Return the curve.

        Raises
        ------
        DeclinedError
            Too few samples, or they are no numbers; or it was let go.
        """
        if self._curve is None:
            raise self._declined
        return self._curve

    def let_go(self) -> None:
        """Hold the curve no longer."""
        self._curve = None


@dataclass(frozen=True, slots=True)
class Characterisation:
    """What one recording tells about one channel of a sensor. None: declined, for the reason under the same name.

    Attributes
    ----------
    channel : str
    lattice : PublishingClock or None
    bound_s : float or None
        The longest that the update period can be, of a sensor that publishes faster than it was polled.
    step : StepResponse or None
    kernel : KernelFit or None
    offset_s : Estimate or None
        Age of the kernel's end, on the host's clock.
    transfer : Transfer or None
    energy : mapping
        Comparisons by the name of the interval.
    declined : mapping
        Reasons by the name of what is missing.
    notes : tuple of str
        Shifts of clocks that were found, and doubts.
    """

    channel: str
    lattice: PublishingClock | None = None
    step: StepResponse | None = None
    kernel: KernelFit | None = None
    offset_s: Estimate | None = None
    transfer: Transfer | None = None
    energy: Mapping[str, EnergyComparison] = field(default_factory=dict)
    declined: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bound_s: float | None = None

    @property
    def response(self) -> Response | None:
        """The sensor's response for corrections; None unless period, kernel and transfer are all known."""
        if self.lattice is None or self.kernel is None or self.kernel.family == AMBIGUOUS or self.transfer is None:
            return None
        return fitted_response(self.lattice, self.kernel, self.transfer)

    @property
    def lag_s(self) -> Estimate | None:
        """Mean age of what a reading shows; None where nothing ties the reference's clock to that of the readings."""
        tie = self._tie_s()
        return None if self.kernel is None or tie is None else self.kernel.best.lag_s.widened(tie)

    def _tie_s(self) -> float | None:
        """Return how well the reference's clock is tied to the host's, as half a width; it is the same for all."""
        if self.kernel is None or self.offset_s is None:
            return None
        return math.sqrt(max(self.offset_s.half_width**2 - self.kernel.best.offset_s.half_width**2, 0.0))

    def _period(self) -> dict[str, float | None] | None:
        if self.lattice is not None:
            return {**self.lattice.period_s.scaled(1e3).as_dict()}
        return {"value": None, "low": 0.0, "high": 1e3 * self.bound_s} if self.bound_s is not None else None

    def document(self) -> dict[str, Any]:
        """Return the JSON document of ``pmtpy characterise``."""
        kernel, step, transfer = self.kernel, self.step, self.transfer
        return {
            "channel": self.channel,
            "update_period_ms": self._period(),
            "step": {
                "kind": step.kind if step else None,
                "rise_ms": as_json(step.rise_s if step else None, 1e3),
                "delay_ms": as_json(step.delay_s if step else None, 1e3),
            },
            "kernel": {
                "family": kernel.family if kernel else AMBIGUOUS,
                **as_widths(kernel),
                "offset_ms": as_json(self.offset_s, 1e3),
                "lag_ms": as_json(self.lag_s, 1e3),
                "candidates": _candidates(kernel, self._tie_s()) if kernel else [],
            },
            "levels_w": _levels(kernel.best if kernel else None),
            "gradient": as_json(transfer.gain if transfer else None),
            "intercept_w": as_json(transfer.intercept_w if transfer else None),
            "energy": {name: _energy(comparison) for name, comparison in self.energy.items()},
            "declined": dict(self.declined),
        }


def as_widths(fit: KernelFit | None) -> dict[str, Any]:
    """Return the widths of a kernel for a document, milliseconds: its own, or bounds where it is of no family.

    Variances of filters in a row add up: no boxcar and no one-pole among them has more than all of them.
    """
    if fit is None:
        return dict.fromkeys(("window_ms", "tau_ms", "spread_ms"))
    if fit.spread_s is None:
        widths: dict[str, Any] = {
            "window_ms": as_json(fit.spans("window_s"), 1e3),
            "tau_ms": as_json(fit.spans("tau_s"), 1e3),
        }
    else:
        widths = dict.fromkeys(("window_ms", "tau_ms"))
    if fit.family == AMBIGUOUS:
        most = {"window_ms": math.sqrt(12.0) * fit.spread.high, "tau_ms": fit.spread.high}
        bounds = {name: {"value": None, "low": 0.0, "high": 1e3 * high} for name, high in most.items()}
        widths = {name: widths[name] or bound for name, bound in bounds.items()}
    return {**widths, "spread_ms": as_json(fit.spread, 1e3)}


def _candidates(fit: KernelFit, tie_s: float | None) -> list[dict[str, Any]]:
    """Return the families with the share of belief in each, the likeliest first."""
    shapes = {shape.family: shape for shape in (*fit.shapes, fit.best, *fit.rivals)}
    none = dict.fromkeys(("window_ms", "tau_ms", "offset_ms", "lag_ms", "levels_w", "gradient", "intercept_w"))
    return [
        {"family": name, "share": share} | (_shape(shapes[name], tie_s) if name in shapes else none)
        for name, share in fit.odds
    ]


def _shape(shape: Shape, tie_s: float | None) -> dict[str, Any]:
    """Return what one family says; no offset and no lag where nothing ties the clocks, no gain without a meter."""
    metered = shape.levels_w is None
    return {
        "window_ms": as_json(shape.window_s, 1e3),
        "tau_ms": as_json(shape.tau_s, 1e3),
        "offset_ms": as_json(None if tie_s is None else shape.offset_s.widened(tie_s), 1e3),
        "lag_ms": as_json(None if tie_s is None else shape.lag_s.widened(tie_s), 1e3),
        "levels_w": _levels(shape),
        "gradient": as_json(shape.gain if metered else None),
        "intercept_w": as_json(shape.intercept_w if metered else None),
    }


def _levels(shape: Shape | None) -> dict[str, Any] | None:
    """Return what is shown of a stamped load's two powers, W; None beside a meter."""
    if shape is None or shape.levels_w is None:
        return None
    off, on = shape.levels_w
    return {"off": as_json(off), "on": as_json(on)}


def _energy(comparison: EnergyComparison) -> dict[str, Any]:
    return {
        "seconds": comparison.end_s - comparison.start_s,
        "coverage": comparison.coverage,
        "reference_j": comparison.reference_j,
        "held_j": comparison.held_j,
        "held_error_percent": 100.0 * comparison.held_error,
        "corrected_j": comparison.corrected_j.as_dict(),
        "corrected_error_percent": 100.0 * comparison.corrected_error,
        "aliased_j": comparison.aliased_j.as_dict(),
        "method": comparison.method,
    }


def fitted_response(lattice: PublishingClock, fit: KernelFit, transfer: Transfer) -> Response:
    """Return the response that corrections need, from the kernel that fits best, whether or not it is ambiguous."""
    best = fit.best
    return Response(
        lattice.period_s.value,
        best.window_s.value if best.window_s else 0.0,
        best.tau_s.value if best.tau_s else 0.0,
        best.offset_s.value,
        transfer.gain.value,
        transfer.intercept_w.value,
        transfer.gain.sd / transfer.gain.value,
        math.hypot(transfer.level_u, transfer.gain.sd * transfer.level_at_w),
        best.lag_s.sd,
        (best.tau_s.high - best.tau_s.value) / Z95 if best.tau_s else 0.0,  # downwards it may be cut off at none
        best.residual_w,
        known_at_w=transfer.level_at_w,
        state_w=transfer.state_w,
        state_s=transfer.state_s,
    )
