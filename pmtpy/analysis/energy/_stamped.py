"""What a stamped load adds to readings: one rise of the power, and how far its stamps are off. Pure; seconds, watts.

    y_k = (h * rest)(u_k - delay) + rise (h * s)(u_k - delay)      s: 1 while the load is on, and 0 else

The load ends earlier than its stamps say (``early``), readings are later than the profile says (``late``), the kernel
is wider (``wide``), and the power follows the load by some tens of milliseconds for a share of its rise (``slow``:
clocks that ramp up and are held): four unknowns more, about which the readings are straight lines near enough. Where
the load is not known, it had some mean power, one more. Where it begins after a pause, the board wakes: its rest steps
by some watts as well. All else is what the cells make of it, so that levels may drift, ramp and differ from block to
block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.energy._posterior import MISSING, Rising, Terms
from pmtpy.analysis.signal.estimate import bend_sd
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import Response
from pmtpy.core.rows import Floats

# How much shorter a load is on than its stamps say: 0.7 ms under the recorded square wave; 14 to 37 ms of 6 s, since
# the blocks of a kernel end unevenly (docs/corrections.md). Root mean square; never longer: stamps enclose it.
_EARLY_S, _EARLY_SHARE = 7e-4, 0.005
_LATE_S = 9e-4  # rows are stamped 3 to 6 ms before they are read, not alike in every session: that range over sqrt(12)
_LATE_SHARE = 0.2  # share of the rise that follows late ...
_BEHIND_S = (0.01, 0.025, 0.045)  # ... by these times alike: clocks ramp and are held for 30 to 150 ms
_LONG_BLOCK = 5.0  # periods, or widths of the kernel: in longer blocks the rest shows by itself how the power rose
_WAKE = 0.2  # of what was shown at most: how much a board's rest differs before and after it wakes (150, 127 W of 437)
_PAUSE, _PAUSE_S = 3.0, 0.5  # times the usual distance of switches, and seconds, from which the load has paused
_MOST_PAUSES = 12  # pauses that are reckoned with, the nearest to the interval
_STEPS = np.array([1e-4, 1e-4, 5e-3])  # of early, late, wide, for derivatives: well below any kernel
# By which single switches scatter about their stamps, less what all have in common; no more than stamps of a regular
# load scatter themselves.
_OFF_S = 3.3e-4
_REMEMBERS = 20.0  # widths of the kernel after which it has forgotten all
_UNSEEN = 3.0  # a load that was never shown may be so many times what was: a board idles at some tenth of its limit


@dataclass(frozen=True, slots=True)
class StampedLoad:
    """A load, the readings that it is seen in, and what is known of its unknowns beforehand: rise, early, late, wide,
    slow, mean power where the load is not known, and one for each waking.
    """

    load: LoadIntervals
    response: Response
    t_s: Floats
    region: tuple[float, float]
    mean: Floats
    sd: Floats
    other: Floats  # shape (n,); what readings show of a power where the load is not known
    wakings: Floats
    off2: Floats  # shape (2, switches); variance of each about its stamp, and of its stamp

    @classmethod
    def beforehand(
        cls, load: LoadIntervals, response: Response, t_s: Floats, power: Floats, region: tuple[float, float]
    ) -> StampedLoad:
        """Say what is known before any reading, but for the highest one."""
        usual = float(np.median(load.off_s - load.on_s))
        early = math.hypot(_EARLY_S, _EARLY_SHARE * usual)
        shows = usual > _LONG_BLOCK * max(response.period_s, response.span_s)
        shows = shows and float(np.max(np.diff(t_s))) < MISSING * response.period_s
        late = math.hypot(_LATE_S, response.lag_u)
        # The lag's interval bounds that of the width, which moves the lag by half as much.
        wide = 2.0 * math.hypot(response.tau_u, response.lag_u) / max(response.span_s, 1e-9)
        highest, wakings = float(np.max(np.abs(power))), _wakings(load, t_s, region)
        other, other_sd = _unknown(load, response, t_s), np.array([highest])
        wake = np.full(len(wakings), _WAKE * highest)
        half = np.array([math.sqrt(2.0 / math.pi), math.sqrt(1.0 - 2.0 / math.pi)])  # normal distribution: mean and sd
        mean = np.array([0.0, half[0] * early, 0.0, 0.0, 0.0])
        sd = np.array([_UNSEEN * highest, half[1] * early, late, wide, 0.0 if shows else _LATE_SHARE])
        sd = np.maximum(np.concatenate([sd, other_sd, wake]), 1e-9)
        mean = np.append(mean, np.zeros(len(sd) - len(mean)))
        bent = np.array([bend_sd(load.on_s, 0.5), bend_sd(load.off_s, 0.5)])
        off2 = np.tile(np.stack([np.full(2, _OFF_S), np.fmin(_OFF_S, bent)]) ** 2, len(load.on_s))
        return cls(load, response, t_s, region, mean, sd, other, wakings, off2)

    def about(self, at: Floats, rise2: float) -> Terms:
        """Return readings and energy as straight lines in the unknowns about ``at``; ``rise2``: see :class:`Rising`."""
        (start, end), step_s, early = self.region, float(_STEPS[0]), float(at[1])
        rise, late, wide, slow = float(at[0]), float(at[2]), float(at[3]), float(at[4])
        ended = [self.load.ending(early + by) for by in (-step_s, 0.0, step_s)]
        by_late, by_wide = float(_STEPS[1]), float(_STEPS[2])
        seen, sooner, later, *behind_each = self._seen(
            ended[1], wide, [late, late - by_late, late + by_late, *(late + by for by in _BEHIND_S)]
        )
        moved = [
            np.subtract(*(self._seen(load, wide, [late])[0] for load in (ended[2], ended[0]))) / (2.0 * step_s),
            (later - sooner) / (2.0 * by_late),
            np.subtract(*(self._seen(ended[1], wide + by, [late])[0] for by in (by_wide, -by_wide))) / (2.0 * by_wide),
        ]
        behind = np.mean(behind_each, axis=0) - seen
        woken = [self.response.step(self.t_s - self.response.delay_s - wakes) for wakes in self.wakings]
        columns = np.column_stack([seen + slow * behind, *(rise * m for m in moved), rise * behind, self.other, *woken])
        on = [load.share(start, end) for load in ended]
        after = float(np.mean([ended[1].share(start - by, end - by) for by in _BEHIND_S])) - on[1]
        woken_s = np.clip(end - np.maximum(self.wakings, start), 0.0, None)
        weights = [on[1] + slow * after, rise * (on[2] - on[0]) / (2.0 * step_s), 0.0, 0.0, rise * after, 0.0, *woken_s]
        shown = rise * columns[:, 0] + columns[:, 5:] @ at[5:]
        joules = rise * weights[0] + float(woken_s @ at[6:])
        felt = np.zeros(len(at))
        felt[0], felt[4] = 1.0, -rise
        rising = Rising(ended[1].edges, self.off2, rise2, felt)
        return Terms(at, self.mean, self.sd, shown, columns, joules, np.array(weights), rising)

    def _seen(self, load: LoadIntervals, wide: float, late_s: Sequence[float]) -> Floats:
        """Show a load to readings that are later by several times, one row for each, by a kernel that is wider."""
        window, tau = self.response.window_s, self.response.tau_s
        delay = self.response.delay_s - wide * (window / 2.0 + tau)  # wider, but about the same middle
        wider = replace(
            self.response, window_s=max(0.0, window * (1.0 + wide)), tau_s=max(0.0, tau * (1.0 + wide)), delay_s=delay
        )
        shown = wider.shown(load, np.concatenate([self.t_s - late for late in late_s]))
        return np.asarray(shown.reshape(len(late_s), -1), np.float64)


def _unknown(load: LoadIntervals, response: Response, t_s: Floats) -> Floats:
    """Show readings a power of one watt where the load is not known."""
    stretches = load.unknown(float(t_s[0]) - response.delay_s - _REMEMBERS * response.span_s, float(t_s[-1]))
    return response.shown(LoadIntervals(stretches[:, 0], stretches[:, 1]), t_s)


def _wakings(load: LoadIntervals, t_s: Floats, region: tuple[float, float]) -> Floats:
    """Return the starts before which the load had paused, those nearest to the interval."""
    edges = load.edges
    apart = np.diff(edges, prepend=load.known_s[:1, 0])[::2]
    paused = apart > max(_PAUSE * float(np.median(np.diff(edges))), _PAUSE_S)
    starts = load.on_s[paused & (load.on_s > t_s[0]) & (load.on_s < t_s[-1])]
    away = np.maximum(region[0] - starts, starts - region[1])
    return np.asarray(np.sort(starts[np.argsort(away, kind="stable")[:_MOST_PAUSES]]), np.float64)
