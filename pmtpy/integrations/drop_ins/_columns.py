"""Which of a sensor's numbers PMT shows at which index, and how PMT calls it. Pure.

Programs ask PMT's State by index, so what stands there must be what PMT has there. Facts: ``GetState`` in
``powersensor3/PowerSensor3.cpp``, ``nvml/NVMLImpl.cpp`` and ``rapl/RaplImpl.cpp`` of PMT 1.3.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pmtpy.core.channel import TOTAL
from pmtpy.core.rows import Layout

_PAIRS = 4
# PMT reads these four registers of a GPU, in this order; the first is the power that it integrates.
_NVML = {
    "gpu.instant": "gpu_instant",
    "gpu.average": "gpu_average",
    "module.instant": "module_instant",
    "module.average": "module_average",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One measurement of a PMT State.

    Attributes
    ----------
    name : str
    watts, joules : int or None
        Index into the State of pmtpy; None: not measured, which shows as NaN.
    """

    name: str
    watts: int | None
    joules: int | None


def columns(backend: str, layout: Layout) -> tuple[Column, ...]:
    """Return the measurements of a State in PMT's order; the first one's energy is always that of the whole sensor."""
    if backend == "powersensor3":
        return _pairs(layout)
    if backend == "nvml":
        return _registers(layout)
    own = [Column(_rapl_name(n) if backend == "rapl" else n, i, i) for i, n in enumerate(layout.names)]
    if backend == "rapl":  # PMT reads the outer zones only
        own.sort(key=lambda c: c.name != TOTAL and "." in c.name)
    return tuple(own)


def _pairs(layout: Layout) -> tuple[Column, ...]:
    """Total, then all four pairs of the board by their stored names, whether in use or not."""
    found = [Column(TOTAL, 0, 0)]
    for pair in range(_PAIRS):
        name = f"pair{pair}"
        place = layout.names.index(name) if name in layout.names else None
        label = layout.energy[place - 1].label if place else ""
        found.append(Column(label or name, place, place))
    return tuple(found)


def _registers(layout: Layout) -> tuple[Column, ...]:
    """The powers that PMT reads, then ours; the first stands for the GPU, whose energy is the total."""
    place = {n: i for i, n in enumerate(layout.names)}
    shown = [Column(theirs, place[ours], place[ours]) for ours, theirs in _NVML.items() if ours in place]
    first = [Column(shown[0].name, shown[0].watts, 0)] if shown else [Column(TOTAL, 0, 0)]
    rest = [Column(n, i, i) for n, i in place.items() if n not in _NVML and n != TOTAL]
    return (*first, *shown[1:], *rest)


def _rapl_name(name: str) -> str:
    """Return what the kernel calls a package: ``package-0`` for ``package0``, ``package-0-die-1`` for a die."""
    match = re.fullmatch(r"package(\d+)(?:\.?die(\d+))?", name)
    if match is None:
        return name
    return f"package-{match[1]}" + (f"-die-{match[2]}" if match[2] else "")
