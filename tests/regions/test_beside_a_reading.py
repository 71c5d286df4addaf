"""Who enters or leaves a region waits for no call of a driver that another thread is in, and loses nothing by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

import pmtpy as pmt
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.world import World, make_world
from pmtpy.regions.region import Region
from pmtpy.sensor.poller import Poller
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Gauge

CALL_S = 0.15  # as some calls of NVML take


class _Slow(Gauge):
    """A power that the driver reads at the beginning of a call of 0.15 s; the program goes on meanwhile, once."""

    def __init__(self, world: World, clock: ManualClock, half: int) -> None:
        super().__init__(world)
        self.clock, self.half = clock, half
        self.program: Callable[[], object] | None = None
        self.acted_ns: list[int] = []

    def poll(self) -> Sequence[float]:
        read = super().poll()
        for half in range(2):
            self.clock.advance(CALL_S / 2)
            if half == self.half and self.program is not None:
                thread = threading.Thread(target=self.program, daemon=True)
                self.program = None
                self.acted_ns.append(self.clock.now_ns())
                thread.start()
                thread.join(60)
                assert not thread.is_alive(), "the program waits for the driver"
        return read


@pytest.mark.parametrize("half", [0, 1])  # before the instant of the row that is being read, or behind it
def test_a_region_is_entered_and_left_while_a_driver_is_being_asked(monkeypatch: pytest.MonkeyPatch, half: int) -> None:
    monkeypatch.setattr(Poller, "_do", lambda *_: None)
    clock = ManualClock()
    source = _Slow(make_world("constant:60", clock=clock), clock, half)
    with Sensor(source, "slow", clock) as sensor:
        region = pmt.region("work", sensor)
        for source.program in (lambda: Region.__enter__(region), None, lambda: region.__exit__(None, None, None), None):
            sensor.history()
        measured = region["slow"]
        begun_ns, ended_ns = source.acted_ns
        assert measured.seconds == pytest.approx((ended_ns - begun_ns) / 1e9)
        assert measured.joules == pytest.approx(60 * measured.seconds)
        assert measured.coverage == 1.0
        assert measured.peak_watts == pytest.approx(60.0)
