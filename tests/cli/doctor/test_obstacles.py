"""One broken machine for each obstacle: the doctor names it, and the cure is exact."""

from __future__ import annotations

import grp
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pmtpy.backends.nvml import _errors as nvml_codes
from pmtpy.core.clock import ManualClock
from pmtpy.core.source import Traits
from pmtpy.emulators.amdsmi import VirtualSmi, private_amdsmi
from pmtpy.emulators.nvml import VirtualDriver, make_gpu, private_pynvml
from pmtpy.emulators.powersensor3 import VirtualBoard
from pmtpy.emulators.rapl import Processors
from pmtpy.emulators.world import make_world
from pmtpy.errors import Finding, Obstacle, Verdict
from tests.backends.conftest import nobody
from tests.support.machines import GUEST, INTEL, POWER9, Broken
from tests.support.trees import SteppedClock
from tests.support.worlds import counter_sensor

NVIDIA, AMD = 0x10DE, 0x1002
ON_BUS = "0000:3b:00.0"


def is_broken(finding: Finding, obstacle: Obstacle, *cures: str) -> None:
    assert (finding.verdict, finding.obstacle) == (Verdict.BROKEN, obstacle), finding
    for cure in cures:
        assert any(cure in step for step in finding.cure), finding.cure
    assert finding.cure or finding.rules, "an obstacle without a cure"


def is_absent(finding: Finding, *words: str) -> None:
    assert (finding.verdict, finding.obstacle) == (Verdict.ABSENT, Obstacle.HARDWARE), finding
    for word in words:
        assert word in finding.found


# -- rapl --------------------------------------------------------------------------------------------------------------


def test_counters_for_root_only_are_a_matter_of_permission_with_three_rules(broken: Broken) -> None:
    broken.zone(mode=0o400)
    with nobody():
        finding = broken.finding("rapl")
    is_broken(finding, Obstacle.PERMISSION, f"$ sudo chmod a+r {broken.sysfs}/class/powercap/intel-rapl*/energy_uj")
    assert set(finding.rules) == {"60-pmtpy-powercap.rules", "pmtpy-powercap.conf", "60-pmtpy-perf.conf"}


def test_one_closed_counter_of_two_limits_what_is_measured(broken: Broken) -> None:
    broken.zone(0)
    broken.zone(1, mode=0o400)
    with nobody():
        finding = broken.finding("rapl")
    assert (finding.verdict, finding.obstacle) == (Verdict.LIMITED, Obstacle.PERMISSION)
    assert "1 of 2" in finding.found


def test_a_masked_tree_is_a_matter_of_the_container(broken: Broken) -> None:
    broken.link("/sys/class/powercap/intel-rapl:0", "/sys/devices/virtual/powercap/intel-rapl/intel-rapl:0")
    is_broken(broken.finding("rapl"), Obstacle.CONTAINER, "-v /sys:/host/sys:ro -e PMT_SYSFS_ROOT=/host/sys")


def test_a_processor_without_zones_needs_the_kernel_module(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", INTEL)
    is_broken(broken.finding("rapl"), Obstacle.KERNEL_MODULE, "$ sudo modprobe intel_rapl_msr")


def test_in_a_container_the_module_is_loaded_on_the_host(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", INTEL)
    broken.put("/.dockerenv")
    is_broken(broken.finding("rapl"), Obstacle.KERNEL_MODULE, "on the host", "modprobe")


def test_a_virtual_machine_has_no_rapl_and_no_cure_is_invented(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", GUEST)
    finding = broken.finding("rapl")
    is_absent(finding, "hypervisor")
    assert not finding.cure


def test_zones_that_hold_garbage_are_broken(broken: Broken) -> None:
    broken.zone()
    broken.put("/sys/devices/virtual/powercap/intel-rapl/intel-rapl:0/energy_uj", "garbage\n")
    is_broken(broken.finding("rapl"), Obstacle.FIRMWARE)


def test_what_works_is_opened_and_read(monkeypatch: pytest.MonkeyPatch, broken: Broken) -> None:
    clock = ManualClock()
    processors = Processors(make_world("constant:100", clock=clock))
    monkeypatch.setenv("PMT_SYSFS_ROOT", str(processors.tree.root))
    broken.sysfs = processors.tree.root
    broken.clock = living = SteppedClock()

    def go_on(_: float) -> None:
        clock.advance(0.01)
        processors.refresh(clock.now_ns())

    living.on_move(go_on)
    (result,) = broken.results("rapl", opening=True)
    processors.tree.close()
    assert result.finding.verdict is Verdict.WORKS
    assert "2 sockets" in result.finding.found
    assert "opened and read" in result.finding.found


@pytest.mark.parametrize("blocking", [False, True])
def test_a_device_whose_reading_fails_does_not_work(
    monkeypatch: pytest.MonkeyPatch,
    broken: Broken,
    blocking: bool,  # noqa: FBT001
) -> None:
    _, source, sensor = counter_sensor()
    source.traits = Traits(blocking=blocking)
    source.fail = 1000
    monkeypatch.setattr("pmtpy.cli.doctor.create", lambda *_, **__: sensor)
    (result,) = broken.results("rapl:virtual", opening=True)
    is_broken(result.finding, Obstacle.FIRMWARE, "pmtpy read rapl:virtual")
    assert result.finding.found.endswith("but a reading of it failed: test counter: busy")


# -- occ ---------------------------------------------------------------------------------------------------------------

EXPORT = "/sys/firmware/opal/exports/occ_inband_sensors"


def test_the_occ_file_for_root_only_has_a_tmpfiles_line(broken: Broken) -> None:
    path = broken.put(EXPORT, "x" * 200_000, 0o400)
    with nobody():
        finding = broken.finding("occ")
    is_broken(finding, Obstacle.PERMISSION, f"$ sudo chmod a+r {path}")
    assert finding.rules == ("pmtpy-occ.conf",)


def test_an_occ_that_has_not_started_is_a_matter_of_firmware(broken: Broken) -> None:
    broken.put(EXPORT, "\0" * 200_000)
    is_broken(broken.finding("occ"), Obstacle.FIRMWARE, "wait until the OCC has started")


def test_old_opal_firmware_exports_nothing(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", POWER9)
    (broken.sysfs / "firmware/opal").mkdir(parents=True)
    is_broken(broken.finding("occ"), Obstacle.FIRMWARE, "update the machine's firmware")


def test_a_container_on_power9_hides_the_firmware_folder(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", POWER9)
    broken.put("/run/.containerenv")
    is_broken(broken.finding("occ"), Obstacle.CONTAINER, "PMT_SYSFS_ROOT=/host/sys")


def test_a_power9_guest_has_no_occ(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", POWER9)
    is_absent(broken.finding("occ"), "hypervisor")


def test_a_wrong_occ_file_in_the_environment_is_named(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMT_OCC_FILE", "/proc/nonexistent/occ")
    is_broken(broken.finding("occ"), Obstacle.SETTING, "unset PMT_OCC_FILE")


# -- jetson, hwmon, cray -----------------------------------------------------------------------------------------------


def test_a_jetson_without_its_driver_needs_the_kernel_module(broken: Broken) -> None:
    broken.put("/sys/firmware/devicetree/base/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    is_broken(broken.finding("jetson"), Obstacle.KERNEL_MODULE, "$ sudo modprobe ina3221")


def test_a_jetson_in_a_container_needs_the_hosts_tree(broken: Broken) -> None:
    broken.put("/sys/firmware/devicetree/base/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    broken.put("/.dockerenv")
    is_broken(broken.finding("jetson"), Obstacle.CONTAINER, "-v /sys:/host/sys:ro")


def test_a_jetson_with_closed_files_is_a_matter_of_permission(broken: Broken) -> None:
    place = "/sys/class/hwmon/hwmon1"
    for name, text in (("name", "ina3221"), ("in1_label", "VDD_IN"), ("in1_enable", "1")):
        broken.put(f"{place}/{name}", f"{text}\n")
    for name in ("in1_input", "curr1_input"):
        broken.put(f"{place}/{name}", "5000\n", 0o400)
    with nobody():
        finding = broken.finding("jetson")
    is_broken(finding, Obstacle.PERMISSION, "$ sudo chmod -R a+r")


def test_another_machine_is_no_jetson(broken: Broken) -> None:
    broken.put("/sys/firmware/devicetree/base/model", "Raspberry Pi 4\0")
    is_absent(broken.finding("jetson"), "Raspberry Pi 4")


@pytest.mark.parametrize(
    ("path", "text", "module"),
    [
        ("/sys/bus/acpi/devices/ACPI000D:00/hid", "ACPI000D", "acpi_power_meter"),
        ("/sys/bus/i2c/devices/1-0040/name", "ina226", "ina2xx"),
        ("/sys/bus/i2c/devices/1-0044/name", "ina238", "ina238"),
        ("/sys/firmware/opal/msglog", "", "ibmpowernv"),
    ],
)
def test_a_meter_that_no_driver_has_taken_needs_its_module(broken: Broken, path: str, text: str, module: str) -> None:
    broken.put(path, text + "\n")
    is_broken(broken.finding("hwmon"), Obstacle.KERNEL_MODULE, f"$ sudo modprobe {module}")


def test_a_closed_energy_file_of_a_chip_is_a_matter_of_permission(broken: Broken) -> None:
    broken.put("/sys/class/hwmon/hwmon0/name", "amd_energy\n")
    path = broken.put("/sys/class/hwmon/hwmon0/energy1_input", "1\n", 0o400)
    with nobody():
        finding = broken.finding("hwmon")
    is_broken(finding, Obstacle.PERMISSION, f"$ sudo chmod a+r {path}")


def test_hidden_chips_are_a_matter_of_the_container(broken: Broken) -> None:
    broken.link("/sys/class/hwmon/hwmon0", "/sys/devices/hidden/hwmon0")
    is_broken(broken.finding("hwmon"), Obstacle.CONTAINER, "-v /sys:/host/sys:ro")


def test_a_cray_node_without_counters_says_whom_to_ask(broken: Broken) -> None:
    broken.put("/etc/opt/cray/release")
    is_broken(broken.finding("cray"), Obstacle.KERNEL_MODULE, "pm_counters")
    broken.put("/.singularity.d/env")
    is_broken(broken.finding("cray"), Obstacle.CONTAINER, "PMT_SYSFS_ROOT")


def test_closed_counters_of_a_cray_node_are_a_matter_of_permission(broken: Broken) -> None:
    broken.put("/sys/cray/pm_counters/energy", "1 J\n", 0o400)
    with nobody():
        finding = broken.finding("cray")
    is_broken(finding, Obstacle.PERMISSION, "chmod")


def test_another_node_is_no_cray(broken: Broken) -> None:
    is_absent(broken.finding("cray"), "no HPE Cray node")


# -- powersensor3 ------------------------------------------------------------------------------------------------------


def test_a_board_without_a_serial_port_needs_the_kernel_module(broken: Broken) -> None:
    broken.usb("5740")
    is_broken(broken.finding("powersensor3"), Obstacle.KERNEL_MODULE, "$ sudo modprobe cdc_acm")


def test_a_port_of_a_group_names_the_group_and_the_user(broken: Broken) -> None:
    broken.usb("5740", "ttyACM0")
    path = broken.put("/dev/ttyACM0", mode=0o660)
    if os.geteuid() != 0:
        pytest.skip("a file of another group can be made by root only")
    group = next(g for g in grp.getgrall() if g.gr_gid and "nobody" not in g.gr_mem)
    os.chown(path, 0, group.gr_gid)
    with nobody():
        finding = broken.finding("powersensor3")
    is_broken(finding, Obstacle.GROUP, f"$ sudo usermod -a -G {group.gr_name} nobody", "log in again")
    assert finding.rules == ("60-pmtpy-powersensor3.rules",)
    os.chown(path, 0, 59_999)
    with nobody():
        finding = broken.finding("powersensor3")
    is_broken(finding, Obstacle.GROUP, "--group-add 59999")


def test_a_port_for_root_only_is_a_matter_of_permission(broken: Broken) -> None:
    broken.usb("5740", "ttyACM0")
    broken.put("/dev/ttyACM0", mode=0o600)
    if os.geteuid() != 0:
        pytest.skip("the file belongs to the user who made it")
    with nobody():
        finding = broken.finding("powersensor3")
    is_broken(finding, Obstacle.PERMISSION, "chmod a+rw")


def test_a_port_that_the_container_lacks_is_passed_in(broken: Broken) -> None:
    broken.usb("5740", "ttyACM0")
    broken.put("/.dockerenv")
    is_broken(broken.finding("powersensor3"), Obstacle.CONTAINER, "--device", "ttyACM0")


def test_a_board_in_its_boot_loader_is_a_matter_of_firmware(broken: Broken) -> None:
    broken.usb("df11")
    is_broken(broken.finding("powersensor3"), Obstacle.FIRMWARE, "$ dfu-util -d 0483:df11")


def test_no_board_is_no_fault(broken: Broken) -> None:
    is_absent(broken.finding("powersensor3"), "0483:5740")


def test_a_board_under_wsl_must_be_handed_over_by_windows(broken: Broken) -> None:
    broken.put("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2")
    finding = broken.finding("powersensor3")
    is_absent(finding, "WSL")
    assert any("usbipd attach" in step for step in finding.cure)


HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_port_that_another_program_has_locked_is_busy_and_left_alone(broken: Broken) -> None:
    with VirtualBoard() as board:
        command = [sys.executable, "-c", HOLDER, board.path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            (result,) = broken.results(f"powersensor3:{board.path}", opening=True)
        is_broken(result.finding, Obstacle.BUSY, f"$ kill {holder.pid}")
        assert f"pid {holder.pid} (python" in result.finding.found
        (result,) = broken.results(f"powersensor3:{board.path}", opening=True)
        assert result.finding.verdict is Verdict.WORKS, result
        assert "opened and read" in result.finding.found


def test_a_port_that_answers_nothing_fails_when_it_is_opened(broken: Broken) -> None:
    main, side = os.openpty()
    try:
        (result,) = broken.results(f"powersensor3:{os.ttyname(side)}", opening=True)
    finally:
        os.close(main)
        os.close(side)
    assert (result.finding.verdict, result.finding.obstacle) == (Verdict.BROKEN, Obstacle.FIRMWARE)


# -- nvml --------------------------------------------------------------------------------------------------------------


def pynvml(init: int = 0, gpus: int = 1) -> ModuleType:
    driver = VirtualDriver(make_world("constant:100", clock=ManualClock()), [make_gpu("h100")] * gpus)
    driver.init_code = init
    return private_pynvml(driver)


def with_gpu(broken: Broken) -> None:
    broken.pci(ON_BUS, NVIDIA, 0x030200, "nvidia")


def test_a_working_gpu_is_opened_and_read(broken: Broken) -> None:
    with_gpu(broken)
    (result,) = broken.results("nvml", opening=True, library=pynvml())
    assert result.finding.verdict is Verdict.WORKS, result
    assert "H100" in result.finding.found


@pytest.mark.parametrize(
    ("code", "obstacle", "cure"),
    [
        (nvml_codes.DRIVER_NOT_LOADED, Obstacle.KERNEL_MODULE, "$ sudo modprobe nvidia"),
        (nvml_codes.LIBRARY_NOT_FOUND, Obstacle.LIBRARY, "libnvidia-ml1"),
        (nvml_codes.VERSION_MISMATCH, Obstacle.DRIVER, "$ sudo reboot"),
        (nvml_codes.GPU_IS_LOST, Obstacle.FIRMWARE, "xid"),
        (nvml_codes.RESET_REQUIRED, Obstacle.FIRMWARE, "--gpu-reset"),
        (nvml_codes.NO_PERMISSION, Obstacle.PERMISSION, "/dev/nvidia"),
        (nvml_codes.UNKNOWN, Obstacle.DRIVER, "dmesg"),
        (nvml_codes.GPU_NOT_FOUND, Obstacle.DRIVER, "dmesg"),
    ],
)
def test_each_state_of_the_driver_has_its_cure(broken: Broken, code: int, obstacle: Obstacle, cure: str) -> None:
    with_gpu(broken)
    is_broken(broken.finding("nvml", library=pynvml(code)), obstacle, cure)


def test_a_driver_without_device_nodes_is_a_matter_of_the_container(broken: Broken) -> None:
    with_gpu(broken)
    broken.put("/.dockerenv")
    broken.put("/proc/driver/nvidia/version", "NVRM version: 570.86.15\n")
    finding = broken.finding("nvml", library=pynvml(nvml_codes.DRIVER_NOT_LOADED))
    is_broken(finding, Obstacle.CONTAINER, "$ docker run --gpus all")


def test_a_closed_device_node_names_what_opens_it(broken: Broken) -> None:
    with_gpu(broken)
    broken.put("/dev/nvidiactl", mode=0o600)
    library = pynvml(nvml_codes.NO_PERMISSION)
    with nobody():
        finding = broken.finding("nvml", library=library)
    if os.geteuid() == 0:
        is_broken(finding, Obstacle.PERMISSION, "$ sudo chmod a+rw", "nvidiactl")


@pytest.mark.parametrize(("driver", "cure"), [("nouveau", "apt install"), ("vfio-pci", "virtual machine")])
def test_a_gpu_of_another_driver_says_which(broken: Broken, driver: str, cure: str) -> None:
    broken.pci(ON_BUS, NVIDIA, 0x030000, driver)
    finding = broken.finding("nvml", library=pynvml(nvml_codes.DRIVER_NOT_LOADED))
    is_broken(finding, Obstacle.DRIVER, cure)
    assert driver in finding.found


def test_a_gpu_without_the_python_package_names_the_extra(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(broken)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    is_broken(broken.finding("nvml"), Obstacle.EXTRA, "$ pip install 'pmtpy[nvml]'")


def test_hidden_gpus_name_the_variable(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(broken)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    is_broken(broken.finding("nvml", library=pynvml()), Obstacle.SETTING, "$ unset CUDA_VISIBLE_DEVICES")


def test_a_gpu_that_the_driver_has_not_taken_is_a_matter_of_the_driver(broken: Broken) -> None:
    with_gpu(broken)
    is_broken(broken.finding("nvml", library=pynvml(gpus=0)), Obstacle.DRIVER, "$ sudo dmesg | grep -i nvrm")


def test_under_wsl_the_library_of_windows_is_found_first(broken: Broken) -> None:
    broken.put("/usr/lib/wsl/lib/libnvidia-ml.so.1")
    finding = broken.finding("nvml", library=pynvml(nvml_codes.LIBRARY_NOT_FOUND))
    is_broken(finding, Obstacle.LIBRARY, "$ export LD_LIBRARY_PATH=/usr/lib/wsl/lib")


def test_lost_device_nodes_in_a_container_are_given_to_it(broken: Broken) -> None:
    with_gpu(broken)
    broken.put("/.dockerenv")
    is_broken(broken.finding("nvml", library=pynvml(nvml_codes.UNKNOWN)), Obstacle.CONTAINER, "--gpus all")


def test_a_machine_without_nvidia_gpu_is_not_told_to_install_anything(broken: Broken) -> None:
    finding = broken.finding("nvml", library=pynvml(nvml_codes.LIBRARY_NOT_FOUND))
    is_absent(finding, "no NVIDIA GPU")
    assert not finding.cure


# -- amdsmi ------------------------------------------------------------------------------------------------------------


def test_an_amd_gpu_without_the_python_package_names_the_extra(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    broken.pci(ON_BUS, AMD, 0x120000, "amdgpu")
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    is_broken(broken.finding("amdsmi"), Obstacle.EXTRA, "$ pip install 'pmtpy[amdsmi]'")


@pytest.fixture
def _without_rocms_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make the import of the wrapper fail as it does without its library, also where a stand-in was loaded before."""
    package = tmp_path / "wrapper" / "amdsmi"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise KeyError('libamd_smi.so')\n")
    for name in [n for n in sys.modules if n.partition(".")[0] == "amdsmi"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(package.parent))


@pytest.mark.usefixtures("_without_rocms_library")
def test_an_amd_gpu_without_rocms_library_names_the_package(broken: Broken) -> None:
    broken.pci(ON_BUS, AMD, 0x120000, "amdgpu")
    is_broken(broken.finding("amdsmi"), Obstacle.LIBRARY, "amd-smi-lib")


def test_an_amd_gpu_without_driver_needs_the_kernel_module(broken: Broken) -> None:
    broken.pci(ON_BUS, AMD, 0x030000)
    library = smi_without_driver()
    is_broken(broken.finding("amdsmi", library=library), Obstacle.KERNEL_MODULE, "$ sudo modprobe amdgpu")


@pytest.mark.usefixtures("_without_rocms_library")
def test_the_drivers_files_work_but_lack_the_energy_counter(broken: Broken) -> None:
    broken.pci(ON_BUS, AMD, 0x030000, "amdgpu")
    broken.put("/sys/class/hwmon/hwmon0/name", "amdgpu\n")
    broken.put("/sys/class/hwmon/hwmon0/power1_average", "20000000\n")
    broken.link("/sys/class/hwmon/hwmon0/device", f"/sys/bus/pci/devices/{ON_BUS}")
    finding = broken.finding("amdsmi")
    assert (finding.verdict, finding.obstacle) == (Verdict.LIMITED, Obstacle.LIBRARY)
    assert "energy counter" in finding.found


@pytest.mark.parametrize("container", [True, False])
def test_amds_device_nodes_are_missing_in_a_container_or_closed_to_the_user(broken: Broken, *, container: bool) -> None:
    broken.pci(ON_BUS, AMD, 0x120000, "amdgpu")
    if container:
        broken.put("/.dockerenv")
        is_broken(broken.finding("amdsmi", library=smi_without_cards()), Obstacle.CONTAINER, "--device /dev/kfd")
        return
    broken.put("/dev/kfd", mode=0o600)
    if os.geteuid() == 0:
        library = smi_without_cards()
        with nobody():
            finding = broken.finding("amdsmi", library=library)
        is_broken(finding, Obstacle.PERMISSION, "chmod")


def smi_without_cards() -> ModuleType:
    return private_amdsmi(VirtualSmi(make_world("constant:100", clock=ManualClock()), [], (26, 0, 2)))


def smi_without_driver() -> ModuleType:
    library = smi_without_cards()

    def init(*_flags: object) -> None:
        raise library.AmdSmiLibraryException(34)

    library.amdsmi_init = init  # type: ignore[attr-defined]
    return library


def test_a_machine_without_amd_gpu_is_not_told_to_install_anything(broken: Broken) -> None:
    finding = broken.finding("amdsmi")
    is_absent(finding, "no AMD GPU")
    assert not finding.cure


@pytest.fixture(autouse=True)
def _no_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCM_PATH", raising=False)
    for name in [n for n in sys.modules if n.partition(".")[0] == "amdsmi"]:  # of a test before, with its own driver
        monkeypatch.delitem(sys.modules, name)


# -- settings, and readings that answer and say nothing ----------------------------------------------------------------


@pytest.mark.parametrize("target", ["rapl", "hwmon", "jetson", "cray"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_that_is_no_sysfs_is_a_wrong_setting_and_no_virtual_machine(
    broken: Broken, target: str, *, inside: bool
) -> None:
    broken.put("/proc/cpuinfo", GUEST)
    broken.sysfs = broken.root / "elsewhere"
    if inside:
        (broken.sysfs / "sys" / "class").mkdir(parents=True)
    cure = f"$ export PMT_SYSFS_ROOT={broken.sysfs}/sys" if inside else "$ unset PMT_SYSFS_ROOT"
    is_broken(broken.finding(target), Obstacle.SETTING, cure)


def test_counters_that_answer_and_do_not_move_are_dead(broken: Broken) -> None:
    broken.clock = SteppedClock()
    broken.put("/proc/cpuinfo", INTEL)
    broken.zone(0)
    broken.zone(1)
    finding = broken.finding("rapl")
    assert (finding.verdict, finding.obstacle) == (Verdict.BROKEN, Obstacle.DEAD)
    assert "package0, package1" in finding.found


def test_linux_inside_windows_is_told_from_other_virtual_machines(broken: Broken) -> None:
    broken.put("/proc/cpuinfo", GUEST)
    broken.put("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    is_absent(broken.finding("rapl"), "WSL")
