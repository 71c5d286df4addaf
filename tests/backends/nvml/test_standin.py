"""The real pynvml on a compiled stand-in for libnvidia-ml.so.1, and that stand-in against the Python emulator."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pmtpy.backends.nvml import discover, open_source
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Layout
from pmtpy.core.source import Source
from pmtpy.emulators.gpu_sensor import SensorModel
from pmtpy.emulators.load import Square
from pmtpy.emulators.nvml import private_pynvml
from pmtpy.errors import BackendUnavailableError, SourceLostError
from tests.support.standin.build import shared_object

SOURCE = Path(__file__).parents[2] / "support" / "standin" / "nvml.c"
LOAD = Square(low=100, high=300, hz=0.7)


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_object(SOURCE, tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1")


class Bench:
    """The stand-in with a clock that moves it and the sensors."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        for name in ("standin_now", "standin_sensor", "standin_load"):
            getattr(self.library, name).restype = None
        self.library.standin_reset()
        # Eleven days after 1970, off every tick: float64 resolves 0.1 ns there, so that both models may be exact.
        self.clock = ManualClock(unix_ns=1_000_000_013_000_000)
        self.pynvml = private_pynvml(self.library)
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.library.standin_now(ctypes.c_double(self.unix_s()))

    def unix_s(self) -> float:
        return self.clock.anchor().unix_s(self.clock.now_ns())

    def open(self, *, total: str | None = None, samples: bool = False) -> Source:
        return open_source("0", clock=self.clock, library=self.pynvml, total=total, samples=samples)

    def rows(self, source: Source, seconds: float, step_s: float = 0.05) -> Iterator[tuple[int, list[float]]]:
        for _ in range(round(seconds / step_s)):
            self.advance(step_s)
            block = source.read()
            yield from zip(block.t_ns.tolist(), block.raw.tolist(), strict=True)


@pytest.fixture
def bench(library_path: Path) -> Bench:
    return Bench(library_path)


def test_the_compiled_driver_is_found_and_described(bench: Bench) -> None:
    assert discover(library=bench.pynvml).devices == ("0",)
    source = bench.open()
    assert source.identity.model == "NVIDIA Stand-in"
    assert source.identity.version == "570.86.15"
    assert [c.name for c in source.channels] == [
        "gpu.energy", "gpu.instant", "gpu.average", "gpu.temperature", "gpu.sm_clock", "gpu.memory_clock",
    ]  # fmt: skip
    source.close()
    assert bench.library.standin_references() == 0


@pytest.mark.parametrize(
    ("period_s", "window_s", "counter_s"), [(0.1, 0.025, 0.1), (0.02, 0.01, 0.05), (0.1, 0.1, 0.01)]
)
def test_two_independent_models_of_the_sensor_agree(
    bench: Bench, period_s: float, window_s: float, counter_s: float
) -> None:
    bench.library.standin_sensor(*map(ctypes.c_double, (period_s, window_s, counter_s)))
    model = SensorModel(update_s=period_s, window_s=window_s, counter_update_s=counter_s, step_w=0.001)
    source = bench.open()
    seen = 0
    for _ in range(135):
        bench.advance(0.037)
        block, t_s = source.read(), bench.unix_s()
        if not len(block):
            continue
        raw = block.raw[-1].tolist()  # the rows before it have what was renewed before it
        # Rounding: a count, and one more where both round at a half.
        instant, average = (float(m.readings(LOAD, t_s)) * 1e3 for m in (model, model.averaged()))
        assert raw[1] == pytest.approx(instant, abs=2)
        assert raw[2] == pytest.approx(average, abs=2)
        assert raw[0] == pytest.approx(float(model.counter(LOAD, t_s)) * 1e3, abs=2)
        seen += 1
    assert seen > 40


@pytest.mark.parametrize(("total", "allowed"), [("energy", 0.002), ("average", 200 * 1.0)])
def test_the_total_through_ctypes_is_the_loads_energy(bench: Bench, total: str, allowed: float) -> None:
    # The counter is stamped with its own instant: a count at either end. The average of a second lags by half of it.
    source = bench.open(total=total)
    integrator = Integrator(Layout(source.channels))
    points = []
    for _ in range(400):
        bench.advance(0.05)
        frame = integrator.advance(source.read_row())
        if frame is not None:
            points.append((int(np.atleast_1d(frame.t_ns)[-1]), float(np.atleast_2d(frame.joules)[-1, 0])))
    anchor = bench.clock.anchor()
    (a_ns, a_j), (b_ns, b_j) = points[0], points[-1]
    true = LOAD.joules(np.float64(anchor.unix_s(b_ns))) - LOAD.joules(np.float64(anchor.unix_s(a_ns)))
    assert b_j - a_j == pytest.approx(float(true), abs=allowed)


def test_an_old_board_without_counter_or_average(bench: Bench) -> None:
    bench.library.standin_has(0, 0)
    source = bench.open()
    assert [c.name for c in source.channels if c.measures_energy] == ["gpu.instant"]


@pytest.mark.parametrize(("code", "reason"), [(9, "not loaded"), (18, "different versions"), (999, "unknown error")])
def test_a_driver_that_does_not_start(bench: Bench, code: int, reason: str) -> None:
    bench.library.standin_fail(code, 0)
    with pytest.raises(BackendUnavailableError, match=reason):
        bench.open()


def test_a_lost_gpu(bench: Bench) -> None:
    source = bench.open()
    assert len(list(bench.rows(source, 1.0))) >= 9
    bench.library.standin_fail(0, 1)
    with pytest.raises(SourceLostError, match="fallen off the bus"):
        list(bench.rows(source, 1.0))
    source.close()


def test_a_restarted_counter_goes_back(bench: Bench) -> None:
    source = bench.open()
    before = [raw[0] for _, raw in bench.rows(source, 1.0)]
    bench.library.standin_restart()
    after = [raw[0] for _, raw in bench.rows(source, 1.0)]
    assert after[0] < before[-1]
    assert after == sorted(after)


def test_samples_are_fetched_once_each_and_placed_on_the_hosts_clock(bench: Bench) -> None:
    source = bench.open(samples=True)
    rows = list(bench.rows(source, 20.0, step_s=3.3))
    assert [len(rows), len({t for t, _ in rows})] == [198, 198]
    assert set(np.diff([t for t, _ in rows]).tolist()) == {100_000_000}
    assert 0 <= bench.clock.now_ns() - rows[-1][0] < 100_000_000


_SCRIPT = """
import sys, time
import pynvml
from pmtpy.backends.nvml import discover, open_source
from pmtpy.core.clock import HostClock
assert discover().devices == ("0",), discover()
source = open_source(None, clock=HostClock())
assert source.identity.model == "NVIDIA Stand-in"
rows = 0
end = time.monotonic() + 240
while rows < 3 and time.monotonic() < end:
    rows += len(source.read())
    time.sleep(0.01)
source.close()
print("rows", rows, source.channels[0].name)
"""


def test_the_real_package_finds_the_library_by_the_loaders_path(library_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library_path.parent)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rows 3 gpu.energy\n"
