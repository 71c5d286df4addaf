"""What a reader of an INA chip must know: which part of the time it does not see, what it can show, its shunt.

A chip of one rail converts the shunt, then the bus, some also the temperature, in turn.

Facts: data sheets of the INA219 (TI SBOS448G, 8.4), INA226 (SBOS547A, 7.4.1 and 7.5), INA260 (SBOS656C, 7.4), INA3221
(SBOS576B, 7.5) and INA237 and INA238 (SBOSA20C, 7.4.1 and 6.5); times as Linux ``drivers/hwmon/ina2xx.c`` and
``ina238.c`` leave or set them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_INA226, _INA219, _INA238 = (1.1e-3, 2.2e-3), (0.532e-3, 1.064e-3), (1.052e-3, 3.156e-3)
# Seconds of one conversion of the current, and of one turn.
_TURNS = {
    **dict.fromkeys(("ina226", "ina230", "ina231", "ina260"), _INA226),
    **dict.fromkeys(("ina219", "ina220"), _INA219),
    **dict.fromkeys(("ina237", "ina238"), _INA238),
}
# Volts across the shunt at the end of its converter, either way, and the most that the bus may have.
_ENDS = {
    **dict.fromkeys(("ina226", "ina230", "ina231"), (0.08192, 36.0)),
    **dict.fromkeys(("ina219", "ina220"), (0.32, 26.0)),
    **dict.fromkeys(("ina237", "ina238"), (0.16384, 85.0)),
    "ina3221": (0.1638, 26.0),
}
# A rail keeps its voltage: what moves it is a share of it (a drop in a cable, a supply's tolerance).
_VOLTAGE_MOVES = 1.25


class Limits(NamedTuple):
    """What a rail can have used, by the chip that measures it, in watts."""

    most: float  # the chip can show no more
    kept: float  # nor of a rail that keeps its voltage


def limits(chip: str, volts: float | None, *, amperes: float | None = None, shunt_ohm: float = 0.0) -> Limits | None:
    """Say what a chip can show at most; None where nothing tells where its converter ends.

    Parameters
    ----------
    chip : str
        Its name in Linux.
    volts : float or None
        Of the rail, now; None: not known.
    amperes, shunt_ohm : float
        The current at the end of the converter or, where that is not known, the shunt.
    """
    if chip not in _ENDS:
        return None
    shunt_v, bus_v = _ENDS[chip]
    end = amperes or (shunt_v / shunt_ohm if shunt_ohm > 0.0 else math.inf)
    if not math.isfinite(end):
        return None
    return Limits(end * bus_v, end * min(bus_v, _VOLTAGE_MOVES * abs(volts)) if volts else end * bus_v)


def in_turn(chip: str, shunt_s: float | None = None, bus_s: float | None = None) -> tuple[str, ...]:
    """Say for how much of its cycle a chip sees the current; nothing of a chip that is not known.

    Parameters
    ----------
    chip : str
        Its name in Linux.
    shunt_s, bus_s : float, optional
        Times of one conversion of either, where the driver tells them.
    """
    if chip not in _TURNS:
        return ()
    converted_s, turn_s = _TURNS[chip]
    if shunt_s and bus_s and shunt_s > 0 and bus_s > 0:
        converted_s, turn_s = shunt_s, shunt_s + bus_s
    seen = f"the current is converted for {converted_s * 1e3:.3g} ms of every {turn_s * 1e3:.3g} ms"
    why = (
        f"{seen}: a load that repeats in step with that is always met at the same phase, so its energy may be wrong by"
        " as much as it swings"
    )
    return (why,)


def shunt_changed(device: str, opened_ohm: float, now_ohm: float) -> tuple[str, ...]:
    """Say where the driver reckons with another shunt than at the opening: somebody set it, or it was loaded anew.

    Nothing where one of the two is not known (NaN, or not above zero).
    """
    if not (opened_ohm > 0.0 and now_ohm > 0.0) or math.isclose(now_ohm, opened_ohm):
        return ()
    warning = (
        f"{device}: the driver reckons with a shunt of {now_ohm:g} ohm now, and with {opened_ohm:g} ohm when the chip "
        "was opened: powers before and after the change are of two scales"
    )
    return (warning,)
