"""No test of NVML may depend on the variables of the shell that runs it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PMT_SYSFS_ROOT"):
        monkeypatch.delenv(name, raising=False)
