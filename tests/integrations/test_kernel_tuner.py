"""Kernel Tuner itself, with its back end for C: its two observers untouched on the stand-ins, and our own."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import pmtpy
from pmtpy.errors import TargetError
from pmtpy.regions.pool import _pool

SCRIPT = Path(__file__).with_name("tune.py")
WATTS = 60.0  # of the virtual world, and so of each sensor in it
Results = list[dict[str, float]]
# of a program: makes a measurement of what matters here
RECORD = """from functools import partial
from pmtpy.regions.measurement import Measurement
how = {"refresh_s": None, "window_s": None, "method": "counter", "lost": 0, "warnings": ()}
record = partial(Measurement, name="total", virtual=True, **how)"""


def missing() -> str:
    if importlib.util.find_spec("kernel_tuner") is None:
        return "kernel_tuner is not installed: pip install 'pmtpy[dev]'"
    return "" if shutil.which("g++") else "Kernel Tuner's back end for C calls g++, which is not installed"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What a whole tuning run reports for its two configurations."""
    if missing():
        if os.environ.get("CI"):
            pytest.fail(missing())
        pytest.skip(missing())
    folder = tmp_path_factory.mktemp("tune")
    done = subprocess.run(
        [sys.executable, "-m", "pmtpy.integrations.drop_ins", str(SCRIPT)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(pmtpy.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: Results = json.loads(done.stdout.splitlines()[-1])
    cached = json.loads((folder / "cache.json").read_text())["cache"].values()
    for stem in ("both_powersensor3_virtual", "both_nvml_virtual"):  # what the frequency transfer reads
        assert all(c[f"{stem}_energy"] > 0 < c[f"{stem}_energy_uncertainty"] for c in cached if "__error__" not in c)
    assert "this configuration counts as failed: blind" in done.stderr
    measured = [r for r in found if "__error__" not in r]
    assert measured, done.stderr
    return measured


def test_a_configuration_without_energy_does_not_end_the_tuning_and_the_others_are_measured(results: Results) -> None:
    assert [r["MILLISECONDS"] for r in results] == [10, 30]
    assert all(r["time"] >= r["MILLISECONDS"] for r in results)


def test_the_example_of_the_page_runs_as_printed(tmp_path: Path) -> None:
    if missing():
        pytest.skip(missing())
    page = (Path(__file__).parents[2] / "docs" / "kernel-tuner.md").read_text()
    example = page.split("```python\n", 1)[1].split("```", 1)[0]
    environment = {**os.environ, "PYTHONPATH": str(Path(pmtpy.__file__).parents[1])}
    command = [sys.executable, "-c", example]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()[-2:]] == ["stride 1", "stride 16"]


def test_kernel_tuners_own_observer_for_pmt_runs_unmodified(results: Results) -> None:
    for r in results:
        for name in ("rapl", "nvidia", "powersensor3"):
            assert r[f"{name}_energy"] > 0
            assert math.isfinite(r[f"{name}_power"])
        # On this back end the observer looks when the kernel has ended: the interval is short, the power is right
        # where the sensor is fast enough.
        assert r["powersensor3_power"] == pytest.approx(WATTS, rel=0.2)


def test_kernel_tuners_own_observer_for_powersensor3_runs_unmodified(results: Results) -> None:
    for r in results:
        assert r["ps_energy"] > 0
        # It drops whole seconds, which a busy machine may put between two looks: what the power is cannot be said.
        assert 0 < r["ps_power"] < math.inf


def test_our_observer_sees_the_whole_kernel(results: Results) -> None:
    for r in results:
        least_j = WATTS * r["MILLISECONDS"] / 1e3
        for stem in ("pmt_rapl_virtual", "pmt_amdsmi_virtual", "board"):
            assert r[f"{stem}_energy"] + 3 * r[f"{stem}_energy_uncertainty"] >= least_j
            assert r[f"{stem}_power"] == pytest.approx(WATTS, abs=3 * r[f"{stem}_power_uncertainty"] + 1)
            assert r[f"{stem}_energy_uncertainty"] > 0
        assert r["pmt_rapl_virtual_runs"] == r["pmt_amdsmi_virtual_runs"] == 7
        # A board that is emulated loses frames where the machine has no time for it; such a run does not count.
        assert 1 <= r["board_runs"] <= 7
        # Of these only the board is fast enough. What the slow observer does, for 9 J, is not in it; how long the
        # kernel took on this machine is Kernel Tuner's to say.
        if r["board_runs"] == 7:
            kernel_j = WATTS * r["time"] / 1e3
            assert r["board_energy"] == pytest.approx(kernel_j, abs=3 * r["board_energy_uncertainty"] + 0.3)


def test_several_sensors_are_summed_each_part_once(results: Results) -> None:
    for r in results:
        parts = r["pmt_rapl_virtual_energy"] + r["pmt_amdsmi_virtual_energy"]
        assert r["pmt_energy"] == pytest.approx(parts)


def test_the_continuous_mode_gives_the_energy_of_one_kernel(results: Results) -> None:
    for r in results:
        assert r["long_energy"] == pytest.approx(r["long_power"] * r["time"] / 1e3)
        assert r["long_power"] == pytest.approx(WATTS, rel=0.05)


def test_a_board_and_a_gpus_own_sensor_are_measured_by_one_method_over_one_stretch(results: Results) -> None:
    for r in results:
        for stem in ("both_powersensor3_virtual", "both_nvml_virtual"):
            # One way of power on both, though one of them sees 25 of each 100 ms; the kernel is far shorter than that.
            assert r[f"{stem}_power"] == pytest.approx(WATTS, rel=0.05)
            assert r[f"{stem}_energy"] == pytest.approx(r[f"{stem}_power"] * r["time"] / 1e3)
            assert r[f"{stem}_energy_uncertainty"] > 0
            assert r[f"{stem}_runs"] == 1
        assert r["both_temperature"] > 0
        assert r["both_core_freq"] > 0


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("said", ["1e-3", "1e3", "0"])
def test_a_kernel_whose_time_is_not_in_milliseconds_is_refused_before_it_is_repeated(said: str, tmp_path: Path) -> None:
    code = f"""
import time, numpy, kernel_tuner, tune
from pmtpy.integrations.kernel_tuner import EnergyObserver
kernel_tuner.tune_kernel(
    "wait_ms", tune.KERNEL.replace("(float)(", "(float)({said} * ").replace("now() - start)", "(now() - start))"), 1,
    [numpy.zeros(1, numpy.int32)], {{"MILLISECONDS": [10]}}, lang="C",
    observers=[EnergyObserver("nvml:virtual", steady=True)],
)
"""
    path = os.pathsep.join([str(Path(pmtpy.__file__).parents[1]), str(SCRIPT.parent)])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "TargetError: the kernel returned" in done.stderr, done.stderr
    assert "it must be in milliseconds" in done.stderr


@pytest.mark.skipif(bool(missing()), reason=missing())
class TestArithmetic:
    """What is made of single measurements, without tuning anything."""

    @staticmethod
    def means(*rows: tuple[float, float, float, float]) -> dict[str, float]:
        code = f"""
import json
from pmtpy.integrations.kernel_tuner import _means
{RECORD}
rows = [
    record(target="t", seconds=s, joules=j, watts=j / (s * c), uncertainty_joules=u, coverage=c)
    for s, j, u, c in {rows!r}
]
print(json.dumps(_means("x", rows)))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr
        return cast("dict[str, float]", json.loads(done.stdout))

    def test_the_uncertainty_of_a_run_does_not_shrink_with_runs_and_their_scatter_is_added(self) -> None:
        same = self.means((1.0, 10.0, 0.5, 1.0), (1.0, 10.0, 0.5, 1.0))
        assert same["x_energy"] == 10
        assert same["x_energy_uncertainty"] == pytest.approx(0.5)
        spread = self.means((1.0, 9.0, 0.3, 1.0), (1.0, 11.0, 0.3, 1.0))
        assert spread["x_energy_uncertainty"] == pytest.approx(math.hypot(0.3, 1.0))

    def test_a_run_whose_energy_is_not_known_does_not_count(self) -> None:
        found = self.means((1.0, 10.0, 0.5, 1.0), (1.0, 4.0, 0.5, 0.4))
        assert found["x_runs"] == 1
        assert found["x_energy"] == 10

    def test_when_no_run_is_known_there_is_an_error_and_no_number(self) -> None:
        with pytest.raises(AssertionError, match=r"CoverageError: x: the energy of no run of the kernel is known"):
            self.means((1.0, 4.0, 0.5, 0.4))

    @staticmethod
    def outcome(**measured: tuple[float, float]) -> dict[str, float]:
        """What an observer makes of one run: of joules and their uncertainties, by sensor ("all": their sum)."""
        code = f"""
import json
from kernel_tuner.util import ErrorConfig
from pmtpy.integrations.kernel_tuner import EnergyObserver
{RECORD}
observer = EnergyObserver("rapl:virtual")
observer._measured = [{{
    key.replace("all", ""): record(target=key, seconds=1.0, joules=j, watts=j, uncertainty_joules=u, coverage=1.0)
    for key, (j, u) in {measured!r}.items()
}}]
print(json.dumps({{k: str(v) if isinstance(v, ErrorConfig) else v for k, v in observer.get_results().items()}}))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr
        assert ("not told from nothing" in done.stderr) == ("__error__" in done.stdout)
        return cast("dict[str, float]", json.loads(done.stdout))

    def test_an_energy_that_is_not_told_from_nothing_never_wins(self) -> None:
        assert list(self.outcome(all=(6.13, 63.2))) == ["__error__"]
        assert list(self.outcome(rapl=(60.0, 1.0), nvml=(6.13, 63.2))) == ["__error__"]  # no sum to go by
        assert self.outcome(all=(6.13, 3.0))["pmt_energy"] == 6.13

    def test_a_part_that_draws_next_to_nothing_is_no_fault_of_the_sum(self) -> None:
        found = self.outcome(all=(60.0, 3.0), nvml=(0.2, 1.0))
        assert (found["pmt_energy"], found["pmt_nvml_energy_uncertainty"]) == (60.0, 1.0)

    def test_the_scatter_of_the_kernels_times_is_part_of_an_energy_per_kernel(self) -> None:
        code = """
import json
from types import SimpleNamespace
from pmtpy.integrations.kernel_tuner import _Continuous
parent = SimpleNamespace(
    results_of_runs=lambda: {"pmt_power": 50.0, "pmt_power_uncertainty": 3.0}, at_end=dict, begin_when_risen=None
)
observer = _Continuous(parent, 1.0)
observer.results = {"time": 100.0, "times": [80.0, 120.0]}
print(json.dumps(observer.get_results()))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
        found = json.loads(done.stdout)
        assert found["pmt_energy"] == pytest.approx(5.0)
        # 3 W of 0.1 s, and 50 W of the 20 ms by which the mean of two times scatters.
        assert found["pmt_energy_uncertainty"] == pytest.approx(math.hypot(0.3, 1.0))


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_kernel_too_short_for_its_sensor_counts_where_it_is_repeated(tmp_path: Path) -> None:
    code = """
import json, numpy, kernel_tuner, tune
from pmtpy.integrations.kernel_tuner import EnergyObserver
_, env = kernel_tuner.tune_kernel(
    "wait_ms", tune.KERNEL, 1, [numpy.zeros(1, numpy.int32)], {"MILLISECONDS": [1, 40]}, lang="C", iterations=1,
    observers=[EnergyObserver("nvml:virtual", continuous_s=1)],
    objective="pmt_energy", objective_higher_is_better=False,
)
print(json.dumps(env["best_config"]["MILLISECONDS"]))
"""
    path = os.pathsep.join([str(Path(pmtpy.__file__).parents[1]), str(SCRIPT.parent)])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "counts as failed" not in done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == 1, done.stdout + done.stderr


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_two_observers_of_one_name_are_refused_and_of_two_names_are_not() -> None:
    from pmtpy.integrations.kernel_tuner import EnergyObserver

    one, same = EnergyObserver("rapl:virtual"), EnergyObserver("nvml:virtual")
    with pytest.raises(TargetError, match="two observers would write pmt_energy"):
        one.register_device(SimpleNamespace(observers=[one, same]))
    other = EnergyObserver("rapl:virtual", name="gpu")
    try:
        other.register_device(SimpleNamespace(observers=[one, other]))
    finally:
        _pool.close()  # or the tests after this one could choose no load
