"""Broken machines as trees of files: what the kernel, a container engine and a user would leave there."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from pmtpy.backends.machine import Machine
from pmtpy.cli.doctor import Result, examine
from pmtpy.core.clock import HOST_CLOCK, Clock
from pmtpy.errors import Finding

INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme msr\n"
GUEST = INTEL.replace("msr", "msr hypervisor")
POWER9 = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"


class Broken:
    """A machine below a temporary folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.sysfs = root / "sys"
        (self.sysfs / "class").mkdir(parents=True)
        self.clock: Clock = HOST_CLOCK
        monkeypatch.setenv("PMT_SYSFS_ROOT", str(self.sysfs))
        for name in ("PMT_OCC_FILE", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)

    @property
    def machine(self) -> Machine:
        return Machine(self.root, self.sysfs, self.clock)

    def put(self, path: str, text: str = "", mode: int = 0o644) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    def link(self, path: str, target: str) -> None:
        link = self.root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / target.lstrip("/"), link.parent))

    def pci(self, address: str, vendor: int, kind: int, driver: str = "") -> None:
        place = f"/sys/bus/pci/devices/{address}"
        self.put(f"{place}/vendor", f"0x{vendor:04x}\n")
        self.put(f"{place}/class", f"0x{kind:06x}\n")
        if driver:
            (self.sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            self.link(f"{place}/driver", f"/sys/bus/pci/drivers/{driver}")

    def usb(self, product: str, *ports: str) -> None:
        place = "/sys/bus/usb/devices/1-2"
        self.put(f"{place}/idVendor", "0483\n")
        self.put(f"{place}/idProduct", f"{product}\n")
        for port in ports:
            (self.root / f"sys/bus/usb/devices/1-2:1.0/tty/{port}").mkdir(parents=True)

    def zone(self, number: int = 0, mode: int = 0o644) -> None:
        place = f"/sys/devices/virtual/powercap/intel-rapl/intel-rapl:{number}"
        self.put(f"{place}/name", f"package-{number}\n")
        self.put(f"{place}/max_energy_range_uj", "262143328850\n")
        self.put(f"{place}/energy_uj", "123456789\n", mode)
        self.link(f"/sys/class/powercap/intel-rapl:{number}", place)

    def results(self, target: str, *, opening: bool = False, library: ModuleType | None = None) -> list[Result]:
        options = {} if library is None else {"library": library}
        return list(examine([target], self.machine, opening=opening, **options))

    def finding(self, target: str, *, library: ModuleType | None = None) -> Finding:
        (result,) = self.results(target, library=library)
        return result.finding
