"""The far side of IPMI: a service processor that measures the shared load once a second."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pmtpy.backends import ipmi
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.source import Source
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.world import World, shared_world, unheld

_BOOT_S = 1_700_000_000  # by the processor's clock, when the world begins


class ServiceProcessor:
    """What ``ipmitool raw`` would print. ``active``, ``shown_w``, ``text``: faults."""

    def __init__(self, world: World) -> None:
        self._world = unheld(world)
        self.active, self.shown_w = True, -1
        self.text: bytes | None = None

    def run(self, _: Sequence[str]) -> bytes:
        """Answer Get Power Reading."""
        second = (self._world.clock.now_ns() - self._world.epoch_ns) // NS_PER_S
        now = round(float(self._world.watts(self._world.epoch_ns + second * NS_PER_S)))
        now = self.shown_w if self.shown_w >= 0 else now
        answer = struct.pack("<BHHHHIIB", 0xDC, now, 0, 5000, now, _BOOT_S + second, 1000, 0x40 * self.active)
        return self.text if self.text is not None else f" {answer.hex(' ')}\n".encode()


def open_virtual(device: str | None = None, *, clock: Clock, load: str | None = None) -> Source:
    """Open the real backend on a virtual service processor."""
    check_device("ipmi", device)
    world = shared_world(load, clock=clock)
    far = ServiceProcessor(world)
    return open_on(world, lambda at: ipmi.open_source(None, clock=at, run=far.run), leave=lambda: None)
