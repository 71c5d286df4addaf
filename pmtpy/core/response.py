"""How a sensor follows time: one record for what a maker states, a fit finds, a profile holds and an emulator does.

Symbols as in docs/corrections.md: a reading published at ``u`` is ``gain * (h * P)(u - delay) + offset``, with ``h`` a
boxcar of width ``window_s``, a one-pole of time constant ``tau_s``, or one after the other; or a triangle of that
width. All times in seconds. Nothing here fits or guesses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.core._arrays import Floats
from pmtpy.core.load_intervals import LoadIntervals

TRIANGULAR = "triangular"  # the family of which ``window_s`` is the width of a triangle: two equal boxcars in a row
# What kernels are called; "two-pole" is never more than a candidate, and "ambiguous" is one that was left open.
FAMILIES = frozenset({"", "boxcar", "one-pole", "boxcar*one-pole", "two-pole", TRIANGULAR, "ambiguous"})
FORGOTTEN = 37.0  # time constants after which a one-pole has forgotten a step to the last digit

EARLY_S = 0.02  # a stamp this much earlier than its reading has been seen; a kernel cannot end later in the future


@dataclass(frozen=True, slots=True)
class Number:
    """A value and its standard uncertainty, in the unit of its field."""

    value: float
    u: float = 0.0


@dataclass(frozen=True, slots=True)
class Response:
    """One channel of a sensor in time, and its scale.

    An uncertainty of infinity says that a value is not known, and the value is then 0.

    Attributes
    ----------
    period_s : float
        Time between updates; 0: not known.
    window_s, tau_s : float
        Boxcar width and one-pole time constant; 0: none.
    delay_s : float
        Age of the kernel's end at the update, either sign.
    gain, offset_w : float
        Steady-state gradient and intercept.
    gain_u, offset_u : float
        Their standard uncertainties, the first relative, the second in W of a reading where no power is used.
    known_at_w : float
        The true power about which an error of the gain turns the line: there the reading is known best. 0: gain and
        offset are known apart from each other.
    state_w, state_s : float
        How far a reading is off that line by what the board is doing, one standard deviation, and for how long.
    lag_u : float
        Standard uncertainty of the mean lag.
    tau_u : float
        Standard uncertainty of the time constant.
    noise_w, step_w : float
        Standard deviation of one reading, and its resolution; 0: not known.
    period_u, window_u, delay_u : float
        Standard uncertainties of what they are named after.
    family : str
        What the kernel is called by who found it; empty: nobody did. It tells a triangle from a boxcar.
    """

    period_s: float = 0.0
    window_s: float = 0.0
    tau_s: float = 0.0
    delay_s: float = 0.0
    gain: float = 1.0
    offset_w: float = 0.0
    gain_u: float = 0.0
    offset_u: float = 0.0
    lag_u: float = 0.0
    tau_u: float = 0.0
    noise_w: float = 0.0
    step_w: float = 0.0
    period_u: float = 0.0
    window_u: float = 0.0
    delay_u: float = 0.0
    family: str = ""
    known_at_w: float = 0.0
    state_w: float = 0.0
    state_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no sensor can be."""
        if not (self.period_s >= 0 and self.window_s >= 0 and self.tau_s >= 0 and self.gain > 0):
            msg = f"a response needs a positive gain, and a period and widths that are not negative: {self}"
            raise ValueError(msg)
        if self.family == TRIANGULAR and self.tau_s > 0.0:
            msg = f"a {TRIANGULAR} kernel has no time constant (tau_s: {self.tau_s:g} s): its width is window_s"
            raise ValueError(msg)

    @classmethod
    def stated(
        cls,
        family: str = "",
        *,
        refresh_s: Number | None = None,
        window_s: Number | None = None,
        tau_s: Number | None = None,
        delay_s: Number | None = None,
        noise: Number | None = None,
        state: Number | None = None,
        state_s: Number | None = None,
    ) -> Response:
        """Make one of values of which each is known by itself or not at all (None), as in a profile's file."""
        unknown = Number(0.0, math.inf)
        period, window, tau = refresh_s or unknown, window_s or unknown, tau_s or unknown
        delay = delay_s or unknown
        made = cls(
            period.value,
            window.value,
            tau.value,
            delay.value,
            tau_u=tau.u,
            noise_w=noise.value if noise else 0.0,
            period_u=period.u,
            window_u=window.u,
            delay_u=delay.u,
            family=family,
            state_w=state.value if state else 0.0,
            state_s=state_s.value if state_s else 0.0,
        )
        known = [u for u in (window.u / 2.0, tau.u, made.end_u) if math.isfinite(u)]
        return replace(made, lag_u=math.hypot(*known))

    def but(self, refresh_s: float | None, window_s: float | None, lag_s: float | None) -> Response:
        """Return the response with what a maker states: the period, a window, the mean age; None says nothing."""
        made = self
        if refresh_s is not None:
            made = replace(made, period_s=refresh_s, period_u=0.0)
        if window_s is not None:
            made = replace(made, window_s=window_s, tau_s=0.0, window_u=0.0)
        if lag_s is not None:
            made = replace(made, delay_s=lag_s - made.span_s / 2.0, delay_u=0.0)
        return made

    @property
    def shaped(self) -> bool:
        """Whether anything is known of the kernel's width."""
        return math.isfinite(self.window_u) or math.isfinite(self.tau_u)

    @property
    def end_u(self) -> float:
        """Standard uncertainty of the age of the kernel's end; where that is not known, of half a period either way."""
        return self.delay_u if math.isfinite(self.delay_u) else self.period_s / math.sqrt(12.0)

    @property
    def span_s(self) -> float:
        """Width of the boxcar that sees as much: the window and twice the time constant."""
        return self.window_s + 2.0 * self.tau_s

    @property
    def coverage(self) -> float:
        """Share of time that reaches a reading, at most 1."""
        return min(1.0, self.span_s / self.period_s)

    @property
    def lag_s(self) -> float:
        """Mean age of what an update shows."""
        return self.window_s / 2.0 + self.tau_s + self.delay_s

    @property
    def needed_s(self) -> float:
        """For how long beyond its ends there must be readings for the energy of an interval to be corrected."""
        return abs(self.lag_s) + self.span_s + 2.0 * self.period_s

    @property
    def blind_s(self) -> float:
        """Length of what a window of several periods leaves out of each, judged by how early it ends; else 0.

        If each of several averaged readings sees only the end of its period, their mean looks like one wide window that
        is shifted forward by half of what they leave out: its end lies in the future (a negative delay).
        """
        wide = self.span_s > 1.5 * self.period_s
        return -2.0 * self.delay_s if wide and self.delay_s < -EARLY_S else 0.0

    @property
    def noise_in_s(self) -> float:
        """Standard deviation of one reading, rounding included, in watts before gain."""
        return math.hypot(self.noise_w, self.step_w / math.sqrt(12.0)) / self.gain

    def off_line_j(self, seconds: float) -> float:
        """Standard deviation of an energy by what the board is doing: the mean of as many states as last so long."""
        return self.state_w / self.gain * math.sqrt(seconds * min(seconds, self.state_s))

    def power(self, watts: Floats) -> Floats:
        """Undo gain and offset: from shown to true watts."""
        return np.asarray((watts - self.offset_w) / self.gain, np.float64)

    def step(self, after_s: Floats) -> Floats:
        """Response, from 0 to 1, at times ``after_s`` past a unit step; the delay is not in it."""
        t = np.maximum(np.asarray(after_s, np.float64), 0.0)
        if self.window_s == 0.0 and self.tau_s == 0.0:
            return np.where(np.asarray(after_s) >= 0.0, 1.0, 0.0)
        if self.family == TRIANGULAR:
            share = np.minimum(t / self.window_s, 1.0)
            return np.where(share < 0.5, 2.0 * share**2, 1.0 - 2.0 * (1.0 - share) ** 2)
        if self.window_s == 0.0:
            return np.asarray(-np.expm1(-t / self.tau_s), np.float64)
        return np.asarray((self._ramp(t) - self._ramp(np.maximum(t - self.window_s, 0.0))) / self.window_s, np.float64)

    def _ramp(self, t: Floats) -> Floats:
        """Integral of the one-pole's step response."""
        return t if self.tau_s == 0.0 else np.asarray(t + self.tau_s * np.expm1(-t / self.tau_s), np.float64)

    def cells(self, at_s: Floats, bounds_s: Floats) -> Floats:
        """Weights of the cells between ``bounds_s`` in the readings published at ``at_s``; shape (n, cells)."""
        rise = self.step((at_s - self.delay_s)[:, None] - bounds_s[None, :])
        return np.asarray(rise[:, :-1] - rise[:, 1:], np.float64)

    def shown(self, load: LoadIntervals, at_s: Floats) -> Floats:
        """What a sensor would show at ``at_s`` of a load that is 1 when on and 0 when off."""
        edges, t = load.edges, at_s - self.delay_s
        # Of older switches nothing is left to see: they leave the load on or off.
        newest = np.searchsorted(edges, t, side="right")
        oldest = np.searchsorted(edges, t - self.window_s - FORGOTTEN * self.tau_s, side="right")
        recent = newest[:, None] - 1 - np.arange(int(np.max(newest - oldest, initial=0)))[None, :]
        edge = np.maximum(recent, 0)
        rise = self.step(t[:, None] - edges[edge]) * np.where(edge % 2, -1.0, 1.0)
        return np.asarray(np.sum(rise * (recent >= oldest[:, None]), axis=1) + oldest % 2, np.float64)


UNKNOWN = Response(period_u=math.inf, window_u=math.inf, tau_u=math.inf, delay_u=math.inf)
