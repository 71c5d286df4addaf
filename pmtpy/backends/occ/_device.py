"""Reads one block of the exported file: the whole of it to look sensors up, then only the part that is needed.

Nothing is locked: the OCC goes on writing while we read. A buffer is trusted when it was valid before and after its
records were read, in less time than the OCC needs for one step.

A call costs more than the bytes it brings: on the machine that was measured 3 calls took 3.58 us, 4 calls 4.76 us and 3
calls with the whole block 10.85 us, so that 1 us buys a call or 20 kB. So each buffer is read from its valid byte to
the last record needed (8 kB for all powers), in one call, rather than valid bytes and records by themselves.

Facts: ``fs/kernfs/file.c`` of Linux (one read returns a page at most, so short reads are normal); OCC firmware
(``sensor_main_memory.c``: steps of 16 ticks, the valid byte is cleared with the first chunk and set in a step of its
own after the last); times of reads: Tröpgen, Bielert, Ilsche, ICPE '23, doi 10.1145/3578244.3583729.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pmtpy._handlers import of_a_handler
from pmtpy.backends._descriptor import marked, ours
from pmtpy.backends._sysfs import VANISHED, why
from pmtpy.backends.occ.layout import BLOCK_BYTES, ENTRY_BYTES, Decoder, Record, Table
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.errors import ProtocolError, ReadError, SourceLostError

_STEP_NS = 8_000_000  # 16 ticks of 0.5 ms: a buffer that was valid is not rewritten in less
_ATTEMPTS = 3
_RECHECK_NS = 2 * NS_PER_S  # how often the optimised read looks at header and table again


class Export:
    """The exported file, open. Used by one thread at a time."""

    __slots__ = ("_fd", "_mark", "path")

    def __init__(self, path: str) -> None:
        """Open the file; OSError as the system says."""
        self.path = path
        self._open()

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe there is not waited for
        self._mark = marked(self._fd)

    def check(self) -> None:
        """Open the file again where the program has closed it: before each reading, which is one of several calls.

        Raises ReadError: it cannot be opened now.
        Raises SourceLostError: it is gone, or the program has given up the right to read it.
        """
        if self._fd < 0 or ours(self._fd, self._mark):
            return
        try:
            self._open()
        except OSError as error:
            if of_a_handler(error):
                raise
            msg = f"{self.path}: the program has closed its descriptor, and it cannot be opened again: {why(error)}"
            lost = error.errno in VANISHED or isinstance(error, PermissionError)
            raise (SourceLostError if lost else ReadError)(msg) from error

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly ``size`` bytes, in as many calls as it takes.

        Raises ReadError: the system reports an error that may pass, or the file ends before.
        Raises SourceLostError: the file is gone.
        """
        try:
            data = os.pread(self._fd, size, offset)
        except OSError as error:
            if of_a_handler(error):
                raise
            raise self._failed(error) from error
        if len(data) == size:
            return data
        whole = bytearray(size)
        whole[: len(data)] = data
        self.fill(whole, offset, len(data))
        return bytes(whole)

    def fill(self, buffer: bytearray, offset: int, done: int = 0) -> None:
        """Fill ``buffer``, of which ``done`` bytes are there, from ``offset`` of the file; errors as for :meth:`read`.

        For what is too large to be allocated anew at every reading.
        """
        view = memoryview(buffer)
        while done < len(view):
            try:
                part = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as error:
                if of_a_handler(error):
                    raise
                raise self._failed(error) from error
            if not part:
                msg = f"{self.path}: it ends at byte {offset + done}, {len(view) - done} too early"
                raise ReadError(msg)
            done += part

    def _failed(self, error: OSError) -> ReadError | SourceLostError:
        lost = error.errno in VANISHED
        return (SourceLostError if lost else ReadError)(f"{self.path}: cannot be read: {error.strerror}")

    def blocks(self) -> int:
        """Return the number of whole blocks in the file."""
        try:
            return os.fstat(self._fd).st_size // BLOCK_BYTES
        except OSError as error:  # closed
            if of_a_handler(error):
                raise
            return 0

    def odd_bytes(self) -> int:
        """Return the number of bytes at the end of the file that are no whole block."""
        return os.fstat(self._fd).st_size % BLOCK_BYTES

    def close(self) -> None:
        """Close the file. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and ours(fd, self._mark):
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the records of the sensors wanted lie in one block, and how they are decoded."""

    head: bytes  # header and table from which this was found, as they were
    # offsets of the two buffers in the file
    ping: int
    pong: int
    decoder: Decoder  # of all sensors, in order


class Reading(NamedTuple):
    """What the newer valid buffer of a block said: verified, and decoded."""

    decoder: Decoder  # knows whose fields these are
    fields: tuple[int, ...]  # of all records, one record after the other

    def records(self) -> list[Record]:
        """Return the record of each sensor, in order."""
        return self.decoder.records(self.fields)


class BlockReader:
    """Reads the sensors named from one block. Used by one thread at a time.

    Attributes
    ----------
    index : int
        Number of the block.
    plan : Plan
        Where the records are; replaced when the table has changed.
    moved : bool
        The table has changed since the flag was last cleared: the firmware started anew.
    """

    def __init__(self, export: Export, index: int, names: Sequence[str], clock: Clock, *, whole: bool = False) -> None:
        self.index = index
        self.moved = False
        self._export = export
        self._base = index * BLOCK_BYTES
        self._names = tuple(names)
        self._clock = clock
        self._whole = whole
        self._block = bytearray(BLOCK_BYTES if whole else 0)
        self._data = b""
        self._reading: Reading | None = None  # what _data says
        self.plan = self.locate(export.read(self._base, BLOCK_BYTES))
        self._checked_ns = clock.now_ns()

    def locate(self, block: bytes) -> Plan:
        """Find the sensors in a copy of the block.

        Raises ProtocolError: the header cannot be used.
        Raises SourceLostError: a sensor is no longer in the table.
        """
        table = Table.parse(block)
        missing = [name for name in self._names if name not in table.entries]
        if missing:
            msg = f"occ: block {self.index} no longer lists {', '.join(missing)}; open the sensor again"
            raise SourceLostError(msg)
        base, header = self._base, table.header
        head = block[: header.names + header.sensors * ENTRY_BYTES]
        decoder = Decoder([table.entries[name] for name in self._names])
        return Plan(head, base + header.ping, base + header.pong, decoder)

    def read(self) -> Reading:
        """Return the newest valid record of each sensor, all from one buffer; the same object if nothing has changed.

        Raises ReadError: there are none now: the OCC is just starting, or was faster than this reader.
        Raises SourceLostError: the file is gone, or a sensor has gone from the table.
        """
        self._export.check()
        now_ns = self._clock.now_ns()
        try:
            if not self._whole and now_ns - self._checked_ns > _RECHECK_NS:
                self.recheck()
                now_ns = self._clock.now_ns()
            return self._attempts(now_ns)
        except ProtocolError as error:
            self._relocate()
            msg = f"occ: block {self.index}: {error}"
            raise ReadError(msg) from error

    def recheck(self) -> bool:
        """Compare header and table with those known, and go by the new ones; whether they differ.

        What was read by those known is then of other sensors, or in other units. To be called when the firmware has
        started anew: another one may list them in another order, with other scales, under a header that is the same.

        Raises ReadError: the header cannot be used.
        Raises SourceLostError: the file is gone, or a sensor has gone from the table or has other units.
        """
        self._checked_ns = self._clock.now_ns()
        known = self.plan.head
        if self._export.read(self._base, len(known)) == known:
            return False
        self._relocate()
        return True

    def _relocate(self) -> None:
        try:
            self._take(self.locate(self._export.read(self._base, BLOCK_BYTES)))
        except ProtocolError as error:
            msg = f"occ: block {self.index}: {error}"
            raise ReadError(msg) from error

    def _take(self, plan: Plan) -> None:
        entries, known = plan.decoder.entries, self.plan.decoder.entries
        if [e.meaning for e in entries] != [e.meaning for e in known]:
            msg = f"occ: block {self.index} has changed the units of its sensors; open the sensor again"
            raise SourceLostError(msg)
        self._data = b""
        self.moved |= (entries, plan.head) != (known, self.plan.head)
        self.plan = plan

    def _attempts(self, began_ns: int) -> Reading:
        attempt = self._from_whole if self._whole else self._from_buffers
        for _ in range(_ATTEMPTS):
            found = attempt()
            ended_ns = self._clock.now_ns()
            if found is not None and ended_ns - began_ns < _STEP_NS:
                return found
            began_ns = ended_ns
        msg = f"occ: block {self.index} was rewritten while it was read, {_ATTEMPTS} times in a row"
        raise ReadError(msg)

    def _from_buffers(self) -> Reading | None:
        """Read each buffer from its valid byte to the last record needed."""
        plan, read = self.plan, self._export.read
        size = plan.decoder.size
        return self._choose(read(plan.ping, size), read(plan.pong, size))

    def _from_whole(self) -> Reading | None:
        """Do the same from a copy of the whole block, after comparing header and table with those known."""
        block, base = self._block, self._base
        self._export.fill(block, base)
        if not block.startswith(self.plan.head):
            self._take(self.locate(bytes(block)))
        ping, pong, size = self.plan.ping - base, self.plan.pong - base, self.plan.decoder.size
        return self._choose(bytes(block[ping : ping + size]), bytes(block[pong : pong + size]))

    def _choose(self, ping: bytes, pong: bytes) -> Reading | None:
        """Decode the copy of the newer valid buffer; None if it is no longer valid."""
        decoder, at, data = self.plan.decoder, self.plan.ping, ping
        if ping[0] != 1 or (pong[0] == 1 and not decoder.newer(ping, pong)):
            at, data = self.plan.pong, pong
            if pong[0] != 1:
                msg = f"occ: neither buffer of block {self.index} is valid; the OCC has just started or is restarting"
                raise ReadError(msg)
        if self._export.read(at, 1) != b"\1":
            return None
        if data != self._data or self._reading is None:
            self._reading = Reading(decoder, decoder.fields(data))
            self._data = data
        return self._reading

    def both(self) -> list[list[Record]]:
        """Return the records of both buffers as they are, valid or not: good for nothing but the look of time."""
        decoder, read = self.plan.decoder, self._export.read
        return [
            [entry.record(data, entry.offset) for entry in decoder.entries]
            for data in (read(at, decoder.size) for at in (self.plan.ping, self.plan.pong))
        ]
