"""The named parts of an uncertainty, and how each adds up over channels, sensors, intervals and repetitions.

docs/uncertainty.md derives them. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pmtpy.core.channel import sum_of_kinds
from pmtpy.core.response import Response

STANDSTILL = "standstill"  # of a counter that has never moved
DOUBTFUL_SHARE = 0.1  # of an energy that is open, or of a region whose rows have not come: above it this is said


class Component(NamedTuple):
    """How the errors of one cause are related. Where nothing is said they are new each time, and add in squares."""

    shared: bool = False  # comes from the load and the two instants, which all channels share: linear in a sum of them
    lasting: bool = False  # errs alike in whatever is measured next
    repeated: bool = False  # errs alike in the next repetition of the same work at least
    at_ends: bool = False  # what an interval has too much at an end, its neighbour has too little
    of_kind: bool = False  # errs alike in all that is of one kind and was calibrated alike: linear in a sum of these


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


def common_by_kind(parts: Iterable[tuple[str, Iterable[tuple[str, float]]]]) -> dict[str, float]:
    """Return the joules by which all of one kind err alike, by kind and cause: of each, its kind and its components."""
    found: dict[str, float] = {}
    for kind, components in parts:
        for what, u in components:
            if u and COMPONENTS[what].of_kind:
                found[f"{kind}/{what}"] = found.get(f"{kind}/{what}", 0.0) + u
    return found


def joined(each: Iterable[tuple[float, Iterable[tuple[str, float]]]]) -> float:
    """Standard uncertainty of a sum of energies, joules; NaN where that of one is not known.

    Of each its own, and what of that is common to its kind (:func:`common_by_kind`). The rest adds in squares.
    """
    together: list[tuple[str, float]] = []
    squares = []
    for u, common in each:
        together += common
        own = u**2 - math.fsum(of_kind**2 for _, of_kind in common)
        squares.append(max(0.0, own) if not math.isnan(own) else math.nan)
    return math.hypot(sum_of_kinds(together), math.sqrt(math.fsum(squares)))


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
