"""Fixtures of the broken machines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machines import Broken


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    """An empty machine, whose files a user without rights can reach."""
    with tempfile.TemporaryDirectory(prefix="pmtpy-machine-") as folder:
        Path(folder).chmod(0o755)
        yield Broken(Path(folder), monkeypatch)
