"""What a notebook shows of recordings and sensors; names are foreign text."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pmtpy as pmt
from pmtpy.analysis import compare
from pmtpy.analysis.comparison.results import Trace
from pmtpy.core.clock import HOST_CLOCK, Anchor
from pmtpy.core.markers import Span
from pmtpy.emulators.world import make_world
from pmtpy.live.notebook import follow, recording_html
from pmtpy.sensor.sensor import Sensor
from tests.support.worlds import Counter

pytest.importorskip("IPython")
FOREIGN = "<script>alert(1)</script>"


def test_a_recording_shows_its_curve_its_notes_and_its_rows(tmp_path: Path) -> None:
    t = np.arange(100) / 10
    path = tmp_path / "run.csv"
    rows = {"time": 1.7e9 + t, "elapsed": t, "marker": "", "lost": 0, "total_W": 50.0, "total_J": 50 * t}
    pd.DataFrame(rows).to_csv(path, index=False)
    table = pmt.load(path)
    table.attrs["path"] = FOREIGN
    table.attrs["notes"] = [FOREIGN]
    shown = recording_html(table)
    assert shown.count("data:image/png;base64,") == 1
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "total_W" in shown
    other = pd.DataFrame({"a": [1]})
    assert recording_html(other) == other._repr_html_()


def test_the_extension_teaches_a_notebook_to_show_recordings() -> None:
    from IPython.core.formatters import HTMLFormatter

    from pmtpy.integrations.ipython import show_recordings

    formatter: Any = HTMLFormatter()
    show_recordings(formatter)
    table = pd.DataFrame({"a": [1]})
    assert formatter(table) == table._repr_html_()


class _Steps:
    """A clock by which each look takes 0.4 s, however long a picture takes to be drawn."""

    def __init__(self) -> None:
        self._looks = 0

    def now_ns(self) -> int:
        self._looks += 1
        return self._looks * 400_000_000

    def wait_until(self, _t_ns: int, wake: threading.Event) -> bool:
        return HOST_CLOCK.wait_until(HOST_CLOCK.now_ns() + 10_000_000, wake)

    def anchor(self) -> Anchor:
        return HOST_CLOCK.anchor()


def test_a_figure_follows_a_sensor(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, content: Any) -> None:
            shown.append(content.data)

    def display(content: Any, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(content.data)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    with Sensor(Counter(make_world("constant:90", clock=HOST_CLOCK)), FOREIGN, HOST_CLOCK) as sensor:
        follow(sensor, 3.0, window_s=5.0, clock=_Steps())
    assert len(shown) >= 4
    assert all("data:image/png;base64," in each and "<script>" not in each for each in shown)


def test_a_comparison_shows_itself_with_foreign_text_escaped() -> None:
    t = np.arange(0, 8.0, 0.01)
    rng = np.random.default_rng(3)
    power = np.repeat(rng.uniform(50, 150, 40), 20)
    joules = np.concatenate([[0.0], np.cumsum(np.diff(t) * power[1:])])
    names = ("meter", FOREIGN)
    traces = [
        Trace(n, t, power * g, joules=joules * g, regions=(Span(2.0, 6.0, FOREIGN),))
        for n, g in zip(names, (1.0, 1.1), strict=True)
    ]
    found = compare(traces, reference="meter", one_clock=True)
    shown = found._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.count("<table>") == 3  # sensors, and two regions
    assert "against <b>meter</b>, on one clock" in shown
