"""An INA226 through industrial I/O against its virtual far side."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from pmtpy.backends import iio
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import Source
from pmtpy.emulators.iio import NAME, Chip
from pmtpy.emulators.world import World, make_world
from pmtpy.errors import BackendUnavailableError, SourceLostError
from tests.support.daemons import descriptors, numbers_of_a_socket


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return make_world("constant:60", clock=clock)


@pytest.fixture
def chip(world: World) -> Iterator[Chip]:
    made = Chip(world)
    yield made
    made.close()


def opened(chip: Chip, clock: ManualClock) -> Source:
    return iio.open_source(None, clock=clock, sysfs_root=chip.tree.root, dev_root=chip.dev_root)


def test_conversions_bear_the_kernels_stamps_and_lost_ones_are_counted(chip: Chip, clock: ManualClock) -> None:
    source = opened(chip, clock)
    assert (source.identity.serial, source.identity.serial_is_place) == (NAME, True)
    folder = chip.tree.root / iio.DEVICES / NAME
    assert (folder / "current_timestamp_clock").read_text() == "monotonic"
    assert (folder / "buffer/enable").read_text() == "1"
    clock.advance(0.1)
    chip.refresh(clock.now_ns())
    block = source.read()
    assert len(block) == 45  # of 2.2 ms each
    chip.skip = 10
    clock.advance(0.1)
    chip.refresh(clock.now_ns())
    block = source.read()
    assert block.lost is not None
    assert block.lost.tolist()[0] == 10
    assert block.raw[0].tolist() == pytest.approx([9600, 8000], abs=1)  # 12 V in 1.25 mV, 5 A in 0.625 mA
    source.close()
    source.close()
    assert (folder / "buffer/enable").read_text() == "0"


@pytest.mark.parametrize(
    ("name", "shunt", "last_w"),
    [
        ("ina226", "0.004000", 245.74),  # 81.92 mV: 20.48 A of 12 V
        ("ina226", "8000", 122.86),  # in millionths, as older drivers write it
        ("ina219", "0.020000", 191.9),  # 320 mV: 16 A
    ],
)
def test_a_current_at_the_end_of_its_converter_is_not_known(
    name: str, shunt: str, last_w: float, clock: ManualClock
) -> None:
    for watts, known in ((last_w, True), (last_w + 0.5, False), (400.0, False)):
        world = make_world(f"constant:{watts}", clock=clock)
        chip = Chip(world, name=name)
        chip.tree.write(f"{iio.DEVICES}/{NAME}/in_shunt_resistor", shunt)
        source = opened(chip, clock)
        clock.advance(0.01)
        chip.refresh(clock.now_ns())
        volts, amperes = source.read().raw.T
        assert np.isfinite(volts).all()
        assert np.isfinite(amperes).any() == known
        source.close()
        chip.close()


def test_a_current_that_flows_back_is_negative_also_where_the_driver_calls_it_unsigned(
    chip: Chip, clock: ManualClock
) -> None:
    chip.tree.write(f"{iio.DEVICES}/{NAME}/scan_elements/{iio.CURRENT}_type", "le:u16/16>>0")
    source = opened(chip, clock)
    os.write(chip._pipe, np.array([9600, 65536 - 80, 0, 0], "<u2").tobytes() + clock.now_ns().to_bytes(8, "little"))
    assert source.read().raw.tolist() == [[9600.0, -80.0]]
    source.close()


def test_half_a_record_waits_for_its_rest(chip: Chip, clock: ManualClock) -> None:
    source = opened(chip, clock)
    clock.advance(0.0023)
    chip.refresh(clock.now_ns())
    whole = os.read(chip._pipe, 64)
    os.write(chip._pipe, whole[:7])
    assert len(source.read()) == 0
    os.write(chip._pipe, whole[7:])
    assert len(source.read()) == 1
    source.close()


def test_stamps_of_another_clock_are_refused(chip: Chip, clock: ManualClock) -> None:
    source = opened(chip, clock)
    chip._done_ns += 10**18
    chip.refresh(chip._done_ns + 10**7)
    with pytest.raises(SourceLostError, match="monotonic"):
        source.read()
    source.close()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("name", "ad7124", "no INA chip"),
        (f"{iio.VOLTAGE}_scale", "much", "holds no number"),
        (f"scan_elements/{iio.CURRENT}_type", "le:s12/16>>4", "how it stores"),
    ],
)
def test_what_is_not_as_it_should_be_is_named(
    file: str, content: str, message: str, chip: Chip, clock: ManualClock
) -> None:
    chip.tree.write(f"{iio.DEVICES}/{NAME}/{file}", content)
    with pytest.raises(BackendUnavailableError, match=message):
        opened(chip, clock)


def test_a_missing_node_and_a_wrong_name_have_their_cures(chip: Chip, clock: ManualClock) -> None:
    with pytest.raises(BackendUnavailableError, match="iio:device0"):
        iio.open_source("iio:device7", clock=clock, sysfs_root=chip.tree.root)
    (chip.dev_root / NAME).unlink()
    with pytest.raises(BackendUnavailableError, match="No such file"):
        opened(chip, clock)


def test_a_program_that_closes_all_descriptors_loses_the_chip_and_keeps_its_own(chip: Chip, clock: ManualClock) -> None:
    before = descriptors()
    source = opened(chip, clock)
    with numbers_of_a_socket(descriptors() - before):
        for _ in range(2):
            with pytest.raises(SourceLostError, match="program has closed its descriptor; reopen"):
                source.read()
        source.close()
    again = opened(chip, clock)
    clock.advance(0.1)
    chip.refresh(clock.now_ns())
    assert again.read().raw[-1].tolist() == pytest.approx([9600, 8000], abs=1)
    again.close()


def test_a_virtual_chip_writes_nothing_into_a_pipe_of_the_program(clock: ManualClock, world: World) -> None:
    before = descriptors()
    chip = Chip(world)
    with numbers_of_a_socket(descriptors() - before):
        clock.advance(0.1)
        chip.refresh(clock.now_ns())
        chip.close()
