"""What the procedures have in common: which sensor or recording, and the answer for programs and for people."""

from __future__ import annotations

import argparse
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.cli.common import parse_options, say
from pmtpy.cli.options import part_of
from pmtpy.cli.page import Line, Table
from pmtpy.cli.settings import load_settings
from pmtpy.cli.terminal import is_terminal
from pmtpy.core.presentation import fixed
from pmtpy.errors import TargetError
from pmtpy.io.read.cut import Cut
from pmtpy.io.recorded import corrected_notes
from pmtpy.lab.record import OF_SENSORS
from pmtpy.lab.recorded import read_file
from pmtpy.sensor.registry import canonical


@dataclass(frozen=True, slots=True)
class Answer:
    """What a procedure found: the document, and the same for a person."""

    document: dict[str, Any]
    page: list[Line | Table]


def sensor_of(target: str, args: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """Return the full name of a sensor, and the options of its backend, as text."""
    if Path(target).exists():
        msg = f"{target} is a recording: this procedure needs the sensor itself"
        raise TargetError(msg)
    target = canonical(target)
    said = load_settings().texts_for(target, os.environ)
    return target, {k: v for k, v in said.items() if k not in OF_SENSORS} | parse_options(args.option)


def recording_of(target: str, args: argparse.Namespace, *, beside: str | None = None) -> Any:
    """Read a recording, or the part asked for (of the one ``beside``); say how to make one where there is none."""
    if not Path(target).exists():
        known = _is_sensor(target)
        what = f"{target} is a sensor, this procedure needs a recording" if known else f"there is no recording {target}"
        how = f"pmtpy dump {target if known else 'TARGET'} -f run.csv -- COMMAND"
        msg = f"{what}: make one first, while the workloads run: {how}"
        raise TargetError(msg)
    if args.option:
        msg = f"{target} is a recording: -o is for sensors"
        raise TargetError(msg)
    cut = Cut.of(beside or target, *part_of(args))
    table = read_file(target, cut.ends(target), skip_broken=args.skip_broken, report=say)
    for said in corrected_notes(table.attrs["metadata"]):
        say(f"note: {target}: {said}")
    return table


def _is_sensor(target: str) -> bool:
    try:
        canonical(target)
    except TargetError:
        return False
    return True


def progress(text: str) -> None:
    """Say what goes on, to a person."""
    if is_terminal(sys.stderr):
        say(text)


def with_interval(e: Estimate, unit: str) -> str:
    """Write a value and its interval to the second digit of the interval's half."""
    places = 6 if not e.half_width > 0.0 else min(max(1 - math.floor(math.log10(e.half_width)), 0), 6)
    value, low, high = (fixed(x, places) for x in (e.value, e.low, e.high))
    return f"{value} {unit}  (95 %: {low} to {high})"
