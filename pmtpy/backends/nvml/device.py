"""Which GPU is meant: by index, UUID, PCI address or name, with CUDA_VISIBLE_DEVICES respected and explained.

NVML numbers all GPUs of the machine in the order of their PCI addresses. A program that uses CUDA sees only those that
``CUDA_VISIBLE_DEVICES`` leaves, numbered anew. An index here counts as the program counts, so ``nvml:0`` measures what
the program computes on; UUIDs, PCI addresses and names are the machine's. Facts: CUDA C++ programming guide, appendix
on environment variables; NVML API reference, device queries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pmtpy.backends.nvml import errors
from pmtpy.backends.nvml.errors import Fault
from pmtpy.backends.nvml.library import Library
from pmtpy.errors import BackendUnavailableError, TargetError

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE)
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/\d+/\d+", re.IGNORECASE)  # before driver 470


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that this user may open.

    Attributes
    ----------
    index : int
        NVML's number.
    uuid, pci, name : str
        ``GPU-...``; ``domain:bus:device.function`` in lowercase with four digits of domain at least; model.
    """

    index: int
    uuid: str
    pci: str
    name: str

    def __str__(self) -> str:
        return f"{self.index} {self.name} {self.uuid} {self.pci}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The GPU chosen, and what the user should hear about the choice."""

    gpu: Gpu
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs that can be opened, and for each other one why it cannot."""

    gpus: tuple[Gpu, ...]
    refused: tuple[Fault, ...] = ()


def take_inventory(library: Library) -> Inventory:
    """List the GPUs. Those that this user may not open are counted by NVML, too, and are passed over."""
    gpus: list[Gpu] = []
    refused: list[Fault] = []
    for index in range(library.number("nvmlDeviceGetCount") or 0):
        gpu = _gpu(library, index)
        if isinstance(gpu, Fault):
            refused.append(gpu)
        else:
            gpus.append(gpu)
    return Inventory(tuple(gpus), tuple(refused))


def _gpu(library: Library, index: int) -> Gpu | Fault:
    try:
        handle = library.ask("nvmlDeviceGetHandleByIndex", index)
        return _describe(library, handle, index)
    except Fault as fault:
        return fault


def _describe(library: Library, handle: object, index: int) -> Gpu:
    uuid = library.text("nvmlDeviceGetUUID", handle)
    name = library.text("nvmlDeviceGetName", handle)
    pci = library.ask("nvmlDeviceGetPciInfo", handle)
    bus_id = pci.busId.decode("ascii", "replace") if isinstance(pci.busId, bytes) else str(pci.busId)
    return Gpu(index, uuid, normal_pci(bus_id) or bus_id, name)


def normal_pci(text: str) -> str:
    """Write a PCI address as the kernel does (``0000:3b:00.0``); empty if ``text`` is none."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, device = (int(part or "0", 16) for part in match.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match[4] or '0'}"


# -- what CUDA sees ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Visible:
    """The GPUs in the order in which a CUDA program numbers them.

    Attributes
    ----------
    gpus : tuple of Gpu
    mig : tuple of bool
        Whether an entry is a part of its GPU.
    why : str
        How they came about, for messages.
    """

    gpus: tuple[Gpu, ...]
    mig: tuple[bool, ...]
    why: str


def visible(gpus: Sequence[Gpu], setting: str | None, parents: dict[str, str]) -> Visible:
    """Apply ``CUDA_VISIBLE_DEVICES``.

    An invalid entry ends the list, a duplicate empties it, an empty text hides all; None shows all.

    Parameters
    ----------
    gpus : sequence of Gpu
        All GPUs, in NVML's order.
    setting : str or None
        Text of the variable, None where it is not set.
    parents : dict
        UUID of the GPU for each ``MIG-`` entry of the setting.
    """
    if setting is None:
        return Visible(tuple(gpus), (False,) * len(gpus), f"{VISIBLE} is not set")
    chosen: list[Gpu] = []
    seen: list[str] = []
    for entry in (e.strip() for e in setting.split(",")):
        gpu = _entry(gpus, entry, parents)
        if gpu is None:
            break
        key = entry if entry.upper().startswith("MIG-") else gpu.uuid
        if key in seen:
            chosen, seen = [], []
            break
        chosen.append(gpu)
        seen.append(key)
    mig = tuple(key.upper().startswith("MIG-") for key in seen)
    return Visible(tuple(chosen), mig, f"{VISIBLE}={setting!r}")


def _entry(gpus: Sequence[Gpu], entry: str, parents: dict[str, str]) -> Gpu | None:
    if re.fullmatch(r"[+-]?\d+", entry):
        return next((g for g in gpus if g.index == int(entry)), None)
    wanted = parents.get(entry, entry)
    if not wanted.upper().startswith("GPU-"):
        return None
    matches = [g for g in gpus if g.uuid.lower().startswith(wanted.lower())]
    return matches[0] if len(matches) == 1 else None


def mig_parents(library: Library, names: Sequence[str]) -> dict[str, str]:
    """Find the GPU of each ``MIG-`` name; names that NVML does not know are left out."""
    parents: dict[str, str] = {}
    for name in names:
        old = _OLD_MIG.fullmatch(name)
        if old:
            parents[name] = old[1]
        elif name.upper().startswith("MIG-"):
            try:
                part = library.ask("nvmlDeviceGetHandleByUUID", name)
                whole = library.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part)
                parents[name] = library.text("nvmlDeviceGetUUID", whole)
            except Fault as fault:
                if fault.code in errors.RESTART | errors.DEAD:
                    raise
    return parents


# -- choosing ----------------------------------------------------------------------------------------------------------


def choose(device: str | None, stock: Inventory, setting: str | None, order: str, parents: dict[str, str]) -> Choice:
    """Find the GPU that ``device`` names.

    Raises
    ------
    BackendUnavailableError
        There is no GPU, none may be opened, or CUDA_VISIBLE_DEVICES hides all.
    TargetError
        No GPU, or more than one, has this name. The message lists those there are.
    """
    if not stock.gpus:
        raise _none_to_open(stock)
    text = "" if device is None else device.strip()
    if not text or re.fullmatch(r"\d+", text):
        choice = _by_index(int(text or 0), visible(stock.gpus, setting, parents), stock, order)
        if text or len(stock.gpus) == 1:
            return choice
        return Choice(choice.gpu, (f"no GPU was named: this is the first of {len(stock.gpus)}", *choice.notes))
    notes: tuple[str, ...] = ()
    if text in parents:
        notes, text = (_shared(text),), parents[text]
    found = _matching(text, stock.gpus)
    if len(found) == 1:
        return Choice(found[0], notes)
    what = "no GPU is" if not found else f"{len(found)} GPUs are"
    msg = f"nvml: {what} called {device!r}; there are: {_list(stock.gpus)}. {_why_refused(stock)}".rstrip()
    raise TargetError(msg)


def _matching(text: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    pci = normal_pci(text)
    if pci and ":" in text:
        return [g for g in gpus if g.pci == pci]
    uuid = text.lower() if text.lower().startswith("gpu-") else f"gpu-{text.lower()}"
    by_uuid = [g for g in gpus if g.uuid.lower().startswith(uuid)]
    return by_uuid or [g for g in gpus if text.lower() in g.name.lower()]


def _by_index(index: int, seen: Visible, stock: Inventory, order: str) -> Choice:
    if index >= len(seen.gpus):
        have = f"CUDA sees {len(seen.gpus)} of {len(stock.gpus)} GPUs ({seen.why})"
        if not seen.gpus:
            cure = f"unset {VISIBLE}, or name a GPU by its UUID or PCI address: {_list(stock.gpus)}"
            raise BackendUnavailableError(errors.BACKEND, have, cure)
        msg = f"nvml: there is no GPU {index}: {have}; by UUID or PCI address: {_list(stock.gpus)}"
        raise TargetError(msg)
    gpu = seen.gpus[index]
    notes: list[str] = []
    if seen.why.startswith(f"{VISIBLE}="):
        notes.append(f"index {index} counts as CUDA does with {seen.why}: it is GPU {gpu.index} of NVML")
    if order.upper() != "PCI_BUS_ID" and len({g.name for g in stock.gpus}) > 1:
        notes.append(
            f"indices are in the order of PCI addresses; CUDA puts the fastest GPU first unless {ORDER}=PCI_BUS_ID"
        )
    if seen.mig[index]:
        notes.append(_shared("the GPU instance chosen"))
    return Choice(gpu, tuple(notes))


def _shared(part: str) -> str:
    return f"{part} is a part (MIG) of this GPU: power and energy exist for the whole GPU only, shared by all its parts"


def _list(gpus: Sequence[Gpu]) -> str:
    return "; ".join(str(g) for g in gpus)


def _why_refused(stock: Inventory) -> str:
    return f"{len(stock.refused)} more cannot be opened ({stock.refused[0]})" if stock.refused else ""


def _none_to_open(stock: Inventory) -> BackendUnavailableError:
    if stock.refused:
        return errors.unavailable(f"none of {len(stock.refused)} GPUs can be opened", stock.refused[0])
    return BackendUnavailableError(errors.BACKEND, "NVML finds no GPU", errors.remedy(errors.GPU_NOT_FOUND))
