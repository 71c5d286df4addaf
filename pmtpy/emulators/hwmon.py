"""The far side of hwmon: chips on the shared load, each with its own files, steps and pace.

A chip is a table of what its files hold; the values follow the load as the hardware's do: a counter shows the energy,
a momentary reading the power at its last conversion, an average the mean over the conversion before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pmtpy.backends import hwmon
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.core.source import Source
from pmtpy.emulators._tree import Tree
from pmtpy.emulators._virtual_source import open_on
from pmtpy.emulators.world import World, shared_world
from pmtpy.errors import TargetError

_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Live:
    """A file that follows the load.

    ``share`` of the load; ``step`` of the shown number (microwatts, microjoules, milliamperes); ``kind`` is "power",
    "mean" (over the period before), "energy" (counted on from ``before``), or "current" at ``volts``.
    """

    kind: str
    share: float
    step: int
    volts: float = 12.0
    before: int = 14_099_063_431_500


@dataclass(frozen=True, slots=True)
class ChipSpec:
    """An emulated chip: driver, address, fixed files, files that follow the load, how often it converts."""

    name: str
    address: str
    live: Mapping[str, Live]
    period_s: float
    fixed: Mapping[str, object] = field(default_factory=dict)
    in_device: bool = False  # the older ACPI driver keeps its files in the device's folder


# 62.5 uV x A over 2 milliohm: one step of an INA226's power.
_INA_STEP = 31_250


def _ina226(address: str, share: float) -> ChipSpec:
    # 16 averages of two conversions of 1.1 ms, the driver's default: a mean over 35 ms, in boxes.
    return ChipSpec(
        "ina226",
        address,
        {"power1_input": Live("mean", share, _INA_STEP), "curr1_input": Live("current", share, 1)},
        0.035,
        {"shunt_resistor": 2000, "update_interval": 35, "in0_input": 1, "in1_input": 12000},
    )


def _meter(number: int, text: str, share: float) -> ChipSpec:
    return ChipSpec(
        "power_meter",
        f"ACPI000D:0{number}",
        {"power1_average": Live("mean", share, 1000)},
        0.05,
        {"power1_average_interval": 50, "power1_oem_info": text, "power1_is_battery": 0},
        in_device=True,
    )


def _power9() -> ChipSpec:
    fixed: dict[str, object] = {}
    live = {}
    parts = [("System", 1.0), ("Chip 0 ", 0.2), ("Chip 0 Vdd", 0.12), ("Chip 0 Memory", 0.1), ("Chip 8 ", 0.2)]
    for number, (label, share) in enumerate([*parts, ("APSS 3 ", 0.3)], 1):
        fixed[f"power{number}_label"] = fixed[f"energy{number}_label"] = label
        live[f"power{number}_input"] = Live("power", share, 1_000_000)
        # Divided by the nominal rate of 2000 Hz, where 1996.18 samples come in a second.
        live[f"energy{number}_input"] = Live("energy", share * 1996.18 / 2000, 500)
    return ChipSpec("ibmpowernv", "opal-sensor", live, 0.0401, fixed)


LAYOUTS: dict[str, tuple[ChipSpec, ...]] = {
    "ina226": (_ina226("1-0040", 1.0),),
    # One accelerator on three rails, a board for each: slot 12 V, slot 3.3 V, cable 12 V.
    "boards": (_ina226("1-0040", 0.25), _ina226("1-0041", 0.05), _ina226("1-0044", 0.7)),
    "product": (
        ChipSpec(
            "ina219", "2-0041", {"curr1_input": Live("current", 1.0, 1)}, 0.01, {"in0_input": 1, "in1_input": 12000}
        ),
    ),
    "amdgpu": (
        ChipSpec(
            "amdgpu",
            "0000:03:00.0",
            {"power1_average": Live("mean", 1.0, 1000), "power1_input": Live("power", 1.0, 1000)},
            0.01,
            {"power1_label": "PPT", "power1_cap": 300_000_000},
        ),
    ),
    "xe": (
        ChipSpec(
            "xe",
            "0000:08:00.0",
            {"energy1_input": Live("energy", 1.0, 61), "energy2_input": Live("energy", 0.8, 61)},
            0.001,
            {"energy1_label": "card", "energy2_label": "pkg", "power1_max": 190_000_000},
        ),
    ),
    "xilinx": (
        ChipSpec(
            "xilinx_u250_gen3x16_xdma_shell_4_1_mgmt",
            "0000:65:00.0",
            {"power1_input": Live("power", 1.0, 1_000_000)},
            0.01,
            {
                "power1_label": "POWER",
                "power1_average": 225_000_000,  # which is the largest there was
                "power2_label": "CS_TARGET_POWER",
                "power2_input": 190_000_000,  # which it is to keep to
            },
        ),
    ),
    "grace": (
        _meter(0, "Module Power Socket 0", 0.6),
        _meter(1, "Grace Power Socket 0", 0.3),
        _meter(2, "CPU Power Socket 0", 0.2),
        _meter(3, "SysIO Power Socket 0", 0.05),
        _meter(4, "Module Power Socket 1", 0.4),
    ),
    "server": (_meter(0, "", 1.0),),
    "ibmpowernv": (_power9(),),
    "supply": (
        ChipSpec(
            "corsairpsu",
            "0003:1B1C:1C07.0001",
            {f"power{n}_input": Live("power", s, 500_000) for n, s in ((1, 1.0), (2, 0.8), (3, 0.2))},
            0.02,
            {"power1_label": "power total", "power2_label": "power +12v", "power3_label": "power +5v"},
        ),
    ),
    "regulators": (
        ChipSpec(
            "tps53679",
            "4-0060",
            {f"power{n}_input": Live("power", 0.5, 250_000) for n in (1, 2)},
            0.01,
            {"power1_label": "pout1", "power2_label": "pout2"},
        ),
    ),
}


class Board:
    """The emulated chips and their tree.

    Attributes
    ----------
    tree : Tree
        The files; ``tree.root`` is the sysfs root.
    """

    def __init__(self, world: World, layout: str = "ina226") -> None:
        """Register the chips of a layout."""
        if layout not in LAYOUTS:
            msg = f"no layout {layout!r} of virtual hwmon chips; there are: {', '.join(LAYOUTS)}"
            raise TargetError(msg)
        self._world = world
        self._chips: dict[int, ChipSpec] = {}
        self.tree = Tree()
        for number, spec in enumerate(LAYOUTS[layout]):
            self.register(number, spec)

    def register(self, number: int, spec: ChipSpec) -> None:
        """Let a chip appear as ``hwmonN``."""
        self._chips[number] = spec
        directory = f"devices/{spec.address}/hwmon/hwmon{number}"
        self.tree.write(f"{directory}/name", spec.name)
        for name, content in spec.fixed.items():
            self.tree.write(f"{self.place(number)}/{name}", content)
        self.tree.link(f"{directory}/device", f"devices/{spec.address}")
        self.tree.link(f"class/hwmon/hwmon{number}", directory)
        self._show(number, self._world.clock.now_ns())

    def unregister(self, number: int) -> ChipSpec:
        """Let a chip disappear; return what it was."""
        spec = self._chips.pop(number)
        self.tree.remove(f"class/hwmon/hwmon{number}")
        self.tree.remove(f"devices/{spec.address}")
        return spec

    def place(self, number: int) -> str:
        """Folder of a chip's files, below the root."""
        spec = self._chips[number]
        return f"devices/{spec.address}" + ("" if spec.in_device else f"/hwmon/hwmon{number}")

    def refresh(self, now_ns: int) -> None:
        """Show every file as of its chip's last conversion before ``now_ns``."""
        for number in self._chips:
            self._show(number, now_ns)

    def _show(self, number: int, now_ns: int) -> None:
        spec = self._chips[number]
        period_ns = round(spec.period_s * NS_PER_S)
        end = now_ns - (now_ns - self._world.epoch_ns) % period_ns
        joules = float(self._world.joules(end))
        mean = (joules - float(self._world.joules(end - period_ns))) / spec.period_s
        now = {"energy": joules * _MICRO, "mean": mean * _MICRO, "power": float(self._world.watts(end)) * _MICRO}
        for name, live in spec.live.items():
            value = live.share * (mean / live.volts * 1e3 if live.kind == "current" else now[live.kind])
            shown = (live.before if live.kind == "energy" else 0) + int(value) // live.step * live.step
            self.tree.write(f"{self.place(number)}/{name}", shown)


def open_virtual(
    device: str | None = None,
    *,
    clock: Clock,
    load: str | None = None,
    layout: str | None = None,
    label: str | None = None,
    power: bool = False,
) -> Source:
    """Open the real backend on virtual chips that watch the shared load.

    Parameters
    ----------
    device : str or None
        "virtual", or "virtual/" and a chip of the layout: ``virtual/ina226/1`` is the second of three boards that
        feed one accelerator.
    layout : str or None
        Which chips: "ina226" (one board with the whole load), "boards" (three of them), "product" (voltage and current
        only), "amdgpu", "xe", "grace", "server" (an ACPI meter), "ibmpowernv", "supply", "regulators" (no total).
        None: "ina226", or "boards" when one of several is named.
    label, power
        As for the real chips.
    """
    head, _, chip = (device or "virtual").partition("/")
    if head != "virtual":
        msg = f"a virtual chip is hwmon:virtual or hwmon:virtual/CHIP, and not {device!r}"
        raise TargetError(msg)
    world = shared_world(load, clock=clock)
    board = Board(world, layout or ("boards" if chip else "ina226"))
    alone = LAYOUTS[layout][0].name if layout == "grace" else None
    root = board.tree.root
    return open_on(
        world,
        lambda far: hwmon.open_source(chip or alone, clock=far, sysfs_root=root, label=label, power=power),
        refresh=board.refresh,
        leave=board.tree.close,
    )
