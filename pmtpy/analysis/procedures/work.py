"""What an application's own log of work costs: joules for each gigabyte over request sizes, or for anything. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.core.rows import Floats
from pmtpy.errors import DeclinedError

MIXED = "mixed"
_HOLE = 10.0  # usual steps without a row, as for every recording


@dataclass(frozen=True, slots=True)
class Cost:
    """One kind of work."""

    kind: str  # what the log calls it (a request size, a direction)
    windows: int  # intervals of the log that are covered by the recording
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
    coarse: bool  # the curve has rows so far apart that windows which follow each other share their energy


def join(  # noqa: PLR0917  (a log, and a curve)
    starts_s: Floats, ends_s: Floats, amounts: Floats, kinds: Sequence[str], t_s: Floats, joules: Floats, lost: Floats
) -> Joined:
    """Join windows of work with a curve of energy.

    Parameters
    ----------
    starts_s, ends_s, amounts : float64, shape (n,)
        Windows in the times of the curve, and the work done in each.
    kinds : sequence of str
        Of each window.
    t_s, joules : float64, shape (m,)
        The curve: instants and cumulative energy.
    lost : float64, shape (m,)
        Rows missing before each row; a window that holds any is left out, and one that ends where the curve has no
        row for more than ten usual steps: nothing says when the energy of that time was used.

    Raises DeclinedError: no window is covered.
    """
    known = np.isfinite(joules)
    inside = (starts_s >= t_s[0]) & (ends_s <= t_s[-1]) & (ends_s > starts_s)
    holes = np.cumsum(np.maximum(lost, 0.0) + ~known)
    missing = np.interp(ends_s, t_s, holes) - np.interp(starts_s, t_s, holes)
    steps = np.diff(t_s)
    usual_s = float(np.median(steps)) if len(steps) else 0.0
    gap = np.append(steps > _HOLE * usual_s, np.array([False]))
    for ends in (starts_s, ends_s):
        row = np.clip(np.searchsorted(t_s, ends, side="right") - 1, 0, len(t_s) - 1)
        inside &= ~(gap[row] & (ends > t_s[row]))
    inside &= missing == 0.0
    working = inside & (amounts > 0.0)
    if not working.any():
        msg = "no interval of the log in which work was done lies within the recording; see that their clocks agree"
        raise DeclinedError(msg)
    used = np.interp(ends_s, t_s[known], joules[known]) - np.interp(starts_s, t_s[known], joules[known])
    names = np.array(kinds, object)
    costs = tuple(
        _cost(kind, working & (names == kind), ends_s - starts_s, used, amounts) for kind in dict.fromkeys(kinds)
    )
    return Joined(
        tuple(cost for cost in costs if cost.windows), int((~inside).sum()), int((inside & ~(amounts > 0.0)).sum()),
        len(costs) > 1 and float(np.median((ends_s - starts_s)[working])) < 2.0 * usual_s,
    )  # fmt: skip


def _cost(
    kind: str, mine: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], seconds: Floats, used: Floats, amounts: Floats
) -> Cost:
    n, work, energy = int(mine.sum()), float(amounts[mine].sum()), float(used[mine].sum())
    if not n:
        return Cost(kind, 0, 0.0, 0.0, 0.0, float("nan"), float("nan"))
    ratio = energy / work
    rest = used[mine] - ratio * amounts[mine]  # of a ratio of sums, as in survey sampling
    u = float(np.sqrt(n / (n - 1) * (rest @ rest))) / work if n > 1 else float("nan")
    return Cost(kind, n, float(seconds[mine].sum()), energy, work, ratio, u)
