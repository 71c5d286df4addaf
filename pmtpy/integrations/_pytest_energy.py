"""What the plugin for pytest does once energy is asked for: budgets, sensors, the measuring of a test body.

A budget is over only if the energy is surely above it, and within only if it is surely below: what lies between is
unresolved, which is not passed over in silence. All sensors here see the whole machine or the whole device, so beside
other workers of xdist nothing can be said of one test: budgets are refused there.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from pmtpy.analysis.uncertainty.budget import COVERAGE_FACTOR, repeated
from pmtpy.core.presentation import number_or_none
from pmtpy.errors import BackendUnavailableError, PmtError, TargetError
from pmtpy.lab.bench_trial import ENOUGH, when_settled
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.regions.total import sum_up
from pmtpy.sensor.registry import canonical, create, list_sensors
from pmtpy.sensor.sensor import Sensor, acquisition_of

if TYPE_CHECKING:
    from typing_extensions import Self

Record = dict[str, Any]  # of one test, as JSON has it: reports travel from workers as such

_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TEXT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([numkMG]?)(J|W|Wh)\s*")
_SHARED = frozenset({"gain", "offset", "resolution"})  # components that repeating does not lessen
_RECORD: pytest.StashKey[Record] = pytest.StashKey()


class EnergyBudgetWarning(pytest.PytestWarning):
    """A budget lies within the interval of what was measured: neither kept nor exceeded, as far as can be told."""


# -- budgets -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """What a test may use: joules, watts of mean power, or both; by which sensor."""

    joules: float | None
    watts: float | None
    sensor: str | None


def _budget_of(item: pytest.Item) -> Budget | None:
    """Return the budget of a test; None where it has none.

    Raises TargetError: it makes no sense.
    """
    marked = list(item.iter_markers_with_node("energy_budget"))
    if not marked:
        return None
    nearest, marker = marked[0]
    if sum(node is nearest for node, _ in marked) > 1:  # a class's gives way to its test's, as other markers do
        msg = "several energy_budget markers: a test has one, which takes joules= and watts=; measure by one sensor"
        raise TargetError(msg)
    unknown = sorted(set(marker.kwargs) - {"joules", "watts", "sensor"})
    if marker.args or unknown:
        msg = f"energy_budget takes joules=, watts= and sensor=, not {', '.join([*map(repr, marker.args), *unknown])}"
        raise TargetError(msg)
    joules, watts = (_amount(marker.kwargs.get(name), name) for name in ("joules", "watts"))
    if joules is None and watts is None:
        msg = "energy_budget needs joules= or watts=, for example energy_budget(joules=5)"
        raise TargetError(msg)
    sensor = marker.kwargs.get("sensor")
    return Budget(joules, watts, None if sensor is None else canonical(str(sensor)))


def _amount(given: object, name: str) -> float | None:
    """Return joules or watts of a number, or of a text with its unit."""
    if given is None:
        return None
    value = math.nan
    if isinstance(given, str):
        found = _TEXT.fullmatch(given)
        units = {"joules": {"J": 1.0, "Wh": 3600.0}, "watts": {"W": 1.0}}[name]
        if found is not None and found[3] in units:
            value = float(found[1]) * _PREFIXES[found[2]] * units[found[3]]
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        value = float(given)
    if not 0.0 < value < math.inf:
        example = {"joules": "5, '5 J', '300 mJ' or '0.1 Wh'", "watts": "50, '50 W' or '2 kW'"}[name]
        msg = f"energy_budget({name}={given!r}) is no amount of {name} above zero; write {example}"
        raise TargetError(msg)
    return value


def check_budgets(items: Sequence[pytest.Item]) -> None:
    """Refuse budgets that make no sense before anything runs."""
    for item in items:
        try:
            _budget_of(item)
        except TargetError as error:  # noqa: PERF203  (the first one ends the run)
            msg = f"{item.nodeid}: {error}"
            raise pytest.UsageError(msg) from error


# -- numbers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What one sensor says of a test body, over all its runs."""

    # of one run
    joules: float
    seconds: float
    half: float  # half-width of the interval of 95 %, joules
    # the same without what two runs on one sensor have in common; NaN of a single run, whose scatter is not known
    apart: float
    runs: int
    coverage: float
    warnings: tuple[str, ...]

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds if self.seconds > 0 else math.nan

    def to_dict(self) -> Record:
        """Return what JSON can hold."""
        numbers = {
            "joules": self.joules, "interval_joules": self.half, "apart_joules": self.apart, "watts": self.watts,
            "seconds": self.seconds, "coverage": self.coverage,
        }  # fmt: skip
        known = {name: number_or_none(value) for name, value in numbers.items()}
        return {**known, "runs": self.runs, "warnings": list(self.warnings)}


def _found_of(runs: Sequence[Measurement]) -> Found:
    """Put the runs of a test body together."""
    n, coverage = len(runs), min(m.coverage for m in runs)
    joules = [m.joules / m.coverage if m.coverage > 0 else math.nan for m in runs]
    mean, scatter = math.fsum(joules) / n, 0.0
    if n > 1:
        mean, _, scatter = repeated(joules)
    shared = math.fsum(_shared_u(m) for m in runs) / n
    own = math.fsum(math.sqrt(max(0.0, m.uncertainty_joules**2 - _shared_u(m) ** 2)) for m in runs) / n / math.sqrt(n)
    return Found(
        mean,
        math.fsum(m.seconds for m in runs) / n,
        math.hypot(scatter, COVERAGE_FACTOR * math.hypot(shared, own)),
        math.hypot(scatter, COVERAGE_FACTOR * own) if n > 1 else math.nan,
        n,
        coverage,
        tuple(dict.fromkeys(w for m in runs for w in m.warnings)),
    )


def _shared_u(m: Measurement) -> float:
    """Standard uncertainty that no repetition lessens; all of it where it is not known what it is made of."""
    if not m.components:
        return m.uncertainty_joules
    return math.sqrt(math.fsum(u * u for name, u in m.components if name in _SHARED))


def judge(found: Found, budget: Budget) -> tuple[str, str]:
    """Return the verdict (``over``, ``within``, ``unresolved``) and a sentence that says why."""
    verdicts, said = [], []
    scale = 1.0 / found.seconds if found.seconds > 0 else math.nan
    limits = ((budget.joules, found.joules, found.half, "J"), (budget.watts, found.watts, found.half * scale, "W"))
    for limit, value, half, unit in limits:
        if limit is None:
            continue
        amount = f"{value:.4g} {unit} +- {half:.2g}"
        if not (math.isfinite(value) and math.isfinite(half)) or found.coverage < ENOUGH:
            verdicts.append("unresolved")
            said.append(
                f"the sensor knows {found.coverage:.0%} of the test, too little for the budget of {limit:g} {unit}"
            )
        elif value - half > limit:
            verdicts.append("over")
            said.append(f"{amount} is over the budget of {limit:g} {unit}")
        elif value + half <= limit:
            verdicts.append("within")
            said.append(f"{amount} is within the budget of {limit:g} {unit}")
        else:
            verdicts.append("unresolved")
            short = next((f" ({w})" for w in found.warnings if "too short" in w), "")
            said.append(f"{amount} cannot be told from the budget of {limit:g} {unit}{short}")
    worst = next(word for word in ("over", "unresolved", "within") if word in verdicts)
    return worst, "; ".join(s for s, v in zip(said, verdicts, strict=True) if v == worst)


# -- measuring ---------------------------------------------------------------------------------------------------------


class Meter:
    """The sensors of a run, opened when a test first needs them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._open: dict[str, Sensor] = {}
        worker = getattr(config, "workerinput", {})
        self.workers = int(worker.get("workercount", 1))
        self.required = bool(config.getoption("energy_required"))
        self.repeats = int(config.getoption("energy_repeat"))

    def close(self) -> None:
        """Close the sensors."""
        for sensor in self._open.values():
            with contextlib.suppress(PmtError):
                sensor.close()
        self._open.clear()

    def sensors(self, named: Sequence[str] = ()) -> list[Sensor]:
        """Return those named, or those of the command line, the ini file, ``PMTPY_SENSORS``, or all there are."""
        chosen = [*named] or self._chosen()
        if not chosen:
            raise BackendUnavailableError(
                "sensors",
                "none is available on this machine",
                "'pmtpy doctor' says what is missing; --energy-sensors NAME:virtual rehearses without hardware",
            )
        for target in chosen:
            if target not in self._open:
                self._open[target] = create(target)
        return [self._open[target] for target in chosen]

    def _chosen(self) -> list[str]:
        config = self._config
        named = config.getoption("energy_sensors") or config.getini("energy_sensors")
        named = named or os.environ.get("PMTPY_SENSORS", "").replace(",", " ").split()
        if named:
            return list(dict.fromkeys(canonical(t) for t in named))
        return [line.target for line in list_sensors() if line.available]

    def measuring(self, item: pytest.Item) -> TestRun:
        """Return what is to be entered around a test body."""
        return TestRun(self, item)

    def refuse(self, item: pytest.Item, why: str, *, fail: bool = False) -> None:
        """Skip the running test, or fail it where energy is required; the summary says why in any case."""
        item.stash[_RECORD] = {"targets": {}, **(self.record_of(item) or {}), "unavailable": why}
        if fail or self.required:
            pytest.fail(f"its energy cannot be judged: {why}", pytrace=False)
        pytest.skip(f"its energy cannot be judged: {why}")

    def refuse_company(self, item: pytest.Item) -> None:
        """Refuse to judge one test beside others: it fails, since a run that ends well would say its budget is kept."""
        if self.workers > 1:
            self.refuse(
                item,
                f"{self.workers} workers run side by side, and a sensor counts them all; run the tests with a budget"
                " apart: pytest -n 0 -m energy_budget, and the others with -m 'not energy_budget'",
                fail=True,
            )

    @staticmethod
    def record_of(item: pytest.Item) -> Record | None:
        """Return what was measured of a test."""
        return item.stash.get(_RECORD, None)

    def fixture(self, request: pytest.FixtureRequest) -> EnergyFixture:
        """Return the fixture of one test."""
        try:
            self.sensors()
        except PmtError as error:
            self.refuse(request.node, str(error))
        self.refuse_company(request.node)
        return EnergyFixture(self, request.node)


class TestRun:
    """The measuring of one test body; a with-statement around its first run."""

    __test__ = False  # its name is no test's

    def __init__(self, meter: Meter, item: pytest.Item) -> None:
        self._meter, self._item = meter, item
        self._budget = _budget_of(item)
        self._regions: list[Region] = []
        self._sensors: list[Sensor] = []

    def __enter__(self) -> Self:
        try:
            named = [self._budget.sensor] if self._budget is not None and self._budget.sensor else []
            self._sensors = self._meter.sensors(named)
            if self._budget is not None:
                self._meter.refuse_company(self._item)
            self._new().__enter__()
        except PmtError as error:
            if self._budget is not None or self._meter.required:
                self._meter.refuse(self._item, str(error))
            self._regions.clear()
            self._note({"unavailable": str(error), "targets": {}})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for region in self._regions:
            region.__exit__(kind, error, trace)
        if error is not None and not isinstance(error, pytest.skip.Exception):
            self._measured(failed=True)

    def judge(self) -> None:
        """Repeat where that is asked for, note what was measured, and hold the budget against it."""
        if not self._regions:
            return
        for _ in range(self._meter.repeats - 1):
            with self._new():
                self._item.runtest()
        record = self._measured(failed=False)
        if self._budget is None:
            return
        found = self._of_budget()
        if found is None:
            names = ", ".join(s.target for s in self._sensors)
            self._meter.refuse(
                self._item, f"no sum of {names} can be told; name one: energy_budget(..., sensor='{names}')"
            )
            return
        verdict, why = judge(found, self._budget)
        record["budget"] = {"joules": self._budget.joules, "watts": self._budget.watts, "verdict": verdict, "why": why}
        self._item.user_properties.append(("energy_verdict", verdict))
        if verdict == "over":
            pytest.fail(why, pytrace=False)
        if verdict == "unresolved":
            if self._meter.required:
                pytest.fail(f"unresolved: {why}", pytrace=False)
            self._item.warn(EnergyBudgetWarning(f"unresolved: {why}"))

    def _new(self) -> Region:
        region = Region(self._item.name, {s.target: s for s in self._sensors}, without_lost=True)
        self._regions.append(region)
        return region

    def _runs(self) -> dict[str, list[Measurement]]:
        """Return what each sensor measured; a sensor that was lost is not among them."""
        found: dict[str, list[Measurement]] = {}
        for sensor in self._sensors:
            clock = acquisition_of(sensor).clock
            with contextlib.suppress(PmtError):
                found[sensor.target] = [when_settled(region, sensor, clock) for region in self._regions]
        return found

    def _measured(self, *, failed: bool) -> Record:
        runs = self._runs()
        targets = {
            s.target: {**_found_of(runs[s.target]).to_dict(), "device": _device(s)}
            for s in self._sensors
            if s.target in runs
        }
        lost = [s.target for s in self._sensors if s.target not in runs]
        record: Record = {"targets": targets, "failed": failed, "shared": self._meter.workers > 1}
        if lost:
            record["unavailable"] = f"{', '.join(lost)} was lost"
        for target, numbers in targets.items():
            _add_properties(self._item, target, numbers)
        self._note(record)
        return record

    def _of_budget(self) -> Found | None:
        runs = self._runs()
        missing = [s.target for s in self._sensors if s.target not in runs]
        if missing:
            self._meter.refuse(self._item, f"{', '.join(missing)} was lost while the test ran")
        if len(self._sensors) == 1:
            return _found_of(runs[self._sensors[0].target])
        totals = [sum_up(self._sensors, {t: ms[i] for t, ms in runs.items()}) for i in range(len(self._regions))]
        known = [t for t in totals if t is not None]
        return _found_of(known) if len(known) == len(totals) else None

    def _note(self, record: Record) -> None:
        self._item.stash[_RECORD] = record


def _device(sensor: Sensor) -> Mapping[str, object]:
    known = sensor.identity
    return {"backend": known.backend, "model": known.model, "serial": known.serial, "virtual": known.virtual}


def _add_properties(item: pytest.Item, stem: str, numbers: Mapping[str, object]) -> None:
    """Add the numbers to what JUnit files and other plugins see of a test."""
    name = re.sub(r"\W+", "_", stem).strip("_")
    for key in ("joules", "interval_joules", "watts", "seconds"):
        item.user_properties.append((f"energy_{name}_{key}", numbers[key]))


class EnergyFixture:
    """Measures parts of one test: ``with energy("solve") as region: ...``."""

    def __init__(self, meter: Meter, item: pytest.Item) -> None:
        self._meter, self._item = meter, item

    @contextlib.contextmanager
    def __call__(self, label: str = "part", *targets: str) -> Iterator[Region]:
        """Measure what is inside; afterwards the region has the energies, by sensor and in total.

        Parameters
        ----------
        label : str
            Names the properties of the test.
        *targets : str
            Sensors; without any, those of the run.
        """
        sensors = self._meter.sensors([canonical(t) for t in targets])
        with Region(label, {s.target: s for s in sensors}) as region:
            yield region
        for sensor in sensors:
            measured = when_settled(region, sensor, acquisition_of(sensor).clock)
            _add_properties(self._item, f"{label}_{sensor.target}", _found_of([measured]).to_dict())
