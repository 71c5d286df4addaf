"""The procedure with all registers of one sensor, or of several: their clocks, how late, and how strong they are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pmtpy.analysis.characterisation.registers import CounterMoves, Standing
from pmtpy.analysis.characterisation.results import as_widths
from pmtpy.analysis.signal.estimate import NO_VALUE, as_json, written
from pmtpy.cli.common import say
from pmtpy.cli.page import Kind, Line, Table, note
from pmtpy.cli.procedure_answer import Answer, progress, recording_of, sensor_of
from pmtpy.core.presentation import amount
from pmtpy.errors import TargetError
from pmtpy.lab.recorded import read_stamps
from pmtpy.lab.registers import Measured, measure_registers, recorded_registers

_MILLION = 1e6
_OR = " or where it begins again, and what it counted there is not known"


def registers(args: argparse.Namespace) -> Answer:
    """All registers of power and energy, beside each other."""
    if len(set(args.targets)) < len(args.targets):
        msg = f"{' '.join(args.targets)}: one of them is named twice; once is enough for all its registers"
        raise TargetError(msg)
    recorded = any(Path(target).exists() for target in args.targets)
    found = _of_recordings(args) if recorded else _of_sensors(args)
    targets = list(dict.fromkeys(target for target, _, _ in found.standings))
    several = len(targets) > 1
    names = [f"{target} {channel}" if several else channel for target, channel, _ in found.standings]
    page: list[Line | Table] = [Line(f"{' and '.join(targets)}: registers beside each other", Kind.HEADING)]
    rows = [["register", "update period", "phase", "slides", "shows what was", "of it", "kernel"]]
    rows.append(["", "ms", "ms", "ppm", "ms ago", "W/W", ""])
    standings = [standing for _, _, standing in found.standings]
    reference = None if found.reference is None else " ".join(found.reference)
    for name, standing in zip(names, standings, strict=True):
        rows.append([name, *_numbers(standing, is_reference=standing.name == reference), _kernel(standing)])
    page.append(Table(rows))
    page += [
        _moves(name, standing, standing.moves)
        for name, standing in zip(names, standings, strict=True)
        if standing.moves is not None
    ]
    page += _notes(found, names, several=several)
    return Answer(_document(found), page)


def _of_recordings(args: argparse.Namespace) -> Measured:
    tables = {path: recording_of(path, args, beside=args.targets[0]) for path in args.targets}
    load = read_stamps(args.load, skip_broken=args.skip_broken, report=say) if args.load else None
    return recorded_registers(tables, args.channel, load, say)


def _of_sensors(args: argparse.Namespace) -> Measured:
    if args.load:
        msg = f"--load goes with recordings; for {' and '.join(args.targets)} a load is made here"
        raise TargetError(msg)
    targets = dict(sensor_of(target, args) for target in args.targets)
    return measure_registers(targets, args.duration, channel=args.channel, interval_s=args.interval, progress=progress)


def _numbers(standing: Standing, *, is_reference: bool) -> list[str]:
    beside = [written(standing.phase_s, 1e3), written(standing.slide, _MILLION)]
    period = written(None if standing.clock is None else standing.clock.period_s, 1e3)
    if standing.bound_s is not None:
        period = f"below {1e3 * standing.bound_s:.3g}"
    if is_reference:
        beside = ["reference", NO_VALUE]
    return [period, *beside, written(standing.lag_s, 1e3), "1" if is_reference else written(standing.ratio)]


def _kernel(standing: Standing) -> str:
    kernel = standing.kernel
    if kernel is None:
        return NO_VALUE
    widths = [f"{written(e, 1e3)} ms" for e in (kernel.spans("window_s"), kernel.spans("tau_s")) if e is not None]
    return ", ".join([kernel.family, *widths])


def _moves(name: str, standing: Standing, moves: CounterMoves) -> Line:
    said = [f"  {name} counts in steps of {moves.step_j:.6g} J" if moves.step_j else f"  {name}: steps are not known"]
    if standing.count_age_s is not None:
        said.append(f"its count is {written(standing.count_age_s, 1e3)} ms old when it moves")
    if moves.range_j:
        said.append(f"it begins again after {moves.range_j:.4g} J")
    if moves.wraps:
        said.append(f"here it did so {amount(moves.wraps, 'time')}")
    if moves.restarts:
        said.append(
            f"it went back {amount(moves.restarts, 'time')}, as after a reset{_OR if moves.range_j is None else ''}"
        )
    return Line("; ".join(said))


def _notes(found: Measured, names: list[str], *, several: bool) -> list[Line]:
    made = [note(f"{target} is virtual: what was found are the settings of its emulation") for target in found.virtual]
    if found.reference is not None:
        channel = " ".join(found.reference) if several else found.reference[1]
        made.append(
            note(
                f"phase: by how much later than those of {channel} the updates come; slides: by how much that grows; "
                "of it: watts shown for each watt that it shows"
            )
        )
    if any(standing.kernel is not None for _, _, standing in found.standings):
        made.append(
            note("what is shown is told by the load's stamps: without a meter its own ramps count as a register's")
        )
    for name, (_, _, standing) in zip(names, found.standings, strict=True):
        for what, why in standing.declined.items():
            needs = why.split(": ")[0]  # "needs the update period: ...", whose own reason stands there already
            said = needs if needs.startswith("needs the ") else why
            made.append(Line(f"  not determined, {name}, {what}: {said}", Kind.NOTE))
    return made


def _document(found: Measured) -> dict[str, Any]:
    keys = ("target", "channel")
    return {
        "reference": None if found.reference is None else dict(zip(keys, found.reference, strict=True)),
        "virtual": list(found.virtual),
        "registers": [
            {"target": target, "channel": channel} | _standing(standing)
            for target, channel, standing in found.standings
        ],
    }


def _standing(standing: Standing) -> dict[str, Any]:
    clock, kernel, moves = standing.clock, standing.kernel, standing.moves
    bound = {"value": None, "low": 0.0, "high": 1e3 * standing.bound_s} if standing.bound_s is not None else None
    return {
        "update_period_ms": bound if clock is None else as_json(clock.period_s, 1e3),
        "phase_ms": as_json(standing.phase_s, 1e3),
        "slide_ppm": as_json(standing.slide, _MILLION),
        "lag_ms": as_json(standing.lag_s, 1e3),
        "behind_ms": as_json(standing.behind_s, 1e3),
        "ratio": as_json(standing.ratio),
        "kernel": None if kernel is None else {"family": kernel.family, **as_widths(kernel)},
        "counter": None
        if moves is None
        else {
            "step_j": moves.step_j,
            "range_j": moves.range_j,
            "wraps": moves.wraps,
            "restarts": moves.restarts,
            "count_age_ms": as_json(standing.count_age_s, 1e3),
        },
        "declined": dict(standing.declined),
    }
