"""A virtual Brick Daemon with a stack of bricklets on the shared load."""

from __future__ import annotations

from pmtpy.backends import tinkerforge
from pmtpy.core.clock import Clock
from pmtpy.core.source import Source
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.tinkerforge._daemon import Bricklet, Daemon, MemoryLink, Session, TcpDaemon
from pmtpy.emulators.world import shared_world

__all__ = ["Bricklet", "Daemon", "MemoryLink", "Session", "TcpDaemon", "open_virtual", "sema_stack"]


def sema_stack() -> list[Bricklet]:
    """Return five rails of an accelerator: three newer bricklets and two older ones."""
    shares = {"12V1": 0.30, "3V3": 0.05, "6pin": 0.20, "8pinA": 0.25, "8pinB": 0.20}
    return [Bricklet(f"v{i}C", 2105 if i <= 3 else 227, (share,)) for i, share in enumerate(shares.values(), 1)]


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    averaging: int = 4,
    conversion_us: int = 332,
) -> Source:
    """Open the real backend on a virtual daemon, through whose five bricklets the whole load flows.

    Parameters
    ----------
    averaging, conversion_us
        As of the real one.
    """
    check_device("tinkerforge", device)
    world = shared_world(load, clock=clock)
    daemon = Daemon(world, sema_stack())
    return open_on(
        world,
        lambda at: tinkerforge.open_source(
            "virtual", clock=at, averaging=averaging, conversion_us=conversion_us,
            link=lambda: MemoryLink(daemon, clock),
        ),
        leave=lambda: None,
    )  # fmt: skip
