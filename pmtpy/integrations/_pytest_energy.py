"""What the plugin for pytest does once energy is asked for: sensors, and the measuring of a test body.

All sensors here see the whole machine or the whole device, so beside
other workers of xdist nothing can be said of one test: budgets are refused there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import pytest

from pmtpy.errors import BackendUnavailableError, PmtError
from pmtpy.integrations._pytest_budget import BodyEnergy, EnergyBudgetWarning, Record, budget_of, found_of, judge
from pmtpy.lab.bench_trial import when_settled
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.regions.total import sum_up
from pmtpy.sensor.registry import canonical, create, list_sensors
from pmtpy.sensor.sensor import Sensor, acquisition_of

if TYPE_CHECKING:
    from typing_extensions import Self
_RECORD: pytest.StashKey[Record] = pytest.StashKey()


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
                f"{self.workers} workers run side by side, and a sensor counts them all; run such tests apart:"
                " pytest -n 0 -m energy_alone, and the others with -m 'not energy_alone'",
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
        self._budget = budget_of(item)
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
            s.target: {**found_of(runs[s.target]).to_dict(), "device": _device(s)}
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

    def _of_budget(self) -> BodyEnergy | None:
        runs = self._runs()
        missing = [s.target for s in self._sensors if s.target not in runs]
        if missing:
            self._meter.refuse(self._item, f"{', '.join(missing)} was lost while the test ran")
        if len(self._sensors) == 1:
            return found_of(runs[self._sensors[0].target])
        totals = [sum_up(self._sensors, {t: ms[i] for t, ms in runs.items()}) for i in range(len(self._regions))]
        known = [t for t in totals if t is not None]
        return found_of(known) if len(known) == len(totals) else None

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
            _add_properties(self._item, f"{label}_{sensor.target}", found_of([measured]).to_dict())
