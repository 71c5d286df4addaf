"""The verb as a user runs it, and the rules files that it prints."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pmtpy.backends import rules
from pmtpy.sensor.registry import BACKENDS
from tests.support.machines import INTEL, Broken

ROOT = Path(__file__).parents[3]
KEYS = {"backend", "device", "target", "verdict", "obstacle", "found", "cure", "rules", "notes"}


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pmtpy", "doctor", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def test_json_has_a_finding_for_every_backend_and_nothing_else_on_stdout() -> None:
    done = doctor("--json")
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)
    assert {f["backend"] for f in findings} >= set(BACKENDS)
    for finding in findings:
        assert set(finding) == KEYS
        assert finding["verdict"] in {"works", "limited", "broken", "absent"}
        assert (finding["obstacle"] is None) == (finding["verdict"] == "works"), finding


def test_another_root_is_examined_instead_of_this_machine(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", INTEL)
    done = doctor("rapl", "--root", str(broken.root))
    assert done.returncode == 0, done.stderr
    assert "rapl: does not work (kernel module)" in done.stdout
    assert "cure: $ sudo modprobe intel_rapl_msr" in done.stdout
    assert "0 can be used, 1 needs a cure." in done.stdout


def test_virtual_sensors_are_opened_and_read() -> None:
    targets = [f"{name}:virtual" for name in BACKENDS]
    findings = json.loads(doctor(*targets, "--json").stdout)
    assert [(f["verdict"], f["target"]) for f in findings] == [("works", target) for target in targets]
    assert all("opened and read" in f["found"] for f in findings)


@pytest.mark.parametrize("words", [["nonsense"], ["--rules", "nonsense"], ["--root", "/proc/nonexistent"]])
def test_what_does_not_exist_is_a_usage_error_that_names_it(words: list[str]) -> None:
    done = doctor(*words)
    assert done.returncode == 2
    assert words[-1] in done.stderr


def test_one_rules_file_is_printed_as_it_is_and_all_with_headings() -> None:
    assert doctor("--rules", "pmtpy-occ.conf").stdout == rules.text("pmtpy-occ.conf")
    everything = doctor("--rules").stdout
    for name in rules.names():
        assert f"# ==== {name} ====" in everything
        assert rules.text(name) in everything
    assert "intel-rapl" in doctor("--rules", "rapl").stdout


@pytest.mark.parametrize("name", rules.names())
def test_each_rules_file_says_how_it_is_installed(name: str) -> None:
    first, *others = rules.commands(name)
    assert first.startswith(f"pmtpy doctor --rules {name} | sudo tee /etc/")
    assert first.endswith(f".d/{name}")
    assert others, "and how it is put in force"


def test_a_missing_extra_is_found_in_a_process_that_cannot_import_it(broken: Broken) -> None:
    broken.pci("0000:3b:00.0", 0x10DE, 0x030200, "nvidia")
    code = (
        "import sys; sys.modules['pynvml'] = None; from pmtpy.cli import main; "
        f"sys.exit(main(['doctor', 'nvml', '--json', '--root', {str(broken.root)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    (finding,) = json.loads(done.stdout)
    assert finding["obstacle"] == "extra not installed"
    assert finding["cure"] == ["$ pip install 'pmtpy[nvml]'"]


def test_what_is_installed_and_the_source_archive_carry_the_rules(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "pmtpy").symlink_to(ROOT / "pmtpy")
    # What build_py puts into build/ is what a wheel is made of; it needs no package but setuptools.
    setup = [sys.executable, "-c", "from setuptools import setup; setup()"]
    for command in (["build_py", "--build-lib", "built"], ["sdist", "--dist-dir", "archive"]):
        done = subprocess.run([*setup, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    (archive,) = (tmp_path / "archive").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    for name in rules.names():
        assert (tmp_path / "built/pmtpy/backends/rules" / name).is_file()
        assert any(path.endswith(f"/pmtpy/backends/rules/{name}") for path in names)
