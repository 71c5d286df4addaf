from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pmtpy.live._hierarchy import Node
from pmtpy.live.lines import Order, Tone, cells, duration, plain, screen, spark, watts
from pmtpy.live.watch import Look, Shown


def shown(label: str, value: float, depth: int = 0, root: int = 0, *, alive: bool = True) -> Shown:
    node = Node(0, depth, label, depth, root)
    return Shown(node, value, value, value / 2, value * 2, value * 10, 0.25, 1.0, 3, alive, (value, value / 2))


LOOK = Look(
    12.0,
    [
        shown("rapl", 45.2),
        shown("package0", 40.0, 1),
        shown("nvml:0", 250.0, 0, 2),
        shown("gone", 9.0, 0, 3, alive=False),
    ],
    None,
    "gone is lost",
    (),
)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_screen_and_the_power_now_is_always_there(width: int) -> None:
    lines = screen(LOOK, width)
    assert all(len(line.text) <= width for line in lines)
    assert "45.20" in lines[1].text
    assert ("mean" in lines[0].text) == (width >= 40)
    assert ("lost" in lines[0].text) == (width >= 80)
    assert lines[-1].tone is Tone.NOTE


@pytest.mark.parametrize("width", range(1, 30))
def test_a_power_is_shown_whole_or_not_at_all(width: int) -> None:
    loud = Look(1.0, [shown("package0", 800.0)], None, "", ())
    head, line = (written.text for written in screen(loud, width))
    assert max(cells(head), cells(line)) <= width  # else the screen would cut it: 80 is no part of 800
    assert ("800.00" in line) == (width >= 17)


@pytest.mark.parametrize("value", [4.2e-7, 0.0042, -0.0042, 0.1234567, 99.99951, -9999.99])
def test_columns_of_small_powers_do_not_touch(value: float) -> None:
    line = screen(
        Look(1.0, [replace(shown("meter", 1.0), watts=value, mean=value, low=value, high=value)], None, "", ()), 100
    )
    assert line[1].text.split()[1:5] == [watts(value)] * 4


def test_columns_of_great_energies_do_not_touch() -> None:
    line = screen(Look(1.0, [replace(shown("node", 12345.6), joules=1.234e10)], None, "", ()), 100)[1].text
    assert "1.234e+10" in line.split()


@pytest.mark.parametrize("width", [20, 24, 40, 100])
def test_wide_and_long_names_move_no_number(width: int) -> None:
    names = [
        "hwmon:電源ユニット/出力",
        "a/very/long/path/of/a/sensor/that/fits/on/no/screen",
        "e\u0301te\u0301",
        "rapl",
    ]
    lines = screen(Look(1.0, [shown(name, 45.2, root=i) for i, name in enumerate(names)], None, "", ()), width)
    ends = {cells(line.text.partition("45.20")[0]) for line in lines[1:]}
    assert len(ends) == 1  # the power now stands in one column, and on the screen
    assert all(cells(line.text) <= width for line in lines)


def test_a_lost_sensor_is_grey_and_says_since_when() -> None:
    line = screen(LOOK, 100)[4]
    assert line.tone is Tone.GONE
    assert line.text.split()[:2] == ["gone", "lost"]
    assert line.text.split()[6:8] == ["0.2", "s"]


def test_wholes_are_sorted_with_their_parts() -> None:
    names = [line.text.split()[0] for line in screen(LOOK, 100, Order.WATTS)[1:5]]
    assert names == ["nvml:0", "rapl", "package0", "gone"]


def test_a_pipe_gets_one_line() -> None:
    assert plain(LOOK) == "12.0 s  rapl 45.20 W 452.00 J  nvml:0 250.00 W 2500.00 J  gone lost 0.2 s 90.000 J".replace(
        "90.000", "90.00"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (0.0042, "0.004200"),
        (-0.0042, "-0.00420"),
        (0.5, "0.5000"),
        (0.99996, "1.000"),
        (4.2e-5, "0.000042"),
        (9.99951, "10.00"),
        (123.456, "123.46"),
        (12345.6, "12346"),
        (math.nan, "-"),
    ],
)
def test_watts_have_the_digits_that_matter(value: float, text: str) -> None:
    assert watts(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.25, "0.2 s"), (59.9, "59.9 s"), (185, "3:05"), (3723, "1:02:03")])
def test_times_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_spark_starts_at_zero_and_leaves_out_what_is_not_known() -> None:
    assert spark([0.0, 50.0, math.nan, 100.0], 9) == "▁▅ █"
    assert spark([1.0, 2.0], 1) == "█"
    assert not spark([], 5)
    assert not spark([math.nan, 0.0], 5)
