"""What a fit of a response kernel says: its family, its widths, how well they are known. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pmtpy.analysis.fit import FreeShape
from pmtpy.analysis.signal.estimate import Z95, Estimate
from pmtpy.errors import DeclinedError

BOXCAR, ONE_POLE, BOTH, AMBIGUOUS = "boxcar", "one-pole", "boxcar*one-pole", "ambiguous"
_FINER = 4.0  # the reference must be sampled this much finer than the kernel, or the readings, to show it
_EQUAL = 1.1  # clocks of two sensors with one period need not agree
CLEAR_RATIO = 3.0  # of losses: below it two shapes are called indistinguishable (docs/characterise.md)


@dataclass(frozen=True, slots=True)
class Shape:
    """One family of kernels, fitted.

    Attributes
    ----------
    family : str
        ``"boxcar"``, ``"one-pole"`` or ``"boxcar*one-pole"``.
    window_s, tau_s : Estimate or None
        Width of the boxcar, time constant of the one-pole; None where the family has none.
    offset_s : Estimate
        Age of the kernel's end at the update; negative where stamps are early.
    lag_s : Estimate
        Mean age of what a reading shows: ``window/2 + tau + offset``. Better known than its parts.
    rate : Estimate or None
        What the reference's clock gains on the readings', relative; None where it was taken as right.
    gain, intercept_w : Estimate
        Of the readings on the filtered reference.
    loss : float
        Mean of Huber's loss, in watts squared.
    residual_w : float
        Robust standard deviation of the residuals.
    r2 : float
        Share of the variance explained.
    """

    family: str
    window_s: Estimate | None
    tau_s: Estimate | None
    offset_s: Estimate
    lag_s: Estimate
    rate: Estimate | None
    gain: Estimate
    intercept_w: Estimate
    loss: float
    residual_w: float
    r2: float

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
        )


@dataclass(frozen=True, slots=True)
class KernelFit:
    """The kernel of a sensor, as far as one recording tells.

    Attributes
    ----------
    family : str
        One of the families, or ``"ambiguous"`` where two of them fit nearly equally well.
    best : Shape
        The fit of least loss among those not more complicated than the data ask for.
    shapes : tuple of Shape
        The best of each family, that of least loss first.
    ratio : float
        Loss of the rival over that of the best.
    updates : int
        Number of updates used.
    reason : str
        Why it is ambiguous. The gain, intercept and lag of ``best`` then span all fits that are nearly as good.
    odds : tuple of (str, float)
        Share of belief in each family, the likeliest first.
    free : FreeShape or None
        The kernel of free shape, where none of the families is right: gain, intercept and lag of ``best`` are its.
    """

    family: str
    best: Shape
    shapes: tuple[Shape, ...]
    ratio: float
    updates: int
    reason: str = ""
    odds: tuple[tuple[str, float], ...] = ()
    free: FreeShape | None = None

    def by_means(self, cell_s: float, period_s: float) -> KernelFit:
        """Return the fit with the doubt of a reference that is known as means over cells alone.

        Raises
        ------
        DeclinedError
            The cells are too long for this kernel, in readings that come every ``period_s``.
        """
        window = self.best.window_s.value if self.best.window_s is not None else 0.0
        tau = self.best.tau_s.value if self.best.tau_s is not None else 0.0
        if window + 2.0 * tau < _FINER * cell_s and cell_s * _FINER > period_s:
            raise DeclinedError(_coarse(cell_s, "these readings"))
        shapes = tuple(shape.by_means(cell_s) for shape in self.shapes)
        return replace(self, best=self.best.by_means(cell_s), shapes=shapes)


def refuse_coarse(cell_s: float, period_s: float) -> None:
    """Decline a reference that has no more readings than the sensor.

    Raises
    ------
    DeclinedError
        It cannot show over which time the sensor averages.
    """
    if cell_s > _EQUAL * period_s:
        raise DeclinedError(_coarse(cell_s, f"readings {1e3 * period_s:.3g} ms apart"))


def _coarse(cell_s: float, readings: str) -> str:
    return (
        f"the reference has a reading every {1e3 * cell_s:.3g} ms, too coarse to show over which time {readings}"
        " are averaged"
    )
