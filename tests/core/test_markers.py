"""Regions out of marks."""

from __future__ import annotations

import pytest

from pmtpy.core.markers import Span, paired


@pytest.mark.parametrize(
    ("opening", "closing", "name"),
    [
        ("start", "end", ""),
        ("on", "off", ""),
        ("Begin", "STOP", ""),
        ("solve start", "solve end", "solve"),
        ("fft_begin", "fft_end", "fft"),
        ("phase 1: start", "phase 1: stop", "phase 1"),
    ],
)
def test_pairs_of_marks_are_regions(opening: str, closing: str, name: str) -> None:
    assert paired([(1.0, opening), (2.0, closing)]) == ([Span(1.0, 2.0, name)], [])


def test_regions_nest_repeat_and_overlap() -> None:
    marks = [(0, "a start"), (1, "a start"), (2, "b start"), (3, "a end"), (4, "a end"), (5, "b end")]
    found, single = paired(marks)
    assert found == [Span(0, 4, "a"), Span(1, 3, "a"), Span(2, 5, "b")]
    assert single == []


def test_what_is_not_paired_stays_a_mark() -> None:
    marks = [(0.0, "end"), (1.0, "x"), (2.0, "weekend"), (3.0, "b start")]
    assert paired(marks) == ([], marks)


def test_labels_of_one_row_are_told_apart() -> None:
    marks = [(0.0, "step start"), (1.0, "step end;x;step start"), (2.0, ""), (3.0, "step end")]
    assert paired(marks) == ([Span(0.0, 1.0, "step"), Span(1.0, 3.0, "step")], [(1.0, "x")])
