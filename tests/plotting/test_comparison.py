"""The picture of a comparison: its panels show what they are called after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pmtpy.analysis import Trace, compare
from pmtpy.core.markers import Span
from pmtpy.plotting import comparison


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Figure:
    """Small steps at 2 and 4 s, the greatest rise at 6.3 s, the greatest fall at 9.1 s."""
    t, grid = np.arange(0.0, 12.0, 1e-3), np.array([0.0, 2.0, 4.0, 6.3, 9.1])
    levels = np.array([60.0, 90.0, 70.0, 250.0, 80.0])
    rng = np.random.default_rng(2)
    fast = levels[np.searchsorted(grid, t, side="right") - 1]
    slow_t = np.arange(0.1, 12.0, 0.1)
    shown = 0.95 * np.array([fast[(t > at - 0.1) & (t <= at)].mean() for at in slow_t])
    polls = np.sort(rng.uniform(0.1, 11.9, 1200))
    held = shown[np.searchsorted(slow_t, polls, side="right") - 1]
    traces = [Trace("meter", t, fast + rng.normal(0.0, 0.5, len(t))), Trace("gpu", polls, held)]
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    comparison.draw(compare(traces, one_clock=True), traces, tmp_path / "both.png")
    return figures[0]


def test_panels_show_the_greatest_rise_and_fall_and_are_framed_in_the_whole(drawn: Figure) -> None:
    for word, at in (("rises", 6.3), ("falls", 9.1)):
        (ax,) = [ax for ax in drawn.axes if f"where power {word} most" in ax.get_title(loc="left")]
        low, high = ax.get_xlim()
        assert low < at < high
        assert high - low < 5.0
    whole = drawn.axes[0]
    (low, high), (begin, end) = whole.get_ylim(), whole.get_xlim()
    frames = [p for p in whole.patches if isinstance(p, Rectangle) and not p.get_fill()]
    assert len(frames) == 2
    for frame in frames:
        box = frame.get_bbox()
        assert begin <= box.x0 < box.x1 <= end
        assert low < box.y0 < box.y1 < high


def test_letters_of_panels_and_names_of_regions_do_not_overprint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    t, name = np.arange(0.0, 12.0, 1e-2), "a name that reaches over the flanks, " * 3
    watts = np.where((t > 5.5) & (t < 8.0), 200.0, 60.0)
    traces = [Trace("meter", t, watts), Trace("gpu", t, 0.95 * watts)]
    found = compare(traces, one_clock=True, regions=[Span(1.0, 11.0, name)])
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    comparison.draw(found, traces, tmp_path / "both.png")
    figures[0].draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in figures[0].axes[0].texts}
    assert {"A", "B", name} <= boxes.keys()
    for letter in "AB":
        assert not boxes[letter].overlaps(boxes[name])


def test_every_curve_is_named_with_a_leading_underscore_too_and_says_whether_it_is_virtual(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    t = np.arange(0.0, 12.0, 1e-2)
    watts = np.where((t > 5.5) & (t < 8.0), 200.0, 60.0)
    traces = [Trace("_meter.csv", t, watts, virtual=True), Trace("gpu.csv", t, 0.95 * watts)]
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    comparison.draw(compare(traces, one_clock=True, reference="_meter.csv"), traces, tmp_path / "both.png")
    first, second = (text.get_text() for text in figures[0].legends[0].get_texts())
    assert first == "_meter.csv [VIRTUAL] (reference)"
    assert second.startswith("gpu.csv: ")


def test_a_name_with_dollar_signs_is_no_formula(tmp_path: Path) -> None:
    t = np.arange(0.0, 12.0, 1e-2)
    watts = np.where((t > 5.5) & (t < 8.0), 200.0, 60.0)
    traces = [Trace(r"$\frac{$", t, watts), Trace("$5 and $6", t, 0.95 * watts)]
    comparison.draw(compare(traces, one_clock=True, reference=r"$\frac{$"), traces, tmp_path / "both.png")
    assert (tmp_path / "both.png").stat().st_size > 0


def test_no_name_in_the_whole_stands_on_a_curve(drawn: Figure) -> None:
    drawn.draw_without_rendering()
    whole = drawn.axes[0]
    highest = max(float(np.nanmax(np.asarray(line.get_ydata()))) for line in whole.get_lines())
    top = whole.transData.transform((0.0, highest))[1]
    assert {text.get_text() for text in whole.texts} >= {"A", "B"}
    assert all(text.get_window_extent().y0 > top for text in whole.texts)


def test_no_line_crosses_the_time_in_which_no_reading_came(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    t = np.arange(0.0, 12.0, 1e-2)
    watts = np.where((t > 5.5) & (t < 8.0), 200.0, 60.0)
    seen = (t < 5.0) | (t > 8.5)  # what it did in between nobody knows
    traces = [Trace("meter", t, watts), Trace("gpu", t[seen], 0.95 * watts[seen])]
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    comparison.draw(compare(traces, one_clock=True, reference="meter"), traces, tmp_path / "both.png")
    meter, gpu = figures[0].axes[0].get_lines()
    assert np.isfinite(np.asarray(meter.get_ydata())).all()
    (hole,) = np.flatnonzero(np.isnan(np.asarray(gpu.get_ydata())))
    assert 4.99 <= np.asarray(gpu.get_xdata())[hole] < 5.1
