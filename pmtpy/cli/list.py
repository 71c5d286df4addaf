"""``pmtpy list``: every backend with its devices, or the reason why there are none."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from pmtpy.cli.options import add_json
from pmtpy.cli.page import Kind, Line, Page
from pmtpy.cli.terminal import show
from pmtpy.sensor.registry import Listing, list_sensors

_REHEARSE = "NAME:virtual (for example powersensor3:virtual) rehearses one without its hardware."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add_json(parser)
    parser.epilog = "examples:\n  pmtpy list\n  pmtpy list --json"


def run(args: argparse.Namespace) -> int:
    """List the sensors."""
    lines = list_sensors()
    if args.json:
        print(json.dumps([dataclasses.asdict(line) for line in lines], indent=2))
        return 0
    show(page(lines))
    return 0


def page(lines: Sequence[Listing]) -> Page:
    """Return the list for a person."""
    width = max(len(line.target) for line in lines)
    made: list[Line] = []
    for line in lines:
        word, kind = ("available", Kind.GOOD) if line.available else ("not available", Kind.TEXT)
        made.append(Line(f"{line.target:<{width}}  {word}", kind))
        made += [
            Line(f"{'':<{width}}    {part}", Kind.NOTE if part.startswith("remedy: ") else Kind.TEXT)
            for text in (line.reason, f"remedy: {line.remedy}" if line.remedy else "")
            for part in text.splitlines()
        ]
    if not any(line.available for line in lines):
        made += [Line(""), Line(f"No sensor here. {_REHEARSE}")]
    return made
