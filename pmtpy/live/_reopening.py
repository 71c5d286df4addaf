"""A sensor that was lost is opened again by a thread of its own, which may wait for a driver as long as it likes."""

from __future__ import annotations

import logging
import threading

from pmtpy.core.clock import NS_PER_S
from pmtpy.errors import PmtError
from pmtpy.sensor.sensor import Sensor, acquisition_of

_log = logging.getLogger("pmtpy")
_TRIED_AGAIN_S = 2.0


class Reopening:
    """Opens one sensor again whenever it is lost. Used by one thread at a time.

    Attributes
    ----------
    thread : threading.Thread or None
        That tried last; None: none has.
    """

    def __init__(self, sensor: Sensor) -> None:
        self._sensor, self._tried_ns = sensor, 0
        self.thread: threading.Thread | None = None

    def look(self) -> bool:
        """Return whether the sensor is lost; where it is, see to it that it is tried every two seconds."""
        made = acquisition_of(self._sensor)
        if made.intake.failure is None:
            return False
        busy = self.thread is not None and self.thread.is_alive()
        now_ns = made.clock.now_ns()
        if not busy and now_ns - self._tried_ns >= _TRIED_AGAIN_S * NS_PER_S:
            self._tried_ns = now_ns
            self.thread = threading.Thread(target=self._attempt, name="pmtpy-reopen", daemon=True)
            self.thread.start()
        return True

    def _attempt(self) -> None:
        try:
            self._sensor.reopen()
        except PmtError as error:
            _log.debug("%s is not back: %s", self._sensor.target, error)
