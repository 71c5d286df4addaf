"""All registers of power and energy of one sensor or of several, recorded together and put beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pmtpy.analysis.characterisation.registers import Register, Standing, side_by_side
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.clock import HOST_CLOCK, Clock
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.rows import Floats
from pmtpy.lab.loads import schedule
from pmtpy.lab.record import Polls, record_together

_WHOLE = 1e-3  # of a count: what its own scale leaves of it


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of each register, in the order of the sensors."""

    standings: Sequence[tuple[str, str, Standing]]  # target, channel, and what was found
    reference: tuple[str, str] | None  # target and channel; None where no register can be it
    virtual: tuple[str, ...]  # those targets that are emulated
    load: bool  # whether the load was made here, so that it is known when it was on


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
    recorded = record_together(
        targets,
        schedule(seconds),
        seconds=seconds,
        channel=channel,
        interval_s=interval_s,
        clock=clock,
        progress=progress,
    )
    registers, whose = [], {}
    for target, polls in zip(targets, recorded, strict=True):
        load = LoadIntervals.switched(polls.edges_s) if len(polls.edges_s) else None
        for i, one in enumerate(polls.channels):
            if one.measures_energy:
                registers.append(_register(f"{target} {one.name}", one, polls, polls.values[:, i], load))
                whose[registers[-1].name] = target, one.name
    asked = next((name for name, (_, own) in whose.items() if own == channel), None)  # the recording refuses others
    progress("putting the registers beside each other")
    found, reference = side_by_side(registers, asked)
    return Measured(
        [(*whose[s.name], s) for s in found],
        None if reference is None else whose[reference],
        tuple(target for target, polls in zip(targets, recorded, strict=True) if polls.identity.virtual),
        all(len(polls.edges_s) > 0 for polls in recorded),
    )


def _register(name: str, channel: Channel, polls: Polls, values: Floats, load: LoadIntervals | None) -> Register:
    if channel.quantity is not Quantity.ENERGY:
        return Register(name, polls.t_s, values, load=load)
    counts = values / channel.scale - channel.offset
    whole = np.round(counts)
    counts = np.where(np.abs(counts - whole) < _WHOLE, whole, counts)
    return Register(name, polls.t_s, counts, channel.scale, channel.wrap, load)
