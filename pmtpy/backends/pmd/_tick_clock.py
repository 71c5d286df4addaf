"""Places the ticks of a meter's free-running oscillator on the host's clock. Pure: numbers in, instants out.

A record is seen some time after it was made, never before. So all points (tick, arrival) lie above a straight line, the
clock; its slope is the rate, which differs by 2 % from what its maker names, and by 0.1 % from session to session. The
line is the edge of the points' lower hull above their mean: the one below all of them that is nearest to them.
"""

from __future__ import annotations

import numpy as np

from pmtpy.core.rows import Ints

_ASSUMED_HZ = 2_934_500.0  # until arrivals tell; as of recordings, ``io.read._pmd``, which has the source
_BOUND = 0.01
_BUCKET_NS = 50_000_000
_KEPT = 400  # buckets: 20 s
_MIN_RECORDS = 10  # half a second: before, the assumed rate is nearer
_PULL = 2e-3  # of the time that passed: how fast a row's time may be moved towards the line
_MAX_AHEAD_S = 2.0  # by which stamps may run ahead of arrivals that were late before
_JUMP_NS = 20_000_000  # further than that from the line the rows begin anew


class TickClock:
    """Follows one meter's oscillator. Used by one thread at a time.

    Attributes
    ----------
    rate_hz : float
        Ticks per second of the host, as known by now.
    """

    def __init__(self, modulo: int) -> None:
        self.rate_hz = _ASSUMED_HZ
        self._modulo = modulo
        self._points: list[tuple[int, int]] = []  # (ticks, arrival ns): of each bucket the earliest
        self._ticks = 0  # unwrapped, of the last record
        self._raw = -1
        self._last_tick = 0
        self._t_ns = -1
        self._seen_ns = 0
        self._line = (0.0, 0.0)  # ns at tick 0 of the line's own origin, and that origin

    def unwrap(self, raw: Ints, arrival_ns: int) -> Ints:
        """Return ticks since the first record.

        Arrivals tell the turns of stamps that turn over within a gap, and how long a gap was behind which the stamps
        began anew: no record is made after it was seen.
        """
        before = self._raw if self._raw >= 0 else int(raw[0])
        steps = np.diff(raw, prepend=before) % self._modulo
        ticks = self._ticks + np.cumsum(steps)
        if self._raw >= 0:
            expected = (arrival_ns - self._seen_ns) * 1e-9 * self.rate_hz
            missing = round(expected - int(ticks[-1] - self._ticks))
            # Where they fell is not known but for the longest step.
            if missing > self._modulo // 2 and self._modulo <= 1 << 16:
                ticks[int(np.argmax(steps)) :] += round(missing / self._modulo) * self._modulo
            elif -missing > _MAX_AHEAD_S * self.rate_hz:
                longest = int(np.argmax(steps))
                ticks[longest:] -= min(-missing, int(steps[longest]) - 1)
        self._raw, self._ticks, self._seen_ns = int(raw[-1]), int(ticks[-1]), arrival_ns
        return np.asarray(ticks, np.int64)

    def place(self, ticks: Ints, arrivals: list[tuple[int, int]]) -> Ints:
        """Return the instants (ns) of unwrapped ticks; ``arrivals`` are (ticks of a piece's last record, ns)."""
        for point in arrivals:
            self._note(*point)
        self._fit()
        origin_ns, origin = self._line
        line_ns = origin_ns + (int(ticks[-1]) - origin) / self.rate_hz * 1e9
        spans = (ticks - ticks[0]) / self.rate_hz * 1e9
        off = 0.0
        if self._t_ns >= 0:
            step = (int(ticks[0]) - self._last_tick) / self.rate_hz * 1e9
            whole = step + float(spans[-1])
            off = line_ns - (self._t_ns + whole)
        if self._t_ns < 0 or off > _JUMP_NS:
            t_ns = line_ns - spans[-1] + spans
        else:
            off = min(max(off, -_PULL * whole), _PULL * whole)
            t_ns = self._t_ns + (step + spans) * (1.0 + off / whole)
        placed = np.rint(t_ns).astype(np.int64)
        latest = arrivals[-1][1] if arrivals else int(placed[-1])
        if int(placed[-1]) > latest:  # seen before its own time: a proof
            begin = self._t_ns if self._t_ns >= 0 else int(placed[0]) - int(placed[-1]) + latest - 1
            share = max(0.0, (latest - begin) / max(1, int(placed[-1]) - begin))
            placed = np.rint(begin + (placed - begin) * share).astype(np.int64)
        if self._t_ns >= 0:
            placed = np.maximum(placed, self._t_ns + 1 + np.arange(len(placed)))
        self._t_ns, self._last_tick = int(placed[-1]), int(ticks[-1])
        return np.asarray(placed, np.int64)

    def _note(self, tick: int, arrival_ns: int) -> None:
        if self._points and arrival_ns // _BUCKET_NS == self._points[-1][1] // _BUCKET_NS:
            old_tick, old_ns = self._points[-1]
            if (arrival_ns - old_ns) - (tick - old_tick) / self.rate_hz * 1e9 >= 0:
                return
            self._points.pop()
        self._points.append((tick, arrival_ns))
        del self._points[:-_KEPT]

    def _fit(self) -> None:
        """Lay the line below all points."""
        tick0, ns0 = self._points[0]
        x = [(tick - tick0) for tick, _ in self._points]
        y = [(ns - ns0) - dx / _ASSUMED_HZ * 1e9 for dx, (_, ns) in zip(x, self._points, strict=True)]
        slope = 0.0
        if len(x) >= _MIN_RECORDS:
            hull: list[int] = []
            for i in range(len(x)):
                while len(hull) > 1 and (y[hull[-1]] - y[hull[-2]]) * (x[i] - x[hull[-2]]) >= (y[i] - y[hull[-2]]) * (
                    x[hull[-1]] - x[hull[-2]]
                ):
                    hull.pop()
                hull.append(i)
            middle = sum(x) / len(x)
            right = next(k for k in range(1, len(hull)) if x[hull[k]] >= middle)
            a, b = hull[right - 1], hull[right]
            slope = (y[b] - y[a]) / (x[b] - x[a])
            bound = _BOUND / _ASSUMED_HZ * 1e9
            slope = min(max(slope, -bound), bound)
        self.rate_hz = 1e9 / (1e9 / _ASSUMED_HZ + slope)
        low = min(yi - slope * xi for xi, yi in zip(x, y, strict=True))
        self._line = (ns0 + low, float(tick0))
