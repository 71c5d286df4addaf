"""What the columns of a board mean: channels from its stored configuration. Pure.

Volts and amperes are as the firmware and its host library compute them (PowerSensor3 1.6.1, ``host/src/sensors.cc``);
how far they can be trusted is from Table I and the text of the ISPASS 2025 paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pmtpy.backends.powersensor3.config import FULL_SCALE_V, INVALID, MAX_LEVEL, PAIRS, SensorRecord
from pmtpy.backends.powersensor3.limits import implausible
from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Quantity

# Table I of the ISPASS 2025 paper: worst case of the current of the 10 A and 20 A modules, and of the voltage of the
# 12 V and 20 V modules. The table has no larger modules; for those the 20 A figure is scaled with the range.
_WORST_CURRENT_A = {"MLX10": 0.35, "MLX20": 0.41, "MLX50": 1.03, "MLX75": 1.54}
_WORST_VOLTAGE_V = 0.0286
# Table II: 0.72 W rms at 12 V for means of six conversions of the 10 A sensor, so 147 mA for one conversion. The other
# sensors are taken to be as much noisier as their worst case is larger.
_NOISE_SHARE = 0.72 / 12 * math.sqrt(6) / _WORST_CURRENT_A["MLX10"]
# About 0.2 W peak to peak at 8 A (text of the paper), which is 4 mV rms.
_VOLTAGE_NOISE_V = 0.004
_PAPER = "ISPASS 2025, PowerSensor3, Tables I and II"
# Supplies of the known modules lie near a third of what their voltage input can measure (12 V of 36.3 V).
_NOMINAL_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a board samples: the interval in seconds, over which every value is the mean, and the conversions in it."""

    interval_s: float
    scans: int


def pair_channels(
    records: Sequence[SensorRecord],
    board: str,
    sampling: Sampling,
    levels: Sequence[float] | None = None,
    *,
    plausible: bool = True,
) -> tuple[list[Channel], list[str]]:
    """Channels of the pairs that can be measured, and a plain note for each that cannot.

    Parameters
    ----------
    board : str
        Serial number or port, which names the physical parts in ``Channel.domain``.
    sampling : Sampling
        How the board samples.
    levels : sequence of float, optional
        Mean level of each sensor at the opening. The supply voltages in them scale the uncertainty of the power;
        without them, or where a supply is off, the nominal one does.
    plausible : bool
        Leave out what no module can have stored.
    """
    channels: list[Channel] = []
    notes: list[str] = []
    for pair in range(PAIRS):
        current, voltage = records[2 * pair], records[2 * pair + 1]
        if current.in_use != voltage.in_use:
            active, idle = (2 * pair, 2 * pair + 1) if current.in_use else (2 * pair + 1, 2 * pair)
            notes.append(
                f"pair {pair} is not measured: sensor {active} is in use but sensor {idle} is not, and power needs both"
            )
        elif current.in_use and not (current.usable and voltage.usable):
            notes.append(f"pair {pair} is not measured: its stored vref or sensitivity is not usable")
        elif current.in_use and plausible and (wrong := _implausible(pair, current, voltage)):
            notes.append(
                f"pair {pair} is not measured: {wrong}; correct it with `pmtpy config powersensor3`, "
                "or open the board with plausible=False"
            )
        elif current.in_use:
            domain = f"external/{board}/pair{pair}"
            volts = _supply(voltage, None if levels is None else levels[2 * pair + 1])
            channels += _channels_of(current, voltage, volts, domain, sampling)
            if current.name != voltage.name:
                notes.append(
                    f"pair {pair}: its sensors are named {current.name!r} and {voltage.name!r}; shown as the first"
                )
    return channels, notes


def _implausible(pair: int, current: SensorRecord, voltage: SensorRecord) -> str:
    return "; ".join(filter(None, (implausible(2 * pair, current), implausible(2 * pair + 1, voltage))))


def _supply(voltage: SensorRecord, level: float | None) -> float:
    """Volts of the supply that a pair sits in, for the uncertainty."""
    nominal = FULL_SCALE_V / abs(voltage.sensitivity) * _NOMINAL_SHARE
    if level is None:
        return nominal
    return max(nominal, abs((level * FULL_SCALE_V / MAX_LEVEL - voltage.vref) / voltage.sensitivity))


def _channels_of(
    current: SensorRecord, voltage: SensorRecord, volts: float, domain: str, sampling: Sampling
) -> list[Channel]:
    worst_a = _WORST_CURRENT_A.get(current.type, _WORST_CURRENT_A["MLX10"] * 0.12 / abs(current.sensitivity))
    noise_a = worst_a * _NOISE_SHARE / math.sqrt(sampling.scans)
    # A worst case is taken as the bounds of a rectangular distribution.
    offset_a, offset_v = worst_a / math.sqrt(3), _WORST_VOLTAGE_V / math.sqrt(3)
    name = domain.rpartition("/")[2]
    power = Channel(
        name,
        Quantity.POWER,
        derivation=Derivation.PRODUCT,
        operands=(f"{name}.voltage", f"{name}.current"),
        method=EnergyMethod.MEAN,
        domain=domain,
        label=current.name if current.name != INVALID else voltage.name,
        refresh_s=sampling.interval_s,
        window_s=sampling.interval_s,
        resolution=volts * FULL_SCALE_V / MAX_LEVEL / abs(current.sensitivity),
        # Ep^2 = (U Ei)^2 + (I Eu)^2: the first term does not depend on the power, the second is proportional to it.
        offset_u=volts * offset_a,
        gain_u=offset_v / volts,
        noise=volts * noise_a,
        reference=_PAPER,
    )
    return [
        _direct(Quantity.CURRENT, current, power, offset_u=offset_a, noise=noise_a),
        _direct(Quantity.VOLTAGE, voltage, power, offset_u=offset_v, noise=_VOLTAGE_NOISE_V),
        power,
    ]


def _direct(quantity: Quantity, record: SensorRecord, power: Channel, *, offset_u: float, noise: float) -> Channel:
    """SI = (level + offset) * scale, which is (pin voltage - vref) / sensitivity."""
    return Channel(
        f"{power.name}.{quantity.name.lower()}",
        quantity,
        scale=FULL_SCALE_V / MAX_LEVEL / record.sensitivity,
        offset=-record.vref * MAX_LEVEL / FULL_SCALE_V,
        label=power.label,
        refresh_s=power.refresh_s,
        window_s=power.window_s,
        offset_u=offset_u,
        noise=noise,
        reference=_PAPER,
    )
