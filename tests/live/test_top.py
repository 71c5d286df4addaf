"""The screen of ``top``: its keys, and that a terminal is left as it was found."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import pmtpy as pmt
from pmtpy.live.recording import Recorder
from pmtpy.live.watch import Watch
from pmtpy.sensor.sensor import Sensor, acquisition_of

pytest.importorskip("textual", reason="needs the extra live: pip install 'pmtpy[live]'")

from textual.binding import Binding
from textual.pilot import Pilot

from pmtpy.live.top import _HELP, Help, Lines, TopApp

_LIMIT_S = 240.0


@pytest.fixture
def sensors() -> Iterator[list[Sensor]]:
    with pmt.create("rapl", "virtual") as rapl, pmt.create("powersensor3", "virtual") as board:
        yield [rapl, board]


def _text(app: TopApp) -> str:
    return "\n".join(line.text for line in app.query_one(Lines).lines)


async def _until(pilot: Pilot[int], true: Callable[[], object]) -> None:
    for _ in range(round(_LIMIT_S / 0.05)):
        if true():
            return
        await pilot.pause(0.05)
    pytest.fail("it did not come to that")


def _drive(
    sensors: list[Sensor],
    tmp_path: Path,
    steps: Callable[[TopApp, Pilot[int]], object],
    size: tuple[int, int] = (100, 30),
) -> TopApp:
    paths = [tmp_path / "rapl.csv", tmp_path / "board.csv"]
    app = TopApp(Watch(sensors), Recorder(sensors, lambda: paths), 0.05)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await _until(pilot, lambda: "rapl" in _text(app))
            await steps(app, pilot)  # type: ignore[misc]

    asyncio.run(run())
    return app


def test_it_shows_every_sensor_with_its_parts_and_why_there_is_no_total(sensors: list[Sensor], tmp_path: Path) -> None:
    async def steps(app: TopApp, pilot: Pilot[int]) -> None:
        await _until(pilot, lambda: re.search(r"powersensor3:virtual +\d+\.\d+ +\d+\.\d+", _text(app)))
        text = _text(app)
        assert re.search(r"^rapl:virtual ", text, re.MULTILINE)
        assert re.search(r"^  package0.dram ", text, re.MULTILINE)
        assert "no total: an external meter" in text
        assert "W now" in text
        await pilot.resize_terminal(40, 20)
        await _until(pilot, lambda: all(len(line) < 40 for line in _text(app).splitlines()))
        # With fewer lines than there are powers, a bar to scroll by stands beside them, and over no digit.
        await pilot.resize_terminal(40, 9)
        powers = app.query_one(Lines)
        await _until(pilot, lambda: powers.show_vertical_scrollbar)
        await _until(pilot, lambda: all(len(x.text) < powers.scrollable_content_region.width for x in powers.lines))
        assert not powers.show_horizontal_scrollbar
        for size in ((3, 2), (400, 150), (100, 30)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
        await pilot.press("q")

    assert _drive(sensors, tmp_path, steps).return_value == 0


def test_on_a_small_screen_notes_leave_half_of_it_to_the_powers_below_the_names_of_their_columns(
    tmp_path: Path,
) -> None:
    async def steps(app: TopApp, pilot: Pilot[int]) -> None:
        powers, notes = app.query_one(Lines), app.query_one("#notes")
        await _until(pilot, lambda: app.query_one("#notes").size.height)
        assert notes.size.height <= 3
        assert powers.size.height >= 6
        assert powers.render_line(0).text.startswith("sensor")
        powers.scroll_end(animate=False)
        await _until(pilot, lambda: powers.scroll_offset.y)
        assert powers.render_line(0).text.startswith("sensor")
        last = powers.lines[-1].text
        assert powers.render_line(powers.size.height - 1).text.rstrip() == last.rstrip()

    with pmt.create("rapl", "virtual") as rapl, pmt.create("nvml", "virtual") as gpu:
        source = acquisition_of(gpu).intake.source
        source.identity = replace(source.identity, notes=("what is to be said of it " * 20,))
        _drive([rapl, gpu], tmp_path, steps, size=(40, 12))


def test_without_colours_everything_is_shown(
    sensors: list[Sensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(app: TopApp, pilot: Pilot[int]) -> None:
        assert app.no_color
        await pilot.pause(0.2)
        for width in (60, 100):  # what fits is written whole, and the last key's name with it
            await pilot.resize_terminal(width, 30)
            await _until(pilot, lambda width=width: app.size.width == width)  # type: ignore[misc]
            whole = (
                "no total: an external meter (powersensor3:virtual) may see what a built-in sensor sees (rapl:virtual)"
            )
            assert whole in " ".join(_text(app).split())

    _drive(sensors, tmp_path, steps)


def test_a_frozen_screen_stands_still_and_goes_on(sensors: list[Sensor], tmp_path: Path) -> None:
    async def steps(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("space")
        await pilot.pause()
        before = _text(app)
        await pilot.pause(0.3)
        assert _text(app) == before
        await pilot.press("space")
        await _until(pilot, lambda: _text(app) != before)

    _drive(sensors, tmp_path, steps)


def test_keys_sort_reset_help_mark_and_record(sensors: list[Sensor], tmp_path: Path) -> None:
    async def steps(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("s")
        assert "by watts" in str(app.query_one("#head").render())
        await pilot.press("h")
        await _until(pilot, lambda: isinstance(app.screen, Help))
        await pilot.press("escape")
        await _until(pilot, lambda: not isinstance(app.screen, Help))
        await pilot.press("d")
        await _until(pilot, (tmp_path / "board.csv").exists)
        await pilot.press("m", *"hot", "enter")
        await _until(pilot, lambda: "marked hot" in str(app.query_one("#said").render()))
        await pilot.press("d")
        await _until(pilot, lambda: "rows" in str(app.query_one("#said").render()))
        await pilot.press("r")
        await pilot.press("ctrl+c")

    _drive(sensors, tmp_path, steps)
    assert "hot" in set(pmt.load(tmp_path / "board.csv")["marker"])


def test_help_and_page_name_every_key_of_the_footer() -> None:
    page = (Path(__file__).parents[2] / "docs/top.md").read_text(encoding="utf-8")
    keys = [b.key_display or b.key for b in TopApp.BINDINGS if isinstance(b, Binding) and b.show]
    assert {"q", "space", "?"} <= {*keys}
    for key in keys:
        assert re.search(rf"^{re.escape(key)}[ ,]", _HELP, re.MULTILINE), key
        assert re.search(rf"^\| `?{re.escape(key)}[` ,]", page, re.MULTILINE), key


def test_an_error_of_the_watching_thread_ends_the_screen(
    sensors: list[Sensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(sensors)

    def fail() -> None:
        msg = "a driver broke"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(watch, "look", fail)
    app = TopApp(watch, Recorder(sensors, list), 0.05)

    async def run() -> None:
        async with app.run_test() as pilot:
            await _until(pilot, lambda: not app.is_running)

    with pytest.raises(ZeroDivisionError, match="a driver broke"):
        asyncio.run(run())


# -- on a real terminal ------------------------------------------------------------------------------------------------

_ALTERNATE, _BACK, _SHOWN = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


class _Terminal:
    """``pmtpy top`` as the leader of a session on a pseudo-terminal."""

    def __init__(self) -> None:
        self.ours, self._its = pty.openpty()
        self.before = termios.tcgetattr(self._its)
        fcntl.ioctl(self._its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        env = {k: v for k, v in os.environ.items() if not k.startswith("PMT_")} | {"TERM": "xterm-256color"}
        its = self._its

        def lead() -> None:
            os.setsid()
            fcntl.ioctl(its, termios.TIOCSCTTY, 0)

        self.child = subprocess.Popen(
            [sys.executable, "-m", "pmtpy", "top", "rapl:virtual"],
            stdin=its, stdout=its, stderr=its, env=env, preexec_fn=lead,  # noqa: PLW1509
        )  # fmt: skip
        self.seen = b""

    def until(self, text: bytes) -> None:
        """Read until a text was shown."""
        while text not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], _LIMIT_S)
            assert ready, self.seen
            self.seen += os.read(self.ours, 65536)

    def end(self) -> int:
        """Read on until the program has ended; return its status."""
        while self.child.poll() is None:
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)
        while select.select([self.ours], [], [], 0)[0]:
            self.seen += os.read(self.ours, 65536)
        return self.child.returncode

    @property
    def modes(self) -> list[object]:
        """The settings of the terminal."""
        return termios.tcgetattr(self._its)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait(_LIMIT_S)
        for fd in (self.ours, self._its):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def terminal() -> Iterator[_Terminal]:
    made = _Terminal()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("end", "status"),
    [(b"q", 0), (b"\x03", 0), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["q", "ctrl-c", "sigint", "sigterm", "sighup, sent by hand"],
)
def test_the_terminal_is_left_as_it_was(terminal: _Terminal, end: bytes | signal.Signals, status: int) -> None:
    terminal.until(_ALTERNATE)
    terminal.until(b"package0.dram")
    if isinstance(end, bytes):
        os.write(terminal.ours, end)
    else:
        terminal.child.send_signal(end)
    assert terminal.end() == status
    assert terminal.seen.rindex(_BACK) > terminal.seen.rindex(_ALTERNATE)
    assert terminal.seen.rindex(_SHOWN) > terminal.seen.rindex(b"\x1b[?25l")
    assert terminal.modes == terminal.before


def test_a_connection_that_is_killed_ends_it(terminal: _Terminal) -> None:
    terminal.until(b"package0.dram")
    os.close(terminal.ours)
    terminal.ours = -1
    terminal.child.wait(_LIMIT_S)
    assert terminal.child.returncode == 128 + signal.SIGHUP


def test_a_pipe_gets_a_line_a_second() -> None:
    words = [sys.executable, "-m", "pmtpy", "top", "rapl:virtual", "--duration", "1.5s"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    lines = ran.stdout.splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"\d+\.\d s  rapl:virtual \d+\.\d+ W \d+\.\d+ J", line) for line in lines), lines


def test_only_the_live_verbs_import_their_libraries() -> None:
    code = (
        "import sys, importlib; from pmtpy.cli import VERBS\n"
        "for verb in VERBS:\n"
        "    if verb not in {'view'}: importlib.import_module(f'pmtpy.cli.{verb}')\n"
        "print([m for m in ('textual', 'bokeh', 'tornado', 'pyjls') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "[]"
