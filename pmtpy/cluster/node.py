"""What one node of a job used, or why that is not known; and its file, which :mod:`pmtpy.cluster.gather` reads.

The file says that the measurement has begun until it is replaced by the result, in one step. So a node that was killed
is known by name.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pmtpy.core.numbers import real, stated, whole
from pmtpy.core.state import LEAST_COVERAGE
from pmtpy.errors import FileFormatError, PmtError, SinkError
from pmtpy.io.origin import Launch, Machine, is_shared
from pmtpy.io.whole import write_whole
from pmtpy.regions.region import Region
from pmtpy.regions.total import common_parts, sum_of_all, why_no_sum
from pmtpy.sensor.sensor import acquisition_of

SUFFIX = ".node.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class NodeEnergy:
    """What one node used."""

    # its name, and what tells it from others (:class:`~pmtpy.io.origin.Machine`)
    host: str
    node: str
    # begin_s, end_s: when, in Unix seconds of the node's own clock
    begin_s: float
    end_s: float
    seconds: float
    joules: float | None  # none: not known; ``why`` says why
    uncertainty_joules: float = math.nan  # standard uncertainty; NaN where it is not known
    # (str, float): the parts of it, joules, that it shares with nodes whose sensors are of the same kind, by kind
    common: tuple[tuple[str, float], ...] = ()
    # waiting_joules, waiting_seconds: of that, at the closing barrier, after the last rank of the node had come
    waiting_joules: float | None = None
    waiting_seconds: float | None = None
    coverage: float = 0.0
    lost: int = 0
    virtual: bool = False
    shared: bool | None = None  # whether other jobs may have run on the node; None: nobody says
    warnings: tuple[str, ...] = ()
    why: str = ""  # why the energy is not known; empty: it is
    ranks: tuple[int, ...] = ()  # of the job, on this node, as far as they are known

    @property
    def watts(self) -> float:
        """Mean power over the time that is covered, watts; NaN where it is not known."""
        known_s = self.seconds * self.coverage
        return self.joules / known_s if self.joules is not None and known_s > 0 else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: a number that is not known is None."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> NodeEnergy:
        """Return what :meth:`to_dict` gave.

        Raises KeyError, TypeError, ValueError: the facts are not those of a node.
        """
        known = {f.name: facts[f.name] for f in fields(cls) if f.name in facts}
        known |= {name: _shown(known[name]) for name in ("host", "node", "why") if name in known}
        for name in ("begin_s", "end_s", "seconds"):
            known[name] = stated(known, name)
        for name in ("joules", "waiting_joules", "waiting_seconds", "coverage", "uncertainty_joules", "lost"):
            if known.get(name) is not None:
                known[name] = stated(known, name)
        known["lost"] = int(known.get("lost") or 0)
        if known.get("uncertainty_joules") is None:
            known["uncertainty_joules"] = math.nan
        known["common"] = tuple((str(kind), stated({kind: value}, kind)) for kind, value in known.get("common", ()))
        known["warnings"] = tuple(map(_shown, known.get("warnings", ())))
        known["ranks"] = tuple(map(int, known.get("ranks", ())))
        return cls(**known).believed()

    def believed(self) -> NodeEnergy:
        """Return the record without an energy that cannot be one: over too little time, or below nothing."""
        u = self.uncertainty_joules
        if self.joules is None:
            return self
        why = ""
        if not self.coverage >= LEAST_COVERAGE:
            why = f"of {1.0 - self.coverage:.1%} of the time the energy is not known"
        elif not (self.seconds > 0.0 and math.isfinite(self.seconds)):
            why = f"it measured for {self.seconds:g} s"
        elif u < 0.0 or any(part < 0.0 for _, part in self.common):
            why = "its uncertainty is below zero"
        elif self.joules + 2.0 * (0.0 if math.isnan(u) else u) < 0.0:
            why = f"it says {self.joules:.6g} J: a node that takes energy back is none"
        return replace(self, joules=None, why=why) if why else self


def _shown(text: object) -> str:
    """Return a text of somebody else as one line that a terminal only shows."""
    line = "; ".join(part.strip() for part in str(text).splitlines())
    return "".join(c if c.isprintable() else "?" for c in line)


def node_energy(
    region: Region,
    machine: Machine,
    launch: Launch,
    *,
    waiting: Region | None = None,
    ranks: Sequence[int] = (),
) -> NodeEnergy:
    """Evaluate a region as that of a node; what goes wrong is what is said of the node."""
    outcomes = region.outcomes()
    failed = [f"{target}: {m}" for target, m in outcomes.items() if isinstance(m, PmtError)]
    total = sum_of_all(region.sensors, outcomes)
    why = "; ".join(failed)
    if total is None:
        why = why or f"its sensors make no sum: {why_no_sum(region.sensors)}; name fewer"
    elif total.coverage < LEAST_COVERAGE:
        why = f"of {1.0 - total.coverage:.1%} of the time the energy is not known: {'; '.join(total.warnings[:3])}"
    unknown = unknown_node(machine, launch, why, ranks, span_of(region))
    if total is None or why:
        return replace(unknown, seconds=region.seconds)
    idle = None if waiting is None else sum_of_all(waiting.sensors, waiting.outcomes())
    return replace(
        unknown,
        seconds=total.seconds,
        joules=total.joules,
        uncertainty_joules=total.uncertainty_joules,
        common=tuple(common_parts(region.sensors, total).items()),
        waiting_joules=None if idle is None else idle.joules,
        waiting_seconds=None if idle is None else idle.seconds,
        coverage=total.coverage,
        lost=total.lost,
        virtual=total.virtual,
        warnings=total.warnings,
    )


def unknown_node(
    machine: Machine, launch: Launch, why: str, ranks: Sequence[int] = (), span_s: tuple[float, float] = (0.0, 0.0)
) -> NodeEnergy:
    """Return the record of a node that cannot measure; ``span_s``: when it would have."""
    begin_s, end_s = span_s
    return NodeEnergy(
        machine.host,
        machine.node,
        begin_s,
        end_s,
        end_s - begin_s,
        None,
        shared=is_shared(launch, machine),
        why=why,
        ranks=tuple(ranks),
    )


def span_of(region: Region) -> tuple[float, float]:
    """Return when a region began and ended, Unix seconds."""
    made = acquisition_of(region.sensors[0])
    now = made.clock.anchor()
    begin_ns, end_ns = region.span_ns
    return now.unix_s(begin_ns), now.unix_s(end_ns)


# -- its file ----------------------------------------------------------------------------------------------------------


class NodeFile:
    """The file of this node in a folder that a job's nodes share. Made before the work begins.

    Raises SinkError: the folder cannot be written to.
    """

    def __init__(self, folder: Path, machine: Machine, launch: Launch, about: str, begun_s: float) -> None:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", machine.host)
        # Neither the time nor the process tells two apart: containers of one machine have processes of one number.
        self.path = folder / f"{name}.{round(begun_s * 1e6)}.{secrets.token_hex(4)}{SUFFIX}"
        self._facts: dict[str, Any] = {
            "pmtpy_node": _FORMAT,
            "host": machine.host,
            "node": machine.node,
            "launch": launch.to_dict(),
            "about": about,
            "begun_s": begun_s,
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot make {folder}: {error.strerror}"
            raise SinkError(msg) from error
        write_whole(self.path, {**self._facts, "energy": None})

    def not_begun(self, why: str) -> None:
        """Say why nothing was begun after all."""
        write_whole(self.path, {**self._facts, "energy": None, "why": why})

    def finish(
        self,
        energy: NodeEnergy,
        status: int | None = None,
        failed: Sequence[tuple[int | None, int | None]] = (),
        *,
        why: str = "",
    ) -> None:
        """Put the result in the place of the beginning.

        Parameters
        ----------
        status : int, optional
            Of the command of the process that measures.
        failed : sequence of (rank, status)
            Of those of other processes of the node that did not end well; None: not known.
        why : str
            Why it is not whole, and may be replaced.
        """
        ended = {"exit_status": status, **({"failed": [list(each) for each in failed]} if failed else {})}
        write_whole(self.path, {**self._facts, "energy": energy.to_dict(), **ended, **({"why": why} if why else {})})


def _check_format(told: object) -> None:
    if real(told) != _FORMAT:
        msg = f"its format is {told!r}, and this version of pmtpy knows {_FORMAT}"
        raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A file of a node, as it was read."""

    path: Path
    # host, node, about, job:
    host: str
    node: str
    about: str
    job: str
    launch: Mapping[str, Any]
    begun_s: float
    energy: NodeEnergy | None  # none: it has begun and has not ended
    exit_status: int | None
    failed: tuple[tuple[int | None, int | None], ...] = ()  # (rank, status) of other processes that did not end well
    why: str = ""  # why it has not begun after all, or its energy is not all

    @property
    def ended(self) -> bool:
        """Whether what it says is the last word."""
        return self.energy is not None and not self.why


def read_node(path: Path) -> NodeRecord:
    """Read the file of a node.

    Raises FileFormatError: it is not one, or not whole.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            msg = f"{path} is no ordinary file"
            raise FileFormatError(msg)
        facts = json.loads(path.read_bytes())
        _check_format(facts["pmtpy_node"])
        energy = None if facts["energy"] is None else NodeEnergy.from_dict(facts["energy"])
        launch = dict(facts["launch"])
        return NodeRecord(
            path,
            _shown(facts["host"]),
            _shown(facts["node"]),
            _shown(facts["about"]),
            str(launch["job"]),
            launch,
            stated(facts, "begun_s"),
            energy,
            whole(facts.get("exit_status")),
            tuple((whole(rank), whole(status)) for rank, status in facts.get("failed", ())),
            _shown(facts.get("why") or ""),
        )
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise FileFormatError(msg) from error
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{path} is not the whole file of a node: {error!r}"
        raise FileFormatError(msg) from error
