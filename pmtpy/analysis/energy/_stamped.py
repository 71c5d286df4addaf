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

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.energy._posterior import ROBUST_TAIL, Posterior, Rising, Terms
from pmtpy.analysis.signal.estimate import STANDS_OUT, STRAY, robust_sd
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.response import FORGOTTEN, Response
from pmtpy.core.rows import Floats

_NOTHING = 1e-9  # instead of a standard deviation of 0
# By which all stamps are off alike: under the recorded square wave the load ends 0.7 ms before it is said (never after:
# stamps enclose it), and rows are stamped 3 to 6 ms before they are read, not alike in every session.
_STAMP_S = 9e-4
# Blocks that tell, and how far apart they are on the median: a load that is switched faster looks alike, or nearly so,
# when its stamps are off by that.
_MIN_TELLING, _TELLING_S = 4, 0.12
# Root mean square of the share of the rise that follows by each of two times, and these: clocks are held for 30 ms and
# more; and after a pause they ramp for as long, which a sensor that looks away may not show. By the meter beside a
# recorded step, 0.55 of the rise were missing over the first 2 ms, 0.41 over 30 and 0.36 over 150 ms (RTX 3090), or
# nothing (K40m).
_LATE_SHARE, _BEHIND_S = 0.14, np.array([0.015, 0.04])
_RAMP_SHARE, _RAMP_S = 0.25, np.array([0.008, 0.025])
_PAUSE_S = 0.3  # the median of those after which clocks ramp
# By which readings, in standard deviations, and stamps may be late and are no straight line of no delay: a start of its
# own for each. A window as wide as a period shows a block in two readings that a third of a deviation makes others.
_LATE_STARTS = (-4.0, -2.0, -1.5, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0)
_NOT_STRAIGHT_S, _LATE_STARTS_S = 0.004, (-0.06, -0.04, -0.02, 0.02, 0.04, 0.06)
_DERIVATIVE_STEPS = np.array([1e-4, 1e-4, 5e-3])  # of early, late, wide, for derivatives: well below any kernel
# Root mean square of the share of the rise by which blocks of two kinds in turn are more, and less: powers of two
# kernels of a program within 30 % of each other. Drawn so near multiples of the period, 240 regions: held 0.77 without
# this, 0.97 with it.
_IN_TURN_SHARE = 0.1
_OFF_S = 3.3e-4  # by which single switches are off, less what all have in common: seen under the recorded square wave
# Switches either side of each, by which a regular load says where it is: as many as it stays regular over.
_NEIGHBOURS = (4, 16, 64)
_WANDERS = 1.2  # times more off than by fewer: over so many it is not regular
# To one, beforehand, that stamps are of this run and of a load that uses power. Of 150 drawn loads with right stamps,
# half of them in step or hardly seen, the readings spoke against the stamps by 2.9 to one at most.
_FOLLOWED_ODDS = 3.0
# Of a load, at the least, in readings that hardly show it: boards idle at a tenth of their limit.
_LEAST_SHOWN = 0.1
_MIN_STEPS = 3  # between readings, from which they tell how much the power varies


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
    behind_s: Floats  # shape (2,); by how much shares of the rise follow late
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
        tau_u = response.tau_u if math.isfinite(response.tau_u) else 0.0  # a kernel without a one-pole
        wide = 2.0 * math.hypot(tau_u, response.lag_u) / max(response.span_s, 1e-9)
        highest = float(np.max(np.abs(power)))
        normal = np.array([math.sqrt(2.0 / math.pi), math.sqrt(1.0 - 2.0 / math.pi)])  # its size: mean and sd
        early, early_sd = _STAMP_S * normal
        paused = float(np.median(np.append(load.on_s[1:] - load.off_s[:-1], math.inf))) > _PAUSE_S
        behind_s, share = (_RAMP_S, _RAMP_SHARE) if paused else (_BEHIND_S, _LATE_SHARE)
        slow = np.full(len(behind_s), share)
        late = math.hypot(_STAMP_S, response.lag_u)
        # What readings show of a load is no more than they are; of its size nothing else is known.
        most = highest / max(float(np.max(response.shown(load, t_s))), _LEAST_SHOWN)
        mean = np.append([most / 2.0, early], np.zeros(5 + len(slow)))
        sd = np.maximum([most / math.sqrt(12.0), early_sd, late, wide, highest, 0.0, 0.0, *slow], _NOTHING)
        even, left_s, scatter_s = _evened(load)
        # Of a load whose switches are as they come, a stamp is all that is known of each: what it is off by is no part
        # of what it differs by from its neighbours, and draws nothing (Berkson, JASA 45, 1950).
        most_s = _OFF_S**2 / np.fmax(scatter_s, _OFF_S)
        scatter2 = np.tile(np.fmin(most_s, scatter_s) ** 2, len(load.on_s))
        half = replace(load, on_s=(load.on_s + even.on_s) / 2.0, off_s=(load.off_s + even.off_s) / 2.0)
        off2 = np.tile(np.stack([np.full(2, _OFF_S), np.fmin(most_s, left_s)]) ** 2, len(load.on_s))
        inside = np.diff(load.on_s[(load.on_s > t_s[0]) & (load.on_s < t_s[-1])])
        telling = len(inside) >= _MIN_TELLING - 1 and float(np.median(inside)) > _TELLING_S
        other = _unknown(load, response, t_s)
        return cls(half, (load, even), response, t_s, region, mean, sd, behind_s, other, off2, scatter2, telling)

    def evened(self) -> StampedLoad:
        """Return the same if what regular stamps scatter by is theirs alone, and tells nothing of the rise."""
        even = self.ends[1]
        return replace(self, load=even, ends=(even, even), off2=np.stack([self.off2[0], self.scatter2]))

    def start(self, early_s: float, late_s: float) -> tuple[Floats, Floats]:
        """Return unknowns to begin with, and their mean squares about what was expected."""
        at = self.mean.copy()
        at[1:3] = at[1] + early_s, late_s
        return at, self.sd**2 + (at - self.mean) ** 2

    @property
    def late_starts_s(self) -> tuple[list[float], list[float]]:
        """By how much readings may be late, and stamps that tell, so that it is no straight line of less."""
        usual = float(self.sd[2])
        starts = [by * usual for by in _LATE_STARTS if usual > _NOT_STRAIGHT_S]
        return starts, [*_LATE_STARTS_S] * self.telling

    def late(self, found: Posterior) -> bool:
        """Whether the readings contradict that the stamps are no later than usual."""
        off = np.abs(found.unknowns[1:3] - self.mean[1:3])
        return self.telling and bool(np.any(off > STRAY * self.sd[1:3]))

    def _usual(self, square: Floats) -> Floats:
        """Return standard deviations beforehand, of stamps as usual as ``square`` says: mean squares off expected."""
        sd: Floats = self.sd.copy()
        if self.telling:
            seen2 = np.fmax(square[1:3], sd[1:3] ** 2)
            sd[1:3] = np.sqrt((ROBUST_TAIL * sd[1:3] ** 2 + seen2) / (ROBUST_TAIL + 1.0))
        return sd

    def _stamps_share(self, sd: Floats) -> float:
        """Return by what share of a delay the stamps are late: by what is more than readings usually are."""
        return max(0.0, 1.0 - float(self.sd[2] / sd[2]) ** 2)

    def about(self, at: Floats, square: Floats, *, ideal: bool = False) -> Terms:
        """Return readings and energy as straight lines in the unknowns about ``at``.

        ``square``, shape (k,): mean squares about what was expected, by which it shows whether the stamps are as usual.
        An ``ideal`` load is switched at its stamps, in no time, to one power.
        """
        rise2 = float(square[0] - (at[0] - self.mean[0]) ** 2 + at[0] ** 2)
        sd = self._usual(square)
        early_by, late_by, wide_by = (float(by) for by in _DERIVATIVE_STEPS)
        rise, early, late, wide, other, own, by_turn = (float(a) for a in at[:7])
        stamps = self._stamps_share(sd)
        kernels = functools.cache(self._wider)  # three, which are asked for over and over

        def seen(load: LoadIntervals, wider: float = 0.0, later: float = 0.0, behind: float = 0.0) -> Floats:
            region = (bound - stamps * (late + later) - behind for bound in self.region)
            return np.append(self._shown(load, wide + wider, late + later + behind, kernels), load.share(*region))

        sooner, ended, later = (self.load.ending(early + by) for by in (-early_by, 0.0, early_by))
        stamped, even = (seen(load.ending(early)) for load in self.ends)
        first, second = (seen(replace(ended, on_s=ended.on_s[i::2], off_s=ended.off_s[i::2])) for i in (0, 1))
        followed = seen(ended)
        behind = np.array([seen(ended, behind=by) for by in self.behind_s]) - followed
        shape = followed + at[7:] @ behind
        moved = [
            (seen(later) - seen(sooner)) / (2.0 * early_by),
            (seen(ended, later=late_by) - seen(ended, later=-late_by)) / (2.0 * late_by),
            (seen(ended, wider=wide_by) - seen(ended, wider=-wide_by)) / (2.0 * wide_by),
        ]
        elsewhere = np.append(self.other, 0.0)
        rows = [shape, *(rise * m for m in moved), elsewhere, stamped - even, first - second, *(rise * behind)]
        shown = rise * shape + other * elsewhere + own * (stamped - even) + by_turn * (first - second)
        felt = np.concatenate([[1.0], np.zeros(6), np.full(len(behind), -rise)])
        times = np.array([1, 2, 3, *range(7, 7 + len(behind))])
        rising = Rising(ended.edges, self.off2 * (not ideal), rise2, felt, times)
        sd[5] = math.sqrt(rise2) / 2.0  # all of the scatter is the load's own, or nothing: half the rise either way
        sd[6] = _IN_TURN_SHARE * math.sqrt(rise2)
        if ideal:
            sd[5:] = _NOTHING
        return Terms(at, self.mean, sd, shown, np.column_stack(rows), rising)

    def _wider(self, by: float) -> Response:
        """Return a kernel that is wider, without its delay."""
        window, tau = (max(0.0, width * (1.0 + by)) for width in (self.response.window_s, self.response.tau_s))
        return replace(self.response, window_s=window, tau_s=tau, delay_s=0.0)

    def _shown(self, load: LoadIntervals, wide: float, late_s: float, kernels: Callable[[float], Response]) -> Floats:
        """Show a load to readings that are later, by a kernel that is wider about the same middle."""
        window, tau = self.response.window_s, self.response.tau_s
        delay = self.response.delay_s - wide * (window / 2.0 + tau) + late_s
        return kernels(wide).shown(load, self.t_s - delay)

    def odd(self, found: Posterior) -> bool:
        """Whether the readings follow the stamps only with delays that neither stamps nor readings have as a rule."""
        delays = np.r_[1:3, 7 : len(self.mean)]
        return bool(np.any(np.abs(found.unknowns - self.mean)[delays] > STRAY * self.sd[delays]))

    def delayed_j(self, found: Posterior) -> float:
        """Return what it is worth in joules that readings may be what is late, instead of stamps or power.

        A standard deviation: of all that it differs by, where the delays are odd; else by how surely stamps are late.
        """
        late, (start, end) = float(found.unknowns[2] + found.unknowns[7:] @ self.behind_s), self.region
        more_s = self.load.share(start, end) - self.load.share(start - late, end - late)
        square = np.asarray((found.unknowns - self.mean) ** 2 + np.diag(found.spread), np.float64)
        doubt = 1.0 if self.late(found) or self.odd(found) else math.sqrt(self._stamps_share(self._usual(square)))
        return doubt * abs(float(found.unknowns[0]) * more_s)

    def unseen_w2(self, found: Posterior) -> float:
        """Return how much power that the stamps do not explain varies between readings that look away: mean square.

        It is as large where nobody looks. One that lasts is misplaced there, one that is new in each reading is another
        (docs/uncertainty.md, "Sampling").
        """
        noise2 = self.response.noise_in_s**2
        step = np.diff(found.rest)[np.fmax(self.other[:-1], self.other[1:]) == 0.0]
        if len(step) < _MIN_STEPS:
            return 0.0
        steps2 = max(float(np.mean(step**2)) - 2.0 * noise2, 0.0)
        alternating2 = max(-float(np.mean(step[1:] * step[:-1])) - noise2, 0.0)
        return (1.0 - self.response.coverage) * (steps2 + 10.0 * alternating2) / 12.0

    def followed(self, *found: Posterior) -> float:
        """Return how surely the power rises with the stamps, by the one of several findings that speaks most for it.

        Against no rise, by the density of that before the readings and behind them (Dickey, Ann. Math. Statist. 42
        (1971), 204). Readings that show nothing of a load, since it keeps step with them, say nothing against its
        stamps either; a power that steps where it likes explains a few blocks as well as their stamps do.
        """
        begun = (self.load.on_s > self.t_s[0]) & (self.load.on_s < self.t_s[-1])
        if np.count_nonzero(begun) < _MIN_TELLING:
            return 1.0
        before, sd = float(self.mean[0]), float(self.sd[0])
        rise = np.array([max(float(each.unknowns[0]), 0.0) for each in found])
        spread = np.sqrt([float(each.spread[0, 0]) for each in found])
        odds = float(np.max((rise / spread) ** 2 / 2.0 - np.log(sd / spread))) - (before / sd) ** 2 / 2.0
        return 1.0 / (1.0 + math.exp(-min(max(odds, -500.0), 500.0)) / _FOLLOWED_ODDS)


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
            found, least = at + np.where(np.abs(off) < STANDS_OUT * _OFF_S, off, 0.0), scatter
            left = scatter / math.sqrt(count)
        return found, left, least

    (on, on_left, on_s), (off, off_left, off_s) = even(load.on_s), even(load.off_s)
    edges = np.maximum.accumulate(np.stack([on, off], axis=1).ravel())
    return replace(load, on_s=edges[::2], off_s=edges[1::2]), np.array([on_left, off_left]), np.array([on_s, off_s])


def _unknown(load: LoadIntervals, response: Response, t_s: Floats) -> Floats:
    """Show readings a power of one watt where the load is not known."""
    stretches = load.unknown(float(t_s[0]) - response.delay_s - FORGOTTEN * response.span_s, float(t_s[-1]))
    return response.shown(LoadIntervals(stretches[:, 0], stretches[:, 1]), t_s)
