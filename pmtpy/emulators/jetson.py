"""Emulated Jetson modules: the power monitors of each board, in the files of each JetPack, on the shared load.

Facts: data sheet INA3221 (TI SBOS576): 40 uV per bit across the shunt, 8 mV per bit of the bus, three channels
converted in turn, averaging as a running low pass. Rails, addresses, shunts: NVIDIA Jetson Linux Developer Guide and
mainline device trees. The shares of the load that each rail takes are made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pmtpy.backends import jetson
from pmtpy.core.clock import Clock
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import check_device, open_on
from pmtpy.emulators.world import World, shared_world
from pmtpy.errors import TargetError

_CYCLE_S = 0.0066  # three channels, each 1.1 ms for the bus and 1.1 ms for the shunt
_SETTLED_AVERAGES = 20  # so many averaging lengths later nothing of the past is left


@dataclass(frozen=True, slots=True)
class Rail:
    """One channel of an emulated monitor."""

    label: str  # empty: nothing is connected
    share: float = 0.0  # part of the load that flows through it
    # voltage and shunt
    volts: float = 5.0
    ohms: float = 0.005
    bias_a: float = 0.0  # error of its zero, amperes


_NC = Rail("")


@dataclass(frozen=True, slots=True)
class Board:
    """One module on its carrier."""

    model: str  # as the device tree says
    jetpack: int  # the release that is emulated if none is asked for
    chips: Mapping[str, tuple[Rail, ...]]


BOARDS: Mapping[str, Board] = {
    "nano": Board(
        "NVIDIA Jetson Nano Developer Kit",
        4,
        {"6-0040": (Rail("POM_5V_IN", 1.0), Rail("POM_5V_GPU", 0.3), Rail("POM_5V_CPU", 0.4))},
    ),
    "tx1": Board(
        "jetson_tx1",
        4,
        {
            "1-0040": (Rail("VDD_IN", 1, 19, 0.02), Rail("VDD_GPU", 0.3, 19, 0.01), Rail("VDD_CPU", 0.3, 19, 0.01)),
            "1-0042": (Rail("VDD_MUX", 1.1, 19, 0.02), Rail("VDD_5V0_IO_SYS", 0.05), Rail("VDD_3V3_SYS", 0.02, 3.296)),
            "1-0043": (Rail("VDD_3V3_IO_SLP", 0.01, 3.296), Rail("VDD_1V8_IO", 0.01, 1.8), Rail("VDD_M2_IN", 0.01)),
        },
    ),
    "tx2": Board(
        "quill",
        4,
        {
            "0-0040": (
                Rail("VDD_SYS_GPU", 0.3, 19, 0.01),
                Rail("VDD_SYS_SOC", 0.15, 19, 0.01),
                Rail("VDD_4V0_WIFI", 0.02),
            ),
            "0-0041": (
                Rail("VDD_IN", 1.0, 19),
                Rail("VDD_SYS_CPU", 0.25, 19, 0.01),
                Rail("VDD_SYS_DDR", 0.2, 19, 0.01),
            ),
        },
    ),
    "xavier-nx": Board(
        "NVIDIA Jetson Xavier NX Developer Kit",
        5,
        {"7-0040": (Rail("VDD_IN", 1.0), Rail("VDD_CPU_GPU_CV", 0.5), Rail("VDD_SOC", 0.2))},
    ),
    "agx-xavier": Board(
        "Jetson-AGX",
        5,
        {
            "1-0040": (Rail("GPU", 0.3, 19), Rail("CPU", 0.25, 19), Rail("SOC", 0.15, 19)),
            "1-0041": (Rail("CV", 0.05, 19), Rail("VDDRQ", 0.1, 19), Rail("SYS5V", 0.15)),
        },
    ),
    "orin-nx": Board(
        "NVIDIA Jetson Orin NX Engineering Reference Developer Kit",
        6,
        {"1-0040": (Rail("VDD_IN", 1.0), Rail("VDD_CPU_GPU_CV", 0.5), Rail("VDD_SOC", 0.2))},
    ),
    "agx-orin": Board(
        "NVIDIA Jetson AGX Orin Developer Kit",
        6,
        {
            "1-0040": (
                Rail("VDD_GPU_SOC", 0.5, 20, 0.002),
                Rail("VDD_CPU_CV", 0.3, 20, 0.002),
                Rail("VIN_SYS_5V0", 0.2, 4.968, 0.002),
            ),
            "1-0041": (_NC, Rail("VDDQ_VDD2_1V8AO", 0.1, 4.968, 0.002), _NC),
        },
    ),
    "thor": Board(
        "NVIDIA Jetson AGX Thor Developer Kit",
        7,
        {
            "2-0040": (
                Rail("VDD_GPU", 0.5, 20, 0.002),
                Rail("VDD_CPU_SOC_MSS", 0.3, 20, 0.002),
                Rail("VIN_SYS_5V0", 0.2, 4.968, 0.002),
            ),
            "2-0044": (Rail("VIN", 1.15, 20, 0.002),),
        },
    ),
    "custom": Board("Somebody's carrier", 6, {"3-0040": (Rail("RAIL_A", 0.6, 12), Rail("RAIL_B", 0.4), _NC)}),
}


class Monitors:
    """The power monitors of one board, and their files.

    Attributes
    ----------
    tree : Tree
        The files.
    """

    def __init__(self, world: World, board: str, jetpack: int | None = None, samples: int = 1) -> None:
        if board not in BOARDS:
            msg = f"no emulated board {board!r}; there are: {', '.join(BOARDS)}"
            raise TargetError(msg)
        self._board = BOARDS[board]
        self._jetpack = self._board.jetpack if jetpack is None else jetpack
        if self._jetpack not in {4, 5, 6, 7} or samples not in {1, 4, 16, 64, 128, 256, 512, 1024}:
            msg = "jetpack is 4, 5, 6 or 7, and samples 1, 4, 16, 64, 128, 256, 512 or 1024"
            raise TargetError(msg)
        self._world = world
        self._samples = samples
        self._cycle = -1
        self._watts = 0.0
        self.tree = Tree()
        self.tree.write_bytes("firmware/devicetree/base/model", self._board.model.encode() + b"\0")
        self._folders = {chip: self._register(i, chip) for i, chip in enumerate(self._board.chips)}
        for chip, rails in self._board.chips.items():
            for i, rail in enumerate(rails):
                self._describe(self._folders[chip], i, rail)
        self.refresh(world.clock.now_ns())

    def refresh(self, now_ns: int) -> None:
        """Let the files show the last conversions before ``now_ns``."""
        self._convert(int(np.floor(self._world.seconds_since_epoch(now_ns) / _CYCLE_S + 1e-9)))
        for chip, rails in self._board.chips.items():
            for i, rail in enumerate(rails):
                if rail.label:
                    self._show(self._folders[chip], i, rail)

    def _convert(self, cycle: int) -> None:
        """Do the conversions up to ``cycle``: each moves the average by its share."""
        first = max(self._cycle + 1, cycle - _SETTLED_AVERAGES * self._samples)
        for watts in self._world.load.watts(np.arange(first, cycle + 1, dtype=np.float64) * _CYCLE_S).tolist():
            self._watts = watts if self._cycle < 0 else self._watts + (watts - self._watts) / self._samples
            self._cycle = cycle
        self._cycle = cycle

    # -- files -----------------------------------------------------------------------------------------------------

    def _register(self, i: int, chip: str) -> str:
        """Make the device's folder and the links to it; return the folder of its attributes."""
        device = f"devices/platform/bus@0/c250000.i2c/i2c-{chip[0]}/{chip}"
        driver = "ina238" if chip == "2-0044" else "ina3221x" if self._jetpack == 4 else "ina3221"
        if self._jetpack == 4:
            folder = f"{device}/iio:device{i}"
            self.tree.link(f"bus/iio/devices/iio:device{i}", folder)
        else:
            folder = f"{device}/hwmon/hwmon{i + 1}"
            self.tree.link(f"class/hwmon/hwmon{i + 1}", folder)
            self.tree.link(f"{folder}/device", device)
        self.tree.link(f"bus/i2c/drivers/{driver}/{chip}", device)
        self.tree.write(f"{folder}/name", driver)
        return folder

    def _describe(self, folder: str, i: int, rail: Rail) -> None:
        write = self.tree.write
        if self._jetpack == 4:
            write(f"{folder}/rail_name_{i}", rail.label or "(null)")
            write(f"{folder}/polling_delay_{i}", "0 ms")
            write(f"{folder}/crit_current_limit_{i}", "32760 ma")
            return
        write(f"{folder}/update_interval", round(_CYCLE_S * 1000 * self._samples))
        if rail.label == "VIN":
            write(f"{folder}/shunt_resistor", round(rail.ohms * 1e6))
            return
        write(f"{folder}/samples", self._samples)
        write(f"{folder}/in{i + 1}_enable", int(bool(rail.label) or self._jetpack == 5))
        write(f"{folder}/shunt{i + 1}_resistor", round(rail.ohms * 1e6))
        write(f"{folder}/in7_label", "sum of shunt voltages")
        write(f"{folder}/in7_input", 0)
        write(f"{folder}/curr4_input", 0)
        if rail.label:
            write(f"{folder}/in{i + 1}_label", rail.label)
        elif self._jetpack == 5:
            write(f"{folder}/in{i + 1}_label", "NC")
            write(f"{folder}/in{i + 1}_input", 0)
            write(f"{folder}/curr{i + 1}_input", 0)

    def _show(self, folder: str, i: int, rail: Rail) -> None:
        amps = self._watts * rail.share / rail.volts + rail.bias_a
        shunt_uv = 40 * max(-4096, min(4095, round(amps * rail.ohms / 40e-6)))  # 12 bits and a sign
        milliamps = round(shunt_uv / rail.ohms / 1000)
        millivolts = 8 * round(rail.volts / 8e-3)
        write = self.tree.write
        if self._jetpack == 4:
            write(f"{folder}/in_voltage{i}_input", millivolts)
            write(f"{folder}/in_current{i}_input", milliamps)
            write(f"{folder}/in_power{i}_input", millivolts * milliamps // 1000)
            write(f"{folder}/ui_input_{i}", f"{millivolts} {milliamps}")
            return
        write(f"{folder}/in{i + 1}_input", millivolts)
        write(f"{folder}/curr{i + 1}_input", milliamps)


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    board: str = "orin-nx",
    jetpack: int | None = None,
    samples: int = 1,
    total: str = "module",
) -> Source:
    """Open the real backend on an emulated module that draws the shared load.

    Parameters
    ----------
    board : str
        Which module: nano, tx1, tx2, xavier-nx, agx-xavier, orin-nx, agx-orin, thor, or custom (rails nobody knows).
    jetpack : int, optional
        4, 5, 6 or 7: whose files. None: one that the board had.
    samples : int
        Averaging of the monitors.
    total
        As for the real one.
    """
    check_device("jetson", device)
    world = shared_world(load, clock=clock)
    monitors = Monitors(world, board, jetpack, samples)
    return open_on(
        world,
        lambda far: jetson.open_source(None, clock=far, sysfs_root=monitors.tree.root, total=total),
        refresh=monitors.refresh,
        leave=monitors.tree.close,
    )
