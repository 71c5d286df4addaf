"""The energy of a live region where a profile knows the kernel: rows as updates, the profile as a response.

Whatever the kernel is, a mere lag, a one-pole, a window of several periods, the way is the same as of a recording:
the rows are dated, and one estimator does the rest. Pure; where the rows are not enough it refuses.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import numpy as np

from pmtpy.analysis.clocking import live_updates, possible_updates
from pmtpy.analysis.energy._noise import noise_of
from pmtpy.analysis.energy.estimate import Energy, likely_energy, mixture, partly_stamped
from pmtpy.analysis.signal.estimate import Z95
from pmtpy.analysis.signal.trace import HOLE
from pmtpy.analysis.signal.updates import Updates
from pmtpy.analysis.uncertainty.channel_times import UNSEEN_RENEWALS
from pmtpy.analysis.uncertainty.components import DOUBTFUL_SHARE
from pmtpy.analysis.uncertainty.notices import too_short
from pmtpy.core.calibration.profile import Profile
from pmtpy.core.channel import Channel, EnergyMethod, Quantity
from pmtpy.core.load_intervals import LoadIntervals
from pmtpy.core.presentation import duration
from pmtpy.core.response import Number, Response
from pmtpy.core.rows import Floats
from pmtpy.errors import CoverageError

ROWS_BEFORE_S = 5.0  # rows before a region that tell when the register is renewed, at least
_MAX_INSTANT_U = 0.02  # of the period: instants that are less sure are weighed in parts by what the load tells
_UNCOVERED = "the rows do not show the power from before the region up to its end"
_MOST_SWITCHES = 20_000  # of a load in one region; more would take seconds, and are faster than any sensor's kernel


def known_responses(
    profile: Profile, period_s: float, t_s: Floats, watts: Floats, load: LoadIntervals | None
) -> list[tuple[float, Response]]:
    """Return the profile's response as it is of powers to which the profile's curve was applied already.

    Where the kernel was left open, those that it may be, with the share of belief in each, the likeliest first.
    ``t_s`` and ``watts`` are updates, which tell the noise where the profile does not, the better if it is known when
    the ``load`` was on; ``period_s`` is what was found of them.
    """
    known = profile.calibrated(Channel(profile.channel, Quantity.POWER, resolution=0.0))
    each = profile.candidates or ((1.0, profile.response),)
    return [
        (
            share,
            replace(
                response,
                period_s=period_s,
                gain_u=known.gain_u,
                offset_u=known.offset_u,
                known_at_w=known.response.known_at_w,
                noise_w=known.noise or noise_of(t_s, watts, response, load),
                state_w=known.response.state_w,
                state_s=known.response.state_s,
            ),
        )
        for share, response in each
    ]


def after_s(response: Response) -> float:
    """How long after the end of a region rows still tell something of it; 0 where nothing is done here."""
    if not response.shaped or not response.period_s:
        return 0.0
    return 2.0 * (response.span_s + abs(response.delay_s) + response.period_s)


def live_energy(
    profile: Profile,
    channel: Channel,
    t_s: Floats,
    watts: Floats,
    *,
    seconds: float,
    aged_s: float,
    load: LoadIntervals | None,
) -> Energy | None:
    """Energy of a region that begins at 0, corrected as a recording would be.

    Parameters
    ----------
    profile, channel
        The channel's profile, and the channel as that calibrated it.
    t_s, watts : float64, shape (n,)
        Rows from before the region up to :func:`after_s` after it, as far as they have come.
    seconds : float
        Length of the region.
    aged_s : float
        How old a value can be at its row; see :func:`pmtpy.analysis.clocking.live_updates`.
    load : LoadIntervals, optional
        When the load was on.

    Returns
    -------
    Energy or None
        None where there is nothing to correct: the profile knows no kernel, or the channel is a counter.

    Raises
    ------
    CoverageError
        The rows do not tell the power from before the region up to its end.
    """
    reach, period = after_s(profile.response), Number(profile.response.period_s, profile.response.period_u)
    if not reach or channel.energy_method is EnergyMethod.COUNTER:
        return None
    near = np.isfinite(watts) & (t_s <= seconds + reach)
    t_s, watts = t_s[near], watts[near]
    seen = live_updates(t_s, watts, period, aged_s)
    # Of polls the instants of updates are found, and off where a phase jumps: what is left of a load is no noise then.
    stamps = None if aged_s else load
    responses = known_responses(profile, period.value, seen.t_s, seen.watts, stamps)
    response = responses[0][1]
    # A register that now and then is not renewed may stand at the end as well.
    ahead_s = (HOLE if seen.stale else UNSEEN_RENEWALS) * response.period_s
    if not _covered(seen, response, seconds, ahead_s):
        raise CoverageError(_UNCOVERED)
    load, notes = _fit_load(load, seconds)
    unsure_s = math.inf
    if load is not None:
        unsure_s, seen = _MAX_INSTANT_U * response.period_s, seen.dated()
    found = []
    for share, updates in possible_updates(seen, unsure_s):
        by = [
            (p, replace(r, lag_u=math.hypot(r.lag_u, updates.jitter_s), step_w=channel.smallest_step))
            for p, r in responses
        ]
        with contextlib.suppress(CoverageError):
            energy = likely_energy(
                updates.t_s,
                updates.watts,
                by,
                start_s=0.0,
                end_s=seconds,
                load=load,
                ahead_s=ahead_s,
            )
            found.append((share, energy))
    if not found:
        raise CoverageError(_UNCOVERED)
    most = max(energy.evidence for _, energy in found)
    one = mixture([(share * math.exp(energy.evidence - most), energy) for share, energy in found], "lag")
    said = (*notes, *one.warnings, *_short(channel, one, seconds, _polled_s(t_s) if aged_s else 0.0))
    return replace(one, warnings=tuple(f"{channel.name}: {warning}" for warning in said))


def _covered(seen: Updates, response: Response, seconds: float, ahead_s: float) -> bool:
    """Whether updates are known from before the region up to its end, or nearly."""
    t, period = seen.t_s, response.period_s
    if not len(t) or t[0] > response.lag_s + period or t[-1] < seconds - ahead_s:
        return False
    # A register that was polled and not renewed leaves a gap whose power is as uncertain as it is; of other rows that
    # lack, what stood meanwhile may have been steady.
    inner = t[(t >= -response.span_s - period) & (t <= seconds + response.lag_s + period)]
    return not seen.aged_s or (len(inner) > 1 and float(np.max(np.diff(inner))) <= HOLE * period)


def _fit_load(load: LoadIntervals | None, seconds: float) -> tuple[LoadIntervals | None, tuple[str, ...]]:
    """Return the load if its stamps can be held against the readings, else why not."""
    if load is not None and len(load.on_s) * 2 > _MOST_SWITCHES:
        return None, (f"the load was switched {2 * len(load.on_s)} times; its stamps are not used",)
    why = partly_stamped(load, 0.0, seconds)
    return (None, (why,)) if why else (load, ())


def _polled_s(t_s: Floats) -> float:
    """Return the usual time between two rows."""
    return float(np.median(np.diff(t_s))) if len(t_s) > 1 else math.inf


def _short(channel: Channel, found: Energy, seconds: float, polled_s: float) -> tuple[str, ...]:
    """Say so when the readings hardly tell the energy: the region is too short for them, or they are too few.

    ``polled_s``: time between reads; 0 where each row is a renewal, whose distance tells nothing of how often was read.
    """
    blurred = math.hypot(*(u for name, u in found.parts if name in {"reconstruction", "edges"}))
    if blurred <= DOUBTFUL_SHARE * abs(found.joules):
        return ()
    refresh_s, window_s = channel.refresh_s or 0.0, channel.window_s or 0.0
    if seconds < refresh_s + window_s:
        return (too_short(seconds, refresh_s, window_s),)
    if polled_s > refresh_s > 0.0:
        rates = f"refreshes every {duration(refresh_s)} and was read every {duration(polled_s)} only"
        return (f"it {rates}, so its readings hardly tell the energy; read it more often (interval=)",)
    if found.warnings:  # they say why
        return ()
    share = Z95 * blurred / max(abs(found.joules), 1e-300)
    return (too_short(seconds, refresh_s, window_s, share),)
