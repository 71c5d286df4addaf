"""Loads that begin and end with a region, or within one, by chips on a board: registers that a driver renews by itself.

What the chips and their drivers do is in docs/backends/hwmon.md and occ.md; truth is the load itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pmtpy.backends import hwmon, occ
from pmtpy.core.clock import NS_PER_S
from pmtpy.core.source import Source
from pmtpy.emulators.hwmon import Board, ChipSpec, Live
from pmtpy.emulators.occ import Machine
from pmtpy.emulators.world import World, make_world
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.clocks import OneThreadClock

REST, WORK = 10.0, 50.0
PHASES = 25
LEAST = 0.88  # of 25 regions that hold in 95 of 100 cases more than three lie outside in one of thirty draws
_READ_S = 0.0004  # what a reading, and the thread that takes it, are late by
# A supply whose microcontroller shows the mean of a tenth of a second.
_MEANS = ChipSpec("corsairpsu", "0003:1B1C:1C07.0001", {"power1_input": Live("mean", 1.0, 1000)}, 0.1,
                  {"power1_label": "power total"})  # fmt: skip
FarSide = tuple[Source, Callable[[int], None], Callable[[], None]]  # read, renewed, and closed


def of_hwmon(layout: str, world: World, *, kept_s: float = 0.0) -> FarSide:
    """Chips whose driver asks them no more often than each ``kept_s``."""
    board = Board(world, "ina226" if layout == "means" else layout)
    if layout == "means":
        board.unregister(0)
        board.register(0, _MEANS)
    asked_ns = world.epoch_ns

    def refresh(now_ns: int) -> None:
        nonlocal asked_ns
        if now_ns - asked_ns >= kept_s * NS_PER_S:
            board.refresh(now_ns)
            asked_ns = now_ns

    return hwmon.open_source(None, clock=world.clock, sysfs_root=board.tree.root), refresh, board.tree.close


def of_occ(world: World, path: Path) -> FarSide:
    machine = Machine(world, 1)

    def refresh(now_ns: int) -> None:
        machine.advance(now_ns)
        path.write_bytes(machine.image)

    refresh(world.clock.now_ns())
    return occ.open_source(clock=world.clock, file=str(path)), refresh, path.unlink


def measured(chip: str, load: str, begin_s: float, length_s: float, path: Path) -> tuple[Measurement, Measurement]:
    """Return what is said of a region at once, and a while later."""
    clock = OneThreadClock()
    world = make_world(load, clock=clock)
    source, refresh, close = {
        "ina226": lambda: of_hwmon("ina226", world),
        "grace": lambda: of_hwmon("server", world, kept_s=0.05),
        "means": lambda: of_hwmon("means", world),
        "occ": lambda: of_occ(world, path),
    }[chip]()
    period_s = source.traits.interval_s
    with ExitStack() as after, Sensor(source, chip, clock, interval_s=period_s) as sensor:
        after.callback(close)
        polls, due_s, dithered = 0, 0.0, acquisition_of(sensor).demand.irregular(source.traits, period_s)
        chance = random.Random(begin_s)

        def until(t_s: float) -> None:
            """Poll as a poller does, which an end of a region does not wait for."""
            nonlocal polls, due_s
            while due_s <= t_s:
                clock.advance(max(0.0, due_s - (clock.now_ns() - world.epoch_ns) / NS_PER_S))
                refresh(clock.now_ns())
                acquisition_of(sensor).step()
                polls += 1
                due_s = (polls + (chance.uniform(0.0, 1.0) if dithered else 0.0)) * period_s + _READ_S
            clock.advance(t_s - (clock.now_ns() - world.epoch_ns) / NS_PER_S)

        until(begin_s)
        with Region("work", {chip: sensor}) as region:
            until(begin_s + length_s)
        at_once = region[chip]
        until(begin_s + length_s + 1.0)
        return at_once, region[chip]


def held(chip: str, length_s: float, work: tuple[float, float], path: Path) -> tuple[list[float], list[float]]:
    """Return the shares of regions that held, at once and later, and how wide they are at most; ``work`` is from to."""
    begun, ended = work
    used = REST * length_s + (WORK - REST) * (ended - begun)
    inside, widest = [0, 0], [0.0, 0.0]
    for phase in range(PHASES):
        begin_s = 1.2 + 0.1 * phase / PHASES
        load = f"steps:0={REST},{begin_s + begun}={WORK},{begin_s + ended}={REST}"
        for when, m in enumerate(measured(chip, load, begin_s, length_s, path)):
            inside[when] += abs(m.joules - used) <= 1.96 * m.uncertainty_joules
            widest[when] = max(widest[when], m.uncertainty_joules / used)
    return [n / PHASES for n in inside], widest


@pytest.mark.parametrize("chip", ["ina226", "grace", "means", "occ"])
@pytest.mark.parametrize("length_s", [0.01, 0.05, 0.3])
def test_a_load_that_is_the_region_is_within_what_is_stated(chip: str, length_s: float, tmp_path: Path) -> None:
    assert min(held(chip, length_s, (0.0, length_s), tmp_path / "occ")[0]) >= LEAST


@pytest.mark.parametrize("chip", ["ina226", "grace", "means", "occ"])
def test_work_within_a_region_is_within_what_is_stated(chip: str, tmp_path: Path) -> None:
    """A register that is polled about as often as it is renewed shows some values twice, and others never."""
    assert min(held(chip, 1.0, (0.3, 0.42), tmp_path / "occ")[0]) >= LEAST


def test_an_uncertainty_is_no_more_than_a_rail_could_have_carried(tmp_path: Path) -> None:
    """10 ms at 41 A and 15 V are 6 J: of 0.5 J that is twelve times as much, where 20 kW made a hundred."""
    assert max(held("ina226", 0.01, (0.0, 0.01), tmp_path)[1]) < 8.0
