"""What an application's own log of work costs: joules for each gigabyte over request sizes, or for anything. Pure.

Stretches of one kind of work are judged as regions are: the lag that the sensor states is taken out, and what its
readings do not tell of their ends is in the uncertainty. Kinds that take turns differ at all of these ends alike, so
what is open there adds up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.procedures.windows import energies, resolves, within
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.analysis.uncertainty.budget import UncertaintyBudget, uncertainty_budget
from pmtpy.analysis.uncertainty.components import COMPONENTS
from pmtpy.analysis.uncertainty.interval import Interval
from pmtpy.analysis.uncertainty.interval_statistics import lag_corrected
from pmtpy.analysis.uncertainty.recorded import RowsOfPower
from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Cost:
    """One kind of work."""

    kind: str  # what the log calls it (a request size, a direction)
    windows: int  # intervals of the log that are covered by the recording, those too short for its rows as one
    # of these windows
    seconds: float
    joules: float
    amount: float
    per_unit: float  # joules for a unit of work
    # its standard uncertainty: by the scatter of windows (NaN for a single one), by the sensor, and by both
    scatter_u: float
    sensor_u: float
    u: float
    warnings: tuple[str, ...] = ()  # what a reader must know of its energy, of the stretch of middle length


@dataclass(frozen=True, slots=True)
class Joined:
    """Costs by kind, and what was left out: windows beyond the recording or with lost rows, or without work."""

    costs: tuple[Cost, ...]
    outside: int
    idle: int


class WorkWindows(NamedTuple):
    """Windows of work in order, shape (n,): in the times of the recording, how much was done in each, of which kind."""

    starts_s: Floats
    ends_s: Floats
    amounts: Floats
    kinds: Sequence[str]


def join(work: WorkWindows, curve: PowerTrace, shown: ShownPower) -> Joined:
    """Join windows of work with a curve of energy.

    Windows that follow each other and are shorter than what the rows of the curve resolve are taken together.

    Parameters
    ----------
    shown : ShownPower
        The rows that the curve is made of.

    Raises DeclinedError: of no window in which work was done the energy is known.
    """
    starts_s, ends_s, amounts, kinds = work
    groups = _groups(starts_s, ends_s, curve)
    first, count = groups[:-1], np.diff(groups)
    starts, ends, done = starts_s[first], ends_s[groups[1:] - 1], np.add.reduceat(amounts, first)
    used = energies(curve, starts, ends)
    known, working = np.isfinite(used), done > 0.0
    if not (known & working).any():
        inside = (starts >= curve.start_s) & (ends <= curve.end_s)
        msg = "no interval of the log in which work was done lies within the recording; see that their clocks agree"
        if (inside & working).any():
            msg = (
                "in every interval of the log in which work was done the recording lacks rows, or has them too far "
                "apart: record the power more often"
            )
        raise DeclinedError(msg)
    names = np.array([_kind(kinds[a:b], amounts[a:b]) for a, b in pairwise(groups.tolist())], object)
    told = known & working
    costs = []
    for kind in dict.fromkeys(names[told]):
        of = told & (names == kind)
        begins = of & ~(np.append(False, of[:-1]) & np.append(False, starts[1:] == ends[:-1]))
        run = np.flatnonzero(begins[of])
        stretches = [
            shown.stretch(begin, end, joules)
            for begin, end, joules in zip(
                starts[of][run], ends[of][np.append(run[1:], of.sum()) - 1], np.add.reduceat(used[of], run), strict=True
            )
        ]
        costs.append(_cost(kind, ends[of] - starts[of], used[of], done[of], stretches))
    return Joined(tuple(costs), int(count[~known].sum()), int(count[known & ~working].sum()))


class _Stretch(NamedTuple):
    """Windows of one kind, one after the other."""

    seconds: float
    joules: float
    budget: UncertaintyBudget


class ShownPower(NamedTuple):
    """The rows of a power, and what is known of it, as metadata state it.

    ``time_u_s`` is the standard uncertainty of the rows' times, ``aged_s`` how old a value may be at its row.
    """

    channel: Channel
    rows: RowsOfPower
    time_u_s: float = 0.0
    aged_s: float = 0.0

    def stretch(self, start_s: float, end_s: float, joules: float) -> _Stretch:
        """Judge the energy of a stretch of time, without the lag that is stated."""
        seconds = float(end_s - start_s)
        interval = Interval(seconds, [float(joules)], [0.0], time_u_s=self.time_u_s, aged_s=self.aged_s)
        seen = lag_corrected(self.rows.seen(self.channel, float(start_s), interval))
        return _Stretch(seconds, seen.joules, uncertainty_budget(self.channel, seen))


def _groups(starts_s: Floats, ends_s: Floats, curve: PowerTrace) -> npt.NDArray[np.int64]:
    """Return where windows begin that the curve resolves or does not know, and at last the number of windows."""
    known = within(curve, starts_s, ends_s)
    alone = resolves(curve, starts_s, ends_s) | ~known
    apart = np.append(np.append(True, starts_s[1:] != ends_s[:-1]) | ~known, True)
    found: list[int] = []
    whole = True  # the group that was begun last is long enough
    for i, first in enumerate(apart.tolist()):
        if first and not whole and not apart[found[-1]]:
            found.pop()  # what is too short is of the group before, where it follows that
        if first or whole:
            found.append(i)
        begin = found[-1]
        if i < len(starts_s):
            whole = alone[i] if i == begin else resolves(curve, starts_s[begin : begin + 1], ends_s[i : i + 1])[0]
    return np.array(found, np.int64)


def _kind(kinds: Sequence[str], amounts: Floats) -> str:
    """Return what windows that are taken together are called: by those with work, if there are any."""
    names = {kind for kind, amount in zip(kinds, amounts.tolist(), strict=True) if amount > 0.0} or set(kinds)
    return names.pop() if len(names) == 1 else MIXED


def _cost(kind: str, seconds: Floats, used: Floats, amounts: Floats, stretches: Sequence[_Stretch]) -> Cost:
    n, work, energy = len(used), float(amounts.sum()), math.fsum(s.joules for s in stretches)
    rest = used - float(used.sum()) / work * amounts  # of a ratio of sums, as in survey sampling
    scatter = float(np.sqrt(n / (n - 1) * (rest @ rest))) / work if n > 1 else math.nan
    own = _together([s.budget for s in stretches]) / work
    u = own if math.isnan(scatter) else math.hypot(scatter, own)
    middle = sorted(stretches, key=lambda s: s.seconds)[len(stretches) // 2]
    return Cost(
        kind, n, float(seconds.sum()), energy, work, energy / work, scatter, own, u, tuple(middle.budget.warnings)
    )


def _together(budgets: Sequence[UncertaintyBudget]) -> float:
    """Standard uncertainty of a sum of energies, joules, all of which err alike but by what is new in each."""
    causes: dict[str, list[float]] = {}
    for budget in budgets:
        for name, u in budget.components:
            causes.setdefault(name, []).append(u)
    each = [(COMPONENTS[name], u) for name, u in causes.items()]
    return math.hypot(*(math.fsum(u) if of.lasting or of.repeated or of.shared else math.hypot(*u) for of, u in each))
