"""One recording with all that can be known of it, in every format: what is read back is the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pmtpy.core.channel import Channel, Derivation, Identity, Quantity
from pmtpy.core.clock import Anchor
from pmtpy.core.response import Number, Response
from pmtpy.core.rows import Frame, Layout
from pmtpy.io.channels import channel_of, described
from pmtpy.io.convert import convert
from pmtpy.io.read import load
from pmtpy.io.recorded import Frames, ending_of, header_of, layout_of
from pmtpy.io.write import Ending, Header, open_sink
from pmtpy.io.write.base import RecordedLoad, RecordedRegion

START_NS, UNIX_NS, STEP_NS, ROWS = 7_000_000_000, 1_700_000_000_000_000_000, 10_000_000, 60
FITTED = Response(
    0.1, 0.025, 0.04, -0.003, 1.02, -3.0, 0.01, 0.5, 0.002, 0.001, 0.3, 0.01, 1e-5, 0.0004, 0.001, "boxcar*one-pole"
)
LAYOUT = Layout(
    (
        Channel("rail.voltage", Quantity.VOLTAGE, scale=0.005, offset=3.0, noise=0.01, response=FITTED),
        Channel("rail.current", Quantity.CURRENT, scale=0.01, offset_u=0.02, resolution=0.02, window_s=0.02),
        Channel("rail", Quantity.POWER, derivation=Derivation.PRODUCT, operands=("rail.voltage", "rail.current"),
                domain="external/rail", label='12 V "A", é', refresh_s=0.01, window_s=0.02, lag_s=0.015, gain_u=0.03,
                max_watts=400.0, least_watts=0.2, reference="a data sheet"),
        Channel("low", Quantity.POWER, scale=1e-3, refresh_s=0.01,
                response=Response.stated("one-pole", tau_s=Number(0.08, 0.002))),
        Channel("counter", Quantity.ENERGY, scale=1e-6, wrap=2.0**32, refresh_s=1e-3, domain="external/other"),
        Channel("board", Quantity.TEMPERATURE, scale=0.1),
    )
)  # fmt: skip
IDENTITY = Identity("hwmon", "a board", "serial 7", "driver 1.2", virtual=True, notes=("channel 3 is switched off",))
HEADER = Header(
    "hwmon:board", IDENTITY, LAYOUT, Anchor(START_NS, UNIX_NS, START_NS + 5), calibration="abcdef", version="9.9",
    polled_s=0.02, stamped=True, uncut=True, aged_s=0.03, time_u_s=0.0021,
)  # fmt: skip
ENDING = Ending(
    Anchor(START_NS + 10**9, UNIX_NS + 10**9 + 70), ROWS, 3, 2, complete=False, error="the disk was full",
    regions=(RecordedRegion("solve, a", START_NS + 5 * STEP_NS, START_NS + 30 * STEP_NS),),
    remarks=("the stream was damaged 2 times", "rows may be early"), time_u_s=0.0021, aged_s=0.03, uncovered_s=0.25,
    load=RecordedLoad(((START_NS - 7, START_NS + 9 * STEP_NS), (START_NS + 11 * STEP_NS, START_NS + 12 * STEP_NS)),
                      ((START_NS - 7, START_NS + 10 * STEP_NS), (START_NS + 11 * STEP_NS, START_NS + 40 * STEP_NS))),
)  # fmt: skip
# Texts of other programs hold no more than these programs know; what is ours stands beside them.
OURS, FOREIGN = ("csv", "parquet", "jls"), ("pmt", "ps3")
MADE_ANEW = {"columns", "jls", "versions", "converted_from", "clock"}


def _jls_is_here() -> None:
    pytest.importorskip("pyjls", reason="pyjls is not installed (extra jls)")


def _write(path: Path) -> Path:
    if path.suffix == ".jls":
        _jls_is_here()
    sink = open_sink(path, HEADER)
    k = np.arange(ROWS)
    lost = np.where(k == 8, 3, 0)
    t_ns = START_NS + (k + np.cumsum(lost)) * STEP_NS
    watts = np.column_stack([36.0 + k, 24.0 + k, np.full(ROWS, 5.0), np.full(ROWS, 12.0)])
    joules = np.cumsum(watts * STEP_NS / 1e9, axis=0)
    values = np.column_stack([np.full(ROWS, 12.0), 2.0 + k / 12.0, np.full(ROWS, 40.0)])
    marks = ((5, "a, b"), (6, "NA"), (20, 'é "x"'))
    sink.write(Frame(t_ns, watts, joules - joules[0], values, lost, np.zeros((ROWS, 4), np.int64), marks))
    sink.close(ENDING)
    return path


def _facts(table: pd.DataFrame) -> dict[str, Any]:
    known = table.attrs["metadata"]
    assert known is not None
    return {k: v for k, v in json.loads(json.dumps(known)).items() if k not in MADE_ANEW}


def _is_the_same(facts: dict[str, Any], ending: Ending = ENDING, *, uncut: bool = True) -> None:
    header = header_of(facts, Layout(tuple(channel_of(c) for c in facts["channels"])), name="x", converted_from="",
                       version="9.9")  # fmt: skip
    stated = replace(header, layout=LAYOUT, converted_from="", regions=(), version="9.9")
    assert stated == replace(HEADER, regions=(), uncut=uncut)
    for known, truly in zip(header.layout.channels, LAYOUT.channels, strict=True):
        assert replace(known, method=truly.method) == truly
        assert known.energy_method is truly.energy_method
    seen = Frames(layout_of([], facts, ""), HEADER, 0.0)
    found = ending_of(facts, HEADER, seen, rows=ROWS, lost=3, why="")
    assert found == ending


@pytest.mark.parametrize("suffix", OURS)
def test_all_that_is_known_of_a_dump_is_read_back(tmp_path: Path, suffix: str) -> None:
    table = load(_write(tmp_path / f"run.{suffix}"))
    _is_the_same(_facts(table))
    attrs = table.attrs
    assert (attrs["virtual"], attrs["complete"]) == (True, False)
    for said in (*ENDING.remarks, ENDING.error):
        assert any(said in note for note in attrs["notes"])
    assert table["lost"].sum() == 3
    assert [m for m in table["marker"] if m] == ["a, b", "NA", 'é "x"']
    np.testing.assert_allclose(table["counter_J"].diff()[1:], 0.12, rtol=1e-5)
    np.testing.assert_allclose(table["rail_W"], 24.0 + np.arange(ROWS), rtol=1e-6)


@pytest.mark.parametrize("suffix", FOREIGN)
def test_a_text_of_another_program_keeps_what_is_ours_beside_it(tmp_path: Path, suffix: str) -> None:
    table = load(_write(tmp_path / f"run.{suffix}"))
    _is_the_same(_facts(table), uncut=False)  # its times are rounded
    assert (table.attrs["virtual"], table.attrs["complete"]) == (True, False)


@pytest.mark.parametrize("suffix", ["parquet", "jls", "csv"])
def test_a_conversion_keeps_it(tmp_path: Path, suffix: str) -> None:
    if suffix == "jls":
        _jls_is_here()
    source = _write(tmp_path / ("run.csv" if suffix != "csv" else "run.jls"))
    convert(source, tmp_path / f"other.{suffix}")
    _is_the_same(_facts(load(tmp_path / f"other.{suffix}")))


@pytest.mark.parametrize("channel", LAYOUT.channels, ids=lambda c: str(c.name))
def test_a_channel_is_described_in_full(channel: Channel) -> None:
    facts = json.loads(json.dumps(described(channel, in_total=False)))
    assert replace(channel_of(facts), method=channel.method) == channel
