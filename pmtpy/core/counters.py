"""Cumulative registers: how counts become joules, through wraps, restarts and rests. The only place that unwraps.

What a counter does not say for certain is not guessed: a fall that cannot be a wrap, a jump that cannot be, and a time
in which it may have turned over unseen give no energy. Nor is a rest believed of a part that always uses some power
(``Channel.least_watts``): from the last move on nothing is known, until the counter moves again and shows that it was
only slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats

Transform = Callable[[Floats], Floats]

_HOLD_S = 1.0  # how long a counter of unknown refresh may rest before its power is bounded instead of held
# A counter of a powered part rests for as many refresh periods before the rest is doubted; for as many of its usual
# rests, where it has shown that it is slower than stated.
_DOUBTED_REFRESHES, _DOUBTED_RESTS = 16, 3
TOO_SOON_SHARE = 0.5  # of the longest refresh: a move that comes sooner than that leaves its power in doubt
_SURELY_SHORTER = 0.9  # of the stated refresh: registers are not renewed more evenly than to a tenth


def doubted_rest_s(channel: Channel) -> float:
    """Return how long a counter of a part that draws power may rest before nobody believes that it counts."""
    return _DOUBTED_REFRESHES * channel.refresh_s if channel.refresh_s else _HOLD_S


def increment(new: float, old: float, channel: Channel, seconds: float, rest_s: float = 0.0) -> float | None:
    """Joules by which a counter went from ``old`` to ``new`` counts in ``seconds``, or None where that is not known.

    A fall is a wrap if the channel wraps, otherwise a restart. Where ``max_watts`` says what is possible, an impossible
    energy is a restart (or a misread count), and an interval in which the counter may have turned over once more than
    it shows is not known. Registers move in steps, so up to two refresh periods more may show than have passed, and
    what was used since the last move, ``rest_s`` before the ``seconds``.
    """
    counts = new - old
    if counts < 0:
        if channel.wrap is None or counts + channel.wrap < 0:
            return None
        counts += channel.wrap
    if channel.max_watts is not None:
        possible = channel.max_watts * (seconds + 2 * (channel.refresh_s or 0.0)) + channel.smallest_step
        if counts * channel.scale > possible + channel.max_watts * rest_s:
            return None
        if channel.wrap is not None and (counts + channel.wrap) * channel.scale <= possible:
            return None
    return counts * channel.scale


_RESTS = "its counter rests although the part is powered (pmtpy doctor looks for a cure)"
UNREAD = "it could not be read"
"""Doubt of a value that is NaN, of which the source may know why."""
_RESTARTED = "its counter restarted, or jumped by an impossible amount"


class Counter:
    """One cumulative register: its column, its last count, the power since it last moved, and what is not known of it.

    Attributes
    ----------
    old : float
        The last count that was read; NaN before the first.
    moved_ns, earlier_ns : int
        The row that first showed it, and the one that first showed the count before it.
    odd : bool
        It rests longer than it should, or is slower than stated: :meth:`advance` must see every row.
    quick_ns : float
        The longest rest that is not odd.
    watts : float
        Mean power since it last moved; NaN where that is not known.
    doubt : str
        Why the newest time without known energy is not known.
    """

    __slots__ = (
        "_before_ns", "_begun", "_dead", "_likely_ns", "_most_ns", "_pace_ns", "_run", "channel", "column", "columns",
        "doubt", "earlier_ns", "hold_ns", "moved_ns", "odd", "old", "quick_ns", "refresh_ns", "scale", "step",
        "transform", "watts",
    )  # fmt: skip

    def __init__(self, channel: Channel, column: int, transform: Transform | None) -> None:
        self.channel, self.column, self.transform = channel, column, transform
        self.columns = frozenset({column})
        self.scale, self.step = channel.scale, channel.smallest_step
        self.refresh_ns = int(1e9 * (channel.refresh_s or 0.0))
        # The longest refresh that moves have not refuted, and the likely one.
        self._most_ns = self._likely_ns = self.refresh_ns
        # Moves that follow each other: the row before the first, how many, the last one, the row before that.
        self._run = 0, 0, -1, 0
        self.hold_ns = 2 * self.refresh_ns or int(1e9 * _HOLD_S)
        self.quick_ns = math.inf
        if channel.least_watts > 0:
            self.quick_ns = 1e9 * max(doubted_rest_s(channel), self.step / channel.least_watts)
        self.old = math.nan
        self.doubt = ""
        self._begin(0)

    def mean_watts(self) -> float:
        """Return the mean power from where it began to count to its last move; NaN where it has not moved."""
        began_ns, first = self._begun
        counts, passed_s = self.old - first, (self.moved_ns - began_ns) * 1e-9
        return max(0.0, counts * self.scale / passed_s) if passed_s > 0.0 else math.nan

    def power(self, joules: float, t_ns: int, dt_ns: int) -> float:
        """Return the mean power since the last move, of what moved at ``t_ns``, ``dt_ns`` after the row before.

        What moves in one refresh was used in one refresh, however soon after the last row it is seen. That is the
        stated one, unless moves prove it shorter: if ``n`` came within ``T`` it is at most ``T / (n - 1)``, and likely
        about ``T / n``, or less than the time between rows. In what part of the longest refresh that is not refuted a
        move was used that came much sooner nobody knows, so the power before it stands. Before the first move there is
        none: until the counter has moved twice, or rested for longer than a refresh, its power is not known.
        """
        rest_ns = t_ns - self.moved_ns
        if rest_ns <= self.refresh_ns:
            begin_ns, moves, last_ns, unmoved_ns = self._run
            if last_ns != self.moved_ns:
                begin_ns, moves = t_ns - dt_ns, 0
            elif t_ns - unmoved_ns < _SURELY_SHORTER * self._most_ns:  # the last two moves alone prove more than all
                begin_ns, moves = unmoved_ns, 1
            self._run = begin_ns, moves + 1, t_ns, t_ns - dt_ns
            if t_ns - begin_ns < _SURELY_SHORTER * self._most_ns * moves:
                self._most_ns, self._likely_ns = (t_ns - begin_ns) // moves, (t_ns - begin_ns) // (moves + 1)
            if self.moved_ns == self._begun[0] or rest_ns < TOO_SOON_SHARE * self._most_ns:
                return self.watts
            rest_ns = max(rest_ns, self._likely_ns)
        return joules / (rest_ns * 1e-9)

    def _begin(self, t_ns: int) -> None:
        self.moved_ns = self.earlier_ns = t_ns
        self._begun = t_ns, self.old
        self.watts = math.nan
        self._before_ns = self._pace_ns = 0  # the last two rests that were seen: the last but one, the longer of both
        self._dead = self.odd = False  # dead: it rests longer than a powered part can

    def start(self, counts: Sequence[float], t_ns: int) -> None:
        """Count from these counts on."""
        self.old = counts[self.column]
        self._begin(t_ns)

    def advance(self, counts: Sequence[float], t_ns: int, dt_ns: int) -> tuple[float, int]:
        """Take the row at ``t_ns``, ``dt_ns`` after the one before.

        Returns
        -------
        (joules, unknown_ns)
            The energy counted since the row before, and the time up to now for which none is known: ``dt_ns``, or more
            where a rest turns out to be too long, or a move to have been a part of a leap.
        """
        new, old = counts[self.column], self.old
        self.old = new
        if math.isnan(new):
            self.watts, self.doubt = math.nan, UNREAD
            return 0.0, dt_ns
        if math.isnan(old):
            self._begin(t_ns)
            return 0.0, dt_ns
        rested_ns = t_ns - dt_ns - self.moved_ns
        if new == old and dt_ns <= self.hold_ns:
            joules: float | None = 0.0
        else:
            usual_ns = rested_ns if new > old else min(rested_ns, 2 * self._pace_ns)
            joules = increment(new, old, self.channel, dt_ns * 1e-9, usual_ns * 1e-9)
        if joules is None:
            # One that was read while it caught up leaps behind that: of the time of its last move nothing is known.
            unknown_ns = t_ns - self.earlier_ns if new > old else dt_ns
            self._begin(t_ns)
            self.doubt = _RESTARTED
            return 0.0, unknown_ns
        if new == old:
            return 0.0, self._rest(t_ns, dt_ns)
        if self.transform is not None:
            joules = float(self.transform(np.array([joules / (dt_ns * 1e-9)]))[0]) * dt_ns * 1e-9
        dead, self._dead = self._dead, False
        power = self.power(joules, t_ns, dt_ns)
        self.watts = math.nan if dead else power
        self.earlier_ns, self.moved_ns = self.moved_ns, t_ns
        self._pace_ns, self._before_ns = max(self._before_ns, rested_ns), rested_ns
        self.odd = self._pace_ns > self.quick_ns
        return (0.0, dt_ns) if dead else (joules, 0)

    def _rest(self, t_ns: int, dt_ns: int) -> int:
        """It shows the count of the row before; return the time for which that leaves no energy known."""
        rest_ns = t_ns - self.moved_ns
        if self._dead:
            return dt_ns
        if rest_ns > max(self.quick_ns, _DOUBTED_RESTS * self._pace_ns):
            self.watts, self.doubt = math.nan, _RESTS
            self.odd = self._dead = True
            return rest_ns
        if rest_ns > (2 * self._pace_ns if self.odd else self.hold_ns):
            # At rest for long, also for one that is slower than stated: the power is below one step in that time.
            bound = self.step / (rest_ns * 1e-9)
            self.watts = bound if math.isnan(self.watts) else min(self.watts, bound)
        return 0


class Ratio:
    """A sum and a count of samples: the mean over the interval is their ratio."""

    __slots__ = ("channel", "columns", "counters", "doubt", "transform", "watts")

    def __init__(self, channel: Channel, operands: tuple[Counter, Counter], transform: Transform | None) -> None:
        self.channel, self.counters, self.transform = channel, operands, transform
        self.columns = frozenset(c.column for c in operands)
        self.watts = math.nan
        self.doubt = ""

    def start(self, counts: Sequence[float], t_ns: int) -> None:
        """Count from these counts on."""
        for counter in self.counters:
            counter.start(counts, t_ns)

    def advance(self, counts: Sequence[float], t_ns: int, dt_ns: int) -> tuple[float, int]:
        """Return the joules counted in the ``dt_ns`` up to ``t_ns``, and the time for which none are known."""
        (total, unknown_ns), (number, also_ns) = (c.advance(counts, t_ns, dt_ns) for c in self.counters)
        self.watts = math.nan
        if unknown_ns or also_ns or not number:
            self.doubt = next((c.doubt for c in self.counters if c.doubt), "no sample was counted")
            return 0.0, dt_ns
        watts = self.channel.scale * total / number
        if self.transform is not None:
            watts = float(self.transform(np.array([watts]))[0])
        self.doubt = impossible(self.channel, watts)
        if self.doubt:
            return 0.0, dt_ns
        self.watts = watts
        return watts * dt_ns * 1e-9, 0


def impossible(channel: Channel, watts: float) -> str:
    """Say why a power cannot be what the part uses; empty if it can."""
    if channel.least_watts > 0 and watts < channel.least_watts:
        return f"it shows {watts:.3g} W although the part is powered"
    if channel.max_watts is not None and watts > channel.max_watts:
        return f"it shows {watts:.3g} W, more than the part can use"
    return UNREAD if math.isnan(watts) else ""


def sure_ns(channel: Channel) -> float:
    """Return a time in which a counter cannot turn over unseen, by :func:`increment`; less a little."""
    if channel.max_watts is None or channel.wrap is None:
        return math.inf
    turn_j = channel.wrap * channel.scale - channel.smallest_step
    longest_s = turn_j / channel.max_watts - 2 * (channel.refresh_s or 0.0)
    return longest_s * 1e9 * (1 - 1e-6)  # beyond any rounding
