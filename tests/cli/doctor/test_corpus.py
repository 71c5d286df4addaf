"""A corpus of broken set-ups: machines as data, and what the doctor must say of each.

Each machine is written down as what a person would find on it (files, links, modes, variables), not made by the
helpers that make the hardware's stand-ins, and each row says what is asked, the verdict, what stands in the way, and
words of what is found or of the cure; ``not`` are words that would send the person the wrong way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import ModuleType

import pytest

from pmtpy.backends.nvml import _errors as nvml_codes
from pmtpy.cli.doctor import Result
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.amdsmi import VirtualSmi, private_amdsmi
from pmtpy.emulators.nvml import VirtualDriver, make_gpu, private_pynvml
from pmtpy.emulators.world import make_world
from pmtpy.errors import Finding, Obstacle, Verdict
from tests.backends.conftest import nobody
from tests.support.machines import Broken

BROKEN, LIMITED, ABSENT, WORKS = Verdict.BROKEN, Verdict.LIMITED, Verdict.ABSENT, Verdict.WORKS
HOST_TREE = "-v /sys:/host/sys:ro"
NO_CONTAINER = ("docker", "container")

CPU = {"/proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu msr\n"}
VM = {"/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n"}
POWER9 = {"/proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"}
WSL = VM | {"/proc/sys/kernel/osrelease": "6.6.36.3-microsoft-standard-WSL2\n"}
DOCKER = {"/.dockerenv": ""}
PODMAN = {"/run/.containerenv": ""}
APPTAINER = {"/.singularity.d/env": ""}
KUBERNETES = {"/var/run/secrets/kubernetes.io/serviceaccount/namespace": "jobs\n"}
NSPAWN = {"/run/systemd/container": "systemd-nspawn\n"}

ZONE = "/sys/class/powercap/intel-rapl:0"
PACKAGE = {f"{ZONE}/name": "package-0\n", f"{ZONE}/max_energy_range_uj": "262143328850\n"}
COUNTER = {f"{ZONE}/energy_uj": "42\n"}
ORIN = {"/sys/firmware/devicetree/base/model": "NVIDIA Jetson Orin Nano Developer Kit\0"}
RAIL = "/sys/class/hwmon/hwmon4"
RAILS = {
    f"{RAIL}/name": "ina3221\n", f"{RAIL}/in1_label": "VDD_IN\n", f"{RAIL}/in1_enable": "1\n",
    f"{RAIL}/in1_input": "5000\n", f"{RAIL}/curr1_input": "900\n",
}  # fmt: skip
CHIP = "/sys/class/hwmon/hwmon2"
CRAY = {"/etc/opt/cray/release/cle-release": "RELEASE=6\n"}
COUNTERS = "/sys/cray/pm_counters"
EXPORT = "/sys/firmware/opal/exports/occ_inband_sensors"
BOARD = {"/sys/bus/usb/devices/3-1/idVendor": "0483\n", "/sys/bus/usb/devices/3-1/idProduct": "5740\n"}
PORT = {"/sys/bus/usb/devices/3-1:1.0/tty/ttyACM3/dev": "166:3\n"}
NV, AMD = "/sys/bus/pci/devices/0000:01:00.0", "/sys/bus/pci/devices/0000:43:00.0"
GEFORCE = {f"{NV}/vendor": "0x10de\n", f"{NV}/class": "0x030000\n"}
INSTINCT = {f"{AMD}/vendor": "0x1002\n", f"{AMD}/class": "0x120000\n"}
TAKEN = {"/proc/driver/nvidia/version": "NVRM version: 580.95.05\n"}
NODES = {"/dev/nvidiactl": "", "/dev/nvidia0": ""}


def driver(device: str, name: str) -> dict[str, str]:
    return {f"{device}/driver": f"/sys/bus/pci/drivers/{name}"}


@dataclass(frozen=True)
class Case:
    """One set-up and what must be said of it.

    ``files`` are texts by path, ``modes`` differ from 0644, ``links`` lead from a path to a path; ``unset`` is the
    sysfs root where it is not the machine's; ``library`` is NVML's return code, or "amdsmi" with its code.
    """

    ask: str
    verdict: Verdict
    obstacle: Obstacle | None
    says: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    root: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    nvml: int | None = None
    amdsmi: int | None = None
    missing: str = ""
    opening: bool = False
    silent: tuple[str, ...] = ()  # what would be wrong advice


CASES = {
    # -- what is taken for sysfs ---------------------------------------------------------------------------------------
    "root names a folder that does not exist, on a machine with counters": Case(
        "rapl", BROKEN, Obstacle.SETTING, ("does not exist", "unset PMT_SYSFS_ROOT"), CPU | PACKAGE | COUNTER,
        root="/host/sys", silent=("modprobe", "virtual machine"),
    ),
    "root names the folder above": Case(
        "hwmon", BROKEN, Obstacle.SETTING, ("export PMT_SYSFS_ROOT={root}/host/sys",),
        {"/host/sys/class/hwmon/hwmon0/name": "ina226\n", "/host/sys/devices/x": ""}, root="/host",
    ),
    "root names a folder inside": Case(
        "cray", BROKEN, Obstacle.SETTING, ("export PMT_SYSFS_ROOT={root}/sys",), {"/sys/class/firmware/timeout": "60"},
        root="/sys/class",
    ),
    "root names /dev, which has a folder bus": Case(
        "jetson", BROKEN, Obstacle.SETTING, ("unset PMT_SYSFS_ROOT",), {"/dev/bus/usb/001/001": ""}, root="/dev",
    ),
    "root is a file": Case("rapl", BROKEN, Obstacle.SETTING, ("not a folder",), CPU | {"/sysfs": "x"}, root="/sysfs"),
    "a wrong root hides a board": Case(
        "powersensor3", BROKEN, Obstacle.SETTING, ("unset PMT_SYSFS_ROOT",), BOARD, root="/host/sys",
    ),
    "a wrong root hides an AMD GPU": Case(
        "amdsmi", BROKEN, Obstacle.SETTING, ("unset PMT_SYSFS_ROOT",), INSTINCT, root="/host/sys", amdsmi=34,
    ),
    "a wrong root hides an NVIDIA GPU": Case(
        "nvml", BROKEN, Obstacle.SETTING, ("unset PMT_SYSFS_ROOT",), GEFORCE, root="/host/sys",
        nvml=nvml_codes.LIBRARY_NOT_FOUND,
    ),
    "a wrong root hides the OCC": Case(
        "occ", BROKEN, Obstacle.SETTING, ("unset PMT_SYSFS_ROOT",), POWER9, root="/host/sys", silent=("hypervisor",),
    ),
    "sysfs is not mounted": Case(
        "rapl", BROKEN, Obstacle.SETTING, ("not mounted",), CPU, modes={"/sys": -1}, silent=("unset PMT_SYSFS_ROOT",),
    ),
    "a container without any sysfs": Case(
        "hwmon", BROKEN, Obstacle.CONTAINER, (HOST_TREE,), DOCKER, modes={"/sys": -1},
        silent=("unset PMT_SYSFS_ROOT",),
    ),
    # -- rapl ----------------------------------------------------------------------------------------------------------
    "no module": Case("rapl", BROKEN, Obstacle.KERNEL_MODULE, ("$ sudo modprobe intel_rapl_msr",), CPU,
                      silent=NO_CONTAINER),
    "the module is there and finds nothing": Case(
        "rapl", BROKEN, Obstacle.KERNEL_MODULE, ("dmesg",), CPU | {"/sys/module/intel_rapl_msr/refcnt": "0\n"},
        silent=("modprobe",),
    ),
    "no module, in a container of Kubernetes": Case(
        "rapl", BROKEN, Obstacle.KERNEL_MODULE, ("on the host",), CPU | KUBERNETES,
    ),
    "counters for root only": Case(
        "rapl", BROKEN, Obstacle.PERMISSION, ("chmod a+r",), CPU | PACKAGE | COUNTER, {f"{ZONE}/energy_uj": 0o400},
        silent=NO_CONTAINER,
    ),
    "a counter that vanished is no permission": Case(
        "rapl", BROKEN, Obstacle.FIRMWARE, ("does not exist",), CPU | PACKAGE, silent=("chmod", "permission denied"),
    ),
    "a masked powercap tree": Case(
        "rapl", BROKEN, Obstacle.CONTAINER, (HOST_TREE,), CPU | DOCKER,
        links={ZONE: "/sys/devices/virtual/powercap/intel-rapl/intel-rapl:0"},
    ),
    "a virtual machine": Case("rapl", ABSENT, Obstacle.HARDWARE, ("hypervisor", "on its host"), VM,
                              silent=("modprobe", "docker")),
    "WSL": Case("rapl", ABSENT, Obstacle.HARDWARE, ("WSL",), WSL, silent=("modprobe", "docker")),
    "no x86": Case("rapl", ABSENT, Obstacle.HARDWARE, ("x86",), POWER9, silent=("modprobe", "docker")),
    "a counter that stands still": Case(
        "rapl", BROKEN, Obstacle.DEAD, ("package0", "does not move"), CPU | PACKAGE | COUNTER,
    ),
    # -- hwmon ---------------------------------------------------------------------------------------------------------
    "no meter at all": Case("hwmon", ABSENT, Obstacle.HARDWARE, (), {f"{CHIP}/name": "coretemp\n"},
                            silent=("modprobe", "docker")),
    "a shunt monitor that waits for its driver, in a container": Case(
        "hwmon", BROKEN, Obstacle.KERNEL_MODULE, ("on the host", "modprobe ina2xx"),
        DOCKER | {"/sys/bus/i2c/devices/7-0041/name": "ina219\n"},
    ),
    "the shunt monitor's driver is loaded and has not taken it": Case(
        "hwmon", BROKEN, Obstacle.KERNEL_MODULE, ("dmesg",),
        {"/sys/bus/i2c/devices/7-0041/name": "ina219\n", "/sys/module/ina2xx/refcnt": "0\n"}, silent=("modprobe",),
    ),
    "a power file for root only": Case(
        "hwmon", BROKEN, Obstacle.PERMISSION, (f"chmod a+r {{root}}{CHIP}/power1_average",),
        {f"{CHIP}/name": "power_meter\n", f"{CHIP}/power1_average": "1\n"}, {f"{CHIP}/power1_average": 0o400},
    ),
    "a power file that holds garbage": Case(
        "hwmon", BROKEN, Obstacle.FIRMWARE, ("power1_input",),
        {f"{CHIP}/name": "ina226\n", f"{CHIP}/power1_input": "N/A\n"}, opening=True, silent=("chmod",),
    ),
    "a machine's meter at zero": Case(
        "hwmon", BROKEN, Obstacle.DEAD, ("0 W",),
        {f"{CHIP}/name": "power_meter\n", f"{CHIP}/power1_average": "0\n"}, opening=True,
    ),
    # -- jetson --------------------------------------------------------------------------------------------------------
    "a Jetson without its driver": Case(
        "jetson", BROKEN, Obstacle.KERNEL_MODULE, ("modprobe ina3221",), ORIN, silent=NO_CONTAINER,
    ),
    "a Jetson in Docker without the monitors": Case("jetson", BROKEN, Obstacle.CONTAINER, (HOST_TREE,), ORIN | DOCKER),
    "a Jetson's rails for root only": Case(
        "jetson", BROKEN, Obstacle.PERMISSION, ("chmod",), ORIN | RAILS, {f"{RAIL}/curr1_input": 0o400},
    ),
    "a Jetson's input at zero": Case(
        "jetson", BROKEN, Obstacle.DEAD, ("0 W",), ORIN | RAILS | {f"{RAIL}/curr1_input": "0\n"}, opening=True,
    ),
    "no Jetson": Case("jetson", ABSENT, Obstacle.HARDWARE, ("no Jetson",), CPU, silent=("docker", "modprobe")),
    # -- cray ----------------------------------------------------------------------------------------------------------
    "a Cray node in Apptainer": Case("cray", BROKEN, Obstacle.CONTAINER, (HOST_TREE,), CRAY | APPTAINER),
    "a Cray node whose controller gave nothing": Case(
        "cray", BROKEN, Obstacle.FIRMWARE, ("node controller",), {f"{COUNTERS}/energy": "\n"}, silent=("chmod",),
    ),
    "closed pm_counters": Case(
        "cray", BROKEN, Obstacle.PERMISSION, ("chmod -R a+rX",), {f"{COUNTERS}/energy": "5 J\n"}, {COUNTERS: 0o700},
    ),
    "no Cray node": Case("cray", ABSENT, Obstacle.HARDWARE, ("no HPE Cray node",), CPU, silent=("docker",)),
    # -- occ -----------------------------------------------------------------------------------------------------------
    "OCC_FILE names nothing": Case(
        "occ", BROKEN, Obstacle.SETTING, ("unset PMT_OCC_FILE",), POWER9, variables={"PMT_OCC_FILE": "{root}/no"},
    ),
    "a guest of a POWER9": Case("occ", ABSENT, Obstacle.HARDWARE, ("hypervisor",), POWER9, silent=("docker",)),
    "a POWER9 in Podman": Case("occ", BROKEN, Obstacle.CONTAINER, (HOST_TREE,), POWER9 | PODMAN),
    "a POWER9's file for root only": Case(
        "occ", BROKEN, Obstacle.PERMISSION, ("chmod a+r",), POWER9 | {EXPORT: "\0" * 160_000}, {EXPORT: 0o400},
    ),
    "an export that is cut off": Case("occ", BROKEN, Obstacle.FIRMWARE, ("bytes",), POWER9 | {EXPORT: "OCC"},
                                      silent=("chmod", "modprobe")),
    # -- powersensor3 --------------------------------------------------------------------------------------------------
    "no board": Case("powersensor3", ABSENT, Obstacle.HARDWARE, ("0483:5740",), silent=("modprobe", "docker")),
    "a board without cdc_acm": Case("powersensor3", BROKEN, Obstacle.KERNEL_MODULE, ("modprobe cdc_acm",), BOARD,
                                    silent=NO_CONTAINER),
    "a board without cdc_acm, in a container": Case(
        "powersensor3", BROKEN, Obstacle.KERNEL_MODULE, ("on the host", "modprobe cdc_acm"), BOARD | NSPAWN,
    ),
    "a board whose port the host has not made": Case(
        "powersensor3", BROKEN, Obstacle.DRIVER, ("ttyACM3", "udevadm"), BOARD | PORT,
        silent=(*NO_CONTAINER, "connect the board"),
    ),
    "a board whose port a container of Kubernetes lacks": Case(
        "powersensor3", BROKEN, Obstacle.CONTAINER, ("--device",), BOARD | PORT | KUBERNETES,
    ),
    "a port that is named and absent": Case(
        "powersensor3:{root}/dev/ttyACM9", BROKEN, Obstacle.HARDWARE, ("connect the board",), silent=NO_CONTAINER,
    ),
    "a port that is named and absent in a container": Case(
        "powersensor3:{root}/dev/ttyACM9", BROKEN, Obstacle.CONTAINER, ("--device {root}/dev/ttyACM9",), DOCKER,
    ),
    "a port for root only": Case(
        "powersensor3", BROKEN, Obstacle.PERMISSION, ("chmod a+rw",), BOARD | PORT | {"/dev/ttyACM3": ""},
        {"/dev/ttyACM3": 0o600}, silent=NO_CONTAINER,
    ),
    "a port that is a plain file": Case(
        "powersensor3:{root}/notes.txt", BROKEN, Obstacle.SETTING, ("not a serial port",), {"/notes.txt": "x"},
    ),
    "WSL without a board": Case("powersensor3", ABSENT, Obstacle.HARDWARE, ("usbipd",), WSL),
    # -- nvml ----------------------------------------------------------------------------------------------------------
    "a host without device nodes": Case(
        "nvml", BROKEN, Obstacle.DRIVER, ("nvidia-modprobe",), GEFORCE | TAKEN, links=driver(NV, "nvidia"),
        nvml=nvml_codes.DRIVER_NOT_LOADED, silent=(*NO_CONTAINER, "sudo modprobe nvidia"),
    ),
    "Docker without device nodes": Case(
        "nvml", BROKEN, Obstacle.CONTAINER, ("--gpus all",), GEFORCE | TAKEN | DOCKER, nvml=nvml_codes.UNKNOWN,
    ),
    "Kubernetes without device nodes": Case(
        "nvml", BROKEN, Obstacle.CONTAINER, ("--gpus all",), GEFORCE | TAKEN | KUBERNETES,
        nvml=nvml_codes.LIBRARY_NOT_FOUND,
    ),
    "the driver's library is missing on a host": Case(
        "nvml", BROKEN, Obstacle.LIBRARY, ("libnvidia-ml",), GEFORCE | TAKEN | NODES, links=driver(NV, "nvidia"),
        nvml=nvml_codes.LIBRARY_NOT_FOUND, silent=NO_CONTAINER,
    ),
    "library and driver of different versions": Case(
        "nvml", BROKEN, Obstacle.DRIVER, ("different versions", "$ sudo reboot"), GEFORCE | TAKEN | NODES,
        links=driver(NV, "nvidia"), nvml=nvml_codes.VERSION_MISMATCH, silent=NO_CONTAINER,
    ),
    "the driver is not loaded": Case(
        "nvml", BROKEN, Obstacle.KERNEL_MODULE, ("modprobe nvidia",), GEFORCE, nvml=nvml_codes.DRIVER_NOT_LOADED,
        silent=NO_CONTAINER,
    ),
    "the driver is not loaded, seen from a container": Case(
        "nvml", BROKEN, Obstacle.KERNEL_MODULE, ("on the host", "modprobe nvidia"), GEFORCE | PODMAN,
        nvml=nvml_codes.DRIVER_NOT_LOADED,
    ),
    "nodes for root only": Case(
        "nvml", BROKEN, Obstacle.PERMISSION, ("nvidia0", "chmod a+rw"), GEFORCE | TAKEN | NODES,
        {"/dev/nvidia0": 0o600}, nvml=nvml_codes.NO_PERMISSION, silent=NO_CONTAINER,
    ),
    "a GPU given to a virtual machine": Case(
        "nvml", BROKEN, Obstacle.DRIVER, ("vfio-pci", "measure there"), GEFORCE, links=driver(NV, "vfio-pci"),
        nvml=nvml_codes.DRIVER_NOT_LOADED, silent=("modprobe",),
    ),
    "hidden by CUDA_VISIBLE_DEVICES": Case(
        "nvml", BROKEN, Obstacle.SETTING, ("unset CUDA_VISIBLE_DEVICES",), GEFORCE | TAKEN | NODES,
        links=driver(NV, "nvidia"), variables={"CUDA_VISIBLE_DEVICES": ""}, nvml=0,
    ),
    "no NVIDIA GPU": Case("nvml", ABSENT, Obstacle.HARDWARE, ("no NVIDIA GPU",), nvml=nvml_codes.LIBRARY_NOT_FOUND,
                          silent=("modprobe", "install", "docker")),
    "nvidia-ml-py is missing": Case(
        "nvml", BROKEN, Obstacle.EXTRA, ("pmtpy[nvml]",), GEFORCE | TAKEN | NODES, missing="pynvml",
    ),
    # -- amdsmi --------------------------------------------------------------------------------------------------------
    "amdgpu is not loaded": Case("amdsmi", BROKEN, Obstacle.KERNEL_MODULE, ("modprobe amdgpu",), INSTINCT, amdsmi=34,
                                 silent=NO_CONTAINER),
    "an AMD GPU given to a virtual machine": Case(
        "amdsmi", BROKEN, Obstacle.DRIVER, ("vfio-pci", "measure there"), INSTINCT, links=driver(AMD, "vfio-pci"),
        amdsmi=34, silent=("modprobe",),
    ),
    "AMD's nodes are missing on a host": Case(
        "amdsmi", BROKEN, Obstacle.DRIVER, ("/dev/kfd", "udevadm"), INSTINCT, links=driver(AMD, "amdgpu"), amdsmi=0,
        silent=NO_CONTAINER,
    ),
    "AMD's nodes are missing in Podman": Case(
        "amdsmi", BROKEN, Obstacle.CONTAINER, ("--device /dev/kfd",), INSTINCT | PODMAN, links=driver(AMD, "amdgpu"),
        amdsmi=0,
    ),
    "the amdsmi package is missing": Case("amdsmi", BROKEN, Obstacle.EXTRA, ("pmtpy[amdsmi]",), INSTINCT,
                                          links=driver(AMD, "amdgpu"), missing="amdsmi"),
    "no AMD GPU": Case("amdsmi", ABSENT, Obstacle.HARDWARE, ("no AMD GPU",), amdsmi=34,
                       silent=("modprobe", "docker", "apt")),
}  # fmt: skip


def built(case: Case, broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in case.files.items():
        broken.put(path, text)
    for path, target in case.links.items():
        if path.endswith("/driver"):
            (broken.root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        broken.link(path, target)
    for path, mode in case.modes.items():
        place = broken.root / path.lstrip("/")
        if mode < 0:
            (place / "class").rmdir()
            place.rmdir()
        else:
            place.chmod(mode)
    if case.root:
        broken.sysfs = broken.root / case.root.lstrip("/")
        monkeypatch.setenv("PMT_SYSFS_ROOT", str(broken.sysfs))
    for name, value in case.variables.items():
        monkeypatch.setenv(name, value.format(root=broken.root))
    for name in ("ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)
    if case.missing:
        monkeypatch.setitem(sys.modules, case.missing, None)


def library_of(case: Case) -> ModuleType | None:
    world = make_world("constant:100", clock=ManualClock())
    if case.nvml is not None:
        driver = VirtualDriver(world, [make_gpu("h100")])
        driver.init_code = case.nvml
        return private_pynvml(driver)
    if case.amdsmi is None:
        return None
    library = private_amdsmi(VirtualSmi(world, [], (26, 0, 2)))

    def init(*_flags: object) -> None:
        raise library.AmdSmiLibraryException(case.amdsmi)

    if case.amdsmi:
        library.amdsmi_init = init  # type: ignore[attr-defined]
    return library


def asked(case: Case, broken: Broken) -> Sequence[Result]:
    library = library_of(case)
    with nobody() if any(mode >= 0 for mode in case.modes.values()) else nullcontext():
        return broken.results(case.ask.format(root=broken.root), opening=case.opening, library=library)


def told(finding: Finding) -> str:
    return "\n".join((finding.found, *finding.cure, finding.remedy))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_broken_set_up_has_its_diagnosis(case: Case, broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    built(case, broken, monkeypatch)
    if os.geteuid() == 0 and any(mode == 0o600 for mode in case.modes.values()):
        assert (broken.root / next(iter(case.modes)).lstrip("/")).stat().st_uid == 0
    (result, *more) = asked(case, broken)
    finding = result.finding
    assert not more
    assert (finding.verdict, finding.obstacle) == (case.verdict, case.obstacle), finding
    text = told(finding)
    for word in case.says:
        assert word.format(root=broken.root) in text, finding
    for word in case.silent:
        assert word not in text, finding
    assert finding.cure or finding.rules or finding.verdict is ABSENT, "an obstacle without a cure"


def test_the_corpus_is_as_large_as_it_has_to_be() -> None:
    assert len(CASES) >= 41
