"""Meters of ElmorLabs against their virtual far sides: truth, what they were left in, and each fault."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pmtpy.backends import pmd
from pmtpy.backends._serial.transport import Piece
from pmtpy.backends.machine import Machine
from pmtpy.backends.pmd import codec
from pmtpy.backends.pmd._source import PmdSource
from pmtpy.backends.pmd._tick_clock import TickClock
from pmtpy.backends.pmd.device import Meter, open_meter
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.core.rows import Layout
from pmtpy.emulators.pmd import PmdBoard, RailBoard, open_virtual
from pmtpy.emulators.serial_board import MemoryLine, PtyBoard
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, ProtocolError, ReadError, SourceLostError, TargetError
from pmtpy.sensor.sensor import Sensor, acquisition_of
from pmtpy.testing import check_lost, check_source
from tests.support.repeated import OwnClock

LOAD = "square:low=40,high=100,hz=0.25"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return make_world("constant:120", clock=clock)


def opened(board: PmdBoard | RailBoard, clock: ManualClock, stamps: int = 4) -> PmdSource:
    source = pmd.open_source("virtual", clock=clock, transport=MemoryLine(board, clock), stamps=stamps)
    assert isinstance(source, PmdSource)
    return source


def used(sensor: Sensor, clock: ManualClock, seconds: float) -> float:
    before = sensor.read()
    for _ in range(round(seconds / 0.1)):
        clock.advance(0.1)
        after = sensor.read()
    return after.joules[0] - before.joules[0]


@pytest.mark.parametrize("model", ["pmd2", "pmd2x", "wireview"])
def test_a_polled_meter_tells_the_truth(model: str) -> None:
    # A power between two polls 20 ms apart: half of a step of 60 W at each of ten edges, and whole milliwatts.
    check_source(lambda clock: open_virtual(clock=clock, load=LOAD, model=model), LOAD, relative=0.003)


def test_a_short_stamp_is_unwrapped_against_the_host_also_over_a_gap_of_many_turns() -> None:
    clock = OwnClock()  # no poller takes what the board sends before its pause
    world = make_world("constant:120", clock=clock)
    board = PmdBoard(world)
    with Sensor(opened(board, clock, stamps=2), "pmd", clock) as sensor:
        sensor.read()
        before = clock.now_ns()
        begin = sensor.read()
        for i in range(40):
            clock.advance(0.1)
            end = sensor.read()
            if i == 20:
                clock.advance(0.3)  # nothing is sent for 0.3 s: thirteen turns
                board._begin(clock.now_ns())
        assert (end.t_ns - begin.t_ns) / 1e9 == pytest.approx((clock.now_ns() - before) / 1e9, abs=0.03)
        # The gap is counted and its energy is not invented: 120 W but for 0.3 s (to some records' spacing).
        assert end.joules[0] - begin.joules[0] == pytest.approx(120 * 4.0, abs=120 * 0.04)


@pytest.mark.parametrize("baud", codec.BAUDS)
@pytest.mark.parametrize("streaming", [True, False])
def test_it_is_opened_at_whatever_rate_it_was_left_and_while_it_streams(
    *, baud: int, streaming: bool, clock: ManualClock, world: World
) -> None:
    board = PmdBoard(world, baud=baud, streaming=streaming)
    source = opened(board, clock)
    assert (board.baud, board.streaming) == (921600, True)
    source.close()
    assert (board.baud, board.streaming) == (115200, False)


def test_a_command_that_another_program_broke_off_is_no_obstacle(clock: ManualClock, world: World) -> None:
    board = PmdBoard(world)
    board.feed(codec.start_command(4)[:2], clock.now_ns())
    opened(board, clock).close()


@pytest.mark.parametrize("lost", [1, 7, 19, 20, 333])
def test_lost_bytes_are_lost_records_and_no_wrong_number(lost: int, clock: ManualClock, world: World) -> None:
    board = PmdBoard(world)
    with Sensor(opened(board, clock), "pmd", clock) as sensor:
        used(sensor, clock, 1.0)
        before = sensor.read()
        for i in range(20):
            board.drop_bytes = lost if i == 10 else 0
            clock.advance(0.1)
            after = sensor.read()
        # 120 W for 2 s but for the records lost, each 0.22 ms, and those that it takes to agree again.
        assert after.joules[0] - before.joules[0] == pytest.approx(240.0, abs=120 * 0.00025 * (lost / 20 + 8))
        rows = sensor.history()
        assert np.nansum(rows.lost) >= lost // 20
        assert abs(np.nanmax(rows.watts) - 120) < 25  # six times the noise of four pairs


def test_the_oscillator_is_fitted_in_each_session() -> None:
    random = np.random.default_rng(1)
    true_hz = 2_936_100.0
    ticks_clock = TickClock(1 << 32)
    errors = []
    tick = 0
    for i in range(1, 300):  # 30 s; a piece each 0.1 s arrives 1 ms late, and by chance up to some ms more
        arrival = i * 100_000_000
        made = arrival - 1_000_000 - round(random.exponential(1e6))
        ticks = np.arange(tick, made * 1e-9 * true_hz, 614.0).astype(np.int64)[1:]
        tick = int(ticks[-1])
        raw = ticks_clock.unwrap(ticks % (1 << 32), arrival)
        placed = ticks_clock.place(raw, [(int(raw[-1]), arrival)])
        errors.append(float(placed[-1] - (tick + 0.0) / true_hz * 1e9 - 1e6))
    # The edge of exponential delays over 20 s of 200 points: some of them are within 10 us of the least delay.
    assert ticks_clock.rate_hz == pytest.approx(true_hz, rel=2e-5)
    assert np.abs(errors[100:]).max() < 0.3e6


def test_a_converter_at_its_end_is_a_loss_and_no_reading(clock: ManualClock) -> None:
    world = make_world("constant:2000", clock=clock)
    board = PmdBoard(world, shares={"pcie1": 0.9, "eps1": 0.1})  # 150 A through pcie1, which sees 99.9
    with Sensor(opened(board, clock), "pmd", clock) as sensor:
        used(sensor, clock, 1.0)
        state = sensor.read()
        watts = dict(zip(state.names, state.watts, strict=True))
        assert np.isnan(watts["pcie1"])
        assert np.isnan(watts["total"])
        assert watts["eps1"] == pytest.approx(200, abs=10)


def test_negative_codes_are_kept(clock: ManualClock) -> None:
    world = make_world("constant:0", clock=clock)
    with Sensor(opened(PmdBoard(world), clock), "pmd", clock) as sensor:
        # 9,000 records of four pairs with 1.5 codes of noise each: 12 V * 0.0488 A * 3 / sqrt(9000) = 19 mW.
        assert used(sensor, clock, 2.0) / 2.0 == pytest.approx(0.0, abs=0.1)


def test_the_total_is_what_was_asked_for_and_a_slot_says_what_is_missing(clock: ManualClock) -> None:
    source = open_virtual(clock=clock, load="constant:100", slot="eps1", pairs="pcie1, pcie2")
    layout = Layout(source.channels)
    assert [layout.names[i] for i in layout.in_total] == ["pcie1", "pcie2"]
    assert next(c for c in source.channels if c.name == "eps1").label == "slot, 12 V"
    assert any("3.3 V" in note for note in source.identity.notes)
    source.close()
    with pytest.raises(TargetError, match="pcie1"):
        open_virtual(clock=clock, pairs="pcie9")


def test_wires_of_a_connector_are_not_added_to_it(clock: ManualClock) -> None:
    source = open_virtual(clock=clock, load="constant:100", model="pmd2x")
    layout = Layout(source.channels)
    assert "hpwr" in {layout.names[i] for i in layout.in_total}
    assert not any("wire" in layout.names[i] for i in layout.in_total)
    source.close()


@pytest.mark.parametrize("firmware", [5, 6])
def test_the_configuration_is_read_and_written_and_verified(firmware: int, clock: ManualClock, world: World) -> None:
    board = PmdBoard(world, firmware=firmware, offsets=(1, -2, 3, -4, 5, -6, 7, -128))
    meter = Meter(MemoryLine(board, clock), "virtual")
    meter.connect()
    config = meter.read_config()
    assert config.offsets == (1, -2, 3, -4, 5, -6, 7, -128)
    meter.write_config(config.but(averaging=3), store=True)
    assert board.config.averaging == 3
    with pytest.raises(ValueError, match="averaging"):
        config.but(averaging=4)
    with pytest.raises(ValueError, match="offsets"):
        config.but(offsets=(200,) * 8)
    board.silent = True
    with pytest.raises(ReadError):
        meter.write_config(config, store=False)


def test_offsets_are_added(clock: ManualClock, world: World) -> None:
    with Sensor(opened(PmdBoard(world, offsets=(0, 20) * 4), clock), "pmd", clock) as sensor:
        # The whole codes of four currents: within half a code of 0.0488 A at 12 V, dithered by noise.
        assert used(sensor, clock, 1.0) == pytest.approx(120, abs=0.5)
        assert any("offsets" in note for note in sensor.identity.notes)


def test_a_packed_configuration_has_the_fields_where_the_maker_puts_them() -> None:
    config = codec.Config(5, (1,) * 8, 1, 0x1234, 2, 3, 1, 2, bytes(range(11)))
    packed = codec.pack_config(config, store=True)
    assert len(packed) == 34
    assert packed[0] == 5
    assert packed[4:12] == b"\1" * 8
    assert (packed[12], packed[16], packed[17], packed[20], packed[21], packed[22]) == (1, 2, 3, 1, 1, 2)
    assert struct.unpack_from("<H", packed, 14)[0] == 0x1234
    with pytest.raises(ProtocolError):
        codec.parse_config(packed[:-1])


def test_half_an_answer_is_a_lost_row_and_the_next_is_right(clock: ManualClock, world: World) -> None:
    board = RailBoard(world, codec.POLLED[0])
    source = pmd.open_source("virtual", clock=clock, transport=MemoryLine(board, clock))
    board.half = True
    assert len(source.read()) == 0
    clock.advance(0.1)
    block = source.read()
    assert block.lost is not None
    assert block.lost[0] == 1
    assert block.raw[0][2] == pytest.approx(12_000, abs=1)  # a tenth of 120 W, in milliwatts


class _Packets:
    """A line on which answers come in packets of 64 bytes, of which some may be on their way for long."""

    def __init__(self, board: RailBoard) -> None:
        self._board = board
        self._here, self.on_their_way = deque[bytes](), deque[bytes]()
        self.stalled = 0  # how many of the next packets stay on their way

    def write(self, data: bytes) -> None:
        self._board.feed(data, 0)
        answer = self._board.produce(0)
        came = [answer[i : i + 64] for i in range(0, len(answer), 64)]
        self.arrive()
        self._here += came[: len(came) - self.stalled]
        self.on_their_way += came[len(came) - self.stalled :]
        self.stalled = 0

    def arrive(self) -> None:
        self._here += self.on_their_way
        self.on_their_way.clear()

    def receive(self) -> list[Piece]:
        return [(0, self._here.popleft())] if self._here else []

    def wait(self, timeout_s: float) -> bool:
        return bool(self._here)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("before_it_is_asked_again", [True, False])
@pytest.mark.parametrize("stalled", [1, 2, 3])
def test_the_rest_of_an_answer_that_comes_late_is_no_part_of_the_next(
    stalled: int, clock: ManualClock, world: World, *, before_it_is_asked_again: bool
) -> None:
    line = _Packets(RailBoard(world, codec.POLLED[0]))
    source = pmd.open_source("virtual", clock=clock, transport=line)
    true = source.read().raw[0]
    line.stalled = stalled
    taken = [source.read()]
    assert len(taken[0]) == 0
    if before_it_is_asked_again:
        line.arrive()
    for _ in range(5):
        clock.advance(0.1)
        taken.append(source.read())
    rows = [block for block in taken if len(block)]
    assert len(rows) == (5 if before_it_is_asked_again else 4)
    for block in rows:
        assert block.raw[0] == pytest.approx(true)
    assert rows[0].lost is not None
    assert rows[0].lost[0] == 6 - len(rows)


def test_what_does_not_introduce_itself_is_refused_with_the_rates_that_were_tried(
    clock: ManualClock, world: World
) -> None:
    board = PmdBoard(world)
    board.silent = True
    with pytest.raises(BackendUnavailableError, match="answers nothing") as error:
        opened(board, clock)
    assert "921600" in str(error.value)


def test_a_polled_meter_is_never_sent_what_would_begin_a_calibration(clock: ManualClock, world: World) -> None:
    board = RailBoard(world, codec.POLLED[1])
    sent = bytearray()
    line = MemoryLine(board, clock)

    class Listened:
        def write(self, data: bytes) -> None:
            sent.extend(data)
            line.write(data)

        receive, wait, close = line.receive, line.wait, line.close

    pmd.open_source("virtual", clock=clock, transport=Listened()).close()
    assert set(sent) <= {0, 1, 4}


def test_a_meter_that_is_unplugged_is_lost(clock: ManualClock, world: World) -> None:
    board = PmdBoard(world)
    source = opened(board, clock)
    clock.advance(0.1)
    source.read()
    board.attached = False
    check_lost(source, clock)
    source.close()


# -- behind a terminal -------------------------------------------------------------------------------------------------


@pytest.fixture
def port(tmp_path: Path) -> Iterator[PtyBoard]:
    world = make_world("constant:120", clock=HOST_CLOCK)
    board = PmdBoard(world, baud=921600, streaming=True)
    with PtyBoard(board, HOST_CLOCK, tmp_path / "ttyUSB7") as served:
        yield served


def _logger(path: str, baud: int) -> bytes:
    """Ask as a small program would that knows nothing of ours: open, set the rate, stop, welcome."""
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
    try:
        attributes = termios.tcgetattr(fd)
        attributes[0] = attributes[1] = attributes[3] = 0
        attributes[4] = attributes[5] = getattr(termios, f"B{baud}")
        attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 0, 10
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
        os.write(fd, b"\x07\0\0\0")
        while os.read(fd, 4096):
            pass
        os.write(fd, b"\0")
        return os.read(fd, 18)
    finally:
        os.close(fd)


def test_a_real_port_is_read_through_the_relay_and_after_it_was_unplugged_again(port: PtyBoard) -> None:
    source = pmd.open_source(port.path, clock=HOST_CLOCK)
    assert any("pseudo-terminal" in note for note in source.identity.notes)
    with Sensor(source, "pmd", HOST_CLOCK) as sensor:
        with pytest.raises(BackendUnavailableError, match="in use"):
            open_meter(port.path, clock=HOST_CLOCK, timeout_s=0.05)
        deadline = time.monotonic() + 60
        while len(sensor.history().t_ns) < 500 and time.monotonic() < deadline:
            HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + 20_000_000, threading.Event())
            sensor.read()
        assert np.nanmean(sensor.history().watts[:, 0]) == pytest.approx(120, abs=1)
        port.unplug()
        with pytest.raises(SourceLostError, match="reopen"):
            read_until(sensor, deadline)
    port.plug_in()
    again = pmd.open_source(port.path, clock=HOST_CLOCK, transport="direct")
    again.close()
    assert _logger(port.path, 115200) == b"ElmorLabs PMD-USB"


def read_until(sensor: Sensor, deadline: float) -> None:
    while time.monotonic() < deadline:
        sensor.read()


def test_a_port_that_another_program_has_locked_names_it(port: PtyBoard) -> None:
    fd = os.open(port.path, os.O_RDWR | os.O_NOCTTY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(BackendUnavailableError, match="in use by"):
            pmd.open_source(port.path, clock=HOST_CLOCK, timeout_s=0.05)
    finally:
        os.close(fd)


# -- what doctor says --------------------------------------------------------------------------------------------------


def test_without_a_name_no_port_is_asked_and_the_cure_is_to_name_one() -> None:
    with pytest.raises(BackendUnavailableError, match="name its port") as error:
        pmd.open_source(None, clock=ManualClock())
    assert "pmd:virtual" in str(error.value)
    assert pmd.discover().devices == ()


def test_brltty_is_named_where_it_has_taken_the_meter(tmp_path: Path) -> None:
    usb = tmp_path / "sys/bus/usb/devices/1-2"
    usb.mkdir(parents=True)
    (usb / "idVendor").write_text("1a86\n")
    (usb / "idProduct").write_text("7523\n")
    machine = Machine(tmp_path, tmp_path / "sys")
    assert pmd.discover(machine=machine).findings[0].obstacle is not None
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/brltty").touch()
    (finding,) = pmd.discover(machine=machine).findings
    assert "brltty" in finding.found
    assert finding.cure[0] == "$ sudo apt-get remove brltty"
    assert replace(finding).usable is False
    assert "does not exist" in pmd.discover("/dev/ttyUSB99", machine=machine).findings[0].found


@pytest.mark.parametrize("stamps", [2, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_the_line_does_to_its_bytes_energy_is_right_or_uncovered(stamps: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    clock = ManualClock()
    world = make_world("constant:120", clock=clock)

    class Damaged(PmdBoard):
        def produce(self, now_ns: int) -> bytes:
            data = bytearray(super().produce(now_ns))
            if self.streaming and len(data) > 40 and random.random() < 0.3:
                at, size = int(random.integers(len(data))), int(random.integers(1, 30))
                if random.random() < 0.5:
                    del data[at : at + size]
                else:
                    data[at:at] = random.bytes(size)
            return bytes(data)

    with Sensor(opened(Damaged(world), clock, stamps), "pmd", clock) as sensor:
        before = sensor.read()
        used(sensor, clock, 1.5)
        newest = acquisition_of(sensor).newest
        assert newest is not None
        seconds = (newest.t_ns - before.t_ns) / 1e9
        known = newest.joules[0] - before.joules[0] + 120 * newest.uncovered_ns[0] / 1e9
        assert known == pytest.approx(120 * seconds, rel=0.05)
        assert seconds == pytest.approx(1.5, abs=0.05)
        assert any("damaged" in w for w in acquisition_of(sensor).intake.source.remarks(0, clock.now_ns()).warnings)


@pytest.mark.parametrize(("share", "stamps"), [(0.01, 4), (0.2, 4), (0.2, 2)])
def test_damaged_bits_cost_their_records_and_neither_time_nor_clock(share: float, stamps: int) -> None:
    random = np.random.default_rng(3)
    clock = ManualClock()
    world = make_world("constant:120", clock=clock)
    size = stamps + 16

    class Noisy(PmdBoard):
        records = flipped = 0

        def produce(self, now_ns: int) -> bytes:
            data = bytearray(super().produce(now_ns))
            if self.streaming and len(data) >= size and len(data) % size == 0:
                for at in range(0, len(data), size):
                    self.records += 1
                    if random.random() < share:  # in its stamp, or in what is always 0: elsewhere nothing shows it
                        bit = int(random.integers(8 * stamps))
                        data[at + bit // 8] ^= 1 << bit % 8
                        self.flipped += 1
            return bytes(data)

    board = Noisy(world)
    with Sensor(opened(board, clock, stamps), "pmd", clock) as sensor:
        before = sensor.read()
        used(sensor, clock, 3.0)
        newest = acquisition_of(sensor).newest
        assert newest is not None
        seconds, uncovered_s = (newest.t_ns - before.t_ns) / 1e9, newest.uncovered_ns[0] / 1e9
        assert seconds == pytest.approx(3.0, abs=0.05)
        assert sensor.read().lost <= 4 * board.flipped
        assert uncovered_s <= 5 * board.flipped / board.records * seconds
        assert newest.joules[0] - before.joules[0] == pytest.approx(120 * (seconds - uncovered_s), rel=0.02)
        assert any(
            "cannot be seen" in w for w in acquisition_of(sensor).intake.source.remarks(0, clock.now_ns()).warnings
        )


@pytest.mark.parametrize("baud", [115200, 2000000])
def test_the_stream_is_understood_at_the_slowest_and_the_fastest_rate(baud: int, clock: ManualClock) -> None:
    world = make_world("constant:120", clock=clock)
    line = MemoryLine(PmdBoard(world, noise_codes=0.0), clock)
    source = pmd.open_source("virtual", clock=clock, transport=line, baud=baud)
    with Sensor(source, "pmd", clock) as sensor:
        assert used(sensor, clock, 3.0) == pytest.approx(360, rel=0.01)
        assert sensor.read().lost == 0


def test_a_meter_whose_stamps_begin_anew_is_a_gap_and_no_jump_of_time(clock: ManualClock, world: World) -> None:
    board = PmdBoard(world)
    with Sensor(opened(board, clock), "pmd", clock) as sensor:
        before = sensor.read()
        used(sensor, clock, 1.0)
        board.tick_offset = -(1 << 22)
        used(sensor, clock, 1.0)
        newest = acquisition_of(sensor).newest
        assert newest is not None
        assert (newest.t_ns - before.t_ns) / 1e9 == pytest.approx(2.0, abs=0.05)
        assert sensor.read().lost < 1000
