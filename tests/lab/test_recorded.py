"""What the verbs read of a recording: its powers, and the energies between its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pmtpy.lab.recorded import read_file, read_series


def test_energy_over_lost_rows_is_bridged_by_the_powers_either_side(tmp_path: Path) -> None:
    rows = ["time,elapsed,marker,lost,total_W,total_J", "1.0,0.0,,0,10,0", "1.1,0.1,,0,20,2", "1.4,0.4,,9,40,2"]
    path = tmp_path / "meter.csv"
    path.write_text("\n".join([*rows, "1.5,0.5,,0,40,6", ""]))
    series = read_series(read_file(str(path)), "total_W")
    assert series.joules is not None
    np.testing.assert_allclose(series.joules, [0.0, 2.0, 2.0 + 0.3 * 30.0, 11.0 + 4.0])
