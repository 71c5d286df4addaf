"""How wide and how late a reading of a channel is, by what is stated of it."""

from __future__ import annotations

from dataclasses import replace

from pmtpy.analysis.signal.updates import POLLED
from pmtpy.core.channel import Channel, EnergyMethod
from pmtpy.core.response import Number, Response

FULL_COVERAGE = 0.9  # below this share of time seen a sensor is called part-time (gpu-table of Yang et al., duty)
# Times between renewals: between rows further apart than this one was missed, and a window wider than this spreads an
# instant over several readings.
SEVERAL_RENEWALS = 1.5
# Times between renewals without a row, in which two whole ones are not seen: skipped now and then, it is one. A longer
# gap is said, and for as long the last power may go on.
UNSEEN_RENEWALS = 3.0
STREAM_S = 1e-3  # sample interval below which a sensor is a stream: momentary values, and it counts what it loses
LAG_U = 0.3  # relative standard uncertainty of a lag that is stated: mostly how old a value is when it is polled


def is_power(channel: Channel) -> bool:
    """Whether single values are watts (else joules: a counter)."""
    return channel.energy_method is not EnergyMethod.COUNTER


def renewed_each(channel: Channel, every_s: float) -> Channel:
    """Return a channel as its readings show that it is renewed; what else was stated, if that was, is of another."""
    if not channel.refresh_s:
        return channel.timed(refresh_s=every_s)
    of, how = channel.response, Response.stated(refresh_s=Number(every_s))
    how = replace(how, known_at_w=of.known_at_w, state_w=of.state_w, state_s=of.state_s)
    return replace(channel, method=None, response=how)


def span_s(channel: Channel) -> float | None:
    """Width of a boxcar that sees as much as a reading does; None where that is not known.

    Of a sensor that is known by its lag alone, a low-pass, twice the lag.
    """
    if channel.window_s is not None:
        return channel.window_s
    return 2.0 * abs(channel.lag_s) if channel.lag_s is not None else None


def seen_share(channel: Channel, sample_s: float) -> float:
    """Share of time that reaches a reading, where one stands for ``sample_s``; 0 where the window is not known.

    Windows that are joined, but for how exactly their width and their period are known, see all.
    """
    if not is_power(channel) or sample_s == 0.0:
        return 1.0
    span = span_s(channel)
    if span is None:
        return 1.0 if channel.energy_method is EnergyMethod.MEAN else 0.0
    return 1.0 if span >= FULL_COVERAGE * sample_s else span / sample_s


def lag_s(channel: Channel, row_age_s: float = 0.0) -> float:
    """By how much the curve is late, where its rows are joined by lines: the mean age of what a row shows.

    What an update shows is as old as the channel states, else half its window, and its rows are later than the updates
    by ``row_age_s``. Where neither is stated half the refresh period, and half the age at the row, is a guess at all of
    it: a window may be as long as the period. An interval mean is counted where it belongs, before its row, so that
    only what the age exceeds half its window is left.
    """
    method = channel.energy_method
    if channel.lag_s is not None:
        age = channel.lag_s + row_age_s
    elif method is not EnergyMethod.COUNTER and channel.window_s is not None:
        age = channel.window_s / 2.0 + row_age_s
    else:
        age = 0.0 if method is EnergyMethod.MEAN else ((channel.refresh_s or 0.0) + row_age_s) / 2.0
    return age - (channel.window_s or 0.0) / 2.0 if method is EnergyMethod.MEAN else age


def delay_u_s(channel: Channel) -> float:
    """Standard uncertainty of the age of what an update shows last: as a profile has it, else of the lag as stated.

    Where neither says anything, of half a period either way.
    """
    return channel.response.end_u or LAG_U * abs(channel.response.lag_s)


def row_age_s(refresh_s: float, apart_s: float, aged_s: float) -> float:
    """Mean age of an update at its row.

    A register that is read again and again shows each update for a period, so its rows are half of that late, whether
    they are closer together or further apart. Where only the first that shows an update is kept, those are half a poll
    late; where rows bear the instant of renewal, none.

    Parameters
    ----------
    refresh_s : float
        Time between two updates; 0: not known.
    apart_s : float
        Time between two rows.
    aged_s : float
        How old an update may be when it is first shown (:class:`~pmtpy.core.source.Remarks`).
    """
    if aged_s and apart_s < POLLED * refresh_s:
        return refresh_s / 2.0
    return min(aged_s, refresh_s or aged_s) / 2.0


def reach_s(channel: Channel) -> float:
    """How long after an instant rows still tell something of it."""
    return abs(lag_s(channel)) + 2.0 * (channel.refresh_s or 0.0)
