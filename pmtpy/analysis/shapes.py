"""What a fit of a response kernel says: its family, its widths, how well they are known. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from pmtpy.analysis.estimate import Estimate

BOXCAR, ONE_POLE, BOTH, AMBIGUOUS = "boxcar", "one-pole", "boxcar*one-pole", "ambiguous"
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
    """

    family: str
    best: Shape
    shapes: tuple[Shape, ...]
    ratio: float
    updates: int
    reason: str = ""
