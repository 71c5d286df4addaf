"""What the page says of a stretch: names are text, and what a recording does not reach over is not covered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pmtpy.live._wording import selection_html
from pmtpy.live.tracks import Selected, Selection


def test_names_are_text_and_what_lies_beyond_a_recording_is_not_covered() -> None:
    power = Selected("<i>total</i>", 60.0, 60.0, 1.0, float("nan"), 30.0, 90.0)
    track: Any = SimpleNamespace(name="<script>x</script>")
    text = selection_html([(track, Selection(1.0, 0, [power]))], 4.0)
    assert "<script>" not in text
    assert "<i>" not in text
    assert "<td>25 %</td>" in text
    assert "<td>not known</td>" in text


def test_where_the_energy_at_an_end_is_not_known_neither_it_nor_its_coverage_is() -> None:
    power = Selected("total", float("nan"), float("nan"), 1.0, float("nan"), 30.0, 90.0)
    track: Any = SimpleNamespace(name="run")
    text = selection_html([(track, Selection(1.0, 0, [power]))], 1.0)
    assert text.count("<td>not known</td>") == 4
    assert "nan" not in text


def test_where_nothing_is_covered_no_energy_is_told() -> None:
    power = Selected("total", float("nan"), float("nan"), 0.0, 12.0, 30.0, 90.0)
    track: Any = SimpleNamespace(name="run")
    text = selection_html([(track, Selection(1.0, 3, [power]))], 1.0)
    assert text.count("<td>not known</td>") == 2
    assert "<td>12</td>" in text
    assert "<td>0 %</td>" in text
