"""The results of a job's nodes in one folder, added up: one job, one time, every node once; else what is wrong."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from pmtpy.cluster._logs import is_log, made_on, read_log
from pmtpy.cluster.job import JobEnergy
from pmtpy.cluster.node import SUFFIX, NodeEnergy, NodeRecord, read_node
from pmtpy.core.numbers import whole
from pmtpy.core.presentation import amount
from pmtpy.errors import FileFormatError, PmtError, TargetError
from pmtpy.io.origin import host_names, short_name
from pmtpy.io.whole import draft_of

_KILLED = "it began and did not end: it was killed, or still runs"
_NOT_TOLD = "how the command{} ended is not known, nor whether its energy is all in: its pmtpy run was killed"
_CLOCKS_S = 1.0  # by which the wall clocks of a cluster's nodes may differ
_BEGINS_S = 60.0  # within which all processes of a job begin
_MOST_NAMED = 20
_LEAST_SHARE = 2 / 3  # of the job's time, that a node measures at least


def gather(folder: Path, *, job: str | None = None) -> JobEnergy:
    """Add up the results in a folder; where there is none, the logs (dumps) in it, one of each node.

    Parameters
    ----------
    job : str, optional
        Which job, where the folder holds several.

    Raises TargetError: there is no such folder, no result in it, or those of several jobs.
    """
    if not folder.is_dir():
        msg = (
            f"{folder} is a file; give the folder that it is in" if folder.exists() else f"there is no folder {folder}"
        )
        raise TargetError(msg)
    found, problems = ResultFolder(folder).look()
    if found or problems:
        problems += _unasked(folder, {f.node for f in found})
    else:
        found, problems = _logs(folder)
    if not found:
        more = f" ({'; '.join(problems)})" if problems else ""
        msg = (
            f"{folder} holds no result and no log of a node{more}; 'pmtpy run --into {folder} -- COMMAND' on each node"
            " makes one"
        )
        raise TargetError(msg)
    ours = _of_one_job(folder, found, job)
    return add_up(ours, problems, beside=[f for f in found if f.job != ours[0].job])


class ResultFolder:
    """The results in a folder, which can be looked at again and again: one that is there is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ended: dict[str, NodeRecord] = {}

    def look(self) -> tuple[list[NodeRecord], list[str]]:
        """Return the results, and what is wrong with others."""
        found, problems = [], []
        for name in sorted(entry.name for entry in os.scandir(self.path)):
            if draft_of(name).endswith(SUFFIX):
                problems.append(f"{name} was not written to its end: its node is missing, or in an older state")
            elif name.endswith(SUFFIX):
                try:
                    one = self._ended.get(name) or read_node(self.path / name)
                except FileFormatError as error:
                    problems.append(str(error))
                    continue
                found.append(one)
                if one.ended:  # it was put there in one step, and stays
                    self._ended[name] = one
        return found, problems


def _logs(folder: Path) -> tuple[list[NodeRecord], list[str]]:
    """Return the logs in a folder; beside a result they are not asked for, which has counted their sensors."""
    logs = [_log(path) for path in sorted(folder.iterdir()) if is_log(path)]
    return [log for log in logs if isinstance(log, NodeRecord)], [str(log) for log in logs if isinstance(log, PmtError)]


def _unasked(folder: Path, nodes: set[str]) -> list[str]:
    """Name the logs of nodes that have no result: beside results they are not added, and their nodes would lack."""
    logs = [path for path in sorted(folder.iterdir()) if is_log(path)]
    made = [(path, machine) for path in logs if (machine := made_on(path)) is not None and machine[1] not in nodes]
    why = "beside results logs are not added; move it into a folder of its own"
    return [f"{path.name} is a log of {host}, of which no result is here: {why}" for path, (host, _) in made]


def _log(path: Path) -> NodeRecord | PmtError:
    try:
        return read_log(path)
    except PmtError as error:
        return error


def of_this_run(found: Sequence[NodeRecord], own: NodeRecord) -> list[NodeRecord]:
    """Return what belongs to the run that ``own`` is of, and not to an earlier one in the same folder.

    The processes of a job may run different commands; these tell runs apart only where the launcher does not.
    """
    return [
        f
        for f in found
        if _run(f) == _run(own)
        and abs(f.begun_s - own.begun_s) < _BEGINS_S
        and not (f.energy is not None and f.energy.end_s < own.begun_s - _CLOCKS_S)
    ]


def of_another_time(found: Sequence[NodeRecord], own: NodeRecord) -> list[NodeRecord]:
    """Return, of nodes that nothing belongs to the run of, what calls itself the same and is of another time.

    Without its energy: an earlier run looks like a node whose clock is wrong, or whose command was over too early.
    """
    told, names = {f.node for f in of_this_run(found, own)}, {short_name(name) for name in _names([own])}
    last = {
        f.node: f
        for f in sorted(found, key=lambda f: f.begun_s)
        if _run(f) == _run(own) and f.node not in told and (not names or short_name(f.host) in names)
    }
    return [replace(f, energy=None, why=_at_another_time(f.begun_s - own.begun_s)) for f in last.values()]


def of_wrong_clocks(found: Sequence[NodeRecord], own: NodeRecord, earlier: Container[Path]) -> list[NodeRecord]:
    """Return the last word of nodes of which nothing else belongs to the run of ``own``: it came while that went on.

    ``earlier`` are the results that were there when the run began. By the clock of its node such a one is of another
    time, but the launcher gives it the name of this run, and nothing more will come of it.
    """
    told = {f.node for f in of_this_run(found, own)}
    ours = own.job and [f for f in found if f.ended and f.path not in earlier and _run(f) == _run(own)]
    return [f for f in ours or () if f.node not in told]


def _run(f: NodeRecord) -> tuple[str, str, object]:
    return f.job, "" if f.job else f.about, f.launch.get("size")


def _at_another_time(off_s: float) -> str:
    return f"it measured at another time than the others, {off_s:+.6g} s off: another run, or a clock that is wrong"


def is_read(found: Sequence[NodeRecord], own: NodeRecord) -> bool:
    """Whether another process reads the node of ``own``, which is of one that the launcher calls no first."""
    return any(
        (f.job, f.node, f.launch.get("local_rank") or 0) == (own.job, own.node, 0)
        and abs(f.begun_s - own.begun_s) < _BEGINS_S
        for f in found
    )


def _of_one_job(folder: Path, found: Sequence[NodeRecord], job: str | None) -> list[NodeRecord]:
    jobs = {f.job for f in found}
    if job is not None:
        if job not in jobs:
            msg = f"{folder} holds no result of the job {job!r}, but of: {_named(jobs)}"
            raise TargetError(msg)
        return [f for f in found if f.job == job]
    if len(jobs) > 1:
        msg = f"{folder} holds results of several jobs: {_named(jobs)}; say which by --job"
        raise TargetError(msg)
    return list(found)


def _named(jobs: set[str]) -> str:
    return ", ".join(repr(j) for j in sorted(jobs))


def add_up(found: Sequence[NodeRecord], problems: Sequence[str] = (), beside: Sequence[NodeRecord] = ()) -> JobEnergy:
    """Add up what was read of one job; ``beside``: of others, whose energy may in part be the same."""
    wrong = [*problems]
    abouts = sorted({f.about for f in found})
    if len(abouts) > 1:
        wrong.append(f"the nodes measured different things: {'; '.join(abouts[:3])}")
    ended = [f for f in found if f.energy is not None]
    energies, missing = _each_once(ended)
    told = {f.node for f in ended}
    silent = {f.node: f for f in found if f.energy is None and f.node not in told}
    names = [f.host for f in (*silent.values(), *ended)]  # two nodes may have one
    for f in silent.values():
        missing[f.host if names.count(f.host) == 1 else f"{f.host} ({f.node})"] = f.why or _KILLED
    energies = _of_one_time(energies, missing, wrong)
    energies = _of_its_nodes(found, energies, missing)
    _cover(found, energies, missing, wrong)
    wrong += [f"{f.host}: {f.why}" for f in ended if f.why]
    wrong += [f"{f.host}: {said}" for f in ended for said in _failed(f)]
    return JobEnergy(abouts[0], _told_of_the_same(energies, beside), missing, wrong)


def _told_of_the_same(energies: Sequence[NodeEnergy], beside: Sequence[NodeRecord]) -> list[NodeEnergy]:
    """Warn of results whose energy is in part the same: those of one node whose times overlap."""
    others: dict[str, list[NodeRecord]] = {}
    for f in beside:
        if f.energy is not None and f.energy.joules is not None:
            others.setdefault(f.node, []).append(f)
    same = {
        (e.node, _called(f)): seconds
        for e in energies
        for f in others.get(e.node, ())
        if e.joules is not None and f.energy is not None and (seconds := _overlap_s(e, f.energy)) > 0.0
    }
    if not same:
        return list(energies)
    names = sorted({name for _, name in same})
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    said = (
        f"measured by another job of the folder as well, for up to {max(same.values()):.4g} s of the same time: what "
        f"the node used then is in both, so do not add them ({', '.join(names[:_MOST_NAMED])}{more})"
    )
    nodes = {node for node, _ in same}
    return [replace(e, warnings=(*e.warnings, said)) if e.node in nodes else e for e in energies]


def _called(f: NodeRecord) -> str:
    return repr(f.job or f.about)


def _overlap_s(a: NodeEnergy, b: NodeEnergy) -> float:
    return min(a.end_s, b.end_s) - max(a.begin_s, b.begin_s)


def _failed(f: NodeRecord) -> list[str]:
    """Say which commands of a node did not end well."""
    of_status: dict[int | None, list[int | None]] = {}
    for rank, status in ((whole(f.launch.get("rank")), f.exit_status or 0), *f.failed):
        if status != 0:
            of_status.setdefault(status, []).append(rank)
    return [
        _NOT_TOLD.format(_of_ranks(ranks))
        if status is None
        else f"the command{_of_ranks(ranks)} ended with status {status}"
        for status, ranks in of_status.items()
    ]


def _of_ranks(ranks: Sequence[int | None]) -> str:
    known = sorted(rank for rank in ranks if rank is not None)
    if not known:
        return ""
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return f" of {'rank' if len(known) == 1 else 'ranks'} {', '.join(map(str, known[:_MOST_NAMED]))}{more}"


def _each_once(ended: Sequence[NodeRecord]) -> tuple[list[NodeEnergy], dict[str, str]]:
    """Return the results of nodes that have one; those of a node that has several would count twice."""
    by_node: dict[str, list[NodeRecord]] = {}
    for f in ended:
        by_node.setdefault(f.node, []).append(f)
    missing = {}
    energies = []
    for several in by_node.values():
        if len(several) > 1:
            files = ", ".join(f"{f.path.name}{_used(f)}" for f in several)
            again = ", or of workers that torchrun started anew" if _restarted(several) else ""
            missing[several[0].host] = (
                f"{len(several)} results are of this node, and would count twice: {files}; if they are of several"
                f" runs{again}, give each a folder of its own"
            )
        elif several[0].energy is not None:
            energies.append(several[0].energy)
    return energies, missing


def _used(f: NodeRecord) -> str:
    return "" if f.energy is None or f.energy.joules is None else f" ({f.energy.joules:.6g} J)"


def _restarted(several: Sequence[NodeRecord]) -> bool:
    """Whether results of one node are of one after another, as torchrun makes them: its agents start workers anew."""
    spans = sorted((f.energy.begin_s, f.energy.end_s) for f in several if f.energy is not None)
    apart = all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    return apart and all(f.launch.get("scheduler") == "torchrun" for f in several)


def _of_one_time(energies: list[NodeEnergy], missing: dict[str, str], wrong: list[str]) -> list[NodeEnergy]:
    """Leave out nodes that measured at another time than most (another run, or another clock); say who misses much.

    A node whose command ended early has measured what is its own; but where that is little of the time of the job, the
    sum would pass for something that it is not.
    """
    timed = [e for e in energies if e.joules is not None]
    if len(timed) < 2:
        return energies
    # The stretch in which most measure lies behind the begin of one of them.
    begins, ends = sorted(e.begin_s for e in timed), sorted(e.end_s for e in timed)
    best = max(begins, key=lambda at: bisect_right(begins, at + _CLOCKS_S) - bisect_left(ends, at - _CLOCKS_S))
    among = [e for e in timed if _measures(e, best)]
    begin_s, end_s = min(e.begin_s for e in among), max(e.end_s for e in among)
    for e in timed:
        share = e.seconds / (end_s - begin_s) if end_s > begin_s else 1.0
        if not _measures(e, best):
            missing[e.host] = _at_another_time(e.begin_s - begin_s)
        elif share < _LEAST_SHARE and (end_s - begin_s) * (1.0 - share) > 2 * _CLOCKS_S:
            wrong.append(f"{e.host} measured {e.seconds:.6g} s of the {end_s - begin_s:.6g} s of the job")
    return [e for e in energies if e.joules is None or _measures(e, best)]


def _measures(e: NodeEnergy, at_s: float) -> bool:
    return e.begin_s - _CLOCKS_S <= at_s <= e.end_s + _CLOCKS_S


def _names(found: Sequence[NodeRecord]) -> set[str]:
    """Return the names of the job's nodes; empty where its launcher does not say them."""
    return {name for told in {str(f.launch.get("hosts") or "") for f in found} for name in host_names(told)}


def _of_its_nodes(
    found: Sequence[NodeRecord], energies: Sequence[NodeEnergy], missing: dict[str, str]
) -> list[NodeEnergy]:
    """Leave out what is of no node of the job."""
    names = {short_name(name) for name in _names(found)}
    if not names:
        return list(energies)
    why = "it is none of the nodes that the launcher names"
    strangers = dict.fromkeys((e.host for e in energies if short_name(e.host) not in names), why)
    missing.update(strangers)
    return [e for e in energies if e.host not in strangers]


def _ranks(found: Sequence[NodeRecord]) -> tuple[int, int] | None:
    """Return how many ranks the job has, and those of the nodes that told something; None where nobody says."""
    size = max((n for f in found if (n := whole(f.launch.get("size"))) is not None), default=None)
    by_node = {f.node: whole(f.launch.get("local_size")) for f in found}
    told = [n for n in by_node.values() if n is not None]
    return None if size is None or len(told) < len(by_node) else (size, sum(told))


def all_ranks_told(found: Sequence[NodeRecord]) -> bool:
    """Whether every rank of the job is on a node that told something: then no other node of the allocation ran it."""
    ranks = _ranks(found)
    return ranks is not None and ranks[0] <= ranks[1]


def _cover(
    found: Sequence[NodeRecord], energies: Sequence[NodeEnergy], missing: dict[str, str], wrong: list[str]
) -> None:
    """Note the nodes of the job that nothing is here of."""
    ranks = _ranks(found)
    if ranks is not None and ranks[0] == ranks[1]:
        return
    here = {f.host for f in found} | {e.host for e in energies} | set(missing)
    names = _names(found)
    if names:
        short = {short_name(h) for h in here}
        absent = sorted(n for n in names if short_name(n) not in short)
        missing.update(dict.fromkeys(absent[:_MOST_NAMED], "no result of it is here"))
        if len(absent) > _MOST_NAMED:
            wrong.append(f"of {len(absent)} nodes there is no result; the first {_MOST_NAMED} are named")
        return
    number = max((n for f in found if (n := whole(f.launch.get("nodes"))) is not None), default=None)
    nodes = {f.node for f in found}
    if number is not None and len(nodes) > number:
        wrong.append(f"the job has {amount(number, 'node')}, and results are of {len(nodes)}")
    if number is not None and len(nodes) < number:
        wrong.append(
            f"the job has {amount(number, 'node')}, and {len(nodes)} told something: "
            f"{amount(number - len(nodes), 'is', 'are')} missing"
        )
        return
    if number is None and ranks is not None:
        wrong.append(f"the job has {amount(ranks[0], 'rank')}, and nodes with {ranks[1]} of them told something")
