"""What the OCC's sensors mean: names, units and the parts of the machine that they measure. Pure.

Facts: OCC Firmware Interface Specification for POWER9, v0.24, section 11.3 (types, units, channel functions); OCC
firmware (``amec_sensors_power.c``: ADC power is rounded to the nearest watt, the power of the two rails truncated).
"""

from __future__ import annotations

from pmtpy.backends._assumed_gain import METER_U
from pmtpy.backends.occ.layout import TAG_RANGE, Entry
from pmtpy.core.channel import Channel, Derivation, Quantity, unique_name

REFERENCE = "OCC Firmware Interface Specification for POWER9 v0.24, section 11.3"
SYSTEM = "PWRSYS"
GPUS = "PWRGPU"
PARTS = ("PWRPROC", "PWRMEM", GPUS)  # of each socket: what the total is made of where nothing measures the whole
SUMMED = (*PARTS, "PWRFAN", "PWRIO", "PWRSTORE")  # all that can be in such a total
CONVERTER = "PWRAPSSCH"  # and a number: the channels of the power converter

# Sums are delivered modulo 2**52, which divides the range of the register, so that they stay exact in float64. It is
# four hundred days of the largest possible sample.
DELIVERED_RANGE = 2**52

# name in the table: (name of the channel, domain); {} is the block in the one, and the hardware's number of the chip (0
# and 8 in many machines with two) in the other. Sensors of the whole machine have no socket.
# The two rails are inside PWRPROC, everything is inside PWRSYS, and the channels of the power converter are what the
# others are made of.
_POWER = {
    SYSTEM: ("system", "host"),
    "PWRFAN": ("system.fans", "host/fans"),
    "PWRIO": ("system.io", "host/io"),
    "PWRSTORE": ("system.storage", "host/storage"),
    "PWRPROC": ("socket{}.processor", "host/socket{}/package"),
    "PWRVDD": ("socket{}.processor.vdd", "host/socket{}/package/vdd"),
    "PWRVDN": ("socket{}.processor.vdn", "host/socket{}/package/vdn"),
    "PWRMEM": ("socket{}.memory", "host/socket{}/dram"),
    GPUS: ("socket{}.gpus", "host/socket{}/gpus"),
}
_TRUNCATED = frozenset({"PWRVDD", "PWRVDN"})

# What a machine and a processor that run this program always use: POWER9 machines idle at hundreds of watts, their
# processors at tens.
_LEAST_WATTS = {SYSTEM: 10.0, "PWRPROC": 1.0}

# More than the largest machine with this controller takes, an AC922 with two supplies of 2.2 kW.
_MOST_WATTS = 5_000.0

_UNITS = {
    "A": (Quantity.CURRENT, 1.0),
    "mV": (Quantity.VOLTAGE, 1e-3),
    "C": (Quantity.TEMPERATURE, 1.0),
    "MHz": (Quantity.FREQUENCY, 1e6),
    "W": (Quantity.POWER, 1.0),
}

_FUNCTIONS = {
    **{n: f"memory of processor {n - 1}" for n in range(1, 5)},
    **{n: f"Vdd of processor {n - 5}" for n in range(5, 9)},
    **{n: f"Vcs, Vio and Vpcie of processor {n - 9}" for n in range(9, 13)},
    13: "I/O A", 14: "I/O B", 15: "I/O C", 16: "fans A", 17: "fans B", 18: "storage A", 19: "storage B",
    20: "12 V sense", 21: "ground sense", 22: "total system", 23: "memory cache",
    24: "GPU 0 of processor 0", 25: "memory of processor 0, part 0", 26: "memory of processor 0, part 1",
    27: "memory of processor 0, part 2", 28: "12 V standby current", 29: "GPU 1 of processor 0",
    30: "GPU 2 of processor 0", 31: "GPU 0 of processor 1", 32: "GPU 1 of processor 1", 33: "GPU 2 of processor 1",
}  # fmt: skip


def channel_name(entry: Entry, socket: int, taken: set[str]) -> str:
    """Name of the channel of a sensor, unique among those ``taken``."""
    if entry.name in _POWER:
        name = _POWER[entry.name][0].format(socket)
    elif entry.name.startswith(CONVERTER):
        name = f"converter.channel{entry.name[len(CONVERTER) :]}"
    else:
        name = f"socket{socket}.{entry.name.lower()}"
    return unique_name(taken, f"socket{socket}.{name}" if name in taken else name)


def power_channels(entry: Entry, name: str, chip: str, refresh_s: float) -> tuple[Channel, Channel, Channel]:
    """Sum and number of samples, and the power that is their ratio."""
    domain = _POWER[entry.name][1].format(chip) if entry.name in _POWER else ""
    what = _FUNCTIONS.get(entry.function, "") if entry.name.startswith(CONVERTER) else ""
    total = Channel(f"{name}.sum", Quantity.COUNT, wrap=float(DELIVERED_RANGE), reference=REFERENCE)
    number = Channel(f"{name}.samples", Quantity.COUNT, wrap=float(TAG_RANGE), reference=REFERENCE)
    power = Channel(
        name,
        Quantity.POWER,
        scale=entry.scale,
        derivation=Derivation.RATIO,
        operands=(total.name, number.name),
        domain=domain,
        label=f"{entry.name}: {what}" if what else entry.name,
        refresh_s=refresh_s,
        window_s=refresh_s,
        resolution=entry.scale,
        least_watts=_LEAST_WATTS.get(entry.name, 0.0),
        gain_u=METER_U,
        max_watts=_MOST_WATTS,
        kept_watts=_MOST_WATTS,
        # Truncation makes half a step too little on average, with a rectangular spread of one step.
        offset_u=entry.scale * (1 / 3) ** 0.5 if entry.name in _TRUNCATED else 0.0,
        reference=REFERENCE,
    )
    return total, number, power


def other_channel(entry: Entry, name: str, refresh_s: float) -> Channel:
    """A sensor that is not a power: its latest sample; of an event counter the number of events."""
    if entry.counter:
        return Channel(
            name,
            Quantity.COUNT,
            wrap=float(DELIVERED_RANGE),
            label=f"{entry.name} ({entry.units})",
            reference=REFERENCE,
        )
    quantity, factor = _UNITS.get(entry.units, (Quantity.COUNT, 1.0))
    return Channel(
        name,
        quantity,
        scale=entry.scale * factor,
        label=f"{entry.name} ({entry.units})" if quantity is Quantity.COUNT else entry.name,
        refresh_s=refresh_s,
        reference=REFERENCE,
    )
