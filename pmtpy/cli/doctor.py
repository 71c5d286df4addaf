"""``pmtpy doctor``: why each backend works here or not, and the exact command or rule that cures it.

Each backend is asked for its findings (:class:`pmtpy.errors.Finding`); what should work is then opened for a moment and
read once, since some obstacles show only there. Nothing is changed, and a port that another program uses is left alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pmtpy.backends import rules
from pmtpy.backends.machine import Machine
from pmtpy.cli.options import add_json
from pmtpy.cli.page import Kind, Line, Page
from pmtpy.cli.terminal import show
from pmtpy.core.channel import Derivation, Quantity
from pmtpy.core.presentation import amount
from pmtpy.core.state import State
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, PmtError, SourceLostError, TargetError, Verdict
from pmtpy.sensor.registry import VIRTUAL, Backend, all_backends, backend_of, create, discover, split_target
from pmtpy.sensor.sensor import Sensor, acquisition_of

_SYSFS = "PMT_SYSFS_ROOT"
_WORDS = {
    Verdict.WORKS: "works",
    Verdict.LIMITED: "works, but not fully",
    Verdict.BROKEN: "does not work",
    Verdict.ABSENT: "not on this machine",
}
_KINDS = {
    Verdict.WORKS: Kind.GOOD,
    Verdict.LIMITED: Kind.WARNING,
    Verdict.BROKEN: Kind.BAD,
    Verdict.ABSENT: Kind.TEXT,
}


@dataclass(frozen=True, slots=True)
class Result:
    """A finding with what one reading brought."""

    finding: Finding
    notes: tuple[str, ...] = ()  # what the device said of itself when it was opened


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add = parser.add_argument
    add("targets", nargs="*", metavar="TARGET", help="look at this backend or device only (repeatable)")
    add_json(parser)
    add("--no-open", action="store_true", help="open no sensor; only look for what would keep it from working")
    add(
        "--rules", action="store_true",
        help="print the rules files that come with pmtpy; TARGET is then the name of a file or a backend",
    )  # fmt: skip
    add(
        "--root", metavar="DIR",
        help="look at /proc, /dev, /etc and /sys below DIR: the host's from a container, or a rehearsal",
    )  # fmt: skip
    parser.epilog = (
        "What stands behind '$' is a command to type as it stands.\n\n"
        "examples:\n"
        "  pmtpy doctor\n"
        "  pmtpy doctor rapl --json\n"
        "  pmtpy doctor powersensor3:/dev/ttyACM0\n"
        "  pmtpy doctor --rules\n"
        "  pmtpy doctor --rules 60-pmtpy-powercap.rules | sudo tee /etc/udev/rules.d/60-pmtpy-powercap.rules"
    )


def run(args: argparse.Namespace) -> int:
    """Examine, print; 0 whatever was found, since finding it was the task."""
    if args.rules:
        return _print_rules(args.targets)
    if args.root is not None:
        if not Path(args.root).is_dir():
            msg = f"--root {args.root} is not a folder"
            raise TargetError(msg)
        # Backends that read files look there, too, when they are opened.
        os.environ[_SYSFS] = str(Path(args.root) / "sys")
    machine = Machine(Path(args.root or "/"), Path(os.environ.get(_SYSFS) or "/sys"))
    results = list(examine(args.targets, machine, opening=not args.no_open))
    if args.json:
        print(json.dumps([document(result) for result in results], indent=2))
    else:
        show(page(results))
    return 0


def examine(targets: Sequence[str], machine: Machine, *, opening: bool, **options: object) -> Iterator[Result]:
    """Ask the backends of ``targets``, or all; ``options`` go to those that have them.

    Raises TargetError: no backend has that name.
    """
    asked = [split_target(t) for t in targets] or [(row.name, None) for row in all_backends()]
    for name, device in [(backend_of(name), device) for name, device in asked]:
        for finding in _ask(name, device, machine, options):
            good = finding.verdict in {Verdict.WORKS, Verdict.LIMITED}
            yield _opened(finding, options) if opening and good else Result(finding)


def _ask(row: Backend, device: str | None, machine: Machine, options: dict[str, object]) -> tuple[Finding, ...]:
    if device is not None and device.startswith(VIRTUAL):
        return (Finding(row.name, device, Verdict.WORKS, "an emulated device, which needs no hardware"),)
    try:
        found = discover(row, {"device": device, "machine": machine, "sysfs_root": machine.sysfs, **options})
    except BackendUnavailableError as error:
        return (replace(error.finding, obstacle=error.finding.obstacle or Obstacle.LIBRARY),)
    wanted = found.devices if device is None else (device,)
    said = [f for f in found.findings if device in {None, f.device} or not f.device]
    silent = [each for each in wanted if each not in {f.device for f in said}] if found.devices or not said else []
    return (*said, *(Finding(row.name, each, Verdict.WORKS, "it is there") for each in silent))


def _opened(finding: Finding, options: dict[str, object]) -> Result:
    """Open what should work, read it once and close it."""
    own = {k: v for k, v in options.items() if k == "library" and finding.backend in {"nvml", "amdsmi"}}
    try:
        with create(finding.backend, finding.device or None, **own) as sensor:  # type: ignore[arg-type]
            made = acquisition_of(sensor)
            made.step()  # here, though the device be slow: a read() leaves that to the poller
            failed, why = made.intake.source.last_read_failed, made.intake.source.last_failure
            dead = _dead(sensor, sensor.read())
            channels, notes = len(sensor.channels), sensor.identity.notes
            who = " ".join(filter(None, (sensor.identity.model, sensor.identity.version)))
    except BackendUnavailableError as error:
        return Result(_failed(finding, f"it could not be opened: {error.reason}", error.finding))
    except SourceLostError as error:
        return Result(_failed(finding, f"it was lost while it was read: {error}"))
    except PmtError as error:
        return Result(_failed(finding, f"it could not be read: {error}"))
    if failed:
        read = f"$ pmtpy read {_target(finding)} --for 1m"
        steps = ("read it until it is given up, which says what is wrong:", read)
        reason = f"a reading of it failed{': ' if why else ''}{why}"
        return Result(replace(_failed(finding, reason), cure=steps), notes)
    if dead:
        reason = f"{', '.join(dead)} shows 0 W, or what no such part can draw, while this program runs on it"
        cure = ("see what the file itself shows; update the firmware, or take another meter of the machine instead",)
        broken = replace(finding, verdict=Verdict.BROKEN, found=reason, obstacle=Obstacle.DEAD, cure=cure)
        return Result(broken, notes)
    said = f"{finding.found}; opened and read: {who or 'a device without a name'}, {amount(channels, 'channel')}"
    return Result(replace(finding, found=said), notes)


def _dead(sensor: Sensor, state: State) -> list[str]:
    """Name the powers that cannot be true of a part that runs this program, where the total is lost with them."""
    # One reading tells a power, unless it is the ratio of two counters.
    shows = [c for c in sensor.channels if c.quantity is Quantity.POWER and c.derivation is not Derivation.RATIO]
    powered = {c.name for c in shows if c.least_watts > 0.0}
    shown = dict(zip(state.names, state.watts, strict=True))
    return [n for n, watts in shown.items() if n in powered and math.isnan(watts)] if math.isnan(shown["total"]) else []


def _failed(finding: Finding, reason: str, why: Finding | None = None) -> Finding:
    """What should have worked and did not, with the cure that the failure names."""
    known = why if why is not None and why.cure else finding
    obstacle = (why.obstacle if why is not None else None) or finding.obstacle or Obstacle.FIRMWARE
    found = f"{finding.found}, but {reason}"
    return replace(known, device=finding.device, verdict=Verdict.BROKEN, found=found, obstacle=obstacle)


def _target(finding: Finding) -> str:
    return f"{finding.backend}:{finding.device}" if finding.device else finding.backend


def document(result: Result) -> dict[str, Any]:
    """Return the JSON of a finding."""
    finding = result.finding
    return {
        "backend": finding.backend,
        "device": finding.device,
        "target": _target(finding),
        "verdict": finding.verdict.value,
        "obstacle": None if finding.obstacle is None else finding.obstacle.value,
        "found": finding.found,
        "cure": list(finding.cure),
        "rules": [{"file": name, "install": list(rules.commands(name))} for name in finding.rules],
        "notes": list(result.notes),
    }


def page(results: Sequence[Result]) -> Page:
    """Return the findings for a person."""
    made: list[Line] = []
    for result in results:
        finding = result.finding
        obstacle = f" ({finding.obstacle.value})" if finding.obstacle else ""
        shown = obstacle if finding.verdict is not Verdict.ABSENT else ""
        made.append(Line(f"{_target(finding)}: {_WORDS[finding.verdict]}{shown}", _KINDS[finding.verdict]))
        made += [Line(f"    {part}") for part in finding.found.splitlines() or [""]]
        made += [Line(f"    note: {note}", Kind.NOTE) for note in result.notes]
        cure = "if there is one" if finding.verdict is Verdict.ABSENT else "cure"
        made += [
            Line(f"    {cure}: {step}", Kind.COMMAND if step.startswith("$ ") else Kind.TEXT) for step in finding.cure
        ]
        for name in finding.rules:
            made.append(Line(f"    for good, with {name}:"))
            made += [Line(f"      $ {command}", Kind.COMMAND) for command in rules.commands(name)]
    works = sum(r.finding.verdict in {Verdict.WORKS, Verdict.LIMITED} for r in results)
    broken = sum(r.finding.verdict is Verdict.BROKEN for r in results)
    end = f"{works} can be used, {broken} need{'s' if broken == 1 else ''} a cure."
    rehearse = "" if works else " NAME:virtual rehearses a sensor without its hardware."
    return [*made, Line(""), Line(end + rehearse)]


def _print_rules(named: Sequence[str]) -> int:
    """Print the files named: one as it is, so that it can be installed from a pipe; several with a heading each."""
    known = rules.names()
    chosen = [file for name in named for file in _files(name)] or list(known)
    for file in dict.fromkeys(chosen):
        if len(set(chosen)) > 1:
            print(f"# ==== {file} ====")
        print(rules.text(file), end="" if len(set(chosen)) == 1 else "\n")
    return 0


def _files(name: str) -> list[str]:
    known = rules.names()
    if name in known:
        return [name]
    words = {"rapl": ("powercap", "perf")}.get(name, (name,))
    found = [file for file in known if any(word in file for word in words)]
    if not found:
        msg = f"no rules file is called {name!r} or is for it; there are: {', '.join(known)}"
        raise TargetError(msg)
    return found
