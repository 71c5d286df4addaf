"""The place that bytes of a dump go to: a new file, or an open stream. And the small JSON file beside it.

Whole rows are handed over in one call each, so a process that is killed leaves whole rows. An existing file is never
replaced unless that is asked for, and one that is being written never is. What cannot be written raises
:class:`~pmtpy.errors.SinkError`, and what is in the file by then is cut back to whole rows.

A program that closes all descriptors (to become a daemon) closes that of its dump, whose number is soon that of a file
of its own: so it is asked for each time which file it is of (1.3 us), and an ordinary file is opened again.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import stat
from pathlib import Path
from typing import IO, Any

from pmtpy.errors import SinkError, TargetError
from pmtpy.io import _locks
from pmtpy.io.whole import write_whole

Buffer = bytes | bytearray | memoryview
Target = str | os.PathLike[str] | IO[str] | IO[bytes]

_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would rewrite line ends


_NOT_THERE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _write_all(fd: int, chunk: Buffer) -> None:
    """Write every byte; a short write is continued, a terminal that was made non-blocking is waited for."""
    view = memoryview(chunk)
    while view:
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(fd, view) :]
            continue
        room = select.poll()  # a child that shares the terminal may have made it non-blocking
        room.register(fd, select.POLLOUT)
        room.poll()


class Output:
    """One file or stream that rows go to. Used by one thread at a time.

    Attributes
    ----------
    path : Path or None
        The file, if it was opened by name; absolute.
    regular : bool
        Whether it is an ordinary file, which may have others beside it and can be cut back.
    overwrite : bool
        Whether what is there may be replaced, beside it too.
    """

    def __init__(self, target: Target, *, overwrite: bool = False) -> None:
        self.path: Path | None = None
        self.overwrite = overwrite
        self._stream: IO[Any] | None = None
        self._fd = -1  # stays so for a stream in memory
        self._end = 0
        self._fresh = False
        if isinstance(target, (str, os.PathLike)):
            self.path = _fixed(target)
            self._open(Path(target), overwrite=overwrite)  # who opens it is told what was asked for
        elif callable(getattr(target, "write", None)):
            self._borrow(target)
        else:
            msg = f"a dump is written to a path or to a stream, and {target!r} is neither"
            raise TargetError(msg)
        self._told = os.fstat(self._fd) if self._fd >= 0 else None
        self.regular = self.path is not None and self._told is not None and stat.S_ISREG(self._told.st_mode)
        if self.regular and not _locks.take(self._fd, exclusive=True):
            os.close(self._fd)
            msg = f"{self.path} is being written, or read, by another dump or program; name another file"
            raise SinkError(msg)

    @property
    def name(self) -> str:
        """How messages call it."""
        return str(self.path) if self.path is not None else str(getattr(self._stream, "name", "the stream"))

    def _open(self, path: Path, *, overwrite: bool) -> None:
        ordinary = path.is_file() or not path.exists()
        exclusive = os.O_EXCL if ordinary and not overwrite else 0
        self._fresh = not path.exists()
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | _BINARY | exclusive, 0o666)
        except FileExistsError as error:
            raise already_there(path) from error
        except OSError as error:
            gone = isinstance(error, FileNotFoundError) and not path.parent.is_dir()
            msg = f"cannot write {path}: {f'there is no folder {path.parent}' if gone else _reason(error)}"
            raise SinkError(msg) from error

    def _borrow(self, stream: IO[Any]) -> None:
        self._stream = stream
        try:
            stream.flush()
            self._fd = stream.fileno()
        except (AttributeError, io.UnsupportedOperation):
            self._fd = -1
        except (OSError, ValueError) as error:
            msg = f"cannot write to {self.name}: {_reason(error)}"
            raise SinkError(msg) from error

    @property
    def size(self) -> int:
        """Bytes written so far, by this object."""
        return self._end

    def empty(self) -> None:
        """Drop what an ordinary file held before."""
        if self.regular:
            os.ftruncate(self._descriptor(), 0)

    def _is_ours(self, fd: int) -> bool:
        with contextlib.suppress(OSError):
            return self._told is not None and os.path.samestat(os.fstat(fd), self._told)
        return False

    def _descriptor(self) -> int:
        """Return the descriptor; OSError where the program has closed it and it cannot be opened again."""
        if self._is_ours(self._fd):
            return self._fd
        if self.path is None or not self.regular:
            raise OSError(errno.EBADF, "the program has closed its descriptor")
        fd = os.open(self.path, os.O_WRONLY | _BINARY)
        # The number of a deleted file's node may be that of a new one.
        same = self._is_ours(fd) and os.fstat(fd).st_size == self._end
        if not same or not _locks.take(fd, exclusive=True):
            os.close(fd)
            raise OSError(errno.EBADF, "the program has closed its descriptor, and another has the file, or its place")
        os.lseek(fd, self._end, os.SEEK_SET)
        self._fd = fd
        return fd

    def write(self, rows: Buffer) -> None:
        """Write whole rows in one system call; on an error the file is cut back to what it held before the call."""
        try:
            if self._fd >= 0:
                _write_all(self._uncut(), rows)
            elif self._stream is not None:
                self._stream.write(bytes(rows).decode() if hasattr(self._stream, "encoding") else bytes(rows))
        except SinkError:
            raise
        except (OSError, ValueError) as error:
            self._cut_back()
            msg = f"cannot write to {self.name}: {_reason(error)}"
            raise SinkError(msg) from error
        self._end += len(rows)

    def _uncut(self) -> int:
        """Return the descriptor; SinkError where the file was cut: rows would stand behind zero bytes."""
        fd = self._descriptor()
        if self.regular and (left := os.fstat(fd).st_size) < self._end:
            msg = f"{self.name} was cut to {left} of {self._end} bytes by another program: it takes no more"
            raise SinkError(msg)
        return fd

    def _cut_back(self) -> None:
        if self.regular:
            with contextlib.suppress(OSError):  # the disk is failing; the first error is the one to report
                fd = self._descriptor()
                os.ftruncate(fd, self._end)
                os.lseek(fd, self._end, os.SEEK_SET)

    def take_back(self, count: int) -> None:
        """Cut the last ``count`` bytes off an ordinary file."""
        self._end -= count
        self._cut_back()

    def settle(self) -> None:
        """Wait until an ordinary file is on the disk as it is now: what follows may rely on it after a power failure.

        Raises SinkError: the disk refuses, or another program has cut the file.
        """
        if self.regular:
            try:
                os.fsync(self._uncut())
            except SinkError:
                raise
            except OSError as error:
                if error.errno in _NOT_THERE:  # a file system without it
                    return
                msg = f"cannot write to {self.name}: {_reason(error)}"
                raise SinkError(msg) from error

    def close(self) -> None:
        """Close the file if it was opened here; a borrowed stream stays open."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and self._stream is None and self._is_ours(fd):
            _locks.give_back(fd)
            try:
                os.close(fd)
            except OSError as error:  # a network file system reports a full disk here
                msg = f"cannot finish {self.name}: {_reason(error)}"
                raise SinkError(msg) from error

    def discard(self) -> None:
        """Close, and remove the file if it was made here: nothing was measured into it."""
        with contextlib.suppress(SinkError):
            self.close()
        if self._fresh and self.regular and self.path is not None:
            self.path.unlink(missing_ok=True)


def _fixed(target: str | os.PathLike[str]) -> Path:
    """Return a path that stays the same file: the program may go to another folder before the end of its dump."""
    try:
        return Path(target).absolute()
    except OSError as error:
        msg = f"cannot write {os.fspath(target)}: the folder that this program is in: {_reason(error)}"
        raise SinkError(msg) from error


def already_there(path: Path) -> SinkError:
    """Error for a file that exists and was not to be replaced."""
    return SinkError(f"{path} exists already; name another file, or replace it with overwrite=True (--overwrite)")


def left_behind(sidecar: Path, recording: Path) -> SinkError:
    """Error for what stands beside a recording that is not there, and was not to be replaced."""
    return SinkError(
        f"{sidecar} exists already, beside a recording {recording.name} that is gone: remove it as well, name another "
        "file, or replace it with overwrite=True (--overwrite)"
    )


class Sidecar:
    """``PATH.json`` beside a dump: written when the dump starts, replaced as a whole when it ends."""

    def __init__(self, beside: Path, *, overwrite: bool = False) -> None:
        self.path = beside.with_name(beside.name + ".json")
        self._fresh = not self.path.exists()
        if not overwrite and not self._fresh:  # were its recording there, that would have been refused
            raise left_behind(self.path, beside)

    def write(self, facts: dict[str, object]) -> None:
        """Replace the file in one step, so that a reader sees the old one or the new one."""
        write_whole(self.path, facts, indent=1)

    def discard(self) -> None:
        """Remove the file if it was made here."""
        if self._fresh:
            self.path.unlink(missing_ok=True)
