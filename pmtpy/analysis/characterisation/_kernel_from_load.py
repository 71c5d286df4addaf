"""The response kernel without a meter: the switching of a load stands in for it, where the load keeps its two levels.

Before its first block a card rests at another power than between blocks, and after its last one clocks are held for
seconds (150 against 127 W on an RTX 3090), so there a load of two levels is not what the card drew. Only the readings
from within a run of quick blocks are used, less the beginning, as the publishers of such recordings do [Y24]. A card
follows its stamps by some tenths of a millisecond and with ramps of its own: that cannot be told from the sensor's
response, and is in the intervals. Pure; times are seconds, powers watts.
"""

from __future__ import annotations

import math

import numpy as np

from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.characterisation.kernel_fit import FEWEST_BLOCKS, fit_kernel, regular_period
from pmtpy.analysis.signal.clock_fit import EDGE_DELAY_S
from pmtpy.analysis.signal.estimate import STANDS_OUT
from pmtpy.analysis.signal.trace import OFF_S, PowerTrace
from pmtpy.analysis.signal.updates import MIN_UPDATES, Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import EARLY_S
from pmtpy.errors import DeclinedError

_PAUSE_S = 0.5  # a card that rests longer changes its clocks
_DROPPED_S = 1.0  # of a run, as the publishers drop


def fit_load_kernel(updates: Updates, load: LoadIntervals, poll_s: float) -> tuple[KernelFit, tuple[str, ...]]:
    """Fit the response kernel against the switching of a load.

    Parameters
    ----------
    updates : Updates
        On the clock of the load.
    poll_s : float
        Mean time between polls, by which stamps may be early.

    Returns
    -------
    tuple
        The fit, and what is to be said of it.

    Only the time is looked at that :func:`known_part` says.

    Raises DeclinedError: as :func:`~pmtpy.analysis.characterisation.kernel_fit.fit_kernel` and :func:`known_part`; or
    the kernel would end in the future.
    """
    told, load = known_part(updates, load)
    if told is not updates:  # the first ones show what nobody knows
        updates = told.between(float(told.t_s[0]) + _DROPPED_S, math.inf)
    start, end = _run(load)
    inside = updates.between(start, end)
    used = inside if len(inside) >= MIN_UPDATES else updates
    rest = _at_rest(updates, load) if used is inside else None
    reference = PowerTrace.of_load(load)
    repeats = regular_period(load.on_s[(load.on_s >= start - _DROPPED_S) & (load.on_s <= end)])
    repeats = repeats if used is inside else None
    fit = fit_kernel(used, reference, metered=False, rest_w=rest, repeats_s=repeats)
    notes = []
    if repeats is not None:
        offsets = "so of several offsets the one nearest to zero was taken"
        notes.append(f"the load repeats every {1e3 * repeats:.3g} ms, {offsets}")
    best = fit.best
    if fit.family != AMBIGUOUS and best.offset_s.high < -(poll_s + EARLY_S):
        msg = (
            f"the best {fit.family} would end {-1e3 * best.offset_s.value:.3g} ms in the future: the load does not "
            "follow its stamps, and without a meter its ramps cannot be told from the sensor's"
        )
        raise DeclinedError(msg)
    late, open_s = fit.rises_late_s, EDGE_DELAY_S
    if late is not None and abs(late.value) > max(STANDS_OUT * late.sd, 2.0 * EDGE_DELAY_S):
        # By its rises a lag is as much more than by its falls, and which of them is the sensor's, stamps do not tell.
        open_s = max(-late.low, late.high) / 2.0
        by = f"{1e3 * abs(late.value):.2g} ms {'later' if late.value > 0.0 else 'earlier'}"
        notes.append(
            f"readings follow the load's rises {by} than its falls: it does not do what its stamps say, and kernel and "
            "lag may be off by more than is stated; only a meter tells what it does"
        )
    return fit.widened(open_s), tuple(notes)


def known_part(updates: Updates, load: LoadIntervals) -> tuple[Updates, LoadIntervals]:
    """Return the updates of the longest time of which all that the load did is known, and the load in it.

    Raises DeclinedError: the load does not change in it.
    """
    first, last = float(updates.t_s[0]), float(updates.t_s[-1])
    if load.knows(first, last):
        return updates, load
    start, end = load.longest_known(first, last)
    told = updates.between(start, end)
    if not len(told) or not load.switches(start, end):
        msg = f"the load's stamps tell of {end - start:.3g} of the {last - first:.3g} s in one go, and of no change"
        raise DeclinedError(msg)
    return told, load.about(start, end, 0.0)


def _run(load: LoadIntervals) -> tuple[float, float]:
    """Return from when to when readings show two levels only: the longest run of quick blocks, or all there is."""
    on, off = load.on_s, load.off_s
    breaks = np.flatnonzero(np.maximum(on[1:] - off[:-1], (off - on)[1:]) > _PAUSE_S) + 1
    runs = [run for run in np.split(np.arange(len(on)), breaks) if len(run) >= FEWEST_BLOCKS]
    if not runs:
        return -np.inf, np.inf
    run = max(runs, key=lambda r: float(off[r[-1]] - on[r[0]]))
    first, last = float(on[run[0]]), float(off[run[-1]])
    return first + _DROPPED_S, last


def _at_rest(updates: Updates, load: LoadIntervals) -> float | None:
    """Return what was read before the load began, if anything was."""
    first = float(load.on_s[0])
    before = updates.between(first - OFF_S, first).watts
    return float(np.median(before)) if len(before) else None
