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
        possible = channel.max_watts * (seconds + 2 * (channel.refresh_s or 0.0)) + channel.scale
        if counts * channel.scale > possible + channel.max_watts * rest_s:
            return None
        if channel.wrap is not None and (counts + channel.wrap) * channel.scale <= possible:
            return None
    return counts * channel.scale


_RESTS = "its counter rests although the part is powered"
_UNREAD = "it could not be read"
_RESTARTED = "its counter restarted, or jumped by an impossible amount"


class Counter:
    """One cumulative register: its column, its last count, the power since it last moved, and what is not known of it.

    Attributes
    ----------
    old : float
        The last count that was read; NaN before the first.
    moved_ns : int
        The row that first showed it.
    odd : bool
        It rests longer than it should, was not read, or is slower than stated: :meth:`advance` must see every row.
    dead : bool
        It rests longer than a powered part can.
    quick_ns : float
        The longest rest that is not odd.
    pending_ns : int
        Time up to the newest row of which it is not known yet whether the counter has counted it.
    watts : float
        Mean power since it last moved; NaN where that is not known.
    doubt : str
        Why the newest time without known energy is not known.
    """

    __slots__ = (
        "_before_ns", "_pace_ns", "_seen_ns", "_unread", "channel", "column", "columns", "dead", "doubt", "hold_ns",
        "moved_ns", "odd", "old", "pending_ns", "quick_ns", "refresh_ns", "scale", "transform", "watts",
    )  # fmt: skip

    def __init__(self, channel: Channel, column: int, transform: Transform | None) -> None:
        self.channel, self.column, self.transform = channel, column, transform
        self.columns = frozenset({column})
        self.scale = channel.scale
        self.refresh_ns = int(1e9 * (channel.refresh_s or 0.0))
        self.hold_ns = 2 * self.refresh_ns or int(1e9 * _HOLD_S)
        self.quick_ns = math.inf
        if channel.least_watts > 0:
            refreshes_s = _DOUBTED_REFRESHES * channel.refresh_s if channel.refresh_s else _HOLD_S
            self.quick_ns = 1e9 * max(refreshes_s, channel.smallest_step / channel.least_watts)
        self.old = self.watts = math.nan
        self.doubt = ""
        self._begin(0)

    def _begin(self, t_ns: int) -> None:
        self.moved_ns, self._seen_ns, self.pending_ns = t_ns, t_ns, 0
        self._before_ns = self._pace_ns = 0  # the last two rests that were seen: the last but one, the longer of both
        self._unread = self.odd = self.dead = False

    def start(self, counts: Sequence[float], t_ns: int) -> None:
        """Count from these counts on."""
        self._begin(t_ns)
        self.old = counts[self.column]
        if math.isnan(self.old):
            self._miss(t_ns, t_ns)

    def advance(self, counts: Sequence[float], t_ns: int, dt_ns: int) -> tuple[float, int]:
        """Take the row at ``t_ns``, ``dt_ns`` after the one before.

        Returns
        -------
        (joules, unknown_ns)
            The energy counted since the count was read before, and the time up to now for which none is known for good.
        """
        new, old = counts[self.column], self.old
        seen_ns = self._seen_ns if self._unread else t_ns - dt_ns
        since_ns = t_ns - seen_ns
        if math.isnan(new):
            self._miss(seen_ns, t_ns)
            return 0.0, 0
        self.old, self._unread = new, False
        if math.isnan(old):  # the first time that it can be read
            self._begin(t_ns)
            return 0.0, since_ns
        rested_ns = seen_ns - self.moved_ns
        if new == old and since_ns <= self.hold_ns:
            joules: float | None = 0.0
        else:
            usual_ns = rested_ns if new > old else min(rested_ns, 2 * self._pace_ns)
            joules = increment(new, old, self.channel, since_ns * 1e-9, usual_ns * 1e-9)
        if joules is None:
            unknown_ns = max(since_ns, t_ns - self.moved_ns if self.pending_ns else 0)
            self._begin(t_ns)
            self.doubt = _RESTARTED
            return 0.0, unknown_ns
        if self.transform is not None:
            joules = float(self.transform(np.array([joules / (since_ns * 1e-9)]))[0]) * since_ns * 1e-9
        if new == old:
            self._rest(t_ns)
            return joules, 0
        return joules, self._move(joules, t_ns, seen_ns)

    def _miss(self, seen_ns: int, t_ns: int) -> None:
        """It could not be read: what it has counted meanwhile will be known when it can."""
        self._seen_ns, self._unread, self.odd, self.dead = seen_ns, True, True, False
        self.pending_ns, self.watts, self.doubt = t_ns - seen_ns, math.nan, _UNREAD

    def _rest(self, t_ns: int) -> None:
        """It shows the count of the row before."""
        rest_ns = t_ns - self.moved_ns
        self.pending_ns, self.dead = 0, False
        if rest_ns > max(self.quick_ns, _DOUBTED_RESTS * self._pace_ns):
            self.pending_ns, self.watts, self.odd, self.doubt = rest_ns, math.nan, True, _RESTS
            self.dead = True
        elif rest_ns > self.hold_ns:
            # At rest for long: the power is below one step in that time.
            bound = self.scale / (rest_ns * 1e-9)
            self.watts = bound if math.isnan(self.watts) else min(self.watts, bound)

    def _move(self, joules: float, t_ns: int, seen_ns: int) -> int:
        """It has moved since it was read at ``seen_ns``; return the time for which that leaves no energy known.

        A rest that was doubted has been counted after all if so much cannot have been used since the counter was last
        seen resting: it is slower than stated. Else it may have stood still, and what it shows is of the time since.
        """
        rested_ns, since_ns, channel = seen_ns - self.moved_ns, t_ns - seen_ns, self.channel
        doubted = rested_ns > max(self.quick_ns, _DOUBTED_RESTS * self._pace_ns)
        if doubted and channel.max_watts is not None:
            possible = channel.max_watts * (since_ns + 2 * self.refresh_ns) * 1e-9 + self.scale
            doubted = joules <= possible
        # What moved in one refresh was used in one refresh, however soon after the last row it was seen.
        span_ns = max(since_ns if doubted else t_ns - self.moved_ns, self.refresh_ns)
        self.watts, self.moved_ns, self.pending_ns, self.dead = joules / (span_ns * 1e-9), t_ns, 0, False
        self._pace_ns, self._before_ns = max(self._before_ns, rested_ns), rested_ns
        self.odd = self._pace_ns > self.quick_ns
        return rested_ns if doubted else 0


class Ratio:
    """A sum and a count of samples: the mean over the interval is their ratio."""

    __slots__ = ("channel", "columns", "counters", "doubt", "pending_ns", "transform", "watts")

    def __init__(self, channel: Channel, operands: tuple[Counter, Counter], transform: Transform | None) -> None:
        self.channel, self.counters, self.transform = channel, operands, transform
        self.columns = frozenset(c.column for c in operands)
        self.watts = math.nan
        self.pending_ns = 0
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
    return "it could not be read" if math.isnan(watts) else ""


def sure_ns(channel: Channel) -> float:
    """Return a time in which a counter cannot turn over unseen, by :func:`increment`; less a little."""
    if channel.max_watts is None or channel.wrap is None:
        return math.inf
    longest_s = (channel.wrap - 1) * channel.scale / channel.max_watts - 2 * (channel.refresh_s or 0.0)
    return longest_s * 1e9 * (1 - 1e-6)  # beyond any rounding
