"""A PowerSensor2 against its virtual far side, and the names of PMT that have no backend."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends import powersensor2
from pmtpy.backends.powersensor2 import Decoder
from pmtpy.core.clock import HOST_CLOCK, ManualClock
from pmtpy.core.source import Source
from pmtpy.emulators.powersensor2 import Board
from pmtpy.emulators.serial_board import MemoryLine, PtyBoard
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, SourceLostError, TargetError
from pmtpy.sensor.registry import create
from pmtpy.sensor.sensor import Sensor, acquisition_of
from pmtpy.testing import check_lost


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return make_world("constant:50", clock=clock)


def opened(board: Board, clock: ManualClock) -> Source:
    return powersensor2.open_source("virtual", clock=clock, transport=MemoryLine(board, clock))


def test_a_board_that_was_left_streaming_is_opened_and_left_quiet(clock: ManualClock, world: World) -> None:
    board = Board(world, streaming=True)
    source = opened(board, clock)
    assert [c.name for c in source.channels] == ["sensor0", "sensor1", "sensor3"]
    source.close()
    assert not board.streaming


@pytest.mark.parametrize("lost", [1, 2, 3, 61])
def test_lost_bytes_are_lost_rows_and_no_wrong_number(lost: int, clock: ManualClock, world: World) -> None:
    board = Board(world)
    with Sensor(opened(board, clock), "ps2", clock) as sensor:
        for i in range(40):
            board.drop = lost if i == 20 else 0
            clock.advance(0.05)
            acquisition_of(sensor).step()
            if i == 10:
                before = sensor.read()
        after = sensor.read()
        # 50 W for 1.45 s but for the row after the loss; a round is 0.36 ms.
        assert after.joules[0] - before.joules[0] == pytest.approx(50 * 1.45, abs=0.3)
        assert after.lost - before.lost >= 1
        assert any("lost" in w for w in acquisition_of(sensor).intake.source.remarks(0, clock.now_ns()).warnings)


def test_a_mark_stands_on_its_row(clock: ManualClock, world: World) -> None:
    source = opened(Board(world), clock)
    clock.advance(0.1)
    source.read()
    assert source.mark("here")
    clock.advance(0.1)
    assert [label for _, label in source.read().marks] == ["here"]
    source.close()


@pytest.mark.parametrize("pause_s", [0.06, 0.1, 0.3, 0.7])
def test_what_a_board_did_not_convert_is_lost_and_not_spread_over_the_pause(pause_s: float, clock: ManualClock) -> None:
    world = make_world("square:low=20,high=60,hz=1", clock=clock)
    board = Board(world)
    with Sensor(opened(board, clock), "ps2", clock) as sensor:
        for _ in range(25):
            clock.advance(0.04)
            acquisition_of(sensor).step()
        before, plain = sensor.read(), board.produce
        board.produce = lambda now_ns: plain(now_ns)[:0]  # type: ignore[method-assign]  # nobody gets those
        clock.advance(pause_s)
        acquisition_of(sensor).step()
        board.produce = plain  # type: ignore[method-assign]
        known_ns = clock.now_ns()
        for _ in range(10):
            clock.advance(0.04)
            acquisition_of(sensor).step()
        after = sensor.read()
        true = float(world.joules(clock.now_ns()) - world.joules(known_ns))
    assert (after.uncovered_ns[0] - before.uncovered_ns[0]) / 1e9 == pytest.approx(pause_s, abs=0.01)
    assert after.joules[0] - before.joules[0] == pytest.approx(true, abs=60 * 0.01)
    assert after.lost - before.lost == pytest.approx(pause_s / (3 * 119e-6), rel=0.1)


def test_rows_that_come_late_are_neither_lost_nor_misplaced(clock: ManualClock, world: World) -> None:
    board = Board(world)
    plain, rest = board.produce, b""

    def late(now_ns: int) -> bytes:
        nonlocal rest
        came = rest + plain(now_ns)
        came, rest = (came[:60], came[60:]) if i == 40 else (came, b"")  # the others with the next reading
        return came

    with Sensor(opened(board, clock), "ps2", clock) as sensor:
        board.produce = late  # type: ignore[method-assign]
        for i in range(60):
            if i == 30:
                before = sensor.read()
            clock.advance(0.2 if i == 40 else 0.04)
            for _ in range(3):  # who reads again at once does not make them lost
                acquisition_of(sensor).step()
        after = sensor.read()
    assert after.lost == before.lost
    assert after.uncovered_ns == before.uncovered_ns
    assert after.joules[0] - before.joules[0] == pytest.approx(50 * (after.t_ns - before.t_ns) / 1e9, abs=0.2)


def test_a_board_without_sensors_says_so_and_one_that_goes_is_lost(clock: ManualClock, world: World) -> None:
    with pytest.raises(BackendUnavailableError, match="no sensor of virtual is in use"):
        opened(Board(world, erased=True), clock)
    board = Board(world)
    source = opened(board, clock)
    board.attached = False
    check_lost(source, clock)
    source.close()
    with pytest.raises(BackendUnavailableError, match="powersensor2:virtual"):
        powersensor2.open_source(None, clock=clock)


def test_a_board_that_comes_back_goes_on_after_a_gap(clock: ManualClock, world: World) -> None:
    board = Board(world)
    with Sensor(opened(board, clock), "ps2", clock, open_again=lambda: opened(board, clock)) as sensor:
        for _ in range(20):
            clock.advance(0.05)
            acquisition_of(sensor).step()
        before = sensor.read()
        board.attached = False
        with pytest.raises(SourceLostError):
            sensor.read()
        clock.advance(2.0)
        board.attached, board.streaming = True, False
        sensor.reopen()
        for _ in range(20):
            clock.advance(0.05)
            acquisition_of(sensor).step()
        after = sensor.read()
    assert after.joules[0] - before.joules[0] == pytest.approx(50.0, rel=0.02)  # of the second that is known
    assert (after.uncovered_ns[0] - before.uncovered_ns[0]) / 1e9 == pytest.approx(2.0, abs=0.1)


def test_a_converter_at_its_end_is_a_loss_and_no_reading(clock: ManualClock) -> None:
    world = make_world("square:low=50,high=9000,hz=1", clock=clock)
    with Sensor(opened(Board(world), clock), "ps2", clock) as sensor:
        before = sensor.read()
        for _ in range(40):
            clock.advance(0.05)
            acquisition_of(sensor).step()
        after = sensor.read()
    # Of each of its two seconds one half is beyond what the sensors reach.
    assert (after.uncovered_ns[0] - before.uncovered_ns[0]) / 1e9 == pytest.approx(1.0, abs=0.05)
    assert after.joules[0] - before.joules[0] == pytest.approx(50.0, abs=2.0)


def test_a_real_port_is_read(tmp_path: Path) -> None:
    world = make_world("constant:50", clock=HOST_CLOCK)
    with PtyBoard(Board(world, streaming=True), HOST_CLOCK, tmp_path / "ttyACM7") as port:
        source = powersensor2.open_source(port.path, clock=HOST_CLOCK)
        rows: list[float] = []
        for _ in range(3000):
            block = source.read()
            rows += block.raw.astype(np.float64).mean(axis=1).tolist()
            if len(rows) > 300:
                break
            HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + 20_000_000, threading.Event())
        source.close()
    assert np.mean(rows) == pytest.approx(512 + 50 / 3 / 12 * 0.185 / (2.5 / 512), abs=1)


@given(st.lists(st.integers(0, 1023), min_size=4, max_size=40), st.integers(1, 7))
def test_rounds_are_whole_however_the_stream_is_cut(levels: list[int], step: int) -> None:
    sensors = (0, 2)
    levels = levels[: len(levels) // 2 * 2]
    data = b"".join(bytes((0x80 | sensors[i % 2] << 4 | level >> 6, level & 0x3F)) for i, level in enumerate(levels))
    decoder = Decoder(sensors)
    out = [row for i in range(0, len(data), step) for row in decoder.feed(data[i : i + step])[0].tolist()]
    assert [level for row in out for level in row] == levels
    assert (decoder.skipped_bytes, decoder.lost) == (0, 0)


@pytest.mark.parametrize(("name", "instead"), [("likwid", "rapl"), ("xilinx", "hwmon"), ("dummy", "virtual")])
def test_a_name_of_pmt_without_a_backend_says_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(TargetError, match=f"no sensor is called '{name}'.*{instead}"):
        create(name)
