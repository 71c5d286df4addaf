"""Make the pictures of screens again: ``make screens``. Needs playwright and a Chromium of the system.

The recordings are made here, on a virtual board, in an empty folder.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import pmtpy as pmt
from pmtpy.live.recording import Recorder
from pmtpy.live.top import TopApp
from pmtpy.live.watch import Watch

IMAGES = Path(__file__).parent.resolve() / "images"
BROWSERS = ("chromium-headless-shell", "chromium")
LOAD = "square:low=30,high=90,hz=1"
SLOW = "square:low=60,high=180,hz=0.13"
SIZE = {"width": 1200, "height": 860}
TERMINAL = (110, 22)  # columns and lines
DRAWN_MS = 2000.0  # what was asked for last is drawn by then


def record() -> None:
    """Record a region and a mark in ``solve.csv``, and what RAPL says of the same time in ``rapl.csv``."""
    with pmt.create("powersensor3:virtual", load=LOAD) as board, pmt.create("rapl:virtual", load=LOAD) as rapl:
        rapl.start_dump("rapl.csv", interval="10ms")
        board.start_dump("solve.csv")
        time.sleep(1.2)
        with pmt.region("solve", board):
            time.sleep(1.5)
        time.sleep(0.7)
        board.mark("checkpoint")
        time.sleep(0.9)
        board.stop_dump()
        rapl.stop_dump()
    pmtpy("plot", "solve.csv", "-o", "page.html")


def pmtpy(*words: str) -> None:
    """Run a verb to its end."""
    subprocess.run([sys.executable, "-m", "pmtpy", *words], check=True)


@contextmanager
def viewed(*words: str) -> Iterator[str]:
    """Serve the viewer; give its address."""
    command = [sys.executable, "-m", "pmtpy", "view", "--no-browser", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield (server.stdout.readline() if server.stdout else "").strip()
        server.send_signal(signal.SIGTERM)


def shoot(browser: Any, address: str, name: str, *, between: tuple[float, float] | None = None) -> None:
    """Put the two cursors, or drag over the page's curve, and keep what is seen then."""
    page = browser.new_page(viewport=SIZE)
    page.goto(address)
    page.wait_for_selector(".bk-Figure")
    page.wait_for_timeout(DRAWN_MS)
    if between is None:
        page.mouse.move(380, 340)
        page.mouse.down()
        page.mouse.move(700, 340, steps=8)
        page.mouse.up()
    else:
        for title, value in zip(("cursor A (s)", "cursor B (s)"), between, strict=True):
            page.get_by_label(title).fill(str(value))
            page.keyboard.press("Enter")
    page.wait_for_timeout(DRAWN_MS)
    page.screenshot(path=IMAGES / name, full_page=True)
    page.close()


_LINE = re.compile(r'(<text class="[^"]*-r\d+") x="([\d.]+)"( y="[\d.]+") textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


def aligned(svg: str) -> str:
    """Give each word its own place: a viewer without the picture's font stretches each line by another share."""

    def words(line: re.Match[str]) -> str:
        start, x, y, length, rest, text = line.groups()
        text = html.unescape(text).rstrip("\n")
        cell = float(length) / max(1, len(text))
        return "".join(
            f'{start} x="{float(x) + cell * word.start():.1f}"{y} textLength="{cell * len(word[0]):.1f}"{rest}>'
            f"{html.escape(word[0])}</text>"
            for word in re.finditer(r"[^\s\xa0]+", text)
        )

    return _LINE.sub(words, svg)


async def terminal(name: str) -> None:
    """Watch three sensors on a slow load, and keep the screen."""
    with (
        pmt.create("powersensor3:virtual", load=SLOW) as board,
        pmt.create("rapl:virtual", load=SLOW) as rapl,
        pmt.create("nvml:virtual", load=SLOW) as gpu,
    ):
        sensors = [board, rapl, gpu]
        app = TopApp(Watch(sensors), Recorder(sensors, list))
        async with app.run_test(size=TERMINAL) as pilot:
            await pilot.pause(25.0)
            svg = app.export_screenshot(title="pmtpy top")
            await pilot.press("q")
    (IMAGES / name).write_text(aligned(svg), encoding="utf-8")


def main() -> None:
    """Record, and look at it."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        sys.exit("there is no Chromium: apt-get install chromium-headless-shell")
    asyncio.run(terminal("top.svg"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        record()
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            with viewed("solve.csv") as address:
                shoot(browser, address, "view.png", between=(0.5, 1.5))
            with viewed("solve.csv", "rapl.csv", "--theme", "dark") as address:
                shoot(browser, address, "view-dark.png", between=(1.0, 3.0))
            shoot(browser, Path("page.html").absolute().as_uri(), "page.png")
            browser.close()


if __name__ == "__main__":
    main()
