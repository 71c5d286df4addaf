"""Every way in which NVML can be absent, with its cure."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest

from pmtpy.backends.nvml import discover, open_source
from pmtpy.backends.nvml._errors import Surroundings, look_around, meaning, remedy
from pmtpy.core.clock import ManualClock
from pmtpy.emulators.nvml import private_pynvml
from pmtpy.errors import BackendUnavailableError, TargetError

from .rig import Rig


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(BackendUnavailableError, match="nvidia-ml-py is not installed") as caught:
        open_source("0", clock=ManualClock())
    assert caught.value.remedy == "pip install 'pmtpy[nvml]'"
    assert discover().remedy == caught.value.remedy


def test_the_old_package_of_the_same_name_is_recognised() -> None:
    old = ModuleType("pynvml")
    old.NVMLError = Exception  # type: ignore[attr-defined]
    with pytest.raises(BackendUnavailableError, match="deprecated package pynvml") as caught:
        open_source("0", clock=ManualClock(), library=old)
    assert "pip uninstall -y pynvml" in caught.value.remedy


def test_a_warning_at_import_of_the_vendors_module_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pynvml.py").write_text("import warnings\nwarnings.warn('moved', FutureWarning)\n")
    monkeypatch.setitem(sys.modules, "pynvml", None)  # so that what is there now comes back afterwards
    del sys.modules["pynvml"]
    monkeypatch.syspath_prepend(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BackendUnavailableError, match="deprecated"):
            open_source("0", clock=ManualClock())


def test_a_missing_driver_library_is_explained() -> None:
    module = private_pynvml(None)

    def nothing(name: str) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    module.CDLL = nothing  # type: ignore[attr-defined]
    found = discover(library=module)
    assert found.devices == ()
    assert "libnvidia-ml.so.1 is not found" in found.reason
    with pytest.raises(BackendUnavailableError, match="libnvidia-ml"):
        open_source("0", clock=ManualClock(), library=module)


@pytest.mark.parametrize(
    ("code", "reason", "cure"),
    [
        (9, "driver is not loaded", "modprobe nvidia"),
        (18, "different versions", "reboot"),
        (4, "permission denied", "/dev/nvidia"),
        (17, "operating system refused", "control group"),
        (999, "device nodes", "restart the container"),
        (28, "no NVIDIA GPU", "lspci"),
        (12345, "does not list", ""),
    ],
)
def test_each_failure_to_start_has_its_reason_and_its_cure(code: int, reason: str, cure: str) -> None:
    rig = Rig()
    rig.driver.init_code = code
    with pytest.raises(BackendUnavailableError, match=reason) as caught:
        rig.open()
    assert cure in caught.value.remedy
    found = discover(library=rig.pynvml)
    assert (found.devices, found.reason) == ((), caught.value.reason)


def test_no_gpu_at_all_is_said() -> None:
    rig = Rig()
    rig.driver.gpus.clear()
    with pytest.raises(BackendUnavailableError, match="NVML finds no GPU"):
        rig.open()


def test_a_container_is_told_how_to_get_its_gpu(tmp_path: Path) -> None:
    assert look_around(tmp_path) is Surroundings.HOST
    (tmp_path / ".dockerenv").touch()
    assert look_around(tmp_path) is Surroundings.CONTAINER
    assert "--gpus all" in remedy(12, Surroundings.CONTAINER)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    assert look_around(tmp_path) is Surroundings.CONTAINER_WITHOUT_NODES
    for code in (4, 9, 12, 17, 999):
        assert "device nodes /dev/nvidia* are missing" in remedy(code, Surroundings.CONTAINER_WITHOUT_NODES)
    assert "reboot" in remedy(18, Surroundings.CONTAINER_WITHOUT_NODES)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert look_around(tmp_path) is Surroundings.CONTAINER


def test_every_code_has_words() -> None:
    assert all(meaning(code) for code in range(1000))


def test_an_unknown_total_is_refused() -> None:
    with pytest.raises(TargetError, match="'energy', 'instant' or 'average'"):
        Rig().open(total="peak")


def test_a_lost_gpu_at_opening_is_an_error_with_its_cure() -> None:
    rig = Rig()
    rig.gpus[0].lost = True
    with pytest.raises(BackendUnavailableError, match="fallen off the bus") as caught:
        rig.open()
    assert "dmesg" in caught.value.remedy
    assert rig.driver.references == 0
