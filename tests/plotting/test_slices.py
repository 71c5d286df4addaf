"""Recordings of any length in slices, against the rows themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pmtpy as pmt
from pmtpy.plotting.overview import of_file, of_table
from pmtpy.plotting.slices import Slicer

UNIX = 1_700_000_000.0


def _fed(t: np.ndarray, values: np.ndarray, most: int, block: int = 700) -> Slicer:
    slicer = Slicer(most)
    joules = np.cumsum(values[:, :1], axis=0)
    for k in range(0, len(t), block):
        part = slice(k, k + block)
        slicer.add(t[part], values[part], joules[part], np.zeros(len(t[part]), np.int64))
    return slicer


@pytest.mark.parametrize("n", [1, 50, 64, 65, 10_000])
def test_slices_are_few_and_keep_every_extreme_and_every_sum(n: int) -> None:
    rng = np.random.default_rng(n)
    t = np.cumsum(rng.exponential(1e-3, n)) + 5.0
    values = rng.normal(50, 5, (n, 2))
    values[rng.random(n) < 0.1, 1] = np.nan
    values[0, 1] = 50.0
    slicer = _fed(t, values, 64)
    made = slicer.slices()
    assert made is not None
    assert len(made) == n if n <= 64 else 20 <= len(made) <= 64
    assert int(made.rows.sum()) == slicer.rows == n
    np.testing.assert_allclose(made.total.sum(axis=0), np.nansum(values, axis=0))
    assert (np.nanmin(made.low[:, 0]), np.nanmax(made.high[:, 1])) == (values[:, 0].min(), np.nanmax(values[:, 1]))
    assert (slicer.first_t, slicer.newest, made.last[-1]) == (t[0], t[-1], t[-1])
    np.testing.assert_allclose(made.joules[:, 0], np.interp(made.last, t, np.cumsum(values[:, 0])))
    assert (np.diff(made.last) > 0).all()


@pytest.mark.parametrize("block", [1, 7, 128, 5000])
def test_blocks_of_any_size_make_enough_slices_of_equal_length(block: int) -> None:
    t = np.arange(5000) * 1e-3
    made = _fed(t, np.sin(t)[:, None], 128, block).slices()
    assert made is not None
    assert 60 <= len(made) <= 128
    assert np.ptp(made.rows[:-1]) <= 2  # rows lie on a border, give or take a rounding


def test_rows_at_one_instant_and_a_leap_of_years_are_slices_too() -> None:
    made = _fed(np.zeros(1000), np.ones((1000, 1)), 64).slices()
    assert made is not None
    assert len(made) == 1
    made = _fed(np.concatenate([np.arange(100.0), 1e9 + np.arange(100.0)]), np.ones((200, 1)), 64).slices()
    assert made is not None
    assert len(made) <= 3


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Ten seconds at 2 kHz: 30 and 90 W in turns; a region, a mark, 200 rows lost at 7.5 s."""
    n = 20_000
    t = np.arange(n) / 2000
    t[15_000:] += 0.1
    watts = np.where(t % 2 < 1, 30.0, 90.0)
    joules = np.concatenate([[0.0], np.cumsum(np.diff(t) * (watts[1:] + watts[:-1]) / 2)])
    lost = np.zeros(n, np.int64)
    lost[15_000] = 200
    marker = np.full(n, "", object)
    marker[[4000, 8000, 16_000]] = ["solve start", "solve end", "look"]
    table: pd.DataFrame = pd.DataFrame(
        {"time": UNIX + t, "elapsed": t, "marker": marker, "lost": lost, "total_W": watts, "total_J": joules}
        | {"pair0_V": 12.0, "pair0_A": watts / 12, "pair0_W": watts, "pair0_J": joules}
    )
    return table


@pytest.mark.parametrize("kind", ["table", "csv", "parquet", "jls"])
def test_every_kind_of_recording_gives_the_same_overview(kind: str, rows: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow" if kind == "parquet" else "pyjls" if kind == "jls" else "pandas")
    path = tmp_path / "a.csv"
    rows.to_csv(path, index=False)
    if kind in {"parquet", "jls"}:
        from pmtpy.io.convert import convert

        convert(path, path.with_suffix(f".{kind}"))
    shown = of_table(pmt.load(path)) if kind == "table" else of_file(path.with_suffix(f".{kind}"))
    assert 1000 < len(shown.slices) < 20_000
    assert (shown.rows, shown.lost) == (20_000, 200)
    assert shown.powers == ["total", "pair0"]
    assert (shown.first, shown.last) == pytest.approx((0.0, 10.0995), abs=1e-4)
    assert shown.start_unix_s == pytest.approx(UNIX, abs=1e-6)
    assert shown.joules == pytest.approx(rows["total_J"].iloc[-1], abs=1e-3)
    curve = shown.slices.curve(shown.columns.index("total_W"))
    assert (curve.low.min(), curve.high.max()) == (30.0, 90.0)
    assert shown.mean("total_W") == pytest.approx(rows["total_W"].mean(), rel=2e-3)
    assert shown.mean("pair0_V") == pytest.approx(12.0)
    at = [t for t, _ in shown.marks]
    assert at == pytest.approx([2.0, 4.0, 8.1], abs=6e-4)
    assert [text for _, text in shown.marks] == ["solve start", "solve end", "look"]
    ((start, end, n),) = shown.gaps
    assert (start, end, n) == pytest.approx((7.4995, 7.6, 200), abs=6e-4)
    inside = shown.slices.last < 5.0
    known = np.interp(shown.slices.last[inside], rows["elapsed"], rows["total_J"])
    np.testing.assert_allclose(shown.slices.joules[inside, 0], known, atol=0.05)  # between checkpoints of JLS: 10 ms
    if kind == "table":
        return
    for length in (2.0, 5.0):  # in single rows, and in slices where the pyramid is read
        part, want = of_file(path.with_suffix(f".{kind}"), 3.0, 3.0 + length), pmt.load(path, 3.0, 3.0 + length)
        assert (part.rows, part.lost) == (len(want), want["lost"].sum())
        assert (part.first, part.last) == pytest.approx(tuple(want["elapsed"].iloc[[0, -1]]), abs=1e-9)
        assert part.joules == pytest.approx(want["total_J"].iloc[-1] - want["total_J"].iloc[0], abs=0.05)
        assert part.mean("total_W") == pytest.approx(want["total_W"].mean(), rel=2e-3)
        assert [text for _, text in part.marks] == [label for label in want["marker"] if label]
        assert any("a part: from 3 s" in note for note in part.facts["notes"])
        assert part.facts["complete"] == shown.facts["complete"]  # fewer rows than were written are no damage here
