"""Pictures: what they must show, in every format."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from pmtpy.cli import main
from pmtpy.errors import BackendUnavailableError, SinkError, TargetError
from pmtpy.io.convert import convert
from pmtpy.io.read import load
from pmtpy.plotting.overview import of_file
from pmtpy.plotting.recording import _alone, _figure, plot
from pmtpy.plotting.style import DARK

UNIX = 1_700_000_000.0


def _table(n: int = 1000, start: float = UNIX, *, virtual: bool = False, **columns: object) -> pd.DataFrame:
    """Ten seconds at 30 and 90 W in turns, two rails, marks around a region, three rows lost."""
    elapsed = np.linspace(0, 10, n)
    watts = np.where(elapsed % 2 < 1, 30.0, 90.0)
    marker = np.full(n, "", object)
    marker[[n // 4, n // 2, n // 2 + 1]] = ["solve start", "solve end", "look"]
    lost = np.zeros(n, np.int64)
    lost[3 * n // 4] = 3
    table: pd.DataFrame = pd.DataFrame(
        {
            "time": start + elapsed,
            "elapsed": elapsed,
            "marker": marker,
            "lost": lost,
            "total_W": watts,
            "total_J": np.cumsum(watts) * 10 / n,
            "rail0_W": watts / 3,
            "rail0_J": 0.0,
            "rail1_W": watts * 2 / 3,
            "rail1_J": 0.0,
            "limit_W": 300.0,
        }
        | columns
    )
    table.attrs = {"path": "x", "virtual": virtual, "complete": True, "total": "rail0 + rail1", "metadata": None}
    return table


@pytest.mark.parametrize("overlay", [False, True])
def test_a_picture_says_what_a_reader_must_know_of_a_recording(*, overlay: bool) -> None:
    tables = {"a": _table(), "b": _table(1001)}
    tables["a"].attrs["notes"] = [
        "the wall clock was set by +80 s, " + 20 * "and so on ",
        "5 rows are missing",
        "third",
    ]
    shown = _texts(_figure(tables, overlay=overlay, channels=None))
    assert "note: the wall clock was set by +80 s" in shown
    assert "note: 5 rows are missing\nand 1 more note" in shown
    assert max(map(len, shown.splitlines())) <= 120


def test_plot_says_what_the_file_says_on_the_page_and_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "time,elapsed,marker,lost,total_W,total_J\n1.0,0.0,,0,10,0\n1.1,0.1,,0,10,1\n1.2,0.2,,0,10,2\n"
    (tmp_path / "run.csv").write_text(rows)
    told = "run.csv.json is missing: it is not known whether the file is complete or virtual"
    pytest.importorskip("bokeh")
    assert main(["plot", str(tmp_path / "run.csv"), "-o", str(tmp_path / "run.html")]) == 0
    assert f"note: {tmp_path / 'run.csv'}: {told}" in " ".join(capsys.readouterr().err.split())
    assert f"note: {told}" in (tmp_path / "run.html").read_text()


def _texts(figure: Figure) -> str:
    texts = []
    for ax in figure.axes:
        legend = ax.get_legend()
        texts += [ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), *(t.get_text() for t in ax.texts)]
        texts += [t.get_text() for t in legend.get_texts()] if legend else []
    return "\n".join(texts)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize("overlay", [False, True])
def test_every_format_is_written(tmp_path: Path, suffix: str, overlay: bool) -> None:  # noqa: FBT001
    out = tmp_path / f"a{suffix}"
    plot({"one": _table(), "two": _table(100, UNIX + 5)}, out, overlay=overlay)
    assert out.read_bytes()[:5] in {b"\x89PNG\r", b"<?xml", b"%PDF-"}


def test_everything_that_matters_is_said() -> None:
    table = _table(virtual=True)
    table.attrs["complete"] = False
    text = _texts(_figure({"run.csv": table}, overlay=False, channels=None))
    for words in (
        "run.csv",
        "VIRTUAL",
        "incomplete",
        "J in 10 s",
        "time since 2023-11-14 22:13:20.000 UTC (s)",
        "power (W)",
        "3 samples lost",
        "solve",
        "look",
        "total",
        "rail0",
        "rail1",
    ):
        assert words in text
    assert "limit" not in text


def test_many_regions_are_one_artist_that_shades_each_of_them() -> None:
    table = _table()
    starts = np.arange(1, 901)
    regions = [
        {"label": "f", "start_ns": int(k * 10_000_000), "end_ns": int(k * 10_000_000 + 4_000_000)} for k in starts
    ]
    anchor = {"monotonic_ns": 0, "unix_ns": int(UNIX * 1e9)}
    table.attrs["metadata"] = {"regions": regions, "anchors": {"start": anchor, "end": None}}
    (ax,) = _figure({"run.csv": table}, overlay=False, channels=["total"]).axes
    assert len(ax.get_children()) < 50
    shades = [c for c in ax.collections if isinstance(c, PolyCollection) and c.get_zorder() == 0]
    (shade,) = shades
    extents = np.array([np.asarray(path.vertices)[[0, 2], 0] for path in shade.get_paths()])
    lefts, rights = extents.min(axis=1), extents.max(axis=1)
    assert np.isclose(lefts[1:, None], starts * 0.01).any(axis=0).all()
    np.testing.assert_allclose(rights[1:] - lefts[1:], 0.004, atol=1e-6)


def test_lines_differ_in_style_and_not_only_in_colour() -> None:
    figure = _figure({"run.csv": _table()}, overlay=False, channels=None)
    lines = figure.axes[0].lines[:3]
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 3  # type: ignore[attr-defined]


def test_no_line_crosses_what_was_lost() -> None:
    table = _table(100)
    table.loc[75:, ["time", "elapsed"]] += 5.0
    line = _figure({"a": table}, overlay=False, channels=["total"]).axes[0].lines[0]
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    assert np.isnan(y[(x > table["elapsed"][74]) & (x < table["elapsed"][75])]).all()
    assert np.isnan(y).sum() == 1


def test_a_long_recording_is_interrupted_where_its_samples_have_no_value(tmp_path: Path) -> None:
    pytest.importorskip("pyjls")
    t = np.arange(60_001) / 1000.0
    out = (t > 20.0) & (t < 25.0)
    joules = np.append(0.0, np.cumsum(np.where(out[1:] | out[:-1], 0.0, 0.08)))
    rows = {"time": UNIX + t, "elapsed": t, "marker": "", "lost": 0, "total_W": np.where(out, np.nan, 80.0)}
    pd.DataFrame(rows | {"total_J": joules}).to_csv(tmp_path / "a.csv", index=False)
    convert(tmp_path / "a.csv", tmp_path / "a.jls")
    (line,) = _figure({"a": of_file(tmp_path / "a.jls")}, overlay=False, channels=None).axes[0].lines
    x, y = (np.asarray(values, float) for values in line.get_data())
    assert np.isnan(y[(x > 20.1) & (x < 24.9)]).any()
    assert np.isfinite(y).sum() > 1000


@pytest.mark.parametrize("hole", ["rows without a value", "no rows", "a table in memory"])
def test_no_line_crosses_what_is_not_known_and_no_mean_counts_it(tmp_path: Path, hole: str) -> None:
    out, rows = range(401, 600), [(k, f"{UNIX + k / 100:.6f},{k / 100:.6f},,0") for k in range(1001)]
    lines = [f"{row},{'' if k in out else 10.0}" for k, row in rows if hole != "no rows" or k not in out]
    path = tmp_path / "hole.csv"
    path.write_text("\n".join(["time,elapsed,marker,lost,total_W", *lines]) + "\n", encoding="utf-8")
    figure = _figure({"hole": load(path) if "table" in hole else of_file(path)}, overlay=False, channels=None)
    x, y = (np.asarray(values, float) for values in figure.axes[0].lines[0].get_data())
    assert np.isnan(y[(x > 4.0) & (x < 6.0)]).any()
    assert np.isfinite(y).sum() > 700
    assert "80 J in 10 s, 2 s of them not covered" in _texts(figure)


def test_recordings_that_overlap_share_a_clock_and_others_start_at_zero() -> None:
    together = _figure({"a": _table(), "b": _table(start=UNIX + 5)}, overlay=False, channels=None)
    assert together.axes[0].get_xlim()[1] == pytest.approx(15, abs=0.2)
    assert together.axes[1].get_xlim() == together.axes[0].get_xlim()
    apart = _figure({"a": _table(), "b": _table(start=UNIX + 500)}, overlay=False, channels=None)
    assert apart.axes[1].get_xlim()[1] == pytest.approx(10, abs=0.2)
    relative = _figure({"a": _table(time=np.nan)}, overlay=False, channels=None)
    assert "time since the first row" in _texts(relative)


def test_a_table_without_power_lends_its_marks() -> None:
    stamps = _table(100, total_W=np.nan, total_J=np.nan)
    stamps["marker"] = ""
    stamps.loc[[10, 20, 99], "marker"] = ["kernel on", "kernel off", "finished"]
    figure = _figure({"run": _table(), "stamps": stamps}, overlay=False, channels=None)
    assert len(figure.axes) == 1
    assert "kernel" in _texts(figure)
    assert "finished" in _texts(figure)


def test_a_total_that_is_one_of_the_channels_is_drawn_once() -> None:
    table = _table()
    table.attrs["total"] = "rail1"
    figure = _figure({"a": table}, overlay=False, channels=None)
    assert [line.get_label() for line in figure.axes[0].lines][:2] == ["rail1 (total)", "rail0"]


def _label(figure: Figure, text: str) -> Annotation:
    return next(t for t in figure.axes[0].texts if isinstance(t, Annotation) and t.get_text() == text)


def test_a_name_stands_where_its_curve_ends() -> None:
    table = _table()
    table.loc[990:, ["total_W", "rail0_W", "rail1_W"]] = [90.0, 30.0, 60.0]  # an edge, a hundredth before the end
    figure = _figure({"a": table}, overlay=False, channels=None)
    low, high = figure.axes[0].get_ylim()
    for name, watts in (("total", 90.0), ("rail0", 30.0), ("rail1", 60.0)):
        assert _label(figure, name).xy[1] == pytest.approx((watts - low) / (high - low), abs=0.01)
    figure = _figure({"long": _table(), "short": _table(100).query("elapsed < 4.5")}, overlay=True, channels=None)
    assert _label(figure, "short").xy == pytest.approx((4.44, 30.0), abs=0.1)
    assert _label(figure, "long").xy[0] == 1.0


def test_a_channel_has_its_colour_whatever_it_draws() -> None:
    table = _table()
    colours = []
    for _ in range(2):
        lines = _figure({"a": table}, overlay=False, channels=None).axes[0].lines
        colours.append({str(line.get_label()): line.get_color() for line in lines if "rail" in str(line.get_label())})
        table[["rail0_W", "rail1_W"]] = table[["rail1_W", "rail0_W"]].to_numpy()
    assert colours[0] == colours[1]


def test_millions_of_rows_become_few_points_and_keep_their_spikes() -> None:
    watts = np.full(3_000_000, 50.0)
    watts[1_234_567] = 400.0
    n = len(watts)
    table = pd.DataFrame(
        {"time": UNIX + np.arange(n) * 5e-5, "elapsed": np.arange(n) * 5e-5, "marker": "", "lost": 0}
        | {"total_W": watts, "total_J": 0.0}
    )
    figure = _figure({"long": table}, overlay=False, channels=None)
    ax = figure.axes[0]
    assert len(ax.lines[0].get_xdata()) <= 2000  # type: ignore[arg-type]
    assert ax.dataLim.y1 == 400.0


@pytest.mark.parametrize("n", [1, 2])
def test_very_short_recordings_are_drawn(tmp_path: Path, n: int) -> None:
    table = pd.DataFrame(
        {
            "time": UNIX + np.arange(n),
            "elapsed": np.arange(n) * 1.0,
            "marker": "",
            "lost": 0,
            "total_W": 5.0,
            "total_J": 0.0,
        }
    )
    plot({"short": table}, tmp_path / "a.png")


def test_values_without_any_beside_them_are_dots() -> None:
    assert _alone(np.array([5.0])).tolist() == [True]
    assert _alone(np.array([1.0, 2.0, np.nan, 3.0, np.nan, np.nan, 4.0])).tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert not _alone(np.array([])).any()


def test_what_cannot_be_drawn_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError, match=r"\.png, \.svg, \.pdf"):
        plot({"a": _table()}, tmp_path / "a.gif")
    with pytest.raises(TargetError, match="no power called rail9"):
        plot({"a": _table()}, tmp_path / "a.png", channels=["rail9"])
    with pytest.raises(TargetError, match="no power over time in a"):
        plot({"a": _table(total_W=np.nan)}, tmp_path / "a.png")
    with pytest.raises(SinkError, match="cannot write"):
        plot({"a": _table()}, tmp_path / "none" / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendUnavailableError, match=r"pmtpy\[plot\]"):
        plot({"a": _table()}, tmp_path / "a.png")


def test_the_command_draws_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.pmt"
    log.write_text('timestamp a\n0.1 1\n0.2 2\nM 0.2 "x"\n0.3 broken\n0.4 1\n')
    out = tmp_path / "log.png"
    assert main(["plot", str(log), "-o", str(out)]) == 1
    assert "line 5" in capsys.readouterr().err
    assert main(["plot", str(log), "--skip-broken", "-o", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == str(out)
    assert "1 line left out, the first is line 5" in captured.err
    assert out.stat().st_size > 0
    assert main(["plot", str(tmp_path / "none.csv")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["plot", "rapl:virtual"]) == 2
    assert "pmtpy view rapl:virtual shows a sensor" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["png", "html"])
def test_a_name_that_is_no_utf_8_is_drawn_as_its_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"b\xe4d.csv")
    Path(name).write_text(
        "time,elapsed,marker,lost,total_W,total_J\n" + "".join(f"{k},{k},,0,5,{5 * k}\n" for k in range(9))
    )
    assert main(["plot", name, "-o", f"x.{suffix}"]) == 0
    assert capsys.readouterr().out == f"x.{suffix}\n"
    if suffix == "html":
        assert "b\\\\xe4d.csv" in Path("x.html").read_text(encoding="utf-8")


def test_dollar_signs_are_dollar_signs_and_no_formula(tmp_path: Path) -> None:
    marker = np.full(1000, "", object)
    marker[[250, 500, 700]] = ["$^$ start", "$^$ end", r"$\frac{$"]  # formulas that matplotlib refuses to draw
    with rc_context({"svg.fonttype": "none"}):  # its letters, not their outlines
        plot({"cost $5 and $6": _table(marker=marker)}, tmp_path / "out.svg")
    assert ">cost $5 and $6</text>" in (tmp_path / "out.svg").read_text(encoding="utf-8")


def test_names_stand_at_the_ends_of_their_curves_and_do_not_overprint() -> None:
    table = _table()
    table["rail1_W"] = table["rail0_W"] + 0.1  # two curves that end at one height
    figure = _figure({"run.csv": table}, overlay=False, channels=["rail0", "rail1", "total"], theme=DARK)
    ends = {t.get_text(): t.xy[1] for t in figure.axes[0].texts if isinstance(t, Annotation) and t.xy[0] == 1.0}
    assert set(ends) == {"rail0", "rail1", "total", "3 samples lost"}
    places = sorted(ends.values())
    assert min(np.diff(places)) > 0.03
    assert ends["rail1"] > ends["rail0"]
    assert figure.axes[0].get_facecolor()[:3] == pytest.approx(to_rgb(DARK.ground))


@pytest.mark.parametrize(
    ("names", "share"), [(("rail0", "board"), np.hypot(0.1, 0.1 / 3)), (("rail0", "rail1"), 0.1 + 0.1 / 3)]
)
def test_the_band_of_a_total_is_what_its_parts_make(names: tuple[str, str], share: float) -> None:
    """A third of the power is known to 30 %, two thirds to 5 %: the sum to 10.5 %, or to 13.3 % if both err alike."""
    table = _table(50).rename(columns={f"rail1_{unit}": f"{names[1]}_{unit}" for unit in ("W", "J")})
    table["lost"] = 0
    said = {"offset_u": 0.0, "rule": "counter", "in_total": True}
    parts = [{"name": names[0], "gain_u": 0.3, **said}, {"name": names[1], "gain_u": 0.05, **said}]
    table.attrs["metadata"] = {"channels": parts}
    axes = _figure({"run.csv": table}, overlay=False, channels=["total"]).axes[0]
    (band,) = [c for c in axes.collections if isinstance(c, PolyCollection) and c.get_zorder() > 0]
    top = np.asarray(band.get_paths()[0].vertices)[:, 1].max()
    assert top == pytest.approx(90.0 * (1 + 2 * share), rel=1e-6)


def test_an_uncertainty_that_can_be_seen_is_a_band_and_a_counter_is_steps() -> None:
    table = _table(50)
    table["lost"] = 0
    said = {"gain_u": 0.05, "offset_u": 0.0, "rule": "counter", "in_total": True}
    table.attrs["metadata"] = {"channels": [{"name": "rail0", **said}, {"name": "rail1"}]}
    axes = _figure({"run.csv": table}, overlay=False, channels=["rail0", "rail1"]).axes[0]
    assert axes.get_title(loc="right") == "pale band: 95 %, by gain and zero"
    assert [line.get_drawstyle() for line in axes.lines[:2]] == ["steps-pre", "default"]
    (band,) = [c for c in axes.collections if isinstance(c, PolyCollection) and c.get_zorder() > 0]
    highest = max(float(np.max(np.asarray(path.vertices)[:, 1])) for path in band.get_paths())
    assert highest == pytest.approx(1.1 * float(table["rail0_W"].max()))


@pytest.mark.parametrize("overlay", [False, True])
def test_what_bands_are_does_not_overprint_a_long_title(*, overlay: bool) -> None:
    table = _table(50)
    said = {"gain_u": 0.05, "offset_u": 0.0, "rule": "counter", "in_total": True}
    table.attrs["metadata"] = {"channels": [{"name": "rail0", **said}, {"name": "rail1", **said}]}
    table.attrs["notes"] = [
        f"{1 + i}: {'no energy is known for a while, and the joules do not contain it ' * 2}" for i in (0, 1)
    ]
    figure = _figure({"run.csv": table, "b.csv": table}, overlay=overlay, channels=None)
    figure.draw_without_rendering()
    for axes in figure.axes:
        left, right = axes._left_title, axes._right_title  # type: ignore[attr-defined]
        beside = figure.text(0.0, 0.0, left.get_text().split("\n")[-1], fontsize=left.get_fontsize())
        ends = left.get_window_extent().x0 + beside.get_window_extent().width
        assert right.get_text() == "pale band: 95 %, by gain and zero"
        assert ends < right.get_window_extent().x0
