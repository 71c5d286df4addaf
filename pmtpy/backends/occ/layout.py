"""The bytes of the OCC's sensor block: header, table of sensors, records. Pure: bytes in, frozen records out.

Whatever the bytes hold, it answers with what the specification says they mean, or with :class:`ProtocolError`; it
never reads outside the block and never guesses. All fields are big-endian, whatever the machine's byte order.

Facts: OCC Firmware Interface Specification for POWER9, v0.24, section 11.3; OCC firmware
(``sensor_main_memory.h``); skiboot (``hw/occ-sensor.c``, function ``occ_sensor_sanity``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from pmtpy.core.presentation import amount
from pmtpy.errors import ProtocolError

BLOCK_BYTES = 153_600
BUFFER_BYTES = 40_960
HEADER_BYTES = 24
ENTRY_BYTES = 48
_NAMES_BYTES = 51_200
CHUNK_STRIDE = 3_968  # the OCC copies 4,096 bytes at a time and writes the last 128 of them again with the next chunk
_FIRST_RECORD = 8  # the valid byte and seven reserved ones come first
POWER = 0x0080
UNKNOWN_TIME = 2**64 - 1  # the stamp of a record when the time of day is not running
TAG_RANGE = 2**32
SUM_RANGE = 2**64

_HEADER = struct.Struct(">BBHB3xIBB2xII")
_ENTRY = struct.Struct(">16s4sHIIHHBIB8x")
_FULL_FIELDS = "HQ3H12xQI8x"  # without the extremes since other owners cleared them
_COUNTER_FIELDS = "HQQB5x"
_FULL = struct.Struct(f">{_FULL_FIELDS}")
_COUNTER = struct.Struct(f">{_COUNTER_FIELDS}")
_RECORD_BYTES = {1: _FULL.size, 2: _COUNTER.size}
_STAMP = (2, 10)  # where a record of either form has its stamp
_UNKNOWN = b"\xff" * 8  # UNKNOWN_TIME as it lies in memory


def decimal_float(word: int) -> float:
    """Value of the OCC's decimal number: 24 bits of mantissa, then 8 bits of signed exponent of ten."""
    exponent = word & 0xFF
    return float(f"{word >> 8}e{exponent - 256 if exponent > 127 else exponent}")


class Record(NamedTuple):
    """One reading of one sensor."""

    gsid: int  # identity of the sensor; 0 if the record was never written
    # time base (512 MHz) at the latest sample; :data:`UNKNOWN_TIME` if there is no time of day; 0 if never sampled
    stamp: int
    # the latest sample and the extremes since the OCC started, unscaled
    sample: int
    lowest: int
    highest: int
    total: int  # Sum of all samples since the OCC started, modulo 2**64. Of a counter: the number of events.
    tag: int  # Number of samples in the sum, modulo 2**32. A counter has none: 0.

    @property
    def written(self) -> bool:
        """Whether the sensor has been sampled since the OCC started."""
        return bool(self.stamp or self.total or self.tag)


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table of sensors."""

    # as the firmware writes them: ``PWRSYS``, ``W``
    name: str
    units: str
    gsid: int  # identity that the record of this sensor carries
    # Nominal samples per second. The true rate differs, by half for some: only good for a plausibility check.
    rate_hz: float
    scale: float  # value in ``units`` of one step of a sample
    # codes of type and place
    kind: int
    location: int
    counter: bool  # whether its record is the short form, for events
    offset: int  # bytes from the start of either buffer to the record
    function: int  # for a channel of the power converter: what is connected to it

    @property
    def end(self) -> int:
        """Offset of the first byte behind the record."""
        return self.offset + (_COUNTER if self.counter else _FULL).size

    @property
    def meaning(self) -> tuple[str, float, int, bool]:
        """What must stay for readings to remain comparable: units, scale, type, form of the record."""
        return self.units, self.scale, self.kind, self.counter

    def record(self, data: bytes, offset: int) -> Record:
        """Decode the record at ``offset`` of ``data``."""
        return self.named((_COUNTER if self.counter else _FULL).unpack_from(data, offset))

    def named(self, fields: Sequence[int]) -> Record:
        """Name the fields of a record of this sensor, in the order in which they lie in memory."""
        if self.counter:
            gsid, stamp, total, sample = fields
            return Record(gsid, stamp, sample, 0, 0, total, 0)
        return Record._make(fields)


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a block, checked."""

    sensors: int  # rows of the table
    # offsets from the start of the block to the table and the two buffers
    names: int
    ping: int
    pong: int

    @classmethod
    def parse(cls, data: bytes) -> Header:
        """Check and decode the first bytes of a block.

        Raises ProtocolError: it is not valid yet, or says what the specification does not allow.
        """
        if len(data) < HEADER_BYTES:
            msg = f"the header is cut short: {amount(len(data), 'byte')} of {HEADER_BYTES}"
            raise ProtocolError(msg)
        valid, version, sensors, readings, names, names_version, stride, ping, pong = _HEADER.unpack_from(data)
        faults = [
            (valid != 1, f"it is marked as not valid ({valid})"),
            ((version, readings, names_version) != (1, 1, 1), "it is of an unknown version"),
            (stride != ENTRY_BYTES, f"a row of the table has {amount(stride, 'byte')} instead of {ENTRY_BYTES}"),
            (not 1 <= sensors <= _NAMES_BYTES // ENTRY_BYTES, f"it counts {sensors} sensors"),
            (_overlap((0, HEADER_BYTES), (names, sensors * stride), (ping, BUFFER_BYTES), (pong, BUFFER_BYTES)),
             f"table ({names:#x}) and buffers ({ping:#x}, {pong:#x}) do not fit into the block"),
        ]  # fmt: skip
        for wrong, text in faults:
            if wrong:
                msg = f"the header cannot be used: {text}; it begins {data[:HEADER_BYTES].hex(' ', 4)}"
                raise ProtocolError(msg)
        return cls(sensors, names, ping, pong)


def _overlap(*parts: tuple[int, int]) -> bool:
    """Whether parts of the block, each (offset, size), overlap or reach beyond it."""
    end = 0
    for offset, size in sorted(parts):
        if offset < end:
            return True
        end = offset + size
    return end > BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Table:
    """The sensors of a block."""

    header: Header
    entries: dict[str, Entry]  # In the order of the table. Not to be written to.
    faults: tuple[str, ...]  # rows that cannot be used, and why

    @classmethod
    def parse(cls, block: bytes) -> Table:
        """Check and decode header and table of a block.

        Raises ProtocolError: the header cannot be used. A row that cannot be used is left out and reported in
        ``faults``.
        """
        if len(block) < BLOCK_BYTES:
            msg = f"the block is cut short: {amount(len(block), 'byte')} of {BLOCK_BYTES}"
            raise ProtocolError(msg)
        header = Header.parse(block)
        entries: dict[str, Entry] = {}
        faults: list[str] = []
        for row in range(header.sensors):
            try:
                entry = _entry(block, header.names + row * ENTRY_BYTES)
            except ProtocolError as error:
                faults.append(f"row {row} of the table: {error}")
                continue
            if entry.name in entries:
                faults.append(f"row {row} of the table: the name {entry.name} appears twice")
            else:
                entries[entry.name] = entry
        return cls(header, entries, tuple(faults))

    @property
    def chunks(self) -> int:
        """Number of steps in which the OCC copies all records into a buffer."""
        return -(-max(entry.end for entry in self.entries.values()) // CHUNK_STRIDE) if self.entries else 1


def _entry(block: bytes, offset: int) -> Entry:
    raw_name, raw_units, gsid, rate, scale, kind, location, structure, reading, function = _ENTRY.unpack_from(
        block, offset
    )
    name, units = (raw.partition(b"\0")[0].decode("ascii", "replace").strip() for raw in (raw_name, raw_units))
    factor = decimal_float(scale)
    size = _RECORD_BYTES.get(structure)
    faults = [
        (not name.isascii() or not name.isprintable() or not name, f"its name is {raw_name!r}"),
        (size is None, f"{name} has the unknown structure type {structure}"),
        (not _FIRST_RECORD <= reading <= BUFFER_BYTES - (size or 0), f"the record of {name} is at {reading}"),
        (not 0 < factor < 1e6, f"{name} has the scale factor {factor:g}"),
        (kind == POWER and (units != "W" or structure != 1), f"{name} is a power in {units!r}, structure {structure}"),
    ]
    for wrong, text in faults:
        if wrong:
            raise ProtocolError(text)
    return Entry(name, units, gsid, decimal_float(rate), factor, kind, location, structure == 2, reading, function)


def newer(ping: Record, pong: Record) -> bool:
    """Whether the record in the ping buffer is the newer one, when both buffers are valid.

    By the time stamps; where these are equal or unknown, by the number of samples. Pong if there is no difference.
    """
    if ping.stamp != pong.stamp and UNKNOWN_TIME not in {ping.stamp, pong.stamp}:
        return ping.stamp > pong.stamp
    return 0 < (ping.tag - pong.tag) % TAG_RANGE < TAG_RANGE // 2


class Decoder:
    """Decodes the records of several sensors from one copy of a buffer in one go.

    Attributes
    ----------
    entries : tuple of Entry
        The sensors, in the order in which records are returned.
    size : int
        Length of a copy: from the beginning of the buffer to the end of the last record.
    """

    __slots__ = ("_expected", "_ids", "_more", "_spans", "_stamp", "_unpack", "entries", "size")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        self.size = max(e.end for e in entries)
        places: dict[int, tuple[int, int]] = {}
        layers = [self._layer(layer, places) for layer in _layers(self.entries)]
        self._spans = tuple(places[i] for i in range(len(self.entries)))
        self._unpack = layers[0].unpack
        self._more = tuple(layer.unpack for layer in layers[1:])
        self._ids = itemgetter(*(begin for begin, _ in self._spans))
        ids = tuple(e.gsid for e in entries)
        self._expected: object = ids if len(ids) > 1 else ids[0]  # as itemgetter has it
        first = self.entries[0].offset
        self._stamp = slice(*(first + at for at in _STAMP))

    def _layer(self, layer: Sequence[int], places: dict[int, tuple[int, int]]) -> struct.Struct:
        """Return what unpacks the records numbered in ``layer``, and note the place of the fields of each."""
        form, at = ">", 0
        place = max((end for _, end in places.values()), default=0)
        for i in layer:
            entry = self.entries[i]
            form += f"{entry.offset - at}x{_COUNTER_FIELDS if entry.counter else _FULL_FIELDS}"
            at = entry.end
            places[i] = (place, place + (4 if entry.counter else 7))
            place = places[i][1]
        return struct.Struct(f"{form}{self.size - at}x")

    def fields(self, data: bytes) -> tuple[int, ...]:
        """Decode all records from such a copy: their fields, one record after the other.

        Raises ProtocolError: a record belongs to another sensor than the table said.
        """
        fields: tuple[int, ...] = self._unpack(data)
        for unpack in self._more:
            fields += unpack(data)
        if self._ids(fields) != self._expected:
            self._refuse_others(fields)
        return fields

    def _refuse_others(self, fields: tuple[int, ...]) -> None:
        for entry, (begin, end) in zip(self.entries, self._spans, strict=True):
            if fields[begin] == entry.gsid or not any(fields[begin:end]):
                continue
            record = entry.named(fields[begin:end])
            if record.gsid or record.written:
                msg = f"the record of {entry.name} carries the id {record.gsid} instead of {entry.gsid}"
                raise ProtocolError(msg)

    def records(self, fields: tuple[int, ...]) -> list[Record]:
        """Name what :meth:`fields` returned: one record for each sensor."""
        return [entry.named(fields[begin:end]) for entry, (begin, end) in zip(self.entries, self._spans, strict=True)]

    def newer(self, ping: bytes, pong: bytes) -> bool:
        """Whether the copy from the ping buffer is the newer one, by the record of the first sensor."""
        a, b = ping[self._stamp], pong[self._stamp]  # big-endian numbers compare as bytes do
        if a != b and a != _UNKNOWN != b:
            return a > b
        first = self.entries[0]
        return newer(*(first.record(copy, first.offset) for copy in (ping, pong)))


def _layers(entries: Sequence[Entry]) -> list[list[int]]:
    """Sort records by their place; those that overlap one before (a table that is wrong) into further layers."""
    layers: list[list[int]] = []
    for i in sorted(range(len(entries)), key=lambda i: entries[i].offset):
        room = (layer for layer in layers if entries[layer[-1]].end <= entries[i].offset)
        layer = next(room, None)
        if layer is None:
            layers.append([i])
        else:
            layer.append(i)
    return layers
