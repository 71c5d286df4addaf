from __future__ import annotations

import math
from dataclasses import replace

import pytest

import pmtpy as pmt
from pmtpy.cli.page import plain
from pmtpy.cli.report import page
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import make_world
from pmtpy.live.watch import Watch
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Counter, Gauge, Stream, counter_sensor


def test_what_has_no_total_is_told_without_a_method() -> None:
    clock, source, sensor = counter_sensor()
    sensor.close()
    source = Counter(source.world)
    source.channels = tuple(replace(c, domain="") for c in source.channels)
    with Sensor(source, "parts", clock) as parts:
        with pmt.region("some", parts) as region:
            clock.advance(1)
        assert str(region["parts"]).startswith("parts: energy not known in 1 s, 2 warnings")
        with pytest.raises(pmt.CoverageError, match="no sum of parts: none of them says which part"):
            _ = region.total


def test_a_meter_and_a_built_in_sensor_are_not_summed() -> None:
    clock, _, sensor = counter_sensor()
    with sensor, Sensor(Stream(make_world(clock=clock)), "meter", clock) as meter:
        with pmt.region("both", sensor, meter) as r:
            clock.advance(1)
        with pytest.raises(pmt.CoverageError, match="external meter"):
            _ = r.total


@pytest.mark.parametrize(("load", "agree"), [("constant:60", True), ("constant:90", False)])
def test_a_total_says_which_sensor_contradicts_the_one_that_is_summed(load: str, *, agree: bool) -> None:
    clock = ManualClock()
    sources = [Gauge(make_world(each, clock=clock)) for each in ("constant:60", load)]
    for source in sources:
        source.channels = tuple(replace(c, domain="host") for c in source.channels)
    with Sensor(sources[0], "supply", clock) as supply, Sensor(sources[1], "board", clock) as board:
        for _ in range(3):
            clock.advance(0.2)
            supply.read()
            board.read()
        with pmt.region("both", supply, board) as r:
            for _ in range(20):
                clock.advance(0.2)
                supply.read()
                board.read()
        assert r.total.joules == pytest.approx(r["supply"].joules)
        said = [w for w in r.total.warnings if w.startswith("board shows ")]
        assert bool(said) == (not agree), (r["supply"], r["board"])


def test_the_page_says_why_a_part_has_no_energy_that_is_in_no_total() -> None:
    clock, source, sensor = counter_sensor()
    sensor.close()
    source = Counter(source.world)
    source.channels = tuple(replace(c, max_watts=1.0) if c.name == "package0.core" else c for c in source.channels)
    with Sensor(source, "parts", clock) as parts:
        with pmt.region("some", parts) as region:
            for _ in range(10):
                clock.advance(0.1)
                parts.read()
        said = "jumped by an impossible amount"
        assert region["parts"].channels["package0.core"].coverage < 0.5
        assert not any(said in why for why in region["parts"].warnings)
        assert sum(said in line for line in plain(page(region, None)).splitlines()) == 1


def test_a_total_says_which_sensor_is_not_in_it() -> None:
    clock, source, sensor = counter_sensor()
    silent = Gauge(source.world)
    silent.channels = tuple(replace(c, domain="") for c in silent.channels)
    with sensor, Sensor(silent, "rails", clock) as rails:
        with pmt.region("both", sensor, rails) as r:
            clock.advance(1)
        assert {name.partition("/")[0] for name in r.total.channels} == {sensor.target}
        said = "the total is without rails: nothing says which part of the machine it measures"
        assert said in r.total.warnings
        assert f"note: {said}" in plain(page(r, r.total))
        look = Watch([sensor, rails], clock=clock).look()
        assert look.total is not None
        assert look.why == said


@pytest.mark.parametrize("whole_machine", [False, True])
def test_all_gpus_at_a_socket_and_a_gpu_are_not_summed_unless_both_are_inside_the_machine(
    *, whole_machine: bool
) -> None:
    """Nothing says whether the GPU is one of them: no sum, rather than one that counts it twice or leaves it out."""
    clock, source, sensor = counter_sensor()
    domains = ["host" if whole_machine else "host/socket8/package", "host/socket8/gpus", "host/socket8/dram"]
    channels = tuple(replace(c, domain=d) for c, d in zip(source.channels, domains, strict=True))
    sensor.close()
    source = Counter(source.world)
    source.channels = channels
    with Sensor(source, "occ:1", clock) as occ, Sensor(Gauge(source.world), "gauge", clock) as gpu:
        with pmt.region("both", occ, gpu) as r:
            clock.advance(1)
        if whole_machine:
            assert set(r.total.channels) == {"occ:1/package0"}
        else:
            with pytest.raises(pmt.CoverageError, match=r"all its GPUs \(occ:1\) may see .* sees \(gauge\)"):
                _ = r.total


@pytest.mark.parametrize("number", ["8", "1?"])
def test_a_socket_of_a_guessed_number_is_not_summed_with_another_sensors_sockets(number: str) -> None:
    """An exported OCC file does not say that its second chip is number 8, as another sensor calls it."""
    clock, source, sensor = counter_sensor()
    sensor.close()

    def at(socket: str, target: str) -> Sensor:
        other = Counter(source.world)
        domains = [f"host/socket{socket}/{part}" for part in ("package", "package/core", "dram")]
        other.channels = tuple(replace(c, domain=d) for c, d in zip(other.channels, domains, strict=True))
        return Sensor(other, target, clock)

    with at(number, "occ:1") as occ, at("8", "hwmon") as hwmon:
        with pmt.region("both", occ, hwmon) as r, pmt.region("alone", occ) as alone:
            clock.advance(1)
        assert alone.total.joules == alone["occ:1"].joules
        if number == "8":
            assert set(r.total.channels) == {"occ:1/package0", "occ:1/dram0"}
        else:
            with pytest.raises(pmt.CoverageError, match="whose number is not known"):
                _ = r.total


def test_a_sensor_alone_is_as_uncertain_in_the_sum_as_in_its_own_total() -> None:
    clock = ManualClock()
    with pmt.create("rapl:virtual", clock=clock) as sensor:
        with pmt.region("short", sensor) as r:
            clock.advance(0.0123)
        summed = [m.uncertainty_joules for name, m in r["rapl:virtual"].channels.items()]
        assert r.total.uncertainty_joules == r["rapl:virtual"].uncertainty_joules
        assert r.total.uncertainty_joules > math.hypot(*summed)
