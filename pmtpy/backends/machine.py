"""The machine that a backend looks at when it does not work here: facts from which a finding and its cure follow.

Everything is read below :attr:`Machine.root` and :attr:`Machine.sysfs`, so that a broken machine can be rehearsed as a
tree of files, and a container can look at its host. It looks, and changes nothing. Facts: ``proc(5)``, Linux
``Documentation/ABI/testing/sysfs-bus-pci``.
"""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.core.clock import HOST_CLOCK, Clock
from pmtpy.errors import Finding, Obstacle, Verdict

_ROOT = Path("/")

_IN_SYSFS = ("class", "devices", "cray")  # others, such as bus and firmware, are also names in /dev and /sys/class
# Docker; Podman; Apptainer; systemd-nspawn and what else tells systemd; Kubernetes, whose engine leaves no mark.
_INSIDE = (
    "/.dockerenv",
    "/run/.containerenv",
    "/.singularity.d",
    "/run/systemd/container",
    "/run/secrets/kubernetes.io",
    "/var/run/secrets/kubernetes.io",
)

# Container engines hide parts of /sys; what a container needs is the host's, under another name.
_MOUNTED = "docker run -v /sys:/host/sys:ro -e PMT_SYSFS_ROOT=/host/sys"
HOST_SYSFS = (
    "start the container with the host's tree mounted elsewhere, and COMMAND in it:",
    f"$ {_MOUNTED} IMAGE COMMAND",
)
# The same for an error, which is raised where nobody has looked whether this is a container.
IN_A_CONTAINER = f"in a container mount the host's tree: {_MOUNTED}"
IN_A_GUEST = "it is passed on to a virtual machine: measure there"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device on the PCI bus: address, name of the kernel's driver that has it (empty: none)."""

    address: str
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine looked at."""

    root: Path = _ROOT  # what ``/proc``, ``/dev`` and ``/etc`` are taken from
    sysfs: Path = Path("/sys")  # where sysfs is mounted
    clock: Clock = HOST_CLOCK  # by which it is waited for a counter to move

    def at(self, path: str) -> Path:
        """Return where an absolute path of the machine is."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str:
        """Return the text of a file of the machine; empty where it cannot be read."""
        return _text(self.at(path))

    @property
    def in_container(self) -> bool:
        """Whether this is a container, by what its engine leaves in it; LXC's tells its first process."""
        return any(self.at(mark).exists() for mark in _INSIDE) or "container=" in self.text("/proc/1/environ")

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


def no_sysfs(backend: str, machine: Machine) -> tuple[Finding, ...]:
    """Say that what is taken for sysfs is none: it is not mounted, or a variable or an option names another folder."""
    root = machine.sysfs
    if any((root / folder).is_dir() for folder in _IN_SYSFS):
        return ()
    if root == machine.at("/sys"):
        found = f"sysfs is not mounted at {root}"
        if machine.in_container:
            return (Finding(backend, "", Verdict.BROKEN, found, Obstacle.CONTAINER, HOST_SYSFS),)
        mount: tuple[str, ...] = ("$ sudo mount -t sysfs sysfs /sys",)
        if machine.root != _ROOT:
            mount = ("--root names a folder that holds the sys, proc and dev of a machine",)
        return (Finding(backend, "", Verdict.BROKEN, found, Obstacle.SETTING, mount),)
    what = "is not a folder" if root.exists() else "does not exist"
    if root.is_dir():
        what = "has none of the folders of sysfs"
    near = next((place for place in (root / "sys", *root.parents) if (place / "class").is_dir()), None)
    right = "$ unset PMT_SYSFS_ROOT" if near is None else f"$ export PMT_SYSFS_ROOT={near}"
    cure = ("name the folder that holds class and devices:", right)
    found = f"{root} is taken for sysfs (PMT_SYSFS_ROOT) and {what}"
    return (Finding(backend, "", Verdict.BROKEN, found, Obstacle.SETTING, cure),)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace").strip(" \t\r\n\0")
    except OSError as error:
        if of_a_handler(error):
            raise
        return ""


def may_use(path: Path, *, write: bool = False) -> bool:
    """Whether this user may read (and write) a file."""
    return os.access(path, os.R_OK | (os.W_OK if write else 0), effective_ids=True)


def _user_name() -> str:
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
        return Obstacle.PERMISSION, (f"$ sudo chmod a+rw {path}", "this lasts until the device node is made again")
    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        cure = f"its group {status.st_gid} has no name here; in a container: docker run --group-add {status.st_gid}"
        return Obstacle.GROUP, (cure,)
    user = _user_name()
    if user in group.gr_mem:
        return Obstacle.GROUP, (f"you are in the group {group.gr_name}, but not yet in this session: log in again",)
    return Obstacle.GROUP, (f"$ sudo usermod -a -G {group.gr_name} {user}", "then log in again")


def load_module(name: str, machine: Machine) -> tuple[str, ...]:
    """Return what makes a kernel module take its device: load it now and at each boot, or see why it does not."""
    if (machine.sysfs / "module" / name).is_dir():
        return (
            f"the module {name} is loaded; the kernel's log says why it has not taken it:",
            f"$ sudo dmesg | grep {name}",
        )
    cure = (f"$ sudo modprobe {name}", f"$ echo {name} | sudo tee /etc/modules-load.d/pmtpy-{name}.conf")
    return ("on the host, since modules are the host's:", *cure) if machine.in_container else cure


def remake_nodes(*subsystems: str) -> tuple[str, ...]:
    """Return what makes the device nodes that a host's own /dev lacks."""
    asked = " ".join(f"--subsystem-match={name}" for name in subsystems)
    said = "have its device nodes made; if they do not appear, udev is not running or /dev is not a devtmpfs:"
    return said, f"$ sudo udevadm trigger --action=add {asked}"
