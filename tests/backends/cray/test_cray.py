from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends import cray
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Layout
from pmtpy.emulators._tree import Tree
from pmtpy.emulators.cray import DIRECTORY, NodeController, open_virtual
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, ReadError, SourceLostError, TargetError
from pmtpy.sensor.sensor import Sensor
from pmtpy.testing import check_lost, check_source

LOAD = "square:low=300,high=900,hz=0.5"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return make_world("constant:1000", clock=clock)


@pytest.fixture
def node(world: World) -> Iterator[NodeController]:
    controller = NodeController(world)
    yield controller
    controller.tree.close()


@pytest.mark.parametrize("stamps", [True, False])
@pytest.mark.parametrize("power", [True, False])
def test_the_suite_passes(*, stamps: bool, power: bool) -> None:
    # Whole joules at either end; without stamps a row is up to one poll, 20 ms at 900 W, late at either end.
    check_source(
        lambda clock: open_virtual(clock=clock, load=LOAD, stamps=stamps, power=power),
        LOAD,
        relative=0,
        absolute_joules=2 + (0 if stamps else 2 * 0.1 * 900),
    )


def test_the_total_is_the_energy_of_the_node_alone(node: NodeController, clock: ManualClock) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root, power=True)
    layout = Layout(source.channels)
    assert [layout.names[i] for i in layout.in_total] == ["node"]
    assert {"cpu", "memory", "accel0", "accel1", "node.power", "cpu0.temperature"} <= {c.name for c in source.channels}
    assert any("add no other sensor" in note for note in source.identity.notes)
    source.close()


def test_processors_and_memories_that_are_numbered_are_parts_too(node: NodeController, clock: ManualClock) -> None:
    for name in ("cpu0", "cpu1", "memory1", "accel12"):
        node.tree.write(f"cray/pm_counters/{name}_energy", "17 J")
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    layout = Layout(source.channels)
    assert {"cpu0", "cpu1", "memory1", "accel12"} <= set(layout.names)
    assert [layout.names[i] for i in layout.in_total] == ["node"]
    source.close()


def test_a_row_has_the_time_of_the_scan_and_comes_once(node: NodeController, clock: ManualClock, world: World) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    clock.advance(0.37)
    node.refresh(clock.now_ns())
    block = source.read()
    # The stamp is in whole microseconds of Unix time.
    assert int(block.t_ns[0]) - world.epoch_ns == pytest.approx(300_000_000, abs=1000)
    assert len(source.read()) == 0
    source.close()


@pytest.mark.parametrize("behind_s", [-1.5, 0.5, 1.5])
def test_stamps_of_a_controller_whose_clock_is_off_by_a_second_do_not_place_rows_there(
    node: NodeController, clock: ManualClock, behind_s: float
) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    anchor = clock.anchor()
    for i in range(20):
        clock.advance(0.1)
        unix_us = (clock.now_ns() + anchor.unix_ns - anchor.monotonic_ns) // 1000 - round(behind_s * 1e6)
        for path in (node.tree.root / DIRECTORY).glob("*energy"):
            node.tree.write(f"{DIRECTORY}/{path.name}", f"{1000 + i} J {unix_us} us")
        node.tree.write(f"{DIRECTORY}/freshness", 100 + i)
        assert abs(int(source.read().t_ns[0]) - clock.now_ns()) < 1_000_000
    source.close()


def test_a_stamp_of_unknown_epoch_counts_from_the_first_reading(
    node: NodeController, clock: ManualClock, world: World
) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    first = clock.now_ns()
    for i, stamp in enumerate((5_000_000, 5_250_000)):
        clock.advance(0.3 * i)
        for path in (node.tree.root / DIRECTORY).glob("*energy"):
            node.tree.write(f"{DIRECTORY}/{path.name}", f"{1000 + i} J {stamp} us")
        node.tree.write(f"{DIRECTORY}/freshness", 100 + i)
        # What is seen later than before may be a slow clock, up to one part in 10^4.
        assert source.read().t_ns.tolist() == [pytest.approx(first + 250_000_000 * i, rel=0, abs=25_000 * i)]
    source.close()


def test_a_torn_set_of_files_is_read_again(
    node: NodeController, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    real, calls = os.pread, [0]

    def pread(fd: int, size: int, offset: int, /) -> bytes:
        calls[0] += 1
        if calls[0] == 4:  # the controller refreshes in the middle of the first attempt
            clock.advance(0.1)
            node.refresh(clock.now_ns())
        return real(fd, size, offset)

    clock.advance(1.0)
    node.refresh(clock.now_ns())
    monkeypatch.setattr(os, "pread", pread)
    counts = source.read().raw[0].tolist()
    energies = dict(zip([c.name for c in source.channels], counts, strict=True))
    # All of one scan: 1100 J after the beginning, of which the parts have their shares.
    assert [energies[n] - 2_178_501_771 for n in ("node", "cpu", "memory", "accel0")] == [1100, 275, 55, 330]
    source.close()


def test_files_that_change_all_the_time_are_a_lost_row(
    node: NodeController, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    real, count = os.pread, [0]

    def pread(fd: int, size: int, offset: int, /) -> bytes:
        count[0] += 1
        node.tree.write(f"{DIRECTORY}/freshness", count[0])
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(ReadError, match="refreshed during each"):
        source.poll()
    source.close()


def test_a_restart_of_the_counters_adds_no_energy(node: NodeController, clock: ManualClock) -> None:
    sensor = Sensor(cray.open_source(None, clock=clock, sysfs_root=node.tree.root), "cray", clock)
    before = sensor.read()
    for i in range(40):
        clock.advance(0.1)
        if i == 20:
            node.restart()
        node.refresh(clock.now_ns())
        after = sensor.read()
    assert after.joules[0] - before.joules[0] == pytest.approx(3900, abs=2)
    assert after.uncovered_ns[0] == pytest.approx(0.1e9, abs=2e3)
    sensor.close()


def test_a_controller_without_freshness_that_rests_is_not_believed(clock: ManualClock, world: World) -> None:
    node = NodeController(world, stamps=False)
    node.tree.remove(f"{DIRECTORY}/freshness")
    with Sensor(cray.open_source(None, clock=clock, sysfs_root=node.tree.root), "cray", clock) as sensor:
        readings = []
        for i in range(200):
            clock.advance(0.1)
            if not 50 <= i < 130:  # then it shows what it would have
                node.refresh(clock.now_ns())
            readings.append(sensor.read())
    for part, share in (("node", 1.0), ("cpu", 0.25), ("memory", 0.05)):
        column = readings[0].names.index(part)
        used = readings[-1].joules[column] - readings[0].joules[column]
        unknown_s = (readings[-1].uncovered_ns[column] - readings[0].uncovered_ns[column]) / 1e9
        assert unknown_s == pytest.approx(8.1, abs=0.11)
        assert used == pytest.approx(1000.0 * share * (19.9 - unknown_s), rel=0.01, abs=2.0)
    node.tree.close()


def test_a_node_without_such_files_says_where_they_exist(clock: ManualClock, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match=r"pm_counters does not exist[\s\S]*HPE Cray"):
        cray.open_source(None, clock=clock, sysfs_root=tmp_path)
    assert not cray.discover(sysfs_root=tmp_path).devices


def test_without_an_energy_file_the_power_is_integrated_and_said_so(node: NodeController, clock: ManualClock) -> None:
    node.tree.write(f"{DIRECTORY}/energy", "none")
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    layout = Layout(source.channels)
    assert [layout.names[i] for i in layout.in_total] == ["node.power"]
    assert any("integrated from its power" in note for note in source.identity.notes)
    source.close()


def test_a_device_is_refused(clock: ManualClock) -> None:
    with pytest.raises(TargetError, match="one device"):
        cray.open_source("accel0", clock=clock)


@pytest.mark.parametrize("content", [b"", b"451\n", b"451 W\n", b"-3 J\n", b"4.5 J\n", b"1 J 2 J\n", b"\xff J\n"])
def test_garbage_is_a_lost_row_and_then_a_lost_node(node: NodeController, clock: ManualClock, content: bytes) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    clock.advance(1.0)
    node.refresh(clock.now_ns())
    node.tree.write_bytes(f"{DIRECTORY}/energy", content)
    assert len(source.read()) == 0
    node.refresh(clock.now_ns())
    block = source.read()
    assert block.lost is not None
    assert block.lost.tolist() == [1]
    clock.advance(1.0)
    node.refresh(clock.now_ns())
    node.tree.write_bytes(f"{DIRECTORY}/energy", content)
    check_lost(source, clock)
    source.close()


def test_a_controller_that_stopped_is_lost(node: NodeController, clock: ManualClock) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    source.read()
    clock.advance(31.0)
    with pytest.raises(SourceLostError, match="has not changed for 30 s"):
        source.read()
    source.close()


def test_files_that_vanish_and_return_are_opened_again(
    node: NodeController, clock: ManualClock, failing_files: object
) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    source.read()
    node.tree.remove(f"{DIRECTORY}/energy")
    clock.advance(1.0)
    for name in ("freshness", "cpu_energy"):
        node.tree.write(f"{DIRECTORY}/{name}", "7 J" if name == "cpu_energy" else 99)
    assert len(source.read()) == 0
    node.refresh(clock.now_ns())
    assert len(source.read()) == 1
    source.close()


def test_a_failing_bus_is_said(node: NodeController, clock: ManualClock, failing_files: object) -> None:
    source = cray.open_source(None, clock=clock, sysfs_root=node.tree.root)
    failing_files.fail(node.tree.root / DIRECTORY / "energy", errno.EIO)  # type: ignore[attr-defined]
    with pytest.raises(ReadError, match="energy: the bus or the firmware did not answer"):
        source.poll()
    source.close()


@given(
    st.dictionaries(
        st.sampled_from(["energy", "power", "cpu_energy", "accel0_power", "freshness", "startup", "raw_scan_hz"]),
        st.sampled_from([b"5 J\n", b"7 W\n", b"5 J 12 us\n", b"", b"9\n", b"x\n", b"-4 W\n", b"0\n"]),
    )
)
def test_any_tree_is_refused_or_shows_what_its_files_hold(files: dict[str, bytes]) -> None:
    tree = Tree()
    try:
        for name, content in files.items():
            tree.write_bytes(f"{DIRECTORY}/{name}", content)
        found = cray.discover(sysfs_root=tree.root)
        if not found.devices:
            assert found.reason
            assert found.remedy
            return
        source = cray.open_source(None, clock=ManualClock(), sysfs_root=tree.root)
        row = source.read().raw[0].tolist()
        for channel, count in zip(source.channels, row, strict=True):
            text = files[channel.label].decode().split()
            assert text[:2] == [str(int(count)), channel.unit]
        assert Layout(source.channels).in_total
        source.close()
    finally:
        tree.close()
