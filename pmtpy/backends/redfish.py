"""Input power of a chassis over Redfish, with a user who may only log in.

Read are ``PowerControl[].PowerConsumedWatts`` of a chassis' Power, or ``PowerWatts.Reading`` of its EnvironmentMetrics.
Facts: DMTF DSP0266 (the protocol), DSP0268 (the schemas).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pmtpy._handlers import of_a_handler
from pmtpy.backends import _bmc
from pmtpy.backends._https import Https, cure_of, trust
from pmtpy.backends._named import only_named
from pmtpy.core.channel import Identity
from pmtpy.core.clock import Clock
from pmtpy.core.numbers import real
from pmtpy.core.source import Discovery, PolledSource, Source, Traits
from pmtpy.errors import BackendUnavailableError, ReadError

BACKEND = "redfish"
PASSWORD = "PMT_REDFISH_PASSWORD"  # noqa: S105  (the name of a variable)
ROOT = "/redfish/v1/Chassis"
_MOST_CHASSIS = 64
_INPUT_CONTEXTS = (None, "Chassis", "SystemBoard", "PowerSupply", "PowerSubsystem")  # what a chassis may call its input
# A sensor may say its unit, in UCUM (DSP0268, Sensor.ReadingUnits); without one PowerWatts is what its name says.
_UNITS = {None: 1.0, "W": 1.0, "mW": 1e-3, "kW": 1e3, "MW": 1e6}
_LOOK = "see what the service shows at https://{}{}: another chassis may tell (chassis=), or the same processor by ipmi"
_REFERENCE = "DMTF DSP0268: Power, EnvironmentMetrics"
Get = Callable[[str], Mapping[str, Any]]


def power(resource: Mapping[str, Any], where: str) -> float | None:
    """Return the watts of the chassis that a Power or EnvironmentMetrics resource shows; None if it shows none.

    Raises ReadError: it shows powers of which none, or more than one, can be that of the whole; or what is no power.
    """
    sensor, listed = resource.get("PowerWatts"), resource.get("PowerControl")
    controls = [c for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []
    shown = [c for c in controls if c.get("PowerConsumedWatts") is not None]
    whole = [c for c in shown if c.get("PhysicalContext") in _INPUT_CONTEXTS]
    own = whole[0]["PowerConsumedWatts"] if len(whole) == 1 else None
    each = (real(w) for w in (own, *(c["PowerConsumedWatts"] for c in shown)))
    numbers = [w for w in each if w is not None]
    if shown and (own is None or (numbers and max(numbers) > numbers[0])):  # no part takes more than the whole
        named = ", ".join(f"{c.get('Name')!r} of {c.get('PhysicalContext')}" for c in shown[:5])
        msg = f"{where} shows powers of which it is not clear which is that of the chassis: {named}"
        raise ReadError(msg)
    if shown or not isinstance(sensor, dict) or sensor.get("Reading") is None:
        return _bmc.believed(own, where) if shown else None
    reading, unit, kind = (sensor.get(key) for key in ("Reading", "ReadingUnits", "ReadingType"))
    if not (unit is None or isinstance(unit, str)) or unit not in _UNITS or kind not in (None, "Power"):
        msg = f"{where} shows as PowerWatts {reading!r} in {unit!r} of {kind or 'Power'}, which is no power in watts"
        raise ReadError(msg)
    return _bmc.believed(reading, where, _UNITS[unit])


class Redfish(PolledSource):
    """The chassis of one service that show their power."""

    traits = Traits(interval_s=_bmc.INTERVAL_S, blocking=True)
    gone_after_s = _bmc.GONE_AFTER_S

    def __init__(self, get: Get, host: str, clock: Clock, *, chassis: str) -> None:
        super().__init__(clock)
        self._get = get
        self._paths = _with_power(get, host, chassis)
        names = [path.split("/")[-2].lower().replace(" ", "-").replace(",", "-") for path in self._paths]
        alone = len(names) == 1  # one chassis may stand in another
        self.channels = tuple(
            _bmc.chassis_channel(
                name, f"external/redfish/{host}/{name}" if alone else "", window_s=None, reference=_REFERENCE
            )
            for name in names
        )
        several = f"{len(names)} chassis, of which one may contain others: there is no total; name one by chassis="
        self.identity = Identity(BACKEND, f"Redfish of {host}", notes=() if alone else (several,))

    def poll(self) -> Sequence[float]:
        """Ask each chassis."""
        watts = [power(self._get(path), path) for path in self._paths]
        if None in watts:
            msg = "a chassis shows no power now"
            raise ReadError(msg)
        return [w for w in watts if w is not None]

    def close(self) -> None:
        """End the connection."""
        getattr(self._get, "close", lambda: None)()


def _with_power(get: Get, host: str, chassis: str) -> list[str]:
    """Return the resources that show the power of a chassis."""
    members = get(ROOT).get("Members")
    named = [m.get("@odata.id") for m in members if isinstance(m, dict)] if isinstance(members, list) else []
    links = [link for link in named if isinstance(link, str) and link.startswith("/redfish/")]
    found = []
    for link in links[:_MOST_CHASSIS]:
        if chassis and link.rstrip("/").rpartition("/")[2] != chassis:
            continue
        for resource in ("EnvironmentMetrics", "Power"):
            path = f"{link.rstrip('/')}/{resource}"
            try:
                answer = get(path)
            except ReadError as error:
                if "status" not in str(error):
                    raise
                continue
            try:
                shown = power(answer, path)
            except ReadError as error:
                raise BackendUnavailableError(BACKEND, str(error), _LOOK.format(host, path)) from error
            if shown is not None:
                found.append(path)
                break
    if not found:
        what = f"chassis {chassis!r}" if chassis else "no chassis"
        msg = f"{host}: {what} shows a power; there are: {', '.join(links) or 'none'}"
        raise ReadError(msg)
    return found


def discover(device: str | None = None) -> Discovery:
    """Say that a service must be named."""
    why = "a Redfish service is asked only where one is named"
    return only_named(BACKEND, device, why, "its host: redfish:bmc.example.org")


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    user: str = "",
    password_file: str = "",
    ca_file: str = "",
    fingerprint: str = "",
    chassis: str = "",
    timeout_s: float = 5.0,
    get: Get | None = None,
) -> Source:
    """Open the Redfish service of a host.

    Parameters
    ----------
    device : str
        ``HOST`` or ``HOST:PORT``.
    user, password_file : str
        Who asks: the role ReadOnly is enough. Without a file, the environment's PMT_REDFISH_PASSWORD.
    ca_file : str
        Certificates that are trusted beside the system's.
    fingerprint : str
        SHA-256 of the one certificate that is trusted, for those that sign themselves.
    chassis : str
        Which one, where there are several.
    timeout_s : float
        For one answer, seconds.
    get : callable, optional
        Asks in place of HTTPS, for a virtual device.

    Raises BackendUnavailableError: it cannot be reached, is not trusted, refuses the user, or shows no power.
    """
    if device is None:
        raise BackendUnavailableError(discover().findings[0])
    secret = _bmc.password(BACKEND, password_file, PASSWORD, os.environ)
    try:
        if get is None:
            get = Https(
                device,
                user,
                secret,
                context=trust(ca_file, fingerprint),
                pin=fingerprint,
                timeout_s=timeout_s,
                clock=clock,
            )
        return Redfish(get, device, clock, chassis=chassis)
    except (BackendUnavailableError, ReadError, OSError) as error:
        getattr(get, "close", lambda: None)()
        if isinstance(error, BackendUnavailableError) or of_a_handler(error):
            raise
        raise BackendUnavailableError(BACKEND, str(error), cure_of(error, device)) from error
