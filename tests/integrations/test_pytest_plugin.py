"""The plugin for pytest, in runs of its own, on virtual sensors whose energy is known: 60 W always."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib import metadata
from pathlib import Path

import pytest

import pmtpy
from pmtpy.integrations._pytest_baseline import compared
from pmtpy.integrations._pytest_energy import Budget, Found, judge

ROOT = Path(pmtpy.__file__).parents[1]
PLUGIN = "pmtpy.integrations.pytest_plugin"
BOARD = "powersensor3:virtual"  # of the virtual sensors the one that resolves milliseconds

# The first virtual sensor of a process chooses the load; this one does so before the plugin opens its own.
CONFTEST = """
import gc
import pmtpy
held = []

def pytest_sessionstart(session):
    held.append(pmtpy.create("rapl:virtual", load="constant:60"))

def pytest_unconfigure(config):
    while held:
        held.pop().close()
"""
TESTS = """
import time
import pytest

def test_plain():
    time.sleep(0.1)

@pytest.mark.energy_budget(joules={joules!r}, sensor="powersensor3:virtual")
def test_budget():
    time.sleep(0.2)
"""


class Suite:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")

    def write(self, text: str) -> None:
        (self.folder / "test_it.py").write_text(text)

    def run(self, *words: str, **variables: str) -> tuple[int, str]:
        installed = any(e.value == PLUGIN for e in metadata.entry_points(group="pytest11"))
        known = () if installed else ("-p", PLUGIN)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *known, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_without_being_asked_nothing_of_ours_is_imported_or_shown(suite: Suite) -> None:
    (suite.folder / "conftest.py").unlink()
    suite.write(
        "import sys\n"
        "def test_nothing():\n"
        "    assert not {'numpy', 'pmtpy.sensor', 'pmtpy.integrations._pytest_energy'} & set(sys.modules)\n"
    )
    code, said = suite.run()
    assert code == 0, said
    assert "energy" not in said


def test_energies_are_shown_and_written_and_junit_has_them(suite: Suite) -> None:
    suite.write(TESTS.format(joules=60.0))
    code, said = suite.run("--energy", "--energy-sensors", BOARD, "--energy-json", "e.json", "--junitxml", "j.xml")
    assert code == 0, said
    assert "test_it.py::test_plain" in said
    assert "is within the budget of 60 J" in said
    assert "virtual sensors: their energy is emulated" in said
    found = json.loads((suite.folder / "e.json").read_text())["tests"]["test_it.py::test_plain"]["targets"][BOARD]
    assert found["watts"] == pytest.approx(60.0, rel=0.1)
    assert found["joules"] >= 0.09 * 60.0
    properties = {p.get("name"): p.get("value") for p in ET.parse(suite.folder / "j.xml").iter("property")}  # noqa: S314
    assert float(properties["energy_powersensor3_virtual_watts"] or 0.0) == pytest.approx(60.0, rel=0.1)
    assert properties["energy_verdict"] == "within"


def test_a_budget_that_is_exceeded_fails_the_test_without_a_trace(suite: Suite) -> None:
    suite.write(TESTS.format(joules="500 mJ"))
    code, said = suite.run()
    assert code == 1
    assert "is over the budget of 0.5 J" in said
    assert "1 failed, 1 passed" in said
    assert "in __exit__" not in said


def test_a_budget_within_the_interval_is_unresolved_which_is_no_silent_pass(suite: Suite) -> None:
    (suite.folder / "pytest.ini").write_text("[pytest]\n")
    # 25 times a reading of 100 ms fits into nothing: a sensor of 100 ms cannot tell 50 ms.
    suite.write(
        "import time, pytest\n"
        "@pytest.mark.energy_budget(joules=3.0, sensor='nvml:virtual')\n"
        "def test_short():\n    time.sleep(0.05)\n"
    )
    code, said = suite.run()
    assert code == 0, said
    assert "EnergyBudgetWarning: unresolved" in said
    assert suite.run("--energy-required")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "needs joules= or watts="),
        ("joules='5 W'", "no amount of joules"),
        ("watts='5 J'", "no amount of watts"),
        ("joules=-1", "no amount of joules"),
        ("joules=True", "no amount of joules"),
        ("power=5", "not power"),
        ("5", "not 5"),
        ("joules=5, sensor='solar'", "no sensor is called 'solar'"),
    ],
)
def test_a_budget_that_makes_no_sense_ends_the_run_before_it_begins(suite: Suite, arguments: str, says: str) -> None:
    suite.write(f"import pytest\n@pytest.mark.energy_budget({arguments})\ndef test_it(): pass\n")
    code, said = suite.run()
    assert code == 4
    assert says in said
    assert "test_it.py::test_it" in said


def test_without_a_sensor_budgets_are_skipped_with_the_cure_and_fail_where_energy_is_required(suite: Suite) -> None:
    suite.write("import pytest\n@pytest.mark.energy_budget(joules=5)\ndef test_it(): pass\ndef test_other(): pass\n")
    nowhere = {"PMTPY_SENSORS": "rapl", "PMT_SYSFS_ROOT": str(suite.folder / "no-sys")}
    code, said = suite.run("-rs", **nowhere)
    assert code == 0, said
    assert "1 passed, 1 skipped" in said
    assert "its energy cannot be judged: rapl:" in said
    code, said = suite.run("--energy-required", **nowhere)
    assert code == 1
    assert "1 failed, 1 passed" in said


def test_a_test_that_fails_by_itself_keeps_its_own_error_and_its_energy(suite: Suite) -> None:
    suite.write(
        "import time, pytest\n"
        "@pytest.mark.energy_budget(joules=1e-6)\n"
        "def test_it():\n    time.sleep(0.1)\n    assert 1 == 2\n"
    )
    code, said = suite.run("--energy", "--energy-sensors", BOARD)
    assert code == 1
    assert "assert 1 == 2" in said
    assert "over the budget" not in said
    assert "(failed)" in said


def test_the_fixture_measures_a_part(suite: Suite) -> None:
    suite.write(
        "import time\n"
        "def test_it(energy):\n"
        "    with energy('nap') as region:\n        time.sleep(0.2)\n"
        f"    assert 54 < region['{BOARD}'].watts < 66\n"
    )
    code, said = suite.run("--energy-sensors", BOARD, "--junitxml", "j.xml")
    assert code == 0, said
    names = {p.get("name") for p in ET.parse(suite.folder / "j.xml").iter("property")}  # noqa: S314
    assert "energy_nap_powersensor3_virtual_joules" in names


def test_beside_other_workers_budgets_are_refused_and_energies_said_to_be_shared(suite: Suite) -> None:
    pytest.importorskip("xdist")
    suite.write(TESTS.format(joules=60.0))
    code, said = suite.run("-n", "2", "--energy", "--energy-sensors", BOARD, "-rs")
    assert code == 0, said
    assert "1 passed, 1 skipped" in said
    assert "2 workers run side by side" in said
    assert "each energy is that of all of them" in said
    assert "test_it.py::test_plain" in said  # it came from the worker
    assert suite.run("-n", "2", "--energy-required")[0] == 1
    code, said = suite.run("-n", "1")
    assert code == 0, said
    assert "is within the budget" in said


def test_runs_are_repeated_on_request_and_compared_with_a_baseline(suite: Suite) -> None:
    body = "import time\ndef test_nap():\n    time.sleep({})\n"
    words = ("--energy-sensors", BOARD, "--energy-repeat", "4")
    suite.write(body.format(0.05))
    assert suite.run(*words, "--energy-json", "old.json")[0] == 0
    suite.write(body.format(0.5))
    code, said = suite.run(*words, "--energy-compare", "old.json")
    assert code == 0, said
    assert "4 runs" in said
    assert "more: +" in said


def test_a_baseline_of_another_machine_is_refused_unless_forced(suite: Suite) -> None:
    suite.write("def test_it(): pass\n")
    assert suite.run("--energy-sensors", BOARD, "--energy-json", "old.json")[0] == 0
    old = json.loads((suite.folder / "old.json").read_text())
    (suite.folder / "old.json").write_text(json.dumps({**old, "machine": {**old["machine"], "host": "elsewhere"}}))
    words = ("--energy-sensors", BOARD, "--energy-compare", "old.json")
    code, said = suite.run(*words)
    assert code == 4
    assert "of another machine: elsewhere there" in said
    code, said = suite.run(*words, "--energy-force")
    assert code == 0, said
    assert "compared because of --energy-force" in said
    (suite.folder / "old.json").write_text("{}")
    code, said = suite.run(*words)
    assert code == 4
    assert "no file that --energy-json wrote" in said


class TestArithmetic:
    """Verdicts, without running anything."""

    FOUND = Found(10.0, 2.0, 1.0, 0.5, 5, 1.0, ())

    @pytest.mark.parametrize(
        ("budget", "verdict"), [(8.9, "over"), (9.5, "unresolved"), (10.5, "unresolved"), (11.0, "within")]
    )
    def test_over_and_within_are_sure(self, budget: float, verdict: str) -> None:
        assert judge(self.FOUND, Budget(budget, None, None))[0] == verdict
        assert judge(self.FOUND, Budget(None, budget / 2.0, None))[0] == verdict

    def test_the_worst_of_two_budgets_counts(self) -> None:
        assert judge(self.FOUND, Budget(20.0, 3.0, None))[0] == "over"
        assert judge(self.FOUND, Budget(20.0, 5.1, None))[0] == "unresolved"

    def test_a_test_that_the_sensor_missed_is_unresolved(self) -> None:
        blind = Found(1.0, 2.0, 0.1, 0.1, 1, 0.5, ())
        assert judge(blind, Budget(100.0, None, None))[0] == "unresolved"

    def test_another_device_or_a_single_run_has_no_verdict(self) -> None:
        old = {**self.FOUND.to_dict(), "device": {"serial": "1"}}
        new = {**old, "joules": 20.0}
        assert compared(old, new, forced=False, shared=False)[0] == "more"
        assert compared(old, {**new, "device": {"serial": "2"}}, forced=False, shared=False)[0] == ""
        assert compared(old, {**new, "device": {"serial": "2"}}, forced=True, shared=False)[0] == "more"
        assert compared(old, {**new, "apart_joules": None}, forced=False, shared=False)[0] == ""
        assert compared(old, new, forced=False, shared=True)[0] == ""
        assert compared(old, {**new, "joules": 10.2}, forced=False, shared=False)[0] == "unresolved"
