from __future__ import annotations

import pytest

from pmtpy.core.nearest import nearest


@pytest.mark.parametrize(
    ("word", "near"),
    [("rapll", "rapl"), ("lst", "list"), ("PowerSensor3", "powersensor3"), ("--fro", "--for"), ("qqq", "")],
)
def test_the_nearest_name(word: str, near: str) -> None:
    found = nearest(word, ["rapl", "list", "powersensor3", "--for", "--json", "run"])
    assert found == (f". Did you mean {near}?" if near else "")
