"""What looking costs: dumps of every frame, recordings of hours, the terminal and the page while a board streams.

    python -m benchmarks.bench_look dump            CPU of JLS and CSV dumps at 20 kHz, 12 channels, in turns
    python -m benchmarks.bench_look long HOURS...   recordings of so many hours: opened, drawn, zoomed, memory
    python -m benchmarks.bench_look csv MB...       CSV recordings of so many megabytes: converted, drawn, viewed
    python -m benchmarks.bench_look top             CPU of `pmtpy top` on ten sensors
    python -m benchmarks.bench_look view            CPU of `pmtpy view` on a board at 20 kHz, with one viewer; rows lost

Prints one JSON document. `long` needs 4 GB of disk for each hour, where temporary files go (TMPDIR), and gives it back.
"""

from __future__ import annotations

import contextlib
import os
import pty
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bench_dump import RATE_HZ, ROWS, board, stream
from benchmarks.bench_powersensor3 import LOAD, SPEC, dump_share
from benchmarks.common import cost_of, report
from pmtpy.core.channel import Identity
from pmtpy.core.clock import HostClock
from pmtpy.emulators.powersensor3 import VirtualBoard
from pmtpy.io.write import Ending, Header, open_sink

_ONE = 10  # Frames that are written again and again


def _timed(what: Callable[[], object], times: int) -> float:
    """Return the least processor seconds of some calls."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        what()
        found.append(time.process_time() - begin)
    return min(found)


def dump() -> dict[str, Any]:
    """Compare dumps of every frame: this process with its writer, and the relay."""
    with VirtualBoard(LOAD, SPEC) as far, tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[float]] = {".jls": [], ".csv": []}
        for _ in range(5):
            for suffix, shares in found.items():
                shares.append(dump_share(far.path, Path(folder), suffix=suffix))
    return {f"cpu_share_with_dump_of{suffix}": sorted(shares) for suffix, shares in found.items()}


def _write(path: Path, seconds: float) -> float:
    """Write a recording of four noisy pairs as fast as it goes; return the processor seconds."""
    clock, frames = HostClock(), stream(_ONE)
    header = Header("bench", Identity("bench", virtual=True), board(), clock.anchor())
    begin, sink = time.process_time(), open_sink(path, header)
    step_s = _ONE * ROWS / RATE_HZ
    step_j = frames[-1].joules[-1] - frames[0].joules[0] + frames[0].watts[0] / RATE_HZ
    count = round(seconds / step_s)
    for k in range(count):
        for frame in frames:
            later = frame.t_ns + k * round(step_s * 1e9)
            sink.write(replace(frame, t_ns=later, joules=frame.joules + k * step_j))
    sink.close(Ending(clock.anchor(), count * _ONE * ROWS, 0, 0, complete=True))
    return time.process_time() - begin


_LOOK = """
import json, resource, sys, time
from pathlib import Path
import numpy as np
from pmtpy.live.desk import Desk
from pmtpy.live.tracks import JlsTrack
import bokeh.plotting

def timed(what):
    begin = time.perf_counter(), time.process_time()
    what()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]

found = {}
desks = []
path = Path(sys.argv[1])
found["open_s"] = timed(lambda: desks.append(Desk([JlsTrack(path.name, path)])))
desk = desks[0]
track, (start, stop) = desk.tracks[0], desk.span
def whole():
    for i in range(len(track.lines)):
        desk.draw(track, i, start, stop, 900)
found["whole_s"] = timed(whole)
rng, zooms = np.random.default_rng(1), []
for _ in range(40):
    at, length = rng.uniform(start, stop), 10 ** rng.uniform(-3, np.log10(stop))
    def zoom():
        for i in range(len(track.lines)):
            desk.draw(track, i, at, at + length, 900)
        desk.marks(track, at, at + length)
        desk.gaps(track, at, at + length)
    zooms.append(timed(zoom))
found["zoom_wall_s_median_and_greatest"] = [float(np.median([z[0] for z in zooms])), max(z[0] for z in zooms)]
found["zoom_cpu_s_median_and_greatest"] = [float(np.median([z[1] for z in zooms])), max(z[1] for z in zooms)]
found["select_s"] = timed(lambda: desk.select(track, start + 1, stop - 1))
found["hours"] = (stop - start) / 3600
found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(json.dumps(found))
"""


def long(hours: list[float]) -> dict[str, Any]:
    """Look at recordings of some hours, each in a new process."""
    import json

    found = {}
    for each in hours:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "long.jls"
            written = _write(path, 3600 * each)
            looked = subprocess.run(
                [sys.executable, "-c", _LOOK, str(path)], check=True, capture_output=True, text=True
            )
            found[f"{each:g} h"] = {"gigabytes": path.stat().st_size / 1e9, "written_in_cpu_s": written}
            found[f"{each:g} h"] |= json.loads(looked.stdout)
    return found


def csv(megabytes: list[float]) -> dict[str, Any]:
    """Convert, draw and open CSV recordings; the memory of each in a process of its own."""
    found: dict[str, Any] = {}
    verb = [sys.executable, "-m", "pmtpy"]
    stored = "import sys; from pathlib import Path; from pmtpy.live.stored import StoredTrack;"
    stored += " t = StoredTrack.of_file('a', Path(sys.argv[1])); t.draw(0, *t.span, 900)"
    for each in megabytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "long.csv"
            _write(path, 1.0)
            _write_again = path.stat().st_size / 1e6
            path.unlink()
            path.with_name("long.csv.json").unlink(missing_ok=True)
            _write(path, each / _write_again)
            here: dict[str, Any] = {"megabytes": path.stat().st_size / 1e6}
            for name, words in {
                "convert_to_jls": [*verb, "convert", str(path), str(path.with_suffix(".jls"))],
                "plot_png": [*verb, "plot", str(path), "-o", str(path.with_suffix(".png"))],
                "plot_html": [*verb, "plot", str(path), "-o", str(path.with_suffix(".html"))],
                "open_in_view": [sys.executable, "-c", stored, str(path)],
            }.items():
                here[f"{name}_cpu_s_and_peak_mb"] = cost_of(words)
            found[f"{each:g} MB"] = here
    return found


def top() -> dict[str, Any]:
    """Run `pmtpy top` on ten virtual sensors on a terminal: its share of a core, less that of an equal emulation."""
    targets = ["nvml:virtual", "rapl:virtual", "jetson:virtual", "hwmon:virtual", "occ:virtual", "amdsmi:virtual"]
    targets += ["cray:virtual", "nvml:virtual", "rapl:virtual", "hwmon:virtual"]
    ours, its = pty.openpty()
    words = [sys.executable, "-m", "pmtpy", "top", *dict.fromkeys(targets)]
    with subprocess.Popen(
        words, stdin=its, stdout=its, stderr=its, env={**os.environ, "TERM": "xterm-256color"}
    ) as child:
        os.close(its)
        os.set_blocking(ours, False)
        shares = []
        for _ in range(4):
            begin, used = time.monotonic(), _cpu(child.pid)
            while time.monotonic() - begin < 8.0:
                with contextlib.suppress(BlockingIOError):
                    os.read(ours, 1 << 16)
                time.sleep(0.05)
            shares.append((_cpu(child.pid) - used) / (time.monotonic() - begin))
        child.terminate()
        child.wait(60)
    os.close(ours)
    return {"sensors": len(dict.fromkeys(targets)), "cpu_share_with_the_emulation": shares[1:]}


def _cpu(pid: int) -> float:
    """Return the processor seconds of a process with all its threads."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def view() -> dict[str, Any]:
    """Serve a board in a process of its own to a Chromium that follows; count what is lost over half a minute."""
    from tests.support import browser

    with VirtualBoard(LOAD, SPEC) as far:
        words = [sys.executable, "-m", "pmtpy", "view", "--no-browser", f"powersensor3:{far.path}"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            url = child.stdout.readline().strip()
            shares = []
            try:
                with browser.chromium() as chromium, browser.opened(chromium, url) as page_:
                    page: Any = page_
                    for _ in range(4):
                        begin, used = time.monotonic(), _cpu(child.pid)
                        page.wait_for_timeout(8000)
                        shares.append((_cpu(child.pid) - used) / (time.monotonic() - begin))
                    for title, value in (("cursor A (s)", "0"), ("cursor B (s)", "30")):
                        page.get_by_label(title).fill(value)
                        page.keyboard.press("Enter")
                    page.wait_for_selector("table")
                    said = page.locator("table").inner_text().splitlines()[1].split("\t")
            finally:
                child.terminate()
                child.wait(60)
    return {"cpu_share_of_the_server": shares[1:], "covered": said[-2], "rows_lost_in_30_s": said[-1]}


def main() -> None:
    """Take the figures that are asked for."""
    what, *numbers = sys.argv[1:] or ["dump"]
    sizes = [float(n) for n in numbers]
    known: dict[str, Callable[[], dict[str, Any]]] = {
        "dump": dump,
        "top": top,
        "view": view,
        "long": lambda: long(sizes),
        "csv": lambda: csv(sizes),
    }
    report(known[what]() | {"peak_mb_of_this": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3})


if __name__ == "__main__":
    main()
