"""The page in a real Chromium: what is selected there is the truth of the virtual world."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pmtpy as pmt

for _module in ("bokeh", "playwright"):
    pytest.importorskip(_module, reason=f"needs {_module}: pip install 'pmtpy[live]' playwright")

from playwright.sync_api import Page, expect, sync_playwright  # noqa: E402  (only where it is)

_BROWSERS = (
    Path("/usr/lib/chromium/chromium-headless-shell"),
    Path("/usr/bin/chromium-headless-shell"),
    Path("/usr/bin/chromium"),
)
_PATIENCE_MS = 120_000

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
    found = next((path for path in _BROWSERS if path.exists()), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def _opened(chromium: Any, url: str) -> Iterator[Page]:
    """Open the page, and see that its console stays empty of faults."""
    page = chromium.new_page(viewport={"width": 1100, "height": 800})
    page.set_default_timeout(_PATIENCE_MS)
    faults: list[str] = []
    page.on("console", lambda m: faults.append(m.text) if m.type in {"error", "warning"} else None)
    page.on("pageerror", lambda e: faults.append(str(e)))
    page.goto(url)
    page.wait_for_selector("canvas")
    yield page
    page.close()
    assert faults == []


def _select(page: Page, start: float, stop: float) -> dict[str, list[str]]:
    """Type two instants; return the cells of the table by the name of their power."""
    for title, value in (("cursor A (s)", start), ("cursor B (s)", stop)):
        page.get_by_label(title).fill(str(value))
        page.keyboard.press("Enter")
    expect(page.get_by_text(f"{stop - start:g} s", exact=True)).to_be_visible(timeout=_PATIENCE_MS)
    rows = [row.split("\t") for row in page.locator("table").inner_text().splitlines()[1:]]
    return {row[0].strip(): row[1:] for row in rows if row[0].strip()}


@pytest.fixture(scope="module", params=["csv", "jls"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "jls":
        pytest.importorskip("pyjls")
    path: Path = tmp_path_factory.mktemp("view") / f"<b>run.{request.param}"
    words = [
        "dump",
        "powersensor3:virtual",
        "-o",
        "load=square:low=30,high=90,hz=2",
        "--duration",
        "3s",
        "-f",
        str(path),
    ]
    subprocess.run([sys.executable, "-m", "pmtpy", *words], check=True, capture_output=True, timeout=120)
    return path


def test_a_recording_is_selected_zoomed_and_exported(chromium: Any, recording: Path, tmp_path: Path) -> None:
    whole = pmt.load(recording)
    with _served(str(recording)) as url, _opened(chromium, url) as page:
        cells = _select(page, 0.25, 1.25)
        total = next(v for k, v in cells.items() if k.endswith("total"))
        inside = whole[(whole["elapsed"] >= 0.25) & (whole["elapsed"] <= 1.25)]
        truth = inside["total_J"].iloc[-1] - inside["total_J"].iloc[0]
        assert float(total[0]) == pytest.approx(truth, abs=0.01)  # a row of 50 us at either end
        assert float(total[1]) > 0
        assert total[5].startswith("100")
        assert "<b>run" in page.locator("table").inner_text()  # foreign text is text
        with page.expect_download() as download:
            page.get_by_role("link", name="csv").first.click()
        saved = tmp_path / "part.csv"
        download.value.save_as(saved)
        part = pmt.load(saved)
        assert len(part) == pytest.approx(len(inside), abs=3)
        assert part["total_W"].mean() == pytest.approx(inside["total_W"].mean(), rel=1e-3)
        box = page.locator("canvas").nth(2).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.wheel(0, -500)
        page.get_by_role("button", name="show all").click()


def test_a_sensor_is_followed_triggered_and_marked_by_two_viewers(chromium: Any) -> None:
    load = "load=square:low=30,high=90,hz=1"
    with _served("powersensor3:virtual", "-o", load) as url, _opened(chromium, url) as page:
        with _opened(chromium, url) as other:
            cells = _select(other, 0.5, 2.5)
            total = next(v for k, v in cells.items() if k.endswith("total"))
            assert float(total[0]) == pytest.approx(120.0, abs=0.6)  # two periods of 60 W, by a noisy board
        page.get_by_label("level (W)").fill("60")
        page.keyboard.press("Enter")
        page.get_by_label("trigger").select_option("rising")
        expect(page.get_by_text("0.45 s", exact=True)).to_be_visible(timeout=_PATIENCE_MS)  # 0.5 s, 0.05 s before
        page.get_by_placeholder("label of a mark").fill("here")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="mark now").click()
        page.get_by_role("button", name="follow newest").click()


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


def test_nobody_else_is_let_in(recording: Path) -> None:
    with _served(str(recording)) as url:
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/\?token=\S+)", url)
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
