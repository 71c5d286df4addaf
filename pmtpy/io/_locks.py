"""Locks of open files, by which writers and readers know of one another. Where a system has none, all may have them."""

from __future__ import annotations

import contextlib


def take(fd: int, *, exclusive: bool) -> bool:
    """Lock an open file, for its writer alone or for readers; say whether that was to be had.

    It lasts until :func:`give_back`, or until all that have the file open have closed it.
    """
    try:
        import fcntl

        fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows; a file system without locks
        return True
    return True


def wait(fd: int) -> None:
    """Lock an open file for this program alone, once no other has it."""
    with contextlib.suppress(ImportError, OSError):  # as above
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX)


def give_back(fd: int) -> None:
    """Let others have an open file, though a child of this process may have it open still."""
    with contextlib.suppress(ImportError, OSError):  # as above
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)
