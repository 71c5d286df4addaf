"""A straight line pressed up from below against points: the host's time of numbered frames from when they arrived.

No frame arrives before it was made, so all arrivals lie above the line of true times, by delays that vary. The line
that lies below all points and touches them over their middle is the best that can be said of it (Moon, Skelly and
Towsley, "Estimation and removal of clock skew from network delay measurements", INFOCOM 1999).

Pure; used by one thread at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

# Crystals of board and host differ by tens of ppm each; what is steeper is no clock, but an arrival that was early.
MAX_DRIFT = 150e-6
KEPT = 40  # points, each the fastest arrival of half a second
_MIN_POINTS = 3  # over less than this, delays look like drift

Point = tuple[int, int]  # number of a frame, arrival in ns


class Envelope:
    """The fastest arrivals of the last while, and the line below them.

    Attributes
    ----------
    drift : float
        How much steeper than nominal the line is, relative.
    loose_ns : float
        Standard uncertainty of its height where it was asked for last. Of n points that lie above it by ``m`` in the
        mean, as delays that fall off exponentially do, those that it touches lie too high by about ``2 m/n`` each; so
        its slope may be off by as much again for each half of the way between them that it is carried on.
    """

    def __init__(self) -> None:
        self.drift = self.loose_ns = 0.0
        self._points: deque[Point] = deque(maxlen=KEPT)

    @property
    def young(self) -> bool:
        """Whether the drift is not known yet."""
        return len(self._points) < _MIN_POINTS

    def add(self, point: Point) -> None:
        """Take note of a fast arrival."""
        self._points.append(point)

    def shift(self, since: int, frames: int) -> None:
        """Take note that frames numbered from ``since`` on have numbers higher by ``frames``."""
        self._points = deque(((n + frames if n >= since else n, t) for n, t in self._points), maxlen=KEPT)

    def at(self, number: int, tick_ns: float) -> float:
        """Fit the line; return its height at a frame, ns, where frames are ``tick_ns`` apart but for the drift."""
        first_n, first_t = self._points[0]
        flat = [(float(n - first_n), t - first_t - (n - first_n) * tick_ns) for n, t in self._points]
        slope, edge = _slope_below(flat)
        if not self.young and abs(slope) <= MAX_DRIFT * tick_ns:
            self.drift = slope / tick_ns
        slope = self.drift * tick_ns
        above = [y - slope * x for x, y in flat]
        height = min(above)
        touching = 2.0 * (math.fsum(above) / len(above) - height) / len(above)
        away = abs(number - first_n - (edge[0] + edge[1]) / 2.0) / max(edge[1] - edge[0], 1.0)
        self.loose_ns = touching * (1.0 + 2.0 * away) if not self.young else 0.0
        return first_t + height + (number - first_n) * (tick_ns + slope)


def _slope_below(points: Sequence[tuple[float, float]]) -> tuple[float, tuple[float, float]]:
    """Slope of the edge of the lower convex hull that lies under the middle of the points; 0 for a single one."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) >= 2 and _above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        if not hull or x > hull[-1][0]:
            hull.append((x, y))
    middle = sum(x for x, _ in points) / len(points)
    for (x0, y0), (x1, y1) in pairwise(hull):
        if x1 >= middle:
            return (y1 - y0) / (x1 - x0), (x0, x1)
    return 0.0, (points[0][0], points[-1][0])


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether ``b`` lies on or above the line from ``a`` to ``c``."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
