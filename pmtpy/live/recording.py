"""Dumps that are started and stopped while somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pmtpy.core.presentation import amount
from pmtpy.errors import PmtError
from pmtpy.sensor.sensor import Sensor, stop_dumps


class Recorder:
    """Starts and stops a dump of every sensor.

    Parameters
    ----------
    name : callable
        Returns new files for them, one each.
    """

    def __init__(self, sensors: Sequence[Sensor], name: Callable[[], Sequence[Path]]) -> None:
        self._sensors, self._name = sensors, name
        self._running: list[tuple[Sensor, Path]] = []

    @property
    def running(self) -> bool:
        """Whether a dump was started and not stopped."""
        return bool(self._running)

    def start(self) -> str:
        """Start the dumps; say where they go, and what kept one from starting."""
        problems = []
        for sensor, path in zip(self._sensors, self._name(), strict=True):
            try:
                sensor.start_dump(path)
            except PmtError as error:  # noqa: PERF203  (the others can be recorded)
                problems.append(str(error))
            else:
                self._running.append((sensor, path))
        files = ", ".join(str(path) for _, path in self._running)
        return "; ".join(filter(None, (f"recording into {files}" if files else "", *problems)))

    def stop(self) -> str:
        """End the dumps; say what was written, and what went wrong."""
        running, self._running = self._running, []
        said = []
        for (_, path), ended in zip(running, stop_dumps([sensor for sensor, _ in running]), strict=True):
            said.append(
                str(ended) if isinstance(ended, PmtError) else f"{path}: {amount(ended.rows, 'row')}, {ended.lost} lost"
            )
        return "; ".join(said)
