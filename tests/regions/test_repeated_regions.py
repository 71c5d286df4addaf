"""The mean of regions in which the same work is done, at other moments of a card's register each time."""

from __future__ import annotations

import math

import pytest

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, mean_of_runs
from pmtpy.core.clock import NS_PER_S
from pmtpy.emulators.nvml import make_gpu
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.backends.nvml.rig import Rig
from tests.support.clocks import OneThreadClock

IDLE, BUSY = 60.0, 280.0
POLL_S = 0.05
EVERY_S = 1.237  # from one run to the next: at another moment of the register, which is renewed each 0.1 s
RUNS = 12


def runs_of(card: str, kind: str, outside_w: float, inside_w: float, length_s: float) -> list[Measurement]:
    """Measure the same block again and again, each asked about at once."""
    begins = [3.0 + EVERY_S * k for k in range(RUNS)]
    steps = ",".join(f"{t}={inside_w},{t + length_s}={outside_w}" for t in begins)
    rig = Rig(make_gpu(card), load=f"steps:0={outside_w},{steps}", clock=OneThreadClock())
    with Sensor(rig.open(total=kind), "card", rig.clock, interval_s=POLL_S) as sensor:

        def until(t_s: float) -> None:
            end_ns = rig.world.epoch_ns + round(t_s * NS_PER_S)
            while rig.clock.now_ns() < end_ns:
                left_s = (end_ns - rig.clock.now_ns()) / NS_PER_S
                rig.clock.advance(min(left_s, POLL_S))
                if left_s >= POLL_S:
                    acquisition_of(sensor).step()

        found = []
        for begin_s in begins:
            until(begin_s)
            with Region("work", {"card": sensor}) as region:
                until(begin_s + length_s)
            found.append(region["card"])
        return found


@pytest.mark.parametrize(("card", "kind"), [("h100", "instant"), ("h100", "energy"), ("rtx3090", "instant")])
@pytest.mark.parametrize(("outside_w", "inside_w"), [(IDLE, BUSY), (BUSY, IDLE)])
@pytest.mark.parametrize("length_s", [0.08, 0.2, 1.0])
def test_that_runs_agree_does_not_make_them_right(
    card: str, kind: str, outside_w: float, inside_w: float, length_s: float
) -> None:
    """Of 56 J in 0.2 s 30 runs said 52.4 +- 0.6 J by their scatter: each loses some of it at both ends."""
    runs = runs_of(card, kind, outside_w, inside_w, length_s)
    found = mean_of_runs(runs, [1.0] * RUNS)
    assert abs(found.mean - inside_w * length_s) <= found.half
    assert found.apart < found.half


def test_what_is_new_in_each_run_averages_out_and_what_is_alike_stays() -> None:
    def run(joules: float, **components: float) -> Judgement:
        return Judgement(joules, UncertaintyBudget.of(list(components.items())))

    alike = [run(10.0, gain=0.5, edges=0.3, sampling=1.2)] * 4
    found = mean_of_runs(alike, [1.0] * 4)
    assert (found.mean, found.deviation) == (10.0, 0.0)
    assert found.half == pytest.approx(1.96 * math.hypot(0.5, 0.3, 1.2 / 2), rel=1e-3)
    assert found.apart == pytest.approx(1.96 * math.hypot(0.3, 1.2) / 2, rel=1e-3)
    assert mean_of_runs(alike, [0.5] * 4).half == pytest.approx(found.half / 2)
    one = mean_of_runs(alike[:1], [1.0])
    assert one.half == pytest.approx(1.96 * math.hypot(0.5, 0.3, 1.2), rel=1e-3)
    assert math.isnan(one.apart)
    assert math.isnan(mean_of_runs([*alike, Judgement(10.0, UncertaintyBudget(math.nan))], [1.0] * 5).half)


class Judgement:
    """An energy and its budget."""

    def __init__(self, joules: float, budget: UncertaintyBudget) -> None:
        self.joules, self.uncertainty_joules, self.components = joules, budget.uncertainty_joules, budget.components
