"""Make the pictures of pages in a browser again: ``make screens``. Needs playwright and a Chromium of the system.

The recordings are made here, on a virtual board, in an empty folder.
"""

from __future__ import annotations

import os
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

IMAGES = Path(__file__).parent.resolve() / "images"
BROWSERS = ("chromium-headless-shell", "chromium")
LOAD = "square:low=30,high=90,hz=1"
SIZE = {"width": 1200, "height": 860}
DRAWN_MS = 2000.0  # what was asked for last is drawn by then


def record() -> None:
    """Record a region and a mark in ``solve.csv``, and a slower load in ``board.csv``."""
    with pmt.create("powersensor3:virtual", load=LOAD) as board:
        board.start_dump("solve.csv")
        time.sleep(1.2)
        with pmt.region("solve", board):
            time.sleep(1.5)
        time.sleep(0.7)
        board.mark("checkpoint")
        time.sleep(0.9)
        board.stop_dump()
    pmtpy(
        "dump", "powersensor3:virtual", "-o", "load=sine:low=20,high=80,hz=0.7", "--duration", "4s", "-f", "board.csv"
    )
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
    page.screenshot(path=IMAGES / name)
    page.close()


def main() -> None:
    """Record, and look at it."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        sys.exit("there is no Chromium: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        record()
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            with viewed("solve.csv") as address:
                shoot(browser, address, "view.png", between=(0.5, 1.5))
            with viewed("solve.csv", "board.csv", "--theme", "dark") as address:
                shoot(browser, address, "view-dark.png", between=(1.0, 3.0))
            shoot(browser, Path("page.html").absolute().as_uri(), "page.png")
            browser.close()


if __name__ == "__main__":
    main()
