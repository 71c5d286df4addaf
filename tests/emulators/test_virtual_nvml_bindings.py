"""Copies of pynvml, which ctypes never lets go of: a process has as many as it had virtual GPUs open at once."""

from __future__ import annotations

import gc
from types import ModuleType

import pytest

import pmtpy as pmt
from pmtpy.emulators import nvml


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """The copies that were made since."""
    gc.collect()  # other tests may have dropped theirs
    copies: list[ModuleType] = []
    make = nvml.private_pynvml

    def counted(driver: object) -> ModuleType:
        copies.append(make(driver))
        return copies[-1]

    monkeypatch.setattr(nvml, "_spare", [])
    monkeypatch.setattr(nvml, "private_pynvml", counted)
    return copies


def power(profile: str) -> str:
    with pmt.create("nvml:virtual", profile=profile) as sensor:
        sensor.read()
        return sensor.identity.model


def test_one_copy_serves_one_virtual_gpu_after_the_other(made: list[ModuleType]) -> None:
    models = [power(profile) for profile in ("h100", "v100", "rtx3090") if gc.collect() >= 0]
    assert len(made) == 1
    assert [model.split()[-1] for model in models] == ["PCIe", "V100-SXM2-16GB", "3090"]


def test_two_open_at_once_have_a_copy_each(made: list[ModuleType]) -> None:
    with pmt.create("nvml:virtual", profile="h100") as a, pmt.create("nvml:virtual", profile="v100") as b:
        assert len(made) == 2
        assert a.identity.model != b.identity.model
        a.read()
        b.read()
