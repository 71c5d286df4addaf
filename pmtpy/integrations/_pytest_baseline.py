"""What the plugin for pytest does with the energies of a run: the summary, the file, the comparison with an old one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pmtpy.integrations._pytest_energy import Record
from pmtpy.lab.conditions import machine_facts

_FORMAT = "pmtpy-pytest"
_SAME = ("host", "cpu")  # what makes it the same machine


@dataclass(frozen=True, slots=True)
class Baseline:
    """Energies of an earlier run.

    Attributes
    ----------
    path : str
    tests : mapping of node id to record
    note : str
        What a reader of a comparison must know; empty where all is as it was.
    """

    path: str
    tests: Mapping[str, Record]
    note: str


def read_baseline(config: pytest.Config) -> Baseline:
    """Read the file of ``--energy-compare``.

    Raises
    ------
    UsageError
        It cannot be read, or is of another machine.
    """
    path = str(config.getoption("energy_compare"))
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["format"] != _FORMAT or document["version"] != 1:
            raise ValueError(document["format"])  # noqa: TRY301  (told below, with all else that is no such file)
        tests, machine = dict(document["tests"]), dict(document["machine"])
    except OSError as error:
        msg = f"--energy-compare {path}: cannot be read: {error.strerror}"
        raise pytest.UsageError(msg) from error
    except (ValueError, KeyError, TypeError) as error:
        msg = f"--energy-compare {path}: it is no file that --energy-json wrote"
        raise pytest.UsageError(msg) from error
    here = machine_facts()
    other = [f"{machine.get(fact)} there, {here[fact]} here" for fact in _SAME if machine.get(fact) != here[fact]]
    note = f"{path} is of another machine: {'; '.join(other)}" if other else ""
    if note and not config.getoption("energy_force"):
        msg = (
            f"--energy-compare {note}; make a baseline here with --energy-json, or compare nevertheless: --energy-force"
        )
        raise pytest.UsageError(msg)
    return Baseline(path, tests, note)


def conclude(
    config: pytest.Config, reporter: pytest.TerminalReporter, found: Mapping[str, Record], baseline: Baseline | None
) -> None:
    """Show the energies of a run, and write them to a file."""
    reporter.section("energy")
    width = max((len(nodeid) for nodeid in found), default=0)
    for nodeid, record in found.items():
        for line in _lines(record):
            reporter.line(f"{nodeid.ljust(width)}  {line}")
    if not found:
        reporter.line("no test was measured")
    if any(record.get("shared") for record in found.values()):
        reporter.line(
            "note: several workers ran side by side: each energy is that of all of them (-n 0 measures each test)"
        )
    if any(t["device"]["virtual"] for record in found.values() for t in record["targets"].values()):
        reporter.line("note: virtual sensors: their energy is emulated")
    if baseline is not None:
        _compare(config, reporter, found, baseline)
    path = config.getoption("energy_json")
    if path:
        document = {"format": _FORMAT, "version": 1, "machine": machine_facts(), "tests": dict(found)}
        try:
            Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            reporter.line(f"--energy-json {path}: cannot be written: {error.strerror}", red=True)


def _lines(record: Record) -> list[str]:
    lines = [f"{target}: {_text(numbers)}" for target, numbers in record["targets"].items()]
    if "unavailable" in record:
        lines.append(f"not measured: {str(record['unavailable']).splitlines()[0]}")
    budget = record.get("budget")
    if budget is not None:
        lines.append(f"{budget['verdict']}: {budget['why']}")
    if record.get("failed"):
        lines[:1] = [f"{lines[0]} (failed)"] if lines else []
    return lines


def _text(numbers: Mapping[str, object]) -> str:
    values = {k: numbers.get(k) for k in ("joules", "interval_joules", "watts", "seconds")}
    joules, half, watts, seconds = (float(v) if isinstance(v, (int, float)) else math.nan for v in values.values())
    runs = f", {numbers['runs']} runs" if numbers.get("runs") != 1 else ""
    return f"{joules:.4g} J +- {half:.2g} (95 %), {watts:.4g} W, {seconds:.3g} s{runs}"


# -- the comparison ----------------------------------------------------------------------------------------------------


def _compare(
    config: pytest.Config, reporter: pytest.TerminalReporter, found: Mapping[str, Record], baseline: Baseline
) -> None:
    reporter.section(f"energy against {baseline.path}")
    if baseline.note:
        reporter.line(f"note: {baseline.note}; compared because of --energy-force")
    forced = bool(config.getoption("energy_force"))
    for nodeid, record in found.items():
        old = baseline.tests.get(nodeid)
        if old is None:
            reporter.line(f"{nodeid}: not in the baseline")
            continue
        for target, new in record["targets"].items():
            before = old["targets"].get(target)
            verdict, line = compared(before, new, forced=forced, shared=bool(record["shared"] or old.get("shared")))
            reporter.line(f"{nodeid}: {target}: {line}", red=verdict == "more", green=verdict == "less")


def compared(
    old: Mapping[str, object] | None, new: Mapping[str, object], *, forced: bool, shared: bool
) -> tuple[str, str]:
    """Return whether a test uses less or more than it did, and a line that says so.

    The gain of the sensor cancels. Of a single run the scatter is not known, so it has no verdict.
    """
    if old is None:
        return "", "not in the baseline"
    if old.get("device") != new.get("device") and not forced:
        return "", "not compared: the baseline is of another device (--energy-force compares nevertheless)"
    a, b = (x.get("joules") for x in (old, new))
    if shared or not (isinstance(a, float) and isinstance(b, float) and a > 0.0):
        return "", "not compared: its energy is not known" + (", because several workers ran" if shared else "")
    wide = [x.get("apart_joules") for x in (old, new)]
    other = "" if old.get("device") == new.get("device") else ", another device"
    change = f"{100 * (b / a - 1):+.3g} %{other}"
    if not all(isinstance(w, (int, float)) for w in wide):
        return "", f"unresolved: {change}, of single runs; --energy-repeat 5 tells their scatter, on both sides"
    half = math.hypot(*(float(w) for w in wide if isinstance(w, (int, float))))
    if abs(b - a) <= half:
        return "unresolved", f"unresolved: {change} +- {100 * half / a:.2g} %"
    verdict = "more" if b > a else "less"
    return verdict, f"{verdict}: {change} +- {100 * half / a:.2g} %"
