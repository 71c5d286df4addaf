"""A tree of sysfs files in a temporary directory.

Plain files do not change by themselves, so the emulated hardware is advanced to the present whenever somebody is
about to look. Files are rewritten in place: descriptors that a backend keeps open go on seeing them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


class Tree:
    """Files and links under a temporary root; :meth:`close` removes them.

    Attributes
    ----------
    root : Path
        What a backend takes as ``sysfs_root``.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pmtpy-sysfs-"))
        self._fds: dict[str, int] = {}
        self._made: dict[Path, None] = {}  # in order; those that were removed since as well

    def write(self, relative: str, content: object) -> None:
        """Set the content of a file, with a newline behind it; the file and its folders are made when missing."""
        self.write_bytes(relative, f"{content}\n".encode())

    def write_bytes(self, relative: str, content: bytes) -> None:
        """Set the content of a file exactly."""
        fd = self._fds.get(relative)
        if fd is None:
            fd = self._opened(relative, os.O_CREAT)
        os.pwrite(fd, content, 0)
        os.ftruncate(fd, len(content))

    def link(self, relative: str, target: str) -> None:
        """Make a link to ``target``, a path below the root that need not exist."""
        path = self._place(relative)
        path.symlink_to(os.path.relpath(self.root / target, path.parent))

    def pipe(self, relative: str) -> int:
        """Make a named pipe; return a descriptor of both its ends, which does not block. The tree closes it."""
        os.mkfifo(self._place(relative))
        return self._opened(relative, os.O_NONBLOCK)

    def _opened(self, relative: str, how: int) -> int:
        try:
            fd = self._fds[relative] = os.open(self._place(relative), os.O_RDWR | os.O_CLOEXEC | how, 0o644)
        except OSError:  # too many open files: a tree that lacks one is of no use to whoever makes it
            self.close()
            raise
        return fd

    def _place(self, relative: str) -> Path:
        path = self.root / relative
        folders = [folder for folder in path.parents if self.root in folder.parents]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._made |= dict.fromkeys([*reversed(folders), path])
        return path

    def remove(self, relative: str) -> None:
        """Remove a file, a link or a folder with everything in it."""
        for name in [n for n in self._fds if n == relative or n.startswith(relative + "/")]:
            os.close(self._fds.pop(name))
        path = self.root / relative
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def close(self) -> None:
        """Remove the tree. May be called twice."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        # Listing folders takes descriptors, of which there may be none; what was made here needs no listing.
        for path in [*reversed(self._made), self.root]:
            with contextlib.suppress(OSError):
                (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
        if self.root.exists():  # others have put something there
            shutil.rmtree(self.root, ignore_errors=True)
