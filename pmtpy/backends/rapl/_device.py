"""The powercap tree: which zones there are, what each counts, and which of them can be read.

Facts: Linux ``drivers/powercap/{powercap_sys,intel_rapl_common,intel_rapl_msr}.c``. Every zone, also every subzone,
has a link in the flat class directory; zone numbers are hexadecimal and say nothing about the package; the range
differs from zone to zone; AMD parts have no constraints, and kernels before 6.11 show the one counter of an AMD socket
once for each die.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.backends._sysfs import content_of, entries, number, optional_number, optional_text, why
from pmtpy.backends.rapl._channels import IN_TOTAL, MAX_WATTS, MAX_WATTS_PLATFORM, Kind, Part, counter, parse_zone_name
from pmtpy.core.channel import Channel

_ZONE = re.compile(r"(intel-rapl(?:-[a-z]+)?)((?::[0-9a-f]+)+)")
_MAIN = "intel-rapl"
_ENERGY = "energy_uj"

# x86 vendor numbers of the kernel (arch/x86/include/asm/processor.h) as /sys/devices/system/cpu/modalias shows them.
AMD_VENDORS = frozenset({2, 9})  # AMD, Hygon

# A counter that is read before and after another is the same one if the other lies between: registers of one counter
# differ by no more than a package uses in a millisecond. Two different counters agree so once in 100,000 times.
_SAME_UJ = 100_000
_TIGHT_UJ = 1_000_000  # a bracket wider than this (the reader was interrupted) proves little
_BRACKETS = 5

# A power limit may be exceeded for seconds (limit 2 is up to about four times limit 1 on mobile parts), so several
# times the largest is still possible; below 250 W nothing is gained by being strict. A limit above a kilowatt is a
# board maker's way to write "none".
_ABOVE_LIMIT = 4.0
_LEAST_MAX_WATTS = 250.0


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone that counts energy."""

    id: str  # Name of its directory, e.g. ``intel-rapl:1:0``.
    path: Path  # the directory, resolved
    part: Part  # what it counts
    range_uj: int | None  # largest value before the counter starts again; None where the kernel does not say
    max_watts: float  # more than this cannot be
    limited: bool  # it has constraints, as Intel's zones do and AMD's do not
    energy_uj: int | None  # the counter as read during the scan; None if it could not be
    problem: str = ""  # why it could not be read
    denied: bool = False  # it could not be read for lack of permission

    @property
    def energy_file(self) -> Path:
        """The file that shows the counter."""
        return self.path / _ENERGY


@dataclass(frozen=True, slots=True)
class Scan:
    """What a powercap tree holds."""

    # those with a known meaning, MSR before its MMIO duplicate, in the order of their channel names
    zones: tuple[Zone, ...] = ()
    dangling: tuple[str, ...] = ()  # links to zones that are hidden from this process
    vendor: int | None = None  # the kernel's number of the processor's vendor, where the tree tells
    notes: tuple[str, ...] = ()  # zones that were left out, and why
    # the physical packages that the kernel knows of; empty where the tree does not tell
    packages: frozenset[int] = frozenset()


def _packages(root: Path) -> frozenset[int]:
    """Numbers of the physical packages of the machine's CPUs."""
    cpus = entries(root / "devices" / "system" / "cpu").paths
    told = (optional_number(c / "topology" / "physical_package_id") for c in cpus if c.name.startswith("cpu"))
    return frozenset(number for number in told if number is not None and number >= 0)


def _directories(root: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Directories of zones by name, from the class directory or, where there is none, from the device tree.

    The name of a zone is unique, so one that is reached as a link, as a folder in another and as a copy counts once.
    """
    listing = entries(root / "class" / "powercap")
    waiting = list(listing.paths) or list(entries(root / "devices" / "virtual" / "powercap").paths)
    found: dict[str, Path] = {}
    while waiting:
        path = waiting.pop(0)
        if not path.name.startswith(_MAIN) or path.name in found or not path.is_dir():
            continue
        if _ZONE.fullmatch(path.name):
            found[path.name] = path
        # The links `device` and `subsystem` resolve to names already seen or not ours, so this ends.
        waiting.extend(p for p in entries(path).paths if _ZONE.fullmatch(p.name) and p.name not in found)
    dangling = tuple(name for name in listing.dangling if name.startswith(_MAIN))
    return found, dangling


def _control(zone_id: str) -> str:
    return zone_id.split(":", maxsplit=1)[0]


def _numbers(zone_id: str) -> tuple[int, ...]:
    return tuple(int(n, 16) for n in zone_id.split(":")[1:])


def _apart(names: Mapping[str, str], directories: Mapping[str, Path]) -> frozenset[str]:
    """Return the top zones of one name whose counters prove to be different ones, all of them from each other.

    A package has one register of its energy in each window, of which the driver shows the count as it is: two counts
    in one window are of two packages. What zones of different windows show may be one energy, begun at two counts;
    and dies may mirror each other. Of zones within a zone nothing is known that would tell two of one name apart.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for zone_id, name in names.items():
        if len(_numbers(zone_id)) == 1 and (part := parse_zone_name(name, None)) is not None and part.die is None:
            alike.setdefault((_control(zone_id), name), []).append(zone_id)
    return frozenset(
        zone_id
        for group in alike.values()
        if len(group) > 1
        and all(
            _same_counter(directories[one], directories[other]) is False
            for one, other in itertools.combinations(group, 2)
        )
        for zone_id in group
    )


def scan(root: Path) -> Scan:
    """Read the powercap tree under ``root``, each counter once."""
    directories, dangling = _directories(root)
    made_by = vendor(root)
    zones: dict[str, Zone] = {}
    notes: list[str] = []
    parts: dict[str, Part] = {}
    ordered = sorted(directories, key=lambda z: (_control(z), _numbers(z)))
    names = {zone_id: optional_text(directories[zone_id] / "name") or "" for zone_id in ordered}
    apart = _apart(names, directories)
    for zone_id, name in names.items():
        path = directories[zone_id]
        known = parse_zone_name(name, parts.get(zone_id.rpartition(":")[0]), amd=made_by in AMD_VENDORS)
        if known is None:
            notes.append(f"zone {zone_id} is named {name!r}, which says nothing about what it counts: left out")
            continue
        zone = _numbers(zone_id)[0] if zone_id in apart else known.zone
        part = parts[zone_id] = replace(known, mmio=_control(zone_id) != _MAIN, zone=zone)
        if part.name in zones:
            notes.append(
                f"zone {zone_id} is named {name!r} like {zones[part.name].id}: left out; if it counts something else, "
                "the total is PARTIAL"
            )
            continue
        zones[part.name] = _zone(zone_id, path, part, notes)
    if apart:
        notes.append(f"zones {', '.join(sorted(apart))} share a name, but their counters prove to be different ones")
    return Scan(
        tuple(sorted(zones.values(), key=lambda zone: zone.part.order)),
        dangling,
        made_by,
        tuple(notes),
        _packages(root),
    )


_ASKED = "without= asks for it"


def left_out(tree: Scan, names: frozenset[str]) -> Scan:
    """Return the tree with the named parts as if they could not be read."""
    zones = tuple(
        replace(z, energy_uj=None, problem=_ASKED, denied=False) if z.part.name in names else z for z in tree.zones
    )
    return replace(tree, zones=zones)


def lacking(part: Part, counted: Sequence[Channel], *, dies_mirrored: bool, why_not: str = _ASKED) -> str:
    """Say that a part was left out, and what that does to the total, unless another channel counts the same."""
    missing = part.kind in IN_TOTAL and part.domain(dies_mirrored=dies_mirrored) not in {c.domain for c in counted}
    return f"{part.name} is left out ({why_not})" + ("; the total is PARTIAL: it lacks this part" if missing else "")


def _zone(zone_id: str, path: Path, part: Part, notes: list[str]) -> Zone:
    energy, problem, denied = _first_reading(path / _ENERGY)
    range_uj = _range_uj(path, energy)
    if range_uj is None and energy is not None:
        notes.append(
            f"{part.name}: max_energy_range_uj is missing or cannot be right, so when this counter wraps, its "
            "energy is not known and the time counts as uncovered"
        )
    limits = [optional_number(path / f"constraint_{n}_max_power_uw") for n in range(4)]
    largest = max((x for x in limits if x is not None), default=0) * 1e-6
    most = MAX_WATTS_PLATFORM if part.kind is Kind.PSYS else MAX_WATTS
    return Zone(
        zone_id,
        path,
        part,
        range_uj,
        max(_LEAST_MAX_WATTS, _ABOVE_LIMIT * largest) if 0 < largest <= MAX_WATTS and most == MAX_WATTS else most,
        any((path / f"constraint_{n}_power_limit_uw").exists() for n in range(4)),
        energy,
        problem,
        denied,
    )


def _range_uj(path: Path, energy_uj: int | None) -> int | None:
    told = optional_number(path / "max_energy_range_uj")
    return told if told is not None and told > 0 and (energy_uj is None or energy_uj <= told) else None


def _first_reading(path: Path) -> tuple[int | None, str, bool]:
    try:
        value = number(content_of(path))
    except OSError as error:
        if of_a_handler(error):
            raise
        return None, f"{path}: {why(error)}", isinstance(error, PermissionError)
    except ValueError as error:
        if of_a_handler(error):
            raise
        return None, f"{path} holds no number", False
    return (value, "", False) if value >= 0 else (None, f"{path} is negative", False)


def vendor(root: Path) -> int | None:
    """Return the kernel's number of the processor's vendor (0 Intel, 2 AMD, 9 Hygon), or None."""
    text = optional_text(root / "devices" / "system" / "cpu" / "modalias") or ""
    match = re.search(r"ven([0-9A-Fa-f]{4})", text)
    return int(match[1], 16) if match else None


def mirrored(zones: Sequence[Zone], vendor_number: int | None) -> bool:
    """Whether the dies of each package show one and the same counter, as AMD's do on kernels before 6.11.

    Of a processor that is AMD's it is taken for granted unless the counters prove to be different ones. If the tree
    does not tell the vendor, it takes both: that it looks like AMD's (no constraints, nothing but packages and cores),
    and counters that prove to be the same. What is so in one package is so in all.
    """
    looks_amd = not any(z.limited or z.part.kind in {Kind.DRAM, Kind.UNCORE, Kind.PSYS} for z in zones)
    if not (vendor_number in AMD_VENDORS if vendor_number is not None else looks_amd):
        return False
    packages = [z for z in zones if z.part.kind is Kind.PACKAGE and z.part.die is not None and not z.part.mmio]
    first: dict[int, Zone] = {}
    pairs = [(other, zone) for zone in packages if (other := first.setdefault(zone.part.package, zone)) is not zone]
    same = [_same_counter(one.path, other.path) for one, other in pairs]
    return False not in same and (True in same or (None in same and vendor_number is not None))


def _same_counter(one: Path, other: Path) -> bool | None:
    """Whether two zones show one counter; None where readings between readings do not tell."""
    turn = _range_uj(one, _first_reading(one / _ENERGY)[0]) or 2**63
    outside = 0
    for _ in range(_BRACKETS):
        shown = [_first_reading(zone / _ENERGY)[0] for zone in (one, other, one)]
        if None in shown:
            return None
        before, between, after = (value or 0 for value in shown)
        width = (after - before) % turn
        if (between - before + _SAME_UJ) % turn > width + 2 * _SAME_UJ:
            outside += 1
        elif width <= _TIGHT_UJ:
            return True
    return False if outside == _BRACKETS else None


def channels(tree: Scan) -> tuple[tuple[Channel, ...], tuple[str, ...]]:
    """Give each readable zone its channel, in the same order, and say by which rules they are added up."""
    zones, notes = tree.zones, []
    same = mirrored(zones, tree.vendor)
    if same:
        notes.append("the dies of a package show one counter (AMD, kernel before 6.11): it is counted once per package")
    first_window = {z.part.package for z in zones if z.part.kind is Kind.PACKAGE and not z.part.mmio}
    present = {z.part for z in zones}
    readable = [z for z in zones if z.energy_uj is not None]
    packages = {(z.part.package, z.part.die, z.part.zone) for z in readable if z.part.kind is Kind.PACKAGE}
    notes += _missing(tree)
    if any(z.part.kind is Kind.ONE_CORE for z in readable):
        notes.append("AMD's zone 'core' shows one single core of each package, not all of them")
    result = []
    for zone in readable:
        part = zone.part
        domain = part.domain(dies_mirrored=same)
        # To a package that the first window shows the second adds nothing: each comes from one control type.
        if part.mmio and part.package in first_window and replace(part, mmio=False) not in present:
            domain = ""
        # Cores without their package are no total of anything.
        if part.kind not in IN_TOTAL and (part.package, part.die, part.zone) not in packages:
            domain = ""
        result.append(_channel(zone, domain))
    notes += [
        lacking(zone.part, result, dies_mirrored=same, why_not=zone.problem) for zone in zones if zone.energy_uj is None
    ]
    return tuple(result), tuple(notes)


def _missing(tree: Scan) -> list[str]:
    """Say which parts of the total are known to exist and have no zone here."""
    notes = [
        f"the zone {name} is hidden from this process: if the total needs it, it is PARTIAL" for name in tree.dangling
    ]
    there = {z.part.package for z in tree.zones if z.part.kind is Kind.PACKAGE}
    absent = sorted(tree.packages - there) if there else []
    if absent:
        sockets = ", ".join(map(str, absent))
        notes.append(f"the machine has a processor {sockets} that no zone counts: the total is PARTIAL without it")
    return notes


def _channel(zone: Zone, domain: str) -> Channel:
    return counter(
        zone.part,
        scale=1e-6,
        domain=domain,
        wrap=None if zone.range_uj is None else float(zone.range_uj),
        # Shown in microjoules, but counted in 2^32 steps over the range.
        resolution=None if zone.range_uj is None else zone.range_uj * 1e-6 / 2**32,
        max_watts=zone.max_watts,
        label=zone.id,
    )
