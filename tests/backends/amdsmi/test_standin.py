"""The real wrapper amdsmi on a compiled stand-in for libamd_smi.so."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pmtpy.backends.amdsmi import discover, open_source
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.amdsmi import private_amdsmi
from pmtpy.errors import BackendUnavailableError, SourceLostError
from tests.support.standin.build import shared_object

from .rig import NOWHERE, names

SOURCE = Path(__file__).parents[2] / "support" / "standin" / "amdsmi.c"


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stand-in, with a stub that answers "not supported" for every symbol that it leaves out."""
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or spec.origin is None:
        pytest.skip("the Python package amdsmi is not installed")
    wrapper = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text(encoding="utf-8")
    written = SOURCE.read_text(encoding="utf-8")
    bound = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper))
    missing = sorted(name for name in bound if not re.search(rf"\b{name}\(", written))
    assert len(bound) > 100
    folder = tmp_path_factory.mktemp("rocm")
    (folder / "lib").mkdir()
    whole = folder / "amdsmi.c"
    whole.write_text(written + "".join(f"int {name}(void) {{ return NOT_SUPPORTED; }}\n" for name in missing))
    return shared_object(whole, folder / "lib" / "libamd_smi.so")


class Bench:
    """The stand-in with a clock that moves it and the sensor."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.standin_now.argtypes = [ctypes.c_double]
        self.library.standin_watts(217)
        self.library.standin_shows(0)
        self.library.standin_init_code(0)
        self.amdsmi = private_amdsmi(self.library)
        self.clock = ManualClock()
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.library.standin_now(self.clock.now_ns() / 1e9 + 5000.0003)


@pytest.fixture
def bench(library_path: Path) -> Bench:
    return Bench(library_path)


def test_every_layout_is_read_as_the_library_wrote_it(bench: Bench) -> None:
    assert discover(library=bench.amdsmi, sysfs_root=NOWHERE).devices == ("0",)
    source = open_source("0", clock=bench.clock, library=bench.amdsmi, sysfs_root=NOWHERE)
    assert source.identity.model == "AMD Stand-in"
    assert source.identity.serial == "5cff74a1-0000-1000-80ab-000000000001"
    assert source.identity.version == "26.0.2"
    assert names(source) == [
        "gpu.energy", "gpu.current_power", "gpu.hotspot_temperature", "gpu.gfx_clock", "gpu.memory_clock",
    ]  # fmt: skip
    bench.advance(0.5)
    first = source.read()
    bench.advance(2.0)
    second = source.read()
    joules = (second.raw[0, 0] - first.raw[0, 0]) * source.channels[0].scale
    assert joules == pytest.approx(217 * 2.0, abs=1e-4)
    assert second.t_ns[0] - first.t_ns[0] == 2_000_000_000
    assert second.raw[0, 1:].tolist() == [217, 47, 2100, 1300]


@pytest.mark.parametrize(("shown", "kept"), [(255, True), (0xFFFFFFFF, False), (0xFFFF, False)])
def test_sentinels_are_no_power_and_255_watts_are(bench: Bench, *, shown: int, kept: bool) -> None:
    bench.library.standin_shows(shown)
    source = open_source("0", clock=bench.clock, library=bench.amdsmi, sysfs_root=NOWHERE)
    assert ("gpu.current_power" in names(source)) == kept


def test_codes_become_errors_and_a_shut_library_is_started_anew(bench: Bench) -> None:
    bench.library.standin_init_code(34)
    with pytest.raises(BackendUnavailableError, match="driver is not loaded"):
        open_source("0", clock=bench.clock, library=bench.amdsmi, sysfs_root=NOWHERE)
    bench.library.standin_init_code(0)
    source = open_source("0", clock=bench.clock, library=bench.amdsmi, sysfs_root=NOWHERE)
    bench.amdsmi.amdsmi_shut_down()
    bench.advance(0.1)
    assert len(source.read()) == 1
    assert bench.library.standin_started() == 1
    bench.amdsmi.amdsmi_shut_down()
    bench.library.standin_init_code(34)
    with pytest.raises(SourceLostError):
        source.read()
    source.close()


def test_slow_calls_for_clocks_take_a_tenth_of_the_time_and_keep_no_power_waiting(bench: Bench) -> None:
    source = open_source("0", clock=bench.clock, library=bench.amdsmi, sysfs_root=NOWHERE)
    ask, spent_s = bench.amdsmi.amdsmi_get_clock_info, []
    begin_ns = bench.clock.now_ns()

    def seconds() -> float:
        return (bench.clock.now_ns() - begin_ns) / 1e9

    def slow(*given: object) -> dict[str, object]:
        bench.advance(0.1)
        spent_s.append(0.1)
        return {**ask(*given), "clk": round(seconds() * 10)}  # when it was read

    bench.amdsmi.amdsmi_get_clock_info = slow  # type: ignore[attr-defined]
    once_s = 0.1 * sum(name.endswith("_clock") for name in names(source))
    rows = []
    for _ in range(400):
        bench.advance(0.05)
        block = source.read()
        assert len(block) == 1  # the power waits for no clock
        rows.append((int(block.t_ns[0]), *block.raw[0].tolist()))
        assert seconds() - block.raw[0, 3] / 10 <= once_s / 0.1 + 0.1 + 0.05  # and a row
    assert 0.09 * seconds() < sum(spent_s) <= 0.1 * seconds() + once_s  # the first time as well
    (first_ns, first, *_), (last_ns, last, *_) = rows[0], rows[-1]
    joules = (last - first) * source.channels[0].scale
    assert joules == pytest.approx(217 * (last_ns - first_ns) / 1e9, abs=0.25)  # a millisecond, of the accumulator
    assert {row[2] for row in rows} == {217}
    source.close()


_SCRIPT = """
import time
from pmtpy.backends.amdsmi import discover, open_source
from pmtpy.core.clock import HostClock
assert discover().devices == ("0",), discover()
source = open_source(None, clock=HostClock())
rows = 0
end = time.monotonic() + 240
while rows < 3 and time.monotonic() < end:
    rows += len(source.read())
    time.sleep(0.005)
source.close()
print("rows", rows, source.channels[0].name, source.identity.model)
"""


def test_the_real_package_finds_the_library_by_rocms_path(library_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("VISIBLE_DEVICES")}
    environment |= {"ROCM_PATH": str(library_path.parents[1])}
    environment.pop("ROCM_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rows 3 gpu.energy AMD Stand-in\n"
