"""ElmorLabs PMD-USB, PMD2, PMD2X and Thermal Grizzly WireView Pro II: power meters in the cables of a PC.

``codec`` and ``_tick_clock`` are pure and turn bytes into records with times; ``device`` speaks the commands;
``_channels`` says what columns mean; ``_source`` is the waist. What is not known (docs/backends/pmd.md) a capture of
the answers of a real meter to the commands 00, 01, 02 and 04 would tell. Two public loggers
(``ElmorLabs/pmd-usb-serial-interface-fast``, ``bjorntas/elmorlabs-pmd-usb-serial-interface``) accept the virtual one.
"""

from __future__ import annotations

from pathlib import Path

from pmtpy.backends._serial.diagnosis import port_finding
from pmtpy.backends._sysfs import entries, optional_text
from pmtpy.backends.machine import Machine
from pmtpy.backends.pmd._source import PmdSource, RailSource, open_source
from pmtpy.backends.pmd.device import BACKEND, USB, unnamed
from pmtpy.core.source import Discovery
from pmtpy.errors import Finding, Obstacle, Verdict

__all__ = ["PmdSource", "RailSource", "discover", "open_source"]


def discover(device: str | None = None, *, machine: Machine | None = None) -> Discovery:
    """Say at which ports a meter could be: none is asked, since a port may belong to anything.

    Of a ``machine`` also whether a named one can be used.
    """
    if machine is not None and device is not None:
        return Discovery(findings=(port_finding(BACKEND, Path(device), machine),))
    grabbed = machine and _grabbed(machine)
    if grabbed:
        return Discovery(findings=(grabbed,))
    why, cure = unnamed()
    return Discovery((), (Finding(BACKEND, "", Verdict.ABSENT, why, Obstacle.HARDWARE, (cure,)),))


def _grabbed(machine: Machine) -> Finding | None:
    """brltty, a driver of Braille displays, takes every CH340 of Ubuntu 22.04 away from its serial driver."""
    for path in entries(machine.sysfs / "bus/usb/devices").paths:
        identity = optional_text(path / "idVendor"), optional_text(path / "idProduct")
        if identity != ("1a86", "7523"):
            continue
        interfaces = [p for p in entries(path.parent).paths if p.name.startswith(f"{path.name}:")]
        if any(list(p.glob("ttyUSB*")) or list(p.glob("tty/*")) for p in interfaces):
            continue
        if any(machine.at(f"/{folder}/brltty").exists() for folder in ("usr/bin", "bin", "sbin", "usr/sbin")):
            found = (
                f"a {USB[0x1A86, 0x7523]} could be on the USB ({path.name}), but brltty has taken it: no port was made"
            )
            cure = ("$ sudo apt-get remove brltty", "then unplug it and plug it in again")
            return Finding(BACKEND, "", Verdict.BROKEN, found, Obstacle.BUSY, cure)
    return None
