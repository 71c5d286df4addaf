"""``pmtpy list``: every backend with its devices, or the reason why there are none."""

from __future__ import annotations

import argparse
import dataclasses
import json

from pmtpy.sensor.registry import list_sensors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.epilog = "examples:\n  pmtpy list\n  pmtpy list --json"


def run(args: argparse.Namespace) -> int:
    """List the sensors."""
    lines = list_sensors()
    if args.json:
        print(json.dumps([dataclasses.asdict(line) for line in lines], indent=2))
        return 0
    width = max(len(line.target) for line in lines)
    for line in lines:
        print(f"{line.target:<{width}}  {'available' if line.available else 'not available'}")
        for text in (line.reason, f"remedy: {line.remedy}" if line.remedy else ""):
            for part in text.splitlines():
                print(f"{'':<{width}}    {part}")
    if not any(line.available for line in lines):
        print("\nNo sensor here. NAME:virtual (for example powersensor3:virtual) rehearses one without its hardware.")
    return 0
