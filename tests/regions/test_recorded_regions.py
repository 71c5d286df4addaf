"""Regions that end while a dump runs stand in its metadata, at their exact times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.analysis.comparison.compare import compare
from pmtpy.core.clock import ManualClock
from pmtpy.core.markers import Span
from pmtpy.core.source import Traits
from pmtpy.emulators.world import World, make_world
from pmtpy.io.recorded import aged_of
from pmtpy.lab.traces import trace_of
from pmtpy.live.stored import StoredTrack
from pmtpy.live.tracks import select
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Gauge


def test_a_dump_tells_of_the_regions_that_ended_meanwhile(tmp_path: Path) -> None:
    with pmt.create("rapl:virtual") as sensor:
        with pmt.region("before", sensor):
            pass
        with sensor.dump(tmp_path / "a.csv"):
            with pmt.region("größe", sensor) as r:
                sum(range(1000))
            with pmt.region("zweite", sensor):
                pass
        seconds = r[sensor.target].seconds
    facts = json.loads((tmp_path / "a.csv.json").read_text(encoding="utf-8"))
    assert [region["label"] for region in facts["regions"]] == ["größe", "zweite"]
    first = facts["regions"][0]
    assert (first["end_ns"] - first["start_ns"]) / 1e9 == seconds
    assert facts["anchors"]["start"]["monotonic_ns"] <= first["start_ns"] <= facts["anchors"]["end"]["monotonic_ns"]


class _Renewed(Gauge):
    """A power that is renewed less often than it is polled, as most registers are."""

    def __init__(self, world: World) -> None:
        super().__init__(world, 0.1)
        self.traits = Traits(interval_s=0.07)
        self.shown: tuple[float, list[float]] = (-1.0, [])

    def poll(self) -> Sequence[float]:
        tick = world_tick(self.world)
        if tick != self.shown[0]:
            self.shown = tick, list(super().poll())
        return self.shown[1]


def world_tick(world: World) -> float:
    return world.clock.now_ns() // 100_000_000


def test_what_is_recorded_is_as_uncertain_as_what_was_measured(tmp_path: Path) -> None:
    clock, path = ManualClock(10**9), tmp_path / "a.csv"
    world = make_world("square:low=50,high=150,hz=0.8", clock=clock)
    with Sensor(_Renewed(world), "test", clock) as sensor:
        sensor.start_dump(path, interval=0.07)
        facts = json.loads((tmp_path / "a.csv.json").read_text(encoding="utf-8"))
        assert facts["aged_s"] == 0.07  # known of a dump that is killed, too
        for _ in range(60):
            clock.advance(0.07)
            sensor.read()
        with pmt.region("work", sensor) as region:
            for _ in range(9):
                clock.advance(0.07)
                sensor.read()
        for _ in range(60):
            clock.advance(0.07)
            sensor.read()
        live = region["test"]
        sensor.stop_dump()
    table = pmt.load(path)
    facts = table.attrs["metadata"]
    assert facts["aged_s"] == pytest.approx(0.07)
    begin_s = (facts["regions"][0]["start_ns"] - facts["anchors"]["start"]["monotonic_ns"]) / 1e9
    begin_s -= float(table["time"].iloc[0]) - facts["anchors"]["start"]["unix_ns"] / 1e9
    shown = select(StoredTrack.of_file("a", path), begin_s, begin_s + live.seconds).powers[0]
    assert shown.joules == pytest.approx(live.joules, rel=1e-3)
    assert shown.uncertainty_joules == pytest.approx(live.uncertainty_joules, rel=0.15)
    start_s = float(table["time"].iloc[0]) + begin_s
    trace = trace_of(table, "gpu", "gpu")
    span = Span(start_s, start_s + live.seconds, "work")
    twice = compare([trace, replace(trace, name="other", aged_s=0.0)], one_clock=True, regions=[span], whole=False)
    (found,) = twice.regions
    assert found.energies["gpu"].uncertainty_joules > 1.1 * found.energies["other"].uncertainty_joules
    assert dict(live.channels["gpu"].components)["clock"] > 0.4 * live.uncertainty_joules
    # An older file does not tell: its register may be as old as its polls.
    told = {"polled_s": 0.07, "stamped": False}
    assert [aged_of(told), aged_of(told | {"stamped": True}), aged_of({"polled_s": None}), aged_of(None)] == [
        0.07,
        0,
        0,
        0,
    ]
