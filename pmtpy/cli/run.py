"""``pmtpy run``: run a command and report what it cost, per sensor and in total, with uncertainty."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pmtpy.analysis.uncertainty.budget import RunsMean, mean_of_runs, repeated
from pmtpy.cli import report
from pmtpy.cli._measured_twice import TWICE, MeasuredTwice, measured_twice
from pmtpy.cli.command import run_command
from pmtpy.cli.common import MEASURES_ALL, check_writable, chosen_targets, deliver, open_all, say, warn_of_the_rest
from pmtpy.cli.dump import check_suffix, dump_paths, end_dumps, linger
from pmtpy.cli.options import add_options, count
from pmtpy.cli.page import Kind, Line, Page, Table
from pmtpy.cli.progress import Progress
from pmtpy.cli.stopping import Stop
from pmtpy.cli.terminal import is_terminal, progress
from pmtpy.core.clock import duration_of
from pmtpy.core.presentation import amount, in_same_digits, number_or_none
from pmtpy.core.state import LEAST_COVERAGE
from pmtpy.errors import BackendUnavailableError, PmtError, SinkError, TargetError
from pmtpy.io.origin import this_machine
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.region import Region
from pmtpy.regions.total import sum_of_all, why_no_sum
from pmtpy.sensor.sensor import Sensor

_NOT_STARTED = (
    "pmtpy run: the command was not started, because a sensor that -s names cannot be used; without -s it is measured "
    "by whatever is available (pmtpy list)"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command."""

    status: int  # exit status
    seconds: float
    measured: dict[str, Measurement | PmtError]  # empty: there is no such command
    total: Measurement | None  # the sum, where there is one
    until_lost: dict[str, Measurement]  # what sensors that were lost had measured before
    no_sum: str = ""  # why the sensors make none; empty: they make one

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {
            "exit_status": self.status,
            "seconds": self.seconds,
            "sensors": [report.document(t, m, self.until_lost.get(t)) for t, m in self.measured.items()],
            "total": None if self.total is None else report.numbers(self.total),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add = parser.add_argument
    add(
        "-s", "--sensor", action="append", default=[], metavar="TARGET",
        help="measure with this sensor (repeatable); default: PMT_NAME or pmtpy.toml, else every available one",
    )  # fmt: skip
    add_options(parser)
    add("--json", action="store_true", help="print one JSON document; the command's stdout then goes to stderr")
    add("--output", metavar="FILE", help="write the report to FILE; the command's streams are then left alone")
    add("--dump", metavar="FILE", help="log all sensors meanwhile, as pmtpy dump does")
    add("--overwrite", action="store_true", help="replace dump files that exist")
    add(
        "--repeat",
        type=count(),
        default=1,
        metavar="N",
        help="run N times (default 1); report mean, spread and the interval of 95 %%",
    )
    add("--warmup", type=count(0), default=0, metavar="N", help="run N times before, unmeasured (default 0)")
    add(
        "--baseline",
        type=duration_of,
        metavar="TIME",
        help="measure the idle machine for this long first (default: not at all); reported, never subtracted",
    )
    add(
        "--into", metavar="DIR",
        help="for a job on several nodes: one process of each node measures, and writes its result into DIR, which all"
        " of them share; 'pmtpy gather DIR' adds them up",
    )  # fmt: skip
    add(
        "--mpi", action="store_true",
        help="the same under mpiexec or srun, and the first process reports the sum (--into is pmtpy-nodes by default)",
    )  # fmt: skip
    add(
        "--patience", type=duration_of, default=30.0, metavar="TIME",
        help="with --mpi: how long to wait for the results of other nodes once the command has ended (default 30s)",
    )  # fmt: skip
    parser.usage = "pmtpy run [-s TARGET]... [options] -- COMMAND..."
    parser.epilog = (
        "examples:\n"
        "  pmtpy run -- ./solve --size 1000\n"
        "  pmtpy run -s rapl -s nvml:0 --repeat 5 --warmup 1 --baseline 5s -- python train.py\n"
        "  pmtpy run -s rapl:virtual --json --output report.json -- sleep 1\n"
        "  mpiexec -n 64 pmtpy run --mpi -s rapl -- ./solve"
    )


def run(args: argparse.Namespace) -> int:
    """Measure the command; return its exit status."""
    if not args.command:
        msg = "a command is expected after --, for example: pmtpy run -- sleep 1"
        raise TargetError(msg)
    check_writable(args.output)
    if args.into or args.mpi:
        from pmtpy.cli.run_node import run_on_node

        return run_on_node(args)
    check_suffix(args.dump)
    warn_of_the_rest("run", MEASURES_ALL)
    named = bool(args.sensor)
    targets = chosen_targets(args.sensor, everything=True)
    baseline_s: float | None = args.baseline
    divert = args.json and not args.output
    with contextlib.ExitStack() as stack:
        try:
            sensors = stack.enter_context(open_all(targets, args.option, strict=named))
        except BackendUnavailableError:
            if named:
                say(_NOT_STARTED)
            raise
        twice = stack.enter_context(measured_twice(sensors, this_machine(os.environ)))
        baseline = _idle(sensors, baseline_s, args.stop) if baseline_s is not None else None
        for _ in range(args.warmup):
            status = run_command(args.command, divert_stdout=divert).status
            if status:
                say(f"pmtpy run: the warm-up ended with status {status}; nothing was measured")
                return status
        runs: list[Run] = []
        with _dumped(sensors, args) as dumped:
            while len(runs) < args.repeat and not (runs and runs[-1].status):
                runs.append(_once(sensors, args, (dumped, twice), divert=divert, done=len(runs)))
    args.ended = runs[-1].status
    _report(args, runs, baseline)
    return runs[-1].status


def _once(
    sensors: Sequence[Sensor],
    args: argparse.Namespace,
    beside: tuple[Sequence[Sensor], MeasuredTwice],
    *,
    divert: bool,
    done: int,
) -> Run:
    """Run the command; dumps that end with it go on for a while, by which its own energies are surer as well."""
    what, (dumped, twice) = _bar(done, args.repeat), beside
    # Whatever the sensors do, the command runs: their errors go into the report.
    region = Region(" ".join(args.command), {s.target: s for s in sensors}, without_lost=True)
    with region, Progress(region, enabled=not args.quiet, what=what) as progress:
        ended = run_command(args.command, divert_stdout=divert, started=progress.watch)
    if not ended.ran:
        return Run(ended.status, region.seconds, {}, None, {})
    ended.tell_what_goes_on()
    if dumped and (ended.status or done + 1 == args.repeat):
        linger(region, dumped, args.stop)
    shared = twice.targets()
    measured = {
        t: replace(m, warnings=(*m.warnings, TWICE)) if isinstance(m, Measurement) and t in shared else m
        for t, m in region.outcomes().items()
    }
    total = sum_of_all(sensors, measured)
    return Run(ended.status, region.seconds, measured, total, region.until_lost(), why_no_sum(sensors))


def _bar(done: int, of: int) -> str:
    """Return how many runs are over, as a bar; empty where there is one."""
    return f"[{'#' * (20 * done // of):.<20}] run {done + 1} of {of}, " if of > 1 else ""


def _idle(sensors: Sequence[Sensor], seconds: float, stop: Stop) -> dict[str, Measurement]:
    region = Region("baseline", {s.target: s for s in sensors}, without_lost=True)
    with progress("the idle machine", seconds) as tell, region:
        stop.rest(seconds, tell)
    return {t: m for t, m in region.outcomes().items() if isinstance(m, Measurement)}


@contextlib.contextmanager
def _dumped(sensors: Sequence[Sensor], args: argparse.Namespace) -> Iterator[Sequence[Sensor]]:
    """Dump while inside; yield the sensors that are."""
    if not args.dump:
        yield ()
        return
    paths = dump_paths([s.target for s in sensors], args.dump, None)
    started: list[Sensor] = []
    try:
        for sensor, path in zip(sensors, paths, strict=True):
            try:
                sensor.start_dump(path or args.dump, overwrite=args.overwrite)
            except (SinkError, TargetError):  # a file that must not be written is known before the command runs
                raise
            except PmtError as error:
                say(f"pmtpy run: warning: {sensor.target} is not logged: {error}")
                continue
            started.append(sensor)
        yield started
    finally:
        for problem in end_dumps(started):
            say(f"pmtpy run: warning: {problem}")


# -- the report --------------------------------------------------------------------------------------------------------


def _report(args: argparse.Namespace, runs: Sequence[Run], baseline: dict[str, Measurement] | None) -> None:
    made = (
        json.dumps(document(args.command, runs, baseline, args.repeat), indent=2)
        if args.json
        else page(runs, baseline, args.repeat, seen=not args.output and is_terminal(sys.stderr))
    )
    if made:  # else there was no such command, which was said
        deliver(made, args.output)


def document(
    command: Sequence[str], runs: Sequence[Run], baseline: dict[str, Measurement] | None, asked: int = 1
) -> dict[str, Any]:
    """Return the JSON of everything. With several runs the top level is the last one, and ``runs`` has them all.

    ``repeat`` is of the runs that ended well: a command that fails is not run again, so they may be fewer than asked.
    """
    result: dict[str, Any] = {"command": list(command), **runs[-1].document()}
    if baseline is not None:
        result["baseline"] = [report.document(t, m) for t, m in baseline.items()]
    if len(runs) > 1:
        result["runs"] = [r.document() for r in runs]
    if asked > 1:
        good = _good(runs)
        result["repeat"] = {
            "n": len(good),
            "asked": asked,
            "seconds": spread(*repeated([r.seconds for r in good])) if len(good) > 1 else None,
            "sensors": {
                target: {
                    "n": len(each),
                    "joules": spread(*_joules_of(each)[:3]),
                    "watts": spread(*mean_of_runs(each, [1.0 / (m.seconds * m.coverage) for m in each])[:3]),
                }
                for target, each in _by_target(good).items()
            },
        }
    return result


def _good(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that say what the command costs: one that failed has done another work."""
    return [r for r in runs if not r.status]


def _by_target(runs: Sequence[Run]) -> dict[str, list[Measurement]]:
    """Return what each sensor measured, of the runs whose energy it knows."""
    each: dict[str, list[Measurement]] = {}
    for r in runs:
        for target, m in r.measured.items():
            if isinstance(m, Measurement) and m.coverage >= LEAST_COVERAGE:
                each.setdefault(target, []).append(m)
    return {target: found for target, found in each.items() if len(found) > 1}


def _left_out(runs: Sequence[Run]) -> list[Line]:
    """Say of which sensors some runs are in no mean."""
    known = _by_target(runs)
    missing = {
        target: len(runs) - len(known.get(target, ())) for target in dict.fromkeys(t for r in runs for t in r.measured)
    }
    why = f"less than {LEAST_COVERAGE:.0%} of their energy is known"
    return [
        Line(f"  {target}: left out {n} of {amount(len(runs), 'run')}: {why}") for target, n in missing.items() if n
    ]


def _joules_of(runs: Sequence[Measurement]) -> RunsMean:
    """Return the mean energy of runs, as if all of each were covered."""
    return mean_of_runs(runs, [1.0 / m.coverage for m in runs])


def spread(mean: float, deviation: float, half: float) -> dict[str, float | None]:
    """Return mean, standard deviation and interval of 95 % of repeated runs."""
    numbers_of = {"mean": mean, "std": deviation, "low": mean - half, "high": mean + half}
    return {k: number_or_none(v) for k, v in numbers_of.items()}


def page(runs: Sequence[Run], baseline: dict[str, Measurement] | None, asked: int = 1, *, seen: bool = False) -> Page:
    """Return the report for a person; of repeated runs as a table, if it is ``seen`` on a terminal."""
    last, good = runs[-1], _good(runs)
    made = (
        report.page(last.measured, last.total, no_sum=last.no_sum, until_lost=last.until_lost) if last.measured else []
    )
    if baseline is not None:
        made += [
            Line(f"idle before: {target}: {m.watts:.4g} W over {m.seconds:.3g} s (not subtracted)")
            for target, m in baseline.items()
        ]
    if asked > 1 and last.status:
        ended = f"run {len(runs)} of {asked} ended with status {last.status}"
        made.append(
            Line(f"{ended}: {'it is the table' if last.measured else 'there was none'}, and no further one was made")
        )
    if len(good) > 1 and seen:
        said = " that ended well:" if last.status else "; the table above is the last of them:"
        made += [Line(""), Line(f"{len(good)} runs{said}", Kind.HEADING), _spread_table(good), *_left_out(good)]
    elif len(good) > 1:
        shown = f"the table shows the last of {len(good)} runs; over all runs"
        said = f"over the {len(good)} runs that ended well" if last.status else shown
        made.append(Line(f"{said} (mean +- what holds in 95 of 100 cases):"))
        for target, each in _by_target(good).items():
            mean, deviation, half, _ = _joules_of(each)
            about, doubt = in_same_digits(mean, half)
            made.append(Line(f"  {target}: {about} J +- {doubt} J, spread {deviation:.2g} J"))
        made += _left_out(good)
        mean, deviation, half = repeated([r.seconds for r in good])
        about, doubt = in_same_digits(mean, half)
        made.append(Line(f"  time: {about} s +- {doubt} s, spread {deviation:.2g} s"))
    return made


def _spread_table(runs: Sequence[Run]) -> Table:
    """Return what repeated runs say together: mean, its 95 % interval, and how far single runs lie apart."""
    rows = [("", "mean", "+- (95 %)", "spread (sd)", "min", "max", "")]
    energies = {
        f"{target} (J)": ([m.joules / m.coverage for m in each], _joules_of(each)[:3])
        for target, each in _by_target(runs).items()
    }
    times = [r.seconds for r in runs]
    for name, (values, (mean, deviation, half)) in {**energies, "time (s)": (times, repeated(times))}.items():
        about, doubt = in_same_digits(mean, half)
        places = len(about.partition(".")[2])
        apart, low, high = (f"{v:.{places}f}" for v in (deviation, min(values), max(values)))
        rows.append((name, about, doubt, apart, low, high, ""))
    return Table(rows)
