"""Where a process stands in its job: scheduler, job, rank, rank within the node. Read from the environment, no library.

The innermost launcher knows best: what ``torchrun`` starts inherits the variables of the Slurm step around it, and
those would give all its ranks one place. Sources: srun(1) and sbatch(1) of Slurm 22.05, the manual of ``torchrun``,
what the process managers of MPICH 5.0 and Open MPI 5.0 set.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

NODE = "PMT_NODE"
"""Takes the place of the host's name and of the kernel's boot id, to rehearse several nodes on one machine."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Where a launcher says rank, size, rank on the node, size on the node:
_OF_TORCHRUN = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
_OF_OPEN_MPI = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
_OF_MPICH = "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
_NO_STEP = (
    0xFFFFFFF0  # SLURM_MAX_NORMAL_STEP_ID of slurm.h: from here on numbers are those of shells, which no srun made
)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launcher says of a process and its job."""

    scheduler: str = ""  # ``slurm``, ``torchrun``, ``openmpi``, ``mpich``; empty: none
    job: str = ""  # what tells this job from others: its id, and that of the step; empty where nobody says
    # of the process: in the job, and on its node
    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    nodes: int | None = None  # how many the job has
    hosts: str = ""  # their names, where they are said, as Slurm writes a list; :func:`host_names` tells them
    cpus: int | None = None  # of this node, that the job may use

    @property
    def reads(self) -> bool:
        """Whether this process is the one of its node that measures."""
        return not self.local_rank

    @property
    def in_front(self) -> bool:
        """Whether no launcher started this process, but it stands in front of one: in the script or shell of a job."""
        return bool(self.scheduler) and self.rank is None

    @property
    def tells_all(self) -> bool:
        """Whether who ends the job tells every process of it, of whatever group: so does slurmstepd of Slurm 22.05."""
        return self.scheduler == "slurm"

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)


def launch_of(environ: Mapping[str, str], above: Callable[[], Iterable[Sequence[str]]] | None = None) -> Launch:
    """Read the environment of a process.

    Parameters
    ----------
    above : callable, optional
        Gives the command lines of the processes above it, the nearest first; asked where a launcher puts into no
        variable what tells one job from another. None: those of this process.
    """
    number = partial(_number, environ)
    around = _of_slurm(environ)

    def started(own: str) -> str:
        # An mpiexec is a job of its own, of which a batch may have many. The step is that of its daemon, where it has
        # one, and so differs between nodes.
        return "/".join(filter(None, (_batch(environ), own))) if own else around.job

    def within(scheduler: str, job: str, names: Sequence[str], nodes: int | None = around.nodes) -> Launch:
        rank, size, local_rank, local_size = map(number, names)
        return Launch(scheduler, job, rank, size, local_rank, local_size, nodes, around.hosts, around.cpus)

    if "LOCAL_RANK" in environ and "WORLD_SIZE" in environ:
        size, local = number("WORLD_SIZE"), number("LOCAL_WORLD_SIZE")
        whole = size // local if size and local and size % local == 0 else None
        run = environ.get("TORCHELASTIC_RUN_ID", "")
        run = "" if run == "none" else run
        # Workers that failed are started anew under the same name. The agent of each node counts that for itself, so
        # the count tells one attempt from another on one node alone.
        again = number("TORCHELASTIC_RESTART_COUNT") if run and whole == 1 else None
        job = "/".join(filter(None, (around.job, f"{run}r{again}" if again else run)))
        return within("torchrun", job, _OF_TORCHRUN, whole or around.nodes)
    if "OMPI_COMM_WORLD_RANK" in environ:
        return within("openmpi", started(environ.get("PMIX_NAMESPACE", "")), _OF_OPEN_MPI)
    if "PMI_RANK" in environ and "MPI_LOCALRANKID" in environ:
        return within("mpich", started(_of_hydra((above or _above)())), _OF_MPICH)
    return around


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    return next((int(text) for name in names if (text := environ.get(name, "")).isdecimal()), None)


def _batch(environ: Mapping[str, str]) -> str:
    """Return what tells a job of Slurm from others; empty: there is none."""
    job = environ.get("SLURM_JOB_ID", "")
    # One that is put into the queue again keeps its number, and its steps count from zero again.
    again = _number(environ, "SLURM_RESTART_COUNT")
    named = environ.get("SLURM_CLUSTER_NAME", ""), f"{job}r{again}" if again else job
    return ".".join(filter(None, named)) if job else ""


def _of_slurm(environ: Mapping[str, str]) -> Launch:
    """Return the place that Slurm says: in a step, or in a job's script or shell, where nothing was started yet."""
    batch, number = _batch(environ), partial(_number, environ)
    if not batch:
        return Launch()
    cpus = _cpus_of_the_job(environ) or number("SLURM_CPUS_ON_NODE")
    step = number("SLURM_STEP_ID")
    if step is None or step >= _NO_STEP:
        nodes = number("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
        return Launch("slurm", batch, nodes=nodes, hosts=environ.get("SLURM_JOB_NODELIST", ""), cpus=cpus)
    own = number("SLURM_NODEID")
    tasks = list(tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", "")))
    return Launch(
        "slurm",
        f"{batch}.{step}",
        number("SLURM_PROCID"),
        number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        number("SLURM_LOCALID"),
        tasks[own] if own is not None and own < len(tasks) else None,
        number("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
        environ.get("SLURM_STEP_NODELIST", "") or environ.get("SLURM_JOB_NODELIST", ""),
        cpus,
    )


def _cpus_of_the_job(environ: Mapping[str, str]) -> int | None:
    """Return how many CPUs of this node Slurm has given to the job; a step may have asked for fewer of them."""
    each = list(tasks_per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", "")))
    if len(set(each)) < 2:
        return next(iter(each), None)
    names, here = host_names(environ.get("SLURM_JOB_NODELIST", "")), short_name(_host(environ))
    return next((cpus for name, cpus in zip(names, each, strict=False) if short_name(name) == here), None)


def _of_hydra(above: Iterable[Sequence[str]]) -> str:
    """Return where MPICH's mpiexec listens, which all its nodes are told and no other job has; empty: it is not seen.

    Its process manager sets no variable for it, but gives it to the proxy that starts the ranks of a node.
    """
    for words in above:
        if "--control-port" in words[:-1]:
            return words[words.index("--control-port") + 1]
    return ""


def _above(proc: Path = Path("/proc")) -> Iterator[list[str]]:
    """Yield the command lines of the processes above this one, as far as they can be seen."""
    pid = os.getppid()
    try:
        while pid > 1:
            yield (proc / str(pid) / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            facts = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            pid = int(facts.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return


def host_names(text: str) -> Iterator[str]:
    """Yield the names in a list of Slurm's: ``node[01-03,7],login`` is node01, node02, node03, node7, login."""
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        found = re.match(r"([^\[]*)\[([^\]]*)\](.*)$", part)
        if found is None:
            yield part
            continue
        before, ranges, after = found.groups()
        for item in ranges.split(","):
            first, _, last = item.partition("-")
            ends = list(host_names(after)) or [""]
            if not (first.isdecimal() and (last or first).isdecimal()):
                continue
            for n in range(int(first), int(last or first) + 1):
                yield from (f"{before}{n:0{len(first)}d}{end}" for end in ends)


def tasks_per_node(text: str) -> Iterator[int]:
    """Yield the numbers in a list of Slurm's: ``2(x3),1`` is 2, 2, 2, 1."""
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        yield from [int(count)] * int(times or 1)


@dataclass(frozen=True, slots=True)
class Machine:
    """The node that this process runs on."""

    host: str  # its name; containers share or invent them
    # what tells it from others: the kernel's boot id, which processes have in common that see the same counters
    node: str
    cpus: int  # all that it has


def this_machine(environ: Mapping[str, str]) -> Machine:
    """Look at the node that this process runs on."""
    rehearsed = environ.get(NODE, "")
    host = rehearsed or _host(environ) or "localhost"
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        boot = ""  # another system: its name has to do
    return Machine(host, rehearsed or boot or host, os.cpu_count() or 0)


def _host(environ: Mapping[str, str]) -> str:
    """Return the name of this node: the one that Slurm has for it, where it has one.

    MPICH's mpiexec gives all its processes the environment in which it was called, so the name in it may be that of
    another node, the first of the batch. Which one this is, the kernel knows; but its name need not be Slurm's.
    """
    named, here = environ.get("SLURMD_NODENAME", ""), platform.node()
    if not named or short_name(named) == short_name(here):
        return named or here
    of_the_job = host_names(environ.get("SLURM_JOB_NODELIST", ""))
    return next((name for name in of_the_job if short_name(name) == short_name(here)), named)


def short_name(host: str) -> str:
    """Return a host's name without its domain; upper case makes no difference (RFC 4343)."""
    return host.partition(".")[0].lower()


def is_shared(launch: Launch, machine: Machine) -> bool | None:
    """Whether others may run on this node at the same time: the job has fewer CPUs than it; None: nobody says."""
    return None if launch.cpus is None or not machine.cpus else launch.cpus < machine.cpus


def origin_of(machine: Machine, launch: Launch) -> dict[str, Any]:
    """Return what the metadata of a recording tell of where it was made: ``machine``, and ``launch`` if it had one."""
    where: dict[str, Any] = {"machine": {"host": machine.host, "node": machine.node}}
    return where | ({"launch": launch.to_dict() | {"shared": is_shared(launch, machine)}} if launch.scheduler else {})


def origin_in(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same of metadata that were read."""
    return {key: facts[key] for key in ("machine", "launch") if isinstance(facts.get(key), Mapping)}
