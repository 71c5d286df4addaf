"""A plugin for pytest: energy of tests, budgets with verdicts, a fixture. Inert until a run or a test asks for energy.

This module is imported at every start of pytest where pmtpy is installed, so it imports nothing of ours: what measures
is in ``_pytest_energy``. Facts about hooks and xdist: pytest 8 and xdist 3.5 documentation, tried with pytest 9.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pmtpy.integrations._pytest_baseline import Baseline, Compared
    from pmtpy.integrations._pytest_budget import Record
    from pmtpy.integrations._pytest_energy import EnergyFixture, Meter

_MARKER = (
    "energy_budget(joules=None, watts=None, sensor=None): fail the test if it surely uses more energy or power than "
    "that; numbers of joules and watts, or texts such as '5 J', '300 mJ', '2 kW'"
)
_ALONE = "energy_alone: of every test with a budget or the fixture energy, which must not run beside other workers"
_METER: pytest.StashKey[Meter] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini key."""
    group = parser.getgroup("energy", "energy of tests (pmtpy)")
    add = group.addoption
    add("--energy", action="store_true", help="measure the energy of every test")
    add("--energy-sensors", action="append", default=[], metavar="TARGET", help="with this sensor (repeatable)")
    add("--energy-json", metavar="FILE", help="write the energies to FILE, a baseline for later runs")
    add("--energy-compare", metavar="OLD.json", help="compare with the energies in a file of --energy-json")
    limit = "fail the run if a test surely uses more than this over the baseline (5%%); needs --energy-compare"
    add("--energy-compare-fail", metavar="PERCENT", help=limit)
    add("--energy-force", action="store_true", help="compare, though machine or sensor is another one")
    required = "fail, instead of skip, tests whose budget cannot be judged, and those of unresolved budgets"
    add("--energy-required", action="store_true", help=required)
    add("--energy-repeat", type=int, default=1, metavar="N", help="run each measured test body N times (default 1)")
    parser.addini("energy_sensors", "sensors that measure the energy of tests", type="args", default=[])


class _Collector:
    """Gathers what tests reported, where the results come together: not in a worker of xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._found: dict[str, Record] = {}
        self._baseline: Baseline | None = None
        self._compared: list[Compared] = []
        self._wrong = ""
        if config.getoption("energy_compare") or config.getoption("energy_compare_fail"):
            from pmtpy.integrations._pytest_baseline import read_baseline

            self._baseline = read_baseline(config)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test measured."""
        record = getattr(report, "pmtpy_energy", None)
        if record is not None:
            self._found[report.nodeid] = record

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the energies, and hold them against the baseline; a run that surely uses too much more fails."""
        if self._baseline is None and not self._config.getoption("energy_json"):
            return
        from pmtpy.integrations._pytest_baseline import compare, fails, write

        self._wrong = write(self._config, self._found)
        failed = bool(self._wrong)
        if self._baseline is not None:
            self._compared = compare(self._found, self._baseline)
            failed |= fails(self._config, self._compared, self._baseline)
        if failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the energies."""
        if not self._found and not _wanted(self._config):
            return
        from pmtpy.integrations._pytest_baseline import conclude, show

        conclude(terminalreporter, self._found)
        if self._baseline is not None:
            show(self._config, terminalreporter, self._compared, self._baseline)
        if self._wrong:
            terminalreporter.line(self._wrong, red=True)


def _wanted(config: pytest.Config) -> bool:
    return any(config.getoption(name) for name in ("energy", "energy_json", "energy_compare"))


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, and gather what is measured."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _ALONE)
    if config.getoption("energy_repeat") < 1:
        msg = "--energy-repeat needs at least 1"
        raise pytest.UsageError(msg)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config), "pmtpy-energy-collector")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is to run alone, before tests are chosen by their marks."""
    for item in items:
        if item.get_closest_marker("energy_budget") or "energy" in getattr(item, "fixturenames", ()):
            item.add_marker("energy_alone")


def _meter(config: pytest.Config) -> Meter:
    if _METER not in config.stash:
        from pmtpy.integrations._pytest_energy import Meter

        config.stash[_METER] = Meter(config)
    return config.stash[_METER]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measure the body of a test, innermost: neither fixtures nor other plugins are in it."""
    config = item.config
    if not _wanted(config) and item.get_closest_marker("energy_budget") is None:
        return (yield)
    with _meter(config).measuring(item) as measuring:
        result = yield
    measuring.judge()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let what was measured travel with the report, from workers too."""
    report = yield
    if call.when != "teardown" and _METER in item.config.stash:
        record = item.config.stash[_METER].record_of(item)
        if record is not None:
            setattr(report, "pmtpy_energy", record)  # noqa: B010  (an attribute of ours)
    return report


@pytest.fixture
def energy(request: pytest.FixtureRequest) -> EnergyFixture:
    """Measure a part of a test: ``with energy("solve") as region: ...``, then ``region.total.joules``."""
    return _meter(request.config).fixture(request)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the sensors."""
    if _METER in config.stash:
        config.stash[_METER].close()
