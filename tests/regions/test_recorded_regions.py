"""Regions that end while a dump runs stand in its metadata, at their exact times."""

from __future__ import annotations

import json
from pathlib import Path

import pmtpy as pmt


def test_a_dump_tells_of_the_regions_that_ended_meanwhile(tmp_path: Path) -> None:
    with pmt.create("rapl:virtual") as sensor:
        with pmt.region("before", sensor):
            pass
        with sensor.dump(tmp_path / "a.csv"):
            with pmt.region("größe", sensor) as r:
                sum(range(1000))
            with pmt.region("zweite", sensor):
                pass
        seconds = r[sensor.target].seconds
    facts = json.loads((tmp_path / "a.csv.json").read_text(encoding="utf-8"))
    assert [region["label"] for region in facts["regions"]] == ["größe", "zweite"]
    first = facts["regions"][0]
    assert (first["end_ns"] - first["start_ns"]) / 1e9 == seconds
    assert facts["anchors"]["start"]["monotonic_ns"] <= first["start_ns"] <= facts["anchors"]["end"]["monotonic_ns"]
