"""``pmtpy gather``: the results that a job's nodes wrote into one folder, added up."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from pmtpy.cli.options import add_json
from pmtpy.cli.page import Line, Table, notes
from pmtpy.cli.report import SPREAD
from pmtpy.cli.terminal import show
from pmtpy.cluster.gather import gather
from pmtpy.cluster.job import JobEnergy
from pmtpy.cluster.node import NodeEnergy

_MAX_TABLE_ROWS = 40  # of a table: of more nodes, those that used most are shown
_HEAD = ("node", "seconds", "joules", "+-", "watts", "waited", "how")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("folder", metavar="DIR", help="what 'pmtpy run --into DIR' wrote on each node, or its logs")
    parser.add_argument("--job", metavar="ID", help="the job, where DIR holds several")
    add_json(parser)
    parser.epilog = (
        "The status is 0 where the energy of every node is known, else 1.\n\n"
        "examples:\n"
        "  srun --ntasks-per-node=1 pmtpy run --into energy -- ./solve && pmtpy gather energy\n"
        "  pmtpy gather energy --job cluster.4711.0 --json"
    )


def run(args: argparse.Namespace) -> int:
    """Add up, say what is missing."""
    job = gather(Path(args.folder), job=args.job)
    if args.json:
        print(json.dumps(job.to_dict(), indent=2))
    else:
        show(page(job))
    return 0 if job.complete else 1


def page(job: JobEnergy) -> list[Line | Table]:
    """Return the page for a person: nodes, sum, what is missing, what a reader must know."""
    known = job.known
    named = sorted(job.items(), key=lambda item: item[1].joules or 0.0, reverse=len(job) > _MAX_TABLE_ROWS)
    shown = named if len(job) > _MAX_TABLE_ROWS else list(job.items())
    rows = [_row(name, node) for name, node in shown[:_MAX_TABLE_ROWS]]
    left_out = (
        [Line(f"(the {_MAX_TABLE_ROWS} nodes that used most, of {len(job)})")] if len(job) > _MAX_TABLE_ROWS else []
    )
    total = "total" if job.complete else f"sum of {known.target}"
    idle = job.imbalance_joules
    rows.append((total, *_numbers(known.seconds, known.joules, known.uncertainty_joules), _number(known.watts), "", ""))
    made: list[Line | Table] = [Table([_HEAD, *rows]), *left_out, Line(SPREAD)]
    if math.isfinite(idle) and len(job) > 1:
        share = f" ({idle / known.joules:.1%})" if known.joules else ""
        made.append(Line(f"slowest: {job.slowest}; the others used {idle:.4g} J{share} while they waited"))
    return [*made, *notes(known.warnings)]


def _row(name: str, node: NodeEnergy) -> tuple[str, ...]:
    if node.joules is None:
        return (name, "", "not known", "", "", "", "")
    waited = "" if node.waiting_joules is None else f"{node.waiting_joules:.4g} J"
    how = ", ".join(
        filter(
            None,
            (
                f"{node.coverage:.2%} covered" if node.coverage < 1 else "",
                "shared" if node.shared else "",
                "virtual" if node.virtual else "",
            ),
        )
    )
    return (name, *_numbers(node.seconds, node.joules, node.uncertainty_joules), _number(node.watts), waited, how)


def _numbers(seconds: float, joules: float, uncertainty: float) -> tuple[str, str, str]:
    return (
        f"{seconds:.4f}" if math.isfinite(seconds) else "not known",
        _number(joules),
        f"{uncertainty:.2g}" if math.isfinite(uncertainty) else "not known",
    )


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "not known"
