"""What the tests of file-reading backends share: a user without privileges, and a kernel whose files fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_NOBODY = 65534


@contextmanager
def nobody() -> Iterator[None]:
    """Act without root's rights, so that file modes count."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


class FailingFiles:
    """Files that answer with an error number, as a driver does, by their path; others are read as they are.

    A descriptor whose file was removed is dead, as the kernel makes it when a device goes.
    """

    def __init__(self) -> None:
        self._codes: dict[str, list[int]] = {}
        self._pread = os.pread

    def fail(self, path: Path, code: int, times: int = 1_000_000) -> None:
        """Let reading ``path`` fail with ``code``, for ever or some times."""
        self._codes[str(path.resolve())] = [code] * times

    def heal(self, path: Path) -> None:
        """Let ``path`` be read again."""
        del self._codes[str(path.resolve())]

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        """Answer as the kernel would."""
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        codes = [errno.ENODEV] if path.endswith(" (deleted)") else self._codes.get(path)
        if codes:
            code = codes.pop()
            raise OSError(code, os.strerror(code))
        return self._pread(fd, size, offset)


@pytest.fixture
def failing_files(monkeypatch: pytest.MonkeyPatch) -> FailingFiles:
    """Files that fail on request."""
    files = FailingFiles()
    monkeypatch.setattr(os, "pread", files.pread)
    return files


@pytest.fixture
def as_nobody() -> Callable[[], object]:
    """Make a context in which file modes count, also for root."""
    return nobody
