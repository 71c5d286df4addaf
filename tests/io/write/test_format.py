"""The vectorised formatter against Python's own formatting."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pmtpy.io.write._format import Lines, Number, Text, decimals, integers, several

_PLACES = st.integers(0, 9)
_FLOATS = st.floats(allow_nan=True, allow_infinity=True)
_ORDINARY = st.floats(-1e6, 1e6)


def _plain(x: float, places: int) -> str:
    """Python's formatting, without minus zero."""
    text = f"{x:.{places}f}"
    return text.lstrip("-") if float(text) == 0 else text


def delimited(columns: list[Number | Text], n: int, separator: str = ",") -> bytes:
    return bytes(Lines(separator).of(columns, n))


def _written(values: list[float], places: int) -> list[str]:
    rows = delimited([decimals(np.array(values), places)], len(values))
    return rows.decode().split("\n")[:-1]


@given(st.lists(_ORDINARY, min_size=1, max_size=50), _PLACES)
@example([0.5, 1.5, 2.5, -0.5], 0)
@example([0.125, 0.375, -0.125], 2)
@example([9.9999999, 99.99999999, 0.0], 3)
@example([2.675, 1.005, 0.045], 2)
def test_ordinary_values_are_written_as_python_writes_them(values: list[float], places: int) -> None:
    assert _written(values, places) == [_plain(v, places) for v in values]


@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(_FLOATS | _ORDINARY, min_size=n, max_size=n), min_size=1)),
    _PLACES,
)
def test_columns_made_together_are_those_made_one_by_one(values: list[list[float]], places: int) -> None:
    n = len(values[0])
    alone = [delimited([decimals(np.array(column), places)], n) for column in values]
    assert [delimited([made], n) for made in several(np.array(values), places)] == alone


@pytest.mark.parametrize("places", range(10))
def test_numbers_where_the_groups_of_digits_end(places: int) -> None:
    ends = (0, 10**4, 2**15, 10**5, 10**8, 2**15 * 10**4, 10**12)
    values = [v for end in ends for v in (end - 1, end, end + 1) if v >= 0]
    for some in (values, [v for v in values if v >= 10**4], *([v] for v in values), *itertools.pairwise(values)):
        rows = delimited([integers(np.array(some, np.int64), places)], len(some)).decode().split("\n")[:-1]
        assert rows == [f"{v // 10**places}.{v % 10**places:0{places}d}" if places else str(v) for v in some]


@given(st.lists(st.integers(-(2**30), 2**30), min_size=1, max_size=50), st.integers(1, 20), st.integers(0, 6))
def test_ties_go_to_the_even_digit(numerators: list[int], power: int, places: int) -> None:
    values = [n / 2**power for n in numerators]
    assert _written(values, places) == [_plain(v, places) for v in values]


@given(st.lists(st.integers(-(10**8), 10**8), min_size=1, max_size=50), st.integers(0, 5))
def test_values_next_to_a_tie_are_told_from_it(numerators: list[int], places: int) -> None:
    ties = [(n + 0.5) / 10**places for n in numerators]
    values = [v for t in ties for v in (t, math.nextafter(t, math.inf), math.nextafter(t, -math.inf))]
    assert _written(values, places) == [_plain(v, places) for v in values]


@given(st.lists(_FLOATS, min_size=1, max_size=20), _PLACES)
def test_any_float_reads_back_within_half_a_unit_of_its_last_decimal(values: list[float], places: int) -> None:
    for value, text in zip(values, _written(values, places), strict=True):
        if not math.isfinite(value):
            assert text == ""
        elif abs(value) * 10**places < 2**51:
            assert abs(float(text) - value) <= 0.5 * 10**-places * (1 + 1e-9) + abs(value) * 2**-52
        else:
            assert float(text) == pytest.approx(value, rel=1e-12, abs=0.5 * 10**-places)


@given(st.lists(st.integers(-(2**62), 2**62), max_size=50), st.integers(0, 9))
def test_integers_are_written_exactly(values: list[int], places: int) -> None:
    rows = delimited([integers(np.array(values, np.int64), places)], len(values)).decode().split("\n")[:-1]
    assert [int(r.replace(".", "")) for r in rows] == values
    assert all(len(r.rpartition(".")[2]) == places for r in rows if places)


@given(st.data())
def test_columns_of_any_widths_do_not_spoil_each_other(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    values = st.lists(st.one_of(_ORDINARY, st.just(math.nan)), min_size=n, max_size=n)
    texts = st.lists(st.sampled_from([b"", b"x", b"a longer one"]), min_size=n, max_size=n)
    columns: list[Number | Text] = []
    expected = []
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            strings = data.draw(texts)
            columns.append(Text(strings))
            expected.append([s.decode() for s in strings])
        else:
            numbers, places = data.draw(values), data.draw(_PLACES)
            columns.append(decimals(np.array(numbers), places))
            expected.append(["" if math.isnan(v) else _plain(v, places) for v in numbers])
    rows = delimited(columns, n, " ").decode().split("\n")[:-1]
    assert rows == [" ".join(fields) for fields in zip(*expected, strict=True)]


def test_what_is_no_number_can_be_spelled_out() -> None:
    column = decimals(np.array([1.0, math.nan, -math.inf]), 1, b"nan")
    assert delimited([column, column], 3, " ") == b"1.0 1.0\nnan nan\nnan nan\n"


def test_values_beyond_the_resolution_of_a_float_are_written_by_repr() -> None:
    assert _written([1e22, 1.5, math.nan], 6) == ["1e+22", "1.5", ""]


def test_no_rows_give_no_bytes() -> None:
    assert delimited([decimals(np.empty(0), 3), Text([])], 0) == b""


def test_more_decimals_than_a_float_scales_exactly_are_refused() -> None:
    with pytest.raises(ValueError, match="23 decimals"):
        decimals(np.zeros(1), 23)


def test_lines_of_one_batch_do_not_show_in_the_next() -> None:
    lines = Lines()
    halves = np.array([1.5 * i for i in range(100_000)], np.float64)
    long = bytes(lines.of([decimals(halves, 3), integers(np.arange(100_000))], 100_000))
    assert long.startswith(b"0.000,0\n1.500,1\n")
    assert long.endswith(b"\n149998.500,99999\n")
    short = bytes(lines.of([integers(np.array([7, -1234567])), Text([b"", b"end"])], 2))
    assert short == b"7,\n-1234567,end\n"


@given(st.integers(0, 2**60), st.lists(st.integers(0, 2000), min_size=1, max_size=20), st.integers(0, 9))
def test_columns_whose_first_digits_are_the_same_in_every_row(first: int, rest: list[int], places: int) -> None:
    values = [first + r for r in rest]
    rows = delimited([integers(np.array(values, np.int64), places)], len(values)).decode().split("\n")[:-1]
    assert rows == [f"{v // 10**places}.{v % 10**places:0{places}d}" if places else str(v) for v in values]
