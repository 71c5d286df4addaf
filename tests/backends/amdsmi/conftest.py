"""No test of AMD GPUs may depend on the variables of the shell that runs it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "PMT_SYSFS_ROOT"):
        monkeypatch.delenv(name, raising=False)
