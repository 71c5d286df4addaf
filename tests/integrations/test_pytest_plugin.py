"""The plugin for pytest, in runs within this one, on a virtual sensor whose energy is known: 60 W always."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import pmtpy
from pmtpy.integrations._pytest_baseline import compared, conclude
from pmtpy.integrations._pytest_budget import BodyEnergy, Budget, budget_of, judge

ROOT = Path(pmtpy.__file__).parents[1]
PLUGIN = "pmtpy.integrations.pytest_plugin"
INSTALLED = any(e.value == PLUGIN for e in metadata.entry_points(group="pytest11"))
RAPL = ("--energy-sensors", "rapl:virtual")

SUITE = """
import time
import pytest

def budget(joules, sensor="rapl:virtual"):
    return pytest.mark.energy_budget(joules=joules, sensor=sensor)

def test_plain():
    time.sleep(0.1)

@budget(60.0)
def test_within():
    time.sleep(0.2)

@budget("500 mJ")
def test_over():
    time.sleep(0.2)

@budget(1e-6)
def test_own_error():
    time.sleep(0.1)
    assert 1 == 2

@budget(3.0, sensor="nvml:virtual")  # a sensor of 100 ms cannot tell 50 ms
def test_short():
    time.sleep(0.05)

def test_part(energy):
    with energy("nap") as region:
        time.sleep(0.2)
    assert 54 < region["rapl:virtual"].watts < 66
"""
BARE = "import pytest\n@pytest.mark.energy_budget(joules=5)\ndef test_it(): pass\ndef test_other(energy): pass\n"
NAP = "import time\ndef test_nap():\n    time.sleep({})\n"


class Suite:
    """A folder with tests, and runs of it."""

    def __init__(self, folder: Path, read: Callable[[], tuple[str, str]]) -> None:
        self.folder, self._read = folder, read
        (folder / "pytest.ini").write_text(
            "[pytest]\naddopts = --strict-markers -p no:cacheprovider\nfilterwarnings = default\n"
        )

    def write(self, text: str) -> None:
        (self.folder / "test_it.py").write_text(text)

    def run(self, *words: str) -> tuple[int, str]:
        """Run it in this process, which takes a tenth of the time."""
        known = () if INSTALLED else ("-p", PLUGIN)
        where = ("--rootdir", str(self.folder), "-c", str(self.folder / "pytest.ini"), str(self.folder))
        self._read()
        plain = ("--import-mode=importlib", "-p", "no:faulthandler", "-p", "no:xdist")
        code = pytest.main([*known, *plain, *words, *where])
        for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(str(self.folder))]:
            del sys.modules[name]  # the next run may have other tests
        return int(code), "".join(self._read())

    def run_apart(self, *words: str) -> tuple[int, str]:
        """Run it in a process of its own."""
        known = () if INSTALLED else ("-p", PLUGIN)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *known, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def suite(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file may change within a second
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    # The first virtual sensor of a process chooses the load.
    with pmtpy.create("rapl:virtual", load="constant:60"):
        yield Suite(tmp_path, lambda: (found := capsys.readouterr()) and (found.out, found.err))


def test_without_being_asked_nothing_of_ours_is_imported_or_shown(suite: Suite) -> None:
    suite.write(
        "import sys\n"
        "def test_nothing():\n"
        "    assert not {'numpy', 'pmtpy.sensor', 'pmtpy.integrations._pytest_energy'} & set(sys.modules)\n"
    )
    code, said = suite.run_apart()
    assert code == 0, said
    assert "energy" not in said


def test_energies_verdicts_and_what_other_tools_see_of_them(suite: Suite) -> None:
    suite.write(SUITE)
    code, said = suite.run("--energy", *RAPL, "--energy-json", "e.json", "--junitxml", "j.xml")
    assert code == 1
    assert "2 failed, 4 passed" in said
    assert "is within the budget of 60 J" in said
    assert "is over the budget of 0.5 J" in said
    assert "in __exit__" not in said  # a budget fails without a trace
    assert "assert 1 == 2" in said
    assert "(failed)" in said  # its energy is told all the same
    assert "over the budget of 1e-06" not in said  # and its own error wins
    assert "EnergyBudgetWarning: unresolved" in said
    assert "virtual sensors: their energy is emulated" in said
    tests = json.loads(Path("e.json").read_text())["tests"]
    assert set(tests) == {
        f"test_it.py::test_{name}" for name in ("plain", "within", "over", "own_error", "short", "part")
    }
    found = tests["test_it.py::test_plain"]["targets"]["rapl:virtual"]
    assert found["watts"] == pytest.approx(60.0, rel=0.1)
    assert found["joules"] >= 0.09 * 60.0
    cases = {c.get("name"): c for c in ET.parse("j.xml").iter("testcase")}  # noqa: S314
    seen = {n: {p.get("name"): p.get("value") for p in c.iter("property")} for n, c in cases.items()}
    assert float(seen["test_plain"]["energy_rapl_virtual_watts"] or 0.0) == pytest.approx(60.0, rel=0.1)
    assert seen["test_within"]["energy_verdict"] == "within"
    assert "energy_nap_rapl_virtual_joules" in seen["test_part"]


def test_without_a_verdict_tests_fail_where_energy_is_required_and_are_skipped_with_the_cure_else(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write(BARE)
    monkeypatch.setenv("PMTPY_SENSORS", "rapl")
    monkeypatch.setenv("PMT_SYSFS_ROOT", str(suite.folder / "no-sys"))
    code, said = suite.run()
    assert code == 0, said
    assert "2 skipped" in said
    assert "test_it.py::test_it     not measured: rapl:" in said
    assert suite.run("--energy-required")[0] == 1
    suite.write(SUITE)
    code, said = suite.run("--energy-required", "-k", "short")
    assert code == 1
    assert "unresolved: " in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "needs joules= or watts="),
        ({"joules": "5 W"}, "no amount of joules"),
        ({"watts": "5 J"}, "no amount of watts"),
        ({"joules": -1}, "no amount of joules"),
        ({"joules": True}, "no amount of joules"),
        ({"joules": math.nan}, "no amount of joules"),
        ({"joules": "1e999 J"}, "no amount of joules"),
        ({"power": 5}, "not power"),
        ({"joules": 5, "sensor": "solar"}, "no sensor is called 'solar'"),
    ],
)
def test_a_budget_that_makes_no_sense_is_told(arguments: dict[str, object], says: str) -> None:
    marker = types.SimpleNamespace(args=(), kwargs=arguments)
    item = types.SimpleNamespace(iter_markers_with_node=lambda _name: [(None, marker)])
    with pytest.raises(pytest.fail.Exception, match=says):
        budget_of(item)  # type: ignore[arg-type]


def test_such_a_budget_fails_its_test_before_that_runs_and_no_other(suite: Suite) -> None:
    bad = "@pytest.mark.energy_budget(5)\ndef test_it(): print('it ran')\n"
    marks = "@pytest.mark.energy_budget(joules=1)\n@pytest.mark.energy_budget(joules=100)\n"
    suite.write(f"import pytest\n{bad}{marks}def test_two(): pass\ndef test_other(): pass\n")
    code, said = suite.run()
    assert code == 1
    assert "2 failed, 1 passed" in said
    assert "energy_budget takes joules=, watts= and sensor=, not 5" in said
    assert "several energy_budget markers" in said
    assert "it ran" not in said
    assert "Traceback" not in said
    inner = "    @pytest.mark.energy_budget(joules='90 kJ')\n    def test_it(self): pass\n"
    suite.write(f"import pytest\n@pytest.mark.energy_budget(joules=1e-9)\nclass TestIt:\n{inner}")
    assert suite.run(*RAPL)[0] == 0  # the nearer one counts


def test_beside_other_workers_budgets_are_refused_and_energies_said_to_be_shared(suite: Suite) -> None:
    pytest.importorskip("xdist")
    suite.write(SUITE)
    code, said = suite.run_apart("-n", "2", "--energy", *RAPL, "-k", "plain or within or part")
    assert code == 1, said  # a refused budget does not look like one that is kept
    assert "1 passed" in said
    assert "skipped" not in said
    assert "test_it.py::test_within  not measured: 2 workers run side by side" in said
    assert "pytest -n 0 -m energy_alone" in said
    assert "2 tests were not judged" in said
    assert "each energy is that of all of them" in said
    assert "test_it.py::test_plain " in said  # it came from the worker
    code, said = suite.run_apart(
        "-n", "2", "--energy", *RAPL, "-m", "not energy_alone", "-k", "plain or within or part"
    )
    assert code == 0, said
    assert "1 passed" in said
    code, said = suite.run(*RAPL, "-m", "energy_alone", "-k", "plain or within or part")
    assert code == 0, said
    assert "2 passed" in said


def test_runs_are_repeated_on_request_and_compared_with_a_baseline(suite: Suite) -> None:
    words = (*RAPL, "--energy-repeat", "4")
    suite.write(NAP.format(0.05))
    assert suite.run(*words, "--energy-json", "old.json")[0] == 0
    suite.write(NAP.format(0.4) + "def test_new(): pass\n")
    compare = (*words, "--energy-compare", "old.json")
    code, said = suite.run(*compare)
    assert code == 0, said  # a report, unless it is asked for more
    assert "4 runs" in said
    assert "more: +" in said
    assert "test_it.py::test_new: not in the baseline" in said
    code, said = suite.run(*compare, "--energy-compare-fail", "5%", "-k", "nap")
    assert code == 1
    assert "1 passed" in said
    assert "allowed: +5 %: 1 over" in said
    assert suite.run(*compare, "--energy-compare-fail", "5000")[0] == 0
    code, said = suite.run(*compare, "--energy-compare-fail", "5000", "--energy-required")
    assert code == 1  # of the new test nothing can be said
    assert "1 within, 1 unresolved" in said


def test_a_baseline_of_another_machine_is_refused_unless_forced(suite: Suite) -> None:
    suite.write(NAP.format(0.1))  # long enough for its energy to be known
    assert suite.run(*RAPL, "--energy-json", "old.json")[0] == 0
    old = json.loads(Path("old.json").read_text())
    Path("old.json").write_text(json.dumps({**old, "machine": {**old["machine"], "host": "elsewhere"}}))
    words = (*RAPL, "--energy-compare", "old.json")
    code, said = suite.run(*words)
    assert code == 4
    assert "of another machine: elsewhere there" in said
    code, said = suite.run(*words, "--energy-force", "--energy-json", "no/such/folder.json")
    assert code == 1, said
    assert "folder.json: cannot be written: No such file or directory" in said
    code, said = suite.run(*words, "--energy-force")
    assert code == 0, said
    assert "compared because of --energy-force" in said
    # So it is with another sensor in the place of the one before.
    (new,) = old["tests"].values()
    new["targets"] = {"nvml:0": {**new["targets"]["rapl:virtual"], "device": {"backend": "nvml"}}}
    Path("old.json").write_text(json.dumps(old))
    for word, says in ((), "another sensor or device (--energy-force"), (("--energy-force",), "of single runs"):
        code, said = suite.run(*words, *word)
        assert code == 0, said
        assert "rapl:virtual (before: nvml:0): " in said
        assert says in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--energy-compare", "empty.json"), "no file that --energy-json wrote"),
        (("--energy-compare", "none.json"), "cannot be read: No such file"),
        (("--energy-compare", "spoilt.json"), "no file that --energy-json wrote"),
        (("--energy-compare", "true.json"), "no file that --energy-json wrote"),
        (("--energy-compare-fail", "5"), "needs the file to compare with"),
        (("--energy-compare", "empty.json", "--energy-compare-fail", "much"), "in percent, such as 5%"),
        (("--energy", "--energy-repeat", "0"), "needs at least 1"),
    ],
)
def test_options_that_make_no_sense_end_the_run_before_it_begins(
    suite: Suite, words: tuple[str, ...], says: str
) -> None:
    suite.write("def test_it(): pass\n")
    Path("empty.json").write_text("{}")
    Path("spoilt.json").write_text('{"format": "pmtpy-pytest", "version": 1, "machine": {}, "tests": {"a": 5}}')
    Path("true.json").write_text('{"format": "pmtpy-pytest", "version": true, "machine": {}, "tests": {}}')
    code, said = suite.run(*words)
    assert code == 4
    assert says in said


class TestArithmetic:
    """Verdicts, without running anything."""

    FOUND = BodyEnergy(10.0, 2.0, 1.0, 0.5, 5, 1.0, ())

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
        blind = BodyEnergy(1.0, 2.0, 0.1, 0.1, 1, 0.5, ())
        assert judge(blind, Budget(100.0, None, None))[0] == "unresolved"

    def test_what_is_not_known_is_shown_as_no_number(self) -> None:
        said: list[str] = []
        reporter: Any = types.SimpleNamespace(section=said.append, line=lambda text, **_: said.append(text))
        device = {"virtual": False}
        blind = {**BodyEnergy(math.nan, 2.0, 57.0, math.nan, 1, 0.0, ()).to_dict(), "device": device}
        unsure = {**BodyEnergy(10.0, 2.0, math.nan, math.nan, 1, 1.0, ()).to_dict(), "device": device}
        conclude(reporter, {"t": {"targets": {"a": blind, "b": unsure}}})
        assert [line.split("  ")[1] for line in said[1:]] == [
            "a: energy not known, 2 s",
            "b: 10 J, uncertainty not known, 5 W, 2 s",
        ]

    def test_another_device_or_a_single_run_has_no_verdict(self) -> None:
        old = {**self.FOUND.to_dict(), "device": {"serial": "1"}}
        new = {**old, "joules": 20.0}
        other = {**new, "device": {"serial": "2"}}
        verdicts = [
            compared("t", old, given, forced=forced, shared=shared).verdict
            for given, forced, shared in (
                (new, False, False), (other, False, False), (other, True, False),
                ({**new, "apart_joules": None}, False, False), (new, False, True),
                ({**new, "joules": 10.2}, False, False),
            )
        ]  # fmt: skip
        assert verdicts == ["more", "", "more", "", "", "unresolved"]

    @pytest.mark.parametrize(("limit", "judged"), [(0.1, "over"), (0.95, "unresolved"), (1.1, "within")])
    def test_an_increase_is_held_against_what_is_allowed(self, limit: float, judged: str) -> None:
        old = {**self.FOUND.to_dict(), "device": {}}
        assert compared("t", old, {**old, "joules": 20.0}, forced=False, shared=False).against(limit) == judged
