"""Input power of a chassis over IPMI: DCMI's Get Power Reading, by ``ipmitool``, of this machine or of another.

The least privilege (USER) is asked for. Facts: DCMI 1.5, section 6.6.1; ``ipmitool(1)``.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pmtpy.backends import _bmc
from pmtpy.backends._tool import Ask, asking
from pmtpy.backends.machine import Machine, load_module, may_use
from pmtpy.core.channel import Identity
from pmtpy.core.clock import Clock
from pmtpy.core.source import Discovery, PolledSource, Source, Traits
from pmtpy.errors import BackendUnavailableError, Finding, Obstacle, ReadError, Verdict

BACKEND = "ipmi"
PASSWORD = "IPMI_PASSWORD"  # noqa: S105  (the name of a variable, which ipmitool reads itself)
NODES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
# Group extension DC, Get Power Reading; mode 1: system power statistics.
_COMMAND = ("raw", "0x2c", "0x02", "0xdc", "0x01", "0x00", "0x00")
_ANSWER = struct.Struct("<BHHHHIIB")
_ACTIVE = 0x40
_REFERENCE = "DCMI 1.5, section 6.6.1"
_NO_TIME = frozenset({0, 0xFFFFFFFF})  # what stands for a time that is not known (IPMI 2.0, section 37)
_UNSTAMPED = "its readings bear no time, so a service processor that has stopped looks like a steady load"


class Reading(NamedTuple):
    """What a service processor says of its chassis."""

    watts: float
    stamp_s: int | None  # when it was taken, by the processor's own clock; None: it does not say


class _Dcmi(PolledSource):
    """One chassis. ``run`` runs ipmitool with arguments and returns what it prints."""

    traits = Traits(interval_s=_bmc.INTERVAL_S, blocking=True)
    gone_after_s = stale_s = _bmc.GONE_AFTER_S

    def __init__(self, run: Ask, host: str, clock: Clock) -> None:
        super().__init__(clock)
        self._run, self._where = run, host or "this machine's service processor"
        domain = f"external/ipmi/{host}" if host else "host"
        notes = (_UNSTAMPED,) if self._ask().stamp_s is None else ()
        self._seen: Reading | None = None
        self.identity = Identity(BACKEND, f"DCMI of {self._where}", notes=notes)
        channel = _bmc.chassis_channel(
            "chassis", domain, window_s=None, reference=_REFERENCE, least_watts=0.0 if host else 0.5
        )
        self.channels = (channel,)

    def poll(self) -> Sequence[float] | None:
        """Ask for one reading; None if it is the one before, of the same second."""
        now, before = self._ask(), self._seen
        self._seen = now
        return None if now == before and now.stamp_s is not None else [now.watts]

    def _ask(self) -> Reading:
        return parse(self._run(_COMMAND), self._where)


def parse(text: bytes, where: str) -> Reading:
    """Parse an answer, which ipmitool prints in hexadecimal.

    Raises ReadError: it is none; the measurement is switched off; or the value contradicts the least and the most that
    it names.
    """
    try:
        group, now, least, most, _, stamp, _, state = _ANSWER.unpack(bytes.fromhex(text.decode("ascii")))
    except (ValueError, struct.error) as error:
        msg = f"{where} gives no power reading: {text[:80]!r}"
        raise ReadError(msg) from error
    if group != 0xDC or not state & _ACTIVE:
        msg = f"{where} does not measure power now (DCMI power measurement is not active)"
        raise ReadError(msg)
    if now == 0 or not least <= now <= most:
        msg = f"{where} reports {now} W, outside of the {least} to {most} W that it has seen itself: not believed"
        raise ReadError(msg)
    return Reading(_bmc.believed(now, where), None if stamp in _NO_TIME else stamp)


def discover(device: str | None = None, *, machine: Machine | None = None) -> Discovery:
    """Say whether this user may ask a service processor, or what is in the way: ipmitool, the driver, permission."""
    finding = _finding(device, machine or Machine())
    return Discovery((device or "",) if finding.usable else (), (finding,))


def _finding(device: str | None, machine: Machine) -> Finding:
    if shutil.which("ipmitool") is None:
        cure: tuple[str, ...] = ("$ sudo apt-get install ipmitool",)
        return Finding(BACKEND, device or "", Verdict.ABSENT, "ipmitool is not installed", Obstacle.LIBRARY, cure)
    if device:
        return Finding(BACKEND, device, Verdict.WORKS, f"{device} will be asked over the network")
    node = next((path for path in map(machine.at, NODES) if path.exists()), None)
    if node is None:
        cure = load_module("ipmi_devintf", machine)
        return Finding(BACKEND, "", Verdict.ABSENT, f"there is no {NODES[0]}", Obstacle.KERNEL_MODULE, cure)
    if not may_use(node, write=True):
        cure = (f"$ sudo setfacl -m u:$USER:rw {node}", "this lasts until the machine starts again")
        return Finding(BACKEND, "", Verdict.BROKEN, f"no permission to use {node}", Obstacle.PERMISSION, cure)
    return Finding(BACKEND, "", Verdict.WORKS, f"{node} can be used")


def open_source(
    device: str | None = None,
    *,
    clock: Clock,
    user: str = "",
    password_file: str = "",
    timeout_s: float = 5.0,
    tool: str = "ipmitool",
    run: Ask | None = None,
) -> Source:
    """Open the service processor of this machine, or that of ``device`` over the network.

    Parameters
    ----------
    device : str or None
        Host name of a service processor.
    user, password_file : str
        Who asks: USER privilege is enough. Without a file, the environment's IPMI_PASSWORD.
    timeout_s : float
        For one reading, seconds.
    tool : str
        Name or path of ipmitool.
    run : callable, optional
        Asks in place of the tool, for a virtual device.

    Raises BackendUnavailableError: it gives no power reading; the error says why and what to do.
    """
    host = device or ""
    arguments = ["-I", "lanplus", "-L", "USER", "-E", "-H", host, "-U", user] if host else []
    environment = {**os.environ, PASSWORD: _bmc.password(BACKEND, password_file, PASSWORD, os.environ)}
    try:
        return _Dcmi(run or asking((tool, *arguments), environment, timeout_s), host, clock)
    except ReadError as error:
        finding = _finding(host or None, Machine()) if Path(tool).name == tool else None
        remote = f"-I lanplus -L USER -a -H {host}{f' -U {user}' if user else ''} " if host else ""
        look = f"see what this says: $ ipmitool {remote}dcmi power reading"
        cure = finding.remedy if finding and not finding.usable else look
        raise BackendUnavailableError(BACKEND, str(error), cure) from error
