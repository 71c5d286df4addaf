"""The same part of several recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pmtpy.errors import TargetError
from pmtpy.io.read import load
from pmtpy.io.read.cut import Cut


def _write(path: Path, begin: float) -> Path:
    t = np.arange(100) / 10.0
    table: pd.DataFrame = pd.DataFrame(
        {"time": begin + t, "elapsed": t, "marker": "", "lost": 0, "total_W": 5.0, "total_J": 5.0 * t}
    )
    table.to_csv(path, index=False, float_format="%.6f")
    return path


def test_a_part_is_cut_at_the_same_wall_times_of_all(tmp_path: Path) -> None:
    first, later = _write(tmp_path / "a.csv", 1.7e9), _write(tmp_path / "b.csv", 1.7e9 + 3.0)
    cut = Cut.of(first, 4.0, 8.0)
    begins = [load(path, *cut.ends(path))["time"].iloc[[0, -1]].tolist() for path in (first, later)]
    assert begins[0] == pytest.approx([1.7e9 + 4.0, 1.7e9 + 7.9])
    assert begins[1] == pytest.approx(begins[0])
    assert Cut.of(first, 1.0, None).ends(later) == (0.0, None)  # it begins within the part
    with pytest.raises(TargetError, match=r"b.csv begins 3 s after .*a.csv"):
        Cut.of(first, 0.0, 2.0).ends(later)


def test_what_tells_no_wall_time_is_not_cut_blindly(tmp_path: Path) -> None:
    first = _write(tmp_path / "a.csv", 1.7e9)
    cut = Cut(4.0, 8.0, float("nan"), str(first))
    assert cut.ends(_write(tmp_path / "c.csv", 1.7e9)) == (None, None)
    whole = Cut.of(first, None, None)
    assert not whole.asked
    assert whole.ends(tmp_path / "none.csv") == (None, None)  # and the file is not even opened
    with pytest.raises(TargetError, match="cannot read"):
        Cut.of(tmp_path / "none.csv", 1.0, None)
