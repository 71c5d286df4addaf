"""What a backend says when it is asked why it does not work here: findings with exact cures, and facts of the machine.

A backend module may have a third function beside ``discover`` and ``open_source``::

    diagnose(device: str | None, *, machine: Machine, <explicit options>) -> tuple[Finding, ...]

It looks, and changes nothing; it opens nothing exclusively and never raises. Everything that is read of the machine is
read below :attr:`Machine.root`, so that a broken machine can be rehearsed as a tree of files, and that a container can
look at its host. Facts: ``proc(5)``, Linux ``Documentation/ABI/testing/sysfs-bus-pci``.
"""

from __future__ import annotations

import enum
import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


class Verdict(enum.Enum):
    """What a finding comes down to."""

    WORKS = "works"
    LIMITED = "limited"  # it measures, but something is missing that a cure would bring
    BROKEN = "broken"  # the hardware is here (or was asked for), and cannot be used
    ABSENT = "absent"  # this machine has no such hardware


class Obstacle(enum.Enum):
    """What stands in the way: one word for each different thing to do about it."""

    HARDWARE = "hardware"
    DRIVER = "driver"
    KERNEL_MODULE = "kernel module"
    LIBRARY = "library"
    EXTRA = "extra not installed"
    PERMISSION = "permission"
    GROUP = "group"
    CONTAINER = "container"
    BUSY = "busy"
    FIRMWARE = "firmware"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found about a backend or one of its devices.

    Attributes
    ----------
    backend, device : str
        ``device`` is empty where the finding is about the backend, or its device has no name.
    verdict : Verdict
    found : str
        What was looked for, and what was found.
    obstacle : Obstacle or None
        None where nothing is in the way.
    cure : tuple of str
        What to do, one step each; a line that begins with ``$ `` is a command to type as it stands.
    rules : tuple of str
        Names of files in :mod:`pmtpy.backends.rules` that cure it for good; each alone is enough.
    """

    backend: str
    device: str
    verdict: Verdict
    found: str
    obstacle: Obstacle | None = None
    cure: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device on the PCI bus: address, name of the kernel's driver that has it (empty: none)."""

    address: str
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine looked at.

    Attributes
    ----------
    root : Path
        What ``/proc``, ``/dev`` and ``/etc`` are taken from.
    sysfs : Path
        Where sysfs is mounted.
    """

    root: Path = _ROOT
    sysfs: Path = Path("/sys")

    def at(self, path: str) -> Path:
        """Return where an absolute path of the machine is."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str:
        """Return the text of a file of the machine; empty where it cannot be read."""
        return _text(self.at(path))

    @property
    def in_container(self) -> bool:
        """Whether this is a container of Docker, Podman or Apptainer."""
        return any(self.at(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv", "/.singularity.d"))

    @property
    def in_wsl(self) -> bool:
        """Whether this is Linux inside Windows (WSL), by the name of Microsoft's kernel."""
        return "microsoft" in self.text("/proc/sys/kernel/osrelease").lower()

    @property
    def is_x86(self) -> bool:
        """Whether the processors are of Intel's or AMD's kind."""
        return "\nvendor_id" in "\n" + self.text("/proc/cpuinfo")

    @property
    def is_virtual(self) -> bool:
        """Whether the processors say that they are a hypervisor's."""
        lines = self.text("/proc/cpuinfo").splitlines()
        flags: str = next((line for line in lines if line.startswith("flags")), "")
        return "hypervisor" in flags.split()

    def pci(self, vendor: int, *classes: int) -> tuple[PciDevice, ...]:
        """List the devices of a vendor whose class begins with one of the bytes ``classes``."""
        found = []
        for path in sorted((self.sysfs / "bus/pci/devices").glob("*")):
            try:
                ours = int(_text(path / "vendor"), 16) == vendor and int(_text(path / "class"), 16) >> 16 in classes
            except ValueError:
                continue
            if ours:
                driver = path / "driver"
                found.append(PciDevice(path.name, driver.resolve().name if driver.exists() else ""))
        return tuple(found)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace").strip(" \t\r\n\0")
    except OSError:
        return ""


def may_use(path: Path, *, write: bool = False) -> bool:
    """Whether this user may read (and write) a file."""
    return os.access(path, os.R_OK | (os.W_OK if write else 0), effective_ids=True)


def user_name() -> str:
    """Return the name of this user, or the number where there is no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def why_denied(path: Path) -> tuple[Obstacle, tuple[str, ...]]:
    """Say what keeps this user from a device node, and what lets him in.

    A node that its group may use is a matter of groups: joining it, or logging in again after having joined.
    """
    try:
        status = path.stat()
    except OSError as error:
        return Obstacle.PERMISSION, (f"see why its folder is closed ({error.strerror}): $ namei -l {path}",)
    if not status.st_mode & 0o060 or status.st_gid == 0:
        return Obstacle.PERMISSION, (f"$ sudo chmod a+rw {path}", "this lasts until the node is made anew")
    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        cure = f"its group {status.st_gid} has no name here; in a container: docker run --group-add {status.st_gid}"
        return Obstacle.GROUP, (cure,)
    user = user_name()
    if user in group.gr_mem:
        return Obstacle.GROUP, (f"you are in the group {group.gr_name}, but not yet in this session: log in again",)
    return Obstacle.GROUP, (f"$ sudo usermod -a -G {group.gr_name} {user}", "then log in again")


def persistent_module(name: str) -> tuple[str, ...]:
    """Return the commands that load a kernel module now and at each boot."""
    return f"$ sudo modprobe {name}", f"$ echo {name} | sudo tee /etc/modules-load.d/pmtpy-{name}.conf"
