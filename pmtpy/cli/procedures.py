"""The procedures of the published evaluations, for any sensor, as options of ``pmtpy characterise``."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

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
# What a characterisation takes beside its targets.
_CHARACTERISATION = frozenset({"channel", "load", "meter", "duration", "interval", *_PART})
_FLAGS = {"part_from": "--from", "part_to": "--to"}
_TWO_KILOHERTZ = "1995,1996,1997"  # about the rate of the POWER9 study's sensor


class _Procedure(NamedTuple):
    """What there is to do instead."""

    help: str
    takes: frozenset[str]  # beside its targets
    each: Callable[[str, argparse.Namespace], Answer] | None = None  # does it with one of the targets
    together: Callable[[argparse.Namespace], Answer] | None = None  # or with all of them
    metavar: str | None = None  # of the value of its option; None: it has none


_PROCEDURES: Mapping[str, _Procedure] = {
    "latency": _Procedure("what one reading costs (sensors)", frozenset({"reads"}), latency),
    "updates": _Procedure("how often a value is renewed (sensors)", frozenset({"channel", "duration"}), updates),
    "registers": _Procedure(
        "all registers of one card, or of several, beside each other (sensors or recordings; --channel is the "
        "reference)",
        frozenset({"channel", "load", "duration", "interval", *_PART}),
        together=registers,
    ),
    "internal_rate": _Procedure(
        "how often the sensor samples inside, by loads of --frequencies (a sensor, or a recording for each)",
        frozenset({"frequencies", "channel", "duration", *_PART}),
        together=internal_rate,
    ),
    "against": _Procedure(
        "mean powers of workloads against a reference (recordings)",
        frozenset({"channel", "window", *_PART}),
        agreement,
        metavar="FILE",
    ),
    "parts": _Procedure("the sum of the parts against the whole (recordings)", frozenset({"window", *_PART}), parts),
    "steps": _Procedure(
        "how it answers a load switched between two levels (recordings)", frozenset({"channel", *_PART}), steps
    ),
    "stability": _Procedure(
        "how steady it is over hours (a recording; or a sensor, for --duration, a block of --window each --every)",
        frozenset({"channel", "window", "every", "duration", *_PART}),
        stability,
    ),
    "work": _Procedure(
        "energy for each unit of work of an application's log: fio's, or a CSV (recordings)",
        frozenset({"channel", "begin", *_PART}),
        work,
        metavar="LOG",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    group = parser.add_argument_group("procedures of the published evaluations, instead of a characterisation")
    one = group.add_mutually_exclusive_group()
    for name, procedure in _PROCEDURES.items():
        if procedure.metavar is None:
            one.add_argument(_flag(name), action="store_true", help=procedure.help)
        else:
            one.add_argument(_flag(name), metavar=procedure.metavar, help=procedure.help)
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
    asked = next((name for name in _PROCEDURES if getattr(args, name)), "")
    _settle(args, asked)
    if not asked:
        return None
    _, _, each, together, _ = _PROCEDURES[asked]

    def run(given: argparse.Namespace) -> int:
        if each is not None:
            return _shown([each(target, given) for target in given.targets], given)
        assert together is not None  # noqa: S101  (it has one of the two)
        return _shown([together(given)], given)

    return run


def _settle(args: argparse.Namespace, asked: str) -> None:
    """Refuse options that what was asked for does not take, and put in what stands for those that were not given."""
    takes = _PROCEDURES[asked].takes if asked else _CHARACTERISATION
    every = _CHARACTERISATION.union(*(p.takes for p in _PROCEDURES.values()))
    strange = sorted(name for name in every - takes if getattr(args, name) not in {None, False})
    if strange:
        what = _flag(asked) if asked else "a characterisation"
        msg = f"{what} does not take {_flags(strange)}; it takes {_flags(takes)}"
        raise TargetError(msg)
    defaults = {
        "duration": 20.0, "every": 900.0, "window": 1.0, "reads": _READS, "frequencies": _frequencies(_TWO_KILOHERTZ)
    }  # fmt: skip
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _flag(name: str) -> str:
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def _flags(names: Collection[str]) -> str:
    return ", ".join(sorted(map(_flag, names)))


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
