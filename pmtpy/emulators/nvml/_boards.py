"""Models of GPU to rehearse with, and one GPU of a model with what may go wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pmtpy.emulators.gpu_sensor import SensorModel, parse_sensor_model
from pmtpy.errors import TargetError


@dataclass(frozen=True, slots=True)
class Board:
    """A model of GPU."""

    # (int, int): as NVML gives them
    name: str
    architecture: int
    capability: tuple[int, int]
    sensor: str  # text of its sensor: see :func:`pmtpy.emulators.gpu_sensor.parse_sensor_model`
    # whether it has power as fields, field 185, an energy counter, a buffer of samples
    fields: bool = True
    average: bool = True
    energy: bool = True
    samples: bool = True
    memory_share: float = 0.0  # share of the power in its memory, where it tells; 0: it does not


# What exists on which generation: NVML API reference; periods and windows of the two without a known model: the paper
# that pmtpy.backends.nvml.facts names.
BOARDS = {
    "ideal": Board("Virtual GPU", 8, (8, 9), "update_s=0.1,window_s=0.1,step_w=0.001"),
    "h100": Board("NVIDIA H100 PCIe", 9, (9, 0), "h100", memory_share=0.2),
    "gh200": Board("NVIDIA GH200 480GB", 9, (9, 0), "window_s=0.02,step_w=0.001"),
    "rtx4090": Board("NVIDIA GeForce RTX 4090", 8, (8, 9), "rtx4090"),
    "rtx3090": Board("NVIDIA GeForce RTX 3090", 7, (8, 6), "rtx3090"),
    "a100": Board("NVIDIA A100-PCIE-40GB", 7, (8, 0), "a100", average=False),
    "v100": Board("Tesla V100-SXM2-16GB", 5, (7, 0), "v100", average=False),
    "p100": Board("Tesla P100-PCIE-16GB", 4, (6, 0), "update_s=0.021,window_s=0.01035", average=False, energy=False),
    "k40m": Board("Tesla K40m", 2, (3, 5), "k40m", fields=False, average=False, energy=False, samples=False),
}


@dataclass(slots=True)
class VirtualGpu:
    """One GPU of a virtual driver. Tests change it while it is being read."""

    board: Board
    sensor: SensorModel  # the momentary reading; the average and the counter go with it
    index: int = 0
    lost: bool = False  # it has fallen off the bus
    # return code of an entry point by its C name, or of a (field, scope)
    codes: dict[str | tuple[int, int], int] = field(default_factory=dict)
    # count that a (field, scope) shows instead of its own
    garbage: dict[tuple[int, int], int] = field(default_factory=dict)
    # what the energy counter showed at the epoch of the load; setting it lower is a restart
    counter_mj: int = 50_000_000
    frozen_ns: int | None = None  # instant at which its registers stopped to refresh
    mig: tuple[str, ...] = ()  # UUIDs of its parts
    slowed_by: int = 0  # reasons for which its clocks are held back now, as NVML's bits
    # for how long each of NVML's policies has held them back; None: this driver does not count it
    slowed_ns: dict[int, int] | None = field(default_factory=dict)
    # (int, int): least and largest power limit that can be set; wide, so that any load may be rehearsed
    limits_mw: tuple[int, int] = (100_000, 700_000)

    @property
    def uuid(self) -> str:
        """NVML's name for it, different for each index."""
        return f"GPU-{self.index + 1:08x}-7669-7274-7561-6c2d67707521"

    @property
    def pci(self) -> str:
        """PCI address with the eight digits of domain that NVML writes."""
        return f"00000000:{0x3B + self.index:02X}:00.0"


def make_gpu(profile: str = "h100", index: int = 0, changes: Mapping[str, float] | None = None) -> VirtualGpu:
    """Make a GPU of a known model whose sensor differs by ``changes``: fields of SensorModel."""
    board = BOARDS.get(profile)
    if board is None:
        msg = f"nvml:virtual: no profile {profile!r}; there are: {', '.join(BOARDS)}"
        raise TargetError(msg)
    more = {"seed": 1 + index, **(changes or {})}
    joint = "," if "=" in board.sensor else ":"
    spec = board.sensor + joint + ",".join(f"{key}={value!r}" for key, value in more.items())
    return VirtualGpu(board, parse_sensor_model(spec), index)
