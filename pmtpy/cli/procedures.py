"""The procedures of the published evaluations, for any sensor, as options of ``pmtpy characterise``."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Collection, Mapping

from pmtpy.cli.options import count
from pmtpy.cli.procedure_answer import Answer
from pmtpy.cli.procedures_live import internal_rate, latency, updates
from pmtpy.cli.procedures_recorded import agreement, parts, stability, steps, work
from pmtpy.cli.procedures_registers import registers
from pmtpy.cli.terminal import show
from pmtpy.core.clock import duration_of
from pmtpy.errors import TargetError

_READS = 1 << 14
_PART = {"part_from", "part_to", "skip_broken"}  # of a recording
# What each procedure takes beside its targets, and what stands for it where it is not said; "" is a characterisation.
_TAKEN: Mapping[str, frozenset[str]] = {
    "": frozenset({"channel", "load", "meter", "duration", "interval", *_PART}),
    "latency": frozenset({"reads"}),
    "updates": frozenset({"channel", "duration"}),
    "registers": frozenset({"channel", "load", "duration", "interval", *_PART}),
    "internal_rate": frozenset({"frequencies", "channel", "duration", *_PART}),
    "against": frozenset({"channel", "window", *_PART}),
    "parts": frozenset({"window", *_PART}),
    "steps": frozenset({"channel", *_PART}),
    "stability": frozenset({"channel", "window", "every", "duration", *_PART}),
    "work": frozenset({"channel", "begin", *_PART}),
}
_FLAGS = {"part_from": "--from", "part_to": "--to"}
_TWO_KILOHERTZ = "1995,1996,1997"  # about the rate of the POWER9 study's sensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    group = parser.add_argument_group("procedures of the published evaluations, instead of a characterisation")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--latency", action="store_true", help="what one reading costs (sensors)")
    one.add_argument("--updates", action="store_true", help="how often a value is renewed (sensors)")
    one.add_argument(
        "--registers",
        action="store_true",
        help="all registers of one card, or of several, beside each other (sensors or recordings; --channel is the "
        "reference)",
    )
    one.add_argument(
        "--internal-rate",
        action="store_true",
        help="how often the sensor samples inside, by loads of --frequencies (a sensor, or a recording for each)",
    )
    one.add_argument("--against", metavar="FILE", help="mean powers of workloads against a reference (recordings)")
    one.add_argument("--parts", action="store_true", help="the sum of the parts against the whole (recordings)")
    one.add_argument(
        "--steps", action="store_true", help="how it answers a load switched between two levels (recordings)"
    )
    one.add_argument(
        "--stability",
        action="store_true",
        help="how steady it is over hours (a recording; or a sensor, for --duration, a block of --window each --every)",
    )
    one.add_argument(
        "--work",
        metavar="LOG",
        help="energy for each unit of work of an application's log: fio's, or a CSV (recordings)",
    )
    group.add_argument(
        "--every",
        type=duration_of,
        metavar="TIME",
        help="with --stability: time from block to block (default 15min)",
    )
    group.add_argument("--begin", metavar="LABEL", help="with --work: the marker at which the application began")
    group.add_argument(
        "--reads",
        type=count(),
        metavar="N",
        help=f"with --latency: how many readings (default {_READS})",
    )
    group.add_argument(
        "--frequencies",
        type=_frequencies,
        metavar="HZ,HZ,HZ",
        help=f"with --internal-rate: loads near the rate (default {_TWO_KILOHERTZ}), each for --duration",
    )
    group.add_argument(
        "--window",
        type=duration_of,
        metavar="TIME",
        help="with --against, --parts: length of a window where no markers enclose regions; with --stability: of a "
        "block (1s)",
    )


def chosen(args: argparse.Namespace) -> Callable[[argparse.Namespace], int] | None:
    """Return the procedure that was asked for; None if it is a characterisation.

    Raises TargetError: an option was given that it does not take.
    """
    _settle(args)
    procedures: dict[str, Callable[[str, argparse.Namespace], Answer]] = {
        "latency": latency,
        "updates": updates,
        "parts": parts,
        "against": agreement,
        "steps": steps,
        "stability": stability,
        "work": work,
    }
    of_all: dict[str, Callable[[argparse.Namespace], Answer]] = {"internal_rate": internal_rate, "registers": registers}
    each = next((procedures[name] for name in procedures if getattr(args, name)), None)
    together = next((of_all[name] for name in of_all if getattr(args, name)), None)
    if each is None and together is None:
        return None

    def run(given: argparse.Namespace) -> int:
        if each is not None:
            return _shown([each(target, given) for target in given.targets], given)
        assert together is not None  # noqa: S101  (one of the two was asked for)
        return _shown([together(given)], given)

    return run


def _settle(args: argparse.Namespace) -> None:
    """Refuse options that what was asked for does not take, and put in what stands for those that were not given."""
    asked = next((name for name in _TAKEN if name and getattr(args, name)), "")
    every = set().union(*_TAKEN.values())
    strange = sorted(name for name in every - _TAKEN[asked] if getattr(args, name) not in {None, False})
    if strange:
        taken, what = _flags(_TAKEN[asked]), f"--{asked.replace('_', '-')}" if asked else "a characterisation"
        msg = f"{what} does not take {_flags(strange)}; it takes {taken}"
        raise TargetError(msg)
    defaults = {
        "duration": 20.0, "every": 900.0, "window": 1.0, "reads": _READS, "frequencies": _frequencies(_TWO_KILOHERTZ)
    }  # fmt: skip
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _flags(names: Collection[str]) -> str:
    return ", ".join(sorted(_FLAGS.get(name, f"--{name.replace('_', '-')}") for name in names))


def _shown(found: list[Answer], args: argparse.Namespace) -> int:
    if args.json:
        documents = [each.document for each in found]
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        for each in found:
            show(each.page)
    return 0


def _frequencies(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(set(found)) < 3 or not all(math.isfinite(f) and f > 0.0 for f in found):
        msg = f"{text!r}: give three frequencies of a load in hertz, such as {_TWO_KILOHERTZ}"
        raise TargetError(msg)
    return found
