"""Which of a sensor's numbers PMT shows at which index, and how PMT calls it. Pure.

Programs ask PMT's State by index, so what stands there must be what PMT has there. Facts: ``GetState`` in
``powersensor3/PowerSensor3.cpp``, ``nvml/NVMLImpl.cpp``, ``rapl/RaplImpl.cpp`` and ``rocm/ROCM.cpp`` of PMT 1.3.1.
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
_PACKAGE = re.compile(r"package(\d+)(?:\.?die(\d+))?")
_OUTER = re.compile(rf"{_PACKAGE.pattern}|psys\d*")


@dataclass(frozen=True, slots=True)
class Column:
    """One measurement of a PMT State."""

    name: str
    # indices into the State of pmtpy, whose numbers are added; none for what is absent, which PMT shows as 0
    watts: tuple[int, ...]
    joules: tuple[int, ...]


def columns(backend: str, layout: Layout) -> tuple[Column, ...]:
    """Return the measurements of a State in PMT's order; the first one's energy is what ``pmt.joules`` tells."""
    if backend == "powersensor3":
        return _pairs(layout)
    if backend == "nvml":
        return _registers(layout)
    if backend == "rapl":
        return _zones(layout)
    if backend == "amdsmi":
        return (Column("device", (0,), (0,)),)
    return tuple(Column(n, (i,), (i,)) for i, n in enumerate(layout.names))


def _pairs(layout: Layout) -> tuple[Column, ...]:
    """Total, then all four pairs of the board by their stored names, whether in use or not."""
    found = [Column(TOTAL, (0,), (0,))]
    for pair in range(_PAIRS):
        name = f"pair{pair}"
        place = (layout.names.index(name),) if name in layout.names else ()
        label = layout.energy[place[0] - 1].label if place else ""
        found.append(Column(label or name, place, place))
    return tuple(found)


def _registers(layout: Layout) -> tuple[Column, ...]:
    """The powers that PMT reads; the first stands for the GPU, whose energy is the total."""
    place = {n: i for i, n in enumerate(layout.names)}
    shown = [(theirs, (place[ours],)) for ours, theirs in _NVML.items() if ours in place]
    if not shown:
        return (Column(TOTAL, (0,), (0,)),)
    return tuple(Column(name, at, at if number else (0,)) for number, (name, at) in enumerate(shown))


def _zones(layout: Layout) -> tuple[Column, ...]:
    """The outer zones by the kernel's names; their total is the packages alone, each once, without the memory."""
    zones = [(_zone(n), i) for i, n in enumerate(layout.names) if _OUTER.fullmatch(n)]
    packages = tuple(i for name, i in zones if name.startswith("package") and i in layout.in_total)
    total = packages or (0,)  # of what has no package PMT knows nothing: our total stands there
    return (Column(TOTAL, total, total), *(Column(name, (i,), (i,)) for name, i in zones))


def _zone(name: str) -> str:
    """Return what the kernel calls a package: ``package-0`` for ``package0``, ``package-0-die-1`` for a die."""
    match = _PACKAGE.fullmatch(name)
    if match is None:
        return name
    return f"package-{match[1]}" + (f"-die-{match[2]}" if match[2] else "")
