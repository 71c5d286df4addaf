"""The far side of RAPL: processors whose counters show the shared load, as powercap zones and as perf events.

Like the hardware: a counter has 32 bits, advances once a millisecond, and is shown in microjoules made from a unit in
whole nanojoules (``drivers/powercap/intel_rapl_common.c``). Like the kernel: zones are numbered in hexadecimal in order
of registration, every zone has a link in the class directory, and the second window shows the same registers again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pmtpy.backends import rapl
from pmtpy.core.arguments import number
from pmtpy.core.clock import Clock
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.world import World, shared_world, unheld
from pmtpy.errors import TargetError

_UPDATE_NS = 1_000_000
_REGISTER = 2**32
_DEVICES = "devices/virtual/powercap"

# Units in nanojoules: 2^-14 J and 2^-16 J truncated, and the fixed 15.3 uJ of server memory.
INTEL_NJ, AMD_NJ, DRAM_NJ = 61035, 15258, 15300


@dataclass(frozen=True, slots=True)
class ZoneSpec:
    """One zone: its directory's name, what ``name`` holds, its share of the load, its unit, the register it shows.

    Zones with the same ``register`` show the same counter. ``limit_uw`` is the power limit, 0 for a part without.
    """

    id: str
    name: str
    share: float
    unit_nj: int = INTEL_NJ
    register: str = ""
    limit_uw: int = 150_000_000


def _sockets(count: int, psys_at: int | None = None) -> tuple[ZoneSpec, ...]:
    specs: list[ZoneSpec] = []
    number = 0
    for socket in range(count):
        zone = f"intel-rapl:{number:x}"
        specs.append(ZoneSpec(zone, f"package-{socket}", 0.85 / count))
        specs.append(ZoneSpec(f"{zone}:0", "dram", 0.15 / count, DRAM_NJ, limit_uw=40_000_000))
        number += 1
        if socket == psys_at:
            specs.append(ZoneSpec(f"intel-rapl:{number:x}", "psys", 1.3))
            number += 1
    return tuple(specs)


# The shares of what makes the total add up to one, so that the virtual sensor shows the load.
LAYOUTS: dict[str, tuple[ZoneSpec, ...]] = {
    "server": _sockets(2),
    "psys-between": _sockets(2, psys_at=0),
    "many": _sockets(12, psys_at=3),
    "client": (
        ZoneSpec("intel-rapl:0", "package-0", 1.0, limit_uw=200_000_000),
        ZoneSpec("intel-rapl:0:0", "core", 0.6),
        ZoneSpec("intel-rapl:0:1", "uncore", 0.1),
        ZoneSpec("intel-rapl:1", "psys", 1.4),
        ZoneSpec("intel-rapl-mmio:0", "package-0", 1.0, register="intel-rapl:0"),
        ZoneSpec("intel-rapl-mmio:0:0", "dram", 0.1, DRAM_NJ),
    ),
    "mmio-only": (
        ZoneSpec("intel-rapl-mmio:0", "package-0", 0.9),
        ZoneSpec("intel-rapl-mmio:0:0", "dram", 0.1, DRAM_NJ),
    ),
    "intel-dies": tuple(
        spec
        for die in range(2)
        for spec in (
            ZoneSpec(f"intel-rapl:{die}", f"package-0-die-{die}", 0.4),
            ZoneSpec(f"intel-rapl:{die}:0", "dram", 0.1, DRAM_NJ),
        )
    ),
    "amd": tuple(
        spec
        for socket in range(2)
        for spec in (
            ZoneSpec(f"intel-rapl:{socket}", f"package-{socket}", 0.5, AMD_NJ, limit_uw=0),
            ZoneSpec(f"intel-rapl:{socket}:0", "core", 0.01, AMD_NJ, limit_uw=0),
        )
    ),
    "amd-dies": tuple(
        ZoneSpec(f"intel-rapl:{die}", f"package-{die // 2}-die-{die % 2}", 0.5, AMD_NJ, f"socket{die // 2}", 0)
        for die in range(4)
    ),
}


class Processors:
    """The emulated processors and the tree that the kernel makes of them.

    Attributes
    ----------
    tree : Tree
        The files; ``tree.root`` is the sysfs root.
    """

    def __init__(self, world: World, layout: str = "server", *, wrap_after_j: float = 1000.0) -> None:
        """Register every zone of a layout; each register wraps for the first time after ``wrap_after_j`` joules."""
        if layout not in LAYOUTS:
            msg = f"no layout {layout!r} of virtual processors; there are: {', '.join(LAYOUTS)}"
            raise TargetError(msg)
        most_j = _REGISTER * INTEL_NJ * 1e-9
        number(wrap_after_j, f"an energy to wrap after, 0 to {most_j:.0f} joules", least=0.0, most=most_j)
        self._world = world
        self._zones: dict[str, ZoneSpec] = {}
        self._start: dict[str, int] = {}
        self.tree = Tree()
        vendor = 2 if layout.startswith("amd") else 0
        self.tree.write("devices/system/cpu/modalias", f"cpu:type:x86,ven{vendor:04X}fam0006mod0055:feature:,0000")
        for spec in LAYOUTS[layout]:
            full = replace(spec, register=spec.register or spec.id)
            self._start.setdefault(full.register, _REGISTER - round(wrap_after_j * 1e9 / full.unit_nj))
            self.register(full)
        self.refresh(world.clock.now_ns())

    def register(self, spec: ZoneSpec) -> None:
        """Let a zone appear, as the driver does."""
        path = self._path(spec.id)
        self._zones[spec.id] = spec
        self.tree.write(f"{path}/name", spec.name)
        self.tree.write(f"{path}/max_energy_range_uj", (_REGISTER - 1) * spec.unit_nj // 1000)
        self.tree.write(f"{path}/enabled", 0)
        if spec.limit_uw:
            self.tree.write(f"{path}/constraint_0_name", "long_term")
            self.tree.write(f"{path}/constraint_0_power_limit_uw", spec.limit_uw)
            self.tree.write(f"{path}/constraint_0_max_power_uw", spec.limit_uw)
        control = spec.id.split(":")[0]
        if not (self.tree.root / "class/powercap" / control).is_symlink():
            self.tree.write(f"{_DEVICES}/{control}/enabled", 1)
            self.tree.link(f"class/powercap/{control}", f"{_DEVICES}/{control}")
            self.tree.link(f"{_DEVICES}/{control}/subsystem", "class/powercap")
        self.tree.link(f"class/powercap/{spec.id}", path)
        self.tree.link(f"{path}/device", path.rpartition("/")[0])
        self.tree.link(f"{path}/subsystem", "class/powercap")
        self._show(spec, _updated_joules(self._world, self._world.clock.now_ns()))

    def unregister(self, zone_id: str) -> ZoneSpec:
        """Let a zone disappear with those below it; return what it was."""
        for below in [z for z in self._zones if z.startswith(f"{zone_id}:")]:
            self.unregister(below)
        spec = self._zones.pop(zone_id)
        self.tree.remove(f"class/powercap/{zone_id}")
        self.tree.remove(self._path(zone_id))
        return spec

    def restart(self) -> None:
        """Let all registers start again from zero, as a firmware reset does."""
        joules = _updated_joules(self._world, self._world.clock.now_ns())
        for spec in self._zones.values():
            self._start[spec.register] = -_counts(spec, joules)

    def wrap_after(self, joules: float) -> None:
        """Let every register turn over when the load has used ``joules`` more."""
        so_far = _updated_joules(self._world, self._world.clock.now_ns())
        for spec in self._zones.values():
            self._start[spec.register] = _REGISTER - _counts(spec, so_far + joules)

    def refresh(self, now_ns: int) -> None:
        """Show every counter as of ``now_ns``."""
        joules = _updated_joules(self._world, now_ns)
        for spec in self._zones.values():
            self._show(spec, joules)

    def energy_file(self, zone_id: str) -> str:
        """Path of a zone's counter, below the root."""
        return f"{self._path(zone_id)}/energy_uj"

    def _path(self, zone_id: str) -> str:
        """Zones nest: ``intel-rapl:0:1`` lies in ``intel-rapl:0``, and that in ``intel-rapl``."""
        names = zone_id.split(":")
        return "/".join([_DEVICES, *(":".join(names[: i + 1]) for i in range(len(names)))])

    def _show(self, spec: ZoneSpec, joules: float) -> None:
        count = (self._start[spec.register] + _counts(spec, joules)) % _REGISTER
        self.tree.write(self.energy_file(spec.id), count * spec.unit_nj // 1000)


def _counts(spec: ZoneSpec, joules: float) -> int:
    return int(joules * spec.share * 1e9 / spec.unit_nj)


def _updated_joules(world: World, now_ns: int) -> float:
    """Energy of the load up to the last update of the counters before ``now_ns``, joules since the epoch."""
    since = max(0, now_ns - world.epoch_ns)
    return float(world.joules(world.epoch_ns + since - since % _UPDATE_NS))


class PerfEvents:
    """The kernel's perf events of two virtual sockets: ``energy-pkg`` and ``energy-ram`` on one CPU each."""

    SCALE = 2.0**-32
    SHARES = {0x02: 0.425, 0x03: 0.075}  # noqa: RUF012  (a constant table)

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: dict[int, tuple[int, int, float]] = {}
        self._next = 100

    def leave(self) -> None:
        """Hold the world no longer: nobody reads these events any more."""
        self._world = unheld(self._world)

    def describe(self, tree: Tree) -> None:
        """Write the files by which the kernel describes the events."""
        unit = "bus/event_source/devices/power"
        tree.write(f"{unit}/type", 24)
        tree.write(f"{unit}/cpumask", "0,8")
        for name, config in (("energy-pkg", 2), ("energy-ram", 3)):
            tree.write(f"{unit}/events/{name}", f"event=0x{config:02x}")
            tree.write(f"{unit}/events/{name}.unit", "Joules")
            tree.write(f"{unit}/events/{name}.scale", "2.3283064365386962890625e-10")
        for cpu, package in ((0, 0), (8, 1)):
            tree.write(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", package)
            tree.write(f"devices/system/cpu/cpu{cpu}/topology/die_id", 0)

    def open(self, kind: int, config: int, cpu: int) -> int:
        """Begin to count from zero."""
        if kind != 24 or config not in self.SHARES or cpu not in {0, 8}:
            raise OSError(22, "Invalid argument")
        self._next += 1
        self._open[self._next] = (config, cpu, _updated_joules(self._world, self._world.clock.now_ns()))
        return self._next

    def read(self, handle: int) -> int:
        """Count since opening."""
        config, _, start = self._open[handle]
        joules = _updated_joules(self._world, self._world.clock.now_ns()) - start
        return int(joules * self.SHARES[config] / self.SCALE)

    def close(self, handle: int) -> None:
        """Forget the event."""
        del self._open[handle]


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    layout: str = "server",
    via: str | None = None,
    without: str = "",
    wrap_after_j: float = 1000.0,
) -> Source:
    """Open the real backend on virtual processors that use the shared load.

    Parameters
    ----------
    layout : str
        Which machine: "server" (two sockets with memory), "client", "amd", "amd-dies", "intel-dies", "many" (twelve
        sockets), "psys-between", "mmio-only".
    without : str
        As for the real counters.
    via : "powercap", "perf" or None
        The way to the counters; "perf" shows two sockets with memory, whatever the layout.
    wrap_after_j : float
        Energy after which the counters wrap for the first time, joules.
    """
    check_device("rapl", device)
    world = shared_world(load, clock=clock)
    processors = Processors(world, layout, wrap_after_j=float(wrap_after_j))
    events = PerfEvents(world)
    events.describe(processors.tree)

    def leave() -> None:
        processors.tree.close()
        events.leave()

    return open_on(
        world,
        lambda far: rapl.open_source(
            None, clock=far, sysfs_root=processors.tree.root, via=via, without=without, perf=events
        ),
        refresh=processors.refresh,
        leave=leave,
    )
