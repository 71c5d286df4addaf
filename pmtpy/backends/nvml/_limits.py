"""What holds the clocks of a GPU back: times that the driver counts, and the reasons of this moment.

Numbers: nvml.h, ``nvmlPerfPolicyType_t`` (times in ns since the driver was loaded) and ``nvmlClocksEventReason*``,
which older releases call ``nvmlClocksThrottleReason*``. That a GPU has nothing to do, and that somebody has set its
clocks, are no such reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pmtpy.backends.nvml._device import Library

_POLICIES = {0: "power", 1: "heat", 2: "other GPUs in step", 3: "board limit", 5: "reliability"}
_REASONS = {
    0x4: "power",
    0x8: "hardware slowdown",
    0x10: "other GPUs in step",
    0x20: "heat",
    0x40: "heat",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}
_S_PER_NS = 1e-9


def ask(library: Library, handle: object) -> Mapping[str, float]:
    """Return causes with the seconds for which they have held the clocks back; infinite: they do so now.

    Raises Fault: the GPU or NVML as a whole does not answer.
    """
    found: dict[str, float] = {}
    for policy, cause in _POLICIES.items():
        held_s = library.optional(_violation_s, "nvmlDeviceGetViolationStatus", handle, policy)
        if held_s is not None:
            found[cause] = held_s
    now = library.number("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if now is None:
        now = library.number("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    for bit, cause in _REASONS.items():
        if (now or 0) & bit:
            found.setdefault(cause, math.inf)
    return found


def _violation_s(answer: Any) -> float:
    return int(answer.violationTime) * _S_PER_NS


def settings(library: Library, handle: object) -> Mapping[str, str]:
    """Return what is set on the GPU: the power limit that is enforced, whoever set it.

    Raises Fault: the GPU or NVML as a whole does not answer.
    """
    limit_mw = library.number("nvmlDeviceGetEnforcedPowerLimit", handle)
    return {} if limit_mw is None else {"power limit": f"{limit_mw / 1e3:g} W"}
