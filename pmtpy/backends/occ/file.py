"""Reads one block of the exported file: the whole of it to look sensors up, then only the records that are needed.

Nothing is locked: the OCC goes on writing while we read. A buffer is trusted when it was valid before and after its
records were read, in less time than the OCC needs for one step.

Facts: ``fs/kernfs/file.c`` of Linux (one read returns a page at most, so short reads are normal); OCC firmware
(``sensor_main_memory.c``: steps of 16 ticks, the valid byte is cleared with the first chunk and set in a step of its
own after the last).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pmtpy.backends.occ.layout import BLOCK_BYTES, ENTRY_BYTES, HEADER_BYTES, Entry, Record, Table, newer
from pmtpy.clock import NS_PER_S, Clock
from pmtpy.errors import ProtocolError, ReadError, SourceLostError

_STEP_NS = 8_000_000  # 16 ticks of 0.5 ms: a buffer that was valid is not rewritten in less
_ATTEMPTS = 3
_RECHECK_NS = 2 * NS_PER_S  # how often the optimised read looks at the header again
_VANISHED = frozenset({errno.ENODEV, errno.ENOENT, errno.ESTALE, errno.EBADF})


class Export:
    """The exported file, open. Used by one thread at a time."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        """Open the file; OSError as the system says."""
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, size: int) -> bytes:
        """Read exactly ``size`` bytes, in as many calls as it takes.

        Raises
        ------
        ReadError
            The system reports an error that may pass, or the file ends before.
        SourceLostError
            The file is gone.
        """
        parts = b""
        try:
            while len(parts) < size:
                part = os.pread(self._fd, size - len(parts), offset + len(parts))
                if not part:
                    msg = f"{self.path}: it ends at byte {offset + len(parts)}, {size - len(parts)} too early"
                    raise ReadError(msg)
                parts = parts + part if parts else part
        except OSError as error:
            if isinstance(error, ReadError):
                raise
            msg = f"{self.path}: cannot be read: {error.strerror}"
            raise (SourceLostError if error.errno in _VANISHED else ReadError)(msg) from error
        return parts

    def blocks(self) -> int:
        """Return the number of whole blocks in the file."""
        try:
            return os.fstat(self._fd).st_size // BLOCK_BYTES
        except OSError:  # closed
            return 0

    def close(self) -> None:
        """Close the file. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the records of the sensors wanted lie in one block.

    Attributes
    ----------
    head : bytes
        Header and table from which this was found, as they were.
    ping, pong : int
        Offsets of the two buffers in the file.
    entries : tuple of Entry
        The sensors, in order.
    start, size : int
        The part of a buffer that holds all their records.
    """

    head: bytes
    ping: int
    pong: int
    entries: tuple[Entry, ...]
    start: int
    size: int

    def records(self, data: bytes) -> list[Record]:
        """Decode all records from ``data``, a copy of that part.

        Raises
        ------
        ProtocolError
            A record belongs to another sensor than the table said.
        """
        found = [entry.record(data, entry.offset - self.start) for entry in self.entries]
        for entry, record in zip(self.entries, found, strict=True):
            if record.gsid != entry.gsid and (record.gsid or record.written):
                msg = f"the record of {entry.name} carries the id {record.gsid} instead of {entry.gsid}"
                raise ProtocolError(msg)
        return found


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
        self._data = b""
        self._records: list[Record] = []
        self.plan = self.locate(export.read(self._base, BLOCK_BYTES))
        self._checked_ns = clock.now_ns()

    def locate(self, block: bytes) -> Plan:
        """Find the sensors in a copy of the block.

        Raises
        ------
        ProtocolError
            The header cannot be used.
        SourceLostError
            A sensor is no longer in the table.
        """
        table = Table.parse(block)
        missing = [name for name in self._names if name not in table.entries]
        if missing:
            msg = f"occ: block {self.index} no longer lists {', '.join(missing)}; open the sensor again"
            raise SourceLostError(msg)
        entries = tuple(table.entries[name] for name in self._names)
        start, end = min(e.offset for e in entries), max(e.end for e in entries)
        base, header = self._base, table.header
        head = block[: header.names + header.sensors * ENTRY_BYTES]
        return Plan(head, base + header.ping, base + header.pong, entries, start, end - start)

    def records(self) -> list[Record]:
        """Return the newest valid record of each sensor, all from one buffer; the same list if nothing has changed.

        Raises
        ------
        ReadError
            There are none now: the OCC is just starting, or was faster than this reader.
        SourceLostError
            The file is gone, or a sensor has gone from the table.
        """
        try:
            if self._whole:
                return self._attempts(self._from_whole)
            now_ns = self._clock.now_ns()
            if now_ns - self._checked_ns > _RECHECK_NS:
                if self._export.read(self._base, HEADER_BYTES) != self.plan.head[:HEADER_BYTES]:
                    self._relocate()
                self._checked_ns = now_ns
            return self._attempts(self._from_buffers)
        except ProtocolError as error:
            self._relocate()
            msg = f"occ: block {self.index}: {error}"
            raise ReadError(msg) from error

    def _relocate(self) -> None:
        try:
            self._take(self.locate(self._export.read(self._base, BLOCK_BYTES)))
        except ProtocolError as error:
            msg = f"occ: block {self.index}: {error}"
            raise ReadError(msg) from error

    def _take(self, plan: Plan) -> None:
        if [e.meaning for e in plan.entries] != [e.meaning for e in self.plan.entries]:
            msg = f"occ: block {self.index} has changed the units of its sensors; open the sensor again"
            raise SourceLostError(msg)
        self._data = b""
        self.moved |= (plan.entries, plan.head) != (self.plan.entries, self.plan.head)
        self.plan = plan

    def _attempts(self, attempt: Callable[[], list[Record] | None]) -> list[Record]:
        for _ in range(_ATTEMPTS):
            began_ns = self._clock.now_ns()
            found = attempt()
            if found is not None and self._clock.now_ns() - began_ns < _STEP_NS:
                return found
        msg = f"occ: block {self.index} was rewritten while it was read, {_ATTEMPTS} times in a row"
        raise ReadError(msg)

    def _from_buffers(self) -> list[Record] | None:
        """Read the valid bytes, the records, and the valid byte again; None if it changed meanwhile."""
        plan, read = self.plan, self._export.read
        valid = [at for at in (plan.ping, plan.pong) if read(at, 1) == b"\1"]
        self._refuse_none(valid)
        return self._decode([(at, read(at + plan.start, plan.size)) for at in valid])

    def _from_whole(self) -> list[Record] | None:
        """Do the same from a copy of the whole block, after comparing header and table with those known."""
        block = self._export.read(self._base, BLOCK_BYTES)
        if not block.startswith(self.plan.head):
            self._take(self.locate(block))
        plan = self.plan
        buffers = [(at, at - self._base) for at in (plan.ping, plan.pong)]
        valid = [(at, start + plan.start) for at, start in buffers if block[start] == 1]
        self._refuse_none(valid)
        return self._decode([(at, block[start : start + plan.size]) for at, start in valid])

    def _decode(self, copies: list[tuple[int, bytes]]) -> list[Record] | None:
        """Decode the copy with the newer first record, if its buffer, at ``at`` in the file, is still valid."""
        at, data = copies[-1]
        if len(copies) == 2:
            first = self.plan.entries[0]
            ping, pong = (first.record(copy, first.offset - self.plan.start) for _, copy in copies)
            at, data = copies[0] if newer(ping, pong) else copies[1]
        if self._export.read(at, 1) != b"\1":
            return None
        if data != self._data:
            self._records = self.plan.records(data)
            self._data = data
        return self._records

    def _refuse_none(self, valid: Sequence[object]) -> None:
        if not valid:
            msg = f"occ: neither buffer of block {self.index} is valid; the OCC has just started or is restarting"
            raise ReadError(msg)

    def both(self) -> list[list[Record]]:
        """Return the records of both buffers as they are, valid or not: good for nothing but the look of time."""
        plan, read = self.plan, self._export.read
        return [
            [entry.record(read(at + plan.start, plan.size), entry.offset - plan.start) for entry in plan.entries]
            for at in (plan.ping, plan.pong)
        ]
