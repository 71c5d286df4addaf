"""How much of the time is spent on what a row has beside power and energy: clocks and temperatures.

They have calls of their own, for which some drivers take milliseconds that would be missing between readings of power.
"""

from __future__ import annotations

from pmtpy.core.clock import Clock

_SHARE = 0.1


class Share:
    """Says when calls beside the measurement are due, so that they take at most a tenth of the time. One owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = self._due_ns = clock.now_ns()

    def due(self) -> bool:
        """Whether they may be made now; if so, :meth:`made` is to be called behind them."""
        self._began_ns = self._clock.now_ns()
        return self._began_ns >= self._due_ns

    def made(self) -> None:
        """Tell that the calls since :meth:`due` have been made."""
        self._due_ns = self._began_ns + round((self._clock.now_ns() - self._began_ns) / _SHARE)
