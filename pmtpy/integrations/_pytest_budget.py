"""Budgets of tests, and what the runs of one test say about them together.

A budget is over only if the energy is surely above it, and within only if it is surely below: what lies between is
unresolved, which is not passed over in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pmtpy.analysis.uncertainty.budget import mean_of_runs
from pmtpy.core.presentation import number_or_none
from pmtpy.core.state import LEAST_COVERAGE
from pmtpy.errors import TargetError
from pmtpy.regions.measurement import Measurement
from pmtpy.sensor.registry import canonical

Record = dict[str, Any]  # of one test, as JSON has it: reports travel from workers as such

_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TEXT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([numkMG]?)(J|W|Wh)\s*")


class EnergyBudgetWarning(pytest.PytestWarning):
    """A budget lies within the interval of what was measured: neither kept nor exceeded, as far as can be told."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a test may use: joules, watts of mean power, or both; by which sensor."""

    joules: float | None
    watts: float | None
    sensor: str | None


def budget_of(item: pytest.Item) -> Budget | None:
    """Return the budget of a test; None where it has none. One that makes no sense fails the test."""
    try:
        return _budget_of(item)
    except TargetError as error:
        pytest.fail(str(error), pytrace=False)


def _budget_of(item: pytest.Item) -> Budget | None:
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


@dataclass(frozen=True, slots=True)
class BodyEnergy:
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


def found_of(runs: Sequence[Measurement]) -> BodyEnergy:
    """Put the runs of a test body together."""
    n = len(runs)
    found = mean_of_runs(runs, [1.0 / m.coverage if m.coverage > 0 else math.nan for m in runs])
    return BodyEnergy(
        found.mean,
        math.fsum(m.seconds for m in runs) / n,
        found.half,
        found.apart,
        n,
        min(m.coverage for m in runs),
        tuple(dict.fromkeys(w for m in runs for w in m.warnings)),
    )


def judge(found: BodyEnergy, budget: Budget) -> tuple[str, str]:
    """Return the verdict (``over``, ``within``, ``unresolved``) and a sentence that says why."""
    verdicts, said = [], []
    scale = 1.0 / found.seconds if found.seconds > 0 else math.nan
    limits = ((budget.joules, found.joules, found.half, "J"), (budget.watts, found.watts, found.half * scale, "W"))
    for limit, value, half, unit in limits:
        if limit is None:
            continue
        amount = f"{value:.4g} {unit} +- {half:.2g}"
        if not (math.isfinite(value) and math.isfinite(half)) or found.coverage < LEAST_COVERAGE:
            verdicts.append("unresolved")
            knows = f"the sensor knows {found.coverage:.0%} of the test, too little"
            if math.isfinite(value) and found.coverage >= LEAST_COVERAGE:
                knows = f"how far to trust the {value:.4g} {unit} of the sensor is not known, too little"
            said.append(f"{knows} for the budget of {limit:g} {unit}")
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
