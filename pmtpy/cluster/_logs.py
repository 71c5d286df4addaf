"""The log of a node as its result: what a dump of ours recorded between its first row and its last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, sum_budgets
from pmtpy.analysis.uncertainty.components import common_by_kind
from pmtpy.analysis.uncertainty.interval import Interval, left_out
from pmtpy.analysis.uncertainty.recorded import recorded_budgets
from pmtpy.cluster.node import NodeEnergy, NodeRecord
from pmtpy.core.channel import TOTAL, Identity
from pmtpy.core.presentation import amount
from pmtpy.core.rows import Floats, Layout
from pmtpy.core.state import LEAST_COVERAGE
from pmtpy.errors import FileFormatError, PmtError
from pmtpy.io.read import load
from pmtpy.io.recorded import aged_of, layout_of, time_u_of
from pmtpy.regions.total import brand

if TYPE_CHECKING:
    import pandas as pd

_SUFFIXES = frozenset({".csv", ".jls", ".parquet"})
_ROWS = 200  # at each end, from which is judged how the power moves there


def is_log(path: Path) -> bool:
    """Whether a file may be a log, by its name."""
    return _unpacked(path).suffix in _SUFFIXES


def _unpacked(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".gz"))


def read_log(path: Path) -> NodeRecord:
    """Read a dump of ours as the result of the node that it was made on.

    The energy is that between the first row and the last. It is not known where the dump was not ended, where energy is
    missing for more than a twentieth of the time, and where the sensor has no total.

    Raises FileFormatError: it is no recording, is empty, or does not say on which machine it was made.
    """
    table = load(path)
    facts = table.attrs["metadata"] or {}
    machine = _machine(facts)
    if machine is None:
        msg = f"{path} does not say on which machine it was made: give a log that pmtpy dump of this release wrote"
        raise FileFormatError(msg)
    if len(table) < 2:
        msg = f"{path} holds {amount(len(table), 'row')}, and energy lies between two or more: give a longer log"
        raise FileFormatError(msg)
    launch = facts.get("launch") or {}
    begin_s = float(table["time"].iloc[0])
    energy = _energy(table, facts, machine, launch)
    job = str(launch.get("job", ""))
    return NodeRecord(path, *machine, f"a log of {facts.get('target', 'a sensor')}", job, launch, begin_s, energy, None)


def made_on(path: Path) -> tuple[str, str] | None:
    """Return name and boot id of the machine that a file was recorded on; None: it is no recording, or tells none."""
    plain = _unpacked(path)
    if plain.suffix == ".csv" and not any(p.with_name(f"{p.name}.json").exists() for p in (path, plain)):
        return None  # it cannot tell, and may be of any size
    try:
        return _machine(load(path, max_rows=1).attrs["metadata"] or {})
    except PmtError:
        return None


def _machine(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    machine = facts.get("machine")
    if not isinstance(machine, Mapping) or not {"host", "node"} <= machine.keys():
        return None
    return str(machine["host"]), str(machine["node"])


def _energy(
    table: pd.DataFrame, facts: dict[str, Any], machine: tuple[str, str], launch: Mapping[str, Any]
) -> NodeEnergy:
    t = table["elapsed"].to_numpy(np.float64)
    begin_s = float(table["time"].iloc[0])
    seconds, lost = float(t[-1] - t[0]), int(table["lost"].iloc[1:].sum())
    span = (begin_s, begin_s + seconds, seconds)
    if f"{TOTAL}_J" not in table:
        return NodeEnergy(*machine, *span, None, why="its sensor has no total")
    if not table.attrs["complete"]:
        return NodeEnergy(*machine, *span, None, why="its log has no end: the dump was killed, or still runs")
    layout = layout_of([str(name) for name in table.columns], dict(facts), str(table.attrs["joules"])).layout
    names = [TOTAL, *(c.name for c in layout.energy)]
    joules = table[[f"{n}_J" for n in names]].to_numpy(np.float64)
    watts = table[[f"{n}_W" for n in names]].to_numpy(np.float64)
    steps = np.diff(t)
    unknown = (table["lost"].to_numpy()[1:] > 0) | ~np.isfinite(watts[1:, 0])
    coverage = 1.0 - float(np.sum(steps[unknown])) / seconds if seconds > 0 else 0.0
    used = joules[-1] - joules[0]
    if not (coverage >= LEAST_COVERAGE and math.isfinite(used[0])):
        why = f"of {1.0 - coverage:.1%} of the time the energy is not known: rows were lost"
        return NodeEnergy(*machine, *span, None, coverage=coverage, lost=lost, why=why)
    interval = Interval(
        seconds,
        used[1:].tolist(),
        [seconds * (1.0 - coverage)] * len(layout.energy),
        lost,
        time_u_of(facts),
        aged_s=aged_of(facts),
    )
    judged = _judged(layout, t, watts, joules, interval)
    kinds = [layout.energy[i - 1].kind for i in layout.in_total]
    u = sum_budgets(judged, kinds).uncertainty_joules if judged else math.nan
    of = brand(Identity.read({"backend": "", **(facts.get("identity") or {})}), facts.get("calibration"))
    common = common_by_kind((f"{of}/{kind}", b.components) for kind, b in zip(kinds, judged, strict=True))
    return NodeEnergy(
        *machine,
        *span,
        float(used[0]),
        u,
        tuple(common.items()),
        coverage=coverage,
        lost=lost,
        virtual=bool(table.attrs["virtual"]),
        shared=launch.get("shared"),
        warnings=tuple(map(str, table.attrs["notes"])),
    ).believed()


def _judged(layout: Layout, t: Floats, watts: Floats, joules: Floats, whole: Interval) -> list[UncertaintyBudget]:
    """Judge the energy of each channel of the total by the rows at the two ends."""
    near = np.r_[0 : min(_ROWS, len(t)), max(_ROWS, len(t) - _ROWS) : len(t)]
    if len(t) > 2 * _ROWS:
        whole = whole._replace(left_out_s=left_out(t[:_ROWS] - t[0], t[-_ROWS:] - t[0]))
    found = recorded_budgets(layout, t[near] - t[0], watts[near], joules[near], whole)
    return [found[i - 1] for i in layout.in_total] if found else []
