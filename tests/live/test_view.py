"""The page in a real Chromium: what is selected there is the truth of the virtual world."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pmtpy as pmt

for _module in ("bokeh", "playwright"):
    pytest.importorskip(_module, reason=f"needs {_module}: pip install 'pmtpy[live]' playwright")

from playwright.sync_api import Page, expect  # noqa: E402  (only where it is)

from tests.support import browser  # noqa: E402
from tests.support.browser import PATIENCE_MS, opened  # noqa: E402

pytestmark = pytest.mark.slow


@contextmanager
def _served(*things: str) -> Iterator[str]:
    """Run the verb; give its address."""
    words = [sys.executable, "-m", "pmtpy", "view", "--no-browser", *things]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.send_signal(signal.SIGTERM)
            _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium() as found:
        yield found


def _select(page: Page, start: float, stop: float) -> dict[str, list[str]]:
    """Type two instants; return the cells of the table by the name of their power."""
    for title, value in (("cursor A (s)", start), ("cursor B (s)", stop)):
        page.get_by_label(title).fill(str(value))
        page.keyboard.press("Enter")
    expect(page.get_by_text(f"{stop - start:g} s", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    rows = [row.split("\t") for row in page.locator("table").inner_text().splitlines()[1:]]
    return {row[0].strip(): row[1:] for row in rows if row[0].strip()}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One run of a virtual board as JLS, and the same as CSV."""
    pytest.importorskip("pyjls")
    folder: Path = tmp_path_factory.mktemp("view")
    first, second = folder / "<b>run.jls", folder / "<b>run.csv"
    load = "load=square:low=30,high=90,hz=2"
    for words in (
        ["dump", "powersensor3:virtual", "-o", load, "--duration", "3s", "-f", str(first)],
        ["convert", str(first), str(second)],
    ):
        subprocess.run([sys.executable, "-m", "pmtpy", *words], check=True, capture_output=True, timeout=120)
    return [first, second]


@pytest.fixture(scope="module")
def address(recordings: list[Path]) -> Iterator[str]:
    """Address of a server that shows both."""
    with _served(*map(str, recordings), "--theme", "dark") as url:
        yield url


def test_recordings_are_selected_zoomed_and_exported(
    chromium: Any, recordings: list[Path], address: str, tmp_path: Path
) -> None:
    whole = pmt.load(recordings[0])
    with opened(chromium, address) as page:
        cells = _select(page, 0.25, 1.25)
        inside = whole[(whole["elapsed"] >= 0.25) & (whole["elapsed"] <= 1.25)]
        truth = float(np.diff(np.interp([0.25, 1.25], whole["elapsed"], whole["total_J"]))[0])
        totals = [v for k, v in cells.items() if k.endswith("total")]
        assert len(totals) == 2
        for total in totals:
            assert float(total[0]) == pytest.approx(truth, abs=0.01)
            assert float(total[1]) > 0
            assert total[5].startswith("100")
        assert "<b>run" in page.locator("table").inner_text()  # foreign text is text
        for number, kind in ((0, "jls"), (1, "csv")):
            with page.expect_download() as download:
                page.get_by_role("link", name=kind, exact=True).nth(number).click()
            named = download.value.suggested_filename
            assert named == f"selection-virtual.{'zip' if kind == 'csv' else kind}"
            saved = tmp_path / named
            download.value.save_as(saved)
            if kind == "csv":  # with its metadata, which are a file of their own
                shutil.unpack_archive(saved, tmp_path)
            part = pmt.load(tmp_path / f"selection-virtual.{kind}")
            assert part.attrs["virtual"] is True
            assert len(part) == pytest.approx(len(inside), abs=3)
            assert part["total_W"].mean() == pytest.approx(inside["total_W"].mean(), rel=1e-3)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 22)"
        box = page.locator("canvas").nth(2).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.wheel(0, -500)
        page.get_by_role("button", name="select visible").click()
        expect(page.get_by_text("1 s", exact=True)).not_to_be_visible(timeout=PATIENCE_MS)
        page.get_by_role("button", name="show all").click()
        page.get_by_role("button", name="select visible").click()
        took = re.compile(r"2\.9|3\.\d")  # seconds; a busy machine takes longer than it is asked to
        expect(page.get_by_text(took).first).to_be_visible(timeout=PATIENCE_MS)


def _cursor(page: Page) -> float:
    return float(page.get_by_label("cursor A (s)").input_value().replace(",", "") or "nan")


def _next_event(page: Page, before: float) -> float:
    """Wait until cursor A, which a trigger sets, is elsewhere."""
    at = page.get_by_label("cursor A (s)")
    for _ in range(600):
        if at.input_value() and _cursor(page) != before:
            return _cursor(page)
        page.wait_for_timeout(100)
    pytest.fail("the trigger showed nothing for a minute")


def test_a_sensor_is_followed_triggered_and_marked_by_two_viewers_of_which_one_stalls(
    chromium: Any, tmp_path: Path
) -> None:
    load = "load=square:low=30,high=90,hz=1"
    with _served("powersensor3:virtual", "-o", load) as url, opened(chromium, url) as page:
        with opened(chromium, url) as other:
            other.wait_for_timeout(3000)  # the sensor was there before the page: it reaches over what is selected
            cells = _select(other, 0.5, 2.5)
            total = next(v for k, v in cells.items() if k.endswith("total"))
            assert float(total[0]) == pytest.approx(120.0, abs=0.6)  # two periods of 60 W, by a noisy board
            other.evaluate("setTimeout(() => { const t = Date.now(); while (Date.now() - t < 3000); }, 0)")
            page.get_by_label("level (W)").fill("60")
            page.keyboard.press("Enter")
            page.get_by_label("and then").select_option("again")
            page.get_by_label("trigger").select_option("rising")
            first = _next_event(page, before=float("nan"))
            second = _next_event(page, before=first)
            assert (second - first) == pytest.approx(round(second - first), abs=0.01)  # whole periods
            expect(page.get_by_text("0.45 s", exact=True)).to_be_visible(timeout=PATIENCE_MS)  # 0.5 s, 0.05 s before
            page.get_by_label("trigger").select_option("off")
            other.get_by_role("button", name="follow newest").click()  # the one that stalled is there again
        page.get_by_placeholder("label of a mark").fill("<i>here</i>")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="mark now").click()
        page.get_by_role("button", name="follow newest").click()
        page.get_by_role("button", name="select visible").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="parquet").click()
        saved = tmp_path / "part.parquet"
        download.value.save_as(saved)
        part = pmt.load(saved)
        assert part["total_W"].between(20.0, 100.0).all()
        assert part["total_J"].iloc[-1] > 0
        assert part.attrs["virtual"] is True


def _status(port: int, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders())
    connection.close()
    return found


def test_nobody_else_is_let_in(address: str) -> None:
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/\?token=\S+)", address)
    assert match is not None
    port = int(match[1])
    status, headers = _status(port, match[2])
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"].partition(";")[0]
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}  # fmt: skip
    assert _status(port, "/")[0] == 403
    assert _status(port, "/export?track=0&from=0&to=1&as=csv")[0] == 403
    assert _status(port, "/", Cookie=cookie, Host="evil.example")[0] == 421
    assert _status(port, "/ws", Cookie=cookie, Origin="http://evil.example", **upgrade)[0] == 403
    assert _status(port, "/ws", **upgrade)[0] == 403
    status, headers = _status(port, "/static/js/bokeh.min.js", Cookie=cookie)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert _status(port, "/export?track=9&from=0&to=1&as=csv", Cookie=cookie)[0] == 400
    assert _status(port, "/export?track=0&from=0&to=nan&as=csv", Cookie=cookie)[0] == 400
