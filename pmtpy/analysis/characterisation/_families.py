"""The families of response kernels that are fitted: what a search, a fit and a choice know of each, in one row.

A kernel is a point of six numbers (``PARAMETERS``) whatever its family; the widths that a family does not have are 0.
Times are seconds. What a kernel shows of a load is worked out in ``_forward``, where a search of it begins in
``_initial_guess``, and ``pmtpy.core.response`` names and undoes the one of a profile: a row alone would be fitted as
the boxcar of its window. ``tests/analysis/characterisation/test_families.py`` holds them all against the widths here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from pmtpy.core.response import TRIANGULAR
from pmtpy.core.rows import Floats

# Age of the kernel's end, width of the boxcar or triangle, two time constants; share of the phase's wander that is
# believed, rate of the reference's clock.
PARAMETERS = ("offset", "window", "tau", "second", "wander", "rate")
BOXCAR, ONE_POLE, BOTH = "boxcar", "one-pole", "boxcar*one-pole"
TWO_POLE = "two-pole"  # of any two time constants
MINOR = 0.1  # share of a kernel's variance that a second width must have to count: the other moves by a twentieth


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of one family beforehand."""

    widths: tuple[str, ...]  # which of the parameters are widths of it
    # Window and time constants of the one whose ages scatter by one second; None: those of any kernel that is to be
    # shown alike, and little of what that lacks.
    alike: tuple[float, float, float] | None
    # Minima of a search on a grid that are followed: a window and a triangle have aliases under a regular load, a
    # one-pole hardly.
    minima: int = 4
    boxes: int = 1  # equal boxcars in a row that make its window
    alone: tuple[str, ...] = ()  # of several widths: what is left where each of them is alone
    named: bool = True  # or only weighed, as a rival


_BOXES = 12.0  # a boxcar of width w has the variance w^2 / 12, and n in a row that are as wide together w^2 / 12 n
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        BOXCAR: Family(("window",), (math.sqrt(_BOXES), 0.0, 0.0), minima=8),
        ONE_POLE: Family(("tau",), (0.0, 1.0, 0.0)),
        BOTH: Family(("window", "tau"), None, alone=(BOXCAR, ONE_POLE)),
        TWO_POLE: Family(("tau", "second"), (0.0, 0.8, 0.6), alone=(ONE_POLE, ONE_POLE), named=False),
        TRIANGULAR: Family(("window",), (math.sqrt(2 * _BOXES), 0.0, 0.0), minima=8, boxes=2, named=False),
    }
)
RIVALS = tuple(name for name, family in FAMILIES.items() if not family.named)


def age_of(point: Floats) -> float:
    """Mean age of what a kernel of these widths shows, beyond the age of its end."""
    return float(point[1] / 2.0 + point[2] + point[3])


def variances(family: str, point: Floats) -> tuple[float, float, float]:
    """Variances of that age by window, first and second time constant."""
    window, tau, second = (float(p) ** 2 for p in point[1:4])
    return window / (_BOXES * FAMILIES[family].boxes), tau, second


def spread_of(family: str, point: Floats) -> float:
    """Standard deviation of that age."""
    return math.sqrt(sum(variances(family, point)))


def pure_of(family: str, point: Floats) -> str:
    """Family of a kernel, a second width left out if that is minor."""
    parts = [v for v, name in zip(variances(family, point), PARAMETERS[1:4], strict=True) if name in widths_of(family)]
    if len(parts) < 2 or min(parts) >= MINOR * sum(parts):
        return family
    return FAMILIES[family].alone[int(parts[1] >= parts[0])]


def widths_of(family: str) -> tuple[str, ...]:
    """Names of the widths that a family has."""
    return FAMILIES[family].widths


def like(family: str, point: Floats, spread_s: float) -> Floats:
    """Return a kernel of a family that shows what another does: as old in the mean, and scattered as far about it."""
    _, window, tau, _, wander, rate = (float(p) for p in point)
    alike = FAMILIES[family].alike
    shape = [spread_s * width for width in alike] if alike else [window or 0.2 * tau, tau or 0.1 * window, 0.0]
    found = np.array([0.0, *shape, wander, rate])
    found[0] = float(point[0]) + age_of(point) - age_of(found)
    return found
