"""Which AMD GPU is meant: by number, UUID, PCI address or name; partitions and second dies lead to what is measured.

The library lists GPUs by PCI address. A program that uses HIP sees those that ``ROCR_VISIBLE_DEVICES`` and then
``HIP_VISIBLE_DEVICES`` (or ``CUDA_VISIBLE_DEVICES``) leave, in HIP's order. A number here counts as HIP counts. Source:
ROCm documentation, GPU isolation techniques.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pmtpy.backends.amdsmi.library import BACKEND, Library, number
from pmtpy.errors import BackendUnavailableError, TargetError

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device of the library.

    Attributes
    ----------
    pci, uuid, hip_uuid, name, serial : str
        ``0000:c1:00.0``; the library's UUID and HIP's; model; serial number of the chip. Empty where unknown.
    hip, node, partition : float or None
        Number in HIP, in the kernel's topology, and of the partition within its GPU.
    """

    pci: str
    uuid: str = ""
    hip_uuid: str = ""
    name: str = ""
    serial: str = ""
    hip: float | None = None
    node: float | None = None
    partition: float | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.pci, self.name, self.uuid)))


@dataclass(frozen=True, slots=True)
class Stock:
    """All devices in HIP's order, what HIP shows of them, and how both came about."""

    gpus: tuple[Gpu, ...]
    shown: tuple[Gpu, ...]
    notes: tuple[str, ...]


def normal_pci(text: str) -> str:
    """Write a PCI address as the kernel does; empty if ``text`` is none."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, device = (int(part or "0", 16) for part in match.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match[4] or '0'}"


def handles(library: Library) -> dict[str, object]:
    """Return the handle of each device by PCI address. They are void after somebody shut the library down."""
    found: dict[str, object] = {}
    for handle in library.ask("amdsmi_get_processor_handles"):
        pci = library.optional("amdsmi_get_gpu_device_bdf", handle)
        if pci:
            found[normal_pci(str(pci)) or str(pci)] = handle
    return found


def describe(library: Library, pci: str, handle: object) -> Gpu:
    """Ask what a device is; what a release of the wrapper does not tell stays empty."""
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
    for key in ("hip", "node"):
        numbers = [getattr(g, key) for g in gpus]
        if None not in numbers and len(set(numbers)) == len(numbers):
            return sorted(gpus, key=lambda g: float(getattr(g, key))), ""
    return sorted(gpus, key=lambda g: g.pci), "numbers are in the order of PCI addresses; HIP's order is not known"


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


def choose(device: str | None, stock: Stock) -> tuple[Gpu, tuple[str, ...]]:
    """Find the device that ``device`` names; return it and what the user should hear.

    Raises
    ------
    BackendUnavailableError
        There is none, or all are hidden.
    TargetError
        No device, or more than one, has this name. The message lists those there are.
    """
    if not stock.gpus:
        raise BackendUnavailableError(BACKEND, "the library finds no AMD GPU", "see: lspci | grep -i amd")
    text = "" if device is None else device.strip()
    everything = "; ".join(map(str, stock.gpus))
    if not text or re.fullmatch(r"\d+", text):
        index = int(text or 0)
        if index < len(stock.shown):
            first = () if text or len(stock.gpus) == 1 else (f"no GPU was named: the first of {len(stock.gpus)}",)
            return stock.shown[index], (*first, *stock.notes)
        have = f"HIP sees {len(stock.shown)} of {len(stock.gpus)} GPUs" + (
            f" ({stock.notes[0]})" if stock.notes else ""
        )
        if not stock.shown:
            raise BackendUnavailableError(BACKEND, have, f"name a GPU by its PCI address: {everything}")
        msg = f"amdsmi: there is no GPU {index}: {have}; by PCI address: {everything}"
        raise TargetError(msg)
    pci = normal_pci(text) if ":" in text else ""
    found = [g for g in stock.gpus if _fits(g, text.lower(), pci)]
    if len(found) != 1:
        what = "no GPU is" if not found else f"{len(found)} GPUs are"
        msg = f"amdsmi: {what} called {device!r}; there are: {everything}"
        raise TargetError(msg)
    return found[0], ()


def _fits(gpu: Gpu, text: str, pci: str) -> bool:
    if pci:
        return gpu.pci == pci
    ids = [i.lower() for i in (gpu.uuid, gpu.hip_uuid) if i]
    return any(i.startswith((text, f"gpu-{text}")) for i in ids) or text in gpu.name.lower()


def relatives(gpu: Gpu, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the other devices of the same card: partitions of one GPU, dies of one board."""

    def same(other: Gpu) -> bool:
        by_serial = bool(gpu.serial) and other.serial == gpu.serial
        return other != gpu and (by_serial or other.pci.partition(".")[0] == gpu.pci.partition(".")[0])

    return [g for g in gpus if same(g)]
