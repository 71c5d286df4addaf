"""Energies come at once, their judgement when it is asked for: the same numbers, whenever that is, and little kept."""

from __future__ import annotations

import gc
import pickle
import weakref
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import World, make_world
from pmtpy.regions import interval_energy
from pmtpy.regions._judgement import Judgement, judged
from pmtpy.regions._kept import Kept
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.support.clocks import OneThreadClock
from tests.support.worlds import Counter, Gauge, Stream, counter_sensor


class Late(Gauge):
    """Powers that are known to be late: means over a while, and one with a pole; and one of which nobody knows."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        gpu = self.channels[0]
        self.channels = (
            gpu.timed(window_s=0.05),
            replace(gpu.timed(window_s=0.4, lag_s=0.25), name="gpu.average", domain="gpu/1"),
            replace(gpu, name="gpu.memory", domain="gpu/2"),
        )

    def poll(self) -> list[float]:
        return [super().poll()[0]] * 3


KINDS = {"counter": Counter, "gauge": Gauge, "late": Late, "stream": Stream}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_measurement_says_the_same_whenever_it_is_asked(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    clock = OneThreadClock()
    world: World = make_world(f"random:low=30,high=90,hz={rng.uniform(2, 40):.3f},seconds=40,seed={seed}", clock=clock)
    sensor = Sensor(KINDS[kind](world), "test", clock, history_s=1.0)
    at_once: list[str] = []
    later: list[Measurement] = []
    with sensor:
        made = acquisition_of(sensor)

        def run(seconds: float) -> None:
            for _ in range(max(1, round(seconds / 0.02))):
                clock.advance(seconds / max(1, round(seconds / 0.02)))
                made.step()

        run(1.0)
        for length in rng.uniform(0.001, 2.0, 8):
            begin = made.now()
            run(length)
            end = made.now()
            run(rng.choice([0.0, 0.1]))
            with made.intake.lock:  # by the very same rows
                a, b = made.readings(begin, end)
                later.append(interval_energy.interval_energy(made, a, b))
                at_once.append(whole(interval_energy.interval_energy(made, a, b)))
            run(rng.uniform(0.01, 0.3))
        run(20.0)  # the rows are forgotten long since
    assert at_once == [whole(m) for m in later]


def whole(measured: Measurement) -> str:
    return f"{measured!r} {measured} {measured.to_dict()}"


def counting(monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    asked: list[Kept] = []

    def noted(kept: Kept) -> Judgement:
        asked.append(kept)
        return judged(kept)

    monkeypatch.setattr(interval_energy, "judged", noted)
    return asked


def a_region(clock: ManualClock, sensor: Sensor) -> Region:
    with pmt.region("work", sensor) as r:
        clock.advance(0.1)
    return r


def test_only_who_asks_how_far_to_trust_an_energy_pays_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counting(monkeypatch)
    clock, _, sensor = counter_sensor("square:low=30,high=90,hz=0.7")
    with sensor:
        m = a_region(clock, sensor)["test"]
        assert m.joules == pytest.approx(0.1 * m.watts)
        assert (m.coverage, m.method, m.lost, len(m.channels)) == (1.0, "counter", 0, 3)
        assert not asked
        assert m.uncertainty_joules > 0
        assert m.components
        assert m.channels["dram0"].uncertainty_joules < m.uncertainty_joules
        assert len(asked) == 1


def test_a_sum_of_sensors_is_judged_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counting(monkeypatch)
    clock, _, sensor = counter_sensor()
    with sensor:
        total = a_region(clock, sensor).total
        assert total.joules == pytest.approx(6.0, abs=1e-5)
        assert not asked
        assert total.uncertainty_joules > 0


def test_of_many_that_nobody_asks_but_few_hold_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counting(monkeypatch)
    clock, _, sensor = counter_sensor()
    with sensor:
        kept = [a_region(clock, sensor)["test"] for _ in range(100)]
    assert len(asked) >= 100 - 40
    assert all(m.uncertainty_joules > 0 for m in kept)


def test_those_that_nobody_keeps_are_never_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counting(monkeypatch)
    clock, _, sensor = counter_sensor()
    with sensor:
        assert sum(a_region(clock, sensor)["test"].joules for _ in range(100)) == pytest.approx(600, abs=1e-3)
    assert not asked


def test_a_measurement_does_not_hold_the_device() -> None:
    clock, source, sensor = counter_sensor()
    m = a_region(clock, sensor)["test"]
    gone = weakref.ref(acquisition_of(sensor))
    sensor.close()
    del sensor, source
    gc.collect()
    assert gone() is None
    assert m.uncertainty_joules > 0


def travelled(measured: Measurement) -> object:
    return pickle.loads(pickle.dumps(measured))  # noqa: S301  (made here)


def test_copies_of_what_is_not_judged_yet_are_whole() -> None:
    clock, _, sensor = counter_sensor()
    with sensor:
        for copied in (deepcopy, travelled, lambda m: replace(m, lost=0)):
            m = a_region(clock, sensor)["test"]
            assert copied(m) == m
        assert m.uncertainty_joules > 0
    with pytest.raises(AttributeError, match="no attribute 'uncertainty'"):
        m.uncertainty  # type: ignore[attr-defined]  # noqa: B018


def test_a_lag_is_counted_back_before_anybody_asks_how_far_to_trust_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = counting(monkeypatch)
    clock = OneThreadClock()
    sensor = Sensor(Late(make_world("square:low=30,high=90,hz=0.25", clock=clock)), "test", clock)
    with sensor:
        made = acquisition_of(sensor)

        def run(seconds: float) -> None:
            for _ in range(round(seconds / 0.01)):
                clock.advance(0.01)
                made.step()

        run(1.8)
        begin = made.now()
        run(0.4)  # the load falls in its middle
        end = made.now()
        run(1.0)
        with made.intake.lock:
            a, b = made.readings(begin, end)
            m = interval_energy.interval_energy(made, a, b)
        assert [c.method for c in m.channels.values()] == ["integrated, lag corrected"] * 2 + ["integrated"]
        late = m.channels["gpu.memory"].joules - np.array([c.joules for c in m.channels.values()])
        np.testing.assert_allclose(late, [60 * 0.025, 60 * 0.2, 0.0], atol=0.4)  # it counts what came later; one row
        assert not asked
        assert m.uncertainty_joules > 0


def test_what_contradicts_itself_is_judged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The part counts more than its whole: that the energy of the whole is not known must be in its coverage, not only
    # in what is told later.
    asked = counting(monkeypatch)
    clock, source, sensor = counter_sensor()
    with sensor:
        honest = source.poll
        monkeypatch.setattr(source, "poll", lambda: [c * factor for c, factor in zip(honest(), (1, 2, 1), strict=True)])
        m = a_region(clock, sensor)["test"]
        assert asked
        assert m.channels["package0"].coverage == 0.0
        assert m.coverage == 0.0
