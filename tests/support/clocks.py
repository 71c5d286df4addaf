"""Clocks for tests that take a sensor's rows themselves."""

from __future__ import annotations

import threading

from pmtpy.core.clock import ManualClock


class OneThreadClock(ManualClock):
    """A clock that moves for the thread that made it; to all others no time passes.

    A sensor's poller comes to no row on it: what a test polls by hand is then all that was read, however busy the
    machine is.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owner, self._begun_ns = threading.get_ident(), super().now_ns()

    def now_ns(self) -> int:
        """Return the present instant, nanoseconds; to other threads than the owner's that of the beginning."""
        return super().now_ns() if threading.get_ident() == self._owner else self._begun_ns

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        """Block until ``wake`` is set: the instant does not come."""
        del t_ns
        return wake.wait()
