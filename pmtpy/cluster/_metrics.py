"""Sensors as metrics in Prometheus' sense: which families there are, which samples a sensor has, and their text. Pure.

The text is written here although a library could: it takes five milliseconds for ten sensors, and a scrape is to cost
no more than a reading. What a series is called never changes, so it is formatted once. Facts: OpenMetrics 1.0
(prometheus.io, "OpenMetrics 1.0"), and Prometheus' older text format 0.0.4. The tests read both with the library's own
parsers, and with promtool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pmtpy.cluster._watched import ChannelNow, SensorNow
from pmtpy.core.channel import Quantity

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OLDER_TEXT = "text/plain; version=0.0.4; charset=utf-8"

_OVERLAP = (
    " Channels of one sensor can lie inside each other: its channel total has each part once. Two sensors can see the"
    " same part (a wall meter and a processor's counter): do not add them."
)


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one name."""

    name: str  # without the suffix of its samples
    unit: str  # also the end of the name; empty: none
    kind: str  # ``counter``, ``gauge`` or ``info``
    text: str  # what it tells

    @property
    def suffix(self) -> str:
        """What its samples' names have behind that of the family."""
        return {"counter": "_total", "info": "_info"}.get(self.kind, "")


ENERGY = Family("pmt_energy_joules", "joules", "counter", "Energy used since the exporter started." + _OVERLAP)
POWER = Family(
    "pmt_power_watts",
    "watts",
    "gauge",
    "Power now; absent while it is not known. Mean powers follow from the energy by rate()." + _OVERLAP,
)
_UNCERTAINTY = Family(
    "pmt_energy_uncertainty_joules",
    "joules",
    "gauge",
    "Standard uncertainty of pmt_energy_joules_total; it holds for the energy that was counted.",
)
_UNCOVERED = Family(
    "pmt_energy_uncovered_seconds",
    "seconds",
    "counter",
    "Time whose energy is not known and not counted: gaps, losses, restarts of a device.",
)
LOST = Family("pmt_samples_lost", "", "counter", "Samples that the sensor lost.")
_UP = Family("pmt_sensor_up", "", "gauge", "1 while the sensor can be read, else 0.")
_REFRESH = Family(
    "pmt_sensor_update_interval_seconds", "seconds", "gauge", "How often the register behind a channel changes."
)
VOLTAGE = Family("pmt_voltage_volts", "volts", "gauge", "Voltage of the newest sample.")
CURRENT = Family("pmt_current_amperes", "amperes", "gauge", "Current of the newest sample.")
SENSOR = Family(
    "pmt_sensor", "", "info", "Who measures: device, calibration profile, whether all of it is emulated (virtual)."
)
CHANNEL = Family(
    "pmt_channel", "", "info", "What a channel measures (domain: the physical part), how, whether the total has it."
)
FAMILIES = (ENERGY, POWER, _UNCERTAINTY, _UNCOVERED, LOST, _UP, _REFRESH, VOLTAGE, CURRENT, SENSOR, CHANNEL)
_VALUES = {Quantity.VOLTAGE: VOLTAGE, Quantity.CURRENT: CURRENT}

Sample = tuple[Family, str, float]
"""Family, channel (empty: of the sensor as a whole), value."""


def samples(sensor: SensorNow) -> Iterator[Sample]:
    """Yield what a sensor has to show; nothing stands for what is not known."""
    yield _UP, "", 0.0 if sensor.why else 1.0
    yield LOST, "", float(sensor.lost)
    yield SENSOR, "", 1.0
    for channel in sensor.channels:
        name = channel.name
        yield ENERGY, name, channel.joules
        yield _UNCOVERED, name, channel.uncovered_s
        yield CHANNEL, name, 1.0
        if channel.watts is not None:
            yield POWER, name, channel.watts
        if channel.uncertainty_joules is not None:
            yield _UNCERTAINTY, name, channel.uncertainty_joules
        if channel.refresh_s is not None:
            yield _REFRESH, name, channel.refresh_s
    for name, quantity, value in sensor.values:
        if quantity in _VALUES:
            yield _VALUES[quantity], name, value


def labels(family: Family, sensor: SensorNow, channel: str) -> dict[str, str]:
    """Return the labels of a sample; none of them ever changes."""
    found = {"sensor": sensor.backend, "device": sensor.device}
    if family is SENSOR:
        identity = " ".join(filter(None, (sensor.model, sensor.serial)))
        virtual = str(sensor.virtual).lower()
        found |= {"identity": identity, "calibration": sensor.calibration, "virtual": virtual}
    elif channel:
        found["channel"] = channel
        if family is CHANNEL:
            found |= _facts(next(c for c in sensor.channels if c.name == channel))
        elif sensor.virtual:  # a query for real energy must not meet an emulated one by accident
            found["virtual"] = "true"
    # Names come from devices and file systems, which know more than can be written as UTF-8.
    return {k: v.encode("utf-8", "replace").decode() for k, v in found.items()}


def _facts(channel: ChannelNow) -> dict[str, str]:
    return {"domain": channel.domain, "method": channel.method, "in_total": str(channel.in_total).lower()}


class Text:
    """Writes what sensors show, in either format. Keeps the names of series from one time to the next.

    Parameters
    ----------
    created_s : float
        When the counters began, Unix seconds.
    """

    def __init__(self, created_s: float) -> None:
        self._created = f" {created_s:.3f}\n"
        self._names: dict[tuple[str, str, str], str] = {}
        self._heads = {(f.name, new): _head(f, new=new) for f in FAMILIES for new in (True, False)}

    def write(self, sensors: Sequence[SensorNow], *, open_metrics: bool) -> bytes:
        """Return the page of all sensors."""
        lines: dict[str, list[str]] = {f.name: [] for f in FAMILIES}
        names = self._names
        for sensor in sensors:
            for family, channel, value in samples(sensor):
                key = (family.name, sensor.target, channel)
                name = names.get(key)
                if name is None:
                    name = names[key] = _series(family, sensor, channel)
                lines[family.name].append(f"{family.name}{family.suffix}{name} {value!r}\n")
                if open_metrics and family is ENERGY:
                    lines[family.name].append(f"{family.name}_created{name}{self._created}")
        parts = [self._heads[n, open_metrics] + "".join(found) for n, found in lines.items() if found]
        return ("".join(parts) + ("# EOF\n" if open_metrics else "")).encode()


def _series(family: Family, sensor: SensorNow, channel: str) -> str:
    quoted = [f'{k}="{_escaped(v)}"' for k, v in labels(family, sensor, channel).items()]
    return "{" + ",".join(quoted) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _head(family: Family, *, new: bool) -> str:
    """Return the lines before the samples; the older format speaks of the samples' name and knows no units, no info."""
    name = family.name if new else family.name + family.suffix
    kind = family.kind if new or family.kind != "info" else "gauge"
    unit = f"# UNIT {name} {family.unit}\n" if new and family.unit else ""
    return f"# HELP {name} {family.text}\n# TYPE {name} {kind}\n{unit}"
