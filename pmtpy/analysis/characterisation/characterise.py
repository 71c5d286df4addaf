"""All that one recording tells about a sensor: update period, step, kernel, gradient, energy; and what it cannot tell.

Puts the estimators together and brings their clocks together. What is declined is absent, with the reason beside it;
nothing is filled in from what is usual for such a card. Pure: arrays in, a record out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from pmtpy.analysis.characterisation._host_clock import MIN_LENGTH_S, host_shift, meter_on_host, on_one_clock
from pmtpy.analysis.characterisation._kernel_from_load import fit_load_kernel, known_part
from pmtpy.analysis.characterisation._step_response import (
    StepResponse,
    find_block,
    fit_step,
    highest_block,
    long_blocks,
)
from pmtpy.analysis.characterisation.align import align
from pmtpy.analysis.characterisation.gain import Transfer, line_of, of_means, points_of
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, CoarseReferenceError, KernelFit, is_coarse, refuse_coarse
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.characterisation.results import Characterisation, Reference, Series, fitted_response
from pmtpy.analysis.clocking import BoundedError, FasterThanPollsError, PublishingClock, estimate_updates, update_series
from pmtpy.analysis.energy.beside_meter import EnergyComparison, PolledChannel, compare_energy
from pmtpy.analysis.signal.clock_fit import ClockFit
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import OFF_S, PowerTrace
from pmtpy.analysis.signal.updates import Updates, tidy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError, Reason

_EARLY_SHARE = 0.5  # of a poll, by which rows of a log are stamped before they are read (3 to 6 ms of 13 were seen)
_T = TypeVar("_T")


@dataclass(slots=True)
class _Remarks:
    """What has been declined and noted so far, while one characterisation runs."""

    declined: dict[str, Reason] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bound_s: float | None = None
    fast: bool = False  # whether readings change at most polls, so that each is of its poll
    coarse: bool = False  # whether the meter is too coarse to show a kernel

    def attempt(self, name: str, estimator: Callable[[], _T]) -> _T | None:
        """Return what the estimator finds; if it declines, keep the reason."""
        try:
            return estimator()
        except DeclinedError as error:
            self.declined.setdefault(name, error.reason)
            if isinstance(error, BoundedError):
                self.bound_s, self.fast = error.bound_s, isinstance(error, FasterThanPollsError)
            self.coarse |= isinstance(error, CoarseReferenceError)
            return None


def characterise(
    channel: str,
    polls: Series,
    *,
    load: LoadIntervals | None = None,
    meter: Series | Reference | None = None,
    one_clock: bool = False,
) -> Characterisation:
    """Characterise one channel from polled readings.

    Parameters
    ----------
    channel : str
        Its name, for the record.
    polls : Series
        Stamps and readings as polled.
    load : LoadIntervals, optional
        When the load was on, by the host's clock. What is found by it is found in the longest time of which all that
        it did is known (``known_s``).
    meter : Series or Reference, optional
        A reference meter. The offset and rate of its clock are fitted. A Reference serves once.
    one_clock : bool
        One clock stamped the readings and the meter's, so no offset is fitted. Ignored where a load is given, whose
        stamps tie the two clocks.

    Returns
    -------
    Characterisation
        Never an error for what the data cannot tell: that is declined, with the reason.
    """
    remarks = _Remarks()
    beside = Reference(meter) if isinstance(meter, Series) else meter
    lattice = remarks.attempt("update_period_ms", lambda: _lattice(polls, load))
    if lattice is None:
        why = remarks.declined["update_period_ms"].after("needs the update period")
        transfer = _fast_transfer(remarks, polls, beside, one_clock=one_clock)
        names = ("step", "kernel", *(() if transfer else ("gradient", "intercept_w")), "energy")
        declined = dict.fromkeys(names, why) | remarks.declined
        notes = tuple(remarks.notes)
        return Characterisation(channel, transfer=transfer, declined=declined, notes=notes, bound_s=remarks.bound_s)
    t, watts = tidy(polls.t_s, polls.watts)
    updates = _updates(remarks, t, watts, lattice, polls.renewed_s)
    shift, same = 0.0, one_clock and load is None
    if load is not None or beside is not None:
        moved = 0.0 if same else remarks.attempt("kernel", lambda: host_shift(polls, updates, load, beside))
        if moved is None:
            remarks.declined["meter"] = remarks.declined["kernel"]
            load = beside = None
        shift = moved or 0.0
        if abs(shift) > 1.0:
            remarks.notes.append(f"the readings' clock was shifted by {shift:+.3f} s to meet the reference")
    updates = updates.shifted(shift)
    readings = PolledChannel(np.asarray(t + shift, np.float64), watts, updates)
    remarks.notes += _partly(load, updates)
    clock, curve = _meter(remarks, beside, load, updates, one_clock=same)
    if beside is not None and curve is not None and not is_coarse(curve.cell_s, updates.period_s):
        beside.let_go()
    fit = remarks.attempt("kernel", lambda: _kernel(remarks, updates, load, (clock, curve), lattice))
    step = remarks.attempt("step", lambda: _step(updates, load, fit, lattice.poll_s))
    hosted = polls.absolute == load.absolute if load is not None else one_clock
    offset = _offset(remarks, fit, clock, hosted=hosted)
    transfer = _coarse_transfer(remarks, readings, beside, one_clock=same)
    transfer = transfer or _transfer(remarks, updates, curve, fit, clock)
    # Stamps say where a block lies on a meter's clock, and on that of the readings, where they are tied to it.
    energy = _energies(remarks, readings, curve, load if clock is not None else None, (lattice, fit, transfer))
    if curve is None and (step is not None or fit is not None):
        remarks.notes.append("without a meter the load's own ramps count as the sensor's")
    if step is not None and step.note:
        remarks.notes.append(f"step: {step.note}")
    if step is not None and step.delay_s is None:
        remarks.declined["step.delay_ms"] = Reason("the load's start is not known: give its stamps")
    return Characterisation(
        channel, lattice, step, fit, offset, transfer, energy, remarks.declined, tuple(remarks.notes)
    )


def _lattice(polls: Series, load: LoadIntervals | None) -> PublishingClock:
    lasted = float(np.ptp(polls.t_s)) if len(polls.t_s) else 0.0
    if lasted < MIN_LENGTH_S:
        msg = f"the readings last {lasted:.3g} s, too little to characterise a sensor; record at least 10 s"
        raise DeclinedError(msg)
    edges = None if load is None else load.edges
    return estimate_updates(polls.t_s, polls.watts, uncut=polls.uncut, edges_s=edges)


def _updates(
    remarks: _Remarks, t_s: Floats, watts: Floats, lattice: PublishingClock, renewed_s: Floats | None
) -> Updates:
    updates = update_series(t_s, watts, lattice, renewed_s)
    if updates.stale:
        share = 100.0 * updates.stale / (updates.stale + len(updates))
        remarks.notes.append(
            f"{share:.0f} % of the updates show the value before once more, which noise hardly does: they were not "
            "renewed, and are no readings"
        )
    return updates.dated()


def _partly(load: LoadIntervals | None, updates: Updates) -> list[str]:
    """Say so where the load is known for a part of the readings only."""
    if load is None:
        return []
    first, last = float(updates.t_s[0]), float(updates.t_s[-1])
    start, end = load.longest_known(first, last)
    known, whole = (f"{seconds:.3g}" for seconds in (end - start, last - first))
    told = f"the load's stamps tell of {known} of the {whole} s in one go"
    return [f"{told}: what is found by them is found there alone"] if known != whole else []


# --- the estimators, each with what it needs ---


def _meter(
    remarks: _Remarks, meter: Reference | None, load: LoadIntervals | None, updates: Updates, *, one_clock: bool
) -> tuple[ClockFit | None, PowerTrace | None]:
    """Return how the meter's clock was tied to the host's, if it was, and its curve on that."""
    if meter is None:
        return None, None
    if one_clock:
        return remarks.attempt("meter", lambda: on_one_clock(meter, updates)) or (None, None)
    found = remarks.attempt("meter", lambda: meter_on_host(meter, load, updates))
    if found is None:
        return None, None
    clock, curve, notes = found
    remarks.notes += notes
    return clock, curve


def _step(updates: Updates, load: LoadIntervals | None, fit: KernelFit | None, poll_s: float) -> StepResponse:
    if load is None:
        start, end = find_block(updates)
        return fit_step(updates, start, end, started=False, fit=fit or _kernel_of_block(updates, start, end))
    updates, load = known_part(updates, load)
    block = highest_block(updates, long_blocks(load))
    return fit_step(updates, *block, fit=fit, early_s=_EARLY_SHARE * poll_s)


def _kernel_of_block(updates: Updates, start_s: float, end_s: float) -> KernelFit | None:
    """Fit the kernel to the rise of a block whose ends are only about known."""
    block = PowerTrace.of_load(LoadIntervals.switched(np.array([start_s, end_s])))
    around = updates.between(start_s - OFF_S, (start_s + end_s) / 2.0)
    try:
        return fit_kernel(around, block, metered=False, lead_s=OFF_S)
    except DeclinedError:
        return None


def _pivot(updates: Updates, clock: ClockFit | None) -> float:
    return clock.middle_s if clock is not None else float((updates.t_s[0] + updates.t_s[-1]) / 2.0)


def _kernel(
    remarks: _Remarks,
    updates: Updates,
    load: LoadIntervals | None,
    tied: tuple[ClockFit | None, PowerTrace | None],
    lattice: PublishingClock,
) -> KernelFit:
    clock, meter = tied
    if meter is not None:
        refuse_coarse(meter.cell_s, updates.period_s)
        rate = clock.rate.sd if clock is not None else None
        lead = 0.0 if clock is not None else 2.0 * updates.period_s + 0.05
        pivot = _pivot(updates, clock)
        fit = fit_kernel(updates, meter, metered=True, lead_s=lead, pivot_s=pivot, rate_sd=rate)
        return fit.by_means(meter.cell_s, updates.period_s)
    if load is None:
        msg = "needs a reference: a meter, or the stamps of the load"
        raise DeclinedError(msg)
    fit, notes = fit_load_kernel(updates, load, lattice.poll_s)
    remarks.notes += [f"kernel: {note}" for note in notes]
    return fit


def _offset(remarks: _Remarks, fit: KernelFit | None, clock: ClockFit | None, *, hosted: bool) -> Estimate | None:
    """Return the kernel's offset on the host's clock, if a clock ties them; ``hosted``: the readings are on it."""
    if fit is None:
        return None
    if fit.family == AMBIGUOUS:
        remarks.declined["kernel"] = fit.reason
    if fit.note and not fit.no_gain:
        remarks.notes.append(f"kernel: {fit.note}")
    metered = fit.best.rate is not None
    if not hosted or (metered and clock is None):
        why = "nothing ties the reference's clock to that of the readings; stamps of the load on the host's clock would"
        remarks.declined |= dict.fromkeys(("kernel.offset_ms", "kernel.lag_ms"), Reason(why))
        return None
    return fit.best.offset_s.widened(clock.lag_s.half_width) if metered and clock else fit.best.offset_s


def _transfer(
    remarks: _Remarks, updates: Updates, meter: PowerTrace | None, fit: KernelFit | None, clock: ClockFit | None
) -> Transfer | None:
    if meter is None or fit is None:
        need, what = ("needs a meter", "meter") if meter is None else ("needs the kernel", "kernel")
        why = remarks.declined[what].after(need) if what in remarks.declined else Reason(need)
        if meter is not None:
            why = remarks.declined.get("gradient", why)
        remarks.declined |= dict.fromkeys(("gradient", "intercept_w"), why)
        return None

    def line() -> Transfer:
        if fit.no_gain:
            raise DeclinedError(fit.no_gain)
        return line_of(points_of(updates, meter, fit, _pivot(updates, clock)))

    transfer = remarks.attempt("gradient", line)
    if transfer is None:
        remarks.declined["intercept_w"] = remarks.declined["gradient"]
    elif transfer.note:
        remarks.notes.append(f"gradient: {transfer.note}")
    return transfer


def _coarse_transfer(
    remarks: _Remarks, readings: PolledChannel, meter: Reference | None, *, one_clock: bool
) -> Transfer | None:
    """Return gain and offset beside a meter that is too coarse for the kernel: the readings, smoothed, look like it.

    None beside another meter, or where it declines. The meter is taken as it was recorded: it is too coarse to have
    been laid over a load.
    """
    if meter is None or not remarks.coarse:
        return None
    updates = readings.updates
    shown = PowerTrace.from_samples(updates.t_s, updates.watts).read_at(readings.t_s, updates.period_s)
    transfer = remarks.attempt(
        "gradient", lambda: line_of(of_means(align(shown, meter.curve(), one_clock=one_clock).points))
    )
    if transfer is not None:
        remarks.notes.append("gradient: the kernel is not known; by means over several readings of the coarse meter")
    return transfer


def _fast_transfer(remarks: _Remarks, polls: Series, meter: Reference | None, *, one_clock: bool) -> Transfer | None:
    """Return gain and offset of a sensor that publishes faster than it was polled: each reading is of its poll.

    None without a meter, of another sensor, or where it declines.
    """
    if meter is None or remarks.bound_s is None or not remarks.fast:
        return None
    t, watts = tidy(polls.t_s, polls.watts)
    shown = PowerTrace.from_samples(t, watts).read_at(t, remarks.bound_s)
    transfer = remarks.attempt(
        "gradient", lambda: line_of(of_means(align(shown, meter.curve(), one_clock=one_clock).points))
    )
    if transfer is None:
        remarks.declined["intercept_w"] = remarks.declined["gradient"]
    else:
        remarks.notes.append("gradient: the update period is not known, only bounded; by means over several polls")
    return transfer


def _energies(
    remarks: _Remarks,
    readings: PolledChannel,
    meter: PowerTrace | None,
    load: LoadIntervals | None,
    known: tuple[PublishingClock, KernelFit | None, Transfer | None],
) -> dict[str, EnergyComparison]:
    (lattice, fit, transfer), updates = known, readings.updates
    if meter is None or fit is None or transfer is None:
        needs = "needs a meter and the gradient" if meter is None else "needs kernel and gradient"
        remarks.declined["energy"] = Reason(needs)
        return {}
    # The kernel in doubt is no obstacle here: its lag is what an energy depends on, and that is known.
    response = fitted_response(lattice, fit, transfer)
    comparisons = {}
    for name, interval in _intervals(updates, load, meter, response.lag_s).items():
        comparison = remarks.attempt(
            f"energy.{name}",
            lambda interval=interval: compare_energy(readings, meter, response, interval, load),  # type: ignore[misc]  # (bound at once)
        )
        if comparison is not None:
            comparisons[name] = comparison
            remarks.notes += [f"energy.{name}: {why}" for why in comparison.warnings]
    return comparisons


def _intervals(
    updates: Updates, load: LoadIntervals | None, meter: PowerTrace, lag_s: float
) -> dict[str, tuple[float, float]]:
    if load is None:
        margin = abs(lag_s) + 2.0 * updates.period_s
        start, end = max(float(updates.t_s[0]), meter.start_s), min(float(updates.t_s[-1]), meter.end_s)
        return {"whole": (start + margin, end - margin)}
    first, last = float(load.on_s[0]), float(load.off_s[-1])
    try:
        start, end = long_blocks(load)[0]
    except DeclinedError:
        whole = {"whole": (first, last)}
        settled = load.on_s[load.on_s > first + OFF_S]
        return whole | ({"settled": (float(settled[0]), last)} if len(settled) else {})
    return {
        "whole": (start, end),
        "first_1s": (start, min(start + 1.0, end)),
        "first_0.3s": (start, min(start + 0.3, end)),
    }
