"""Threads in the background, of which a process may have no more."""

from __future__ import annotations

import threading

from pmtpy.errors import PmtError


def start(thread: threading.Thread, purpose: str) -> None:
    """Start a thread.

    Raises PmtError: none can be started; the message says what it is for, as ``"files are written"``, and what to do.
    """
    try:
        thread.start()
    except RuntimeError as error:
        msg = (
            f"{purpose} by a thread in the background, and none can be started ({error}): this process or its "
            "container has too many (ulimit -u, pids.max), or Python is about to end"
        )
        raise PmtError(msg) from error
