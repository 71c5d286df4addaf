"""Under which conditions something was measured: the machine, its temperatures and clocks.

Facts: thermal/sysfs-api.rst (``temp`` in millidegrees) and pm/cpufreq.rst (``scaling_cur_freq`` in kHz) of the Linux
documentation. What a machine does not tell is left out.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

from pmtpy._version import __version__
from pmtpy.core.channel import Quantity
from pmtpy.sensor.sensor import Sensor, acquisition_of

_SYSFS = Path("/sys")


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


def conditions(sensor: Sensor, sysfs: Path | None = None) -> dict[str, float]:
    """Return temperatures (names end in ``_C``) and clocks (``_Hz``): the sensor's own, the machine's.

    Of the machine, its hottest zone and the mean of its cores. Of the sensor, what its newest row holds.
    """
    root = sysfs or Path(os.environ.get("PMT_SYSFS_ROOT", _SYSFS))
    made = acquisition_of(sensor)
    newest = made.newest
    found = {}
    for channel, value in zip(made.layout.values, newest.values if newest is not None else (), strict=False):
        if channel.quantity in {Quantity.TEMPERATURE, Quantity.FREQUENCY} and value == value:  # noqa: PLR0124  (NaN)
            found[f"{channel.name}_{channel.unit}"] = value
    zones = _numbers(root / "class/thermal", "thermal_zone*/temp")
    clocks = _numbers(root / "devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_cur_freq")
    if zones:
        found["machine_C"] = max(zones) / 1e3
    if clocks:
        found["machine_Hz"] = sum(clocks) / len(clocks) * 1e3
    return found


def _numbers(folder: Path, pattern: str) -> list[float]:
    found = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError, ValueError):  # a zone may be switched off
            found.append(float(path.read_text(encoding="ascii")))
    return found
