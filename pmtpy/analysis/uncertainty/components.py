"""The named parts of an uncertainty, and how each adds up over channels, sensors, intervals and repetitions.

docs/uncertainty.md derives them. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pmtpy.core.response import Response

STANDSTILL = "standstill"  # of a counter that has never moved
DOUBTFUL_SHARE = 0.1  # of an energy that is open, or of a region whose rows have not come: above it this is said


class Component(NamedTuple):
    """How the errors of one cause are related. Where nothing is said they are new each time, and add in squares."""

    shared: bool = False  # comes from the load and the two instants, which all channels share: linear in a sum of them
    lasting: bool = False  # errs alike in whatever is measured next
    repeated: bool = False  # errs alike in the next repetition of the same work at least
    at_ends: bool = False  # what an interval has too much at an end, its neighbour has too little
    of_kind: bool = False  # errs alike in all sensors of one kind, which were calibrated alike


COMPONENTS: Mapping[str, Component] = MappingProxyType(
    {
        "gain": Component(lasting=True, repeated=True, of_kind=True),
        "offset": Component(lasting=True, repeated=True, of_kind=True),
        "state": Component(),
        "resolution": Component(repeated=True),  # the same power is rounded in the same way
        "noise": Component(),
        "edges": Component(shared=True, at_ends=True),
        "ahead": Component(shared=True, at_ends=True),
        "lag": Component(shared=True, at_ends=True),
        "clock": Component(shared=True, at_ends=True),
        "sampling": Component(),
        "unresolved": Component(shared=True, at_ends=True),
        STANDSTILL: Component(),
        "uncovered": Component(shared=True),
        "lost": Component(lasting=True, repeated=True),
        "drop-out": Component(),
        "skipped": Component(),
        "contradiction": Component(lasting=True, repeated=True),
        "reconstruction": Component(shared=True),
        "blind": Component(shared=True, at_ends=True),
        "stamps": Component(shared=True),
        "kernel": Component(lasting=True, repeated=True, of_kind=True),
    }
)


def of_scale(response: Response, gain_u: float, offset_u: float, joules: float, seconds: float) -> dict[str, float]:
    """Return what a wrong gain, a wrong level and what the board is doing make of the energy of a power.

    The offset, in true watts, is that where no power is used; where the line turns it is without what the gain adds.
    """
    level_u = math.sqrt(max(offset_u**2 - (gain_u * response.known_at_w) ** 2, 0.0))
    return {
        "gain": gain_u * abs(joules - response.known_at_w * seconds),
        "offset": level_u * seconds,
        "state": response.off_line_j(seconds),
    }
