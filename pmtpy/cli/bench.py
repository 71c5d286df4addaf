"""``pmtpy bench``: repeat a command, or two in turns, until the energy is resolved."""

from __future__ import annotations

import argparse
import math
import os
import sys

from pmtpy.analysis.repetition.resolve import Difference, MeanOfBlocks, Verdict
from pmtpy.cli._measured_twice import TWICE, measured_twice
from pmtpy.cli.command import NOT_FOUND, split_command
from pmtpy.cli.common import aside, check_writable, chosen_targets, deliver, exit_code, opened, say, write_report
from pmtpy.cli.options import add_options, count, duration_or_none
from pmtpy.cli.page import Kind, Line, Page, Table, note
from pmtpy.cli.terminal import StatusLine, is_terminal
from pmtpy.core.clock import duration_of
from pmtpy.core.presentation import amount, in_same_digits
from pmtpy.errors import PmtError, TargetError, WorkFailedError
from pmtpy.io.origin import this_machine
from pmtpy.lab.bench import MAX_TIME_S, WARMUP_S, Bench, ending_of
from pmtpy.lab.bench_exports import FORMATS, without_result
from pmtpy.lab.bench_result import BenchResult, Side
from pmtpy.lab.bench_work import CommandWork, Work

# Each outcome of a comparison has a status of its own, apart from those that all verbs share (0 to 4) and a shell's.
LESS, MORE, SAME, UNRESOLVED = 10, 11, 12, 13
_STATUS = {Verdict.LESS: LESS, Verdict.MORE: MORE, Verdict.SAME: SAME, Verdict.UNRESOLVED: UNRESOLVED}
_VERDICT_KINDS = {
    Verdict.LESS: Kind.GOOD,
    Verdict.MORE: Kind.BAD,
    Verdict.SAME: Kind.HEADING,
    Verdict.UNRESOLVED: Kind.WARNING,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add = parser.add_argument
    add("-s", "--sensor", metavar="TARGET", help="measure with this sensor; without it: the only one there is")
    add_options(parser)
    add(
        "--target", default="1%", metavar="SHARE",
        help="how narrow the interval of 95 %% has to be (default 1%%); of two commands, the difference that matters",
    )  # fmt: skip
    longest = f"end after this time in any case (default {MAX_TIME_S:g} s)"
    add("--max-time", type=duration_of, default=f"{MAX_TIME_S:g}", metavar="TIME", help=longest)
    warm = f"run each command for this long before, unmeasured (default {WARMUP_S:g} s; once at least)"
    add("--warmup", type=duration_or_none, default=f"{WARMUP_S:g}", metavar="TIME", help=warm)
    add(
        "--cooldown",
        type=duration_or_none,
        default="0",
        metavar="TIME",
        help="rest for this long before each trial (default: none, a warm steady state)",
    )
    add(
        "--seed",
        type=count(0),
        metavar="N",
        help="seed of the order of blocks and of the phases of bursts (default: by chance)",
    )
    add("--show-output", action="store_true", help="let the commands' output through, to stderr")
    add("--format", choices=("table", *FORMATS), default="table", help="how the result is written (default: table)")
    add("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    add("--output", metavar="FILE", help="write the result to FILE, and the table to stderr")
    parser.usage = "pmtpy bench [-s TARGET] [options] -- COMMAND... [-- COMMAND...]"
    parser.epilog = (
        "exit status:\n"
        f"  one command: 0 the interval is as narrow as asked for, {UNRESOLVED} it is not\n"
        f"  two: the second uses {LESS} less, {MORE} more, {SAME} no difference larger than --target, {UNRESOLVED} "
        "unresolved\n"
        "  1 a command failed, 2 usage, 3 sensor unavailable, 4 sensor lost, 130 Ctrl-C; what was measured is shown\n"
        "examples:\n"
        "  pmtpy bench -s rapl -- ./solve --size 1000\n"
        "  pmtpy bench -s nvml:0 -- ./old -- ./new\n"
        "  pmtpy bench -s nvml:0 --target 0.5% --max-time 30m --json -- ./old -- ./new"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, show, return the verdict's status."""
    works = _works(args)
    target = _share(args.target)
    times = [args.max_time, args.warmup, args.cooldown]
    check_writable(args.output)
    targets = chosen_targets([args.sensor] if args.sensor else [], everything=True)
    if len(targets) > 1:
        msg = f"name one sensor (-s): there are {', '.join(targets)}"
        raise TargetError(msg)
    with (
        opened(targets, args.option) as (sensor,),
        measured_twice([sensor], this_machine(os.environ)) as twice,
        _Progress(enabled=not args.quiet) as progress,
    ):
        bench = Bench(
            works, sensor, target=target, max_time_s=times[0], warmup_s=times[1], cooldown_s=times[2], seed=args.seed,
            tell=progress.tell,
        )  # fmt: skip
        try:
            with args.stop.taken():
                ended, told = "interrupted", ["ended early: interrupted"]
                ended, told = bench.run(), []
            failure: PmtError | None = None
        except PmtError as error:
            ended, told, failure = ending_of(error), [f"ended early: {error}"], error
        result = bench.result(ended, [*told, *([TWICE] if twice.targets() else [])])
    if failure is not None:
        say(f"pmtpy bench: {failure}")
    if result is None:
        return _without_result(ended, failure, bench, args)
    _write(result, args)
    return _status(result, failure)


def _works(args: argparse.Namespace) -> list[Work]:
    first, second = split_command(args.command)
    if not first or ("--" in args.command and not second):
        msg = "a command is expected after --, for example: pmtpy bench -s rapl -- ./old -- ./new"
        raise TargetError(msg)
    if "--" in second:
        msg = "one command or two; of a command that has -- among its own words make a script"
        raise TargetError(msg)
    return [CommandWork(words, show=args.show_output) for words in (first, second) if words]


def _share(text: str) -> float:
    try:
        share = float(text.strip().rstrip("%")) / (100.0 if text.strip().endswith("%") else 1.0)
    except ValueError:
        share = math.nan
    if not 0.0 < share < 1.0:
        msg = f"--target {text}: write a share of the energy, such as 1% or 0.01"
        raise TargetError(msg)
    return share


def _without_result(ended: str, failure: PmtError | None, bench: Bench, args: argparse.Namespace) -> int:
    """Say why nothing was measured, in JSON too if that is asked for; return the status."""
    if failure is not None:  # which was said already
        why = str(failure)
    else:
        why = "interrupted before anything was measured" if ended == "interrupted" else bench.shortfall()
        say(f"pmtpy bench: {why}")
    if args.format == "json":
        deliver(without_result(ended, why), args.output, of_command=False)
    if failure is None:
        return 130 if ended == "interrupted" else UNRESOLVED
    return NOT_FOUND if "command not found" in str(failure) else _failed(failure)


def _failed(failure: PmtError) -> int:
    return 1 if isinstance(failure, WorkFailedError) else exit_code(failure)


def _status(result: BenchResult, failure: PmtError | None) -> int:
    if failure is not None:
        return _failed(failure)
    if result.ended == "interrupted":
        return 130
    if result.difference is None:
        return 0 if result.resolved else UNRESOLVED
    return _STATUS[result.difference.verdict]


# -- what is shown -----------------------------------------------------------------------------------------------------


class _Progress:
    """One line on a terminal that says how it goes on; nothing elsewhere but what is wrong."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled, self._line = enabled and is_terminal(sys.stderr), StatusLine()

    def __enter__(self) -> _Progress:  # noqa: PYI034  (private, and never derived from)
        return self

    def __exit__(self, *_: object) -> None:
        self._line.wipe()

    def tell(self, line: str) -> None:
        """Show a line in the place of the one before."""
        if line.startswith("warning: "):
            self._line.wipe()
            say(f"pmtpy bench: {line}")
        elif self._enabled:
            self._line.show(line)


def _write(result: BenchResult, args: argparse.Namespace) -> None:
    shown = page(result)
    if args.format == "table":
        deliver(shown, args.output, of_command=False)
        return
    text = FORMATS[args.format](result)
    if args.output:
        write_report(text, args.output)
        aside(shown)
    else:
        print(text)


def page(result: BenchResult) -> Page:
    """Return the report for a person."""
    head = ["command", "joules", "+-", "watts", "seconds", "trials", "runs each"]
    rows = [head, *([*_row(side), ""] for side in result.sides)]
    rows[0].append("")
    lines: list[Line | Table] = [Table(rows)]
    lines.append(_outcome(result))
    if result.advice:
        lines.append(note(result.advice))
    lines.append(Line(f"{amount(result.blocks, 'block')} ({_ended(result)}); {result.order or 'no order'}"))
    lines.append(Line(result.method))
    lines.append(Line("+- is half of the interval of 95 %, with what is not known of the sensor's gain"))
    return [*lines, *(note(warning) for warning in result.warnings)]


def _row(side: Side) -> list[str]:
    j = side.joules
    known = math.isfinite(j.high)
    joules, half = in_same_digits(j.value, j.half_width) if known else (f"{j.value:.6g}", "?")
    plan = side.plan
    each = f"{plan.bursts} x {plan.repetitions}" if plan.bursts > 1 else str(plan.repetitions)
    label = side.label if len(side.label) <= 40 else f"{side.label[:15]}...{side.label[-22:]}"
    return [
        label,
        joules,
        half,
        f"{side.watts.value:.5g}",
        f"{side.seconds.value:.4g}",
        str(side.trials),
        each,
    ]


def _outcome(result: BenchResult) -> Line:
    d = result.difference
    if d is None:
        return Line(_single(result.sides[0].joules, result), Kind.GOOD if result.resolved else Kind.WARNING)
    return Line(_compared(result, d), _VERDICT_KINDS[d.verdict])


def _single(joules: MeanOfBlocks, result: BenchResult) -> str:
    share = 100.0 * joules.repeatability / abs(joules.value) if joules.value else math.inf
    wanted = f"wanted: +-{100 * result.target:g} %"
    return f"{result.verdict}: repeats to +-{share:.2g} % ({wanted})" if math.isfinite(share) else "unresolved"


def _compared(result: BenchResult, d: Difference) -> str:
    if not math.isfinite(d.high):
        return (
            f"{result.verdict}: {amount(result.blocks, 'whole block says', 'whole blocks say')} nothing of a difference"
        )
    change = f"{100 * d.value:+.2f} %, interval of 95 % from {100 * d.low:+.2f} to {100 * d.high:+.2f} %"
    return f"{result.verdict}{result.lacking}: the second uses {change}"


def _ended(result: BenchResult) -> str:
    words = {
        "resolved": "narrow enough",
        "time": "no other fits into --max-time",
        "interrupted": "interrupted",
        "failed": "a command failed",
        "lost": "the sensor was lost",
    }
    return words[result.ended]
