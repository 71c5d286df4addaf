from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.occ.layout import (
    BLOCK_BYTES,
    BUFFER_BYTES,
    UNKNOWN_TIME,
    Header,
    Record,
    Table,
    decimal_float,
    newer,
)
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.occ import EmulatedOcc, sensors_of
from pmtpy.emulators.world import make_world
from pmtpy.errors import ProtocolError

# Vectors worked out by hand from the specification and checked with independent C readers.
HEADER = bytes.fromhex("01010151 01000000 00000400 01300000 0000DC00 00018C00")
PWRSYS = bytes.fromhex(
    "50575253 59530000 00000000 00000000 57000000 000C0000 02030000 01000080 00010100 001AD800 00000000 00000000"
)
PWRSYS_RECORD = bytes.fromhex(
    "000C0000 283BCC58 E5600212 02120212 02120212 02120212 02120212 00000CD2 B1AAE286 49960A63 00000000 00000000"
)
DROOP = bytes.fromhex(
    "564F4C54 44524F4F 50434E54 51320000 23000000 00390000 7D000000 01000004 01000200 00039800 00000000 00000000"
)
DROOP_RECORD = bytes.fromhex("00390000 283BCC1A 46F00000 00000000 00790100 00000000")


def block_of(*rows: bytes, header: bytes = HEADER) -> bytearray:
    block = bytearray(BLOCK_BYTES)
    block[: len(header)] = header
    struct.pack_into(">H", block, 2, len(rows))
    for i, row in enumerate(rows):
        block[0x400 + 48 * i : 0x430 + 48 * i] = row
    return block


def made(*rows: bytes) -> bytes:
    return bytes(block_of(*rows))


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (0x00000100, 1), (0x00000203, 2000), (0x00000103, 1000), (0x00000502, 500), (0x00001901, 250),
        (0x00007D00, 125), (0x000271FF, 62.5), (0x000C35FE, 31.25), (0x003D09FD, 15.625), (0x00014DFD, 0.333),
        (0x000001FF, 0.1), (0x000001FE, 0.01), (0x000040FB, 0.00064), (0, 0),
    ],
)  # fmt: skip
def test_the_exponent_of_a_decimal_float_has_a_sign(word: int, value: float) -> None:
    assert decimal_float(word) == value


def test_the_header_of_the_specification_is_understood() -> None:
    assert Header.parse(HEADER) == Header(337, 0x400, 0xDC00, 0x18C00)


def test_a_full_row_and_its_record_are_understood() -> None:
    entry = Table.parse(made(PWRSYS)).entries["PWRSYS"]
    assert (entry.units, entry.gsid, entry.rate_hz, entry.scale, entry.kind, entry.offset) == (
        "W",
        12,
        2000,
        1,
        0x80,
        6872,
    )
    assert entry.record(PWRSYS_RECORD, 0) == Record(12, 44237296559456, 530, 530, 530, 14099063431814, 1234569827)


def test_a_counter_row_and_its_record_are_understood() -> None:
    entry = Table.parse(made(DROOP)).entries["VOLTDROOPCNTQ2"]
    assert (entry.counter, entry.offset, entry.rate_hz) == (True, 920, 125)
    assert entry.record(DROOP_RECORD, 0) == Record(57, 44237292455664, 1, 0, 0, 121, 0)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, b"\0"), (0, b"\2"), (1, b"\2"), (4, b"\0"), (12, b"\7"), (13, b"\x28"), (2, b"\0\0"), (2, b"\xff\xff"),
        (8, b"\0\0\0\4"), (8, b"\0\2\x58\0"), (16, b"\xff\xff\xff\xff"), (16, b"\0\1\x8c\0"), (20, b"\0\0\0\0"),
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_is_refused(at: int, value: bytes) -> None:
    block = block_of(PWRSYS)
    block[at : at + len(value)] = value
    with pytest.raises(ProtocolError, match="header cannot be used"):
        Table.parse(bytes(block))


def test_a_block_that_is_cut_short_is_refused() -> None:
    with pytest.raises(ProtocolError, match="cut short"):
        Table.parse(made(PWRSYS)[:-1])
    with pytest.raises(ProtocolError, match="cut short"):
        Header.parse(HEADER[:-1])


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        (0, b"\0", "its name is"), (0, b"\xff\xfe", "its name is"), (34, b"\3", "unknown structure"),
        (34, b"\2", "is a power"), (16, b"mW\0\0", "is a power"), (35, b"\0\0\0\7", "is at 7"),
        (35, b"\0\0\x9f\xe0", "is at 40928"), (35, b"\xff\xff\xff\xff", "is at"), (26, b"\0\0\0\0", "scale factor 0"),
        (26, b"\0\0\1\x7f", "scale factor 1e"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_is_left_out_and_the_others_stay(at: int, value: bytes, why: str) -> None:
    row = bytearray(PWRSYS)
    row[at : at + len(value)] = value
    table = Table.parse(made(bytes(row), DROOP))
    assert list(table.entries) == ["VOLTDROOPCNTQ2"]
    assert why in table.faults[0]


def test_of_two_rows_with_one_name_the_first_is_kept_and_it_is_reported() -> None:
    second = PWRSYS[:20] + b"\0\x0d" + PWRSYS[22:]
    table = Table.parse(made(PWRSYS, second))
    assert table.entries["PWRSYS"].gsid == 12
    assert "PWRSYS appears twice" in table.faults[0]


def test_a_name_of_sixteen_characters_needs_no_end() -> None:
    assert "ABCDEFGHIJKLMNOP" in Table.parse(made(b"ABCDEFGHIJKLMNOP" + PWRSYS[16:])).entries


EMULATED = bytes(EmulatedOcc(make_world("60", clock=ManualClock()), sensors_of(0)).image)


def test_the_emulated_block_has_the_rows_and_offsets_of_the_machine_that_was_measured() -> None:
    table = Table.parse(EMULATED)
    rows = list(table.entries)
    at = {
        name: (rows.index(name), table.entries[name].offset) for name in ("PWRSYS", "PWRGPU", "PWRAPSSCH15", "PWRMEM")
    }
    assert at == {"PWRSYS": (158, 6872), "PWRGPU": (159, 6920), "PWRAPSSCH15": (175, 7688), "PWRMEM": (179, 7880)}
    assert (len(rows), max(e.end for e in table.entries.values()), table.chunks) == (337, 15368, 4)


@given(st.lists(st.tuples(st.integers(0, 0x400 + 48 * 337), st.integers(0, 255)), max_size=30))
def test_no_table_leads_outside_of_the_buffers(changes: list[tuple[int, int]]) -> None:
    block = bytearray(EMULATED)
    for at, value in changes:
        block[at] = value
    try:
        table = Table.parse(bytes(block))
    except ProtocolError:
        return
    assert table.header.ping + BUFFER_BYTES <= BLOCK_BYTES
    assert table.header.pong + BUFFER_BYTES <= BLOCK_BYTES
    for entry in table.entries.values():
        assert 8 <= entry.offset < entry.end <= BUFFER_BYTES
        assert entry.scale > 0


@given(st.binary(max_size=64))
def test_any_bytes_are_a_header_or_an_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert 1 <= Header.parse(data).sensors <= 1066


def record(stamp: int, tag: int) -> Record:
    return Record(1, stamp, 0, 0, 0, 0, tag)


def test_of_two_valid_buffers_the_one_with_the_later_stamp_is_taken_and_pong_if_equal() -> None:
    assert newer(record(32, 1), record(16, 2))
    assert not newer(record(16, 2), record(32, 1))
    assert not newer(record(16, 1), record(16, 1))


def test_where_stamps_are_unknown_the_count_of_samples_decides_even_across_its_wrap() -> None:
    assert newer(record(UNKNOWN_TIME, 5), record(UNKNOWN_TIME, 2**32 - 70))
    assert not newer(record(UNKNOWN_TIME, 2**32 - 70), record(UNKNOWN_TIME, 5))
    assert not newer(record(UNKNOWN_TIME, 5), record(UNKNOWN_TIME, 5))
