"""One opened GPU: all its registers in one row, whenever one of power or energy refreshed, at the driver's own stamps.

Every status is checked and every number held against what is possible: a register that fails is not known in that row,
and if all of power and energy fail the row is lost; never a value. The time in which an energy counter rests while
power is drawn, or contradicts it for long, has no known energy, and the power beside it goes on.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pmtpy.backends._counter_check import CounterCheck
from pmtpy.backends._share import Share
from pmtpy.backends.nvml import _errors as errors
from pmtpy.backends.nvml import _limits as limits
from pmtpy.backends.nvml._channels import Register
from pmtpy.backends.nvml._device import Answer, Library
from pmtpy.backends.nvml._errors import Fault
from pmtpy.backends.nvml.facts import Kind
from pmtpy.core.channel import Identity
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.rows import Block
from pmtpy.core.source import PolledSource, Remarks, Timestamps, Traits
from pmtpy.errors import ReadError, SourceLostError

# A stamp further from now than this is on another clock, or none: registers move every 0.1 s and drivers cache briefly.
_STAMP_NEAR_NS = 5 * NS_PER_S
# A repeat of the same numbers within this share of the refresh period is the same reading, stamped again by the call.
_MIN_REFRESH_SHARE = 0.9
_LATE_SHARE = 1.1  # of the refresh period: two rows further apart have another renewal between them
# A stamp older than the call by more than this was not made by the call. Where most are, they tell when the registers
# were renewed; a driver that stamps what it reads for the call has none.
_OLDER_NS = 2_000_000
# Registers are renewed together, by some boards; a call in the midst of it is repeated, at most so often in all.
_TRIES = 3
# How long and how much before the counter is judged by the power beside it: reports of counters that lag behind the
# power for seconds agree from 5 s on.
_JUDGE_S, _JUDGE_J = 10.0, 50.0

_ZERO = "it shows 0"

# How to find the GPU's handle again after NVML was started anew. Raises Fault.
Locate = Callable[[Library], object]


class AsleepError(ReadError):
    """All registers of power and energy show 0, which nothing that is awake draws: the GPU sleeps, or wakes up."""


class NvmlSource(PolledSource):
    """What both ways of reading share: a library that may have to be started anew, and faults that become errors."""

    stale_s = 10.0  # a driver whose stamps stand still for a hundred refresh periods hangs

    def __init__(self, clock: Clock, library: Library, locate: Locate, identity: Identity) -> None:
        super().__init__(clock)
        self.identity = identity
        self._library = library
        self._locate = locate
        self._handle = locate(library)
        self._newest_ns = -1  # of the rows delivered
        self._slept = False  # since the last of them

    def asleep(self, error: ReadError) -> bool:
        """Whether the GPU sleeps: it wakes when it has something to do."""
        return isinstance(error, AsleepError)

    def poll(self) -> Block | None:
        """Take one reading; the first row after a sleep begins anew: what was drawn meanwhile is in no register."""
        try:
            block = self._told()
        except AsleepError:
            self._slept = True
            raise
        if block is None or not self._slept:
            return block
        self._slept = False
        return replace(block, fresh=True)

    def _told(self) -> Block | None:
        """Take one reading, starting NVML anew once where that may help."""
        try:
            try:
                return self._take()
            except Fault as fault:
                if fault.code not in errors.RESTART:
                    raise
                self._library.restart()
                self._handle = self._locate(self._library)
                return self._take()
        except Fault as fault:
            raise self._error(fault) from fault

    @abstractmethod
    def _take(self) -> Block | None:
        """Take one reading. Raises Fault or ReadError."""

    def limits(self) -> Mapping[str, float]:
        """Return what holds the GPU's clocks back: for how long until now, or that it does so now."""
        try:
            return limits.ask(self._library, self._handle)
        except Fault:  # the next reading will tell
            return {}

    def settings(self) -> Mapping[str, str]:
        """Return the power limit that is enforced."""
        try:
            return limits.settings(self._library, self._handle)
        except Fault:
            return {}

    @property
    def _who(self) -> str:
        return f"nvml {self.identity.model} {self.identity.serial}"

    def _error(self, fault: Fault) -> ReadError | SourceLostError:
        what = f"{self._who}: {fault}"
        if fault.code in errors.DEAD | errors.RESTART:
            cure = errors.remedy(fault.code, errors.look_around())
            return SourceLostError(f"{what}; {cure}" if cure else what)
        return ReadError(what)

    def close(self) -> None:
        """Release NVML. May be called twice."""
        self._library.stop()


class RegisterSource(NvmlSource):
    """All registers of a GPU, in one row whenever one of those of power or energy refreshed."""

    def __init__(
        self, clock: Clock, library: Library, locate: Locate, identity: Identity, registers: Sequence[Register]
    ) -> None:
        super().__init__(clock, library, locate, identity)
        self.channels = tuple(r.channel for r in registers)
        self._power = tuple(r for r in registers if r.kind is not None)
        self._plain = tuple(r for r in registers if r.kind is None)
        self._fields = [r.field for r in registers if r.field is not None]
        # An average that moves between two means of an interval would cut the next one short, and date this one late.
        self._leading = [i for i, r in enumerate(self._power) if i == 0 or r.kind is not Kind.AVERAGE]
        periods = [r.channel.refresh_s for r in self._power if r.channel.refresh_s]
        self._refresh_ns = round(min(periods, default=0.0) * NS_PER_S)
        # Half the period sees every refresh; faster than 20 ms only costs, since the driver's call may take 2 ms.
        self.traits = Traits(interval_s=min(0.1, max(0.02, min(periods, default=0.1) / 2)))
        # Clocks and temperatures as they were last read: at most ten times as long ago as reading them takes, or a row.
        self._beside: list[float] = []
        self._beside_unread: dict[int, str] = {}
        self._share = Share(clock)
        self._last: tuple[float, ...] = ()
        self._shown: list[float] = []  # all that the last row showed
        self._last_stamp_us = 0
        self._counter = next((i for i, r in enumerate(self._power) if r.kind is Kind.ENERGY), None)
        self._pair = _pair(self._power, self._counter)
        self._check = CounterCheck(seconds=_JUDGE_S, joules=_JUDGE_J)
        self._stamped: bool | None = None
        self._rows = self._older = 0  # taken, and those whose stamp was older than the call

    def _take(self) -> Block | None:
        for _ in range(_TRIES):
            before = self._clock.now_ns()
            fields = dict(zip(self._fields, self._library.fields(self._handle, self._fields), strict=True))
            leading = [self._power[i].field for i in self._leading]
            told = [fields[field].stamp_us for field in leading if field is not None]
            stamps = [stamp_us for stamp_us in told if stamp_us]  # a field that fails has none
            if not self._torn(stamps, before):
                break
        self._unread = unread = dict[int, str]()
        counts = [self._count(i, register, fields, unread) for i, register in enumerate(self._power)]
        if len(unread) == len(counts):
            if all(why is _ZERO for why in unread.values()):
                self._shown = []  # of before the sleep
                msg = f"{self._who} is asleep: all its registers of power and energy show 0"
                raise AsleepError(msg)
            raise ReadError(f"{self._who}: {self._power[0].channel.name}: {unread[0]}")
        t_ns = self._row_time(tuple([counts[i] for i in self._leading]), stamps, before, self._clock.now_ns())
        if t_ns is None:
            return None
        if self._share.due():
            self._beside, self._beside_unread = self._read_beside(len(counts), fields)
            self._share.made()
        values = self._beside
        unread |= self._beside_unread
        self._compare(t_ns, counts)
        before_ns, self._newest_ns = self._newest_ns, t_ns
        shown, self._shown = self._shown, counts + values
        if self._check.broken and self._counter is not None:
            return replace(Block.row(t_ns, self._shown), restarted=(self._counter,))
        early = self._renewed_before(fields, before_ns, t_ns) if shown else {}
        if early and self._passed_over(early, before_ns, t_ns):
            # Nobody knows what the others showed then. The row is the counter's, which has to be dated.
            t_ns = self._newest_ns = early.get(-1 if self._counter is None else self._counter, t_ns)
            early = {}
        if not early:
            return Block.row(t_ns, self._shown)
        first = [self._shown[i] if i in early else count for i, count in enumerate(shown)]
        return Block(np.array([max(early.values()), t_ns]), np.array([first, self._shown]))

    def _read_beside(self, first: int, fields: Mapping[tuple[int, int], Answer]) -> tuple[list[float], dict[int, str]]:
        """Read clocks and temperatures; return them, and why columns, of which they begin at ``first``, are unread."""
        unread: dict[int, str] = {}
        return [self._count(i, register, fields, unread) for i, register in enumerate(self._plain, first)], unread

    def _renewed_before(self, fields: Mapping[tuple[int, int], Answer], begin_ns: int, end_ns: int) -> dict[int, int]:
        """When leading registers were renewed since the last row, and well before the instant of this one.

        Each on a clock of its own: between two polls both may be, and each has its own stamp.
        """
        found = {}
        for i in self._leading if self.traits.timestamps is Timestamps.DEVICE_UPDATE else ():
            field = self._power[i].field
            if field is not None and fields[field].stamp_us:
                t_ns = self._on_our_clock(fields[field].stamp_us)
                if begin_ns < t_ns < end_ns - _OLDER_NS:
                    found[i] = t_ns
        return found

    def _passed_over(self, early: Mapping[int, int], begin_ns: int, end_ns: int) -> bool:
        """Whether one that was not renewed early may have been so unseen since the last row: the polls were late."""
        others = (self._power[i].channel.refresh_s or 0.0 for i in self._leading if i not in early)
        return any(end_ns - begin_ns > _LATE_SHARE * refresh_s * NS_PER_S for refresh_s in others)

    def remarks(self, begin_ns: int, end_ns: int) -> Remarks:
        """Say where the counter contradicted the power."""
        name = self.channels[self._counter or 0].name
        return Remarks(warnings=self._check.warnings(name, begin_ns, end_ns))

    def _torn(self, stamps: Sequence[int], before: int) -> bool:
        """Whether registers were renewed while they were read, so that some are of before and some of after."""
        newest = max(stamps, default=0)  # cut off to microseconds
        return (newest - min(stamps, default=0)) * 1000 > _OLDER_NS and self._on_our_clock(newest + 1) >= before

    def _on_our_clock(self, stamp_us: int) -> int:
        anchor = self._clock.anchor()
        return anchor.monotonic_ns + (stamp_us * 1000 - anchor.unix_ns)

    def _compare(self, t_ns: int, counts: Sequence[float]) -> None:
        if self._pair is None:
            return
        energy, power = (counts[i] * 1e-3 for i in self._pair)
        if not math.isnan(energy + power):
            self._check.row(t_ns, energy, power)

    def _count(
        self, i: int, register: Register, fields: Mapping[tuple[int, int], Answer], unread: dict[int, str]
    ) -> float:
        """Return what a register shows; NaN, and the reason in ``unread`` at ``i``, where that is no reading."""
        count: float | None = None
        code = 0
        if register.field is not None:
            count, _, code = fields[register.field]
        elif register.ask is not None:
            count, code = self._asked(register.ask)
        if code in errors.DEAD | errors.RESTART:
            raise Fault(register.channel.name, code)
        if code or count is None or not register.fits(count):
            impossible = _ZERO if count == 0 else f"the driver says {count}, which is impossible"
            unread[i] = errors.meaning(code) if code else impossible
            return math.nan
        return count

    def _asked(self, ask: Callable[[Library, object], float]) -> tuple[float | None, int]:
        try:
            return ask(self._library, self._handle), 0
        except Fault as fault:
            return None, fault.code

    def _row_time(self, counts: tuple[float, ...], stamps: list[int], before: int, after: int) -> int | None:
        """Return the instant of a row with these counts, or None if no register has refreshed since the last row."""
        middle = (before + after) // 2
        stamp_us = max(stamps, default=0)
        stamp_ns = self._on_our_clock(stamp_us)
        if self._stamped is None:
            self._stamped = stamp_us > 0 and abs(middle - stamp_ns) < _STAMP_NEAR_NS
        t_ns = min(stamp_ns, after) if self._stamped else middle
        same = counts == self._last
        if same and self._stamped and stamp_us == self._last_stamp_us:
            return None
        if same and t_ns - self._newest_ns < _MIN_REFRESH_SHARE * self._refresh_ns:
            return None
        if t_ns <= self._newest_ns:
            # New numbers under an old stamp: the wall clock was set back, or the first reading is from before opening.
            if same or middle <= self._newest_ns:
                return None
            t_ns = middle
        self._last, self._last_stamp_us = counts, stamp_us
        self._rows += 1
        self._older += t_ns < before - _OLDER_NS
        if self._stamped:
            dated = self._older > self._rows / 2 and not self._counted_unseen()
            self._rows_bear(Timestamps.DEVICE_UPDATE if dated else Timestamps.DEVICE_READ)
        return t_ns

    def _counted_unseen(self) -> bool:
        """Whether the counter moves between two readings: of a row at an earlier instant nobody knows its count."""
        i = self._counter
        return i is not None and (self.channels[i].refresh_s or math.inf) < self.traits.interval_s


def _scope(register: Register) -> str:
    return register.channel.name.partition(".")[0]


def _pair(registers: Sequence[Register], energy: int | None) -> tuple[int, int] | None:
    """Columns of the energy counter and of a power of the same part; None where there are not both."""
    if energy is None:
        return None
    scope = _scope(registers[energy])
    power = next((i for i, r in enumerate(registers) if r.kind is not Kind.ENERGY and _scope(r) == scope), None)
    return None if power is None else (energy, power)
