"""The files of emulated hardware."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

import pmtpy as pmt
from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators import Tree
from pmtpy.emulators.world import open_world
from pmtpy.sensor.registry import BACKENDS

WITH_FILES = [row.name for row in BACKENDS.values() if hasattr(importlib.import_module(row.virtual), Tree.__name__)]


@pytest.mark.parametrize("backend", WITH_FILES)
def test_of_what_cannot_be_opened_for_lack_of_descriptors_nothing_stays(
    backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However many there are: none but those that were opened, and no folder can be listed either."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opening, closing, most = os.open, os.close, 0
    kept: set[int] = set()

    def opened(*given: Any, **named: Any) -> int:
        if len(kept) >= most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        fd = opening(*given, **named)
        kept.add(fd)
        return fd

    def closed(fd: int) -> None:
        closing(fd)
        kept.discard(fd)

    sensor = None
    while sensor is None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", opened)
            patch.setattr(os, "close", closed)
            with contextlib.suppress(pmt.BackendUnavailableError):
                sensor = pmt.create(f"{backend}:virtual", load="constant:50")
            if sensor is not None:
                sensor.close()
        assert not kept
        assert not list(tmp_path.iterdir())
        most += 1
        if most == 1:
            gc.collect()
            assert open_world(HOST_CLOCK) is None  # the next one may have another load
    assert most > 1
