"""What each kind of bricklet measures, and how it is asked. Pure.

Facts: ``Tinkerforge/generators`` (``bricklet_*_config.py``), firmware of the Voltage/Current Bricklets 1.0 and 2.0,
data sheet of the INA226.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from pmtpy.core.channel import Channel, EnergyMethod, Quantity
from pmtpy.core.presentation import amount

AVERAGES = (1, 4, 16, 64, 128, 256, 512, 1024)
TIMES_US = (140, 204, 332, 588, 1100, 2116, 4156, 8244)
# 4 milliohm of 1 % (the commonest; none is stated), and 0.1 % of the chip for current and for voltage: rectangular.
_GAIN_U = math.hypot(0.01, 0.001, 0.001) / math.sqrt(3.0)
_OFFSET_A = 2.5e-3 / math.sqrt(3.0)  # 10 uV of the INA226's input (data sheet) over 4 milliohm
_MAX_W = 1.1 * 36.0 * 20.0  # the ends of both ranges, and a tenth
# The INA226's shunt input ends at 81.92 mV (data sheet), which is 20.48 A: larger currents are shown as this one. The
# calibration of a bricklet moves what that is by some 0.1 %.
MOST_MA = 20_450
# A loop of 4 to 20 mA that shows less or more than this is broken, or its transducer (NAMUR NE 43).
_LOOP_NA = (3_600_000, 21_000_000)
_ENDS_MV = (-34_990, 34_990)  # of the Industrial Dual Analog In
_REFERENCE = "INA226 data sheet; Tinkerforge voltage-current-v2-bricklet, software/src/ina226.c"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of bricklet.

    Attributes
    ----------
    configure, averaging, set_callback : int
        Functions that set the callback, and averaging and times of conversion, where it has them.
    current : int
        Function that reads the current that a power was made of; 0: there is none.
    ends : (int, int)
        Counts beyond which a reading that means a power tells nothing.
    """

    name: str
    outputs: int  # readings that it has
    get: int  # function that reads one
    callback: int  # function of its periodic callback; 0: it is asked, since it calls back only what changed
    set_callback: int
    averaging: int
    unit: Quantity
    scale: float  # SI value of one count
    indexed: bool = False  # a reading is asked for by its number
    current: int = 0
    ends: tuple[int, int] = (-(2**31), 2**31)


KINDS: Mapping[int, Kind] = {
    227: Kind("Voltage/Current", 1, 3, 0, 0, 4, Quantity.POWER, 1e-3, current=1),
    2105: Kind("Voltage/Current 2.0", 1, 9, 12, 10, 13, Quantity.POWER, 1e-3, current=1),
    228: Kind("Industrial Dual 0-20mA", 2, 1, 0, 0, 0, Quantity.CURRENT, 1e-9, indexed=True, ends=_LOOP_NA),
    2120: Kind("Industrial Dual 0-20mA 2.0", 2, 1, 4, 2, 0, Quantity.CURRENT, 1e-9, indexed=True, ends=_LOOP_NA),
    249: Kind("Industrial Dual Analog In", 2, 1, 0, 0, 0, Quantity.VOLTAGE, 1e-3, indexed=True, ends=_ENDS_MV),
    2121: Kind("Industrial Dual Analog In 2.0", 2, 1, 4, 2, 0, Quantity.VOLTAGE, 1e-3, indexed=True, ends=_ENDS_MV),
}


def conversion_s(averaging: int, times: tuple[int, int]) -> float:
    """Return how long one value takes: averages of a voltage's and a current's conversion in turn."""
    return AVERAGES[averaging] * (TIMES_US[times[0]] + TIMES_US[times[1]]) * 1e-6


def counts(kind: Kind, payload: bytes) -> tuple[int, int]:
    """Return (which reading, count) of a callback.

    Raises ValueError: it is none.
    """
    try:
        return struct.unpack("<Bi", payload) if kind.indexed else (0, *struct.unpack("<i", payload))
    except struct.error as error:
        msg = f"a value of {amount(len(payload), 'byte')} came from a {kind.name}"
        raise ValueError(msg) from error


def channel(kind: Kind, uid: str, name: str, *, window_s: float, host: str, full_scale: float | None) -> Channel:
    """Return the channel ``name`` of a reading. ``full_scale``: watts at 20 mA (4 mA is none), or watts per volt."""
    domain = f"external/{host}/{name}"
    common = {"label": f"{kind.name} {uid}", "refresh_s": window_s, "window_s": window_s, "reference": _REFERENCE}
    if kind.unit is Quantity.POWER:
        volts = 12.0
        return Channel(
            name, Quantity.POWER, kind.scale, method=EnergyMethod.MEAN, domain=domain, gain_u=_GAIN_U,
            offset_u=volts * _OFFSET_A, max_watts=_MAX_W, lag_s=window_s / 2, **common,  # type: ignore[arg-type]
        )  # fmt: skip
    if full_scale is None:
        return Channel(name, kind.unit, kind.scale, gain_u=0.003, **common)  # type: ignore[arg-type]
    if kind.unit is Quantity.CURRENT:
        return Channel(
            name, Quantity.POWER, kind.scale / 16e-3 * full_scale, -4e-3 / kind.scale, method=EnergyMethod.MEAN,
            domain=domain, gain_u=0.01, **common,  # type: ignore[arg-type]
        )  # fmt: skip
    return Channel(
        name, Quantity.POWER, kind.scale * full_scale, method=EnergyMethod.MEAN, domain=domain, gain_u=0.01,
        **common,  # type: ignore[arg-type]
    )  # fmt: skip
