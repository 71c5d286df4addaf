"""What the columns of a board mean: channels from its stored configuration. Pure.

Volts and amperes are as the firmware and its host library compute them (PowerSensor3 1.6.1, ``host/src/sensors.cc``);
how far they can be trusted is from Table I and the text of the ISPASS 2025 paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pmtpy.backends.powersensor3.config import FULL_SCALE_V, MAX_LEVEL, PAIRS, SensorRecord
from pmtpy.model import Channel, Form, Quantity, Rule

# Table I of the ISPASS 2025 paper: worst case of the current of the 10 A and 20 A modules, and of the voltage of the
# 12 V and 20 V modules. The table has no larger modules; for those the 20 A figure is scaled with the range.
WORST_CURRENT_A = {"MLX10": 0.35, "MLX20": 0.41, "MLX50": 1.03, "MLX75": 1.54}
WORST_VOLTAGE_V = 0.0286
# The paper gives 115 mA rms for one conversion of the 10 A sensor, which in volts at the pin is the same for all of
# the family; and about 0.2 W peak to peak of voltage noise at 8 A, which is 4 mV rms.
NOISE_PIN_V = 0.115 * 0.12
VOLTAGE_NOISE_V = 0.004
PAPER = "ISPASS 2025, PowerSensor3, Table I"


def pair_channels(
    records: Sequence[SensorRecord], board: str, interval_s: float, scans: int
) -> tuple[list[Channel], list[str]]:
    """Channels of the pairs that can be measured, and a plain note for each that cannot.

    Parameters
    ----------
    board : str
        Serial number or port, which names the physical parts in ``Channel.domain``.
    interval_s : float
        Sampling interval; every value is the mean over it.
    scans : int
        Conversions averaged in it.
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
            notes.append(f"pair {pair} is not measured: its stored vref or sensitivity cannot be computed with")
        elif current.in_use:
            channels += _channels_of(
                pair, current, voltage, f"external/{board}/pair{pair}", _Sampling(interval_s, scans)
            )
            if current.name != voltage.name:
                notes.append(
                    f"pair {pair}: its sensors are named {current.name!r} and {voltage.name!r}; shown as the first"
                )
    return channels, notes


@dataclass(frozen=True, slots=True)
class _Sampling:
    """Interval in seconds, and the conversions averaged in it."""

    interval_s: float
    scans: int


def _channels_of(
    pair: int, current: SensorRecord, voltage: SensorRecord, domain: str, sampling: _Sampling
) -> list[Channel]:
    worst_a = WORST_CURRENT_A.get(current.type, WORST_CURRENT_A["MLX10"] * 0.12 / abs(current.sensitivity))
    noise_a = NOISE_PIN_V / abs(current.sensitivity) / math.sqrt(sampling.scans)
    label = current.name if current.name != "INVALID" else voltage.name
    power = Channel(
        f"pair{pair}",
        Quantity.POWER,
        form=Form.PRODUCT,
        of=(f"pair{pair}.voltage", f"pair{pair}.current"),
        rule=Rule.MEAN,
        domain=domain,
        label=label,
        refresh_s=sampling.interval_s,
        window_s=sampling.interval_s,
        reference=PAPER,
    )
    # A worst case is taken as the bounds of a rectangular distribution.
    amperes = _direct(Quantity.CURRENT, current, power, offset_u=worst_a / math.sqrt(3), noise=noise_a)
    volts = _direct(Quantity.VOLTAGE, voltage, power, offset_u=WORST_VOLTAGE_V / math.sqrt(3), noise=VOLTAGE_NOISE_V)
    return [amperes, volts, power]


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
        reference=PAPER,
    )
