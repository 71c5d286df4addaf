"""One trace against a reference: its updates, lag, averaging window, gain and offset, and what they do not explain.

Each question goes to the estimator that knows it; what the data cannot tell is declined there, and absent here with
its reason. Pure; times are seconds, powers watts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from pmtpy.analysis.characterisation.align import Alignment, align
from pmtpy.analysis.characterisation.gain import Points, line_of, of_means, points_of
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit, refuse_coarse
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.characterisation.results import Characterisation
from pmtpy.analysis.clocking import FasterThanPollsError, PublishingClock, estimate_updates, update_series
from pmtpy.analysis.comparison.results import Compared, Trace
from pmtpy.analysis.procedures.updates import updates_of
from pmtpy.analysis.signal.clock_fit import ClockFit
from pmtpy.analysis.signal.estimate import ONE_CLOCK_RATE, Z95, Estimate
from pmtpy.analysis.signal.trace import PowerTrace, outside
from pmtpy.analysis.signal.updates import POLLED, Updates, stamp_step, tidy
from pmtpy.analysis.uncertainty.channel_times import STREAM_S, delay_u_s
from pmtpy.analysis.uncertainty.interval_statistics import usual_s
from pmtpy.core.channel import Channel, EnergyMethod, Quantity
from pmtpy.core.presentation import amount
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_T = TypeVar("_T")


@dataclass(slots=True)
class Prepared:
    """A trace, its exact curve (for energies), its updates and their curve; and what has been declined so far.

    ``t_s`` and ``watts`` are its rows that tell of a power, ``spacing_s`` the usual time between two of them.
    ``counted`` is a trace of a counter; ``summed`` one whose curve is made of its energies, not of its powers.
    """

    trace: Trace
    curve: PowerTrace
    shape: PowerTrace
    updates: Updates
    lattice: PublishingClock | None
    counted: bool
    summed: bool
    declined: dict[str, str]
    t_s: Floats
    watts: Floats
    spacing_s: float
    gaps: Ints  # rows before which others were lost, that of the first left out

    def attempt(self, name: str, estimator: Callable[[], _T]) -> _T | None:
        """Return what the estimator finds; if it declines, keep the reason."""
        try:
            return estimator()
        except DeclinedError as error:
            self.declined[name] = str(error)
            return None

    @property
    def stamped_late(self) -> bool:
        """Whether its rows are known to tell of what was before their stamps, as a register does that is polled.

        A recording of which nothing is stated may stamp a mean in its middle, or at its beginning.
        """
        return self.trace.channel is not None or self.shape is not self.curve

    @property
    def ages_s(self) -> tuple[float, float]:
        """How old at its stamp what a row shows may be, beyond how its curve takes it: at the least and at the most."""
        row = self.updates.period_s
        if self.summed:  # its curve takes each for the mean since the one before
            return (0.0 if self.stamped_late else -row), 0.0
        return (0.0 if self.stamped_late else -row / 2.0), row

    @property
    def channel(self) -> Channel:
        """What is stated of it, and the period that was found where none is stated."""
        channel = self.trace.channel or Channel(self.trace.name, Quantity.POWER, resolution=0.0)
        if channel.refresh_s is None and self.lattice is not None:
            return channel.timed(refresh_s=self.lattice.period_s.value)
        return channel

    @property
    def delay_s(self) -> tuple[float, float]:
        """Age of what an update shows last, and its standard uncertainty: no fit tells it from an offset of its clock.

        A row of a power of which no updates were found stands for one.
        """
        channel = self.channel
        if channel.refresh_s is None and not self.counted:
            channel = channel.timed(refresh_s=max(self.updates.period_s, self.updates.aged_s))
        return channel.response.delay_s, delay_u_s(channel)

    @property
    def unknown_s(self) -> Floats:
        """Parts whose energy it does not know, shape (m, 2).

        A counter goes on counting, but for one that stood still while rows were lost: its device began anew.
        """
        if not self.counted:
            return self.curve.holes_s
        t_s, joules, lost = self.trace.t_s, self.trace.joules, self.trace.lost
        if joules is None or lost is None:
            return np.empty((0, 2))
        stood = 1 + np.flatnonzero((lost[1:] > 0) & (np.diff(joules) <= 0.0))
        return np.stack([t_s[stood - 1], t_s[stood]], axis=1)

    def energy(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the energy of what it knows of an interval, and the length of the rest."""
        parts = outside(self.unknown_s, start_s, end_s)
        known_s = sum(b - a for a, b in parts)
        return sum((self.curve.energy(a, b) for a, b in parts), 0.0), max(end_s - start_s - known_s, 0.0)


# -- each trace for itself ---------------------------------------------------------------------------------------------


def prepare(trace: Trace) -> Prepared:
    """Make the curves of a trace, and find its updates.

    Raises DeclinedError: it has fewer than three rows with a power.
    """
    how = _method(trace)
    counted, summed = how is EnergyMethod.COUNTER, how is not EnergyMethod.TRAPEZOID
    t, watts = tidy(trace.t_s, trace.watts)
    if len(t) < 3:
        msg = f"{trace.name} has {amount(len(t), 'row')} with a power: too few to compare"
        raise DeclinedError(msg)
    # As samples, means would be later by half a mean, and smoothed once more.
    if summed and trace.joules is not None:
        curve = PowerTrace.of_counter(*tidy(trace.t_s, trace.joules))
    else:
        curve = PowerTrace.from_samples(t, watts)
    plain = Updates(np.arange(len(t)), t, watts, float(np.median(np.diff(t))))
    ready = Prepared(trace, curve, curve, plain, None, counted, summed, {}, t, watts, usual_s(np.diff(t)), _gaps(trace))
    aged_s = plain.period_s
    # A counter is renewed when its energy moves: its mean powers move with the load.
    values = trace.joules if counted and trace.joules is not None else trace.watts
    polls = (trace.t_s, values) if trace.polling is None else trace.polling.polls(trace.t_s, values, trace.lost)
    t, shown = tidy(*polls)
    try:
        ready.lattice = _lattice(trace, t, shown)
        aged_s = ready.lattice.period_s.value
    except DeclinedError as error:
        ready.declined["update_period_ms"] = str(error)
        aged_s = error.bound_s if isinstance(error, FasterThanPollsError) else aged_s
    found = ready.lattice
    shown_s = found.period_s.value if found is not None else 0.0
    ready.curve = ready.shape = curve.read_at(t, shown_s)
    if not counted and found is not None and found.poll_s < POLLED * found.period_s.value:
        # A reading that is shown until the next update is as old as its update, not as its last repetition.
        renewed_s = None if trace.polling is None else trace.polling.renewed(trace.t_s, values)
        ready.updates = update_series(t, shown, found, renewed_s)
        ready.shape = PowerTrace.from_samples(ready.updates.t_s, ready.updates.watts).read_at(t, shown_s)
    elif not counted:
        # Nobody followed the clock of these values: each may have been there since a renewal that nobody saw.
        ready.updates = plain.aged(aged_s if trace.channel is None else trace.aged_s)
    return ready


def _gaps(trace: Trace) -> Ints:
    if trace.lost is None:
        return np.empty(0, np.int64)
    return np.asarray(np.flatnonzero(trace.lost[1:] > 0) + 1, np.int64)


def _method(trace: Trace) -> EnergyMethod:
    """Return what powers are: as is stated, else means where energies are nearer to those than to what lies between."""
    if trace.joules is None:
        return EnergyMethod.TRAPEZOID
    if trace.channel is not None:
        return trace.channel.energy_method
    watts, seconds, joules = trace.watts, np.diff(trace.t_s), np.diff(trace.joules)
    since, between = watts[1:], (watts[1:] + watts[:-1]) / 2.0
    off = [float(np.nansum(np.abs(joules - power * seconds))) for power in (since, between)]
    return EnergyMethod.MEAN if off[0] < off[1] else EnergyMethod.TRAPEZOID


def _lattice(trace: Trace, t: Floats, watts: Floats) -> PublishingClock:
    """Find the updates behind polls; or, of a trace that has a row for each update, their regular times."""
    stated = trace.channel.refresh_s if trace.channel is not None else None
    spacing = float(np.median(np.diff(t)))
    if stated is None or not 0.8 * stated < spacing < 3.0 * stated:
        return estimate_updates(t, watts, uncut=_uncut(trace))
    found, middle = updates_of(t), np.array([float(np.mean(t))])
    # Whoever polls stamps an update up to one poll late, and polls that keep step do so evenly: over the whole that
    # adds up to less than half an update, the slowest poll that still sees each.
    slip, period = spacing / 2.0 / (found.updates + found.unseen - 1), found.mean_s
    at = Estimate.normal(float(middle[0]), period.sd)
    return PublishingClock(period.widened(slip), at, 1.0, 1.0, middle, np.zeros(1), period.value)


def _uncut(trace: Trace) -> bool:
    return trace.polling is not None and trace.polling.uncut


def alone(p: Prepared) -> Compared:
    """Return what a trace tells without a reference."""
    length = p.curve.end_s - p.curve.start_s
    joules, unknown_s = p.energy(p.curve.start_s, p.curve.end_s)
    return Compared(
        p.trace.name,
        len(p.trace.t_s),
        length,
        joules / (length - unknown_s),
        p.trace.t_s,
        period_s=p.lattice.period_s if p.lattice is not None else None,
        declined=p.declined,
    )


# -- one trace against the reference -----------------------------------------------------------------------------------


def against(p: Prepared, base: Prepared, *, one_clock: bool) -> tuple[Compared, Follows | None]:
    """Hold one trace against the reference; the second result is what a correction of its energies needs, if known."""
    found = p.attempt("lag_ms", lambda: align(p.shape, base.shape, one_clock=one_clock))
    if found is None:
        p.declined |= dict.fromkeys(("kernel", "gain"), f"needs the lag: {p.declined['lag_ms']}")
        return alone(p), None
    stamp = max([stamp_step(each.t_s) for each in (p.trace, base.trace) if not _uncut(each)], default=0.0) / 2.0
    if one_clock:  # else what all stamps of a recording have in common is in the difference of the clocks
        stamp += Z95 * math.hypot(p.trace.time_u_s, base.trace.time_u_s)
    updates = p.updates.shifted(-found.lag_s.value)
    fit = p.attempt("kernel", lambda: _kernel(p, updates, base, found, one_clock=one_clock))
    if fit is None:
        alignment = replace(found, lag_s=found.lag_s.widened(stamp))
        points = _by_means(found.points)
    else:
        if fit.family == AMBIGUOUS:
            p.declined["kernel"] = fit.reason
        # The kernel's fit knows the shape of the response: lag and rate are those that it has.
        rate = found.rate if one_clock or fit.best.rate is None else fit.best.rate.turned()
        alignment = replace(found, lag_s=fit.best.lag_s.moved(found.lag_s.value).widened(stamp), rate=rate)
        points = points_of(updates, base.shape, fit, found.middle_s)
    transfer = p.attempt("gain", lambda: line_of(points))
    told = [found.note, fit.note if fit is not None else "", transfer.note if transfer is not None else ""]
    notes = tuple(filter(None, (*told, _holes(p), _holes(base))))
    left = np.empty(0)
    if transfer is not None:
        left = points.shown_w - transfer.gain.value * points.reference_w - transfer.intercept_w.value
    clock = None if one_clock else _clock(alignment, fit, p, base)
    compared = replace(
        alone(p),
        kernel=fit,
        lag_s=alignment.any_lag_s,
        transfer=transfer,
        clock=clock,
        clock_offset_s=None if clock is None else _clock_offset(clock, fit, p, base),
        t_s=p.trace.t_s if clock is None else clock.on_reference(p.trace.t_s),
        residual_t_s=points.t_s[: len(left)],
        residual_w=left,
        notes=notes,
    )
    response = Characterisation(p.trace.name, p.lattice, None, fit, None, transfer).response
    if response is None or fit is None:
        return compared, None
    rate = fit.best.rate if fit.best.rate is not None else Estimate.within(0.0, 0.0)
    laid = ClockFit(found.lag_s, rate.turned(), found.middle_s)
    return compared, Follows(replace(p.updates, t_s=laid.on_reference(p.updates.t_s)), response)


def _by_means(points: Points) -> Points:
    try:
        return of_means(points)
    except DeclinedError:  # too few of them: then the line is that of single ones
        return points


def _holes(p: Prepared) -> str:
    """Say of how much of a recording nothing is known."""
    holes = p.curve.holes_s
    if not len(holes):
        return ""
    stretches = f"{len(holes)} stretches" if len(holes) > 1 else "one stretch"
    return (
        f"{p.trace.name} has no rows in {stretches}, {float(np.sum(np.diff(holes))):.3g} s in all: what readings "
        "averaged there is not known, so those that reach into it are left out"
    )


def _clock(alignment: Alignment, fit: KernelFit | None, p: Prepared, base: Prepared) -> ClockFit:
    """Return how the clocks stand to each other: the lag less the age of what a reading averages.

    What remains of the sensor's own lag is what is not stated of the age of its kernel's end, and how old values are on
    average at rows whose clock nobody followed: half of the longest that they can be, or less. Where the kernel is not
    known, a reading may average over the time since the one before, or over what it is smoothed by, and be as old as
    that; energies have no age.
    """
    lag, oldest = alignment.lag_s.moved(base.delay_s[0] - p.delay_s[0]), p.updates.aged_s / 2.0
    if fit is not None:
        lag = lag.moved(fit.best.offset_s.value - fit.best.lag_s.value)
    elif not p.summed:
        oldest = max(p.updates.period_s, p.updates.aged_s, alignment.width_s.high)
    return replace(alignment, lag_s=Estimate(lag.value, lag.low - oldest, lag.high))


def _clock_offset(clock: ClockFit, fit: KernelFit | None, p: Prepared, base: Prepared) -> Estimate:
    """Return how far the clocks are apart, with what is not known of how old what a row shows is at its stamp.

    Curves are laid upon each other without that, since what rows have in common moves nothing between them.
    """
    early, (youngest, oldest) = 0.0, base.ages_s
    if not p.stamped_late:
        early = -p.ages_s[0]
        if fit is not None:  # half of what it averages over was taken off as its age
            early = max(2.0 * (fit.best.lag_s.value - fit.best.offset_s.value), p.updates.period_s)
    lag = clock.lag_s.widened(Z95 * math.hypot(p.delay_s[1], base.delay_s[1]))
    return Estimate(lag.value, lag.low + youngest, lag.high + early + oldest)


def _kernel(p: Prepared, updates: Updates, base: Prepared, found: Alignment, *, one_clock: bool) -> KernelFit:
    if p.counted:
        msg = "its power is the mean between two readings, however far apart they are: it has no window of its own"
        raise DeclinedError(msg)
    spacing = base.updates.period_s
    refuse_coarse(spacing, updates.period_s)
    if updates.period_s < STREAM_S:
        msg = f"readings that are {1e3 * updates.period_s:.3g} ms apart are a stream, not the updates of a register"
        raise DeclinedError(msg)
    rate_sd = ONE_CLOCK_RATE if one_clock else None
    pivot_s = found.middle_s
    # A curve was moved by its whole lag, so that its kernel begins in the future; how wide it is the alignment tells.
    wide = updates.period_s + abs(found.width_s.value)
    fit = fit_kernel(
        updates,
        base.shape,
        metered=True,
        lead_s=2.0 * wide,
        within_s=min(found.repeats_s / 2.0, wide),
        pivot_s=pivot_s,
        rate_sd=rate_sd,
    )
    if abs(fit.best.lag_s.value) > found.repeats_s / 2.0:
        msg = f"the best {fit.best.family} is a whole period of the load away from the lag: vary the load"
        raise DeclinedError(msg)
    return fit.by_means(spacing, updates.period_s)


@dataclass(frozen=True, slots=True)
class Follows:
    """Updates on the reference's clock, and how they follow power: what an energy needs to be corrected."""

    updates: Updates
    response: Response
