"""Vendor libraries that answer with something else than their reference says: no crash, and no number made of it."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import pytest

import pmtpy as pmt
from pmtpy.sensor.sensor import Sensor
from tests.backends.amdsmi.rig import Rig as AmdRig
from tests.backends.nvml.rig import Rig as NvmlRig

GARBAGE: list[Any] = [None, "text", -1, 2**70, float("nan"), [None]]

NVML = [
    "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID",
    "nvmlDeviceGetName", "nvmlDeviceGetPciInfo", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetMigMode", "nvmlDeviceGetPowerManagementLimitConstraints", "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetClockInfo", "nvmlDeviceGetSamples",
]  # fmt: skip
AMDSMI = [
    "amdsmi_get_processor_handles", "amdsmi_get_gpu_device_bdf", "amdsmi_get_gpu_asic_info", "amdsmi_get_lib_version",
    "amdsmi_get_gpu_enumeration_info", "amdsmi_get_gpu_kfd_info", "amdsmi_get_gpu_device_uuid", "amdsmi_get_power_info",
    "amdsmi_get_energy_count", "amdsmi_get_temp_metric", "amdsmi_get_clock_info",
]  # fmt: skip

READ = {
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetClockInfo", "amdsmi_get_power_info",
    "amdsmi_get_energy_count", "amdsmi_get_temp_metric", "amdsmi_get_clock_info",
}  # fmt: skip


def cases(calls: list[str]) -> list[tuple[str, bool]]:
    """Each call, wrong from the opening on; and what is asked at each reading, wrong from then on."""
    return [(call, first) for call in calls for first in (True, False) if first or call in READ]


def rehearse(rig: NvmlRig | AmdRig, module: types.ModuleType, call: str, answer: Any, *, first: bool) -> None:
    """Let ``call`` answer with garbage from the opening on, or from then on; only our own errors may come out."""
    real, on = getattr(module, call), first
    module.__dict__[call] = lambda *arguments: answer if on else real(*arguments)
    with contextlib.suppress(pmt.PmtError), Sensor(rig.open(), "gpu", rig.clock) as sensor:
        on = True
        with pmt.region("work", sensor) as r:
            for _ in range(4):
                rig.clock.advance(0.1)
                with contextlib.suppress(pmt.PmtError):
                    sensor.read()
        m = r["gpu"]
        for channel in (m, *m.channels.values()):
            assert not channel.joules > 300 * 2.0, (channel.name, channel.joules)  # the load draws at most 300 W


@pytest.mark.parametrize(("call", "first"), cases(NVML))
def test_no_answer_of_nvml_crashes_the_backend(call: str, *, first: bool) -> None:
    for answer in GARBAGE:
        rig = NvmlRig()
        rehearse(rig, rig.pynvml, call, answer, first=first)


@pytest.mark.parametrize(("call", "first"), cases(AMDSMI))
def test_no_answer_of_amdsmi_crashes_the_backend(call: str, *, first: bool) -> None:
    for answer in GARBAGE:
        rig = AmdRig()
        rehearse(rig, rig.amdsmi, call, answer, first=first)


@pytest.mark.parametrize("member", ["nvmlReturn", "valueType", "timestamp", "value"])
def test_no_field_of_nvml_crashes_the_backend(member: str) -> None:
    for answer in GARBAGE:
        rig = NvmlRig()
        real = rig.pynvml.nvmlDeviceGetFieldValues

        def fields(*arguments: Any, real: Any = real, answer: Any = answer) -> list[types.SimpleNamespace]:
            names = ("nvmlReturn", "valueType", "timestamp", "value")
            told = [types.SimpleNamespace(**{n: getattr(field, n) for n in names}) for field in real(*arguments)]
            for field in told:
                setattr(field, member, answer)
            return told

        with contextlib.suppress(pmt.PmtError), Sensor(rig.open(), "gpu", rig.clock) as sensor:
            rig.pynvml.__dict__["nvmlDeviceGetFieldValues"] = fields
            for _ in range(4):
                rig.clock.advance(0.1)
                sensor.read()
