"""The source: one row for each time that all blocks have been refreshed, at the instant of the OCC's own stamp.

A reading that cannot be verified is no row. Sums and counts go on in the OCC meanwhile, so the next row makes up for
it and no energy is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pmtpy.backends._device_clock import DeviceClock
from pmtpy.backends.occ._channels import DELIVERED_RANGE, channel_name, other_channel, power_channels
from pmtpy.backends.occ._device import BlockReader, Export, Reading
from pmtpy.backends.occ._progress import Progress, Step, check, stamp_ns
from pmtpy.backends.occ.layout import CHUNK_STRIDE, POWER, TAG_RANGE, UNKNOWN_TIME, Entry, Record
from pmtpy.core.channel import Channel, Identity
from pmtpy.core.clock import Clock
from pmtpy.core.rows import Block
from pmtpy.core.source import PolledSource, Timestamps, Traits
from pmtpy.errors import ReadError, SourceLostError

_STEP_S = 0.008  # one step of the OCC's copying, nominally
_STALE_NS = 500_000_000  # ten times the period of the buffers, and then some: the OCC does not update any more
_LOST_NS = 10_000_000_000  # a restart of the OCC takes seconds
_FUTURE_NS = 100_000_000  # how far a stamp may lie ahead of what is possible: errors of the first guess, twice
_UNEVEN_CYCLES = 2.0  # blocks are refreshed out of step; a pause of one of them is longer
_CONTRADICTED_NS = 200_000_000  # what contradicts the past for so long is not a torn record but a new past


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read from one block: the powers first, of which the first one gives the time of the row."""

    reader: BlockReader
    entries: tuple[Entry, ...]  # in the order in which the reader returns their records
    chunks: int  # number of steps in which the OCC fills a buffer of this block
    # the hardware's number of the chip, by which other sensors know the same socket; with a ``?`` if it is a guess
    chip: str

    @property
    def nominal_s(self) -> float:
        """Time from one filled buffer to the next by the number of steps."""
        return (self.chunks + 1) * _STEP_S

    @property
    def cycle_s(self) -> float:
        """The same as the stamps show, where they do."""
        ping, pong = (records[0] for records in self.reader.both())
        seconds = abs(stamp_ns(ping.stamp) - stamp_ns(pong.stamp)) * 1e-9
        known = ping.written and pong.written and UNKNOWN_TIME not in {ping.stamp, pong.stamp}
        return seconds if known and 0 < seconds < 1 else self.nominal_s

    def age_s(self, cycle_s: float) -> float:
        """Age of the first record when its buffer becomes valid: the steps from its chunk to the last one."""
        chunk = min(self.entries[0].offset // CHUNK_STRIDE, self.chunks - 1)
        return (self.chunks - chunk) * cycle_s / (self.chunks + 1)


class OccSource(PolledSource):
    """The sensors of one or several blocks. Used by one thread at a time."""

    gone_after_s = math.inf  # its own clock decides: see _LOST_NS

    def __init__(self, export: Export, wanted: list[Wanted], notes: tuple[str, ...], clock: Clock) -> None:
        super().__init__(clock)
        self._export = export
        self._wanted = wanted
        self._entries = [e for w in wanted for e in w.entries]
        self._powers = [(i, Progress(e)) for i, e in enumerate(self._entries) if e.kind == POWER]
        cycles = [w.cycle_s for w in wanted]
        # The host sees a record some time after it was sampled: at least the time from the copying of its chunk to the
        # buffer's becoming valid, and up to one cycle more.
        self._time = DeviceClock(age_ns=round(wanted[0].age_s(cycles[0]) * 1e9), cycle_ns=round(cycles[0] * 1e9))
        self._uneven_ns = _UNEVEN_CYCLES * 1e9 * max(w.nominal_s for w in wanted)
        self._row_ns = clock.now_ns()
        self._started = False
        # by block: what made the last row, and when that was by the stamp of its first record
        self._accepted: list[Reading] = []
        self._stamps: list[int] = []
        self._contradicted_ns: int | None = None
        self.identity = Identity("occ", "POWER9 OCC", notes=notes)
        self.channels = _channels(wanted, cycles)
        rate_hz = max([2000.0, *(e.rate_hz for e in self._entries if e.rate_hz < 1e5)])
        # The count of samples turns over after 24.9 days at 2 kHz.
        self.traits = Traits(interval_s=0.02, deadline_s=0.8 * TAG_RANGE / rate_hz)

    def poll(self) -> Block | None:
        """Read all blocks; a row if each of them has been refreshed since the row before."""
        block, failure = None, ""
        try:
            block = self._refreshed()
        except ReadError as error:
            failure = str(error)
        age_ns = self._clock.now_ns() - self._row_ns
        old = f"occ: the newest good reading is {age_ns / 1e9:.1f} s old: the OCC does not update its sensors any more"
        if age_ns > _LOST_NS:
            raise SourceLostError(f"{old}; {failure}" if failure else old)
        if failure:
            raise ReadError(failure)
        if block is None and age_ns > _STALE_NS:
            raise ReadError(old)
        return block

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._export.close()

    def _refreshed(self) -> Block | None:
        parts = [wanted.reader.read() for wanted in self._wanted]
        # Behind the reading: of a call that is held up the stamps may be later than its begin, and one such delay, too
        # short by a tenth of a second, would be taken for the edge of all.
        now_ns = self._clock.now_ns()
        if any(new is old for new, old in zip(parts, self._accepted, strict=False)):
            return None
        by_block = [part.records() for part in parts]
        records = [record for block in by_block for record in block]
        try:
            steps = self._steps(records, now_ns)
        except ReadError:
            if self._contradicted_ns is None:
                self._contradicted_ns = now_ns
            if now_ns - self._contradicted_ns <= _CONTRADICTED_NS:
                raise
            self._time.forget()
            for i, _ in self._powers:  # what was judged has been checked, but the rest has not
                check(self._entries[i].name, records[i])
            steps = [Step.RESTART for _ in self._powers]
        else:
            self._contradicted_ns = None
        if Step.RESTART in steps and self._started and any(wanted.reader.recheck() for wanted in self._wanted):
            return None  # decoded by a table that holds no more
        stamps = [block[0].stamp for block in by_block]
        uneven = Step.RESTART not in steps and self._uneven(stamps)
        block = None if Step.NOTHING in steps or uneven else self._row(records, steps, now_ns)
        if block is not None:
            self._accepted, self._stamps = parts, stamps
        return block

    def _uneven(self, stamps: list[int]) -> bool:
        """Whether one block is still before a pause that another has passed: their energies are of different times."""
        if not self._stamps or UNKNOWN_TIME in {*stamps, *self._stamps}:
            return False
        passed = [stamp_ns(new - old) for new, old in zip(stamps, self._stamps, strict=True)]
        return max(passed) - min(passed) > self._uneven_ns

    def _steps(self, records: list[Record], now_ns: int) -> list[Step]:
        first = records[0]
        if first.stamp != UNKNOWN_TIME and self._time.ahead_ns(stamp_ns(first.stamp), now_ns) > _FUTURE_NS:
            msg = f"occ: the stamp {first.stamp:#x} of {self._entries[0].name} lies in the future"
            raise ReadError(msg)
        return [progress.judge(records[i], now_ns) for i, progress in self._powers]

    def _row(self, records: list[Record], steps: list[Step], now_ns: int) -> Block | None:
        stamp = records[0].stamp
        t_ns = now_ns if stamp == UNKNOWN_TIME else self._time.place(stamp_ns(stamp), now_ns)
        if self._started and t_ns <= self._row_ns:
            return None  # a new guess of the time: wait until it has passed the last row
        readers = [w.reader for w in self._wanted]
        moved = any(reader.moved for reader in readers)
        for reader in readers:
            reader.moved = False
        for (i, progress), step in zip(self._powers, steps, strict=True):
            progress.accept(records[i], now_ns, Step.RESTART if moved else step)
        fresh = self._started and (moved or Step.RESTART in steps)
        self._started = True
        self._row_ns = t_ns
        self._rows_bear(Timestamps.HOST_READ if stamp == UNKNOWN_TIME else Timestamps.DEVICE_UPDATE)
        return Block.row(t_ns, self._counts(records), fresh=fresh)

    def _counts(self, records: list[Record]) -> list[float]:
        counts: list[float] = []
        for entry, record in zip(self._entries, records, strict=True):
            if entry.kind == POWER:
                counts += (record.total % DELIVERED_RANGE, record.tag)
            else:
                counts.append(_shown(entry, record))
        return counts


def _shown(entry: Entry, record: Record) -> float:
    """Return what a sensor beside the powers shows; NaN where that cannot be: it is lost by itself, not the row."""
    try:
        check(entry.name, record)
    except ReadError:
        return math.nan
    return record.total % DELIVERED_RANGE if entry.counter else record.sample


def _channels(wanted: list[Wanted], cycles: list[float]) -> tuple[Channel, ...]:
    channels: list[Channel] = []
    taken: set[str] = set()
    for part, cycle_s in zip(wanted, cycles, strict=True):
        for entry in part.entries:
            name = channel_name(entry, part.reader.index, taken)
            taken.add(name)
            if entry.kind == POWER:
                channels += power_channels(entry, name, part.chip, cycle_s)
            else:
                channels.append(other_channel(entry, name, cycle_s))
    return tuple(channels)
