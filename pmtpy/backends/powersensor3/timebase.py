"""From the board's 10-bit microseconds to nanoseconds on the host's monotonic clock, and the count of lost frames.

Two steps. :class:`Unwrapper` turns times modulo 1024 us into a running count of microseconds. A gap of more than a
turn is ambiguous: the host's clock says about how long it was, and the fact that it is a whole number of sampling
intervals says exactly. :class:`ClockMap` lays the board's time on the host's along the lower envelope of arrival
minus board time, because delays are only ever positive. Its slope is never steeper or flatter than 100 ppm, so the
mapping falsifies no energy by more than 0.01 %.

Pure: arrays and integers in and out; no port, no thread, no clock.

The sampling interval is measured from the time stamps themselves (50, 57.1 and 29.3 us on the three kinds of board).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pmtpy.backends.powersensor3.codec import DEVICE_CLOCK_US, Levels
from pmtpy.core.rows import Ints

# Stamps are whole microseconds, rounded down, so an interval between two of them is off by less than 1 us.
STAMP_SLACK_US = 1.5
# The host's estimate of a gap is the arrival of a piece of the stream, which USB and the scheduler blur.
HOST_SLACK_US = 700.0
# Crystals of board and host differ by tens of ppm; 100 ppm is 0.01 % of energy.
MAX_SLEW = 100e-6
WINDOW_NS = 500_000_000
# A delay that never falls below this for a window is no delay: frames went missing without leaving a trace.
LOST_DELAY_NS = 20_000_000
FEWEST_FOR_A_WINDOW = 8
# The interval is measured over no fewer frames than this at a time, and with care for gaps until there are enough: the
# 1 us of a stamp is then 1e-5 of an interval.
FEWEST_FRAMES = 32
ENOUGH_FRAMES = 2000
_NONE = np.empty(0, np.int64)


def choose_wraps(delta_us: int, elapsed_us: float, interval_us: float, slack_us: float = STAMP_SLACK_US) -> int:
    """How many whole turns of the board's clock lie between two frames, beyond ``delta_us`` (0..1023).

    ``elapsed_us`` is the host's estimate of the time between them, NaN where there is none. Of the counts near it,
    one that makes the gap a whole number of intervals (within ``slack_us``) is taken. Otherwise the gap is
    taken to be as short as the intervals allow, and failing that as long as the host says.
    """
    near = 0 if math.isnan(elapsed_us) else max(0, round((elapsed_us - delta_us) / DEVICE_CLOCK_US))
    fitting = [
        k
        for k in sorted({0, 1, 2, max(0, near - 1), near, near + 1})
        if _misfit(delta_us + k * DEVICE_CLOCK_US, interval_us) <= slack_us
    ]
    close = [k for k in fitting if abs(delta_us + k * DEVICE_CLOCK_US - elapsed_us) <= HOST_SLACK_US]
    if close:
        return min(close, key=lambda k: abs(delta_us + k * DEVICE_CLOCK_US - elapsed_us))
    if fitting and fitting[0] <= 2:
        return fitting[0]
    return max(near, 0 if delta_us else 1)


def _misfit(gap_us: float, interval_us: float) -> float:
    """Distance of a gap from the nearest whole number of intervals, at least one."""
    return abs(gap_us - interval_us * max(1, round(gap_us / interval_us)))


class Unwrapper:
    """Running microseconds from 10-bit ones. Used by one thread at a time.

    Attributes
    ----------
    interval_us : float
        Sampling interval: the nominal one until enough frames have been seen, then as measured.
    now_us : int
        The newest unwrapped time.
    """

    def __init__(self, nominal_us: float) -> None:
        self.interval_us = nominal_us
        self.now_us = 0
        self._last: int | None = None
        self._run_us = 0
        self._run_frames = 0
        self._shortest: Ints | None = None

    @property
    def settled(self) -> bool:
        """Whether the interval is known well enough to tell a gap at a glance."""
        return self._run_frames >= ENOUGH_FRAMES

    def steps(self, device_us: Levels) -> tuple[Ints, Ints]:
        """Time from each frame's predecessor, as far as 10 bits tell it, and the rows where that is not one interval.

        The very first frame of all begins the count at its own time.
        """
        first = self._last is None
        stamps = np.empty(len(device_us) + 1, np.uint16)
        stamps[0] = self._last or 0
        stamps[1:] = device_us
        short = stamps[1:] - stamps[:-1]
        np.bitwise_and(short, DEVICE_CLOCK_US - 1, out=short)
        self._last = int(stamps[-1])
        steps: Ints = short.astype(np.int64)
        low, high = self.interval_us - STAMP_SLACK_US, self.interval_us + STAMP_SLACK_US
        if self._run_frames >= ENOUGH_FRAMES and short.min() >= low and short.max() <= high:
            return steps, _NONE
        self._learn(steps[1:] if first else steps)
        odd = np.flatnonzero(np.abs(steps - self.interval_us) > STAMP_SLACK_US)
        if first:
            odd = odd[odd > 0]
        if len(odd):
            if self._shortest is None:
                self._shortest = self._table()
            steps[odd] = self._shortest[steps[odd]]
        return steps, odd

    def advance(self, us: int, frames: int) -> None:
        """Take note of the newest time; a batch without a gap refines the interval."""
        if frames:
            self._run_us += us - self.now_us
            self._run_frames += frames
            self.interval_us = self._run_us / self._run_frames
        self.now_us = us

    def lengthen(self, step_us: int, excess_us: float) -> int:
        """A step of ``step_us``, reconsidered when the host says that ``excess_us`` more have passed."""
        delta = step_us % DEVICE_CLOCK_US
        elapsed = step_us + excess_us
        # The measured interval is uncertain by a microsecond over the whole run, which long gaps multiply.
        slack = STAMP_SLACK_US + elapsed / max(self._run_us, 1)
        return delta + DEVICE_CLOCK_US * choose_wraps(delta, elapsed, self.interval_us, slack)

    def _learn(self, steps: Ints) -> None:
        """Measure the interval over the first frames, those without a gap between them."""
        if self._run_frames >= ENOUGH_FRAMES or len(steps) < FEWEST_FRAMES:
            return
        middle = self.interval_us if self._run_frames else float(np.median(steps))
        even = steps[np.abs(steps - middle) <= STAMP_SLACK_US]
        self._run_us += int(even.sum())
        self._run_frames += len(even)
        if self._run_frames >= FEWEST_FRAMES:
            self.interval_us = self._run_us / self._run_frames
            self._shortest = None

    def _table(self) -> Ints:
        """The shortest gap that each difference of stamps can mean."""
        return np.array(
            [d + DEVICE_CLOCK_US * choose_wraps(d, math.nan, self.interval_us) for d in range(DEVICE_CLOCK_US)],
            np.int64,
        )


class ClockMap:
    """Board microseconds to host nanoseconds: straight pieces, joined, along the lower envelope of the delays.

    It stays ``guard_ns`` (one sampling interval) below the envelope, because later pieces may prove to be faster than
    all before, and no row may come from the future. That is less than the delay of USB, which nobody can see.

    A proportional and an integral part steer the slope; both have a time constant of seconds, the sum is limited to
    100 ppm. Used by one thread at a time.

    Attributes
    ----------
    started : bool
        Whether there has been a first pair.
    rate : float
        Relative deviation of the slope from 1000 ns per us at present.
    delay_ns : float
        Typical delay of the newest frame of a piece of the stream.
    """

    def __init__(self, guard_ns: int) -> None:
        self.rate = 0.0
        self._guard_ns = guard_ns
        self.delay_ns = 0.0
        self._drift = 0.0
        self._us = 0
        self._ns = 0
        self.started = False
        self._begin_ns = 0
        self._least_ns = 0
        self._seen = 0

    def start(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Lay the first pairs of (board us, arrival ns) on each other so that the fastest arrival had no delay."""
        self._us = pairs[0][0]
        self._ns = min(arrival - 1000 * (us - self._us) for us, arrival in pairs) - self._guard_ns
        self._begin_ns = pairs[-1][1]
        self.started = True

    def at(self, us: int) -> int:
        """Host time of one board time at or after the reference."""
        span = us - self._us
        return self._ns + int(span * (1000 * (1 + self.rate)))

    def map(self, us: Ints, earlier_ns: int) -> Ints:
        """Host times of ascending board times, less ``earlier_ns``; the last of them becomes the reference."""
        # Exact: a batch spans less than 2^53 / 1000 us, and the fraction is cut off after the reference is added.
        t_ns: Ints = ((us - self._us) * (1000 * (1 + self.rate))).astype(np.int64)
        newest = int(t_ns[-1]) + self._ns
        t_ns += self._ns - earlier_ns
        self._us, self._ns = int(us[-1]), newest
        return t_ns

    def observe(self, us: int, arrival_ns: int) -> int:
        """Take note of one arrival; return by how many ns the board's time must have jumped unseen, mostly 0."""
        late = arrival_ns - self.at(us)
        # A fifth of the way each time; beyond the slack it is an outlier or a gap, not a typical delay.
        self.delay_ns += 0.2 * (min(max(late, 0), HOST_SLACK_US * 1000) - self.delay_ns)
        self._least_ns = late if self._seen == 0 else min(self._least_ns, late)
        self._seen += 1
        if arrival_ns - self._begin_ns < WINDOW_NS or self._seen < FEWEST_FOR_A_WINDOW:
            return 0
        least, self._begin_ns, self._seen = self._least_ns, arrival_ns, 0
        if least > LOST_DELAY_NS:
            return least
        self._steer(least)
        return 0

    def _steer(self, error_ns: int) -> None:
        # Each window removes an eighth of the error; the integral part is as fast as it can be without overshoot
        # (characteristic s^2 + s/8 + 1/256: damping 1).
        proportional = (error_ns - self._guard_ns) / (8 * WINDOW_NS)
        self._drift = _clip(self._drift + proportional / 32)
        self.rate = _clip(self._drift + proportional)


def _clip(rate: float) -> float:
    return min(MAX_SLEW, max(-MAX_SLEW, rate))


class Timebase:
    """Times and losses of frames, from their stamps and from when they arrived. Used by one thread at a time.

    Parameters
    ----------
    nominal_us : float
        Expected sampling interval, used until enough frames have been seen to measure it.
    stamp_lag : float
        How many intervals after the middle of what it measured a frame is stamped: 0.5 where the stamp is taken at
        the end of the averaging.
    """

    def __init__(self, nominal_us: float, stamp_lag: float) -> None:
        self._unwrapper = Unwrapper(nominal_us)
        self._map = ClockMap(round(1000 * nominal_us))
        self._lag = stamp_lag
        self._hidden_ns = 0

    @property
    def interval_us(self) -> float:
        """Sampling interval, microseconds of the board."""
        return self._unwrapper.interval_us

    @property
    def rate(self) -> float:
        """How much faster than nominal the host's clock runs per microsecond of the board, relative."""
        return self._map.rate

    def feed(self, device_us: Levels, arrivals: Sequence[tuple[int, int]]) -> tuple[Ints, Ints | None]:
        """Place frames on the host's clock.

        Parameters
        ----------
        device_us : uint16, shape (n,)
            Stamps of the frames, n at least 1.
        arrivals : sequence of (rows, t_ns)
            The first ``rows`` frames had arrived by ``t_ns``; both ascending, the last ``rows`` is n.

        Returns
        -------
        t_ns : int64, shape (n,)
            Middle of what each frame measured; strictly increasing within and across calls.
        lost : int64, shape (n,), or None
            Frames missing directly before each one; None when none are.
        """
        before_us = self._unwrapper.now_us
        steps, odd = self._unwrapper.steps(device_us)
        jumped = self._hidden_ns > 0
        if jumped:
            steps[0] = self._unwrapper.lengthen(int(steps[0]), self._hidden_ns / 1000)
            self._hidden_ns = 0
        us = np.cumsum(steps)
        us += before_us
        if len(odd) and self._map.started and self._place_gaps(us, steps, odd, arrivals):
            us = before_us + np.cumsum(steps)
        pairs = [(int(us[rows - 1]), t_ns) for rows, t_ns in arrivals if rows]
        fresh = not self._map.started
        if fresh:
            self._map.start(pairs)
        for end_us, arrival_ns in pairs:
            self._hidden_ns = max(self._hidden_ns, self._map.observe(end_us, arrival_ns))
        whole = not len(odd) and not jumped and self._unwrapper.settled
        self._unwrapper.advance(int(us[-1]), len(us) if whole else 0)
        t_ns = self._map.map(us, round(self._lag * self.interval_us * 1000))
        if whole:
            return t_ns, None
        lost: Ints = np.rint(steps / self.interval_us).astype(np.int64) - 1
        np.maximum(lost, 0, out=lost)
        if fresh:
            lost[0] = 0
        return t_ns, lost if lost.any() else None

    def _place_gaps(self, us: Ints, steps: Ints, odd: Ints, arrivals: Sequence[tuple[int, int]]) -> bool:
        """Lengthen gaps where the host's clock shows that more time has passed than the stamps can say.

        The fastest of the pieces up to the next gap tells best. A piece of the stream has one gap of unknown length
        at most: its first. More than one in the few milliseconds of a piece cannot be told apart, and their sum is
        right.
        """
        gaps: list[tuple[int, float]] = []  # first odd row of a piece, least delay in ns up to the next such piece
        begin = 0
        for rows, arrival_ns in arrivals:
            inside = odd[(odd >= begin) & (odd < rows)]
            if len(inside):
                gaps.append((int(inside[0]), math.inf))
            if gaps and rows:
                row, least = gaps[-1]
                gaps[-1] = (row, min(least, arrival_ns - self._map.at(int(us[rows - 1])) - self._map.delay_ns))
            begin = rows
        added = 0
        for row, least in gaps:
            excess_us = least / 1000 - added
            if excess_us > HOST_SLACK_US:
                step = int(steps[row])
                steps[row] = self._unwrapper.lengthen(step, excess_us)
                added += int(steps[row]) - step
        return added > 0
