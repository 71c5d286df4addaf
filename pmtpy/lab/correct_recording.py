"""The energies of a recording, corrected by a profile that was made before; for ``pmtpy calibrate energy``.

A profile belongs to one device. A recording that says of which device it is, is compared with it; one that does not is
taken for its owner's word, which is said. Never corrects a sensor that publishes at another period than the profile's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.analysis.clocking import estimate_updates, update_series
from pmtpy.analysis.energy.estimate import Energy, likely_energy, stamps_around_s
from pmtpy.analysis.energy.live import known_responses
from pmtpy.analysis.signal.clock_fit import zone_shift
from pmtpy.analysis.signal.estimate import Estimate
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.calibration.matching import refuse_stranger, unproven
from pmtpy.core.calibration.profile import RECORDED, Profile
from pmtpy.core.channel import Identity
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.markers import Span
from pmtpy.core.presentation import amount, duration
from pmtpy.core.rows import Floats
from pmtpy.errors import CalibrationError, TargetError
from pmtpy.io.recorded import corrected_by
from pmtpy.lab.recorded import AS_SHOWN, power_column, read_series, regions_of, said_of_regions, stamped_load, times_of

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)
_MAX_BLOCKS, _MAX_REGIONS = 20, 1000  # without a name, and with names: more are taken as one (25 ms each)
_ANOTHER = 0.005  # share by which no sensor's update period differs from itself: it keeps within 0.1 %


@dataclass(frozen=True, slots=True)
class CorrectedEnergy:
    """The energy of one interval of a recording."""

    start_s: float  # since the first row
    seconds: float
    energy: Energy
    name: str = ""  # of a region


def correct_recording(
    table: pd.DataFrame,
    profile: Profile,
    *,
    channel: str | None = None,
    load: LoadIntervals | None = None,
    between: tuple[float, float] | None = None,
    load_period_s: tuple[float, float] | None = None,
    report: Callable[[str], None] = _log.warning,
) -> list[CorrectedEnergy]:
    """Correct the energies of a recording: of each region or block of the load, or between two times.

    Regions are those that markers enclose, and those that the program measured while it was recorded. Where the program
    said meanwhile when the device worked, its stamps are used as those of a load that is given are: of regions for
    which they are all that it did.

    Parameters
    ----------
    table : DataFrame
        As :func:`pmtpy.load` makes it.
    profile : Profile
        Of its sensor; it has to know the kernel.
    channel : str, optional
        Which power of the recording. None: the profile's.
    load : LoadIntervals, optional
        When the load was on; sharpens the result. None: as the recording has it.
    between : pair of float, optional
        Seconds since the first row.
    load_period_s : pair of float, optional
        Between which the period of a load that repeats is known to be; it narrows the worst case, ``Energy.aliased``.
    report : callable
        Is told what a user has to know.

    Of rows that this very profile corrected when they were recorded the energies are corrected in time alone.

    Raises CalibrationError: the profile is of another device, channel or period, or does not know the kernel; or the
    rows were corrected by another one.
    Raises TargetError: there is no such channel; the load is on another clock.
    Raises DeclinedError: the recording does not tell when its values were renewed.
    """
    if not profile.response.shaped:
        msg = (
            "the profile does not know the kernel of its sensor, so only gain and offset could be corrected: "
            "characterise the sensor under an irregular load, by its stamps or beside a meter that reads several times "
            "as often, and make the profile from that"
        )
        raise CalibrationError(msg)
    path = table.attrs["path"]
    _refuse_another(profile, table, path, report)
    column = power_column(table, channel or profile.channel, path)
    _refuse_another_channel(profile, table, column, path, report)
    polls = read_series(table, column, alone=load is None)
    lattice = estimate_updates(polls.t_s, polls.watts, uncut=polls.uncut)
    _refuse_another_period(profile, lattice.period_s, path)
    true_watts = _true_watts(profile, table, column, polls.watts, report)
    updates = update_series(polls.t_s, true_watts, lattice, polls.renewed_s)
    shift, own = 0.0, stamped_load(table, alone=True) if load is None else None
    if load is not None:
        if polls.absolute != load.absolute:
            msg = f"{path} and the stamps of the load are on different clocks: one of them has no wall time"
            raise TargetError(msg)
        if polls.absolute:  # a log in local time without a zone is whole or half hours off
            shift = zone_shift(float(updates.t_s[0]), float(updates.t_s[-1]), PowerTrace.of_load(load))
    worked = load if own is None else own
    responses = known_responses(profile, updates.period_s, updates.t_s + shift, updates.watts, worked)
    rows_s = table[times_of(table, alone=load is None)].to_numpy(np.float64) + shift
    first, shown_s = float(rows_s[0]), rows_s[table[column].notna()]  # polls may lie beside the rows that tell of them
    if between is not None:
        intervals = [(first + between[0], first + between[1], "")]
    else:
        for why in said_of_regions(table) if load is None else ():
            report(f"note: {why}")
        extent = float(shown_s[0]), float(shown_s[-1])
        within = load if own is None else own.about(*extent, 0.0)
        blocks = (_regions(table) if load is None else []) or _blocks(within)
        intervals = _intervals(blocks, extent, max(r.needed_s for _, r in responses), path, report)
    found, around_s = [], max(stamps_around_s(r) for _, r in responses)
    loads = _stamps(worked, intervals, around_s, report)
    for (start, end, name), stamps in zip(intervals, loads, strict=True):
        shown = updates if stamps is None else updates.dated()
        energy = likely_energy(
            shown.t_s + shift,
            shown.watts,
            responses,
            start_s=start,
            end_s=end,
            load=stamps,
            load_period_s=load_period_s,
        )
        found.append(CorrectedEnergy(start - first, end - start, energy, name))
    if why := profile.doubt():
        report(f"note: {profile.channel}: {why}")
    beyond = profile.outside(updates.watts)
    if beyond:
        report(
            f"note: of {amount(len(updates), 'update')} {amount(beyond, 'lies', 'lie')} outside the calibrated "
            "range: extrapolated there"
        )
    return found


def _regions(table: pd.DataFrame) -> list[Span]:
    """Return what was marked or measured, by elapsed times; regions may nest, touch and overlap."""
    return regions_of(table, table["elapsed"].to_numpy(np.float64))


def _stamps(
    load: LoadIntervals | None,
    intervals: Sequence[tuple[float, float, str]],
    around_s: float,
    report: Callable[[str], None],
) -> list[LoadIntervals | None]:
    """Return the stamps of a load about each interval; None where they are not all that it did in it."""
    if load is None:
        return [None] * len(intervals)
    told = [load.about(start, end, around_s) if load.knows(start, end) else None for start, end, _ in intervals]
    if None in told:
        report(
            f"note: of {amount(len(told), 'region')} {amount(told.count(None), 'is', 'are')} corrected without "
            "the load's stamps, which do not "
            "tell all that it did there"
        )
    return told


def _blocks(load: LoadIntervals | None) -> list[Span]:
    """Return the blocks of a load."""
    return [] if load is None else [Span(*at, "") for at in zip(load.on_s.tolist(), load.off_s.tolist(), strict=True)]


def _intervals(
    blocks: Sequence[Span],
    extent: tuple[float, float],
    lead_s: float,
    path: str,
    report: Callable[[str], None],
) -> list[tuple[float, float, str]]:
    """Return regions or blocks of a load, with names; where there are none, all of the recording that is corrected."""
    first, last = extent
    inside = [(float(b.start), float(b.end), b.name) for b in blocks if b.start > first and b.end < last - lead_s]
    if len(inside) < len(blocks):
        report(
            f"note: left out {len(blocks) - len(inside)} of {len(blocks)} regions or blocks, which begin before "
            f"{path} does, or end less than {duration(lead_s)} before it ends"
        )
    if len(inside) > (_MAX_REGIONS if any(name for *_, name in inside) else _MAX_BLOCKS):
        report(f"note: the {len(inside)} regions or blocks are taken as one; --between FROM,TO takes a part of them")
        return [(inside[0][0], max(end for _, end, _ in inside), "")]
    if not inside:
        report(
            f"note: no region and no block of a load lies inside {path}: this is the energy of all of it but "
            f"{duration(lead_s)} at either end, which needs readings from beyond; --between FROM,TO takes a part"
        )
    return inside or [(first + lead_s, last - lead_s, "")]


def _refuse_another(profile: Profile, table: pd.DataFrame, path: str, report: Callable[[str], None]) -> None:
    """Refuse a profile of another device than the recording's, as far as the recording says which that is."""
    facts = (table.attrs["metadata"] or {}).get("identity")
    if isinstance(facts, dict) and profile.device.backend != RECORDED:
        known = dict(facts)
        if known.get("virtual") is None:
            known["virtual"] = profile.device.virtual
            report(f"note: nothing in {path} says whether its device is virtual; it is taken to be as the profile's")
        device = Identity.read(known)
        refuse_stranger(profile, device)
        if why := unproven(profile, device):
            report(f"note: {why}")
        return
    of = f"{profile.device.model}{' (virtual)' if profile.device.virtual else ''}".strip()
    report(f"note: nothing in {path} says of which device it is; it is taken for the profile's{of and f', {of}'}")


def _refuse_another_channel(
    profile: Profile, table: pd.DataFrame, column: str, path: str, report: Callable[[str], None]
) -> None:
    """Refuse a channel beside the profile's own, unless both show the same; elsewhere names differ by logger."""
    own = f"{profile.channel}_W"
    if column == own:
        return
    asked = column.removesuffix("_W")
    if own in table.columns and table[own].notna().any() and not table[own].equals(table[column]):
        msg = (
            f"the profile is of {profile.channel}, and {path} has that beside {asked}: each channel has a response of "
            f"its own; leave --channel out, or make a profile of {asked}"
        )
        raise CalibrationError(msg)
    report(f"note: {asked} of {path} is taken for what the profile calls {profile.channel}")


def _true_watts(
    profile: Profile, table: pd.DataFrame, column: str, watts: Floats, report: Callable[[str], None]
) -> Floats:
    """Apply the curve of a profile, unless it was applied when the power was recorded; refuse it above another's."""
    by, what = corrected_by(table.attrs["metadata"], column[:-2]), f"{column[:-2]} of {table.attrs['path']}"
    if not by:
        return profile.curve.true(watts)
    if by != {profile.digest}:
        msg = (
            f"{what} was corrected by the profile {', '.join(sorted(by))} while it was recorded, and the one given is "
            f"{profile.digest}, which would correct it twice: {AS_SHOWN}, or give the profile that it was corrected by"
        )
        raise CalibrationError(msg)
    report(f"note: {what} has gain and offset of this profile already: they are not applied again")
    return watts


def _refuse_another_period(profile: Profile, period_s: Estimate, path: str) -> None:
    stated = profile.response
    if not stated.period_s:
        return
    if abs(period_s.value - stated.period_s) > _ANOTHER * stated.period_s + 2.0 * stated.period_u + period_s.half_width:
        msg = (
            f"{path} updates every {1e3 * period_s.value:.4g} ms and the profile's sensor every "
            f"{1e3 * stated.period_s:.4g} ms: another device or channel; name the channel with --channel, or make a "
            "profile of this one"
        )
        raise CalibrationError(msg)
