"""The poller's part of a sensor: the source is read as often as somebody needs it, or not at all."""

from __future__ import annotations

import logging

from pmtpy.core.clock import Clock
from pmtpy.errors import PmtError
from pmtpy.sensor._demand import Demand
from pmtpy.sensor._intake import Intake
from pmtpy.sensor.poller import RepeatedTask, poller_for

# How long the newest power is taken to go on: pollers and readings bring rows within less, but for a busy machine.
_CARRY_S, _CARRY_SAMPLES = 0.3, 4.0
_log = logging.getLogger("pmtpy")


class Watch:
    """Has the poller read one source. May be called from any thread, without the intake's lock."""

    def __init__(self, intake: Intake, demand: Demand, clock: Clock, target: str) -> None:
        self._intake, self._demand, self._clock, self._target = intake, demand, clock, target
        self._dropped = False
        self._task = RepeatedTask(
            poller_for(clock, target, alone=intake.source.traits.blocking or intake.source.traits.streaming),
            self._polled,
        )

    @property
    def going(self) -> bool:
        """Whether the poller reads, or is about to."""
        return self._task.going

    def schedule(self) -> None:
        """Let the poller read as often as somebody needs it, or not at all."""
        intake, demand, traits = self._intake, self._demand, self._intake.source.traits
        period = demand.period_s(traits)
        intake.period_s = period or demand.interval_s
        polled_s = 0.0 if intake.source.traits.streaming else intake.period_s
        apart_s = max([polled_s, *[c.refresh_s or 0.0 for c in intake.layout.energy]])
        intake.curve.kept.carry_ns = round(max(_CARRY_S, _CARRY_SAMPLES * apart_s) * 1e9)
        self._task.every(period if intake.alive else None, dither=demand.irregular(traits, intake.period_s))

    def drop(self) -> None:
        """Release the device of a sensor that nobody holds any more: by the poller, or at once where none reads it.

        The garbage collector calls this in any thread, under any lock.
        """
        self._dropped = True
        if not self._task.going:
            self._intake.close_quietly()

    def _polled(self) -> None:
        """Take a step, by the poller; or end, where the sensor was dropped since: who reads is the one to close."""
        intake = self._intake
        if self._dropped:
            self._task.end()
            intake.close_quietly()
            return
        if not self._needed():
            return
        try:
            intake.lock.acquire()  # for as long as it takes: nobody waits for the poller
            try:
                if intake.alive:
                    intake.step()
                    return
            finally:
                intake.lock.release()
        except PmtError:
            _log.debug("the poller of %s ends", self._target, exc_info=True)
        except Exception as error:  # noqa: BLE001  (a fault of a driver must reach the user)
            intake.failure = PmtError(f"{self._target}: {error!r}")
            intake.failure.__cause__ = error
            _log.exception("%s failed", self._target)
        self._task.end()

    def _needed(self) -> bool:
        newest_ns = self._intake.curve.newest_ns
        age_s = None if newest_ns is None else (self._clock.now_ns() - newest_ns) * 1e-9
        due = self._demand.due(age_s, self._intake.period_s)
        if due is None:
            self._task.end()
        return bool(due)
