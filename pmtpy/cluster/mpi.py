"""Regions of an MPI program: each node measured once, the sum known on every rank. Needs mpi4py, in the user's hands.

Sensors of a machine see all its ranks, so one rank of each node reads them: ranks are grouped by the kernel's boot id,
by which containers of one machine are told to be one, and the shared-memory split says who speaks for whom. All
messages go through a communicator of our own, so none meets the program's. Nothing here initialises or ends MPI, or
imports mpi4py: whoever has a communicator has done so. Facts: MPI 4.1 (7.4.2 split, 7.7 attributes), mpi4py 4.1.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pmtpy.cluster.clocks import Clocks, NodeClock, Offset, best_of
from pmtpy.cluster.job import JobEnergy
from pmtpy.cluster.node import NodeEnergy, node_energy, unknown_node
from pmtpy.cluster.visible import differ, limits, numbered
from pmtpy.core import arguments
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.errors import BackendUnavailableError, CoverageError, PmtError, SinkError, TargetError, WorkFailedError
from pmtpy.io.origin import NODE, Launch, Machine, launch_of, this_machine
from pmtpy.regions.measurement import Measurement
from pmtpy.regions.pool import check_targets, watching
from pmtpy.regions.region import Region
from pmtpy.sensor.registry import canonical
from pmtpy.sensor.sensor import Sensor, rails_of

if TYPE_CHECKING:
    from typing_extensions import Self


_ALIKE_TIMES = 0.02  # of the time of the rank that reads: ranks that are inside for so much longer pass for as long


@dataclass(frozen=True, slots=True)
class _Place:
    """Where this rank stands among the nodes.

    Attributes
    ----------
    comm, node : communicator
        Our own, of all ranks, and of those of this node.
    leaders : communicator or None
        Of one rank of each node; None on the others.
    machine : Machine
    launch : Launch
    ranks : tuple of int
        Of this node; on its leader alone.
    """

    comm: Any
    node: Any
    leaders: Any
    machine: Machine
    launch: Launch
    ranks: tuple[int, ...]

    @property
    def reads(self) -> bool:
        return self.leaders is not None


@dataclass(frozen=True, slots=True)
class _Told:
    """What one rank tells the one that reads for its node.

    Attributes
    ----------
    rank : int
    failure : str or None
        How its work failed.
    targets : tuple of str
        Which sensors it names; of a combination, its rails.
    visible : tuple of str
        Which GPUs it may see, where it names them by numbers that depend on that.
    begin_ns, end_ns : int
        When it was inside, on the clock of the node.
    """

    rank: int
    failure: str | None
    targets: tuple[str, ...]
    visible: tuple[str, ...]
    begin_ns: int
    end_ns: int


class MpiRegion(Mapping[str, NodeEnergy]):
    """A stretch of an MPI program, measured on every node. Made by :func:`region`; use it in a with-statement, once.

    Then it is a mapping of the nodes' names to what they used, as a region is one of its sensors.

    Attributes
    ----------
    label : str
    """

    def __init__(
        self,
        label: str,
        place: _Place,
        targets: tuple[str, ...],
        sensors: dict[str, Sensor],
        why: str,
        *,
        barrier: bool,
    ) -> None:
        self.label = label
        self._targets, self._begin_ns, self._end_ns = targets, 0, 0
        self._place, self._barrier, self._why = place, barrier, why
        self._region = Region(label, sensors, without_lost=True) if sensors else None
        self._waiting = Region(label, sensors, without_lost=True) if sensors and barrier else None
        self._result: JobEnergy | None = None
        self._left = False
        self._process = os.getpid()

    def __enter__(self) -> Self:
        if self._barrier:
            self._place.comm.Barrier()
        self._begin_ns = HOST_CLOCK.now_ns()
        if self._region is not None:
            self._region.__enter__()
        if self._barrier:  # whoever leaves the first early, on a node with more ranks than cores, waits to be measured
            self._place.node.Barrier()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:  # a fork of the rank, which MPI knows nothing of: what it sends breaks the job
            return
        if self._barrier:
            self._place.node.Barrier()
            if self._waiting is not None:
                self._waiting.__enter__()
            self._place.comm.Barrier()
            if self._waiting is not None:
                self._waiting.__exit__(None, None, None)
        if self._region is not None:
            self._region.__exit__(None, None, None)
        self._end_ns = HOST_CLOCK.now_ns()
        self._left = True
        if self._barrier:
            self._exchange(error)

    def collect(self) -> JobEnergy:
        """Bring the results of all nodes together; every rank has to call it, outside or behind the region.

        Without barriers, nothing is exchanged before. With them it was done at the end of the region; doing it again
        asks the sensors again, of which slow ones may know more by then.
        """
        if not self._left:
            msg = f"the region {self.label!r} has not ended yet"
            raise CoverageError(msg)
        self._exchange(None)
        return self.result

    @property
    def result(self) -> JobEnergy:
        """What all nodes used; the same on every rank.

        Raises
        ------
        CoverageError
            The region has not ended, or nothing was exchanged yet.
        """
        if self._result is None:
            why = "has no barriers, so nothing was exchanged: let every rank call collect()"
            msg = f"the region {self.label!r} {why if self._left else 'has not ended yet'}"
            raise CoverageError(msg)
        return self._result

    @property
    def total(self) -> Measurement:
        """The sum over all nodes; see :attr:`JobEnergy.total`, which raises where that of a node is not known."""
        return self.result.total

    def __getitem__(self, host: str) -> NodeEnergy:
        return self.result[host]

    def __iter__(self) -> Iterator[str]:
        return iter(self.result)

    def __len__(self) -> int:
        return len(self.result)

    __eq__ = object.__eq__  # two regions are never one, whatever they measured
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self._result) if self._result is not None else repr(self)

    def __repr__(self) -> str:
        return f"<MpiRegion {self.label!r}: {'ended' if self._left else 'not ended'}>"

    def _exchange(self, error: BaseException | None) -> None:
        """Tell all ranks what all nodes used, and which ranks failed: everybody takes part, whatever happened to it."""
        place = self._place
        failure = None if error is None else f"rank {place.comm.rank} raised {error!r}"
        visible = limits(os.environ) if numbered(self._targets) else ()
        own = _Told(place.comm.rank, failure, self._targets, visible, self._begin_ns, self._end_ns)
        ranks: Sequence[_Told] = place.node.gather(own) or ()
        failures: Sequence[str] = [t.failure for t in ranks if t.failure]
        told: tuple[Sequence[NodeEnergy], Sequence[str]] | None = None
        if place.reads:
            each = place.leaders.gather((self._own(ranks), failures))
            if each is not None:
                told = ([_interned(e) for e, _ in each], [f for _, some in each for f in some])
        energies, failures = place.comm.bcast(told)
        self._result = JobEnergy(self.label, energies)
        if failures and error is None:
            msg = f"the region {self.label!r} failed elsewhere: {'; '.join(failures[:3])}"
            raise WorkFailedError(msg)

    def _own(self, ranks: Sequence[_Told]) -> NodeEnergy:
        """Return what this node used; never raises: the others wait for it."""
        place = self._place
        why = _apart(ranks) or self._why
        try:
            if self._region is not None and not why:
                waiting = self._waiting
                node = node_energy(self._region, place.machine, place.launch, waiting=waiting, ranks=place.ranks)
                beyond = [] if self._barrier else _beyond(ranks)
                return replace(node, warnings=(*node.warnings, *beyond, *_besides(place)))
        except Exception as error:  # noqa: BLE001
            why = f"its energy cannot be evaluated: {error!r}"
        return unknown_node(place.machine, place.launch, why, place.ranks)


def _apart(ranks: Sequence[_Told]) -> str:
    """Say in what the ranks of a node differ although one of them reads for all; empty: in nothing."""
    first = ranks[0]
    for other in ranks[1:]:
        if other.targets != first.targets:
            named = " and ".join(f"rank {r.rank} names {', '.join(r.targets)}" for r in (first, other))
            return f"one rank of a node reads for all, but {named}: name on each all sensors of the node"
    return differ([(r.rank, r.visible) for r in ranks])


def _beyond(ranks: Sequence[_Told]) -> list[str]:
    """Warn where ranks of a node were inside before or after the one that read; with barriers none works then."""
    reader = ranks[0]
    before_ns = reader.begin_ns - min(r.begin_ns for r in ranks)
    after_ns = max(r.end_ns for r in ranks) - reader.end_ns
    if before_ns + after_ns <= _ALIKE_TIMES * (reader.end_ns - reader.begin_ns):
        return []
    said = (
        f"without barriers: ranks of the node were inside for {before_ns / 1e9:.3g} s before rank {reader.rank}, which"
        f" reads, and for {after_ns / 1e9:.3g} s after it; what was used then is not in its energy"
    )
    return [said]


def _besides(place: _Place) -> list[str]:
    """Warn where the communicator has not all processes of the node."""
    own, started = len(place.ranks), place.launch.local_size or 0
    if NODE in os.environ or own >= started:  # a name that is given is not the launcher's
        return []
    said = (
        f"the communicator has {own} of {started} processes that the launcher started on the node: what the others use "
        "is in its energy as well, so do not add that of another communicator"
    )
    return [said]


def _interned(energy: NodeEnergy) -> NodeEnergy:
    """Return the record with texts that equal ones share, so that they are sent once."""
    return replace(
        energy,
        warnings=tuple(map(sys.intern, energy.warnings)),
        why=sys.intern(energy.why),
        common=tuple((sys.intern(kind), u) for kind, u in energy.common),
    )


def region(label: str, comm: Any, *targets: str | Sensor, barrier: bool = True) -> MpiRegion:
    """Make a region of an MPI program, to be used in a with-statement by all ranks of ``comm``.

    Parameters
    ----------
    label : str
        Its name.
    comm : mpi4py.MPI.Intracomm
        Whose ranks take part. The first region of each is collective: it finds out who shares a node.
    *targets : str or Sensor
        As for :func:`pmtpy.region`; opened on one rank of each node, once, until the process ends. A node where that
        fails measures nothing, and is named in the result.
    barrier : bool
        Wait for all ranks at the beginning and at the end: then all nodes measure one stretch, the time that they wait
        for each other is known, and the result is there on every rank when the region ends. False, for short
        regions: nobody waits, each node measures its own stretch, and :meth:`MpiRegion.collect` brings them together.

    Raises
    ------
    TargetError
        ``comm`` is no communicator of mpi4py, or there is no such target.
    BackendUnavailableError
        mpi4py is not there.
    WorkFailedError
        At the end of the region, with barriers: another rank left it by an exception. On that rank it is its own.
    """
    arguments.instance(label, str, "the label of a region, which comes first: region('solve', comm, 'rapl')")
    if not targets:
        msg = "a region needs at least one sensor: pmt.mpi.region('solve', comm, 'rapl')"
        raise TargetError(msg)
    check_targets(targets)
    for target in targets:
        if isinstance(target, str):
            canonical(target)
    place = _place_of(comm)
    sensors, why = {}, ""
    if place.reads:
        try:
            sensors = watching(targets)
        except (PmtError, OSError) as error:
            why = str(error)
    named = {rail for t in targets for rail in (rails_of(t) if isinstance(t, Sensor) else (canonical(t),))}
    return MpiRegion(label, place, tuple(sorted(named)), sensors, why, barrier=barrier)


def _place_of(comm: Any) -> _Place:
    library = sys.modules.get("mpi4py.MPI")
    if library is None:
        found = "no communicator can be had: mpi4py is not imported"
        raise BackendUnavailableError(
            "mpi", found, "pip install 'pmtpy[mpi]', and in the program: from mpi4py import MPI"
        )
    if not isinstance(comm, library.Intracomm) or comm == library.COMM_NULL:
        msg = f"a region of an MPI program needs a communicator such as MPI.COMM_WORLD, not {comm!r}"
        raise TargetError(msg)
    if not library.Is_initialized() or library.Is_finalized():
        msg = "MPI is not initialised, or was ended: a region needs it between MPI_Init and MPI_Finalize"
        raise TargetError(msg)
    key = _key(library)
    place: _Place | None = comm.Get_attr(key)
    if place is None:
        place = _set_up(comm, library)
        comm.Set_attr(key, place)
    return place


@functools.cache
def _key(library: Any) -> Any:
    """Return the name by which a communicator keeps what was found out of it."""
    return library.Comm.Create_keyval()


def _set_up(comm: Any, library: Any) -> _Place:
    """Find out who shares a node; collective."""
    own = comm.Dup()
    machine, launch = this_machine(os.environ), launch_of(os.environ)
    memory = own.Split_type(library.COMM_TYPE_SHARED, own.rank)
    # Those of one memory are of one machine, unless they were given names to rehearse several.
    shared = memory.Split(memory.allgather(machine.node).index(machine.node), own.rank)
    memory.Free()
    heads = own.Split(0 if shared.rank == 0 else library.UNDEFINED, own.rank)
    leader = 0
    if heads != library.COMM_NULL:
        # Groups without memory in common can still be on one machine, whose counters are then the same.
        leader = min(rank for node, rank in heads.allgather((machine.node, own.rank)) if node == machine.node)
        heads.Free()
    leader = shared.bcast(leader)
    shared.Free()
    node = own.Split(leader, own.rank)
    ranks = node.gather(own.rank)
    leaders = own.Split(0 if node.rank == 0 else library.UNDEFINED, own.rank)
    reads = leaders != library.COMM_NULL
    return _Place(own, node, leaders if reads else None, machine, launch, tuple(ranks or ()))


# -- clocks ------------------------------------------------------------------------------------------------------------

_EXCHANGES = 20  # with each node, of which the fastest counts


class ClockExchange:
    """Compares the nodes' clocks at its begin and its end, and writes them. Made by :func:`clocks`."""

    def __init__(self, place: _Place, path: Path) -> None:
        self._place, self._path = place, path
        self._found: list[list[Offset]] = []

    def __enter__(self) -> Self:
        self._found.append(self._exchange())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._found.append(self._exchange())
        leaders, problem = self._place.leaders, ""
        machines = leaders.gather(self._place.machine) if leaders is not None else None
        if machines is not None:
            nodes = {
                m.node: NodeClock(m.host, each)
                for m, each in zip(machines, zip(*self._found, strict=True), strict=True)
            }
            try:
                Clocks(HOST_CLOCK.anchor(), nodes).write(self._path)
            except SinkError as refused:
                problem = str(refused)
        problem = self._place.comm.bcast(problem)
        if problem and error is None:
            raise SinkError(problem)

    def _exchange(self) -> list[Offset]:
        """Ask each node in turn; on the first rank, return what its clock is ahead of ours."""
        leaders, now = self._place.leaders, HOST_CLOCK.now_ns
        if leaders is None:
            return []
        if leaders.rank:
            for _ in range(_EXCHANGES):
                leaders.recv(source=0)
                leaders.send(now(), 0)
            return []
        here = now()
        found = [Offset(here, 0.0, 0.0)]
        for other in range(1, leaders.size):
            stamps = []
            for _ in range(_EXCHANGES):
                sent = now()
                leaders.send(None, other)
                stamps.append((sent, leaders.recv(source=other), now()))
            found.append(best_of(stamps))
        return found


def clocks(comm: Any, path: str | os.PathLike[str]) -> ClockExchange:
    """Compare the clocks of the nodes while inside, so that their curves can be laid on one axis.

    All ranks of ``comm`` take part; the first writes ``path``, which ``pmtpy compare --clocks`` and ``view --clocks``
    read. It takes some 20 us for each exchange and node, 20 of them at either end, one node after the other.

    Raises
    ------
    SinkError
        At the end: ``path`` cannot be written.
    """
    return ClockExchange(_place_of(comm), Path(arguments.path(path, "where the clocks are written")))
