"""A real Chromium, that of the system, driven by Playwright: for tests of what is seen in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

_BROWSERS = (
    Path("/usr/lib/chromium/chromium-headless-shell"),
    Path("/usr/bin/chromium-headless-shell"),
    Path("/usr/bin/chromium"),
)
PATIENCE_MS = 120_000


@contextmanager
def chromium() -> Iterator[Any]:
    """Start it, or skip with the reason."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    found = next((path for path in _BROWSERS if path.exists()), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium-headless-shell")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, url: str) -> Iterator[Page]:
    """Open a page, and see that its console stays empty of faults."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    faults: list[str] = []
    page.on("console", lambda m: faults.append(m.text) if m.type in {"error", "warning"} else None)
    page.on("pageerror", lambda e: faults.append(str(e)))
    page.goto(url)
    page.wait_for_selector("canvas")
    try:
        yield page
    finally:
        page.close()
    assert faults == []
