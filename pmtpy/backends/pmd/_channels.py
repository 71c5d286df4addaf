"""What the columns of a meter mean. Pure.

Accuracy by the maker (Yang et al.): 0.1 V and 0.5 A, taken as the bounds of rectangular distributions. Noise: codes
from -3 to +7 at no current, in the recordings of Yang et al.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from pmtpy.backends.pmd.codec import AMPERES_PER_CODE, PAIRS, VOLTS_PER_CODE, Config, Layout
from pmtpy.core.channel import Channel, Derivation, Quantity

ACCURACY_V, ACCURACY_A = 0.1 / math.sqrt(3), 0.5 / math.sqrt(3)
REFERENCE = "Yang, Adamek, Armour: Part-time power measurements, section on the PMD; ElmorLabs' data sheet"
_NOISE_CODES = 1.5
_SUPPLY_V = 12.0
INTERVAL_S = 1 / 4780  # measured in the recordings, at 921600 baud
_MAX_W = 12.5 * 100.0  # the end of the range of the current, at the end of that of ATX


def pair_channels(part: str, config: Config, *, slot: str, in_total: Collection[str]) -> tuple[Channel, ...]:
    """Channels of a PMD-USB: volts, amperes and watts of each pair; the offsets it has stored are added."""
    made: list[Channel] = []
    for i, pair in enumerate(PAIRS):
        label = "slot, 12 V" if pair == slot else ""
        volts, amperes = config.offsets[2 * i : 2 * i + 2]
        power = Channel(
            pair,
            Quantity.POWER,
            derivation=Derivation.PRODUCT,
            operands=(f"{pair}.voltage", f"{pair}.current"),
            domain=f"external/{part}/{pair}" if pair in in_total else "",
            label=label,
            refresh_s=INTERVAL_S,
            resolution=_SUPPLY_V * AMPERES_PER_CODE,
            gain_u=ACCURACY_V / _SUPPLY_V,
            offset_u=_SUPPLY_V * ACCURACY_A,
            noise=_SUPPLY_V * _NOISE_CODES * AMPERES_PER_CODE,
            reference=REFERENCE,
        )
        made += [
            _converter(power, Quantity.VOLTAGE, VOLTS_PER_CODE, volts, ACCURACY_V),
            _converter(power, Quantity.CURRENT, AMPERES_PER_CODE, amperes, ACCURACY_A),
            power,
        ]
    return tuple(made)


def _converter(power: Channel, quantity: Quantity, scale: float, offset: int, accuracy: float) -> Channel:
    return Channel(
        f"{power.name}.{quantity.name.lower()}",
        quantity,
        scale,
        float(offset),
        label=power.label,
        refresh_s=INTERVAL_S,
        offset_u=accuracy,
        noise=_NOISE_CODES * scale,
        reference=REFERENCE,
    )


def rail_channels(part: str, layout: Layout) -> tuple[Channel, ...]:
    """Channels of a polled meter: millivolts, milliamperes and milliwatts of each rail."""
    made: list[Channel] = []
    for rail in layout.rails:
        domain = f"external/{part}/{rail.replace('.', '/')}"
        common = {"refresh_s": 0.001, "reference": REFERENCE}
        made += [
            Channel(f"{rail}.voltage", Quantity.VOLTAGE, 1e-3, offset_u=ACCURACY_V, **common),  # type: ignore[arg-type]
            Channel(f"{rail}.current", Quantity.CURRENT, 1e-3, offset_u=ACCURACY_A, **common),  # type: ignore[arg-type]
            Channel(
                rail, Quantity.POWER, 1e-3, domain=domain, gain_u=ACCURACY_V / _SUPPLY_V, max_watts=_MAX_W,
                offset_u=_SUPPLY_V * ACCURACY_A, **common,  # type: ignore[arg-type]
            ),
        ]  # fmt: skip
    return tuple(made)
