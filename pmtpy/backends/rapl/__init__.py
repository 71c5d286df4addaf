"""RAPL: the energy counters of x86 processors, one device for the whole host.

Two ways lead to the same counters: the powercap tree of sysfs (:mod:`~pmtpy.backends.rapl._device`) and, where that may
not be read, perf events (:mod:`~pmtpy.backends.rapl._perf`). Both name their channels alike (:mod:`._channels`).
The source hands out counts; wraps, restarts and totals are made out above, from what the channels say. It must never
hand out a number that a file did not hold, nor keep silent about a zone that the total lacks.

Facts: Linux ``drivers/powercap/powercap_sys.c``, ``intel_rapl_common.c``, ``intel_rapl_msr.c``,
``arch/x86/events/rapl.c``; which zones may be added: github.com/powercap/powercap issue 3; mirrored dies:
github.com/mlco2/codecarbon issue 1274.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from pmtpy.backends.rapl import _perf as perf_events
from pmtpy.backends.rapl._source import Opening, RaplSource
from pmtpy.core.clock import Clock
from pmtpy.core.source import Discovery
from pmtpy.errors import BackendUnavailableError, TargetError

if TYPE_CHECKING:
    from pmtpy.backends.machine import Machine


def discover(
    device: str | None = None,
    *,
    machine: Machine | None = None,
    sysfs_root: str | PathLike[str] | None = None,
    via: str | None = None,
) -> Discovery:
    """Tell whether this host has readable RAPL counters; opens and reads each once.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        from pmtpy.backends.rapl._diagnosis import diagnose

        return Discovery(findings=diagnose(device, machine=machine))
    try:
        Opening(sysfs_root, via, None).close()
    except BackendUnavailableError as error:
        return Discovery((), (error.finding,))
    except TargetError as error:
        return Discovery.none("rapl", str(error))
    return Discovery(("",))


def open_source(
    device: str | None,
    *,
    clock: Clock,
    sysfs_root: str | PathLike[str] | None = None,
    via: str | None = None,
    without: str = "",
    perf: perf_events.Events | None = None,
) -> RaplSource:
    """Open the counters of this host.

    Parameters
    ----------
    device : None or ""
        There is one device: all sockets.
    sysfs_root : path or None
        Where sysfs is mounted; default ``PMT_SYSFS_ROOT``, else ``/sys``.
    via : "powercap", "perf" or None
        Which way to the counters. None: powercap, and perf events if that is not permitted.
    without : str
        Channels to leave out, commas between: one whose counter is dead makes the total unknown. The notes say so.
    perf : object or None
        The kernel's perf events; another object with the same three methods in a rehearsal.

    Raises TargetError: a device, a way or a channel to leave out that does not exist.
    Raises BackendUnavailableError: no counters, or none that may be read; with the cure.
    """
    if device:
        msg = f"rapl has one device, the whole host, and not {device!r}: write just rapl; sockets are its channels"
        raise TargetError(msg)
    return RaplSource(Opening(sysfs_root, via, perf, without), clock)
