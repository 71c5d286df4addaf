"""Registers of power that are renewed more seldom than is stated of them, and those of which nothing is stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pmtpy.core.clock import NS_PER_S
from pmtpy.emulators.nvml import VirtualGpu, make_gpu
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, acquisition_of
from tests.backends.nvml.rig import Rig
from tests.support.clocks import OneThreadClock

IDLE, BUSY = 50.0, 280.0
POLL_S = 0.05
TRUE = {"gain": 1.0, "offset_w": 0.0}
BLOCKS, FIRST_S = 12, 20.0  # and how long the card is at rest before the first of them


def measured(gpu: VirtualGpu, length_s: float, seed: int = 0) -> list[tuple[Measurement, Measurement]]:
    """Return what is said of blocks of work at once, and a while later."""
    rng = np.random.default_rng(seed)
    begins = (FIRST_S + np.cumsum(rng.uniform(2.0, 3.0, BLOCKS) + length_s)).tolist()
    steps = ",".join(f"{b}={BUSY},{b + length_s}={IDLE}" for b in begins)
    rig, found = Rig(gpu, load=f"steps:0={IDLE},{steps}", clock=OneThreadClock()), []
    with Sensor(rig.open(total="instant"), "card", rig.clock, interval_s=POLL_S) as sensor:

        def until(t_s: float) -> None:
            """Poll as a poller does, which an end of a region does not wait for."""
            end_ns = rig.world.epoch_ns + round(t_s * NS_PER_S)
            while (left_s := (end_ns - rig.clock.now_ns()) / NS_PER_S) > 0.0:
                rig.clock.advance(min(left_s, POLL_S))
                if left_s >= POLL_S:
                    acquisition_of(sensor).step()

        for begin_s in begins:
            until(begin_s)
            with Region("work", {"card": sensor}) as region:
                until(begin_s + length_s)
            at_once = region["card"]
            until(begin_s + length_s + 1.5)
            found.append((at_once, region["card"]))
    return found


def held(found: list[tuple[Measurement, Measurement]], length_s: float) -> list[int]:
    """Count the intervals at once, and later, that hold what was used."""
    used = BUSY * length_s
    return [sum(abs(m.joules - used) <= 1.96 * m.uncertainty_joules for m in each) for each in zip(*found, strict=True)]


@pytest.mark.parametrize("window_s", [0.1, 0.3])
@pytest.mark.parametrize("length_s", [0.1, 0.3, 1.0])
def test_a_register_that_is_renewed_more_seldom_than_is_stated_is_found_and_said(
    window_s: float, length_s: float
) -> None:
    """Renewed each 0.3 s where 0.1 s is stated, 1 of 36 held at once: 225 +- 12 J of 280."""
    found = measured(make_gpu("rtx3090", changes={"update_s": 0.3, "window_s": window_s, **TRUE}), length_s)
    assert min(held(found, length_s)) >= BLOCKS - 1
    said = "its readings change at multiples of 300 ms only, 3 times what is stated of it (100 ms)"
    assert all(any(said in w for w in m.warnings) for each in found for m in each)
    assert found[-1][1].channels["gpu.instant"].refresh_s == pytest.approx(0.3, rel=0.02)


def test_one_that_keeps_its_period_is_never_said_to_be_slow() -> None:
    found = measured(make_gpu("rtx3090", changes=TRUE), 0.3)
    assert not any("multiples" in w for each in found for m in each for w in m.warnings)
    assert found[-1][1].channels["gpu.instant"].refresh_s == 0.1


@pytest.mark.parametrize(("update_s", "window_s"), [(0.1, 0.1), (0.1, 0.025), (0.02, 0.02), (0.3, 0.3)])
@pytest.mark.parametrize("length_s", [0.1, 0.3, 1.0])
def test_of_a_generation_that_nobody_has_measured_regions_are_right_or_wide(
    update_s: float, window_s: float, length_s: float
) -> None:
    """A register of which nothing was known was taken for one that is renewed with each poll: 0 of 12 held."""
    gpu = make_gpu("rtx3090", changes={"update_s": update_s, "window_s": window_s, **TRUE})
    gpu = replace(gpu, board=replace(gpu.board, name="NVIDIA B200", architecture=10, capability=(10, 0)))
    assert min(held(measured(gpu, length_s), length_s)) >= BLOCKS - 1
