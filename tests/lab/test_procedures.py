"""The procedures of the published evaluations on virtual sensors, in simulated time."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from pmtpy.analysis.procedures.agreement import agreement_of
from pmtpy.analysis.procedures.internal_rate import internal_rate_of
from pmtpy.backends import occ
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.load import Table
from pmtpy.emulators.occ import EmulatedOcc, sensors_of
from pmtpy.emulators.world import make_world
from pmtpy.errors import MissingPackageError, TargetError
from pmtpy.lab.procedures import measure_internal_rate, measure_updates, parts_of
from pmtpy.lab.registers import measure_registers
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import WalkingClock

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
    patterns = [
        measure_internal_rate("occ:virtual", {}, hz, 6.0, clock=_Driven())[0] for hz in (1994.0, 1995.0, 1997.0)
    ]
    found = internal_rate_of(patterns)
    assert found.hz.contains(TICKS_HZ)
    assert found.hz.value == pytest.approx(TICKS_HZ, rel=1e-5)


def test_a_virtual_occ_renews_its_values_as_often_as_that_of_the_study() -> None:
    found = measure_updates("occ:virtual", {}, 4.0, _Driven())
    assert found.mean_s.contains(CYCLE_S)
    assert found.mean_s.value == pytest.approx(CYCLE_S, rel=2e-4)
    assert found.detail is not None
    assert found.detail.unseen == 0


def test_a_virtual_occ_agrees_with_supply_and_parts_as_in_the_study(tmp_path: Path) -> None:
    """Seven workloads on eleven numbers of cores.

    The study's supplies gave 77 % of what they took; a line through its workloads was off by 0.4 % and 3.2 W, a
    parabola by 0.2 % and 1.7 W, the sum of the parts by 3.8 % and 25.5 W.
    """
    rng, each_s = np.random.default_rng(3), 0.5
    watts = rng.permutation(np.linspace(400.0, 900.0, 77))
    clock = ManualClock()
    world = make_world("constant:400", clock=clock)
    world = replace(world, load=Table(np.arange(77, dtype=np.float64) * each_s, watts))
    parts = {"PWRGPU": 0.362}  # so that 3.8 % of the whole is in none
    powers = [replace(k, share=parts.get(k.name, k.share)) for k in sensors_of(0, 1) if k.units == "W"]
    machine = EmulatedOcc(world, powers)
    file = tmp_path / "occ_inband_sensors"

    def advance(seconds: float) -> None:
        clock.advance(seconds)
        machine.advance(clock.now_ns())
        file.write_bytes(machine.image)

    advance(0.0)
    joules = []
    with Sensor(occ.open_source(clock=clock, file=file), "occ", clock) as sensor:
        names = sensor.read().names
        parts_names = parts_of({c.name: c.domain for c in sensor.channels})["system"]
        for _ in watts:
            for step_s in (0.1, 0.1, 0.3):  # the first ends the workload before
                advance(step_s)
                joules.append(sensor.read().joules)
    shown = np.diff(np.reshape(joules, (77, 3, -1)), axis=1)[:, 1] / 0.3
    system = shown[:, names.index("system")]
    assert system == pytest.approx(watts, abs=0.6)  # whole watts
    off = (watts - 650.0) / 250.0
    scatter_w = 2.13 * rng.permutation([NormalDist().inv_cdf((i + 0.5) / 77) for i in range(77)])
    supply = 650.0 / 0.77 + 325.0 * off + 10.5 * (off**2 - 1 / 3) + scatter_w
    found = agreement_of(system, supply)
    assert found.ratio == pytest.approx(0.77, rel=0.01)
    for fit, percent, mae_w in ((found.linear, 0.4, 3.2), (found.quadratic, 0.2, 1.7)):
        assert fit is not None
        assert fit.mape_percent.contains(percent), fit
        assert fit.mae_w.contains(mae_w), fit
        assert fit.mape_percent.half_width < 0.1
    found = agreement_of(shown[:, [names.index(name) for name in parts_names]].sum(axis=1), system)
    assert found.mape_percent.contains(3.8), found.mape_percent


def test_a_package_that_is_missing_is_said_before_the_load_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match="scipy is not installed"):
        measure_internal_rate("occ:virtual", {}, 1994.0, 6.0, clock=_Driven())


def test_registers_of_two_sensors_are_recorded_together_under_one_load() -> None:
    targets = {"nvml:virtual": {"profile": "rtx3090", "counter_ms": "50"}, "amdsmi:virtual": {}}
    said: list[str] = []
    found = measure_registers(targets, 10.0, interval_s=0.003, clock=WalkingClock(), progress=said.append)
    assert [what.split(",")[0] for what in said[:2]] == ["recording nvml:virtual", "recording amdsmi:virtual"]
    assert found.reference == ("nvml:virtual", "gpu.instant")
    assert found.virtual == tuple(targets)
    registers = {(target, channel): s for target, channel, s in found.standings}
    counter = registers["nvml:virtual", "gpu.energy"]
    assert counter.clock is not None
    assert counter.clock.period_s.contains(0.05)
    assert counter.slide is not None
    assert counter.slide.contains(1.0 - 0.09997 / 0.1)  # two moves are 30 us longer than an update of 99.97 ms
    assert counter.ratio is not None
    assert counter.ratio.contains(1.0)
    assert counter.count_age_s is not None
    assert counter.count_age_s.contains(0.0)
    fine = registers["amdsmi:virtual", "gpu.energy"]  # of a millisecond: its clock is not told by polls of three
    assert fine.bound_s is not None
    assert fine.bound_s >= 0.001
    assert fine.moves is not None
    assert fine.moves.step_j == pytest.approx(15.2587890625e-6)


def test_two_cards_of_one_node_have_phases_of_their_own() -> None:
    targets = {target: {"profile": "rtx3090", "total": "instant"} for target in ("nvml:virtual", "nvml:virtual1")}
    found = measure_registers(targets, 10.0, interval_s=0.004, clock=WalkingClock())
    (other,) = [s for target, channel, s in found.standings if (target, channel) == ("nvml:virtual1", "gpu.instant")]
    assert other.phase_s is not None
    assert other.phase_s.contains(0.381966 * 0.09997)
    assert other.slide is not None
    assert other.slide.contains(0.0)


def test_a_reference_that_is_not_there_is_named_before_anything_is_recorded() -> None:
    clock = ManualClock()  # which nobody moves: a recording would take for ever
    with pytest.raises(TargetError, match=r"has no channel gpu.nope; it reads gpu.energy, gpu"):
        measure_registers({"nvml:virtual": {}}, 10.0, channel="gpu.nope", clock=clock)
    both: dict[str, dict[str, str]] = {"nvml:virtual": {}, "rapl:virtual": {}}
    with pytest.raises(TargetError, match=r"neither nvml:virtual nor rapl:virtual has a channel gpu.nope of power"):
        measure_registers(both, 10.0, channel="gpu.nope", clock=clock)


@pytest.mark.parametrize(
    ("options", "channel", "period_s"),
    [
        ({"profile": "rtx3090", "period_ms": "73"}, None, 0.073),
        ({"profile": "rtx3090", "period_ms": "73"}, "gpu.energy", 0.1),
        ({"profile": "v100"}, None, 0.02004),
        ({"total": "instant", "period_ms": "73"}, None, 0.073),
    ],
)
def test_of_several_stamped_registers_the_updates_of_one_are_told(
    options: dict[str, str], channel: str | None, period_s: float
) -> None:
    found = measure_updates("nvml:virtual", options, 10.0, WalkingClock(), channel=channel)
    assert found.mean_s.contains(period_s)
    assert found.mean_s.half_width < 0.002 * period_s
    assert found.stated_s == pytest.approx(period_s, rel=0.003)
    assert found.channel in {"", channel or "gpu.instant"}
