"""The two ways to read a block: whole, and only what is needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.occ._device import BlockReader, Export
from pmtpy.backends.occ.layout import BLOCK_BYTES, BUFFER_BYTES, Decoder, Entry, Table
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.occ import EmulatedOcc, sensors_of
from pmtpy.emulators.world import make_world
from pmtpy.errors import PmtError, ProtocolError, ReadError

PING, PONG = 0xDC00, 0x18C00
POWERS = ["PWRSYS", "PWRGPU", "PWRPROC", "PWRVDD", "PWRVDN", "PWRMEM", "PWRAPSSCH0", "PWRAPSSCH12"]
OTHERS = ["VOLTDROOPCNTQ2", "TEMPNEST", "PROCOT3"]


def emulated() -> dict[str, bytes]:
    """One block with one, and one with two valid buffers."""
    clock = ManualClock()
    occ = EmulatedOcc(make_world("square:low=100,high=500,hz=3", clock=clock), sensors_of(0))
    images = {}
    for _ in range(12):
        clock.advance(0.004)
        occ.advance(clock.now_ns())
        images["both" if occ.image[PING] == occ.image[PONG] == 1 else "one"] = bytes(occ.image)
    return images


IMAGES = emulated()


class Counted(Export):
    """Counts calls and bytes."""

    __slots__ = ("asked",)

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.asked: list[int] = []

    def read(self, offset: int, size: int) -> bytes:
        self.asked.append(size)
        return super().read(offset, size)

    def fill(self, buffer: bytearray, offset: int, done: int = 0) -> None:
        self.asked.append(len(buffer))
        super().fill(buffer, offset, done)


class Opened:
    """A reader of the first block of a file, or the error that opening it gave."""

    def __init__(self, export: Counted, names: list[str], *, whole: bool) -> None:
        self.export = export
        self.error: tuple[type[PmtError], str] | None = None
        try:
            self.reader = BlockReader(export, 0, names, ManualClock(), whole=whole)
        except PmtError as error:
            self.error = type(error), str(error)

    def answer(self) -> object:
        """What the reader says, in a form that can be compared: records, or the kind of error and its words."""
        try:
            return self.error or self.reader.read().records()
        except PmtError as error:
            return type(error), str(error)


@contextlib.contextmanager
def opened(path: Path, names: list[str], *, whole: bool) -> Iterator[Opened]:
    export = Counted(str(path))
    try:
        yield Opened(export, names, whole=whole)
    finally:
        export.close()


damage = st.lists(
    st.tuples(
        st.one_of(
            st.integers(0, 23),
            st.integers(0x400 + 48 * 150, 0x400 + 48 * 182),
            st.sampled_from([PING, PONG, PING + 6872, PONG + 6872, PING + 6874, PONG + 6874]),
            st.integers(PING, PING + 15_400),
            st.integers(PONG, PONG + 15_400),
        ),
        st.binary(min_size=1, max_size=64),
    ),
    max_size=6,
)


def damaged(image: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    block = bytearray(image)
    for at, value in changes:
        block[at : at + len(value)] = value
    return bytes(block)


@given(
    valid=st.sampled_from(["one", "both"]),
    before=damage,
    after=damage,
    names=st.lists(st.sampled_from(POWERS + OTHERS), min_size=1, max_size=6, unique=True),
)
def test_both_ways_agree_on_any_image(
    tmp_path_factory: pytest.TempPathFactory,
    valid: str,
    before: list[tuple[int, bytes]],
    after: list[tuple[int, bytes]],
    names: list[str],
) -> None:
    path = tmp_path_factory.mktemp("occ") / "file"
    path.write_bytes(damaged(IMAGES[valid], before))
    with opened(path, names, whole=True) as whole, opened(path, names, whole=False) as needed:
        assert whole.answer() == needed.answer()
        # What happens to header and table after opening is seen by the one at once, by the other within two seconds.
        changes = [(at, value) for at, value in after if at >= PING]
        path.write_bytes(damaged(path.read_bytes(), changes))
        assert whole.answer() == needed.answer()


@given(data=st.data())
def test_both_ways_agree_on_garbage_behind_a_good_header(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    noise = data.draw(st.binary(min_size=256, max_size=256))
    block = bytearray((noise * (BLOCK_BYTES // 256 + 1))[:BLOCK_BYTES])
    block[:PING] = IMAGES["one"][:PING]
    block[PING], block[PONG] = data.draw(st.sampled_from([(1, 1), (1, 0), (0, 1), (0, 0), (2, 1)]))
    path = tmp_path_factory.mktemp("occ") / "file"
    path.write_bytes(block)
    with opened(path, POWERS, whole=True) as whole, opened(path, POWERS, whole=False) as needed:
        assert whole.error is None
        assert whole.answer() == needed.answer()


def entry(index: int, gsid: int, *, counter: bool, offset: int) -> Entry:
    units = "#" if counter else "W"
    return Entry(f"S{index}", units, gsid, 2000.0, 1.0, 0x80, 1, counter=counter, offset=offset, function=0)


entries = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(8, 400)), min_size=1, max_size=8).map(
    lambda rows: [entry(i, g, counter=c, offset=o) for i, (g, c, o) in enumerate(rows)]
)


@given(sensors=entries, noise=st.binary(min_size=448, max_size=448), marked=st.booleans())
def test_records_decoded_together_are_those_decoded_one_by_one(
    sensors: list[Entry], noise: bytes, *, marked: bool
) -> None:
    """Whatever their order, and even where a wrong table lets them overlap."""
    buffer = bytearray(noise)
    for sensor in sensors if marked else []:
        buffer[sensor.offset : sensor.offset + 2] = sensor.gsid.to_bytes(2, "big")
    decoder = Decoder(sensors)
    data = bytes(buffer[: decoder.size])
    one_by_one = [sensor.record(data, sensor.offset) for sensor in sensors]
    wrong = [r for e, r in zip(sensors, one_by_one, strict=True) if r.gsid != e.gsid and (r.gsid or r.written)]
    if wrong:
        with pytest.raises(ProtocolError, match="instead of"):
            decoder.fields(data)
    else:
        assert decoder.records(decoder.fields(data)) == one_by_one


@pytest.mark.parametrize(("valid", "whole"), [("one", False), ("both", False), ("one", True), ("both", True)])
def test_a_reading_asks_the_system_three_times_at_most(tmp_path: Path, valid: str, *, whole: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(IMAGES[valid])
    with opened(path, POWERS, whole=whole) as block:
        block.export.asked.clear()
        block.reader.read()
    end = 7880 + 48  # of PWRMEM, the last one
    assert block.export.asked == ([BLOCK_BYTES, 1] if whole else [end, end, 1])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("valid", ["one", "both"])
def test_a_buffer_that_is_taken_over_between_two_calls_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valid: str, *, whole: bool
) -> None:
    """The chosen buffer was valid, and is not when it is looked at again: however little time has passed."""
    path = tmp_path / "file"
    path.write_bytes(IMAGES[valid])
    pread = os.pread
    with opened(path, POWERS, whole=whole) as block:
        good = block.reader.read()
        monkeypatch.setattr(os, "pread", lambda fd, n, at: b"\0" if n == 1 else pread(fd, n, at))
        with pytest.raises(ReadError, match="rewritten while it was read, 3 times"):
            block.reader.read()
        monkeypatch.undo()
        assert block.reader.read() is good


@pytest.mark.parametrize("whole", [False, True])
def test_of_two_valid_buffers_both_ways_take_the_newer_one(tmp_path: Path, *, whole: bool) -> None:
    path = tmp_path / "file"
    image = bytearray(IMAGES["both"])
    table = Table.parse(bytes(image)).entries["PWRSYS"]
    stamps = {at: table.record(bytes(image[at : at + BUFFER_BYTES]), table.offset).stamp for at in (PING, PONG)}
    for _ in range(2):
        path.write_bytes(image)
        with opened(path, ["PWRSYS"], whole=whole) as block:
            record = block.reader.read().records()[0]
        assert record.stamp == max(stamps.values())
        ping, pong = (bytes(image[at : at + BUFFER_BYTES]) for at in (PING, PONG))
        image[PING : PING + BUFFER_BYTES], image[PONG : PONG + BUFFER_BYTES] = pong, ping
