"""The far side of industrial I/O: an INA226 whose conversions come through a pipe in place of a device node."""

from __future__ import annotations

import numpy as np

from pmtpy.backends import iio
from pmtpy.backends.iio import CURRENT, DEVICES, VOLTAGE
from pmtpy.core.clock import Clock
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.world import World, shared_world, unheld

NAME, STAMP = "iio:device0", "in_timestamp"
CONVERSION_NS = 2_200_000
VOLTS, VOLTS_PER_COUNT, AMPERES_PER_COUNT = 12.0, 1.25e-3, 0.625e-3


class Chip:
    """A chip and its files. ``skip``: so many conversions are lost next; ``tree.root`` is the sysfs root."""

    def __init__(self, world: World, *, name: str = "ina226") -> None:
        self._world = unheld(world)
        self.tree, self.skip = Tree(), 0
        folder = f"{DEVICES}/{NAME}"
        for file, content in (
            ("name", name), ("in_sampling_frequency", 1e9 / CONVERSION_NS), ("in_shunt_resistor", "0.004000"),
            (f"{VOLTAGE}_scale", VOLTS_PER_COUNT * 1e3), (f"{CURRENT}_scale", AMPERES_PER_COUNT * 1e3),
            ("current_timestamp_clock", "realtime"), ("in_allow_async_readout", 0), ("buffer/enable", 0),
            ("buffer/length", 2),
        ):  # fmt: skip
            self.tree.write(f"{folder}/{file}", content)
        for index, (channel, kind) in enumerate(
            (("in_voltage0", "le:s16/16>>0"), (VOLTAGE, "le:u16/16>>0"), ("in_power2", "le:u16/16>>0"),
             (CURRENT, "le:s16/16>>0"), (STAMP, "le:s64/64>>0"))
        ):  # fmt: skip
            self.tree.write(f"{folder}/scan_elements/{channel}_en", 0)
            self.tree.write(f"{folder}/scan_elements/{channel}_index", index)
            self.tree.write(f"{folder}/scan_elements/{channel}_type", kind)
        self.dev_root = self.tree.root / "dev"
        self._node = f"dev/{NAME}"
        self._pipe = self.tree.pipe(self._node)
        self._done_ns = world.clock.now_ns()

    def refresh(self, now_ns: int) -> None:
        """Convert up to an instant; what the pipe cannot keep is lost, as in the kernel."""
        count = (now_ns - self._done_ns) // CONVERSION_NS
        if count <= 0 or self._pipe < 0:
            return
        ends = self._done_ns + CONVERSION_NS * np.arange(count + 1)
        self._done_ns = int(ends[-1])
        watts = np.diff(self._world.joules(ends)) / (CONVERSION_NS * 1e-9)
        rows = np.zeros(count, [("voltage", "<u2"), ("current", "<i2"), ("_", "<u4"), ("stamp", "<i8")])
        rows["voltage"] = round(VOLTS / VOLTS_PER_COUNT)
        # Rounding is dithered by the chip's own noise, which is a count or so.
        dither = np.random.default_rng(int(ends[0]) & 0xFFFF_FFFF).uniform(-0.5, 0.5, count)
        current = np.rint(watts / VOLTS / AMPERES_PER_COUNT + dither)
        rows["current"] = np.clip(current, -0x8000, 0x7FFF)  # the converter ends there
        rows["stamp"] = ends[1:]
        rows, self.skip = rows[self.skip :], max(0, self.skip - count)
        self.tree.send(self._node, rows.tobytes())

    def close(self) -> None:
        """Remove everything. May be called twice."""
        self._pipe = -1
        self.tree.close()


def open_virtual(device: str | None = None, *, clock: Clock, load: str | None = None) -> Source:
    """Open the real backend on a virtual INA226, through whose shunt the whole load flows."""
    check_device("iio", device)
    world = shared_world(load, clock=clock)
    chip = Chip(world)
    return open_on(
        world,
        lambda at: iio.open_source(None, clock=at, sysfs_root=chip.tree.root, dev_root=chip.dev_root),
        refresh=chip.refresh,
        leave=chip.close,
    )
