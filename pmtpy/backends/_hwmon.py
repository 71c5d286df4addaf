"""The folders of hwmon chips in sysfs: which there are, whose driver made each, and which device carries it.

Facts: Linux ``Documentation/hwmon/sysfs-interface.rst``. Numbers of folders (``hwmon3``) change from boot to boot, so a
chip is known by its driver and its device. The older ACPI driver has its files, its name too, in the device's folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.backends._sysfs import entries, optional_number, optional_text


@dataclass(frozen=True, slots=True)
class Folder:
    """One chip's folder."""

    path: Path  # resolved
    name: str  # the driver's name; empty where it gives none
    device: Path | None  # the device that carries the chip, resolved; None where there is none

    @property
    def address(self) -> str:
        """What the bus calls the device: ``1-0040``, ``0000:03:00.0``; empty where there is none."""
        return self.device.name if self.device is not None else ""


def describe(path: Path) -> Folder:
    """Say what a folder is."""
    name = optional_text(path / "name") or optional_text(path / "device" / "name") or ""
    try:
        return Folder(path, name, (path / "device").resolve(strict=True))
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        if of_a_handler(error):
            raise
        return Folder(path, name, None)


def scan(root: Path) -> tuple[tuple[Folder, ...], tuple[str, ...]]:
    """List the folders below a root of sysfs, and links that lead nowhere (a masked tree of devices)."""
    listing = entries(root / "class/hwmon")
    return tuple(describe(path) for path in listing.paths), listing.dangling


def limit_w(place: Path, number: int) -> float | None:
    """Return the largest limit of a power; 0 stands for one that is switched off."""
    stated = [optional_number(place / f"power{number}_{kind}") for kind in ("max", "rated_max", "crit", "cap_max")]
    return max([microwatts * 1e-6 for microwatts in stated if microwatts], default=None)
