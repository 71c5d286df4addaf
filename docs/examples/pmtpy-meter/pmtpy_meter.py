"""A meter whose daemon shows one counter in a file: microjoules, in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pmtpy.core import Channel, Clock, Discovery, Identity, Obstacle, PolledSource, Quantity, ReadError, Source, Traits
from pmtpy.emulators import Tree, check_device, open_on, shared_world

FILE = "/run/meter/energy_uj"
BOARD = Channel(
    "board",
    Quantity.ENERGY,
    scale=1e-6,  # joules per count
    wrap=2.0**32,  # counts after which it starts again from zero
    max_watts=500,  # tells a wrap from a restart
    refresh_s=0.01,
    gain_u=0.01,
    domain="external/board",
    reference="the meter's data sheet, section 4",
)


class Meter(PolledSource):
    """The counter, read at each poll."""

    identity = Identity("meter", model="file meter")
    channels = (BOARD,)
    traits = Traits(interval_s=0.1, deadline_s=8.0)  # at 500 W it turns over after 8.6 s

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(clock)
        self._path = path

    def poll(self) -> Sequence[float]:
        """Return one count for each channel."""
        try:
            return [float(self._path.read_text())]
        except (OSError, ValueError) as error:
            raise ReadError(f"{self._path}: {error}") from error


def discover(*, path: str = FILE) -> Discovery:
    """Say whether the meter is there."""
    if Path(path).exists():
        return Discovery(("",))
    return Discovery.none("meter", f"{path} does not exist", "$ sudo systemctl start meterd", obstacle=Obstacle.DRIVER)


def open_source(device: str | None, *, clock: Clock, path: str = FILE) -> Source:  # noqa: ARG001  (there is one)
    """Open the meter."""
    discover(path=path).require()
    return Meter(Path(path), clock)


def open_virtual(device: str | None, *, clock: Clock, load: str | None = None) -> Source:
    """Open the real backend on a file that follows the shared load."""
    check_device("meter", device)
    world, tree = shared_world(load, clock=clock), Tree()

    def refresh(now_ns: int) -> None:
        renewed_ns = now_ns // 10_000_000 * 10_000_000  # every 10 ms, as BOARD says
        tree.write("energy_uj", int(float(world.joules(renewed_ns)) * 1e6) % 2**32)

    path = str(tree.root / "energy_uj")
    return open_on(world, lambda far: open_source(None, clock=far, path=path), refresh=refresh, leave=tree.close)
