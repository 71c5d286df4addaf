"""Loads whose falls stop half-way, as those of boards that keep their clocks do."""

from __future__ import annotations

import numpy as np

from pmtpy.core.rows import Floats
from pmtpy.emulators.load import Table


def with_tails(starts_s: Floats, watts: Floats, hold_s: float, share: float) -> Table:
    """Make steps whose falls stop half-way: the board keeps its clocks for ``hold_s`` before it idles.

    After each fall the power stays at ``share`` of the drop above the lower level for ``hold_s``, or until the next
    step: idle after a load is not idle before it.
    """
    starts, levels = [float(starts_s[0])], [float(watts[0])]
    for i in range(1, len(starts_s)):
        here, level, before = float(starts_s[i]), float(watts[i]), float(watts[i - 1])
        if level < before and hold_s > 0:
            starts.append(here)
            levels.append(level + share * (before - level))
            here += hold_s
            if i + 1 < len(starts_s) and here >= starts_s[i + 1]:
                continue
        starts.append(here)
        levels.append(level)
    return Table(np.array(starts), np.array(levels))
