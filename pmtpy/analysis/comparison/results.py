"""What a comparison of sensors is made of, and what it finds: plain records, and the document made of them.

Pure; times are seconds, powers watts, energies joules.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pmtpy.analysis.characterisation.gain import Transfer
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.clocking import Polling
from pmtpy.analysis.signal.clock_fit import ClockFit
from pmtpy.analysis.signal.estimate import NO_VALUE, Estimate, as_json, written
from pmtpy.core.channel import Channel, Quantity, sum_of_kinds
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.markers import Span
from pmtpy.core.presentation import html_notes, html_table, in_same_digits, number_or_none
from pmtpy.core.rows import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What one sensor showed.

    Attributes
    ----------
    name : str
    t_s, watts : float64, shape (n,)
        Rows in order of time.
    joules : float64, shape (n,), optional
        Cumulative energy where the sensor counts it; else it is integrated by the trapezoidal rule.
    lost : int64, shape (n,), optional
        Rows missing before each row.
    channel : Channel, optional
        What is known of the sensor: its refresh, window and uncertainties enter into those of energies.
    regions : tuple of Span
        Spans that were marked, on this trace's clock.
    polling : Polling, optional
        How the sensor was polled, where the rows are only those of polls that brought something new.
    time_u_s : float
        Standard uncertainty of the times of its rows, common to all of them.
    aged_s : float
        How old a value may be at its row: the time between two polls; 0 where rows bear the instant of its renewal.
    load : LoadIntervals, optional
        When its device worked, on this trace's clock; its energies are corrected by that where the reference has the
        same clock.
    virtual : bool
        Its energy is emulated; pictures say so.
    """

    name: str
    t_s: Floats
    watts: Floats
    joules: Floats | None = None
    lost: Ints | None = None
    channel: Channel | None = None
    regions: tuple[Span, ...] = ()
    polling: Polling | None = None
    time_u_s: float = 0.0
    aged_s: float = 0.0
    load: LoadIntervals | None = None
    virtual: bool = False

    def shifted(self, by_s: float) -> Trace:
        """Return the trace on a clock that is ahead by ``by_s``; its regions stay."""
        load = None if self.load is None else self.load.shifted(by_s)
        return replace(self, t_s=np.asarray(self.t_s + by_s, np.float64), load=load)


def stated(
    name: str, parts: Sequence[Channel], mean_watts: Mapping[str, float], *, mean_s: float | None = None
) -> Channel | None:
    """Return what is known of a power that is the sum of some channels; None of no channel.

    Parameters
    ----------
    name : str
        Of the power.
    parts : sequence of Channel
        Those that it is the sum of.
    mean_watts : mapping of str to float
        By the names of channels: how much each has to do with the gain of the sum.
    mean_s : float, optional
        Over which time each row is a mean, where a stream was thinned.
    """
    if not parts:
        return None

    def most(of: Callable[[Channel], float | None]) -> float | None:
        return max((value for c in parts if (value := of(c)) is not None), default=None)

    gains = sum_of_kinds((c.kind, c.gain_u * abs(mean_watts.get(c.name, 0.0))) for c in parts)
    made = Channel(
        name,
        Quantity.ENERGY if all(c.quantity is Quantity.ENERGY for c in parts) else Quantity.POWER,
        method=parts[0].energy_method,
        refresh_s=mean_s or most(lambda c: c.refresh_s),
        window_s=mean_s or most(lambda c: c.window_s),
        lag_s=most(lambda c: c.lag_s),
        resolution=most(lambda c: c.smallest_step),
        gain_u=gains / max(abs(sum(mean_watts.values())), 1e-9),
        offset_u=sum_of_kinds((c.kind, c.offset_u) for c in parts),
        noise=math.hypot(*(c.noise for c in parts)),
    )
    if made.lag_s is None:
        return made
    open_s = most(lambda c: c.response.delay_u if c.lag_s is not None else None)  # what a profile leaves open of it
    return replace(made, response=replace(made.response, delay_u=open_s or 0.0))


@dataclass(frozen=True, slots=True)
class Energy:
    """What one sensor says about one region.

    Attributes
    ----------
    joules, uncertainty_joules : float
        Energy, as the sensor shows it over what its rows cover, and its standard uncertainty, which knows of the rest.
    watts : float
        Mean power over the part for which the energy is known; NaN where there is none.
    difference_j, difference, sigmas : float
        From the reference over what both cover, in joules, relative to the reference and in units of the combined
        uncertainty of both. NaN for the reference; the latter also where it is not known how well one of the two is
        calibrated.
    corrected_j : Estimate or None
        With its lag, gain and offset against the reference undone, 95 %; None where they are not known.
    coverage : float
        Share of the region whose energy is known: what its rows cover, and of a counter the time between them too.
    warnings : tuple of str
    calibration_known : bool
        Whether it is known how well the sensor is calibrated. If not, the uncertainty is at least the one that stands
        here.
    """

    joules: float
    uncertainty_joules: float
    watts: float
    difference_j: float = math.nan
    difference: float = math.nan
    sigmas: float = math.nan
    corrected_j: Estimate | None = None
    coverage: float = 1.0
    warnings: tuple[str, ...] = ()
    calibration_known: bool = True

    def __str__(self) -> str:
        """Return the energy in one line: ``276.3 J +- 7.5 J``."""
        return "{} J +- {} J".format(*self.in_digits())

    def in_digits(self) -> tuple[str, str]:
        """Return energy and uncertainty in joules, as far as they count: ``276.3`` and ``7.5``, or ``at least 7.5``."""
        joules, uncertainty = in_same_digits(self.joules, self.uncertainty_joules)
        return joules, uncertainty if self.calibration_known else f"at least {uncertainty}"

    def true_error(self, true_j: float | None) -> float:
        """Return how far it is from the true energy, relative to that; NaN where that, or part of it, is not known."""
        return self.joules / true_j - 1.0 if true_j and self.coverage == 1.0 else math.nan


@dataclass(frozen=True, slots=True)
class RegionEnergies:
    """One region, by every sensor that covers it.

    Attributes
    ----------
    region : Span
        On the reference's clock.
    energies : mapping of str to Energy
    true_j : float or None
        The truth, where an emulated world tells it.
    """

    region: Span
    energies: Mapping[str, Energy]
    true_j: float | None = None

    @property
    def seconds(self) -> float:
        """Length of the region."""
        return self.region.end - self.region.start


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """One sensor against the reference; of the reference itself only what it tells alone. None: see ``declined``.

    Attributes
    ----------
    name : str
    samples : int
    seconds, mean_w : float
        Length of the trace, and mean power over it.
    period_s : Estimate or None
        Time between updates, as seen.
    kernel : KernelFit or None
        Averaging window or time constant, as seen against the reference.
    lag_s : Estimate or None
        How far it runs behind the reference: by the kernel where that is known, else by the shapes of the curves.
    clock : ClockFit or None
        How its clock stands to the reference's: the lag less the mean age of what the kernel averages, where that
        is known. None: the clocks are one, or nothing is known.
    clock_offset_s : Estimate or None
        How far its clock is ahead of the reference's, at the middle: as ``clock`` has it, with an interval that also
        holds what is not known of where in what it averages either stamps a row.
    transfer : Transfer or None
        Gain and offset: ``shown = gain * reference + offset``.
    t_s : float64, shape (n,)
        Its rows on the reference's clock. A sensor's own lag is left in, as far as it can be told from the clock's.
    residual_t_s, residual_w : float64, shape (m,)
        What is left of its readings when lag, window, gain and offset are taken into account.
    declined : mapping of str to str
        Reasons by the name of what is missing.
    notes : tuple of str
    """

    name: str
    samples: int
    seconds: float
    mean_w: float
    t_s: Floats
    period_s: Estimate | None = None
    kernel: KernelFit | None = None
    lag_s: Estimate | None = None
    clock: ClockFit | None = None
    clock_offset_s: Estimate | None = None
    transfer: Transfer | None = None
    residual_t_s: Floats = field(default_factory=lambda: np.empty(0))
    residual_w: Floats = field(default_factory=lambda: np.empty(0))
    declined: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def residual_rms_w(self) -> float:
        """Root mean square of the residuals; NaN where there are none."""
        return float(np.sqrt(np.mean(self.residual_w**2))) if len(self.residual_w) else math.nan


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything about a set of sensors that watched the same power.

    Attributes
    ----------
    reference : str
    one_clock : bool
    sensors : tuple of Compared
        In the order given.
    regions : tuple of RegionEnergies
    """

    reference: str
    one_clock: bool
    sensors: tuple[Compared, ...]
    regions: tuple[RegionEnergies, ...]

    def __getitem__(self, name: str) -> Compared:
        """Return what is said of one sensor."""
        return next(s for s in self.sensors if s.name == name)

    def document(self) -> dict[str, Any]:
        """Return the JSON document of ``pmtpy compare``, without NaN."""
        return {
            "reference": self.reference,
            "clock": "one" if self.one_clock else "fitted",
            "sensors": [_sensor(s) for s in self.sensors],
            "regions": [_region(r) for r in self.regions],
        }

    def _repr_html_(self) -> str:
        """Return the sensors against the reference, then the energy of each region by every sensor, for notebooks."""
        clock = "on one clock" if self.one_clock else "on clocks that were fitted"
        parts = [f"<p>against <b>{html.escape(self.reference)}</b>, {clock}; &plusmn; is 95 %</p>"]
        heads = ("sensor", "updates (ms)", "lag (ms)", "gain", "offset (W)", "residual (W)")
        parts.append(html_table(heads, [_sensor_cells(s, self.reference) for s in self.sensors]))
        heads = ("sensor", "J", "+- J (1 sd)", "W", "J from the reference", "corrected (J)")
        for number, each in enumerate(self.regions):
            truth = f", true energy {each.true_j:.6g} J" if each.true_j is not None else ""
            name = html.escape(each.region.name or f"region {number}")
            parts.append(f"<p><b>{name}</b>: {each.seconds:.4f} s{truth}</p>")
            parts.append(html_table(heads, [_energy_cells(n, e, self.reference) for n, e in each.energies.items()]))
        warnings = [w for each in self.regions for e in each.energies.values() for w in e.warnings]
        return "".join(parts) + html_notes([f"{s.name}: {note}" for s in self.sensors for note in s.notes] + warnings)


def _sensor_cells(s: Compared, reference: str) -> tuple[str, ...]:
    if s.name == reference:
        return s.name, written(s.period_s, 1e3), "the reference", "", "", ""
    line = s.transfer
    left = f"{s.residual_rms_w:.3g}" if math.isfinite(s.residual_rms_w) else NO_VALUE
    gain, offset = (line.gain, line.intercept_w) if line is not None else (None, None)
    return s.name, written(s.period_s, 1e3), written(s.lag_s, 1e3), written(gain), written(offset), left


def _energy_cells(name: str, e: Energy, reference: str) -> tuple[str, ...]:
    difference = "" if name == reference else f"{e.difference_j:+.4g}"
    corrected = written(e.corrected_j) if e.corrected_j is not None else ""
    return name, *e.in_digits(), f"{e.watts:.6g}", difference, corrected


def _sensor(s: Compared) -> dict[str, Any]:
    fit = s.kernel
    best = fit.best if fit is not None and fit.family != AMBIGUOUS else None
    return {
        "name": s.name,
        "samples": s.samples,
        "seconds": s.seconds,
        "mean_w": s.mean_w,
        "update_period_ms": as_json(s.period_s, 1e3),
        "kernel": {
            "family": fit.family if fit is not None else AMBIGUOUS,
            "window_ms": as_json(best.window_s if best else None, 1e3),
            "tau_ms": as_json(best.tau_s if best else None, 1e3),
        },
        "lag_ms": as_json(s.lag_s, 1e3),
        "clock_offset_ms": as_json(s.clock_offset_s, 1e3),
        "clock_at_s": s.clock.middle_s if s.clock is not None else None,
        "clock_rate": as_json(s.clock.rate if s.clock is not None else None),
        "gain": as_json(s.transfer.gain if s.transfer is not None else None),
        "offset_w": as_json(s.transfer.intercept_w if s.transfer is not None else None),
        "residual_w": number_or_none(s.residual_rms_w),
        "r2": s.transfer.r2 if s.transfer is not None else None,
        "declined": dict(s.declined),
        "notes": list(s.notes),
    }


def _region(r: RegionEnergies) -> dict[str, Any]:
    return {
        "name": r.region.name,
        "start_s": r.region.start,
        "seconds": r.seconds,
        "true_joules": r.true_j,
        "energies": [_energy(name, e, r) for name, e in r.energies.items()],
    }


def _energy(name: str, e: Energy, r: RegionEnergies) -> dict[str, Any]:
    return {
        "sensor": name,
        "joules": number_or_none(e.joules),
        "uncertainty_joules": number_or_none(e.uncertainty_joules),
        "watts": number_or_none(e.watts),
        "difference_joules": number_or_none(e.difference_j),
        "difference_percent": number_or_none(100.0 * e.difference),
        "sigmas": number_or_none(e.sigmas),
        "true_error_percent": number_or_none(100.0 * e.true_error(r.true_j)),
        "corrected_joules": as_json(e.corrected_j),
        "coverage": e.coverage,
        "warnings": list(e.warnings),
    }
