"""Sensors that were opened by name for regions and decorators; each stays open until the process ends.

Opening a sensor can take longer than the region that it is to watch, so a region in a loop must not open it again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from pmtpy.core import arguments
from pmtpy.errors import TargetError
from pmtpy.sensor.registry import canonical, create
from pmtpy.sensor.sensor import Sensor, acquisition_of

_FORK_WAITS_S = 5.0  # for an opening that is under way; longer only where a device hangs


class Pool:
    """Open sensors by target. A sensor that is open is found without a lock; opening holds one, and so does a fork.

    A child that is made while another thread opens a sensor would inherit half an opening, the locks of Python's
    imports among it, and could never open one itself.
    """

    def __init__(self) -> None:
        self._opening = threading.Lock()
        self._sensors: dict[str, Sensor] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._hold, after_in_parent=self._go_on, after_in_child=self._begin_anew)
        self._held = threading.local()

    def get(self, target: str) -> Sensor:
        """Return the open sensor of this target, opening it if need be."""
        key = canonical(target)
        sensor = self._sensors.get(key)
        if sensor is not None and acquisition_of(sensor).intake.alive:
            return sensor
        with self._opening:
            sensor = self._sensors.get(key)
            if sensor is not None and not acquisition_of(sensor).intake.alive:
                sensor.close()
                sensor = None
            if sensor is None:
                sensor = self._sensors[key] = create(key)
            return sensor

    def close(self) -> None:
        """Close all of them; the next use opens them again."""
        with self._opening:
            sensors, self._sensors = self._sensors, {}
        for sensor in sensors.values():
            sensor.close()

    def _hold(self) -> None:
        self._held.by_fork = self._opening.acquire(timeout=_FORK_WAITS_S)

    def _go_on(self) -> None:
        if self._held.by_fork:
            self._opening.release()

    def _begin_anew(self) -> None:
        self._opening, self._sensors = threading.Lock(), {}


_pool = Pool()


def check_targets(targets: Sequence[object]) -> None:
    """Refuse, without opening anything, what is neither text nor a sensor."""
    for target in targets:
        if not isinstance(target, Sensor):
            arguments.instance(target, str, 'a target: text such as "rapl" or "nvml:0", or an open Sensor')


def watching(targets: Sequence[str | Sensor]) -> dict[str, Sensor]:
    """Return the sensors meant, by target, opening those that are only named.

    Raises TargetError: there is none, or two open sensors have one name.
    """
    if not targets:
        msg = (
            "a region needs at least one sensor behind its label: a target such as 'rapl', or an open Sensor: "
            "region('solve', 'rapl')"
        )
        raise TargetError(msg)
    given: dict[str, Sensor] = {}
    for target in targets:
        if not isinstance(target, Sensor):
            check_targets((target,))
        elif given.setdefault(target.target, target) is not target:
            msg = (
                f"two open sensors are called {target.target}: a region could not tell them apart; give it one of them"
            )
            raise TargetError(msg)
    if len(given) == len(targets):  # nothing is to be opened
        return given
    named = [t.target if isinstance(t, Sensor) else canonical(t) for t in targets]
    return {t: given[t] if t in given else _pool.get(t) for t in named}
