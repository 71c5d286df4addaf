"""A bench for the AMD backend: cards in an emulated world whose clock the test moves, read by the real wrapper."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from pmtpy.backends.amdsmi import open_source
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Frame, Layout
from pmtpy.core.source import Source
from pmtpy.emulators.amdsmi import VirtualCard, VirtualSmi, private_amdsmi
from pmtpy.emulators.world import make_world

LOAD = "square:low=100,high=300,hz=0.7"
NOWHERE = Path("/proc/nonexistent")


class Rig:
    """A library with cards. ``cards`` and ``library`` may be changed while sources are open."""

    def __init__(
        self,
        *cards: VirtualCard,
        load: str = LOAD,
        version: tuple[int, int, int] = (26, 0, 2),
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.world = make_world(load, clock=self.clock)
        self.cards = list(cards) or [VirtualCard("AMD Instinct MI300X", average=False)]
        self.library = VirtualSmi(self.world, self.cards, version)
        self.amdsmi: ModuleType = private_amdsmi(self.library)

    def open(self, device: str | None = "0", *, total: str | None = None, root: Path = NOWHERE) -> Source:
        return open_source(device, clock=self.clock, library=self.amdsmi, total=total, sysfs_root=root)

    def rows(self, source: Source, seconds: float, step_s: float = 0.05) -> list[Block]:
        """Read as the poller does; return the Blocks that have rows."""
        blocks = []
        for _ in range(round(seconds / step_s)):
            self.clock.advance(step_s)
            block = source.read()
            if len(block):
                blocks.append(block)
        return blocks

    def curve(self, source: Source, seconds: float, step_s: float = 0.05) -> list[tuple[int, float, int]]:
        """Return instant, joules of the total and uncovered time of each row."""
        integrator = Integrator(Layout(source.channels))
        points = []
        for block in self.rows(source, seconds, step_s):
            frame = integrator.advance(block)
            assert isinstance(frame, Frame)
            points.append((int(frame.t_ns[-1]), float(frame.joules[-1, 0]), int(frame.uncovered_ns[-1, 0])))
        return points


def names(source: Source) -> list[str]:
    return [c.name for c in source.channels]
