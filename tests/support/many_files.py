"""A program that has more files open than ``select`` can count."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

MORE_THAN_SELECT = 1024  # FD_SETSIZE
_ROOM = 64  # for what is tested


@contextlib.contextmanager
def many_files() -> Iterator[None]:
    """Open files until the next descriptor is beyond 1023; close them at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MORE_THAN_SELECT + _ROOM
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"no process may have {needed} files open here (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    opened: list[int] = []
    try:
        while not opened or opened[-1] < MORE_THAN_SELECT:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
