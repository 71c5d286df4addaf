"""The edge to sysfs, shared by the backends that read files: find attributes under a root, keep them open, read them.

It knows files and error numbers, not devices: what a number means, and whether its absence matters, is for the
backend to say. It must never turn a failure into a value.

Facts: ``Documentation/filesystems/sysfs.rst`` (an attribute is read whole by one ``read`` from offset 0, and again by
the next) and ``fs/kernfs/file.c`` of Linux (a descriptor of a removed device answers ENODEV for ever, so it has to be
opened anew; the same path may by then belong to another device, so it has to be looked for anew; files of sysfs have
offsets up to 2^31 - 1, which ``pread`` neither uses nor moves).
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtpy._handlers import of_a_handler
from pmtpy.core.presentation import amount
from pmtpy.errors import ReadError

_ROOT_VARIABLE = "PMT_SYSFS_ROOT"

# What a register holds: 64 bits, with or without a sign.
_LEAST_VALUE, _ABOVE_VALUES = -(2**63), 2**64
_PAGE = 4096  # the most that one sysfs attribute holds
_LEAST_OFFSET = 2**30  # of a descriptor's mark: where no file of anybody's is read or written
_TOLD = 2  # files that are named where none can be read: they fail for one reason, as a rule

# The device behind the descriptor has been removed, or replaced by another.
VANISHED = frozenset({errno.ENODEV, errno.ENOENT, errno.ESTALE, errno.EBADF})

# What a bus that another master had, or a firmware that did something else, says at that moment.
_PASSING = frozenset({errno.EAGAIN, errno.EBUSY, errno.EIO})
TRIES = 3  # at the opening: what failed at a moment is left out for as long as the sensor is open

_WORDS = {
    errno.EACCES: "permission denied",
    errno.EBADF: "the program has closed its descriptor",
    errno.EPERM: "permission denied",
    errno.ENOENT: "the file does not exist",
    errno.ENODEV: "the device has been removed",
    errno.ENODATA: "the driver has no data (sensor disabled or asleep)",
    errno.EINVAL: "the driver could not read the register",
    errno.EIO: "the bus or the firmware did not answer",
    errno.ENXIO: "the device is asleep or absent",
    errno.EAGAIN: "the device is busy",
    errno.EBUSY: "the device is busy",
    errno.ETIMEDOUT: "the device did not answer in time",
}


def sysfs_root(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the root of the tree: as given, else from the environment (``PMT_SYSFS_ROOT``), else ``/sys``."""
    return Path(given or os.environ.get(_ROOT_VARIABLE) or "/sys")


def why(error: OSError) -> str:
    """Say in words what an error number of a sysfs file means."""
    return _WORDS.get(error.errno or 0, error.strerror or str(error))


def content_of(path: Path, tries: int = TRIES) -> bytes:
    """Read an attribute, and again where a bus or a firmware had no time: it is read at the opening, for good.

    Raises OSError: as the kernel said it, also where the device is busy (EAGAIN), of which Python's files make a None.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, _PAGE, 0)
    except OSError as error:
        if tries <= 1 or of_a_handler(error) or error.errno not in _PASSING:
            raise
    finally:
        os.close(fd)
    return content_of(path, tries - 1)


def text_of(path: Path) -> str:
    """Read a text attribute once, without the newline, blanks and NULs at its ends.

    Raises OSError: as the kernel said it.
    """
    return content_of(path).decode("utf-8", "replace").strip(" \t\r\n\0")


def optional_text(path: Path) -> str | None:
    """Read a text attribute that a device may lack; None where it cannot be read."""
    try:
        return text_of(path)
    except OSError as error:
        if of_a_handler(error):
            raise
        return None


def optional_number(path: Path) -> int | None:
    """Read a number that a device may lack; None where it cannot be read or is no number."""
    try:
        return number(content_of(path))
    except (OSError, ValueError) as error:
        if of_a_handler(error):
            raise
        return None


def number(raw: bytes) -> int:
    """Turn the content of an attribute into the whole number it holds.

    Raises ValueError: it holds anything else: nothing, text, two numbers, a fraction, more than a register holds.
    """
    value = int(raw)
    # int() takes digits grouped by underscores, which no driver prints.
    if not _LEAST_VALUE <= value < _ABOVE_VALUES or b"_" in raw:
        msg = f"{raw!r} is not a number"
        raise ValueError(msg)
    return value


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a directory, each real directory or file once.

    Attributes
    ----------
    paths : tuple of Path
        Resolved paths, in the natural order of their names (``hwmon2`` before ``hwmon10``).
    dangling : tuple of str
        Names of links whose target does not exist: what a container sees of a masked ``/sys/devices`` tree.
    """

    paths: tuple[Path, ...] = ()
    dangling: tuple[str, ...] = ()


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key by which numbers in names count as numbers."""
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part)


def entries(directory: Path) -> Listing:
    """List a class or device directory; empty where it does not exist or may not be listed.

    The same device is reachable by several links (``class``, ``bus``, ``devices``), so each resolved path comes once.
    """
    try:
        listed = sorted(directory.iterdir(), key=lambda path: natural(path.name))
    except OSError as error:
        if of_a_handler(error):
            raise
        return Listing()
    found: dict[Path, None] = {}
    dangling: list[str] = []
    for path in listed:
        real = _resolved(path)
        if real is None:
            dangling.append(path.name)
        else:
            found[real] = None
    return Listing(tuple(found), tuple(dangling))


def _resolved(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        if of_a_handler(error):
            raise
        return None


class Registers:
    """Number attributes that are read together, again and again, through descriptors that stay open.

    Used by one thread at a time. When a descriptor turns dead because its device was removed, all are looked for and
    opened anew, so a device that comes back under another number is found again.

    A program that closes all descriptors (to become a daemon) closes these as well, and their numbers are soon those of
    files of its own. So the offset of each is set to a mark, and what is read, or closed, is so by a number that still
    has it: for a quarter of what ``fstat`` takes. What was closed is opened again; the same file has counted on.

    Attributes
    ----------
    paths : tuple of Path
        The files as last located, in the order of the numbers.
    openings : int
        How often files have been opened. More than before means that devices behind them were registered anew, so
        counters need not continue.
    renewed : set of int
        The files that were opened anew since their owner last emptied it; the others have answered all the time.
    alone : frozenset of int
        The files that may fail alone, as given; it can be changed at any time.
    unread : dict of int to str
        Why files that may fail alone did in the last reading, by their numbers.
    """

    __slots__ = (
        "_absent", "_fds", "_last_error", "_locate", "_mark", "_marks", "_nodes", "_replaceable", "alone",
        "openings", "paths", "renewed", "unread",
    )  # fmt: skip

    def __init__(self, locate: Callable[[], Sequence[Path | None]], alone: Collection[int] = ()) -> None:
        """Open the files that ``locate`` names; it is asked again, for the same files in order, when they vanish.

        Parameters
        ----------
        locate : function
            Names the files; None in the place of one that is not there any more.
        alone : collection of int
            Numbers of files, in that order, without which the others still say something: one of them that cannot be
            opened or read, or holds no number, is NaN in a reading, unless all files are.

        Raises OSError: from ``locate`` or from opening a file; ``filename`` says which.
        """
        self._locate = locate
        self.alone = frozenset(alone)
        self._fds: list[int] = []
        self._mark = _LEAST_OFFSET + int.from_bytes(os.urandom(4), "big") // 8  # of the first; each has its own
        self._marks: list[int] = []  # of all descriptors
        self._nodes: dict[int, tuple[int, int]] = {}  # device and inode of each file as it was opened
        self._last_error: OSError | None = None  # of a file that may fail alone
        self._absent: dict[int, OSError] = {}  # files that may fail alone and could not be opened
        self.unread: dict[int, str] = {}
        self._replaceable = False
        self.paths: tuple[Path, ...] = ()
        self.openings, self.renewed = 0, set[int]()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def numbers(self) -> list[int] | list[float]:
        """Read every file once, in order.

        Raises ReadError: a file that must not fail could not be read or holds no number. The message names it and says
        why.
        """
        pread, lseek, here = os.pread, os.lseek, os.SEEK_CUR
        if self.unread:
            self.unread = {}
        try:
            if self._replaceable:
                self._follow()
            raw = [pread(fd, 64, 0) for fd in self._fds]
            if [lseek(fd, 0, here) for fd in self._fds] != self._marks:
                raise _closed()
            # This is the path that a reading within a region pays for: the tests of number() for all files at once.
            if not b"".join(raw).translate(None, b"0123456789\n"):
                numbers = list(map(int, raw))
                if max(numbers) < _ABOVE_VALUES:
                    return numbers
            return list(map(number, raw))
        except (OSError, ValueError) as error:
            if of_a_handler(error):
                raise
        self.unread = {}
        # Once more, slowly, to learn which file it was.
        found = [math.nan if raw is None else self._parse(i, raw) for i, raw in enumerate(self._contents(64))]
        if all(map(math.isnan, found)):
            self.close()  # looked for anew at the next reading
            told = "; ".join(map(self.unread.__getitem__, sorted(self.unread)[:_TOLD]))
            msg = f"none of {amount(len(self.paths), 'file')} can be read: {told}"
            raise ReadError(msg) from self._last_error
        return found

    def texts(self) -> list[str]:
        """Read every file once, in order, as text without blanks at its ends; one that may fail alone is then empty.

        Raises ReadError: a file could not be read. The message names it and says why.
        """
        self.unread = {}
        contents = self._contents(_PAGE)
        return [(raw or b"").decode("utf-8", "replace").strip(" \t\r\n\0") for raw in contents]

    def close(self) -> None:
        """Close all descriptors. May be called twice."""
        fds, self._fds = self._fds, []
        for i, fd in enumerate(fds):
            self._close(i, fd)

    def _ours(self, i: int, fd: int) -> bool:
        """Whether a number still is that of the descriptor of a file."""
        try:
            return os.lseek(fd, 0, os.SEEK_CUR) == self._mark + i
        except OSError as error:
            if of_a_handler(error):
                raise
            return False

    def _close(self, i: int, fd: int) -> None:
        if self._ours(i, fd):
            os.close(fd)

    def _follow(self) -> None:
        """Open the files again if others have taken their places.

        The kernel rewrites what an open descriptor shows, but a tree made by a program (a rehearsal, a mirror of a
        host's tree) may replace files, and the old ones would show the same for ever.
        """
        fstat = os.fstat
        for fd in self._fds:
            if fd >= 0 and not fstat(fd).st_nlink:
                self._open()
                return

    def _opened(self, i: int, path: Path, *, gone: bool) -> int:
        try:
            if gone:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if of_a_handler(error):
                raise
            if i in self.alone:
                # Without where it came from: that would keep alive what the caller held at the opening.
                self._absent[i] = error.with_traceback(None)
                return -1
            raise
        os.lseek(fd, self._mark + i, os.SEEK_SET)
        return fd

    def _contents(self, size: int) -> list[bytes | None]:
        try:
            if not self._fds:
                self._open()
            try:
                if self._replaceable:
                    self._follow()
                return [self._one(i, size) for i in range(len(self._fds))]
            except OSError as error:
                if error.errno not in VANISHED:
                    raise
            self._open()
            return [self._one(i, size) for i in range(len(self._fds))]
        except OSError as error:
            if of_a_handler(error):
                raise
            msg = f"{error.filename or self.paths}: {why(error)}"
            raise ReadError(msg) from error

    def _one(self, i: int, size: int) -> bytes | None:
        try:
            raw = os.pread(self._fds[i], size, 0)
            if not self._ours(i, self._fds[i]):
                raise _closed()
        except OSError as error:
            if of_a_handler(error):
                raise
            # Of a socket, say, that has the number, no offset can be asked for.
            failure = error if self._ours(i, self._fds[i]) else _closed()
            if i in self.alone:
                self._last_error = self._absent.get(i, failure).with_traceback(None)
                self.unread[i] = f"{self.paths[i]}: {why(self._last_error)}"
                return None
            raise OSError(failure.errno, failure.strerror, str(self.paths[i])) from error
        return raw

    def _parse(self, i: int, raw: bytes) -> float:
        try:
            return number(raw)
        except ValueError as error:
            if of_a_handler(error):
                raise
            msg = f"{self.paths[i]}: it holds {raw[:40]!r}, which is not a whole number"
            if i in self.alone:
                self.unread[i] = msg
                return math.nan
            raise ReadError(msg) from error

    def look_again(self) -> None:
        """Look for files that may fail alone and could not be opened, or have vanished."""
        if self._fds:
            with contextlib.suppress(OSError):
                self._open()

    def _open(self) -> None:
        """Open the files, but for those whose descriptors still answer: they are of the same devices as before.

        So are those in whose places others have come meanwhile (:meth:`_follow`).
        """
        found = self._locate()
        fds = self._fds or [-1] * len(found)
        paths, self._absent, failure = list(self.paths) or [Path()] * len(found), {}, None
        renewed = set[int]()
        for i, place in enumerate(found):
            lost = fds[i] >= 0 and not self._ours(i, fds[i])
            replaced = None if lost else _replaced(fds[i])
            if replaced is False:
                continue
            self._close(i, fds[i])
            fds[i], paths[i] = -1, place or paths[i]
            try:
                # The place of a file that is gone may by now be that of another.
                fds[i] = self._opened(i, paths[i], gone=place is None)
            except OSError as error:
                failure = failure or error
            if fds[i] < 0:
                continue
            before, self._nodes[i] = self._nodes.get(i), _node(fds[i])
            if not replaced and not (lost and before == self._nodes[i]):
                renewed.add(i)
        self._fds, self._marks, self.paths = fds, [self._mark + i for i in range(len(fds))], tuple(paths)
        self.renewed |= renewed
        self.openings += bool(renewed)
        self._replaceable = not all(_of_the_kernel(fd) for fd in fds if fd >= 0)
        if failure is not None:
            raise failure


def _closed() -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF))


def _node(fd: int) -> tuple[int, int]:
    told = os.fstat(fd)
    return told.st_dev, told.st_ino


def _replaced(fd: int) -> bool | None:
    """Whether another file has taken the place of one that is open; None: it is not, or its device was removed."""
    try:
        os.pread(fd, 1, 0)
    except OSError as error:
        if of_a_handler(error):
            raise
        if error.errno in VANISHED:
            return None
    return not os.fstat(fd).st_nlink


def _of_the_kernel(fd: int) -> bool:
    """Whether a file is an attribute of sysfs: a page, on no disk, which is never replaced (``fs/sysfs/file.c``)."""
    told = os.fstat(fd)
    return told.st_size == mmap.PAGESIZE and told.st_blocks == 0
