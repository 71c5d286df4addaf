"""``pmtpy sim NAME``: a virtual instrument of which one thread is enough, behind a pseudo-terminal until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from pmtpy.core.clock import HOST_CLOCK
from pmtpy.emulators.serial_board import PtyBoard, SerialBoard
from pmtpy.emulators.world import World, make_world

_LOOK_S = 0.1


def serve(
    make: Callable[[World], SerialBoard], load: str, link: Path | None, name: str, *, asked_to_end: Callable[[], bool]
) -> int:
    """Print the path of the port; serve until Ctrl-C, SIGTERM or a hang-up.

    ``asked_to_end`` tells whether a signal came before this listened to them.
    """
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda *_: ended.set())
    world = make_world(load, clock=HOST_CLOCK)
    with (
        tempfile.TemporaryDirectory(prefix="pmtpy-meter-") as folder,
        PtyBoard(make(world), HOST_CLOCK, link or Path(folder) / name) as port,
    ):
        sys.stdout.write(f"{port.path}\n")
        sys.stdout.flush()
        while not asked_to_end() and not ended.wait(_LOOK_S):
            pass
    return 0
