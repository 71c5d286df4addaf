"""What a stamped load adds to readings: one rise of the power, and how far its stamps are off. Pure; seconds, watts.

    y_k = (h * rest)(u_k - delay) + rise (h * s)(u_k - delay)      s: 1 while the load is on, and 0 else

The load ends earlier than its stamps say (``early``), readings are later than the profile says (``late``), the kernel
is wider (``wide``), and the power follows the load by some tens of milliseconds for shares of its rise (``slow``:
clocks that ramp up and are held): unknowns about which the readings are straight lines near enough. What stamps of a
regular load scatter by is the load's own for some share (``own``), and theirs for the rest. Programs run two kernels
in turn: every second block rises by more, the others by as much less (``in turn``). Where the load is not known, it had
some mean power, one more. All else is what the cells make of it, so that levels may drift, ramp, step when a board
wakes, and differ from block to block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.energy._posterior import Posterior, Rising, Terms
from pmtpy.analysis.signal.estimate import robust_sd
from pmtpy.analysis.uncertainty.channel_times import MISSED_RENEWAL_RATIO
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import FORGOTTEN, Response
from pmtpy.core.rows import Floats

# By which all stamps are off alike: under the recorded square wave the load ends 0.7 ms before it is said (never after:
# stamps enclose it), and rows are stamped 3 to 6 ms before they are read, not alike in every session.
_STAMP_S = 9e-4
# Degrees of freedom of how late they are: now and then all stamps of a program are off by tens of milliseconds (work
# that runs on after its launch returned, the clock of another host), and the readings of some blocks show it.
_STAMP_TAIL = 4.0
_UNUSUAL_SD = 3.0  # by which readings contradict it: by chance once in 370 times
# Blocks that tell, and how far apart they are on the median: a load that is switched faster looks alike, or nearly so,
# when its stamps are off by that.
_MIN_TELLING, _TELLING_S = 4, 0.12
_LATE_SHARE = 0.2  # root mean square of the share of the rise that follows late ...
_BEHIND_S = (0.015, 0.04)  # ... in parts by these times: clocks ramp and are held for 30 to 150 ms
_LONG_BLOCK = 5.0  # periods, or widths of the kernel: in longer blocks the rest shows by itself how the power rose
_DERIVATIVE_STEPS = np.array([1e-4, 1e-4, 5e-3])  # of early, late, wide, for derivatives: well below any kernel
# Root mean square of the share of the rise by which blocks of two kinds in turn are more, and less: powers of two
# kernels of a program within 30 % of each other. Drawn so near multiples of the period, 240 regions: held 0.77 without
# this, 0.97 with it.
_IN_TURN_SHARE = 0.1
_OFF_S = 3.3e-4  # by which single switches are off, less what all have in common: seen under the recorded square wave
# Switches either side of each, by which a regular load says where it is: as many as it stays regular over.
_NEIGHBOURS = (4, 16, 64)
_WANDERS = 1.2  # times more off than by fewer: over so many it is not regular
_MAX_OFF_S = 1.5e-3  # from there: what is further off is of the load itself
_MAX_UNSEEN_RATIO = (
    3.0  # a load that was never shown may be so many times what was: a board idles at some tenth of its limit
)


@dataclass(frozen=True, slots=True)
class StampedLoad:
    """A load, the readings that it is seen in, and what is known of its unknowns beforehand.

    These are: rise, early, late, wide, mean power where the load is not known, own, in turn, and the slow shares.
    """

    # halfway between the two: as stamped; and if what regular stamps scatter by is theirs alone
    load: LoadIntervals
    ends: tuple[LoadIntervals, LoadIntervals]
    response: Response
    t_s: Floats
    region: tuple[float, float]
    mean: Floats
    sd: Floats
    other: Floats  # shape (n,); what readings show of a power where the load is not known
    off2: Floats  # shape (2, switches); variance of each about where it is taken to be, and what is left of its stamp's
    scatter2: Floats  # shape (switches,); variance of what stamps scatter by about a regular load
    telling: bool  # whether readings can tell that all stamps are off by more than usual

    @classmethod
    def beforehand(
        cls, load: LoadIntervals, response: Response, t_s: Floats, power: Floats, region: tuple[float, float]
    ) -> StampedLoad:
        """Say what is known before any reading, but for the highest one."""
        # The lag's interval bounds that of the width, which moves the lag by half as much.
        wide = 2.0 * math.hypot(response.tau_u, response.lag_u) / max(response.span_s, 1e-9)
        highest = float(np.max(np.abs(power)))
        normal = np.array([math.sqrt(2.0 / math.pi), math.sqrt(1.0 - 2.0 / math.pi)])  # its size: mean and sd
        early, early_sd = _STAMP_S * normal
        shows = float(np.median(load.off_s - load.on_s)) > _LONG_BLOCK * max(response.period_s, response.span_s)
        shows = shows and float(np.max(np.diff(t_s))) < MISSED_RENEWAL_RATIO * response.period_s
        slow = np.full(len(_BEHIND_S), 0.0 if shows else _LATE_SHARE / math.sqrt(len(_BEHIND_S)))
        late = math.hypot(_STAMP_S, response.lag_u)
        mean = np.append([0.0, early], np.zeros(5 + len(slow)))
        sd = np.maximum([_MAX_UNSEEN_RATIO * highest, early_sd, late, wide, highest, 0.0, 0.0, *slow], 1e-9)
        even, left_s, scatter_s = _evened(load)
        scatter2 = np.tile(np.fmin(_OFF_S, scatter_s) ** 2, len(load.on_s))
        half = replace(load, on_s=(load.on_s + even.on_s) / 2.0, off_s=(load.off_s + even.off_s) / 2.0)
        off2 = np.tile(np.stack([np.full(2, _OFF_S), np.fmin(_OFF_S, left_s)]) ** 2, len(load.on_s))
        inside = np.diff(load.on_s[(load.on_s > t_s[0]) & (load.on_s < t_s[-1])])
        telling = len(inside) >= _MIN_TELLING - 1 and float(np.median(inside)) > _TELLING_S
        other = _unknown(load, response, t_s)
        return cls(half, (load, even), response, t_s, region, mean, sd, other, off2, scatter2, telling)

    def evened(self) -> StampedLoad:
        """Return the same if what regular stamps scatter by is theirs alone, and tells nothing of the rise."""
        even = self.ends[1]
        return replace(self, load=even, ends=(even, even), off2=np.stack([self.off2[0], self.scatter2]))

    def start(self, power: Floats, early_s: float, late_s: float) -> tuple[Floats, Floats]:
        """Return unknowns to begin with, and their mean squares about what was expected."""
        at = self.mean.copy()
        at[:3] = float(np.ptp(power)), at[1] + early_s, late_s
        return at, self.sd**2 + (at - self.mean) ** 2

    def late(self, found: Posterior) -> bool:
        """Whether the readings contradict that the stamps are no later than usual."""
        off = np.abs(found.unknowns[1:3] - self.mean[1:3])
        return self.telling and bool(np.any(off > _UNUSUAL_SD * self.sd[1:3]))

    def about(self, at: Floats, square: Floats) -> Terms:
        """Return readings and energy as straight lines in the unknowns about ``at``.

        ``square``, shape (k,): mean squares about what was expected, by which it shows whether the stamps are as usual.
        """
        rise2 = float(square[0])
        sd = self.sd.copy()
        if self.telling:
            sd[1:3] = np.sqrt((_STAMP_TAIL * sd[1:3] ** 2 + np.fmax(square[1:3], sd[1:3] ** 2)) / (_STAMP_TAIL + 1.0))
        step_s, early = float(_DERIVATIVE_STEPS[0]), float(at[1])
        rise, late, wide, other, own, by_turn, slow = (*(float(a) for a in at[[0, 2, 3, 4, 5, 6]]), at[7:])
        # Readings may be late by as much as is usual; by what is more than that the stamps are.
        stamps = max(0.0, 1.0 - float(self.sd[2] / sd[2]) ** 2)
        start, end = (bound - stamps * late for bound in self.region)
        ended = [self.load.ending(early + by) for by in (-step_s, 0.0, step_s)]
        late_s, by_wide = float(_DERIVATIVE_STEPS[1]), float(_DERIVATIVE_STEPS[2])
        seen, sooner, later, *followed = self._seen(
            ended[1], wide, [late, late - late_s, late + late_s, *(late + by for by in _BEHIND_S)]
        )
        moved = [
            np.subtract(*(self._seen(load, wide, [late])[0] for load in (ended[2], ended[0]))) / (2.0 * step_s),
            (later - sooner) / (2.0 * late_s),
            np.subtract(*(self._seen(ended[1], wide + by, [late])[0] for by in (by_wide, -by_wide))) / (2.0 * by_wide),
        ]
        ends = [load.ending(early) for load in self.ends]
        stamped, even = (self._seen(load, wide, [late])[0] for load in ends)
        behind = np.array(followed) - seen
        shape = seen + slow @ behind
        turns = [replace(ended[1], on_s=ended[1].on_s[i::2], off_s=ended[1].off_s[i::2]) for i in (0, 1)]
        in_turn = np.subtract(*(self._seen(load, wide, [late])[0] for load in turns))
        columns = np.column_stack(
            [shape, *(rise * m for m in moved), self.other, stamped - even, in_turn, *(rise * behind)]
        )
        on = [load.share(start, end) for load in ended]
        after = np.array([ended[1].share(start - by, end - by) for by in _BEHIND_S]) - on[1]
        lasts = on[1] + float(slow @ after)
        more = ends[0].share(start, end) - ends[1].share(start, end)
        lasts_in_turn = turns[0].share(start, end) - turns[1].share(start, end)
        sooner_on, later_on = (ended[1].share(start + by, end + by) for by in (step_s, -step_s))
        shifts = stamps * rise * (later_on - sooner_on) / (2.0 * step_s)
        weights = [
            lasts,
            rise * (on[2] - on[0]) / (2.0 * step_s),
            shifts,
            0.0,
            0.0,
            more,
            lasts_in_turn,
            *(rise * after),
        ]
        felt = np.concatenate([[1.0], np.zeros(6), np.full(len(slow), -rise)])
        times = np.array([1, 2, 3, *range(7, 7 + len(slow))])
        rising = Rising(ended[1].edges, self.off2, rise2, felt, times)
        shown = rise * shape + other * self.other + own * (stamped - even) + by_turn * in_turn
        sd[5] = math.sqrt(rise2) / 2.0  # all of the scatter is the load's own, or nothing: half the rise either way
        sd[6] = _IN_TURN_SHARE * math.sqrt(rise2)
        joules = rise * lasts + own * more + by_turn * lasts_in_turn
        return Terms(at, self.mean, sd, shown, columns, joules, np.array(weights), rising)

    def _seen(self, load: LoadIntervals, wide: float, late_s: Sequence[float]) -> Floats:
        """Show a load to readings that are later by several times, one row for each, by a kernel that is wider."""
        window, tau = self.response.window_s, self.response.tau_s
        delay = self.response.delay_s - wide * (window / 2.0 + tau)  # wider, but about the same middle
        wider = replace(
            self.response, window_s=max(0.0, window * (1.0 + wide)), tau_s=max(0.0, tau * (1.0 + wide)), delay_s=delay
        )
        shown = wider.shown(load, np.concatenate([self.t_s - late for late in late_s]))
        return np.asarray(shown.reshape(len(late_s), -1), np.float64)


def _evened(load: LoadIntervals) -> tuple[LoadIntervals, Floats, Floats]:
    """Return the load with each switch where those about it say, unless it is further off than stamps ever are.

    And what averaging leaves of what they scatter by, and that itself, of beginnings and of ends: standard deviations.
    """

    def even(at: Floats) -> tuple[Floats, float, float]:
        found, left, least = at, math.inf, math.inf
        for many in _NEIGHBOURS:
            count = 2 * many + 1
            padded = np.pad(at, many, "reflect", reflect_type="odd")  # by which what is regular stays as it is
            off = np.convolve(padded, np.full(count, 1.0 / count), "valid") - at
            scatter = robust_sd(off) / math.sqrt(1.0 - 1.0 / count)
            if len(at) <= many or scatter > _WANDERS * least:
                break
            found, least = at + np.where(np.abs(off) < _MAX_OFF_S, off, 0.0), scatter
            left = scatter / math.sqrt(count)
        return found, left, least

    (on, on_left, on_s), (off, off_left, off_s) = even(load.on_s), even(load.off_s)
    edges = np.maximum.accumulate(np.stack([on, off], axis=1).ravel())
    return replace(load, on_s=edges[::2], off_s=edges[1::2]), np.array([on_left, off_left]), np.array([on_s, off_s])


def _unknown(load: LoadIntervals, response: Response, t_s: Floats) -> Floats:
    """Show readings a power of one watt where the load is not known."""
    stretches = load.unknown(float(t_s[0]) - response.delay_s - FORGOTTEN * response.span_s, float(t_s[-1]))
    return response.shown(LoadIntervals(stretches[:, 0], stretches[:, 1]), t_s)
