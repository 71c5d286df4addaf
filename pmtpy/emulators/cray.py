"""The far side of pm_counters: a node controller that accumulates the shared load and refreshes its files at 10 Hz."""

from __future__ import annotations

from pmtpy.backends import cray
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.world import World, shared_world

DIRECTORY = "cray/pm_counters"
_SCAN_HZ = 10
_START_J = 2_178_501_771  # on the node's counter at the beginning

# Shares of the node's power; the rest is fans, network and losses, which have no file.
_PARTS = {"": 1.0, "cpu_": 0.25, "memory_": 0.05, "accel0_": 0.3, "accel1_": 0.3}


class NodeController:
    """The emulated controller and its files.

    Attributes
    ----------
    tree : Tree
        The files; ``tree.root`` is the sysfs root.
    """

    def __init__(self, world: World, *, stamps: bool = True) -> None:
        """``stamps``: as from version 3 of the files on."""
        self._world = world
        self._stamps = stamps
        self._start_j, self._since_j = _START_J, 0.0
        self._anchor = world.clock.anchor()
        self.startup = 1_700_000_000
        self.tree = Tree()
        for name, value in (("version", 3 if stamps else 1), ("raw_scan_hz", _SCAN_HZ), ("generation", 0)):
            self.tree.write(f"{DIRECTORY}/{name}", value)
        self.tree.write(f"{DIRECTORY}/power_cap", "0 W")
        self.refresh(world.clock.now_ns())

    def restart(self) -> None:
        """Let the counters start again from zero."""
        self.startup += 1000
        self._start_j, self._since_j = 0, float(self._world.joules(self._world.clock.now_ns()))

    def refresh(self, now_ns: int) -> None:
        """Show the files as of the last scan before ``now_ns``."""
        scans = (now_ns - self._world.epoch_ns) * _SCAN_HZ // NS_PER_S
        scan_ns = self._world.epoch_ns + scans * NS_PER_S // _SCAN_HZ
        joules = float(self._world.joules(scan_ns)) - self._since_j
        watts = float(self._world.watts(scan_ns))
        stamp = f" {(scan_ns - self._anchor.monotonic_ns + self._anchor.unix_ns) // 1000} us" if self._stamps else ""
        for prefix, share in _PARTS.items():
            self.tree.write(f"{DIRECTORY}/{prefix}energy", f"{int(self._start_j + joules * share)} J{stamp}")
            self.tree.write(f"{DIRECTORY}/{prefix}power", f"{round(watts * share)} W{stamp}")
        self.tree.write(f"{DIRECTORY}/cpu0_temp", f"45 C{stamp}")
        self.tree.write(f"{DIRECTORY}/startup", self.startup)
        self.tree.write(f"{DIRECTORY}/freshness", scans)


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    power: bool = False,
    stamps: bool = True,
) -> Source:
    """Open the real backend on a virtual node that uses the shared load.

    Parameters
    ----------
    power : bool
        Show the momentary powers as well.
    stamps : bool
        The controller stamps its values, as newer ones do.
    """
    check_device("cray", device)
    world = shared_world(load, clock=clock)
    controller = NodeController(world, stamps=stamps)
    return open_on(
        world,
        lambda far: cray.open_source(None, clock=far, sysfs_root=controller.tree.root, power=power),
        refresh=controller.refresh,
        leave=controller.tree.close,
    )
