"""What both stand-ins need of a sensor: readings that move on, dumps that replace each other, release without close().

Neither original has a way to close a sensor: it is released with the object that holds it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import warnings
import weakref
from collections.abc import Sequence

from pmtpy.core import state as states
from pmtpy.core.state import State
from pmtpy.errors import PmtError, ReadError
from pmtpy.sensor.registry import VIRTUAL
from pmtpy.sensor.sensor import Sensor, acquisition_of

_log = logging.getLogger("pmtpy")
_PAUSE_NS = 200_000  # a PowerSensor3 delivers every few milliseconds at the latest
_STEP_NS = 2_000_000
_WARM_UP_NS = 1_000_000_000  # the slowest register known to us moves ten times in it
_LIMIT_NS = 5_000_000_000  # beyond it the source itself has called the device lost


def warm_up(sensor: Sensor) -> None:
    """Wait until the sensor's power is known, at most a second: a counter tells none until it has moved.

    PMT's first reading waits for its first interval in the same way. Without it, the energy of the first tenth of a
    second of a GPU's counter would be unknown, which raises.
    """
    clock = acquisition_of(sensor).clock
    limit_ns = clock.now_ns() + _WARM_UP_NS
    while acquisition_of(sensor).layout.in_total and math.isnan(sensor.read().watts[0]):
        now_ns = clock.now_ns()
        if now_ns > limit_ns:
            return
        clock.wait_until(now_ns + _STEP_NS, threading.Event())


def known_energy(start: State, end: State, channel: str | int | None = None) -> float:
    """Return the joules that are known between two states; a warning says what is not.

    The originals never raise here, and neither do programs written for them expect it.
    """
    known = states.known_energy(start, end, channel)
    if known.doubt:
        warnings.warn(f"{known.doubt}; the joules do not contain it", stacklevel=3)
    return known.joules


def known_power(start: State, end: State, channel: str | int | None = None) -> float:
    """Return the mean power of the time between two states that is covered, watts; NaN where nothing is."""
    if start.t_ns == end.t_ns:
        return states.watts(start, end, channel)
    known = states.known_energy(start, end, channel)
    if known.doubt:
        warnings.warn(known.doubt, stacklevel=3)
    return known.joules / known.covered_s if known.covered_s else math.nan


class Held:
    """A sensor that is closed when nobody holds this object any more.

    Parameters
    ----------
    sensor : Sensor
        Owned from now on.
    """

    def __init__(self, sensor: Sensor) -> None:
        self.sensor = sensor
        self._last_ns: int | None = None
        self._dumping = False
        self._release = weakref.finalize(self, _close, sensor)
        warm_up(sensor)

    def read(self) -> State:
        """Return a state later than every one returned before, waiting for the next row of a stream where need be.

        PMT does the same; PowerSensor3's library does not, and then gives 0 s, 0 J and NaN W between two readings of
        the same frame.
        """
        clock = acquisition_of(self.sensor).clock
        limit_ns = clock.now_ns() + _LIMIT_NS
        state = self.sensor.read()
        while self._last_ns is not None and state.t_ns <= self._last_ns:
            now_ns = clock.now_ns()
            if now_ns > limit_ns:
                msg = f"{self.sensor.target} has delivered nothing new for {_LIMIT_NS / 1e9:g} s"
                raise ReadError(msg)
            clock.wait_until(now_ns + _PAUSE_NS, threading.Event())
            state = self.sensor.read()
        self._last_ns = state.t_ns
        return state

    def start_dump(
        self,
        path: str | os.PathLike[str],
        form: str,
        *,
        interval: float | str | None = None,
        absolute: bool = True,
        columns: Sequence[tuple[str, Sequence[int]]] | None = None,
    ) -> None:
        """Begin a dump, ending the one before; a file that exists is replaced, as the originals do."""
        self.stop_dump()
        self.sensor.start_dump(path, format=form, interval=interval, absolute=absolute, overwrite=True, columns=columns)
        self._dumping = True

    def stop_dump(self) -> None:
        """End the dump, if there is one."""
        if self._dumping:
            self._dumping = False
            self.sensor.stop_dump()

    def close(self) -> None:
        """Release the sensor now."""
        self._release.detach()
        self.sensor.close()


def _close(sensor: Sensor) -> None:
    try:
        sensor.close()
    except PmtError as error:
        _log.error("%s", error)


def rehearsed(device: str | None) -> str | None:
    """Return the device to open: the virtual one wherever ``PMT_DEVICE`` asks for it, else ``device``."""
    named = os.environ.get("PMT_DEVICE", "")
    return named if named.startswith(VIRTUAL) else device
