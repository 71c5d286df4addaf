"""What holds a GPU's clocks back, as the driver says it."""

from __future__ import annotations

import math

import pytest

from tests.backends.nvml.rig import Rig


def test_the_times_that_the_driver_counts_and_the_reasons_of_the_moment() -> None:
    rig = Rig()
    source = rig.open()
    (gpu,) = rig.gpus
    assert not any(source.limits().values())  # seconds, all zero
    gpu.slowed_ns = {0: 2_500_000_000, 1: 7}
    found = source.limits()
    assert found["power"] == pytest.approx(2.5)
    assert found["heat"] == pytest.approx(7e-9)
    gpu.slowed_by = 0x80 | 0x4 | 0x1  # power brake; power, of which the time is known; idle, which holds nothing back
    found = source.limits()
    assert found["power brake"] == math.inf
    assert found["power"] == pytest.approx(2.5)
    source.close()


def test_a_driver_that_counts_nothing_still_says_what_is_now_by_the_old_name_too() -> None:
    rig = Rig()
    source = rig.open()
    (gpu,) = rig.gpus
    gpu.slowed_ns, gpu.slowed_by = None, 0x40
    assert source.limits() == {"heat": math.inf}
    module = vars(rig.pynvml)
    del module["nvmlDeviceGetCurrentClocksEventReasons"]
    module["nvmlDeviceGetCurrentClocksThrottleReasons"] = lambda _handle: 0x20
    assert source.limits() == {"heat": math.inf}
    del module["nvmlDeviceGetCurrentClocksThrottleReasons"]
    assert source.limits() == {}
    gpu.lost = True
    assert source.limits() == {}
    source.close()
