"""The response kernel without a meter: the switching of a load stands in for it, where the load keeps its two levels.

Before its first block a card rests at another power than between blocks, and after its last one clocks are held for
seconds (150 against 127 W on an RTX 3090), so there a load of two levels is not what the card drew. Only the readings
from within a run of quick blocks are used, less the beginning, as the publishers of such recordings do [Y24]. A card
follows its stamps by some tenths of a millisecond and with ramps of its own: that cannot be told from the sensor's
response, and is in the intervals. Pure; times are seconds, powers watts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, MIN_UPDATES, KernelFit, Shape
from pmtpy.analysis.characterisation.kernel_fit import fit_kernel
from pmtpy.analysis.signal.estimate import Estimate, robust_sd
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import EARLY_S
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

_PAUSE_S = 0.5  # a card that rests longer changes its clocks
_BLOCKS = 8  # fewer are no run of quick blocks
_SETTLING_S = 1.0  # of a run, as the publishers drop ...
_SETTLING = 0.25  # ... but no more of it than this share
_REST_S, _FEWEST = 1.0, 5  # what is read so long before the load is its rest, if it is read so often
_HALVES, _TWICE = 2, 2.0
_REGULAR = 0.02  # of its period, by which a regular load may scatter
_FOLLOWS_S = 0.4e-3  # measured power edges of recorded fast loads lie so far from their stamps


def fit_load_kernel(updates: Updates, load: LoadIntervals, poll_s: float) -> tuple[KernelFit, str]:
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
        The fit, and what was taken for granted (or nothing).

    Raises DeclinedError: as :func:`~pmtpy.analysis.characterisation.kernel_fit.fit_kernel`; or the kernel would end in
    the future.
    """
    start, end = _run(load)
    inside = updates.between(start, end)
    used = inside if len(inside) >= MIN_UPDATES else updates
    rest = _at_rest(updates, load) if used is inside else None
    reference = PowerTrace.of_load(load)
    fit = fit_kernel(used, reference, metered=False, rest_w=rest)
    if fit.family != AMBIGUOUS and used is inside:
        fit = _halved(fit, used, reference, rest)
    note = ""
    period = _period(load.on_s[(load.on_s >= start - _SETTLING_S) & (load.on_s <= end)])
    if period is not None and used is inside:
        fit, note = _nearest(fit, period)
    best = fit.best
    if fit.family != AMBIGUOUS and best.offset_s.high < -(poll_s + EARLY_S):
        msg = (
            f"the best {fit.family} would end {-1e3 * best.offset_s.value:.3g} ms in the future: the load does not "
            "follow its stamps, and without a meter its ramps cannot be told from the sensor's"
        )
        raise DeclinedError(msg)
    best = replace(
        best,
        window_s=best.window_s and best.window_s.widened(_FOLLOWS_S),
        tau_s=best.tau_s and best.tau_s.widened(_FOLLOWS_S),
        offset_s=best.offset_s.widened(_FOLLOWS_S),
        lag_s=best.lag_s.widened(_FOLLOWS_S),
    )
    return replace(fit, best=best), note


def _run(load: LoadIntervals) -> tuple[float, float]:
    """Return from when to when readings show two levels only: the longest run of quick blocks, or all there is."""
    on, off = load.on_s, load.off_s
    breaks = np.flatnonzero(np.maximum(on[1:] - off[:-1], (off - on)[1:]) > _PAUSE_S) + 1
    runs = [run for run in np.split(np.arange(len(on)), breaks) if len(run) >= _BLOCKS]
    if not runs:
        return -np.inf, np.inf
    run = max(runs, key=lambda r: float(off[r[-1]] - on[r[0]]))
    first, last = float(on[run[0]]), float(off[run[-1]])
    return first + min(_SETTLING_S, _SETTLING * (last - first)), last


def _halved(fit: KernelFit, updates: Updates, reference: PowerTrace, rest_w: float | None) -> KernelFit:
    """Widen the intervals by how far the two halves of the readings lie apart.

    Power that sags or creeps while a load runs is no noise, and where the updates see few phases of a regular load it
    bends the kernel by more than the interval of the whole. Then the halves are bent by different amounts.
    """
    middle = float((updates.t_s[0] + updates.t_s[-1]) / 2.0)
    shapes = []
    for half in (updates.between(-np.inf, middle), updates.between(middle, np.inf)):
        try:
            found = fit_kernel(half, reference, metered=False, rest_w=rest_w)
        except DeclinedError:
            continue
        shapes += [s for s in found.shapes if s.family == fit.best.family and _as_wide(s, fit.best)]
    if len(shapes) < _HALVES:
        return fit

    def apart(*estimates: Estimate | None) -> float:
        values = [e.value for e in estimates if e is not None]
        return (max(values) - min(values)) / 2.0 if values else 0.0

    best, window, tau = fit.best, apart(*(s.window_s for s in shapes)), apart(*(s.tau_s for s in shapes))
    best = replace(
        best,
        window_s=best.window_s and best.window_s.widened(window),
        tau_s=best.tau_s and best.tau_s.widened(tau),
        offset_s=best.offset_s.widened(window / 2.0 + tau),  # the lag of a kernel is known better than its parts
    )
    return replace(fit, best=best)


def _as_wide(shape: Shape, best: Shape) -> bool:
    """Whether two kernels of a family are about as wide, not aliases of each other."""
    pairs = ((shape.window_s, best.window_s), (shape.tau_s, best.tau_s))
    return all(a.value < _TWICE * b.value and b.value < _TWICE * a.value for a, b in pairs if a and b)


def _at_rest(updates: Updates, load: LoadIntervals) -> float | None:
    """Return what was read before the load began, if it was read often enough."""
    first = float(load.on_s[0])
    before = updates.between(first - _REST_S, first).watts
    return float(np.median(before)) if len(before) >= _FEWEST else None


def _period(on_s: Floats) -> float | None:
    """Return the period of a regular load, or None."""
    periods = np.diff(on_s)
    if len(periods) < _BLOCKS - 1:
        return None
    period = float(np.median(periods))
    return period if robust_sd(np.asarray(periods, np.float64)) < _REGULAR * period else None


def _nearest(fit: KernelFit, period_s: float) -> tuple[KernelFit, str]:
    """Take that offset of a regular load which is nearest to none: the others differ by whole periods, and fit alike.

    Kernels of recorded cards end within milliseconds of their update.
    """
    best = fit.best
    shift = -period_s * round(best.offset_s.value / period_s)
    if not shift:
        return fit, ""

    def moved(estimate: Estimate) -> Estimate:
        return Estimate(estimate.value + shift, estimate.low + shift, estimate.high + shift)

    best = replace(best, offset_s=moved(best.offset_s), lag_s=moved(best.lag_s))
    note = f"the load repeats every {1e3 * period_s:.3g} ms, so of several offsets the one nearest to zero was taken"
    return replace(fit, best=best), note
