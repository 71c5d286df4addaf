"""Corrections of recorded readings, and the energy of a region corrected, with its interval.

Everything works on updates (one value for each time the sensor published), never on polls: repeats of one update
are one observation. The formulas and what they were found to be worth stand in docs/corrections.md. Nothing here
smooths: filters for display are in :mod:`pmtpy.plotting.smooth`. Corrections that :func:`region_energy` does not choose
are in :mod:`calibration.published_corrections`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pmtpy.analysis.correction.bins import bins, sum_bins
from pmtpy.analysis.correction.deconvolve import reconstruct
from pmtpy.analysis.correction.ends import calm_ends
from pmtpy.analysis.correction.gaps import fill, long_gaps
from pmtpy.analysis.correction.starts import SLIVER, TELLING, split_starts, step_starts
from pmtpy.analysis.correction.two_level_fit import LATE_S, Levels, fit_levels
from pmtpy.analysis.correction.window import joined
from pmtpy.analysis.signal.response import Response
from pmtpy.analysis.uncertainty.budget import COVERAGE_FACTOR, uncertainty_budget
from pmtpy.analysis.uncertainty.interval_statistics import summarise_one
from pmtpy.core.calibration.response import invert_one_pole
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError

_CYCLES = 4  # switches of the load inside an interval from which its two levels are worth fitting
_PART_TIME = 0.9
_TELLING = 0.1  # spread of the filtered load below which a load-informed regression cannot tell high from low ...
_HINTING = 0.02  # ... and below which it cannot even say what the load's aliases come to
_HARDLY = 0.02  # standard uncertainty of a load-informed energy from which it is said that the levels are hardly known
_ALONE = 2.0  # periods either side of a start without a switch: time for a reading wholly before and one wholly after
_WIDE = 1.5  # a kernel of more periods than this is undone by reconstruction ...
_LONG, _INNER = 8.0, 2.0  # ... as a whole up to so many kernels; of longer intervals so many at either end


@dataclass(frozen=True, slots=True)
class Energy:
    """An energy with its interval.

    Attributes
    ----------
    joules : float
        The corrected energy.
    uncertainty_joules : float
        Standard uncertainty.
    method : str
        How it was found.
    parts : tuple of (name, joules)
        What the uncertainty is made of.
    warnings : tuple of str
        What a reader of the number must know.
    """

    joules: float
    uncertainty_joules: float
    method: str
    parts: tuple[tuple[str, float], ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, joules: float, method: str, parts: Sequence[tuple[str, float]], warnings: tuple[str, ...] = ()
    ) -> Energy:
        """Make one of independent parts of its uncertainty, the greatest first."""
        ranked = tuple(sorted(((n, u) for n, u in parts if u > 0), key=lambda p: -p[1]))
        return cls(joules, math.sqrt(sum(u * u for _, u in ranked)), method, ranked, warnings)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.joules - COVERAGE_FACTOR * self.uncertainty_joules

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.joules + COVERAGE_FACTOR * self.uncertainty_joules


# --- with the load's stamps ---


def load_informed(
    t_s: Floats, watts: Floats, response: Response, load: LoadIntervals, *, start_s: float, end_s: float
) -> Energy | None:
    """Energy of a two-level load from part-time readings and the host's stamps of when it was on.

    Fits the two levels; the energy is ``low * length + rise * time on``. None where there are too few readings. Where
    they see too few phases of the load to tell its levels apart the interval says so, and a warning.
    """
    levels = fit_levels(t_s, watts, response, load, start_s=start_s, end_s=end_s, telling=_TELLING)
    if levels is None:
        return None
    joules, fitted = levels.energy(load, start_s, end_s)
    parts = [
        ("fit", fitted),
        ("gain", response.gain_u * abs(joules)),
        ("offset", response.offset_u / response.gain * (end_s - start_s)),
    ]
    return Energy.of(joules, "load-informed", parts, _doubts(levels, fitted / max(abs(joules), 1e-300)))


def _doubts(levels: Levels, share: float) -> tuple[str, ...]:
    """Say where the levels come from, and when they are hardly known."""
    said = []
    if levels.stretch_s:
        said.append(f"the two levels come from {levels.stretch_s:.3g} s around the region")
    if share > _HARDLY:
        said.append(
            "the sensor sees the load in too few phases to tell its levels and its duty apart, so that its energy is "
            f"known to {COVERAGE_FACTOR * share:.0%} only: take another period of the load"
        )
    return tuple(said)


def _beside_load(
    t_s: Floats, watts: Floats, response: Response, load: LoadIntervals, *, start_s: float, end_s: float, ahead_s: float
) -> Energy | None:
    """Energy of an interval in which the load switches fast, from a sensor that sees all the time.

    What the load contributes is known from its levels and its stamps; the rest of the readings is slow, and is
    corrected as if there were no load. So what readings that overlap or are cut at the ends of the interval would make
    of the switching is left out, and the power may drift.
    """
    levels = fit_levels(t_s, watts, response, load, start_s=start_s, end_s=end_s, telling=_HINTING)
    if levels is None or not (levels.told or load.whole):
        return None
    columns, whole = levels.columns(t_s, response, load), levels.shares(load, start_s, end_s)
    held = [sum_bins(bins(t_s, response, ahead_s), c, start_s, end_s) for c in columns.T]
    left = (whole - np.array(held)) * [0.0, 1.0, 1.0, 1.0, 1.0]  # of the load that the rest does not see anyhow
    if not levels.told:  # the window is nearly a whole number of the load's periods: what is left is small, not known
        found = _by_kernel((t_s, watts, response), (start_s, end_s), None, ahead_s)
        unseen = abs(float(left[1]) * levels.rise_w) / math.sqrt(3.0)
        return Energy.of(found.joules, found.method, [*found.parts, ("aliasing", unseen)], found.warnings)
    rest = watts - response.gain * levels.rise_w * columns[:, 1]
    found = _by_kernel((t_s, rest, response), (start_s, end_s), None, ahead_s)
    joules = found.joules + levels.rise_w * float(whole[1])
    parts = [p for p in found.parts if p[0] != "gain"]
    parts += [
        ("fit", math.sqrt(max(0.0, float(left @ levels.covariance @ left)))),
        ("gain", response.gain_u * abs(joules)),
    ]
    return Energy.of(joules, f"{found.method}, beside the load", parts, found.warnings)


# --- the energy of a region ---


def region_energy(
    t_s: Floats,
    watts: Floats,
    response: Response,
    *,
    start_s: float,
    end_s: float,
    load: LoadIntervals | None = None,
    ahead_s: float = 0.0,
) -> Energy:
    """Energy of an interval with everything corrected that the response allows, and its interval.

    Where the load is known and switches often: regression on it for a part-time sensor; else, if it is on and off
    within two periods, what it contributes is left out and added again. Then exact inversion for a slow one-pole;
    reconstruction for a window of several periods; else the updates shifted by their lag. All but the first two begin
    the rise of the power where the load is known to have started.

    Parameters
    ----------
    t_s, watts : float64, shape (n,)
        Updates as shown by the sensor (not corrected), in order, reaching a lag beyond both ends.
    response : Response
        Kernel, gain, offset and their uncertainties.
    load : LoadIntervals, optional
        When the load was on.
    ahead_s : float
        By how much the updates may fall short of the end, so that the last power goes on.

    Raises
    ------
    CoverageError
        The updates do not reach over the interval, or the interval is empty.
    """
    if not end_s > start_s:
        msg = f"the interval from {start_s} to {end_s} s is empty"
        raise CoverageError(msg)
    channel, region = (t_s, watts, response), (start_s, end_s)
    if load is None or not _aliases(response, load.switches(start_s, end_s), end_s - start_s):
        return _by_kernel(channel, region, load, ahead_s)
    if response.coverage < _PART_TIME:
        informed = load_informed(t_s, watts, response, load, start_s=start_s, end_s=end_s)
    elif _undone(response):
        informed = None
    else:
        informed = _beside_load(t_s, watts, response, load, start_s=start_s, end_s=end_s, ahead_s=ahead_s)
    return informed or _uninformed(channel, region, load, ahead_s)


def _by_kernel(
    channel: tuple[Floats, Floats, Response], region: tuple[float, float], load: LoadIntervals | None, ahead_s: float
) -> Energy:
    """Energy of an interval by what undoes the kernel, beginning where the load is known to have started."""
    (t_s, watts, response), (start_s, end_s) = channel, region
    if response.window_s == 0.0 and response.tau_s >= response.period_s / 2.0:
        return _inverted(channel, region, load, ahead_s)
    if _undone(response):
        starts = load.lone_starts(response.period_s) if load is not None else None
        return _reconstructed(channel, start_s, end_s, starts, ahead_s)
    filled = fill(t_s, response.power(watts), response, np.zeros(0) if load is None else load.on_s)
    found = _shifted(filled.t_s, filled.power, response, start_s, end_s, ahead_s=ahead_s)
    parts = [*found.parts, ("missing", filled.unsure(start_s, end_s))]
    warnings = found.warnings + long_gaps(t_s, response.period_s, start_s + response.lag_s, end_s + response.lag_s)
    found = Energy.of(found.joules, found.method, parts, warnings)
    if load is None:
        return found
    bounds = bins(filled.t_s, response, ahead_s)
    if response.coverage < _PART_TIME:
        starts = load.lone_starts(_ALONE * response.period_s)
        after = response.step(filled.t_s - response.delay_s - starts[:, None])
        return _started(found, step_starts(bounds, filled.power, starts, after), start_s, end_s)
    return _started(found, split_starts(bounds, filled.power, load.on_s), start_s, end_s)


def _uninformed(
    channel: tuple[Floats, Floats, Response], region: tuple[float, float], load: LoadIntervals, ahead_s: float
) -> Energy:
    """Energy beside a fast load whose levels the readings do not tell, with what that may come to.

    A part-time sensor may have seen one phase only. The readings' mean is taken for that of a load that is on for a
    share ``d`` of the time: had each seen all of one phase and nothing of the other, they would scatter by
    ``sqrt(d (1 - d))`` of the swing. Of a sensor that sees all the time, what is not known is by how much the load runs
    ahead of its mean at the two ends, for a swing of up to the mean power over ``d``.
    """
    (start_s, end_s), part_time = region, channel[2].coverage < _PART_TIME
    found = _by_kernel(channel, region, None if part_time else load, ahead_s)
    length = end_s - start_s
    duty = load.share(start_s, end_s) / length
    if not part_time:
        ahead = math.sqrt(2.0) * load.lead_s(start_s, end_s)
        return Energy.of(found.joules, found.method, [*found.parts, ("aliasing", found.joules / length / duty * ahead)])
    power = channel[2].power(channel[1])
    aliased = float(np.ptp(power)) * math.sqrt(duty * (1.0 - duty)) * length
    why = (
        f"the load switched {load.switches(start_s, end_s)} times and the sensor sees part of the time: its readings do"
        " not tell the load's two levels, and may have caught one of them only; measure longer"
    )
    return Energy.of(found.joules, found.method, [*found.parts, ("aliasing", aliased)], (*found.warnings, why))


def _aliases(response: Response, switches: int, length_s: float) -> bool:
    """Whether a load switches so that shifted readings would not add up to its energy, or only by luck.

    That is when some of the time is not seen, and also when the load is on and off within two periods: neighbouring
    readings then overlap, or are cut at the ends of the region, in some phase of the load and not in its mean.
    """
    if response.coverage < _PART_TIME:
        return switches >= _CYCLES
    return switches >= _CYCLES and switches * response.period_s > length_s


def _undone(response: Response) -> bool:
    """Whether the kernel is a window of several periods, which is undone by reconstruction."""
    return response.window_s > 0.0 and response.span_s > _WIDE * response.period_s


def _started(found: Energy, cut: tuple[Floats, Floats], start_s: float, end_s: float) -> Energy:
    """Sharpen an energy by bins that were cut at the known starts of the load (``starts``)."""
    joules = sum_bins(*cut, start_s, end_s)
    if math.isclose(joules, found.joules, rel_tol=1e-9):  # no start inside, or none that moved anything
        return found
    # The parts stand as they are, on the safe side: how the power rose after the start is still not known.
    return replace(found, joules=joules, method=f"{found.method}, known starts")


def _shifted(
    t_s: Floats,
    power: Floats,
    response: Response,
    start_s: float,
    end_s: float,
    *,
    method: str = "gain and lag",
    ahead_s: float = 0.0,
) -> Energy:
    """Energy of corrected updates, each for a period about what it saw; judged as a sensor without lag."""
    lag, period = response.lag_s, response.period_s
    joules = sum_bins(bins(t_s, response, ahead_s), power, start_s, end_s)
    channel = Channel(
        "corrected",
        Quantity.POWER,
        resolution=response.step_w / response.gain,
        refresh_s=period,
        window_s=response.span_s,
        lag_s=response.lag_u,
        gain_u=response.gain_u,
        offset_u=response.offset_u / response.gain,
        noise=response.noise_w / response.gain,
    )
    origin = start_s
    evidence = summarise_one(
        channel,
        np.round((t_s - lag - origin) * 1e9).astype(np.int64),
        power,
        start_ns=0,
        end_ns=round((end_s - origin) * 1e9),
        joules=joules,
    )
    judged = uncertainty_budget(channel, evidence)
    return Energy(joules, judged.uncertainty_joules, method, judged.components, judged.warnings)


def _inverted(
    channel: tuple[Floats, Floats, Response], region: tuple[float, float], load: LoadIntervals | None, ahead_s: float
) -> Energy:
    """Energy by the exact inversion of a one-pole; each result stands for the time since the update before."""
    (t_s, watts, response), (start_s, end_s) = channel, region
    shown, noise = calm_ends(t_s, response.power(watts), response, region)
    power = invert_one_pole(t_s, shown, response.tau_s)
    instant = replace(response, tau_s=0.0, window_s=response.period_s, noise_w=0.0, step_w=0.0)
    since = np.append(
        t_s[:1], t_s[:-1] + response.period_s
    )  # where updates are missing, the next result has their time
    found = _shifted(since, power, instant, start_s, end_s, method="one-pole inversion", ahead_s=ahead_s)
    if load is not None:
        starts = load.lone_starts(_ALONE * response.period_s)
        whole = response.step(np.diff(t_s, prepend=t_s[0] - response.period_s))
        after = np.minimum(response.step(t_s - response.delay_s - starts[:, None]) / whole, 1.0)
        cut = step_starts(
            bins(since, instant, ahead_s),
            power,
            starts,
            after,
            telling=_used_from(response, shown[(t_s > start_s) & (t_s < end_s)]),
        )
        found = _started(found, cut, start_s, end_s)
    # The sum of the inverted updates telescopes: noise enters through the sum of the readings and through the two ends.
    sums = response.noise_in_s * math.sqrt(response.period_s * (end_s - start_s))
    ends = np.interp([start_s, end_s], t_s - response.delay_s, shown)
    # Exact for power constant between updates: of a step after the share f it misses f (1 - f) T/(2 tau).
    moved = math.sqrt(float(np.sum(np.diff(power[(t_s > start_s) & (t_s < end_s)]) ** 2)))
    parts = [p for p in found.parts if p[0] != "noise"]
    parts += [
        ("steps", response.period_s**2 / response.tau_s / math.sqrt(120.0) * moved),
        ("noise", math.hypot(sums, response.tau_s * noise)),
        ("tau", response.tau_u * abs(float(ends[1] - ends[0]))),
    ]
    warnings = found.warnings + long_gaps(t_s, response.period_s, start_s + response.lag_s, end_s + response.lag_s)
    return Energy.of(found.joules, found.method, parts, warnings)


def _used_from(response: Response, shown: Floats) -> float:
    """Return how much of an inverted result must lie after a known start to be used.

    The readings keep all energy, the little after a start too, but at their own time: late by an unknown bit, that is
    wrong by the rise over it. To leave it out costs the noise of the next result, which it would have undone.
    """
    timing = math.hypot(LATE_S, response.lag_u) * float(np.ptp(shown)) if len(shown) else 0.0
    return SLIVER if math.sqrt(2.0) * response.noise_in_s * response.tau_s > timing else TELLING


def _reconstructed(
    channel: tuple[Floats, Floats, Response], start_s: float, end_s: float, starts: Floats | None, ahead_s: float
) -> Energy:
    """Energy of the smoothest power that explains the updates of a window of several periods."""
    response, inner = channel[2], _INNER * channel[2].span_s
    if end_s - start_s <= _LONG * response.span_s:
        head = tail = reconstruct([channel], start_s, end_s, starts_s=starts, ahead_s=ahead_s)
        joules, spread = head.energy(start_s, end_s), head.energy_u(start_s, end_s)
    else:
        head = reconstruct([channel], start_s, start_s + inner, starts_s=starts)
        tail = reconstruct([channel], end_s - inner, end_s, starts_s=starts, ahead_s=ahead_s)
        joules, spread = joined(channel, (head, start_s, start_s + inner), (tail, end_s - inner, end_s))
    parts = [
        ("reconstruction", spread),
        ("edges", math.hypot(head.edge_u(start_s), tail.edge_u(end_s))),
        ("gain", response.gain_u * abs(joules)),
        ("offset", response.offset_u / response.gain * (end_s - start_s)),
        ("lag", response.lag_u * abs(tail.at(end_s) - head.at(start_s))),
        # A step is anywhere in what is not seen of its period.
        ("blind", response.blind_s / math.sqrt(12.0) * math.hypot(head.swing(start_s), tail.swing(end_s))),
    ]
    return Energy.of(joules, "reconstruction", parts)
