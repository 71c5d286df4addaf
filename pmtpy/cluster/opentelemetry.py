"""Sensors as OpenTelemetry instruments: ``hw.energy``, ``hw.power``, ``hw.host.*``. Needs ``opentelemetry-api``.

Names and attributes are those of the semantic conventions for hardware (opentelemetry.io, "Hardware metrics", status
Development, of August 2026): the whole machine only as ``hw.host.*``, so that no sum counts it with its parts; a part
inside another names it (``hw.parent``); the host is an attribute of the resource. The SDK, and where the numbers go,
are the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pmtpy._extras import extra
from pmtpy.cluster._watched import ChannelNow, SensorNow, Watched
from pmtpy.core.channel import TOTAL
from pmtpy.regions.pool import watching
from pmtpy.sensor.sensor import Sensor

_HOST = "host"  # the domain of a meter of the whole machine
_TYPES = {"dram": "memory", "gpu": "gpu", "gpus": "gpu", "package": "cpu", "core": "cpu"}


class Instruments:
    """The instruments of some sensors; made by :func:`instrument`. Close it to end the watching."""

    def __init__(self, watched: Watched, meter: Any, observation: Callable[[float, Mapping[str, str]], Any]) -> None:
        self._watched, self._observation = watched, observation
        self._seen: list[SensorNow] = []
        self._answered: set[str] = set()
        for name, kind, unit, text in (
            ("hw.energy", "counter", "J", "Energy consumed by the component"),
            ("hw.power", "gauge", "W", "Instantaneous power consumed by the component"),
            ("hw.host.energy", "counter", "J", "Total energy consumed by the entire physical host"),
            ("hw.host.power", "gauge", "W", "Instantaneous power consumed by the entire physical host"),
        ):
            make = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
            make(name, callbacks=[self._callback(name)], unit=unit, description=text)

    def _callback(self, name: str) -> Callable[[object], Iterable[Any]]:
        def observe(_options: object) -> Iterable[Any]:
            return self._observe(name)

        return observe

    def _observe(self, name: str) -> list[Any]:
        # Instruments are asked one after the other: who asks again begins the next collection, which reads anew.
        if not self._seen or name in self._answered:
            self._seen, self._answered = self._watched.read(), set()
        self._answered.add(name)
        whole, energy = name.startswith("hw.host."), name.endswith("energy")
        found = []
        for sensor in self._seen:
            for channel in sensor.channels:
                if channel.name == TOTAL or (channel.domain == _HOST) is not whole:
                    continue
                value = channel.joules if energy else channel.watts
                if value is not None:
                    found.append(self._observation(value, _attributes(sensor, channel)))
        return found

    def close(self) -> None:
        """End the watching: later collections find nothing new."""
        self._watched.close()


def _attributes(sensor: SensorNow, channel: ChannelNow) -> dict[str, str]:
    parts = channel.domain.split("/")
    about = {"hw.id": f"{sensor.target}/{channel.name}", "hw.name": channel.name, "hw.type": _type(parts)}
    above = _above(sensor, channel)
    if above is not None:
        about["hw.parent"] = f"{sensor.target}/{above.name}"
    return about | ({"pmt.virtual": "true"} if sensor.virtual else {})


def _type(parts: list[str]) -> str:
    named = [_TYPES[p.rstrip("0123456789?")] for p in parts if p.rstrip("0123456789?") in _TYPES]
    return named[-1] if named else "power_supply" if parts[0] == "external" else "other"


def _above(sensor: SensorNow, channel: ChannelNow) -> ChannelNow | None:
    """Return the innermost channel that contains another one."""
    around = [c for c in sensor.channels if c.domain and channel.domain.startswith(f"{c.domain}/")]
    return max(around, key=lambda c: len(c.domain), default=None)


def instrument(*targets: str | Sensor, meter_provider: Any = None) -> Instruments:
    """Give sensors to OpenTelemetry; each collection reads every sensor once.

    Parameters
    ----------
    *targets : str or Sensor
        As for :func:`pmtpy.region`.
    meter_provider : MeterProvider, optional
        None: the global one.

    Raises MissingPackageError: ``opentelemetry-api`` is not installed.
    """
    with extra("opentelemetry", "instrument()"):
        from opentelemetry import metrics
    from pmtpy._version import __version__

    meter = metrics.get_meter("pmtpy", __version__, meter_provider)
    return Instruments(Watched(list(watching(targets).values())), meter, metrics.Observation)
