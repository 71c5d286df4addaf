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
from pmtpy.cli.command import run_command
from pmtpy.cli.common import chosen_targets, deliver, open_all, say
from pmtpy.cli.progress import Progress
from pmtpy.cluster.gather import ResultFolder, add_up, all_ranks_told, is_read, of_this_run
from pmtpy.cluster.job import JobEnergy
from pmtpy.cluster.node import Found, NodeEnergy, NodeFile, node_energy, read_node, span_of, unknown_node
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
    about, folder = " ".join(args.command), Path(args.into or FOLDER)
    if not launch.reads:
        # A name that is given in the environment need not be what the launcher takes for a node.
        named = NodeFile(folder, machine, launch, about, _unix_s()) if NODE in os.environ else None
        sees = json.dumps([launch.rank, limits(os.environ)])
        with begun_with(launch, machine, args.stop.rest, sees) as measured:
            if not measured and named is None:
                say(f"pmtpy run: warning: {machine.host}: {_NOBODY}")
            status = run_command(args.command, divert_stdout=divert, in_our_group=True).status
        if named is not None:
            _settled(named, machine, launch, status)
        return status
    file = NodeFile(folder, machine, launch, about, _unix_s())
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
            status, energy = _measured(args, sensors, why, machine, launch, others=others, divert=divert)
            args.ended = status
            _put(file, energy, status)
    if args.mpi and not launch.rank and status <= _BY_SIGNAL:
        _report(args, _waited(args, file, launch))
    return status


def _put(file: NodeFile, energy: NodeEnergy, status: int) -> None:
    try:
        file.finish(energy, status)
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


def _measured(
    args: argparse.Namespace,
    sensors: Sequence[Sensor],
    why: str,
    machine: Machine,
    launch: Launch,
    *,
    others: Others,
    divert: bool,
) -> tuple[int, NodeEnergy]:
    if not sensors:
        begun_s = _unix_s()
        others.begin()
        status = run_command(args.command, divert_stdout=divert, in_our_group=True).status
        return status, unknown_node(machine, launch, why, span_s=(begun_s, _unix_s()))
    region = Region(" ".join(args.command), {s.target: s for s in sensors}, without_lost=True)
    with region, Progress(region, enabled=not args.quiet and not args.mpi) as progress:
        others.begin()
        ended = run_command(args.command, divert_stdout=divert, started=progress.watch, in_our_group=True)
        if not ended.status:  # a launcher that sees it fail may end the others
            while others.run() and not args.stop.asked:
                args.stop.rest(_LOOK_S)
    status = ended.status
    if not ended.ran:
        return status, unknown_node(machine, launch, f"{args.command[0]} could not be started", span_s=span_of(region))
    try:
        energy = node_energy(region, machine, launch)
    except PmtError as error:
        return status, unknown_node(machine, launch, str(error))
    if others.lacking:
        energy = replace(energy, warnings=(*energy.warnings, _LACKING.format(others.lacking, launch.local_size)))
    apart = _apart(sensors, launch, others.told)
    return status, replace(energy, joules=None, why=apart) if apart else energy


def _apart(sensors: Sequence[Sensor], launch: Launch, told: Sequence[str]) -> str:
    """Say why what this process sees is not all that the processes of the node use; empty: it is."""
    if not numbered([rail for s in sensors for rail in rails_of(s)]):
        return ""
    others = [(rank, tuple(limit)) for rank, limit in (json.loads(line) for line in told if line)]
    return differ([(launch.rank, limits(os.environ)), *others])


def _waited(args: argparse.Namespace, file: NodeFile, launch: Launch) -> JobEnergy:
    """Wait for the results of the other nodes, as long as the patience lasts; add up what came."""
    own = read_node(file.path)
    begin_ns = HOST_CLOCK.now_ns()
    end_ns = begin_ns + round(args.patience * NS_PER_S)
    folder = ResultFolder(file.path.parent)
    while True:
        found, problems = folder.look()
        mine, now_ns = of_this_run(found, own), HOST_CLOCK.now_ns()
        if _all_there(mine, launch) or now_ns >= end_ns:
            return add_up(mine, [p for p in problems if "written to its end" not in p])
        # A large folder on a shared file system is slow to list: nine tenths of the time it is left alone.
        args.stop.rest(max(_LOOK_S, 9 * (now_ns - begin_ns) / NS_PER_S))
        begin_ns = HOST_CLOCK.now_ns()


def _all_there(found: Sequence[Found], launch: Launch) -> bool:
    ended = [f for f in found if f.energy is not None]
    if {f.node for f in found} - {f.node for f in ended}:
        return False
    if all_ranks_told(ended):
        return True
    return launch.size is None if launch.nodes is None else len({f.node for f in ended}) >= launch.nodes


def _report(args: argparse.Namespace, job: JobEnergy) -> None:
    made = json.dumps(job.to_dict(), indent=2) if args.json else gather_verb.page(job)
    deliver(made, args.output)
