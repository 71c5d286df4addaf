"""The far side of Redfish: a service that shows the shared load, renewed once a second."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pmtpy.backends import redfish
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.source import Source
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.world import World, shared_world, unheld
from pmtpy.errors import ReadError


class Service:
    """Resources by path. ``newer``: EnvironmentMetrics instead of Power, which ``says`` more of itself.

    ``shown_w`` is a fault.
    """

    def __init__(
        self,
        world: World,
        *,
        chassis: tuple[str, ...] = ("Self",),
        newer: bool = False,
        says: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self._world, self._chassis, self._newer, self._says = unheld(world), chassis, newer, says
        self.shown_w: object = None

    def get(self, path: str) -> Mapping[str, Any]:
        """Return a resource."""
        if path == redfish.ROOT:
            return {"Members": [{"@odata.id": f"{redfish.ROOT}/{name}"} for name in self._chassis]}
        second = (self._world.clock.now_ns() - self._world.epoch_ns) // NS_PER_S
        watts: object = round(float(self._world.watts(self._world.epoch_ns + second * NS_PER_S)))
        watts = watts if self.shown_w is None else self.shown_w
        if path.endswith("/EnvironmentMetrics") and self._newer:
            return {"PowerWatts": {"Reading": watts, **self._says}}
        if path.endswith("/Power") and not self._newer:
            return {"PowerControl": [{"PowerConsumedWatts": watts}]}
        msg = f"{path}: status 404, Not Found"
        raise ReadError(msg)


def open_virtual(device: str | None = None, *, clock: Clock, load: str | None = None, newer: bool = False) -> Source:
    """Open the real backend on a virtual service; ``newer``: one that shows EnvironmentMetrics."""
    check_device("redfish", device)
    world = shared_world(load, clock=clock)
    far = Service(world, newer=newer)
    return open_on(world, lambda at: redfish.open_source("virtual", clock=at, get=far.get), leave=lambda: None)
