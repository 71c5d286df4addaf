"""Known starts of a load: where in a reading the power rose, which the readings alone cannot say.

Pure; seconds, watts. A start is the host's stamp of when it began to launch. Ends are never used: the host learns of
an end tens of milliseconds after the power began to fall.
"""

from __future__ import annotations

import numpy as np

from pmtpy.core.rows import Floats

SLIVER = 0.1  # of a bin: a start this near its end leaves too little to put the energy into
TELLING = 0.5  # of a part-time reading lies after the start: one with less would have its noise more than doubled


def split_starts(bounds_s: Floats, watts: Floats, starts_s: Floats) -> tuple[Floats, Floats]:
    """Cut the bins in which a load is known to have started, without changing their energy.

    Until the start the power was that of the bin before; the rest of the bin's energy came after it. Only starts that
    are alone in their bin and its two neighbours are used, and only where the power rises.
    """
    place = np.searchsorted(bounds_s, starts_s, side="right") - 1
    bounds, values = list(bounds_s), list(watts)
    for i in np.argsort(-starts_s):  # from the last to the first, so that earlier places stay valid
        j = int(place[i])
        alone = np.count_nonzero(np.abs(place - j) <= 1) == 1
        if not (alone and 1 <= j < len(watts) - 1 and watts[j + 1] > watts[j - 1]):
            continue
        left, right, at = float(bounds_s[j]), float(bounds_s[j + 1]), float(starts_s[i])
        before = min(float(watts[j - 1]), float(watts[j]))
        if right - at < SLIVER * (right - left):
            continue
        after = (float(watts[j]) * (right - left) - before * (at - left)) / (right - at)
        bounds.insert(j + 1, at)
        values[j : j + 1] = [before, after]
    return np.asarray(bounds, np.float64), np.asarray(values, np.float64)


def step_starts(
    bounds_s: Floats, watts: Floats, starts_s: Floats, after: Floats, *, telling: float = TELLING
) -> tuple[Floats, Floats]:
    """Let the power step where a load is known to have started.

    Until the start the power is what the last reading shows that saw nothing of it, and from it what the first one
    shows that saw mostly what came after, with the rest taken out. Readings between the two are left out. Only where
    the power rises.

    Parameters
    ----------
    bounds_s : float64, shape (n + 1,)
        Bounds of the readings' bins.
    watts : float64, shape (n,)
        Power of each.
    starts_s : float64, shape (k,)
        Starts with nothing else switched near by.
    after : float64, shape (k, n)
        Share of each reading, from 0 to 1, that lies after each start.
    telling : float
        Least such share of a reading that is used; those with less are left out.
    """
    begins, values, kept = bounds_s[:-1].copy(), watts.copy(), np.full(len(watts), True)
    for at, share in zip(starts_s.tolist(), after, strict=True):
        old, new = np.count_nonzero(share <= 0.0) - 1, np.count_nonzero(share < telling)
        if not (old >= 0 and new < len(watts) and bounds_s[old] < at < bounds_s[new + 1] and watts[new] > watts[old]):
            continue
        mixed = (share >= telling) & (share < 1.0)
        values[mixed] = watts[old] + (watts[mixed] - watts[old]) / share[mixed]
        kept[old + 1 : new] = False
        begins[new] = at
    return np.append(begins[kept], bounds_s[-1]), values[kept]
