"""What rows say of counters: where they moved, and the power there as far as a judgement needs one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pmtpy.analysis.uncertainty.channel_times import is_power
from pmtpy.core.channel import Channel
from pmtpy.core.rows import Floats


def counted(
    channels: Sequence[Channel], t_s: Floats, watts: Floats, joules: Floats
) -> tuple[Floats, npt.NDArray[np.bool_] | None]:
    """Return powers as :func:`~pmtpy.analysis.uncertainty.interval_statistics.summarise` takes them, and the moves.

    The first move of a counter has no power to show, but it tells how much one is, which an uncertainty needs: it is
    spread over the time since the row with which the counter began, or one refresh.

    Parameters
    ----------
    t_s : float64, shape (n,)
        Of the rows, in order.
    watts, joules : float64, shape (k, n)
        One row for each channel.

    Returns
    -------
    watts : float64, shape (k, n)
    moved : bool, shape (k, n), or None
        Whether counters moved since the row before; None where there are no counters.
    """
    counters = [i for i, c in enumerate(channels) if not is_power(c)]
    if not counters:
        return watts, None
    moved = np.ones(joules.shape, np.bool_)
    moved[counters, 1:] = joules[counters, 1:] > joules[counters, :-1]
    unknown = np.isnan(watts)
    filled = watts
    for i in counters:
        moves = np.flatnonzero(moved[i, 1:]) + 1
        for k in moves[unknown[i, moves]].tolist():
            filled = watts.copy() if filled is watts else filled
            known = np.flatnonzero(~unknown[i, :k])
            begun = max(int(known[-1]) + 1 if len(known) else 0, *moves[moves < k][-1:].tolist(), 0)
            seconds = max(float(t_s[k] - t_s[begun]), channels[i].refresh_s or 0.0)
            goes_on = np.flatnonzero(~unknown[i, k:] | (np.arange(k, len(t_s)) > k) & moved[i, k:])
            end = k + int(goes_on[0]) if len(goes_on) else len(t_s)
            filled[i, k:end] = (joules[i, k] - joules[i, k - 1]) / seconds if seconds > 0.0 else np.nan
    return filled, moved
