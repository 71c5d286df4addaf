"""What a fork waits for: modules that are loaded, and devices that are opened, by another thread.

A child is made with the locks as they are. A module that another thread was loading just then is never loaded in the
child, and whoever asks for it there waits for ever.
"""

from __future__ import annotations

import logging  # noqa: F401  (it asks for the same at a fork: it must not begin to while one waits here)
import os
import threading
from types import TracebackType

_OPEN_TIMEOUT_S = 10.0  # the slowest device; whoever opens may itself wait for the thread that forks


class _Loading:
    """A lock that ``os.fork()`` waits for. Any number of threads may hold it, each while it loads modules."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._threads: dict[int, int] = {}  # how often each thread has entered

    def __enter__(self) -> None:
        """Forbid ``fork()`` while this thread loads."""
        with self._changed:
            own = threading.get_ident()
            self._threads[own] = self._threads.get(own, 0) + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Allow ``fork()`` again, unless other threads still load."""
        with self._changed:
            own = threading.get_ident()
            self._threads[own] -= 1
            if not self._threads[own]:
                del self._threads[own]
            self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no other thread loads, and keep them from beginning."""
        self._changed.acquire()
        self._changed.wait_for(lambda: self._threads.keys() <= {threading.get_ident()}, _OPEN_TIMEOUT_S)

    def after_in_parent(self) -> None:
        """Let other threads load again."""
        self._changed.release()

    def after_in_child(self) -> None:
        """Drop the counts of threads that the child does not have."""
        own = threading.get_ident()
        self._threads = {thread: entered for thread, entered in self._threads.items() if thread == own}
        self._changed.release()


LOADING = _Loading()
if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(
        before=LOADING.before_fork, after_in_parent=LOADING.after_in_parent, after_in_child=LOADING.after_in_child
    )
