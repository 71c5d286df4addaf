"""What the verbs read of a recording: its powers, and the energies between its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pmtpy.lab.recorded import read_file, read_series
from pmtpy.lab.traces import side_by_side


def test_energy_over_lost_rows_is_bridged_by_the_powers_either_side(tmp_path: Path) -> None:
    rows = ["time,elapsed,marker,lost,total_W,total_J", "1.0,0.0,,0,10,0", "1.1,0.1,,0,20,2", "1.4,0.4,,9,40,2"]
    path = tmp_path / "meter.csv"
    path.write_text("\n".join([*rows, "1.5,0.5,,0,40,6", ""]))
    series = read_series(read_file(str(path)), "total_W")
    assert series.joules is not None
    np.testing.assert_allclose(series.joules, [0.0, 2.0, 2.0 + 0.3 * 30.0, 11.0 + 4.0])


def test_marks_without_power_belong_to_the_recording_before_them_or_else_to_the_next(tmp_path: Path) -> None:
    def write(name: str, *rows: str, power: str = "10") -> str:
        lines = ["time,elapsed,marker,lost,total_W,total_J,gpu_W,gpu_J"]
        lines += [f"{row},0,{power},0,{power},0" for row in rows]
        (tmp_path / name).write_text("\n".join([*lines, ""]))
        return str(tmp_path / name)

    marks = write("marks.csv", "1.0,0.0,solve start", "1.3,0.3,solve end", power="")
    one = write("one.csv", "1.0,0.0,", "1.1,0.1,", "1.4,0.4,")
    other = write("other.csv", "1.0,0.0,", "1.2,0.2,", "1.4,0.4,")
    first = side_by_side([marks, one, f"{other}#gpu"])
    assert [(t.name, [r.name for r in t.regions]) for t in first.traces] == [
        ("one.csv", ["solve"]),
        ("other.csv#gpu", []),
    ]
    assert not first.one_clock
    last = side_by_side([one, other, marks], ["gpu", "total"], one_clock=True)
    assert [(t.name, len(t.regions)) for t in last.traces] == [
        ("one.csv#gpu", 0),
        ("one.csv#total", 0),
        ("other.csv#gpu", 0),
        ("other.csv#total", 1),
    ]
    assert last.one_clock
