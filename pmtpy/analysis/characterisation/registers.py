"""Several registers of power and energy on one clock: each by itself, and how they stand to one of them.

The instant, the average and the counter of one card are renewed by clocks of their own, or by one; so are those of
several cards. What one load shows in all of them tells how late and how strong each is beside the other. Pure; times
are seconds on one clock, powers watts, energies joules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pmtpy.analysis.characterisation._kernel_from_load import fit_load_kernel
from pmtpy.analysis.characterisation.kernel import KernelFit
from pmtpy.analysis.clocking import BoundedError, PublishingClock, estimate_updates, update_series
from pmtpy.analysis.signal.clock_fit import EDGE_DELAY_S
from pmtpy.analysis.signal.estimate import Z95, Estimate
from pmtpy.analysis.signal.updates import MIN_UPDATES, Updates, tidy
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats, Ints
from pmtpy.errors import DeclinedError

_MOST_TIMES, _MULTIPLE_TOLERANCE = 10, 0.01  # periods are multiples of each other up to this one, to this share


@dataclass(frozen=True, slots=True)
class Register:
    """What polls found in one register."""

    name: str
    t_s: Floats  # shape (n,); middle of each poll
    values: Floats  # shape (n,); watts; of a counter its counts
    joules_per_count: float | None = None  # of a counter; None: it is no counter
    wrap: float | None = None  # of a counter: counts after which it begins again
    load: LoadIntervals | None = None  # when the device was loaded, on the clock of the polls
    unwrapped: bool = False  # of a counter: whatever it began anew has been put right before
    uncut: bool = False  # whether the times are as their clock told them
    renewed_s: Floats | None = None  # when the device says that it renewed the value, of some renewals


@dataclass(frozen=True, slots=True)
class CounterMoves:
    """How a counter moves."""

    step_j: float | None  # the largest step of which all its moves are multiples; None of few moves, or of fractions
    range_j: float | None  # after which it begins again; None: that is not known, or it does not
    # How often it did, and how often it went back otherwise; None: that was put right before it came here, if it was.
    wraps: int | None
    restarts: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """One register, and how it stands to the reference. None: declined, for the reason under the same name."""

    name: str
    clock: PublishingClock | None = None
    bound_s: float | None = None  # the longest that its period can be, where it is renewed faster than it was polled
    moves: CounterMoves | None = None  # of a counter
    # how it shows the load: of a counter its mean power from one move to the next
    kernel: KernelFit | None = None
    # By how much later than the reference's its updates come, at the middle of the polls: up to half of the shorter
    # period either way; and by how much that grows, seconds in a second.
    phase_s: Estimate | None = None
    slide: Estimate | None = None
    behind_s: Estimate | None = None  # by how much older is what it shows than what the reference shows
    ratio: Estimate | None = None  # watts that it shows for each watt of the reference
    declined: Mapping[str, str] = field(default_factory=dict)

    @property
    def lag_s(self) -> Estimate | None:
        """Mean age of what it shows at its update; of a counter that of its power since the move before."""
        return None if self.kernel is None else self.kernel.best.lag_s

    @property
    def count_age_s(self) -> Estimate | None:
        """Age of the count of a counter at its update: it holds the energy up to so long before."""
        if self.moves is None or self.lag_s is None or self.clock is None:
            return None
        half = self.clock.period_s.value / 2.0
        return self.lag_s.moved(-half)


def side_by_side(registers: Sequence[Register], reference: str | None = None) -> tuple[list[Standing], str | None]:
    """Characterise registers that were polled at the same time, and put them beside one of them.

    Parameters
    ----------
    registers : sequence of Register
        On one clock.
    reference : str, optional
        Name of the one beside which the others stand; None: the first power whose clock was found, else the first
        counter.

    Returns
    -------
    tuple
        Each register in turn, and the name of the reference; None where nothing can be one.

    Raises DeclinedError: nothing is known of the clock of the reference that was asked for.
    """
    alone = [_alone(register) for register in registers]
    clocked = sorted((s for s in alone if s.clock is not None), key=lambda s: s.moves is not None)
    chosen = next((s for s in clocked if reference in {None, s.name}), None)
    if chosen is None and reference is not None:
        whys = {s.name: s.declined["update_period_ms"] for s in alone if s.clock is None}
        msg = f"{reference} cannot be the reference: {whys.get(reference, 'there is no such register')}"
        raise DeclinedError(msg)
    if chosen is None:
        return alone, None
    return [s if s is chosen else _beside(s, chosen) for s in alone], chosen.name


def _alone(register: Register) -> Standing:
    """Characterise one register."""
    t, values = tidy(register.t_s, register.values)
    moves = None
    if register.joules_per_count is not None:
        values, moves = counted(values, register.joules_per_count, register.wrap)
        if register.unwrapped:  # what falls all the same is a fall that nobody put right
            moves = replace(moves, wraps=None, restarts=moves.restarts or None)
    found = Standing(register.name, moves=moves)
    try:
        edges = None if register.load is None else register.load.edges
        clock = estimate_updates(t, values, uncut=register.uncut, edges_s=edges)
    except DeclinedError as error:
        bound = error.bound_s if isinstance(error, BoundedError) else None
        why = f"needs the update period: {error}"
        return replace(found, bound_s=bound, declined={"update_period_ms": str(error), "kernel": why})
    if register.load is None:
        return replace(found, clock=clock, declined={"kernel": "needs the stamps of a load"})
    updates = update_series(t, values, clock, register.renewed_s)
    try:
        fit, _ = fit_load_kernel(updates if moves is None else _mean_powers(updates), register.load, clock.poll_s)
    except DeclinedError as error:
        return replace(found, clock=clock, declined={"kernel": str(error)})
    return replace(found, clock=clock, kernel=fit)


def counted(counts: Floats, joules: float, wrap: float | None) -> tuple[Floats, CounterMoves]:
    """Return the energy since the first poll, and how the counter moved; over a restart nothing is counted.

    ``joules`` are those of one count, ``wrap`` the counts after which it begins again.
    """
    steps = np.diff(counts)
    back = steps < 0.0
    wraps = back & (steps + wrap > 0.0) & (steps + wrap < -steps) if wrap is not None else np.zeros(len(back), np.bool_)
    steps = np.where(wraps, steps + (wrap or 0.0), np.where(back, 0.0, steps))
    moved = steps[steps != 0.0]
    step = None
    if len(moved) >= MIN_UPDATES and bool(np.all(moved == np.round(moved))):
        whole: Ints = moved.astype(np.int64)
        step = joules * int(np.gcd.reduce(whole))
    told = CounterMoves(step, None if wrap is None else joules * wrap, int(np.sum(wraps)), int(np.sum(back & ~wraps)))
    return np.asarray(joules * np.append(0.0, np.cumsum(steps)), np.float64), told


def _mean_powers(updates: Updates) -> Updates:
    """Return the mean power since the update before, where that one was seen."""
    watts = np.append(np.nan, np.diff(updates.watts) / np.diff(updates.t_s))
    return replace(updates, watts=watts).where(np.diff(updates.k, prepend=updates.k[0]) == 1)


def _beside(one: Standing, other: Standing) -> Standing:
    """Return a register with how it stands to another."""
    declined = dict(one.declined)
    phase = slide = behind = ratio = None
    if one.clock is not None and other.clock is not None:
        try:
            phase, slide = _phase(one.clock, other.clock)
        except DeclinedError as error:
            declined["phase_ms"] = str(error)
    if one.kernel is not None and other.kernel is not None:
        own, its = one.kernel.best, other.kernel.best
        behind = _difference(own.lag_s, its.lag_s)
        ratio = _ratio(own.gain, its.gain)
    return replace(one, phase_s=phase, slide=slide, behind_s=behind, ratio=ratio, declined=declined)


def _phase(one: PublishingClock, other: PublishingClock) -> tuple[Estimate, Estimate]:
    """Return by how much later updates come than those of another clock, and by how much that grows in a second.

    Raises DeclinedError: neither period is about a multiple of the other.
    """
    short, long = sorted((one, other), key=lambda clock: clock.period_s.value)
    times = long.period_s.value / short.period_s.value
    whole = round(times)
    if whole > _MOST_TIMES or abs(times / whole - 1.0) > _MULTIPLE_TOLERANCE:
        msg = f"the updates come {times:.4g} times as often as the other's, which is no multiple: they have no phase"
        raise DeclinedError(msg)
    at = long.phase_s.value
    near = short.times(np.round((at - short.phase_s.value) / short.period_s.value) + np.arange(-1, 2))
    apart = float(near[int(np.argmin(np.abs(near - at)))]) - at
    slide = whole / times - 1.0
    sign = 1.0 if short is one else -1.0
    unsure = math.hypot(one.phase_s.half_width, other.phase_s.half_width)
    # The mean rates in this recording, each no better known than a line through phases that are as unsure at its ends.
    lasted = min(float(np.ptp(clock.blocks_s)) for clock in (one, other))
    rates = math.hypot(Z95 * one.drift, Z95 * other.drift, 2.0 * unsure / lasted)
    return Estimate.within(sign * apart, unsure), Estimate.within(sign * slide, rates)


def _difference(one: Estimate, other: Estimate) -> Estimate:
    """Return the difference of two lags: by how much the card follows the stamps of its load is in both alike."""
    value = one.value - other.value
    low, high = (
        math.sqrt(max(a * a + b * b - 2.0 * EDGE_DELAY_S**2, 0.0))
        for a, b in ((one.value - one.low, other.high - other.value), (one.high - one.value, other.value - other.low))
    )
    return Estimate(value, value - low, value + high)


def _ratio(one: Estimate, other: Estimate) -> Estimate | None:
    """Return the ratio of two independent estimates; None where the other may be zero."""
    if other.low <= 0.0:
        return None
    value = one.value / other.value
    half = abs(value) * math.hypot(one.half_width / one.value if one.value else 0.0, other.half_width / other.value)
    return Estimate.within(value, half)
