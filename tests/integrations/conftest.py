"""The stand-ins, taken out of ``sys.modules`` again after each test, and an environment without PMT's variables."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import pmtpy

NAMES = ("pmt", "pmt.pmt", "powersensor", "powersensor.powersensor")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PMT_NAME", "PMT_DEVICE", "PMT_DUMP_FILE", "PMT_DUMP_INTERVAL"):
        monkeypatch.delenv(name, raising=False)
    before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    yield
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(before)
    gc.collect()  # what a failed test still holds


@pytest.fixture
def pmt() -> ModuleType:
    """The module that ``import pmt`` gives."""
    return pmtpy.install_as_pmt()


@pytest.fixture
def powersensor() -> ModuleType:
    """The module that ``import powersensor`` gives."""
    return pmtpy.install_as_powersensor()
