from __future__ import annotations

import dataclasses
import itertools
import math
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_older_text

import pmtpy as pmt
from pmtpy.cluster._metrics import Text, samples
from pmtpy.cluster._watched import SensorNow, Watched
from pmtpy.cluster.opentelemetry import instrument
from pmtpy.cluster.prometheus import Collector
from pmtpy.core.channel import Identity
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import make_world
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.worlds import Counter, Gauge, Stream, counter_sensor


def shown(now: SensorNow) -> dict[tuple[str, str], float]:
    return {(family.name, channel): value for family, channel, value in samples(now)}


def test_energy_counts_from_the_beginning_with_its_uncertainty_and_refresh() -> None:
    clock, _, sensor = counter_sensor("constant:60")
    with sensor, Watched([sensor]) as watched:
        (first,) = watched.read()
        clock.advance(10.0)
        watched.read()  # the first judgement
        clock.advance(10.0)
        (now,) = watched.read()
        found = shown(now)
        assert shown(first)["pmt_energy_joules", "package0"] == 0.0
        assert found["pmt_energy_joules", "total"] == pytest.approx(1200.0, abs=4e-6)
        assert found["pmt_power_watts", "package0"] == pytest.approx(40.0)
        assert found["pmt_sensor_up", ""] == 1.0
        assert now.virtual
        assert ("pmt_energy_uncertainty_joules", "total") in found


def test_what_was_used_between_opening_and_watching_does_not_count() -> None:
    clock, _, sensor = counter_sensor("constant:60")
    with sensor:
        clock.advance(100.0)  # nobody reads a counter meanwhile
        with Watched([sensor]) as watched:
            clock.advance(10.0)
            (now,) = watched.read()
    assert shown(now)["pmt_energy_joules", "total"] == pytest.approx(600.0, abs=4e-6)


def test_the_uncertainty_holds_a_gain_in_full_however_often_it_is_judged() -> None:
    clock = ManualClock()
    source = Counter(make_world("constant:60", clock=clock))
    source.channels = tuple(dataclasses.replace(c, gain_u=0.02) for c in source.channels)
    with Sensor(source, "test", clock) as sensor, Watched([sensor]) as watched:
        for _ in range(21):
            (now,) = watched.read()
            clock.advance(6.0)
        by_name = {c.name: c for c in now.channels}
        assert by_name["package0"].joules == pytest.approx(4800.0)
        assert by_name["package0"].uncertainty_joules == pytest.approx(0.02 * 4800.0, rel=0.01)


@pytest.mark.parametrize("unread", [False, True])
def test_after_a_hiccup_the_counted_energy_is_as_sure_as_before(*, unread: bool) -> None:
    clock = ManualClock()
    source = Counter(make_world("constant:120", clock=clock))
    source.channels = tuple(dataclasses.replace(c.timed(refresh_s=0.001), gain_u=0.03) for c in source.channels)
    plain, still = source.poll, list(source.poll())

    def poll() -> list[float]:
        if not 7.0 < clock.now_ns() / 1e9 - begin_s < 13.0:
            still[:] = plain()
        elif unread:
            return [math.nan] * 3
        return list(still)

    source.poll = poll  # type: ignore[method-assign]
    begin_s = clock.now_ns() / 1e9
    with Sensor(source, "test", clock) as sensor, Watched([sensor]) as watched:
        for _ in range(300):
            (now,) = watched.read()
            clock.advance(0.1)
    package = next(c for c in now.channels if c.name == "package0")
    assert package.uncertainty_joules == pytest.approx(0.03 * package.joules, rel=0.05)


def test_what_was_used_before_anybody_asked_counts_and_quick_questions_leave_the_uncertainty_as_it_is() -> None:
    clock = ManualClock()
    source = Counter(make_world("constant:60", clock=clock))
    source.channels = tuple(dataclasses.replace(c, gain_u=0.02) for c in source.channels)
    with Sensor(source, "test", clock) as sensor, Watched([sensor]) as watched:
        clock.advance(6.0)
        for _ in range(40):
            watched.read()
            clock.advance(0.01)
        clock.advance(3.0)
        (now,) = watched.read()
        package = next(c for c in now.channels if c.name == "package0")
        assert package.joules == pytest.approx(40.0 * 9.4)
        assert package.uncertainty_joules == pytest.approx(0.02 * 40.0 * 9.4, rel=0.01)


def test_a_lost_sensor_shows_no_power_and_its_counter_stands_still_until_it_is_back() -> None:
    clock = ManualClock()
    world = make_world("constant:60", clock=clock)
    source = Counter(world)
    with Sensor(source, "test", clock, open_again=lambda: Counter(world)) as sensor, Watched([sensor]) as watched:
        watched.read()
        clock.advance(5.0)
        (before,) = watched.read()
        source.gone = True
        clock.advance(1.0)
        (gone,) = watched.read()
        assert "pulled out" in gone.why
        assert [c.joules for c in gone.channels] == [c.joules for c in before.channels]
        assert all(c.watts is None for c in gone.channels)
        assert shown(gone)["pmt_sensor_up", ""] == 0.0
        assert gone.channels[0].uncovered_s == pytest.approx(1.0)
        clock.advance(60.0)
        (back,) = watched.read()
        assert not back.why
        clock.advance(10.0)
        (later,) = watched.read()
        grown = later.channels[0].joules - before.channels[0].joules
        assert 600.0 - 1e-3 <= grown <= 660.0 + 1e-3, "what was not seen is not counted"
        assert later.channels[0].uncovered_s >= 60.0


def test_a_device_that_never_answers_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pmtpy.cluster._watched._READ_TIMEOUT_S", 0.05)
    clock = ManualClock()
    world = make_world("constant:60", clock=clock)
    stuck, well = Counter(world), Counter(world)
    poll, entered, free = stuck.poll, threading.Event(), threading.Event()

    def hang() -> list[float]:
        entered.set()
        assert free.wait(120)
        return list(poll())

    with Sensor(stuck, "stuck", clock) as one, Sensor(well, "well", clock) as two, Watched([one, two]) as watched:
        watched.read()
        monkeypatch.setattr(stuck, "poll", hang)
        first = threading.Thread(target=watched.read, daemon=True)
        first.start()
        assert entered.wait(120)
        for _ in range(3):
            clock.advance(1.0)
            down, up = watched.read()
        assert (down.why, up.why) == ("it does not answer", "")
        assert shown(down)["pmt_sensor_up", ""] == 0.0
        assert shown(up)["pmt_energy_joules", "total"] == pytest.approx(180.0)
        free.set()
        first.join(120)
        assert not watched.read()[0].why


def test_a_power_that_nobody_could_read_for_a_while_is_absent_rather_than_old_or_zero() -> None:
    clock = ManualClock()
    gauge = Gauge(make_world("constant:60", clock=clock))
    with Sensor(gauge, "test", clock) as sensor, Watched([sensor]) as watched:
        clock.advance(0.5)
        (now,) = watched.read()
        assert shown(now)["pmt_power_watts", "gpu"] == pytest.approx(60.0)
        gauge.gone = True
        clock.advance(5.0)
        (now,) = watched.read()
        assert ("pmt_power_watts", "gpu") not in shown(now)
        assert math.isfinite(shown(now)["pmt_energy_joules", "gpu"])


def test_a_stream_that_is_silent_shows_no_power() -> None:
    clock = ManualClock()
    stream = Stream(make_world("constant:48", clock=clock))
    with Sensor(stream, "test", clock) as sensor, Watched([sensor]) as watched:
        for _ in range(5):
            clock.advance(0.1)
            (now,) = watched.read()
        assert shown(now)["pmt_power_watts", "total"] == pytest.approx(48.0)
        stream.held_ns = clock.now_ns()
        for seconds, there in ((0.5, True), (1.0, False)):
            clock.advance(seconds)
            (now,) = watched.read()
            assert (("pmt_power_watts", "total") in shown(now)) is there
            assert ("pmt_voltage_volts", "pair0.voltage") in shown(now) or not there
        assert math.isfinite(shown(now)["pmt_energy_joules", "total"])
        stream.held_ns = math.inf
        clock.advance(0.1)
        (now,) = watched.read()
        assert shown(now)["pmt_power_watts", "total"] == pytest.approx(48.0)


def test_lost_samples_move_their_counter_and_volts_are_shown() -> None:
    clock = ManualClock()
    stream = Stream(make_world("constant:48", clock=clock))
    with Sensor(stream, "test", clock) as sensor, Watched([sensor]) as watched:
        clock.advance(0.2)
        watched.read()
        stream.drop = set(range(stream.sent_ns + 1_000_000, stream.sent_ns + 11_000_000, 1_000_000))
        clock.advance(0.2)
        (now,) = watched.read()
        found = shown(now)
        assert found["pmt_samples_lost", ""] == 10.0
        assert found["pmt_voltage_volts", "pair0.voltage"] == 12.0
        assert found["pmt_current_amperes", "pair1.current"] == pytest.approx(2.0, abs=1e-3)


def families(text: bytes, *, new: bool) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    read = read_open_metrics if new else read_older_text
    return {(s.name, frozenset(s.labels.items())): s.value for f in read(text.decode()) for s in f.samples}


@pytest.mark.parametrize("new", [True, False])
def test_our_text_says_what_the_librarys_collector_says(new: bool) -> None:  # noqa: FBT001
    clock, source, sensor = counter_sensor("constant:60")
    hostile = 'a"b\\c\nd} 1\n# EOF \udce9 \u2028'
    source.identity = Identity("test", hostile, serial="\0", virtual=False)
    with sensor, Watched([sensor]) as watched:
        watched.read()
        clock.advance(7.0)
        (now,) = watched.read()
        text = families(Text(123.0).write([now], open_metrics=new), new=new)
        made = Collector([sensor])
        made._watched.read()
        clock.advance(1.0)
        registry = CollectorRegistry()
        registry.register(made)
        theirs = families(generate_latest(registry), new=False)
        made.close()
        created = {k for k in (*text, *theirs) if k[0].endswith("_created")}
        assert set(text) - created == set(theirs) - created
        labelled = [dict(labels) for name, labels in text if name == "pmt_sensor_info"]
        assert labelled[0]["identity"].startswith('a"b\\c\nd} 1\n# EOF ')
        assert not any("virtual" in dict(labels) for name, labels in text if name.startswith("pmt_energy"))


def test_two_collectors_in_one_registry_are_refused_by_it() -> None:
    _, _, sensor = counter_sensor()
    with sensor:
        registry = CollectorRegistry()
        one, other = Collector([sensor]), Collector([sensor])
        registry.register(one)
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(other)
        one.close()
        other.close()


def test_opentelemetry_sees_parts_with_what_contains_them_and_the_whole_machine_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    clock, source, sensor = counter_sensor("constant:60")
    source.channels = tuple(
        dataclasses.replace(c, domain="host") if c.name == "dram0" else c for c in source.channels
    )  # what the fixture calls memory stands for a node's meter
    sensor.close()
    with Sensor(source, "test:0", clock) as sensor:
        reader = export.InMemoryMetricReader()
        provider = metrics.MeterProvider(metric_readers=[reader])
        made = instrument(sensor, meter_provider=provider)
        reader.get_metrics_data()
        readings = itertools.count()
        read = made._watched.read
        monkeypatch.setattr(made._watched, "read", lambda: (next(readings), read())[1])
        clock.advance(10.0)
        told = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        assert next(readings) == 1
        points = {(m.name, p.attributes["hw.id"]): p for m in told for p in m.data.data_points}
        core = points["hw.energy", "test:0/package0.core"]
        assert core.value == pytest.approx(300.0, abs=1e-5)
        assert core.attributes["hw.parent"] == "test:0/package0"
        assert core.attributes["hw.type"] == "cpu"
        assert core.attributes["pmt.virtual"] == "true"
        assert points["hw.host.energy", "test:0/dram0"].value == pytest.approx(200.0, abs=1e-5)
        assert points["hw.host.power", "test:0/dram0"].value == pytest.approx(20.0)
        assert ("hw.energy", "test:0/dram0") not in points
        made.close()
        provider.shutdown()


def test_a_registry_asks_for_the_sensors_that_were_named() -> None:
    with pmt.create("rapl:virtual") as sensor:
        made = pmt.prometheus.collector(sensor)
        assert {f.name for f in made.describe()} >= {"pmt_energy_joules", "pmt_power_watts"}
        made.close()


def test_a_sensor_whose_driver_does_not_return_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("acquisition", "sensor"):
        monkeypatch.setattr(f"pmtpy.sensor.{module}.CLOSE_TIMEOUT_S", 0.05)
    _, source, sensor = counter_sensor("constant:60")
    held, free = threading.Event(), threading.Event()

    def read() -> None:
        with acquisition_of(sensor).intake.lock:  # as whoever reads holds it
            held.set()
            assert free.wait(120)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    assert held.wait(120)
    sensor.close()
    closed = [source.closed]
    free.set()
    reading.join(120)
    sensor.close()
    assert [*closed, source.closed] == [0, 1]
