"""``pmtpy run --into DIR`` and ``--mpi``: one reader on each node of a job, each with its own result in one folder.

MPI itself is left to the command: a library that we started here would take the place in the job that is the command's.
So which process reads is taken from the launcher's environment, and the results meet in the file system.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pmtpy.cli import gather as gather_verb
from pmtpy.cli._beside import Others, begun_with, others_of
from pmtpy.cli._measured_twice import TWICE, MeasuredTwice, measured_twice
from pmtpy.cli.command import run_command
from pmtpy.cli.common import MEASURES_ALL, chosen_targets, deliver, open_all, say, warn_of_the_rest
from pmtpy.cli.progress import Progress
from pmtpy.cluster.gather import (
    ResultFolder,
    add_up,
    all_ranks_told,
    is_read,
    of_another_time,
    of_this_run,
    of_wrong_clocks,
)
from pmtpy.cluster.job import JobEnergy
from pmtpy.cluster.node import NodeEnergy, NodeFile, NodeRecord, node_energy, read_node, span_of, unknown_node
from pmtpy.cluster.visible import differ, limits, numbered
from pmtpy.core.clock import HOST_CLOCK, NS_PER_S
from pmtpy.errors import BackendUnavailableError, PmtError, SinkError, TargetError
from pmtpy.io.origin import NODE, Launch, Machine, launch_of, this_machine
from pmtpy.regions.region import Region
from pmtpy.sensor.sensor import Sensor, rails_of

FOLDER = "pmtpy-nodes"
_LOOK_S = 0.1
_NOBODY = (
    "the process that measures it was not there, or not ready, in time; what this one uses until then is not measured"
)
_LACKING = (
    "{} of {} processes that the launcher started on this node began no command under pmtpy run while it was measured; "
    "what they used is in its energy for that time alone"
)
_CUT = "it was asked to end while other processes of the node ran: what was used from then on is not in its energy"
_FAILED_FIRST = (
    "the command of the process that measures failed while others of the node ran: what they used from then on is not "
    "in its energy, and how they ended is not known"
)
_ASKED = (
    "it was asked to end by a signal, and was killed, or still runs: what was used from then on is not in its energy"
)
_BY_SIGNAL = 128  # and above: the status of a command that a signal ended


def run_on_node(args: argparse.Namespace) -> int:
    """Measure the command on this node, or only run it where another process does; return its status.

    Where a signal ended the command, it ends this process too: a launcher looks at how its processes end, and would let
    the other ranks wait for one that is gone.
    """
    status = _run_on_node(args)
    number = status - _BY_SIGNAL
    if number in {signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}:
        sys.stderr.flush()
        sys.stdout.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with contextlib.suppress(OSError, ValueError):  # nobody can change what happens at SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return status


def _run_on_node(args: argparse.Namespace) -> int:
    if args.repeat != 1 or args.warmup or args.baseline or args.dump:
        msg = "--repeat, --warmup, --baseline and --dump do not go with --into and --mpi: a job is measured as a whole"
        raise TargetError(msg)
    launch, machine = launch_of(os.environ), this_machine(os.environ)
    divert = args.json and not args.output
    if launch.in_front:
        warn_of_the_rest("run", MEASURES_ALL)
    about, folder = " ".join(args.command), Path(args.into or FOLDER)
    if not launch.reads:
        # A name that is given in the environment need not be what the launcher takes for a node.
        named = NodeFile(folder, machine, launch, about, _unix_s()) if NODE in os.environ else None
        sees = json.dumps([launch.rank, limits(os.environ)])
        with begun_with(launch, machine, args.stop.rest, sees) as begun:
            if not begun.measured and named is None:
                say(f"pmtpy run: warning: {machine.host}: {_NOBODY}")
            status = run_command(args.command, divert_stdout=divert, in_our_group=True).status
            begun.ended(status)
        if named is not None:
            _settled(named, machine, launch, status)
        return status
    file = NodeFile(folder, machine, launch, about, _unix_s())
    job = _Job(args, file, launch) if args.mpi and not launch.rank else None
    # A name that is given is not the launcher's, which then does not know how many there are.
    expected = (launch.local_size or 1) - 1 if NODE not in os.environ else 0
    with others_of(launch, machine, expected) as others, contextlib.ExitStack() as stack:
        try:
            sensors, why = _opened(args, stack)
        except PmtError as error:
            file.not_begun(str(error))
            raise
        others.come(args.stop.rest)
        # A launcher ends a job in whatever instant. Open MPI 4.1 kills what is left within a second, and at once when
        # another process ends meanwhile: so the result is put there before the sensors are closed.
        with args.stop.later():
            if sensors:
                twice = stack.enter_context(measured_twice(sensors, machine))
                node = _Measured(args, file, sensors, (others, twice), (machine, launch))
                status, energy, not_whole = node.run(divert=divert)
            else:
                begun_s = _unix_s()
                others.begin()
                status = run_command(args.command, divert_stdout=divert, in_our_group=True).status
                energy, not_whole = unknown_node(machine, launch, why, span_s=(begun_s, _unix_s())), ""
            args.ended = status
            _put(file, energy, (status, _failed(others)), not_whole)
    if job is not None and status <= _BY_SIGNAL:
        _report(args, job.waited())
    return status


def _failed(others: Others) -> list[tuple[int | None, int | None]]:
    """Return rank and status of the others of the node that did not end well, or did not say how."""
    return [(json.loads(one.said)[0] if one.said else None, one.status) for one in others.gone() if one.status != 0]


def _put(
    file: NodeFile, energy: NodeEnergy, ended: tuple[int, Sequence[tuple[int | None, int | None]]], why: str
) -> None:
    try:
        file.finish(energy, *ended, why=why)
    except SinkError as error:
        used = (
            "is not known"
            if energy.joules is None
            else f"is {energy.joules:.6g} J +- {energy.uncertainty_joules:.2g} J"
        )
        msg = f"{error}; the energy of this node {used}"
        raise SinkError(msg) from error


def _settled(named: NodeFile, machine: Machine, launch: Launch, status: int) -> None:
    """Take the file of a process that did not read away where another of its node reads; else say that nobody does."""
    own = read_node(named.path)
    found, _ = ResultFolder(named.path.parent).look()
    if is_read(found, own):
        named.path.unlink(missing_ok=True)
        return
    why = (
        "no process has measured it: the first on this node left no result (it was killed, or did not start), or "
        f"{NODE} gives this node a name that the launcher does not know"
    )
    say(f"pmtpy run: warning: {machine.host}: {why}")
    named.finish(unknown_node(machine, launch, why, span_s=(own.begun_s, _unix_s())), status)


def _unix_s() -> float:
    return HOST_CLOCK.anchor().unix_ns / NS_PER_S


def _opened(args: argparse.Namespace, stack: contextlib.ExitStack) -> tuple[Sequence[Sensor], str]:
    """Open the sensors, or say why there are none: the command runs all the same."""
    try:
        targets = chosen_targets(args.sensor, everything=True)
        return stack.enter_context(open_all(targets, args.option, strict=bool(args.sensor))), ""
    except BackendUnavailableError as error:
        return (), str(error)


class _Measured:
    """The command on a node that has sensors, and what it used in the node's file."""

    def __init__(
        self,
        args: argparse.Namespace,
        file: NodeFile,
        sensors: Sequence[Sensor],
        beside: tuple[Others, MeasuredTwice],
        where: tuple[Machine, Launch],
    ) -> None:
        self._args, self._file = args, file
        self._others, self._twice = beside
        self._sensors, self._where, self._went_on = sensors, where, False
        self._whole, self._until = (
            Region(" ".join(args.command), {s.target: s for s in sensors}, without_lost=True) for _ in range(2)
        )

    def run(self, *, divert: bool) -> tuple[int, NodeEnergy, str]:
        """Run the command, measure the node until the last process of the job on it has ended.

        Return the command's status, the energy, and why that is not all; empty: it is.
        """
        args, region, cut = self._args, self._whole, ""
        with region, Progress(region, enabled=not args.quiet and not args.mpi) as progress:
            self._until.__enter__()
            self._others.begin()
            ended = run_command(
                args.command, divert_stdout=divert, started=progress.watch, in_our_group=True, asked=self._asked
            )
            self._until.abandon()
            if ended.status:  # a launcher that sees it fail may end the others, and us
                self._went_on = self._others.run()
            else:
                while self._others.run():
                    if args.stop.asked:
                        cut = _CUT
                        break
                    args.stop.rest(_LOOK_S)
        if ended.ran:
            return ended.status, self._energy(region), cut
        why = f"{args.command[0]} could not be started"
        return ended.status, unknown_node(*self._where, why, span_s=span_of(region)), ""

    def _asked(self) -> None:
        """Put there what was used until now: who asks to end may kill all before there is more."""
        with contextlib.suppress(Exception):  # in the middle of waiting for the command, whose end says what is wrong
            self._until.__exit__(None, None, None)
            self._file.finish(self._energy(self._until), why=_ASKED)

    def _energy(self, region: Region) -> NodeEnergy:
        machine, launch = self._where
        try:
            energy = node_energy(region, machine, launch)
        except PmtError as error:
            return unknown_node(machine, launch, str(error))
        said = {
            _LACKING.format(self._others.lacking, launch.local_size): self._others.lacking,
            TWICE: self._twice.targets(),
            _FAILED_FIRST: self._went_on,
        }
        energy = replace(energy, warnings=(*energy.warnings, *(text for text, so in said.items() if so)))
        apart = _apart(self._sensors, launch, self._others.told)
        return replace(energy, joules=None, why=apart) if apart else energy


def _apart(sensors: Sequence[Sensor], launch: Launch, told: Sequence[str]) -> str:
    """Say why what this process sees is not all that the processes of the node use; empty: it is."""
    if not numbered([rail for s in sensors for rail in rails_of(s)]):
        return ""
    others = [(rank, tuple(limit)) for rank, limit in (json.loads(line) for line in told if line)]
    return differ([(launch.rank, limits(os.environ)), *others])


class _Job:
    """The results of all nodes of the job, for the process that reports them; made before its command begins."""

    def __init__(self, args: argparse.Namespace, file: NodeFile, launch: Launch) -> None:
        self._args, self._file, self._launch = args, file, launch
        self._folder = ResultFolder(file.path.parent)
        self._earlier = {f.path for f in self._folder.look()[0] if f.ended}

    def waited(self) -> JobEnergy:
        """Wait for the results of the other nodes, as long as the patience lasts; add up what came."""
        own, launch = read_node(self._file.path), self._launch
        begin_ns = HOST_CLOCK.now_ns()
        end_ns = begin_ns + round(self._args.patience * NS_PER_S)
        while True:
            found, problems = self._folder.look()
            mine, now_ns = of_this_run(found, own), HOST_CLOCK.now_ns()
            whole = _all_there(mine, launch) or launch.in_front  # nobody is beside it to come
            if whole or now_ns >= end_ns or _all_there([*mine, *of_wrong_clocks(found, own, self._earlier)], launch):
                others = [] if whole else of_another_time(found, own)
                ours = {f.path for f in mine}
                beside = [f for f in found if f.path not in ours]
                return add_up([*mine, *others], [p for p in problems if "written to its end" not in p], beside)
            # A large folder on a shared file system is slow to list: nine tenths of the time it is left alone.
            self._args.stop.rest(max(_LOOK_S, 9 * (now_ns - begin_ns) / NS_PER_S))
            begin_ns = HOST_CLOCK.now_ns()


def _all_there(found: Sequence[NodeRecord], launch: Launch) -> bool:
    ended = [f for f in found if f.ended]
    if {f.node for f in found} - {f.node for f in ended}:
        return False
    if all_ranks_told(ended):
        return True
    return launch.size is None if launch.nodes is None else len({f.node for f in ended}) >= launch.nodes


def _report(args: argparse.Namespace, job: JobEnergy) -> None:
    made = json.dumps(job.to_dict(), indent=2) if args.json else gather_verb.page(job)
    deliver(made, args.output)
