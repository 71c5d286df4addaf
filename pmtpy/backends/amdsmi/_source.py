"""One opened AMD GPU: power as it is named, the energy accumulator, temperatures and clocks.

A register that is not read as a possible number is not known in that row; if neither energy nor power is, the row is
lost. The accumulator has been found stuck, running backwards and plainly wrong: a single step back is a fault of the
reading, one that lasts is a restart; time in which it rests while power is drawn, or contradicts it for long, has no
known energy, and the power goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pmtpy.backends._counter_check import CounterCheck
from pmtpy.backends._device_clock import DeviceClock
from pmtpy.backends._share import Share
from pmtpy.backends.amdsmi._channels import REFRESH_S, Registers
from pmtpy.backends.amdsmi._device import NO_PERMISSION, NOT_INITIALISED, Fault, Library, accumulator, watts
from pmtpy.backends.amdsmi._selection import Gpu, handles
from pmtpy.core.channel import Identity
from pmtpy.core.clock import Clock
from pmtpy.core.rows import Block
from pmtpy.core.source import PolledSource, Remarks, Timestamps, Traits
from pmtpy.errors import ReadError, SourceLostError

_JUDGE_S, _JUDGE_J = 5.0, 50.0
_BACK_READS = 3  # readings below the last one after which the accumulator is believed to have restarted
_PERMANENT = frozenset({NO_PERMISSION, 34, 51})  # no permission any more, driver unloaded
# Members of amdsmi_violation_status_t that say what acts now. The library takes a tenth of a second to answer.
_LIMITS = {
    "active_prochot_thrm": "heat of the processor",
    "active_ppt_pwr": "power",
    "active_socket_thrm": "heat",
    "active_vr_thrm": "heat of the voltage regulators",
    "active_hbm_thrm": "heat of the memory",
}


class SmiSource(PolledSource):
    """All registers of a GPU, in one row."""

    traits = Traits(interval_s=0.05)  # whatever the power does in between, the accumulator has counted
    stale_s = 10.0

    def __init__(self, clock: Clock, library: Library, gpu: Gpu, identity: Identity, registers: Registers) -> None:
        super().__init__(clock)
        self.identity = identity
        self.channels = (*registers.channels, *(v.channel for v in registers.values))
        self._library, self._gpu, self._registers = library, gpu, registers
        self._handle = self._locate()
        self._unit = registers.channels[0].scale if registers.energy else 1.0
        # Clocks and temperatures as they were last read: at most ten times as long ago as reading them takes, or a row.
        self._beside: list[float] = []
        self._share = Share(clock)
        self._back = 0
        self._count = 0.0
        self._stamp_ns: float | None = None
        self._time = DeviceClock()
        self._newest_ns = -1
        self._check = CounterCheck(seconds=_JUDGE_S, joules=_JUDGE_J)

    def _locate(self) -> object:
        found = handles(self._library)
        if self._gpu.pci not in found:
            msg = "amdsmi_get_processor_handles"
            raise Fault(msg, 31)
        return found[self._gpu.pci]

    def poll(self) -> Block | None:
        """Take one reading; start the library anew once if somebody shut it down."""
        try:
            try:
                return self._take()
            except Fault as fault:
                if fault.code != NOT_INITIALISED:
                    raise
                self._library.start()
                self._handle = self._locate()
                return self._take()
        except Fault as fault:
            what = f"{self._who()}: {fault}"
            if fault.code in _PERMANENT or fault.code == NOT_INITIALISED:
                raise SourceLostError(what) from fault
            raise ReadError(what) from fault

    def _who(self) -> str:
        return f"amdsmi {self.identity.model} {self._gpu.pci}"

    def _take(self) -> Block | None:
        before = self._clock.now_ns()
        counts: list[float] = []
        stamp_ns = None
        if self._registers.energy:
            count, stamp_ns = self._energy()
            if stamp_ns is not None and stamp_ns == self._stamp_ns and count == self._count:
                return None
            counts.append(count)
        counts += self._powers()
        if all(map(math.isnan, counts)):
            msg = f"{self._who()}: neither energy nor power: the library gives no possible number"
            raise ReadError(msg)
        t_ns = self._place(stamp_ns, before, self._clock.now_ns())
        if t_ns <= self._newest_ns:
            return None
        if self._share.due():
            asked = [value.ask(self._library, self._handle) for value in self._registers.values]
            self._beside = [math.nan if count is None else count for count in asked]
            self._share.made()
        counts += self._beside
        if self._registers.energy and not math.isnan(counts[0]):
            self._count = counts[0]
            self._judge(t_ns, counts)
        self._stamp_ns, self._newest_ns = stamp_ns, t_ns
        self._rows_bear(Timestamps.HOST_READ if stamp_ns is None else Timestamps.DEVICE_UPDATE)
        row = Block.row(t_ns, counts)
        return replace(row, restarted=(0,)) if self._check.broken else row

    def _asked(self, call: str) -> Any:
        """Call a function of the GPU; None where that fails in a way that may pass. Raises Fault."""
        try:
            return self._library.ask(call, self._handle)
        except Fault as fault:
            if fault.code in _PERMANENT or fault.code == NOT_INITIALISED:
                raise
            return None

    def _energy(self) -> tuple[float, float | None]:
        """Return the accumulator and its stamp; NaN where that is no reading, as one or two steps back are none."""
        for _ in range(2):  # what is busy now and then answers at once, and an accumulator that is not read begins anew
            read = accumulator(self._asked("amdsmi_get_energy_count"))
            if read is not None:
                break
        if read is None or read[1] != self._unit:
            return math.nan, None
        count, _, stamp_ns = read
        if count >= self._count:
            self._back = 0
        elif self._back < _BACK_READS:
            self._back += 1
            return math.nan, None
        return count, stamp_ns

    def _powers(self) -> list[float]:
        if not self._registers.powers:
            return []
        for _ in range(2):  # 'N/A' now and then passes at once
            answer = self._asked(self._registers.power_call)
            known = answer if isinstance(answer, dict) else {}
            read = [watts(known.get(key), self._registers.most_watts) for key in self._registers.powers]
            if None not in read:
                break
        return [math.nan if w is None else w for w in read]

    def _place(self, stamp_ns: float | None, before: int, after: int) -> int:
        """Return the instant of a row: the accumulator's stamp where it moves, else the middle of the call.

        The stamps count from boot, suspended time included, which the host's clock does not.
        """
        middle = (before + after) // 2
        if stamp_ns is None or stamp_ns == self._stamp_ns:
            return middle
        if self._stamp_ns is not None and stamp_ns < self._stamp_ns:
            self._time.forget()  # the stamps began anew
        return self._time.place(round(stamp_ns), after)

    def _judge(self, t_ns: int, counts: list[float]) -> None:
        if self._registers.powers and not math.isnan(counts[1]):
            self._check.row(t_ns, counts[0] * self._unit, counts[1])

    def limits(self) -> Mapping[str, float]:
        """Return what holds the GPU's clocks back at this moment; its counts of that are in no stated unit."""
        try:
            status = self._library.optional("amdsmi_get_violation_status", self._handle)
        except Fault:  # the next reading will tell
            return {}
        active = status if isinstance(status, dict) else {}
        return {cause: math.inf for flag, cause in _LIMITS.items() if active.get(flag) is True}

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Say where the counter contradicted the power."""
        # A row bears the accumulator's stamp, which is placed by arrivals that are up to a refresh late.
        time_u_s = REFRESH_S / math.sqrt(12.0) if self.traits.timestamps is Timestamps.DEVICE_UPDATE else 0.0
        return Remarks(time_u_s, self._check.warnings(self.channels[0].name, begin_ns, end_ns))

    def close(self) -> None:
        """Do nothing: the library is not shut down by one of its users. May be called twice."""
