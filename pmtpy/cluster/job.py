"""The energy of a job: that of its nodes, added up, with what is missing named. Pure.

Uncertainties of different nodes add in squares, but for what sensors of one kind share (their gain): that adds
linearly, since all of them may be off the same way (JCGM 100:2008, 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pmtpy.analysis.uncertainty.components import joined
from pmtpy.cluster.node import NodeEnergy
from pmtpy.core.channel import TOTAL
from pmtpy.core.presentation import amount, number_or_none
from pmtpy.errors import CoverageError
from pmtpy.regions.measurement import Measurement

_ALIKE_TIMES = (
    0.98  # times of nodes that differ by less pass for those of one job: launchers start and end them in turn
)


def summed_uncertainty(nodes: Sequence[NodeEnergy]) -> float:
    """Standard uncertainty of the sum of nodes, joules; NaN where that of one is not known."""
    return joined((node.uncertainty_joules, node.common) for node in nodes)


class JobEnergy(Mapping[str, NodeEnergy]):
    """What a job used: a mapping of its nodes' names to what they used, and their sum.

    Parameters
    ----------
    label : str
        What was measured.
    missing : mapping of str to str
        Nodes that are known to belong to the job and told nothing, and why.
    problems : sequence of str
        What else keeps the sum from being that of the job.
    """

    def __init__(
        self,
        label: str,
        nodes: Sequence[NodeEnergy],
        missing: Mapping[str, str] | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        self.label = label
        self._nodes: dict[str, NodeEnergy] = {}
        for node in nodes:
            name = node.host if node.host not in self._nodes else f"{node.host} ({node.node})"
            self._nodes[name] = node
        self._known = [n for n in nodes if n.joules is not None]
        unknown = {name: n.why for name, n in self._nodes.items() if n.joules is None}
        self.missing: dict[str, str] = {**unknown, **(missing or {})}
        self.problems = tuple(problems)

    def __getitem__(self, host: str) -> NodeEnergy:
        return self._nodes[host]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def complete(self) -> bool:
        """Whether the energy of every node is known, and nothing else is wrong."""
        return bool(self._known) and not self.missing and not self.problems

    @property
    def known(self) -> Measurement:
        """The sum over the nodes whose energy is known, whichever those are; NaN where there are none.

        Its power is the mean over its seconds, the longest of any node: one that ended before takes none afterwards.
        """
        nodes = self._known
        joules = math.fsum(n.joules for n in nodes if n.joules is not None) if nodes else math.nan
        seconds = max((n.seconds for n in nodes or self._nodes.values() if n.seconds > 0), default=math.nan)
        watts = math.fsum(n.watts * n.seconds / seconds for n in nodes if n.seconds > 0)
        of_all = len(self._nodes) + len([m for m in self.missing if m not in self._nodes])
        covered = math.fsum(n.coverage for n in nodes) / of_all if of_all else 0.0
        without = [f"{name} is {how} in the sum: {why}" for name, how, why in self._left_out()]
        return Measurement(
            target=f"{len(nodes)} of {of_all} nodes" if without else amount(of_all, "node"),
            name=TOTAL,
            virtual=any(n.virtual for n in nodes),
            seconds=seconds,
            joules=joules,
            watts=watts if nodes else math.nan,
            uncertainty_joules=summed_uncertainty(nodes) if nodes else math.nan,
            method="sum of nodes",
            refresh_s=None,
            window_s=None,
            coverage=covered,
            lost=sum(n.lost for n in nodes),
            warnings=(*self.problems, *without, *self._warnings()),
        )

    def _left_out(self) -> list[tuple[str, str, str]]:
        """Return what is not in the sum, whether that is all there is of it, and why."""
        known = {name for name, node in self._nodes.items() if node.joules is not None}
        return [(name, "not all" if name in known else "not", why) for name, why in self.missing.items()]

    def _warnings(self) -> list[str]:
        """Return what nodes warn of, each text once, with how many say it."""
        said: dict[str, list[str]] = {}
        for name, node in self._nodes.items():
            for warning in dict.fromkeys(node.warnings):
                said.setdefault(warning, []).append(name)
        shared = [name for name, node in self._nodes.items() if node.shared]
        found = [f"{_some(names)}: {text}" for text, names in said.items()]
        times = [n.seconds for n in self._known if n.seconds > 0]
        if times and min(times) < _ALIKE_TIMES * max(times):
            found.append(
                f"nodes measured for {min(times):.4g} to {max(times):.4g} s: the power of the sum is the mean over the"
                " longest, and what a node used before or after its own time is not in it"
            )
        if shared:
            found.append(
                f"{_some(shared)}: the job has not all CPUs of the node, so the energy may be that of other jobs too"
            )
        return found

    @property
    def total(self) -> Measurement:
        """The sum over all nodes.

        Raises CoverageError: a node has no sensor, lost it, or told nothing; ``known`` is the sum of the others.
        """
        if not self.complete:
            why = "; ".join([*self.problems, *(f"{name}: {why}" for name, why in self.missing.items())])
            msg = f"the energy of {self.label!r} is not known as a whole: {why or 'no node measured it'}"
            raise CoverageError(msg)
        return self.known

    @property
    def slowest(self) -> str:
        """The node that worked longest: its seconds less those that it waited for others; empty: none is known."""
        worked = {
            name: n.seconds - (n.waiting_seconds or 0.0) for name, n in self._nodes.items() if n.joules is not None
        }
        return max(worked, key=lambda name: worked[name], default="")

    @property
    def imbalance_joules(self) -> float:
        """Energy that nodes used while they waited for the slowest; NaN where nobody waited at a barrier."""
        waited = [n.waiting_joules for n in self._known]
        known = [w for w in waited if w is not None]
        return math.fsum(known) if known and len(known) == len(waited) else math.nan

    def __str__(self) -> str:
        """Return the job in one line, and one for each node that is not in the sum."""
        lines = [f"{self.label}: {self.known}"]
        if math.isfinite(self.imbalance_joules) and len(self._known) > 1:
            share = self.imbalance_joules / self.known.joules if self.known.joules else 0.0
            lines.append(f"  slowest: {self.slowest}; waiting for it: {self.imbalance_joules:.4g} J ({share:.1%})")
        lines += [f"  {problem}" for problem in self.problems]
        lines += [f"  {how} in the sum: {name}: {why}" for name, how, why in self._left_out()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<JobEnergy {self.label!r} of {amount(len(self), 'node')}{'' if self.complete else ', not complete'}>"

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        imbalance = self.imbalance_joules
        return {
            "label": self.label,
            "complete": self.complete,
            "known": self.known.to_dict(),
            "nodes": {name: node.to_dict() for name, node in self._nodes.items()},
            "missing": self.missing,
            "problems": list(self.problems),
            "slowest": self.slowest or None,
            "imbalance_joules": number_or_none(imbalance),
        }


def _some(names: Sequence[str]) -> str:
    """Join names, of very many the first."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
