"""The result of a benchmark as other tools take it. Facts of July 2025:

* pytest-benchmark 5.1: ``benchmark.extra_info``, a mapping that is kept in its JSON.
* asv 0.6: a benchmark called ``track_...`` returns a number, and its attribute ``unit`` is shown.
* github-action-benchmark 1.20: ``customSmallerIsBetter``, a list of ``{name, unit, value, range, extra}``.
* Bencher Metric Format: ``{benchmark: {measure: {value, lower_value, upper_value}}}``.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping

from pmtpy.core.presentation import amount, number_or_none
from pmtpy.lab.bench_result import HEAD, BenchResult, Side

_FIELDS = ("side", "block", "start_unix_s", "repetitions", "seconds", "joules", "watts", "coverage")


def as_json(result: BenchResult) -> str:
    """Return all that is known."""
    return json.dumps(result.to_dict(), indent=2)


def without_result(ended: str, why: str) -> str:
    """Return the JSON of a benchmark that measured nothing: how it ended, and why."""
    known: dict[str, object] = {"resolved": False, "ended": ended, "blocks": 0, "trials": [], "error": why}
    return json.dumps({**HEAD, **known}, indent=2)


def _as_csv(result: BenchResult) -> str:
    """Return a line for each trial, with the temperatures and clocks before and after it, and what held these back."""
    names = list(dict.fromkeys(n for t in result.trials for n in (*t.before, *t.after)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["work", *_FIELDS, *(f"{n}_{when}" for n in names for when in ("before", "after")), "held_back"])
    for t in result.trials:
        numbers = [getattr(t, field) for field in _FIELDS]
        around = [when.get(n, "") for n in names for when in (t.before, t.after)]
        writer.writerow([result.sides[t.side].label, *numbers, *around, ", ".join(t.held_back)])
    return text.getvalue().rstrip("\n")


def extra_info(result: BenchResult, side: int = 0) -> dict[str, object]:
    """Return what to put into ``benchmark.extra_info`` of pytest-benchmark."""
    own = result.sides[side]
    return {
        "joules": own.joules.value,
        "joules_low": number_or_none(own.joules.low),
        "joules_high": number_or_none(own.joules.high),
        "watts": own.watts.value,
        "energy_trials": own.trials,
        "energy_method": result.method,
        "energy_sensor": result.sensor["target"],
        "energy_resolved": result.resolved,
    }


def _as_extra_info(result: BenchResult) -> str:
    """Return the ``extra_info`` of each work, by its name."""
    return json.dumps({s.label: extra_info(result, i) for i, s in enumerate(result.sides)}, indent=2)


def _as_asv(result: BenchResult) -> str:
    """Return what a ``track_`` function returns, by the work's name: a number, and its unit."""
    return json.dumps({s.label: {"value": s.joules.value, "unit": "J"} for s in result.sides}, indent=2)


def _as_github_action(result: BenchResult) -> str:
    """Return a list for github-action-benchmark's ``customSmallerIsBetter``."""
    entries = [
        {
            "name": side.label,
            "unit": "J",
            "value": side.joules.value,
            **({"range": f"{side.joules.half_width:.3g}"} if math.isfinite(side.joules.half_width) else {}),
            "extra": f"{amount(side.trials, 'trial')}, {result.sensor['target']}, 95 %, {result.verdict}",
        }
        for side in result.sides
    ]
    return json.dumps(entries, indent=2)


def _as_bencher(result: BenchResult) -> str:
    """Return a document in Bencher Metric Format."""

    def measures(side: Side) -> dict[str, dict[str, float]]:
        each = {"energy": side.joules, "power": side.watts, "latency": side.seconds}
        scale = {"latency": 1e9}  # Bencher's built-in latency is in nanoseconds
        return {
            name: {
                key: value * scale.get(name, 1.0)
                for key, value in (("value", e.value), ("lower_value", e.low), ("upper_value", e.high))
                if math.isfinite(value)
            }
            for name, e in each.items()
        }

    return json.dumps({side.label: measures(side) for side in result.sides}, indent=2)


FORMATS: Mapping[str, Callable[[BenchResult], str]] = {
    "json": as_json,
    "csv": _as_csv,
    "pytest-benchmark": _as_extra_info,
    "asv": _as_asv,
    "github-action-benchmark": _as_github_action,
    "bencher": _as_bencher,
}
