"""NVIDIA GPUs through NVML: energy counter, momentary and averaged power, temperatures and clocks.

Opens one GPU, by the number that CUDA gives it, by UUID, PCI address or name, and offers each register that it has as
a channel of its own, named by scope (``gpu``, ``module``, ``memory``) and by what it holds (``energy``, ``instant``,
``average``). It must never take one for another, nor a failure for a zero. Facts: NVML API reference, ``nvml.h``
(fields, scopes, codes, layouts), the binding ``nvidia-ml-py`` 13.615 and the sources that
:mod:`pmtpy.backends.nvml.facts` names; docs/backends/nvml.md. Reports of users: Zeus 45, 109, 181; kokkos-tools 295;
pynvml pull request 18; codecarbon 578, 1316. Stamps of the driver that are mostly 2 ms and more older than their call
are taken for the time of the refresh, which nothing documents.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pmtpy.backends._assumed_gain import GPU_U
from pmtpy.backends._card_limit import kept_watts, most_watts
from pmtpy.backends._sysfs import optional_number, sysfs_root
from pmtpy.backends.nvml import _channels as registers
from pmtpy.backends.nvml import _errors as errors
from pmtpy.backends.nvml import _published as published
from pmtpy.backends.nvml import _samples as samples
from pmtpy.backends.nvml import facts
from pmtpy.backends.nvml._device import Library, find_module
from pmtpy.backends.nvml._errors import BACKEND, Fault
from pmtpy.backends.nvml._selection import VISIBLE, Choice, Stock, mig_parents, select, take_stock, visible
from pmtpy.backends.nvml._source import Locate, RegisterSource
from pmtpy.backends.nvml.facts import Kind
from pmtpy.core.channel import Channel, Identity, Quantity
from pmtpy.core.clock import Clock
from pmtpy.core.source import Discovery, Source
from pmtpy.errors import BackendUnavailableError, TargetError

if TYPE_CHECKING:
    from pmtpy.backends.machine import Machine

__all__ = ["discover", "open_source"]

_ORDERS = {
    None: (Kind.ENERGY, Kind.INSTANT, Kind.AVERAGE),
    "energy": (Kind.ENERGY, Kind.INSTANT, Kind.AVERAGE),
    "instant": (Kind.INSTANT, Kind.AVERAGE),
    "average": (Kind.AVERAGE, Kind.INSTANT),
}
_UNKNOWN_WINDOW = (
    "over which time a sample of the driver is a mean is not documented, perhaps a second: in a region of less than "
    "some seconds that begins and ends with the work it may show too little, and the uncertainty does not hold that"
)


def discover(
    device: str | None = None, *, machine: Machine | None = None, library: ModuleType | None = None
) -> Discovery:
    """List the GPUs by the numbers that CUDA gives them, or say why there are none.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        from pmtpy.backends.nvml._diagnosis import diagnose

        return Discovery(findings=diagnose(device, machine=machine, library=library))
    try:
        with_nvml = _start(library)
    except BackendUnavailableError as error:
        return Discovery((), (error.finding,))
    try:
        stock, parents = _stock(with_nvml)
        seen = visible(stock.gpus, os.environ.get(VISIBLE), parents).gpus
        if seen and stock.fault is None:
            broken = [(i, gpu.fault) for i, gpu in enumerate(seen) if gpu.fault is not None]
            found = [replace(errors.unavailable("it does not answer", f).finding, device=str(i)) for i, f in broken]
            return Discovery(tuple(str(i) for i in range(len(seen))), tuple(found))
        select(None, stock, os.environ, parents)
    except (BackendUnavailableError, Fault) as error:
        if isinstance(error, Fault):
            error = errors.unavailable("cannot list the GPUs", error)
        return Discovery((), (error.finding,))
    finally:
        with_nvml.stop()
    return Discovery()


def open_source(
    device: str | None,
    *,
    clock: Clock,
    library: ModuleType | None = None,
    total: str | None = None,
    samples: bool = False,
    sysfs_root: str | os.PathLike[str] | None = None,
) -> Source:
    """Open one GPU.

    Parameters
    ----------
    device : str or None
        Number as CUDA counts (None: 0), UUID or a unique start of it, PCI address, or part of the model's name.
    clock : Clock
        The host's clock.
    library : module or None
        The vendor's module ``pynvml``; None imports it.
    total : {"energy", "instant", "average"} or None
        What makes the total. None: the energy counter where there is one, else the momentary power, else the average.
        With ``"instant"`` or ``"average"`` the counter is not read at all.
    samples : bool
        Read the driver's buffer of power samples instead of its registers: every sample, fetched late without loss.
    sysfs_root : path or None
        Root of sysfs, where a GPU on a Grace module is placed by its NUMA node.

    Raises BackendUnavailableError: no package, library, driver, GPU, permission, or not the register asked for: with
    the cure.
    Raises TargetError: unknown option, or a device that names no GPU or several.
    """
    if total not in _ORDERS:
        msg = f"nvml: total={total!r}: it is made of 'energy', 'instant' or 'average'"
        raise TargetError(msg)
    with_nvml = _start(library)
    try:
        return _open(device, clock, with_nvml, total, samples=samples, sysfs=sysfs_root)
    except Fault as fault:
        with_nvml.stop()
        raise errors.unavailable(f"cannot open GPU {device or '0'}", fault) from fault
    except BaseException:
        with_nvml.stop()
        raise


def _start(module: ModuleType | None) -> Library:
    with_nvml = Library(find_module(module))
    try:
        with_nvml.start()
    except Fault as fault:
        raise errors.unavailable("cannot start NVML", fault) from fault
    return with_nvml


def _stock(with_nvml: Library) -> tuple[Stock, dict[str, str]]:
    names = [e.strip() for e in os.environ.get(VISIBLE, "").split(",")]
    return take_stock(with_nvml), mig_parents(with_nvml, names)


def _open(
    device: str | None,
    clock: Clock,
    with_nvml: Library,
    total: str | None,
    *,
    samples: bool,
    sysfs: str | os.PathLike[str] | None,
) -> Source:
    stock, parents = _stock(with_nvml)
    if device is not None:
        parents |= mig_parents(with_nvml, [device.strip()])
    choice = select(device, stock, os.environ, parents)
    locate = _by_uuid(choice.gpu.uuid, choice.gpu.index)
    handle = locate(with_nvml)
    board, notes = _board(with_nvml, handle, choice, sysfs)
    identity = Identity(BACKEND, board.name, choice.gpu.uuid, board.driver, notes=(*choice.notes, *notes))
    if samples:
        return _open_samples(clock, with_nvml, locate, identity, board)
    found = registers.find(with_nvml, handle, board, _ORDERS[total])
    have = [r for r in found.registers if r.kind is not None and not r.channel.name.startswith("memory")]
    if not have or (total is not None and have[0].kind is not Kind(total)):
        raise _no_register(board, total, [r.channel.name for r in have])
    more = list(found.notes)
    if total is None and have[0].kind is not Kind.ENERGY:
        more.append(f"no energy counter: the total is {have[0].channel.name}, integrated")
    more += _uncalibrated(board, have)
    identity = Identity(BACKEND, board.name, choice.gpu.uuid, board.driver, notes=(*identity.notes, *more))
    return RegisterSource(clock, with_nvml, locate, identity, found.registers)


def _uncalibrated(board: registers.Board, have: Sequence[registers.Register]) -> list[str]:
    """Say how far its powers may be off by what was measured of other cards of its model."""
    own = [r for r in have if r.kind is not None and r.channel.name.startswith("gpu.")]
    others = [(r.channel.name, published.spread(board.name, board.driver, r.kind)) for r in own if r.kind]
    known = [of.note(name) for name, of in others if of is not None]
    return known or [published.unmeasured(r.channel.name) for r in own[:1]]


def _no_register(board: registers.Board, total: str | None, have: list[str]) -> BackendUnavailableError:
    if have:
        reason = f"{board.name} with driver {board.driver} has no {total} reading; it has: {', '.join(have)}"
        return BackendUnavailableError(BACKEND, reason, "leave the option total out, or choose one of those")
    reason = f"{board.name} with driver {board.driver} reports neither power nor energy"
    cure = "a Jetson board has the backend jetson; a virtual GPU has its sensors on the host"
    return BackendUnavailableError(BACKEND, reason, cure)


def _by_uuid(uuid: str, index: int) -> Locate:
    """Look a GPU up by what stays the same when NVML starts anew."""

    def locate(with_nvml: Library) -> object:
        if uuid:
            return with_nvml.ask("nvmlDeviceGetHandleByUUID", uuid)
        return with_nvml.ask("nvmlDeviceGetHandleByIndex", index)

    return locate


def _board(
    with_nvml: Library, handle: object, choice: Choice, sysfs: str | os.PathLike[str] | None
) -> tuple[registers.Board, list[str]]:
    gpu, notes = choice.gpu, []
    capability = with_nvml.optional(_pair, "nvmlDeviceGetCudaComputeCapability", handle)
    generation = facts.generation(with_nvml.number("nvmlDeviceGetArchitecture", handle), capability)
    domain, module = f"gpu/{gpu.uuid or gpu.pci}", ""
    if facts.is_superchip(gpu.name):
        node = optional_number(_sysfs_device(sysfs, gpu.pci) / "numa_node")
        if node is None or node < 0:
            notes.append("the module of this GPU is not known (no NUMA node in sysfs), so its power is in no total")
        else:
            # The module holds the Grace processor, too: as its socket it encloses what other sensors tell of it, and
            # all GPUs of one module name the same part.
            module = f"host/socket{node}"
            domain = f"{module}/{domain}"
    if (with_nvml.optional(_pair, "nvmlDeviceGetMigMode", handle) or (0, 0))[0]:
        notes.append("MIG is on: power and energy are those of the whole GPU, shared by all its parts")
    most = most_watts(_limits_mw(with_nvml, handle) / 1e3, registers.MOST_WATTS)
    return registers.Board(gpu.name, with_nvml.driver, generation, domain, module, most), notes


def _sysfs_device(root: str | os.PathLike[str] | None, pci: str) -> Path:
    return sysfs_root(root) / "bus/pci/devices" / pci


def _pair(answer: Any) -> tuple[int, int]:
    first, second = answer
    return int(first), int(second)


def _limits_mw(with_nvml: Library, handle: object) -> int:
    """Return the largest power limit that can be set; 0 where it is not known, or cannot be."""
    _, most = with_nvml.optional(_pair, "nvmlDeviceGetPowerManagementLimitConstraints", handle) or (0, 0)
    return most if 0 < most <= registers.MOST_WATTS * 1e3 else 0


def _open_samples(
    clock: Clock, with_nvml: Library, locate: Locate, identity: Identity, board: registers.Board
) -> Source:
    try:
        past = samples.fetch(with_nvml, locate(with_nvml), 0, registers.MOST_WATTS)
    except Fault as fault:
        raise errors.unavailable(
            f"{board.name} has no buffer of power samples; open it without samples", fault
        ) from fault
    step_us = samples.step_us([t for t, _ in past])
    identity = replace(identity, notes=(*identity.notes, _UNKNOWN_WINDOW))
    scope, most = (
        ("module", registers.MOST_WATTS) if facts.reads_module(board.name, Kind.INSTANT) else ("gpu", board.max_watts)
    )
    channel = Channel(
        f"{scope}.samples",
        Quantity.POWER,
        scale=1e-3,
        domain=board.module if scope == "module" else board.domain,
        label="total_power_samples",
        refresh_s=step_us / 1e6 if step_us else None,
        gain_u=GPU_U,
        max_watts=most,
        kept_watts=kept_watts(most),
        reference=facts.NVML_REFERENCE + ": nvmlDeviceGetSamples",
    )
    return samples.SampleSource(clock, with_nvml, locate, identity, channel=channel, capacity=max(len(past), 2))
