"""Regions out of marks."""

from __future__ import annotations

import pytest

from pmtpy.core.markers import Span, at_own_instants, joined, marker_column, paired


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


def test_labels_of_one_row_are_one_text() -> None:
    marks = [(1, "a"), (3, "b"), (1, "c")]
    assert joined(marks) == {1: "a;c", 3: "b"}
    assert marker_column(marks, 3) == ["", "a;c", ""]


def test_marks_stand_at_their_own_instants_where_these_are_known() -> None:
    rows = [(1.0, "a start"), (2.0, "a end; b"), (4.0, "c"), (5.0, "c")]
    own = [(-0.5, "a start"), (1.7, "a end; b"), (3.2, "c"), (9.0, "c")]
    found = at_own_instants(rows, [float("inf"), 1.0, 3.0, 4.0], own)
    # The first row has none before it, and what is said of the last does not fit to it.
    assert found == [(1.0, "a start"), (1.7, "a end"), (1.7, " b"), (3.2, "c"), (5.0, "c")]
