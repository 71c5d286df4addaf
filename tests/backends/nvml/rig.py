"""A bench for the NVML backend: GPUs in an emulated world whose clock the test moves, read by the real pynvml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from pmtpy.backends.nvml import open_source
from pmtpy.core.clock import ManualClock
from pmtpy.core.integrate import Integrator
from pmtpy.core.rows import Block, Frame, Layout
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators.nvml import VirtualDriver, VirtualGpu, make_gpu, private_pynvml
from pmtpy.emulators.world import make_world

LOAD = "square:low=100,high=300,hz=0.7"


class Rig:
    """A driver with GPUs. ``gpus`` and ``driver`` may be changed while sources are open."""

    def __init__(
        self, *gpus: VirtualGpu, load: str = LOAD, version: str = "570.86.15", clock: ManualClock | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.world = make_world(load, clock=self.clock)
        self.gpus: Sequence[VirtualGpu] = gpus or (make_gpu("h100"),)
        self.driver = VirtualDriver(self.world, self.gpus, version)
        self.pynvml: ModuleType = private_pynvml(self.driver)

    def open(self, device: str | None = "0", *, total: str | None = None, samples: bool = False) -> Source:
        tree = Tree()
        tree.write("bus/pci/devices/0000:3b:00.0/numa_node", 0)
        tree.write("bus/pci/devices/0000:3c:00.0/numa_node", 0)
        try:
            return open_source(
                device, clock=self.clock, library=self.pynvml, total=total, samples=samples, sysfs_root=Path(tree.root)
            )
        finally:
            tree.close()

    def rows(self, source: Source, seconds: float, step_s: float = 0.05) -> list[Block]:
        """Read as the poller does; return the Blocks that have rows."""
        blocks = []
        for _ in range(round(seconds / step_s)):
            self.clock.advance(step_s)
            block = source.read()
            if len(block):
                blocks.append(block)
        return blocks

    def joules(
        self, source: Source, seconds: float, channel: str = "total", step_s: float = 0.05
    ) -> tuple[float, float]:
        """Return measured and true energy between the first and the last row."""
        layout = Layout(source.channels)
        integrator = Integrator(layout)
        column = layout.names.index(channel)
        points = []
        for block in self.rows(source, seconds, step_s):
            frame = frame_of(integrator, block)
            points.append((int(frame.t_ns[-1]), float(frame.joules[-1, column])))
        (a_ns, a_j), (b_ns, b_j) = points[0], points[-1]
        return b_j - a_j, self.world.joules_between(a_ns, b_ns)


def frame_of(integrator: Integrator, block: Block) -> Frame:
    frame = integrator.advance(block)
    assert isinstance(frame, Frame)
    return frame


def names(source: Source) -> list[str]:
    return [c.name for c in source.channels]
