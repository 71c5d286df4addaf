"""PowerSensor3: up to four external current and voltage pairs at 20 kHz, over USB.

``_codec`` and ``_board_clock`` are pure and turn bytes into frames with times; ``_port`` reaches the
device; ``device`` speaks its commands; ``config`` knows its stored configuration; ``_source`` is the waist.

Facts: nlesc-recruit/PowerSensor3, host library and firmware 1.6.1; ISPASS 2025, Tables I and II; Linux
``Documentation/admin-guide/devices.txt``, ``drivers/usb/class/cdc-acm.c``, ``drivers/tty/n_tty.c``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pmtpy.backends._serial.port import PERMISSION_REMEDY, list_ports
from pmtpy.backends.powersensor3._port import BACKEND, USB, choose_port
from pmtpy.backends.powersensor3._source import PowerSensor3Source, open_source
from pmtpy.core.source import Discovery
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, Verdict

if TYPE_CHECKING:
    from pmtpy.backends.machine import Machine

__all__ = ["PowerSensor3Source", "discover", "open_source"]


def discover(device: str | None = None, *, machine: Machine | None = None) -> Discovery:
    """Find boards by their USB identity; opens nothing.

    A ``machine`` is looked at closely: what is in the way, and the cure.
    """
    if machine is not None:
        from pmtpy.backends.powersensor3._diagnosis import diagnose

        return Discovery(findings=diagnose(device, machine=machine))
    ports = list_ports()
    boards = tuple(p.path for p in ports if p.usb == USB)
    if boards:
        barred = [path for path in boards if not os.access(path, os.R_OK | os.W_OK)]
        if barred:
            why = Obstacle.PERMISSION, (PERMISSION_REMEDY,)
            found = [Finding(BACKEND, b, Verdict.BROKEN, f"no permission to use {b}", *why) for b in barred]
            return Discovery(boards, tuple(found))
        return Discovery(boards)
    try:
        choose_port(ports)
    except BackendUnavailableError as error:
        return Discovery((), (error.finding,))
    return Discovery()
