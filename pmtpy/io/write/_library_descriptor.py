"""The descriptor by which a library writes a file on its own, where the program closes it.

A library that is given a path keeps a number that it tells nobody, and goes on writing to it, and closes it at the end,
whatever has that number by then: of a program that closes all descriptors (to become a daemon), soon a file of its own.
So it is asked before each call which file the number is of. A number that is free is given to the file again; one that
is taken is not the library's any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pmtpy.io import _locks

_LISTS = ("/proc/self/fd", "/dev/fd")  # of Linux and of macOS; Windows has none, and no program there closes them all
_T = TypeVar("_T")


class LibraryDescriptor:
    """The numbers by which a library has a file open."""

    def __init__(self, path: Path, numbers: set[int]) -> None:
        self._path, self._numbers, self._told = path, numbers, path.stat()

    @classmethod
    def opened_by(cls, opener: Callable[[], _T], path: Path) -> tuple[_T, LibraryDescriptor]:
        """Return what a library makes of a file that is there, and the numbers by which it has it open."""
        before = _numbers_of(path)
        return opener(), cls(path, _numbers_of(path) - before)

    def keep(self) -> None:
        """See that the library has its file; OSError where it has another one, and must not be called any more."""
        for number in self._numbers:
            if not self._is_ours(number):
                self._give_back(number)

    def _is_ours(self, fd: int) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(fd), self._told)
        return False

    def _give_back(self, number: int) -> None:
        """Open the file as that number, at its end, where a library stands between two calls."""
        import fcntl

        fd = os.open(self._path, os.O_RDWR)
        if not self._is_ours(fd) or not _locks.take(fd, exclusive=True):
            os.close(fd)
            raise OSError(errno.EBADF, "the program has closed its descriptor, and another has the file, or its place")
        os.lseek(fd, 0, os.SEEK_END)
        if fd == number:
            return
        at = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)  # the first that is free from there on
        os.close(fd)
        if at != number:
            os.close(at)
            raise OSError(errno.EBADF, "the program has closed its descriptor, whose number another file has now")


def _numbers_of(path: Path) -> set[int]:
    """Return the numbers by which this process has a file open; none where the system does not list them."""
    told, found = path.stat(), set()
    for number in next(filter(None, map(_listed, _LISTS)), []):
        with contextlib.suppress(OSError):  # the list itself was open
            if os.path.samestat(os.fstat(number), told):
                found.add(number)
    return found


def _listed(folder: str) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each.name) for each in Path(folder).iterdir()]
    return []
