"""Which GPU a device text means, for every backend of GPUs: number, UUID or its start, PCI address, part of a name.

A number counts as the vendor's own programs count (CUDA, HIP), so ``nvml:0`` measures what the program computes on;
everything else names one of all the GPUs of the machine. A GPU that fails keeps its number: the next one must never
pass for it.

Pure: it knows lists of GPUs, and nothing of the libraries that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pmtpy.core.presentation import amount
from pmtpy.errors import BackendUnavailableError, TargetError

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE)


class Named(Protocol):
    """What a GPU can be called by; as text, how a message lists it."""

    @property
    def pci(self) -> str:
        """PCI address as :func:`normal_pci` writes it; empty where it is not known."""
        ...

    @property
    def name(self) -> str:
        """Model."""
        ...

    @property
    def uuids(self) -> tuple[str, ...]:
        """All the UUIDs that it goes by."""
        ...


Gpu = TypeVar("Gpu", bound=Named)


@dataclass(frozen=True, slots=True)
class Inventory(Generic[Gpu]):
    """The GPUs of a machine, and how a program of the vendor numbers them."""

    # names for messages: ``nvml``, ``CUDA``
    backend: str
    program: str
    gpus: tuple[Gpu, ...]  # all of them
    numbered: tuple[Gpu, ...]  # those that a program sees, in its order
    why: str = ""  # how their numbers came about
    unhide: str = ""  # what shows more of them to a program; empty where nothing is hidden by a setting
    more: str = ""  # what a message should say of GPUs that are in neither list


def normal_pci(text: str) -> str:
    """Write a PCI address as the kernel does (``0000:3b:00.0``); empty if ``text`` is none."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, device = (int(part or "0", 16) for part in match.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match[4] or '0'}"


def choose(device: str | None, stock: Inventory[Gpu]) -> tuple[Gpu, int | None, tuple[str, ...]]:
    """Find the GPU that ``device`` names; return it, its number if it was chosen by one, and what the user should hear.

    Raises BackendUnavailableError: a number was meant, and none is shown to programs.
    Raises TargetError: no GPU, or more than one, is called so. The message lists those there are.
    """
    text = "" if device is None else device.strip()
    if text and not re.fullmatch(r"\d+", text):
        found = _matching(text, stock.gpus)
        if len(found) == 1:
            return found[0], None, ()
        what = "no GPU is" if not found else f"{len(found)} GPUs are"
        msg = f"{stock.backend}: {what} called {device!r}; there are: {_list(stock)}. {stock.more}".rstrip()
        raise TargetError(msg)
    index = int(text or 0)
    if index < len(stock.numbered):
        first = f"no GPU was named: this is the first of {len(stock.gpus)}"
        return stock.numbered[index], index, () if text or len(stock.gpus) == 1 else (first,)
    have = f"{stock.program} sees {len(stock.numbered)} of {amount(len(stock.gpus), 'GPU')}" + (
        f" ({stock.why})" * bool(stock.why)
    )
    if not stock.numbered:
        cure = f"name a GPU by its UUID or PCI address: {_list(stock)}"
        raise BackendUnavailableError(stock.backend, have, f"{stock.unhide}, or {cure}" if stock.unhide else cure)
    msg = f"{stock.backend}: there is no GPU {index}: {have}; by UUID or PCI address: {_list(stock)}"
    raise TargetError(msg)


def _matching(text: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    if ":" in text and normal_pci(text):
        return [g for g in gpus if g.pci == normal_pci(text)]
    text = text.lower()
    by_uuid = [g for g in gpus if any(u.lower().startswith((text, f"gpu-{text}")) for u in g.uuids)]
    return by_uuid or [g for g in gpus if text in g.name.lower()]


def _list(stock: Inventory[Gpu]) -> str:
    return "; ".join(map(str, stock.gpus))
