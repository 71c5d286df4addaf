"""What the plugin for pytest does with the energies of a run: the summary, the file, the comparison with an old one."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pmtpy.core.numbers import real
from pmtpy.integrations._pytest_budget import Record
from pmtpy.lab.conditions import machine_facts

_FORMAT = "pmtpy-pytest"
_MACHINE_KEYS = ("host", "cpu")  # what makes it the same machine


@dataclass(frozen=True, slots=True)
class Baseline:
    """Energies of an earlier run."""

    path: str
    tests: Mapping[str, Record]
    note: str  # what a reader of a comparison must know; empty where all is as it was
    forced: bool  # compare other devices nevertheless
    limit: float | None  # the relative increase beyond which a run fails; None: none does


def read_baseline(config: pytest.Config) -> Baseline:
    """Read the file of ``--energy-compare``.

    Raises UsageError: it cannot be read, or is of another machine; or what is allowed makes no sense.
    """
    limit = _limit(config.getoption("energy_compare_fail"))
    if not config.getoption("energy_compare"):
        msg = "--energy-compare-fail needs the file to compare with: --energy-compare OLD.json"
        raise pytest.UsageError(msg)
    path = str(config.getoption("energy_compare"))
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["format"] != _FORMAT or real(document["version"]) != 1:
            raise ValueError(document["format"])  # noqa: TRY301  (told below, with all else that is no such file)
        tests, machine = dict(document["tests"]), dict(document["machine"])
        for record in tests.values():
            dict(record), [dict(numbers) for numbers in dict(record["targets"]).values()]
    except OSError as error:
        msg = f"--energy-compare {path}: cannot be read: {error.strerror}"
        raise pytest.UsageError(msg) from error
    except (ValueError, KeyError, TypeError) as error:
        msg = f"--energy-compare {path}: it is no file that --energy-json wrote"
        raise pytest.UsageError(msg) from error
    here = machine_facts()
    other = [
        f"{machine.get(fact)} there, {here[fact]} here" for fact in _MACHINE_KEYS if machine.get(fact) != here[fact]
    ]
    note = f"{path} is of another machine: {'; '.join(other)}" if other else ""
    forced = bool(config.getoption("energy_force"))
    if note and not forced:
        msg = (
            f"--energy-compare {note}; make a baseline here with --energy-json, or compare nevertheless: --energy-force"
        )
        raise pytest.UsageError(msg)
    return Baseline(path, tests, note, forced, limit)


def _limit(text: str | None) -> float | None:
    """Return the share that a text such as ``5%`` or ``5`` means."""
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        share = float(text.strip().rstrip("%")) / 100.0
        if 0.0 <= share < math.inf:
            return share
    msg = f"--energy-compare-fail {text}: write how much more is allowed in percent, such as 5%"
    raise pytest.UsageError(msg)


def conclude(reporter: pytest.TerminalReporter, found: Mapping[str, Record]) -> None:
    """Show the energies of a run."""
    reporter.section("energy")
    width = max((len(nodeid) for nodeid in found), default=0)
    for nodeid, record in found.items():
        for line in _lines(record):
            reporter.line(f"{nodeid.ljust(width)}  {line}")
    if not found:
        reporter.line("no test was measured")
    refused = sum("unavailable" in record and not record["targets"] for record in found.values())
    if refused:
        reporter.line(f"{refused} test{'s were' if refused > 1 else ' was'} not judged", yellow=True)
    if any(record.get("shared") for record in found.values()):
        reporter.line(
            "note: several workers ran side by side: each energy is that of all of them (-n 0 measures each test)"
        )
    if any(t["device"]["virtual"] for record in found.values() for t in record["targets"].values()):
        reporter.line("note: virtual sensors: their energy is emulated")


def write(config: pytest.Config, found: Mapping[str, Record]) -> str:
    """Write the file of ``--energy-json``, if one is asked for; return what went wrong."""
    path = config.getoption("energy_json")
    if not path:
        return ""
    document = {"format": _FORMAT, "version": 1, "machine": machine_facts(), "tests": dict(found)}
    try:
        Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        return f"--energy-json {path}: cannot be written: {error.strerror}"
    return ""


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
    joules, half, watts, seconds = (math.nan if (number := real(v)) is None else number for v in values.values())
    runs = f", {numbers['runs']} runs" if numbers.get("runs") != 1 else ""
    if math.isnan(joules):
        return f"energy not known, {seconds:.3g} s{runs}"
    how_far = ", uncertainty not known" if math.isnan(half) else f" +- {half:.2g} (95 %)"
    return f"{joules:.4g} J{how_far}, {watts:.4g} W, {seconds:.3g} s{runs}"


# -- the comparison ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compared:
    """One test by one sensor, now against before.

    Attributes
    ----------
    name : str
        Of the test and the sensor.
    change, half : float
        Relative change and the half-width of its interval of 95 %; NaN where they are not known.
    why : str
        Why they are not; empty where they are.
    """

    name: str
    change: float = math.nan
    half: float = math.nan
    why: str = ""

    @property
    def verdict(self) -> str:
        """``less``, ``more``, ``unresolved``, or empty where there is none."""
        if not math.isfinite(self.half):
            return ""
        return "unresolved" if abs(self.change) <= self.half else "more" if self.change > 0.0 else "less"

    def against(self, limit: float) -> str:
        """``over`` or ``within`` an increase that is allowed, ``unresolved``, or empty where nothing can be said."""
        if not math.isfinite(self.half):
            return ""
        low, high = self.change - self.half, self.change + self.half
        return "over" if low > limit else "within" if high <= limit else "unresolved"

    def __str__(self) -> str:
        """Return a line for people."""
        if not self.verdict:
            return f"{self.name}: {self.why}"
        return f"{self.name}: {self.verdict}: {100 * self.change:+.3g} % +- {100 * self.half:.2g} %{self.why}"


def compare(found: Mapping[str, Record], baseline: Baseline) -> list[Compared]:
    """Hold the energies of a run against those of the baseline."""
    pairs: list[Compared] = []
    for nodeid, record in found.items():
        old = baseline.tests.get(nodeid)
        if old is None:
            pairs.append(Compared(nodeid, why="not in the baseline"))
            continue
        shared = bool(record.get("shared") or old.get("shared"))
        for target, new in record["targets"].items():
            name, before = f"{nodeid}: {target}", old["targets"].get(target)
            if before is None and len(old["targets"]) == len(record["targets"]) == 1:  # one sensor took another's place
                ((was, before),) = old["targets"].items()
                name = f"{name} (before: {was})"
            pairs.append(compared(name, before, new, forced=baseline.forced, shared=shared))
    return pairs


def compared(
    name: str, old: Mapping[str, object] | None, new: Mapping[str, object], *, forced: bool, shared: bool
) -> Compared:
    """Compare a test with what it was. The gain of the sensor cancels; the scatter of a single run is not known."""
    if old is None:
        return Compared(name, why="not in the baseline")
    same = old.get("device") == new.get("device")
    if not same and not forced:
        return Compared(
            name, why="not compared: the baseline is of another sensor or device (--energy-force compares nevertheless)"
        )
    a, b = (real(x.get("joules")) for x in (old, new))
    if shared or a is None or b is None or not a > 0.0:
        why = ", because several workers ran" if shared else ""
        return Compared(name, why=f"not compared: its energy is not known{why}")
    change = b / a - 1.0
    wide = [w for x in (old, new) if (w := real(x.get("apart_joules"))) is not None]
    if len(wide) < 2:
        why = f"unresolved: {100 * change:+.3g} %, of single runs; --energy-repeat 5 tells their scatter, on both sides"
        return Compared(name, change, why=why)
    return Compared(name, change, math.hypot(*wide) / a, "" if same else ", another device")


def fails(config: pytest.Config, pairs: Sequence[Compared], baseline: Baseline) -> bool:
    """Whether the comparison makes the run fail: too much more, or nothing sure where something sure is required."""
    if baseline.limit is None:
        return False
    judged = [pair.against(baseline.limit) for pair in pairs]
    return "over" in judged or (bool(config.getoption("energy_required")) and (set(judged) != {"within"}))


def show(
    config: pytest.Config, reporter: pytest.TerminalReporter, pairs: Sequence[Compared], baseline: Baseline
) -> None:
    """Show the comparison, and whether it makes the run fail."""
    reporter.section(f"energy against {baseline.path}")
    if baseline.note:
        reporter.line(f"note: {baseline.note}; compared because of --energy-force")
    for pair in pairs:
        reporter.line(str(pair), red=pair.verdict == "more", green=pair.verdict == "less")
    if not pairs:
        reporter.line("nothing was compared: no test was measured")
    if baseline.limit is None:
        return
    judged = [pair.against(baseline.limit) or "unresolved" for pair in pairs]
    counts = ", ".join(f"{judged.count(word)} {word}" for word in ("over", "within", "unresolved") if word in judged)
    failing = fails(config, pairs, baseline)
    reporter.line(
        f"allowed: {100 * baseline.limit:+g} %: {counts or 'nothing compared'}", red=failing, green=not failing
    )
