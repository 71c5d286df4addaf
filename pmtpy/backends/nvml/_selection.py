"""Which GPUs there are and how CUDA numbers them, with CUDA_VISIBLE_DEVICES respected and explained.

NVML numbers all GPUs of the machine in the order of their PCI addresses. A program that uses CUDA counts those that it
may open, and sees only those of them that ``CUDA_VISIBLE_DEVICES`` leaves, numbered anew. Facts: CUDA C++ programming
guide, appendix on environment variables; NVML API reference, device queries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pmtpy.backends._gpu_selection import Inventory, choose, normal_pci
from pmtpy.backends.nvml import _errors as errors
from pmtpy.backends.nvml._device import Library, as_text
from pmtpy.backends.nvml._errors import BACKEND, Fault
from pmtpy.core.presentation import amount
from pmtpy.errors import BackendUnavailableError

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

_MOST_GPUS = 1024  # of one machine; more is no count
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/\d+/\d+", re.IGNORECASE)  # before driver 470


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that NVML counts."""

    index: int  # NVML's number
    # ``GPU-...``; as :func:`~pmtpy.backends._gpu_selection.normal_pci` writes it; model
    uuid: str = ""
    pci: str = ""
    name: str = ""
    fault: Fault | None = None  # why nothing else is known of it: it does not answer

    @property
    def uuids(self) -> tuple[str, ...]:
        """All the UUIDs that it goes by."""
        return (self.uuid,) if self.uuid else ()

    def __str__(self) -> str:
        if self.fault is not None:
            return f"{self.index} (does not answer: {self.fault})"
        return f"{self.index} {self.name} {self.uuid} {self.pci}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The GPU chosen, and what the user should hear about the choice."""

    gpu: Gpu
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stock:
    """The GPUs that NVML counts: those that this user may know of, and for each other one why not.

    One that is broken keeps its place, so that the next one does not pass for it. One that is closed to this user (by a
    container's rules, say) has none, since CUDA does not count it either.
    """

    gpus: tuple[Gpu, ...]
    closed: tuple[Fault, ...] = ()

    @property
    def fault(self) -> Fault | None:
        """Why none of them can be opened; None where one can, or where there is none at all."""
        faults = [g.fault for g in self.gpus if g.fault is not None]
        return next(iter((*faults, *self.closed)), None) if len(faults) == len(self.gpus) else None


def take_stock(library: Library) -> Stock:
    """List the GPUs."""
    gpus: list[Gpu] = []
    closed: list[Fault] = []
    for index in range(min(library.number("nvmlDeviceGetCount") or 0, _MOST_GPUS)):
        gpu = _gpu(library, index)
        if gpu.fault is not None and gpu.fault.code in errors.CLOSED:
            closed.append(gpu.fault)
        else:
            gpus.append(gpu)
    if all(normal_pci(gpu.pci) for gpu in gpus):  # NVML's order is that, too, but promised it is not
        gpus.sort(key=lambda gpu: (len(gpu.pci), gpu.pci))
    return Stock(tuple(gpus), tuple(closed))


def _gpu(library: Library, index: int) -> Gpu:
    try:
        return _describe(library, library.ask("nvmlDeviceGetHandleByIndex", index), index)
    except Fault as fault:
        return Gpu(index, fault=fault)


def _describe(library: Library, handle: object, index: int) -> Gpu:
    uuid = library.text("nvmlDeviceGetUUID", handle)
    name = library.text("nvmlDeviceGetName", handle)
    bus_id = library.read(lambda pci: as_text(pci.busId), "nvmlDeviceGetPciInfo", handle)
    return Gpu(index, uuid, normal_pci(bus_id) or bus_id, name)


# -- what CUDA sees ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Visible:
    """The GPUs in the order in which a CUDA program numbers them."""

    gpus: tuple[Gpu, ...]
    mig: tuple[bool, ...]  # whether an entry is a part of its GPU
    why: str  # how they came about, for messages
    filtered: bool = True  # whether CUDA_VISIBLE_DEVICES chose them


def visible(gpus: Sequence[Gpu], setting: str | None, parents: dict[str, str]) -> Visible:
    """Apply ``CUDA_VISIBLE_DEVICES``.

    An invalid entry ends the list, a duplicate empties it, an empty text hides all; None shows all.

    Parameters
    ----------
    gpus : sequence of Gpu
        The GPUs that CUDA counts, in the order of their PCI addresses: not those that are closed to this user.
    setting : str or None
        Text of the variable, None where it is not set.
    parents : dict
        UUID of the GPU for each ``MIG-`` entry of the setting.
    """
    if setting is None:
        return Visible(tuple(gpus), (False,) * len(gpus), f"{VISIBLE} is not set", filtered=False)
    chosen: list[Gpu] = []
    seen: list[str] = []
    for entry in (e.strip() for e in setting.split(",")):
        gpu = _entry(gpus, entry, parents)
        if gpu is None:
            break
        key = entry if entry.upper().startswith("MIG-") else gpu.uuid or str(gpu.index)
        if key in seen:
            chosen, seen = [], []
            break
        chosen.append(gpu)
        seen.append(key)
    mig = tuple(key.upper().startswith("MIG-") for key in seen)
    return Visible(tuple(chosen), mig, f"{VISIBLE}={setting!r}")


def _entry(gpus: Sequence[Gpu], entry: str, parents: dict[str, str]) -> Gpu | None:
    if re.fullmatch(r"[+-]?\d+", entry):
        return gpus[int(entry)] if 0 <= int(entry) < len(gpus) else None
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


def select(device: str | None, stock: Stock, environment: Mapping[str, str], parents: dict[str, str]) -> Choice:
    """Find the GPU that ``device`` names.

    Raises BackendUnavailableError: there is no GPU, none may be opened, CUDA_VISIBLE_DEVICES hides all, or the one that
    is meant does not answer.
    Raises TargetError: no GPU, or more than one, has this name. The message lists those there are.
    """
    if not stock.gpus or stock.fault is not None:
        raise _none_to_open(stock)
    seen = visible(stock.gpus, environment.get(VISIBLE), parents)
    named = None if device is None else device.strip()
    notes: tuple[str, ...] = (_shared(named),) if named in parents else ()
    closed = f"{len(stock.closed)} more cannot be opened ({stock.closed[0]})" if stock.closed else ""
    shown = Inventory(BACKEND, "CUDA", stock.gpus, seen.gpus, seen.why, f"unset {VISIBLE}" * seen.filtered, closed)
    gpu, index, more = choose(parents.get(named, named) if named else None, shown)
    if index is not None:
        more += _of_number(index, seen, stock, environment.get(ORDER, ""))
    if gpu.fault is not None:
        others = "; ".join(str(g) for g in stock.gpus if g.fault is None)
        failed = errors.unavailable(f"GPU {gpu.index} does not answer", gpu.fault)
        raise BackendUnavailableError(replace(failed.finding, found=f"{failed.reason}; others: {others}"))
    return Choice(gpu, (*more, *notes))


def _of_number(index: int, seen: Visible, stock: Stock, order: str) -> tuple[str, ...]:
    """What is to be said of a GPU that was chosen by its number."""
    gpu, notes = seen.gpus[index], []
    if seen.filtered:
        notes.append(f"index {index} counts as CUDA does with {seen.why}: it is GPU {gpu.index} of NVML")
    elif stock.closed:
        notes.append(f"index {index} counts the GPUs that this user may open: it is GPU {gpu.index} of NVML")
    if order.upper() != "PCI_BUS_ID" and len({g.name for g in stock.gpus if g.fault is None}) > 1:
        notes.append(
            f"indices are in the order of PCI addresses; CUDA puts the fastest GPU first unless {ORDER}=PCI_BUS_ID"
        )
    if seen.mig[index]:
        notes.append(_shared("the GPU instance chosen"))
    return tuple(notes)


def _shared(part: str | None) -> str:
    return f"{part} is a part (MIG) of this GPU: power and energy exist for the whole GPU only, shared by all its parts"


def _none_to_open(stock: Stock) -> BackendUnavailableError:
    if stock.fault is not None:
        return errors.unavailable(
            f"none of {amount(len(stock.gpus) + len(stock.closed), 'GPU')} can be opened", stock.fault
        )
    return BackendUnavailableError(BACKEND, "NVML finds no GPU", errors.remedy(errors.GPU_NOT_FOUND))
