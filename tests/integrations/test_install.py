from __future__ import annotations

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

import pmtpy
from pmtpy.errors import PmtError


@pytest.mark.parametrize("name", ["pmt", "powersensor"])
def test_installing_twice_gives_the_same_module_and_both_halves_can_be_imported(name: str) -> None:
    install = getattr(pmtpy, f"install_as_{name}")
    first = install()
    assert install() is first
    assert importlib.import_module(name) is first
    inner = importlib.import_module(f"{name}.{name}")
    assert getattr(first, name) is inner
    assert inner.State.__name__ == "State"
    assert importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("name", ["pmt", "powersensor"])
def test_a_real_module_that_was_imported_before_is_not_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, real)
    with pytest.raises(PmtError, match=f"call install_as_{name}\\(\\) before anything imports it"):
        getattr(pmtpy, f"install_as_{name}")()
    assert sys.modules[name] is real


def test_importing_pmtpy_alone_installs_nothing() -> None:
    names = "{'pmt', 'powersensor', 'kernel_tuner', 'pmtpy.integrations.drop_ins'}"
    code = f"import sys, pmtpy; print(sorted({names} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Uses every name of PMT's own demo in the way the demo does.
DEMO = """
import sys, time
import pmt
from helper import NAP

@pmt.measure("nvidia")
def decorated():
    time.sleep(NAP)

def explicit():
    platform = "nvidia"
    pm = pmt.create(platform, 0)
    start = pm.read()
    time.sleep(NAP)
    end = pm.read()
    return {
        "platform": platform,
        "joules": format(pmt.joules(start, end), ".3f"),
        "seconds": format(pmt.seconds(start, end), ".3f"),
        "watt": format(pmt.watts(start, end), ".3f"),
    }

if __name__ == "__main__":
    print(decorated())
    print(explicit())
    print(sys.argv[1:])
"""


def run(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pmtpy.integrations.drop_ins", str(script), *arguments],
        env={"PYTHONPATH": str(Path(pmtpy.__file__).parents[1]), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("NAP = 0.05\n")
    script = tmp_path / "demo.py"
    script.write_text(DEMO)
    return script


def test_a_script_written_for_pmt_runs_with_its_arguments_and_neighbours(demo: Path) -> None:
    done = run(demo, "--flag", "-h", PMT_DEVICE="virtual")
    assert done.returncode == 0, done.stderr
    first, second, arguments = done.stdout.splitlines()
    assert first.startswith("[{'platform': 'nvidia', 'joules': '")
    assert second.startswith("{'platform': 'nvidia', 'joules': '")
    assert arguments == "['--flag', '-h']"


def test_a_script_without_its_sensor_ends_with_the_cure_and_not_with_zeros(demo: Path) -> None:
    done = run(demo, PMT_SYSFS_ROOT=str(demo.parent))
    if done.returncode == 0:
        pytest.skip("this machine has an NVIDIA GPU")
    assert done.stdout == ""
    assert "BackendUnavailableError: nvml:" in done.stderr
    assert "remedy:" in done.stderr


def test_the_status_of_the_script_is_the_status_of_the_command(tmp_path: Path) -> None:
    script = tmp_path / "exits.py"
    script.write_text("raise SystemExit(7)")
    assert run(script).returncode == 7
    missing = run(tmp_path / "nothing.py")
    assert missing.returncode == 2
    assert "there is no" in missing.stderr
