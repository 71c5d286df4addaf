"""NVIDIA Jetson modules: the power monitors on their rails, read through sysfs.

It must never guess a total: rails that feed each other are added once, and those of an unknown board not at all.
Readings stay signed, since clipping them would bias the mean. NVML reports no power on these modules.

Facts: see ``_channels``, ``_device`` and ``docs/backends/jetson.md``. Linux
``drivers/hwmon/ina3221.c``, ``Documentation/hwmon/ina3221.rst``, ``drivers/hwmon/ina238.c``, device trees
``arch/arm64/boot/dts/nvidia``; NVIDIA's kernel 4.9, ``ina3221x.c``. Which rails make a total:
github.com/rbonghi/jetson_stats issues 51 and 344.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from pmtpy.backends import _ina
from pmtpy.backends._sysfs import optional_text
from pmtpy.backends._sysfs import sysfs_root as root_of
from pmtpy.backends.jetson._channels import INPUTS, plan
from pmtpy.backends.jetson._device import Rail, in_turn, rails
from pmtpy.backends.jetson._source import REMEDY, JetsonSource, probe
from pmtpy.core.channel import Identity
from pmtpy.core.clock import Clock
from pmtpy.core.source import Discovery, Source
from pmtpy.errors import BackendUnavailableError, TargetError

if TYPE_CHECKING:
    from pmtpy.backends.machine import Machine


def discover(
    device: str | None = None, *, machine: Machine | None = None, sysfs_root: str | PathLike[str] | None = None
) -> Discovery:
    """Say whether there are monitors of a Jetson.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        from pmtpy.backends.jetson._diagnosis import diagnose

        return Discovery(findings=diagnose(device, machine=machine))
    root = root_of(sysfs_root)
    found = rails(root)
    if any(rail.of_module for rail in found):
        return Discovery(("",))
    return Discovery.none("jetson", _absent(root), REMEDY)


def _absent(root: Path) -> str:
    return f"no INA3221 monitor with a rail below {root} (drivers ina3221 of JetPack 5 to 7, ina3221x of JetPack 4)"


def open_source(
    device: str | None,
    *,
    clock: Clock,
    sysfs_root: str | PathLike[str] | None = None,
    total: str = "module",
) -> Source:
    """Open all rails of the module.

    Parameters
    ----------
    device : None or ""
        There is one device; rails are its channels.
    clock : Clock
        The host's clock.
    sysfs_root : path, optional
        Where sysfs is mounted. Default: environment ``PMT_SYSFS_ROOT``, else ``/sys``.
    total : "module" or "input"
        What makes the total: the module, or the input of the whole kit where there is a monitor on it.

    Raises TargetError: a device, or a total, that does not exist.
    Raises BackendUnavailableError: no monitor, or none that can be read.
    """
    if device:
        msg = f"jetson has one device, the whole module, and not {device!r}: write just jetson; rails are its channels"
        raise TargetError(msg)
    if total not in {"module", "input"}:
        msg = f"jetson: total is 'module' or 'input', not {total!r}"
        raise TargetError(msg)
    root = root_of(sysfs_root)
    found = rails(root)
    if not any(rail.of_module for rail in found):
        raise BackendUnavailableError("jetson", _absent(root), REMEDY)
    named = _named(found)
    readable, notes = probe(named)
    if not readable:
        raise BackendUnavailableError("jetson", "; ".join(notes), REMEDY)
    unread = {rail.label for rail in named} - {r.rail.label for r in readable}
    chosen = plan([rail.label for rail in named], whole_kit=total == "input", unread=unread)
    if total == "input" and not chosen.input:
        msg = f"jetson: there is no monitor on the input of the kit ({' or '.join(INPUTS)}); use total=module"
        raise TargetError(msg)
    model = optional_text(root / "firmware/devicetree/base/model") or ""
    alone = dict.fromkeys(n for r in readable for n in _ina.in_turn(r.rail.chip.partition(" ")[0]))
    notes = [chosen.rule, *in_turn([r.rail for r in readable]), *alone, *notes]
    identity = Identity("jetson", model or (chosen.board.name if chosen.board else ""), notes=tuple(notes))
    return JetsonSource(root, readable, chosen, identity, clock)


def _named(found: list[Rail]) -> list[Rail]:
    """Name the monitor on the input of a Thor kit, which has no label: the only INA238 beside Thor's rails."""
    board = plan([rail.label for rail in found]).board
    bare = [rail for rail in found if not rail.of_module and not rail.label]
    if board is not None and board.name == "Jetson AGX Thor" and len(bare) == 1:
        return [replace(rail, label="VIN") if rail is bare[0] else rail for rail in found]
    return found
