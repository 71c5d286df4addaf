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
from typing import NamedTuple


class _File(NamedTuple):
    """An open file. The number of one that the program closed (with all others) may be another's, not to be touched."""

    fd: int
    told: os.stat_result

    @property
    def ours(self) -> bool:
        """Whether the number still is that of the file that was opened."""
        with contextlib.suppress(OSError):
            return os.path.samestat(self.told, os.fstat(self.fd))
        return False

    def close(self) -> None:
        if self.ours:
            os.close(self.fd)


class Tree:
    """Files and links under a temporary root; :meth:`close` removes them.

    Attributes
    ----------
    root : Path
        What a backend takes as ``sysfs_root``.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pmtpy-sysfs-"))
        self._files: dict[str, _File] = {}
        self._made: dict[Path, None] = {}  # in order; those that were removed since as well

    def write(self, relative: str, content: object) -> None:
        """Set the content of a file, with a newline behind it; the file and its folders are made when missing."""
        self.write_bytes(relative, f"{content}\n".encode())

    def write_bytes(self, relative: str, content: bytes) -> None:
        """Set the content of a file exactly."""
        file = self._files.get(relative)
        if file is None or not file.ours:
            file = self._opened(relative, os.O_CREAT)
        os.pwrite(file.fd, content, 0)
        os.ftruncate(file.fd, len(content))

    def link(self, relative: str, target: str) -> None:
        """Make a link to ``target``, a path below the root that need not exist."""
        path = self._place(relative)
        path.symlink_to(os.path.relpath(self.root / target, path.parent))

    def pipe(self, relative: str) -> int:
        """Make a named pipe; return a descriptor of both its ends, which does not block. The tree closes it."""
        os.mkfifo(self._place(relative))
        return self._opened(relative, os.O_NONBLOCK).fd

    def send(self, relative: str, content: bytes) -> None:
        """Write into a pipe what it takes; nothing into one that the program has closed."""
        file = self._files.get(relative)
        if file is not None and file.ours:
            with contextlib.suppress(BlockingIOError):
                os.write(file.fd, content)

    def _opened(self, relative: str, how: int) -> _File:
        try:
            fd = os.open(self._place(relative), os.O_RDWR | os.O_CLOEXEC | how, 0o644)
        except OSError:  # too many open files: a tree that lacks one is of no use to whoever makes it
            self.close()
            raise
        file = self._files[relative] = _File(fd, os.fstat(fd))
        return file

    def _place(self, relative: str) -> Path:
        path = self.root / relative
        folders = [folder for folder in path.parents if self.root in folder.parents]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._made |= dict.fromkeys([*reversed(folders), path])
        return path

    def remove(self, relative: str) -> None:
        """Remove a file, a link or a folder with everything in it."""
        for name in [n for n in self._files if n == relative or n.startswith(relative + "/")]:
            self._files.pop(name).close()
        path = self.root / relative
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def close(self) -> None:
        """Remove the tree. May be called twice."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        # Listing folders takes descriptors, of which there may be none; what was made here needs no listing.
        for path in [*reversed(self._made), self.root]:
            with contextlib.suppress(OSError):
                (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
        if self.root.exists():  # others have put something there
            shutil.rmtree(self.root, ignore_errors=True)
