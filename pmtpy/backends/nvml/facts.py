"""What is known of the power sensors of each generation: how often a register moves, over which span it averages.

Facts, not measurements of the card at hand. Sources: NVML API reference (``nvmlDeviceGetPowerUsage``,
``NVML_FI_DEV_POWER_AVERAGE``), and Z. Yang, K. Adamek, W. Armour, "Part-time Power Measurements: nvidia-smi's Lack of
Attention", arXiv 2312.02741, who measured over 70 boards of 12 generations. What they did not measure is not claimed.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from pmtpy.core.channel import EnergyMethod

NVML_REFERENCE = "NVML API reference"
MEASURED = "Yang, Adamek, Armour: arXiv 2312.02741"
_UNMEASURED = "refresh of the slowest known generations: this one was not measured"

# The counter moves about every 100 ms on one recent board and about every 10 ms on others (reports of users); the
# longer one is the safe assumption about what a short interval cannot resolve.
_COUNTER_REFRESH_S = 0.1


class Kind(enum.Enum):
    """What a register of power holds; the value is the last part of a channel's name."""

    INSTANT = "instant"
    AVERAGE = "average"
    ENERGY = "energy"


class Era(enum.Enum):
    """How the driver understands ``power.draw``: its meaning changed twice around 30 March 2023."""

    BEFORE = "before 530"
    AT_530 = "530"
    AFTER = "after 530"


@dataclass(frozen=True, slots=True)
class Timing:
    """Period at which a register moves and span over which it averages, in seconds; None: not known."""

    refresh_s: float | None
    window_s: float | None
    reference: str


# Of a generation that nobody has measured: the slowest of those below; that readings come more seldom still, they tell.
_UNMEASURED_REFRESH_S = 0.1

# (period, window) of the momentary reading.
_INSTANT = {
    "Hopper": (0.1, 0.025),
    "Ada": (0.1, 0.1),
    "GA10x": (0.1, 0.1),
    "GA100": (0.1, 0.025),
    "Turing": (0.1, 0.1),
    "Volta": (0.02, 0.01),
    "Pascal": (0.02, 0.01),
    "Maxwell": (0.1, None),  # a low-pass, not a window
    "Kepler": (0.1, None),  # a low-pass; 15 ms on the first generation
}
_AVERAGED = frozenset({"GA10x", "Ada", "Hopper"})
_ARCHITECTURES = {2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "GA10x", 8: "Ada", 9: "Hopper"}
_NEWER = {10: "Blackwell", 13: "Rubin"}

_SUPERCHIP = re.compile(r"GH200|GB200|GB300|Grace", re.IGNORECASE)
_GH200 = re.compile(r"GH200", re.IGNORECASE)


def generation(architecture: int | None, capability: tuple[int, int] | None) -> str:
    """Name of the generation; GA100 is told from the other Amperes by its compute capability 8.0."""
    if architecture == 7 and capability == (8, 0):
        return "GA100"
    known = {**_ARCHITECTURES, **_NEWER}
    return known.get(architecture, "unknown") if architecture is not None else "unknown"


def era(driver: str) -> Era:
    """Era of a driver version such as ``535.54.03``; of one that cannot be parsed, the present one.

    The split is by release date: 525.105 and newer of that branch came after it, 530 lies between.
    """
    numbers = [int(n) for n in re.findall(r"\d+", driver)[:2]]
    major, minor = (*numbers, 0, 0)[:2]
    if not numbers or major > 530 or (major == 525 and minor >= 105):
        return Era.AFTER
    return Era.AT_530 if major == 530 else Era.BEFORE


def scopes(driver: str) -> tuple[int, ...]:
    """Scopes (0 GPU, 1 module, 2 memory) that the driver can tell apart.

    An older one ignores the scope asked for and answers for the GPU, which would pass for a module. They appeared
    with 535 (module) and 550 (memory).
    """
    number = re.match(r"\d+", driver)
    major = int(number[0]) if number else 0
    return (0, 1, 2) if major >= 550 else (0, 1) if major >= 535 else (0,)


def is_superchip(name: str) -> bool:
    """Whether the GPU shares a module with a Grace processor."""
    return bool(_SUPERCHIP.search(name))


def reads_module(name: str, kind: Kind) -> bool:
    """Whether what NVML calls the GPU's is the whole module's: on GH200 all but the average (section 6 there)."""
    return bool(_GH200.search(name)) and kind is not Kind.AVERAGE


def usage_kind(generation_name: str, driver: str) -> Kind:
    """What ``nvmlDeviceGetPowerUsage`` gives: momentary on GA100 and older, else the mean of a second, but for 530."""
    if generation_name in _INSTANT and generation_name not in _AVERAGED:
        return Kind.INSTANT
    if generation_name in {"GA10x", "Ada"} and era(driver) is Era.AT_530:
        return Kind.INSTANT
    return Kind.AVERAGE


def rule(timing: Timing) -> EnergyMethod | None:
    """How readings become energy: where the windows join, each is the mean since the one before."""
    if timing.refresh_s and timing.window_s and 0.9 <= timing.window_s / timing.refresh_s <= 1.1:
        return EnergyMethod.MEAN
    return None


def timing(generation_name: str, kind: Kind, name: str = "") -> Timing:
    """Return what is documented of a register."""
    if kind is Kind.ENERGY:
        return Timing(_COUNTER_REFRESH_S, None, NVML_REFERENCE + ": nvmlDeviceGetTotalEnergyConsumption")
    if kind is Kind.AVERAGE:
        return Timing(_UNMEASURED_REFRESH_S, 1.0, NVML_REFERENCE + ": one-second average")
    if reads_module(name, kind):
        return Timing(0.1, 0.02, MEASURED + ", section 6")
    if generation_name not in _INSTANT:
        return Timing(_UNMEASURED_REFRESH_S, None, _UNMEASURED)
    return Timing(*_INSTANT[generation_name], MEASURED)
