"""The page that needs no server: what it holds, and that it opens, sums and hides nothing in a real Chromium."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("bokeh", reason="needs bokeh: pip install 'pmtpy[live]'")

from pmtpy.cli import main
from pmtpy.errors import BackendUnavailableError, SinkError, TargetError
from pmtpy.plotting.interactive import page, write_html
from tests.support.browser import PATIENCE_MS, chromium, opened

UNIX = 1_700_000_000.0
FOREIGN = "<img src=x onerror=alert(1)>"


def _table(n: int, hz: float, start: float = UNIX) -> pd.DataFrame:
    t = np.arange(n) / hz
    watts = np.where(t % 2 < 1, 30.0, 90.0)
    joules = np.concatenate([[0.0], np.cumsum(np.diff(t) * (watts[1:] + watts[:-1]) / 2)])
    lost = np.zeros(n, np.int64)
    lost[n // 2] = 7
    marker = np.full(n, "", object)
    marker[[n // 4, n // 3, n - 5]] = ["solve start", "solve end", FOREIGN]
    table: pd.DataFrame = pd.DataFrame(
        {"time": start + t, "elapsed": t, "marker": marker, "lost": lost, "total_W": watts, "total_J": joules}
        | {f"{FOREIGN}_W": watts / 3, f"{FOREIGN}_J": joules / 3, "rail_V": 12.0, "rail_A": watts / 18}
        | {"rail_W": watts / 1.5, "rail_J": joules / 1.5}
    )
    table.attrs = {"path": "x", "virtual": True, "complete": True, "metadata": None, "notes": [FOREIGN]}
    return table


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, pd.DataFrame]]]:
    """The page of a long and a short recording, open."""
    tables = {f"{FOREIGN}.csv": _table(50_000, 5000.0), "short.csv": _table(500, 100.0, UNIX + 1)}
    path = tmp_path_factory.mktemp("page") / "run.html"
    write_html(tables, path)
    with chromium() as browser, opened(browser, path.as_uri()) as open_page:
        yield open_page, tables


def _sums(open_page: Any, number: int) -> list[float]:
    cells = open_page.locator(".slick-row").nth(number).inner_text().split("\n")
    return [float(c) for c in cells[1:]]


def test_it_opens_without_a_server_and_sums_what_is_chosen(shown: tuple[Any, dict[str, pd.DataFrame]]) -> None:
    open_page, tables = shown
    long, short = tables.values()
    for number, table in enumerate((long, short)):
        seconds, total, *others, low, high = _sums(open_page, number)
        assert seconds == pytest.approx(table["elapsed"].iloc[-1], abs=1e-6)
        assert total == pytest.approx(table["total_J"].iloc[-1], abs=1e-3)
        assert others == pytest.approx([total / 3, total / 1.5, 7], abs=1e-3)
        assert (low, high) == (30.0, 90.0)
    for said in ("50,000 rows are drawn as", "Every row is drawn", "[VIRTUAL]"):
        assert open_page.get_by_text(said).count() >= 1
    assert "(img src=x onerror=alert(1)) J" in open_page.locator(".slick-header").first.inner_text()
    box = open_page.locator("canvas").first.bounding_box()
    x, y = box["x"] + 300, box["y"] + 150
    open_page.mouse.move(x, y)
    open_page.mouse.down()
    open_page.mouse.move(x + 250, y + 5, steps=3)
    open_page.mouse.up()
    whole = f"{long['elapsed'].iloc[-1]:.6f}"
    row = open_page.locator(".slick-row").first
    row.filter(has_not_text=whole).wait_for(timeout=PATIENCE_MS)
    # Read once: the sums follow the mouse, and a second reading may be of a longer part.
    seconds, total, _, rail, *_ = _sums(open_page, 0)
    assert 1.0 < seconds < 5.0
    assert 30 * seconds <= total <= 90 * seconds
    assert total == pytest.approx(rail * 1.5, abs=1e-3)


def test_foreign_text_stays_text(shown: tuple[Any, dict[str, pd.DataFrame]]) -> None:
    open_page, _ = shown
    assert open_page.locator("img[src=x]").count() == 0
    assert "</script></title>" not in page({f"{FOREIGN}</script>": _table(100, 10.0)})


def test_all_of_many_regions_are_shaded_and_that_they_have_no_names_is_said() -> None:
    table = _table(2000, 10.0)
    table["marker"] = np.where(np.arange(2000) % 2 == 0, "solve start", "solve end")
    text = page({"run.csv": table})
    assert text.count('"solve"') == 3 * 1000  # in the figures of power, volts and amperes
    assert "Without their names, which are too many: 1,000 regions" in text
    assert "Without their names" not in page({"run.csv": _table(2000, 10.0)})


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = page({"run.csv": _table(100, 10.0)})
    assert re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=.http[^>]*>", text) == []


def test_single_samples_are_drawn_of_a_recording_of_ordinary_length_and_of_a_part_of_a_long_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = _table(90_000, 1000.0)[["time", "elapsed", "marker", "lost", "total_W", "total_J"]]
    run, out = tmp_path / "run.csv", tmp_path / "run.html"
    table.iloc[:60_000].to_csv(run, index=False)
    assert main(["plot", str(run), "-o", str(out)]) == 0
    assert "Every row is drawn" in out.read_text(encoding="utf-8")
    table.to_csv(run, index=False)
    assert main(["plot", str(run), "-o", str(out)]) == 0
    said = out.read_text(encoding="utf-8")
    assert "90,000 rows are drawn as" in said
    assert "--from TIME" in said
    assert main(["plot", str(run), "-o", str(out), "--from", "70s", "--to", "1m15s"]) == 0
    said = out.read_text(encoding="utf-8")
    assert "Every row is drawn" in said
    assert "a part: from 70 s to 75 s" in said
    assert main(["plot", str(run), "-o", str(out), "--from", "2h"]) == 2
    assert "no power over time" in capsys.readouterr().err


def test_the_verb_writes_it_and_says_what_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = tmp_path / "run.csv", tmp_path / "run.html"
    _table(200, 10.0).to_csv(run, index=False)
    assert main(["plot", str(run), "-o", str(out), "--theme", "dark"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert "#131416" in out.read_text(encoding="utf-8")
    assert main(["plot", str(run), "-o", str(out), "--overlay"]) == 2
    assert "leave --overlay out" in capsys.readouterr().err
    with pytest.raises(TargetError, match="no power called rail9"):
        write_html({"a": _table(10, 10.0)}, out, channels=["rail9"])
    with pytest.raises(TargetError, match="no power over time in a"):
        write_html({"a": _table(10, 10.0).assign(total_W=np.nan)}, out)
    with pytest.raises(SinkError, match="cannot write"):
        write_html({"a": _table(10, 10.0)}, tmp_path / "none" / "a.html")
    monkeypatch.setitem(sys.modules, "bokeh.embed", None)
    with pytest.raises(BackendUnavailableError, match=r"pmtpy\[live\]"):
        write_html({"a": _table(10, 10.0)}, out)


def test_small_powers_have_digits_that_matter() -> None:
    table = _table(100, 10.0)[["time", "elapsed", "marker", "lost"]]
    table = table.assign(total_W=0.0042, total_J=0.0042 * table["elapsed"])
    table.attrs = {"path": "x"}
    text = page({"run.csv": table})
    assert "@{total_W}{0.0000000} W" in text
    assert '"format":"0.0000000"' in text.replace(": ", ":")
    assert "@{total_W}{0.000} W" in page({"run.csv": _table(100, 10.0)})
