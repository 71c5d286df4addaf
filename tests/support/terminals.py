"""A real terminal for a program that is tested, and a page to show there."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

from pmtpy.cli.page import Kind, Line, Page, Table, notes

ROOT = Path(__file__).parents[2]
TABLE = Table(
    [
        ("sensor", "seconds", "joules", "watts", "how"),
        ("powersensor3:virtual", "2.0004", "300.019", "149.983", "interval mean, virtual"),
        ("  pair0", "2.0004", "75.003", "37.4948", "interval mean, 99.12% covered, 12 rows lost, virtual"),
    ]
)
PAGE: Page = (Line("a heading", Kind.HEADING), TABLE, *notes(["a note that is [not] markup " + "and long " * 12] * 2))


def on_a_terminal(words: list[str], *, width: int = 80, **environment: str) -> str:
    """Run a command with all its streams on a terminal; return what it wrote there."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PMT_") and k not in {"NO_COLOR", "COLUMNS"}}
    env = {**clean, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **environment}
    with subprocess.Popen(words, stdin=its, stdout=its, stderr=its, env=env, close_fds=True) as child:
        os.close(its)
        written = b""
        try:
            while piece := os.read(ours, 65536):
                written += piece
        except OSError:  # Linux: nobody has the terminal open any more
            pass
        os.close(ours)
    assert child.returncode == 0, written.decode()
    return written.decode().replace("\r\n", "\n")
