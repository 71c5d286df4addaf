"""Which AMD GPUs there are and how HIP numbers them; partitions and second dies lead to what is measured.

The library lists GPUs by PCI address. A program that uses HIP sees those that ``ROCR_VISIBLE_DEVICES`` and then
``HIP_VISIBLE_DEVICES`` (or ``CUDA_VISIBLE_DEVICES``) leave, in HIP's order. A number here counts as HIP counts. Source:
ROCm documentation, GPU isolation techniques.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pmtpy.backends._gpu_selection import Inventory, choose, normal_pci
from pmtpy.backends.amdsmi._device import BACKEND, UNEXPECTED, Fault, Library, number
from pmtpy.errors import BackendUnavailableError

_NO_ADDRESS_PREFIX = "device "
ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device of the library."""

    # ``0000:c1:00.0``; the library's UUID and HIP's; model; serial number of the chip. Empty where unknown.
    pci: str
    uuid: str = ""
    hip_uuid: str = ""
    name: str = ""
    serial: str = ""
    # number in HIP, in the kernel's topology, and of the partition within its GPU
    hip: float | None = None
    node: float | None = None
    partition: float | None = None
    fault: str = ""  # Why nothing else is known of it: it does not answer. Empty where it does.

    @property
    def uuids(self) -> tuple[str, ...]:
        """All the UUIDs that it goes by."""
        return tuple(filter(None, (self.uuid, self.hip_uuid)))

    def __str__(self) -> str:
        return " ".join(filter(None, (self.pci, self.name, self.uuid, self.fault)))


@dataclass(frozen=True, slots=True)
class Stock:
    """All devices in HIP's order, what HIP shows of them, and how both came about."""

    gpus: tuple[Gpu, ...]
    shown: tuple[Gpu, ...]
    notes: tuple[str, ...]


def handles(library: Library) -> dict[str, object]:
    """Return the handle of each device by PCI address. They are void after somebody shut the library down.

    One that does not tell its address keeps its place, under a name that is no address.
    """
    found: dict[str, object] = {}
    listed = library.ask("amdsmi_get_processor_handles")
    if not isinstance(listed, list):
        raise Fault("amdsmi_get_processor_handles", UNEXPECTED)
    for place, handle in enumerate(listed):
        pci = str(library.optional("amdsmi_get_gpu_device_bdf", handle) or "")
        found[normal_pci(pci) or pci or f"{_NO_ADDRESS_PREFIX}{place}"] = handle
    return found


def describe(library: Library, pci: str, handle: object) -> Gpu:
    """Ask what a device is; what a release of the wrapper does not tell stays empty."""
    if pci.startswith(_NO_ADDRESS_PREFIX):
        return Gpu(
            "",
            fault=f"the library's device {pci.removeprefix(_NO_ADDRESS_PREFIX)}, which does not tell its PCI address",
        )
    asic = library.details("amdsmi_get_gpu_asic_info", handle)
    enumeration = library.details("amdsmi_get_gpu_enumeration_info", handle)
    kfd = library.details("amdsmi_get_gpu_kfd_info", handle)
    uuid = library.optional("amdsmi_get_gpu_device_uuid", handle)
    return Gpu(
        pci,
        _text(uuid),
        _text(enumeration.get("hip_uuid")),
        _text(asic.get("market_name")),
        _text(asic.get("asic_serial")),
        number(enumeration.get("hip_id")),
        number(kfd.get("node_id")),
        number(kfd.get("current_partition_id")),
    )


def _text(answer: object) -> str:
    return answer.strip("\0 ") if isinstance(answer, str) and answer != "N/A" else ""


def take_stock(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Stock:
    """Put devices into HIP's order and apply the variables that hide some."""
    notes: list[str] = []
    ordered, order = _ordered(gpus)
    shown = list(ordered)
    for variable in (ROCR, HIP if HIP in environment else CUDA):
        setting = environment.get(variable)
        if setting is not None:
            shown = _filtered(shown, setting)
            notes.append(f"numbers count what {variable}={setting!r} leaves")
    if len(gpus) > 1 and order:
        notes.append(order)
    return Stock(tuple(ordered), tuple(shown), tuple(notes))


def _ordered(gpus: Sequence[Gpu]) -> tuple[list[Gpu], str]:
    broken = [g for g in gpus if g.fault]
    places = {g.hip: g for g in gpus if not g.fault}
    if broken and places and len(places) == len(gpus) - len(broken) and set(places) <= set(range(len(gpus))):
        # Those that do not answer have the numbers that the others leave.
        return [places[i] if i in places else broken.pop(0) for i in range(len(gpus))], ""
    for key in ("hip", "node"):
        numbers = [getattr(g, key) for g in gpus]
        if None not in numbers and len(set(numbers)) == len(numbers):
            return sorted(gpus, key=lambda g: float(getattr(g, key))), ""
    # The library lists them so itself, with those that do not answer in their places.
    return list(gpus), "numbers are in the order of PCI addresses; HIP's order is not known"


def _filtered(gpus: Sequence[Gpu], setting: str) -> list[Gpu]:
    """Keep what a list of numbers and ``GPU-`` UUIDs names; an entry that names nothing ends it."""
    chosen: list[Gpu] = []
    for entry in (e.strip() for e in setting.split(",")):
        if re.fullmatch(r"\d+", entry):
            named = list(gpus[int(entry) : int(entry) + 1])
        else:
            named = [g for g in gpus if entry.upper().startswith("GPU-") and entry.lower() == g.hip_uuid.lower()]
        if len(named) != 1:
            break
        if named[0] not in chosen:
            chosen += named
    return chosen


def select(device: str | None, stock: Stock) -> tuple[Gpu, tuple[str, ...]]:
    """Find the device that ``device`` names; return it and what the user should hear.

    Raises BackendUnavailableError: there is none, all are hidden, or the one that is meant does not answer.
    Raises TargetError: no device, or more than one, has this name. The message lists those there are.
    """
    if not stock.gpus:
        raise BackendUnavailableError(BACKEND, "the library finds no AMD GPU", "see: lspci | grep -i amd")
    why = stock.notes[0] if stock.notes else ""
    gpu, index, notes = choose(device, Inventory(BACKEND, "HIP", stock.gpus, stock.shown, why))
    if gpu.fault:
        others = "; ".join(str(g) for g in stock.gpus if not g.fault) or "none"
        reason = f"{gpu.fault} (others: {others})"
        raise BackendUnavailableError(BACKEND, reason, "see why: sudo dmesg | grep amdgpu")
    return gpu, notes if index is None else (*notes, *stock.notes)


def reporters(gpu: Gpu, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the devices of the card of ``gpu`` in the order in which to ask who reports its power.

    Partitions are functions of one PCI device, and what one of them tells is that of the whole, so the first function
    is asked first, whatever the others say. Then comes another die of the board, which is a device of its own.
    """
    place = gpu.pci.partition(".")[0]
    partitions = sorted((g for g in gpus if g.pci.partition(".")[0] == place), key=lambda g: g.pci)
    return partitions + [g for g in gpus if gpu.serial and g.serial == gpu.serial and g not in partitions]
