"""The procedures of the published evaluations on virtual sensors, in simulated time."""

from __future__ import annotations

import threading

import pytest

from pmtpy.analysis.procedures.internal_rate import internal_rate
from pmtpy.core.clock import ManualClock
from pmtpy.lab.procedures import measure_pattern, measure_updates

TICKS_HZ = 1996.18  # of the emulated POWER9 machine, as the study measured
CYCLE_S = 80.0 / TICKS_HZ


class _Driven(ManualClock):
    """Time passes where its maker waits; all other threads wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._maker = threading.get_ident()

    def wait_until(self, t_ns: int, wake: threading.Event) -> bool:
        if threading.get_ident() != self._maker:
            return super().wait_until(t_ns, wake)
        self.advance(max(t_ns - self.now_ns(), 0) * 1e-9)
        return wake.is_set()


def test_a_virtual_occ_samples_as_often_as_that_of_the_study() -> None:
    patterns = [measure_pattern("occ:virtual", {}, hz, 6.0, clock=_Driven())[0] for hz in (1994.0, 1995.0, 1997.0)]
    found = internal_rate(patterns)
    assert found.hz.contains(TICKS_HZ)
    assert found.hz.value == pytest.approx(TICKS_HZ, rel=1e-5)


def test_a_virtual_occ_renews_its_values_as_often_as_that_of_the_study() -> None:
    found = measure_updates("occ:virtual", {}, 4.0, _Driven())
    assert found.mean_s.contains(CYCLE_S)
    assert found.mean_s.value == pytest.approx(CYCLE_S, rel=2e-4)
    assert found.detail is not None
    assert found.detail.unseen == 0
