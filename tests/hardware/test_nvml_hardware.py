"""The same promises on a real NVIDIA GPU, idle or busy: PMTPY_HARDWARE=nvml, or nvml:UUID for a certain one."""

from __future__ import annotations

import os
import threading
from itertools import pairwise

import numpy as np
import pytest

from pmtpy.backends.nvml import discover, open_source
from pmtpy.core.clock import HostClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Frame, Layout
from pmtpy.core.source import Source

_NAMED = [t for t in os.environ.get("PMTPY_HARDWARE", "").split(",") if t.partition(":")[0] == "nvml"]
_DEVICE = _NAMED[0].partition(":")[2] or None if _NAMED else None

pytestmark = [
    pytest.mark.hardware,
    pytest.mark.skipif(not _NAMED, reason="needs an NVIDIA GPU: set PMTPY_HARDWARE=nvml on a machine that has one"),
]


def watch(source: Source, seconds: float, step_s: float = 0.01) -> Frame:
    """Read for a while; return all rows."""
    clock, never = HostClock(), threading.Event()
    integrator = Integrator(Layout(source.channels))
    frames = []
    start = clock.now_ns()
    for i in range(round(seconds / step_s)):
        clock.wait_until(start + round(i * step_s * 1e9), never)
        rows = integrator.advance(source.read())
        if isinstance(rows, Frame):
            frames.append(rows)
    return Frame(
        np.concatenate([f.t_ns for f in frames]),
        np.concatenate([f.watts for f in frames]),
        np.concatenate([f.joules for f in frames]),
        np.concatenate([f.values for f in frames]),
        np.concatenate([f.lost for f in frames]),
        np.concatenate([f.uncovered_ns for f in frames]),
    )


@pytest.fixture(scope="module")
def source() -> Source:
    return open_source(_DEVICE, clock=HostClock())


def test_the_gpu_is_listed() -> None:
    found = discover()
    assert found.devices, f"{found.reason}: {found.remedy}"


def test_readings_are_complete_and_possible(source: Source) -> None:
    frame = watch(source, 5.0)
    layout = Layout(source.channels)
    assert not frame.lost.any()
    assert not frame.uncovered_ns[-1].any()
    assert all(a < b for a, b in pairwise(frame.t_ns.tolist()))
    watts = {n: frame.watts[1:, i] for i, n in enumerate(layout.names)}
    for name, column in watts.items():
        moved = column[~np.isnan(column)]
        assert 1 < np.median(moved) < 3000, name
    values = {c.name: frame.values[-1, i] for i, c in enumerate(layout.values)}
    assert 10 < values["gpu.temperature"] < 105
    assert 1e8 < values["gpu.sm_clock"] < 5e9
    assert 1e8 < values["gpu.memory_clock"] < 2e10


def test_the_momentary_power_refreshes_about_as_often_as_documented(source: Source) -> None:
    channel = next((c for c in source.channels if c.name.endswith(".instant")), None)
    if channel is None or channel.refresh_s is None:
        pytest.skip("this GPU has no momentary power whose period is documented")
    frame = watch(source, 10.0, step_s=channel.refresh_s / 10)
    column = Layout(source.channels).names.index(channel.name)
    watts = frame.watts[:, column]
    changes = frame.t_ns[1:][np.diff(watts) != 0]
    if len(changes) < 10:
        pytest.skip("the power hardly changed: put a load on the GPU")
    # Two equal readings in a row lengthen a step, nothing shortens one but the poll's own grain.
    period_s = float(np.median(np.diff(changes))) / 1e9
    assert 0.7 * channel.refresh_s < period_s < 1.5 * channel.refresh_s


def test_the_counter_agrees_with_integrated_power(source: Source) -> None:
    names = Layout(source.channels).names
    counter = next((n for n in names if n.endswith(".energy")), None)
    if counter is None:
        pytest.skip("this GPU has no energy counter")
    scope = counter.partition(".")[0]
    power = next((n for n in names if n in {f"{scope}.instant", f"{scope}.average"}), None)
    if power is None:
        pytest.skip("this GPU has no power of the same scope")
    frame = watch(source, 30.0)
    counted, integrated = (
        float(frame.joules[-1, names.index(n)] - frame.joules[0, names.index(n)]) for n in (counter, power)
    )
    # Reports of idle GPUs go down to 0.57; a busy one agrees within a few percent.
    assert 0.5 < counted / integrated < 2.0


def test_the_drivers_samples_come_once_each() -> None:
    buffered = open_source(_DEVICE, clock=HostClock(), samples=True)
    try:
        frame = watch(buffered, 10.0, step_s=0.5)
        step_ns = np.diff(frame.t_ns)
        assert len(step_ns) > 20
        assert float(np.median(step_ns)) / 1e9 == pytest.approx(buffered.channels[0].refresh_s, rel=0.3)
        assert frame.lost.sum() == 0
    finally:
        buffered.close()
