"""The response of a sensor to one load step: kind, rise (10 to 90 %) and delay, from the series of updates.

Definitions as in Yang, Adamek and Armour (arXiv 2312.02741): rise from 10 to 90 % of the way from idle to the plateau,
delay from the load's start to the reading that passes 50 %. What is smaller than an update period cannot be seen, so
each interval includes it; nothing is interpolated between updates, which would invent a rise for an instant sensor.
Without a meter the load's own ramp is part of what is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterisation._families import BOXCAR, ONE_POLE
from pmtpy.analysis.characterisation.kernel import AMBIGUOUS, KernelFit
from pmtpy.analysis.signal.estimate import MISSED, STANDS_OUT, Z95, Estimate, robust_sd
from pmtpy.analysis.signal.updates import Updates
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

INSTANT, SLOW, LINEAR, LOGARITHMIC = "instant", "slow rise", "linear", "logarithmic"
_OF_WINDOW, _OF_TAU = 0.8, math.log(9.0)  # from 10 to 90 % a boxcar takes this share of its width, a one-pole of tau
_PLATEAU_S = (1.5, 3.0)  # not the maximum: boost, drift and power caps come later
_MAX_SCATTER_SHARE = 0.04  # scatter on the plateau, as a share of the step, above which there is none


@dataclass(frozen=True, slots=True)
class StepResponse:
    """What one load step showed."""

    # ``"instant"``: at the plateau with the first or second update; ``"linear"``: a running mean; ``"logarithmic"``: a
    # low-pass; ``"slow rise"``: of the load, or of neither; ``"ambiguous"``
    kind: str
    rise_s: Estimate  # 10 to 90 %
    # From the load's start to the update that passes 50 %; the interval reaches back to the update before, since the
    # response passed 50 % somewhere between. None where the load's start is not known.
    delay_s: Estimate | None
    note: str  # what limits the result


def long_blocks(load: LoadIntervals) -> list[tuple[float, float]]:
    """Return start and end of each load block that lasts long enough for a step response, in order.

    Raises DeclinedError: none lasts 1.5 s after as much idle time as half of that.
    """
    on, off = load.on_s, load.off_s
    quiet = np.concatenate([[math.inf], on[1:] - off[:-1]])
    long = np.flatnonzero((off - on >= _PLATEAU_S[0]) & (quiet >= _PLATEAU_S[0] / 2))
    if not len(long):
        pause_s = _PLATEAU_S[0] / 2
        msg = f"no load block lasts {_PLATEAU_S[0]:g} s after a pause of {pause_s:g} s: there is no single step"
        raise DeclinedError(msg)
    return [(float(on[i]), float(off[i])) for i in long]


def highest_block(updates: Updates, blocks: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the block with which the readings rise most: of a stair of loads its top shows a sensor best."""

    def rise(block: tuple[float, float]) -> float:
        before = updates.between(block[0] - 1.0, block[0]).watts
        during = updates.between((block[0] + block[1]) / 2.0, block[1]).watts
        return float(np.median(during) - np.median(before)) if len(before) and len(during) else -math.inf

    rises = [rise(block) for block in blocks]
    # Of steps that are alike the first is as good as any, and does not pick out the noise.
    return blocks[next(i for i, r in enumerate(rises) if r >= max(rises) - 0.1 * abs(max(rises)))]


def find_block(updates: Updates) -> tuple[float, float]:
    """Return about when the longest block of high power started and ended, where no load is known."""
    low, high = np.quantile(updates.watts, [0.05, 0.95])
    up = (updates.watts > (low + high) / 2.0).astype(np.int64)
    turns = np.flatnonzero(np.diff(np.concatenate([[0], up, [0]])))
    starts, ends = turns[::2], turns[1::2]
    if not len(starts) or high - low <= 2.0 * STANDS_OUT * robust_sd(np.asarray(np.diff(updates.watts), np.float64)):
        msg = "the readings show no load step"
        raise DeclinedError(msg)
    i = int(np.argmax(ends - starts))
    start, end = float(updates.t_s[starts[i]]), float(updates.t_s[ends[i] - 1])
    if starts[i] < 3 or end - start < _PLATEAU_S[0]:
        msg = f"the readings show no load step that lasts {_PLATEAU_S[0]:g} s after some idle time"
        raise DeclinedError(msg)
    return start - 3.0 * updates.period_s, end


def fit_step(
    updates: Updates,
    start_s: float,
    end_s: float,
    *,
    started: bool = True,
    fit: KernelFit | None = None,
    early_s: float = 0.0,
) -> StepResponse:
    """Measure the step response to a load block from ``start_s`` to ``end_s``.

    Parameters
    ----------
    updates : Updates
        The series of updates.
    start_s, end_s : float
        The block, on the clock of the updates.
    started : bool
        Whether ``start_s`` is the load's own stamp; else no delay is given.
    fit : KernelFit, optional
        The kernel of the sensor: a slow rise is called what its odds say.
    early_s : float
        How much earlier than its reading a row may have been stamped.

    Raises DeclinedError: no updates before or in the block, or no step in them.
    """
    idle, plateau, noise = _levels(updates, start_s, end_s)
    if plateau - idle < 2.0 * STANDS_OUT * noise or plateau <= idle:
        msg = f"the readings rise by {plateau - idle:.3g} W with the load, which their noise of {noise:.2g} W hides"
        raise DeclinedError(msg)
    after = updates.between(start_s, end_s)
    share = (after.watts - idle) / (plateau - idle)
    at = [int(np.argmax(share >= q)) for q in (0.1, 0.5, 0.9)]
    gap = [float(after.t_s[i] - after.t_s[i - 1]) if i else updates.period_s for i in at]
    rise = float(after.t_s[at[2]] - after.t_s[at[0]])
    # A level that is wrong moves where it is passed, the more the flatter the flank: noise at rest, scatter above.
    blur = [_blur(after.t_s, share, q, noise / (plateau - idle)) for q in (0.1, 0.5, 0.9)]
    # The two ends of the rise fall anywhere in their update periods: that error is triangular over +/- one period.
    spread = max(gap[0], gap[2]) * (1.0 - math.sqrt(MISSED)) + Z95 * math.hypot(updates.jitter_s, blur[0], blur[2])
    kind, note = _kind(after, at, start_s if started else None, fit)
    delay = float(after.t_s[at[1]] - start_s)
    earliest = delay - math.hypot((1.0 - MISSED / 2.0) * gap[1], Z95 * blur[1])
    latest = delay + math.hypot(Z95 * updates.jitter_s + 1e-3, early_s, Z95 * blur[1])
    return StepResponse(
        kind,
        Estimate(rise, max(0.0, rise - spread), rise + spread),
        Estimate(delay, max(0.0, earliest), latest) if started else None,
        note,
    )


def _levels(updates: Updates, start_s: float, end_s: float) -> tuple[float, float, float]:
    before = updates.between(start_s - 1.0, start_s).watts
    late = updates.between(max(start_s + _PLATEAU_S[0], end_s - 1.5), end_s).watts
    if end_s - start_s > 2.0 * _PLATEAU_S[0]:
        last = late  # of a sensor that takes seconds: it is at its plateau then, if ever
        late = updates.between(start_s + _PLATEAU_S[0], min(start_s + _PLATEAU_S[1], end_s)).watts
        late = late if _steady(before, late) or not _steady(before, last) else last
    elif len(late) < 3:
        late = updates.between(start_s + 0.6 * (end_s - start_s), end_s).watts
    if not _steady(before, late):
        msg = (
            f"the readings are not steady under the load (they scatter by {robust_sd(late):.3g} W): there is no plateau"
        )
        raise DeclinedError(msg)
    if len(before) < 2 or len(late) < 3:
        msg = (
            f"{amount(len(before), 'update')} before the load and {len(late)} on its plateau are too few for a step "
            "response"
        )
        raise DeclinedError(msg)
    return float(np.median(before)), float(np.median(late)), max(robust_sd(before), robust_sd(late))


def _blur(t: Floats, share: Floats, level: float, sd: float) -> float:
    """How far an error of ``sd`` in the level, as a share of the step, moves the instant at which it is passed."""
    reach = max(0.05, 2.0 * sd)
    after = int(np.argmax(share >= min(level + reach, 0.97)))
    low = np.flatnonzero(share[: after + 1] <= level - reach)
    before = int(low[-1]) if len(low) else 0
    rise = float(share[after] - share[before])
    return sd * float(t[after] - t[before]) / rise if rise > 0.0 else 0.0


def _steady(before: Floats, late: Floats) -> bool:
    if not len(before) or len(late) <= 3:
        return True  # too few to tell
    return robust_sd(late) <= _MAX_SCATTER_SHARE * abs(float(np.median(late) - np.median(before)))


def _kind(after: Updates, at: list[int], start_s: float | None, fit: KernelFit | None) -> tuple[str, str]:
    """Name the rise: by what is seen if that is quick, else by the odds of the kernels."""
    near = 2.0 * after.period_s + STANDS_OUT * after.jitter_s  # what passes within two updates is quick
    if at[2] - at[0] <= 1:
        if start_s is None or after.t_s[at[2]] - start_s <= near:
            return INSTANT, ""
        return AMBIGUOUS, "the flank has fewer than three updates, and begins late after the load's start"
    if fit is None:
        return SLOW, "no kernel was found that would tell the sensor's rise from the load's"
    window, tau = (e.value if e is not None else 0.0 for e in (fit.best.window_s, fit.best.tau_s))
    if _OF_WINDOW * window + _OF_TAU * tau <= near:
        return SLOW, "the readings follow at the next update: the load itself is slow"
    return {BOXCAR: LINEAR, ONE_POLE: LOGARITHMIC}.get(fit.family, SLOW), fit.reason
