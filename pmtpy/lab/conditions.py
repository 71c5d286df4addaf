"""Under which conditions something was measured: the machine, its temperatures and clocks.

Facts: thermal/sysfs-api.rst (``temp`` in millidegrees) and pm/cpufreq.rst (``scaling_cur_freq`` in kHz) of the Linux
documentation, arch/x86/kernel/cpu/mce/therm_throt.c (``core_throttle_total_time_ms``) of its source.
What a machine does not tell is left out.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from pmtpy._version import __version__
from pmtpy.core.channel import Quantity
from pmtpy.sensor.sensor import Sensor, acquisition_of

_SYSFS = Path("/sys")
_THEN = ", then "


def machine_facts() -> dict[str, str]:
    """Say on what machine this runs, with what software."""
    return {
        "host": platform.node(),
        "cpu": _cpu_model(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pmtpy": __version__,
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "cpu\t\t:")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def conditions(sensor: Sensor) -> dict[str, float]:
    """Return temperatures (names end in ``_C``) and clocks (``_Hz``): the sensor's own, the machine's.

    Of the machine, its hottest zone and the mean of its cores. Of the sensor, what its newest row holds.
    """
    made = acquisition_of(sensor)
    newest = made.newest
    found = {}
    for channel, value in zip(made.layout.values, newest.values if newest is not None else (), strict=False):
        if channel.quantity in {Quantity.TEMPERATURE, Quantity.FREQUENCY} and value == value:  # noqa: PLR0124  (NaN)
            found[f"{channel.name}_{channel.unit}"] = value
    zones = _numbers("class/thermal", "thermal_zone*/temp")
    clocks = _numbers("devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_cur_freq")
    if zones:
        found["machine_C"] = max(zones) / 1e3
    if clocks:
        found["machine_Hz"] = sum(clocks) / len(clocks) * 1e3
    return found


def limits(sensor: Sensor) -> dict[str, float]:
    """Return what keeps the device and the processors from running as fast as they could, by cause.

    For how many seconds it has done so by now, from any beginning; infinite: all that is known is that it does so now.
    Of the processors those whose driver counts it (Intel's, in milliseconds), the worst of them.
    """
    found = dict(acquisition_of(sensor).intake.source.limits())
    throttled = _numbers("devices/system/cpu", "cpu[0-9]*/thermal_throttle/*_throttle_total_time_ms")
    if throttled:
        found["heat of the processor"] = max(throttled) / 1e3
    return found


def held_back(looks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return what held the clocks back from the first look to the last, and for how many seconds.

    NaN where that is not known, only that it did so when somebody looked.
    """
    found = {}
    for cause in dict.fromkeys(cause for look in looks for cause in look):
        known = [look[cause] for look in looks if cause in look]
        if math.inf in known:
            found[cause] = math.nan
        elif known[-1] > known[0]:
            found[cause] = known[-1] - known[0]
    return found


def settings_met(looks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what was set on the device at all looks; of what was changed meanwhile, one after the other."""
    names = dict.fromkeys(name for look in looks for name in look)
    return {name: _THEN.join(dict.fromkeys(look.get(name, "not told") for look in looks)) for name in names}


def changed(looks: Sequence[Mapping[str, str]]) -> list[str]:
    """Name what was set anew between the looks."""
    return [f"{name} {value}" for name, value in settings_met(looks).items() if _THEN in value]


def _numbers(folder: str, pattern: str) -> list[float]:
    root, found = Path(os.environ.get("PMT_SYSFS_ROOT", _SYSFS)), []
    for path in (root / folder).glob(pattern):
        with contextlib.suppress(OSError, ValueError):  # a zone may be switched off
            found.append(float(path.read_text(encoding="ascii")))
    return found
