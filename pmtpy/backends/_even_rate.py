"""How many rows a stream without times owes: the usual number in a time, and what is missing of it. Pure.

Bytes that come late come after all; rows that a board never converted do not. So a reading with too few rows is judged
together with those until `MISSING_S` later.
"""

from __future__ import annotations

import statistics
from collections import deque

_MIN_SPAN_S = 0.005  # readings over less say little of the rate
_MIN_RATES, _KEPT = 5, 64  # readings before it is believed, and of how many it is the middle
MISSING_S = 0.02  # seconds without rows that bursts of arrivals do not explain
_MISSING_SHARE = 0.1  # of the rest


class EvenRate:
    """Follows the rate of one stream. Used by one thread at a time.

    Attributes
    ----------
    per_s : float
        Rows in a second; 0 while that is not known.
    """

    def __init__(self) -> None:
        self.per_s = 0.0
        self._rates: deque[float] = deque(maxlen=_KEPT)

    def missing_s(self, rows: int, seconds: float) -> float:
        """Return for how much of a time no rows came; 0 where they came as usual, or that is not known."""
        if not self.per_s:
            return 0.0
        usual_s = rows / self.per_s
        return seconds - usual_s if seconds - usual_s > MISSING_S + _MISSING_SHARE * usual_s else 0.0

    def learn(self, rows: int, seconds: float) -> None:
        """Take note of a time in which none was missing."""
        if rows and seconds >= _MIN_SPAN_S:
            self._rates.append(rows / seconds)
            if len(self._rates) >= _MIN_RATES:
                self.per_s = statistics.median(self._rates)
