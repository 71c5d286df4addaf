"""What a region cost: the record of one energy, with uncertainty, coverage, warnings. How it is found is told in
:mod:`pmtpy.regions.interval_energy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pmtpy.analysis.uncertainty.budget import UncertaintyBudget
from pmtpy.core.presentation import html_notes, html_table, in_same_digits

_NOT_PLAIN = ("warnings", "channels", "components")  # fields that JSON shows otherwise than as they are, or not
_NO_CHANNELS: Mapping[str, Measurement] = MappingProxyType({})


class _Judged:
    """Where a measurement keeps who judges it: what costs more than the energy itself is set when it is asked for."""

    __slots__ = ("_judge",)
    _judge: Callable[[], UncertaintyBudget]

    if not TYPE_CHECKING:  # it finds no other names than those that are declared

        def __getattr__(self, name: str) -> object:
            """Judge, where what is asked for is not known yet."""
            if name not in UncertaintyBudget._fields:
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg)
            found = self._judge()
            for each, value in zip(UncertaintyBudget._fields, found, strict=True):
                object.__setattr__(self, each, value)
            return getattr(found, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(_Judged):
    """What one sensor, or one of its channels, says about a region.

    Attributes
    ----------
    target, name : str
        The sensor, and the channel (``"total"`` for the sum).
    seconds : float
        Length of the region.
    joules : float
        Energy in the part of the region for which it is known (``coverage``).
    watts : float
        Mean power over that part; NaN where there is none.
    uncertainty_joules : float
        Standard uncertainty of ``joules`` (about 68 %; twice it is about 95 %).
    method : str
        ``counter``, ``integrated``, ``interval mean``, and what was corrected (``lag corrected``,
        ``reconstruction``, ``load-informed``); or several of them for a sum.
    refresh_s, window_s : float or None
        How often the register changes and over which span it averages, where known.
    coverage : float
        Share of the region for which energy is known, 0 to 1.
    lost : int
        Rows lost inside the region.
    warnings : tuple of str
        What a reader of the number must know.
    virtual : bool
        True when the device is emulated.
    channels : mapping of str to Measurement
        The channels of the sensor; empty in a channel. Cannot be changed.
    peak_watts : float
        Largest power of the rows inside the region; NaN where no row lies inside or sensors are summed.
    settled : bool
        Whether all rows that tell of the region's end have come; until then a later look may know more.
    components : tuple of (str, float)
        What the uncertainty is made of (``gain``, ``edges``, ...), joules each, the largest first. What runs on one
        sensor have in common, such as its gain, cancels in their ratio.
    calibration : str or None
        By which profile the readings were corrected: its digest and where it came from, for each channel of a sum. None
        where nothing was corrected.
    """

    # in the order of JSON
    target: str
    name: str
    virtual: bool
    seconds: float
    joules: float
    watts: float
    uncertainty_joules: float
    method: str
    peak_watts: float = math.nan
    refresh_s: float | None
    window_s: float | None
    coverage: float
    lost: int
    settled: bool = True
    calibration: str | None = None
    warnings: tuple[str, ...]
    channels: Mapping[str, Measurement] = field(default_factory=lambda: _NO_CHANNELS)
    components: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        """Close the channels against changes."""
        if not isinstance(self.channels, MappingProxyType):
            object.__setattr__(self, "channels", MappingProxyType(dict(self.channels)))

    def __str__(self) -> str:
        """Return the measurement in one line."""
        covered = "" if self.coverage >= 1.0 else f", {self.coverage:.1%} covered"
        number = len(self.warnings)
        warned = f", {number} warning{'s' if number > 1 else ''}" if number else ""
        power = f" ({self.watts:.4g} W)" if math.isfinite(self.watts) else ""
        name = self.target if self.name == "total" else f"{self.target} {self.name}"
        lasted = f" in {self.seconds:.4g} s" if math.isfinite(self.seconds) else ""
        method = f", {self.method}" if self.method else ""
        return f"{name}: {self._energy()}{lasted}{power}{method}{covered}{warned}"

    def __repr__(self) -> str:
        """Return the measurement in one line, as a failed assertion shows it."""
        return f"<{self}>"

    def _energy(self) -> str:
        """Return the energy with as many digits as its uncertainty lets count: ``45.5 J +- 4.3 J``."""
        joules, uncertainty = self.joules, self.uncertainty_joules
        if not math.isfinite(joules) or not math.isfinite(uncertainty):
            return f"{joules:.6g} J, uncertainty not known" if math.isfinite(joules) else "energy not known"
        if uncertainty <= 0.0:
            return f"{joules:.6g} J"
        return "{} J +- {} J".format(*in_same_digits(joules, uncertainty))

    def cells(self) -> tuple[str, ...]:
        """Return the cells of :func:`as_html`."""
        watts, seconds, covered = f"{self.watts:.4g}", f"{self.seconds:.4g}", f"{self.coverage:.1%}"
        return self.target, self.name, self._energy(), watts, seconds, covered, self.method

    def _repr_html_(self) -> str:
        """Return the measurement as a table, for notebooks."""
        return as_html([self, *self.channels.values()])

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: numbers that are not known are None, channels by their names."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_PLAIN}
        known = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in found.items()}
        channels = {name: channel.to_dict() for name, channel in self.channels.items()}
        return {**known, "warnings": list(self.warnings), **({"channels": channels} if channels else {})}

    def __reduce__(self) -> tuple[object, ...]:
        """Travel to another process: a view of a mapping cannot."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return partial(Measurement, **{**values, "channels": dict(self.channels)}), ()


def to_be_judged(measured: Measurement, judge: Callable[[], UncertaintyBudget]) -> Measurement:
    """Leave the judgement of a measurement that was just made to whoever asks for it first.

    ``judge`` may be asked by any thread, now or in hours, and always has to find the same.
    """
    object.__setattr__(measured, "_judge", judge)
    for name in UncertaintyBudget._fields:
        object.__delattr__(measured, name)
    return measured


def as_html(shown: Sequence[Measurement]) -> str:
    """Return measurements as a table, one line each, with the warnings of all below it, each once."""
    heads = ("sensor", "channel", "energy", "W", "s", "covered", "method")
    return html_table(heads, [m.cells() for m in shown]) + html_notes(w for m in shown for w in m.warnings)


def sum_of(parts: Mapping[str, Measurement]) -> dict[str, Any]:
    """Return what a sum takes over from its parts as they are."""
    return {
        "method": " + ".join(dict.fromkeys([p.method for p in parts.values()])),
        "refresh_s": _widest([p.refresh_s for p in parts.values()]),
        "window_s": _widest([p.window_s for p in parts.values()]),
        "calibration": _calibration_of({name: p.calibration for name, p in parts.items()}),
        "uncertainty_joules": math.nan,  # until it is judged
        "warnings": (),
    }


def _widest(values: Sequence[float | None]) -> float | None:
    """Return the largest of what is known; None where nothing is."""
    known = [v for v in values if v is not None]
    return max(known) if known else None


def _calibration_of(parts: Mapping[str, str | None]) -> str | None:
    """Say by which profiles the parts of a sum were corrected, by their names; None where none of them was."""
    if not any(parts.values()):
        return None
    told = [f"{name}: {by or 'not calibrated'}" for name, by in parts.items()]
    return "; ".join(told) if len(told) > 1 else next(iter(parts.values()))
