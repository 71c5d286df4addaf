"""What a fit of a response kernel says: its family, its widths, how well they are known. Pure data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from pmtpy.analysis.characterisation._free_shape import FreeShape
from pmtpy.analysis.signal.estimate import NAMED, Z95, Estimate
from pmtpy.errors import DeclinedError, Reason

AMBIGUOUS = "ambiguous"  # stands for the name of a family where none is named
MIN_FINENESS = 4.0  # the reference must be sampled this much finer than the kernel, or the readings, to show it
_UNEXPLAINED = (
    0.05  # of the variance, beside a meter; right kernels of drawn and of recorded sensors leave 0.01 at most
)
_UNFOLLOWED = 0.03  # of it, alike from one reading to the next, which noise is not
_SAME_PERIOD_RATIO = 1.1  # clocks of two sensors with one period need not agree


class CoarseReferenceError(DeclinedError):
    """The reference has too few readings to show over which time a sensor averages; gain and offset it may show."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One family of kernels, fitted."""

    family: str  # of ``_families.FAMILIES``
    # width of the boxcar or triangle, time constant of the (first) one-pole; None where the family has none
    window_s: Estimate | None
    tau_s: Estimate | None
    offset_s: Estimate  # age of the kernel's end at the update; negative where stamps are early
    lag_s: Estimate  # Mean age of what a reading shows: ``window/2 + tau + offset``. Better known than its parts.
    # what the reference's clock gains on the readings', relative; None where it was taken as right
    rate: Estimate | None
    # of the readings on the filtered reference
    gain: Estimate
    intercept_w: Estimate
    loss: float  # mean of Huber's loss, in watts squared
    residual_w: float  # robust standard deviation of the residuals
    r2: float  # share of the variance explained
    # of what is left, the part that one reading has in common with the next; as a share of the whole variance
    left_alike: float = 0.0
    bounded: bool = False  # offset and lag are only bounded: no reading moves with them
    wander: float = 1.0  # share that is believed of the wander which the phase of the updates was found to have
    # standard deviation of the ages that a reading shows, of a shape whose one width does not tell it
    spread_s: Estimate | None = None

    def by_means(self, cell_s: float) -> Shape:
        """Return the shape with the doubt of a reference that is known as means over cells alone.

        Such a reference is smoothed: an instant is anywhere in its cell and shows what was anywhere in it, so by a
        variance of twice ``cell^2 / 12``. The fitted kernel lacks it: of a boxcar's ``window^2 / 12``, or a one-pole's
        ``tau^2``. The lag is not touched.
        """
        window = cell_s**2 / max(self.window_s.value, cell_s) if self.window_s is not None else 0.0
        tau = cell_s**2 / 12.0 / max(self.tau_s.value, cell_s / 4.0) if self.tau_s is not None else 0.0
        return replace(
            self,
            window_s=self.window_s and self.window_s.widened(Z95 * window),
            tau_s=self.tau_s and self.tau_s.widened(Z95 * tau),
            offset_s=self.offset_s.widened(Z95 * (window / 2.0 + tau)),
        ).not_negative()

    def widened(self, by_s: float) -> Shape:
        """Return the shape with widths and times that may be off by as much more."""
        return replace(
            self,
            window_s=self.window_s and self.window_s.widened(by_s),
            tau_s=self.tau_s and self.tau_s.widened(by_s),
            offset_s=self.offset_s.widened(by_s),
            lag_s=self.lag_s.widened(by_s),
        ).not_negative()

    @property
    def levels_w(self) -> tuple[Estimate, Estimate] | None:
        """What the sensor shows of a load's two powers, off and on; None beside a meter, to which ``gain`` is one."""
        if self.rate is not None:
            return None
        on = self.intercept_w.value + self.gain.value
        apart = math.hypot(self.intercept_w.half_width, self.gain.half_width)
        return self.intercept_w, Estimate(on, on - apart, on + apart)

    def not_negative(self) -> Shape:
        """Return the shape with intervals of its widths that do not reach below none, as those of a fit may."""
        window, tau, spread = (e and e.not_negative() for e in (self.window_s, self.tau_s, self.spread_s))
        return replace(self, window_s=window, tau_s=tau, spread_s=spread)


@dataclass(frozen=True, slots=True)
class KernelFit:
    """The kernel of a sensor, as far as one recording tells."""

    family: str  # one of the families, or ``"ambiguous"`` where the odds of none of them are 20 to 1
    best: Shape  # the likeliest
    shapes: tuple[Shape, ...]  # the best of each family, that of least loss first
    updates: int  # number of updates used
    # Why it is ambiguous. The gain, intercept and lag of ``best`` then span all fits that are nearly as good.
    reason: Reason = field(default_factory=lambda: Reason(""))
    odds: tuple[tuple[str, float], ...] = ()  # (str, float): share of belief in each family, the likeliest first
    # the kernel of free shape, where none of the families is right: gain, intercept and lag of ``best`` are its
    free: FreeShape | None = None
    # standard deviation of the ages that a reading shows, by a kernel of free shape; where no family is in question
    spread_s: Estimate | None = None
    # shapes that are never named, where they may be the kernel: of a triangle ``window_s`` is the width, of two poles
    # in a row nothing but the spread is told
    rivals: tuple[Shape, ...] = ()
    # by how much later after its stamps a load rises than it falls; None where too few of either were seen, or a meter
    # shows what the load does
    rises_late_s: Estimate | None = None
    no_gain: str = ""  # why that of ``best`` is of one load alone, and none of the sensor

    @property
    def likely(self) -> tuple[Shape, ...]:
        """The best, and where no family is named the other shapes that are not out of the question."""
        share = dict(self.odds)
        rest = [s for s in self.shapes if s.family != self.best.family and share.get(s.family, 0.0) * NAMED > 1.0]
        named = self.family != AMBIGUOUS
        return (self.best, *(() if named else sorted(rest, key=lambda s: -share[s.family])))

    def judged(self) -> KernelFit:
        """Return the fit as of no family, and no gain, where the readings beside a meter do what no kernel does."""
        if self.best.rate is None or self.best.left_alike < _UNFOLLOWED:
            return self
        reason = (
            f"none of these kernels: {100.0 * (1.0 - self.best.r2):.2g} % of what changes in the readings follows no "
            "kernel, and lasts from one reading to the next, as noise does not: the sensor is not linear, or it and "
            "the meter do not see the same; use a load that changes more, and rests for seconds"
        )
        return replace(self, family=AMBIGUOUS, reason=Reason(reason), no_gain=reason)

    @property
    def note(self) -> str:
        """Empty, or what is doubtful: a lag that is not measured but bounded, readings that no kernel explains."""
        notes = []
        if self.best.bounded:
            notes.append(
                "no reading shows an edge of the load half-way: the lag is only bounded, by the readings around the "
                "edges; record more changes of the load"
            )
        left = 1.0 - self.best.r2
        if self.best.rate is not None and left > _UNEXPLAINED:
            notes.append(
                f"{100.0 * left:.2g} % of what changes in the readings follows no kernel: unless that is noise the "
                "sensor is not linear, and its gain, lag and width are those of this load alone"
            )
        return "; ".join(notes)

    def spans(self, width: str) -> Estimate | None:
        """Return the ``"window_s"`` or ``"tau_s"`` that the best has, from none where a likely family has none of it.

        None where no likely family has it, or none of the families is right.
        """
        if self.spread_s is not None:
            return None
        each: list[Estimate | None] = [getattr(shape, width) for shape in self.likely]
        known = [e for e in each if e is not None]
        if not known:
            return None
        value = each[0].value if each[0] is not None else 0.0
        low, high = (0.0 if len(known) < len(each) else min(e.low for e in known)), max(e.high for e in known)
        return Estimate(value, min(low, value), max(high, value))

    @property
    def spread(self) -> Estimate:
        """Standard deviation of the ages that a reading shows, seconds: what every kernel has, whatever its family."""
        if self.spread_s is not None:
            return self.spread_s
        none = Estimate.within(0.0, 0.0)

        def of(shape: Shape, end: str) -> float:
            if shape.spread_s is not None:
                return float(getattr(shape.spread_s, end))
            window, tau = (getattr(e or none, end) for e in (shape.window_s, shape.tau_s))
            return math.hypot(window / math.sqrt(12.0), tau)

        likely = (*self.likely, *self.rivals)
        low, high = min(of(s, "low") for s in likely), max(of(s, "high") for s in likely)
        return Estimate(of(self.best, "value"), low, high)

    def not_negative(self) -> KernelFit:
        """Return the fit with intervals of widths that do not reach below none."""
        shapes, rivals = (tuple(shape.not_negative() for shape in each) for each in (self.shapes, self.rivals))
        spread = self.spread_s and self.spread_s.not_negative()
        return replace(self, best=self.best.not_negative(), shapes=shapes, rivals=rivals, spread_s=spread)

    def widened(self, by_s: float) -> KernelFit:
        """Return the fit with widths and times that may be off by as much more."""
        shapes, rivals = (tuple(shape.widened(by_s) for shape in each) for each in (self.shapes, self.rivals))
        return replace(self, best=self.best.widened(by_s), shapes=shapes, rivals=rivals)

    def by_means(self, cell_s: float, period_s: float) -> KernelFit:
        """Return the fit with the doubt of a reference that is known as means over cells alone.

        Raises CoarseReferenceError: the cells are too long for this kernel, in readings that come every ``period_s``.
        """
        window = self.best.window_s.value if self.best.window_s is not None else 0.0
        tau = self.best.tau_s.value if self.best.tau_s is not None else 0.0
        if window + 2.0 * tau < MIN_FINENESS * cell_s and is_coarse(cell_s, period_s):
            raise CoarseReferenceError(_coarse(cell_s, "these readings"))
        shapes = tuple(shape.by_means(cell_s) for shape in self.shapes)
        rivals = tuple(shape.by_means(cell_s) for shape in self.rivals)
        return replace(self, best=self.best.by_means(cell_s), shapes=shapes, rivals=rivals)


def is_coarse(cell_s: float, period_s: float) -> bool:
    """Whether a reference may have too few readings to show over which time a sensor averages."""
    return cell_s * MIN_FINENESS > period_s


def refuse_coarse(cell_s: float, period_s: float) -> None:
    """Decline a reference that has no more readings than the sensor.

    Raises CoarseReferenceError: it cannot show over which time the sensor averages.
    """
    if cell_s > _SAME_PERIOD_RATIO * period_s:
        raise CoarseReferenceError(_coarse(cell_s, f"readings {1e3 * period_s:.3g} ms apart"))


def _coarse(cell_s: float, readings: str) -> str:
    return (
        f"the reference has a reading every {1e3 * cell_s:.3g} ms, too coarse to show over which time {readings}"
        " are averaged"
    )
