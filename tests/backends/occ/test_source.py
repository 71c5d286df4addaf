from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends.occ import discover, open_source
from pmtpy.backends.occ._progress import check
from pmtpy.backends.occ.layout import BLOCK_BYTES, Record
from pmtpy.core.channel import Derivation
from pmtpy.core.clock import ManualClock
from pmtpy.core.rows import Block, Layout
from pmtpy.core.source import Source
from pmtpy.emulators.occ import TICKS_PER_S, Machine, open_virtual
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, ReadError, SourceLostError, TargetError
from pmtpy.sensor.registry import create
from pmtpy.testing import check_lost, check_source, check_truth
from tests.support.daemons import descriptors, numbers_of_a_socket

CYCLE_S = 80 / TICKS_PER_S
PING, PONG = 0xDC00, 0x18C00


class Bench:
    """A machine, its exported file, and a source on it; time moves by :meth:`step`."""

    def __init__(
        self,
        path: Path,
        load: str = "square:low=30,high=90,hz=1",
        sockets: int = 2,
        clock: ManualClock | None = None,
        **options: object,
    ) -> None:
        self.clock = clock or ManualClock()
        self.world: World = make_world(load, clock=self.clock)
        self.machine = Machine(self.world, sockets)
        self.path = path
        self.damage: Callable[[bytearray], None] = lambda image: None
        self.write()
        self.source: Source = open_source(clock=self.clock, file=str(path), **options)  # type: ignore[arg-type]
        self.names = [c.name for c in self.source.channels if c.derivation is Derivation.DIRECT]

    def write(self) -> None:
        image = bytearray(self.machine.image)
        self.damage(image)
        with self.path.open("r+b" if self.path.exists() else "wb") as out:
            out.write(image)

    def step(self, seconds: float = 0.02) -> Block:
        self.clock.advance(seconds)
        self.machine.advance(self.clock.now_ns())
        self.write()
        return self.source.read()

    def rows(self, polls: int, seconds: float = 0.02) -> list[Block]:
        blocks = [self.source.read(), *(self.step(seconds) for _ in range(polls))]
        return [b for b in blocks if len(b)]

    def watts(self, a: Block, b: Block, name: str) -> float:
        """Mean power between two rows, from the registers."""
        total, number = self.names.index(f"{name}.sum"), self.names.index(f"{name}.samples")
        sums = (float(b.raw[0, total]) - float(a.raw[0, total])) % 2**52
        return sums / ((float(b.raw[0, number]) - float(a.raw[0, number])) % 2**32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "occ_inband_sensors"


def seconds(block: Block) -> float:
    return float(block.t_ns[0]) * 1e-9


def test_every_refresh_is_one_row_at_the_instant_of_its_stamps(path: Path) -> None:
    rows = Bench(path).rows(200)
    gaps = np.diff([seconds(b) for b in rows])
    assert len(rows) == pytest.approx(4.0 / CYCLE_S, abs=2)
    # Durations are those of the stamps, but for the slow alignment of the clocks (0.01 %) and one step of a stamp.
    assert gaps == pytest.approx(CYCLE_S, rel=1.1e-4)
    assert all(b.lost is None for b in rows)
    assert not any(b.fresh for b in rows)


@pytest.mark.parametrize("whole", [False, True])
def test_energy_is_that_of_the_load(path: Path, *, whole: bool) -> None:
    bench = Bench(path, whole=whole)
    rows = bench.rows(500)
    joules = sum(bench.watts(a, b, "system") * (seconds(b) - seconds(a)) for a, b in pairwise(rows))
    a, b = (int(r.t_ns[0]) for r in (rows[0], rows[-1]))
    # Whole watts are measured exactly here. The row times may be off by half a cycle at the first guess and less later:
    # 60 W between the levels, at either end.
    assert joules == pytest.approx(bench.world.joules_between(a, b), abs=60 * CYCLE_S)


def test_mean_power_over_whole_periods_is_exact_but_for_the_rounding(path: Path) -> None:
    bench = Bench(path, "constant:200")
    rows = bench.rows(100)
    assert bench.watts(rows[0], rows[-1], "system") == 200
    assert bench.watts(rows[0], rows[-1], "socket0.processor") == 50
    assert bench.watts(rows[0], rows[-1], "socket1.gpus") == 30
    # 30 W exactly on the core rail; 7 W on the other; sampled at a quarter of the ticks although the table says half.
    assert bench.watts(rows[0], rows[-1], "socket1.processor.vdd") == 30
    assert bench.watts(rows[0], rows[-1], "socket0.processor.vdn") == 7


def test_the_rail_sensors_are_not_believed_to_run_at_their_nominal_rate(path: Path) -> None:
    bench = Bench(path, "constant:200")
    rows = bench.rows(100)
    i = bench.names.index("socket0.processor.vdd.samples")
    rate = float(rows[-1].raw[0, i] - rows[0].raw[0, i]) / (seconds(rows[-1]) - seconds(rows[0]))
    assert rate == pytest.approx(TICKS_PER_S / 4, rel=3e-4)


def test_the_total_is_the_whole_machine_and_nothing_is_counted_twice(path: Path) -> None:
    layout = Layout(Bench(path).source.channels)
    assert [layout.names[i] for i in layout.in_total] == ["system"]


def test_without_a_reading_of_the_whole_machine_the_parts_of_all_sockets_are_the_total(path: Path) -> None:
    bench = Bench(path, device="1")
    layout = Layout(bench.source.channels)
    assert [layout.names[i] for i in layout.in_total] == ["socket1.gpus", "socket1.processor", "socket1.memory"]
    assert {c.domain for c in layout.energy if "vd" in c.name} == {
        "host/socket1?/package/vdd",  # of a file alone, the number of the second chip is a guess
        "host/socket1?/package/vdn",
    }


def test_a_whole_machine_that_draws_nothing_is_not_believed(path: Path) -> None:
    bench = Bench(path)
    for _ in range(20):
        bench.machine.occs[0].set_counters("PWRSYS", 0, 10**6)
        bench.machine.occs[0]._share[0] = 0  # the first sensor that watches the load is PWRSYS
        bench.step(0.04)
    source = open_source(clock=bench.clock, file=str(path))
    names = [c.name for c in source.channels]
    source.close()
    assert "system" not in names
    assert any("PWRSYS" in note for note in source.identity.notes)


def test_gpus_that_never_drew_anything_are_not_there(path: Path) -> None:
    """Boards without the converter write zeros: as a part of the machine they would stand for its GPUs."""
    bench = Bench(path)
    occ = bench.machine.occs[1]
    occ._share[0] = 0  # the first sensor of the second OCC that watches the load is PWRGPU
    for _ in range(20):
        occ.set_counters("PWRGPU", 0, 10**6)
        bench.step(0.04)
    source = open_source("1", clock=bench.clock, file=path)
    source.close()
    assert "socket1.gpus" not in [c.name for c in source.channels]
    assert source.identity.notes == ("block 1: listed but never sampled, or always 0: PWRGPU",)


@pytest.mark.parametrize(
    ("packages", "second"), [((0, 0, 8, 8), "8"), ((0, 0, 0, 0), "1?"), ((0, -1, 8, 16), "1?"), ((), "1?")]
)
def test_a_socket_is_known_by_the_number_of_its_chip_as_other_sensors_know_it(
    tmp_path: Path, packages: tuple[int, ...], second: str
) -> None:
    """``hwmon:ibmpowernv`` says chip 8: the second block must not pass for another processor in a common total."""
    file = tmp_path / "firmware/opal/exports/occ_inband_sensors"
    file.parent.mkdir(parents=True)
    file.write_bytes(Machine(make_world("60", clock=ManualClock())).image)
    for cpu, package in enumerate(packages):
        topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
    source = open_source("1", clock=ManualClock(), sysfs_root=tmp_path)
    source.close()
    named = {c.name: c.domain for c in source.channels}
    assert named["socket1.processor"] == f"host/socket{second}/package"
    assert named["socket1.memory"] == f"host/socket{second}/dram"


def test_channels_of_the_converter_say_what_is_connected_and_idle_ones_are_left_out(path: Path) -> None:
    source = Bench(path).source
    labels = {c.name: c.label for c in source.channels if c.name.startswith("converter") and c.measures_energy}
    assert labels["converter.channel12"] == "PWRAPSSCH12: total system"
    assert "converter.channel0" not in labels
    assert source.identity.notes == ()


@pytest.mark.parametrize(("gone", "said"), [(b"PWRMEM", True), (b"PWRVDD", False)])
def test_a_total_that_lacks_a_part_of_one_socket_says_so(path: Path, gone: bytes, *, said: bool) -> None:
    """The rail is inside of its processor, so that nothing is missing from the total without it."""
    image = bytearray(Machine(make_world("60", clock=ManualClock())).image)
    for name in (b"PWRSYS", gone):
        row = image.index(name.ljust(16, b"\0"), BLOCK_BYTES if name == gone else 0)
        image[row : row + 6] = b"OTHER" + name[-1:]
    path.write_bytes(image)
    source = open_source(clock=ManualClock(), file=str(path))
    source.close()
    assert any("the total is without" in note for note in source.identity.notes) is said


@pytest.mark.parametrize(("device", "said"), [(None, 1), ("0", 0)])
def test_a_total_of_parts_says_of_which_where_all_blocks_are_read(path: Path, device: str | None, said: int) -> None:
    image = bytearray(Machine(make_world("60", clock=ManualClock())).image)
    row = image.index(b"PWRSYS".ljust(16, b"\0"))
    image[row : row + 6] = b"OTHERS"
    path.write_bytes(image)
    source = open_source(device, clock=ManualClock(), file=str(path))
    source.close()
    notes = [note for note in source.identity.notes if "the total is the sum of PWRPROC, PWRMEM, PWRGPU, and" in note]
    assert len(notes) == said


def test_a_sensor_of_the_machine_that_was_never_sampled_is_left_out_with_a_note(path: Path) -> None:
    def unplug(image: bytearray) -> None:
        for buffer in (PING, PONG):
            image[buffer + 6920 : buffer + 6968] = bytes(48)

    image = bytearray(Machine(make_world("60", clock=ManualClock())).image)
    unplug(image)
    path.write_bytes(image)
    source = open_source(clock=ManualClock(), file=path)
    source.close()
    assert "socket0.gpus" not in [c.name for c in source.channels]
    assert source.identity.notes == ("block 0: listed but never sampled, or always 0: PWRGPU",)


def test_other_sensors_come_on_request_in_si(path: Path) -> None:
    bench = Bench(path, sensors="TEMPNEST, FREQA,VOLTVDD,VOLTDROOPCNTQ2,PWRSYS")
    row = bench.rows(10)[-1]
    direct = [c for c in bench.source.channels if c.derivation is Derivation.DIRECT]
    si = {c.name: float(row.raw[0, i]) * c.scale for i, c in enumerate(direct)}
    assert si["socket0.tempnest"] == 41
    assert si["socket1.freqa"] == pytest.approx(3.45e9)
    assert si["socket1.voltvdd"] == pytest.approx(0.9)
    assert si["socket0.voltdroopcntq2"] > 0
    assert [c.unit for c in direct if c.name == "socket1.voltvdd"] == ["V"]


def test_an_unknown_sensor_or_block_is_refused_with_what_there_is(path: Path) -> None:
    with pytest.raises(TargetError, match="TEMPNEST"):
        Bench(path, sensors="TEMPNETS")
    with pytest.raises(TargetError, match="0 to 1"):
        Bench(path, device="2")
    with pytest.raises(TargetError, match="never sampled"):
        Bench(path, sensors="PWRAPSSCH15")


def test_counters_wrap_without_a_trace(path: Path) -> None:
    bench = Bench(path, "constant:200")
    for occ in bench.machine.occs:
        occ.set_counters("PWRPROC", 2**64 - 50_000, 2**32 - 1000)
    bench.rows(5)
    rows = bench.rows(100)
    assert not any(b.fresh for b in rows)
    assert {bench.watts(a, b, "socket0.processor") for a, b in pairwise(rows)} == {50.0}
    i = bench.names.index("socket0.processor.samples")
    assert rows[-1].raw[0, i] < rows[0].raw[0, i]


def test_a_restart_begins_anew_and_adds_nothing_across(path: Path) -> None:
    bench = Bench(path)
    bench.rows(20)
    for occ in bench.machine.occs:
        occ.restart()
    assert not len(bench.step(0.001))  # both buffers are invalid: a lost row, not an error
    rows = bench.rows(30)
    assert [b.fresh for b in rows].index(True) == 0
    assert not any(b.fresh for b in rows[1:])


def test_readings_that_stay_valid_after_the_occ_has_died_are_reported_and_then_given_up(path: Path) -> None:
    bench = Bench(path)
    bench.rows(10)
    for occ in bench.machine.occs:
        occ.running = False
    rows = bench.rows(400)
    assert len(rows) <= 2
    with pytest.raises(SourceLostError, match="does not update"):
        bench.step(3.0)
    with pytest.raises(SourceLostError, match="does not update"):
        bench.source.read()


def test_an_occ_that_died_between_two_far_readings_is_noticed_by_the_age_of_its_stamps(path: Path) -> None:
    bench = Bench(path)
    bench.rows(10)
    bench.step(30.0)
    for occ in bench.machine.occs:
        occ.running = False
    with pytest.raises(SourceLostError, match=r"is 2[0-9]\.[0-9] s old"):
        bench.step(30.0 - 0.5)


def test_an_occ_that_pauses_for_seconds_is_survived_and_the_pause_is_not_measured(path: Path) -> None:
    bench = Bench(path)
    bench.rows(10)
    for occ in bench.machine.occs:
        occ.running = False
    bench.rows(200)
    for occ in bench.machine.occs:
        occ.running = True
    rows = bench.rows(40)
    assert sum(b.fresh for b in rows) == 1
    assert sum(int(b.lost[0]) for b in rows if b.lost is not None) > 100


def test_after_a_pause_of_the_updates_no_block_is_taken_from_before_it(path: Path) -> None:
    """Samples go on meanwhile. The newest record of one block is from just before the pause, of the other behind it."""
    bench = Bench(path, "square:low=30,high=300,hz=0.2")
    held: dict[int, bytes] = {}

    def hold(image: bytearray) -> None:
        for i, block in held.items():
            image[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES] = block

    def shown(i: int) -> bytes:
        return path.read_bytes()[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES]

    bench.damage = hold
    rows = bench.rows(80)
    held[0] = shown(0)
    rows += bench.rows(4)  # a cycle of the other one
    held[1] = shown(1)
    rows += bench.rows(200)
    for i in (0, 1):
        del held[i]
        rows += bench.rows(3)
    rows += bench.rows(80)
    assert not any(row.fresh for row in rows[1:])
    for name in ("socket0.processor", "socket1.processor", "socket1.memory"):
        joules = sum(bench.watts(a, b, name) * (seconds(b) - seconds(a)) for a, b in pairwise(rows))
        whole = bench.watts(rows[0], rows[-1], name) * (seconds(rows[-1]) - seconds(rows[0]))
        # Row by row it is that of all samples, but for a cycle of one block against the other where the load steps.
        assert joules == pytest.approx(whole, abs=300 * 2 * CYCLE_S)


def test_one_dead_occ_of_two_stops_the_rows(path: Path) -> None:
    bench = Bench(path)
    bench.rows(10)
    bench.machine.occs[1].running = False
    with pytest.raises(SourceLostError):
        bench.rows(600)


def test_without_time_of_day_rows_are_at_host_time(path: Path) -> None:
    bench = Bench(path, "constant:200")
    for occ in bench.machine.occs:
        occ.time_known = False
    bench.rows(10)
    rows = bench.rows(100)
    assert len(rows) == pytest.approx(2.0 / CYCLE_S, abs=2)
    assert not any(b.fresh for b in rows)
    assert bench.watts(rows[0], rows[-1], "system") == 200


def test_the_table_may_move_when_the_firmware_starts_anew(path: Path) -> None:
    bench = Bench(path)
    bench.rows(20)
    machine = bench.machine

    def renumber(image: bytearray) -> None:
        """Ids 5 higher, everywhere in the first block."""
        for row in range(337):
            at = 0x400 + 48 * row
            (gsid,) = struct.unpack_from(">H", image, at + 20)
            (offset,) = struct.unpack_from(">I", image, at + 35)
            struct.pack_into(">H", image, at + 20, gsid + 5)
            for buffer in (PING, PONG):
                struct.pack_into(">H", image, buffer + offset, gsid + 5)

    bench.damage = renumber
    for occ in machine.occs:
        occ.restart()
    rows = bench.rows(40)
    assert rows[0].fresh
    assert len(rows) > 15
    assert bench.watts(rows[1], rows[-1], "system") == pytest.approx(60, abs=30)


def test_a_sensor_that_goes_from_the_table_is_a_loss(path: Path) -> None:
    bench = Bench(path)
    bench.rows(5)

    def rename(image: bytearray) -> None:
        at = image.index(b"PWRSYS")
        image[at : at + 6] = b"PWRXYZ"
        image[PING + 6872 + 1] += 1
        image[PONG + 6872 + 1] += 1

    bench.damage = rename
    with pytest.raises(SourceLostError, match="no longer lists PWRSYS"):
        bench.rows(5)


def _rescale(image: bytearray) -> None:
    """Tenths of watts for PWRSYS: the exponent of its scale, behind name, units, id, rate and mantissa, is -1."""
    image[image.index(b"PWRSYS") + 29] = 0xFF


def test_a_change_of_units_is_a_loss(path: Path) -> None:
    bench = Bench(path)
    bench.rows(5)
    bench.damage = _rescale
    with pytest.raises(SourceLostError, match="units"):
        bench.rows(200)


def test_firmware_that_starts_anew_with_other_scales_gives_no_row(path: Path) -> None:
    bench = Bench(path)
    bench.rows(20)
    bench.damage = _rescale
    for occ in bench.machine.occs:
        occ.restart()
    rows: list[Block] = []
    with pytest.raises(SourceLostError, match="units"):
        rows.extend(block for block in (bench.step() for _ in range(200)) if len(block))
    assert not rows


@pytest.mark.parametrize("whole", [False, True])
def test_firmware_that_starts_anew_with_other_sensors_at_the_same_places_is_followed(
    path: Path, *, whole: bool
) -> None:
    """The header is the same, and so are the ids at each place: names alone tell that the two have changed places."""
    bench = Bench(path, "constant:200", whole=whole)
    before = bench.rows(20)
    names = ("socket0.gpus", "socket0.memory")
    gpus, memory = (bench.watts(before[0], before[-1], name) for name in names)
    assert gpus != memory

    def exchange(image: bytearray) -> None:
        a, b = image.index(b"PWRGPU"), image.index(b"PWRMEM")
        image[a : a + 6], image[b : b + 6] = b"PWRMEM", b"PWRGPU"

    bench.damage = exchange
    for occ in bench.machine.occs:
        occ.restart()
    after = bench.rows(40)
    assert after[0].fresh
    assert [bench.watts(after[0], after[-1], name) for name in names] == [memory, gpus]


def test_a_group_that_is_switched_off_is_no_zero(path: Path) -> None:
    bench = Bench(path)
    bench.rows(5)

    def clear(image: bytearray) -> None:
        for buffer in (PING, PONG):
            image[buffer + 6872 : buffer + 6920] = bytes(48)

    bench.damage = clear
    assert not [b for b in [bench.step() for _ in range(20)] if len(b)]
    with pytest.raises(SourceLostError, match="switched this group of sensors off"):
        bench.rows(600)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("page", [4096, 65536, 1000])
def test_short_reads_are_looped(path: Path, monkeypatch: pytest.MonkeyPatch, page: int, *, whole: bool) -> None:
    """Sysfs gives a page at most, whatever was asked for."""
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, page), at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:page]], at))
    bench = Bench(path, "constant:200", whole=whole)
    rows = bench.rows(10)
    assert len(rows) >= 4
    assert bench.watts(rows[0], rows[-1], "system") == 200
    assert bench.watts(rows[0], rows[-1], "socket1.memory") == 10


def test_a_buffer_that_is_rewritten_while_it_is_read_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(path)
    bench.rows(10)
    pread = os.pread

    def slow_pread(fd: int, n: int, at: int) -> bytes:
        """The reader loses the processor for 9 ms in every call, while the OCC goes on."""
        part = pread(fd, n, at)
        bench.clock.advance(0.009)
        bench.machine.advance(bench.clock.now_ns())
        bench.write()
        return part

    monkeypatch.setattr(os, "pread", slow_pread)
    assert not len(bench.step())
    monkeypatch.undo()
    assert len(bench.step(0.05)) == 1


def test_a_single_hiccup_costs_no_energy(path: Path) -> None:
    bench = Bench(path, "constant:200")
    first = bench.rows(10)[-1]

    def invalidate(image: bytearray) -> None:
        for block in (0, BLOCK_BYTES):
            image[block + PING] = image[block + PONG] = 0

    bench.damage = invalidate
    assert not len(bench.step())
    bench.damage = lambda image: None
    last = bench.rows(5)[-1]
    assert not last.fresh
    assert bench.watts(first, last, "system") == 200


@given(
    at=st.one_of(
        st.integers(0, 24),
        st.integers(0x400 + 48 * 158, 0x400 + 48 * 180),
        st.integers(0, 48 * 22).map(lambda i: PING + 6872 + i),
        st.integers(0, 48 * 22).map(lambda i: PONG + 6872 + i),
        st.sampled_from([PING, PONG]),
    ),
    value=st.binary(min_size=1, max_size=12),
    polls=st.integers(1, 6),
    whole=st.booleans(),
)
def test_no_image_yields_a_silently_wrong_number(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: bytes, polls: int, *, whole: bool
) -> None:
    """Bytes are overwritten for a while: each pair of consecutive rows tells a power that the load had, or is fresh."""
    bench = Bench(tmp_path_factory.mktemp("occ") / "file", "square:low=100,high=200,hz=1", 1, whole=whole)
    rows = bench.rows(6)

    def overwrite(image: bytearray) -> None:
        image[at : at + len(value)] = value

    bench.damage = overwrite
    try:
        rows += [b for b in [bench.step(0.04) for _ in range(polls)] if len(b)]
        bench.damage = lambda image: None
        rows += [b for b in [bench.step(0.04) for _ in range(10)] if len(b)]
    except SourceLostError:
        pass
    finally:
        bench.source.close()
    for a, b in pairwise(rows):
        assert b.fresh or 100 <= bench.watts(a, b, "system") <= 200
        assert b.fresh or 50 <= bench.watts(a, b, "socket0.processor") <= 100
        assert b.t_ns[0] > a.t_ns[0]


def test_no_file_says_where_it_would_be(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match=r"(?s)occ_inband_sensors.*PowerNV") as caught:
        open_source(clock=ManualClock(), sysfs_root=str(tmp_path))
    assert caught.value.backend == "occ"
    found = discover(sysfs_root=str(tmp_path))
    assert not found.devices
    assert found.reason == caught.value.reason


def test_a_file_for_root_alone_gives_the_cure(
    path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    path.write_bytes(b"")
    path.chmod(0)
    with as_nobody(), pytest.raises(BackendUnavailableError, match=r"chmod a\+r.*--rules.*hwmon:ibmpowernv"):
        open_source(clock=ManualClock(), file=path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\1" * 1000, bytes(BLOCK_BYTES), b"\1" * BLOCK_BYTES, b"\xff" * (2 * BLOCK_BYTES)],
    ids=["empty", "short", "zeros", "ones", "all bits"],
)
def test_a_file_without_a_usable_block_is_an_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert not discover(file=str(path)).devices
    with pytest.raises(BackendUnavailableError):
        open_source(clock=ManualClock(), file=str(path))


@pytest.mark.timeout(60)
def test_a_pipe_is_no_exported_file_and_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(BackendUnavailableError, match="less than one block"):
        open_source(clock=ManualClock(), file=str(path))


def test_a_bad_block_is_left_out_with_a_note_and_the_rest_works(path: Path) -> None:
    machine = Machine(make_world("60", clock=ManualClock()))
    image = bytearray(machine.image) + b"tail"
    image[BLOCK_BYTES] = 0
    path.write_bytes(image)
    assert discover(file=str(path)).devices == ("",)
    source = open_source(clock=ManualClock(), file=str(path))
    source.close()
    assert not any(c.name.startswith("socket1") for c in source.channels)
    assert any(note.startswith("block 1 is left out") for note in source.identity.notes)


@pytest.mark.parametrize("whole", [False, True])
def test_a_sensor_whose_records_are_of_another_is_left_out_and_the_rest_works(path: Path, *, whole: bool) -> None:
    image = bytearray(Machine(make_world("60", clock=ManualClock())).image)
    row = image.index(b"PWRGPU".ljust(16, b"\0"), BLOCK_BYTES)
    image[row + 20 : row + 22] = struct.pack(">H", 9999)  # the id follows name and units
    path.write_bytes(image)
    source = open_source(clock=ManualClock(), file=str(path), whole=whole)
    names = [c.name for c in source.channels]
    assert "socket0.gpus" in names
    assert "socket1.gpus" not in names
    assert {"socket1.processor", "socket1.memory"} <= set(names)
    assert any("block 1: left out" in note and "PWRGPU (" in note for note in source.identity.notes)
    assert len(source.read()) == 1
    source.close()


def test_neither_buffer_valid_at_opening_is_an_error_that_says_to_wait(path: Path) -> None:
    image = bytearray(Machine(make_world("60", clock=ManualClock())).image)
    image[PING] = image[PONG] = 0
    path.write_bytes(image)
    with pytest.raises(BackendUnavailableError, match="try again"):
        open_source(clock=ManualClock(), file=str(path))


def test_a_file_that_becomes_shorter_is_a_failed_reading(path: Path) -> None:
    bench = Bench(path)
    bench.rows(5)
    os.truncate(path, BLOCK_BYTES)
    assert not len(bench.source.read())


def test_the_file_can_be_named_by_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(Machine(make_world("60", clock=ManualClock())).image)
    monkeypatch.setenv("PMT_OCC_FILE", str(path))
    assert discover().devices == ("",)


def test_closing_twice_is_allowed(path: Path) -> None:
    source = Bench(path).source
    source.close()
    source.close()


# Times of rows are within half a cycle, at each end of the interval, of up to 300 W beside the mean; they settle by
# 0.01 %; and samples are whole watts, whose rounding averages out on a load that moves.
RELATIVE, ABSOLUTE_J = 3e-4, 300 * CYCLE_S / 2
LOADS = ["square:low=30,high=90,hz=1", "sine:low=50,high=350,hz=0.3", "ramp:low=0,high=250,hz=2"]


@pytest.mark.parametrize("load", LOADS)
def test_the_virtual_device_tells_the_truth(load: str) -> None:
    """The rest of the suite, which no load changes, it passes with all other backends (tests/conformance)."""
    clock = ManualClock()
    source = open_virtual("virtual", clock=clock, load=load)
    try:
        check_truth(source, clock, load, seconds=8.0, relative=RELATIVE, absolute_joules=ABSOLUTE_J)
    finally:
        source.close()


def test_the_virtual_device_conforms_where_it_reads_the_whole_machine() -> None:
    check_source(
        lambda clock: open_virtual("virtual", clock=clock, load=LOADS[0], whole=True),
        LOADS[0],
        relative=RELATIVE,
        absolute_joules=ABSOLUTE_J,
    )


def test_a_virtual_sensor_counts_between_rare_readings() -> None:
    clock = ManualClock()
    with create("occ:virtual", clock=clock, load="square:low=100,high=200,hz=1") as sensor:
        assert sensor.identity.virtual
        clock.advance(1.0)
        a = sensor.read()
        clock.advance(1800.0)
        b = sensor.read()
    # Two ends of half a cycle and of a state extended by at most 64 ms, at 50 W beside the mean.
    assert b.joules[0] - a.joules[0] == pytest.approx(150 * 1800, rel=1.1e-4, abs=20)
    parts = dict(zip(b.names, np.subtract(b.joules, a.joules), strict=True))
    assert parts["socket0.processor"] == pytest.approx(0.25 * parts["total"], rel=2e-3)
    # The rail is truncated to whole watts: 15 and 30 W are whole.
    assert parts["socket1.processor.vdd"] == pytest.approx(0.15 * parts["total"], rel=2e-3)


def test_a_machine_that_stops_is_lost_for_good(path: Path) -> None:
    bench = Bench(path)
    bench.rows(5)
    check_lost(bench.source, bench.clock)


@pytest.mark.parametrize("options", [{"device": "virtual7"}, {"sockets": 0}, {"sockets": 9}])
def test_there_is_one_virtual_machine_of_one_to_eight_sockets(options: dict[str, object]) -> None:
    with pytest.raises(TargetError, match=r"occ|POWER9"):
        open_virtual(clock=ManualClock(), **options)  # type: ignore[arg-type]


def test_a_sensor_beside_the_powers_that_shows_what_cannot_be_is_lost_by_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(path, sensors="TEMPNEST,PWRSYS")

    def fails(name: str, record: Record) -> None:
        if name == "TEMPNEST":
            raise ReadError("occ: TEMPNEST shows what cannot be")
        check(name, record)

    monkeypatch.setattr("pmtpy.backends.occ._source.check", fails)
    rows = bench.rows(10)
    direct = [c.name for c in bench.source.channels if c.derivation is Derivation.DIRECT]
    assert rows
    shown = dict(zip(direct, rows[-1].raw[0].tolist(), strict=True))
    assert all(math.isnan(v) == ("tempnest" in name) for name, v in shown.items())


@pytest.mark.parametrize("whole", [False, True])
def test_a_program_that_closes_all_descriptors_goes_on_with_the_same_sums(path: Path, *, whole: bool) -> None:
    before = descriptors()
    bench = Bench(path, "constant:200", whole=whole)
    first = bench.rows(10)[-1]
    with numbers_of_a_socket(descriptors() - before):
        last = bench.rows(10)[-1]
        assert not last.fresh
        assert last.lost is None
        assert bench.watts(first, last, "system") == 200
        bench.source.close()
    assert descriptors() == before


def test_no_file_of_the_program_is_read_as_the_exported_one(path: Path, tmp_path: Path) -> None:
    before = descriptors()
    bench = Bench(path, "constant:200")
    first = bench.rows(10)[-1]
    other = Bench(tmp_path / "other", "constant:900")
    other.rows(10)
    (fd,) = (fd for fd in descriptors() - before if path.samefile(f"/proc/self/fd/{fd}"))
    theirs = os.open(tmp_path / "other", os.O_RDONLY)
    os.dup2(theirs, fd)
    last = bench.rows(10)[-1]
    assert bench.watts(first, last, "system") == 200
    bench.source.close()
    assert os.pread(fd, 1, 0) == os.pread(theirs, 1, 0)
    for own in (fd, theirs):
        os.close(own)


def test_a_daemon_that_may_not_open_the_file_again_is_told_so(
    path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    before = descriptors()
    bench = Bench(path, "constant:200")
    bench.rows(10)
    with numbers_of_a_socket(descriptors() - before):
        path.chmod(0)
        with as_nobody(), pytest.raises(SourceLostError, match=r"program has closed its descriptor.*permission denied"):
            bench.source.read()
        bench.source.close()


class HeldUp(ManualClock):
    """Whoever has asked for the time ``calls`` times is then held up: ``meanwhile`` happens before it goes on."""

    calls = 0
    meanwhile: Callable[[], None]

    def now_ns(self) -> int:
        now_ns = super().now_ns()
        self.calls -= 1
        if self.calls == 0:
            self.meanwhile()
        return now_ns


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_reading_that_was_held_up_is_no_proof_that_the_clocks_differ(tmp_path: Path, calls: int) -> None:
    """Seen on a busy machine: one stamp that looked 50 ms too new moved all later ones, by 0.1 ms in each second."""

    def placed(*, held_up: bool) -> int:
        clock = HeldUp()
        bench = Bench(tmp_path / f"held{held_up}", sockets=1, clock=clock)
        for seconds in (0.005, *[0.02] * 20):
            bench.step(seconds)

        def meanwhile() -> None:
            clock.advance(0.1)
            bench.machine.advance(clock.now_ns())
            bench.write()

        clock.meanwhile = meanwhile
        if held_up:
            clock.calls = calls
            bench.source.read()
        else:
            meanwhile()
        rows = [block for block in (bench.step() for _ in range(1500)) if len(block)]
        bench.source.close()
        return int(rows[-1].t_ns[-1])

    # 30 s at the most by which two clocks may differ (1e-4) are 3 ms
    assert abs(placed(held_up=True) - placed(held_up=False)) < 1_000_000


def test_what_nobody_has_seen_is_bounded_by_what_the_machine_can_take(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "file")
    powers = [c for c in bench.source.channels if c.derivation is Derivation.RATIO]
    assert {(c.max_watts, c.kept_watts) for c in powers} == {(5000.0, 5000.0)}
    bench.source.close()
