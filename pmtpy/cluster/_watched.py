"""Sensors for those who ask again and again: what an exporter shows of each, as plain records.

Energies count from the first reading and never fall, whatever the sensor learns later of its past. What is not known is
None, never 0: the power of a sensor that is lost, or that nobody could read for a while. A lost sensor is opened again,
and its counters go on where they stood. No exporter's library is known here.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from pmtpy.analysis.uncertainty.components import COMPONENTS
from pmtpy.core.channel import TOTAL, Quantity
from pmtpy.core.clock import NS_PER_S
from pmtpy.core.closing import Closing
from pmtpy.core.rows import Point
from pmtpy.core.state import State
from pmtpy.errors import PmtError
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.registry import split_target
from pmtpy.sensor.sensor import Sensor, acquisition_of

_log = logging.getLogger("pmtpy")
_RETRY_NS = 10 * NS_PER_S  # between two attempts to open a lost device
_READ_TIMEOUT_S = 2.0  # with a reading of one sensor that does not return; less than a scrape may take
_JUDGED_NS = 5 * NS_PER_S  # at least between two judgements of one sensor, which cost more than readings
_FIRST_NS = NS_PER_S // 10  # before the first of them
# What was used while nothing was known is not in the energy that was counted, nor in the uncertainty of that.
_APART = frozenset({"uncovered"})


@dataclass(frozen=True, slots=True)
class ChannelNow:
    """What one channel, or the total, shows."""

    # ``total``, or the channel; the physical part it measures; how its energy comes about
    name: str
    domain: str
    method: str
    joules: float  # since the first reading; never falls
    watts: float | None  # now; None where it is not known
    uncertainty_joules: float | None  # standard uncertainty of ``joules``, by the last judgement
    # time since the first reading without known energy, whose energy is not in ``joules``; never falls
    uncovered_s: float
    refresh_s: float | None  # how often the register changes, where that is known
    in_total: bool  # whether the sensor's total has it


@dataclass(frozen=True, slots=True)
class SensorNow:
    """What one sensor shows."""

    # ``calibration`` is the digest of the profile that is applied; empty: none
    target: str
    backend: str
    device: str
    model: str
    serial: str
    calibration: str
    virtual: bool  # its energy is emulated
    why: str  # why it cannot be read; empty while it can
    lost: int  # rows lost since the first reading; never falls
    channels: tuple[ChannelNow, ...]  # the total first, where there is one
    # (name, Quantity, value): voltages, currents and what else the newest row holds
    values: tuple[tuple[str, Quantity, float], ...]


class Watched(Closing):
    """Sensors that are read together, by any thread. They stay the caller's; leaving ends the watching alone.

    A region is kept open over each sensor, so that its counters are read before they turn over and a counter that rests
    or leaps is found out. Now and then it is judged and begun anew: one sensor for each :meth:`read`, so that no read
    pays for all.
    """

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        self._accounts = [_Account(s) for s in sensors]

    def read(self) -> list[SensorNow]:
        """Read every sensor once.

        A device whose driver does not return holds up the one who asked for it first, and nobody else: others wait for
        it once, for two seconds, and are told so of it alone.
        """
        found = [account.read() for account in self._accounts]
        oldest = min(self._accounts, key=lambda a: a.judged_ns, default=None)
        if oldest is not None:
            oldest.judge()
        return found

    def close(self) -> None:
        """End the watching; the sensors stay open."""
        for account in self._accounts:
            account.close()


class _Account:
    """One sensor: what it has counted, and how uncertain that is."""

    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor
        self._lock = threading.Lock()  # held by whoever reads the device; a driver may never return
        self._hangs = False  # somebody waited for it in vain
        made = acquisition_of(sensor)
        self._clock, layout = made.clock, made.layout
        self._target = sensor.target
        self._backend, device = split_target(sensor.target)
        self._device = device or ""
        calibration = made.calibration
        self._calibration = (calibration.digest or "") if calibration is not None else ""
        self._names = [n for n in layout.names if n != TOTAL or layout.has_total]
        self._columns = [layout.names.index(n) for n in self._names]
        by_name = {c.name: (c, i in layout.in_total) for i, c in enumerate(layout.energy, 1)}
        self._facts = [by_name.get(n) for n in self._names]
        # Units of numbers that are no energy, in the order of a row's values.
        self._values = [(c.name, c.quantity) for c in layout.values]
        self._lost_before: int | None = None
        self._joules = [0.0] * len(self._names)
        self._uncovered = [0.0] * len(self._names)
        self._lost = 0
        self._lasting = [0.0] * len(self._names)
        self._squares = [0.0] * len(self._names)
        self._ends = [0.0] * len(self._names)
        self._judged_joules: list[float] | None = None  # in all that was judged
        self._asked_ns = self._clock.now_ns()
        self.judged_ns = self._clock.now_ns()
        self._region = self._begun()
        # Counted is from here on: a counter that nobody has read since it was opened is read as the region begins.
        self._base: State | Point | None = made.newest

    def _begun(self) -> Region:
        region = Region("watched", {self._target: self._sensor}, without_lost=True)
        region.__enter__()
        return region

    def close(self) -> None:
        if self._held():
            try:
                self._region.abandon()
            finally:
                self._lock.release()

    def _held(self) -> bool:
        """Take the lock; False where the device has not answered who holds it for too long."""
        held = self._lock.acquire(timeout=0.0 if self._hangs else _READ_TIMEOUT_S)
        self._hangs = not held
        return held

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self) -> SensorNow:
        if not self._held():
            return self._now("it does not answer", [None] * len(self._names), ())
        try:
            return self._read()
        finally:
            self._lock.release()

    def _read(self) -> SensorNow:
        why, state = "", None
        try:
            self._reopen()
            state = self._sensor.read()
        except PmtError as error:
            why = str(error)
        if acquisition_of(self._sensor).intake.failure is not None:
            self._miss()
        watts: list[float | None] = [None] * len(self._names)
        values: tuple[tuple[str, Quantity, float], ...] = ()
        if state is not None:
            self._count(state)
            made = acquisition_of(self._sensor)
            newest = made.newest
            if newest is not None and not made.is_stale(newest.t_ns):  # else it tells nothing of now
                watts = [self._power(state, k) for k in range(len(self._names))]
                seen = zip(self._values, newest.values, strict=False)
                values = tuple((n, q, float(v)) for (n, q), v in seen if math.isfinite(v))
        return self._now(why, watts, values)

    def _now(
        self, why: str, watts: Sequence[float | None], values: tuple[tuple[str, Quantity, float], ...]
    ) -> SensorNow:
        identity = self._sensor.identity
        channels = tuple(self._channel(k, w) for k, w in enumerate(watts))
        return SensorNow(
            self._target,
            self._backend,
            self._device,
            identity.model,
            identity.serial,
            self._calibration,
            identity.virtual,
            why,
            self._lost,
            channels,
            values,
        )

    def _reopen(self) -> None:
        """Open a lost device again, now and then; raises as long as that fails."""
        made = acquisition_of(self._sensor)
        if made.intake.failure is None or made.intake.unusable:
            return
        now_ns = self._clock.now_ns()
        if now_ns - self._asked_ns < _RETRY_NS:
            raise made.intake.failure
        self._asked_ns = now_ns
        self._sensor.reopen()
        _log.warning("%s is back", self._target)

    def _count(self, state: State) -> None:
        """Add what was used since the watching began; what the sensor takes back waits until it is used again.

        Only what was read counts: up to now, a power is extended by its last value, which may prove wrong.
        """
        read = acquisition_of(self._sensor).newest or state
        base = self._base = self._base or read
        for k, i in enumerate(self._columns):
            self._joules[k] = max(self._joules[k], read.joules[i] - base.joules[i])
            known = bool(read.uncovered_ns and base.uncovered_ns)
            gap = (read.uncovered_ns[i] - base.uncovered_ns[i]) / NS_PER_S if known else 0.0
            self._uncovered[k] = max(self._uncovered[k], gap)
        self._lost_before = state.lost if self._lost_before is None else self._lost_before
        self._lost = max(self._lost, state.lost - self._lost_before)

    def _miss(self) -> None:
        """Count the time since the last reading of a lost sensor as not known: it stays so, also when it is back."""
        newest, base = acquisition_of(self._sensor).newest, self._base
        if newest is None or base is None or not base.uncovered_ns:
            return
        since_ns = self._clock.now_ns() - newest.t_ns
        for k, i in enumerate(self._columns):
            gap = (newest.uncovered_ns[i] - base.uncovered_ns[i] + since_ns) / NS_PER_S
            self._uncovered[k] = max(self._uncovered[k], gap)

    def _power(self, state: State, k: int) -> float | None:
        watts = state.watts[self._columns[k]]
        return watts if math.isfinite(watts) else None

    def _channel(self, k: int, watts: float | None) -> ChannelNow:
        fact = self._facts[k]
        # What lasts (the gain) goes on with the energy until the next judgement.
        judged_joules = self._judged_joules[k] if self._judged_joules is not None else 0.0
        grown = max(1.0, self._joules[k] / judged_joules) if judged_joules > 0.0 else 1.0
        u = math.hypot(self._lasting[k] * grown, math.sqrt(self._squares[k] + self._ends[k]))
        judged = self._judged_joules is not None and math.isfinite(u)
        return ChannelNow(
            self._names[k],
            fact[0].domain if fact else "",
            fact[0].energy_method.value if fact else "sum",
            self._joules[k],
            watts,
            u if judged else None,
            self._uncovered[k],
            fact[0].refresh_s if fact else None,
            fact[1] if fact else False,
        )

    # -- judging -----------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Judge what was counted since the last judgement, if that is long ago and nobody reads meanwhile."""
        if self._lock.acquire(blocking=False):
            try:
                self._judge()
            finally:
                self._lock.release()

    def _judge(self) -> None:
        now_ns = self._clock.now_ns()
        if now_ns - self.judged_ns < (_FIRST_NS if self._judged_joules is None else _JUDGED_NS):
            return
        self.judged_ns = now_ns
        ended = self._region
        ended.__exit__(None, None, None)
        self._region = self._begun()
        measured = ended.outcomes()[self._target]
        if not isinstance(measured, Measurement):
            return  # it was lost: the time without known energy tells of it
        judged = self._judged_joules or [0.0] * len(self._names)
        for k, name in enumerate(self._names):
            one = measured if name == TOTAL else measured.channels[name]
            judged[k] += one.joules
            new = [(COMPONENTS[part], u) for part, u in one.components if part not in _APART]
            self._lasting[k] += math.fsum(u for of, u in new if of.lasting)
            self._squares[k] += math.fsum(u * u for of, u in new if not of.lasting and not of.at_ends)
            self._ends[k] = math.fsum(u * u for of, u in new if of.at_ends)
            if not math.isfinite(one.uncertainty_joules) and len(new) == len(one.components):
                self._squares[k] = math.nan  # nothing is known of it, and not for want of readings
        self._judged_joules = judged
