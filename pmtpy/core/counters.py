"""Cumulative registers: how counts become joules, through wraps, restarts and rests. The only place that unwraps.

What a counter does not say for certain is not guessed: a fall that cannot be a wrap, a jump that cannot be, and a time
in which it may have turned over unseen give no energy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats

Transform = Callable[[Floats], Floats]

_HOLD_S = 1.0  # how long a counter of unknown refresh may rest before its power is bounded instead of held


def increment(new: float, old: float, channel: Channel, seconds: float) -> float | None:
    """Joules by which a counter went from ``old`` to ``new`` counts in ``seconds``, or None where that is not known.

    A fall is a wrap if the channel wraps, otherwise a restart. Where ``max_watts`` says what is possible, an impossible
    energy is a restart (or a misread count), and an interval in which the counter may have turned over once more than
    it shows is not known. Registers move in steps, so up to two refresh periods more may show than have passed.
    """
    counts = new - old
    if counts < 0:
        if channel.wrap is None or counts + channel.wrap < 0:
            return None
        counts += channel.wrap
    if channel.max_watts is not None:
        possible = channel.max_watts * (seconds + 2 * (channel.refresh_s or 0.0)) + channel.scale
        if counts * channel.scale > possible:
            return None
        if channel.wrap is not None and (counts + channel.wrap) * channel.scale <= possible:
            return None
    return counts * channel.scale


class Counter:
    """One cumulative register: its column, its last count, and the power since it last moved."""

    __slots__ = ("channel", "column", "hold_ns", "moved_ns", "old", "refresh_ns", "scale", "transform", "watts")

    def __init__(self, channel: Channel, column: int, transform: Transform | None) -> None:
        self.channel, self.column, self.transform = channel, column, transform
        self.scale = channel.scale
        self.refresh_ns = int(1e9 * (channel.refresh_s or 0.0))
        self.hold_ns = 2 * self.refresh_ns or int(1e9 * _HOLD_S)
        self.old, self.watts, self.moved_ns = 0.0, math.nan, 0

    def start(self, counts: Sequence[float], t_ns: int) -> None:
        """Count from these counts on."""
        self.old, self.moved_ns = counts[self.column], t_ns

    def advance(self, counts: Sequence[float], t_ns: int, dt_ns: int) -> float | None:
        """Return the joules counted in the ``dt_ns`` up to ``t_ns``, or None where they are not known."""
        new = counts[self.column]
        old, self.old = self.old, new
        if new == old and dt_ns <= self.hold_ns:
            joules: float | None = 0.0
        else:
            joules = increment(new, old, self.channel, dt_ns * 1e-9)
        if joules is None:
            self.moved_ns = t_ns
            return None
        if self.transform is not None:
            joules = float(self.transform(np.array([joules / (dt_ns * 1e-9)]))[0]) * dt_ns * 1e-9
        rest_ns = t_ns - self.moved_ns
        if new != old:
            # What moved in one refresh was used in one refresh, however soon after the last row it was seen.
            self.watts, self.moved_ns = joules / (max(rest_ns, self.refresh_ns) * 1e-9), t_ns
        elif rest_ns > self.hold_ns:
            # At rest for long: the power is below one step in that time.
            bound = self.scale / (rest_ns * 1e-9)
            self.watts = bound if math.isnan(self.watts) else min(self.watts, bound)
        return joules


class Ratio:
    """A sum and a count of samples: the mean over the interval is their ratio."""

    __slots__ = ("channel", "counters", "transform", "watts")

    def __init__(self, channel: Channel, operands: tuple[Counter, Counter], transform: Transform | None) -> None:
        self.channel, self.counters, self.transform = channel, operands, transform
        self.watts = math.nan

    def start(self, counts: Sequence[float], t_ns: int) -> None:
        """Count from these counts on."""
        for counter in self.counters:
            counter.start(counts, t_ns)

    def advance(self, counts: Sequence[float], t_ns: int, dt_ns: int) -> float | None:
        """Return the joules counted in the ``dt_ns`` up to ``t_ns``, or None where they are not known."""
        total, number = (c.advance(counts, t_ns, dt_ns) for c in self.counters)
        if total is None or not number:
            self.watts = math.nan
            return None
        self.watts = self.channel.scale * total / number
        if self.transform is not None:
            self.watts = float(self.transform(np.array([self.watts]))[0])
        return self.watts * dt_ns * 1e-9


def sure_ns(channel: Channel) -> float:
    """Return a time in which a counter cannot turn over unseen, by :func:`increment`; less a little."""
    if channel.max_watts is None or channel.wrap is None:
        return math.inf
    longest_s = (channel.wrap - 1) * channel.scale / channel.max_watts - 2 * (channel.refresh_s or 0.0)
    return longest_s * 1e9 * (1 - 1e-6)  # beyond any rounding
