"""When something happens: a level that is crossed, with hysteresis, or a marker. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.core.rows import Floats


@dataclass(frozen=True, slots=True)
class Condition:
    """What to wait for."""

    # level, hysteresis: watts. Rising: from below ``level - hysteresis`` to ``level`` or more; falling: the reverse.
    level: float = 0.0
    hysteresis: float = 1.0
    falling: bool = False
    marker: str = ""  # wait for a marker that contains this instead; empty: for the level


class Trigger:
    """Looks for a condition in rows as they come."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._ready = False  # whether the power has been on the far side of the hysteresis

    def find(self, t: Floats, watts: Floats, marks: Sequence[tuple[float, str]]) -> float | None:
        """Return the instant of the first event in new rows; None: there was none yet.

        Parameters
        ----------
        t, watts : float64, shape (n,)
            Rows that follow those of the call before.
        marks : sequence of (instant, label)
            Those of the new rows.
        """
        asked = self._condition
        if asked.marker:
            return next((at for at, text in marks if asked.marker in text), None)
        sign = -1.0 if asked.falling else 1.0
        above = sign * watts >= sign * asked.level
        below = sign * watts < sign * asked.level - abs(asked.hysteresis)
        far = np.flatnonzero(below)
        first_far = -1 if self._ready else (int(far[0]) if len(far) else len(t))
        hits = np.flatnonzero(above)
        hits = hits[hits > first_far]
        if len(hits):
            self._ready = bool((far > hits[0]).any())
            return float(t[hits[0]])
        self._ready = self._ready or bool(len(far))
        return None


def window(at: float, before_s: float, length_s: float) -> tuple[float, float]:
    """Return what to show of an event: from ``before_s`` before it, ``length_s`` long."""
    start = at - max(0.0, before_s)
    return start, start + max(length_s, math.ulp(start) * 16)
