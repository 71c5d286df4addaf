from __future__ import annotations

import errno
import math
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmtpy as pmt
from pmtpy.backends import rapl
from pmtpy.backends.rapl._channels import Kind
from pmtpy.backends.rapl._perf import KernelEvents, OpenEvents, cpu_list, find_events
from pmtpy.core.clock import HostClock, ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Layout, Point
from pmtpy.core.source import Source
from pmtpy.core.state import joules
from pmtpy.emulators._tree import Tree
from pmtpy.emulators.rapl import AMD_NJ, LAYOUTS, PerfEvents, Processors, ZoneSpec, open_virtual
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, CoverageError, ReadError, SourceLostError, TargetError
from pmtpy.regions.region import region
from pmtpy.sensor.sensor import Sensor
from pmtpy.testing import check_source, check_truth
from tests.backends.conftest import FailingFiles


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return make_world("constant:100", clock=clock)


@pytest.fixture
def make(world: World) -> Iterator[Callable[..., Processors]]:
    made: list[Processors] = []

    def build(layout: str, **options: float) -> Processors:
        made.append(Processors(world, layout, **options))
        return made[-1]

    yield build
    for processors in made:
        processors.tree.close()


def total_names(source: Source) -> list[str]:
    layout = Layout(source.channels)
    return [layout.names[i] for i in layout.in_total]


def run_total(source: Source, advance: Callable[[], None], steps: int) -> float:
    """Joules of the total over ``steps`` advances, unwrapped by the channels' own meaning."""
    layout = Layout(source.channels)
    counted = [i - 1 for i in layout.in_total]
    joules = 0.0
    last = source.read().raw[0]
    for _ in range(steps):
        advance()
        row = source.read().raw[0]
        for i in counted:
            wrap = source.channels[i].wrap
            rise = row[i] - last[i]
            joules += (rise if rise >= 0 or wrap is None else rise + wrap) * source.channels[i].scale
        last = row
    return float(joules)


TOTALS = {
    "server": ["package0", "package0.dram", "package1", "package1.dram"],
    "psys-between": ["package0", "package0.dram", "package1", "package1.dram"],
    "many": [n for p in range(12) for n in (f"package{p}", f"package{p}.dram")],
    "client": ["package0"],
    "mmio-only": ["mmio.package0", "mmio.package0.dram"],
    "intel-dies": ["package0.die0", "package0.die0.dram", "package0.die1", "package0.die1.dram"],
    "amd": ["package0", "package1"],
    "amd-dies": ["package0.die0", "package1.die0"],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_zone_is_a_channel_and_each_part_is_in_the_total_once(
    make: Callable[..., Processors], clock: ManualClock, layout: str
) -> None:
    source = rapl.open_source(None, clock=clock, sysfs_root=make(layout).tree.root)
    assert len(source.channels) == len(LAYOUTS[layout])
    assert total_names(source) == TOTALS[layout]
    source.close()


@pytest.mark.parametrize(("layout", "via"), [*((name, "powercap") for name in LAYOUTS), ("server", "perf")])
def test_the_suite_passes_for_every_layout_and_way(layout: str, via: str) -> None:
    load = "square:low=30,high=90,hz=0.7"

    def opener(clock: ManualClock) -> Source:
        return open_virtual(clock=clock, load=load, layout=layout, via=via, wrap_after_j=100.0)

    # Each counter is up to 1 ms at 90 W late at either end, and cut to its unit; the kernel's nanojoules do the rest.
    check_source(opener, load, relative=2e-5, absolute_joules=2 * 0.09 + 24 * 62e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_total_equals_the_truth_over_many_wraps(layout: str) -> None:
    clock = ManualClock()
    # 400 W for two hours, 2.88 MJ: two registers at 170 W turn over five times each, one at 400 W of 65 kJ 44 times.
    load = "square:low=200,high=600,hz=0.01"
    source = open_virtual(clock=clock, load=load, layout=layout)
    error = check_truth(source, clock, load, seconds=7200.0, step_s=10.0, relative=2e-5, absolute_joules=2.0)
    assert abs(error) < 2e-5
    source.close()


@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.lists(st.floats(0.002, 100.0), min_size=1, max_size=30),
    st.floats(1.0, 300.0),
    st.floats(0.0, 2000.0),
)
def test_any_reading_schedule_within_the_deadline_gives_the_truth(
    layout: str, waits: list[float], level: float, wrap_after_j: float
) -> None:
    clock = ManualClock()
    source = open_virtual(clock=clock, load=f"constant:{level}", layout=layout, wrap_after_j=wrap_after_j)
    assert source.traits.deadline_s is not None
    integrator = Integrator(Layout(source.channels))
    integrator.advance(source.read_row())
    elapsed = 0.0
    point = None
    for wait in waits:
        step = min(wait, 0.99 * source.traits.deadline_s)
        clock.advance(step)
        elapsed += step
        point = integrator.advance(source.read_row())
    assert isinstance(point, Point)
    assert point.uncovered_ns[0] == 0
    # A millisecond at either end, up to 24 counters cut to their units, units cut to nanojoules, 61 uJ for each wrap.
    allowed = 0.002 * level + 24 * (2 + len(waits)) * 62e-6
    assert point.joules[0] == pytest.approx(level * elapsed, rel=2e-5, abs=allowed)
    source.close()


def test_the_root_of_the_tree_comes_from_the_environment(
    make: Callable[..., Processors], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMT_SYSFS_ROOT", str(make("server").tree.root))
    with pmt.create("rapl") as sensor:
        assert sensor.read().names == ("total", *TOTALS["server"])


def test_a_sensor_left_alone_beyond_its_deadline_says_that_it_does_not_know() -> None:
    clock = ManualClock()
    sensor = Sensor(open_virtual(clock=clock, load="constant:100", layout="amd"), "rapl:virtual", clock)
    before = sensor.read()
    clock.advance(60.0)
    assert joules(before, sensor.read()) == pytest.approx(6000.0, abs=0.2)
    before = sensor.read()
    clock.advance(70.0)
    with pytest.raises(CoverageError, match="70 s of the 70 s"):
        joules(before, sensor.read())
    sensor.close()


def test_every_region_on_an_open_sensor_is_as_certain_as_its_counters() -> None:
    # Real time, because a region notes its instants microseconds after the counters were read. A load that swings by
    # 60 W must not make the joules look uncertain: both ends were read, each up to a millisecond old.
    clock = HostClock()
    with Sensor(open_virtual(clock=clock, load="square:low=30,high=90,hz=5"), "rapl:virtual", clock) as sensor:
        for _ in range(3):
            with region("work", sensor) as measured:
                clock.wait_until(clock.now_ns() + 350_000_000, threading.Event())
            total = measured["rapl:virtual"]
            # Gains of 3 % and 11.5 % on two sockets, which are off alike, and 90 W x 1 ms at either end.
            limit = total.joules * math.hypot(0.03 * 0.85, 0.115 * 0.15) + 2 * 0.09
            assert total.uncertainty_joules < limit


def test_a_restart_is_no_wrap(make: Callable[..., Processors], clock: ManualClock) -> None:
    processors = make("server", wrap_after_j=200_000.0)
    sensor = Sensor(rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root), "rapl", clock)
    before = sensor.read()
    for i in range(200):
        clock.advance(0.1)
        processors.refresh(clock.now_ns())
        if i == 100:
            processors.restart()
            processors.refresh(clock.now_ns())
        after = sensor.read()
    # 20 s at 100 W, less the 0.1 s in which the registers restarted; not 262 kJ more.
    assert after.joules[0] - before.joules[0] == pytest.approx(1990.0, abs=0.3)
    assert after.uncovered_ns[0] == pytest.approx(0.1e9, abs=1e6)
    sensor.close()


def test_a_reading_is_the_counter_of_the_last_millisecond(clock: ManualClock) -> None:
    source = open_virtual(clock=clock, load="constant:1000", layout="mmio-only")
    first = source.read().raw[0, 0]
    clock.advance(0.0009)
    assert source.read().raw[0, 0] == first
    clock.advance(0.0001)
    assert source.read().raw[0, 0] == pytest.approx(first + 900_000, abs=62)
    source.close()


def test_no_thread_is_started(clock: ManualClock) -> None:
    before = threading.active_count()
    source = open_virtual(clock=clock)
    source.read()
    assert threading.active_count() == before
    source.close()


def test_ranges_are_per_zone_and_the_deadline_follows_from_the_smallest(
    make: Callable[..., Processors], clock: ManualClock
) -> None:
    source = rapl.open_source(None, clock=clock, sysfs_root=make("server").tree.root)
    wraps = {c.name: c.wrap for c in source.channels}
    assert wraps["package0"] == 262143328850
    assert wraps["package0.dram"] == 65712999613
    # Limits of 150 W and 40 W: 600 W and 250 W are possible; 65.7 kJ at 250 W come first.
    assert source.traits.deadline_s == pytest.approx(min(262143.3 / 600, 65713.0 / 250), rel=1e-4)
    source.close()


def test_the_deadline_is_the_range_at_one_kilowatt_where_no_limit_is_known(
    make: Callable[..., Processors], clock: ManualClock
) -> None:
    source = rapl.open_source(None, clock=clock, sysfs_root=make("amd").tree.root)
    assert source.traits.deadline_s == pytest.approx(65532.6 / 1000, rel=1e-4)
    source.close()


def test_one_core_of_amd_is_not_called_the_cores(make: Callable[..., Processors], clock: ManualClock) -> None:
    source = rapl.open_source(None, clock=clock, sysfs_root=make("amd").tree.root)
    assert "package0.one_core" in {c.name for c in source.channels}
    assert any("single core" in note for note in source.identity.notes)
    source.close()


def test_dies_of_amd_whose_counters_differ_are_not_taken_for_one(world: World, clock: ManualClock) -> None:
    processors = Processors(world, "amd-dies")
    processors.unregister("intel-rapl:1")
    processors.register(ZoneSpec("intel-rapl:1", "package-0-die-1", 0.25, AMD_NJ, "socket1", 0))
    clock.advance(100.0)
    processors.refresh(clock.now_ns())
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    assert total_names(source) == ["package0.die0", "package0.die1", "package1.die0", "package1.die1"]
    source.close()
    processors.tree.close()


def test_mirrored_dies_are_recognised_without_the_vendor(make: Callable[..., Processors], clock: ManualClock) -> None:
    processors = make("amd-dies")
    processors.tree.remove("devices/system/cpu/modalias")
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    assert total_names(source) == ["package0.die0", "package1.die0"]
    source.close()


@pytest.mark.parametrize("vendor", [True, False])
def test_a_die_that_mirrors_another_is_not_missed_where_it_cannot_be_read(
    make: Callable[..., Processors], clock: ManualClock, *, vendor: bool
) -> None:
    processors = make("amd-dies")
    if not vendor:  # the dies of the other package prove that they mirror each other
        processors.tree.remove("devices/system/cpu/modalias")
    processors.tree.write_bytes(processors.energy_file("intel-rapl:1"), b"")
    with Sensor(rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root), "rapl", clock) as sensor:
        before = sensor.read()
        clock.advance(1.0)
        processors.refresh(clock.now_ns())
        assert joules(before, sensor.read()) == pytest.approx(100.0, abs=0.1)
        (said,) = (note for note in sensor.identity.notes if "package0.die1" in note)
        assert "is left out" in said
        assert "PARTIAL" not in said


def test_a_die_that_is_left_out_of_perf_events_is_counted_by_the_one_that_it_mirrors(
    world: World, clock: ManualClock
) -> None:
    tree, events = Tree(), PerfEvents(world)
    events.describe(tree)
    tree.write("devices/system/cpu/modalias", "cpu:type:x86,ven0002fam0017mod0001:feature:,0000")
    tree.write("devices/system/cpu/cpu8/topology/physical_package_id", 0)
    tree.write("devices/system/cpu/cpu8/topology/die_id", 1)
    source = rapl.open_source(None, clock=clock, sysfs_root=tree.root, via="perf", perf=events, without="package0.die1")
    (said,) = (note for note in source.identity.notes if "package0.die1 is" in note)
    assert "PARTIAL" not in said
    source.close()
    tree.close()


@pytest.fixture
def namesakes(make: Callable[..., Processors], clock: ManualClock) -> Processors:
    """Two sockets that are both called package-0, of 42.5 and 130 W (and 7.5 W of memory), beside a package-1."""
    processors = make("psys-between")
    processors.tree.write(f"{Path(processors.energy_file('intel-rapl:1')).parent}/name", "package-0")
    clock.advance(10.0)
    processors.refresh(clock.now_ns())
    return processors


def test_a_program_that_closes_all_descriptors_goes_on_with_its_energy(
    make: Callable[..., Processors], clock: ManualClock, tmp_path: Path
) -> None:
    processors = make("server")

    def descriptors() -> set[Path]:
        fds = Path("/proc/self/fd").iterdir()
        return {fd for fd in fds if os.path.realpath(fd).startswith(str(processors.tree.root))}

    theirs = descriptors()
    with Sensor(rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root), "rapl", clock) as sensor:
        before = sensor.read()
        for fd in descriptors() - theirs:
            os.close(int(fd.name))
        (tmp_path / "theirs").write_text("123456789")
        with (tmp_path / "theirs").open():
            clock.advance(1.0)
            processors.refresh(clock.now_ns())
            assert joules(before, sensor.read()) == pytest.approx(100.0, abs=0.2)


def test_zones_of_one_name_whose_counters_prove_to_be_different_ones_are_each_counted(
    namesakes: Processors, clock: ManualClock
) -> None:
    with Sensor(rapl.open_source(None, clock=clock, sysfs_root=namesakes.tree.root), "rapl", clock) as sensor:
        before = sensor.read()
        clock.advance(1.0)
        namesakes.refresh(clock.now_ns())
        after = sensor.read()
        assert joules(before, after) == pytest.approx(230.0, abs=0.5)
        assert joules(before, after, "package0.zone0") == pytest.approx(42.5, abs=0.2)
        assert joules(before, after, "package0.zone0.dram") == pytest.approx(7.5, abs=0.2)
        assert joules(before, after, "package0.zone1") == pytest.approx(130.0, abs=0.2)
        (note,) = (note for note in sensor.identity.notes if "intel-rapl:1" in note)
        assert "prove to be different" in note
        assert "PARTIAL" not in note
    source = rapl.open_source(None, clock=clock, sysfs_root=namesakes.tree.root, without="package0.zone1")
    assert total_names(source) == ["package0.zone0", "package0.zone0.dram", "package1", "package1.dram"]
    assert any("package0.zone1 is left out" in n and "PARTIAL" in n for n in source.identity.notes)
    source.close()


@pytest.mark.parametrize("unreadable", [False, True])
def test_zones_of_one_name_that_do_not_prove_to_be_different_count_once(
    make: Callable[..., Processors], clock: ManualClock, *, unreadable: bool
) -> None:
    processors = make("server")  # each socket shows the same count
    processors.tree.write(f"{Path(processors.energy_file('intel-rapl:1')).parent}/name", "package-0")
    if unreadable:
        processors.tree.write_bytes(processors.energy_file("intel-rapl:1"), b"")
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    assert total_names(source) == ["package0", "package0.dram"]
    assert any("intel-rapl:1 is named 'package-0'" in n and "PARTIAL" in n for n in source.identity.notes)
    source.close()


def test_the_second_window_is_no_second_package_though_it_shows_another_count(
    make: Callable[..., Processors], clock: ManualClock
) -> None:
    processors = make("client")
    processors.tree.write(processors.energy_file("intel-rapl-mmio:0"), 12_345_678)
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    assert total_names(source) == ["package0"]
    source.close()


def test_a_zone_is_not_read_in_the_place_of_another_of_its_name_that_is_gone(
    namesakes: Processors, clock: ManualClock
) -> None:
    source = rapl.open_source(None, clock=clock, sysfs_root=namesakes.tree.root)
    names = [channel.name for channel in source.channels]
    assert source.read().raw[0].size == len(names)
    namesakes.unregister("intel-rapl:0")
    for _ in range(30):
        clock.advance(0.1)
        namesakes.refresh(clock.now_ns())
        rows = source.read().raw.tolist()  # none while it is not known whether the failure passes
    row = dict(zip(names, rows[-1], strict=True))
    assert math.isnan(row["package0.zone0"])
    assert math.isnan(row["package0.zone0.dram"])
    assert row["package0.zone1"] > 0
    source.close()


def test_a_tree_that_is_copied_or_lacks_its_class_counts_the_same(
    make: Callable[..., Processors], clock: ManualClock, tmp_path: Path
) -> None:
    processors = make("server")
    no_class = tmp_path / "no-class"
    no_class.mkdir()
    (no_class / "devices").symlink_to(processors.tree.root / "devices")
    flat = tmp_path / "flat" / "class" / "powercap"
    for spec in LAYOUTS["server"]:
        for name in ("name", "energy_uj", "max_energy_range_uj"):
            for folder in (flat / spec.id, flat / spec.id.rpartition(":")[0] / spec.id):
                folder.mkdir(parents=True, exist_ok=True)
                text = (processors.tree.root / "class" / "powercap" / spec.id / name).read_text()
                (folder / name).write_text(text)
    for root in (no_class, tmp_path / "flat"):
        source = rapl.open_source(None, clock=clock, sysfs_root=root)
        assert total_names(source) == TOTALS["server"]
        source.close()


def test_files_for_root_only_are_refused_with_the_remedy(
    make: Callable[..., Processors], clock: ManualClock, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    root = make("server").tree.root
    root.chmod(0o755)
    for path in root.rglob("energy_uj"):
        path.chmod(0o400)
    with as_nobody():
        with pytest.raises(BackendUnavailableError) as refused:
            rapl.open_source(None, clock=clock, sysfs_root=root)
        found = rapl.discover(sysfs_root=root)
    assert "intel-rapl:0/energy_uj: permission denied" in refused.value.reason
    for cure in ("chmod a+r /sys/class/powercap/intel-rapl*/energy_uj", "udev", "tmpfiles", "perf_event_paranoid=0"):
        assert cure in refused.value.remedy
    assert not found.devices
    assert found.remedy == refused.value.remedy


def test_perf_events_take_over_where_powercap_is_for_root_only(
    clock: ManualClock, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    world = make_world("constant:100", clock=clock)
    processors, events = Processors(world), PerfEvents(world)
    events.describe(processors.tree)
    processors.tree.root.chmod(0o755)
    for path in processors.tree.root.rglob("energy_uj"):
        path.chmod(0o400)
    with as_nobody():
        source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root, perf=events)
    assert source.identity.version == "perf events"
    assert total_names(source) == TOTALS["server"]
    assert run_total(source, lambda: clock.advance(10.0), 10) == pytest.approx(10_000, abs=0.1)
    source.close()
    processors.tree.close()


def test_both_ways_name_their_channels_alike(clock: ManualClock) -> None:
    by_way = {}
    for way in ("powercap", "perf"):
        source = open_virtual(clock=clock, via=way)
        by_way[way] = {(c.name, c.domain) for c in source.channels}
        source.close()
    assert by_way["powercap"] == by_way["perf"]


def test_an_unreadable_zone_is_named_and_the_total_called_partial(
    make: Callable[..., Processors], clock: ManualClock, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    processors = make("server")
    root = processors.tree.root
    root.chmod(0o755)
    (root / processors.energy_file("intel-rapl:1:0")).chmod(0o400)
    with as_nobody():
        source = rapl.open_source(None, clock=clock, sysfs_root=root)
    assert total_names(source) == ["package0", "package0.dram", "package1"]
    assert any("package1.dram is left out" in n and "PARTIAL" in n for n in source.identity.notes)
    source.close()


@pytest.mark.parametrize(("times", "left_out"), [(2, False), (3, True)])
def test_a_zone_that_is_busy_at_the_opening_is_asked_again_and_named(
    make: Callable[..., Processors], clock: ManualClock, failing_files: FailingFiles, times: int, *, left_out: bool
) -> None:
    processors = make("server")
    busy = processors.tree.root / processors.energy_file("intel-rapl:1:0")
    failing_files.fail(busy, errno.EAGAIN, times)
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    source.close()
    notes = source.identity.notes
    assert any("package1.dram is left out" in n and "the device is busy" in n for n in notes) == left_out


@pytest.mark.parametrize("via", ["powercap", "perf"])
def test_a_part_that_is_left_out_is_said_and_the_total_is_that_of_the_rest(clock: ManualClock, via: str) -> None:
    source = open_virtual(clock=clock, layout="server", via=via, without="package1, package0.dram")
    assert not {"package1", "package0.dram"} & {c.name for c in source.channels}
    assert {"package0", "package1.dram"} <= set(total_names(source))
    notes = " ".join(source.identity.notes)
    assert "package1 is left out (without= asks for it); the total is PARTIAL" in notes
    assert "package0.dram is left out" in notes
    source.close()
    with pytest.raises(TargetError, match="without=package7 names no counter here; there are package0, "):
        open_virtual(clock=clock, layout="server", via=via, without="package7")


def test_the_second_window_stands_in_for_an_unreadable_package(
    make: Callable[..., Processors], clock: ManualClock
) -> None:
    processors = make("client")
    processors.tree.write_bytes(processors.energy_file("intel-rapl:0"), b"")
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    assert total_names(source) == ["mmio.package0"]
    assert not any("PARTIAL" in note for note in source.identity.notes)
    source.close()


def test_a_package_that_only_the_second_window_shows_is_in_the_total(
    make: Callable[..., Processors], clock: ManualClock
) -> None:
    processors = make("client")
    name = processors.energy_file("intel-rapl-mmio:0").replace("energy_uj", "name")
    processors.tree.write_bytes(name, b"package-1\n")
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    assert total_names(source) == ["package0", "mmio.package1", "mmio.package1.dram"]
    source.close()


def test_a_missing_tree_is_said_with_what_to_load(clock: ManualClock, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match=r"does not exist or is empty\n  remedy: sudo modprobe"):
        rapl.open_source(None, clock=clock, sysfs_root=tmp_path)
    assert "modprobe" in rapl.discover(sysfs_root=tmp_path).remedy


def test_other_control_types_are_not_rapl(clock: ManualClock, tmp_path: Path) -> None:
    for name in ("dtpm", "idle_inject"):
        (tmp_path / "class" / "powercap" / name).mkdir(parents=True)
    with pytest.raises(BackendUnavailableError, match="holds dtpm, idle_inject, but no intel-rapl zone"):
        rapl.open_source(None, clock=clock, sysfs_root=tmp_path)


def test_links_that_a_container_left_dangling_are_explained(
    make: Callable[..., Processors], clock: ManualClock
) -> None:
    processors = make("server")
    processors.tree.remove("devices/virtual/powercap")
    with pytest.raises(BackendUnavailableError, match=r"intel-rapl:0.*hidden[\s\S]*-v /sys:/host/sys:ro"):
        rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)


@pytest.mark.parametrize("content", [b"", b"\n", b"-1\n", b"<no>\n", b"1 2\n", b"1_0\n", b"\xff\xfe"])
def test_a_package_without_a_number_is_no_package(
    make: Callable[..., Processors], clock: ManualClock, content: bytes
) -> None:
    processors = make("mmio-only")
    processors.tree.write_bytes(processors.energy_file("intel-rapl-mmio:0"), content)
    with pytest.raises(BackendUnavailableError, match="no counter of a package can be read"):
        rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)


@pytest.mark.parametrize("content", [b"", b"-1\n", b"<no>\n", b"1 2\n", b"262143328851\n", b"9" * 40])
def test_garbage_while_running_is_a_lost_row_then_a_counter_that_is_not_known_and_then_a_lost_source(
    make: Callable[..., Processors], clock: ManualClock, content: bytes
) -> None:
    processors = make("server")
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    processors.tree.write_bytes(processors.energy_file("intel-rapl:1"), content)
    assert len(source.read()) == 0
    processors.refresh(clock.now_ns())
    block = source.read()
    assert block.lost is not None
    assert block.lost.tolist() == [1]
    processors.tree.write_bytes(processors.energy_file("intel-rapl:1"), content)
    for _ in range(10):
        assert len(source.read()) == 0
        clock.advance(0.1)
    block = source.read()
    names = [c.name for c in source.channels]
    assert [n for n, count in zip(names, block.raw[0].tolist(), strict=True) if math.isnan(count)] == ["package1"]
    for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1:0"):
        processors.tree.write_bytes(processors.energy_file(zone), content)
    for _ in range(20):
        assert len(source.read()) == 0
        clock.advance(0.1)
    with pytest.raises(SourceLostError, match=r"package0|intel-rapl:0"):
        source.read()
    source.close()


class Zones:
    """Counters by way of powercap, of which the second package can vanish, with its memory."""

    why = "does not exist"

    def __init__(self, world: World) -> None:
        self._processors = Processors(world, "server")
        self.tree, self.refresh = self._processors.tree, self._processors.refresh
        self.events: PerfEvents | None = None
        self._gone: list[ZoneSpec] = []

    def vanish(self) -> None:
        self._gone = [self._processors.unregister(zone) for zone in ("intel-rapl:1:0", "intel-rapl:1")]

    def appear(self) -> None:
        for zone in reversed(self._gone):
            self._processors.register(zone)


class MovingEvents(PerfEvents):
    """Counters by way of perf events, of which those of the second package can end for ever, for others elsewhere."""

    why = "device has been removed"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.tree, self.events = Tree(), self
        self.describe(self.tree)
        self._cpu: int | None = 8
        self._ended: set[int] = set()

    def refresh(self, now_ns: int) -> None:
        """They count by themselves."""

    def vanish(self) -> None:
        self._cpu = None
        self._ended = {handle for handle, (_, cpu, _) in self._open.items() if cpu == 8}

    def appear(self) -> None:
        self._cpu = 9
        self.tree.write("bus/event_source/devices/power/cpumask", "0,9")
        self.tree.write("devices/system/cpu/cpu9/topology/physical_package_id", 1)

    def open(self, kind: int, config: int, cpu: int) -> int:
        if cpu not in {0, self._cpu}:
            raise OSError(19, "No such device")
        return super().open(kind, config, 8 if cpu else 0)

    def read(self, handle: int) -> int:
        if handle in self._ended:
            raise OSError(19, "No such device")
        return super().read(handle)


@pytest.mark.parametrize(("far_side", "via"), [(Zones, "powercap"), (MovingEvents, "perf")])
def test_the_other_packages_go_on_where_one_vanishes_and_it_is_counted_again_when_it_is_back(
    far_side: Callable[[World], Zones | MovingEvents], via: str, world: World, clock: ManualClock
) -> None:
    far = far_side(world)  # 42.5 W each package, 7.5 W each memory
    source = rapl.open_source(None, clock=clock, sysfs_root=far.tree.root, via=via, perf=far.events)
    source.traits = replace(source.traits, deadline_s=None)
    with Sensor(source, "rapl", clock, interval_s=1e6) as sensor:  # nobody else reads before the files are written

        def run(seconds: float) -> None:
            for _ in range(round(seconds / 0.1)):
                clock.advance(0.1)
                far.refresh(clock.now_ns())
                sensor.read()

        sensor.read()
        with region("without", sensor) as without:
            run(1.0)
            far.vanish()
            run(5.0)
        found = without["rapl"]
        with region("still without", sensor) as still:
            run(1.0)
        still_without = still["rapl"]
        far.appear()
        run(12.0)
        with region("again", sensor) as again:
            run(2.0)
        whole = again["rapl"]
    far.tree.close()
    part = found.channels
    assert part["package0"].joules == pytest.approx(42.5 * 6.0, abs=0.1)
    assert part["package0"].coverage == 1.0
    assert part["package1"].joules == pytest.approx(42.5, abs=0.1)
    assert part["package1"].coverage == pytest.approx(1.0 / 6.0, abs=0.01)
    assert found.coverage == pytest.approx(1.0 / 6.0, abs=0.01)
    assert still_without.coverage == 0.0
    assert still_without.channels["package0"].joules == pytest.approx(42.5, abs=0.1)
    for measured in (found, still_without):
        assert any("package1" in w and far.why in w for w in measured.warnings)
    assert whole.coverage == 1.0
    assert whole.joules == pytest.approx(200.0, abs=0.1)


def test_an_event_that_opens_but_cannot_be_read_is_not_taken_for_one_that_is_back(
    world: World, clock: ManualClock
) -> None:
    """Else all would be lost for a second after each look for it."""

    class Unreadable(MovingEvents):
        def open(self, kind: int, config: int, cpu: int) -> int:
            handle = PerfEvents.open(self, kind, config, cpu)
            self._ended |= {handle} if self._cpu is None and cpu else set()
            return handle

    far = Unreadable(world)
    source = rapl.open_source(None, clock=clock, sysfs_root=far.tree.root, via="perf", perf=far)
    source.read()
    far.vanish()
    rows = []
    for _ in range(300):
        clock.advance(0.1)
        rows += [len(source.read())]
    assert rows == [0] * 10 + [1] * 290
    assert len(far._open) == 4  # of the looks nothing is left
    source.close()
    assert not far._open
    far.tree.close()


@pytest.mark.parametrize("content", [None, b"", b"0\n", b"-5\n", b"unknown\n", b"17\n"])
def test_without_a_credible_range_a_wrap_is_not_invented(
    make: Callable[..., Processors], clock: ManualClock, content: bytes | None
) -> None:
    processors = make("server")
    path = processors.energy_file("intel-rapl:0").replace("energy_uj", "max_energy_range_uj")
    if content is None:
        processors.tree.remove(path)
    else:
        processors.tree.write_bytes(path, content)
    source = rapl.open_source(None, clock=clock, sysfs_root=processors.tree.root)
    assert source.channels[0].wrap is None
    assert any("package0: max_energy_range_uj" in note for note in source.identity.notes)
    source.close()


def test_zones_that_return_under_other_numbers_are_found_and_called_fresh(
    make: Callable[..., Processors], clock: ManualClock, failing_files: object
) -> None:
    processors = make("server")
    root = processors.tree.root
    source = rapl.open_source(None, clock=clock, sysfs_root=root)
    last = source.read().raw[0].tolist()
    gone = [processors.unregister(z) for z in ("intel-rapl:0:0", "intel-rapl:0", "intel-rapl:1:0", "intel-rapl:1")]
    clock.advance(1.0)
    assert len(source.read()) == 0
    new_ids = {"package-0": "intel-rapl:a", "package-1": "intel-rapl:0"}
    for old in (gone[1], gone[3]):
        dram = gone[0] if old is gone[1] else gone[2]
        new = new_ids[old.name]
        processors.register(ZoneSpec(new, old.name, old.share, old.unit_nj, old.register))
        processors.register(ZoneSpec(f"{new}:3", dram.name, dram.share, dram.unit_nj, dram.register))
    block = source.read()
    assert block.fresh
    assert block.lost is not None
    assert block.lost.tolist() == [1]
    # One second later each counter shows its own share of 100 J more, so none was mistaken for another.
    rise = [(b - a) * 1e-6 for a, b in zip(last, block.raw[0].tolist(), strict=True)]
    assert rise == pytest.approx([42.5, 7.5, 42.5, 7.5], abs=1e-3)
    assert not source.read().fresh
    source.close()


def test_a_device_or_a_way_that_does_not_exist_is_refused(clock: ManualClock, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="one device"):
        rapl.open_source("3", clock=clock, sysfs_root=tmp_path)
    with pytest.raises(TargetError, match="powercap or perf"):
        rapl.open_source(None, clock=clock, sysfs_root=tmp_path, via="msr")
    with pytest.raises(TargetError, match="say via=perf"):
        rapl.open_source(None, clock=clock, sysfs_root=tmp_path, perf="yes")  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="layout"):
        open_virtual(clock=clock, layout="none")


NAMES = st.sampled_from(
    ["package-0", "package-1", "package-0-die-0", "package-0-die-1", "core", "dram", "psys", "", "x"]
)
CONTENTS = st.sampled_from([b"5000000\n", b"0\n", b"", b"-3\n", b"abc\n", b"262143328850\n", b"99999999999999\n", None])
IDS = st.sampled_from(
    ["intel-rapl:0", "intel-rapl:1", "intel-rapl:a", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl-mmio:0", "dtpm:0"]
)


@given(st.dictionaries(IDS, st.tuples(NAMES, CONTENTS, CONTENTS), max_size=6))
def test_any_tree_is_refused_with_a_reason_or_counted_without_doubling(
    zones: dict[str, tuple[str, bytes | None, bytes | None]],
) -> None:
    tree = Tree()
    try:
        for zone, (name, energy, top) in zones.items():
            tree.write(f"class/powercap/{zone}/name", name)
            for file, content in (("energy_uj", energy), ("max_energy_range_uj", top)):
                if content is not None:
                    tree.write_bytes(f"class/powercap/{zone}/{file}", content)
        found = rapl.discover(sysfs_root=tree.root)
        if not found.devices:
            assert found.reason
            assert found.remedy
            return
        source = rapl.open_source(None, clock=ManualClock(), sysfs_root=tree.root)
        names = total_names(source)
        assert names
        kinds = {n.rsplit(".", 1)[-1] for n in names}
        assert not kinds & {"core", "uncore", "psys", "one_core"}
        row = source.read().raw[0].tolist()
        shown = {z: energy for z, (_, energy, _) in zones.items()}
        for channel, count in zip(source.channels, row, strict=True):
            content = shown[channel.label]
            assert content is not None
            assert count == int(content)
        # A package or memory with a usable name that is not counted is spoken of.
        for zone, (name, energy, _) in zones.items():
            if name.startswith("package") and not zone.startswith("dtpm") and energy in {b"", b"abc\n", b"-3\n", None}:
                assert any("left out" in n for n in source.identity.notes)
        source.close()
    finally:
        tree.close()


def test_a_failing_perf_event_is_a_lost_row(clock: ManualClock) -> None:
    world = make_world("constant:100", clock=clock)
    tree = Tree()

    class Broken(PerfEvents):
        def read(self, handle: int) -> int:
            raise OSError(5, "Input/output error")

    events = Broken(world)
    events.describe(tree)
    source = rapl.open_source(None, clock=clock, sysfs_root=tree.root, via="perf", perf=events)
    assert len(source.read()) == 0
    with pytest.raises(ReadError, match="bus or the firmware"):
        source.poll()
    source.close()
    tree.close()


def test_the_kernel_opens_an_event_that_the_attribute_describes() -> None:
    kernel = KernelEvents()
    try:
        handle = kernel.open(1, 0, 0)  # the software unit's CPU clock, which every kernel with perf has
    except OSError as error:
        pytest.skip(f"perf events are not permitted here: {error}")
    first = kernel.read(handle)
    assert kernel.read(handle) > first
    kernel.close(handle)
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.open(1, 0, -1)


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1)])
def test_a_program_that_closes_all_descriptors_goes_on_with_new_perf_events(
    clock: ManualClock, closed: tuple[int, ...]
) -> None:
    world = make_world("constant:100", clock=clock)
    tree = Tree()
    bad: set[int] = set()

    class Closed(PerfEvents):
        def read(self, handle: int) -> int:
            if handle in bad:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return super().read(handle)

    events = Closed(world)
    events.describe(tree)
    source = rapl.open_source(None, clock=clock, sysfs_root=tree.root, via="perf", perf=events)
    counters = source._opening.counters
    assert isinstance(counters, OpenEvents)
    with Sensor(source, "rapl", clock) as sensor:
        first = sensor.read()
        clock.advance(1.0)
        before = sensor.read()
        bad |= {counters._handles[i] for i in closed}
        clock.advance(1.0)
        after = sensor.read()
        clock.advance(1.0)
        last = sensor.read()
        assert joules(first, before) == pytest.approx(100.0, abs=0.1)
        assert joules(after, last) == pytest.approx(100.0, abs=0.1)
        with pytest.raises(CoverageError):
            joules(before, after)
    tree.close()


def test_an_event_that_was_closed_is_not_taken_for_one_that_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)  # marks that are drawn alike
    kernel = KernelEvents()
    try:
        first = kernel.open(1, 0, 0)
    except OSError as error:
        pytest.skip(f"perf events are not permitted here: {error}")
    known = kernel._open[first]
    os.close(known[0])
    second = kernel.open(1, 0, 0)
    assert kernel._open[second] == known
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.read(first)
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.close(first)
    assert kernel.read(second) >= 0
    kernel.close(second)


def test_of_a_pipe_that_has_the_number_of_a_closed_event_nothing_is_taken() -> None:
    kernel = KernelEvents()

    def events() -> set[int]:
        return {int(fd.name) for fd in Path("/proc/self/fd").iterdir() if "perf_event" in os.path.realpath(fd)}

    before = events()
    try:
        handles = [kernel.open(1, 0, 0) for _ in range(2)]
    except OSError as error:
        pytest.skip(f"perf events are not permitted here: {error}")
    fds = events() - before
    for fd in fds:
        os.close(fd)
    ends = os.pipe()
    assert set(ends) == fds
    os.write(ends[1], bytes(8))
    for handle in handles:
        with pytest.raises(OSError, match="Bad file descriptor"):
            kernel.read(handle)
        with pytest.raises(OSError, match="Bad file descriptor"):
            kernel.close(handle)
    assert os.read(ends[0], 9) == bytes(8)
    for fd in ends:
        os.close(fd)


@given(st.text(alphabet="0123456789,- \n", max_size=12))
def test_any_text_is_a_list_of_cpus_or_refused(text: str) -> None:
    try:
        cpus = cpu_list(text)
    except ValueError:
        return
    assert all(str(cpu) in {str(int(p)) for p in re.findall(r"\d+", text)} or "-" in text for cpu in cpus)


def test_lists_of_cpus_are_read_as_the_kernel_writes_them() -> None:
    assert cpu_list("0,18\n") == (0, 18)
    assert cpu_list("0-2,8") == (0, 1, 2, 8)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("type", "power"),
        ("cpumask", ""),
        ("cpumask", "0,8,16"),
        ("events/energy-pkg", "event=two"),
        ("events/energy-pkg.unit", "Watts"),
        ("events/energy-pkg.scale", "nan"),
        ("events/energy-pkg.scale", "-1"),
    ],
)
def test_events_that_are_described_oddly_are_not_guessed(
    world: World, clock: ManualClock, file: str, content: str
) -> None:
    tree, events = Tree(), PerfEvents(world)
    events.describe(tree)
    tree.write(f"bus/event_source/devices/power/{file}", content)
    assert not [e for e in find_events(tree.root) if e.part.kind is Kind.PACKAGE]
    with pytest.raises(BackendUnavailableError, match="no perf event for the energy of a package"):
        rapl.open_source(None, clock=clock, sysfs_root=tree.root, via="perf", perf=events)
    tree.close()


@pytest.mark.parametrize("wrap_after_j", [math.nan, math.inf, -1.0])
def test_an_energy_to_wrap_after_that_cannot_be_is_named(wrap_after_j: float) -> None:
    with pytest.raises(TargetError, match="an energy to wrap after, 0 to 262143 joules"):
        open_virtual(clock=ManualClock(), wrap_after_j=wrap_after_j)
