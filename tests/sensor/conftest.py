from __future__ import annotations

import pytest

from pmtpy.sensor.poller import Poller


@pytest.fixture
def nobody_else_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the poller from taking a reading of the test's: one that begins late reads as soon as it can."""
    monkeypatch.setattr(Poller, "_do", lambda *_: None)
