"""Which GPU is meant."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmtpy.backends._gpu_selection import normal_pci
from pmtpy.backends.nvml import discover
from pmtpy.backends.nvml._selection import Gpu, visible
from pmtpy.emulators.nvml import make_gpu
from pmtpy.errors import BackendUnavailableError, TargetError

from .rig import Rig

GPUS = tuple(Gpu(i, f"GPU-{i:08x}-aaaa", f"0000:{i:02x}:00.0", f"Model {i}") for i in range(4))


def seen(setting: str | None, parents: dict[str, str] | None = None) -> list[int]:
    return [g.index for g in visible(GPUS, setting, parents or {}).gpus]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("0,two,1", [0]),
        ("1,1", []),
        ("1,GPU-00000001", []),
        ("GPU-00000002-aaaa", [2]),
        ("gpu-00000003", [3]),
        ("GPU-0000000", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(setting: str | None, expected: list[int]) -> None:
    assert seen(setting) == expected


def test_two_parts_of_one_gpu_are_two_entries_of_the_same_gpu() -> None:
    parents = {"MIG-a": GPUS[2].uuid, "MIG-b": GPUS[2].uuid}
    assert seen("MIG-a,MIG-b", parents) == [2, 2]
    assert seen("MIG-a,MIG-a", parents) == []
    assert seen("MIG-unknown", parents) == []


@given(st.text(alphabet=string.printable, max_size=40))
def test_any_setting_gives_a_list_without_repeats(setting: str) -> None:
    indices = seen(setting)
    assert len(set(indices)) == len(indices)


@pytest.mark.parametrize("text", ["3b:00.0", "0000:3B:00.0", "00000000:3B:00.0", "0:3b:0", "3b:00"])
def test_every_way_to_write_a_pci_address_is_the_same_address(text: str) -> None:
    assert normal_pci(text) == "0000:3b:00.0"


@pytest.mark.parametrize("text", ["", "3b", "GPU-1", "3b:00.9", "zz:00.0"])
def test_what_is_no_pci_address_is_none(text: str) -> None:
    assert normal_pci(text) == ""


@pytest.mark.parametrize(
    "device", ["1", "3c:00.0", "00000000:3C:00.0", "GPU-00000002", "00000002-7669", "V100", " v100 "]
)
def test_a_gpu_is_found_by_number_pci_address_uuid_and_name(device: str) -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("v100", 1))
    with_v100 = rig.open(device)
    assert with_v100.identity.model == "Tesla V100-SXM2-16GB"
    with_v100.close()
    assert rig.driver.references == 0


@pytest.mark.parametrize("device", ["7", "GPU-ffff", "NVIDIA", "3d:00.0", "A100"])
def test_a_name_that_fits_none_or_several_gpus_is_refused_with_a_list(device: str) -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("rtx3090", 1))
    with pytest.raises(TargetError, match="RTX 3090"):
        rig.open(device)
    assert rig.driver.references == 0


def test_an_index_counts_as_cuda_does_and_the_notes_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("v100", 1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    source = rig.open("0")
    assert source.identity.serial == rig.gpus[1].uuid
    assert any("counts as CUDA does with CUDA_VISIBLE_DEVICES='1'" in n for n in source.identity.notes)
    with pytest.raises(TargetError, match="CUDA sees 1 of 2"):
        rig.open("1")
    assert rig.open(rig.gpus[0].uuid).identity.serial == rig.gpus[0].uuid


def test_hidden_gpus_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(BackendUnavailableError, match="CUDA sees 0 of 1") as caught:
        rig.open("0")
    assert "unset CUDA_VISIBLE_DEVICES" in caught.value.remedy
    found = discover(library=rig.pynvml)
    assert found.devices == ()
    assert "CUDA_VISIBLE_DEVICES" in found.reason


def test_unlike_models_are_warned_of_unless_cuda_counts_by_pci_address(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("v100", 1))
    assert any("fastest GPU first" in n for n in rig.open("0").identity.notes)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    (note,) = rig.open("0").identity.notes
    assert note.startswith("gpu.energy: not calibrated, and no figures are known of cards of this model; 5 %")


def test_a_part_of_a_gpu_measures_the_whole_and_says_that_it_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(make_gpu("h100"))
    rig.gpus[0].mig = ("MIG-0f0f", "MIG-1e1e")
    by_name = rig.open("MIG-1e1e")
    assert by_name.identity.serial == rig.gpus[0].uuid
    assert any("shared by all its parts" in n for n in by_name.identity.notes)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-0f0f")
    assert any("shared" in n for n in rig.open("0").identity.notes)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"MIG-{rig.gpus[0].uuid}/3/0")
    assert rig.open("0").identity.serial == rig.gpus[0].uuid


def test_a_gpu_that_this_user_may_not_open_does_not_hide_the_others() -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("v100", 1))
    rig.gpus[0].codes["nvmlDeviceGetHandleByIndex_v2"] = 4
    assert discover(library=rig.pynvml).devices == ("0",)
    assert rig.open("V100").identity.model.startswith("Tesla V100")
    with pytest.raises(TargetError, match=r"1 more cannot be opened .*permission denied"):
        rig.open("H100")
    rig.gpus[1].codes["nvmlDeviceGetHandleByIndex_v2"] = 4
    with pytest.raises(BackendUnavailableError, match=r"none of 2 GPUs can be opened.*permission denied") as caught:
        rig.open("0")
    assert "/dev/nvidia" in caught.value.remedy


@pytest.mark.parametrize("code", [15, 16, 999])
def test_a_gpu_that_fails_keeps_its_number_and_the_next_one_does_not_pass_for_it(code: int) -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("v100", 1))
    rig.gpus[0].codes["nvmlDeviceGetHandleByIndex_v2"] = code
    found = discover(library=rig.pynvml)
    assert found.devices == ("0", "1")
    broken = found.of("0")
    assert broken is not None
    assert not broken.usable
    assert found.of("1") is None
    for device in ("0", None):
        with pytest.raises(BackendUnavailableError, match=r"GPU 0 does not answer.*V100"):
            rig.open(device)
    second = rig.open("1")
    assert second.identity.model.startswith("Tesla V100")
    second.close()
    assert rig.driver.references == 0


def test_numbers_that_leave_closed_gpus_out_say_whose_they_are() -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("h100", 1))
    rig.gpus[0].codes["nvmlDeviceGetHandleByIndex_v2"] = 4
    source = rig.open("0")
    assert source.identity.serial == rig.gpus[1].uuid
    assert any("it is GPU 1 of NVML" in n for n in source.identity.notes)


def test_visible_devices_count_the_gpus_that_this_user_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a job of Slurm that constrains devices: GPUs 1 and 2 of the node are its 0 and 1."""
    rig = Rig(make_gpu("h100", 0), make_gpu("h100", 1), make_gpu("h100", 2))
    rig.gpus[0].codes["nvmlDeviceGetHandleByIndex_v2"] = 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert [rig.open(number).identity.serial for number in "01"] == [gpu.uuid for gpu in rig.gpus[1:]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    source = rig.open("0")
    assert source.identity.serial == rig.gpus[2].uuid
    assert any("it is GPU 2 of NVML" in n for n in source.identity.notes)


def test_a_number_counts_by_pci_address_though_nvml_may_count_otherwise() -> None:
    late, early = make_gpu("h100", 1), make_gpu("h100", 0)
    rig = Rig(late, early)
    assert [rig.open(number).identity.serial for number in "01"] == [early.uuid, late.uuid]


def test_visible_devices_keep_the_numbers_of_gpus_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(make_gpu("h100", 0), make_gpu("v100", 1), make_gpu("rtx3090", 2))
    rig.gpus[0].codes["nvmlDeviceGetHandleByIndex_v2"] = 15
    rig.gpus[1].codes["nvmlDeviceGetHandleByIndex_v2"] = 15
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1,0")
    assert "RTX 3090" in rig.open("0").identity.model
    for number in "12":
        with pytest.raises(BackendUnavailableError, match="does not answer"):
            rig.open(number)
