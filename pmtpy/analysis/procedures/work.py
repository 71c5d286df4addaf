"""What an application's own log of work costs: joules for each gigabyte over request sizes, or for anything. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.procedures.windows import energies, resolves, within
from pmtpy.analysis.signal.trace import PowerTrace
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
    # joules for a unit of work, and its standard uncertainty by the scatter of windows; NaN for a single one
    per_unit: float
    u: float


@dataclass(frozen=True, slots=True)
class Joined:
    """Costs by kind, and what was left out: windows beyond the recording or with lost rows, or without work."""

    costs: tuple[Cost, ...]
    outside: int
    idle: int


def join(starts_s: Floats, ends_s: Floats, amounts: Floats, kinds: Sequence[str], curve: PowerTrace) -> Joined:
    """Join windows of work with a curve of energy.

    Windows that follow each other and are shorter than what the rows of the curve resolve are taken together.

    Parameters
    ----------
    starts_s, ends_s, amounts : float64, shape (n,)
        Windows in the times of the curve, in order, and the work done in each.
    kinds : sequence of str
        Of each window.

    Raises DeclinedError: of no window in which work was done the energy is known.
    """
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
    return Joined(
        tuple(
            _cost(kind, *(v[told & (names == kind)] for v in (ends - starts, used, done)))
            for kind in dict.fromkeys(names[told])
        ),
        int(count[~known].sum()),
        int(count[known & ~working].sum()),
    )


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


def _cost(kind: str, seconds: Floats, used: Floats, amounts: Floats) -> Cost:
    n, work, energy = len(used), float(amounts.sum()), float(used.sum())
    ratio = energy / work
    rest = used - ratio * amounts  # of a ratio of sums, as in survey sampling
    u = float(np.sqrt(n / (n - 1) * (rest @ rest))) / work if n > 1 else float("nan")
    return Cost(kind, n, float(seconds.sum()), energy, work, ratio, u)
