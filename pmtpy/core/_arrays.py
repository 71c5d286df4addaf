"""The two kinds of arrays that everything here is made of, and their middle."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def median(values: Floats | Ints) -> float:
    """Return the median of values that are all known, one at least.

    That of numpy first loads ``numpy.ma``, which costs more than all else that a first region does.
    """
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0
