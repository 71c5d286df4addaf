"""What slow meters of service processors (BMCs) share: one channel of whole watts, credentials, belief."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.backends._assumed_gain import METER_U
from pmtpy.core.channel import Channel, Quantity
from pmtpy.core.numbers import real
from pmtpy.errors import BackendUnavailableError, ReadError

INTERVAL_S = 1.0
GONE_AFTER_S = 60.0  # a service processor that restarts is away for a minute
_MAX_CHASSIS_W = 30_000.0  # more than any chassis takes (the largest of 2026 have supplies of 6 x 3.3 kW)


def chassis_channel(
    name: str, domain: str, *, window_s: float | None, reference: str, least_watts: float = 0.0
) -> Channel:
    """Return the channel of a chassis' input power, in whole watts, renewed about once a second."""
    return Channel(
        name,
        Quantity.POWER,
        1.0,
        domain=domain,
        refresh_s=max(INTERVAL_S, window_s or 0.0),
        window_s=window_s,
        gain_u=METER_U,
        max_watts=_MAX_CHASSIS_W,
        least_watts=least_watts,
        reference=reference,
    )


def believed(shown: object, where: str, unit_w: float = 1.0) -> float:
    """Return a power that can be one, in watts; shown in units of ``unit_w`` watts.

    Raises ReadError: it is no number, or one that no chassis whose service processor answers can take.
    """
    number = real(shown)
    if number is None or not 0 < number * unit_w <= _MAX_CHASSIS_W:
        msg = f"{where} says {shown!r} {'W' if unit_w == 1.0 else f'times {unit_w:g} W'}, which no chassis draws"
        raise ReadError(msg)
    return number * unit_w


def password(backend: str, file: str, variable: str, environment: Mapping[str, str]) -> str:
    """Return a password from a file, else from the environment; empty if there is none. It is never shown.

    Raises BackendUnavailableError: the file cannot be read, or others may read it.
    """
    if not file:
        return environment.get(variable, "")
    try:
        if Path(file).stat().st_mode & 0o077:
            raise BackendUnavailableError(backend, f"others may read the password in {file}", f"$ chmod 600 {file}")
        return Path(file).read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, BackendUnavailableError) or of_a_handler(error):
            raise
        why = f"the password file {file} cannot be read"
        raise BackendUnavailableError(backend, why, "write the password into it, as one line") from error
