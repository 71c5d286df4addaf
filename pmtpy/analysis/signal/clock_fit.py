"""Two recordings on one clock: whole half-hours between zones, a meter's offset and rate against load stamps.

A meter's clock is never taken as right: the public recordings show rates that differ by 0.1 % from session to session.
Pure; times are seconds.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pmtpy.analysis.signal.correlogram import correlogram, sampled, unlikely
from pmtpy.analysis.signal.estimate import STANDS_OUT, Z95, Estimate, huber_weights, median, robust_sd, student_95
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_ZONE_STEPS_S = (1800.0, 900.0)
_ZONE_MOST_S = 14 * 3600.0
# By how much nearer a zone must bring both ends together of recordings that meet without: an hour moves each by one.
_ZONE_GAIN_S = 1.5 * 3600.0
# Levels before and after a load edge are taken over at most this long; and over the longer one while the two clocks may
# be apart by a good part of that.
_EDGE_S, _AFAR_S = 0.05, 0.6
_ONE_EDGE_S = 1.3e-3  # a single edge is known to about this: so far do recorded single steps differ from their stamps
EDGE_DELAY_S = 0.4e-3  # to which all edges of a fast load together are known: power follows the stamp, at the earliest
MEETING_S = 5.0  # two clocks that should be one are looked for this far apart
RATE_SD = 1.5e-3  # of clocks that nobody tied together: one meter's differed by 0.1 % between sessions
RATE_GROWTH = 4.0  # how much further a rate found so far is trusted
_GRAIN_S = 2e-3
_FEW_EDGES = 100  # of a fast load, evenly taken, on the way to a clock: together they tell to a tenth of what one tells
_MIN_EDGE_ROWS = 10  # of a meter around an edge: fewer do not show two levels and where between them it rose


@dataclass(frozen=True, slots=True)
class ClockFit:
    """How one clock stands to a reference's: ``own = r + lag + rate (r - middle)``."""

    lag_s: Estimate  # at the middle; of a meter laid on stamps its interval holds what lies between these and the power
    rate: Estimate  # how much faster it runs, relative; of a single edge what is known of clocks
    middle_s: float  # on the reference's clock

    def off_by(self, r_s: float) -> float:
        """Return the 95 % half-width of the lag at an instant of the reference's clock."""
        return math.hypot(self.lag_s.half_width, self.rate.half_width * (r_s - self.middle_s))

    def on_reference(self, t_s: Floats) -> Floats:
        """Return instants of the own clock on that of the reference, so that two curves lie upon each other."""
        at = self.middle_s + (t_s - self.middle_s - self.lag_s.value) / (1.0 + self.rate.value)
        return np.asarray(at, np.float64)

    def on_own(self, r_s: Floats) -> Floats:
        """Return instants of the reference's clock on the own one: the inverse of :meth:`on_reference`."""
        return np.asarray(r_s + self.lag_s.value + self.rate.value * (r_s - self.middle_s), np.float64)

    def on_host(self, meter: PowerTrace) -> PowerTrace:
        """Return a meter's curve on the reference's clock; power is kept, so energy follows the time."""
        kept = 1.0 / (1.0 + self.rate.value)
        return meter.shifted(-kept * self.lag_s.value, kept - 1.0, self.middle_s)


def zone_shift(start_s: float, end_s: float, reference: PowerTrace) -> float:
    """Return the offset between zones to add to a log from ``start_s`` to ``end_s`` so that it meets a reference.

    Whole half-hours are tried first, then quarters, which three zones have. Of several the one by which they begin and
    end together, or the nearest: a part of a long recording lies in it at many, and is most likely where it stands.

    Raises DeclinedError: no time zone makes them overlap by half of the shorter.
    """
    shorter = min(end_s - start_s, reference.end_s - reference.start_s)

    def meets(shift: float) -> bool:
        overlap = min(end_s + shift, reference.end_s) - max(start_s + shift, reference.start_s)
        return overlap >= 0.5 * shorter

    def apart_s(shift: float) -> float:
        return round(abs(start_s + shift - reference.start_s) + abs(end_s + shift - reference.end_s), 3)

    for step in _ZONE_STEPS_S:
        most = round(_ZONE_MOST_S / step)
        found = [step * n for n in range(-most, most + 1) if meets(step * n)]
        if found:
            best = min(found, key=lambda shift: (apart_s(shift), abs(shift)))
            return 0.0 if 0.0 in found and apart_s(0.0) - apart_s(best) < _ZONE_GAIN_S else best
    msg = (
        f"the readings (from {start_s:.3f} to {end_s:.3f} s) and the reference (from {reference.start_s:.3f} to "
        f"{reference.end_s:.3f} s) do not overlap, in no time zone: they are recordings of different times"
    )
    raise DeclinedError(msg)


def fit_clock(
    meter: PowerTrace, switched_on_s: Floats, switched_off_s: Floats, *, around_s: float = _EDGE_S
) -> ClockFit:
    """Fit a meter's clock to the host's stamps of when a load was switched on.

    Only rising edges are used: the host sees a load end only after its last part, when power has long begun to fall.
    The two clocks must agree to a fraction of the load's period already (see :func:`correlogram`).

    Parameters
    ----------
    switched_on_s, switched_off_s : float64
    around_s : float
        How far around a stamp its edge is looked for.

    Raises DeclinedError: the meter shows no edges where the load has them.
    """
    on, off = np.asarray(switched_on_s, np.float64), np.asarray(switched_off_s, np.float64)
    late = np.array([_crossing(meter, t, off, around_s) for t in on])
    seen = np.isfinite(late)
    if np.count_nonzero(seen) <= 0.4 * np.count_nonzero((on > meter.start_s) & (on < meter.end_s)):
        msg = "the meter shows no rise where the load's stamps say that it was switched on; is it on the same device?"
        if _MIN_EDGE_ROWS * meter.cell_s > 2.0 * around_s:
            msg = f"with a row each {1e3 * meter.cell_s:.3g} ms the meter does not tell when the load was switched on"
        raise DeclinedError(msg)
    t, late = on[seen], late[seen]
    middle = float((t[0] + t[-1]) / 2.0)
    x = np.stack([np.ones(len(t)), t - middle], axis=1)
    # What is known of such clocks keeps a few edges, close together, from showing a rate that no clock has.
    one = math.hypot(_ONE_EDGE_S, meter.cell_s / math.sqrt(12.0))  # within a row of samples an edge may lie anywhere
    weights, known = np.ones(len(t)), np.diag([0.0, (one / RATE_SD) ** 2])
    for _ in range(5):
        inverse = np.linalg.inv((x * weights[:, None]).T @ x + known)
        fit = inverse @ (x.T @ (weights * late))
        left = np.asarray(late - x @ fit, np.float64)
        weights = huber_weights(left)
    freedom = max(len(t) - 2, 2)
    sd = math.sqrt(float(weights @ left**2) / freedom)
    if sd > 0.2 * around_s:
        msg = f"the meter's rises scatter by {1e3 * sd:.3g} ms about the load's stamps: they belong to different loads"
        raise DeclinedError(msg)
    # Before a few show how much they scatter, one is known by what others were off by.
    sd = max(sd * student_95(freedom) / Z95, one / math.sqrt(len(t)))
    offset, rate = (
        Estimate.normal(float(v), float(e)) for v, e in zip(fit, sd * np.sqrt(np.diag(inverse)), strict=True)
    )
    return ClockFit(offset.widened(EDGE_DELAY_S), rate, middle)


def follow_clock(
    meter: PowerTrace, load: LoadIntervals, *, reach_s: float | None = None
) -> tuple[PowerTrace, ClockFit | None, str]:
    """Bring a meter onto the clock of a load's stamps, whatever the rate of its own.

    A rate that is 0.1 % off moves a meter by a whole period of a fast load within seconds, so the two are first laid
    over each other where the load began, and the rate is followed from there over longer and longer parts.

    Parameters
    ----------
    reach_s : float, optional
        About how far the two clocks are expected to be apart; None: any distance.

    Returns
    -------
    tuple
        The meter on the load's clock; how its clock was fitted in the end, or None where its edges do not fit; and
        then the reason.

    Raises DeclinedError: meter and load do not look alike at any shift.
    """
    shown, edges = PowerTrace.of_load(load), load.edges
    shortest = float(np.quantile(np.diff(edges), 0.1)) if len(edges) > 1 else math.inf
    span = max(shortest / (2.0 * STANDS_OUT * RATE_SD), 1.0)  # no clock drifts by half a block meanwhile
    tried: list[_Followed] = []
    why: DeclinedError | None = None
    # A meter that was started late shows nothing of the beginning: then all of the load is looked at at once.
    for part in (replace(shown, end_s=min(float(edges[0]) + span, shown.end_s)), shown):
        try:
            shifts = correlogram(meter, part, step_s=_GRAIN_S).peaks(reach_s)
        except DeclinedError as error:
            why = error
            continue
        tried += [_followed(meter, float(shift), shown, edges, span) for shift in shifts]
        if any(each.clock is not None for each in tried):
            break
    if not tried and why is not None:
        raise why
    best = min(tried, key=lambda each: (each.clock is None, unlikely(each.alike, each.shift_s, reach_s)))
    return best.meter, best.clock, best.why


class _Followed(NamedTuple):
    """A meter laid over a load from a shift on: how much they look alike, and why its clock was not fitted."""

    shift_s: float
    alike: float
    meter: PowerTrace
    clock: ClockFit | None
    why: str


def _followed(meter: PowerTrace, shift_s: float, load: PowerTrace, edges: Floats, span_s: float) -> _Followed:
    """Follow a meter that was laid over the first ``span_s`` of a load to the load's end.

    A correlation puts a slow rise at its middle, and its grain hides by how much shifts of whole periods differ; so
    edges are looked for from afar at first, and how much the two look alike is told when the clock was followed.
    """
    on, off = edges[::2], edges[1::2]
    moved, around, clock, why = meter.shifted(shift_s), _AFAR_S, None, ""
    while around > _EDGE_S or span_s < RATE_GROWTH * float(edges[-1] - edges[0]):
        near = on[on <= edges[0] + span_s]
        with suppress(DeclinedError):  # the first and the last edge may be out of sight, or all of them
            moved = fit_clock(moved, near[:: 1 + len(near) // _FEW_EDGES], off, around_s=around).on_host(moved)
        around, span_s = _EDGE_S, RATE_GROWTH * span_s
    try:
        clock = fit_clock(moved, on, off)
        moved = clock.on_host(moved)
    except DeclinedError as error:
        why = str(error)
    return _Followed(shift_s, _alike(moved, load), moved, clock, why)


def _alike(a: PowerTrace, b: PowerTrace) -> float:
    """Correlation of two curves on one clock, over what they have in common."""
    start, end = max(a.start_s, b.start_s), min(a.end_s, b.end_s)
    return float(np.corrcoef(sampled(a, start, end, _GRAIN_S), sampled(b, start, end, _GRAIN_S))[0, 1])


def _crossing(meter: PowerTrace, edge: float, off: Floats, around_s: float) -> float:
    """How long after a rising edge the meter passes a quarter of the rise; NaN where there is none to see.

    Clocks that ramp up after a load has begun raise power in stairs, and the first of them may be less than half of
    all. From afar more of the ramp is seen, so there it is a tenth.
    """
    first, last = np.searchsorted(off, edge, side="left"), np.searchsorted(off, edge, side="right")
    rest_s = edge - float(off[first - 1]) if first else 1.0
    block_s = float(off[last]) - edge if last < len(off) else 1.0
    width = min(around_s, 0.6 * rest_s, 0.6 * block_s)
    if edge - width < meter.start_s or edge + width > meter.end_s or width <= 0.0:
        return math.nan
    first, last = np.searchsorted(meter.t_s, [edge - width, edge + width])
    t = meter.t_s[first:last]
    power = np.diff(meter.joules[first : last + 1]) / np.diff(meter.t_s[first : last + 1])
    if len(t) < _MIN_EDGE_ROWS:
        return math.nan
    before = np.asarray(power[t < edge - width / 4.0], np.float64)
    low, high, noise = median(before), median(power[t > edge + width / 2.0]), robust_sd(before)
    if high - low < 6.0 * noise + 1e-9:
        return math.nan
    share = 0.25 if around_s <= _EDGE_S else 0.1
    above = np.flatnonzero(power > low + max(share * (high - low), 6.0 * noise))
    if not len(above) or not 0 < above[0] < len(t) - 1:
        return math.nan
    # Where within a row, or late within the one before, tells what was used in both beyond the level before.
    i, ends = int(above[0]), meter.t_s[first : last + 1]
    used = meter.joules[first + i + 1] - meter.joules[first + i - 1] - low * (ends[i + 1] - ends[i - 1])
    rose = ends[i + 1] - used / max(power[i + 1] - low, power[i] - low)
    return float(max(rose, ends[i - 1]) - edge)
