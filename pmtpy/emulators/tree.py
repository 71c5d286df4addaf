"""A tree of sysfs files in a temporary directory, and a source on it whose files are rewritten just before each read.

Plain files do not change by themselves, so the emulated hardware is advanced to the present whenever somebody is
about to look. Files are rewritten in place: descriptors that a backend keeps open go on seeing them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pmtpy.core.clock import Clock
from pmtpy.core.rows import Block, Row
from pmtpy.core.source import Source
from pmtpy.emulators.world import World
from pmtpy.errors import TargetError


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

    def write(self, relative: str, content: object) -> None:
        """Set the content of a file, with a newline behind it; the file and its folders are made when missing."""
        self.write_bytes(relative, f"{content}\n".encode())

    def write_bytes(self, relative: str, content: bytes) -> None:
        """Set the content of a file exactly."""
        fd = self._fds.get(relative)
        if fd is None:
            path = self.root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = self._fds[relative] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(fd, content, 0)
        os.ftruncate(fd, len(content))

    def link(self, relative: str, target: str) -> None:
        """Make a link to ``target``, a path below the root that need not exist."""
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(self.root / target, path.parent))

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
        shutil.rmtree(self.root, ignore_errors=True)


def _nothing(now_ns: int) -> None:
    """Stand in for the refresh of a closed source."""


class TreeSource(Source):
    """A real source on an emulated tree: the files show the present before each read, and nothing survives closing.

    ``refresh(now_ns)`` rewrites the files. The world is kept so that it lives as long as its sensors.
    """

    def __init__(self, inner: Source, tree: Tree, refresh: Callable[[int], None], world: World) -> None:
        self._inner = inner
        self._tree = tree
        self._refresh = refresh
        self._world: World | None = world
        self._clock: Clock = world.clock
        self._closed = False
        self.identity = replace(inner.identity, virtual=True)
        self.channels = inner.channels
        self.interval_s = inner.interval_s
        self.deadline_s = inner.deadline_s
        self.slow = inner.slow
        self.stream = inner.stream

    def read(self) -> Block:
        """Bring the files up to the present, then read them as the real source does."""
        if not self._closed:
            self._refresh(self._clock.now_ns())
        return self._inner.read()

    def take(self) -> Block | Row:
        """Do what :meth:`read` does, in the cheapest form."""
        if not self._closed:
            self._refresh(self._clock.now_ns())
        return self._inner.take()

    @property
    def failing(self) -> bool:
        """As the real source has it."""
        return self._inner.failing

    def mark(self, label: str) -> bool:
        """Pass the label on to the device."""
        return self._inner.mark(label)

    def close(self) -> None:
        """Close the source and remove the files. May be called twice."""
        self._closed = True
        self._inner.close()
        self._tree.close()
        self._world = None  # so that the next virtual sensor may choose another load
        self._refresh = _nothing


def check_device(backend: str, device: str | None) -> None:
    """Raise TargetError unless ``device`` means the only virtual device of a backend."""
    if device not in {None, "", "virtual"}:
        msg = f"{backend} has one virtual device, {backend}:virtual, and not {device!r}"
        raise TargetError(msg)


def open_on(
    tree: Tree, refresh: Callable[[int], None], world: World, open_real: Callable[[Path], Source]
) -> TreeSource:
    """Open the real backend on a tree, by its root; if that fails, nothing of the tree is left."""
    try:
        inner = open_real(tree.root)
    except BaseException:
        tree.close()
        raise
    return TreeSource(inner, tree, refresh, world)
