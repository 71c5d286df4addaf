"""AMD GPUs by the files of the kernel's driver, where ROCm's library cannot be used.

No binding, no groups, no versions to match; and no energy counter, so power is integrated. Facts: the kernel's
``Documentation/gpu/amdgpu/thermal.rst`` and ``Documentation/hwmon/sysfs-interface.rst``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtpy.backends import _hwmon
from pmtpy.backends._assumed_gain import GPU_U
from pmtpy.backends._card_limit import kept_watts, most_watts
from pmtpy.backends._gpu_selection import normal_pci
from pmtpy.backends._sysfs import Registers, optional_number, optional_text
from pmtpy.backends.amdsmi._channels import ASSUMED_MEAN_S
from pmtpy.backends.amdsmi._device import BACKEND, MOST_WATTS
from pmtpy.backends.amdsmi._selection import Gpu
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Clock
from pmtpy.core.source import PolledSource, Traits
from pmtpy.errors import BackendUnavailableError, ReadError

_REFERENCE = "Linux: Documentation/gpu/amdgpu/thermal.rst"
# Most cards have one of the two: current firmware the momentary one (Linux 6.6 and newer), older the average.
_POWERS = (("power1_input", "gpu.current_power"), ("power1_average", "gpu.average_power"))
_UNSTATED_MEAN = (
    f"gpu.average_power is a mean over a time that AMD does not state: {ASSUMED_MEAN_S:g} s is assumed, and if it is "
    "longer, regions of a few seconds are less certain than they say"
)
_TEMPERATURES = {"edge": "gpu.edge_temperature", "junction": "gpu.hotspot_temperature", "mem": "memory.temperature"}
_CLOCKS = {"sclk": "gpu.gfx_clock", "mclk": "gpu.memory_clock"}


@dataclass(frozen=True, slots=True)
class Card:
    """One card with the folder of its sensors."""

    gpu: Gpu
    folder: Path


def cards(root: Path) -> list[Card]:
    """List the cards of the driver amdgpu in the order of their PCI addresses."""
    found: dict[str, Card] = {}
    for folder in _hwmon.scan(root)[0]:
        if folder.name != "amdgpu" or folder.device is None:
            continue
        model = optional_text(folder.device / "product_name") or ""
        serial = optional_text(folder.device / "unique_id") or ""
        pci = normal_pci(folder.address) or folder.address
        found[pci] = Card(Gpu(pci, name=model, serial=serial), folder.path)
    return [found[pci] for pci in sorted(found)]


def open_card(card: Card, domain: str, clock: Clock, why: str, notes: Sequence[str]) -> HwmonSource:
    """Open a card that measures ``domain``; ``why`` says why the library is not used.

    Raises BackendUnavailableError: the card has no file of power that can be read.
    """
    channels, files = _channels(card.folder, domain)
    if not channels or channels[0].quantity is not Quantity.POWER:
        reason = f"{why}; and {card.folder} has no power1_input or power1_average that can be read"
        raise BackendUnavailableError(BACKEND, reason, "install ROCm's package amd-smi-lib")
    said = (*notes, f"read from {card.folder}, because {why}", "no energy counter: the total is integrated power")
    said += unstated_means(channels)
    number = card.gpu.serial
    identity = Identity(
        BACKEND, card.gpu.name or "amdgpu", number or card.gpu.pci, notes=said, serial_is_place=not number
    )
    return HwmonSource(clock, identity, channels, files)


def unstated_means(channels: Sequence[Channel]) -> tuple[str, ...]:
    """What is to be said of means whose width is not known."""
    return (_UNSTATED_MEAN,) if any(c.name == "gpu.average_power" for c in channels) else ()


def _channels(folder: Path, domain: str) -> tuple[tuple[Channel, ...], tuple[Path, ...]]:
    found: list[tuple[Channel, Path]] = []
    most = most_watts(_hwmon.limit_w(folder, 1), MOST_WATTS)
    for file, name in _POWERS:
        if (optional_number(folder / file) or 0) > 0:
            label = optional_text(folder / "power1_label") or file
            mean_s = ASSUMED_MEAN_S if file == "power1_average" else None
            power = Channel(
                name,
                Quantity.POWER,
                scale=1e-6,
                domain=domain,
                label=label,
                window_s=mean_s,
                lag_s=mean_s / 2 if mean_s else None,
                gain_u=GPU_U,
                max_watts=most,
                kept_watts=kept_watts(most),
                reference=_REFERENCE,
            )
            found.append((power, folder / file))
    for i in range(1, 4):
        kind = _TEMPERATURES.get(optional_text(folder / f"temp{i}_label") or "edge")
        if kind and optional_number(folder / f"temp{i}_input") is not None:
            channel = Channel(kind, Quantity.TEMPERATURE, scale=1e-3, reference=_REFERENCE)
            found.append((channel, folder / f"temp{i}_input"))
    for i in range(1, 3):
        kind = _CLOCKS.get(optional_text(folder / f"freq{i}_label") or "")
        if kind and optional_number(folder / f"freq{i}_input") is not None:
            found.append((Channel(kind, Quantity.FREQUENCY, reference=_REFERENCE), folder / f"freq{i}_input"))
    return tuple(c for c, _ in found), tuple(p for _, p in found)


class HwmonSource(PolledSource):
    """The files of one card."""

    traits = Traits(interval_s=0.05)

    def __init__(self, clock: Clock, identity: Identity, channels: Sequence[Channel], files: Sequence[Path]) -> None:
        super().__init__(clock)
        self.identity = identity
        self.channels = tuple(channels)
        self._powers = sum(c.quantity is Quantity.POWER for c in channels)
        self._files = tuple(files)
        self._registers = Registers(lambda: self._files)

    def poll(self) -> Sequence[float]:
        """Read every file once. A power of zero, or beyond what the card can draw, is no reading."""
        counts = self._registers.numbers()
        for channel, count in zip(self.channels[: self._powers], counts, strict=False):
            if not 0 < count * channel.scale <= (channel.max_watts or MOST_WATTS):
                msg = f"amdsmi {self.identity.serial}: {channel.name}: the driver says {count} uW, which is impossible"
                raise ReadError(msg)
        return counts

    def close(self) -> None:
        """Close the files. May be called twice."""
        self._registers.close()
