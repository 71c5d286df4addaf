"""Readings, a load and a meter on one clock, the host's, as far as that can be known. Pure; times are seconds."""

from __future__ import annotations

import numpy as np

from pmtpy.analysis.characterisation.results import Reference, Series
from pmtpy.analysis.signal.clock_fit import MEETING_S, ClockFit, follow_clock, zone_shift
from pmtpy.analysis.signal.correlogram import correlogram
from pmtpy.analysis.signal.estimate import ONE_CLOCK_RATE, Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.errors import DeclinedError

_FRAME_S = 1e-3  # of USB: a meter that is stamped as it arrives is stamped up to this much late
MIN_LENGTH_S = 1.0  # of a recording: a shorter one is no use
_MAX_END_OFF_S = 0.15  # from a stamp no end of a load was seen so far off


def host_shift(polls: Series, updates: Updates, load: LoadIntervals | None, meter: Reference | None) -> float:
    """What to add to the readings' times so that they are on the host's clock: the load's, or else the meter's."""
    if load is not None:
        reference, absolute = PowerTrace.of_load(load), load.absolute
    else:
        assert meter is not None  # noqa: S101  (one of the two is there)
        reference, absolute = meter.curve(), meter.absolute
    if polls.absolute and absolute:
        return zone_shift(float(updates.t_s[0]), float(updates.t_s[-1]), reference)
    return correlogram(_held(updates), reference, step_s=updates.period_s / 10.0).best()


def _held(updates: Updates) -> PowerTrace:
    """Return the updates as a curve, each shown until the next."""
    ends = np.append(updates.t_s[1:] - 1e-6, updates.t_s[-1] + updates.period_s)
    return PowerTrace.from_samples(np.stack([updates.t_s, ends], axis=1).ravel(), np.repeat(updates.watts, 2))


def on_one_clock(meter: Reference, updates: Updates) -> tuple[ClockFit, PowerTrace]:
    """Return the meter's curve where it is: its clock is that of the readings."""
    curve = _long_enough(meter)
    middle = float((updates.t_s[0] + updates.t_s[-1]) / 2.0)
    return ClockFit(Estimate.within(0.0, _FRAME_S), Estimate.normal(0.0, ONE_CLOCK_RATE), middle), curve


def _long_enough(meter: Reference) -> PowerTrace:
    curve = meter.curve()
    if curve.end_s - curve.start_s < MIN_LENGTH_S:
        msg = (
            f"the meter recorded {curve.end_s - curve.start_s:.3g} s, too short to be matched with a load; record 10 s"
        )
        raise DeclinedError(msg)
    return curve


def meter_on_host(
    meter: Reference, load: LoadIntervals | None, updates: Updates
) -> tuple[ClockFit | None, PowerTrace, tuple[str, ...]]:
    """Return how the meter's clock was tied to the host's, its curve on that as far as it is known, and notes."""
    notes: tuple[str, ...] = ()
    curve = _long_enough(meter)
    fixed = _held(updates) if load is None else PowerTrace.of_load(load)
    tied = meter.absolute and (load is None or load.absolute)
    if tied:
        curve = curve.shifted(zone_shift(curve.start_s, curve.end_s, fixed))
    reach = MEETING_S if tied else None
    if load is None:
        # Readings are means over about a period; finer than that they do not look like the meter.
        moved, clock = curve.shifted(correlogram(curve, fixed, step_s=updates.period_s).best(reach)), None
    else:
        moved, clock, why = follow_clock(curve, load, reach_s=reach)
        if why:
            notes = (f"the meter's clock is known only roughly: {why}",)
        else:
            _refuse_torn(moved, load)
    apart = moved.start_s - curve.start_s
    if reach is not None and abs(apart) > reach:
        like = "readings" if load is None else "load"
        notes = (*notes, f"the meter's clock was shifted by {apart:+.3f} s to look like the {like}")
    return clock, moved, notes


def _refuse_torn(meter: PowerTrace, load: LoadIntervals) -> None:
    """Refuse a meter that rises with a load but falls at quite another time: it lost samples, how many it cannot say.

    A clock's rate moves an end by milliseconds, and kernels end some 14 to 37 ms before their stamp.
    """
    for on, off, after in zip(load.on_s, load.off_s, [*load.on_s[1:], meter.end_s], strict=True):
        reach = min(1.0, 0.9 * (after - off), 0.9 * (off - on))
        begin = max(on - reach, meter.start_s)
        if reach < 2.0 * _MAX_END_OFF_S or on - begin < 2.0 * _MAX_END_OFF_S or off + reach > meter.end_s:
            continue
        grid = np.arange(begin, off + reach, _MAX_END_OFF_S / 10.0)
        power = np.diff(np.interp(grid, meter.t_s, meter.joules)) / np.diff(grid)
        rest, held = float(np.median(power[grid[1:] < on])), float(np.median(power[grid[1:] > off + reach / 2.0]))
        high = float(np.median(power[(grid[1:] > on) & (grid[1:] < off)]))
        if high - rest < 4.0 * abs(held - rest) or high - rest < 0.1 * high:
            continue  # clocks held after the load hide when it ended
        fall = float(grid[1:][power > (high + rest) / 2.0][-1])
        if abs(fall - off) > _MAX_END_OFF_S:
            msg = (
                f"the meter rises when the load begins and falls {fall - off:+.2f} s from its end: it has lost samples "
                "in between, or its clock has jumped"
            )
            raise DeclinedError(msg)
