"""What the page does with what is typed, without a browser."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytest.importorskip("bokeh", reason="needs the extra live: pip install 'pmtpy[live]'")

from bokeh.document import Document
from bokeh.models import HoverTool

from pmtpy.live._page import Page
from pmtpy.live.desk import Desk
from pmtpy.live.stored import StoredTrack


def test_a_cursor_that_is_no_number_takes_the_old_answer_away_and_says_why(tmp_path: Path) -> None:
    rows = (f"{1.7e9 + k / 10:.6f},{k / 10:.6f},,0,50,{5.0 * k}" for k in range(101))
    (tmp_path / "a.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W,total_J", *rows]) + "\n")
    document = Document()
    Page(Desk([StoredTrack.of_file("a", tmp_path / "a.csv")]), document)
    cursors = [document.get_model_by_name(f"cursor-{each}") for each in "ab"]
    result = document.get_model_by_name("result")
    for cursor, at in zip(cursors, (2.0, 6.0), strict=True):
        cursor.value = at
    assert "<td>200</td>" in result.text
    cursors[0].value = None  # what the browser sends of a text that is no number
    assert "each of the two cursors stands at a number" in result.text.lower()
    assert "<td>" not in result.text
    cursors[0].value = 4.0
    assert "<td>100</td>" in result.text


def test_regions_that_are_too_many_to_shade_are_told_until_the_page_is_zoomed(tmp_path: Path) -> None:
    labels = ("solve start", "solve end")
    rows = (f"{1.7e9 + k / 10:.6f},{k / 10:.6f},{labels[k % 2]},0,50,{5.0 * k}" for k in range(600))
    (tmp_path / "a.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W,total_J", *rows]) + "\n")
    document = Document()
    page = Page(Desk([StoredTrack.of_file("a", tmp_path / "a.csv")]), document)
    page.draw(force=True)
    state = document.get_model_by_name("state")
    assert "the first 200 of 300 regions in sight: zoom in" in state.text
    page._range.update(start=0.0, end=20.0)
    page.draw(force=True)
    assert "zoom in" not in state.text


def test_a_gap_is_one_in_the_strip_of_the_whole_too_and_small_powers_have_digits_that_matter(tmp_path: Path) -> None:
    rows = [
        f"{1.7e9 + k / 10:.6f},{k / 10:.6f},,{50 if k == 60 else 0},0.0042,{0.00042 * k}"
        for k in (*range(11), *range(60, 80))
    ]
    (tmp_path / "a.csv").write_text("\n".join(["time,elapsed,marker,lost,total_W,total_J", *rows]) + "\n")
    document = Document()
    page = Page(Desk([StoredTrack.of_file("a", tmp_path / "a.csv")]), document)
    page.draw(force=True)
    for drawn in (page._overview.data, page._panels[0].bands[0].data):
        within = [m for t, m in zip(drawn["t"], drawn["mean"], strict=True) if 1.0 < t < 6.0]
        assert within
        assert all(math.isnan(m) for m in within)
    for cursor, at in zip("ab", (0.2, 0.8), strict=True):
        document.get_model_by_name(f"cursor-{cursor}").value = at
    assert "<td>0.0042</td><td>0.0042</td><td>100 %</td>" in document.get_model_by_name("result").text


def test_clocks_are_drawn_in_megahertz_and_other_values_as_they_are(tmp_path: Path) -> None:
    rows = (f"{1.7e9 + k / 10:.6f},{k / 10:.6f},,0,50,{5.0 * k},1485000000,61" for k in range(101))
    head = "time,elapsed,marker,lost,total_W,total_J,gpu0.sm_Hz,gpu0_C"
    (tmp_path / "a.csv").write_text("\n".join([head, *rows]) + "\n")
    document = Document()
    page = Page(Desk([StoredTrack.of_file("a", tmp_path / "a.csv")]), document)
    shown = {p.figure.yaxis.axis_label: p for p in page._panels}
    assert list(shown) == ["power (W)", "temperature (°C)", "frequency (MHz)"]
    for (label, panel), value in zip(shown.items(), (50.0, 61.0, 1485.0), strict=True):
        for part in ("low", "mean", "high"):
            assert {round(float(v), 9) for v in panel.bands[0].data[part]} == {value}, label
    assert "MHz" in shown["frequency (MHz)"].figure.select_one(HoverTool).tooltips[1][1]
