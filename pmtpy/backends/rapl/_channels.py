"""The parts of a processor that RAPL counts: their names, and which of them may be added up.

Pure. Both ways to the counters (powercap and perf events) name their channels here, so they are interchangeable.

Facts: Linux ``drivers/powercap/intel_rapl_common.c`` (names of zones), ``arch/x86/events/rapl.c``; the hierarchy as
explained by the authors of powercap (github.com/powercap/powercap issue 3): a package contains its cores and its
"uncore" (the integrated graphics), but not the memory, although the memory's zone lies below it in the tree.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace

from pmtpy.core.channel import Channel, Quantity

# Counters advance with the processor's time unit, 2^-10 s in every part so far (Intel SDM vol. 3B, 15.10.1).
_REFRESH_S = 2.0**-10

# No package, and no memory of one, uses more; the largest sold in 2025 are specified at 500 W.
MAX_WATTS = 1000.0

# A platform may feed several accelerators besides.
MAX_WATTS_PLATFORM = 4000.0

# Counters whose range is not known are taken for the smallest there is: 2^32 counts of 2^-16 J (AMD).
SMALLEST_RANGE_J = 2.0**16

REFERENCE = "Linux Documentation/power/powercap/powercap.rst; Intel SDM vol. 3B, 15.10"


class Kind(enum.Enum):
    """What a counter covers; the value is what the kernel calls it."""

    PACKAGE = "package"  # the whole socket: cores, caches, memory controller, integrated graphics
    CORE = "core"  # all cores of the socket (Intel)
    ONE_CORE = "one_core"  # one single core of the socket: what AMD's register shows in a zone named "core"
    UNCORE = "uncore"  # in practice the integrated graphics
    DRAM = "dram"  # the memory channels of the socket, outside the package
    PSYS = "psys"  # the platform's input as the board maker wired it; contains everything above


# What makes the total of a host; the rest is inside one of them, or contains them.
IN_TOTAL = frozenset({Kind.PACKAGE, Kind.DRAM})


@dataclass(frozen=True, slots=True)
class Part:
    """One counted part."""

    kind: Kind
    package: int = 0  # physical package (socket); for PSYS the package whose register shows it
    die: int | None = None  # die inside the package, where the kernel counts dies separately
    mmio: bool = False  # seen through the second window onto the same registers
    zone: int | None = None  # number of the top zone, where several zones of one name count different things

    @property
    def name(self) -> str:
        """Name of the channel, general to particular: ``package0``, ``package0.die1.dram``, ``mmio.package0``."""
        if self.kind is Kind.PSYS:
            own = f"psys{self.package}" if self.package else "psys"
        else:
            own = f"package{self.package}" + ("" if self.die is None else f".die{self.die}")
        own += "" if self.zone is None else f".zone{self.zone}"
        own += "" if self.kind in {Kind.PACKAGE, Kind.PSYS} else f".{self.kind.value}"
        return f"mmio.{own}" if self.mmio else own

    @property
    def order(self) -> tuple[bool, bool, int, int, int, int]:
        """Key that sorts parts as people read them: by package, die, zone, kind; platform and duplicates last."""
        die, zone = (-1 if number is None else number for number in (self.die, self.zone))
        return self.mmio, self.kind is Kind.PSYS, self.package, die, zone, list(Kind).index(self.kind)

    def domain(self, *, dies_mirrored: bool = False) -> str:
        """Path of the physical part; empty for the platform, which contains the rest and is never added to it.

        With ``dies_mirrored`` all dies of a package show the one counter of the package, so they share its path.
        """
        if self.kind is Kind.PSYS:
            return ""
        socket = f"host/socket{self.package}"
        if self.die is not None and not dies_mirrored:
            socket += f"/die{self.die}"
        # Below what the name says, so that whoever else counts all of that is not added to them.
        zone = "" if self.zone is None else f"/zone{self.zone}"
        inside = {Kind.PACKAGE: f"package{zone}", Kind.DRAM: f"dram{zone}"}
        return f"{socket}/{inside.get(self.kind, f'package{zone}/{self.kind.value}')}"


def parse_zone_name(name: str, parent: Part | None, *, amd: bool = False) -> Part | None:
    """Tell what a powercap zone counts from its ``name`` and the zone above it; None if the name is not known."""
    if match := re.fullmatch(r"package-(\d{1,6})(?:-die-(\d{1,6}))?", name):
        return Part(Kind.PACKAGE, int(match[1]), None if match[2] is None else int(match[2]))
    if match := re.fullmatch(r"psys(?:-(\d{1,6}))?", name):
        return Part(Kind.PSYS, int(match[1] or 0))
    if parent is not None and parent.kind is Kind.PACKAGE and name in {"core", "uncore", "dram"}:
        return replace(parent, kind=Kind.ONE_CORE if amd and name == "core" else Kind(name))
    return None


def counter(
    part: Part,
    *,
    scale: float,
    domain: str,
    wrap: float | None = None,
    resolution: float | None = None,
    max_watts: float = MAX_WATTS,
    label: str = "",
) -> Channel:
    """Make the channel of a part's counter; ``scale`` is joules per count."""
    return Channel(
        part.name,
        Quantity.ENERGY,
        scale=scale,
        wrap=wrap,
        domain=domain,
        label=label,
        refresh_s=_REFRESH_S,
        resolution=resolution,
        max_watts=max_watts,
        least_watts=_LEAST_WATTS.get(part.kind, 0.0),
        gain_u=GAIN_U[part.kind],
        reference=REFERENCE,
    )


# Relative standard uncertainty. The vendors state none. Comparisons with external meters: package plus memory of
# Haswell servers follow the wall within a few percent (Hackenberg et al., IPDPSW 2015); memory alone was up to 20 %
# off (Desrochers et al., MEMSYS 2016), taken as the half-width of a rectangle. The platform depends on the board.
GAIN_U = {Kind.PACKAGE: 0.03, Kind.CORE: 0.05, Kind.ONE_CORE: 0.05, Kind.UNCORE: 0.05, Kind.DRAM: 0.115, Kind.PSYS: 0.1}

# A package that runs this program, its memory, and the platform around it use more: in their deepest sleep, packages of
# laptops show 0.1 W. Cores and graphics are switched off altogether.
_LEAST_WATTS = {Kind.PACKAGE: 0.02, Kind.DRAM: 0.01, Kind.PSYS: 0.1}
