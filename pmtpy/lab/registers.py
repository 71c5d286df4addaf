"""All registers of power and energy of one sensor or of several, recorded together and put beside each other.

Recorded here under a load that is made for it, or before, in a recording that holds several registers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pmtpy.analysis.characterisation.registers import Register, Standing, side_by_side
from pmtpy.analysis.characterisation.results import Series
from pmtpy.analysis.signal.clock_fit import zone_shift
from pmtpy.analysis.signal.trace import PowerTrace
from pmtpy.core.channel import TOTAL, Channel, Quantity
from pmtpy.core.clock import HOST_CLOCK, Clock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.numbers import stated
from pmtpy.core.rows import Floats
from pmtpy.errors import TargetError
from pmtpy.io.columns import powers_among
from pmtpy.lab.loads import schedule
from pmtpy.lab.record import Recorder, whole_counts
from pmtpy.lab.recorded import marked_load, one_run, power_column, read_series, stamped_load, used_stamps

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of each register, in the order of the sensors."""

    standings: Sequence[tuple[str, str, Standing]]  # target, channel, and what was found
    reference: tuple[str, str] | None  # target and channel; None where no register can be it
    virtual: tuple[str, ...] = ()  # those targets that are emulated


def measure_registers(
    targets: Mapping[str, Mapping[str, str]],
    seconds: float,
    *,
    channel: str | None = None,
    interval_s: float | None = None,
    clock: Clock = HOST_CLOCK,
    progress: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Record all registers of power and energy under a load that is made here, and put them beside each other.

    Parameters
    ----------
    targets : mapping
        Options of each backend, as text, by target.
    seconds : float
        How long.
    channel : str, optional
        Beside which the others are put: of the first target that has it. None: the first power.
    interval_s : float, optional
        Mean time from one round of polls to the next. None: a twelfth of the refresh period, 0.2 to 3 ms.

    Raises TargetError: no such target, option or channel.
    Raises BackendUnavailableError: a sensor cannot be used, or nothing here can make a load for it.
    Raises DeclinedError: nothing is known of the clock of ``channel``.
    """
    recorder = Recorder(seconds, channel, interval_s, clock, progress)
    recorded = recorder.together(targets, schedule(seconds))
    registers = {}
    for target, polls in zip(targets, recorded, strict=True):
        for i, one in enumerate(polls.channels):
            if one.measures_energy:
                registers[target, one.name] = _register(target, one, polls.t_s, polls.values[:, i], polls.load)
    progress("putting the registers beside each other")
    virtual = tuple(target for target, polls in zip(targets, recorded, strict=True) if polls.identity.virtual)
    return replace(_beside(registers, channel), virtual=virtual)


def recorded_registers(
    tables: Mapping[str, pd.DataFrame],
    channel: str | None = None,
    load: LoadIntervals | None = None,
    report: Callable[[str], None] = _log.warning,
) -> Measured:
    """Put the registers of recordings beside each other.

    Parameters
    ----------
    tables : mapping
        Recordings by path. The energies of counters are taken as recorded, powers as polled.
    channel : str, optional
        Beside which the others are put: of the first recording that has it. None: the first power.
    load : LoadIntervals, optional
        When the device was loaded; a log in local time is shifted by whole zones to meet it. None: what the stamps of
        the load in each recording say, else its markers.
    report : callable
        Is told what is left out.

    Raises TargetError: a recording holds no powers, or there is no such channel; several are not of one clock.
    Raises DeclinedError: nothing is known of the clock of ``channel``, or the load was at another time.
    """
    if not one_run(list(tables.values())):
        msg = f"{' and '.join(tables)} were stamped by different clocks, which have no phase to each other"
        raise TargetError(msg)
    alone = load is None and len(tables) == 1
    registers = {}
    for path, table in tables.items():
        if not _columns(table):
            power_column(table, None, path)  # says why there is none
        polled = {column: read_series(table, column, alone=alone) for column in _columns(table)}
        own = load if load is not None else _own_load(table, path, next(iter(polled.values())), report, alone=alone)
        for column, per_count in _columns(table).items():
            registers[path, column[:-2]] = _of_series(f"{path} {column[:-2]}", polled[column], per_count, own)
    return _beside(registers, channel)


def _own_load(
    table: pd.DataFrame, path: str, polls: Series, report: Callable[[str], None], *, alone: bool
) -> LoadIntervals | None:
    """Return when the device was loaded as a recording itself says: by stamps of its load, else by its markers."""
    load = stamped_load(table, alone=alone)
    return marked_load(table, alone=alone) if load is None else used_stamps(polls, load, path, report)


def _beside(registers: Mapping[tuple[str, str], Register], channel: str | None) -> Measured:
    """Put registers, by target and channel, beside each other."""
    if channel is not None and all(own != channel for _, own in registers):
        have = ", ".join(dict.fromkeys(own for _, own in registers)) or "none"
        msg = f"there is no register {channel}; there are {have}"
        raise TargetError(msg)
    whose = {register.name: key for key, register in registers.items()}
    asked = next((register.name for (_, own), register in registers.items() if own == channel), None)
    found, reference = side_by_side(list(registers.values()), asked)
    return Measured([(*whose[s.name], s) for s in found], None if reference is None else whose[reference])


def _register(target: str, channel: Channel, t_s: Floats, values: Floats, load: LoadIntervals | None) -> Register:
    name = f"{target} {channel.name}"
    if channel.quantity is not Quantity.ENERGY:
        return Register(name, t_s, values, load=load, uncut=True)
    counts = whole_counts(values / channel.scale - channel.offset)
    return Register(name, t_s, counts, channel.scale, channel.wrap, load, uncut=True)


def _columns(table: pd.DataFrame) -> dict[str, float | None]:
    """Return the registers of a recording by column, and of counters the joules of one count."""
    facts = {c.get("name"): c for c in (table.attrs["metadata"] or {}).get("channels", ())}
    found: dict[str, float | None] = {}
    for stem in powers_among(table.columns):
        said = facts.get(stem, {})
        if stem == TOTAL or said.get("form", "direct") != "direct" or not table[f"{stem}_W"].notna().any():
            continue
        counter = said.get("quantity") == "energy"
        found[f"{stem}_J" if counter else f"{stem}_W"] = stated(said, "scale") if counter else None
    return found


def _of_series(name: str, polls: Series, per_count: float | None, load: LoadIntervals | None) -> Register:
    t_s, renewed_s = polls.t_s, polls.renewed_s
    if load is not None and load.absolute != polls.absolute:
        load = None  # nothing says when one clock began by the other
    if load is not None and polls.absolute:
        zone_s = zone_shift(float(t_s[0]), float(t_s[-1]), PowerTrace.of_load(load))
        t_s, renewed_s = np.asarray(t_s + zone_s, np.float64), None if renewed_s is None else renewed_s + zone_s
    if per_count is None:
        return Register(name, t_s, polls.watts, load=load, uncut=polls.uncut, renewed_s=renewed_s)
    counts = whole_counts(polls.watts / per_count)
    return Register(name, t_s, counts, per_count, load=load, unwrapped=True, uncut=polls.uncut, renewed_s=renewed_s)
