"""When each frame was measured, and how many are missing: from the board's stamps and from when frames arrived.

One model (docs/backends/powersensor3.md draws it). Frames stand on an even lattice and are numbered
(:mod:`~pmtpy.backends.powersensor3._counting`); number against arrival gives points, all above a straight line
(:mod:`~pmtpy.backends.powersensor3._envelope`), because no frame arrives before it was made. Rows lie on that line. The
rest follows:

1. A point below the line proves that the line is wrong: it steps down at once.
2. Missing frames lift all later points for good; a delay lifts them for a while. So as soon as one point is back at
   the line, nothing was missing but what the stamps say. Only where the smallest and the largest delay have risen by
   the same amount, and a number of frames that the stamps do not contradict explains it, frames are missing.
3. Until that is known, rows behind a gap wait for the next arrivals (0.3 s at most). What is not settled by then, or
   left no gap in the stamps, is doubt: rows may be early by as much as the points lie above the line, and as much
   time may be missing between them. :meth:`BoardClock.missing_ns` says so for every stretch, and so does its error.

Pure: arrays and integers in and out; no port, no thread, no clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.backends.powersensor3._codec import Levels
from pmtpy.backends.powersensor3._counting import ALIKE_US, FrameCounter, Gap
from pmtpy.backends.powersensor3._delays import ENOUGH_POINTS, MIN_POINTS, STEADY_NS, Delays, Doubts
from pmtpy.backends.powersensor3._envelope import Envelope, Point
from pmtpy.core.rows import Ints
from pmtpy.errors import SourceLostError

# The fastest arrival is late by an unknown time: USB, the driver, the reader's wake-up. Taken to lie between 0 and
# twice this, so rows are put this much below the line of the fastest arrivals.
GUARD_NS = 75_000
_WINDOW_NS = 500_000_000
_LEAST_POINTS = 5  # in a window
# An error of the line is taken out at this rate, so that it falsifies no energy by more, besides the drift.
MAX_SLEW = 50e-6
_SLEW_NS = 1_000_000_000
_LOSS_TOLD_AFTER_NS = 60_000_000  # to tell a loss behind a gap from a delay
_MAX_WAIT_NS = 300_000_000
_STEADY_WINDOWS = 6  # to tell a loss that left no gap in the stamps
_EXCLUDES = 0.7  # of the smallest loss that stamps do not show: points lower than this exclude it
_KEPT_NS = 600_000_000_000
_DRIFT_U = 50e-6  # of a crystal, before it has been measured
_BOUND = math.sqrt(3.0)  # half-width of a rectangular distribution over its standard deviation
# Arrivals that stay late are late, or frames are missing and rows are early by all of it: root mean square of the two,
# with even odds.
ALL_OR_NOTHING = math.sqrt(0.5)
_UNPACED, _UNPACED_NS = 2.0, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Placed:
    """What is known of frames by now."""

    dropped: int  # frames to be thrown away, the oldest of those not yet returned: they were counted as lost before
    # shape (n,); middle of what the next n frames measured; strictly increasing within and across calls. The rest
    # waits.
    t_ns: Ints
    lost: Ints | None  # shape (n,),; frames missing directly before each one; None when none are


class BoardClock:
    """Places frames on the host's clock. Used by one thread at a time.

    Parameters
    ----------
    nominal_us : float
        Expected sampling interval, used until enough frames have been seen to measure it.
    stamp_lag : float
        How many intervals after the middle of what it measured a frame is stamped: 0.5 where the stamp is taken at
        the end of the averaging.
    floor_ns : int
        No row is as early: that of the newest row of a clock before this one.

    Attributes
    ----------
    returned : int
        Frames that were counted as lost by their delay and turned up after all; they were dropped.
    """

    def __init__(self, nominal_us: float, stamp_lag: float, floor_ns: int = -(1 << 62)) -> None:
        self.returned = 0
        self._counter = FrameCounter(nominal_us)
        self._envelope = Envelope()
        self._lag = stamp_lag
        self._numbers: Ints = np.empty(0, np.int64)  # of the frames that wait
        self._uncounted: Levels = np.empty(0, np.uint16)
        self._gaps: list[Gap] = []
        self._arrivals: list[tuple[int, int]] = []
        self._started, self._paced = False, True
        self._frames = 0  # placed
        self._number, self._ns, self._slope = 0, 0, 0.0  # a frame, its place, and ns to the next
        self._began: Point = (0, 0)
        self._arrived_ns = 0
        self._aside_ns = 0.0  # by which the line is still to be moved
        self._least = 0  # fewest frames whose absence stamps do not show
        self._last = (-1, floor_ns)  # number and time of the newest row returned
        self._delays = Delays()
        self._window: list[tuple[float, Point]] = []
        self._lows: deque[float] = deque(maxlen=2 * _STEADY_WINDOWS)  # of the latest windows
        self._judged: list[tuple[int, int, int]] = []  # number, frames and instant of losses told by delays
        self._doubts = Doubts()

    @property
    def interval_us(self) -> float:
        """Sampling interval, microseconds of the board."""
        return self._counter.interval_us

    @property
    def rate(self) -> float:
        """How much faster than nominal the host's clock runs per microsecond of the board, relative."""
        return self._slope / self._tick_ns - 1.0 if self._started else 0.0

    @property
    def waiting(self) -> int:
        """Frames that wait for later arrivals."""
        return len(self._numbers) + len(self._uncounted)

    @property
    def _tick_ns(self) -> float:
        return 1000.0 * self._counter.interval_us

    def error_ns(self, begin_ns: int, end_ns: int) -> float:
        """Return the standard uncertainty of the times of rows between two instants, common to all of them."""
        drifted = _DRIFT_U * (end_ns - self._began[1]) if self._envelope.young else 0.0
        doubt = self.missing_ns(begin_ns, end_ns)
        loose = self._envelope.loose_ns
        return math.hypot(
            GUARD_NS / _BOUND, doubt * ALL_OR_NOTHING, self._aside_ns, drifted, self._delays.fastest_ns, loose
        )

    def missing_ns(self, begin_ns: int, end_ns: int) -> float:
        """Return how much time frames may have taken, between two instants, that were not counted as missing."""
        return self._doubts.worst_ns(begin_ns, end_ns)

    def feed(self, stamps: Levels, arrivals: Sequence[tuple[int, int]], *, last: bool = False) -> Placed:
        """Place frames on the host's clock.

        Raises SourceLostError: the stamps tell of more than twice the time that has passed, and the frames do not.

        Parameters
        ----------
        stamps : uint16, shape (n,)
            Of the frames that have come since the last call.
        arrivals : sequence of (rows, t_ns)
            The first ``rows`` frames had arrived by ``t_ns``; both ascending, the last ``rows`` is n.
        last : bool
            Nothing more will come: nothing waits.
        """
        held = self.waiting
        if len(self._uncounted):
            stamps = np.concatenate([self._uncounted, stamps])
        self._arrivals += [(held + rows, t_ns) for rows, t_ns in arrivals if rows]
        self._arrived_ns = self._arrivals[-1][1] if self._arrivals else self._arrived_ns
        counted = self._counter.count(stamps, last=last)
        base = len(self._numbers)
        self._uncounted = stamps[len(counted.numbers) :]
        numbers = np.concatenate([self._numbers, counted.numbers]) if base else counted.numbers
        self._gaps += [gap.moved(base) for gap in counted.gaps]
        ready = self._settle_gaps(numbers, last=last) if self._gaps else len(numbers)
        points = [(int(numbers[rows - 1]), t_ns) for rows, t_ns in self._arrivals if rows <= ready]
        self._numbers = numbers[ready:]
        self._gaps = [gap.moved(-ready) for gap in self._gaps]
        self._arrivals = [(rows - ready, t_ns) for rows, t_ns in self._arrivals if rows > ready]
        # Of a piece whose last frames wait, the others arrived with it.
        begun = [(int(numbers[ready - 1]), self._arrivals[0][1])] if ready and self._arrivals else []
        return self._place(numbers[:ready], points, begun)

    def _place(self, numbers: Ints, points: list[Point], begun: list[Point]) -> Placed:
        if not self._started:
            if not len(numbers):
                return Placed(0, numbers, None)
            self._start(points or begun, int(numbers[0]))
        self._frames += len(numbers)
        # An emulated board can be told to stream faster than its own clock: its arrivals say nothing then.
        might_ns = _UNPACED * (self._arrived_ns - self._began[1]) + _UNPACED_NS
        made_ns = (int(numbers[-1]) - self._began[0]) * self._slope if len(numbers) else 0.0
        if self._paced and made_ns >= might_ns:
            if self._frames * self._slope < might_ns:
                msg = f"the time stamps of the board run away from its frames (one each {self.interval_us:.4g} us)"
                raise SourceLostError(f"{msg}: its clock is not to be trusted; switch it off and on")
            self._paced = False
        if self._paced and points + begun:
            back = self._step_down(points + begun)
            numbers, points = numbers - back, [(n - back, t) for n, t in points]
        dropped = 0
        if len(numbers) and numbers[0] <= self._last[0]:
            dropped = int(np.searchsorted(numbers, self._last[0], side="right"))
        t_ns, lost = self._lay(numbers[dropped:])
        if self._paced:
            for point in points:
                self._observe(point)
        return Placed(dropped, t_ns, lost)

    def _lay(self, numbers: Ints) -> tuple[Ints, Ints | None]:
        """Lay frames on the line; return their times, and how many are missing before each."""
        if not len(numbers):
            return numbers, None
        before, floor_ns = self._last
        lag = round(self._lag * self._tick_ns)
        # Ascending numbers: after the first, a row is never earlier than the one before by the cutting to nanoseconds.
        t_ns = ((numbers - self._number) * self._slope).astype(np.int64)
        t_ns += self._ns - lag
        self._number, self._ns = int(numbers[-1]), int(t_ns[-1]) + lag
        if t_ns[0] <= floor_ns:
            # The line has stepped down: what lies where rows are already holds no time of its own.
            t_ns = np.maximum(t_ns, floor_ns + 1 + np.arange(len(t_ns)))
        self._last = (self._number, int(t_ns[-1]))
        missing = self._number - before - len(numbers)
        return t_ns, np.diff(numbers, prepend=before) - 1 if missing else None

    # -- the line --------------------------------------------------------------------------------------------------

    def _at(self, number: int) -> float:
        return self._ns + (number - self._number) * self._slope

    def _late(self, point: Point) -> float:
        """How far a point lies above the fastest arrivals, ns."""
        return point[1] - self._at(point[0]) - GUARD_NS

    def _start(self, points: list[Point], first: int) -> None:
        """Lay the first points on each other so that the fastest arrival had no delay."""
        self._started, self._slope = True, self._tick_ns
        self._least = self._counter.next_alike(0.0, 0)
        self._number = points[0][0]
        self._ns = round(min(t - (n - self._number) * self._slope for n, t in points)) - GUARD_NS
        self._last = (first - 1, self._last[1])
        self._began = points[0]

    def _step_down(self, points: list[Point]) -> int:
        """Put the line below all points; return by how many frames too high the numbers were."""
        early_ns = -min(t - self._at(n) for n, t in points)
        if early_ns <= 0:
            return 0
        back = self._take_back(early_ns)
        early_ns = -min(t - self._at(n - back) for n, t in points)
        if early_ns > 0:
            self._ns -= math.ceil(early_ns) + GUARD_NS
        return back

    def _take_back(self, early_ns: float) -> int:
        """Take back losses that were told by delays, as far as this point contradicts them; return the frames."""
        if not self._judged or self._excluded(early_ns):  # so little is the line's error, not that of a count
            return 0
        number, frames, told_ns = self._judged[-1]
        need = (early_ns + GUARD_NS) / self._tick_ns
        back = self._counter.unseen(0.0, need, 1.5 * self._least) or round(need)
        back = min(back, frames)
        self._judged[-1] = (number, frames - back, told_ns)
        if back == frames:
            self._judged.pop()
        self._counter.skip(-back)
        self._numbers = self._numbers - back
        self._envelope.shift(number, -back)
        self._window = [(late + back * self._tick_ns, (n - back, t)) for late, (n, t) in self._window]
        self.returned += back
        self._doubts.add(told_ns, self._last[1], back * self._tick_ns)
        return back

    def _observe(self, point: Point) -> None:
        """Take note of one arrival; steer the line at the end of each window."""
        late = self._late(point)
        self._delays.add(late)
        self._doubt(late, point[0])
        self._window.append((late, point))
        first_ns = self._window[0][1][1]
        if point[1] - first_ns < _WINDOW_NS or len(self._window) < _LEAST_POINTS:
            return
        low, fastest = min(self._window)
        self._window = []
        if self._excluded(low):  # else it is not known whether this is the line
            self._envelope.add(fastest)
            self._steer()
        self._lows.append(low)
        self._weigh(point[1])

    def _steer(self) -> None:
        """Turn the line towards the envelope."""
        target = self._envelope.at(self._number, self._tick_ns) - GUARD_NS
        self._aside_ns = target - self._ns
        slew = max(-MAX_SLEW, min(MAX_SLEW, self._aside_ns / _SLEW_NS))
        self._slope = self._tick_ns * (1.0 + self._envelope.drift + slew)

    # -- loss or delay ---------------------------------------------------------------------------------------------

    def _excluded(self, low_ns: float, frames: int = 0) -> bool:
        """Whether points this low leave no room for so many missing frames (0: the fewest that stamps do not show)."""
        return low_ns < self._excludes_ns(frames)

    def _excludes_ns(self, frames: int = 0) -> float:
        return _EXCLUDES * (frames or self._least) * self._tick_ns

    def _settle_gaps(self, numbers: Ints, *, last: bool) -> int:
        """Settle how many frames are missing in each gap, oldest first; return how many rows need not wait."""
        while self._gaps:
            row = self._gaps[0].row
            late = [
                (rows, t_ns, self._late((int(numbers[rows - 1]), t_ns)))
                for rows, t_ns in self._arrivals
                if row < rows <= len(numbers)
            ]
            more = self._judge(late, last=last)
            if more is None:
                return self._gaps[0].first
            if more:
                numbers[row:] += more
                self._counter.skip(more)
            if more < 0:  # of several gaps in one: the rows between them stay in order
                first = self._gaps[0].first
                numbers[first:row] = np.minimum(numbers[first:row], numbers[row] - np.arange(row - first, 0, -1))
            if more > 0:
                self._judged.append((int(numbers[row]), more, round(self._at(int(numbers[row])))))
                if row > self._gaps[0].first:  # or before the rows between the two
                    begin, end = (round(self._at(int(numbers[r]))) for r in (self._gaps[0].first, row - 1))
                    self._doubts.add(begin, end, more * self._tick_ns)
            if len(self._gaps) > 1 and len([rows for rows, *_ in late if rows < self._gaps[1].row]) < MIN_POINTS:
                gap, later = self._gaps[:2]
                rest = gap.rest_us + later.rest_us
                self._gaps[1] = (
                    Gap(gap.first, later.row, rest, gap.known + later.known, max(gap.alike_us, later.alike_us))
                    if not more
                    else later
                )
            self._gaps.pop(0)
        return len(numbers)

    def _judge(self, late: list[tuple[int, int, float]], *, last: bool) -> int | None:
        """Return how many frames more than the stamps say are missing in the oldest gap; None: not known yet.

        ``late`` are the pieces since the gap: rows up to their ends, arrival, delay.
        """
        gap = self._gaps[0]
        if not self._started or not self._paced:
            return 0
        step = self._counter.next_alike(gap.rest_us, gap.known, gap.alike_us) - gap.known
        low = min((ns for _, _, ns in late), default=0.0)
        if late and self._excluded(low, step):
            own = [ns for rows, _, ns in late if len(self._gaps) == 1 or rows < self._gaps[1].row]
            return self._too_many(gap, min(own, default=0.0))
        if len(self._gaps) > 1:  # what comes behind the next gap belongs to that one
            late = [piece for piece in late if piece[0] < self._gaps[1].row]
        elif not last and not self._telling(late):
            return None
        if len(late) < MIN_POINTS:
            return 0
        risen, vary = self._delays.risen([ns for _, _, ns in late], self._excludes_ns())
        risen = min(risen, low)
        if self._excluded(risen, step) or vary > max(STEADY_NS, risen / 2):
            return 0
        about = gap.known + risen / self._tick_ns
        missing = self._counter.unseen(gap.rest_us, about, max(STEADY_NS, vary) / self._tick_ns, gap.alike_us)
        return max(0, missing - gap.known) if missing is not None else 0

    def _too_many(self, gap: Gap, low_ns: float) -> int:
        """Return by how many frames fewer are missing in a gap than its stamps say, where arrivals came too early."""
        if low_ns > -(1.0 - _EXCLUDES) * self._least * self._tick_ns:
            return 0
        most = max(0.0, gap.known + low_ns / self._tick_ns)
        for alike_us in (gap.alike_us, ALIKE_US):  # else stamps are late from now on
            fewer = self._counter.unseen(gap.rest_us, 0.0, most, alike_us)
            if fewer is not None:
                return min(0, fewer - gap.known)
        return 0

    def _telling(self, late: Sequence[tuple[int, int, float]]) -> bool:
        """Whether enough has come since a gap to tell a loss from a delay, or will not come."""
        since = [t_ns for rows, t_ns in self._arrivals if rows > self._gaps[0].first]
        if not since:
            return False
        waited = since[-1] - since[0]
        return waited >= _MAX_WAIT_NS or (
            len(late) >= ENOUGH_POINTS and late[-1][1] - late[0][1] >= _LOSS_TOLD_AFTER_NS
        )

    def _doubt(self, late: float, number: int) -> None:
        """Keep account of the points since the last one at the line: if they stay above it, frames may be missing."""
        if self._excluded(late):
            self._doubts.none_since(round(self._at(number)))
        else:
            self._doubts.above(self._delays)

    def _weigh(self, now_ns: int) -> None:
        """Find a loss that left no gap in the stamps: all points have been above the line, by the same, for long."""
        self._doubts.forget(now_ns - _KEPT_NS)
        recent = list(self._lows)[-_STEADY_WINDOWS:]
        if len(recent) < _STEADY_WINDOWS or self._excluded(min(recent)):
            return
        vary = max(recent) - min(recent)
        if vary > max(STEADY_NS, min(recent) / 4):
            return
        missing = self._counter.unseen(
            0.0, min(recent) / self._tick_ns, max(STEADY_NS, vary) / self._tick_ns, 3 * ALIKE_US
        )
        if missing:
            self._counter.skip(missing)
            self._numbers = self._numbers + missing
            self._judged.append((self._number + 1, missing, self._ns))
            self._doubts.add(self._doubts.above_ns, self._ns, missing * self._tick_ns)
            self._lows.clear()
            self._delays.clear()
            self._doubt(0.0, self._number)
