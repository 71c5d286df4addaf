"""Holds an energy counter against the power beside it, integrated over the same rows, while both are being read.

For the backends whose vendors offer both and whose counters have been found stuck or wrong. It judges only where the
two cannot both be right; a counter that rests is the core's to doubt (``Channel.least_watts``).
"""

from __future__ import annotations

from collections import deque

from pmtpy.core.clock import NS_PER_S

# How far apart they may be. The bound is the one that Zeus uses for AMD's counter; every honest disagreement reported
# is nearer (down to 0.57 on an idle GPU).
_MOST_RATIO = 10.0
_KEPT = 16  # stretches of contradiction that are remembered
_GAP_S = 0.5  # rows further apart leave too much to guess between them


class CounterCheck:
    """Compares over spans of at least ``seconds`` in which the power says that at least ``joules`` were used.

    Attributes
    ----------
    contradictions : deque of [start_ns, end_ns or None, text]
        The newest stretches over which the counter contradicted the power; None: it still does.
    """

    def __init__(self, *, seconds: float, joules: float) -> None:
        self._seconds, self._joules = seconds, joules
        self._before: tuple[int, float] | None = None
        self._start: tuple[int, float] = (0, 0.0)
        self._lowest = 0.0
        self._expected = 0.0
        self.contradictions: deque[tuple[int, int | None, str]] = deque(maxlen=_KEPT)

    @property
    def broken(self) -> bool:
        """Whether the counter contradicts the power."""
        return bool(self.contradictions) and self.contradictions[-1][1] is None

    def warnings(self, name: str, begin_ns: int, end_ns: int) -> tuple[str, ...]:
        """Return what is to be said of a stretch of time of the counter called ``name``."""
        told = [text for start, end, text in self.contradictions if start < end_ns and (end is None or end > begin_ns)]
        return tuple(f"{name}: {text}; it is not believed until they agree" for text in told)

    def row(self, t_ns: int, counter_j: float, watts: float) -> None:
        """Take one row: instant, counter and power in SI."""
        before, self._before = self._before, (t_ns, watts)
        dt_s = (t_ns - before[0]) / NS_PER_S if before else _GAP_S
        if before is None or dt_s >= _GAP_S or counter_j < self._lowest:
            # Two momentary powers say nothing about a long gap; a counter that fell has restarted.
            self._begin(t_ns, counter_j)
            return
        self._lowest = counter_j
        self._expected += (before[1] + watts) / 2 * dt_s
        seconds = (t_ns - self._start[0]) / NS_PER_S
        if seconds < self._seconds or self._expected < self._joules:
            return
        counted, expected = counter_j - self._start[1], self._expected
        self._begin(t_ns, counter_j)
        moved = f"in {seconds:.0f} s the energy counter moved by {counted:g} J"
        self._judged(t_ns, seconds, expected / _MOST_RATIO <= counted <= expected * _MOST_RATIO, moved, expected)

    def _judged(self, t_ns: int, seconds: float, agree: bool, moved: str, expected: float) -> None:  # noqa: FBT001
        if agree and self.broken:
            start_ns, _, text = self.contradictions.pop()
            self.contradictions.append((start_ns, t_ns, text))
        elif not agree and not self.broken:
            text = f"{moved} while the power beside it says {expected:g} J"
            self.contradictions.append((t_ns - round(seconds * NS_PER_S), None, text))

    def _begin(self, t_ns: int, counter_j: float) -> None:
        self._start, self._lowest, self._expected = (t_ns, counter_j), counter_j, 0.0
